// The field at the bottom: Enter sends, Shift+Enter begins a line, Escape stops.
import { el } from "./dom.js";
import { keep, recall } from "./storage.js";

const MAX_HEIGHT_PX = 240;
const DRAFT = "gapless.draft"; // what was typed and not sent, in this tab

export class Composer {
  // actions: {send(text) -> whether it was taken, stop(), openSettings(), resetSettings()}
  constructor(actions) {
    this.actions = actions;
    this.running = false;
    this.field = el("textarea", { rows: 1, id: "chat-input", "aria-label": "Message", placeholder: "Message", enterkeyhint: "send",
      oninput: () => this.#changed(), onkeydown: (event) => this.#key(event) });
    this.button = el("button", { type: "submit", class: "primary icon icon-send", "aria-label": "Send" });
    this.chips = el("div", { class: "chips" });
    this.element = el("form", { class: "composer", onsubmit: (event) => { event.preventDefault(); this.#submit(); } },
      this.chips, el("div", { class: "field" }, this.field, this.button),
      el("p", { class: "keys", "aria-hidden": "true" }, "Enter sends · Shift + Enter for a new line · Esc stops"));
  }

  // running: an answer is being generated here.
  setRunning(running) {
    this.running = running;
    this.button.classList.toggle("icon-send", !running);
    this.button.classList.toggle("icon-stop", running);
    this.button.setAttribute("aria-label", running ? "Stop" : "Send");
  }

  setPlaceholder(text) {
    this.field.placeholder = text;
    this.field.setAttribute("aria-label", text);
  }

  // What differs from the server's own settings is never silent.
  setChanged(texts) {
    this.chips.hidden = texts.length === 0;
    const open = () => this.actions.openSettings();
    const chips = texts.map((text) => el("button", { type: "button", class: "chip", title: "Open the settings", onclick: open }, text));
    const reset = el("button", { type: "button", class: "chip plain", onclick: () => this.actions.resetSettings() }, "Reset");
    this.chips.replaceChildren(...chips, reset);
  }

  setText(text) {
    this.field.value = text;
    this.#changed();
    this.field.focus();
  }

  // After a reload.
  restoreDraft() {
    this.field.value = recall(DRAFT, "sessionStorage") ?? "";
    this.#fit();
  }

  focus() {
    this.field.focus();
  }

  #changed() {
    keep(DRAFT, this.field.value || null, "sessionStorage");
    this.#fit();
  }

  #submit() {
    if (this.running) return this.actions.stop();
    const text = this.field.value;
    if (!text.trim()) return;
    if (this.actions.send(text)) this.setText("");
  }

  #key(event) {
    if (event.isComposing || event.keyCode === 229) return; // an input method is still choosing
    if (event.key !== "Enter" || event.shiftKey) return;
    event.preventDefault();
    if (!this.running) this.#submit();
  }

  #fit() {
    this.field.style.height = "auto";
    const height = this.field.scrollHeight + 2;
    this.field.style.height = `${Math.min(MAX_HEIGHT_PX, height)}px`;
    this.field.style.overflowY = height > MAX_HEIGHT_PX ? "auto" : "hidden";
  }
}
