// What a trace says, in numbers and tables: as `gapless trace` prints it.
import { card } from "./card.js";
import { el } from "./dom.js";
import { countText, percentText, plural, timeText } from "./format.js";
import { forEachGap } from "./gaps.js";

export const MOST_STEPS = 100;

// The figures of a report, as cards.
export function summaryCards(report) {
  const { gaps, wake } = report;
  const idle = `while there was work; ${percentText(report.busy, 2)} of all the time (${plural(report.idleGaps, "idle time")})`;
  const kinds = report.kinds.map((kind) => `${countText(kind.count)} ${kind.name} (mean ${timeText(kind.mean)})`).join(", ");
  const cards = [
    figure("Device busy", percentText(report.busyWithWork, 2), idle),
    figure("Gap between steps, median", timeText(gaps.p50), `of ${plural(gaps.count, "gap")}; ${tailText(gaps)}`),
    figure("Steps", countText(report.steps), `in ${timeText(report.end - report.begin)}: ${kinds}`),
    steadyFigure(report.steady),
  ];
  if (wake) cards.push(figure("Wake, median", timeText(wake.p50), `${tailText(wake)}: from the device's end until the scheduler runs`));
  return cards;
}

function steadyFigure(steady) {
  const title = "Steady decode, busy";
  if (!steady) return figure(title, "–", "fewer than 16 decode steps in a row");
  const stretches = steady.stretches === 1 ? "one stretch" : `${countText(steady.stretches)} stretches`;
  const gaps = `gaps: median ${timeText(steady.gaps.p50)}, ${tailText(steady.gaps)}`;
  return figure(title, percentText(steady.busy, 2), `${plural(steady.steps, "step")} in ${stretches}; ${gaps}`);
}

function tailText({ p99, max }) {
  return `p99 ${timeText(p99)}, longest ${timeText(max)}`;
}

function figure(title, value, detail) {
  return card(title, "", el("p", { class: "big" }, value), el("p", { class: "detail" }, detail));
}

// Each kind of span on each thread.
export function phaseTable(report) {
  const rows = report.phases.map(({ thread, name, count, mean, p99, sum }) =>
    [thread, name.replaceAll("_", " "), countText(count), timeText(mean), timeText(p99), timeText(sum / report.steps)]);
  return table("Spans by thread", ["Thread", "Span", "Count", "Mean", "p99", "Per step"], rows);
}

// The longest gaps and what each thread did in them. show(from, to) looks there.
export function gapTable(report, show) {
  const rows = report.longest.map(({ begin, end, length, before, after, host }) => {
    const look = el("button", { type: "button", class: "small", "aria-label": `Show the gap of ${timeText(length)}`,
      onclick: () => show(begin - 4 * length, end + 4 * length) }, "Show");
    return [timeText(length), `${before}, ${after}`, host.map(hostText).filter((text) => text !== "").join("; "), look];
  });
  return table("Longest gaps", ["Length", "Between", "What the host did", ""], rows, "gaps");
}

function hostText({ thread, shares }) {
  const shown = shares.filter(([, share]) => share >= 0.005).map(([name, share]) => `${name} ${Math.round(share * 100)} %`);
  return shown.length > 0 ? `${thread}: ${shown.join(", ")}` : "";
}

// The steps in a stretch of time, at most 100.
export function stepTable(trace, steps, { from, to }) {
  const scheduler = trace.lanes.find((lane) => lane.name === "scheduler");
  const rows = [];
  forEachGap({ device: steps, scheduler, kinds: trace.kinds, from, to }, (begin, end, length, idle, before, i) => {
    if (rows.length >= MOST_STEPS || steps.begin[i] > to) return;
    const number = (value) => (Number.isNaN(value) ? "" : String(value));
    rows.push([number(steps.a[i]), trace.kinds.names[steps.kind[i]], number(steps.b[i]), number(steps.c[i]),
      timeText(steps.end[i] - steps.begin[i]), idle ? "no work" : timeText(length)]);
  });
  return table("Steps that the picture shows", ["Batch", "Kind", "Rows", "Tokens", "Length", "Gap before"], rows);
}

// look: the class of the table, for one that is not of numbers alone.
function table(label, columns, rows, look = null) {
  const head = el("tr", {}, ...columns.map((name) => el("th", { scope: "col" }, name || el("span", { class: "sr" }, "Action"))));
  const body = rows.map((row) => el("tr", {}, ...row.map((cell) => el("td", {}, cell))));
  return el("div", { class: "table-box", tabindex: "0", role: "region", "aria-label": label },
    el("table", { class: look }, el("thead", {}, head), el("tbody", {}, ...body)));
}
