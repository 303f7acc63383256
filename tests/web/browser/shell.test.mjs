// The frame around the views: how it is served, who may use it, its look and its keys.
import assert from "node:assert/strict";
import { createServer } from "node:http";
import { after, test } from "node:test";
import { openPage, PHONE, startBrowser } from "./support/browser.mjs";
import { startProxy } from "./support/proxy.mjs";
import { startSimulated, waitFor } from "./support/server.mjs";
import { showView } from "./support/tour.mjs";

const KEY = "correct horse";
const open = await startSimulated(after);
const locked = await startSimulated(after, ["--api-key", KEY]);
const proxy = await startProxy(after, open.url, "/models/small");
const browser = await startBrowser(after);

const UNAUTHORIZED = /status of 401/;

test("a program that asks for / gets the list of endpoints, a browser the page", async () => {
  const list = await fetch(`${open.url}/`, { headers: { Accept: "application/json" } });
  assert.ok((await list.json()).endpoints.includes("POST /v1/chat/completions"));
  const page = await fetch(`${open.url}/`, { headers: { Accept: "text/html,*/*;q=0.8" } });
  assert.match(page.headers.get("Content-Type"), /^text\/html/);
  assert.match(page.headers.get("Content-Security-Policy"), /default-src 'none'.*script-src 'self'/);
});

test("the page opens with the chat, names the model and tells which view is shown", async (t) => {
  const page = await openPage(t, browser, open.url);
  const views = page.getByRole("navigation", { name: "Views" });
  for (const name of ["Chat", "Live", "Trace"]) {
    await showView(page, name);
    assert.equal(await views.locator("[aria-current=page]").textContent(), name);
  }
  await page.goBack();
  await page.getByRole("region", { name: "Live", exact: true }).waitFor();
  const { id } = (await (await fetch(`${open.url}/v1/models`)).json()).data[0];
  await page.getByRole("button", { name: id }).click();
  await page.getByRole("dialog", { name: "Server" }).getByText("Context").waitFor();
  await page.keyboard.press("Escape");
  await page.getByRole("dialog", { name: "Server" }).waitFor({ state: "hidden" });
});

test("a server with a key asks for it, says that a wrong one is wrong, and keeps the right one", async (t) => {
  const page = await openPage(t, browser, locked.url, { allowed: [UNAUTHORIZED] });
  const dialog = page.getByRole("dialog", { name: "Server" });
  await dialog.getByRole("alert").getByText("asks for an API key").waitFor();
  await dialog.getByLabel("API key").fill("wrong battery");
  await dialog.getByRole("button", { name: "Save" }).click();
  await dialog.getByRole("alert").getByText("does not accept this key").waitFor();
  await dialog.getByLabel("API key").fill(KEY);
  await dialog.getByRole("button", { name: "Save" }).click();
  await dialog.waitFor({ state: "hidden" });
  await page.reload();
  const { id } = (await (await fetch(`${locked.url}/v1/models`, { headers: { Authorization: `Bearer ${KEY}` } })).json()).data[0];
  await page.getByRole("button", { name: id }).waitFor();
  assert.equal(await dialog.isVisible(), false);
  assert.doesNotMatch(locked.log, new RegExp(KEY), "a key is never logged");
});

test("light and dark follow the system until one is chosen", async (t) => {
  const page = await openPage(t, browser, open.url, { colorScheme: "dark" });
  const theme = () => page.evaluate(() => document.documentElement.dataset.theme);
  const background = () => page.evaluate(() => getComputedStyle(document.body).backgroundColor);
  assert.equal(await theme(), "dark");
  const dark = await background();
  await page.emulateMedia({ colorScheme: "light" });
  await waitFor(async () => await theme() === "light", "the light theme");
  assert.notEqual(await background(), dark);
  await page.getByRole("button", { name: ", settings" }).click();
  await page.locator("label").filter({ hasText: "Dark" }).click();
  assert.equal(await theme(), "dark");
  await page.reload();
  assert.equal(await theme(), "dark");
});

test("a view that is opened while the server is away says so, and opens by itself", async (t) => {
  const page = await openPage(t, browser, open.url, { allowed: [/net::ERR_/] });
  await page.getByRole("textbox", { name: "Message", exact: true }).waitFor();
  await page.route("**", (route) => route.abort());
  await page.getByRole("link", { name: "Live" }).click();
  const words = page.getByRole("alert").getByText("opens as soon as the server is back");
  await words.waitFor();
  await page.unroute("**");
  await page.getByText("requests at once").waitFor();
  await words.waitFor({ state: "detached" });
});

