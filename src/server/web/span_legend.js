// What the rows and colours of lanes stand for.
import { el } from "./dom.js";
import { LANES } from "./span_kinds.js";

const SHOWN = [
  ["decode", "step: answers"], ["extend", "step: prompts"], ["mixed", "step: both"], ["compose", "compose"], ["launch", "launch"],
  ["process", "process"], ["send", "send"], ["wake", "wake"], ["plan", "plan"], ["deliver", "deliver"], ["burst", "network"], ["wait", "waiting"],
];

const KEYS = "Point at a span to see what it is. A click gives the rows the keyboard: arrows go from span to span and from row to row, + and −"
  + " or the wheel zoom, Page Up and Page Down move.";

// The colours, what each row is, and how to get about.
export function spanLegend() {
  const items = SHOWN.map(([kind, text]) => el("li", {}, el("span", { class: `swatch span-${kind}`, "aria-hidden": "true" }), text));
  const gap = el("li", {}, el("span", { class: "swatch span-gap", "aria-hidden": "true" }), "gap: the device stands still");
  const launch = el("li", {}, el("span", { class: "swatch launch-line", "aria-hidden": "true" }), "from launch to its step");
  const rows = Object.entries(LANES).flatMap(([name, meaning]) => [el("dt", {}, name), el("dd", {}, meaning)]);
  return el("div", {}, el("ul", { class: "span-legend", "aria-label": "Colours" }, gap, launch, ...items),
    el("details", { class: "lane-help" }, el("summary", {}, "What each row is, and keys"), el("dl", {}, ...rows), el("p", {}, KEYS)));
}
