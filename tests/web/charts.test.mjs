import assert from "node:assert/strict";
import { test } from "node:test";
import { kvParts } from "../../src/server/web/kv_bar.js";
import { linearScale, logScale, niceStep } from "../../src/server/web/scales.js";

test("a step is 1, 2 or 5 times a power of ten, and there are not too many", () => {
  assert.equal(niceStep(100, 10), 10);
  assert.equal(niceStep(100, 9), 20);
  assert.equal(niceStep(0.04, 8), 0.005);
  for (const range of [1e-6, 0.3, 7, 99, 12345]) assert.ok(range / niceStep(range, 6) <= 6 + 1e-9);
});

test("the log scale has 0 below all, a line for each power of ten, and room for the largest", () => {
  const scale = logScale(1, 1e6);
  assert.deepEqual(scale.levels(0), [0, 1, 10, 100, 1000]);
  const levels = scale.levels(54321);
  assert.equal(levels.at(-1), 100000);
  const heights = [0, 0.01, 1, 5, 10, 54321, 100000].map((value) => scale.share(value, levels));
  assert.deepEqual(heights, [...heights].sort((a, b) => a - b));
  assert.deepEqual([heights[0], heights.at(-1)], [0, 1]);
  assert.ok(heights[1] > 0, "a tiny gap is not drawn as none");
  assert.equal(scale.share(1e9, levels), 1);
});

test("the linear scale begins at 0 and holds the largest", () => {
  const scale = linearScale(10);
  const levels = scale.levels(734);
  assert.equal(levels[0], 0);
  assert.ok(levels.at(-1) >= 734 && levels.length <= 6);
  assert.equal(scale.share(levels.at(-1), levels), 1);
  assert.ok(scale.levels(0).at(-1) >= 10);
});

test("every page of the pool is in one part of the bar", () => {
  const parts = kvParts({ page_size: 16, free: 50, tree: 30, evictable: 20, in_use: 15, leased: 5 });
  assert.deepEqual(parts, { own: 15, shared: 10, evictable: 20, leased: 5, free: 50 });
  assert.equal(Object.values(parts).reduce((a, b) => a + b), 100);
});
