// Colours of the style sheet, for canvases. They are read again when the theme changes.

let style = null;
const known = new Map();
const kindColors = new Map();
const listeners = new Set();

window.addEventListener("gapless-theme", () => {
  style = null;
  known.clear();
  kindColors.clear();
  for (const listener of listeners) listener();
});

// The value of a custom property such as '--muted'.
export function color(property) {
  if (!known.has(property)) {
    style ??= getComputedStyle(document.documentElement);
    known.set(property, style.getPropertyValue(property).trim());
  }
  return known.get(property);
}

// A kind of span's colour: its own, or the one for all others.
export function spanColor(kind) {
  if (!kindColors.has(kind)) kindColors.set(kind, color(`--span-${kind.replaceAll("_", "-")}`) || color("--span-other"));
  return kindColors.get(kind);
}

export function onThemeChange(listener) {
  listeners.add(listener);
}
