// As much of a document as the page's modules need to build elements. Whatever would read HTML is not there.
class FakeNode {
  parent = null;

  remove() {
    if (!this.parent) return;
    this.parent.children.splice(this.parent.children.indexOf(this), 1);
    this.parent = null;
  }
}

class FakeText extends FakeNode {
  constructor(text) {
    super();
    this.textContent = text;
  }

  get html() {
    return this.textContent.replaceAll("&", "&amp;").replaceAll("<", "&lt;");
  }
}

class FakeElement extends FakeNode {
  attributes = {};
  dataset = {};
  children = [];

  constructor(tag) {
    super();
    this.tag = tag;
  }

  setAttribute(name, value) { this.attributes[name] = String(value); }
  addEventListener() {}

  append(...nodes) {
    for (const node of nodes) {
      const child = node instanceof FakeNode ? node : new FakeText(String(node));
      child.remove();
      child.parent = this;
      this.children.push(child);
    }
  }

  replaceChildren(...nodes) {
    for (const child of [...this.children]) child.remove();
    this.append(...nodes);
  }

  querySelector(tag) {
    for (const child of this.children) {
      const found = child.tag === tag ? child : child.querySelector?.(tag);
      if (found) return found;
    }
    return null;
  }

  get textContent() { return this.children.map((child) => child.textContent).join(""); }
  set textContent(text) { this.replaceChildren(text); }

  get inner() {
    let html = "";
    let words = "";
    for (const child of this.children) {
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
