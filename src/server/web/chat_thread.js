// The messages of one conversation, drawn at most once a frame, at the end as long as the reader is there.
import { el, iconButton } from "./dom.js";
import { MessageView } from "./chat_message.js";

const AT_END_PX = 48;
const SLOW_MS = 8; // a frame that took longer is followed by a pause as long as it was, times four

const BASE_MODEL = " has no chat template: it is a base model, which goes on with a text instead of answering. " +
  "Write the beginning of one; what you send is added to it.";
const SIMULATED = " is a simulated device: it answers with random words, by design. What it shows is how fast the server is.";
const EXAMPLES = [
  "Explain how a hash table works, with a small example.",
  "Write a haiku about waiting in a queue.",
  "Compare TCP and UDP in a table.",
];

export class ChatThread {
  #views = new Map(); // message -> MessageView
  #conversation = null;
  #running = false;
  #frame = 0;
  #follow = true;
  #top = 0; // where the list stood last
  #notBefore = 0;

  // actions: those of MessageView, and example(text).
  constructor(actions) {
    this.actions = actions;
    this.list = el("div", { class: "messages" });
    this.note = el("p", { class: "note", hidden: true });
    const attributes = { class: "scroller", tabindex: "0", role: "log", "aria-live": "off", "aria-label": "Conversation" };
    this.scroller = el("div", { ...attributes, onscroll: () => this.#scrolled() }, this.note, this.list);
    this.toEnd = iconButton("down", "To the newest", () => this.follow(), { class: "to-end icon icon-down", hidden: true });
    this.element = el("div", { class: "thread" }, this.scroller, this.toEnd);
    const sizes = new ResizeObserver(() => this.#stick());
    for (const element of [this.scroller, this.list]) sizes.observe(element);
  }

  // Draws all of it anew.
  show(conversation, running, model) {
    this.#conversation = conversation;
    this.#running = running;
    this.chat = model?.has_chat_template !== false;
    const note = model?.meta?.architecture === "sim" ? SIMULATED : this.chat ? "" : BASE_MODEL;
    this.note.hidden = !note;
    this.note.textContent = note && `${model.id}${note}`;
    this.#views.clear();
    this.list.replaceChildren();
    this.#draw();
    if (!conversation.messages.length) this.list.append(this.#welcome(model));
    this.follow();
  }

  // Messages were added, removed or changed.
  refresh(running) {
    this.#running = running;
    if (!this.#frame) this.#frame = requestAnimationFrame(() => this.#onFrame());
  }

  follow() {
    this.#follow = true;
    this.#stick();
  }

  #onFrame() {
    this.#frame = 0;
    const now = performance.now();
    if (this.#running && now < this.#notBefore) return this.refresh(true);
    this.#draw();
    const took = performance.now() - now;
    this.#notBefore = took > SLOW_MS ? now + 5 * took : 0;
  }

  #draw() {
    const { messages } = this.#conversation;
    const kept = new Set(messages);
    for (const [message, view] of this.#views) {
      if (kept.has(message)) continue;
      view.element.remove();
      this.#views.delete(message);
    }
    if (messages.length) this.list.querySelector(".welcome")?.remove();
    messages.forEach((message, i) => this.#drawMessage(message, i === messages.length - 1));
    this.#stick();
  }

  #drawMessage(message, last) {
    let view = this.#views.get(message);
    if (!view) {
      view = new MessageView(message, this.actions, this.chat);
      this.#views.set(message, view);
      this.list.append(view.element);
    }
    const growing = this.#running && last;
    // All others are as they were, but for the buttons of the one that was last.
    if (growing || last || view.wasLast) view.update(growing, last);
    view.wasLast = last;
  }

  // Only who goes up leaves the end: that a message has grown since the last scroll is not the reader's doing.
  #scrolled() {
    const { scrollTop, scrollHeight, clientHeight } = this.scroller;
    if (scrollHeight - scrollTop - clientHeight < AT_END_PX) this.#follow = true;
    else if (scrollTop < this.#top) this.#follow = false;
    this.#top = scrollTop;
    this.toEnd.hidden = this.#follow;
  }

  #stick() {
    if (this.#follow) this.scroller.scrollTop = this.scroller.scrollHeight;
    this.#top = this.scroller.scrollTop;
    this.toEnd.hidden = this.#follow;
  }

  #welcome(model) {
    const facts = model ? `${model.id}, ${model.max_model_len.toLocaleString("en")} tokens of context. ` : "";
    const examples = EXAMPLES.map((text) => el("button", { type: "button", onclick: () => this.actions.example(text) }, text));
    return el("div", { class: "welcome" },
      el("img", { src: new URL("favicon.svg", import.meta.url).href, alt: "", width: 44, height: 44 }),
      el("h2", {}, this.chat ? "What shall it answer?" : "How does the text begin?"),
      el("p", { class: "hint" }, `${facts}Nothing leaves this server.`),
      this.chat && el("div", { class: "examples" }, ...examples));
  }
}
