// What was last seen with each loop of the scheduler, so that one can be told beside the other. Pure.
import { percentText, rateText, timeText } from "./format.js";

const FORMATS = { gap: timeText, busy: percentText, tokens: rateText };
const otherThan = (loop) => (loop === "overlap" ? "normal" : "overlap");

export class LoopComparison {
  #seen = { overlap: {}, normal: {} };

  // figure: "gap" (median, microseconds), "busy" (share of 1) or "tokens" (per second).
  note(loop, figure, value) {
    this.#seen[loop][figure] = value;
  }

  // loop: the one that runs, null before the server has said it. "with the normal loop 88.6 %"; nothing until the other loop has run.
  beside(loop, figure) {
    if (loop === null) return "";
    const other = otherThan(loop);
    const value = this.#seen[other][figure];
    return value === undefined ? "" : `with the ${other} loop ${FORMATS[figure](value)}`;
  }

  // Both loops in a sentence each; nothing until both have run.
  text() {
    const sentences = ["overlap", "normal"].map((loop) => this.#sentence(loop));
    return sentences.every(Boolean) ? sentences.join(" ") : "";
  }

  #sentence(loop) {
    const { gap, busy, tokens } = this.#seen[loop];
    if (gap === undefined) return "";
    const rate = tokens === undefined ? "" : `, ${rateText(tokens)} tokens/s`;
    return `With the ${loop} loop: ${timeText(gap)} between steps, device ${percentText(busy)} busy${rate}.`;
  }
}
