// The chat: which conversation is open, what is being answered, and what is kept. The parts it is made of draw.
import { ChatList } from "./chat_list.js";
import { Composer } from "./chat_composer.js";
import { readAnswer, requestFor } from "./chat_run.js";
import { SettingsPanel } from "./chat_settings.js";
import { ChatThread } from "./chat_thread.js";
import { el, iconButton } from "./dom.js";
import { changedSettings, cleanSettings, storedSettings, storeSettings } from "./settings.js";
import { newConversation, openStore, titleOf } from "./store.js";

const SAVE_MS = 2000; // while an answer grows, and while somebody types settings
const CURRENT = "gapless.chat"; // of this tab

class Chat {
  constructor(root, app) {
    this.app = app;
    this.conversations = [];
    this.runs = new Map(); // conversation -> AbortController
    this.saveTimers = new Map(); // conversation -> timer
    this.current = newConversation(storedSettings());
    this.#build(root);
  }

  #build(root) {
    this.list = new ChatList({
      create: () => this.create(), choose: (conversation) => this.open(conversation), rename: (...given) => this.rename(...given),
      remove: (conversation) => this.remove(conversation), add: (added) => this.add(added), toast: this.app.toast, close: () => this.showList(false) });
    this.thread = new ChatThread({
      retry: (message) => this.retry(message), edit: (message, text) => this.edit(message, text), goOn: () => this.answer(this.current),
      example: (text) => this.send(text), toast: this.app.toast });
    this.composer = new Composer({
      send: (text) => this.send(text), stop: () => this.stop(), openSettings: () => this.showSettings(true), resetSettings: () => this.resetSettings() });
    this.settings = new SettingsPanel({
      changed: (settings) => this.changeSettings(settings), reset: () => this.resetSettings(), close: () => this.showSettings(false) });
    this.title = el("h2", { class: "chat-title" });
    this.say = el("p", { class: "sr", role: "status" });
    const veil = el("div", { class: "veil", onclick: () => { this.showList(false); } });
    const head = el("div", { class: "chat-head" },
      iconButton("menu", "Chats", () => this.showList(true), { class: "icon icon-menu narrow" }), this.title,
      iconButton("plus", "New chat", () => this.create(), { class: "icon icon-plus narrow" }),
      iconButton("sliders", "Settings of this chat", () => this.showSettings(this.settings.element.hidden), { "aria-controls": "chat-settings" }));
    root.append(this.list.element, veil, el("div", { class: "chat-main" }, head, this.thread.element, this.composer.element, this.say), this.settings.element);
    this.root = root;
    root.addEventListener("keydown", (event) => this.#key(event));
  }

  async load() {
    this.store = await openStore(() => this.reload());
    this.list.warning.hidden = this.store.kept;
    await this.reload();
    const id = sessionStorage.getItem(CURRENT);
    const open = id ? this.conversations.find((conversation) => conversation.id === id) : this.conversations[0];
    this.open(open ?? this.current);
  }

  // Another tab may have written. What is being answered here stays as it is here.
  async reload() {
    const known = new Map(this.conversations.map((conversation) => [conversation.id, conversation]));
    const stored = await this.store.all();
    const busy = this.conversations.filter((conversation) => this.runs.has(conversation) || this.saveTimers.has(conversation));
    const kept = stored.map((conversation) => this.#renewed(known.get(conversation.id), conversation));
    this.conversations = [...busy.filter((conversation) => !kept.includes(conversation)), ...kept];
    if (this.current.rev > 0 && !this.conversations.includes(this.current)) return this.create();
    this.drawList();
  }

  // The object that is in use here, with what is stored now.
  #renewed(known, stored) {
    if (!known || known.rev === stored.rev || this.runs.has(known) || this.saveTimers.has(known)) return known ?? stored;
    Object.assign(known, stored);
    if (known === this.current) this.open(known);
    return known;
  }

  open(conversation) {
    this.current = conversation;
    try {
      sessionStorage.setItem(CURRENT, conversation.id);
    } catch {
      // Storage is switched off: after a reload the newest is open.
    }
    this.thread.show(conversation, this.runs.has(conversation), this.app.model());
    this.settings.show(conversation.settings);
    this.showList(false);
    this.#drawState();
  }

  create() {
    const empty = this.current.messages.length === 0;
    this.open(empty ? this.current : newConversation(cleanSettings(this.current.settings)));
    this.composer.focus();
  }

  drawList() {
    this.list.show(this.conversations, this.current, new Set(this.runs.keys()));
  }

