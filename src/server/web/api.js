// The server's API: the key, errors with the server's own words, and event streams.
// Paths are taken from where this file came from, so that the page works behind a proxy's prefix.
import { SseParser } from "./sse.js";
import { keep, recall } from "./storage.js";

const KEY = "gapless.key";
const root = new URL("..", import.meta.url);
const keyListeners = new Set();
const deniedListeners = new Set();

// status 0: the server could not be reached, or the connection broke.
export class ApiError extends Error {
  constructor(status, message, { type = "", code = "", param = "", retryAfter = null } = {}) {
    super(message);
    this.name = "ApiError";
    Object.assign(this, { status, type, code, param, retryAfter });
  }
}

let apiKey = recall(KEY) ?? "";

export const getKey = () => apiKey;

export function setKey(key) {
  keep(KEY, key || null);
  useKey(key);
}

function useKey(key) {
  apiKey = key;
  for (const listener of keyListeners) listener(key);
}

// Another tab has another key now.
globalThis.addEventListener?.("storage", (event) => event.key === KEY && useKey(event.newValue ?? ""));

export function onKeyChange(listener) {
  keyListeners.add(listener);
}

// The server asked for a key (401): listener(ApiError).
export function onDenied(listener) {
  deniedListeners.add(listener);
}

// The error that a response other than 2xx stands for.
export async function errorOf(response) {
  const retryAfter = Number(response.headers.get("Retry-After")) || null;
  const text = await response.text().catch(() => "");
  try {
    const { error } = JSON.parse(text);
    if (typeof error.message === "string") return errorFrom(error, response.status, retryAfter);
  } catch {
    // A proxy's page: its status says more than its text.
  }
  return new ApiError(response.status, `HTTP ${response.status} ${response.statusText}`.trim(), { retryAfter });
}

// error: the object in {"error": ...}, also of an event of a stream.
export function errorFrom(error, status = 500, retryAfter = null) {
  const { message, type, code, param } = error;
  return new ApiError(status, message, { type: type ?? "", code: code ?? "", param: param ?? "", retryAfter });
}

function unreachable(error) {
  if (error.name === "AbortError") return error;
  return new ApiError(0, "The server cannot be reached.");
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
  }).catch((error) => { throw unreachable(error); });
  if (response.ok) return response;
  const error = await errorOf(response);
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
      const { done, value } = await reader.read().catch((error) => { throw broken(error); });
      yield* parser.push(done ? decoder.decode() : decoder.decode(value, { stream: true }));
      if (done) return;
    }
  } finally {
    reader.cancel().catch(() => {});
  }
}

function broken(error) {
  if (error.name === "AbortError") return error;
  return new ApiError(0, "The connection to the server broke.");
}
