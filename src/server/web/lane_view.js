// Lanes on a canvas that can be pointed at, tapped and walked through with the keyboard. It knows nothing of where spans come from: Live
// scrolls it, Trace pans it.
import { fitCanvas } from "./canvas.js";
import { el } from "./dom.js";
import { forEachGap } from "./gaps.js";
import { layoutOf, paintLanes } from "./lane_paint.js";
import { SpanTip } from "./span_tip.js";

const SLACK_PX = 3;
const KEYS = "Arrow keys go from span to span and from lane to lane, plus and minus zoom, Page Up and Page Down move, Escape lets go.";

export class LaneView {
  #canvas = el("canvas", { class: "lanes", tabindex: "0", role: "application", "aria-roledescription": "timeline" });
  #tip = new SpanTip();
  #drag = null;
  #selected = null; // {lane, begin, end, kind}: indices change while spans arrive

  // actions: {zoom(factor, time), pan(us), select(isSelected, byPointer)}. `lanes` of scene: [SpanLane].
  constructor(root, label, actions) {
    this.scene = { lanes: [], kinds: null, view: { from: 0, to: 1 }, holes: [] };
    this.actions = actions;
    this.#canvas.setAttribute("aria-label", `${label}. ${KEYS}`);
    root.append(el("div", { class: "lanes-box" }, this.#canvas, this.#tip.element));
    ({ ctx: this.ctx, size: this.size } = fitCanvas(this.#canvas, () => this.paint()));
    this.#listen();
  }

  get canvas() {
    return this.#canvas;
  }

  setLanes(lanes, kinds) {
    Object.assign(this.scene, { lanes, kinds });
    this.letGo();
    this.#canvas.style.height = `${layoutOf(this.#canvas.clientWidth || 800, lanes, this.scene.view).height}px`;
  }

  paint() {
    if (!this.scene.kinds || this.size.width === 0) return;
    const { height } = this.#layout();
    if (Math.abs(height - this.size.height) > 0.5) this.#canvas.style.height = `${height}px`; // the observer paints again
    paintLanes(this.ctx, this.size, { ...this.scene, selected: this.#found() });
    this.#tip.place(this.#layout(), this.#selected);
  }

  letGo() {
    if (!this.#selected) return;
    this.#selected = null;
    this.#tip.hide();
    this.actions.select(false);
    this.paint();
  }

  #layout() {
    return layoutOf(this.size.width, this.scene.lanes, this.scene.view);
  }

  // The selected span by its index, while it is still there.
  #found() {
    const selected = this.#selected;
    if (!selected || selected.gap) return null;
    const lane = this.scene.lanes[selected.lane];
    for (let i = lane.firstFrom(selected.begin); i < lane.count && lane.begin[i] === selected.begin; i++) {
      if (lane.end[i] === selected.end && lane.kind[i] === selected.kind) return { lane: selected.lane, i };
    }
    return null;
  }

  #select(laneIndex, i, byPointer) {
    const lane = this.scene.lanes[laneIndex];
    this.#selected = { lane: laneIndex, begin: lane.begin[i], end: lane.end[i], kind: lane.kind[i] };
    this.#tip.showSpan(lane, i, this.scene.kinds, byPointer);
    this.actions.select(true, byPointer);
    this.paint();
  }

  #selectGap(laneIndex, begin, end, byPointer) {
    this.#selected = { lane: laneIndex, begin, end, gap: true };
    this.#tip.showGap(end - begin, byPointer);
    this.actions.select(true, byPointer);
    this.paint();
  }

  #listen() {
    const on = (type, handler, options) => this.#canvas.addEventListener(type, handler, options);
    on("pointerdown", (event) => this.#down(event));
    on("pointermove", (event) => this.#move(event));
    on("pointerup", (event) => this.#up(event));
    on("pointercancel", () => { this.#drag = null; });
    on("pointerleave", (event) => { if (event.pointerType === "mouse" && !this.#drag) this.letGo(); });
    on("wheel", (event) => this.#wheel(event), { passive: false });
    on("keydown", (event) => this.#key(event));
    on("blur", () => this.letGo());
    // A finger leaves nothing: it lets go by touching something else.
    document.addEventListener("pointerdown", ({ target }) => { if (target !== this.#canvas) this.letGo(); });
  }

  #down(event) {
    this.#drag = { x: event.clientX, moved: false };
    if (event.pointerType === "mouse") this.#canvas.setPointerCapture(event.pointerId);
  }

  #move(event) {
    if (this.#drag) {
      const by = event.clientX - this.#drag.x;
      if (Math.abs(by) > 4) this.#drag.moved = true;
      if (!this.#drag.moved) return;
      this.#drag.x = event.clientX;
      this.actions.pan(-by / this.#layout().scale);
    } else if (event.pointerType === "mouse") {
      this.#point(event);
    }
  }

  #up(event) {
    if (this.#drag && !this.#drag.moved && event.pointerType !== "mouse") this.#point(event);
    this.#drag = null;
  }

  // What is under the pointer: the innermost span, or a gap of the device.
  #point(event) {
    if (!this.scene.kinds) return;
    const layout = this.#layout();
    const { left, top } = this.#canvas.getBoundingClientRect();
    const x = event.clientX - left;
    const laneIndex = layout.laneAt(event.clientY - top);
    const lane = this.scene.lanes[laneIndex];
    if (!lane || x < layout.left) return this.letGo();
    const i = lane.at(layout.time(x), 0);
    if (i >= 0) return this.#select(laneIndex, i, true);
    const gap = lane.name === "device" ? this.#gapAt(layout.time(x), SLACK_PX / layout.scale) : null;
    if (gap) return this.#selectGap(laneIndex, ...gap, true);
    const near = lane.at(layout.time(x), SLACK_PX / layout.scale);
    if (near >= 0) this.#select(laneIndex, near, true);
    else this.letGo();
  }

  #gapAt(time, slack) {
    const lane = (name) => this.scene.lanes.find((candidate) => candidate.name === name);
    let found = null;
    const query = { device: lane("device"), scheduler: lane("scheduler"), kinds: this.scene.kinds, from: time - slack, to: time + slack,
      least: this.scene.leastGap };
    forEachGap(query, (begin, end, length, idle) => {
      if (!idle && length > 0 && begin - slack <= time && end + slack >= time) found = [begin, end];
    });
    return found;
  }

  // A wheel over the page scrolls the page; over lanes that were clicked, or with Ctrl (a pinch on a touchpad), it zooms.
  #wheel(event) {
    const layout = this.#layout();
    const sideways = Math.abs(event.deltaX) > Math.abs(event.deltaY);
    if (!sideways && !event.ctrlKey && document.activeElement !== this.#canvas) return;
    event.preventDefault();
    if (sideways) this.actions.pan(event.deltaX / layout.scale);
    else this.actions.zoom(Math.exp(event.deltaY * 0.002), layout.time(event.clientX - this.#canvas.getBoundingClientRect().left));
  }

  #key(event) {
    const middle = (this.scene.view.from + this.scene.view.to) / 2;
    const page = (this.scene.view.to - this.scene.view.from) * 0.8;
    const actions = {
      ArrowLeft: () => this.#walk(-1, 0), ArrowRight: () => this.#walk(1, 0),
      ArrowUp: () => this.#walk(0, -1), ArrowDown: () => this.#walk(0, 1),
      PageUp: () => this.actions.pan(-page), PageDown: () => this.actions.pan(page),
      "+": () => this.actions.zoom(0.7, middle), "=": () => this.actions.zoom(0.7, middle), "-": () => this.actions.zoom(1 / 0.7, middle),
      Escape: () => this.letGo(),
    };
    if (!(event.key in actions) || event.ctrlKey || event.metaKey || event.altKey || !this.scene.kinds) return;
    event.preventDefault();
    actions[event.key]();
  }

  // To the next span along the lane, or to what another lane did at that time.
  #walk(along, across) {
    const { lanes, view } = this.scene;
    const found = this.#found();
    if (!found) {
      const device = Math.max(0, lanes.findIndex((lane) => lane.name === "device"));
      const i = lanes[device]?.firstAfter((view.from + view.to) / 2) ?? 0;
      if (lanes[device]?.count > 0) this.#select(device, Math.min(i, lanes[device].count - 1), false);
      return;
    }
    let laneIndex = found.lane + across;
    while (lanes[laneIndex]?.count === 0) laneIndex += across;
    const lane = lanes[laneIndex];
    if (!lane) return;
    const time = lanes[found.lane].begin[found.i];
    const i = across === 0 ? found.i + along : lane.firstAfter(time);
    this.#select(laneIndex, Math.min(lane.count - 1, Math.max(0, i)), false);
    this.#reveal();
  }

  // Moves the view so that the selected span is in it.
  #reveal() {
    const { view } = this.scene;
    const width = view.to - view.from;
    if (this.#selected.end < view.from || this.#selected.begin > view.to) {
      this.actions.pan((this.#selected.begin + this.#selected.end) / 2 - view.from - width / 2);
    }
  }
}
