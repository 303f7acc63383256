// What the spans are called, and what they mean to somebody who sees them for the first time. docs/tracing.md says it at length.

// Ring -> what that lane is.
export const LANES = {
  http: "reads requests, writes tokens to their streams",
  scheduler: "decides what runs next, one step ahead",
  forward: "turns a batch into operations for the device",
  device: "computes: one token for every running request per step",
  detokenizer: "makes text of tokens",
};

const MEANINGS = {
  burst: "the network thread woke and handled everything that was ready",
  request: "a request was read and handed on",
  idle: "nothing runs and nothing waits",
  wait: "sleeps until there is something to do",
  wake: "from the end of the step on the device until this thread runs again",
  ingest: "takes the requests that have arrived",
  compose: "chooses what runs next and finds memory for it",
  launch: "freezes the batch and hands it over",
  recall: "takes a launched batch back, so that newcomers can join it",
  mask: "which tokens a grammar allows next",
  snapshot: "notes for this page what runs and where the memory is",
  memory_stall: "memory for the next batch has to wait for a result",
  process: "appends the new tokens and ends requests",
  send: "hands new tokens to the detokenizer",
  plan: "lists the operations of the step and queues them on the device",
  decode: "a step: one token for each running request",
  extend: "a step that computes prompts",
  mixed: "a step with both, prompts and answers",
  deliver: "turns the tokens of one step into text",
};

// Sleeping: pale, so that work stands out.
export const RESTING = new Set(["idle", "wait"]);
export const STEPS = new Set(["decode", "extend", "mixed"]);

export function meaningOf(kind) {
  return MEANINGS[kind] ?? "";
}

// The names of the spans and of their numbers, by the index that lanes hold. Two kinds may share a name: each thread has its own "wait", with
// other numbers.
export class KindTable {
  names = [];
  args = [];
  #index = new Map();

  // A table that came from a worker as plain data.
  static of({ names, args }) {
    return Object.assign(new KindTable(), { names, args });
  }

  // `kinds`: [{text, args}], the next ones in the feed's order.
  append(kinds) {
    for (const { text, args } of kinds) {
      this.names.push(text);
      this.args.push(args);
    }
  }

  // The index of a name with these numbers, new where it was not known. For a table that is filled by this alone.
  indexOf(text, args = []) {
    const key = [text, ...args].join(" ");
    if (!this.#index.has(key)) {
      this.#index.set(key, this.names.length);
      this.append([{ text, args }]);
    }
    return this.#index.get(key);
  }
}

// The batch a span belongs to, or NaN.
export function batchOf(lane, i, kinds) {
  return kinds.args[lane.kind[i]]?.[0] === "batch" ? lane.a[i] : NaN;
}

// [[name, value]] of a span's numbers.
export function argsOf(lane, i, kinds) {
  const values = [lane.a[i], lane.b[i], lane.c[i]];
  return (kinds.args[lane.kind[i]] ?? []).map((name, n) => [name, values[n]]).filter(([, value]) => !Number.isNaN(value));
}
