// The prefix tree: how much of the prompts it saved, and its largest shared prefixes.
import { el } from "./dom.js";
import { setHidden, setText } from "./dom_text.js";
import { countText, percentText, plural } from "./format.js";

const MOST = 8;

export class PrefixList {
  #hits = el("p", { class: "summary" });
  #none = el("p", { class: "hint" }, "No prefix is shared yet: two requests have to begin with the same text.");
  #rows = [];

  constructor(root) {
    const list = el("ol", { class: "prefixes" });
    for (let i = 0; i < MOST; i++) {
      const bar = el("span", { class: "prefix-bar", "aria-hidden": "true" });
      const text = el("span");
      const item = el("li", { hidden: true }, bar, text);
      this.#rows.push({ item, bar, text });
      list.append(item);
    }
    root.append(this.#hits, list, this.#none);
  }

  update({ hit_tokens: hits, prompt_tokens: prompts, nodes, prefixes }) {
    const rate = prompts > 0 ? percentText(hits / prompts) : "–";
    setText(this.#hits, `${rate} of all prompt tokens came from the cache (${countText(hits)} of ${countText(prompts)}); ${plural(nodes, "node")}`);
    setHidden(this.#none, prefixes.length > 0);
    const longest = Math.max(1, ...prefixes.map((prefix) => prefix.tokens));
    this.#rows.forEach(({ item, bar, text }, i) => {
      const prefix = prefixes[i];
      setHidden(item, !prefix);
      if (!prefix) return;
      bar.style.width = `${Math.max(1, (100 * prefix.tokens) / longest)}%`;
      setText(text, `${plural(prefix.tokens, "token")} · ${plural(prefix.branches, "continuation")} · ${plural(prefix.users, "user")} now`);
    });
  }
}
