// The rollout: for each node the phases of its update as bars, with its wait before that, the stuck and the slowest first; also of the
// last ten rollouts.
// What it is not: a record of its own; that is the server's.
import { arrange, el, fill, isPressed, link, span, time } from "./dom.js";
import { ask } from "./store.js";

const PARTS = { wait: "wait", drain: "drain", apply: "apply", reboot: "reboot", back: "kubelet and agent back" };
/** What a part has on it: colours are not enough. */
const LETTERS = { wait: "W", drain: "D", apply: "A", reboot: "R", back: "K" };
/** Where nodes are in a rollout. */
const STATES = { fails: "fails", stuck: "cannot begin", moves: "under way", goes: "is sent there", waits: "waits", done: "done", left: "left for another config" };
/** The same of several. */
const ALL = { fails: "failing", stuck: "not able to begin", moves: "under way", goes: "being sent there", waits: "waiting", done: "done", left: "left for another config" };
/** How many nodes of a rollout are shown before somebody asks for more. */
const FIRST = 50;
// All times in milliseconds.
/** How often it is read again where nothing changes: what goes on takes longer. */
const AGAIN = 15000;
/** The shortest time between two reads, and how many times as long as drawing took: the page stays quick in between. */
const APART = 1000;
const REST = 8;

/** The bars of a node. Their places follow from the rollout's length, which grows: see `.track` in the style. */
function bars(node, begin) {
  const track = el("div", { class: "track", role: "img" });
  for (const bar of node.bars) {
    // Who has waited since before the rollout began shows that from its beginning on.
    const from = Math.max(begin, Date.parse(bar.from));
    const before = bar.to && Date.parse(bar.to) <= begin && bar.part === "wait";
    const part = el("div", { class: `seg-${bar.part}${bar.to ? "" : " seg-open"}`, "data-letter": LETTERS[bar.part], hidden: Boolean(before) });
    part.style.setProperty("--at", (from - begin) / 1000);
    if (bar.to) part.style.setProperty("--took", Math.max(0, Date.parse(bar.to) - from) / 1000);
    track.append(part);
  }
  if (node.done) {
    const end = el("div", { class: "seg-done", "data-letter": "✓", title: "done" });
    end.style.setProperty("--at", (Date.parse(node.done) - begin) / 1000);
    track.append(end);
  }
  return track;
}

/** How long a part took, or has taken. */
function took(bar, now) {
  const seconds = ((bar.to ? Date.parse(bar.to) : now) - Date.parse(bar.from)) / 1000;
  return `${PARTS[bar.part]} ${span(seconds)}${bar.to ? "" : " so far"}`;
}

/** What a node waited for: before it began, and its drain. */
function waited({ turn = [], waited = "" }) {
  return [...turn.map(([what, seconds]) => `${what} (${span(seconds)})`), waited].filter(Boolean).join(", ");
}

/** A cell whose text is written only if it differs. */
const say = (cell, text) => {
  if (cell.textContent !== text) cell.textContent = text;
};

/** A node's row. It is kept as long as what it shows is the same, but for the time that passes. */
class Row {
  constructor(node, begin) {
    const word = STATES[node.state] ?? node.state;
    const at = node.state === "done" ? node.done : node.state === "left" ? node.left : "";
    const state = ["fails", "stuck"].includes(node.state) ? el("span", { class: "bad" }, word) : at ? [`${word} `, time(at, true)] : word;
    this.took = el("td");
    this.waits = el("td");
    this.track = bars(node, begin);
    this.element = el("tr", {}, el("td", {}, link("node", node.node)), el("td", {}, state), this.took, el("td", {}, this.track), this.waits);
  }

  /** `known`: the node as the fleet shows it. */
  update(node, known, now) {
    say(this.took, node.bars.length ? span(node.seconds) : "–");
    const drains = node.bars.some((bar) => bar.part === "drain" && !bar.to);
    const over = node.done || node.left;
    const waits = (drains && node.state !== "fails" && node.waited) || (known?.why ?? "");
    const before = waited({ turn: node.turn });
    say(this.waits, over ? waited(node) : [waits, before && `before: ${before}`].filter(Boolean).join("; "));
    const words = node.bars.map((bar) => took(bar, now));
    const label = [...words, node.done && "done"].filter(Boolean).join(", ") || "its phases were not seen";
    if (label === this.label) return;
    this.label = label;
    this.track.setAttribute("aria-label", label);
    words.forEach((text, at) => { this.track.children[at].title = text; });
  }
}

/** One rollout. */
class Section {
  #rows = new Map();
  #shown = FIRST;

