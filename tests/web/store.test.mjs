// Conversations that are kept, shared between tabs, exported and imported; and the settings they carry.
import assert from "node:assert/strict";
import { test } from "node:test";
import { changedSettings, cleanSettings, NUMBERS, problemOf, requestFields } from "../../src/server/web/settings.js";
import { MemoryBackend, newConversation, openStore, Store, titleOf } from "../../src/server/web/store.js";
import { exportText, importText, sameChat } from "../../src/server/web/transfer.js";

function conversation(title, ...texts) {
  const messages = texts.map((content, i) => ({ role: i % 2 ? "assistant" : "user", content }));
  return { ...newConversation(), title, messages };
}

test("what is saved is there, newest first, and is no longer after it was removed", async () => {
  const store = new Store(new MemoryBackend());
  const old = { ...conversation("old", "a"), updated: 1 }, young = { ...conversation("young", "b"), updated: 2 };
  await store.save(young);
  await store.save(old);
  assert.deepEqual((await store.all()).map(({ title }) => title), ["young", "old"]);
  await store.remove(old.id);
  assert.deepEqual((await store.all()).map(({ title }) => title), ["young"]);
});

test("saves that overlap are of one tab: no copy is made", async () => {
  const store = new Store(new MemoryBackend());
  const chat = conversation("chat", "a");
  await Promise.all([store.save(chat), store.save(chat), store.save(chat)]);
  assert.equal((await store.all()).length, 1);
  assert.equal(chat.rev, 3);
});

test("two tabs that write the same chat both keep what they wrote", async () => {
  const backend = new MemoryBackend();
  const one = new Store(backend), two = new Store(backend);
  const here = conversation("chat", "a");
  await one.save(here);
  const [there] = await two.all();
  there.messages.push({ role: "assistant", content: "from there" });
  await two.save(there);
  here.messages.push({ role: "assistant", content: "from here" });
  await one.save(here);
  const stored = Object.fromEntries((await one.all()).map(({ title, messages }) => [title, messages.at(-1).content]));
  assert.deepEqual(stored, { chat: "from there", "chat (copy)": "from here" });
  await one.save(here); // goes on as the copy
  assert.equal((await one.all()).length, 2);
});

test("a chat that another tab removed while it was answered here is written again", async () => {
  const backend = new MemoryBackend();
  const store = new Store(backend);
  const chat = conversation("chat", "a");
  await store.save(chat);
  await new Store(backend).remove(chat.id);
  await store.save(chat);
  assert.equal((await store.all()).length, 1);
});

test("other tabs are told, and an error reaches who saves without blocking the next", async () => {
  const told = [];
  const backend = new MemoryBackend();
  const update = backend.update.bind(backend);
  const store = new Store(backend, () => {}, { postMessage: (what) => told.push(what) });
  backend.update = () => Promise.reject(new DOMException("full", "QuotaExceededError"));
  const chat = conversation("chat", "a");
  await assert.rejects(store.save(chat), { name: "QuotaExceededError" });
  assert.equal(chat.rev, 0);
  backend.update = update;
  await store.save(chat);
  assert.equal(told.length, 1);
});

test("a database that does not open is not waited for: chats are kept until the page is left", async (t) => {
  const opening = {};
  globalThis.indexedDB = { open: () => opening };
  t.after(() => delete globalThis.indexedDB);
  const store = await openStore(() => {}, 1);
  assert.equal(store.kept, false);
  await store.save(conversation("chat", "a"));
  assert.equal((await store.all()).length, 1);
  let closed = false;
  opening.result = { close: () => { closed = true; } };
  opening.onsuccess();
  await new Promise(setImmediate);
  assert.ok(closed, "one that opens later holds nothing");
});

test("a title is the beginning of the first line", () => {
  assert.equal(titleOf("  Hello   there\nsecond"), "Hello there");
  const long = titleOf("😀".repeat(100));
  assert.equal(Array.from(long).length, 60);
  assert.ok(long.endsWith("…"));
});

test("what was exported comes back, as new conversations", () => {
  const chat = conversation("name", "question", "answer");
  chat.messages[1] = { ...chat.messages[1], reasoning: "hm", finish: "stop", stats: { rate: 3.5, output: 7 } };
  chat.settings = { temperature: "0.5", system: "Be short." };
  const { conversations: [back], problems } = importText(exportText([chat]));
  assert.deepEqual(problems, []);
  for (const name of ["title", "messages", "settings", "created", "updated"]) assert.deepEqual(back[name], chat[name], name);
  assert.notEqual(back.id, chat.id);
  assert.ok(sameChat(back, chat), "it is not imported twice");
  back.messages.pop();
  assert.ok(!sameChat(back, chat));
  assert.equal(back.rev, 0);
});