test("what is no view leads to the chat", async (t) => {
  const page = await openPage(t, browser, `${open.url}/#constructor`);
  await page.getByRole("textbox", { name: "Message", exact: true }).waitFor();
});

test("Escape closes the chat's settings, and the focus goes in and back", async (t) => {
  const page = await openPage(t, browser, open.url);
  const button = page.getByRole("button", { name: "Settings of this chat" });
  const settings = page.getByRole("complementary", { name: "Settings of this chat" });
  await button.click();
  assert.ok(await settings.evaluate((element) => element.contains(document.activeElement)));
  await page.keyboard.press("Escape");
  await settings.waitFor({ state: "hidden" });
  assert.ok(await button.evaluate((element) => element === document.activeElement));
  await button.click();
  await button.focus();
  await page.keyboard.press("Escape");
  await settings.waitFor({ state: "hidden" });
});

test("a short message takes the place of the one before, and covers no button of a phone's settings", async (t) => {
  const page = await openPage(t, browser, open.url, { viewport: PHONE });
  await page.getByRole("button", { name: "Chats", exact: true }).click();
  for (let i = 0; i < 3; i++) await page.getByRole("button", { name: "Export" }).click();
  assert.equal(await page.getByText("no chat to export").count(), 1);
  await page.getByRole("button", { name: "Close the list" }).click();
  await page.getByRole("button", { name: "Settings of this chat" }).click();
  const boxes = await Promise.all([page.locator(".toast"), page.getByRole("button", { name: "Close the settings" })].map((one) => one.boundingBox()));
  assert.ok(boxes[1].y + boxes[1].height <= boxes[0].y, JSON.stringify(boxes));
});

test("a chat with a simulated device says that its answers are random words", async (t) => {
  const page = await openPage(t, browser, open.url);
  await page.getByText("is a simulated device").waitFor();
});

test("the page works behind a proxy that puts it under a path", async (t) => {
  const page = await openPage(t, browser, `${proxy.url}/models/small/`);
  const { id } = (await (await fetch(`${open.url}/v1/models`)).json()).data[0];
  await page.getByRole("button", { name: id }).waitFor();
  await showView(page, "Live");
  await page.getByText("requests at once").waitFor();
});

// A stranger's page, open in the same browser as people use for this server.
async function strangersPage(t) {
  const stranger = createServer((_, answer) => answer.writeHead(200, { "Content-Type": "text/html" }).end("<!doctype html><title>x</title>"));
  await new Promise((resolve) => stranger.listen(0, "127.0.0.1", resolve));
  t.after(() => stranger.close());
  const context = await browser.newContext();
  t.after(() => context.close());
  const page = await context.newPage();
  await page.goto(`http://localhost:${stranger.address().port}/`);
  return page;
}

test("a page of another origin can neither act on the server nor look at it", async (t) => {
  const page = await strangersPage(t);
  const ask = (path, options) => page.evaluate(async ([url, how]) => {
    try {
      const answer = await fetch(url, how);
      return { status: answer.status, type: answer.type };
    } catch (error) {
      return { status: 0, type: error.name };
    }
  }, [open.url + path, options]);
  const refused = ({ status }, what) => assert.ok(status === 403 || status === 0, `${what}: ${status}`);
  for (const path of ["/live", "/trace", "/trace?seconds=1"]) refused(await ask(path, {}), path);
  const json = { method: "POST", headers: { "Content-Type": "application/json" } };
  refused(await ask("/flush_cache", { ...json, body: "{}" }), "flush_cache");
  refused(await ask("/abort_request", { ...json, body: '{"abort_all": true}' }), "abort_request");
  refused(await ask("/scheduler/loop", { ...json, body: '{"loop": "normal"}' }), "scheduler/loop");
  // Sent without asking the server first, as browsers do with plain text: it arrives, and must change nothing.
  await ask("/scheduler/loop", { method: "POST", mode: "no-cors", body: '{"loop": "normal"}' });
  assert.equal(await open.metric("gapless_overlap_loop"), 1);
  assert.equal(await open.post("/scheduler/loop", { loop: "overlap" }).then(({ loop }) => loop), "overlap");
});
