// One node: what its agent says, its steps and conditions, what its next config changes, its past updates, its drain, its events.
// What it is not: the list of nodes (see fleet.js).
import { difference, el, facts, fill, link, phase, span, table, time } from "./dom.js";
import { button } from "./actions.js";
import { ask } from "./store.js";

function conditions(caption, list) {
  if (!list) return el("p", { class: "soft" }, `${caption}: none.`);
  if (list.error) return el("p", { class: "bad" }, list.error);
  return table(caption, ["Condition", "Status", "Since", "Reason", "Message"], list.map((c) => [c.type, c.status, time(c.lastTransitionTime), c.reason ?? "", c.message ?? ""]));
}

/** How often what the stream does not tell is read again, in milliseconds. */
const AGAIN = 30000;

const took = (seconds) => (seconds === null || seconds === undefined ? "–" : span(seconds));

/** The updates that are over. */
function updates(all) {
  if (!all.length) return el("p", { class: "soft" }, "Its updates so far: its agent has recorded none.");
  return table("Its updates so far, the newest first", ["Config", "Began", "Done", "Drain", "Change", "Reboot", "Kubelet back", "In all", "Waited for before it began", "Its drain waited for"], all.map((u) => [el("span", { class: "mono" }, link("config", u.config)), time(u.began), time(u.done), took(u.drain), took(u.change), took(u.reboot), took(u.back), took(u.seconds), u.turn.map(([what, seconds]) => `${what} (${span(seconds)})`).join(", "), u.waited]));
}

/** What an agent says: a difference of drift has its lines. */
function reason(text) {
  return /^[+-]/m.test(text) ? difference(text) : el("pre", { tabindex: "0" }, text);
}

/** The view. */
export function node(store, signal, name) {
  const top = el("div");
  const more = el("div", {}, el("p", { class: "soft" }, "Reading…"));
  let last = "";
  let waiting = 0;
  let turn = 0;
  const read = async () => {
    // Of two answers that are under way, the one to the later question counts.
    const mine = ++turn;
    try {
      const said = await ask(`api/nodes/${encodeURIComponent(name)}`);
      if (signal.aborted || mine !== turn) return;
      const events = said.events.error ? el("p", { class: "bad" }, said.events.error) : table("Events, the newest first", ["When", "Type", "Reason", "Message"], said.events.map((e) => [time(e.at), e.type ?? "", e.reason ?? "", e.message ?? ""]));
      const change = said.difference.error ? el("p", { class: "bad" }, said.difference.error) : difference(said.difference.text);
      fill(more,
        el("section", { class: "panel" }, facts([
          ["Agent", said.state], ["Cordoned", said.cordoned ? "yes" : "no"], ["Kubelet", said.kubelet], ["OS", said.os], ["Kernel", said.kernel],
          ["Drain asked for", said.drain.desired], ["Drain answered", said.drain.applied], ["Drain waits for", said.drain.waitsFor], ["Drift policy", said.driftPolicy],
        ]), said.reason ? [el("h3", {}, "What the agent says"), reason(said.reason)] : ""),
        el("h3", {}, "What its next config changes"), change, updates(said.updates),
        conditions("Steps of the update", said.steps), conditions("Conditions of the Node", said.conditions), events);
    } catch (error) {
      if (!signal.aborted && mine === turn) fill(more, el("p", { class: "bad" }, error.message));
    }
  };
  const draw = () => {
    const n = store.nodes.get(name);
    if (!n) return fill(top, el("p", {}, store.known ? `No pool has a node ${name}.` : "The fleet has not been read yet."));
    const now = JSON.stringify([n.phase, n.state, n.current, n.desired, n.why]);
    if (now !== last) {
      last = now;
      waiting ||= setTimeout(() => { waiting = 0; if (!signal.aborted) read(); }, 300);
    }
    const config = (text) => text && el("span", { class: "mono" }, link("config", text));
    return fill(top, el("section", { class: "panel", "data-node": name, "data-phase": n.phase }, facts([
      ["Phase", phase(n.phase)], ["Why", n.why], ["Since", n.since ? time(n.since) : ""], ["Pool", link("pool", n.pool)], ["Zone", n.zone], ["Current config", config(n.current)], ["Desired config", config(n.desired)],
    ]), el("p", { class: "row" }, button("Retry now what failed", { action: "retry", node: name }))));
  };
  store.addEventListener("change", (event) => {
    if (event.detail.nodes === null || event.detail.nodes.has(name)) draw();
  }, { signal });
  // Its events and conditions are not in the stream.
  const again = setInterval(() => { if (!document.hidden) read(); }, AGAIN);
  signal.addEventListener("abort", () => clearInterval(again));
  draw();
  if (!waiting) read();
  return el("div", {}, el("h2", {}, `Node ${name}`), top, more);
}
