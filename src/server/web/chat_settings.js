// The panel at the right: system prompt, sampling, stop strings and JSON schema of the chat that is open.
import { el, iconButton } from "./dom.js";
import { COMPLETION_TOKENS, NUMBERS, problemOf } from "./settings.js";

const SCHEMA_EXAMPLE = '{\n  "type": "object",\n  "properties": {\n    "city": { "type": "string" }\n  },\n  "required": ["city"]\n}';

export class SettingsPanel {
  #settings = {};
  #fields = {};

  // actions: {changed(settings), reset(), close()}
  constructor(actions) {
    this.actions = actions;
    this.element = el("aside", { class: "settings", id: "chat-settings", "aria-label": "Settings of this chat", tabindex: "-1", hidden: true },
      el("div", { class: "settings-head" }, el("h2", {}, "Settings"),
        el("button", { type: "button", class: "plain", onclick: () => actions.reset() }, "Reset"),
        iconButton("close", "Close the settings", () => actions.close())),
      el("p", { class: "hint" }, "Of this chat, and of those you start after it. What is empty is up to the server, but for the temperature."),
      this.#text("system", "System prompt", { rows: 4, placeholder: "You are a helpful assistant." }),
      el("div", { class: "numbers" }, ...NUMBERS.map((field) => this.#number(field))),
      this.#text("stop", "Stop strings", { rows: 2, placeholder: "one per line", class: "mono" }),
      this.#text("schema", "JSON schema of the answer", { rows: 8, placeholder: SCHEMA_EXAMPLE, class: "mono", spellcheck: "false" }));
  }

  show(settings) {
    this.#settings = { ...settings };
    for (const [name, { field }] of Object.entries(this.#fields)) {
      field.value = settings[name] ?? "";
      this.#check(name);
    }
  }

  setChat(chat) {
    this.#fields.system.box.hidden = !chat;
    this.#fields.max_tokens.field.placeholder = chat ? "no limit" : COMPLETION_TOKENS;
  }

  has(name) {
    return name in this.#fields;
  }

  // What the server, or a check here, said of one. Leads there.
  showProblem(name, text) {
    const { field, problem } = this.#fields[name];
    problem.textContent = text;
    problem.hidden = false;
    field.setAttribute("aria-invalid", "true");
    problem.scrollIntoView({ block: "nearest" });
  }

  // hint: '' or what the field takes.
  #row(name, label, hint, field) {
    const problem = el("p", { class: "error", id: `problem-${name}`, role: "alert", hidden: true });
    field.id = `setting-${name}`;
    field.setAttribute("aria-describedby", `problem-${name}`);
    field.addEventListener("input", () => this.#changed(name));
    const box = el("div", { class: "setting" }, el("label", { for: field.id, title: hint || null }, label), field, problem);
    this.#fields[name] = { field, problem, box };
    return box;
  }

  #text(name, label, attributes) {
    return this.#row(name, label, "", el("textarea", attributes));
  }

  #number({ name, label, hint, otherwise = hint, min = 0 }) {
    const keys = min < 0 ? "text" : "decimal"; // keypads of phones lack the minus
    return this.#row(name, label, hint, el("input", { type: "text", inputmode: keys, autocomplete: "off", placeholder: otherwise }));
  }

  #changed(name) {
    const { value } = this.#fields[name].field;
    if (value) this.#settings[name] = value;
    else delete this.#settings[name];
    this.#check(name);
    this.actions.changed({ ...this.#settings });
  }

  #check(name) {
    const { field, problem } = this.#fields[name];
    const text = problemOf(name, field.value);
    problem.textContent = text;
    problem.hidden = !text;
    if (text) field.setAttribute("aria-invalid", "true");
    else field.removeAttribute("aria-invalid");
  }
}
