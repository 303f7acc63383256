import assert from "node:assert/strict";
import { test } from "node:test";
import { latenessText, simulatedSteps } from "../../src/server/web/lateness.js";

const METRICS = "# TYPE gapless_sim_steps_total counter\ngapless_sim_steps_total 2000\n# TYPE gapless_sim_late_steps_total counter\n"
  + "gapless_sim_late_steps_total 184\n";

test("the counters are found among the metrics, with labels or without", () => {
  assert.deepEqual(simulatedSteps(METRICS), { steps: 2000, late: 184 });
  assert.deepEqual(simulatedSteps(METRICS.replaceAll("_total ", '_total{device="0"} ')), { steps: 2000, late: 184 });
  assert.equal(simulatedSteps("gapless_running_requests 3\n"), null);
});

test("a device that keeps time gives no warning, one that does not gives the share", () => {
  assert.equal(latenessText({ steps: 0, late: 0 }), "");
  assert.equal(latenessText({ steps: 2000, late: 2 }), "");
  assert.match(latenessText({ steps: 2000, late: 184 }).replaceAll("\u202f", " "), /^Do not believe these numbers: 9\.2 % of the simulated steps were late/);
});
