// Markdown on the screen, also while it grows. Elements are built one by one, never from HTML text, and only those
// named here: nothing that a model writes can become a script, a form or a picture from elsewhere.
import { copyText, el } from "./dom.js";
import { parseBlocks } from "./markdown_blocks.js";
import { parseInline } from "./markdown_inline.js";

const CODE_LINES = 50; // of one piece of code that is laid out by itself

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
    const final = this.#settle();
    const blocks = parseBlocks(text.slice(this.#settled), growing);
    const fresh = [...final.map((block) => blockElement(block, false)), ...blocks.map((block) => blockElement(block, growing))];
    this.#open = become(this.#root, this.#open, fresh).slice(final.length);
  }

  #restart() {
    this.#root.replaceChildren();
    this.#settled = 0;
    this.#open = [];
  }

  // Of the whole lines all blocks but the last are final now.
  #settle() {
    const lines = this.#text.slice(this.#settled, this.#text.lastIndexOf("\n") + 1);
    const blocks = parseBlocks(lines);
    const last = blocks.pop();
    if (blocks.length) this.#settled += last.start;
    return blocks;
  }
}

// Makes the children `old` of `parent` like `fresh`, and returns those that are there then. What is the same stays: it
// keeps what is selected in it, its buttons, and its place; only what is new is laid out.
function become(parent, old, fresh) {
  const now = fresh.map((node, i) => {
    const there = old[i];
    if (!there) parent.append(node);
    else if (there.isEqualNode(node)) return there;
    else if (there.nodeName === "#text" && node.nodeName === "#text") there.data = node.data;
    else if (there.cloneNode(false).isEqualNode(node.cloneNode(false))) become(there, [...there.childNodes], [...node.childNodes]);
    else there.replaceWith(node);
    return node.parentNode === parent ? node : there;
  });
  for (const node of old.slice(fresh.length)) node.remove();
  return now;
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
  const code = el("code", {}, ...piecesOf(text).map((piece) => el("span", {}, piece)));
  const copy = el("button", { type: "button", class: "plain", onclick: () => copyCode(copy, code) }, "Copy");
  return el("div", { class: "code" }, el("div", { class: "code-head" }, el("span", {}, lang || "text"), copy),
    el("pre", { tabindex: "0", "aria-label": "Code" }, code));
}

function piecesOf(text) {
  const lines = text.split(/(?<=\n)/);
  const pieces = [];
  for (let i = 0; i < lines.length; i += CODE_LINES) pieces.push(lines.slice(i, i + CODE_LINES).join(""));
  return pieces;
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
