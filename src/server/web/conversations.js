// The conversations in use on this page, and their way into the browser's store and back, when other tabs write too.
import { openStore } from "./store.js";

const SAVE_MS = 2000; // while an answer grows, and while somebody types settings

export class Conversations {
  list = []; // newest first; those in the store, and those that are on their way there
  #timers = new Map(); // conversation -> of a save to come
  #saves = new Map(); // conversation -> how many are under way
  #hooks;
  #store;

  // hooks: busy(conversation): it is being answered here, and stays as it is here; changed(); renewed(conversation):
  // another tab wrote it; copied(conversation): it goes on as a copy, because another tab had written it;
  // failed(error): it was not kept.
  constructor(hooks) {
    this.#hooks = hooks;
  }

  // open: of store.js
  async load(open = openStore) {
    this.#store = await open(() => this.reload());
    await this.reload();
  }

  // Whether they are there after a reload of the page.
  get kept() { return this.#store.kept; }

  async reload() {
    const all = await this.#store.all();
    const known = new Map(this.list.map((conversation) => [conversation.id, conversation]));
    const stored = all.map((conversation) => this.#renewed(known.get(conversation.id), conversation));
    const more = this.list.filter((conversation) => this.#inUse(conversation) && !stored.includes(conversation));
    this.list = [...more, ...stored];
    this.#hooks.changed();
  }

  #inUse(conversation) {
    return this.#hooks.busy(conversation) || this.#timers.has(conversation) || this.#saves.has(conversation);
  }

  // The object that is in use here, with what is stored now.
  #renewed(known, stored) {
    if (!known || known.rev >= stored.rev || this.#inUse(known)) return known ?? stored;
    Object.assign(known, stored);
    this.#hooks.renewed(known);
    return known;
  }

  // Puts a new one at the top.
  include(conversation) {
    if (!this.list.includes(conversation)) this.list.unshift(conversation);
  }

  saveSoon(conversation) {
    if (!this.#timers.has(conversation)) this.#timers.set(conversation, setTimeout(() => this.save(conversation), SAVE_MS));
  }

  // Not one that was removed meanwhile.
  async save(conversation) {
    this.#cancel(conversation);
    if (!this.list.includes(conversation)) return;
    const { id } = conversation;
    this.#count(conversation, 1);
    try {
      await this.#store.save(conversation);
    } catch (error) {
      this.#hooks.failed(error);
    }
    this.#count(conversation, -1);
    if (conversation.id === id) return;
    await this.reload();
    this.#hooks.copied(conversation);
  }

  #count(conversation, more) {
    const saves = (this.#saves.get(conversation) ?? 0) + more;
    if (saves) this.#saves.set(conversation, saves);
    else this.#saves.delete(conversation);
  }

  // The page goes away, or may.
  saveAll() {
    for (const conversation of [...this.#timers.keys()]) this.save(conversation);
  }

  // The one that takes its place, if there is one.
  async remove(conversation) {
    const at = this.list.indexOf(conversation);
    this.list.splice(at, 1);
    this.#cancel(conversation);
    await this.#store.remove(conversation.id);
    return this.list[at] ?? this.list[at - 1];
  }

  // Of a file, or of one that was removed. -> the first of them as it is in use now
  async add(conversations) {
    for (const conversation of conversations) {
      conversation.rev = 0;
      this.include(conversation);
      await this.save(conversation);
    }
    await this.reload();
    return this.list.find(({ id }) => id === conversations[0].id);
  }

  #cancel(conversation) {
    clearTimeout(this.#timers.get(conversation));
    this.#timers.delete(conversation);
  }
}
