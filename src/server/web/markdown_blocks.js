// The blocks of a markdown text: what models write of CommonMark and GitHub's tables. No HTML, no link definitions,
// no indented code: nothing that comes later changes what a block was, so that a growing text can be drawn piece by
// piece (markdown.js). One pass over the lines; nesting is limited.
//
// {type: 'paragraph' | 'heading', text, level} {type: 'code', lang, text} {type: 'rule'} {type: 'quote', children}
// {type: 'list', ordered, first, loose, items: [{children}]} {type: 'table', align, head, rows}; `start` is where it
// begins in the text. Texts inside are for markdown_inline.js.
const MAX_DEPTH = 12;
const MAX_COLUMNS = 64;

// What ends with [^]* takes all that is left and never goes back: no line can cost more than its length.
const FENCE = /^( {0,3})(`{3,}|~{3,})([^]*)$/;
const HEADING = /^ {0,3}(#{1,6})(?: +([^]*))?$/;
const RULE = /^ {0,3}([-*_])(?: *\1){2,} *$/;
const QUOTE = /^ {0,3}> ?([^]*)$/;
const ITEM = /^( *)([-*+]|\d{1,9}[.)])(?:( +)([^]*)|)$/;
const DIVIDER = /^:?-+:?$/;
// The beginning of something that the next token decides: it is held back while the text grows.
const UNDECIDED = /(?:^|\n)[ >]*(?:[-*+_=#|:`~ ]{1,3}|\d{1,3}[.)]?)$/;

// growing: more text will come.
export function parseBlocks(text, growing = false) {
  const shown = growing ? text.replace(UNDECIDED, "") : text;
  const lines = shown.split("\n").map((line) => line.replace(/^[ \t]+/, spaces).replace(/\r$/, ""));
  const blocks = new Parser(lines, 0, growing).blocks();
  let at = 0;
  const starts = text.split("\n").map((line) => (at += line.length + 1) - line.length - 1);
  for (const block of blocks) block.start = starts[block.line];
  return blocks;
}

function spaces(indent) {
  return indent.replaceAll("\t", "    ");
}

const indentOf = (line) => line.length - line.trimStart().length;
const isBlank = (line) => line.trim() === "";

function fenceOf(line) {
  const fence = FENCE.exec(line);
  return fence?.[3].includes("`") ? null : fence;
}

function cellsOf(line) {
  const inner = line.trim().replace(/^\|/, "").replace(/(?<!\\)\|$/, "");
  return inner.split(/(?<!\\)\|/, MAX_COLUMNS).map((cell) => cell.trim().replaceAll("\\|", "|"));
}

function alignOf(cell) {
  if (cell.endsWith(":")) return cell.startsWith(":") ? "center" : "right";
  return "";
}

class Parser {
  constructor(lines, depth, growing) {
    this.lines = lines;
    this.depth = depth;
    this.growing = growing;
    this.at = 0;
  }

  blocks() {
    const out = [];
    while (this.at < this.lines.length) {
      const line = this.at;
      if (isBlank(this.lines[line])) this.at++;
      else out.push({ ...this.block(), line });
    }
    return out;
  }

  block() {
    return this.code() ?? this.heading() ?? this.rule() ?? this.quote() ?? this.list() ?? this.table() ?? this.paragraph();
  }

  // Whether line i begins something else than a paragraph.
  interrupts(i) {
    const line = this.lines[i];
    return fenceOf(line) !== null || HEADING.test(line) || RULE.test(line) || QUOTE.test(line) || this.isItem(line) || this.isTable(i);
  }

  isItem(line) {
    const item = ITEM.exec(line);
    return item !== null && item[1].length < 4 && (item[4] ?? "") !== "";
  }

  nested(lines) {
    if (this.depth >= MAX_DEPTH) return [{ type: "paragraph", text: lines.join("\n") }];
    return new Parser(lines, this.depth + 1, this.growing).blocks();
  }

  code() {
    const fence = fenceOf(this.lines[this.at]);
    if (!fence) return null;
    const [, indent, marks, info] = fence;
    const body = [];
    for (this.at++; this.at < this.lines.length; this.at++) {
      const line = this.lines[this.at];
      const end = line.trim();
      if (indentOf(line) < 4 && end.length >= marks.length && end === marks[0].repeat(end.length)) {
        this.at++;
        break;
      }
      body.push(line.slice(Math.min(indent.length, indentOf(line))));
    }
    return { type: "code", lang: info.trim().split(/\s/)[0], text: body.join("\n") };
  }

