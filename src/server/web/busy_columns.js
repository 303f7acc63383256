// For the strip that shows all of a trace. Pure.

// The device's busy share of each column's time.
export function busyByColumn(steps, { from, to }, columns) {
  const busy = new Float64Array(columns);
  const time = (to - from) / columns;
  for (let i = 0; i < steps.count; i++) {
    const first = Math.max(0, Math.floor((steps.begin[i] - from) / time));
    const last = Math.min(columns - 1, Math.floor((steps.end[i] - from) / time));
    for (let column = first; column <= last; column++) {
      const begin = from + column * time;
      busy[column] += Math.max(0, Math.min(steps.end[i], begin + time) - Math.max(steps.begin[i], begin)) / time;
    }
  }
  return busy.map((share) => Math.min(1, share));
}
