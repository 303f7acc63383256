// Overlap or normal: changes the loop of the running server. Requests go on; the steps in flight end first.
import { request } from "./api.js";
import { el } from "./dom.js";
import { setText } from "./dom_text.js";

const LOOPS = [
  { key: "overlap", label: "Overlap", meaning: "The next step is prepared while the device computes. Switch to normal to compare." },
  { key: "normal", label: "Normal",
    meaning: "The device waits while the host prepares the next step. So it is for everybody who uses this server, also when this page is closed, "
      + "until somebody switches back." },
];

export class LoopSwitch {
  #inputs = {};
  #note = el("span", { class: "hint", role: "status" });
  #loop = null;
  #changing = false;

  constructor(root, app) {
    this.app = app;
    const labels = LOOPS.map(({ key, label, meaning }) => {
      this.#inputs[key] = el("input", { type: "radio", name: "loop", value: key, onchange: () => this.#change(key) });
      return el("label", { title: meaning }, this.#inputs[key], el("span", {}, label));
    });
    root.append(el("fieldset", { class: "segments inline" }, el("legend", {}, "Scheduler loop"), ...labels), this.#note);
  }

  // The one that the server runs; null before it has said so.
  get loop() { return this.#loop; }

  // What the server says that it runs.
  show(loop) {
    if (this.#changing || loop === this.#loop) return;
    this.#loop = loop;
    this.#inputs[loop].checked = true;
    setText(this.#note, LOOPS.find(({ key }) => key === loop).meaning);
  }

  async #change(loop) {
    if (this.#changing) return;
    this.#changing = true;
    for (const input of Object.values(this.#inputs)) input.disabled = true;
    setText(this.#note, "The steps in flight end, then the loop changes …");
    try {
      await request("POST", "scheduler/loop", { body: { loop } });
      this.#loop = null;
    } catch (error) {
      this.app.toast(`The loop stays as it is: ${this.app.operatorHint(error)}`, "bad");
      loop = this.#loop ?? "overlap";
      this.#loop = null;
    }
    this.#changing = false;
    for (const input of Object.values(this.#inputs)) input.disabled = false;
    this.#inputs[loop].focus({ preventScroll: true });
    this.show(loop);
  }
}