  heading() {
    const heading = HEADING.exec(this.lines[this.at]);
    if (!heading) return null;
    this.at++;
    return { type: "heading", level: heading[1].length, text: (heading[2] ?? "").replace(/(?:^| )#+ *$/, "").trim() };
  }

  rule() {
    if (!RULE.test(this.lines[this.at])) return null;
    this.at++;
    return { type: "rule" };
  }

  quote() {
    const lines = [];
    for (let quote; this.at < this.lines.length && (quote = QUOTE.exec(this.lines[this.at])); this.at++) lines.push(quote[1]);
    return lines.length ? { type: "quote", children: this.nested(lines) } : null;
  }

  list() {
    const first = ITEM.exec(this.lines[this.at]);
    if (!first || first[1].length > 3) return null;
    const ordered = /\d/.test(first[2]);
    const items = [];
    let loose = false;
    for (let item = first; item; item = this.nextItem(first)) {
      const lines = this.itemLines(item);
      loose ||= lines.some(isBlank) || (items.length > 0 && isBlank(this.lines[this.itemStart - 1]));
      items.push({ children: this.nested(lines) });
    }
    return { type: "list", ordered, first: ordered ? parseInt(first[2], 10) : 1, loose, items };
  }

  // The next item of the list that `first` began, past empty lines. null: the list ends here.
  nextItem(first) {
    let i = this.at;
    while (i < this.lines.length && isBlank(this.lines[i])) i++;
    const item = i < this.lines.length ? ITEM.exec(this.lines[i]) : null;
    if (!item || item[1].length > 3 || item[2].at(-1) !== first[2].at(-1) || RULE.test(this.lines[i])) return null;
    this.at = i;
    return item;
  }

  // Models indent what belongs to an item by less than CommonMark asks for: two spaces will do.
  itemLines([, indent, marker, gap, text]) {
    const width = indent.length + marker.length + (gap && gap.length < 5 ? gap.length : 1);
    const lines = [text ?? ""];
    this.itemStart = this.at++;
    while (this.at < this.lines.length) {
      let end = this.at;
      while (end < this.lines.length && isBlank(this.lines[end])) end++;
      if (end === this.lines.length) break;
      const line = this.lines[end];
      const inside = indentOf(line) >= Math.min(width, indent.length + 2);
      const lazy = end === this.at && !this.interrupts(end) && !ITEM.test(line);
      if (!inside && !lazy) break;
      for (; this.at < end; this.at++) lines.push("");
      lines.push(line.slice(Math.min(width, indentOf(line))));
      this.at++;
    }
    return lines;
  }

  isTable(i) {
    const line = this.lines[i];
    if (!line.includes("|")) return false;
    const next = this.lines[i + 1];
    const head = cellsOf(line);
    // While it grows, a head is taken for a table's before its second line has come.
    if (this.growing && i + 2 >= this.lines.length && line.trim().startsWith("|") && /^[ |:-]*$/.test(next ?? "")) return head.length > 1;
    if (!next?.includes("-")) return false;
    const divider = cellsOf(next);
    return divider.length === head.length && divider.every((cell) => DIVIDER.test(cell));
  }

  table() {
    if (!this.isTable(this.at)) return null;
    const head = cellsOf(this.lines[this.at]);
    const divider = cellsOf(this.lines[this.at + 1] ?? "");
    const align = head.map((_, i) => alignOf(divider[i] ?? ""));
    const rows = [];
    for (this.at += 2; this.at < this.lines.length; this.at++) {
      const line = this.lines[this.at];
      if (!line.includes("|")) break;
      const cells = cellsOf(line);
      rows.push(head.map((_, i) => cells[i] ?? ""));
    }
    return { type: "table", align, head, rows };
  }

  paragraph() {
    const lines = [this.lines[this.at++].trimStart()];
    while (this.at < this.lines.length && !isBlank(this.lines[this.at]) && !this.interrupts(this.at))
      lines.push(this.lines[this.at++].trimStart());
    return { type: "paragraph", text: lines.join("\n").trimEnd() };
  }
}
