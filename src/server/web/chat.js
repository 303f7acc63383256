// The chat: which conversation is open, and what is being answered. The parts that it is made of draw and keep.
import { ChatList } from "./chat_list.js";
import { Composer } from "./chat_composer.js";
import { readAnswer, requestFor } from "./chat_run.js";
import { SettingsPanel } from "./chat_settings.js";
import { ChatThread } from "./chat_thread.js";
import { Conversations } from "./conversations.js";
import { el, iconButton } from "./dom.js";
import { changedSettings, cleanSettings, storedSettings, storeSettings } from "./settings.js";
import { keep, recall } from "./storage.js";
import { newConversation, titleOf } from "./store.js";

const CURRENT = "gapless.chat"; // which is open, in this tab

class Chat {
  #runs = new Map(); // conversation that is being answered -> AbortController
  #current = newConversation(storedSettings());

  constructor(root, app) {
    this.root = root;
    this.app = app;
    this.kept = new Conversations({
      busy: (conversation) => this.#runs.has(conversation),
      changed: () => this.#storeChanged(),
      renewed: (conversation) => conversation === this.#current && this.open(conversation),
      copied: (conversation) => this.#copied(conversation),
      failed: (error) => this.#notKept(error),
    });
    this.#buildParts();
    this.#buildPage();
  }

  #buildParts() {
    const { toast } = this.app;
    this.list = new ChatList({
      create: () => this.create(), choose: (conversation) => this.open(conversation), close: () => this.showList(false),
      rename: (conversation, title) => this.rename(conversation, title), remove: (conversation) => this.remove(conversation),
      add: (added) => this.add(added), toast,
    });
    this.thread = new ChatThread({
      retry: (message) => this.retry(message), edit: (message, text) => this.edit(message, text),
      goOn: () => this.answer(this.#current), example: (text) => this.send(text), toast,
    });
    this.composer = new Composer({
      send: (text) => this.send(text), stop: () => this.#stop(this.#current),
      openSettings: () => this.#turnSettings(true), resetSettings: () => this.resetSettings(),
    });
    this.settings = new SettingsPanel({
      changed: (settings) => this.changeSettings(settings), reset: () => this.resetSettings(), close: () => this.#turnSettings(false),
    });
  }

