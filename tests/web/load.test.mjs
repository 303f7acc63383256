import assert from "node:assert/strict";
import { test } from "node:test";
import { LoadFigures } from "../../src/server/web/load_figures.js";
import { problemOf, sharesOf } from "../../src/server/web/load_plan.js";
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

test("the streams are shared out among a few requests", () => {
  assert.deepEqual(sharesOf(1), [1]);
  assert.deepEqual(sharesOf(32), [11, 11, 10]);
});

test("what does not fit is refused in words, and what fits is not", () => {
  const plain = (settings, context) => problemOf(settings, context).replaceAll("\u202f", " ");
  const usual = { streams: 32, promptLength: 128, answerLength: 256 };
  assert.equal(plain(usual, 384), "");
  assert.equal(plain(usual, null), "");
  assert.equal(plain(usual, 383), "A prompt of 128 tokens and an answer of 256 do not fit: the model's context has 383.");
  const extreme = { streams: 256, promptLength: 100_000, answerLength: 256 };
  assert.match(plain(extreme, 8192), /context has 8 192/);
  assert.match(plain(extreme, 131_072), /32 MiB at most\. With 256 streams a prompt has at most 48 770 tokens/);
  assert.equal(plain({ ...extreme, promptLength: 48_770 }, 131_072), "");
});

test("prompts that are let through fit into a request, whatever their tokens", () => {
  const [share] = sharesOf(256);
  const prompts = Array.from({ length: share }, () => Array(48_770).fill(999_999));
  assert.ok(JSON.stringify({ prompt: prompts }).length < 32 * 1024 ** 2);
});
