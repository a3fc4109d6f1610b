// The rollout: for each node the phases of its update as bars, the stuck and the slowest first; also of the last ten rollouts.
// What it is not: a record of its own; that is the server's.
import { el, fill, link, span, time } from "./dom.js";
import { ask } from "./store.js";

const PARTS = { drain: "drain", apply: "apply", reboot: "reboot", back: "kubelet and agent back" };

function line(node, begin, end) {
  const track = el("div", { class: "track", role: "img" });
  const length = Math.max(1, end - begin);
  const words = node.bars.map((bar) => {
    const from = Date.parse(bar.from);
    const to = bar.to ? Date.parse(bar.to) : end;
    const part = el("div", { class: `seg-${bar.part}${bar.to ? "" : " seg-open"}`, title: `${PARTS[bar.part]}: ${span((to - from) / 1000)}` });
    part.style.left = `${(100 * (from - begin)) / length}%`;
    part.style.width = `${(100 * Math.max(0, to - from)) / length}%`;
    track.append(part);
    return `${PARTS[bar.part]} ${span((to - from) / 1000)}${bar.to ? "" : " so far"}`;
  });
  track.setAttribute("aria-label", words.join(", ") || "its phases were not seen");
  const state = node.failing ? el("span", { class: "bad" }, "fails") : node.done ? ["done ", time(node.done, true)] : "under way";
  return el("tr", {}, el("td", {}, link("node", node.node)), el("td", {}, state), el("td", {}, node.bars.length ? span(node.seconds) : "–"), el("td", {}, track), el("td", {}, node.waited ?? ""));
}

/** How often it is read again where nothing changes: what goes on takes longer. In milliseconds. */
const AGAIN = 15000;

/** `now`: by the server's clock, as all times here. */
function rollout(one, now) {
  const times = one.nodes.flatMap((n) => [n.done, ...n.bars.flatMap((b) => [b.from, b.to])]).filter(Boolean).map((t) => Date.parse(t));
  const open = one.nodes.some((n) => n.bars.some((b) => !b.to));
  const begin = times.length ? Math.min(...times) : now;
  const end = open || !times.length ? now : Math.max(...times);
  const head = el("tr", {}, ["Node", "State", "Took", "Phases", "Its drain waited for"].map((h) => el("th", { scope: "col" }, h)));
  const rows = one.nodes.map((n) => line(n, begin, end));
  const note = one.nodes.length < one.total ? `the first ${one.nodes.length} of ${one.total} nodes; ` : `${one.total} nodes; `;
  return el("section", { class: "panel" }, el("h3", {}, link("pool", one.pool), " → ", el("span", { class: "mono" }, link("config", one.config))),
    el("p", { class: "soft" }, note, "from ", time(new Date(begin).toISOString()), " to ", open ? "now" : time(new Date(end).toISOString())),
    el("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": `Nodes of ${one.pool}` }, el("table", {}, el("thead", {}, head), el("tbody", {}, rows))));
}

/** The view. */
export function rollouts(store, signal) {
  const body = el("div");
  let waiting = 0;
  const read = async () => {
    try {
      const said = await ask("api/rollouts");
      if (signal.aborted) return;
      fill(body, said.rollouts.length ? said.rollouts.map((one) => rollout(one, Date.parse(said.now))) : el("p", { class: "soft" }, store.unread.find((text) => text.startsWith("MachineConfigNodes")) ?? "No update was seen yet."));
    } catch (error) {
      fill(body, el("p", { class: "bad" }, error.message));
    }
  };
  store.addEventListener("change", () => {
    waiting ||= setTimeout(() => { waiting = 0; if (!signal.aborted) read(); }, 1000);
  }, { signal });
  const again = setInterval(() => { if (!document.hidden) read(); }, AGAIN);
  signal.addEventListener("abort", () => clearInterval(again));
  read();
  const legend = el("p", { class: "row" }, Object.entries(PARTS).map(([part, word]) => el("span", { class: "phase" }, el("span", { class: `dot seg-${part}`, "aria-hidden": "true" }), word)));
  return el("div", {}, el("h2", {}, "Rollout"), el("p", { class: "soft" }, "The last ten rollouts of each pool, the newest first. A node keeps the times of its last ten updates."), legend, body);
}
