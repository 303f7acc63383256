// Whether a simulated device keeps time: where this host is too slow for it, no time or rate of the live view is that of the device. Asked of
// /metrics as long as somebody looks, of a simulated device alone.
import { request } from "./api.js";
import { percentText } from "./format.js";
import { Rates } from "./stats.js";

const POLL_MS = 3000;
const SECONDS = 15;       // that are judged
const MOST_LATE = 0.001;  // docs/operations.md: above it the times say nothing

// The counters of simulated steps in the text of /metrics; null: there are none.
export function simulatedSteps(metrics) {
  const read = (name) => Number(new RegExp(`^${name}(?:\\{[^}]*\\})? (\\S+)`, "m").exec(metrics)?.[1] ?? NaN);
  const counters = { steps: read("gapless_sim_steps_total"), late: read("gapless_sim_late_steps_total") };
  return Number.isNaN(counters.steps + counters.late) ? null : counters;
}

// What there is to say of `late` of `steps`; "" while the device keeps time.
export function latenessText({ steps, late }) {
  if (steps === 0 || late / steps <= MOST_LATE) return "";
  return `Do not believe these numbers: ${percentText(late / steps)} of the simulated steps were late, because this machine is too busy for the `
    + "device that it simulates.";
}

export class Lateness {
  #rates = new Rates(SECONDS);
  #watching = new AbortController();

  // tell(text): at each answer.
  constructor(tell) {
    this.tell = tell;
  }

  // device: its name in the feed's hello.
  watch(device) {
    this.stop();
    this.#rates.clear();
    this.tell("");
    this.#watching = new AbortController();
    if (device.startsWith("sim")) this.#ask(this.#watching.signal);
  }

  stop() {
    this.#watching.abort();
  }

  async #ask(signal) {
    while (!signal.aborted) {
      try {
        const counters = simulatedSteps(await (await request("GET", "metrics", { signal })).text());
        if (counters) this.#rates.add(performance.now() / 1000, counters);
        this.tell(latenessText(this.#rates.perSecond() ?? { steps: 0, late: 0 }));
      } catch {
        // The feed tells what is wrong with the server.
      }
      await new Promise((resolve) => setTimeout(resolve, POLL_MS));
    }
  }
}
