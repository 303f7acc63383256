// The live view before a simulated accelerator, whose steps show plainly what the host costs.
import assert from "node:assert/strict";
import { after, test } from "node:test";
import { openPage, PHONE, startBrowser } from "./support/browser.mjs";
import { startSimulated, waitFor } from "./support/server.mjs";
import { showView } from "./support/tour.mjs";

const server = await startSimulated(after);
const browser = await startBrowser(after);

const section = (page, heading) => page.locator("section").filter({ has: page.getByRole("heading", { name: heading, exact: true }) }).last();

// A figure as it is written: "12.3 µs", "1 234", "98.5 %". Times are in microseconds; null: none yet.
function numberIn(text) {
  const [, number, unit] = /^([\d\s.]+?)\s*(µs|ms|s|%)?$/.exec(text.trim()) ?? [];
  if (number === undefined) return null;
  return Number(number.replace(/\s/g, "")) * ({ ms: 1e3, s: 1e6 }[unit] ?? 1);
}

const bigNumber = async (page, heading) => numberIn(await section(page, heading).locator("p").first().textContent());

function watch(t, page, options) {
  const load = server.load(options);
  t.after(() => load.stop());
  return waitFor(() => bigNumber(page, "Generated tokens per second"), "generated tokens on the page");
}

test("an idle server says that nothing runs and offers load", async (t) => {
  const page = await openPage(t, browser, `${server.url}/#live`);
  await page.getByText("Nothing runs").waitFor();
  await page.getByRole("button", { name: "Start some load" }).click();
  await page.getByRole("button", { name: "Stop", exact: true }).waitFor();
  await waitFor(() => server.metric("gapless_running_requests"), "requests of the load generator");
  await waitFor(() => bigNumber(page, "Generated tokens per second"), "generated tokens on the page");
  const panel = page.getByRole("region", { name: "Load generator" });
  await panel.getByText(/\d+ s left/).waitFor();
  await page.getByRole("button", { name: "Stop", exact: true }).click();
  await page.getByRole("button", { name: "Start load" }).waitFor();
  await panel.getByText(/^Ended after \d+ s\.$/).waitFor();
  await waitFor(async () => await server.metric("gapless_running_requests") === 0, "an idle server");
  const answers = await panel.getByText(/^answers$/).count();
  assert.equal(answers, 1, "the results stay after the end");
});

test("a load ends by itself when its time is over, and says so", async (t) => {
  const page = await openPage(t, browser, `${server.url}/#live`);
  const panel = page.getByRole("region", { name: "Load generator" });
  await panel.getByText("Settings").click();
  await panel.getByLabel("Stop after, s").fill("1");
  await panel.getByText(/for 1 s$/).waitFor();
  await page.getByRole("button", { name: "Start load" }).click();
  await panel.getByText(/^Ended after \d+ s\.$/).waitFor();
  await panel.getByText("tokens/s, mean of the run").waitFor();
});

test("a load that does not fit is refused in words; Stop ends a load whose server is silent", async (t) => {
  const page = await openPage(t, browser, `${server.url}/#live`);
  await page.getByText("requests at once").waitFor();
  const panel = page.getByRole("region", { name: "Load generator" });
  await panel.getByText("Settings").click();
  await panel.getByLabel("Streams at once").fill("256");
  await panel.getByLabel("Prompt, tokens").fill("100000");
  await panel.getByLabel("Shared prefix, %").fill("0");
  const start = page.getByRole("button", { name: "Start load" });
  await start.click();
  await panel.getByRole("alert").getByText(/do not fit|are too much/).waitFor();
  await page.route("**/tokenize", () => {}); // no answer
  await panel.getByLabel("Prompt, tokens").fill("128");
  await start.click();
  await panel.getByRole("alert").waitFor({ state: "hidden" });
  await page.getByRole("button", { name: "Stop", exact: true }).click();
  await panel.getByText(/^Ended after/).waitFor();
});

test("the loop is switched under load and the device's gaps grow", async (t) => {
  const page = await openPage(t, browser, `${server.url}/#live`);
  await watch(t, page, { concurrency: 32 });
  const gap = () => bigNumber(page, "Device idle between steps");
  await waitFor(async () => await gap() !== null, "a gap on the page");
  await page.locator("label").filter({ hasText: "Normal" }).click();
  await waitFor(async () => await server.metric("gapless_overlap_loop") === 0, "the normal loop in the server");
  await page.getByRole("heading", { name: "The device waits for the host after every step" }).waitFor();
  const compared = /with the overlap loop (\S+\s\S+|0)$/;
  const detail = section(page, "Device idle between steps").getByText(compared);
  await detail.waitFor();
  const overlap = numberIn(compared.exec(await detail.textContent())[1]);
  await waitFor(async () => await gap() > overlap, "larger gaps in the normal loop than in overlap");
  await page.getByText(/With the normal loop: .* tokens\/s\.$/).waitFor();
  await page.locator("label").filter({ hasText: "Overlap" }).click();
  await waitFor(async () => await server.metric("gapless_overlap_loop") === 1, "the overlap loop in the server");
  await page.getByRole("heading", { name: "The device never waits" }).waitFor();
  for (const heading of ["Device idle between steps", "Device busy", "Generated tokens per second"])
    await section(page, heading).getByText(/with the normal loop/).waitFor();
});

