// Reads a trace in Chrome's format, as /trace and `gapless serve --trace` write it. Pure.
import { KindTable } from "./span_kinds.js";
import { SpanLane } from "./span_lane.js";

const NUMBERS = ["batch", "rows", "tokens", "deltas", "handlers", "bytes", "requests"];
const SHOWN = 24; // characters of a file that is none
const MOST_ARGS = 3;

export class TraceError extends Error {}

// {lanes: [SpanLane], kinds: KindTable, overwritten: {lane name: spans that were lost before}, begin, end}, times in microseconds.
export function parseTrace(text) {
  const events = eventsOf(text);
  const threads = new Map(); // tid -> {name, overwritten, spans: [event]}
  events.forEach((event, i) => takeEvent(threads, event, i));
  const kinds = new KindTable();
  const trace = { lanes: [], kinds, overwritten: {}, begin: Infinity, end: -Infinity };
  for (const [tid, { name = `thread ${tid}`, overwritten, spans }] of threads) {
    spans.sort((a, b) => a.ts - b.ts || b.dur - a.dur);
    const lane = new SpanLane(name, Math.max(1, spans.length));
    for (const span of spans) addSpan(lane, kinds, span);
    trace.lanes.push(lane);
    trace.overwritten[name] = overwritten;
    if (lane.count === 0) continue;
    trace.begin = Math.min(trace.begin, lane.begin[0]);
    trace.end = Math.max(trace.end, lane.reach[lane.count - 1]);
  }
  if (trace.end < trace.begin) throw new TraceError("The trace is empty: nothing was recorded in that time.");
  return trace;
}

function eventsOf(text) {
  if (text.trim() === "") throw new TraceError("The file is empty.");
  let json;
  try {
    json = JSON.parse(text);
  } catch {
    throw new TraceError(`This is no trace: it begins with '${text.trim().slice(0, SHOWN)}' and is not JSON.`);
  }
  const events = Array.isArray(json) ? json : json?.traceEvents;
  if (Array.isArray(events)) return events;
  const message = json?.error?.message;
  if (typeof message === "string") throw new TraceError(`This is no trace but a server's error: ${message}`);
  throw new TraceError("This is JSON, but has no list of traceEvents (Chrome's trace format).");
}

function threadOf(threads, tid) {
  if (!threads.has(tid)) threads.set(tid, { name: undefined, overwritten: 0, spans: [] });
  return threads.get(tid);
}

function takeEvent(threads, event, i) {
  if (event?.ph === "X") {
    const sound = typeof event.name === "string" && Number.isFinite(event.ts) && event.dur >= 0;
    if (!sound) throw new TraceError(`traceEvents[${i}] cannot be read: a span needs a name, ts and dur.`);
    threadOf(threads, event.tid).spans.push(event);
  } else if (event?.ph === "M" && event.name === "thread_name") {
    const thread = threadOf(threads, event.tid);
    thread.name = String(event.args?.name);
    thread.overwritten = Number(event.args?.overwritten) || 0;
  }
}

function addSpan(lane, kinds, { name, ts, dur, args }) {
  const given = args ?? {};
  const names = NUMBERS.filter((key) => typeof given[key] === "number").slice(0, MOST_ARGS);
  // A name has its own index for each set of numbers: two threads have a "wait".
  const kind = kinds.indexOf(name, names);
  lane.add(ts, ts + dur, kind, ...names.map((key) => given[key]));
}
