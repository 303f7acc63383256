// The real program, started for a file of tests and ended with it. GAPLESS_BINARY is the program, GAPLESS_SMOLLM2 the model
// (./dev test sets both).
import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { existsSync, mkdtempSync, openSync, closeSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setTimeout as pause } from "node:timers/promises";

const BINARY = process.env.GAPLESS_BINARY ?? "build/release/gapless";
const MODEL = process.env.GAPLESS_SMOLLM2 ?? "";

// The simulated accelerator of most tests: its steps are short, so what the host costs between them is easy to see.
export const SIMULATED = "sim:h100-llama3.2-1b";

// Polls until condition() is truthy and returns that. Where a page or a server can say when something is done, wait for that instead.
export async function waitFor(condition, what, seconds = 60) {
  const end = Date.now() + seconds * 1000;
  for (;;) {
    const value = await condition();
    if (value) return value;
    assert.ok(Date.now() < end, `not within ${seconds} s: ${what}`);
    await pause(20);
  }
}

export class Server {
  #folder = mkdtempSync(join(tmpdir(), "gapless-web-"));
  #command;
  #process = null;
  #port = 0;

  constructor(command) {
    this.#command = command;
  }

  get url() {
    return `http://127.0.0.1:${this.#port}`;
  }

  get host() {
    return `127.0.0.1:${this.#port}`;
  }

  get log() {
    return readFileSync(join(this.#folder, "log"), "utf8");
  }

  // Also after kill(): the same port again, as a service manager would.
  async start() {
    const portFile = join(this.#folder, "port");
    rmSync(portFile, { force: true });
    const log = openSync(join(this.#folder, "log"), "a");
    this.#process = spawn(BINARY, [...this.#command, "--port", this.#port, "--port-file", portFile], { stdio: ["ignore", log, log] });
    closeSync(log);
    await this.#until(() => existsSync(portFile) && readFileSync(portFile, "utf8").trim(), "the port file");
    this.#port = Number(readFileSync(portFile, "utf8"));
    await this.#until(() => this.#isReady(), "a ready server");
  }

  #until(condition, what) {
    return waitFor(() => {
      assert.equal(this.#process.exitCode, null, this.log);
      return condition();
    }, what);
  }

  async #isReady() {
    try {
      return (await fetch(`${this.url}/ready`)).ok;
    } catch {
      return false;
    }
  }

  // At once, as a crash would.
  async kill() {
    const ended = this.#process;
    if (ended === null || ended.exitCode !== null || ended.signalCode !== null) return;
    await new Promise((resolve) => {
      ended.once("exit", resolve);
      ended.kill("SIGKILL");
    });
  }

  async remove() {
    await this.kill();
    rmSync(this.#folder, { recursive: true, force: true });
  }

  // Sends JSON; the answer's body parsed. Not for streams.
  async post(path, body, headers = {}) {
    const answer = await fetch(this.url + path, {
      method: "POST", body: JSON.stringify(body), headers: { "Content-Type": "application/json", ...headers },
    });
    const text = await answer.text();
    assert.ok(answer.ok, `${path}: ${answer.status} ${text}`);
    return JSON.parse(text);
  }

  // The number behind a name in /metrics; labels as they are written there: name{a="b"}. The sum when several lines have the name.
  async metric(name, headers = {}) {
    const text = await (await fetch(`${this.url}/metrics`, { headers })).text();
    const lines = text.split("\n").filter((line) => line.startsWith(`${name} `) || line.startsWith(`${name}{`));
    assert.ok(lines.length > 0, `no metric ${name}`);
    return lines.reduce((sum, line) => sum + Number(line.slice(line.lastIndexOf(" ") + 1)), 0);
  }

  // A steady crowd of streaming requests until stop() is called.
  load({ concurrency = 64, requests = 100000, promptTokens = 32, maxTokens = 200, flags = [] } = {}) {
    const bench = spawn(BINARY, ["bench", "serve", "--url", this.url, "--concurrency", concurrency, "--requests", requests,
      "--prompt-tokens", promptTokens, "--max-tokens", maxTokens, ...flags], { stdio: "ignore" });
    const ended = new Promise((resolve) => {
      bench.once("exit", resolve);
    });
    return {
      ended,
      async stop() {
        bench.kill("SIGKILL");
        await ended;
      },
    };
  }
}

// model: a path, or "" where --device brings its own. The server ends with the test or file whose `after` is given.
export async function startServer(after, { flags = [], model = MODEL } = {}) {
  const server = new Server(["serve", ...(model ? [model] : []), ...flags]);
  after(() => server.remove());
  await server.start();
  return server;
}

export function startSimulated(after, flags = []) {
  return startServer(after, { model: "", flags: ["--device", SIMULATED, ...flags] });
}
