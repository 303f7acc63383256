// Draws docs/images: every view on a desktop and on a phone, light and dark. Not a test; scripts/screenshots.sh runs it.
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { setTimeout as pause } from "node:timers/promises";
import { PHONE, startBrowser } from "./browser.mjs";
import { startServer } from "./server.mjs";
import { showView } from "./tour.mjs";

const [folder] = process.argv.slice(2);
const LARGEST = 150_000; // bytes of a picture
const SIZES = { desktop: { viewport: { width: 1280, height: 915 } }, phone: { viewport: PHONE, isMobile: true, hasTouch: true } };
const PIXELS = { desktop: 1, phone: 2 }; // for each of CSS
const QUESTIONS = ["Write a haiku about waiting in a queue.", "Explain how a hash table works, with a small example in Python."];
const STRIP_MS = 12_000; // with each loop, so that the strips of the last minute show both
const CALM_MS = 20_000;

const cleanups = [];
const after = (cleanup) => cleanups.unshift(cleanup);

// As WebP, which Playwright's own screenshots cannot be.
async function draw(page, name, scale) {
  const session = await page.context().newCDPSession(page);
  const shown = await page.evaluate(() => ({ x: 0, y: 0, width: window.innerWidth, height: window.innerHeight }));
  const { data } = await session.send("Page.captureScreenshot", {
    format: "webp", quality: 80, captureBeyondViewport: false, clip: { ...shown, scale }, // the page is not laid out anew for it
  });
  const picture = Buffer.from(data, "base64");
  if (picture.length > LARGEST) throw new Error(`${name}: ${picture.length} bytes`);
  writeFileSync(join(folder, `${name}.webp`), picture);
  console.log(`${name}.webp: ${picture.length} bytes`);
}

// show(page, size) on every kind of screen; what it leaves is drawn.
async function eachScreen(browser, url, name, show) {
  for (const [size, options] of Object.entries(SIZES)) {
    for (const colorScheme of ["light", "dark"]) {
      const page = await browser.newPage({ ...options, colorScheme });
      await page.goto(url);
      await show(page, size);
      await draw(page, `${name}-${size}-${colorScheme}`, PIXELS[size]);
      await page.close();
    }
  }
}

async function chat(page) {
  await page.getByRole("button", { name: "Settings of this chat" }).click();
  await page.getByRole("textbox", { name: "Temperature" }).fill("0");
  await page.getByRole("textbox", { name: "Max tokens" }).fill("300");
  await page.getByRole("button", { name: "Close the settings" }).click();
  for (const [i, question] of QUESTIONS.entries()) {
    await page.getByRole("textbox", { name: "Message", exact: true }).fill(question);
    await page.keyboard.press("Enter");
    await page.getByRole("article", { name: "Answer" }).nth(i).getByText(/tok\/s/).waitFor();
  }
}

const live = (server) => async (page, size) => {
  await showView(page, "Live");
  for (const loop of ["normal", "overlap"]) {
    await server.post("/scheduler/loop", { loop });
    await pause(STRIP_MS);
  }
  const number = page.locator("section").filter({ has: page.getByRole("heading", { name: "Device idle between steps" }) }).last();
  if (size === "phone") await number.evaluate((element) => element.scrollIntoView({ block: "start" }));
  // Other programs on this machine make gaps that are not the server's: a moment without them.
  await number.getByText(/^(0|0\.\d+\s\u00b5s)$/).waitFor({ timeout: CALM_MS }).catch(() => console.log("the machine is busy: the gaps are not the server's"));
};

async function trace(page, size) {
  await showView(page, "Trace");
  await page.getByLabel("Seconds").fill("1");
  await page.getByRole("button", { name: "Record" }).click();
  const lanes = page.getByRole("region", { name: "Trace", exact: true }).getByRole("region", { name: "Lanes" });
  await lanes.waitFor();
  await page.getByRole("heading", { name: "Longest gaps" }).waitFor();
  if (size === "phone") await lanes.evaluate((element) => element.scrollIntoView({ block: "start" }));
}

try {
  const browser = await startBrowser(after);
  const real = await startServer(after);
  await eachScreen(browser, real.url, "chat", chat);
  const simulated = await startServer(after, { model: "", flags: ["--device", "sim:h100-llama3-8b"] });
  const load = simulated.load({ concurrency: 24, promptTokens: 300, maxTokens: 200, flags: ["--shared-prefix", "120"] });
  after(() => load.stop());
  await eachScreen(browser, simulated.url, "live", live(simulated));
  await eachScreen(browser, simulated.url, "trace", trace);
} finally {
  for (const cleanup of cleanups) await cleanup();
}
