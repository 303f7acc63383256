// The settings of a chat: what the user typed, as text, empty where the server decides. Nothing that is left empty is
// sent, so a new default of the server is in force at once; but for the temperature: 1, which is the API's, makes small
// models babble. Ranges are those of docs/api.md.
import { keep, recall } from "./storage.js";

const KEY = "gapless.settings";

const TEMPERATURE = "0.7";
export const COMPLETION_TOKENS = "256"; // of a base model; the server's own default for completions is 16

// otherwise: what is in force while it is empty, where the hint does not say it
export const NUMBERS = [
  { name: "temperature", label: "Temperature", min: 0, max: 2, hint: "0 to 2", otherwise: TEMPERATURE },
  { name: "max_tokens", label: "Max tokens", min: 1, whole: true, hint: "no limit" },
  { name: "top_p", label: "Top p", min: 0, above: true, max: 1, hint: "above 0, up to 1" },
  { name: "top_k", label: "Top k", min: -1, whole: true, hint: "0 or -1: all" },
  { name: "min_p", label: "Min p", min: 0, max: 1, hint: "0 to 1" },
  { name: "seed", label: "Seed", whole: true, hint: "random" },
  { name: "repetition_penalty", label: "Repetition penalty", min: 0, above: true, max: 2, hint: "1: none" },
  { name: "presence_penalty", label: "Presence penalty", min: -2, max: 2, hint: "-2 to 2" },
  { name: "frequency_penalty", label: "Frequency penalty", min: -2, max: 2, hint: "-2 to 2" },
];
const MAX_STOPS = 16;
const TEXTS = ["system", "stop", "schema"];
export const NAMES = [...TEXTS, ...NUMBERS.map(({ name }) => name)];

// Only what is known, and only texts: settings may come from an older page or a file.
export function cleanSettings(given) {
  const entries = NAMES.map((name) => [name, given?.[name]]).filter(([, value]) => typeof value === "string" && value !== "");
  return Object.fromEntries(entries);
}

// "temperature 0.7": what differs from the server's own.
export function changedSettings(settings) {
  const out = NUMBERS.filter(({ name }) => settings[name]).map(({ name, label }) => `${label.toLowerCase()} ${settings[name]}`);
  if (settings.stop) out.push("stop strings");
  if (settings.schema) out.push("JSON schema");
  if (settings.system) out.push("system prompt");
  return out;
}

const stopsOf = (text) => text.split("\n").filter((line) => line !== "");

// What is wrong with one, or ''.
export function problemOf(name, text) {
  if (!text || name === "system") return "";
  if (name === "stop") return stopsOf(text).length > MAX_STOPS ? `at most ${MAX_STOPS} lines` : "";
  if (name === "schema") return schemaProblem(text);
  return numberProblem(NUMBERS.find((field) => field.name === name), text);
}

function numberProblem({ min, max, above, whole }, text) {
  const value = Number(text);
  if (!text.trim() || !Number.isFinite(value)) return "not a number";
  if (whole && !Number.isSafeInteger(value)) return "not a whole number";
  if (above && value <= min) return `must be above ${min}`;
  if (min !== undefined && value < min) return `at least ${min}`;
  if (max !== undefined && value > max) return `at most ${max}`;
  return "";
}

function schemaProblem(text) {
  try {
    const schema = JSON.parse(text);
    const fits = typeof schema === "boolean" || (typeof schema === "object" && schema !== null && !Array.isArray(schema));
    return fits ? "" : "a JSON schema is an object";
  } catch (error) {
    return `not JSON: ${error.message}`;
  }
}

// The fields of a request. {fields, problems: {name: text}}; with problems, nothing is to be sent.
export function requestFields(settings) {
  const fields = {}, problems = {};
  for (const name of NAMES) {
    const problem = problemOf(name, settings[name]);
    if (problem) problems[name] = problem;
  }
  for (const { name } of NUMBERS) if (settings[name]) fields[name] = Number(settings[name]);
  fields.temperature ??= Number(TEMPERATURE);
  if (settings.stop) fields.stop = stopsOf(settings.stop);
  if (settings.schema && !problems.schema) {
    fields.response_format = { type: "json_schema", json_schema: { name: "answer", strict: true, schema: JSON.parse(settings.schema) } };
  }
  return { fields, problems };
}

// Those that a new chat begins with: of the chat that was changed last.
export function storedSettings() {
  try {
    return cleanSettings(JSON.parse(recall(KEY)));
  } catch {
    return {};
  }
}

export function storeSettings(settings) {
  keep(KEY, JSON.stringify(settings));
}
