// The spans of one thread, or of the device, in order of their begin (a longer one first): what Live and Trace draw from. Times are in
// microseconds. Arrays of numbers, because a trace has half a million spans.

export const NO_ARG = NaN;

export class SpanLane {
  constructor(name, capacity = 1024) {
    this.name = name;
    this.count = 0;
    this.#allocate(capacity);
  }

  // A lane that came from a worker as plain data.
  static of(plain) {
    return Object.assign(new SpanLane(plain.name, 1), plain);
  }

  // In any order; cheap when it is nearly that of their begins.
  add(begin, end, kind, a = NO_ARG, b = NO_ARG, c = NO_ARG) {
    if (this.count === this.begin.length) this.#allocate(2 * this.count);
    let at = this.count;
    while (at > 0 && (this.begin[at - 1] > begin || (this.begin[at - 1] === begin && this.end[at - 1] < end))) at--;
    if (at < this.count) for (const array of this.#arrays()) array.copyWithin(at + 1, at, this.count);
    this.begin[at] = begin;
    this.end[at] = end;
    this.kind[at] = kind;
    this.a[at] = a;
    this.b[at] = b;
    this.c[at] = c;
    this.count++;
    for (let i = at; i < this.count; i++) this.reach[i] = Math.max(this.end[i], i > 0 ? this.reach[i - 1] : -Infinity);
  }

  // The first span that may touch what comes after `time`; all before it have ended by then.
  firstAfter(time) {
    return lowerBound(this.reach, this.count, time);
  }

  // The first span that begins at or after `time`.
  firstFrom(time) {
    return lowerBound(this.begin, this.count, time, true);
  }

  // The innermost span at a time, or -1. `slack`: how far beside a span still counts.
  at(time, slack = 0) {
    let best = -1;
    for (let i = this.firstAfter(time - slack); i < this.count && this.begin[i] <= time + slack; i++) {
      if (this.end[i] < time - slack) continue;
      const inside = this.begin[i] <= time && this.end[i] >= time;
      if (inside || best < 0) best = i;
    }
    return best;
  }

  // Forgets what has ended by `time`, once that is worth a move.
  dropBefore(time) {
    const first = this.firstAfter(time);
    if (first < 512 || first < this.count / 4) return;
    for (const array of this.#arrays()) array.copyWithin(0, first, this.count);
    this.count -= first;
  }

  clear() {
    this.count = 0;
  }

  #arrays() {
    return [this.begin, this.end, this.reach, this.kind, this.a, this.b, this.c];
  }

  #allocate(capacity) {
    const grown = (old, Type) => {
      const array = new Type(capacity);
      if (old) array.set(old.subarray(0, this.count));
      return array;
    };
    this.begin = grown(this.begin, Float64Array);
    this.end = grown(this.end, Float64Array);
    this.reach = grown(this.reach, Float64Array); // the largest end so far
    this.kind = grown(this.kind, Uint16Array);
    this.a = grown(this.a, Float64Array);
    this.b = grown(this.b, Float64Array);
    this.c = grown(this.c, Float64Array);
  }
}

// The first of `count` ascending values above `limit` (or, with `orEqual`, at least that).
function lowerBound(values, count, limit, orEqual = false) {
  let low = 0;
  let high = count;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (values[middle] > limit || (orEqual && values[middle] === limit)) high = middle;
    else low = middle + 1;
  }
  return low;
}
