// Server-sent events as the HTML standard has them, from text in pieces of any size.
export class SseParser {
  #rest = "";
  #event = "";
  #data = [];

  // The events that are complete now.
  push(text) {
    const out = [];
    const lines = this.#lines(text);
    for (const line of lines) {
      if (line === "") this.#dispatch(out);
      else this.#field(line);
    }
    return out;
  }

  // Lines end with CR, LF or both. A CR at the end of a piece may be half of a CRLF: it waits for the next.
  #lines(text) {
    const all = this.#rest + text;
    const held = all.endsWith("\r") ? 1 : 0;
    const lines = all.slice(0, all.length - held).split(/\r\n|\n|\r/);
    this.#rest = lines.pop() + (held ? "\r" : "");
    return lines;
  }

  #field(line) {
    const colon = line.indexOf(":");
    if (colon === 0) return; // a comment
    const name = colon < 0 ? line : line.slice(0, colon);
    const value = colon < 0 ? "" : line.slice(colon + 1).replace(/^ /, "");
    if (name === "data") this.#data.push(value);
    if (name === "event") this.#event = value;
  }

  #dispatch(out) {
    if (this.#data.length) out.push({ event: this.#event || "message", data: this.#data.join("\n") });
    this.#event = "";
    this.#data = [];
  }
}
