// Paints lanes of spans: a row of boxes for each thread and the device, with the device's gaps as stripes through all of them.
import { timeText } from "./format.js";
import { forEachGap } from "./gaps.js";
import { niceStep } from "./scales.js";
import { batchOf, RESTING } from "./span_kinds.js";
import { color, spanColor } from "./theme_colors.js";

export const LANE = { top: 22, height: 42, box: 30, gutter: 104, narrow: 620, label: 15 };
const LETTER = 6.3;
const DENSE = 1.2;  // pixels: narrower spans of one pixel column are summed up
const LINKED = 30;  // pixels: steps as wide as that are linked with their launch

// Where lanes and times are in a canvas of that width. view: {from, to} in microseconds.
export function layoutOf(width, lanes, view) {
  const narrow = width < LANE.narrow;
  const left = narrow ? 0 : LANE.gutter;
  const label = narrow ? LANE.label : 0; // above the boxes, where there is no room beside them
  const pitch = LANE.height + label;
  return {
    left, narrow, width, pitch,
    device: lanes.findIndex((lane) => lane.name === "device"),
    height: LANE.top + pitch * lanes.length + 4,
    scale: (width - left) / (view.to - view.from),
    x: (time) => left + (time - view.from) * ((width - left) / (view.to - view.from)),
    time: (x) => view.from + (x - left) * ((view.to - view.from) / (width - left)),
    y: (lane) => LANE.top + pitch * lane + label,
    laneAt: (y) => Math.floor((y - LANE.top) / pitch),
  };
}

// scene: {lanes, kinds, view, holes: [[from, to]] where spans are missing, leastGap: see gaps.js, selected: {lane, i} or null}
export function paintLanes(ctx, size, scene) {
  const layout = layoutOf(size.width, scene.lanes, scene.view);
  ctx.clearRect(0, 0, size.width, size.height);
  ctx.font = "11px system-ui, sans-serif";
  ctx.textBaseline = "middle";
  paintTicks(ctx, layout, scene);
  ctx.save();
  ctx.beginPath();
  ctx.rect(layout.left, 0, size.width - layout.left, size.height);
  ctx.clip();
  const batch = selectedBatch(scene);
  scene.lanes.forEach((lane, n) => paintLane(ctx, layout, scene, lane, n, batch));
  paintLaunches(ctx, layout, scene);
  paintHoles(ctx, layout, scene);
  paintGaps(ctx, layout, scene);
  paintSelected(ctx, layout, scene);
  ctx.restore();
  paintLabels(ctx, layout, scene);
}

function selectedBatch({ selected, lanes, kinds }) {
  return selected ? batchOf(lanes[selected.lane], selected.i, kinds) : NaN;
}

function paintTicks(ctx, layout, { view }) {
  const step = niceStep(view.to - view.from, Math.max(2, (layout.width - layout.left) / 110));
  ctx.textAlign = "left";
  for (let i = Math.ceil(view.from / step); i * step < view.to; i++) {
    const x = Math.round(layout.x(i * step)) + 0.5;
    ctx.fillStyle = color("--line");
    ctx.fillRect(x, 14, 1, layout.height - 14);
    if (x > layout.width - 60) continue;
    ctx.fillStyle = color("--muted");
    ctx.fillText(tickText(i * step, step), x + 3, 8);
  }
}

// A time since the server's start with as many digits as the step has.
function tickText(us, step) {
  const digits = Math.max(0, Math.min(6, -Math.floor(Math.log10(step / 1e6) + 1e-9)));
  return `${(us / 1e6).toFixed(digits)} s`;
}

function paintLabels(ctx, layout, { lanes }) {
  ctx.textAlign = "left";
  lanes.forEach((lane, n) => {
    const device = lane.name === "device";
    ctx.fillStyle = color(device ? "--text" : "--muted");
    ctx.font = `${device ? "600 " : ""}12px system-ui, sans-serif`;
    const y = layout.y(n);
    if (layout.narrow) ctx.fillText(lane.name, 2, y - 8);
    else ctx.fillText(lane.name, 2, y + LANE.box / 2);
  });
}

