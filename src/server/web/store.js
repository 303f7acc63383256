// Conversations kept in this browser: {id, title, named, created, updated, rev, settings, messages}, a message
// {role: 'user' | 'assistant', content, reasoning, stats, finish, error, json}, json: it follows a schema. Several tabs of the page share them: `rev`
// tells whether another tab has written meanwhile, and then nothing of either is lost.
const DATABASE = "gapless", TABLE = "conversations";
const OPEN_MS = 5000; // a database that another page blocks may never open

export function newConversation(settings = {}) {
  const now = Date.now();
  return { id: crypto.randomUUID?.() ?? `${now}-${Math.random()}`, title: "", named: false, created: now, updated: now, rev: 0,
    settings: { ...settings }, messages: [] };
}

// The beginning of the first message.
export function titleOf(text) {
  const line = text.trim().split("\n", 1)[0].replace(/\s+/g, " ");
  const characters = Array.from(line);
  return characters.length > 60 ? `${characters.slice(0, 59).join("").trimEnd()}…` : line;
}

export class Store {
  #backend;
  #channel;
  #queue = Promise.resolve();

  // onChange(): another tab has written. channel: a BroadcastChannel, or nothing.
  constructor(backend, onChange = () => {}, channel = null) {
    this.#backend = backend;
    this.#channel = channel;
    if (channel) channel.onmessage = () => onChange();
  }

  // Whether they are there after a reload.
  get kept() { return this.#backend.kept; }

  // Newest first.
  async all() {
    return (await this.#backend.all()).sort((a, b) => b.updated - a.updated);
  }

  // Writes it and sets its rev. If another tab has written it since it was read, what is given here becomes a
  // conversation of its own: its id and title change. Throws when the browser does not keep it.
  save(conversation) {
    return this.#next(async () => {
      const written = await this.#write(conversation, (old) => !old || old.rev === conversation.rev);
      if (written) return;
      conversation.id = newConversation().id;
      conversation.title = `${conversation.title} (copy)`;
      await this.#write(conversation, () => true);
    });
  }

  remove(id) {
    return this.#next(() => this.#backend.update(id, () => undefined));
  }

  // One after another: a save must see the rev of the one before.
  #next(work) {
    const done = this.#queue.then(work).then(() => this.#channel?.postMessage("changed"));
    this.#queue = done.catch(() => {});
    return done;
  }

  async #write(conversation, mayWrite) {
    let written = false;
    const rev = conversation.rev + 1;
    await this.#backend.update(conversation.id, (old) => {
      written = mayWrite(old);
      return written ? { ...conversation, rev } : old;
    });
    if (written) conversation.rev = rev;
    return written;
  }
}

// Where the browser keeps nothing: until the page is left.
export class MemoryBackend {
  kept = false;
  #table = new Map();

  all() {
    return Promise.resolve(structuredClone([...this.#table.values()]));
  }

  // change(what is there, or undefined) -> what shall be there, undefined: nothing. Nobody writes in between.
  update(id, change) {
    const next = change(structuredClone(this.#table.get(id)));
    if (next === undefined) this.#table.delete(id);
    else this.#table.set(id, structuredClone(next));
    return Promise.resolve();
  }
}

class DatabaseBackend {
  kept = true;
  #database;

  constructor(database) {
    this.#database = database;
    database.onversionchange = () => database.close();
  }

  all() {
    const transaction = this.#database.transaction(TABLE, "readonly");
    return result(transaction.objectStore(TABLE).getAll());
  }

  update(id, change) {
    const transaction = this.#database.transaction(TABLE, "readwrite");
    const table = transaction.objectStore(TABLE);
    const read = table.get(id);
    read.onsuccess = () => {
      const next = change(read.result);
      if (next === undefined) table.delete(id);
      else table.put(next);
    };
    return new Promise((resolve, reject) => {
      transaction.oncomplete = () => resolve();
      transaction.onabort = () => reject(transaction.error);
      transaction.onerror = () => reject(transaction.error);
    });
  }
}

function result(request) {
  return new Promise((resolve, reject) => {
    request.onsuccess = () => resolve(request.result);
    request.onerror = () => reject(request.error);
  });
}

function openDatabase(openMs) {
  const opening = indexedDB.open(DATABASE, 1);
  opening.onupgradeneeded = () => opening.result.createObjectStore(TABLE, { keyPath: "id" });
  return new Promise((resolve, reject) => {
    let late = false;
    const timer = setTimeout(() => {
      late = true;
      reject(new Error("the database does not open"));
    }, openMs);
    result(opening).finally(() => clearTimeout(timer)).then((database) => {
      if (late) database.close();
      else resolve(database);
    }, reject);
  });
}

// Resolves at the latest after openMs, with a store that keeps chats until the page is left.
export async function openStore(onChange, openMs = OPEN_MS) {
  try {
    return new Store(new DatabaseBackend(await openDatabase(openMs)), onChange, new BroadcastChannel(DATABASE));
  } catch {
    return new Store(new MemoryBackend(), onChange);
  }
}
