// The fleet: every node as a cell, by pool and zone, on a canvas that draws only what is seen; and the same as a table, for
// keyboards and readers of screens.
// What it is not: where the nodes come from.
import { PHASES, arrange, byName, el, fill, link, phase, sentence } from "./dom.js";
import { brief, inOrder } from "./pools.js";

const HEAD = 26;
const GAP = 10;
const SIZES = [6, 9, 13, 18, 26];
const ROWS = 100;
/** How many pools are shown above the map. */
const POOLS = 6;
/** A fleet of so many nodes is tried in several sizes; of more, the cells are small in any case. */
const FEW = 1000;
/** How much of what needs attention is shown before somebody asks for all. */
const URGENT = 3;
const RANK = Object.keys(PHASES);

/** The view; it lives until `signal` is aborted. */
export function fleet(store, signal) {
  const canvas = el("canvas", { role: "img" });
  const spacer = el("div", { class: "spacer" });
  const viewport = el("div", { class: "viewport", tabindex: "0", role: "group", "aria-label": "Map of all nodes. Arrow keys choose a node, Enter opens it, plus and minus zoom." }, canvas, spacer);
  const hint = el("div", { class: "hint", hidden: true });
  const said = el("p", { role: "status", class: "soft" });
  const counts = el("div", { class: "row" });
  const pools = el("div", { class: "cards", role: "group", "aria-label": "Pools" });
  const problems = el("div");
  const listed = el("div");
  const search = el("input", { type: "search", "aria-label": "Only nodes with this in name, reason or config", placeholder: "name, reason, config" });
  const only = el("select", { "aria-label": "Only nodes in this phase" }, el("option", { value: "" }, "every phase"), RANK.map((p) => el("option", { value: p }, p)));
  const within = el("select", { "aria-label": "The group that fills the map", "data-key": "group" });
  const caption = el("caption", { class: "soft" });
  const body = el("tbody");
  const more = el("button", { "data-key": "more", on: { click: () => { shown += ROWS; list(); } } });
  let rows = new Map();
  let urgent = "";
  let size = SIZES[2];
  let group = "";
  let order = [];
  let cells = [];
  let places = new Map();
  let heads = [];
  let perRow = 1;
  let height = 0;
  let chosen = null;
  let shown = ROWS;
  let colours = {};
  let drawn = new Map();
  let told = [];
  let offered = "";
  let asked = false;
  let fitted = false;

  function readColours() {
    const style = getComputedStyle(document.documentElement);
    const read = (name) => style.getPropertyValue(`--${name}`).trim();
    colours = Object.fromEntries([...RANK, "ink", "soft", "panel", "focus"].map((n) => [n, read(n)]));
  }

  function layOut() {
    // Sorted once for the map and the table; it stays so until nodes come or go.
    order = [...store.nodes.keys()].sort(byName);
    const groups = new Map();
    for (const node of order.map((name) => store.nodes.get(name))) {
      const key = JSON.stringify([node.pool, node.zone ?? ""]);
      if (!groups.has(key)) groups.set(key, []);
      groups.get(key).push(node);
    }
    const width = Math.max(100, viewport.clientWidth - 2 * GAP);
    perRow = Math.max(1, Math.floor(width / size));
    cells = [];
    heads = [];
    let y = GAP;
    const keys = [...groups.keys()].sort(byName);
    if (group && !groups.has(group)) group = "";
    const named = (key) => `${JSON.parse(key).filter(Boolean).join(" · ")} (${groups.get(key).length})`;
    const options = [["", "every group"], ...keys.map((key) => [key, named(key)])];
    // A list that is open closes when it is filled.
    const offers = JSON.stringify([group, options]);
    if (offers !== offered) fill(within, options.map(([key, text]) => el("option", { value: key, selected: key === group }, text)));
    offered = offers;
    for (const key of keys.filter((key) => !group || key === group)) {
      const nodes = groups.get(key);
      heads.push({ y, key, text: named(key) });
      y += HEAD;
      nodes.forEach((node, i) => cells.push({ name: node.name, x: GAP + (i % perRow) * size, y: y + Math.floor(i / perRow) * size }));
      y += Math.ceil(nodes.length / perRow) * size + GAP;
    }
    places = new Map(cells.map((cell) => [cell.name, cell]));
    height = y;
    spacer.style.height = `${Math.max(0, height - viewport.clientHeight)}px`;
  }

  function draw() {
    const scale = window.devicePixelRatio || 1;
    const [w, h] = [viewport.clientWidth, viewport.clientHeight];
    if (canvas.width !== Math.round(w * scale) || canvas.height !== Math.round(h * scale)) {
      canvas.width = Math.round(w * scale);
      canvas.height = Math.round(h * scale);
      canvas.style.width = `${w}px`;
      canvas.style.height = `${h}px`;
    }
    const pen = canvas.getContext("2d", { willReadFrequently: false });
    pen.setTransform(scale, 0, 0, scale, 0, 0);
    pen.fillStyle = colours.panel;
    pen.fillRect(0, 0, w, h);
    const top = viewport.scrollTop;
    pen.font = "600 14px system-ui, sans-serif";
    pen.textBaseline = "middle";
    pen.textAlign = "left";
    pen.fillStyle = colours.ink;
    for (const head of heads) {
      if (head.y + HEAD > top && head.y < top + h) pen.fillText(head.text, GAP, head.y - top + HEAD / 2, w - 2 * GAP);
    }
    drawn = new Map();
    pen.font = `600 ${Math.round(size * 0.6)}px system-ui, sans-serif`;
    pen.textAlign = "center";
    for (const cell of cells) paint(pen, cell);
    mark(pen);
  }

  /** One cell, where it is seen. */
  function paint(pen, cell) {
    const y = cell.y - viewport.scrollTop;
    const node = store.nodes.get(cell.name);
    if (y + size < 0 || y > viewport.clientHeight || !node) return;
    const inner = size > 8 ? size - 2 : size - 1;
    pen.fillStyle = colours[node.phase] ?? colours.soft;
    pen.fillRect(cell.x, y, inner, inner);
    drawn.set(cell.name, node.phase);
    if (size < 13 && (node.phase === "failing" || node.phase === "unavailable")) {
      // Too small for a sign: a cut corner, for those who do not see the colour.
      pen.fillStyle = colours.panel;
      pen.beginPath();
      pen.moveTo(cell.x + inner, y + inner);
      pen.lineTo(cell.x + inner, y + inner / 3);
      pen.lineTo(cell.x + inner / 3, y + inner);
      pen.fill();
    }
    if (size >= 13 && PHASES[node.phase]?.sign) {
      pen.fillStyle = node.phase === "waits" ? colours.ink : colours.panel;
      pen.fillText(PHASES[node.phase].sign, cell.x + inner / 2, y + inner / 2);
    }
  }

  /** The chosen cell's frame. */
  function mark(pen) {
    const cell = places.get(chosen);
    if (!cell || !drawn.has(chosen)) return;
    const inner = size > 8 ? size - 2 : size - 1;
    pen.strokeStyle = colours.focus;
    pen.lineWidth = 3;
    pen.strokeRect(cell.x - 1, cell.y - viewport.scrollTop - 1, inner + 2, inner + 2);
  }

  /** Only the cells of these nodes whose phase is not the one that is drawn: of thousands, most stay as they are. */
  function drawSome(names) {
    const pen = canvas.getContext("2d");
    let painted = false;
    for (const name of names) {
      const was = drawn.get(name);
      if (was === undefined || was === store.nodes.get(name)?.phase) continue;
      paint(pen, places.get(name));
      painted = true;
    }
    if (painted) mark(pen);
  }

  function summary() {
    const of = new Map(RANK.map((p) => [p, 0]));
    for (const node of store.nodes.values()) of.set(node.phase, (of.get(node.phase) ?? 0) + 1);
    fill(counts, [...of].map(([p, n]) => el("span", {}, phase(p), ` ${n}`)));
    canvas.setAttribute("aria-label", `${store.nodes.size} nodes: ${[...of].filter(([, n]) => n > 0).map(([p, n]) => `${n} ${p}`).join(", ")}. The table beside the map lists them.`);
    const count = store.findings.length + store.unmanaged.length;
    // Nobody presses a button for a single line.
    const most = asked || count <= URGENT + 1 ? ROWS : URGENT;
    const shown = [...store.findings, ...store.unmanaged].slice(0, most);
    const now = JSON.stringify([shown, count]);
    if (now === urgent) return;
    urgent = now;
    const lines = shown.map((f) => (typeof f === "string" ? el("li", {}, f) : el("li", {}, f.pool ? [link("pool", f.pool), ": "] : "", f.node ? [link("node", f.node), ": "] : "", sentence(f.message))));
    fill(problems, count ? el("section", { class: "panel" }, el("h2", {}, "Needs attention"), el("ul", {}, lines), count > most && !asked ? el("button", { "data-key": "attention", on: { click: () => { asked = true; summary(); } } }, `Show all ${count}`) : "") : "");
  }

  /** The pools in short. A pool that has changed is another object. */
  function cards() {
    const all = inOrder(store.pools.values());
    if (all.length === told.length && all.every((p, i) => p === told[i])) return;
    told = all;
    fill(pools, all.slice(0, POOLS).map(brief), all.length > POOLS ? el("p", {}, el("a", { href: "#/pools", "data-key": "pools" }, `All ${all.length} pools`)) : "");
  }

  function list() {
    const word = search.value.trim().toLowerCase();
    const fits = (n) => (!only.value || n.phase === only.value) && (!word || [n.name, n.why, n.current, n.desired, n.zone ?? ""].some((t) => t.toLowerCase().includes(word)));
    const found = order.map((name) => store.nodes.get(name)).filter((n) => n && fits(n));
    const all = RANK.flatMap((rank) => found.filter((n) => n.phase === rank));
    if (!store.known) return fill(listed, el("p", { class: "soft" }, "The fleet has not been read yet."));
    if (!listed.contains(body)) {
      const head = el("tr", {}, ["Node", "Pool", "Phase", "What it does or waits for"].map((h) => el("th", { scope: "col" }, h)));
      fill(listed, el("table", {}, caption, el("thead", {}, head), body), more);
    }
    // Most rows stay as they are: the table is laid out anew only where it differs.
    const was = rows;
    rows = new Map(all.slice(0, shown).map((n) => {
      const key = [n.name, n.pool, n.phase, n.why].join("\n");
      return [key, was.get(key) ?? el("tr", { "data-node": n.name, "data-phase": n.phase }, el("td", {}, link("node", n.name)), el("td", {}, n.pool), el("td", {}, phase(n.phase)), el("td", {}, sentence(n.why)))];
    }));
    arrange(body, [...rows.values()]);
    const counted = `${all.length} of ${store.nodes.size} nodes`;
    if (caption.textContent !== counted) caption.textContent = counted;
    more.hidden = all.length <= shown;
    const words = `Show ${Math.min(ROWS, all.length - shown)} more of ${all.length}`;
    if (!more.hidden && more.textContent !== words) more.textContent = words;
  }

  function choose(name, scroll) {
    chosen = name;
    const cell = cells.find((c) => c.name === name);
    const node = store.nodes.get(name);
    if (!cell || !node) return;
    if (scroll) {
      if (cell.y < viewport.scrollTop) viewport.scrollTop = cell.y - HEAD;
      if (cell.y + size > viewport.scrollTop + viewport.clientHeight) viewport.scrollTop = cell.y + size - viewport.clientHeight + GAP;
    }
    fill(said, `${name}, pool ${node.pool}, ${node.phase}: ${node.why}`);
    draw();
  }

  function zoom(step) {
    const at = SIZES.indexOf(size) + step;
    if (at < 0 || at >= SIZES.length) return;
    size = SIZES[at];
    layOut();
    draw();
  }

  /** Fills the map with one group, its cells as large as they may be; or shows all, larger where they are few. */
  function enter(key) {
    const least = key === "" ? SIZES[2] : SIZES[0];
    group = key;
    chosen = null;
    size = key === "" && store.nodes.size > FEW ? least : SIZES.at(-1);
    layOut();
    while (height > viewport.clientHeight && size > least) {
      size = SIZES[SIZES.indexOf(size) - 1];
      layOut();
    }
    viewport.scrollTop = 0;
    draw();
  }
  within.addEventListener("change", () => enter(within.value));

  const spot = (event) => {
    const box = viewport.getBoundingClientRect();
    return [event.clientX - box.left, event.clientY - box.top + viewport.scrollTop];
  };
  const heading = (event) => {
    const [, y] = spot(event);
    return heads.find((h) => y >= h.y && y < h.y + HEAD)?.key;
  };
  const under = (event) => {
    const [x, y] = spot(event);
    return cells.find((c) => x >= c.x && x < c.x + size && y >= c.y && y < c.y + size)?.name;
  };
  viewport.addEventListener("scroll", draw, { passive: true });
  viewport.addEventListener("pointermove", (event) => {
    const node = store.nodes.get(under(event) ?? "");
    hint.hidden = !node;
    if (!node) return;
    fill(hint, el("strong", {}, node.name), el("br"), phase(node.phase), " ", node.why);
    hint.style.left = `${Math.min(event.clientX + 14, window.innerWidth - 260)}px`;
    hint.style.top = `${event.clientY + 14}px`;
  });
  viewport.addEventListener("pointerleave", () => { hint.hidden = true; });
  const open = (name) => { location.hash = `#/node/${encodeURIComponent(name)}`; };
  viewport.addEventListener("click", (event) => {
    const [name, key] = [under(event), heading(event)];
    if (name) open(name);
    else if (key !== undefined) enter(group ? "" : key);
  });
  viewport.addEventListener("keydown", (event) => {
    const step = { ArrowLeft: -1, ArrowRight: 1, ArrowUp: -perRow, ArrowDown: perRow, Home: -Infinity, End: Infinity }[event.key];
    if (step !== undefined && cells.length) {
      const at = cells.findIndex((c) => c.name === chosen);
      choose(cells[Math.min(cells.length - 1, Math.max(0, at < 0 ? 0 : at + step))].name, true);
    } else if (event.key === "Enter" && chosen) open(chosen);
    else if (event.key === "+" || event.key === "=") zoom(1);
    else if (event.key === "-") zoom(-1);
    else return;
    event.preventDefault();
  });
  search.addEventListener("input", () => { shown = ROWS; list(); });
  only.addEventListener("change", () => { shown = ROWS; list(); });
  const resized = new ResizeObserver(() => { layOut(); draw(); });
  let slow = 0;
  const redraw = () => {
    if (fitted || !store.nodes.size) {
      layOut();
      draw();
    } else {
      fitted = true;
      enter("");
    }
    summary();
    cards();
    list();
  };
  store.addEventListener("change", (event) => {
    if (event.detail.nodes === null) return redraw();
    drawSome(event.detail.nodes);
    // Tables are slow to build: ten times a second is enough for a person.
    slow ||= setTimeout(() => { slow = 0; if (!signal.aborted) { summary(); cards(); list(); } }, 100);
  }, { signal });
  document.addEventListener("mco-theme", () => { readColours(); draw(); }, { signal });
  signal.addEventListener("abort", () => resized.disconnect());
  const buttons = el("div", { class: "row" }, el("button", { on: { click: () => zoom(-1) } }, "Smaller"), el("button", { on: { click: () => zoom(1) } }, "Larger"), within, counts);
  const view = el("div", { class: "whole" }, el("h2", {}, "Fleet"), problems, pools, buttons, said, el("div", { class: "fleet" }, el("div", {}, viewport, hint), el("section", { "aria-label": "Nodes" }, el("div", { class: "row" }, search, only), listed)));
  queueMicrotask(() => { readColours(); redraw(); resized.observe(viewport); });
  // Where a group's heading is, for tests.
  view.head = (text) => heads.find((h) => h.text.startsWith(text));
  // What the canvas shows: read back from its pixels, for tests.
  view.cell = (name) => {
    const cell = cells.find((c) => c.name === name);
    if (!cell || !drawn.has(name)) return null;
    const scale = window.devicePixelRatio || 1;
    const at = [cell.x + 1, cell.y - viewport.scrollTop + 1].map((n) => Math.round(n * scale));
    const pixel = [...canvas.getContext("2d").getImageData(at[0], at[1], 1, 1).data].slice(0, 3);
    return { phase: drawn.get(name), pixel };
  };
  return view;
}
