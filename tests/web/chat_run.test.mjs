// The request for an answer, and what becomes of the stream that brings it.
import assert from "node:assert/strict";
import { test } from "node:test";
import { ApiError, errorOf, events, getKey, onDenied, request, setKey } from "../../src/server/web/api.js";
import { readAnswer, requestFor } from "../../src/server/web/chat_run.js";

const user = (content) => ({ role: "user", content });

test("a chat is sent with its system prompt, and nothing of what the page keeps for itself", () => {
  const messages = [user("a"), { role: "assistant", content: "b", stats: {}, finish: "stop" }, user("c")];
  const { path, body, problems } = requestFor({ messages, settings: { system: "s", temperature: "0" } }, true); // 0 is not empty
  assert.equal(path, "v1/chat/completions");
  assert.deepEqual(problems, {});
  assert.deepEqual(body, { messages: [{ role: "system", content: "s" }, user("a"), { role: "assistant", content: "b" }, user("c")],
    temperature: 0, stream: true, stream_options: { include_usage: true, continuous_usage_stats: true } });
});

test("an answer that was cut goes on", () => {
  const { body } = requestFor({ messages: [user("a"), { role: "assistant", content: "half" }], settings: {} }, true);
  assert.equal(body.continue_final_message, true);
  assert.equal(body.add_generation_prompt, false);
});

test("without a chat template the text goes on, and not for 16 tokens", () => {
  const messages = [user("Once "), { role: "assistant", content: "upon" }, user(" a")];
  const { path, body } = requestFor({ messages, settings: { system: "s" } }, false);
  assert.equal(path, "v1/completions");
  assert.equal(body.prompt, "Once upon a");
  assert.equal(body.max_tokens, 256);
  assert.equal(body.temperature, 0.7);
  assert.equal(requestFor({ messages: [], settings: { max_tokens: "9" } }, false).body.max_tokens, 9);
});

const chunk = (content, more = {}) => ({ data: JSON.stringify({ choices: [{ delta: { content }, finish_reason: null }], ...more }) });
const usage = { prompt_tokens: 9, completion_tokens: 5, prompt_tokens_details: { cached_tokens: 4 } };
const last = (reason) => ({ data: JSON.stringify({ choices: [{ delta: {}, finish_reason: reason }], usage }) });

async function answerOf(pieces, { before = "", gapMs = 2 } = {}) {
  const answer = { role: "assistant", content: before, error: { message: "old" }, finish: "length" };
  async function* source() {
    for (const piece of pieces) {
      if (gapMs) await new Promise((resolve) => setTimeout(resolve, gapMs));
      if (piece instanceof Error) throw piece;
      yield piece;
    }
  }
  let updates = 0;
  await readAnswer({ path: "p", body: {} }, answer, null, () => updates++, source);
  assert.ok(updates > 0);
  return answer;
}

test("text, reasoning and numbers come together", async () => {
  const thought = { data: JSON.stringify({ choices: [{ delta: { reasoning_content: "hm" } }] }) };
  const first = chunk("a", { usage: { prompt_tokens: 9, completion_tokens: 2 } });
  const answer = await answerOf([thought, first, chunk("b"), last("stop"), { data: "[DONE]" }], { before: "before ", gapMs: 60 });
  assert.equal(answer.content, "before ab");
  assert.equal(answer.reasoning, "hm");
  assert.equal(answer.finish, "stop");
  assert.equal(answer.error, undefined);
  assert.deepEqual([answer.stats.prompt, answer.stats.cached, answer.stats.output], [9, 4, 5]);
  assert.ok(answer.stats.ttft > 0 && answer.stats.rate > 0);
});

test("the speed of what comes in one piece is that since the request", async () => {
  const { stats } = await answerOf([chunk("a", { usage: { completion_tokens: 1 } }), chunk("b"), last("stop")], { gapMs: 0 });
  assert.ok(stats.rate > 0 && stats.rate <= 1000 * stats.output / stats.ttft, JSON.stringify(stats));
});

test("an error in the stream keeps what had come", async () => {
  const answer = await answerOf([chunk("half"), { data: '{"error":{"message":"draining","code":"unavailable"}}' }]);
  assert.equal(answer.content, "half");
  assert.equal(answer.error.message, "draining");
  assert.equal(answer.finish, undefined);
});