  /** `wanted` is called when somebody wants to see all nodes. */
  constructor(store, one, wanted) {
    this.wanted = wanted;
    this.store = store;
    this.path = `api/rollouts/${encodeURIComponent(one.pool)}/${encodeURIComponent(one.config)}`;
    this.note = el("p", { class: "soft" });
    this.more = el("p");
    this.body = el("tbody");
    const head = el("tr", {}, ["Node", "State", "Took", "Phases", "What it waits for, or waited for"].map((h) => el("th", { scope: "col" }, h)));
    this.element = el("section", { class: "panel" }, el("h3", {}, link("pool", one.pool), " → ", el("span", { class: "mono" }, link("config", one.config))), this.note,
      el("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": `Nodes of ${one.pool}` }, el("table", { class: "lines" }, el("thead", {}, head), this.body)), this.more);
  }

  /** `now`: by the server's clock, as all times here. */
  update(one, now) {
    // A row that goes away under a press takes the click with it.
    if (isPressed(this.body)) return;
    // A pool may be paused for days before its nodes go: the rollout begins with the first of them.
    const moments = (counts) => one.nodes.flatMap((n) => [n.done, n.left, ...n.bars.filter(counts).flatMap((b) => [b.from, b.to])]).filter(Boolean).map((t) => Date.parse(t));
    const begun = moments((b) => b.part !== "wait");
    const times = begun.length ? begun : moments(() => true);
    const open = one.nodes.some((n) => n.bars.some((b) => !b.to));
    const begin = times.length ? Math.min(...times) : now;
    const end = open || !times.length ? now : Math.max(...times);
    this.body.style.setProperty("--length", Math.max(1, end - begin) / 1000);
    const nodes = one.nodes.slice(0, this.#shown);
    const rows = new Map();
    for (const node of nodes) {
      const key = JSON.stringify([begin, { ...node, seconds: 0 }]);
      const was = this.#rows.get(node.node);
      const row = was?.key === key ? was.row : new Row(node, begin);
      row.update(node, this.store.nodes.get(node.node), now);
      rows.set(node.node, { key, row });
    }
    arrange(this.body, [...rows.values()].map(({ row }) => row.element));
    this.#rows = rows;
    const states = one.counts.map(([state, n]) => `${n} ${ALL[state] ?? state}`).join(", ");
    const all = `${one.total} nodes: ${states}${one.nodes.length < one.total ? `; here the first ${one.nodes.length}` : ""}; `;
    const words = [all, open, begin, open || end].join();
    if (words !== this.words) fill(this.note, all, "from ", time(new Date(begin).toISOString()), " to ", open ? "now" : time(new Date(end).toISOString()));
    this.words = words;
    const left = one.total - nodes.length;
    if (left !== this.left) fill(this.more, left ? el("button", { "data-key": "more", on: { click: () => this.#grow() } }, `Show ${left} more`) : "");
    this.left = left;
  }

  /** Whether somebody wants to see all of its nodes. */
  get whole() {
    return this.#shown === Infinity;
  }

  #grow() {
    this.#shown = Infinity;
    this.left = 0;
    fill(this.more, el("span", { class: "soft" }, "Reading…"));
    this.wanted();
  }
}

/** The view. */
export function rollouts(store, signal) {
  const body = el("div");
  const note = el("div");
  let sections = new Map();
  let waiting = 0;
  let rest = APART;
  let turn = 0;
  const show = (said) => {
    const now = Date.parse(said.now);
    // Who may not read these sees the nodes that wait, and of those under way what events tell.
    const unread = store.unread.filter((one) => one.kind === "MachineConfigNode").map((one) => one.words);
    if (said.unread) unread.push(said.unread);
    fill(note, unread.map((text) => el("p", { class: "bad" }, `${text}.`)));
    const keys = said.rollouts.map((one) => `${one.pool} ${one.config}`);
    const before = [...sections.keys()].join("\n");
    sections = new Map(said.rollouts.map((one, at) => [keys[at], sections.get(keys[at]) ?? new Section(store, one, () => read())]));
    said.rollouts.forEach((one, at) => sections.get(keys[at]).update(one, now));
    if (keys.join("\n") !== before || !keys.length || !body.firstChild?.matches?.("section")) {
      fill(body, keys.length ? [...sections.values()].map((s) => s.element) : el("p", { class: "soft" }, "No update was seen yet."));
    }
  };
  const read = async () => {
    // Of two answers that are under way, the one to the later question counts.
    const mine = ++turn;
    try {
      const said = await ask("api/rollouts");
      for (const one of said.rollouts) {
        const section = sections.get(`${one.pool} ${one.config}`);
        if (section?.whole && one.nodes.length < one.total) Object.assign(one, (await ask(section.path)).rollout);
      }
      if (signal.aborted || mine !== turn) return;
      const begun = performance.now();
      show(said);
      rest = Math.max(APART, REST * (performance.now() - begun));
    } catch (error) {
      if (signal.aborted || mine !== turn) return;
      fill(body, el("p", { class: "bad" }, error.message));
    }
  };
  store.addEventListener("change", () => {
    waiting ||= setTimeout(() => { waiting = 0; if (!signal.aborted) read(); }, rest);
  }, { signal });
  const again = setInterval(() => { if (!document.hidden) read(); }, AGAIN);
  signal.addEventListener("abort", () => clearInterval(again));
  read();
  const legend = el("p", { class: "row" }, [...Object.entries(PARTS), ["done", "done"]].map(([part, word]) => el("span", { class: "phase" }, el("span", { class: `key seg-${part}`, "data-letter": LETTERS[part] ?? "✓", "aria-hidden": "true" }), word)));
  return el("div", {}, el("h2", {}, "Rollout"), el("p", { class: "soft" }, "The last ten rollouts of each pool: those under way first, then those that wait, then the newest. A node keeps the times of its last ten updates. A rollout is drawn from the moment when its first node began."), note, legend, body);
}
