// The load generator: many streams at once from this page. The work is done in load_worker.js.
import { getKey } from "./api.js";
import { el } from "./dom.js";
import { setHidden, setText } from "./dom_text.js";
import { countText, percentText, plural, rateText, timeText } from "./format.js";

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
  ["rate", "tokens/s"], ["first", "first token, median"], ["slow", "first token, p99"], ["done", "answers"],
  ["cached", "of prompts cached"], ["errors", "errors"],
];

// Returns {start(), stop()}.
export function mountLoad(root, app) {
  const panel = new LoadPanel(root, app);
  return { start: () => panel.start(), stop: () => panel.stop() };
}

class LoadPanel {
  #inputs = {};
  #results = {};
  #worker = null;
  #summary = el("span", { class: "load-summary" });
  #problem = el("p", { class: "error", role: "alert", hidden: true });
  #button; #form; #list; #details;

  constructor(root, app) {
    this.app = app;
    this.#button = el("button", { type: "submit", class: "primary" }, "Start load");
    const fields = FIELDS.map((field) => this.#field(field));
    this.#details = el("details", { class: "load-settings" }, el("summary", {}, "Settings"), el("div", { class: "load-fields" }, ...fields));
    this.#form = el("form", { class: "load-form", onsubmit: (event) => this.#submit(event), oninput: () => this.#describe() },
      el("h2", {}, "Load"), el("div", { class: "row load-line" }, this.#button, this.#summary), this.#details);
    this.#list = el("dl", { class: "load-results", hidden: true });
    for (const [key, label] of RESULTS) {
      this.#results[key] = el("dd");
      this.#list.append(el("div", {}, el("dt", {}, label), this.#results[key]));
    }
    root.append(this.#form, this.#problem, this.#list);
    this.#describe();
  }

  start() {
    if (this.#worker) return;
    if (!this.#form.checkValidity()) {
      this.#details.open = true;
      this.#form.reportValidity();
      return;
    }
    this.#worker = new Worker(new URL("./load_worker.js", import.meta.url), { type: "module" });
    this.#worker.onmessage = ({ data }) => this.#take(data);
    this.#worker.onerror = () => this.#end("the load generator could not be loaded");
    this.#worker.postMessage({ settings: this.#settings(), key: getKey() });
    setText(this.#button, "Stop");
    this.#button.classList.remove("primary");
    setHidden(this.#problem, true);
    for (const input of Object.values(this.#inputs)) input.disabled = true;
  }

  stop() {
    this.#worker?.postMessage({ stop: true });
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
    const { streams, promptLength, answerLength, share } = this.#settings();
    const shared = share > 0 ? `, ${Math.round(share * 100)} % of it shared` : "";
    const prompts = `prompts of ${countText(promptLength)} tokens${shared}`;
    setText(this.#summary, `${plural(streams, "stream")} · ${prompts} · answers of ${countText(answerLength)}`);
  }

  #take({ figures, ended, problem }) {
    this.#show(figures, ended);
    if (ended) this.#end(problem);
  }

  #show(figures, ended) {
    setHidden(this.#list, false);
    const texts = {
      rate: rateText(ended ? figures.meanTokensPerSecond : figures.tokensPerSecond),
      first: figures.first ? timeText(figures.first.p50 * 1000) : "–",
      slow: figures.first ? timeText(figures.first.p99 * 1000) : "–",
      done: countText(figures.done),
      cached: figures.promptTokens > 0 ? percentText(figures.cachedTokens / figures.promptTokens) : "–",
      errors: countText(figures.errors),
    };
    for (const [key, text] of Object.entries(texts)) setText(this.#results[key], text);
    this.#list.classList.toggle("has-errors", figures.errors > 0);
  }

  #end(problem) {
    this.#worker.terminate();
    this.#worker = null;
    setText(this.#button, "Start load");
    this.#button.classList.add("primary");
    setHidden(this.#problem, !problem);
    setText(this.#problem, problem ? `The load stopped: ${problem}` : "");
    for (const input of Object.values(this.#inputs)) input.disabled = false;
  }
}
