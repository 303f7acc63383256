// The value axes of strip charts: levels(largest) are the lines to draw, share(value, levels) is a value's height, 0 to 1.

// From `least` up in powers of ten, and 0 below all of them: a tenth of the height stands for everything below `least`.
export function logScale(least, most) {
  return {
    levels(largest) {
      const levels = [0];
      for (let level = least; level <= most; level *= 10) {
        levels.push(level);
        if (level >= largest && levels.length > 4) break;
      }
      return levels;
    },
    share(value, levels) {
      if (value <= 0) return 0;
      const decades = Math.log10(levels.at(-1) / least);
      const share = 0.12 + 0.88 * (Math.log10(value / least) / decades);
      return Math.min(1, Math.max(0.02, share));
    },
  };
}

// From 0, a few even levels.
export function linearScale(least) {
  return {
    levels(largest) {
      const top = Math.max(least, largest * 1.05);
      const step = niceStep(top, 4);
      const levels = [];
      for (let i = 0; i === 0 || (i - 1) * step < top; i++) levels.push(i * step);
      return levels;
    },
    share: (value, levels) => Math.min(1, value / levels.at(-1)),
  };
}

// A step of 1, 2 or 5 times a power of ten, so that `range` has at most `most` of them.
export function niceStep(range, most) {
  const least = range / most;
  const power = 10 ** Math.floor(Math.log10(least));
  return [1, 2, 5, 10].map((factor) => factor * power).find((step) => step >= least * 0.999999);
}
