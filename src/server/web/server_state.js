// What the server is doing, asked every few seconds while somebody looks: "ready", "loading" (or draining, or
// stuck: `text` has its own words), "denied" (a key is needed), "down", and "unknown" before the first answer.
import { ApiError, onKeyChange, request } from "./api.js";

const POLL_MS = 5000;

export class ServerState {
  #listeners = new Set();
  #status = { state: "unknown", text: "asking the server …" };
  #model = null;
  #denied = ""; // what the server said of the key; it is not asked again with the same one
  #timer = 0;
  #asking = null;

  constructor() {
    onKeyChange(() => this.forgetModel());
    document.addEventListener("visibilitychange", () => this.check());
  }

  status() { return this.#status; }
  // Of /v1/models, with has_chat_template; null until the server is ready.
  model() { return this.#model; }

  // listener(status), now and at each change.
  onStatus(listener) {
    this.#listeners.add(listener);
    listener(this.#status);
  }

  // Another key, or another server under this address.
  forgetModel() {
    this.#model = null;
    this.#denied = "";
    return this.check();
  }

  // Asks now. Resolves when the answer is known.
  check() {
    clearTimeout(this.#timer);
    if (document.hidden) return Promise.resolve();
    this.#asking ??= this.#ask().finally(() => {
      this.#asking = null;
      this.#timer = setTimeout(() => this.check(), POLL_MS);
    });
    return this.#asking;
  }

  async #ask() {
    try {
      await request("GET", "ready", { signal: AbortSignal.timeout(POLL_MS) });
      if (this.#denied) return this.#set("denied", this.#denied);
      this.#model ??= await readModel();
      return this.#set("ready", "ready");
    } catch (error) {
      return this.#fail(error);
    }
  }

  #fail(error) {
    const status = error instanceof ApiError ? error.status : 0;
    if (status === 503) return this.#set("loading", error.message);
    // Nobody can tell whether the same server comes back with the same model.
    this.#model = null;
    if (status === 401) this.#denied = error.message;
    if (status === 401) return this.#set("denied", error.message);
    return this.#set("down", status ? error.message : "The server cannot be reached.");
  }

  #set(state, text) {
    const changed = state !== this.#status.state || text !== this.#status.text;
    if (!changed) return;
    this.#status = { state, text };
    for (const listener of this.#listeners) listener(this.#status);
  }
}

async function readModel() {
  const models = await (await request("GET", "v1/models")).json();
  const tokenizer = await (await request("GET", "tokenizer_info")).json();
  return { ...models.data[0], has_chat_template: tokenizer.chat_template !== null };
}
