// Conversations in use on one page while another tab of it writes.
import assert from "node:assert/strict";
import { test } from "node:test";
import { Conversations } from "../../src/server/web/conversations.js";
import { MemoryBackend, newConversation, Store } from "../../src/server/web/store.js";

// Two tabs with one store; a tab hears of the other's writes when heard() is called.
async function twoTabs() {
  const backend = new MemoryBackend();
  const tab = async () => {
    const told = { copies: [], errors: [], busy: new Set(), renewed: [] };
    const conversations = new Conversations({
      busy: (conversation) => told.busy.has(conversation),
      changed: () => {},
      renewed: (conversation) => told.renewed.push(conversation),
      copied: (conversation) => told.copies.push(conversation),
      failed: (error) => told.errors.push(error),
    });
    await conversations.load(() => Promise.resolve(new Store(backend)));
    return { conversations, ...told };
  };
  return [await tab(), await tab(), new Store(backend)];
}

function chat(text) {
  return { ...newConversation(), title: text, messages: [{ role: "user", content: text }] };
}

const say = (conversation, content) => conversation.messages.push({ role: "user", content });
const texts = async (store) => (await store.all()).map(({ messages }) => messages.map(({ content }) => content).join()).sort();

async function sharedChat() {
  const [one, two, store] = await twoTabs();
  const here = chat("first");
  one.conversations.include(here);
  await one.conversations.save(here);
  await two.conversations.reload();
  return { one, two, store, here, there: two.conversations.list[0] };
}

test("what another tab wrote is taken over, in the object that is in use", async () => {
  const { one, two, here, there } = await sharedChat();
  say(there, "from two");
  await two.conversations.save(there);
  await one.conversations.reload();
  assert.equal(one.conversations.list[0], here);
  assert.equal(here.messages.at(-1).content, "from two");
  assert.deepEqual(one.renewed, [here]);
});

test("what is being answered stays as it is, and becomes a copy", async () => {
  const { one, two, store, here, there } = await sharedChat();
  one.busy.add(here);
  say(here, "from one");
  say(there, "from two");
  await two.conversations.save(there);
  await one.conversations.reload();
  assert.equal(here.messages.at(-1).content, "from one");
  await one.conversations.save(here);
  assert.deepEqual(one.copies, [here]);
  assert.deepEqual(await texts(store), ["first,from one", "first,from two"]);
});

test("what is on its way into the store is not overwritten by what another tab wrote", async () => {
  const { one, two, store, here, there } = await sharedChat();
  say(there, "from two");
  await two.conversations.save(there);
  say(here, "from one");
  await Promise.all([one.conversations.reload(), one.conversations.save(here)]);
  assert.deepEqual(await texts(store), ["first,from one", "first,from two"]);
});

test("what waits to be saved is not overwritten either", async () => {
  const { one, two, store, here, there } = await sharedChat();
  say(there, "from two");
  await two.conversations.save(there);
  say(here, "from one");
  one.conversations.saveSoon(here);
  await one.conversations.reload();
  one.conversations.saveAll();
  await one.conversations.save(here);
  assert.deepEqual(await texts(store), ["first,from one", "first,from two"]);
});

test("one that was removed is not written again by an answer that ends", async () => {
  const { one, store, here } = await sharedChat();
  await one.conversations.remove(here);
  await one.conversations.save(here);
  assert.deepEqual(await texts(store), []);
  assert.equal(await one.conversations.add([here]), here);
  assert.deepEqual(await texts(store), ["first"]);
});

test("an error of the store is told, and the conversation stays in use", async () => {
  const [one] = await twoTabs();
  const here = chat("big");
  one.conversations.include(here);
  await one.conversations.load(() => Promise.resolve(Object.assign(new Store(new MemoryBackend()), { save: () => Promise.reject(new Error("full")) })));
  one.conversations.include(here);
  await one.conversations.save(here);
  assert.equal(one.errors[0].message, "full");
  assert.deepEqual(one.conversations.list, [here]);
});
