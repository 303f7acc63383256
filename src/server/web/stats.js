// Figures over many values and over the last seconds. Pure: time comes in with the data, in seconds.

// By nearest rank, of values in ascending order; 0 for none.
export function percentile(sorted, share) {
  if (sorted.length === 0) return 0;
  return sorted[Math.max(1, Math.ceil(share * sorted.length)) - 1];
}

// Of a set of lengths, as `gapless trace` counts them.
export function lengthsOf(values) {
  const sorted = Float64Array.from(values).sort();
  const sum = sorted.reduce((total, value) => total + value, 0);
  return {
    count: sorted.length,
    sum,
    mean: sorted.length === 0 ? 0 : sum / sorted.length,
    p50: percentile(sorted, 0.5),
    p99: percentile(sorted, 0.99),
    max: percentile(sorted, 1),
  };
}

// The device's gaps and its busy share over the last seconds, from the frames of the feed.
export class StepWindow {
  #seconds;
  #frames = [];

  constructor(seconds) {
    this.#seconds = seconds;
  }

  add(frame) {
    this.#frames.push({ from: this.#frames.at(-1)?.to ?? frame.from, to: frame.to, steps: frame.steps });
    while (this.#frames[0].to < frame.to - this.#seconds) this.#frames.shift();
  }

  clear() {
    this.#frames = [];
  }

  // Of the steps of the window; null: there is none. Where a frame lists only some of its gaps, p50 and p99 are about right.
  summary() {
    const total = { time: 0, busy: 0, steps: 0, rows: 0, tokens: 0, gaps: 0, gapSum: 0, max: 0, p50Sum: 0, p99Sum: 0 };
    const single = [];
    let waiting = 0; // time of frames in which no step ended: of a step that takes longer, or of idleness
    for (const { from, to, steps } of this.#frames) {
      const { n, gap_us: gap } = steps;
      waiting += to - from;
      if (n === 0) continue;
      const time = gap.n < n ? to - from : waiting;
      waiting = 0;
      total.time += time;
      total.busy += steps.busy * time;
      for (const key of ["rows", "tokens"]) total[key] += steps[key];
      total.steps += n;
      if (gap.n === 0) continue;
      total.gaps += gap.n;
      total.gapSum += gap.mean * gap.n;
      total.p50Sum += gap.p50 * gap.n;
      total.p99Sum += gap.p99 * gap.n;
      total.max = Math.max(total.max, gap.max);
      single.push(...steps.gaps.map(([, length]) => length));
    }
    return total.steps === 0 ? null : summaryOf(total, single);
  }
}

function summaryOf(total, single) {
  return {
    busy: total.busy / total.time,
    lost: total.gapSum / 1e6 / total.time,
    stepsPerSecond: total.steps / total.time,
    rowsPerStep: total.rows / total.steps,
    tokensPerStep: total.tokens / total.steps,
    gap: gapsOf(total, single),
  };
}

function gapsOf({ gaps: count, gapSum, p50Sum, p99Sum, max }, single) {
  if (count === 0) return { count, mean: 0, p50: 0, p99: 0, max };
  const { p50, p99 } = single.length === count ? lengthsOf(single) : { p50: p50Sum / count, p99: p99Sum / count };
  return { count, mean: gapSum / count, p50, p99, max };
}

// Rates from counters that only grow. A counter that fell was reset: that stretch has no rate.
export class Rates {
  #seconds;
  #samples = [];

  constructor(seconds) {
    this.#seconds = seconds;
  }

  add(now, counters) {
    const last = this.#samples.at(-1);
    if (last && (now <= last.now || Object.keys(counters).some((key) => counters[key] < last.counters[key]))) this.clear();
    this.#samples.push({ now, counters: { ...counters } });
    while (this.#samples.length > 2 && this.#samples[1].now <= now - this.#seconds) this.#samples.shift();
  }

  clear() {
    this.#samples = [];
  }

  // Per second over the window, or between the last two samples; null until there are two.
  perSecond(latestOnly = false) {
    if (this.#samples.length < 2) return null;
    const first = latestOnly ? this.#samples.at(-2) : this.#samples[0];
    const last = this.#samples.at(-1);
    const rates = {};
    for (const key of Object.keys(last.counters)) {
      rates[key] = (last.counters[key] - first.counters[key]) / (last.now - first.now);
    }
    return rates;
  }
}

// Each request's tokens per second, from two states.
export class RequestSpeeds {
  #last = new Map();
  #now = 0;

  // requests: of a state. Returns a Map of "id:choice" to tokens per second (absent: not known yet).
  update(now, requests) {
    const next = new Map();
    const speeds = new Map();
    const time = now - this.#now;
    for (const request of requests) {
      const key = requestKey(request);
      const before = this.#last.get(key);
      if (before !== undefined && time > 0) {
        const rate = Math.max(0, request.output - before.output) / time;
        // Steps and states are not in time with each other: half of the news, half of what was known.
        before.speed = before.speed === undefined ? rate : (before.speed + rate) / 2;
        speeds.set(key, before.speed);
      }
      next.set(key, { output: request.output, speed: before?.speed });
    }
    this.#last = next;
    this.#now = now;
    return speeds;
  }
}

export function requestKey(request) {
  return `${request.id}:${request.choice}`;
}
