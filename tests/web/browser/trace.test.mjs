// The trace view: records a busy server, shows it, and hands it out as a file for other tools.
import assert from "node:assert/strict";
import { readFile } from "node:fs/promises";
import { after, test } from "node:test";
import { openPage, startBrowser } from "./support/browser.mjs";
import { startSimulated, waitFor } from "./support/server.mjs";

const server = await startSimulated(after);
const browser = await startBrowser(after);

const lanesOf = (events) => new Set(events.filter(({ ph, name }) => ph === "M" && name === "thread_name").map(({ args }) => args.name));

test("a trace is recorded, shown and downloaded, and the file opens again", async (t) => {
  const load = server.load({ concurrency: 16 });
  t.after(() => load.stop());
  await waitFor(() => server.metric("gapless_running_requests"), "requests");
  const page = await openPage(t, browser, `${server.url}/#trace`);
  await page.getByLabel("Seconds").fill("1");
  await page.getByRole("button", { name: "Record" }).click();
  await page.getByRole("heading", { name: "Longest gaps" }).waitFor();
  await page.getByRole("cell", { name: "compose" }).first().waitFor();
  await page.getByRole("button", { name: "All of the trace" }).click();

  const download = page.waitForEvent("download");
  await page.getByRole("button", { name: "Download for Perfetto" }).click();
  const file = await (await download).path();
  const { traceEvents } = JSON.parse(await readFile(file, "utf8"));
  for (const lane of ["scheduler", "device"]) assert.ok([...lanesOf(traceEvents)].some((name) => name.includes(lane)), lane);
  const spans = traceEvents.filter(({ ph }) => ph === "X");
  assert.ok(spans.some(({ name }) => name === "decode"));
  assert.ok(spans.every(({ ts, dur }) => ts >= 0 && dur >= 0));

  const other = await openPage(t, browser, `${server.url}/#trace`);
  const chooser = other.waitForEvent("filechooser");
  await other.getByRole("button", { name: "Open a file" }).click();
  await (await chooser).setFiles(file);
  await other.getByRole("cell", { name: "compose" }).first().waitFor();
});

test("recording stops when it is told to", async (t) => {
  const page = await openPage(t, browser, `${server.url}/#trace`);
  await page.getByLabel("Seconds").fill("60");
  await page.getByRole("button", { name: "Record" }).click();
  await page.getByRole("progressbar", { name: "Recording" }).waitFor();
  await page.getByRole("button", { name: "Cancel" }).click();
  await page.getByRole("button", { name: "Record" }).waitFor();
  assert.equal(await page.getByRole("alert").count(), 0, "a cancelled recording is no error");
});