  #drawState() {
    const { current } = this;
    const chat = this.app.model()?.has_chat_template !== false;
    this.title.textContent = current.title || "New chat";
    this.composer.setRunning(this.runs.has(current));
    this.composer.setChanged(changedSettings(current.settings));
    this.composer.setPlaceholder(chat ? "Message" : "Text to go on with");
    this.settings.setChat(chat);
    this.drawList();
  }

  // The model became known, or is another one.
  modelChanged() {
    this.thread.show(this.current, this.runs.has(this.current), this.app.model());
    this.#drawState();
  }

  // Whether the text was taken.
  send(text) {
    const { current } = this;
    if (this.runs.has(current)) return false;
    if (!this.#request(current, [...current.messages, { role: "user", content: text }])) return false;
    if (!current.messages.length) current.title = titleOf(text);
    current.messages.push({ role: "user", content: text });
    this.answer(current);
    return true;
  }

  // Answers anew what comes before `message`, or the message itself if it is the user's.
  retry(message) {
    const { current } = this;
    this.stop();
    const at = current.messages.indexOf(message);
    current.messages.length = message.role === "user" ? at + 1 : at;
    this.answer(current);
  }

  // The user's message is answered anew; an answer is only changed.
  edit(message, text) {
    const { current } = this;
    const at = current.messages.indexOf(message);
    if (at < 0 || !text.trim()) return;
    if (message.role === "user") {
      this.stop();
      const title = at === 0 && !current.named ? titleOf(text) : current.title;
      current.title = title;
      current.messages.splice(at, Infinity, { role: "user", content: text });
      this.answer(current);
    } else {
      current.messages[at] = { ...message, content: text };
      this.save(current);
      this.thread.show(current, this.runs.has(current), this.app.model());
    }
  }

  // The request for what `messages` ask, or null: a setting is wrong, and is shown.
  #request(conversation, messages) {
    const chat = this.app.model()?.has_chat_template !== false;
    const { path, body, problems } = requestFor({ ...conversation, messages }, chat);
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
    if (!request) return;
    let answer = conversation.messages.at(-1);
    if (answer?.role !== "assistant") {
      answer = { role: "assistant", content: "" };
      conversation.messages.push(answer);
    }
    const abort = new AbortController();
    this.runs.set(conversation, abort);
    if (!this.conversations.includes(conversation)) this.conversations.unshift(conversation);
    conversation.updated = Date.now();
    this.#drawState();
    this.thread.follow();
    this.#update(conversation);
    this.say.textContent = "Answering";
    this.save(conversation);
    await readAnswer(request, answer, abort.signal, () => this.#update(conversation));
    this.#ended(conversation, answer, abort);
  }

  #update(conversation) {
    if (conversation === this.current) this.thread.refresh(this.runs.has(conversation));
    if (this.runs.has(conversation)) this.saveSoon(conversation);
  }

  #ended(conversation, answer, abort) {
    if (this.runs.get(conversation) === abort) this.runs.delete(conversation);
    conversation.updated = Date.now();
    this.#update(conversation);
    this.#drawState();
    this.save(conversation);
    this.say.textContent = answer.error ? "" : `Answer complete: ${answer.finish}`;
    if (!answer.error) return;
    if (answer.error.status === 0) this.app.checkServer();
    if (conversation === this.current && /^(response_format|stop$|system$)/.test(answer.error.param)) this.#showRefused(answer.error);
  }

  #showRefused({ param, message }) {
    const name = param.startsWith("response_format") ? "schema" : param;
    this.showSettings(true);
    this.settings.showProblem(name, message);
  }

  // Closes the connection: the server then ends the request.
  stop() {
    this.runs.get(this.current)?.abort();
    this.runs.delete(this.current);
  }

  rename(conversation, title) {
    conversation.title = title;
    conversation.named = true;
    this.save(conversation);
    this.#drawState();
  }

  async remove(conversation) {
    this.runs.get(conversation)?.abort();
    this.runs.delete(conversation);
    const at = this.conversations.indexOf(conversation);
    this.conversations.splice(at, 1);
    if (conversation === this.current) this.open(this.conversations[at] ?? this.conversations[at - 1] ?? newConversation(cleanSettings(conversation.settings)));
    else this.drawList();
    this.#cancelSave(conversation);
    await this.store.remove(conversation.id);
    const undo = { label: "Undo", run: () => this.add([conversation]) };
    this.app.toast(`“${conversation.title}” was deleted`, "info", undo);
  }

  async add(conversations) {
    for (const conversation of conversations) {
      conversation.rev = 0;
      await this.save(conversation);
    }
    await this.reload();
    this.open(this.conversations.find(({ id }) => id === conversations[0].id) ?? this.current);
  }

  changeSettings(settings) {
    this.current.settings = settings;
    storeSettings(settings);
    this.composer.setChanged(changedSettings(settings));
    if (this.current.messages.length) this.saveSoon(this.current);
  }

  resetSettings() {
    this.changeSettings({});
    this.settings.show({});
  }

  showSettings(shown) {
    this.settings.element.hidden = !shown;
    this.root.classList.toggle("with-settings", shown);
  }

  showList(shown) {
    this.root.classList.toggle("with-list", shown);
  }

  saveSoon(conversation) {
    if (!this.saveTimers.has(conversation)) this.saveTimers.set(conversation, setTimeout(() => this.save(conversation), SAVE_MS));
  }

  #cancelSave(conversation) {
    clearTimeout(this.saveTimers.get(conversation));
    this.saveTimers.delete(conversation);
  }

  async save(conversation) {
    this.#cancelSave(conversation);
    const { id } = conversation;
    try {
      await this.store.save(conversation);
    } catch (error) {
      const full = error?.name === "QuotaExceededError";
      this.app.toast(full ? "The browser’s storage for this page is full: this chat is not kept. Export or delete chats." : `This chat could not be kept: ${error?.message}`, "bad");
    }
    if (conversation.id !== id) {
      this.app.toast("Another tab has changed this chat: this one goes on as a copy.");
      await this.reload();
      if (conversation === this.current) this.open(conversation);
    }
  }

  // The page goes away, or may: what is under way is written now.
  saveAll() {
    for (const conversation of [...this.saveTimers.keys()]) this.save(conversation);
  }

  #key(event) {
    if (event.key !== "Escape" || event.isComposing) return;
    if (this.runs.has(this.current)) this.stop();
    else if (this.root.classList.contains("with-list")) this.showList(false);
  }
}

export async function mount(root, app) {
  const chat = new Chat(root, app);
  await chat.load();
  let model = app.model();
  app.onStatus(() => {
    if (app.model() === model) return;
    model = app.model() ?? model;
    chat.modelChanged();
  });
  document.addEventListener("visibilitychange", () => document.hidden && chat.saveAll());
  window.addEventListener("pagehide", () => chat.saveAll());
  return { show: () => chat.composer.focus(), hide() {} };
}
