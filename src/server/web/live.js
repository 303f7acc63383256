// The live view: what makes this server different, while it happens. It listens to /live as long as somebody looks.
import { onKeyChange, request } from "./api.js";
import { card } from "./card.js";
import { el } from "./dom.js";
import { setHidden, setText } from "./dom_text.js";
import { plural } from "./format.js";
import { Lateness } from "./lateness.js";
import { LiveFeed } from "./live_feed.js";
import { LiveLanes } from "./live_lanes.js";
import { LiveNumbers } from "./live_numbers.js";
import { LivePanels } from "./live_panels.js";
import { wordsOf } from "./live_words.js";
import { mountLoad } from "./load.js";
import { LoopSwitch } from "./loop_switch.js";
import { RequestsTable } from "./requests_table.js";

const PAINT_MS = 250;

export function mount(root, app) {
  const view = new LiveView(root, app);
  return { show: () => view.show(), hide: () => view.hide() };
}

class LiveView {
  #shown = false;
  #timer = 0;
  #lastStep = -Infinity; // server's seconds
  #feed; #load; #loop; #numbers; #lanes; #panels; #requests; #status; #late; #words; #refused; #refusedText; #body;

  constructor(root, app) {
    this.app = app;
    this.#feed = new LiveFeed({
      hello: (data) => this.#hello(data), frame: (data) => this.#frame(data), state: (data) => this.#state(data),
      connection: (state, error) => this.#connection(state, error),
    });
    this.#build(root);
    document.addEventListener("visibilitychange", () => this.#follow());
    onKeyChange(() => this.#restart());
  }

  show() {
    this.#shown = true;
    this.#follow();
  }

  hide() {
    this.#shown = false;
    this.#follow();
  }

  #build(root) {
    const late = el("p", { class: "card late", role: "status", hidden: true });
    this.#late = new Lateness((text) => { setText(late, text); setHidden(late, !text); });
    const controls = el("div", { class: "live-controls" });
    const numbers = el("div", { class: "numbers" });
    this.#words = { title: el("h1"), lead: el("p", { class: "lead" }), now: el("p", { class: "hint" }) };
    this.#say(null);
    const lanes = card("Now", "", this.#words.now);
    const charts = el("div", { class: "charts" });
    const panels = el("div", { class: "panels" });
    const requests = card("Requests", "");
    this.#body = el("div", { class: "live-body" }, late, controls, numbers, lanes, charts, panels, requests);
    root.append(el("div", { class: "live" }, this.#head(), this.#refusal(), this.#body));
    const switchBox = el("section", { class: "card loop-card" });
    const loadBox = el("section", { class: "card load-card", "aria-label": "Load generator" });
    controls.append(switchBox, loadBox);
    this.#loop = new LoopSwitch(switchBox, this.app);
    this.#load = mountLoad(loadBox);
    this.#numbers = new LiveNumbers(numbers, charts);
    this.#lanes = new LiveLanes(lanes, this.#emptyState());
    this.#panels = new LivePanels(panels, this.app);
    this.#requests = new RequestsTable(requests, (entry) => this.#abort(entry));
  }

  #head() {
    this.#status = el("p", { class: "hint live-status", role: "status" }, "Connecting …");
    return el("header", { class: "live-head" }, this.#words.title, this.#status, this.#words.lead);
  }

  #say(loop) {
    const words = wordsOf(loop, this.#numbers?.compared());
    for (const [key, element] of Object.entries(this.#words)) setText(element, words[key]);
  }

  #refusal() {
    this.#refusedText = el("p");
    this.#refused = el("section", { class: "card refused", hidden: true }, el("h2", {}, "The live view is not open to you"), this.#refusedText,
      el("button", { type: "button", onclick: () => this.#restart() }, "Try again"));
    return this.#refused;
  }

  #emptyState() {
    return el("div", { class: "lanes-empty", hidden: true }, el("p", {}, "Nothing runs: every thread sleeps."),
      el("button", { type: "button", class: "primary", onclick: () => this.#load.start() }, "Start some load"),
      el("p", { class: "hint" }, "or send a message in ", el("a", { href: "#chat" }, "Chat")));
  }

  // Open only while somebody can see it.
  #follow() {
    const watched = this.#shown && !document.hidden;
    clearInterval(this.#timer);
    if (watched) {
      this.#feed.start();
      this.#lanes.show();
      this.#timer = setInterval(() => this.#paint(), PAINT_MS);
    } else {
      this.#feed.stop();
      this.#late.stop();
      this.#lanes.hide();
    }
  }

  #paint() {
    this.#numbers.paint();
    this.#say(this.#loop.loop);
  }

  #restart() {
    this.#feed.stop();
    this.#late.stop();
    if (this.#shown && !document.hidden) this.#feed.start();
  }

  #connection(state, error) {
    const lost = error?.status ? `${error.message}; trying again …` : "The connection is lost; trying again …";
    if (state !== "open") setText(this.#status, { connecting: "Connecting …", broken: lost, refused: "" }[state]);
    this.#status.classList.toggle("broken", state === "broken");
    if (state === "connecting") return;
    setHidden(this.#refused, state !== "refused");
    setHidden(this.#body, state === "refused");
    if (state === "refused") setText(this.#refusedText, this.app.operatorHint(error));
  }

  #hello(hello) {
    const where = hello.model === hello.device ? `Runs on ${hello.device}` : `${hello.model} on ${hello.device}`;
    setText(this.#status, `${where} · up to ${plural(hello.max_running, "request")} at once · Gapless ${hello.version}`);
    this.#late.watch(hello.device);
    this.#numbers.reset(hello.loop);
    this.#lanes.hello(hello);
    this.#loop.show(hello.loop);
    this.#load.setContext(hello.context_length);
    this.#lastStep = -Infinity;
  }

  #frame(frame) {
    if (frame.steps.n > 0) this.#lastStep = frame.to;
    this.#numbers.frame(frame);
    this.#lanes.frame(frame);
    this.#loop.show(frame.loop);
  }

  #state(state) {
    this.#numbers.state(state);
    this.#panels.state(state);
    this.#requests.update(state);
    this.#lanes.setIdle(state.running + state.queued === 0 && state.now - this.#lastStep > 1);
  }

  async #abort(entry) {
    try {
      await request("POST", "abort_request", { body: { id: entry.id } });
    } catch (error) {
      this.app.toast(`Request ${entry.id} was not ended: ${this.app.operatorHint(error)}`, "bad");
    }
  }
}
