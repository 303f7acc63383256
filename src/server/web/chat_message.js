// One message on the screen: what the user wrote, or an answer with its reasoning, numbers, error and buttons.
import { copyText, el, iconButton } from "./dom.js";
import { MarkdownView } from "./markdown.js";

const JSON_FENCE = "~".repeat(32); // as no line of an answer is

const number = (value, digits = 0) => value.toLocaleString("en", { maximumFractionDigits: digits });

// "42 tokens" pieces of an answer's numbers, each with a name for who hovers over it.
function statTexts({ stats = {}, finish }) {
  const out = [];
  const cached = stats.cached ? ` (${number(stats.cached)} cached)` : "";
  if (stats.rate !== undefined) out.push([`${number(stats.rate, 1)} tok/s`, "tokens per second, seen from this browser"]);
  if (stats.ttft !== undefined) out.push([`first token ${number(stats.ttft)} ms`, "time to the first token, seen from this browser"]);
  if (stats.prompt !== undefined) out.push([`${number(stats.prompt)} in${cached}`, "tokens of the prompt"]);
  if (stats.output !== undefined) out.push([`${number(stats.output)} out`, "tokens of the answer"]);
  if (finish) out.push([finish, "why it ended"]);
  return out;
}

// What can still be done about an error, besides trying again.
function adviceFor({ status, code, param, retryAfter }) {
  if (code === "context_length_exceeded") return "Start a new chat, or shorten this one by editing an earlier message.";
  if (`${param}`.startsWith("response_format")) return "See the JSON schema in the settings.";
  if (retryAfter) return `The server asks to wait ${retryAfter} s.`;
  return status === 0 ? "The chat is kept. Try again when the server is back." : "";
}

export class MessageView {
  // actions: {retry(message), edit(message, text), goOn(message), toast(text)}; chat: draw markdown. An answer that follows a
  // schema (`json`) is shown as it is.
  constructor(message, actions, chat) {
    Object.assign(this, { message, actions, chat });
    this.body = el("div", { class: "body" });
    this.foot = el("div", { class: "foot" });
    const name = message.role === "user" ? "You" : "Answer";
    this.element = el("article", { class: `message ${message.role}`, "aria-label": name }, this.body, this.foot);
    if (message.role === "assistant") this.#buildAnswer();
    this.update(false, false);
  }

  #buildAnswer() {
    this.reasoningText = el("div", { class: "reasoning-text" });
    this.reasoning = el("details", { class: "reasoning", hidden: true }, el("summary", {}, "Reasoning"), this.reasoningText);
    this.text = el("div", { class: this.chat || this.message.json ? "markdown" : "plain-text" });
    this.waiting = el("div", { class: "waiting", "aria-hidden": "true" }, el("span"), el("span"), el("span"));
    this.error = el("div", { class: "failure", role: "alert", hidden: true });
    this.body.append(this.reasoning, this.text, this.waiting, this.error);
    this.view = new MarkdownView(this.text);
  }

  // growing: the answer is being generated. last: the buttons of the end of the chat are here.
  update(growing, last) {
    if (this.editing) return;
    const { message } = this;
    this.element.classList.toggle("growing", growing);
    if (message.role === "user") this.body.textContent = message.content;
    else this.#updateAnswer(growing);
    if (!growing || this.drawn !== "growing") this.#drawFoot(growing, last);
    this.drawn = growing ? "growing" : "";
  }

  #updateAnswer(growing) {
    const { content, reasoning = "", error } = this.message;
    if (this.message.json) this.view.update(`${JSON_FENCE}json\n${content}`, growing);
    else if (this.chat) this.view.update(content, growing);
    else this.text.textContent = content;
    this.reasoning.hidden = !reasoning;
    this.reasoningText.textContent = reasoning;
    this.waiting.hidden = !growing || content !== "";
    this.error.hidden = !error;
    if (error && this.shownError !== error) this.#drawError(error);
    this.shownError = error;
  }

  #drawError(error) {
    const code = error.status ? ` (${error.status})` : "";
    const where = error.status === 0 ? "" : `The server says${code}: `;
    const advice = adviceFor(error);
    this.error.replaceChildren(el("p", {}, `${where}${error.message}`), ...(advice ? [el("p", { class: "advice" }, advice)] : []),
      el("button", { type: "button", onclick: () => this.actions.retry(this.message) }, "Try again"));
  }

  #drawFoot(growing, last) {
    this.foot.replaceChildren();
    if (growing) return;
    const stats = statTexts(this.message).map(([text, title]) => el("span", { title }, text));
    if (stats.length) this.foot.append(el("div", { class: "stats" }, ...stats));
    this.foot.append(el("div", { class: "tools" }, ...this.#tools(last)));
    this.foot.classList.toggle("last", last);
  }

  #tools(last) {
    const { message, actions } = this;
    const tools = [];
    const again = message.role === "user" ? "Answer this again" : "Try again";
    if (!message.error) tools.push(iconButton("retry", again, () => actions.retry(message))); // an error has its own
    if (message.content) tools.unshift(iconButton("copy", "Copy", () => this.#copy()), iconButton("edit", "Edit", () => this.edit()));
    const cut = message.role === "assistant" && message.content && (message.error || message.finish !== "stop");
    if (last && cut) tools.push(el("button", { type: "button", class: "plain", onclick: () => actions.goOn(message) }, "Continue"));
    return tools;
  }

  async #copy() {
    const copied = await copyText(this.message.content);
    this.actions.toast(copied ? "Copied" : "The browser does not let this page copy; select the text instead.");
  }

  // Replaces the text by a field. The user's is sent again, an answer is only changed.
  edit() {
    const { message } = this;
    const mine = message.role === "user";
    const rows = Math.min(16, message.content.split("\n").length + 1);
    const field = el("textarea", { "aria-label": mine ? "Your message" : "The answer", rows });
    field.value = message.content;
    const close = () => {
      this.editing = false;
      this.element.classList.remove("editing");
      this.body.replaceChildren();
      if (!mine) this.#buildAnswer();
      this.update(false, this.foot.classList.contains("last"));
    };
    const done = () => {
      close();
      this.actions.edit(message, field.value);
    };
    field.addEventListener("keydown", (event) => editKey(event, mine, done, close));
    this.editing = true;
    this.element.classList.add("editing");
    this.body.replaceChildren(field);
    this.foot.replaceChildren(el("div", { class: "tools" },
      el("button", { type: "button", class: "primary", onclick: done }, mine ? "Send again" : "Save"),
      el("button", { type: "button", onclick: close }, "Cancel")));
    field.focus();
  }
}

function editKey(event, mine, done, close) {
  if (event.isComposing || event.keyCode === 229) return;
  const sends = event.key === "Enter" && (event.ctrlKey || event.metaKey || (mine && !event.shiftKey));
  if (!sends && event.key !== "Escape") return;
  event.preventDefault();
  event.stopPropagation();
  if (sends) done();
  else close();
}
