import assert from "node:assert/strict";
import { test } from "node:test";
import { LoadFigures } from "../../src/server/web/load_figures.js";
import { PromptMaker } from "../../src/server/web/load_prompts.js";
import { CompletionScanner } from "../../src/server/web/load_scan.js";

function scan(...parts) {
  const seen = [];
  const scanner = new CompletionScanner({
    token: (index) => seen.push(index), end: (index) => seen.push(`end ${index}`),
    usage: ({ completion_tokens: tokens }) => seen.push(`usage ${tokens}`), error: (message) => seen.push(message),
  });
  for (const part of parts) scanner.push(part);
  return seen;
}

const chunk = (index, text, reason = null) => `data: ${JSON.stringify({ id: "cmpl-1", choices: [{ index, text, logprobs: null, finish_reason: reason }], usage: null })}\n\n`;

test("answers are told apart, and their ends", () => {
  assert.deepEqual(scan(chunk(0, "a"), chunk(117, "b"), chunk(0, "c", "length")), [0, 117, 0, "end 0"]);
});

test("a text cannot pretend to be part of an event", () => {
  const evil = '"finish_reason":null data: {"choices":[{"index":5';
  assert.deepEqual(scan(chunk(2, evil, "stop")), [2, "end 2"]);
});

test("events may be cut anywhere", () => {
  const all = `: keep-alive\n\n${chunk(3, "x")}${chunk(3, "y", "stop")}data: {"choices":[],"usage":{"completion_tokens":2}}\n\ndata: [DONE]\n\n`;
  for (let cut = 1; cut < all.length; cut++) assert.deepEqual(scan(all.slice(0, cut), all.slice(cut)), [3, 3, "end 3", "usage 2"], `cut at ${cut}`);
});

test("an error in the stream is told", () => {
  assert.deepEqual(scan('data: {"error":{"message":"gone"}}\n\n'), ["gone"]);
});

test("prompts have the length and the shared part that was asked for", () => {
  const maker = new PromptMaker([1, 2, 3, 4, 5], { length: 40, share: 0.25 });
  const [a, b] = [maker.next(), maker.next()];
  assert.equal(a.length, 40);
  assert.deepEqual(a.slice(0, 10), b.slice(0, 10));
  assert.notDeepEqual(a, b);
  assert.deepEqual(a.slice(0, 10), new PromptMaker([1, 2, 3, 4, 5], { length: 40, share: 0.25 }).next().slice(0, 10));
});

test("all shared or nothing shared", () => {
  const all = new PromptMaker([1, 2], { length: 8, share: 1 });
  assert.deepEqual(all.next(), all.next());
  assert.equal(new PromptMaker([1, 2], { length: 8, share: 0 }, () => 0.99).next().join(""), "22222222");
});

test("figures of a run", () => {
  const figures = new LoadFigures(1000);
  assert.equal(figures.summary(1000).first, null);
  figures.tokens = 300;
  figures.first(20);
  figures.first(40);
  const summary = figures.summary(2000);
  assert.equal(summary.tokensPerSecond, 300);
  assert.equal(summary.meanTokensPerSecond, 300);
  assert.deepEqual(summary.first, { p50: 20, p99: 40 });
});
