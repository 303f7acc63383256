// A box of the page with a heading and a sentence that says what is in it.
import { el } from "./dom.js";

export function card(title, meaning, ...children) {
  return el("section", { class: "card" }, el("h2", {}, title), meaning && el("p", { class: "hint" }, meaning), ...children);
}
