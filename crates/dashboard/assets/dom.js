// Builds the page's elements. Every text goes in as a text node, so that no name or message becomes markup.
// What it is not: what is shown.

/** An element. `props`: attributes; `on` has its event listeners; `class` its classes. */
export function el(tag, props = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(props)) {
    if (name === "on") {
      for (const [event, run] of Object.entries(value)) made.addEventListener(event, run);
    } else if (value === true) {
      made.setAttribute(name, "");
    } else if (value !== false && value !== null && value !== undefined) {
      made.setAttribute(name, String(value));
    }
  }
  add(made, children);
  return made;
}

function add(parent, children) {
  for (const child of children) {
    if (Array.isArray(child)) add(parent, child);
    else if (child instanceof Node) parent.append(child);
    else if (child !== null && child !== undefined && child !== false) parent.append(document.createTextNode(String(child)));
  }
}

/** For how long a press keeps what is under it, in milliseconds. The end of a press is not always told: a menu may take it. */
const PRESS = 2000;

// While a button is held down, what is under it is not replaced: the click would be lost.
let pressed = null;
let release = 0;
const held = new Map();

function released() {
  clearTimeout(release);
  pressed = null;
  const all = [...held];
  held.clear();
  for (const [parent, children] of all) fill(parent, ...children);
}

document.addEventListener("pointerdown", (event) => {
  if (event.button !== 0) return;
  pressed = event.target;
  clearTimeout(release);
  release = setTimeout(released, PRESS);
}, true);
for (const over of ["pointerup", "pointercancel"]) document.addEventListener(over, () => setTimeout(released), true);

/** Whether a button of the mouse is held down on something in an element: what goes away now takes the click with it. */
export const isPressed = (parent) => pressed !== null && parent.contains(pressed);

/** What has a scroll bar of its own. */
const scrolled = (parent) => [...parent.querySelectorAll(".scroll, pre")];

/**
 * Puts other children into an element; what has the focus keeps it, if it is there again under the same `data-key`, and what
 * somebody has scrolled stays where it is.
 */
export function fill(parent, ...children) {
  if (isPressed(parent)) {
    held.set(parent, children);
    return parent;
  }
  const key = parent.contains(document.activeElement) ? document.activeElement.dataset.key : undefined;
  const places = scrolled(parent).map((one) => [one.scrollLeft, one.scrollTop]);
  parent.replaceChildren();
  add(parent, children);
  if (places.some(([left, top]) => left || top)) {
    const now = scrolled(parent);
    if (now.length === places.length) now.forEach((one, i) => one.scrollTo(...places[i]));
  }
  if (key) parent.querySelector(`[data-key="${CSS.escape(key)}"]`)?.focus({ preventScroll: true });
  return parent;
}

/** Has an element show these children in this order. Those that are there already are moved at most, so little is laid out anew. */
export function arrange(parent, wanted) {
  if (isPressed(parent)) {
    held.set(parent, wanted);
    return;
  }
  const focus = parent.contains(document.activeElement) ? document.activeElement.dataset.key : undefined;
  const keep = new Set(wanted);
  for (const child of [...parent.children]) if (!keep.has(child)) child.remove();
  wanted.forEach((child, at) => {
    if (parent.children[at] !== child) parent.insertBefore(child, parent.children[at] ?? null);
  });
  if (focus && document.activeElement?.dataset?.key !== focus) parent.querySelector(`[data-key="${CSS.escape(focus)}"]`)?.focus({ preventScroll: true });
}

/** Compares names as people sort them: node-2 before node-10. Made once: it is ten times as fast as `localeCompare`. */
export const byName = new Intl.Collator(undefined, { numeric: true }).compare;

/** What a phase is called, and what stands for it where colours are not enough. */
export const PHASES = {
  failing: { word: "failing", sign: "×", about: "Its update fails" },
  unavailable: { word: "unavailable", sign: "!", about: "In the pool's config, not available" },
  moving: { word: "moving", sign: "↻", about: "It is being updated" },
  goes: { word: "goes", sign: "›", about: "It is given the pool's config now" },
  waits: { word: "waits", sign: "·", about: "It needs an update and waits" },
  done: { word: "done", sign: "", about: "In the pool's config and available" },
};

/** A phase with its colour. */
export function phase(name) {
  const known = Object.hasOwn(PHASES, name);
  return el("span", { class: "phase" }, el("span", { class: `dot ${known ? name : ""}`, "aria-hidden": "true" }), name);
}

const WHEN = new Intl.DateTimeFormat(undefined, { dateStyle: "medium", timeStyle: "medium" });
const CLOCK = new Intl.DateTimeFormat(undefined, { timeStyle: "medium" });

/** A moment in the reader's zone; the element keeps the exact one. */
export function time(text, short = false) {
  const at = new Date(text);
  if (!text || Number.isNaN(at.getTime())) return text ? String(text) : "–";
  return el("time", { datetime: text, title: text }, (short ? CLOCK : WHEN).format(at));
}

const TIMES = /(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?(?:Z|[+-]\d\d:\d\d))/;

/** A sentence of the server's, with the moments in it in the reader's zone. */
export const sentence = (text) => String(text).split(TIMES).map((part, at) => (at % 2 ? time(part) : part));

/** A length of time in words. */
export function span(seconds) {
  const s = Math.max(0, Math.round(seconds));
  if (s < 90) return `${s} s`;
  if (s < 5400) return `${Math.round(s / 60)} min`;
  if (s < 172800) return `${(s / 3600).toFixed(1)} h`;
  return `${Math.round(s / 86400)} days`;
}

/** Names and values, one under the other. Empty ones are left out. */
export function facts(rows) {
  const shown = rows.filter(([, value]) => value !== undefined && value !== null && value !== "" && value !== false);
  return el("dl", {}, shown.map(([name, value]) => [el("dt", {}, name), el("dd", {}, value)]));
}

/** A table with a caption for readers of screens. */
export function table(caption, heads, rows) {
  const head = el("thead", {}, el("tr", {}, heads.map((h) => el("th", { scope: "col" }, h))));
  const body = el("tbody", {}, rows.map((r) => (r instanceof Node ? r : el("tr", {}, r.map((c) => el("td", {}, c))))));
  return el("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": caption }, el("table", {}, el("caption", { class: "soft" }, caption), head, body));
}

/** A unified difference, line by line. */
export function difference(text) {
  if (!text) return el("p", { class: "soft" }, "No difference.");
  const kind = (line) => (/^(\+\+\+|---) /.test(line) ? "head" : line.startsWith("@@") ? "plain soft" : line.startsWith("+") ? "added" : line.startsWith("-") ? "removed" : "plain");
  return el("pre", { tabindex: "0" }, text.split("\n").map((line) => el("span", { class: kind(line) }, line || " ")));
}

/** A link to a view. The name of a rendered config is long, and cut off where there is no room for it. */
export function link(view, name, text = name) {
  const cut = view === "config" ? { class: "cut", title: name } : {};
  return el("a", { href: `#/${view}/${encodeURIComponent(name)}`, "data-key": `${view}/${name}`, ...cut }, text);
}
