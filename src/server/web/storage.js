// Small things that the browser keeps for this page. Where its storage is switched off nothing is kept, and nothing fails.

// where: "localStorage", for all tabs, or "sessionStorage", for this one. null: it is not there.
export function recall(name, where = "localStorage") {
  try {
    return globalThis[where].getItem(name);
  } catch {
    return null;
  }
}

// value null: forgets it.
export function keep(name, value, where = "localStorage") {
  try {
    if (value === null) globalThis[where].removeItem(name);
    else globalThis[where].setItem(name, value);
  } catch {
    // Until the page is left, whoever asked for it knows it.
  }
}
