// The requests in the server, oldest first: a row keeps its place as long as its request lives, so that nothing jumps and the keyboard
// stays where it is. Rows are made once and used again, and those that nobody sees are not written.
import { el } from "./dom.js";
import { setHidden, setText } from "./dom_text.js";
import { ageText, countText, rateText } from "./format.js";
import { requestKey, RequestSpeeds } from "./stats.js";

const COLUMNS = ["Request", "Phase", "Prompt", "Cached", "Answer", "Tokens/s", "Age", ""];

export class RequestsTable {
  #rows = new Map(); // key -> row, in the order of the table
  #spare = [];
  #speeds = new RequestSpeeds();
  #body = el("tbody");
  #summary = el("p", { class: "summary" });
  #table;
  #box;
  #onScreen = false;
  #speedOf = new Map(); // of the last state

  // abort(request): ends it, with all its choices.
  constructor(root, abort) {
    this.abort = abort;
    const head = el("tr", {}, ...COLUMNS.map((name) => el("th", { scope: "col" }, name || el("span", { class: "sr" }, "Action"))));
    this.#table = el("table", { class: "requests" }, el("thead", {}, head), this.#body);
    this.#box = el("div", { class: "table-box", tabindex: "0", role: "region", "aria-label": "Requests in the server" }, this.#table);
    root.append(this.#summary, this.#box);
    this.#box.addEventListener("scroll", () => this.#fillVisible(), { passive: true });
    new IntersectionObserver(([{ isIntersecting }]) => {
      this.#onScreen = isIntersecting;
      this.#fillVisible();
    }).observe(this.#box);
  }

  update(state) {
    this.#speedOf = this.#speeds.update(state.now, state.requests);
    const requests = [...state.requests].sort((a, b) => a.id - b.id || a.choice - b.choice);
    const alive = new Set(requests.map(requestKey));
    for (const [key, row] of this.#rows) if (!alive.has(key)) this.#remove(key, row);
    let after = null;
    for (const request of requests) {
      const key = requestKey(request);
      const known = this.#rows.get(key);
      const row = known ?? this.#insert(key, after);
      row.request = request;
      if (!known) this.#fill(row);
      after = row;
    }
    this.#fillVisible();
    setHidden(this.#table, requests.length === 0);
    setText(this.#summary, summaryOf(state));
  }

  // The rows that are on the screen.
  #fillVisible() {
    if (!this.#onScreen || this.#rows.size === 0) return;
    const height = this.#body.firstElementChild.offsetHeight;
    const { scrollTop, clientHeight } = this.#box;
    for (const row of this.#rows.values()) {
      const top = row.tr.rowIndex * height;
      if (top > scrollTop - height && top < scrollTop + clientHeight + height) this.#fill(row);
    }
  }

  #insert(key, after) {
    const row = this.#spare.pop() ?? this.#make();
    this.#rows.set(key, row);
    if (after) after.tr.after(row.tr);
    else this.#body.prepend(row.tr);
    return row;
  }

  #make() {
    const row = { request: null, cells: COLUMNS.slice(0, -1).map(() => el("td")) };
    row.button = el("button", { type: "button", class: "small", onclick: () => this.#press(row) }, "Abort");
    row.tr = el("tr", {}, ...row.cells, el("td", {}, row.button));
    return row;
  }

  #press(row) {
    row.button.disabled = true;
    this.abort(row.request).finally(() => { row.button.disabled = false; });
  }

  // The keyboard goes on to the row after a row that ended.
  #remove(key, row) {
    const focused = row.tr.contains(document.activeElement);
    const next = row.tr.nextElementSibling ?? row.tr.previousElementSibling;
    row.tr.remove();
    this.#rows.delete(key);
    this.#spare.push(row);
    if (focused) (next?.querySelector("button") ?? this.#table.parentElement).focus({ preventScroll: true });
  }

  #fill(row) {
    const { request } = row;
    const speed = this.#speedOf.get(requestKey(request));
    const name = request.choice > 0 ? `${request.id} / ${request.choice}` : String(request.id);
    const waits = request.phase === "waiting" ? ` ${ageText(request.queue_s)}` : "";
    const prompt = request.phase === "prefill" ? `${countText(request.computed)} of ${countText(request.prompt)}` : countText(request.prompt);
    const texts = [name, request.phase + waits, prompt, countText(request.cached), `${countText(request.output)} of ${countText(request.max)}`,
      speed === undefined ? "" : rateText(speed), ageText(request.age_s)];
    row.cells.forEach((cell, i) => setText(cell, texts[i]));
    if (row.tr.dataset.phase !== request.phase) row.tr.dataset.phase = request.phase;
    if (row.label === name) return;
    row.label = name;
    row.cells[0].title = request.rid;
    row.button.setAttribute("aria-label", `Abort request ${name}`);
  }
}

function summaryOf({ running, queued, retracted, requests_left_out: leftOut }) {
  const parts = [`${countText(running)} running`, `${countText(queued)} waiting`];
  if (retracted > 0) parts.push(`${countText(retracted)} sent back for memory`);
  return parts.join(", ") + (leftOut > 0 ? `; ${countText(leftOut)} more are not listed` : "");
}
