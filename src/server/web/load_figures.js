// What a run of the load generator measured. Pure: times come in as milliseconds.
import { lengthsOf } from "./stats.js";

const RATE_MS = 2000;

export class LoadFigures {
  #started;
  #firsts = []; // milliseconds to the first token of each answer
  #samples = [];

  constructor(ms) {
    this.#started = ms;
    this.tokens = this.promptTokens = this.cachedTokens = 0;
    this.active = this.done = this.errors = 0;
  }

  first(ms) {
    this.#firsts.push(ms);
  }

  // A plain object for the page.
  summary(ms) {
    this.#samples.push([ms, this.tokens]);
    while (this.#samples.length > 2 && this.#samples[1][0] <= ms - RATE_MS) this.#samples.shift();
    const [since, tokens] = this.#samples[0];
    const seconds = (ms - this.#started) / 1000;
    const { p50, p99, count } = lengthsOf(this.#firsts);
    return {
      seconds, active: this.active, done: this.done, errors: this.errors, tokens: this.tokens,
      promptTokens: this.promptTokens, cachedTokens: this.cachedTokens,
      tokensPerSecond: ms > since ? (this.tokens - tokens) / ((ms - since) / 1000) : 0,
      meanTokensPerSecond: seconds > 0 ? this.tokens / seconds : 0,
      first: count > 0 ? { p50, p99 } : null,
    };
  }
}
