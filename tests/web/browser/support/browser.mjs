// Chromium and what every page in it is watched for: an error or a warning in the console, and a request to another host.
import assert from "node:assert/strict";
import { createRequire } from "node:module";
import { join } from "node:path";

const require = createRequire(join(process.env.GAPLESS_WEB_NODE, "package.json"));
const { chromium } = require("playwright-core");

export const DESKTOP = { width: 1280, height: 800 };
export const PHONE = { width: 390, height: 844 };
export const NARROWEST = { width: 360, height: 640 };

const PATIENCE = 60_000; // ms; a busy machine is slow, which is no failure

// One for a file of tests, closed with it.
export async function startBrowser(after) {
  const browser = await chromium.launch({
    executablePath: process.env.GAPLESS_CHROMIUM,
    // Nothing that Chromium asks for by itself (updates, safe browsing, field trials).
    args: ["--disable-background-networking", "--disable-component-update", "--disable-domain-reliability", "--no-pings"],
  });
  after(() => browser.close());
  return browser;
}

// A page in a profile of its own. `allowed`: patterns of console messages that the test brings about (a 401, a server that is down).
// The test fails at its end if the page said anything else or asked another host than the server's.
export async function openPage(t, browser, url, { allowed = [], ...options } = {}) {
  const context = await browser.newContext({ viewport: DESKTOP, acceptDownloads: true, ...options });
  const page = await context.newPage();
  page.setDefaultTimeout(PATIENCE);
  const problems = [];
  const { host } = new URL(url);
  const note = (text) => {
    if (!allowed.some((pattern) => pattern.test(text))) problems.push(text);
  };
  page.on("console", (message) => {
    if (["error", "warning", "assert"].includes(message.type())) note(`console ${message.type()}: ${message.text()} (${message.location().url})`);
  });
  page.on("pageerror", (error) => note(`uncaught: ${error.stack}`));
  context.on("request", (request) => {
    const asked = new URL(request.url());
    if (!["data:", "blob:"].includes(asked.protocol) && asked.host !== host) note(`request to another host: ${request.url()}`);
  });
  t.after(async () => {
    await context.close();
    assert.deepEqual(problems, []);
  });
  await page.goto(url);
  return page;
}
