// Draws docs/images/live-light.png and live-dark.png: the live view of a simulated H100 with 24 streams, some seconds after both
// loops have run. Not a test; scripts/draw_live.sh runs it.
import { setTimeout as pause } from "node:timers/promises";
import { startBrowser } from "./support/browser.mjs";
import { startServer } from "./support/server.mjs";

const SIZE = { width: 1280, height: 915 };
const cleanups = [];
const after = (cleanup) => cleanups.unshift(cleanup);

async function draw(browser, server, colorScheme) {
  const context = await browser.newContext({ viewport: SIZE, colorScheme });
  const page = await context.newPage();
  await page.goto(`${server.url}/#live`);
  for (const loop of ["normal", "overlap"]) {
    await server.post("/scheduler/loop", { loop });
    await pause(6000);
  }
  await page.screenshot({ path: `docs/images/live-${colorScheme}.png` });
  await context.close();
}

try {
  const server = await startServer(after, { model: "", flags: ["--device", "sim:h100-llama3-8b"] });
  const browser = await startBrowser(after);
  const load = server.load({ concurrency: 24, promptTokens: 300, maxTokens: 200, flags: ["--shared-prefix", "120"] });
  after(() => load.stop());
  for (const colorScheme of ["light", "dark"]) await draw(browser, server, colorScheme);
} finally {
  for (const cleanup of cleanups) await cleanup();
}
