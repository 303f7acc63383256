// Events of a stream, however the network cuts it.
import assert from "node:assert/strict";
import { test } from "node:test";
import { SseParser } from "../../src/server/web/sse.js";

function parse(...pieces) {
  const parser = new SseParser();
  return pieces.flatMap((piece) => parser.push(piece));
}

const message = (data) => ({ event: "message", data });

test("data, names, several lines of data, comments", () => {
  assert.deepEqual(parse("data: a\n\n: alive\n\nevent: frame\ndata: b\ndata:c\n\n"), [message("a"), { event: "frame", data: "b\nc" }]);
  assert.deepEqual(parse("id: 7\nretry: 1\ndata\n\n"), [message("")]);
  assert.deepEqual(parse("event: lonely\n\ndata: x\n\n"), [message("x")]);
});

test("what is not complete is no event", () => {
  assert.deepEqual(parse("data: a\n"), []);
  assert.deepEqual(parse("data: a"), []);
});

for (const [name, end] of [["LF", "\n"], ["CRLF", "\r\n"], ["CR", "\r"]]) {
  test(`lines end with ${name}, cut anywhere`, () => {
    const text = ["event: e", "data: 1", "data: é 😀", "", ": comment", "data: 2", "", ""].join(end);
    const expected = [{ event: "e", data: "1\né 😀" }, message("2")];
    for (let at = 0; at <= text.length; at++) {
      const events = parse(text.slice(0, at), text.slice(at));
      if (end === "\r") events.push(...parse("data: 2\n\n")); // its last CR may be half of a CRLF: it waits
      assert.deepEqual(events.slice(0, 2), expected, `cut at ${at}`);
    }
    assert.deepEqual(parse(...text, "\n").slice(0, 2), expected, "one by one");
  });
}
