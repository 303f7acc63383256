// Reads the stream of /v1/completions with many answers in one, at up to hundreds of thousands of events a second: events of the usual shape
// are looked at without making objects of them. Pure.

const DATA = "data: ";
const INDEX = '"choices":[{"index":';
const UNFINISHED = '"finish_reason":null';

export class CompletionScanner {
  #rest = "";

  // on: {token(index), end(index), usage(object), error(message)}. A text is one token, but for the few that come joined: usage has the truth.
  constructor(on) {
    this.on = on;
  }

  push(text) {
    const all = this.#rest + text;
    let from = 0;
    for (let to = all.indexOf("\n"); to >= 0; to = all.indexOf("\n", from)) {
      if (all.startsWith(DATA, from)) this.#event(all.slice(from + DATA.length, to));
      from = to + 1;
    }
    this.#rest = all.slice(from);
  }

  #event(data) {
    const at = data.indexOf(INDEX);
    if (at >= 0) {
      const index = parseInt(data.slice(at + INDEX.length, at + INDEX.length + 6), 10);
      this.on.token(index);
      if (!data.includes(UNFINISHED)) this.on.end(index);
    } else if (data.startsWith("{")) {
      const { usage, error } = JSON.parse(data);
      if (error) this.on.error(error.message);
      if (usage) this.on.usage(usage);
    }
  }
}
