// Memory, prefixes and counters of the live view.
import { request } from "./api.js";
import { card } from "./card.js";
import { el } from "./dom.js";
import { setText } from "./dom_text.js";
import { countText, plural } from "./format.js";
import { KvBar } from "./kv_bar.js";
import { PrefixList } from "./prefix_list.js";

const COUNTERS = [
  ["retractions", "Retractions", "requests sent back to the queue for want of memory; their answers do not change"],
  ["recalls", "Recalls", "prepared steps taken back so that a newcomer could join them"],
  ["memory_stalls", "Memory stalls", "steps that had to wait until a result gave memory back"],
];

export class LivePanels {
  #counters = {};
  #kv; #prefixes; #flush; #flushNote;

  constructor(root, app) {
    this.app = app;
    const memory = card("KV memory", "What the model remembers of each token, in pages. Every page is in exactly one of these states.");
    const tree = card("Prefix cache", "Requests that begin alike share what was computed for that part.");
    this.#kv = new KvBar(memory);
    this.#prefixes = new PrefixList(tree);
    this.#flush = el("button", { type: "button", "aria-describedby": "flush-note", onclick: () => this.#flushCache() }, "Empty the cache");
    this.#flushNote = el("span", { class: "hint", id: "flush-note" });
    tree.append(el("div", { class: "row flush" }, this.#flush, this.#flushNote));
    const list = el("dl", { class: "counters" });
    for (const [key, name, meaning] of COUNTERS) {
      this.#counters[key] = el("dd", {}, "0");
      list.append(el("div", {}, el("dt", {}, name), this.#counters[key], el("dd", { class: "hint" }, meaning)));
    }
    root.append(memory, tree, card("Second thoughts", "When a plan made one step ahead had to change. Since the server's start.", list));
  }

  state(state) {
    this.#kv.update(state.kv);
    this.#prefixes.update(state.cache);
    for (const [key] of COUNTERS) setText(this.#counters[key], countText(state.counts[key]));
    const busy = state.running + state.queued > 0;
    this.#flush.disabled = busy;
    setText(this.#flushNote, busy ? "Not while requests run: they use it." : "Drops every cached prefix.");
  }

  async #flushCache() {
    try {
      const { flushed_tokens: flushed } = await (await request("POST", "flush_cache", { body: {} })).json();
      this.app.toast(`The cache is empty: ${plural(flushed, "token")} dropped.`, "good");
    } catch (error) {
      this.app.toast(`The cache was not emptied: ${this.app.operatorHint(error)}`, "bad");
    }
  }
}
