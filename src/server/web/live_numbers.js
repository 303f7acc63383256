// The big numbers and the strips of the last minute.
import { card } from "./card.js";
import { el } from "./dom.js";
import { setText } from "./dom_text.js";
import { percentText, plural, rateText, timeText } from "./format.js";
import { linearScale, logScale } from "./scales.js";
import { Rates, StepWindow } from "./stats.js";
import { StripChart } from "./strip_chart.js";

const SECONDS = 5;   // of the gap's and the busy share's numbers
const LOST = 0.015; // a mean gap of so much of a step is worth a warning colour

const GAP_SERIES = [
  { key: "max", label: "longest", color: "--chart-max", points: true },
  { key: "mean", label: "mean", color: "--chart-mean", points: true },
];
const TOKEN_SERIES = [
  { key: "generated", label: "generated", color: "--chart-generated" },
  { key: "prefill", label: "prompts computed", color: "--chart-prefill" },
  { key: "cached", label: "prompts from the cache", color: "--chart-cached" },
];

export class LiveNumbers {
  #steps = new StepWindow(SECONDS);
  #rates = new Rates(2);
  #loop = null;
  #byLoop = {}; // loop -> mean gap that was last seen with it
  #gap; #compared; #busy; #tokens; #gapChart; #tokenChart;

  constructor(numbers, charts) {
    this.#gap = number(numbers, "Device idle between steps",
      "From the end of a step to the begin of the next. At 0 the next step was already queued when one ended.");
    this.#busy = number(numbers, "Device busy", "Share of the time in which the device computes. What is missing is lost.");
    this.#tokens = number(numbers, "Generated tokens per second", "Of all answers together; a step makes one for every running request.");
    this.#gap.box.classList.add("main-number");
    this.#compared = el("p", { class: "compared" });
    this.#gap.detail.after(this.#compared);
    const gaps = card("Gaps between steps", "Log scale: each line is ten times the one below. A mark shows where the loop was changed.");
    const tokens = card("Tokens per second", "Prompt tokens that the cache knows cost nothing.");
    charts.append(gaps, tokens);
    this.#gapChart = new StripChart(gaps, { label: "Gaps between steps", scale: logScale(1, 1e6), text: timeText, series: GAP_SERIES });
    this.#tokenChart = new StripChart(tokens, { label: "Tokens per second", scale: linearScale(10), text: rateText, series: TOKEN_SERIES });
  }

  reset() {
    this.#steps.clear();
    this.#rates.clear();
    this.#loop = null;
    this.#tokenChart.interrupt();
  }

  frame(frame) {
    if (this.#loop !== null && frame.loop !== this.#loop) {
      this.#steps.clear();
      this.#gapChart.mark(frame.to, `${frame.loop} loop`);
    }
    this.#loop = frame.loop;
    this.#steps.add(frame);
    const { n, mean, max } = frame.steps.gap_us;
    this.#gapChart.add(frame.to, n > 0 ? { mean, max } : null);
  }

  // Four times a second is as fast as people read.
  paint() {
    const summary = this.#steps.summary();
    this.#showGap(summary);
    setText(this.#busy.value, summary ? percentText(summary.busy) : "–");
    setText(this.#busy.detail, summary ? stepsText(summary) : "no steps");
    this.#gapChart.paint();
  }

  state(state) {
    this.#rates.add(state.now, state.tokens);
    const smooth = this.#rates.perSecond();
    this.#tokenChart.add(state.now, this.#rates.perSecond(true));
    this.#tokenChart.paint();
    setText(this.#tokens.value, smooth ? rateText(smooth.generated) : "–");
    const details = smooth ? `prompts: ${rateText(smooth.prefill)} computed, ${rateText(smooth.cached)} from the cache` : "no tokens";
    setText(this.#tokens.detail, details);
    this.#tokenChart.describe(smooth ? `${rateText(smooth.generated)} generated; ${details}` : details);
  }

  #showGap(summary) {
    setText(this.#gap.value, summary?.gap.count ? timeText(summary.gap.mean) : "–");
    if (!summary?.gap.count) return setText(this.#gap.detail, "no steps");
    const { count, mean, p99, max } = summary.gap;
    this.#byLoop[this.#loop] = mean;
    this.#gap.box.classList.toggle("waits", mean * summary.stepsPerSecond > LOST * 1e6);
    const details = `mean of ${plural(count, "gap")}; p99 ${timeText(p99)}, longest ${timeText(max)}`;
    const other = this.#loop === "overlap" ? "normal" : "overlap";
    const compared = other in this.#byLoop ? `with the ${other} loop ${timeText(this.#byLoop[other])}` : "";
    setText(this.#gap.detail, details);
    setText(this.#compared, compared);
    this.#gapChart.describe(`${details}; ${compared}`);
  }
}

function number(root, title, meaning) {
  const value = el("p", { class: "big" }, "–");
  const detail = el("p", { class: "detail" });
  const box = el("section", { class: "card" }, el("h2", {}, title), value, detail, el("p", { class: "hint" }, meaning));
  root.append(box);
  return { box, value, detail };
}

function stepsText({ stepsPerSecond, rowsPerStep }) {
  return `${rateText(stepsPerSecond)} steps/s with ${rowsPerStep.toFixed(rowsPerStep < 10 ? 1 : 0)} requests each`;
}
