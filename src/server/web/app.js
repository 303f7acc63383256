// The shell: tabs, the server's state, the dialog with key and theme, and short messages. A view is loaded when it
// is first shown: mount(root, app) -> {show(), hide()}.
import { ApiError, getKey, keyProblem, onDenied, setKey } from "./api.js";
import { el } from "./dom.js";
import { ServerState } from "./server_state.js";
import { chooseTheme, themeChoice } from "./theme.js";

const VIEWS = {
  chat: () => import("./chat.js"),
  live: () => import("./live.js"),
  trace: () => import("./trace.js"),
};
const TOAST_MS = 6000;
const RETRY_MS = 3000;
const server = new ServerState();
const mounted = {};
let shown = null;
let retry = 0;

const $ = (id) => document.getElementById(id);

// kind: 'info', 'good' or 'bad'. action: {label, run}, a button in it ("Undo"). It takes the place of the one of its kind
// before it, unless that still offers something else to do.
function toast(text, kind = "info", action = null) {
  for (const old of $("toasts").querySelectorAll(`.toast.${kind}`))
    if (!old.classList.contains("acts") || old.firstChild.textContent === text) old.remove();
  const box = el("div", { class: `toast ${kind}${action ? " acts" : ""}` }, el("span", {}, text));
  const close = () => box.remove();
  if (action) box.append(el("button", { type: "button", onclick: () => { close(); action.run(); } }, action.label));
  box.append(el("button", { type: "button", class: "icon icon-close", "aria-label": "Dismiss", onclick: close }));
  $("toasts").append(box);
  setTimeout(close, action ? 2 * TOAST_MS : TOAST_MS);
}

// What to do about a 403 of a path for operators.
function operatorHint(error) {
  if (error?.status !== 403) return error?.message ?? "";
  return `${error.message}. Open the page on the machine that runs the server, or start it with --api-key and enter the key here.`;
}

const app = {
  toast,
  operatorHint,
  status: () => server.status(),
  onStatus: (listener) => server.onStatus(listener),
  model: () => server.model(),
  checkServer: () => server.check(),
  openSettings: () => openDialog(),
};

// Browsers remember a module that could not be fetched as broken. So it is asked for only when the server is there.
async function load(name) {
  const file = new URL(`${name}.js`, import.meta.url);
  const there = await fetch(file, { method: "HEAD", cache: "no-store" }).catch(() => null);
  if (!there) throw new ApiError(0, "The server cannot be reached.");
  const module = await VIEWS[name]();
  const root = $(`view-${name}`);
  root.replaceChildren();
  return module.mount(root, app);
}

async function view(name) {
  mounted[name] ??= load(name);
  try {
    return await mounted[name];
  } catch (error) {
    delete mounted[name]; // the next visit tries again
    throw error;
  }
}

async function route() {
  clearTimeout(retry);
  const name = Object.hasOwn(VIEWS, location.hash.slice(1)) ? location.hash.slice(1) : "chat";
  if (name === shown) return;
  const before = shown;
  shown = name;
  for (const key of Object.keys(VIEWS)) {
    $(`view-${key}`).hidden = key !== name;
    const tab = document.querySelector(`nav a[href="#${key}"]`);
    if (key === name) tab.setAttribute("aria-current", "page");
    else tab.removeAttribute("aria-current");
  }
  try {
    if (before && mounted[before]) (await mounted[before]).hide();
    const next = await view(name);
    if (shown === name) next.show();
  } catch (error) {
    if (shown === name) showUnloaded(name, error);
  }
}

// In the place of a view that is not there. If the server was, only a new page can forget the module that failed.
function showUnloaded(name, error) {
  shown = null;
  const away = error instanceof ApiError && error.status === 0;
  const why = away ? "the server cannot be reached. It opens as soon as the server is back." : "the server did not send all of it.";
  const words = el("div", { class: "unloaded", role: "alert" }, el("p", {}, `This part of the page is not loaded yet: ${why}`),
    el("button", { type: "button", onclick: () => (away ? route() : location.reload()) }, "Retry"));
  const root = $(`view-${name}`);
  if (root.textContent !== words.textContent) root.replaceChildren(words); // it is read out once
  if (away) retry = setTimeout(route, RETRY_MS);
}

function showStatus({ state, text }) {
  const model = server.model();
  const pill = $("server");
  pill.dataset.state = state;
  const short = { ready: model?.id ?? "ready", loading: "loading", denied: "key needed", down: "server down", unknown: "…" };
  $("server-text").textContent = short[state];
  pill.title = state === "ready" ? `${model.id}: ready` : text;
  $("server-announce").textContent = state === "unknown" ? "" : `Server: ${state === "ready" ? "ready" : text}`;
  $("offline").hidden = state !== "down" && state !== "loading";
  $("offline-text").textContent = state === "down" ? `${text} Your chats are kept here.` : `Not ready: ${text}.`;
  showFacts();
}

function showFacts() {
  const model = server.model();
  const facts = model ? [
    ["Model", model.id],
    ["Architecture", `${model.meta.architecture}, ${model.meta.quantisation}`],
    ["Parameters", `${(model.meta.n_params / 1e6).toFixed(0)} M`],
    ["Context", `${model.max_model_len.toLocaleString("en")} tokens`],
    ["Chat template", model.has_chat_template ? "yes" : "none: a base model"],
  ] : server.status().state === "denied" ? [] // the key's own line says it
    : [["State", server.status().text]];
  $("facts").replaceChildren(...facts.flatMap(([name, value]) => [el("dt", {}, name), el("dd", {}, value)]));
}

function showKeyProblem(text) {
  $("key-error").textContent = text;
  $("key-error").hidden = !text;
}

// why: what the server said about the key that was sent, or about none.
function openDialog(why = server.status().state === "denied" ? denial(server.status().text) : "") {
  const dialog = $("settings");
  showKeyProblem(why);
  if (dialog.open) return;
  $("key").value = getKey();
  dialog.querySelector(`input[name=theme][value=${themeChoice()}]`).checked = true;
  dialog.showModal();
  if (why) $("key").focus();
}

function denial(words) {
  return getKey() ? `The server does not accept this key: ${words}.` : "This server asks for an API key.";
}

async function saveKey(event) {
  event.preventDefault();
  const key = $("key").value.trim();
  const problem = keyProblem(key);
  showKeyProblem(problem && `It was not saved: ${problem}.`);
  if (problem) return;
  setKey(key);
  await server.check();
  if (server.status().state === "ready") $("settings").close();
}

function start() {
  $("server").addEventListener("click", () => openDialog());
  $("key-form").addEventListener("submit", saveKey);
  $("settings-close").addEventListener("click", () => $("settings").close());
  $("retry").addEventListener("click", () => server.check());
  for (const input of document.querySelectorAll("input[name=theme]"))
    input.addEventListener("change", () => chooseTheme(input.value));
  onDenied((error) => openDialog(denial(error.message)));
  server.onStatus(showStatus);
  window.addEventListener("hashchange", route);
  server.check();
  route();
}

start();
