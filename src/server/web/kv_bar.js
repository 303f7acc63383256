// The KV pool as one bar: whose the pages are.
import { el } from "./dom.js";
import { setText } from "./dom_text.js";
import { countText, percentText } from "./format.js";

const PARTS = [
  { key: "own", label: "in use", meaning: "pages of single requests" },
  { key: "shared", label: "cached, in use", meaning: "prefixes that running requests share" },
  { key: "evictable", label: "cached", meaning: "kept for requests that begin alike; given up when memory is short" },
  { key: "leased", label: "in flight", meaning: "given up, but a batch on the device still names them" },
  { key: "free", label: "free", meaning: "nobody's" },
];

// Pages by part from a state's kv: every page is in exactly one.
export function kvParts({ free, tree, evictable, in_use: own, leased }) {
  return { own, shared: Math.max(0, tree - evictable), evictable, leased, free };
}

export class KvBar {
  #segments = {};
  #values = {};
  #summary = el("p", { class: "summary" });

  constructor(root) {
    const bar = el("div", { class: "kv-bar", role: "img", "aria-label": "How the KV pool is divided; the numbers follow" });
    const list = el("dl", { class: "legend" });
    for (const { key, label, meaning } of PARTS) {
      this.#segments[key] = el("div", { class: `kv-${key}`, title: `${label}: ${meaning}` });
      this.#values[key] = el("dd");
      bar.append(this.#segments[key]);
      list.append(el("div", { title: meaning }, el("dt", { class: `key kv-${key}` }, label), this.#values[key]));
    }
    root.append(this.#summary, bar, list);
  }

  update(kv) {
    const parts = kvParts(kv);
    const total = Object.values(parts).reduce((sum, pages) => sum + pages, 0);
    for (const { key } of PARTS) {
      this.#segments[key].style.flexGrow = String(parts[key]);
      setText(this.#values[key], countText(parts[key] * kv.page_size));
    }
    const used = total > 0 ? (total - parts.free - parts.evictable) / total : 0;
    setText(this.#summary, `${percentText(used)} taken of ${countText(total * kv.page_size)} tokens (${countText(total)} pages of ${kv.page_size})`);
  }
}
