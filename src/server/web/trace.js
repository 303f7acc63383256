// The trace view: records what every thread did, or opens a saved file, and shows it.
import { request } from "./api.js";
import { card } from "./card.js";
import { el, saveFile } from "./dom.js";
import { setHidden, setText } from "./dom_text.js";
import { bytesText } from "./format.js";
import { KindTable } from "./span_kinds.js";
import { SpanLane } from "./span_lane.js";
import { deviceSteps } from "./trace_report.js";
import { gapTable, MOST_STEPS, phaseTable, stepTable, summaryCards } from "./trace_tables.js";
import { TraceView } from "./trace_view.js";

const TABLE_MS = 150; // the table of steps follows the picture when it rests
const LONGEST_S = 60;

export function mount(root, app) {
  const page = new TracePage(root, app);
  return { show() {}, hide: () => page.hide() };
}

class TracePage {
  #seconds; #record; #progress; #download; #status; #problem; #result; #empty; #cards; #tables; #stepBox; #view;
  #recording = null; // AbortController
  #blob = null;
  #name = "";
  #cancelReading = () => {};
  #timer = 0;
  #opened = null; // {trace, steps}

  constructor(root, app) {
    this.app = app;
    this.#build(root);
    root.addEventListener("dragover", (event) => event.preventDefault());
    root.addEventListener("drop", (event) => {
      event.preventDefault();
      if (event.dataTransfer.files.length > 0) this.#open(event.dataTransfer.files[0], event.dataTransfer.files[0].name);
    });
  }

  hide() {
    this.#recording?.abort();
  }