  #buildPage() {
    this.title = el("h1", { class: "chat-title" });
    this.say = el("p", { class: "sr", role: "status" });
    this.settingsButton = iconButton("sliders", "Settings of this chat", () => this.#turnSettings(this.settings.element.hidden),
      { "aria-controls": "chat-settings", "aria-expanded": "false" });
    const head = el("div", { class: "chat-head" },
      iconButton("menu", "Chats", () => this.showList(true), { class: "icon icon-menu narrow" }), this.title,
      iconButton("plus", "New chat", () => this.create(), { class: "icon icon-plus narrow" }), this.settingsButton);
    this.root.append(this.list.element, el("div", { class: "veil", onclick: () => this.showList(false) }),
      el("div", { class: "chat-main" }, head, this.thread.element, this.composer.element, this.say), this.settings.element);
  }

  // Nothing can be typed or chosen until it is known where it is kept.
  async load() {
    this.root.inert = true;
    this.composer.setPlaceholder("Opening your chats …");
    await this.kept.load();
    this.root.inert = false;
    this.list.warning.hidden = this.kept.kept;
    if (!this.kept.kept) this.app.toast("This browser does not keep your chats: they last until you leave the page.");
    const id = recall(CURRENT, "sessionStorage");
    const last = id ? this.kept.list.find((conversation) => conversation.id === id) : this.kept.list[0];
    this.open(last ?? this.#current);
    this.composer.restoreDraft();
  }

  open(conversation) {
    this.#current = conversation;
    keep(CURRENT, conversation.id, "sessionStorage");
    this.settings.show(conversation.settings);
    this.showList(false);
    this.draw();
  }

  // A new one begins with the settings of the one before it.
  create() {
    const empty = this.#current.messages.length === 0;
    this.open(empty ? this.#current : newConversation(cleanSettings(this.#current.settings)));
    this.composer.focus();
  }

  // All of it anew: another conversation is open, or another model is served.
  draw() {
    this.thread.show(this.#current, this.#runs.has(this.#current), this.app.model());
    this.#drawState();
  }

  #drawState() {
    const current = this.#current;
    this.title.textContent = current.title || "New chat";
    this.composer.setRunning(this.#runs.has(current));
    this.composer.setChanged(changedSettings(current.settings));
    this.composer.setPlaceholder(this.#hasTemplate() ? "Message" : "Text to go on with");
    this.settings.setChat(this.#hasTemplate());
    this.#drawList();
  }

  #drawList() {
    this.list.show(this.kept.list, this.#current, new Set(this.#runs.keys()));
  }

  #hasTemplate() {
    return this.app.model()?.has_chat_template !== false;
  }

  #storeChanged() {
    const gone = this.#current.rev > 0 && !this.kept.list.includes(this.#current);
    if (gone) this.create();
    else this.#drawList();
  }

  // Whether the text was taken.
  send(text) {
    const current = this.#current;
    if (this.#runs.has(current)) return false;
    const said = current.messages.filter(({ role, content }) => role === "user" || content); // no answers that failed
    const messages = [...said, { role: "user", content: text }];
    if (!this.#request(current, messages)) return false;
    if (!said.length && !current.named) current.title = titleOf(text);
    current.messages = messages;
    this.answer(current);
    return true;
  }

  // Answers anew what comes before `message`, or the message itself if it is the user's.
  retry(message) {
    const current = this.#current;
    this.#stop(current);
    const at = current.messages.indexOf(message);
    this.#cut(current, message.role === "user" ? at + 1 : at);
    this.answer(current);
  }

  // The user's message is answered anew; an answer is only changed.
  edit(message, text) {
    const current = this.#current;
    const at = current.messages.indexOf(message);
    if (at < 0 || !text.trim()) return;
    if (message.role === "user") {
      this.#stop(current);
      if (at === 0 && !current.named) current.title = titleOf(text);
      this.#cut(current, at);
      current.messages.push({ role: "user", content: text });
      this.answer(current);
    } else {
      current.messages[at] = { ...message, content: text };
      this.kept.save(current);
      this.draw();
    }
  }

  // Drops the messages from `at` on. What is more than the one answer that is tried again can be had back.
  #cut(conversation, at) {
    const before = [...conversation.messages];
    conversation.messages.length = at;
    if (before.length - at < 2) return;
    const run = () => {
      this.#stop(conversation);
      conversation.messages = before;
      this.kept.save(conversation);
      this.open(conversation);
    };
    this.app.toast(`${before.length - at} messages were dropped`, "info", { label: "Undo", run });
  }

  // The request for what `messages` ask, or null: a setting is wrong, and is shown.
  #request(conversation, messages) {
    const { path, body, problems } = requestFor({ ...conversation, messages }, this.#hasTemplate());
    const [wrong] = Object.entries(problems);
    if (!wrong) return { path, body };
    this.showSettings(true);
    this.settings.showProblem(...wrong);
    this.app.toast("A setting is not right: nothing was sent.", "bad");
    return null;
  }

  // Generates what comes after the last message. If that is an answer, it goes on.
  async answer(conversation) {
    const request = this.#request(conversation, conversation.messages);
    if (!request) return this.draw();
    let answer = conversation.messages.at(-1);
    if (answer?.role !== "assistant") {
      answer = { role: "assistant", content: "" };
      conversation.messages.push(answer);
    }
    if (request.body.response_format) answer.json = true;
    const abort = new AbortController();
    this.#runs.set(conversation, abort);
    this.kept.include(conversation);
    conversation.updated = Date.now();
    this.say.textContent = "Answering";
    this.#drawState();
    this.thread.follow();
    this.#grown(conversation);
    this.kept.save(conversation);
    await readAnswer(request, answer, abort.signal, () => this.#grown(conversation));
    return this.#ended(conversation, answer, abort);
  }

  #grown(conversation) {
    if (conversation === this.#current) this.thread.refresh(this.#runs.has(conversation));
    if (this.#runs.has(conversation)) this.kept.saveSoon(conversation);
  }

  #ended(conversation, answer, abort) {
    if (this.#runs.get(conversation) === abort) this.#runs.delete(conversation);
    conversation.updated = Date.now();
    this.#grown(conversation);
    this.#drawState();
    this.kept.save(conversation);
    this.say.textContent = answer.error ? "" : `Answer complete: ${answer.finish}`;
    if (!answer.error) return;
    this.app.checkServer(); // it may be another one by now
    const name = answer.error.param.startsWith("response_format") ? "schema" : answer.error.param;
    if (conversation !== this.#current || !this.settings.has(name)) return;
    this.showSettings(true);
    this.settings.showProblem(name, answer.error.message);
  }

  // Closes the connection: the server then ends the request.
  #stop(conversation) {
    this.#runs.get(conversation)?.abort();
    this.#runs.delete(conversation);
  }

  rename(conversation, title) {
    conversation.title = title;
    conversation.named = true;
    this.kept.save(conversation);
    this.#drawState();
  }

  async remove(conversation) {
    this.#stop(conversation);
    const next = await this.kept.remove(conversation);
    if (conversation === this.#current) this.open(next ?? newConversation(cleanSettings(conversation.settings)));
    else this.#drawList();
    this.app.toast(`“${conversation.title}” was deleted`, "info", { label: "Undo", run: () => this.add([conversation]) });
  }

  async add(conversations) {
    this.open(await this.kept.add(conversations) ?? this.#current);
  }

  #copied(conversation) {
    this.app.toast("Another tab has changed this chat: it goes on here as a copy.");
    if (conversation === this.#current) this.open(conversation);
  }

  #notKept(error) {
    const full = error?.name === "QuotaExceededError";
    const why = full ? "the browser’s storage for this page is full. Export or delete chats" : error?.message;
    this.app.toast(`This chat is not kept: ${why}.`, "bad");
  }

  changeSettings(settings) {
    const current = this.#current;
    current.settings = settings;
    storeSettings(settings);
    this.composer.setChanged(changedSettings(settings));
    if (current.messages.length) this.kept.saveSoon(current);
  }

  resetSettings() {
    this.changeSettings({});
    this.settings.show({});
  }

  showSettings(shown) {
    this.settings.element.hidden = !shown;
    this.root.classList.toggle("with-settings", shown);
    this.settingsButton.setAttribute("aria-expanded", shown);
  }

  // By hand: the focus goes along.
  #turnSettings(shown) {
    this.showSettings(shown);
    (shown ? this.settings.element : this.settingsButton).focus();
  }

  showList(shown) {
    this.root.classList.toggle("with-list", shown);
  }

  // Of the whole page, while the chat is shown: the focus may be anywhere.
  key(event) {
    if (event.key !== "Escape" || event.isComposing || document.querySelector("dialog[open]")) return;
    const { element } = this.settings;
    const atSettings = element.contains(event.target) || this.settingsButton.contains(event.target);
    if (atSettings && !element.hidden) this.#turnSettings(false);
    else if (this.#runs.has(this.#current)) this.#stop(this.#current);
    else if (this.root.classList.contains("with-list")) this.showList(false);
  }
}

export async function mount(root, app) {
  const chat = new Chat(root, app);
  await chat.load();
  const facts = () => JSON.stringify([app.model()?.id, app.model()?.max_model_len, app.model()?.has_chat_template]);
  let drawn = facts();
  app.onStatus(() => {
    if (!app.model() || facts() === drawn) return;
    drawn = facts();
    chat.draw();
  });
  document.addEventListener("visibilitychange", () => document.hidden && chat.kept.saveAll());
  window.addEventListener("pagehide", () => chat.kept.saveAll());
  const onKey = (event) => chat.key(event);
  return {
    show() {
      document.addEventListener("keydown", onKey);
      chat.composer.focus();
    },
    hide: () => document.removeEventListener("keydown", onKey),
  };
}