const file = (...conversations) => JSON.stringify({ format: "gapless-chats", version: 1, conversations });

for (const [text, problem] of [
  ["{", /not JSON/],
  ["null", /not an export/],
  ["[]", /not an export/],
  ['{"format":"gapless-chats","version":9}', /"version" is 9/],
  ['{"format":"gapless-chats","version":1}', /"conversations" is not a list/],
  [file(null), /conversations\[0\]\.messages is not a list/],
  [file({ messages: [null] }), /conversations\[0\]\.messages\[0\]\.role is undefined/],
  [file({ messages: [{ role: "tool", content: "x" }] }), /role is "tool"/],
  [file({ messages: [{ role: "user", content: ["x"] }] }), /conversations\[0\]\.messages\[0\]\.content is not a text/],
]) {
  test(`an import says what is wrong: ${text}`, () => {
    const { conversations, problems } = importText(text);
    assert.deepEqual(conversations, []);
    assert.match(problems[0], problem);
  });
}

test("an import takes what is right beside what is wrong, and nothing that is not known", () => {
  const message = { role: "user", content: "hi", extra: 1, stats: { a: "b", output: 2 } };
  const good = { title: 5, settings: { temperature: 1, system: "s", evil: "x" }, messages: [message] };
  const { conversations, problems } = importText(file({ messages: 1 }, good));
  assert.equal(problems.length, 1);
  assert.equal(conversations[0].title, "hi");
  assert.deepEqual(conversations[0].settings, { system: "s" });
  assert.deepEqual(conversations[0].messages, [{ role: "user", content: "hi", stats: { output: 2 } }]);
});

test("empty settings send nothing but the page's temperature", () => {
  const fields = { temperature: 0.7 };
  assert.deepEqual(requestFields({}), { fields, problems: {} });
  assert.deepEqual(requestFields({ temperature: "", stop: "", schema: "" }), { fields, problems: {} });
  assert.deepEqual(changedSettings({}), []);
});

test("settings become fields of the request", () => {
  const settings = { temperature: "0", top_k: "-1", seed: "7", stop: "a\n\nb ", schema: '{"type":"object"}', system: "not here" };
  const { fields, problems } = requestFields(settings);
  assert.deepEqual(problems, {});
  assert.deepEqual(fields, { temperature: 0, top_k: -1, seed: 7, stop: ["a", "b "],
    response_format: { type: "json_schema", json_schema: { name: "answer", strict: true, schema: { type: "object" } } } });
});

for (const [name, text, problem] of [
  ["temperature", "2.1", "at most 2"], ["temperature", "-1", "at least 0"], ["temperature", "warm", "not a number"],
  ["temperature", " ", "not a number"], ["temperature", "Infinity", "not a number"], ["top_p", "0", "must be above 0"],
  ["max_tokens", "1.5", "not a whole number"], ["max_tokens", "0", "at least 1"], ["seed", "1e30", "not a whole number"],
  ["schema", "[]", "a JSON schema is an object"], ["stop", "x\n".repeat(17), "at most 16 lines"],
  ["top_p", "1", ""], ["frequency_penalty", "-2", ""], ["schema", "true", ""],
]) test(`${name} ${JSON.stringify(text.slice(0, 20))}: ${problem || "right"}`, () => assert.equal(problemOf(name, text), problem));

test("a schema that is not JSON says so", () => assert.match(problemOf("schema", '{"a":'), /^not JSON: /));

test("settings of elsewhere are texts with known names", () => {
  assert.deepEqual(cleanSettings({ temperature: "1", top_p: 0.5, unknown: "x", system: "" }), { temperature: "1" });
  for (const nothing of [null, undefined, 3, "text", []]) assert.deepEqual(cleanSettings(nothing), {});
});

test("what is changed is named", () => {
  assert.deepEqual(changedSettings({ temperature: "0.7", schema: "{}", system: "x" }), ["temperature 0.7", "JSON schema", "system prompt"]);
  assert.ok(NUMBERS.every(({ name }) => changedSettings({ [name]: "1" }).length === 1));
});
