// The shell: tabs, the server's state, the dialog with key and theme, and short messages. A view is loaded when it
// is first shown: mount(root, app) -> {show(), hide()}.
import { getKey, onDenied, setKey } from "./api.js";
import { el } from "./dom.js";
import { ServerState } from "./server_state.js";
import { chooseTheme, themeChoice } from "./theme.js";

const VIEWS = {
  chat: () => import("./chat.js"),
  live: () => import("./live.js"),
  trace: () => import("./trace.js"),
};
const TOAST_MS = 6000;
const server = new ServerState();
const mounted = {};
let shown = null;

const $ = (id) => document.getElementById(id);

// kind: 'info', 'good' or 'bad'. action: {label, run}, a button in it ("Undo").
function toast(text, kind = "info", action = null) {
  const box = el("div", { class: `toast ${kind}` }, el("span", {}, text));
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

async function view(name) {
  mounted[name] ??= VIEWS[name]().then((module) => module.mount($(`view-${name}`), app));
  try {
    return await mounted[name];
  } catch (error) {
    delete mounted[name]; // the next visit tries again
    throw error;
  }
}

async function route() {
  const name = location.hash.slice(1) in VIEWS ? location.hash.slice(1) : "chat";
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
    if (shown === name) shown = null;
    toast(`This part of the page could not be loaded: ${error.message}`, "bad", { label: "Retry", run: route });
  }
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
  ] : [["State", server.status().text]];
  $("facts").replaceChildren(...facts.flatMap(([name, value]) => [el("dt", {}, name), el("dd", {}, value)]));
}

// why: what the server said about the key that was sent, or about none.
function openDialog(why = "") {
  const dialog = $("settings");
  $("key-error").textContent = why;
  $("key-error").hidden = !why;
  if (dialog.open) return;
  $("key").value = getKey();
  dialog.querySelector(`input[name=theme][value=${themeChoice()}]`).checked = true;
  dialog.showModal();
  if (why) $("key").focus();
}

function denied(error) {
  openDialog(getKey() ? `The server does not accept this key: ${error.message}.` : "This server asks for an API key.");
}

async function saveKey(event) {
  event.preventDefault();
  $("key-error").hidden = true;
  setKey($("key").value.trim());
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
  onDenied(denied);
  server.onStatus(showStatus);
  window.addEventListener("hashchange", route);
  server.check();
  route();
}

start();
