// The chat before a real model: what people do with it in a day.
import assert from "node:assert/strict";
import { readFile } from "node:fs/promises";
import { after, test } from "node:test";
import { openPage, startBrowser } from "./support/browser.mjs";
import { startServer, waitFor } from "./support/server.mjs";

const server = await startServer(after);
const browser = await startBrowser(after);

const LONG = "Tell me a very long story about a lighthouse and the people in it.";
const SHORT = "Name a colour.";

const openChat = (t, options) => openPage(t, browser, server.url, { permissions: ["clipboard-read", "clipboard-write"], ...options });
const answers = (page) => page.getByRole("article", { name: "Answer" });
const composer = (page) => page.getByRole("textbox", { name: "Message", exact: true });

async function send(page, text) {
  await composer(page).fill(text);
  await page.keyboard.press("Enter");
}

const ended = (answer) => answer.getByText(/^(stop|length|stopped)$/).waitFor();

// Sends a message and returns the whole answer that came.
async function ask(page, text) {
  const before = await answers(page).count();
  await send(page, text);
  const answer = answers(page).nth(before);
  await ended(answer);
  return answer;
}

// Until some words are on the screen and more are to come.
const growing = (page) => waitFor(() => page.evaluate(() => {
  const text = [...document.querySelectorAll("article")].at(-1)?.textContent ?? "";
  return document.querySelector("button[aria-label=Stop]") && text.trim().length > 20;
}), "an answer that grows");

// Chats that are not about length: the same short answers each time.
async function settle(page, { maxTokens = 16 } = {}) {
  const open = page.getByRole("button", { name: "Settings of this chat" });
  await open.click();
  await page.getByRole("textbox", { name: "Temperature" }).fill("0");
  await page.getByRole("textbox", { name: "Max tokens" }).fill(String(maxTokens));
  await page.getByRole("button", { name: "Close the settings" }).click();
}

// What the copy button gives: the answer as the model wrote it.
async function copied(page, answer) {
  await answer.getByRole("button", { name: "Copy", exact: true }).last().click(); // those before are of its code
  await page.getByText("Copied").first().waitFor();
  return page.evaluate(() => navigator.clipboard.readText());
}

test("an answer says how fast it was and what was cached", async (t) => {
  const page = await openChat(t);
  await settle(page);
  const first = await ask(page, LONG);
  await first.getByText(/^[\d,.]+ tok\/s$/).waitFor();
  await first.getByText(/^first token [\d,]+ ms$/).waitFor();
  const second = await ask(page, SHORT);
  const [, cached] = /\(([\d,]+) cached\)/.exec(await second.textContent());
  assert.ok(Number(cached.replace(",", "")) > 0, "the first turn's tokens are in the cache");
});

test("an answer streams in; Stop ends it here and in the server, and what came stays", async (t) => {
  const page = await openChat(t);
  await settle(page, { maxTokens: 4000 });
  const aborted = () => server.metric('gapless_requests_total{reason="abort"}');
  const before = await aborted();
  await send(page, LONG);
  await growing(page);
  await page.getByRole("button", { name: "Stop" }).click();
  await answers(page).last().getByText("stopped", { exact: true }).waitFor();
  assert.ok((await copied(page, answers(page).last())).length > 0);
  await waitFor(async () => await aborted() === before + 1, "the abort in the server's numbers");
  await waitFor(async () => await server.metric("gapless_running_requests") === 0, "an idle server");
});

test("a reload brings the chats back", async (t) => {
  const page = await openChat(t);
  await settle(page);
  const text = await copied(page, await ask(page, SHORT));
  await page.reload();
  const name = page.getByRole("complementary", { name: "Chats" }).getByRole("button", { name: SHORT, exact: true });
  await name.click();
  assert.equal(await copied(page, answers(page).first()), text);
});

test("an edited message is answered anew, and an answer can be tried again", async (t) => {
  const page = await openChat(t);
  await settle(page);
  await ask(page, SHORT);
  await ask(page, "Name another.");
  const mine = page.getByRole("article", { name: "You" }).first();
  await mine.hover();
  await mine.getByRole("button", { name: "Edit" }).click();
  await mine.getByRole("textbox", { name: "Your message" }).fill("Name a river.");
  await mine.getByRole("button", { name: "Send again" }).click();
  await waitFor(async () => await answers(page).count() === 1, "one answer: what followed the edited message is gone");
  await ended(answers(page).first());
  assert.match(await mine.textContent(), /Name a river\./);
  const finished = () => server.metric("gapless_requests_total");
  const before = await finished();
  await answers(page).first().hover();
  await answers(page).first().getByRole("button", { name: "Try again" }).click();
  await waitFor(async () => await finished() === before + 1, "another request");
  await ended(answers(page).first());
  assert.equal(await answers(page).count(), 1);
});

test("chats leave as a file and come back from it", async (t) => {
  const page = await openChat(t);
  await settle(page);
  const text = await copied(page, await ask(page, SHORT));
  const chats = page.getByRole("complementary", { name: "Chats" });
  const download = page.waitForEvent("download");
  await chats.getByRole("button", { name: "Export" }).click();
  const file = await (await download).path();
  const { conversations } = JSON.parse(await readFile(file, "utf8"));
  assert.deepEqual(conversations[0].messages.map(({ content }) => content), [SHORT, text]);

  const other = await openChat(t);
  await other.getByLabel("File with chats").setInputFiles(file);
  await other.getByText("1 chat imported").waitFor();
  await other.getByRole("button", { name: SHORT, exact: true }).click();
  assert.equal(await copied(other, answers(other).first()), text);

  await other.getByLabel("File with chats").setInputFiles({ name: "broken.json", mimeType: "application/json", buffer: Buffer.from("{") });
  await other.getByRole("alert").getByText("not JSON").waitFor();
});

