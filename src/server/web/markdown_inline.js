// What is inside a line of markdown, as a tree: strings and {type: 'strong' | 'em' | 'del' | 'code' | 'link' | 'break',
// children | text, href}. Time is about linear in the text, whatever it holds: models repeat themselves.
const MAX_DELIMITERS = 2000; // of one text; what is beyond stays as it was written
const MAX_DEPTH = 4;

// Spaces are few, so that going back over them costs little.
const LINK = /!?\[((?:[^[\]\\]|\\.)*)\]\(\s{0,4}(<[^<>\n]*>|(?:[^\s()]|\([^\s()]*\))*)(?:\s{1,4}(?:"[^"]*"|'[^']*'))?\s{0,4}\)/y;
const OPEN_LINK = /!?\[((?:[^[\]\\]|\\.)*)\]\([^\s()]*$/y;
const AUTO_LINK = /<(https?:\/\/[^\s<>]+)>/y;
const BARE_LINK = /https?:\/\/[^\s<>"'`]+/y;
const BREAK = /<br ?\/?>/iy;
const ESCAPE = /\\([!"#$%&'*+,\-./:;<=>?@\\^_`{|}~])/y; // brackets keep their stroke: it is how formulas begin
const PUNCTUATION = /[\p{P}\p{S}]/u;

// growing: more text will come; what is open at the end counts as closed there, so that it does not jump when it is.
export function parseInline(text, growing = false, depth = 0) {
  return new Scanner(text, growing, depth).scan();
}

// The address, if it is one that a page may link: http or https.
export function safeUrl(text) {
  const plain = text.startsWith("<") ? text.slice(1, -1) : text;
  if (!/^https?:\/\//i.test(plain)) return null;
  return URL.canParse ? (URL.canParse(plain) ? plain : null) : plain;
}

// Without those of `characters` that it ends with.
function withoutEnd(text, characters) {
  let end = text.length;
  while (end > 0 && characters.includes(text[end - 1])) end--;
  return text.slice(0, end);
}

class Scanner {
  constructor(text, growing, depth) {
    Object.assign(this, { text, growing, depth, at: 0, plain: "", nodes: [], delimiters: 0, missing: new Set(),
      noLink: 0 }); // noLink: no address begins before here
  }

  scan() {
    while (this.at < this.text.length) {
      if (!this.special(this.text[this.at])) this.plain += this.text[this.at++];
    }
    this.flush();
    return withoutDelimiters(pairUp(this.nodes, this.growing));
  }

  special(c) {
    switch (c) {
      case "\\": return this.escape();
      case "`": return this.code();
      case "!": case "[": return this.link();
      case "<": return this.angle();
      case "h": return this.bareLink();
      case "\n": return this.newline();
      case "*": case "_": case "~": return this.delimiter(c);
      default: return false;
    }
  }

  match(pattern) {
    pattern.lastIndex = this.at;
    return pattern.exec(this.text);
  }

  flush() {
    if (this.plain) this.nodes.push(this.plain);
    this.plain = "";
  }

  push(node, length) {
    this.flush();
    this.nodes.push(node);
    this.at += length;
    return true;
  }

  escape() {
    const found = this.match(ESCAPE);
    if (found) {
      this.plain += found[1];
      this.at += 2;
      return true;
    }
    return this.text[this.at + 1] === "\n" ? this.push({ type: "break" }, 2) : false;
  }

  code() {
    const marks = /`+/y;
    const run = this.match(marks)[0];
    const end = this.missing.has(run.length) ? -1 : this.closing(run);
    if (end < 0 && !(this.growing && this.at + run.length < this.text.length)) {
      this.missing.add(run.length);
      this.plain += run;
      this.at += run.length;
      return true;
    }
    const inner = this.text.slice(this.at + run.length, end < 0 ? undefined : end).replaceAll("\n", " ");
    const padded = inner.startsWith(" ") && inner.endsWith(" ") && /[^ ]/.test(inner);
    const text = padded ? inner.slice(1, -1) : inner;
    return this.push({ type: "code", text }, end < 0 ? this.text.length - this.at : end + run.length - this.at);
  }

  // Where the next run of exactly as many marks begins.
  closing(run) {
    let i = this.at + run.length;
    while ((i = this.text.indexOf(run, i)) >= 0) {
      let length = run.length;
      while (this.text[i + length] === "`") length++;
      if (length === run.length) return i;
      i += length;
    }
    return -1;
  }

  link() {
    if (this.depth >= MAX_DEPTH) return false;
    const found = this.match(LINK) ?? (this.growing ? this.match(OPEN_LINK) : null);
    if (!found) return false;
    const label = parseInline(found[1], this.growing, MAX_DEPTH); // no links in links
    const href = safeUrl(found[2] ?? "");
    if (!href && found[2]) return false; // shown as it was written: it leads nowhere
    return this.push({ type: "link", href, children: label.length ? label : [found[2] ?? ""] }, found[0].length);
  }

  angle() {
    const line = this.match(BREAK);
    if (line) return this.push({ type: "break" }, line[0].length);
    const found = this.match(AUTO_LINK);
    return found ? this.push({ type: "link", href: safeUrl(found[1]), children: [found[1]] }, found[0].length) : false;
  }

  bareLink() {
    if (this.depth >= MAX_DEPTH || this.at < this.noLink || /\w/.test(this.text[this.at - 1] ?? "")) return false;
    const found = this.match(BARE_LINK);
    if (!found) return false;
    let url = withoutEnd(found[0], ".,:;!?*_~");
    if (url.endsWith(")") && !url.includes("(")) url = withoutEnd(url, ")");
    const href = safeUrl(url);
    if (!href) this.noLink = this.at + found[0].length;
    return href ? this.push({ type: "link", href, children: [url] }, url.length) : false;
  }

  newline() {
    this.plain = withoutEnd(this.plain, " ");
    return this.push({ type: "break" }, 1);
  }

  delimiter(c) {
    let length = 1;
    while (this.text[this.at + length] === c) length++;
    const before = this.text[this.at - 1] ?? " ", after = this.text[this.at + length] ?? " ";
    if ((c === "~" && length !== 2) || ++this.delimiters > MAX_DELIMITERS) {
      this.plain += c.repeat(length);
      this.at += length;
      return true;
    }
    if (this.growing && this.at + length === this.text.length && length < 4 && /\s/.test(before)) return this.push("", length);
    const left = !/\s/.test(after) && (!PUNCTUATION.test(after) || /\s/.test(before) || PUNCTUATION.test(before));
    const right = !/\s/.test(before) && (!PUNCTUATION.test(before) || /\s/.test(after) || PUNCTUATION.test(after));
    const opens = left && (c !== "_" || !right || PUNCTUATION.test(before));
    const closes = right && (c !== "_" || !left || PUNCTUATION.test(after));
    return this.push({ type: "delimiter", c, length, size: length, opens, closes, apart: !/\w/.test(before) }, length);
  }
}

// Delimiters become strong, em and del, as CommonMark pairs them.
function pairUp(nodes, growing) {
  const out = [], open = []; // open: places in `out`
  const bottom = {}; // where the search for an opener has failed before
  for (const node of nodes) {
    if (node.type === "delimiter" && node.closes) closeWith(node, out, open, bottom);
    if (node.type === "delimiter" && node.length === 0) continue;
    if (node.type === "delimiter" && node.opens) open.push(out.length);
    out.push(node);
  }
  while (growing && open.length) {
    const at = open.pop();
    if (out[at].apart && out[at].length <= 3 && at + 1 < out.length) wrap(out, at, Math.min(2, out[at].length));
  }
  return out;
}

function closeWith(closer, out, open, bottom) {
  while (closer.length > 0) {
    const key = `${closer.c}${closer.opens}${closer.size % 3}`;
    let i = open.length - 1;
    while (i >= (bottom[key] ?? 0) && !pairs(out[open[i]], closer)) i--;
    if (i < (bottom[key] ?? 0)) {
      bottom[key] = open.length;
      return;
    }
    const at = open[i];
    const used = closer.length >= 2 && out[at].length >= 2 ? 2 : 1;
    wrap(out, at, used);
    closer.length -= used;
    open.length = out[at].type === "delimiter" ? i + 1 : i;
    for (const name of Object.keys(bottom)) bottom[name] = Math.min(bottom[name], open.length);
  }
}

function pairs(opener, closer) {
  if (opener.c !== closer.c || opener.length === 0) return false;
  const odd = (opener.closes || closer.opens) && (opener.size + closer.size) % 3 === 0;
  return !odd || (opener.size % 3 === 0 && closer.size % 3 === 0);
}

// All behind the delimiter at `at` goes into a node; `used` of its marks are spent.
function wrap(out, at, used) {
  const opener = out[at];
  const type = opener.c === "~" ? "del" : used === 2 ? "strong" : "em";
  const node = { type, children: out.splice(at + 1) };
  opener.length -= used;
  if (opener.length > 0) out.push(node);
  else out[at] = node;
}

function withoutDelimiters(nodes) {
  return nodes.filter((node) => node !== "").map((node) => {
    if (node.type === "delimiter") return node.c.repeat(node.length);
    return node.children && node.type !== "link" ? { ...node, children: withoutDelimiters(node.children) } : node;
  });
}
