// All of a trace in one strip: how busy the device was, and where the lanes above it look. A press or a drag takes them elsewhere.
import { busyByColumn } from "./busy_columns.js";
import { fitCanvas } from "./canvas.js";
import { el } from "./dom.js";
import { color } from "./theme_colors.js";

export class TraceMinimap {
  #canvas = el("canvas", { class: "minimap", "aria-hidden": "true" });
  #steps = null;
  #busy = null;
  #dragging = false;

  // look(time): the middle of what to show.
  constructor(root, look) {
    this.look = look;
    this.range = this.view = { from: 0, to: 1 };
    root.append(this.#canvas);
    ({ ctx: this.ctx, size: this.size } = fitCanvas(this.#canvas, () => { this.#busy = null; this.paint(); }));
    this.#canvas.addEventListener("pointerdown", (event) => {
      this.#dragging = true;
      this.#canvas.setPointerCapture(event.pointerId);
      this.#lookAt(event);
    });
    this.#canvas.addEventListener("pointermove", (event) => { if (this.#dragging) this.#lookAt(event); });
    for (const type of ["pointerup", "pointercancel"]) this.#canvas.addEventListener(type, () => { this.#dragging = false; });
  }

  setTrace(steps, range) {
    this.#steps = steps;
    this.range = range;
    this.#busy = null;
  }

  paint() {
    const { ctx, size } = this;
    if (!this.#steps || size.width === 0) return;
    this.#busy ??= busyByColumn(this.#steps, this.range, Math.floor(size.width));
    ctx.clearRect(0, 0, size.width, size.height);
    ctx.fillStyle = color("--lane-back");
    ctx.fillRect(0, 0, size.width, size.height);
    ctx.fillStyle = color("--span-decode");
    this.#busy.forEach((share, x) => ctx.fillRect(x, size.height * (1 - share), 1, size.height * share));
    const x = (time) => ((time - this.range.from) / (this.range.to - this.range.from)) * size.width;
    const left = x(this.view.from);
    const width = Math.max(3, x(this.view.to) - left);
    ctx.fillStyle = color("--minimap-view");
    ctx.fillRect(left, 0, width, size.height);
    ctx.strokeStyle = color("--text");
    ctx.lineWidth = 2;
    ctx.strokeRect(left, 1, width, size.height - 2);
  }

  #lookAt(event) {
    this.look(this.range.from + (event.offsetX / this.size.width) * (this.range.to - this.range.from));
  }
}