test("an error in the stream has the server's words and no number", async () => {
  const { error } = await answerOf([{ data: '{"error":{"message":"aborted by an operator","param":3}}' }]);
  assert.deepEqual(error, { status: null, message: "aborted by an operator", param: "", code: "", retryAfter: null });
  assert.equal((await answerOf([{ data: '{"error":"plain"}' }])).error.message, "plain");
  assert.match((await answerOf([{ data: "{" }])).error.message, /not JSON/);
});

test("pieces without what is expected of them do no harm", async () => {
  const odd = ["null", "3", '{"choices":null}', '{"choices":[null]}', '{"choices":[{"delta":null,"text":5}]}', '{"usage":{}}'];
  const end = '{"choices":[{"delta":{},"finish_reason":"stop"}],"usage":{}}';
  const answer = await answerOf([...odd.map((data) => ({ data })), chunk("a"), { data: end }]);
  assert.deepEqual([answer.content, answer.finish, answer.error], ["a", "stop", undefined]);
  assert.ok(Object.values(answer.stats).every(Number.isFinite), JSON.stringify(answer.stats));
});

test("a stream that just ends is an error, one that was stopped is not", async () => {
  assert.equal((await answerOf([chunk("half")])).error.status, 0);
  const stopped = await answerOf([chunk("half"), new DOMException("", "AbortError")]);
  assert.equal(stopped.error, undefined);
  assert.equal(stopped.finish, "stopped");
});

test("what the server refuses is told with its own words", async () => {
  const refused = new ApiError(400, "top_p is 3", { param: "top_p", code: "x" });
  assert.deepEqual((await answerOf([refused])).error, { status: 400, message: "top_p is 3", param: "top_p", code: "x", retryAfter: null });
});

test("errors of the server and of a proxy", async () => {
  const body = '{"error":{"message":"m","type":"t","param":null,"code":"queue_full"}}';
  const own = await errorOf(new Response(body, { status: 429, headers: { "Retry-After": "3" } }));
  assert.deepEqual({ ...own }, { name: "ApiError", status: 429, type: "t", code: "queue_full", param: "", retryAfter: 3 });
  assert.equal(own.message, "m");
  assert.equal((await errorOf(new Response("<html>", { status: 502, statusText: "Bad Gateway" }))).message, "HTTP 502 Bad Gateway");
});

function withFetch(t, answer) {
  const asked = [];
  t.mock.method(globalThis, "fetch", (url, options) => {
    asked.push({ url: String(url), ...options });
    return answer();
  });
  return asked;
}

test("paths are beside the page's own folder, and the key goes along", async (t) => {
  const asked = withFetch(t, () => Promise.resolve(new Response("{}")));
  setKey("secret");
  assert.equal(getKey(), "secret");
  await request("POST", "/v1/x", { body: { a: 1 } });
  setKey("");
  await request("GET", "ready");
  assert.ok(asked[0].url.endsWith("/src/server/v1/x"), asked[0].url);
  assert.equal(asked[0].headers.Authorization, "Bearer secret");
  assert.equal(asked[0].body, '{"a":1}');
  assert.equal("Authorization" in asked[1].headers, false);
});

test("no server, and a key that is not right", async (t) => {
  let answer = () => Promise.reject(new TypeError("Failed to fetch"));
  withFetch(t, () => answer());
  await assert.rejects(request("GET", "x"), { name: "ApiError", status: 0 });
  const denied = [];
  onDenied((error) => denied.push(error.message));
  answer = () => Promise.resolve(new Response('{"error":{"message":"no key"}}', { status: 401 }));
  await assert.rejects(request("GET", "x"), { status: 401 });
  assert.deepEqual(denied, ["no key"]);
});

test("a character that is cut between two pieces of a stream is whole", async (t) => {
  const bytes = new TextEncoder().encode("data: é😀\n\n");
  const stream = new ReadableStream({
    start(controller) {
      for (const byte of bytes) controller.enqueue(new Uint8Array([byte]));
      controller.close();
    },
  });
  withFetch(t, () => Promise.resolve(new Response(stream)));
  const seen = [];
  for await (const event of events("x")) seen.push(event.data);
  assert.deepEqual(seen, ["é😀"]);
});
