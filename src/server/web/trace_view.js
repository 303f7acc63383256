// A recorded trace: the same lanes as the live view, to zoom and pan, with a strip of the whole below.
import { el } from "./dom.js";
import { setText } from "./dom_text.js";
import { timeText } from "./format.js";
import { forEachGap } from "./gaps.js";
import { LaneView } from "./lane_view.js";
import { spanLegend } from "./span_legend.js";
import { TraceMinimap } from "./trace_minimap.js";

const LEAST_US = 5;
const FIRST_STEPS = 10; // so many are in the first picture
const GAP_SHOWN = 60;   // at most so many times as long is the picture in which a gap is shown

export class TraceView {
  #range = { from: 0, to: 1 };
  #steps = null;
  #asked = false;
  #state = el("span", { class: "hint" });
  #lanes; #minimap;

  // onMove({from, to}): what is shown has changed.
  constructor(root, onMove) {
    this.onMove = onMove;
    const button = (text, label, run) =>
      el("button", { type: "button", class: text.length === 1 ? "square" : "", "aria-label": label, title: label, onclick: run }, text);
    root.append(el("div", { class: "toolbar" }, button("−", "Zoom out", () => this.#zoom(2)), button("+", "Zoom in", () => this.#zoom(0.5)),
      button("All", "All of the trace", () => this.showAll()), button("‹ Gap", "Gap before this", () => this.#gap(-1)),
      button("Gap ›", "Gap after this", () => this.#gap(1)), this.#state));
    const actions = { zoom: (factor, time) => this.#zoom(factor, time), pan: (us) => this.#pan(us), select: () => {} };
    this.#lanes = new LaneView(root, "The trace", actions);
    this.#minimap = new TraceMinimap(root, (time) => this.#center(time));
    root.append(spanLegend());
  }

  // report: of analyseTrace; steps: of deviceSteps.
  setTrace(trace, report, steps) {
    this.trace = trace;
    this.#steps = steps;
    this.#range = { from: trace.begin, to: Math.max(trace.end, trace.begin + LEAST_US) };
    this.#minimap.setTrace(steps, this.#range);
    this.#lanes.setLanes(trace.lanes, trace.kinds);
    const { steady, begin, end } = report;
    const middle = steady ? (steady.longestBegin + steady.longestEnd) / 2 : (begin + end) / 2;
    const width = report.kinds[0].p50 * FIRST_STEPS;
    this.show(middle - width / 2, middle + width / 2);
  }

  showAll() {
    this.show(this.#range.from, this.#range.to);
  }

  // Any part of the trace; kept within it.
  show(from, to) {
    const width = Math.min(this.#range.to - this.#range.from, Math.max(LEAST_US, to - from));
    const start = Math.min(this.#range.to - width, Math.max(this.#range.from, (from + to) / 2 - width / 2));
    this.#lanes.scene.view = { from: start, to: start + width };
    this.#minimap.view = this.#lanes.scene.view;
    this.#paintSoon();
  }

  #zoom(factor, time = null) {
    const { from, to } = this.#lanes.scene.view;
    const anchor = time ?? (from + to) / 2;
    const width = Math.min(this.#range.to - this.#range.from, Math.max(LEAST_US, (to - from) * factor));
    const left = anchor - ((anchor - from) / (to - from)) * width;
    this.show(left, left + width);
  }

  #pan(us) {
    const { from, to } = this.#lanes.scene.view;
    this.show(from + us, to + us);
  }

  #center(time) {
    const { from, to } = this.#lanes.scene.view;
    this.show(time - (to - from) / 2, time + (to - from) / 2);
  }

  // To the next gap, or the one before, from the middle of what is shown.
  #gap(direction) {
    const { from, to } = this.#lanes.scene.view;
    const middle = (from + to) / 2;
    const scheduler = this.trace.lanes.find((lane) => lane.name === "scheduler");
    const slack = (to - from) * 1e-6;
    let found = null;
    const range = direction < 0 ? { from: -Infinity, to: middle } : { from: middle, to: Infinity };
    forEachGap({ device: this.#steps, scheduler, kinds: this.trace.kinds, ...range }, (begin, end, length, idle) => {
      const center = (begin + end) / 2;
      const ahead = direction > 0 ? center > middle + slack && found === null : center < middle - slack;
      if (ahead && length > 0 && !idle) found = { center, length };
    });
    if (!found) return setText(this.#state, "no further gap");
    const width = Math.min(to - from, found.length * GAP_SHOWN); // so that it can be seen
    this.show(found.center - width / 2, found.center + width / 2);
  }

  #where() {
    const { from, to } = this.#lanes.scene.view;
    return `${timeText(to - from)} of ${timeText(this.#range.to - this.#range.from)}`;
  }

  #paintSoon() {
    if (this.#asked) return;
    this.#asked = true;
    requestAnimationFrame(() => {
      this.#asked = false;
      this.#lanes.paint();
      this.#minimap.paint();
      setText(this.#state, this.#where());
      this.onMove(this.#lanes.scene.view);
    });
  }
}
