import assert from "node:assert/strict";
import { test } from "node:test";
import { lengthsOf, percentile, Rates, RequestSpeeds, StepWindow } from "../../src/server/web/stats.js";

const frame = (from, to, gaps, more = {}) => ({
  from, to, steps: { n: gaps.length, rows: 4 * gaps.length, tokens: 5 * gaps.length, busy: 0.5,
    gap_us: gaps.length === 0 ? { n: 0 } : { n: gaps.length, mean: lengthsOf(gaps).mean, p50: lengthsOf(gaps).p50, p99: lengthsOf(gaps).p99, max: Math.max(...gaps) },
    gaps: gaps.map((gap) => [to, gap]), ...more },
});

test("a percentile is by nearest rank", () => {
  assert.equal(percentile([], 0.5), 0);
  assert.equal(percentile([7], 0.99), 7);
  assert.equal(percentile([1, 2, 3, 4], 0.5), 2);
  const hundred = Array.from({ length: 100 }, (_, i) => i + 1);
  assert.equal(percentile(hundred, 0.99), 99);
  assert.equal(percentile(hundred, 1), 100);
});

test("lengths are sorted as numbers", () => {
  const { count, sum, mean, p50, max } = lengthsOf([10, 9, 100, 1]);
  assert.deepEqual({ count, sum, mean, p50, max }, { count: 4, sum: 120, mean: 30, p50: 9, max: 100 });
});

test("the mean gap weighs each gap the same, not each frame", () => {
  const window = new StepWindow(5);
  window.add(frame(0, 0.1, [0, 0, 0]));
  window.add(frame(0.1, 0.2, [40]));
  assert.equal(window.summary().gap.mean, 10);
  assert.equal(window.summary().gap.max, 40);
  assert.equal(window.summary().gap.count, 4);
});

test("frames that are older than the window do not count", () => {
  const window = new StepWindow(1);
  window.add(frame(0, 0.1, [1000]));
  window.add(frame(0.1, 1.2, [2]));
  assert.equal(window.summary().gap.max, 2);
});

test("idleness before the first step lowers neither the busy share nor the rate", () => {
  const window = new StepWindow(5);
  window.add(frame(0, 1, [1, 1], { busy: 1 }));
  window.add(frame(1, 2, [], { busy: 0 }));
  window.add(frame(2, 3, [0], { n: 2, busy: 1 })); // the first of both has no gap before it
  assert.equal(window.summary().busy, 1);
  assert.equal(window.summary().stepsPerSecond, 2);
});

test("a step that is longer than a frame counts with all its time", () => {
  const window = new StepWindow(5);
  for (let i = 0; i < 8; i++) window.add(frame(i / 10, (i + 1) / 10, i % 4 === 3 ? [0] : []));
  assert.ok(Math.abs(window.summary().stepsPerSecond - 2.5) < 1e-9);
});

test("p99 is of all gaps, or of what the frames say where they list only some", () => {
  const window = new StepWindow(5);
  window.add(frame(0, 1, Array.from({ length: 99 }, () => 1)));
  window.add(frame(1, 2, [50]));
  assert.equal(window.summary().gap.p99, 1);
  window.add(frame(2, 3, [80], { gap_us: { n: 100, mean: 2, p50: 2, p99: 7, max: 80 }, n: 100 }));
  assert.ok(Math.abs(window.summary().gap.p99 - (99 * 1 + 50 + 100 * 7) / 200) < 1e-9);
});

test("one hiccup moves the mean and the lost time, not the median", () => {
  const window = new StepWindow(5);
  window.add(frame(0, 0.8, [...Array(99).fill(0), 100_000]));
  window.add(frame(0.8, 1, [], { n: 20, gap_us: { n: 20, mean: 4, p50: 4, p99: 4, max: 4 } })); // lists none of its gaps
  const { gap, lost } = window.summary();
  assert.ok(gap.p50 < 1, `${gap.p50}`);
  assert.ok(gap.mean > 800, `${gap.mean}`);
  assert.ok(Math.abs(lost - 0.10008) < 1e-9, `${lost}`);
});

test("nothing is said where nothing ran", () => {
  const window = new StepWindow(5);
  assert.equal(window.summary(), null);
  window.add(frame(0, 1, []));
  assert.equal(window.summary(), null);
});

test("a frame that was cut counts from where the last one ended", () => {
  const window = new StepWindow(5);
  window.add(frame(0, 1, Array(10).fill(1)));
  window.add(frame(1.9, 2, Array(10).fill(1))); // spans of 1.9 to 2 only, steps of all the second
  assert.equal(window.summary().stepsPerSecond, 10);
});

test("rates come from two samples, and start again when a counter falls", () => {
  const rates = new Rates(2);
  rates.add(1, { tokens: 100 });
  assert.equal(rates.perSecond(), null);
  rates.add(2, { tokens: 150 });
  assert.deepEqual(rates.perSecond(), { tokens: 50 });
  rates.add(3, { tokens: 300 });
  assert.deepEqual(rates.perSecond(), { tokens: 100 });
  assert.deepEqual(rates.perSecond(true), { tokens: 150 });
  rates.add(4, { tokens: 3 });
  assert.equal(rates.perSecond(), null);
});

test("each choice of a request has its own speed", () => {
  const speeds = new RequestSpeeds();
  const at = (first, second) => [{ id: 7, choice: 0, output: first }, { id: 7, choice: 1, output: second }];
  assert.equal(speeds.update(1, at(0, 5)).size, 0);
  const known = speeds.update(2, at(10, 5));
  assert.equal(known.get("7:0"), 10);
  assert.equal(known.get("7:1"), 0);
  assert.equal(speeds.update(3, at(30, 5)).get("7:0"), 15);
});
