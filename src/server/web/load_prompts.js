// Prompts for load: token ids of ordinary words, so that they are as long as they say on every model. Pure.

export const WORDS = " time year people way day man thing woman life child world school state family student group country problem hand part"
  + " place case week company system program question work government number night point home water room mother area money story fact month";

// ids: of the words. Returns prompts of `length` tokens whose first share of them is the same in all; random() gives [0, 1).
export class PromptMaker {
  #ids;
  #length;
  #prefix;
  #random;

  constructor(ids, { length, share }, random = Math.random) {
    if (ids.length === 0) throw new Error("no token to make prompts of");
    this.#ids = ids;
    this.#length = length;
    this.#random = random;
    // The same in every run, so that a second one finds the first one's prefix.
    this.#prefix = Array.from({ length: Math.round(length * share) }, (_, i) => ids[(i * 7 + (i >> 3)) % ids.length]);
  }

  next() {
    const own = Array.from({ length: this.#length - this.#prefix.length }, () => this.#ids[Math.floor(this.#random() * this.#ids.length)]);
    return [...this.#prefix, ...own];
  }
}
