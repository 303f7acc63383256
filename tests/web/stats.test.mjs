import assert from 'node:assert/strict';
import { test } from 'node:test';
import { lengthsOf, percentile, Rates, RequestSpeeds, StepWindow } from '../../src/server/web/stats.js';

const frame = (from, to, gaps, more = {}) => ({
  from, to, steps: { n: gaps.length, rows: 4 * gaps.length, tokens: 5 * gaps.length, busy: 0.5,
    gap_us: { n: gaps.length, mean: gaps.reduce((a, b) => a + b, 0) / (gaps.length || 1), max: Math.max(0, ...gaps) },
    gaps: gaps.map((gap) => [to, gap]), ...more },
});

test('a percentile is by nearest rank', () => {
  assert.equal(percentile([], 0.5), 0);
  assert.equal(percentile([7], 0.99), 7);
  assert.equal(percentile([1, 2, 3, 4], 0.5), 2);
  const hundred = Array.from({ length: 100 }, (_, i) => i + 1);
  assert.equal(percentile(hundred, 0.99), 99);
  assert.equal(percentile(hundred, 1), 100);
});

test('lengths are sorted as numbers', () => {
  const { count, sum, mean, p50, max } = lengthsOf([10, 9, 100, 1]);
  assert.deepEqual({ count, sum, mean, p50, max }, { count: 4, sum: 120, mean: 30, p50: 9, max: 100 });
});

test('the mean gap weighs each gap the same, not each frame', () => {
  const window = new StepWindow(5);
  window.add(frame(0, 0.1, [0, 0, 0]));
  window.add(frame(0.1, 0.2, [40]));
  assert.equal(window.summary().gap.mean, 10);
  assert.equal(window.summary().gap.max, 40);
  assert.equal(window.summary().gap.count, 4);
});

test('frames that are older than the window do not count', () => {
  const window = new StepWindow(1);
  window.add(frame(0, 0.1, [1000]));
  window.add(frame(0.1, 1.2, [2]));
  assert.equal(window.summary().gap.max, 2);
});

test('frames without a step neither lower the busy share nor the rate', () => {
  const window = new StepWindow(5);
  window.add(frame(0, 1, [1, 1], { busy: 1 }));
  window.add(frame(1, 2, [], { busy: 0 }));
  assert.equal(window.summary().busy, 1);
  assert.equal(window.summary().stepsPerSecond, 2);
});

test('nothing is said where nothing ran', () => {
  const window = new StepWindow(5);
  assert.equal(window.summary(), null);
  window.add(frame(0, 1, []));
  assert.equal(window.summary(), null);
});

test('a frame that was cut counts from where the last one ended', () => {
  const window = new StepWindow(5);
  window.add(frame(0, 1, [1], { n: 10 }));
  window.add(frame(1.9, 2, [1], { n: 10 })); // spans of 1.9 to 2 only, steps of all the second
  assert.equal(window.summary().stepsPerSecond, 10);
});

test('rates come from two samples, and start again when a counter falls', () => {
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

test('each choice of a request has its own speed', () => {
  const speeds = new RequestSpeeds();
  const at = (first, second) => [{ id: 7, choice: 0, output: first }, { id: 7, choice: 1, output: second }];
  assert.equal(speeds.update(1, at(0, 5)).size, 0);
  const known = speeds.update(2, at(10, 5));
  assert.equal(known.get('7:0'), 10);
  assert.equal(known.get('7:1'), 0);
  assert.equal(speeds.update(3, at(30, 5)).get('7:0'), 15);
});
