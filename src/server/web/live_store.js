// What the feed has told: the spans of the last seconds by lane, and where they are missing. Pure but for what comes in.
import { KindTable } from "./span_kinds.js";
import { SpanLane } from "./span_lane.js";
import { percentile } from "./stats.js";

const KEPT_US = 12e6;
const HOLE_US = 1000; // frames are cut at whole microseconds; less than this is no hole

export class LiveStore {
  lanes = [];
  kinds = new KindTable();
  holes = []; // [from, to] in microseconds, where spans were not sent
  #until = null;

  hello({ rings, names }) {
    this.lanes = rings.map((ring) => new SpanLane(ring));
    this.kinds = new KindTable();
    this.kinds.append(names);
    this.holes = [];
    this.#until = null;
  }

  // keep: do not forget old spans, somebody looks at them.
  add(frame, keep = false) {
    if (frame.names) this.kinds.append(frame.names);
    const from = frame.from * 1e6;
    const to = frame.to * 1e6;
    if (this.#until !== null && from > this.#until + HOLE_US) this.holes.push([this.#until, from]);
    this.#until = to;
    for (const [ring, kind, begin, length, a, b, c] of frame.spans) {
      this.lanes[ring]?.add(from + begin, from + begin + length, kind, a ?? NaN, b ?? NaN, c ?? NaN);
    }
    if (!keep) this.#forget(to - KEPT_US);
  }

  #forget(before) {
    for (const lane of this.lanes) lane.dropBefore(before);
    while (this.holes.length > 0 && this.holes[0][1] < before) this.holes.shift();
  }

  // When the newest step ended, in microseconds.
  lastStepEnd() {
    const device = this.#device();
    return device?.count > 0 ? device.end[device.count - 1] : -Infinity;
  }

  // Microseconds of the longest of the last steps.
  longestStep() {
    const device = this.#device();
    let longest = 0;
    for (let i = Math.max(0, (device?.count ?? 0) - 64); i < (device?.count ?? 0); i++) longest = Math.max(longest, device.end[i] - device.begin[i]);
    return longest;
  }

  // The usual time from one step's begin to the next, in microseconds; null: unknown.
  stepPeriod() {
    const device = this.#device();
    if (!device || device.count < 8) return null;
    const begins = device.begin.subarray(Math.max(0, device.count - 65), device.count);
    return percentile(begins.subarray(1).map((begin, i) => begin - begins[i]).sort(), 0.5);
  }

  #device() {
    return this.lanes.find((lane) => lane.name === "device");
  }
}
