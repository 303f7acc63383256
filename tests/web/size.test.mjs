// What a browser has to read before the chat is there. The other views are read when they are first shown.
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";

const folder = new URL("../../src/server/web/", import.meta.url);
const MAX_BYTES = 150 * 1024;

// `name` and all that it imports, to `seen`: name -> bytes.
function follow(name, seen) {
  if (seen.has(name)) return;
  const text = readFileSync(new URL(name, folder), "utf8");
  seen.set(name, Buffer.byteLength(text));
  for (const [, other] of text.matchAll(/^(?:import|export) [^;]*?from "\.\/([^"]+)"/gm)) follow(other, seen);
}

test("the chat is there after 150 KB", () => {
  const seen = new Map();
  const page = readFileSync(new URL("index.html", folder), "utf8");
  for (const [, name] of page.matchAll(/(?:href|src)="ui\/([^"]+)"/g)) follow(name, seen);
  follow("chat.js", seen);
  assert.ok(seen.has("chat_thread.js") && seen.has("base.css"), "imports are followed");
  assert.ok(!seen.has("live.js") && !seen.has("trace.js"), "the other views are read later");
  const bytes = [...seen.values()].reduce((sum, size) => sum + size, page.length);
  assert.ok(bytes < MAX_BYTES, `${bytes} bytes: ${JSON.stringify(Object.fromEntries(seen))}`);
});
