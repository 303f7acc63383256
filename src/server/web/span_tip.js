// The little box that says what the selected span, or gap, is.
import { el } from "./dom.js";
import { countText, timeText } from "./format.js";
import { LANE } from "./lane_paint.js";
import { argsOf, meaningOf } from "./span_kinds.js";

export class SpanTip {
  #title = el("strong");
  #numbers = el("span", { class: "tip-numbers" });
  #meaning = el("span", { class: "tip-meaning" });
  element = el("div", { class: "tip", hidden: true }, this.#title, this.#numbers, this.#meaning);

  showSpan(lane, i, kinds, byPointer) {
    const kind = kinds.names[lane.kind[i]];
    const numbers = argsOf(lane, i, kinds).map(([name, value]) => `${name} ${name === "batch" ? value : countText(value)}`);
    this.#show(`${lane.name}: ${kind.replaceAll("_", " ")}`, [timeText(lane.end[i] - lane.begin[i]), ...numbers].join(" · "),
      meaningOf(kind), byPointer);
  }

  showGap(length, byPointer) {
    this.#show("device: gap", timeText(length), "the device stands still although there is work: it waits for the host", byPointer);
  }

  hide() {
    this.element.hidden = true;
  }

  // Above the rows over the device's and below the others, so that what belongs to it on the device can be seen.
  place(layout, selected) {
    if (!selected || this.element.hidden) return;
    const width = this.element.offsetWidth;
    const from = Math.max(layout.left, layout.x(selected.begin));
    const left = Math.max(0, Math.min(layout.width - width, from));
    const y = layout.y(selected.lane);
    const top = selected.lane < layout.device ? y - this.element.offsetHeight - 6 : y + LANE.box + 6;
    this.element.style.transform = `translate(${Math.round(left)}px, ${Math.round(top)}px)`;
  }

  // A reader of screens is told what the keyboard went to, not what a mouse passed over.
  #show(title, numbers, meaning, byPointer) {
    this.element.setAttribute("aria-live", byPointer ? "off" : "polite");
    this.#title.textContent = title;
    this.#numbers.textContent = numbers;
    this.#meaning.textContent = meaning;
    this.element.hidden = false;
  }
}
