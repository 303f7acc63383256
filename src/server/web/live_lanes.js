// The lanes of the live view: what every thread and the device just did, scrolling.
import { el } from "./dom.js";
import { setHidden, setText } from "./dom_text.js";
import { timeText } from "./format.js";
import { LaneView } from "./lane_view.js";
import { LiveStore } from "./live_store.js";
import { Playhead } from "./playhead.js";
import { spanLegend } from "./span_legend.js";

const WINDOWS_MS = [5, 10, 20, 50, 100, 200, 500, 1000];
const STEPS_SHOWN = 8;   // until somebody zooms
const LEAST_GAP_US = 2.5; // the feed rounds begin and length to whole microseconds
const REST = 4;             // times what a picture cost is left to others: the server may run on this machine
const LEAST_REST_MS = 10;
const IDLE_REST_MS = 250;
const HELD_FRAMES = 100; // while somebody looks at one moment, so many more are kept

export class LiveLanes {
  #store = new LiveStore();
  #playhead = new Playhead();
  #paused = false;
  #pointed = false;
  #zoomed = false;
  #framesHeld = 0;
  #animation = 0;
  #painted = null;
  #timer = 0;
  #motion = matchMedia("(prefers-reduced-motion: reduce)");

  constructor(root, emptyState) {
    this.#pause = el("button", { type: "button", "aria-pressed": "false", onclick: () => this.#setPaused(!this.#paused) }, "Pause");
    this.#state = el("span", { class: "hint lanes-state" });
    const zoom = (label, text, by) =>
      el("button", { type: "button", class: "square", "aria-label": label, title: label, onclick: () => this.#step(by) }, text);
    root.append(el("div", { class: "toolbar" }, this.#pause, zoom("Longer window", "−", 1), zoom("Shorter window", "+", -1), this.#state));
    this.#view = new LaneView(root, "What each thread and the device just did", {
      zoom: (factor) => this.#setWindow(this.#playhead.window * factor),
      pan: (us) => this.#pan(us / 1e6),
      select: (isSelected) => this.#point(isSelected),
    });
    this.#empty = emptyState;
    this.#view.canvas.parentElement.append(emptyState);
    root.append(spanLegend());
    this.#motion.addEventListener("change", () => this.#applyMotion());
    this.#applyMotion();
    this.#view.scene.leastGap = LEAST_GAP_US;
    this.#setWindow(0.1, false);
  }

  #pause; #state; #view; #empty;

  hello(hello) {
    this.#store.hello(hello);
    this.#playhead.reset();
    this.#setPaused(false);
    this.#view.setLanes(this.#store.lanes, this.#store.kinds);
    this.#view.scene.holes = this.#store.holes;
  }

  frame(frame) {
    if (this.#playhead.held && ++this.#framesHeld > HELD_FRAMES) return; // a hole in what is shown later
    this.#store.add(frame, this.#playhead.held);
    this.#playhead.longest = this.#store.longestStep() / 1e6;
    this.#playhead.lastStep = this.#store.lastStepEnd() / 1e6;
    this.#playhead.frame(frame.to, performance.now());
    if (!this.#zoomed && frame.steps.n > 0) this.#fitWindow(frame);
  }

  // Whether there is nothing to see but the empty state.
  setIdle(idle) {
    setHidden(this.#empty, !idle);
  }

  show() {
    this.hide();
    this.#next(0);
  }

  hide() {
    clearTimeout(this.#timer);
    cancelAnimationFrame(this.#animation);
  }

  #applyMotion() {
    this.#playhead.still = this.#motion.matches;
    this.#describe();
  }

  #tick(ms) {
    const edge = this.#playhead.edge(ms);
    const cost = edge === null || edge === this.#painted ? 0 : this.#paint(edge);
    this.#next(this.#empty.hidden ? Math.max(LEAST_REST_MS, REST * cost) : IDLE_REST_MS);
  }

  #next(rest) {
    clearTimeout(this.#timer);
    this.#timer = setTimeout(() => { this.#animation = requestAnimationFrame((ms) => this.#tick(ms)); }, rest);
  }

  // Returns how many milliseconds it took.
  #paint(edge) {
    this.#painted = edge;
    const { scene } = this.#view;
    scene.view.from = (edge - this.#playhead.window) * 1e6;
    scene.view.to = edge * 1e6;
    const begun = performance.now();
    this.#view.paint();
    return performance.now() - begun;
  }

  // A window of a few steps, whatever the model and the device; with spans left out, one that fits twice into what is there.
  #fitWindow(frame) {
    const period = this.#store.stepPeriod();
    if (period === null) return;
    const most = frame.left_out > 0 ? (frame.to - frame.from) * 500 : WINDOWS_MS.at(-1);
    const wanted = Math.max(WINDOWS_MS[0], Math.min(most, (period * STEPS_SHOWN) / 1000));
    const fitting = WINDOWS_MS.find((ms) => ms >= wanted * 0.75) / 1000;
    const { window } = this.#playhead;
    if (fitting > 1.9 * window || fitting < window / 1.9) this.#setWindow(fitting, false);
  }

  #step(by) {
    const now = this.#playhead.window * 1000;
    const next = by > 0 ? WINDOWS_MS.find((ms) => ms > now * 1.001) : WINDOWS_MS.findLast((ms) => ms < now * 0.999);
    if (next) this.#setWindow(next / 1000);
  }

  #setWindow(seconds, byUser = true) {
    this.#zoomed ||= byUser;
    this.#playhead.setWindow(Math.min(WINDOWS_MS.at(-1), Math.max(WINDOWS_MS[0], seconds * 1000)) / 1000);
    this.#painted = null;
    this.#describe();
  }

  #pan(seconds) {
    if (!this.#playhead.held) this.#setPaused(true);
    this.#playhead.move(seconds);
  }

  #point(isSelected) {
    this.#pointed = isSelected;
    this.#hold();
  }

  #setPaused(paused) {
    this.#paused = paused;
    this.#pause.setAttribute("aria-pressed", String(paused));
    setText(this.#pause, paused ? "Go on" : "Pause");
    this.#hold();
  }

  #hold() {
    if (this.#paused || this.#pointed) this.#playhead.hold(performance.now());
    else if (this.#playhead.held) {
      this.#playhead.release();
      this.#framesHeld = 0;
    }
    this.#describe();
  }

  #describe() {
    const { window, slowness } = this.#playhead;
    const speed = this.#paused ? "paused" : this.#pointed ? "held while you look" : slowness === 1 ? "real time"
      : slowness === Infinity ? "a picture every 4 s" : `slow motion, 1 : ${Math.round(slowness)}`;
    setText(this.#state, `${timeText(window * 1e6)} wide · ${speed}`);
  }
}
