// The server's API: the key, errors with the server's own words, and event streams.
// Paths are taken from where this file came from, so that the page works behind a proxy's prefix.
import { SseParser } from "./sse.js";
import { keep, recall } from "./storage.js";

const KEY = "gapless.key";
const root = new URL("..", import.meta.url);
const keyListeners = new Set();
const deniedListeners = new Set();
const failureListeners = new Set();

// status 0: the server could not be reached, or the connection broke. null: the error came inside a stream.
export class ApiError extends Error {
  constructor(status, message, { type = "", code = "", param = "", retryAfter = null } = {}) {
    super(message);
    this.name = "ApiError";
    Object.assign(this, { status, type, code, param, retryAfter });
  }
}

// What is wrong with a key, or ''. Browsers send no other characters in a header.
export function keyProblem(key) {
  return /^[\x20-\x7e]*$/.test(key) ? "" : "a key has only printable ASCII characters";
}

// One that was kept and cannot be sent is none.
const usable = (key) => (keyProblem(key ?? "") ? "" : key ?? "");

let apiKey = usable(recall(KEY));

export const getKey = () => apiKey;

// Throws what keyProblem says.
export function setKey(key) {
  const problem = keyProblem(key);
  if (problem) throw new RangeError(problem);
  keep(KEY, key || null);
  useKey(key);
}

function useKey(key) {
  apiKey = key;
  for (const listener of keyListeners) listener(key);
}

// Another tab has another key now.
globalThis.addEventListener?.("storage", (event) => event.key === KEY && useKey(usable(event.newValue)));

export function onKeyChange(listener) {
  keyListeners.add(listener);
}

// The server asked for a key (401): listener(ApiError).
export function onDenied(listener) {
  deniedListeners.add(listener);
}

// A request failed, or its stream broke: listener(). Another server may answer now.
export function onFailure(listener) {
  failureListeners.add(listener);
}

// The error that a response other than 2xx stands for.
export async function errorOf(response) {
  const retryAfter = Number(response.headers.get("Retry-After")) || null;
  const text = await response.text().catch(() => "");
  try {
    const { error } = JSON.parse(text);
    if (error) return errorFrom(error, response.status, retryAfter);
  } catch {
    // A proxy's page: its status says more than its text.
  }
  return new ApiError(response.status, `HTTP ${response.status} ${response.statusText}`.trim(), { retryAfter });
}

// error: what is in {"error": ...}, whatever a server or a proxy puts there. status null: it came inside a stream.
export function errorFrom(error, status = null, retryAfter = null) {
  const text = (value) => (typeof value === "string" ? value : "");
  const message = text(error) || text(error.message) || (status ? `HTTP ${status}` : "an error without words");
  return new ApiError(status, message, { type: text(error.type), code: text(error.code), param: text(error.param), retryAfter });
}

// What fetch and a stream throw, in words. AbortError is the caller's own doing.
function lost(error, words) {
  if (error.name === "AbortError") return error;
  tellFailure();
  return new ApiError(0, words);
}

function tellFailure() {
  for (const listener of failureListeners) listener();
}

// Resolves with a 2xx Response; throws ApiError, or AbortError when `signal` aborted it.
export async function request(method, path, { body, signal, accept } = {}) {
  const headers = {};
  if (getKey()) headers.Authorization = `Bearer ${getKey()}`;
  if (accept) headers.Accept = accept;
  if (body !== undefined) headers["Content-Type"] = "application/json";
  const response = await fetch(new URL(path.replace(/^\/+/, ""), root), {
    method, headers, signal, cache: "no-store", credentials: "same-origin",
    body: body === undefined ? undefined : JSON.stringify(body),
  }).catch((error) => { throw lost(error, "The server cannot be reached."); });
  if (response.ok) return response;
  const error = await errorOf(response);
  tellFailure();
  if (error.status === 401) for (const listener of deniedListeners) listener(error);
  throw error;
}

// The events of a text/event-stream as {event, data}. Leaving the loop closes the connection.
export async function* events(path, { method = "GET", body, signal } = {}) {
  const response = await request(method, path, { body, signal, accept: "text/event-stream" });
  const reader = response.body.getReader();
  const decoder = new TextDecoder();
  const parser = new SseParser();
  try {
    while (true) {
      const { done, value } = await reader.read().catch((error) => { throw lost(error, "The connection to the server broke."); });
      yield* parser.push(done ? decoder.decode() : decoder.decode(value, { stream: true }));
      if (done) return;
    }
  } finally {
    reader.cancel().catch(() => {});
  }
}
