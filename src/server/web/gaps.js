// Where the device stood still although there was work: between the end of a step and the begin of the next one, unless the scheduler had
// nothing to run in between. Times in microseconds.
import { STEPS } from "./span_kinds.js";

// Times in a file are whole nanoseconds: less between two steps is nothing.
export const NO_GAP = 0.0025;

// Calls take(begin, end, length, idle) for each pair of consecutive steps that touch [from, to]. `idle`: there was nothing to run.
// `isKnown(begin, end)` is false where spans are missing: such a pair says nothing. `least`: what rounding alone may leave between two steps.
export function forEachGap({ device, scheduler, kinds, from, to, least = NO_GAP, isKnown = () => true }, take) {
  let i = device.firstAfter(from);
  if (i > 0) i--;
  let last = -1;
  for (; i < device.count; i++) {
    if (!STEPS.has(kinds.names[device.kind[i]])) continue;
    if (last >= 0) {
      const begin = device.end[last];
      const end = device.begin[i];
      const length = end - begin > least ? end - begin : 0;
      if (begin <= to && isKnown(begin, end)) take(begin, end, length, length > 0 && wasIdle(scheduler, kinds, begin, end), last, i);
    }
    if (device.begin[i] > to) break;
    last = i;
  }
}

// Whether the scheduler slept for want of requests at some time in between.
function wasIdle(scheduler, kinds, begin, end) {
  if (!scheduler) return false;
  for (let i = scheduler.firstAfter(begin); i < scheduler.count && scheduler.begin[i] < end; i++) {
    if (kinds.names[scheduler.kind[i]] === "idle" && scheduler.end[i] > begin) return true;
  }
  return false;
}
