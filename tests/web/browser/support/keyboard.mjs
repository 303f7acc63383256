// Walks a page with the Tab key alone, as somebody without a mouse does.
import assert from "node:assert/strict";

// Marks with data-walk everything that a keyboard must reach and returns how many there are. One radio button stands for its group.
function markControls() {
  const open = document.querySelector("dialog:modal");
  const shown = (control) => !control.disabled && control.checkVisibility({ visibilityProperty: true }) && (!open || open.contains(control));
  const chosen = (radio) => document.querySelector(`input[name="${radio.name}"]:checked`) ?? document.querySelector(`input[name="${radio.name}"]`);
  let count = 0;
  for (const control of document.querySelectorAll("a[href], button, input, select, textarea, summary, [tabindex='0']")) {
    delete control.dataset.walk;
    if (!shown(control) || (control.type === "radio" && control !== chosen(control)) || control.ariaHidden === "true") continue;
    control.dataset.walk = count++;
  }
  return count;
}

// What has the focus: its mark, what to call it in a message, and whether the focus can be seen on it or on its label.
function describeFocus() {
  const focused = document.activeElement;
  if (!focused || focused === document.body) return null;
  const drawn = (element) => {
    if (!element) return false;
    const style = getComputedStyle(element);
    return (style.outlineStyle !== "none" && parseFloat(style.outlineWidth) >= 1) || style.boxShadow !== "none";
  };
  return {
    mark: focused.dataset.walk,
    name: focused.outerHTML.slice(0, 160),
    visible: drawn(focused) || drawn(focused.nextElementSibling) || drawn(focused.parentElement),
  };
}

// Every control is reached, each shows that it has the focus, and the walk comes to its end.
export async function assertKeyboardReaches(page, what) {
  const count = await page.evaluate(markControls);
  assert.ok(count > 0, `${what}: no controls`);
  await page.evaluate(() => document.activeElement?.blur());
  const seen = new Set();
  const unseen = [];
  for (let i = 0; i < 2 * count + 10 && seen.size < count; i++) {
    await page.keyboard.press("Tab");
    const focus = await page.evaluate(describeFocus);
    if (!focus) continue;
    if (focus.mark !== undefined) seen.add(focus.mark);
    if (!focus.visible) unseen.push(focus.name);
  }
  const missed = await page.evaluate((marks) => [...document.querySelectorAll("[data-walk]")]
    .filter((element) => !marks.includes(element.dataset.walk)).map((element) => element.outerHTML.slice(0, 160)), [...seen]);
  assert.deepEqual(missed, [], `${what}: never reached with Tab`);
  assert.deepEqual([...new Set(unseen)], [], `${what}: the focus cannot be seen`);
}

// Nothing sticks out to the right of the window, but for what scrolls in a box of its own.
export async function assertFits(page, what) {
  const out = await page.evaluate(() => {
    const scrolls = (element) => {
      for (let box = element.parentElement; box && box !== document.body; box = box.parentElement)
        if (getComputedStyle(box).overflowX !== "visible") return true;
      return false;
    };
    return [...document.body.querySelectorAll("*")]
      .filter((element) => element.checkVisibility() && element.getBoundingClientRect().right > window.innerWidth + 1 && !scrolls(element))
      .map((element) => element.outerHTML.slice(0, 160));
  });
  assert.deepEqual(out, [], `${what}: wider than the window`);
  const { width, shown } = await page.evaluate(() => ({ width: document.documentElement.scrollWidth, shown: window.innerWidth }));
  assert.ok(width <= shown, `${what}: ${width} px wide in a window of ${shown}`);
}
