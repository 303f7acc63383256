// Building elements without HTML text: what users and models write can never become markup.

// el('button', {class: 'icon', type: 'button', onclick: f, 'aria-label': 'Close', hidden: false}, 'text', node, null)
// Functions become listeners, true an empty attribute; false, null and undefined leave the attribute out.
export function el(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (typeof value === "function") element.addEventListener(name.slice(2), value);
    else if (value !== false && value != null) element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children.filter((child) => child != null && child !== false));
  return element;
}

// The icons are pictures in the style sheet (base.css), drawn in the colour of the text.
export function iconButton(icon, label, onclick, attributes = {}) {
  return el("button", { type: "button", class: `icon icon-${icon}`, "aria-label": label, title: label, onclick, ...attributes });
}

// Hands a text to the browser as a file to keep.
export function saveFile(name, text, type = "application/json") {
  const url = URL.createObjectURL(new Blob([text], { type }));
  el("a", { href: url, download: name }).click();
  setTimeout(() => URL.revokeObjectURL(url), 10_000);
}

// Whether it worked: browsers refuse it to pages that were not served by https or from this machine.
export async function copyText(text) {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    return false;
  }
}
