// Markdown on the screen, also while it grows. Elements are built one by one, never from HTML text, and only those
// named here: nothing that a model writes can become a script, a form or a picture from elsewhere.
import { copyText, el } from "./dom.js";
import { parseBlocks } from "./markdown_blocks.js";
import { parseInline } from "./markdown_inline.js";

export class MarkdownView {
  #root;
  #text = "";
  #settled = 0; // up to here blocks are final: they are drawn once
  #open = []; // the elements behind that

  constructor(root) {
    this.#root = root;
  }

  // text: all of it, mostly what was there before and more. growing: more will come.
  update(text, growing = false) {
    if (!text.startsWith(this.#text)) this.#restart();
    this.#text = text;
    this.#settle();
    const blocks = parseBlocks(text.slice(this.#settled), growing);
    if (this.#extendCode(blocks)) return;
    for (const element of this.#open) element.remove();
    this.#open = blocks.map((block) => blockElement(block, growing));
    this.#root.append(...this.#open);
  }

  #restart() {
    this.#root.replaceChildren();
    this.#settled = 0;
    this.#open = [];
  }

  // Of the whole lines all blocks but the last are final.
  #settle() {
    const lines = this.#text.slice(this.#settled, this.#text.lastIndexOf("\n") + 1);
    const blocks = parseBlocks(lines);
    if (blocks.length < 2) return;
    for (const element of this.#open) element.remove();
    this.#open = [];
    this.#root.append(...blocks.slice(0, -1).map((block) => blockElement(block, false)));
    this.#settled += blocks.at(-1).start;
  }

  // A long piece of code grows without being built anew: its button stays, and what is selected.
  #extendCode(blocks) {
    const [block] = blocks, [element] = this.#open;
    if (blocks.length !== 1 || this.#open.length !== 1 || block.type !== "code" || element.dataset.lang !== block.lang) return false;
    element.querySelector("code").textContent = block.text;
    return true;
  }
}

function blockElement(block, growing) {
  switch (block.type) {
    case "code": return codeElement(block);
    case "heading": return el(`h${Math.min(6, block.level + 1)}`, { class: `h${block.level}` }, ...inline(block.text, growing));
    case "rule": return el("hr");
    case "quote": return el("blockquote", {}, ...block.children.map((child) => blockElement(child, growing)));
    case "list": return listElement(block, growing);
    case "table": return tableElement(block, growing);
    default: return el("p", {}, ...inline(block.text, growing));
  }
}

function codeElement({ lang, text }) {
  const code = el("code", {}, text);
  const copy = el("button", { type: "button", class: "plain", onclick: () => copyCode(copy, code) }, "Copy");
  const element = el("div", { class: "code" }, el("div", { class: "code-head" }, el("span", {}, lang || "text"), copy),
    el("pre", { tabindex: "0", "aria-label": "Code" }, code));
  element.dataset.lang = lang;
  return element;
}

async function copyCode(button, code) {
  button.textContent = await copyText(code.textContent) ? "Copied" : "Not allowed here";
  setTimeout(() => { button.textContent = "Copy"; }, 1500);
}

function listElement({ ordered, first, loose, items }, growing) {
  const list = el(ordered ? "ol" : "ul", ordered && first !== 1 ? { start: first } : {});
  for (const { children } of items) list.append(el("li", {}, ...children.flatMap((child) => itemContent(child, loose, growing))));
  return list;
}

function itemContent(child, loose, growing) {
  if (child.type === "paragraph" && !loose) return inline(child.text, growing);
  return [blockElement(child, growing)];
}

function tableElement({ align, head, rows }, growing) {
  const row = (tag, cells) => el("tr", {}, ...cells.map((cell, i) => el(tag, { class: align[i] || null }, ...inline(cell, growing))));
  const table = el("table", {}, el("thead", {}, row("th", head)), el("tbody", {}, ...rows.map((cells) => row("td", cells))));
  return el("div", { class: "table", tabindex: "0", role: "group", "aria-label": "Table" }, table);
}

function inline(text, growing) {
  return parseInline(text, growing).map(inlineElement);
}

function inlineElement(node) {
  if (typeof node === "string") return node;
  const children = () => node.children.map(inlineElement);
  switch (node.type) {
    case "break": return el("br");
    case "code": return el("code", {}, node.text);
    case "link":
      if (!node.href) return el("span", {}, ...children());
      return el("a", { href: node.href, target: "_blank", rel: "noopener noreferrer" }, ...children());
    default: return el(node.type, {}, ...children());
  }
}
