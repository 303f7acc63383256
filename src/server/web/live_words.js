// What the live view says of gaps and of the loop that runs: the words and the picture must not contradict each other. Pure.
import { percentText, plural, timeText } from "./format.js";

export const FEW_GAPS = 20; // fewer say nothing of what is usual

const WORDS = {
  overlap: {
    title: "The device never waits",
    now: "While the device computes a step, the scheduler prepares the next.",
    lead: "Most servers let the device stand still while the host looks at a result and prepares the next step. This one prepares it meanwhile. "
      + "Start some load, then switch to the normal loop to see the difference.",
  },
  normal: {
    title: "The device waits for the host after every step",
    now: "The scheduler prepares a step when the one before has ended; meanwhile the device stands still.",
    lead: "This is how most servers work: the device stands still while the host looks at a result and prepares the next step. "
      + "Switch to the overlap loop, which prepares it meanwhile, to see the difference.",
  },
};

// loop: null before the server has said it. compared: both loops' figures in words, once both have run: instead of the invitation to switch.
export function wordsOf(loop, compared) {
  const { title, now, lead } = WORDS[loop ?? "overlap"];
  return { title, now: `One row per thread. ${now} A red stripe is time in which the device stood still.`, lead: compared || lead };
}

// summary: of StepWindow. A few long gaps that the machine makes move the mean, not the median: both are said, and what all of them cost.
export function gapText({ gap: { count, mean, p99, max }, lost }) {
  const few = count < FEW_GAPS ? ", too few to judge" : "";
  return `median of ${plural(count, "gap")}${few}; mean ${timeText(mean)}, p99 ${timeText(p99)}, longest ${timeText(max)}; `
    + `${percentText(lost)} of the time lost`;
}
