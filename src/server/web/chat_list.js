// The conversations at the left: choose, search, rename, delete, and all of them as a file and back.
import { el, iconButton, saveFile } from "./dom.js";
import { exportText, importText, sameChat } from "./transfer.js";

export class ChatList {
  #conversations = [];
  #current = null;
  #running = new Set();
  #renaming = "";

  // actions: {create(), choose(conversation), rename(conversation, title), remove(conversation), add(conversations),
  // toast(text), close()}
  constructor(actions) {
    this.actions = actions;
    this.search = el("input", { type: "search", placeholder: "Search chats", "aria-label": "Search chats", oninput: () => this.#draw() });
    this.list = el("ul", { class: "chats" });
    this.problems = el("div", { class: "problems", role: "alert", hidden: true });
    this.warning = el("p", { class: "hint", hidden: true }, "This browser keeps nothing for this page: chats last until you leave it.");
    this.element = el("aside", { class: "sidebar", "aria-label": "Chats" },
      this.#head(), this.search, this.list, this.warning, this.problems, this.#foot());
  }

  #head() {
    const { actions } = this;
    const plus = el("span", { class: "icon icon-plus", "aria-hidden": "true" });
    return el("div", { class: "sidebar-head" },
      el("button", { type: "button", class: "new", onclick: () => actions.create() }, plus, "New chat"),
      iconButton("close", "Close the list", () => actions.close(), { class: "icon icon-close narrow" }));
  }

  #foot() {
    const file = el("input", { type: "file", accept: ".json,application/json", hidden: true, "aria-label": "File with chats",
      onchange: () => this.#import(file) });
    return el("div", { class: "sidebar-foot" },
      el("button", { type: "button", class: "plain", onclick: () => this.#export() }, "Export"),
      el("button", { type: "button", class: "plain", onclick: () => file.click() }, "Import"), file);
  }

  // running: the conversations that are being answered.
  show(conversations, current, running) {
    this.#conversations = conversations;
    this.#current = current;
    this.#running = running;
    this.#draw();
  }

  #draw() {
    if (this.#renaming) return;
    const words = this.search.value.trim().toLowerCase();
    const found = words ? this.#conversations.filter((conversation) => matches(conversation, words)) : this.#conversations;
    this.search.hidden = this.#conversations.length < 5 && !words;
    this.list.replaceChildren(...found.map((conversation) => this.#item(conversation)));
    if (words && !found.length) this.list.append(el("li", { class: "hint" }, "No chat has that."));
  }

  #item(conversation) {
    const { actions } = this;
    const current = conversation === this.#current;
    const item = el("li", { class: current ? "current" : null });
    const name = el("button", { type: "button", class: "name", "aria-current": current ? "true" : null, title: conversation.title,
      onclick: () => actions.choose(conversation), ondblclick: () => this.#rename(conversation, item) }, conversation.title || "New chat");
    const busy = this.#running.has(conversation) ? [el("span", { class: "busy", role: "img", "aria-label": "is being answered" })] : [];
    item.append(name, ...busy,
      iconButton("edit", `Rename ${conversation.title}`, () => this.#rename(conversation, item)),
      iconButton("trash", `Delete ${conversation.title}`, () => actions.remove(conversation)));
    return item;
  }

  #rename(conversation, item) {
    const field = el("input", { type: "text", "aria-label": "Name of the chat", maxlength: 200 });
    field.value = conversation.title;
    const done = (keep) => {
      if (!this.#renaming) return;
      this.#renaming = "";
      const title = field.value.trim();
      if (keep && title && title !== conversation.title) this.actions.rename(conversation, title);
      this.#draw();
    };
    field.addEventListener("keydown", (event) => {
      if (event.isComposing || (event.key !== "Enter" && event.key !== "Escape")) return;
      event.stopPropagation();
      done(event.key === "Enter");
    });
    field.addEventListener("blur", () => done(true));
    this.#renaming = conversation.id;
    item.replaceChildren(field);
    field.select();
  }

  #export() {
    const conversations = this.#conversations.filter(({ messages }) => messages.length);
    if (!conversations.length) return this.actions.toast("There is no chat to export yet.");
    saveFile(`gapless-chats-${new Date().toISOString().slice(0, 10)}.json`, exportText(conversations));
  }

  async #import(input) {
    const [file] = input.files;
    input.value = "";
    if (!file) return;
    const { conversations, problems } = importText(await file.text());
    const fresh = conversations.filter((conversation) => !this.#conversations.some((other) => sameChat(other, conversation)));
    const there = conversations.length - fresh.length;
    if (fresh.length) await this.actions.add(fresh);
    if (problems.length) return this.#showProblems(file.name, problems);
    this.actions.toast(`${chats(fresh.length)} imported${there ? `, ${there} here already` : ""}`, "good");
  }

  #showProblems(name, problems) {
    const shown = problems.slice(0, 8).map((problem) => el("li", {}, problem));
    if (problems.length > shown.length) shown.push(el("li", {}, `and ${problems.length - shown.length} more`));
    const close = iconButton("close", "Close", () => { this.problems.hidden = true; });
    const head = el("div", { class: "problems-head" }, el("strong", {}, `Not imported from ${name}:`), close);
    this.problems.replaceChildren(head, el("ul", {}, ...shown));
    this.problems.hidden = false;
  }
}

const chats = (n) => `${n} ${n === 1 ? "chat" : "chats"}`;

function matches({ title, messages }, words) {
  return title.toLowerCase().includes(words) || messages.some(({ content }) => content.toLowerCase().includes(words));
}
