// Draws docs/images: every view on a desktop and on a phone, light and dark. Run by scripts/screenshots.sh.
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { DESKTOP, PHONE, startBrowser } from "./browser.mjs";
import { startServer, startSimulated, waitFor } from "./server.mjs";
import { showView } from "./tour.mjs";

const [folder] = process.argv.slice(2);
const LARGEST = 150_000; // bytes of a picture
const QUESTION = "Explain in a few words why the sky is blue.";
const SIZES = { desktop: { viewport: DESKTOP }, phone: { viewport: PHONE, deviceScaleFactor: 2, isMobile: true, hasTouch: true } };

const ends = [];
const after = (end) => ends.push(end);

// As WebP, which Playwright's own screenshots cannot be.
async function draw(page, name) {
  const session = await page.context().newCDPSession(page);
  const { data } = await session.send("Page.captureScreenshot", { format: "webp", quality: 82 });
  const picture = Buffer.from(data, "base64");
  if (picture.length > LARGEST) throw new Error(`${name}: ${picture.length} bytes`);
  writeFileSync(join(folder, `${name}.webp`), picture);
  console.log(`${name}: ${picture.length} bytes`);
}

async function chat(page) {
  await page.getByRole("textbox", { name: "Message", exact: true }).fill(QUESTION);
  await page.keyboard.press("Enter");
  await page.getByRole("article", { name: "Answer" }).getByText(/tok\/s/).waitFor();
}

// Under load for long enough that the strips have something in them, with both loops.
async function live(page) {
  await showView(page, "Live");
  await page.getByText(/\d+ running/).waitFor();
}

async function trace(page) {
  await showView(page, "Trace");
}

async function pictures(browser, url, views) {
  for (const [size, options] of Object.entries(SIZES)) {
    for (const colorScheme of ["light", "dark"]) {
      const page = await browser.newPage({ ...options, colorScheme });
      await page.goto(url);
      for (const [name, show] of Object.entries(views)) {
        await show(page);
        await draw(page, `${name}-${size}-${colorScheme}`);
      }
      await page.close();
    }
  }
}

try {
  const browser = await startBrowser(after);
  const real = await startServer(after);
  await pictures(browser, real.url, { chat });
  const simulated = await startSimulated(after);
  const load = simulated.load({ concurrency: 48, promptTokens: 128, maxTokens: 400 });
  after(() => load.stop());
  await waitFor(() => simulated.metric("gapless_running_requests"), "requests");
  await pictures(browser, simulated.url, { live, trace });
} finally {
  for (const end of ends.reverse()) await end();
}
