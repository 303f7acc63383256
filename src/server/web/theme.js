// Light, dark, or as the system has it. `data-theme` on <html> always says which of the two it is now.
const KEY = "gapless.theme";
const system = matchMedia("(prefers-color-scheme: dark)");

function stored() {
  try {
    return localStorage.getItem(KEY) ?? "auto";
  } catch {
    return "auto";
  }
}

let choice = stored();

function apply() {
  document.documentElement.dataset.theme = choice === "auto" ? (system.matches ? "dark" : "light") : choice;
  window.dispatchEvent(new Event("gapless-theme")); // canvases draw anew
}

export const themeChoice = () => choice;

export function chooseTheme(to) {
  choice = to;
  try {
    localStorage.setItem(KEY, to);
  } catch {
    // Storage is switched off: the choice holds until the page is left.
  }
  apply();
}

system.addEventListener("change", apply);
apply();
