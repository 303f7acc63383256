// Conversations as a file, and back. What comes in is checked: it may come from anywhere.
import { cleanSettings } from "./settings.js";
import { newConversation, titleOf } from "./store.js";

const FORMAT = "gapless-chats";
const VERSION = 1;
const ROLES = ["user", "assistant"];

// Whether they are the same chat: one that was exported keeps when it was begun, and what was said.
export function sameChat(one, other) {
  if (one.created !== other.created || one.messages.length !== other.messages.length) return false;
  return one.messages.every(({ role, content }, i) => role === other.messages[i].role && content === other.messages[i].content);
}

const failed = (problem) => ({ conversations: [], problems: [problem] });
const timeOf = (value, otherwise) => (Number.isFinite(value) && value > 0 ? value : otherwise);

export function exportText(conversations) {
  const pick = ({ title, named, created, updated, settings, messages }) => ({ title, named, created, updated, settings, messages });
  return JSON.stringify({ format: FORMAT, version: VERSION, conversations: conversations.map(pick) }, null, 1);
}

// {conversations: those that are right, problems: what was wrong, in words}
export function importText(text) {
  let file;
  try {
    file = JSON.parse(text);
  } catch (error) {
    return failed(`This is not JSON: ${error.message}.`);
  }
  if (file?.format !== FORMAT) return failed(`This is not an export of chats: "format" is not "${FORMAT}".`);
  if (file.version !== VERSION) return failed(`"version" is ${JSON.stringify(file.version)}; this page reads ${VERSION}.`);
  if (!Array.isArray(file.conversations)) return failed('"conversations" is not a list.');
  const problems = [];
  const conversations = file.conversations.map((given, i) => readConversation(given, i, problems));
  return { conversations: conversations.filter(Boolean), problems };
}

function readConversation(given, i, problems) {
  const where = `conversations[${i}]`;
  if (!Array.isArray(given?.messages)) {
    problems.push(`${where}.messages is not a list.`);
    return null;
  }
  const before = problems.length;
  const messages = given.messages.map((message, n) => readMessage(message, `${where}.messages[${n}]`, problems));
  if (problems.length > before) return null;
  const now = Date.now() - i; // keeps the order of the file
  const first = messages.find(({ role }) => role === "user");
  const title = typeof given.title === "string" && given.title ? given.title : titleOf(first?.content ?? "Imported");
  return { ...newConversation(cleanSettings(given.settings)), title, named: given.named === true, messages,
    created: timeOf(given.created, now), updated: timeOf(given.updated, now) };
}

function readMessage(given, where, problems) {
  if (!ROLES.includes(given?.role)) problems.push(`${where}.role is ${JSON.stringify(given?.role)}; it can be "user" or "assistant".`);
  else if (typeof given.content !== "string") problems.push(`${where}.content is not a text.`);
  const message = { role: given?.role, content: given?.content };
  if (typeof given?.reasoning === "string") message.reasoning = given.reasoning;
  if (typeof given?.finish === "string") message.finish = given.finish;
  if (given?.json === true) message.json = true;
  const stats = statsOf(given?.stats);
  if (stats) message.stats = stats;
  return message;
}

// Of an answer: numbers only.
function statsOf(given) {
  if (typeof given !== "object" || given === null) return null;
  return Object.fromEntries(Object.entries(given).filter(([, value]) => Number.isFinite(value)));
}
