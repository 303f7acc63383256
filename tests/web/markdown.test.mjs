// What markdown becomes on the screen, that nothing in it can become anything else, and that a growing text ends up
// as the same elements as the whole.
import assert from "node:assert/strict";
import { test } from "node:test";

import { installFakeDocument } from "./fake_dom.mjs";

installFakeDocument();
const { MarkdownView } = await import("../../src/server/web/markdown.js");
const { el } = await import("../../src/server/web/dom.js");

function html(text, growing = false) {
  const root = el("div");
  new MarkdownView(root).update(text, growing);
  return root.inner;
}

const LINK = ' target="_blank" rel="noopener noreferrer"';

const CASES = [
  ["plain", "<p>plain</p>"],
  ["one\ntwo", "<p>one<br></br>two</p>"],
  ["one\n\ntwo", "<p>one</p><p>two</p>"],
  ["**bold** and *it* and ~~gone~~", "<p><strong>bold</strong> and <em>it</em> and <del>gone</del></p>"],
  ["***both***", "<p><em><strong>both</strong></em></p>"],
  ["**a *b* c**", "<p><strong>a <em>b</em> c</strong></p>"],
  ["snake_case_name and 2 * 3 * 4", "<p>snake_case_name and 2 * 3 * 4</p>"],
  ["_it_ __bold__", "<p><em>it</em> <strong>bold</strong></p>"],
  ["`a < b` and ``x`y``", "<p><code>a &lt; b</code> and <code>x`y</code></p>"],
  ["a ` b", "<p>a ` b</p>"],
  ["\\*not\\* \\[x\\]", "<p>*not* \\[x\\]</p>"],
  ["# One", '<h2 class="h1">One</h2>'],
  ["#### Four ##", '<h5 class="h4">Four</h5>'],
  ["#nothing", "<p>#nothing</p>"],
  ["a\n# b", '<p>a</p><h2 class="h1">b</h2>'],
  ["---", "<hr></hr>"],
  ["> a\n> **b**", "<blockquote><p>a<br></br><strong>b</strong></p></blockquote>"],
  ["> > deep", "<blockquote><blockquote><p>deep</p></blockquote></blockquote>"],
  ["- a\n- b", "<ul><li>a</li><li>b</li></ul>"],
  ["text\n- a", "<p>text</p><ul><li>a</li></ul>"],
  ["3. a\n4. b", '<ol start="3"><li>a</li><li>b</li></ol>'],
  ["- a\n  - b\n  - c\n- d", "<ul><li>a<ul><li>b</li><li>c</li></ul></li><li>d</li></ul>"],
  ["1. a\n  - b\n2. c", "<ol><li>a<ul><li>b</li></ul></li><li>c</li></ol>"],
  ["- a\n\n- b", "<ul><li><p>a</p></li><li><p>b</p></li></ul>"],
  ["- a\nlazy\n\nafter", "<ul><li>a<br></br>lazy</li></ul><p>after</p>"],
  ["- a\n* b", "<ul><li>a</li></ul><ul><li>b</li></ul>"],
  ["[name](https://a.example/x_(y))", `<p><a href="https://a.example/x_(y)"${LINK}>name</a></p>`],
  ['[**b**](http://a.example "title")', `<p><a href="http://a.example"${LINK}><strong>b</strong></a></p>`],
  ["see https://a.example/b_c.", `<p>see <a href="https://a.example/b_c"${LINK}>https://a.example/b_c</a>.</p>`],
  ["<https://a.example>", `<p><a href="https://a.example"${LINK}>https://a.example</a></p>`],
  ["![alt](https://a.example/i.png)", `<p><a href="https://a.example/i.png"${LINK}>alt</a></p>`],
  ["| a | b |\n|---|:-:|\n| 1 | `2` |", '<div class="table" tabindex="0" role="group" aria-label="Table"><table><thead><tr><th>a</th>' +
    '<th class="center">b</th></tr></thead><tbody><tr><td>1</td><td class="center"><code>2</code></td></tr></tbody></table></div>'],
  ["a | b\nno table", "<p>a | b<br></br>no table</p>"],
];

for (const [text, expected] of CASES) test(`markdown: ${JSON.stringify(text)}`, () => assert.equal(html(text), expected));

