// What the live view says of gaps, of the loop that runs and of the other one.
import assert from "node:assert/strict";
import { test } from "node:test";
import { gapText, wordsOf } from "../../src/server/web/live_words.js";
import { LoopComparison } from "../../src/server/web/loop_comparison.js";

const plain = (text) => text.replaceAll("\u202f", " ");

test("the words follow the loop", () => {
  assert.match(wordsOf("overlap", "").title, /never waits/);
  assert.match(wordsOf("overlap", "").now, /While the device computes a step, the scheduler prepares the next/);
  assert.match(wordsOf("normal", "").title, /waits for the host after every step/);
  assert.doesNotMatch(wordsOf("normal", "").now, /While the device computes/);
  assert.deepEqual(wordsOf(null, ""), wordsOf("overlap", ""));
});

test("the comparison takes the place of the invitation to switch", () => {
  for (const loop of ["overlap", "normal"]) {
    assert.match(wordsOf(loop, "").lead, /witch to the/);
    assert.equal(wordsOf(loop, "both have run").lead, "both have run");
  }
});

test("each figure is told beside the other loop's, once that has run", () => {
  const comparison = new LoopComparison();
  comparison.note("normal", "gap", 412);
  comparison.note("normal", "busy", 0.886);
  comparison.note("normal", "tokens", 1425);
  assert.equal(comparison.beside("normal", "busy"), "");
  assert.equal(plain(comparison.beside("overlap", "gap")), "with the normal loop 412 µs");
  assert.equal(plain(comparison.beside("overlap", "busy")), "with the normal loop 88.6 %");
  assert.equal(plain(comparison.beside("overlap", "tokens")), "with the normal loop 1 425");
  assert.equal(comparison.text(), "");
  comparison.note("overlap", "gap", 0);
  comparison.note("overlap", "busy", 0.9996);
  assert.equal(plain(comparison.text()), "With the overlap loop: 0 between steps, device 99.9 % busy. "
    + "With the normal loop: 412 µs between steps, device 88.6 % busy, 1 425 tokens/s.");
});

test("a gap is told with what it hides, and few gaps as few", () => {
  const gap = { count: 992, mean: 138, p99: 64, max: 132_000 };
  assert.equal(plain(gapText({ gap, lost: 0.028 })), "median of 992 gaps; mean 138 µs, p99 64.0 µs, longest 132 ms; 2.8 % of the time lost");
  assert.match(gapText({ gap: { ...gap, count: 19 }, lost: 0 }), /19 gaps, too few to judge;/);
  assert.doesNotMatch(gapText({ gap: { ...gap, count: 20 }, lost: 0 }), /too few/);
});