function paintLane(ctx, layout, scene, lane, n, batch) {
  const { view, kinds } = scene;
  const y = layout.y(n);
  ctx.fillStyle = color("--lane-back");
  ctx.fillRect(layout.left, y, layout.width - layout.left, LANE.box);
  const dense = [new DenseColumns(ctx, kinds, y, LANE.box), new DenseColumns(ctx, kinds, y + LANE.box / 2, LANE.box / 2)];
  const slack = scene.leastGap ?? 0; // ends are rounded
  let outerEnd = -Infinity;
  for (let i = lane.firstAfter(view.from); i < lane.count && lane.begin[i] < view.to; i++) {
    const inner = lane.end[i] <= outerEnd + slack; // within the one before: drawn lower, upon it
    if (!inner) outerEnd = lane.end[i];
    const x = Math.max(layout.left - 2, layout.x(lane.begin[i]));
    const width = Math.min(layout.width + 2, layout.x(lane.end[i])) - x;
    if (width < DENSE) {
      dense[inner ? 1 : 0].add(x, width, lane.kind[i]);
      continue;
    }
    dense[inner ? 1 : 0].flush();
    const faded = !Number.isNaN(batch) && batchOf(lane, i, kinds) !== batch;
    paintBox(ctx, { x, width, y: inner ? y + LANE.box / 2 : y, height: inner ? LANE.box / 2 : LANE.box }, lane, i, kinds, faded);
  }
  for (const columns of dense) columns.flush();
}

function paintBox(ctx, { x, y, width, height }, lane, i, kinds, faded) {
  const kind = kinds.names[lane.kind[i]];
  const resting = RESTING.has(kind);
  ctx.globalAlpha = faded ? 0.35 : 1;
  ctx.fillStyle = spanColor(kind);
  ctx.fillRect(x, y, width, height);
  if (width > 4 && !resting) { // where one ends and the next begins, without a space that would look like a gap
    ctx.fillStyle = color("--span-edge");
    ctx.fillRect(x, y, 1, height);
  }
  const rows = lane.b[i];
  const long = lane.name === "device" && !Number.isNaN(rows) ? `${kind} · ${rows} row${rows === 1 ? "" : "s"}` : kind;
  const text = long.length * LETTER + 10 < width ? long : kind;
  if (text.length * LETTER + 8 < width) {
    ctx.fillStyle = color(resting ? "--muted" : "--span-text");
    ctx.textAlign = "left";
    ctx.fillText(text, Math.max(x, 0) + 5, y + height / 2 + 0.5);
  }
  ctx.globalAlpha = 1;
}

// Sums up what is narrower than a pixel: a column has the colour of the kind that takes most of it, and is the fuller the more of its
// time is covered.
class DenseColumns {
  #column = -1;
  #covered = 0;
  #widest = 0;
  #kind = 0;

  constructor(ctx, kinds, y, height) {
    Object.assign(this, { ctx, kinds, y, height });
  }