  #build(root) {
    this.#cards = el("div", { class: "numbers trace-numbers" });
    const lanes = el("section", { class: "card", "aria-label": "Lanes" });
    this.#tables = el("div", { class: "trace-tables" });
    this.#stepBox = el("div");
    const steps = card("Steps in the picture", `At most ${MOST_STEPS} of them.`, this.#stepBox);
    this.#result = el("div", { class: "live-body", hidden: true }, this.#cards, lanes, this.#tables, steps);
    this.#problem = el("p", { class: "error", role: "alert", hidden: true });
    const lead = "Every thread and the device always record what they do. Take the last seconds, look at a single step, and see what each "
      + "microsecond was spent on. A trace holds counts and times, no text.";
    const head = el("header", { class: "live-head" }, el("h1", {}, "Trace"), el("p", { class: "lead" }, lead));
    this.#empty = card("Nothing is shown yet", "Record while requests run, or open a file that was saved here or with curl.",
      el("p", {}, "No load? The ", el("a", { href: "#live" }, "live view"), " makes some."));
    root.append(el("div", { class: "trace" }, head, this.#bar(), this.#problem, this.#empty, this.#result));
    this.#view = new TraceView(lanes, (view) => this.#moved(view));
  }

  #bar() {
    this.#seconds = el("input", { type: "number", id: "trace-seconds", min: 1, max: LONGEST_S, value: 2, required: true, inputmode: "numeric" });
    this.#record = el("button", { type: "submit", class: "primary" }, "Record");
    this.#progress = el("progress", { max: 1, value: 0, hidden: true, "aria-label": "Recording" });
    const file = el("input", { type: "file", hidden: true, accept: ".json,application/json", "aria-label": "Trace file" });
    file.addEventListener("change", () => {
      if (file.files.length > 0) this.#open(file.files[0], file.files[0].name);
      file.value = ""; // the same file may be chosen again
    });
    const open = el("button", { type: "button", onclick: () => file.click() }, "Open a file …");
    this.#download = el("button", { type: "button", hidden: true, onclick: () => saveFile(this.#name, this.#blob) }, "Download for Perfetto");
    this.#status = el("span", { class: "hint", role: "status" });
    return el("form", { class: "trace-bar", onsubmit: (event) => this.#submit(event) }, el("label", { for: "trace-seconds" }, "Seconds"),
      this.#seconds, this.#record, open, file, this.#download, this.#progress, this.#status);
  }

  #submit(event) {
    event.preventDefault();
    if (this.#recording) this.#recording.abort();
    else this.#recordNow(Number(this.#seconds.value));
  }

  async #recordNow(seconds) {
    this.#recording = new AbortController();
    const { signal } = this.#recording;
    setText(this.#record, "Cancel");
    this.#fail("");
    try {
      await this.#waitFor(seconds, signal);
      setText(this.#status, "Fetching the trace …");
      const response = await request("GET", `trace?seconds=${seconds}`, { signal });
      await this.#open(await response.blob(), `gapless-${new Date().toISOString().slice(0, 19).replaceAll(":", "-")}.json`);
    } catch (error) {
      setText(this.#status, "");
      if (!signal.aborted) this.#fail(`Nothing was recorded: ${this.app.operatorHint(error)}`);
    }
    setHidden(this.#progress, true);
    setText(this.#record, "Record");
    this.#recording = null;
  }

  // The server records anyway: the wait is for what is asked for to happen.
  async #waitFor(seconds, signal) {
    setHidden(this.#progress, false);
    setText(this.#status, `Recording for ${seconds} s …`);
    const begun = performance.now();
    for (let share = 0; share < 1; share = (performance.now() - begun) / (seconds * 1000)) {
      this.#progress.value = share;
      await new Promise((resolve) => setTimeout(resolve, 100));
      signal.throwIfAborted();
    }
    this.#progress.value = 1;
  }

  // A file, or what the server sent. Resolves when it is shown, refused, or another one was opened meanwhile.
  async #open(blob, name) {
    this.#cancelReading();
    this.#fail("");
    setText(this.#status, `Reading ${name} (${bytesText(blob.size)}) …`);
    const worker = new Worker(new URL("./trace_worker.js", import.meta.url), { type: "module" });
    const data = await new Promise((resolve) => {
      this.#cancelReading = () => resolve(null);
      worker.onmessage = (event) => resolve(event.data);
      worker.onerror = () => resolve({ problem: "The trace could not be read: there may not be enough memory for it." });
      worker.postMessage(blob);
    });
    worker.terminate();
    if (data?.problem) this.#fail(data.problem);
    else if (data) this.#show(data, blob, name);
  }

  #show({ trace: plain, report }, blob, name) {
    const trace = { ...plain, lanes: plain.lanes.map((lane) => SpanLane.of(lane)), kinds: KindTable.of(plain.kinds) };
    this.#opened = { trace, steps: deviceSteps(trace) };
    this.#blob = blob;
    this.#name = name;
    setText(this.#status, `${name} (${bytesText(blob.size)})`);
    setHidden(this.#download, false);
    setHidden(this.#result, false);
    setHidden(this.#empty, true);
    this.#cards.replaceChildren(...summaryCards(report));
    const gaps = report.longest.length > 0 ? gapTable(report, (from, to) => this.#look(from, to))
      : el("p", {}, "None: each step was queued before the one before it ended.");
    this.#tables.replaceChildren(
      card("Longest gaps", "What each thread did while the device stood still. Time within several spans goes to the innermost.", gaps),
      card("Spans", "How often, how long, and their sum for each step of the device.", phaseTable(report)));
    this.#view.setTrace(trace, report, this.#opened.steps);
  }

  #look(from, to) {
    this.#view.show(from, to);
    this.#result.scrollIntoView({ block: "start" });
  }

  #moved(view) {
    clearTimeout(this.#timer);
    const { trace, steps } = this.#opened;
    this.#timer = setTimeout(() => this.#stepBox.replaceChildren(stepTable(trace, steps, view)), TABLE_MS);
  }

  #fail(text) {
    setHidden(this.#problem, !text);
    setText(this.#problem, text);
    if (text) setText(this.#status, "");
  }
}