test("code keeps every character and names its language", () => {
  const root = el("div");
  new MarkdownView(root).update("```js title\nif (a < b) {\n\n  **x**\n}\n```\nafter");
  assert.equal(root.querySelector("code").textContent, "if (a < b) {\n\n  **x**\n}");
  assert.equal(root.querySelector("span").textContent, "js");
  assert.ok(root.inner.endsWith("<p>after</p>"));
});

test("long code is the same text in several pieces", () => {
  const text = Array.from({ length: 120 }, (_, i) => `line ${i}`).join("\n");
  const root = el("div");
  new MarkdownView(root).update(`~~~\n${text}\n~~~`);
  assert.equal(root.querySelector("code").textContent, text);
  assert.equal(root.querySelector("code").childNodes.length, 3);
});

test("code in a list item, and code that nobody closed", () => {
  const root = el("div");
  new MarkdownView(root).update("1. do:\n   ```sh\n   ls\n     -l\n   ```\n2. ~~~\nopen");
  assert.equal(root.querySelector("code").textContent, "ls\n  -l");
  assert.match(root.inner, /<code>/);
});

const HOSTILE = [
  "<script>alert(1)</script>", "<img src=x onerror=alert(1)>", "[x](javascript:alert(1))", "[x](JaVaScRiPt:alert(1))",
  "[x](data:text/html,<script>alert(1)</script>)", "[x](vbscript:x)", "<javascript:alert(1)>", "[x](//evil.example)",
  "![x](javascript:alert(1))", "[x](<javascript:alert(1)>)", '```"><script>\n<script>alert(1)</script>\n```',
  "| <script> | b |\n|---|---|\n| <img src=x onerror=alert(1)> | [a](javascript:x) |", '[a](https://x"onmouseover="alert(1))',
  "[x](\tjavascript:alert(1))", "[x](java\nscript:alert(1))", "# <svg onload=alert(1)>", '> <iframe src="https://evil.example">',
];
const TAGS = new Set([..."p br strong em del code pre h2 h3 h4 h5 h6 hr blockquote ul ol li a span div".split(" "),
  ..."table thead tbody tr th td button".split(" ")]);
const ATTRIBUTES = new Set("href target rel class start type tabindex role aria-label".split(" "));

function check(node) {
  if (node.tag === undefined) return;
  assert.ok(TAGS.has(node.tag), node.tag);
  for (const name of Object.keys(node.attributes)) assert.ok(ATTRIBUTES.has(name), name);
  if ("href" in node.attributes) {
    assert.match(new URL(node.attributes.href).protocol, /^https?:$/);
    assert.equal(node.attributes.rel, "noopener noreferrer");
  }
  node.childNodes.forEach(check);
}

for (const text of HOSTILE) {
  for (const growing of [false, true]) {
    test(`nothing but text, known elements and http links: ${JSON.stringify(text)} ${growing}`, () => {
      const root = el("div");
      new MarkdownView(root).update(text, growing);
      root.childNodes.forEach(check);
    });
  }
}

const PIECES = ["word", " ", " ", "\n", "\n", "\n\n", "**", "*", "_", "`", "```", "```js\n", "~~~", "# ", "- ", "1. ", "  ", "    ", "> ", "|",
  "|---|---|\n", "| a | b |\n", "[", "](", "https://a.example", ")", "~~", "\\", "<", ">", "---\n", "é😀", "\t", "\r\n"];

function randomText(random) {
  return Array.from({ length: 1 + Math.floor(random() * 40) }, () => PIECES[Math.floor(random() * PIECES.length)]).join("");
}

// mulberry32
function randomFrom(seed) {
  return () => {
    seed = (seed + 0x6D2B79F5) | 0;
    let t = Math.imul(seed ^ (seed >>> 15), 1 | seed);
    t = (t + Math.imul(t ^ (t >>> 7), 61 | t)) ^ t;
    return ((t ^ (t >>> 14)) >>> 0) / 2 ** 32;
  };
}

function grown(text, random) {
  const root = el("div");
  const view = new MarkdownView(root);
  for (let end = 0; end < text.length; end += 1 + Math.floor(random() * 6)) {
    view.update(text.slice(0, end), true);
    root.childNodes.forEach(check);
  }
  view.update(text);
  return root.inner;
}