  add(x, width, kind) {
    if (Math.floor(x) !== this.#column) this.flush();
    this.#column = Math.floor(x);
    this.#covered += width;
    if (width >= this.#widest) {
      this.#widest = width;
      this.#kind = kind;
    }
  }

  flush() {
    if (this.#column >= 0) {
      const kind = this.kinds.names[this.#kind];
      this.ctx.globalAlpha = Math.min(1, Math.max(0.5, this.#covered));
      this.ctx.fillStyle = spanColor(kind);
      this.ctx.fillRect(this.#column, this.y, RESTING.has(kind) ? 1 : 2, this.height);
      this.ctx.globalAlpha = 1;
    }
    this.#column = -1;
    this.#covered = this.#widest = 0;
  }
}

// Stripes through all lanes where the device stood still. Where there was no work it is said, and is no gap.
function paintGaps(ctx, layout, scene) {
  const { device } = layout;
  if (device < 0) return;
  const y = layout.y(device);
  const query = { device: scene.lanes[device], scheduler: scene.lanes.find((lane) => lane.name === "scheduler"), kinds: scene.kinds,
    from: scene.view.from, to: scene.view.to, least: scene.leastGap,
    isKnown: (begin, end) => !scene.holes.some(([from, to]) => from < end && to > begin) };
  ctx.fillStyle = color("--span-gap");
  let column = -1; // gaps narrower than a pixel are summed up
  let share = 0;
  const flush = () => {
    if (column >= 0) paintStripe(ctx, layout, y, column, 1, Math.max(0.25, share));
    column = -1;
    share = 0;
  };
  forEachGap(query, (begin, end, length, idle) => {
    if (length === 0) return;
    const x = layout.x(begin);
    const width = layout.x(end) - x;
    if (idle) {
      paintNote(ctx, x, width, y, "no work", "--muted");
      ctx.fillStyle = color("--span-gap");
    } else if (width >= 1) {
      flush();
      paintStripe(ctx, layout, y, x, width, 1);
      paintNote(ctx, x, width, y, `gap ${timeText(length)}`, "--span-gap-text");
      ctx.fillStyle = color("--span-gap");
    } else {
      if (Math.floor(x) !== column) flush();
      column = Math.floor(x);
      share += width;
    }
  });
  flush();
}

function paintStripe(ctx, layout, y, x, width, strength) {
  ctx.globalAlpha = 0.16 * strength;
  ctx.fillRect(x, LANE.top - 6, width, layout.height - LANE.top + 6);
  ctx.globalAlpha = Math.min(1, strength);
  ctx.fillRect(x, y, width, LANE.box);
  ctx.globalAlpha = 1;
}

function paintNote(ctx, x, width, y, text, ink) {
  if (text.length * LETTER + 6 > width) return;
  ctx.fillStyle = color(ink);
  ctx.textAlign = "center";
  ctx.fillText(text, x + width / 2, y + LANE.box / 2 + 0.5);
}

// A line from each launch to its step on the device: how long before its turn a step was ready.
function paintLaunches(ctx, layout, { lanes, kinds, view }) {
  const { device } = layout;
  const scheduler = lanes.findIndex((lane) => lane.name === "scheduler");
  if (scheduler < 0 || device < 0) return;
  const steps = lanes[device];
  const shown = steps.firstFrom(view.to) - steps.firstAfter(view.from);
  if (shown * LINKED > layout.width) return;
  const launched = new Map();
  const from = lanes[scheduler];
  // A launch lies about one step before its own.
  for (let i = from.firstAfter(2 * view.from - view.to); i < from.count && from.begin[i] < view.to; i++) {
    if (kinds.names[from.kind[i]] === "launch") launched.set(from.a[i], from.end[i]);
  }
  ctx.strokeStyle = ctx.fillStyle = color("--launch-line");
  ctx.lineWidth = 1.5;
  const top = layout.y(scheduler) + LANE.box;
  const bottom = layout.y(device);
  for (let i = steps.firstAfter(view.from); i < steps.count && steps.begin[i] < view.to + (view.to - view.from); i++) {
    if ((steps.end[i] - steps.begin[i]) * layout.scale < LINKED) continue;
    const at = launched.get(steps.a[i]);
    if (at === undefined) continue;
    ctx.beginPath();
    ctx.moveTo(layout.x(at), top);
    ctx.lineTo(layout.x(steps.begin[i]), bottom);
    ctx.stroke();
    ctx.fillRect(layout.x(steps.begin[i]) - 2, bottom - 4, 4, 4);
  }
}

function paintHoles(ctx, layout, { holes, view }) {
  for (const [from, to] of holes) {
    if (to <= view.from || from >= view.to) continue;
    const x = Math.max(layout.left, layout.x(from));
    const width = Math.min(layout.width, layout.x(to)) - x;
    ctx.fillStyle = color("--hole");
    ctx.fillRect(x, LANE.top, Math.max(1, width), layout.height - LANE.top);
    paintNote(ctx, x, width, LANE.top - 2, "not sent: too many", "--muted");
  }
}

function paintSelected(ctx, layout, { lanes, selected }) {
  if (!selected) return;
  const lane = lanes[selected.lane];
  const x = layout.x(lane.begin[selected.i]);
  ctx.strokeStyle = color("--text");
  ctx.lineWidth = 2;
  ctx.strokeRect(x - 1, layout.y(selected.lane) - 1, Math.max(3, layout.x(lane.end[selected.i]) - x + 2), LANE.box + 2);
}
