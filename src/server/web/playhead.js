// Which moment the right edge of the live picture shows. Frames come ten times a second and unevenly; the picture moves evenly and a
// little later. A short window would rush by, so it is played in slow motion: one window of time, then on to the newest. Pure: server times
// come in as seconds, this machine's as milliseconds.

const DELAY_S = 0.2;          // frames come every 0.1 s
const REAL_TIME_FROM_S = 0.5; // windows as long as this are played in real time
const RECENT_S = 2;          // a step that ended within these is worth to be looked at
const PASS_MS = 4000;        // how long a shorter one is played

export class Playhead {
  #newest = null;
  #offset = 0; // server's seconds - this machine's
  #pass = null;
  #held = null;
  window = 0.1;
  longest = 0;   // seconds of a step: a span is known when it has ended, and before that its place would look empty
  lastStep = -Infinity; // seconds, when it ended: a short window shows work rather than a pause between two waves of it
  still = false; // for those who want no motion: one picture every PASS_MS

  // A frame that ends at `to` came at `ms`.
  frame(to, ms) {
    const offset = to - ms / 1000;
    const jumped = this.#newest === null || Math.abs(offset - this.#offset) > 0.5 || to < this.#newest;
    this.#offset = jumped ? offset : this.#offset + 0.1 * (offset - this.#offset);
    this.#newest = to;
    if (jumped) this.#pass = null;
  }

  reset() {
    this.#newest = null;
    this.#pass = null;
    this.#held = null;
    this.lastStep = -Infinity;
  }

  // How much slower than real time it is played; 1: real time.
  get slowness() {
    return this.still ? Infinity : this.window >= REAL_TIME_FROM_S ? 1 : PASS_MS / 1000 / this.window;
  }

  get held() {
    return this.#held !== null;
  }

  // Stops at what is shown now; release() goes on with the newest.
  hold(ms) {
    this.#held ??= this.edge(ms);
  }

  release() {
    this.#held = null;
    this.#pass = null;
  }

  // While held: looks elsewhere, `by` seconds later.
  move(by) {
    if (this.held) this.#held = Math.min(this.#held + by, this.#newest);
  }

  setWindow(seconds) {
    this.window = seconds;
    this.#pass = null;
  }

  // Until when a pass that begins now may play.
  #lastKnown() {
    return this.lastStep > this.#newest - RECENT_S ? Math.min(this.lastStep, this.#newest) : this.#newest - this.longest;
  }

  // Seconds of the server's clock, or null before the first frame.
  edge(ms) {
    if (this.#held !== null || this.#newest === null) return this.#held;
    if (this.slowness === 1) return Math.min(ms / 1000 + this.#offset - DELAY_S - this.longest, this.#newest);
    if (!this.#pass || ms - this.#pass.since >= PASS_MS) this.#pass = { since: ms, edge: this.#lastKnown() - this.window };
    return Math.min(this.#pass.edge + (ms - this.#pass.since) / 1000 / this.slowness, this.#newest);
  }
}