test("a JSON schema is followed, and a wrong one is said where it stands", async (t) => {
  const page = await openChat(t, { allowed: [/status of 400/] });
  await settle(page, { maxTokens: 100 });
  await page.getByRole("button", { name: "Settings of this chat" }).click();
  const field = page.getByRole("textbox", { name: "JSON schema of the answer" });
  await field.fill("{");
  await page.getByRole("alert").getByText("not JSON").waitFor();
  const properties = { city: { type: "string", maxLength: 20 }, people: { type: "integer", minimum: 0, maximum: 9999 } };
  const schema = { type: "object", properties, required: Object.keys(properties), additionalProperties: false };
  await field.fill(JSON.stringify(schema));
  const answer = JSON.parse(await copied(page, await ask(page, "Describe a city.")));
  assert.equal(typeof answer.city, "string");
  assert.ok(Number.isInteger(answer.people));
  // A schema that only the server can refuse.
  await field.fill('{"type": "nothing"}');
  await send(page, SHORT);
  await page.getByRole("alert").getByText(/response_format|schema|type/).first().waitFor();
});

const HOSTILE = [
  "<script>window.hostile = 1</script>",
  "<img src=x onerror='window.hostile = 2'>",
  "<svg onload='window.hostile = 3'></svg><iframe srcdoc='<script>parent.hostile = 4</script>'></iframe>",
  "[a link](javascript:window.hostile=5) <javascript:window.hostile=6> [b](JaVaScRiPt&colon;window.hostile=7)",
  "[c]( data:text/html,<script>window.hostile=8</script>)",
  "![picture](https://example.com/track.png) ![p](x\" onerror=\"window.hostile=9)",
  "```html\"onmouseover=\"window.hostile=10\n</code></pre><script>window.hostile = 11</script>\n```",
  "| <b onclick='window.hostile=12'>x</b> |\n|---|\n| [d](vbscript:window.hostile=13) |",
  "</textarea></div><details open ontoggle='window.hostile=14'>x</details>",
].join("\n\n");

test("what a model or a file says can never run in the page", async (t) => {
  const page = await openChat(t);
  page.on("dialog", (dialog) => assert.fail(dialog.message()));
  const conversation = { title: HOSTILE, named: true, settings: { system: HOSTILE, stop: HOSTILE },
    messages: [{ role: "user", content: HOSTILE },
      { role: "assistant", content: HOSTILE, reasoning: HOSTILE, finish: HOSTILE, stats: { rate: HOSTILE } }] };
  const file = JSON.stringify({ format: "gapless-chats", version: 1, conversations: [conversation] });
  await page.getByLabel("File with chats").setInputFiles({ name: "chats.json", mimeType: "application/json", buffer: Buffer.from(file) });
  await page.getByText("1 chat imported").waitFor();
  await page.getByRole("complementary", { name: "Chats" }).getByRole("button", { name: /^<script>/ }).click();
  const answer = answers(page).first();
  await answer.getByText("window.hostile = 11").last().waitFor();
  for (const link of await answer.getByRole("link").all()) {
    assert.match(await link.getAttribute("href"), /^https?:|^mailto:/);
  }
  const elements = await answer.evaluate((element) => element.querySelectorAll("script, iframe, img, svg, object, embed, style, form").length);
  assert.equal(elements, 0, "nothing but text was made of it");
  const attributes = await page.evaluate(() => [...document.querySelectorAll("*")].flatMap((element) => element.getAttributeNames()));
  assert.deepEqual(attributes.filter((name) => name.startsWith("on")), []);
  assert.equal(await page.evaluate(() => window.hostile), undefined);
});

test("a server that dies is said so, the chats stay, and it goes on when the server is back", async (t) => {
  const page = await openChat(t, { allowed: [/net::ERR_/] });
  await settle(page, { maxTokens: 4000 });
  await ask(page, SHORT);
  await send(page, LONG);
  await growing(page);
  await server.kill();
  await page.getByText("The server cannot be reached").first().waitFor();
  await page.getByRole("button", { name: "server down" }).waitFor();
  await answers(page).last().getByRole("alert").waitFor();
  await server.start();
  await page.reload();
  await page.getByRole("complementary", { name: "Chats" }).getByRole("button", { name: SHORT, exact: true }).click();
  assert.equal(await answers(page).count(), 2);
  await answers(page).last().getByRole("button", { name: "Try again" }).last().click();
  await growing(page);
  await page.getByRole("button", { name: "Stop" }).click();
  await ended(answers(page).last());
});

test("the page finds out by itself that the server is back", async (t) => {
  const page = await openChat(t, { allowed: [/net::ERR_/] });
  await settle(page);
  await ask(page, SHORT);
  await server.kill();
  await page.getByRole("button", { name: "server down" }).waitFor();
  await server.start();
  await page.getByRole("button", { name: "server down" }).waitFor({ state: "hidden" });
  await ask(page, SHORT);
});
