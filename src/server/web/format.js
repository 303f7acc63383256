// Numbers as people read them. Pure functions; a narrow space keeps a number and its unit on one line.

const SPACE = "\u202f";

// Three digits in a unit that fits, from microseconds.
export function timeText(us) {
  if (us === 0) return "0";
  if (us < 1000) return `${us.toFixed(us < 10 ? 2 : us < 100 ? 1 : 0)}${SPACE}µs`;
  if (us < 1e6) return `${(us / 1e3).toFixed(us < 1e4 ? 2 : us < 1e5 ? 1 : 0)}${SPACE}ms`;
  return `${(us / 1e6).toFixed(2)}${SPACE}s`;
}

// 1234567 -> "1 234 567".
export function countText(n) {
  return String(Math.round(n)).replace(/\B(?=(\d{3})+$)/g, SPACE);
}

// A rate: whole above 10, one digit below.
export function rateText(perSecond) {
  return perSecond >= 10 || perSecond === 0 ? countText(perSecond) : perSecond.toFixed(1);
}

// A share of 1. Never rounded to 100 % or to 0 % when it is neither.
export function percentText(share, digits = 1) {
  if (share <= 0) return `0${SPACE}%`;
  if (share >= 1) return `100${SPACE}%`;
  const least = 10 ** -digits;
  const percent = Math.min(100 - least, Math.max(least, share * 100));
  return `${percent.toFixed(digits)}${SPACE}%`;
}

// An age in seconds: "4.2 s", "3 min 20 s".
export function ageText(seconds) {
  if (seconds < 100) return `${seconds.toFixed(1)}${SPACE}s`;
  if (seconds < 3600) return `${Math.floor(seconds / 60)}${SPACE}min ${Math.floor(seconds % 60)}${SPACE}s`;
  return `${Math.floor(seconds / 3600)}${SPACE}h ${Math.floor((seconds % 3600) / 60)}${SPACE}min`;
}

// Bytes in powers of 1024.
export function bytesText(bytes) {
  if (bytes < 1024) return `${bytes}${SPACE}B`;
  if (bytes < 1024 ** 2) return `${(bytes / 1024).toFixed(1)}${SPACE}KiB`;
  return `${(bytes / 1024 ** 2).toFixed(1)}${SPACE}MiB`;
}

export function plural(n, word) {
  return `${countText(n)} ${word}${n === 1 ? "" : "s"}`;
}
