import assert from "node:assert/strict";
import { test } from "node:test";
import { SpanLane } from "../../src/server/web/span_lane.js";
import { busyByColumn } from "../../src/server/web/busy_columns.js";
import { parseTrace, TraceError } from "../../src/server/web/trace_file.js";
import { analyseTrace } from "../../src/server/web/trace_report.js";

const TIDS = { http: 1, scheduler: 2, forward: 3, device: 4, detokenizer: 5 };
const thread = (name, overwritten = 0) => ({ ph: "M", name: "thread_name", pid: 1, tid: TIDS[name], args: { name, overwritten } });
const span = (ring, name, ts, end, args) => ({ ph: "X", name, pid: 1, tid: TIDS[ring], ts, dur: end - ts, args });
const fileOf = (...events) => JSON.stringify({ displayTimeUnit: "ns", traceEvents: [...Object.keys(TIDS).map((name) => thread(name)), ...events] });
const decode = (batch, ts, end, kind = "decode") => span("device", kind, ts, end, { batch, rows: 8, tokens: 8 });
const decodes = (count, length, gap) => Array.from({ length: count }, (_, i) => decode(i, i * (length + gap), i * (length + gap) + length));
const report = (...events) => analyseTrace(parseTrace(fileOf(...events)));

test("spans become lanes, by begin, with their numbers", () => {
  const { lanes, kinds, begin, end } = parseTrace(fileOf(decode(2, 20, 30), decode(1, 5, 20), span("scheduler", "wait", 0, 40, { batch: 1 }), span("forward", "wait", 1, 2)));
  const device = lanes.find((lane) => lane.name === "device");
  assert.deepEqual([device.count, device.begin[0], device.end[0], device.a[0], device.b[0]], [2, 5, 20, 1, 8]);
  assert.deepEqual([begin, end], [0, 40]);
  const argsOfWait = (name) => kinds.args[lanes.find((lane) => lane.name === name).kind[0]];
  assert.deepEqual(argsOfWait("scheduler"), ["batch"]);
  assert.deepEqual(argsOfWait("forward"), []);
});

test("what is no trace is refused with what it is", () => {
  const cases = [["", /empty/], ["  \n", /empty/], ["<html>", /begins with '<html>'/], ["3", /no list of traceEvents/], ['{"a":1}', /no list of traceEvents/], ["null", /no list/],
    ['{"error":{"message":"only operators"}}', /only operators/], ['[{"ph":"X","name":"a","ts":1}]', /traceEvents\[0\]/], ['[{"ph":"X","name":"a","ts":1,"dur":-1}]', /cannot be read/],
    [fileOf(), /nothing was recorded/]];
  for (const [text, message] of cases) assert.throws(() => parseTrace(text), (error) => error instanceof TraceError && message.test(error.message), text);
});

test("a list of events alone is a trace too, and other kinds of events are passed over", () => {
  const trace = parseTrace(JSON.stringify([thread("device"), decode(1, 0, 5), { ph: "C", name: "counter" }, null]));
  assert.equal(trace.lanes.length, 1);
});

test("a trace without steps says so", () => {
  assert.throws(() => report(span("scheduler", "idle", 0, 5)), /no step/);
  assert.throws(() => analyseTrace(parseTrace(JSON.stringify([thread("http"), span("http", "burst", 0, 5)]))), /no thread "device"/);
});

test("busy share, gaps and steady decode", () => {
  const { busy, busyWithWork, gaps, steady, steps } = report(...decodes(20, 90, 10));
  assert.equal(steps, 20);
  assert.ok(Math.abs(busy - 1800 / 1990) < 1e-12);
  assert.equal(busyWithWork, busy);
  assert.deepEqual([gaps.count, gaps.p50, gaps.max], [19, 10, 10]);
  assert.deepEqual([steady.stretches, steady.steps, steady.gaps.count], [1, 20, 19]);
});

test("idleness is no gap and ends a stretch", () => {
  const { busy, busyWithWork, idleGaps, gaps, steady } = report(decode(1, 0, 10), decode(2, 10, 20), span("scheduler", "idle", 25, 90), decode(3, 100, 110));
  assert.equal(idleGaps, 1);
  assert.deepEqual([gaps.count, gaps.max], [1, 0]);
  assert.ok(busy < 0.3);
  assert.equal(busyWithWork, 1);
  assert.equal(steady, null);
});

test("a mixed step ends a stretch of decode steps", () => {
  const steps = decodes(40, 10, 0).map((event, i) => (i === 20 ? { ...event, name: "mixed" } : event));
  const { steady } = report(...steps);
  assert.deepEqual([steady.stretches, steady.steps, steady.gaps.count], [2, 39, 37]);
});

test("steps from when the scheduler was overwritten do not count", () => {
  const events = [thread("scheduler", 5), thread("device"), span("scheduler", "process", 95, 99), decode(1, 0, 10), decode(2, 50, 60), decode(3, 100, 110), decode(4, 110, 120)];
  const { steps, gaps } = analyseTrace(parseTrace(JSON.stringify(events)));
  assert.equal(steps, 2);
  assert.equal(gaps.count, 1);
});

test("in the longest gap time counts for the innermost span", () => {
  const { longest } = report(decode(1, 0, 10), span("scheduler", "process", 10, 30), span("scheduler", "send", 15, 20), span("http", "burst", 100, 105), decode(2, 30, 40));
  assert.equal(longest.length, 1);
  assert.deepEqual([longest[0].before, longest[0].after, longest[0].length], ["decode 1", "decode 2", 20]);
  assert.deepEqual(longest[0].host, [{ thread: "scheduler", shares: [["process", 0.75], ["send", 0.25]] }]);
});

test("each kind of span is counted by thread", () => {
  const { phases, wake } = report(decode(1, 0, 10), span("scheduler", "wait", 0, 8), span("scheduler", "wake", 6, 8), span("forward", "wait", 0, 9), span("http", "burst", 50, 60));
  assert.deepEqual(phases.map(({ thread: name, name: what, sum }) => [name, what, sum]), [["scheduler", "wait", 8], ["scheduler", "wake", 2], ["forward", "wait", 9]]);
  assert.equal(wake.p50, 2);
});

test("the strip of the whole has each column's busy share", () => {
  const device = new SpanLane("device");
  device.add(0, 15, 0);
  device.add(25, 30, 0);
  assert.deepEqual([...busyByColumn(device, { from: 0, to: 40 }, 4)], [1, 0.5, 0.5, 0]);
});