test("a text that grew ends up as the same elements as the whole", () => {
  const seed = Number(process.env.GAPLESS_SEED ?? Date.now() % 1e9);
  console.log(`seed ${seed} (GAPLESS_SEED)`);
  const random = randomFrom(seed);
  const texts = [...CASES.map(([text]) => text), ...HOSTILE, ...Array.from({ length: 300 }, () => randomText(random))];
  for (const text of texts) assert.equal(grown(text, random), html(text), `seed ${seed}: ${JSON.stringify(text)}`);
});

test("what is the same stays in place while a text grows", () => {
  const root = el("div");
  const view = new MarkdownView(root);
  view.update("- one\n- two", true);
  const [list] = root.childNodes, [one] = list.childNodes;
  view.update("- one\n- two and a half\n- three\n\n```js\nf(", true);
  assert.equal(root.childNodes[0], list);
  assert.equal(list.childNodes[0], one);
  const code = root.querySelector("code"), button = root.querySelector("button");
  view.update("- one\n- two and a half\n- three\n\n```js\nf();\ng();\n```\nafter");
  assert.equal(root.querySelector("code"), code);
  assert.equal(root.querySelector("button"), button);
  assert.equal(code.textContent, "f();\ng();");
});

test("a text that is replaced is drawn anew", () => {
  const root = el("div");
  const view = new MarkdownView(root);
  view.update("one\n\ntwo\n\nthree", true);
  view.update("# other");
  assert.equal(root.inner, html("# other"));
});

test("what is open while it grows is drawn as if it were closed", () => {
  assert.equal(html("so **bold", true), "<p>so <strong>bold</strong></p>");
  assert.equal(html("so **", true), "<p>so </p>");
  assert.equal(html("run `ls -l", true), "<p>run <code>ls -l</code></p>");
  assert.equal(html("see [name](https://a.ex", true), "<p>see <span>name</span></p>");
  assert.equal(html("text\n- ", true), "<p>text</p>");
  assert.match(html("| a | b |", true), /<th>a<\/th><th>b<\/th>/);
  assert.equal(html("f(a*b, c", true), "<p>f(a*b, c</p>");
});

// Models that repeat themselves must not make the page stand still.
const REPEATED = ["*", "**a", "[", "[a](", "`", "``a`", "> ", "- ", "_a", "<", "|", "~~", "\\", "![", "1. ", "  - a\n", "#", "https://", "| a ", "* a *"];
for (const piece of REPEATED) {
  test(`time is no more than about linear in ${JSON.stringify(piece)}`, () => {
    const once = (text) => {
      const start = performance.now();
      html(text);
      return performance.now() - start;
    };
    // The best of three: the machine may be busy.
    const time = (n) => Math.min(...[1, 2, 3].map(() => once(piece.repeat(n))));
    time(2000);
    const small = Math.max(4, time(1000)), large = time(16000);
    assert.ok(large < 80 * small, `${small} ms, sixteen times as much: ${large} ms`);
  });
}

// One long run inside of something that is never closed as it began: there is much to go back over.
const LONG_RUNS = {
  "a link's spaces": (n) => `[x](${" ".repeat(n)}y`,
  "a title's spaces": (n) => `[x](a${" ".repeat(n)}y`,
  "an address and dots": (n) => `https://a${".".repeat(n)}/x`,
  "an address and brackets": (n) => `https://a${")".repeat(n)}/x`,
  "addresses that are none": (n) => "https://[".repeat(n / 9),
  "an open mark of code": (n) => `\`${" x".repeat(n / 2)}`,
  "code that begins with a space": (n) => `\`${" x".repeat(n / 2)}\``,
  "a fence that is none": (n) => `${"~".repeat(n)}\``,
  "spaces before a word": (n) => `a${" ".repeat(n)}b\nc`,
  "a heading's spaces": (n) => `# ${" ".repeat(n)}\u2028x`,
  "an item's spaces": (n) => `- ${" ".repeat(n)}\u2028x`,
};
for (const [name, text] of Object.entries(LONG_RUNS)) {
  test(`twice as long does not take four times as long: ${name}`, () => {
    const once = (n) => {
      const start = performance.now();
      for (const growing of [false, true]) html(text(n), growing);
      return performance.now() - start;
    };
    const time = (n) => Math.min(...[1, 2, 3].map(() => once(n)));
    const small = Math.max(20, time(10_000)), large = time(20_000); // linear, both are less than 20 ms
    assert.ok(large < 3 * small, `${small} ms, twice as much: ${large} ms`);
  });
}
