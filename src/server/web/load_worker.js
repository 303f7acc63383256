// Runs the load in a worker, so that the page stays smooth. A few requests with a list of prompts each carry all streams.
import { errorOf } from "./api.js";
import { LoadFigures } from "./load_figures.js";
import { sharesOf } from "./load_plan.js";
import { PromptMaker, WORDS } from "./load_prompts.js";
import { CompletionScanner } from "./load_scan.js";

const REPORT_MS = 250;
const root = new URL("..", import.meta.url);
let run = null;

self.onmessage = ({ data }) => {
  if (data.stop) return run?.stop();
  run = new LoadRun(data);
  run.start();
};

class LoadRun {
  #abort = new AbortController();
  #figures = new LoadFigures(performance.now());
  #begun = 0;
  #prompts = null;

  // settings: {streams, promptLength, answerLength, share, temperature, seconds, requests: 0 for no limit}
  constructor({ settings, key }) {
    Object.assign(this, { settings, key });
  }

  stop() {
    this.#abort.abort();
  }

  async start() {
    const report = setInterval(() => self.postMessage({ figures: this.#summary() }), REPORT_MS);
    const timeOver = setTimeout(() => this.stop(), this.settings.seconds * 1000);
    let problem = "";
    try {
      await this.#makePrompts();
      await Promise.all(sharesOf(this.settings.streams).map((share, i, { length }) => this.#carry(share, (i + 1) / length)));
    } catch (error) {
      if (!this.#abort.signal.aborted) problem = error instanceof TypeError ? "the connection to the server broke" : error.message;
    }
    this.stop(); // the other carriers, when one failed
    clearInterval(report);
    clearTimeout(timeOver);
    this.#figures.active = 0;
    self.postMessage({ figures: this.#summary(), ended: true, problem });
  }

  #summary() {
    return this.#figures.summary(performance.now());
  }

  async #makePrompts() {
    const { tokens } = await (await this.#post("tokenize", { content: WORDS })).json();
    this.#prompts = new PromptMaker(tokens, { length: this.settings.promptLength, share: this.settings.share });
  }

  // One connection's share of the streams, again and again. The first answers are shorter, by a part that differs between connections, so that
  // not all end in the same step.
  async #carry(share, firstPart) {
    const { requests, answerLength } = this.settings;
    let length = Math.max(1, Math.round(answerLength * firstPart));
    while (!this.#abort.signal.aborted) {
      const count = requests > 0 ? Math.min(share, requests - this.#begun) : share;
      if (count <= 0) return;
      this.#begun += count;
      await this.#round(count, length);
      length = answerLength;
    }
  }

  async #round(count, length) {
    const prompts = Array.from({ length: count }, () => this.#prompts.next());
    const figures = this.#figures;
    const begun = performance.now();
    const seen = new Uint8Array(count);
    let tokens = 0;
    let ended = 0;
    const scanner = new CompletionScanner({
      token: (index) => {
        tokens++;
        figures.tokens++;
        if (!seen[index]) figures.first(performance.now() - begun);
        seen[index] = 1;
      },
      end: () => { ended++; figures.done++; figures.active--; },
      usage: (usage) => {
        figures.tokens += usage.completion_tokens - tokens;
        figures.promptTokens += usage.prompt_tokens;
        figures.cachedTokens += usage.prompt_tokens_details?.cached_tokens ?? 0;
      },
      error: (message) => { throw new Error(message); },
    });
    figures.active += count;
    try {
      const body = { prompt: prompts, max_tokens: length, temperature: this.settings.temperature, ignore_eos: true, stream: true,
        stream_options: { include_usage: true } };
      await this.#read(await this.#post("v1/completions", body), scanner);
    } catch (error) {
      if (!this.#abort.signal.aborted) figures.errors += count - ended;
      throw error;
    }
  }

  async #read(response, scanner) {
    const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
    for (let part = await reader.read(); !part.done; part = await reader.read()) scanner.push(part.value);
  }

  // The key is handed in, because a worker has no access to where the page keeps it.
  async #post(path, body) {
    const headers = { "Content-Type": "application/json" };
    if (this.key) headers.Authorization = `Bearer ${this.key}`;
    const response = await fetch(new URL(path, root), { method: "POST", headers, body: JSON.stringify(body), signal: this.#abort.signal });
    if (!response.ok) throw await errorOf(response);
    return response;
  }
}
