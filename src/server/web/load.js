// The load generator: many streams at once from this page. The work is done in load_worker.js.
import { getKey } from "./api.js";
import { el } from "./dom.js";
import { setHidden, setText } from "./dom_text.js";
import { countText, percentText, plural, rateText, timeText } from "./format.js";
import { problemOf } from "./load_plan.js";

const FIELDS = [
  { key: "streams", label: "Streams at once", value: 32, min: 1, max: 256 },
  { key: "promptLength", label: "Prompt, tokens", value: 128, min: 1, max: 100000 },
  { key: "answerLength", label: "Answer, tokens", value: 256, min: 1, max: 100000 },
  { key: "share", label: "Shared prefix, %", value: 50, min: 0, max: 100 },
  { key: "temperature", label: "Temperature", value: 0, min: 0, max: 2, step: 0.1 },
  { key: "seconds", label: "Stop after, s", value: 60, min: 1, max: 86400 },
  { key: "requests", label: "or after requests", value: "", min: 1, max: 1000000, optional: true, placeholder: "no limit" },
];
const RESULTS = [
  ["rate", "tokens/s"], ["tokens", "tokens"], ["first", "first token, median"], ["slow", "first token, p99"], ["done", "answers"],
  ["cached", "of prompts cached"], ["errors", "errors"],
];
const TICK_MS = 250;
const GRACE_MS = 1000; // a worker that does not end by itself in this time is ended

// Returns {start(), stop(), setContext(tokens)}: how long a prompt with its answer may be.
export function mountLoad(root) {
  const panel = new LoadPanel(root);
  return { start: () => panel.start(), stop: () => panel.stop(), setContext: (tokens) => { panel.context = tokens; } };
}

class LoadPanel {
  context = null;
  #inputs = {};
  #results = {};
  #labels = {};
  #worker = null;
  #begun = 0;      // ms, of the run
  #stopped = null; // ms, when the run was told to end
  #ticker = 0;
  #tokens = 0;
  #countdown = el("span", { class: "load-summary", hidden: true });
  #outcome = el("p", { class: "hint", role: "status" });
  #summary = el("span", { class: "load-summary" });
  #problem = el("p", { class: "error", role: "alert", hidden: true });
  #button; #form; #list; #details;

  constructor(root) {
    this.#button = el("button", { type: "submit", class: "primary" }, "Start load");
    const fields = FIELDS.map((field) => this.#field(field));
    this.#details = el("details", { class: "load-settings" }, el("summary", {}, "Settings"), el("div", { class: "load-fields" }, ...fields));
    this.#form = el("form", { class: "load-form", onsubmit: (event) => this.#submit(event), oninput: () => this.#describe() },
      el("h2", {}, "Load"), el("div", { class: "row load-line" }, this.#button, this.#summary, this.#countdown), this.#details);
    this.#list = el("dl", { class: "load-results", hidden: true });
    for (const [key, label] of RESULTS) {
      this.#results[key] = el("dd");
      this.#labels[key] = el("dt", {}, label);
      this.#list.append(el("div", {}, this.#labels[key], this.#results[key]));
    }
    root.append(this.#form, this.#problem, this.#outcome, this.#list);
    this.#describe();
  }

  start() {
    if (this.#worker) return;
    if (!this.#form.checkValidity()) {
      this.#details.open = true;
      this.#form.reportValidity();
      return;
    }
    const settings = this.#settings();
    const problem = problemOf(settings, this.context);
    this.#tell({ problem });
    if (problem) return;
    this.#worker = new Worker(new URL("./load_worker.js", import.meta.url), { type: "module" });
    this.#worker.onmessage = ({ data }) => this.#take(data);
    this.#worker.onerror = () => this.#end("The load generator could not be loaded.");
    this.#worker.postMessage({ settings, key: getKey() });
    this.#begun = performance.now();
    this.#stopped = null;
    this.#tokens = 0;
    this.#ticker = setInterval(() => this.#tick(settings.seconds), TICK_MS);
    this.#tick(settings.seconds);
    this.#setRunning(true);
  }

  stop() {
    this.#stopped ??= performance.now();
    this.#worker?.postMessage({ stop: true });
  }

  // The time left; ends the worker when it does not end by itself.
  #tick(seconds) {
    const ms = performance.now();
    const left = Math.max(0, seconds - (ms - this.#begun) / 1000);
    const first = this.#tokens === 0 ? "waits for the first token, " : "";
    setText(this.#countdown, `${first}${countText(Math.ceil(left))} s left`);
    if (left === 0) this.#stopped ??= ms;
    if (this.#stopped !== null && ms > this.#stopped + GRACE_MS) this.#end("The load generator was busy and did not stop: it was ended.");
  }

  #field({ key, label, optional, ...attributes }) {
    const input = el("input", { type: "number", inputmode: "decimal", required: !optional, step: 1, ...attributes });
    this.#inputs[key] = input;
    return el("label", {}, label, input);
  }

  #submit(event) {
    event.preventDefault();
    if (this.#worker) this.stop();
    else this.start();
  }

  #settings() {
    const settings = Object.fromEntries(Object.entries(this.#inputs).map(([key, input]) => [key, Number(input.value)]));
    return { ...settings, share: settings.share / 100 };
  }

  #describe() {
    const { streams, promptLength, answerLength, share, seconds } = this.#settings();
    const shared = share > 0 ? `, ${Math.round(share * 100)} % of it shared` : "";
    const prompts = `prompts of ${countText(promptLength)} tokens${shared}`;
    setText(this.#summary, `${plural(streams, "stream")} · ${prompts} · answers of ${countText(answerLength)} · for ${countText(seconds)} s`);
  }

  #take({ figures, ended, problem }) {
    this.#show(figures, ended);
    if (ended) this.#end(problem && `The load stopped: ${problem}`);
  }

  #show(figures, ended) {
    setHidden(this.#list, false);
    this.#tokens = figures.tokens;
    // Of a run in which the loop was changed the mean is of both.
    setText(this.#labels.rate, ended ? "tokens/s, mean of the run" : "tokens/s now");
    const texts = {
      rate: rateText(ended ? figures.meanTokensPerSecond : figures.tokensPerSecond),
      tokens: countText(figures.tokens),
      first: figures.first ? timeText(figures.first.p50 * 1000) : "–",
      slow: figures.first ? timeText(figures.first.p99 * 1000) : "–",
      done: countText(figures.done),
      cached: figures.promptTokens > 0 ? percentText(figures.cachedTokens / figures.promptTokens) : "–",
      errors: countText(figures.errors),
    };
    for (const [key, text] of Object.entries(texts)) setText(this.#results[key], text);
    this.#list.classList.toggle("has-errors", figures.errors > 0);
  }

  // problem: why it ended; "" when its time was over, all requests were made, or somebody stopped it.
  #end(problem) {
    this.#worker.terminate();
    this.#worker = null;
    clearInterval(this.#ticker);
    const seconds = (performance.now() - this.#begun) / 1000;
    this.#tell({ problem, outcome: `Ended after ${countText(seconds)} s.` });
    this.#setRunning(false);
  }

  #setRunning(running) {
    setText(this.#button, running ? "Stop" : "Start load");
    this.#button.classList.toggle("primary", !running);
    setHidden(this.#countdown, !running);
    for (const input of Object.values(this.#inputs)) input.disabled = running;
  }

  #tell({ problem = "", outcome = "" }) {
    setHidden(this.#problem, !problem);
    setText(this.#problem, problem);
    setText(this.#outcome, outcome);
  }
}
