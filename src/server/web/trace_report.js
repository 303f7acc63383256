// What a trace says: how busy the device was, how long it stood still between steps, and what the host did then. The same figures as
// `gapless trace` prints. Pure.
import { forEachGap } from "./gaps.js";
import { STEPS } from "./span_kinds.js";
import { SpanLane } from "./span_lane.js";
import { lengthsOf } from "./stats.js";
import { TraceError } from "./trace_file.js";

const STEADY_STEPS = 16; // fewer decode steps in a row say little about a steady state
const LONGEST = 12;

// trace: of parseTrace. All lengths in microseconds. Throws TraceError for a trace without a step.
export function analyseTrace(trace) {
  const steps = deviceSteps(trace);
  if (steps.count === 0) throw new TraceError("The trace has no step of the device: nothing ran meanwhile.");
  const begin = steps.begin[0];
  const end = steps.end[steps.count - 1];
  const phases = trace.lanes.filter((lane) => lane.name !== "device").flatMap((lane) => phasesOf(lane, trace.kinds, begin, end));
  const { gaps, ...walked } = walk(steps, trace);
  const longest = gaps.filter((gap) => gap.length > 0).sort((a, b) => b.length - a.length).slice(0, LONGEST);
  return {
    begin, end, steps: steps.count,
    kinds: phasesOf(steps, trace.kinds, begin, end),
    ...walked,
    gaps: lengthsOf(gaps.map((gap) => gap.length)),
    wake: phases.find((phase) => phase.thread === "scheduler" && phase.name === "wake") ?? null,
    phases,
    longest: longest.map((gap) => ({ ...gap, host: hostIn(trace, gap) })),
  };
}

// The steps by begin. Where the scheduler's older spans were overwritten, steps of that time are left out: a gap could not be told from
// idleness.
export function deviceSteps({ lanes, kinds, overwritten }) {
  const device = lanes.find((lane) => lane.name === "device");
  if (!device) throw new TraceError('The trace has no thread "device": is it one of Gapless?');
  const scheduler = lanes.find((lane) => lane.name === "scheduler");
  const from = overwritten.scheduler > 0 && scheduler.count > 0 ? scheduler.begin[0] : -Infinity;
  const steps = new SpanLane("device", Math.max(1, device.count));
  for (let i = 0; i < device.count; i++) {
    if (device.begin[i] < from || !STEPS.has(kinds.names[device.kind[i]])) continue;
    steps.add(device.begin[i], device.end[i], device.kind[i], device.a[i], device.b[i], device.c[i]);
  }
  return steps;
}

// Each kind of span on a lane that touches the time, the one that takes most first.
function phasesOf(lane, kinds, begin, end) {
  const byName = new Map();
  for (let i = lane.firstAfter(begin); i < lane.count && lane.begin[i] < end; i++) {
    if (lane.end[i] <= begin) continue;
    const name = kinds.names[lane.kind[i]];
    if (!byName.has(name)) byName.set(name, []);
    byName.get(name).push(lane.end[i] - lane.begin[i]);
  }
  return [...byName].map(([name, values]) => ({ thread: lane.name, name, ...lengthsOf(values) })).sort((a, b) => b.sum - a.sum);
}

// Goes through the steps in order, once.
function walk(steps, { lanes, kinds }) {
  const isDecode = (i) => kinds.names[steps.kind[i]] === "decode";
  const scheduler = lanes.find((lane) => lane.name === "scheduler");
  const gaps = [];
  const stretches = [];
  let idle = 0;
  let idleGaps = 0;
  let first = isDecode(0) ? 0 : -1; // of the stretch of decode steps
  const endStretch = (last) => {
    if (first >= 0 && last - first + 1 >= STEADY_STEPS) stretches.push([first, last]);
    first = -1;
  };
  forEachGap({ device: steps, scheduler, kinds, from: -Infinity, to: Infinity }, (begin, end, length, wasIdle, before, after) => {
    if (wasIdle) {
      idle += length;
      idleGaps++;
    } else {
      gaps.push({ begin, end, length, before: stepText(steps, before, kinds), after: stepText(steps, after, kinds), afterIndex: after });
    }
    if (wasIdle || !isDecode(after)) endStretch(before);
    if (first < 0 && isDecode(after)) first = after;
  });
  endStretch(steps.count - 1);
  const busy = busyTime(steps, 0, steps.count - 1);
  const time = steps.end[steps.count - 1] - steps.begin[0];
  return { gaps, idleGaps, busy: time > 0 ? busy / time : 1, busyWithWork: time > idle ? busy / (time - idle) : 1,
    steady: steadyOf(steps, stretches, gaps) };
}

function busyTime(steps, first, last) {
  let busy = 0;
  for (let i = first; i <= last; i++) busy += steps.end[i] - steps.begin[i];
  return busy;
}

// Decode steps after one another, with work all the time; null for none.
function steadyOf(steps, stretches, gaps) {
  if (stretches.length === 0) return null;
  const byStep = new Map(gaps.map((gap) => [gap.afterIndex, gap.length]));
  const lengths = [];
  let busy = 0;
  let time = 0;
  let count = 0;
  let longest = stretches[0];
  const timeOf = ([first, last]) => steps.end[last] - steps.begin[first];
  for (const [first, last] of stretches) {
    for (let i = first + 1; i <= last; i++) lengths.push(byStep.get(i));
    busy += busyTime(steps, first, last);
    time += timeOf([first, last]);
    count += last - first + 1;
    if (timeOf([first, last]) > timeOf(longest)) longest = [first, last];
  }
  return { stretches: stretches.length, steps: count, busy: busy / time, gaps: lengthsOf(lengths), longestBegin: steps.begin[longest[0]],
    longestEnd: steps.end[longest[1]] };
}

function stepText(steps, i, kinds) {
  const kind = kinds.names[steps.kind[i]];
  return Number.isNaN(steps.a[i]) ? kind : `${kind} ${steps.a[i]}`;
}

// [{thread, shares: [[name, share]]}]: what each thread did in a gap. Time within several spans goes to the innermost.
function hostIn({ lanes, kinds }, gap) {
  const host = lanes.filter((lane) => lane.name !== "device").map((lane) => ({ thread: lane.name, shares: sharesIn(lane, kinds, gap) }));
  return host.filter(({ shares }) => shares.length > 0);
}

function sharesIn(lane, kinds, { begin, end }) {
  const spans = [];
  for (let i = lane.firstAfter(begin); i < lane.count && lane.begin[i] < end; i++) if (lane.end[i] > begin) spans.push(i);
  const inside = (time) => Math.min(end, Math.max(begin, time));
  const cuts = [begin, end, ...spans.flatMap((i) => [inside(lane.begin[i]), inside(lane.end[i])])].sort((a, b) => a - b);
  const byName = new Map();
  for (let n = 0; n + 1 < cuts.length; n++) {
    const innermost = spans.findLast((i) => lane.begin[i] <= cuts[n] && lane.end[i] >= cuts[n + 1]);
    if (innermost === undefined || cuts[n + 1] === cuts[n]) continue;
    const name = kinds.names[lane.kind[innermost]];
    byName.set(name, (byName.get(name) ?? 0) + (cuts[n + 1] - cuts[n]) / (end - begin));
  }
  return [...byName].sort((a, b) => b[1] - a[1]);
}
