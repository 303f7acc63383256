// What the server is doing, asked every few seconds while somebody looks: "ready", "loading" (or draining, or
// stuck: `text` has its own words), "denied" (a key is needed), "down", and "unknown" before the first answer.
import { ApiError, onFailure, onKeyChange, request } from "./api.js";

const POLL_MS = 5000;
const POLLS_A_MODEL = 6; // a server that was restarted in between may serve another

export class ServerState {
  #listeners = new Set();
  #status = { state: "unknown", text: "asking the server …" };
  #model = null;
  #pollsLeft = 0; // until the model is read again
  #denied = ""; // what the server said of the key; it is not asked again with the same one
  #timer = 0;
  #asking = null;

  constructor() {
    onKeyChange(() => this.forgetModel());
    onFailure(() => { this.#pollsLeft = 0; });
    document.addEventListener("visibilitychange", () => {
      this.#pollsLeft = 0; // nobody has looked
      this.check();
    });
  }

  status() { return this.#status; }
  // Of /v1/models, with has_chat_template; null until the server is ready.
  model() { return this.#model; }

  // listener(status), now and at each change of it or of the model.
  onStatus(listener) {
    this.#listeners.add(listener);
    listener(this.#status);
  }

  // Another key, or another server under this address.
  forgetModel() {
    this.#model = null;
    this.#pollsLeft = 0;
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
      return this.#set("ready", "ready", await this.#currentModel());
    } catch (error) {
      return this.#fail(error);
    }
  }

  async #currentModel() {
    if (this.#model && this.#pollsLeft > 0) {
      this.#pollsLeft--;
      return this.#model;
    }
    const model = await readModel();
    this.#pollsLeft = POLLS_A_MODEL - 1;
    return model;
  }

  #fail(error) {
    const status = error instanceof ApiError ? error.status : 0;
    if (status === 503) return this.#set("loading", error.message, this.#model);
    // Nobody can tell whether the same server comes back with the same model.
    if (status === 401) this.#denied = error.message;
    if (status === 401) return this.#set("denied", error.message);
    return this.#set("down", status ? error.message : "The server cannot be reached.");
  }

  #set(state, text, model = null) {
    const changed = state !== this.#status.state || text !== this.#status.text;
    const other = JSON.stringify(model) !== JSON.stringify(this.#model);
    this.#model = model;
    if (!changed && !other) return;
    this.#status = { state, text };
    for (const listener of this.#listeners) listener(this.#status);
  }
}

async function readModel() {
  const read = async (path) => (await request("GET", path, { signal: AbortSignal.timeout(POLL_MS) })).json();
  const models = await read("v1/models");
  const tokenizer = await read("tokenizer_info");
  return { ...models.data[0], has_chat_template: tokenizer.chat_template !== null };
}
