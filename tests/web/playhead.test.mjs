import assert from "node:assert/strict";
import { test } from "node:test";
import { Playhead } from "../../src/server/web/playhead.js";

function after(frames, window) {
  const head = new Playhead();
  head.setWindow(window);
  for (const [to, ms] of frames) head.frame(to, ms);
  return head;
}

test("nothing is shown before the first frame", () => {
  assert.equal(new Playhead().edge(0), null);
});

test("a long window moves with the clock, however unevenly frames come", () => {
  const head = after([[10, 1000], [10.1, 1130], [10.2, 1180], [10.3, 1310]], 1);
  const moved = head.edge(1340) - head.edge(1330);
  assert.ok(Math.abs(moved - 0.01) < 1e-9);
  assert.ok(head.edge(1330) < 10.3);
  assert.ok(head.edge(60000) <= 10.3); // never beyond what is known
});

test("a short window plays its newest stretch slowly and then the next", () => {
  const head = after([[10, 1000]], 0.04);
  assert.equal(head.slowness, 100);
  assert.equal(head.edge(1000), 9.96);
  for (let i = 1; i <= 40; i++) head.frame(10 + i / 10, 1000 + 100 * i);
  assert.ok(Math.abs(head.edge(3000) - 9.98) < 1e-9);
  assert.ok(head.edge(4999) < 10); // all of it was known when it began
  assert.equal(head.edge(5000), 13.96);
});

test("a step that has not ended is not shown as empty", () => {
  const head = after([[10, 1000]], 0.04);
  head.longest = 0.005;
  assert.ok(Math.abs(head.edge(1000) - 9.955) < 1e-9);
});

test("a short window shows the newest step rather than the pause after it", () => {
  const head = after([[10, 1000]], 0.04);
  head.lastStep = 9.5;
  assert.ok(Math.abs(head.edge(1000) - 9.46) < 1e-9);
  head.frame(14, 5000);
  assert.ok(Math.abs(head.edge(5000) - 13.96) < 1e-9, "a step of long ago is over");
});

test("held, it stands still, and can be moved but not into the future", () => {
  const head = after([[10, 1000]], 1);
  head.hold(1000);
  const edge = head.edge(1000);
  head.frame(11, 2000);
  assert.equal(head.edge(2000), edge);
  head.move(-0.5);
  assert.equal(head.edge(2000), edge - 0.5);
  head.move(99);
  assert.equal(head.edge(2000), 11);
  head.release();
  assert.ok(head.edge(2000) > edge);
});

test("without motion there is one picture for seconds", () => {
  const head = after([[10, 1000]], 1);
  head.still = true;
  const edge = head.edge(1000);
  head.frame(10.1, 1100);
  assert.equal(head.edge(3000), edge);
  assert.ok(head.edge(6000) > edge);
});
