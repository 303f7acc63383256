// The figures of the trace view: they are what `gapless trace` says of the same file.
import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { after, test } from "node:test";
import { DESKTOP, NARROWEST, openPage, PHONE, startBrowser } from "./support/browser.mjs";
import { startSimulated, waitFor } from "./support/server.mjs";

const BINARY = process.env.GAPLESS_BINARY ?? "build/release/gapless";
const server = await startSimulated(after);
const browser = await startBrowser(after);

const open = (t) => openPage(t, browser, `${server.url}/#trace`);
const choose = (page, name, text) => page.getByLabel("Trace file").setInputFiles({ name, mimeType: "application/json", buffer: Buffer.from(text) });
const figure = (page, heading) => page.locator("section").filter({ has: page.getByRole("heading", { name: heading, exact: true }) })
  .last().locator("p").first();

function underLoad(t) {
  const load = server.load({ concurrency: 16 });
  t.after(() => load.stop());
  return waitFor(() => server.metric("gapless_running_requests"), "requests");
}

// A device that steps ten times, each step 1 ms long, with 0.25 ms of nothing before the last.
function smallTrace() {
  const thread = (tid, name) => ({ ph: "M", name: "thread_name", pid: 1, tid, args: { name, overwritten: 0 } });
  const step = (_, i) => ({ ph: "X", name: "decode", pid: 1, tid: 2, ts: i * 1000 + (i === 9 ? 250 : 0), dur: 1000, args: { batch: 7 + i, rows: 3, tokens: 3 } });
  const process = { ph: "X", name: "process", pid: 1, tid: 1, ts: 9000, dur: 200, args: { batch: 15, rows: 3 } };
  return JSON.stringify({ traceEvents: [thread(1, "scheduler"), thread(2, "device"), process, ...Array.from({ length: 10 }, step)] });
}

test("a recording has the figures that the program gives for it", async (t) => {
  const page = await open(t);
  await underLoad(t);
  await page.getByLabel("Seconds").fill("1");
  await page.getByRole("button", { name: "Record" }).click();
  const [download] = await Promise.all([page.waitForEvent("download"), page.getByRole("button", { name: "Download for Perfetto" }).click()]);
  const report = JSON.parse(execFileSync(BINARY, ["trace", await download.path(), "--json"]));
  assert.ok(report.steps > 0);
  assert.equal((await figure(page, "Steps").textContent()).replace(/\s/g, ""), String(report.steps));
  const spans = page.getByRole("region", { name: "Spans by thread" });
  assert.equal(await spans.locator("tbody tr").count(), report.phases.length);
});

test("a saved file is opened, and its gap is found and shown", async (t) => {
  const page = await open(t);
  await choose(page, "small.json", smallTrace());
  await page.getByRole("heading", { name: "Device busy" }).waitFor();
  assert.match(await figure(page, "Device busy").textContent(), /^97\.56/);
  const gaps = page.getByRole("region", { name: "Longest gaps" });
  await gaps.getByText("decode 15, decode 16").waitFor();
  await gaps.getByText("scheduler: process 80 %").waitFor();
  await page.getByRole("button", { name: "All" }).click();
  const steps = page.getByRole("region", { name: "Steps that the picture shows" });
  await steps.getByText("250").waitFor();
  await gaps.getByRole("button", { name: "Show the gap of 250" }).click();
  await steps.locator("tbody").getByText("8", { exact: true }).waitFor({ state: "detached" });
  await steps.getByText("250").waitFor();
});

test("what the host did in a gap and the button that shows it are in sight, on a desk and on a phone", async (t) => {
  for (const viewport of [DESKTOP, PHONE, NARROWEST]) {
    const page = await openPage(t, browser, `${server.url}/#trace`, { viewport });
    await choose(page, "small.json", smallTrace());
    const gaps = page.getByRole("region", { name: "Longest gaps" });
    const box = await gaps.boundingBox();
    for (const part of [gaps.getByText("scheduler: process 80 %"), gaps.getByRole("button", { name: "Show the gap of 250" })]) {
      const { x, width } = await part.boundingBox();
      assert.ok(x >= box.x && x + width <= box.x + box.width, `${x} + ${width} in ${JSON.stringify(box)} at ${viewport.width}`);
    }
  }
});

test("the keyboard walks from span to span and says what each is", async (t) => {
  const page = await open(t);
  await choose(page, "small.json", smallTrace());
  await page.getByRole("button", { name: "All" }).click();
  const lanes = page.getByLabel(/^The trace/);
  await lanes.focus();
  await lanes.press("ArrowRight");
  await page.getByText("device: decode", { exact: true }).waitFor();
  const batch = async () => Number(/batch (\d+)/.exec(await page.getByText(/batch \d+ · rows 3/).textContent())[1]);
  const first = await batch();
  await lanes.press("ArrowRight");
  assert.equal(await batch(), first + 1);
  await lanes.press("ArrowUp");
  await page.getByText("scheduler: process", { exact: true }).waitFor();
  await lanes.press("Escape");
  await page.getByText("scheduler: process", { exact: true }).waitFor({ state: "hidden" });
});

test("what is no trace is refused, and what was shown stays", async (t) => {
  const page = await open(t);
  await choose(page, "small.json", smallTrace());
  await page.getByRole("heading", { name: "Device busy" }).waitFor();
  await choose(page, "notes.json", "dear diary");
  await page.getByRole("alert").getByText("it begins with 'dear diary'").waitFor();
  assert.match(await figure(page, "Device busy").textContent(), /^97\.56/);
});
