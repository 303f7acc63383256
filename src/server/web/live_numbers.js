// The big numbers and the strips of the last minute.
import { card } from "./card.js";
import { el } from "./dom.js";
import { setText } from "./dom_text.js";
import { percentText, rateText, timeText } from "./format.js";
import { FEW_GAPS, gapText } from "./live_words.js";
import { LoopComparison } from "./loop_comparison.js";
import { linearScale, logScale } from "./scales.js";
import { Rates, StepWindow } from "./stats.js";
import { StripChart } from "./strip_chart.js";

const SECONDS = 5;   // of the gap's and the busy share's numbers
const LOST = 0.015; // a median gap of so much of a step is worth a warning colour

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
  #comparison = new LoopComparison();
  #gap; #busy; #tokens; #gapChart; #tokenChart;

  constructor(numbers, charts) {
    this.#gap = number(numbers, "Device idle between steps",
      "The usual time from the end of a step to the begin of the next. At 0 the next step was already queued when one ended.");
    this.#busy = number(numbers, "Device busy", "Share of the time in which the device computes. What is missing is lost.");
    this.#tokens = number(numbers, "Generated tokens per second", "Of all answers together; a step makes one for every running request.");
    this.#gap.box.classList.add("main-number");
    const gaps = card("Gaps between steps", "Log scale: each line is ten times the one below. A mark shows where the loop was changed.");
    const tokens = card("Tokens per second", "Prompt tokens that the cache knows cost nothing.");
    charts.append(gaps, tokens);
    this.#gapChart = new StripChart(gaps, { label: "Gaps between steps", scale: logScale(1, 1e6), text: timeText, series: GAP_SERIES });
    this.#tokenChart = new StripChart(tokens, { label: "Tokens per second", scale: linearScale(10), text: rateText, series: TOKEN_SERIES });
  }

  reset(loop) {
    this.#steps.clear();
    this.#rates.clear();
    this.#loop = loop;
    this.#tokenChart.interrupt();
  }

  frame(frame) {
    if (frame.loop !== this.#loop) {
      this.#steps.clear();
      this.#rates.clear();
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
    for (const [figure, { compared }] of Object.entries({ gap: this.#gap, busy: this.#busy, tokens: this.#tokens }))
      setText(compared, this.#comparison.beside(this.#loop, figure));
    this.#gapChart.paint();
  }

  // Both loops' figures in words; nothing until both have run.
  compared() {
    return this.#comparison.text();
  }

  state(state) {
    this.#rates.add(state.now, state.tokens);
    const smooth = this.#rates.perSecond();
    this.#tokenChart.add(state.now, this.#rates.perSecond(true));
    this.#tokenChart.paint();
    if (smooth?.generated > 0 && state.running > 0) this.#comparison.note(this.#loop, "tokens", smooth.generated);
    setText(this.#tokens.value, smooth ? rateText(smooth.generated) : "–");
    const details = smooth ? `prompts: ${rateText(smooth.prefill)} computed, ${rateText(smooth.cached)} from the cache` : "no tokens";
    setText(this.#tokens.detail, details);
    this.#tokenChart.describe(smooth ? `${rateText(smooth.generated)} generated; ${details}` : details);
  }

  #showGap(summary) {
    const { count = 0, p50 } = summary?.gap ?? {};
    setText(this.#gap.value, count > 0 ? timeText(p50) : "–");
    const details = count > 0 ? gapText(summary) : "no steps";
    setText(this.#gap.detail, details);
    this.#gapChart.describe(details);
    if (count < FEW_GAPS) return;
    this.#gap.box.classList.toggle("waits", p50 * summary.stepsPerSecond > LOST * 1e6);
    this.#comparison.note(this.#loop, "gap", p50);
    this.#comparison.note(this.#loop, "busy", summary.busy);
  }
}

function number(root, title, meaning) {
  const value = el("p", { class: "big" }, "–");
  const detail = el("p", { class: "detail" });
  const compared = el("p", { class: "compared" });
  root.append(el("section", { class: "card" }, el("h2", {}, title), value, detail, compared, el("p", { class: "hint" }, meaning)));
  return { box: value.parentElement, value, detail, compared };
}

function stepsText({ stepsPerSecond, rowsPerStep }) {
  return `${rateText(stepsPerSecond)} steps/s with ${rowsPerStep.toFixed(rowsPerStep < 10 ? 1 : 0)} requests each`;
}