test("a loop that somebody else switches is shown", async (t) => {
  const page = await openPage(t, browser, `${server.url}/#live`);
  await page.getByText("Nothing runs").waitFor();
  for (const loop of ["normal", "overlap"]) {
    await server.post("/scheduler/loop", { loop });
    await waitFor(() => page.getByRole("radio", { name: loop }).isChecked(), `the ${loop} loop on the page`);
  }
});

test("a request is aborted from the table", async (t) => {
  const page = await openPage(t, browser, `${server.url}/#live`);
  const { max_model_len: context } = (await (await fetch(`${server.url}/v1/models`)).json()).data[0];
  const body = JSON.stringify({ prompt: "x", max_tokens: context - 16, ignore_eos: true });
  const answer = fetch(`${server.url}/v1/completions`, { method: "POST", body });
  const abort = page.getByRole("button", { name: /^Abort request/ });
  await section(page, "Requests").getByText("1 running").waitFor();
  await abort.click();
  assert.match(await (await answer).text(), /aborted/);
  await abort.waitFor({ state: "hidden" });
});

test("the cache is emptied from the page, and only when nothing runs", async (t) => {
  await server.post("/v1/completions", { prompt: "a prefix ".repeat(200), max_tokens: 1 });
  const page = await openPage(t, browser, `${server.url}/#live`);
  await page.getByRole("button", { name: "Empty the cache" }).click();
  await page.getByText(/The cache is empty: .* dropped/).waitFor();
});

test("the view asks for nothing once another one is shown", async (t) => {
  const page = await openPage(t, browser, `${server.url}/#live`);
  const feed = page.waitForEvent("requestfailed", (request) => request.url().endsWith("/live"));
  await page.getByText("requests at once").waitFor();
  await showView(page, "Chat");
  await feed;
});

test("on a phone the requests' numbers are beside the button that ends them", async (t) => {
  const page = await openPage(t, browser, `${server.url}/#live`, { viewport: PHONE });
  await watch(t, page, { concurrency: 4, maxTokens: 4000 });
  const table = page.getByRole("region", { name: "Requests in the server" });
  await table.getByRole("button").first().waitFor();
  const wide = await table.evaluate((box) => box.scrollWidth - box.clientWidth);
  assert.equal(wide, 0, "nothing is to be scrolled to");
  const cells = await table.locator("thead th").evaluateAll((heads) => heads.filter((head) => head.offsetWidth > 0).map((head) => {
    const { left, right } = head.getBoundingClientRect();
    return { name: head.textContent, left, right };
  }));
  assert.deepEqual(cells.map(({ name }) => name), ["Request", "Phase", "Answer", "Tokens/s", "Action"]);
  for (let i = 1; i < cells.length; i++) assert.ok(cells[i].left >= cells[i - 1].right - 1, cells[i].name);
});

test("a simulated device that is late is told, and that its numbers are not to be believed", async (t) => {
  const page = await openPage(t, browser, server.url);
  let asked = 0;
  await page.route("**/metrics", (route) => {
    asked++;
    return route.fulfill({ body: `gapless_sim_steps_total ${1000 * asked}\ngapless_sim_late_steps_total ${92 * asked}\n` });
  });
  await page.goto(`${server.url}/#live`);
  await page.getByText(/Do not believe these numbers: 9\.2\s% of the simulated steps were late/).waitFor();
});

test("one viewer too many is told so, and watches as soon as another leaves", async (t) => {
  const stop = new AbortController();
  t.after(() => stop.abort());
  // The page of the test before may watch for a moment yet.
  const takePlace = async () => {
    for (;;) {
      const answer = await fetch(`${server.url}/live`, { signal: stop.signal });
      if (answer.ok) return answer;
      assert.equal(answer.status, 503, await answer.text());
    }
  };
  const watchers = await Promise.all(Array.from({ length: 16 }, takePlace));
  for (const watcher of watchers) watcher.body.pipeTo(new WritableStream()).catch(() => {});
  const page = await openPage(t, browser, `${server.url}/#live`, { allowed: [/503/] });
  await page.getByText(/16 watch already.*trying again/).waitFor();
  stop.abort();
  await page.getByText("requests at once").waitFor();
});
