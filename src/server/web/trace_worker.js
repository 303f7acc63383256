// Reads and analyses a trace away from the page: 50 MB of JSON take a second.
import { parseTrace, TraceError } from "./trace_file.js";
import { analyseTrace } from "./trace_report.js";

self.onmessage = async ({ data: blob }) => {
  try {
    const trace = parseTrace(await blob.text());
    const report = analyseTrace(trace);
    const arrays = trace.lanes.flatMap((lane) => [lane.begin, lane.end, lane.reach, lane.kind, lane.a, lane.b, lane.c]);
    const { names, args } = trace.kinds;
    self.postMessage({ trace: { ...trace, kinds: { names, args } }, report }, arrays.map((array) => array.buffer));
  } catch (error) {
    const text = error instanceof TraceError ? error.message : `The trace cannot be read: ${error.message}`;
    self.postMessage({ problem: text });
  }
};
