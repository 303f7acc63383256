// How the server hands out the page.
import assert from "node:assert/strict";
import { after, test } from "node:test";
import { startSimulated } from "./support/server.mjs";

const server = await startSimulated(after);

test("a program that asks for / gets the list of endpoints", async () => {
  const answer = await fetch(`${server.url}/`, { headers: { Accept: "application/json" } });
  assert.equal(answer.status, 200);
  assert.ok((await answer.json()).endpoints.includes("POST /v1/chat/completions"));
});
