// What the page knows of its server, and that a server that was restarted with another model is found out.
import assert from "node:assert/strict";
import { afterEach, beforeEach, test } from "node:test";
import { errorFrom, getKey, keyProblem, request, setKey } from "../../src/server/web/api.js";

const page = Object.assign(new EventTarget(), { hidden: false });
globalThis.document = page;
const { ServerState } = await import("../../src/server/web/server_state.js");

const answers = {};
let asked = [];
globalThis.fetch = async (url) => {
  const path = new URL(url).pathname.split("/src/server/")[1];
  asked.push(path);
  if (answers[path] === undefined) throw new TypeError("Failed to fetch");
  return new Response(JSON.stringify(answers[path]), { status: answers[path].error ? 500 : 200 });
};

function serve(id, template = "t") {
  Object.assign(answers, { ready: {}, "v1/models": { data: [{ id }] }, tokenizer_info: { chat_template: template } });
}

beforeEach(() => { asked = []; });
afterEach(() => { page.hidden = true; }); // nobody asks any more

async function watched(t) {
  t.mock.timers.enable({ apis: ["setTimeout"] });
  page.hidden = false;
  serve("one");
  const state = new ServerState();
  const seen = [];
  state.onStatus(() => seen.push(state.model()?.id));
  await state.check();
  assert.equal(state.model().id, "one");
  return { state, seen };
}

test("another model is seen within six polls, and who listens is told", async (t) => {
  const { state, seen } = await watched(t);
  serve("two", null);
  for (let i = 0; i < 6; i++) await state.check();
  assert.equal(state.model().id, "two");
  assert.equal(state.model().has_chat_template, false);
  assert.equal(seen.at(-1), "two");
  assert.equal(asked.filter((path) => path === "v1/models").length, 2);
});

test("the model is read again when the page is shown again", async (t) => {
  const { state } = await watched(t);
  serve("two");
  page.dispatchEvent(new Event("visibilitychange"));
  await state.check();
  assert.equal(state.model().id, "two");
});

test("the model is read again after a request that failed", async (t) => {
  const { state } = await watched(t);
  serve("two");
  answers.other = { error: { message: "m" } };
  await assert.rejects(request("GET", "other"), { status: 500 });
  await state.check();
  assert.equal(state.model().id, "two");
});

test("a key that no header can carry is refused in words, and the one before stays", () => {
  setKey("right key");
  assert.throws(() => setKey("schlüssel"), /only printable ASCII/);
  assert.equal(getKey(), "right key");
  setKey("");
  for (const key of ["a\nb", "ключ", "a\u0000"]) assert.match(keyProblem(key), /printable ASCII/);
  assert.equal(keyProblem("!~ ok"), "");
});

for (const [given, message] of [
  ["just text", "just text"], [{}, "an error without words"], [{ message: 5, param: ["x"], code: 7 }, "an error without words"],
  [{ message: "m", param: 3, code: null }, "m"],
]) {
  test(`an error of any form has words: ${JSON.stringify(given)}`, () => {
    const { message: words, param, code, status } = errorFrom(given);
    assert.deepEqual({ words, param, code, status }, { words: message, param: "", code: "", status: null });
  });
}
