// A strip of the last minute: lines or points over time, with marks where something was switched.
import { fitCanvas } from "./canvas.js";
import { el } from "./dom.js";
import { setText } from "./dom_text.js";
import { color } from "./theme_colors.js";

const TOP = 14;
const BOTTOM = 18;
const LEFT = 58;

export class StripChart {
  #points = [];
  #marks = [];
  #hover = null;
  #canvas;

  // series: [{key, label, color: '--property', points: true to draw dots}]; scale: logScale() or linearScale(); text(value) for axis and hover.
  constructor(root, { label, seconds = 60, series, scale, text }) {
    Object.assign(this, { label, seconds, series, scale, text });
    this.#canvas = el("canvas", { class: "strip", role: "img", "aria-label": label });
    this.readout = el("p", { class: "strip-readout" });
    root.append(legend(series), this.#canvas, this.readout);
    ({ ctx: this.ctx, size: this.size } = fitCanvas(this.#canvas, () => this.paint()));
    this.#canvas.addEventListener("pointermove", (event) => { this.#hover = event.offsetX; this.paint(); });
    this.#canvas.addEventListener("pointerleave", () => { this.#hover = null; this.paint(); });
  }

  // values: {key: number}, or null where there is nothing to say (a break in the line).
  add(time, values) {
    if (this.#points.length > 0 && time <= this.#points.at(-1).time) this.clear();
    this.#points.push({ time, values });
    while (this.#points[0].time < time - this.seconds) this.#points.shift();
    while (this.#marks.length > 0 && this.#marks[0].time < time - this.seconds) this.#marks.shift();
  }

  // Nothing is known of the time until the next point.
  interrupt() {
    const last = this.#points.at(-1);
    if (last) last.values = null;
  }

  mark(time, text) {
    this.#marks.push({ time, text });
  }

  clear() {
    this.#points = [];
    this.#marks = [];
  }

  // Said to those who do not see the picture; not at every point.
  describe(text) {
    this.#canvas.setAttribute("aria-label", `${this.label}: ${text}`);
  }

  paint() {
    const { ctx, size } = this;
    if (size.width === 0) return;
    ctx.clearRect(0, 0, size.width, size.height);
    ctx.font = "11px system-ui, sans-serif";
    ctx.textBaseline = "middle";
    const newest = this.#points.at(-1)?.time ?? 0;
    const x = (time) => LEFT + (1 - (newest - time) / this.seconds) * (size.width - LEFT - 4);
    const levels = this.scale.levels(this.#largest());
    const y = (value) => TOP + (1 - this.scale.share(value, levels)) * (size.height - TOP - BOTTOM);
    this.#paintAxes(levels, x, y, newest);
    for (const series of this.series) this.#paintSeries(series, x, y);
    this.#paintMarks(x);
    this.#paintHover(x, y);
  }

  #largest() {
    let largest = 0;
    for (const { values } of this.#points) if (values) for (const { key } of this.series) largest = Math.max(largest, values[key] ?? 0);
    return largest;
  }

  #paintAxes(levels, x, y, newest) {
    const { ctx, size } = this;
    for (const level of levels) {
      ctx.fillStyle = color("--line");
      ctx.fillRect(LEFT, Math.round(y(level)), size.width - LEFT, 1);
      ctx.fillStyle = color("--muted");
      ctx.textAlign = "right";
      ctx.fillText(this.text(level), LEFT - 6, y(level));
    }
    for (let back = 0; back <= this.seconds; back += this.seconds / 4) {
      ctx.textAlign = back === 0 ? "right" : back === this.seconds ? "left" : "center";
      ctx.fillText(back === 0 ? "now" : `-${back} s`, x(newest - back), size.height - 7);
    }
  }

  #paintSeries({ key, color: property, points }, x, y) {
    const { ctx } = this;
    ctx.strokeStyle = ctx.fillStyle = color(property);
    ctx.lineWidth = 1.5;
    ctx.beginPath();
    let drawing = false;
    for (const { time, values } of this.#points) {
      const value = values?.[key];
      if (value == null) {
        drawing = false;
      } else if (points) {
        ctx.fillRect(x(time) - 1, y(value) - 1, 2, 2);
      } else {
        ctx[drawing ? "lineTo" : "moveTo"](x(time), y(value));
        drawing = true;
      }
    }
    if (!points) ctx.stroke();
  }

  #paintMarks(x) {
    const { ctx, size } = this;
    for (const { time, text } of this.#marks) {
      const at = Math.round(x(time));
      if (at < LEFT) continue;
      ctx.fillStyle = color("--text");
      ctx.fillRect(at, TOP - 4, 1, size.height - TOP - BOTTOM + 4);
      ctx.textAlign = at > size.width - 70 ? "right" : "left";
      ctx.fillText(text, at + (ctx.textAlign === "left" ? 4 : -4), 7);
    }
  }

  #paintHover(x, y) {
    const { ctx, size } = this;
    let nearest = null;
    if (this.#hover !== null) {
      for (const point of this.#points) {
        if (point.values && (!nearest || Math.abs(x(point.time) - this.#hover) < Math.abs(x(nearest.time) - this.#hover))) nearest = point;
      }
    }
    setText(this.readout, nearest ? this.#textOf(nearest) : "\u00a0");
    if (!nearest) return;
    ctx.fillStyle = color("--muted");
    ctx.fillRect(Math.round(x(nearest.time)), TOP, 1, size.height - TOP - BOTTOM);
    for (const { key, color: property } of this.series) {
      if (nearest.values[key] == null) continue;
      ctx.fillStyle = color(property);
      ctx.fillRect(x(nearest.time) - 2.5, y(nearest.values[key]) - 2.5, 5, 5);
    }
  }

  #textOf({ time, values }) {
    const ago = this.#points.at(-1).time - time;
    const parts = this.series.filter(({ key }) => values[key] != null).map(({ key, label }) => `${label} ${this.text(values[key])}`);
    return `${ago.toFixed(1)} s ago: ${parts.join(" · ")}`;
  }
}

function legend(series) {
  return el("ul", { class: "strip-legend", "aria-hidden": "true" }, ...series.map(({ label, color: property }) => {
    const swatch = el("span", { class: "swatch" });
    swatch.style.background = `var(${property})`;
    return el("li", {}, swatch, label);
  }));
}
