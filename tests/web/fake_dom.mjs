// As much of a document as the page's modules need to build elements. Whatever would read HTML is not there.
class FakeNode {
  parentNode = null;

  remove() {
    if (!this.parentNode) return;
    this.parentNode.childNodes.splice(this.#place(), 1);
    this.parentNode = null;
  }

  replaceWith(node) {
    node.remove();
    node.parentNode = this.parentNode;
    this.parentNode.childNodes.splice(this.#place(), 1, node);
    this.parentNode = null;
  }

  isEqualNode(other) { return this.nodeName === other.nodeName && this.html === other.html; }
  #place() { return this.parentNode.childNodes.indexOf(this); }
}

class FakeText extends FakeNode {
  nodeName = "#text";

  constructor(text) {
    super();
    this.data = text;
  }

  get textContent() { return this.data; }
  get html() { return this.data.replaceAll("&", "&amp;").replaceAll("<", "&lt;"); }
  cloneNode() { return new FakeText(this.data); }
}

class FakeElement extends FakeNode {
  attributes = {};
  childNodes = [];

  constructor(tag) {
    super();
    this.tag = tag;
    this.nodeName = tag;
  }

  cloneNode() {
    const clone = new FakeElement(this.tag);
    Object.assign(clone.attributes, this.attributes);
    return clone;
  }

  setAttribute(name, value) { this.attributes[name] = String(value); }
  addEventListener() {}

  append(...nodes) {
    for (const node of nodes) {
      const child = node instanceof FakeNode ? node : new FakeText(String(node));
      child.remove();
      child.parentNode = this;
      this.childNodes.push(child);
    }
  }

  replaceChildren(...nodes) {
    for (const child of [...this.childNodes]) child.remove();
    this.append(...nodes);
  }

  querySelector(tag) {
    for (const child of this.childNodes) {
      const found = child.tag === tag ? child : child.querySelector?.(tag);
      if (found) return found;
    }
    return null;
  }

  get textContent() { return this.childNodes.map((child) => child.textContent).join(""); }
  set textContent(text) { this.replaceChildren(text); }

  get inner() {
    let html = "";
    let words = "";
    for (const child of this.childNodes) {
      if (child instanceof FakeText) words += child.html;
      else {
        html += words + child.html;
        words = "";
      }
    }
    return html + words;
  }

  get html() {
    const attributes = Object.entries(this.attributes).map(([name, value]) => ` ${name}="${value}"`).join("");
    return `<${this.tag}${attributes}>${this.inner}</${this.tag}>`;
  }
}

export function installFakeDocument() {
  globalThis.document = { createElement: (tag) => new FakeElement(tag) };
}
