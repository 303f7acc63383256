// The connection to /live: open while somebody looks, opened again when it breaks.
import { events } from "./api.js";

const FIRST_RETRY_MS = 500;
const LAST_RETRY_MS = 5000;
const FINAL = new Set([401, 403, 404]); // asking again gives the same answer

export class LiveFeed {
  #abort = null;

  // handlers: {hello(data), frame(data), state(data), connection('connecting' | 'open' | 'broken' | 'refused', error)}
  constructor(handlers) {
    this.handlers = handlers;
  }

  start() {
    if (this.#abort) return;
    this.#abort = new AbortController();
    this.#run(this.#abort.signal);
  }

  stop() {
    this.#abort?.abort();
    this.#abort = null;
  }

  async #run(signal) {
    let retry = FIRST_RETRY_MS;
    while (!signal.aborted) {
      this.handlers.connection("connecting");
      let problem = null;
      try {
        for await (const { event, data } of events("live", { signal })) {
          if (signal.aborted) return;
          retry = FIRST_RETRY_MS;
          this.#take(event, data);
        }
      } catch (error) {
        problem = error;
      }
      if (signal.aborted) return;
      const final = FINAL.has(problem?.status);
      this.handlers.connection(final ? "refused" : "broken", problem);
      if (final) return this.stop();
      await new Promise((resolve) => setTimeout(resolve, retry));
      retry = Math.min(LAST_RETRY_MS, retry * 2);
    }
  }

  #take(event, data) {
    if (event === "hello") this.handlers.connection("open");
    if (event === "hello" || event === "frame" || event === "state") this.handlers[event](JSON.parse(data));
  }
}
