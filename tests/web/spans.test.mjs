import assert from "node:assert/strict";
import { test } from "node:test";
import { forEachGap } from "../../src/server/web/gaps.js";
import { LiveStore } from "../../src/server/web/live_store.js";
import { argsOf, batchOf, KindTable } from "../../src/server/web/span_kinds.js";
import { SpanLane } from "../../src/server/web/span_lane.js";

const begins = (lane) => Array.from(lane.begin.subarray(0, lane.count));

test("spans are in order of their begin, outer ones first, whatever order they come in", () => {
  const lane = new SpanLane("scheduler", 2);
  for (const [begin, end] of [[10, 20], [5, 6], [10, 30], [0, 100], [12, 13]]) lane.add(begin, end, 0);
  assert.deepEqual(begins(lane), [0, 5, 10, 10, 12]);
  assert.deepEqual(Array.from(lane.end.subarray(0, 5)), [100, 6, 30, 20, 13]);
});

test("a long span is found although many short ones began after it", () => {
  const lane = new SpanLane("scheduler");
  lane.add(0, 1000, 0);
  for (let i = 1; i < 900; i++) lane.add(i, i + 0.5, 0);
  assert.equal(lane.firstAfter(950), 0);
  assert.equal(lane.firstAfter(1000), lane.count);
  assert.equal(lane.firstFrom(899), 899);
});

test("what is at a time is the innermost span, or with some slack the nearest", () => {
  const lane = new SpanLane("scheduler");
  lane.add(0, 100, 0);
  lane.add(40, 50, 1);
  lane.add(120, 121, 2);
  assert.equal(lane.at(45), 1);
  assert.equal(lane.at(60), 0);
  assert.equal(lane.at(110), -1);
  assert.equal(lane.at(118, 5), 2);
});

test("old spans are forgotten, a span that is still going on is not", () => {
  const lane = new SpanLane("scheduler");
  for (let i = 0; i < 2000; i++) lane.add(i, i + 1, 0);
  lane.dropBefore(1500);
  assert.equal(lane.begin[0], 1500);
  assert.equal(lane.count, 500);
  lane.add(2000, 2001, 0);
  assert.equal(lane.firstAfter(1999.5), 499);
});

test("a kind has its numbers and its batch", () => {
  const kinds = new KindTable();
  kinds.append([{ text: "wait", args: ["batch"] }, { text: "wait", args: [] }]);
  const lane = new SpanLane("scheduler");
  lane.add(0, 1, 0, 7);
  lane.add(1, 2, 1);
  assert.deepEqual(argsOf(lane, 0, kinds), [["batch", 7]]);
  assert.equal(batchOf(lane, 0, kinds), 7);
  assert.deepEqual(argsOf(lane, 1, kinds), []);
  assert.ok(Number.isNaN(batchOf(lane, 1, kinds)));
});

function gapsOf(steps, { idle = [], ...query } = {}) {
  const kinds = new KindTable();
  const device = new SpanLane("device");
  const scheduler = new SpanLane("scheduler");
  for (const [begin, end, kind = "decode"] of steps) device.add(begin, end, kinds.indexOf(kind));
  for (const [begin, end] of idle) scheduler.add(begin, end, kinds.indexOf("idle"));
  const found = [];
  forEachGap({ device, scheduler, kinds, from: -Infinity, to: Infinity, ...query }, (begin, end, length, wasIdle) => found.push([length, wasIdle]));
  return found;
}

test("a gap is from one step to the next, and 0 is one", () => {
  assert.deepEqual(gapsOf([[0, 10], [10, 20], [25, 30, "mixed"]]), [[0, false], [5, false]]);
});

test("less than a nanosecond or so is nothing", () => {
  assert.deepEqual(gapsOf([[0, 10], [10.002, 20]]), [[0, false]]);
  assert.deepEqual(gapsOf([[0, 10], [10.4, 20]], { least: 1 }), [[0, false]]);
});

test("where the scheduler was idle there was no work", () => {
  assert.deepEqual(gapsOf([[0, 10], [50, 60], [70, 80]], { idle: [[12, 45]] }), [[40, true], [10, false]]);
});

test("a gap over spans that were not sent says nothing", () => {
  assert.deepEqual(gapsOf([[0, 10], [50, 60], [61, 70]], { isKnown: (begin) => begin !== 10 }), [[1, false]]);
});

test("a gap that began before the picture is in it", () => {
  assert.deepEqual(gapsOf([[0, 10], [50, 60], [60, 70]], { from: 30, to: 55 }), [[40, false]]);
});

const hello = { rings: ["scheduler", "device"], names: [{ text: "wait", args: ["batch"] }, { text: "decode", args: ["batch", "rows", "tokens"] }] };

test("frames become spans in microseconds", () => {
  const store = new LiveStore();
  store.hello(hello);
  store.add({ from: 2, to: 2.1, spans: [[1, 1, -500, 700, 9, 64, 64], [0, 0, 100.5, 2]] });
  const [scheduler, device] = store.lanes;
  assert.deepEqual([device.begin[0], device.end[0], device.a[0], device.b[0]], [1999500, 2000200, 9, 64]);
  assert.equal(scheduler.begin[0], 2000100.5);
  assert.ok(Number.isNaN(scheduler.a[0]));
});

test("a frame that was cut leaves a hole, and later names are known", () => {
  const store = new LiveStore();
  store.hello(hello);
  store.add({ from: 1, to: 1.1, spans: [] });
  store.add({ from: 1.1, to: 1.2, spans: [] });
  assert.deepEqual(store.holes, []);
  store.add({ from: 1.26, to: 1.3, spans: [[0, 2, 0, 1]], names: [{ text: "recall", args: ["batch"] }] });
  assert.deepEqual(store.holes, [[1.2e6, 1.26e6]]);
  assert.equal(store.kinds.names[store.lanes[0].kind[0]], "recall");
});

test("the pace of steps is known after a few", () => {
  const store = new LiveStore();
  store.hello(hello);
  assert.equal(store.stepPeriod(), null);
  const spans = Array.from({ length: 10 }, (_, i) => [1, 1, i * 1000, 990]);
  store.add({ from: 0, to: 0.01, spans });
  assert.equal(store.stepPeriod(), 1000);
  assert.equal(store.longestStep(), 990);
  assert.equal(store.lastStepEnd(), 9990);
});
