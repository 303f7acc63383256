// Light, dark, or as the system has it. `data-theme` on <html> always says which of the two it is now.
import { keep, recall } from "./storage.js";

const KEY = "gapless.theme";
const CHOICES = ["auto", "light", "dark"];
const system = matchMedia("(prefers-color-scheme: dark)");

let choice = CHOICES.includes(recall(KEY)) ? recall(KEY) : CHOICES[0];

function apply() {
  document.documentElement.dataset.theme = choice === "auto" ? (system.matches ? "dark" : "light") : choice;
  window.dispatchEvent(new Event("gapless-theme")); // canvases draw anew
}

export const themeChoice = () => choice;

export function chooseTheme(to) {
  choice = to;
  keep(KEY, to);
  apply();
}

system.addEventListener("change", apply);
apply();
