// Every view as everybody must be able to use it: by keyboard, on a phone, light and dark, with a reader of screens.
import assert from "node:assert/strict";
import { after, test } from "node:test";
import { assertAccessible } from "./support/axe.mjs";
import { DESKTOP, NARROWEST, openPage, PHONE, startBrowser } from "./support/browser.mjs";
import { assertFits, assertKeyboardReaches } from "./support/keyboard.mjs";
import { startSimulated } from "./support/server.mjs";
import { showEachView } from "./support/tour.mjs";

const server = await startSimulated(after);
const browser = await startBrowser(after);
const load = server.load({ concurrency: 24 });
after(() => load.stop());

const STILL = { reducedMotion: "reduce" };

for (const [size, viewport] of Object.entries({ desktop: DESKTOP, phone: PHONE })) {
  for (const colorScheme of ["light", "dark"]) {
    test(`axe finds nothing to say about any view: ${size}, ${colorScheme}`, async (t) => {
      const page = await openPage(t, browser, server.url, { ...STILL, viewport, colorScheme, hasTouch: size === "phone" });
      await showEachView(page, (what) => assertAccessible(page, what));
    });
  }
}

for (const [size, viewport] of Object.entries({ desktop: DESKTOP, phone: PHONE })) {
  test(`the Tab key reaches every control of every view: ${size}`, async (t) => {
    const page = await openPage(t, browser, server.url, { ...STILL, viewport });
    await showEachView(page, (what) => assertKeyboardReaches(page, what));
  });
}

test("nothing is wider than the smallest phone", async (t) => {
  const page = await openPage(t, browser, server.url, { ...STILL, viewport: NARROWEST, hasTouch: true });
  await showEachView(page, (what) => assertFits(page, what));
});

test("whoever wants no motion gets none", async (t) => {
  const page = await openPage(t, browser, server.url, STILL);
  await showEachView(page, async (what) => {
    const moving = await page.evaluate(() => document.getAnimations()
      .filter((animation) => animation.playState === "running" && animation.effect.getComputedTiming().duration > 1).length);
    assert.equal(moving, 0, what);
  });
});
