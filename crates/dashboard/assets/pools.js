// The pools: how far each is, what holds it, and since when; and one pool with its policy, what it gets, who set that, and its
// nodes.
// What it is not: what the actions do (see actions.js).
import { PHASES, byName, el, facts, fill, link, phase, sentence, span, table, time } from "./dom.js";
import { forPool } from "./actions.js";
import { ask } from "./store.js";

/** The time between two looks of a person, in milliseconds. */
const REST = 250;
/** How many nodes of a pool are listed with it, those that fail first. The fleet lists all. */
const LISTED = 200;
const RANK = Object.keys(PHASES);

/** When the rest of a pool may be done, in words. */
export function estimate(pool) {
  if (pool.estimate === "about") return `about ${span(pool.seconds)}, at the pace of ${pool.fromNodes} nodes`;
  if (pool.estimate === "done") return "no node is left";
  return ["not known: ", sentence(pool.because ?? "")];
}

/** What a gate said last. */
const SAYS = { Passed: "passed", Failed: "failed", Failing: "fails, not for long enough yet", NoAnswer: "no answer yet" };

/** What a wave does. */
const WAVES = { needsApproval: () => "waits for an approval", notBegun: () => "has not begun", held: () => "has begun, and is held", moves: () => "its nodes may go", soaks: (wave) => ["has to prove itself until ", time(wave.until)] };

function wave({ name, place, of, ...what }) {
  return [el("strong", {}, name), place ? ` (wave ${place} of ${of})` : "", ": ", WAVES[what.state]?.(what) ?? what.state];
}

const bad = (...text) => el("span", { class: "bad" }, text);
const but = ({ passes }) => (passes ? ` (${passes})` : "");

/** Whether a policy lets updates begin now. */
const HOURS = {
  open: (hours) => (hours.until ? ["updates may begin until ", time(hours.until)] : "updates may begin"),
  shut: (hours) => [hours.opens ? bad("shut; opens ", time(hours.opens)) : bad("its windows never open"), but(hours)],
  frozen: (hours) => [hours.until ? bad("frozen until ", time(hours.until)) : bad("frozen"), ": ", hours.reason, but(hours)],
};

/** Where a pool stands in its policy, as names and values. */
function standing({ policy }) {
  if (!policy) return [];
  const gate = (g) => el("li", {}, `${g.gate}: `, el("span", { class: g.outcome === "Passed" ? "" : "bad" }, SAYS[g.outcome] ?? g.outcome), g.message ? el("span", { class: "soft" }, " (", sentence(g.message), ")") : "");
  return [
    ["Wave", policy.wave && wave(policy.wave)],
    ["Gates", policy.gates?.length && el("ul", {}, policy.gates.map(gate))],
    ["Window", policy.hours && HOURS[policy.hours.state]?.(policy.hours)],
  ];
}

/** How far a pool is, as a bar. */
function bar(pool) {
  const bar = el("div", { class: "bar", role: "progressbar", "aria-valuemin": "0", "aria-valuemax": String(pool.machines), "aria-valuenow": String(pool.updated), "aria-label": `${pool.name}: ${pool.updated} of ${pool.machines} nodes updated` });
  const part = el("div", { class: "done" });
  part.style.width = `${pool.machines ? (100 * pool.updated) / pool.machines : 100}%`;
  bar.append(part);
  return bar;
}

/** How many nodes of each pool are in each phase. */
function countAll(store) {
  const pools = new Map();
  for (const { pool, phase: at } of store.nodes.values()) {
    if (!pools.has(pool)) pools.set(pool, new Map(Object.keys(PHASES).map((p) => [p, 0])));
    const counts = pools.get(pool);
    counts.set(at, (counts.get(at) ?? 0) + 1);
  }
  return pools;
}

function progress(counts, pool) {
  const some = [...(counts.get(pool.name) ?? [])].filter(([, n]) => n);
  return [bar(pool), el("p", { class: "row" }, some.map(([p, n]) => el("span", {}, phase(p), ` ${n}`)))];
}

/** Pools in the order in which people look at them: those first that are not done, or cannot get further. */
export function inOrder(pools) {
  const calm = (p) => p.updated === p.machines && !p.stuck && !p.held;
  return [...pools].sort((a, b) => calm(a) - calm(b) || byName(a.name, b.name));
}

/** A pool in short, for the fleet: how far it is, what is left, its wave, gates and window, and why it is held. */
export function brief(pool) {
  return el("section", { class: "panel brief", "data-brief": pool.name }, el("h3", {}, link("pool", pool.name)), bar(pool), facts([
    ["Updated", `${pool.updated} of ${pool.machines} nodes`],
    ["Left", pool.estimate === "done" ? "" : estimate(pool)],
    ...standing(pool),
    ["Held", pool.held && bad(sentence(pool.held))],
    ["Stuck", pool.stuck && pool.stuck !== pool.held && bad(sentence(pool.stuck))],
  ]));
}

function about(pool) {
  return facts([
    ["Updated", `${pool.updated} of ${pool.machines} nodes (${pool.percent} %)`],
    ["Config", pool.config ? el("span", { class: "mono" }, link("config", pool.config)) : "none yet"],
    ["At once", `at most ${pool.maxUnavailable}`],
    ["Left", estimate(pool)],
    ...standing(pool),
    ["Held", pool.held && bad(sentence(pool.held))],
    ["Pinned", pool.pinned && sentence(pool.pinned)],
    ["Stuck", pool.stuck && pool.stuck !== pool.held && bad(sentence(pool.stuck))],
    ["Images", pool.images && sentence(pool.images)],
    ["Conditions", pool.conditions.length ? el("ul", {}, pool.conditions.map((c) => el("li", {}, el("strong", {}, c.type), c.message ? [": ", sentence(c.message)] : ""))) : ""],
  ]);
}

/** Calls `draw` soon after it is asked to, and not more often than a person reads. */
function calmly(signal, draw) {
  let waiting = 0;
  return () => {
    waiting ||= setTimeout(() => { waiting = 0; if (!signal.aborted) draw(); }, REST);
  };
}

/** All pools. */
export function pools(store, signal) {
  const cards = el("div", { class: "cards" });
  const draw = () => {
    const counts = countAll(store);
    fill(cards, store.known ? "" : el("p", { class: "soft" }, "The fleet has not been read yet."), inOrder(store.pools.values()).map((p) => el("section", { class: "panel", "data-pool": p.name }, el("h3", {}, link("pool", p.name)), progress(counts, p), about(p), forPool(p))));
  };
  store.addEventListener("change", calmly(signal, draw), { signal });
  draw();
  return el("div", {}, el("h2", {}, "Pools"), cards);
}

/** What a gate looks at. */
const LOOKS = { nodeCondition: "a condition of nodes", workloads: "workloads", prometheus: "Prometheus", http: "an address", job: "a Job" };
function policies(list) {
  if (list.error) return el("p", { class: "bad" }, list.error);
  if (!list.length) return el("p", { class: "soft" }, "No RolloutPolicy selects this pool.");
  return list.map(({ name, spec, progress, inForce, why, ready, unreadable }) => {
    if (unreadable) return el("p", { class: "bad" }, sentence(unreadable));
    const now = progress ?? {};
    const config = (text) => text && el("span", { class: "mono" }, link("config", text));
    const each = (all, draw) => (all?.length ? el("ul", {}, all.map((one) => el("li", {}, draw(one)))) : "");
    const part = (all, caption, heads, draw) => (all?.length ? table(caption, heads, all.map(draw)) : "");
    const said = new Map((now.gates ?? []).map((g) => [g.gate, g]));
    const begun = now.approvalNeeded ? "waits for an approval: another pool has rejected such a change" : now.waveBegun ? "it has begun" : "it has not begun";
    const looks = (gate) => Object.keys(LOOKS).filter((kind) => gate[kind]).map((kind) => LOOKS[kind]).join(", ");
    return el("div", {}, facts([
      ["Policy", name], ["Not in force", !inForce && bad(sentence(why))],
      ["Ready", ready && ready.status !== "True" && `${ready.status}: ${ready.message}`], ["On its way", config(now.config)], ["Since", now.since && time(now.since)], ["Wave", now.wave && `${now.wave} (${begun})`],
      ["Proves itself until", now.soakUntil && time(now.soakUntil)], ["Held", now.held && bad(sentence(now.held))],
      ["Approved", each(now.approvals, (a) => ["wave ", a.wave, " for ", config(a.config), " by ", a.by, ", ", time(a.at)])],
      ["Proved last", config(now.proved)], ["Rejected", each(now.rejected, (r) => [config(r.config), ", ", time(r.at), ": ", sentence(r.reason)])],
      ["Broken before", each((now.baseline ?? []).filter((b) => b.broken?.length), (b) => `${b.gate}: ${b.broken.join(", ")}`)],
    ]),
    part(spec.waves, "Waves", ["Wave", "Nodes", "Approval", "Soak"], (w) => [w.name === now.wave ? el("strong", {}, `${w.name} (now)`) : w.name, w.size ?? (w.nodeSelector ? "by label" : "the rest"), w.approval === "Needed" ? "by a person" : "not needed", w.soak ?? "none"]),
    part(spec.gates, "Gates", ["Gate", "Looks at", "Said last", "Why"], (g) => [g.name, looks(g), SAYS[said.get(g.name)?.outcome] ?? "not asked now", sentence(said.get(g.name)?.message ?? "")]),
    part(spec.windows, "Windows: new updates begin only in these", ["Window", "Opens (as in crontab)", "Time zone", "Stays open"], (w) => [w.name, el("span", { class: "mono" }, w.cron), w.timeZone, w.duration]),
    part(spec.freezes, "Freezes: no update begins in these", ["Freeze", "From", "To"], (f) => [f.name, time(f.from), time(f.to)]));
  });
}

/** Who set what in a config, file by file. */
export function origins(explanation) {
  if (explanation.error) return el("p", { class: "bad" }, explanation.error);
  const body = el("div");
  const search = el("input", { type: "search", placeholder: "path, unit, MachineConfig", "aria-label": "Only what has this in its name or origin" });
  const contested = el("input", { type: "checkbox" });
  const draw = () => {
    const word = search.value.trim().toLowerCase();
    const lost = (o) => o.lost ?? [];
    const all = explanation.origins.filter((o) => (!contested.checked || lost(o).length) && [o.name, o.setBy, ...lost(o)].some((t) => t.toLowerCase().includes(word)));
    fill(body, table(`${Math.min(all.length, 1000)} of ${explanation.origins.length} things`, ["What", "Kind", "Part", "Set by", "Overridden"], all.slice(0, 1000).map((o) => [el("span", { class: "mono" }, o.name), o.kind, o.field ?? "", o.setBy, lost(o).join(", ")])));
  };
  search.addEventListener("input", draw);
  contested.addEventListener("change", draw);
  draw();
  const because = explanation.workedOutBecause ? el("p", { class: "soft" }, `Worked out from the MachineConfigs as they are now, because ${explanation.workedOutBecause}.`) : "";
  return el("div", {}, because, el("p", { class: "row" }, search, el("label", {}, contested, " only what several set")), body);
}

/** What the controller does with it now and next. It is asked for by a button: the server reads all pods for it. */
function ahead(signal, name) {
  const body = el("div", { role: "status" });
  const look = () => {
    fill(body, el("p", { class: "soft" }, "Working it out…"));
    ask(`api/pools/${encodeURIComponent(name)}/plan`).then((said) => {
      if (!signal.aborted) fill(body, el("p", { class: "soft" }, "As of ", time(new Date().toISOString())), el("pre", { tabindex: "0" }, sentence(said.text)));
    }).catch((error) => fill(body, el("p", { class: "bad" }, error.message)));
  };
  return el("section", {}, el("h3", {}, "What the controller does now and next"), el("p", { class: "soft" }, "The plan that it acts on, as `mco plan` prints it: which node goes when and why not yet, what is cordoned and drained, and what drains would wait for."), el("p", {}, el("button", { "data-plan": true, on: { click: look } }, "Show the plan")), body);
}

/** One pool. */
export function pool(store, signal, name) {
  const top = el("div");
  const more = el("div", {}, el("p", { class: "soft" }, "Reading…"));
  let last = "";
  let waiting = 0;
  let turn = 0;
  // Rows by what they show: most nodes stay as they are.
  let rows = new Map();
  const draw = () => {
    const p = store.pools.get(name);
    if (!p) return fill(top, el("p", {}, store.known ? `There is no pool ${name}.` : "The fleet has not been read yet."));
    // The wave, and what the pool gets, follow from these.
    const now = JSON.stringify([p.config, p.held, p.pinned, p.updated]);
    if (now !== last && last) waiting ||= setTimeout(() => { waiting = 0; if (!signal.aborted) read(); }, 1000);
    last = now;
    const nodes = store.of(name).sort((a, b) => RANK.indexOf(a.phase) - RANK.indexOf(b.phase) || byName(a.name, b.name));
    const was = rows;
    rows = new Map(nodes.slice(0, LISTED).map((n) => {
      const key = [n.name, n.phase, n.since, n.why].join("\n");
      const row = was.get(key) ?? el("tr", {}, [link("node", n.name), phase(n.phase), n.since ? time(n.since) : "–", sentence(n.why)].map((c) => el("td", {}, c)));
      return [key, row];
    }));
    return fill(top, el("section", { class: "panel" }, progress(countAll(store), p), about(p), forPool(p)), table(nodes.length > LISTED ? `The first ${LISTED} of ${nodes.length} nodes` : `${nodes.length} nodes`, ["Node", "Phase", "Since", "What it does or waits for"], [...rows.values()]));
  };
  const read = (mine = ++turn) => ask(`api/pools/${encodeURIComponent(name)}`).then((said) => {
    // Of two answers that are under way, the one to the later question counts.
    if (signal.aborted || mine !== turn) return;
    const past = said.history.error ? el("p", { class: "bad" }, said.history.error) : el("pre", { tabindex: "0" }, sentence(said.history));
    fill(more, el("h3", {}, "Rollout policy"), policies(said.policies), el("h3", {}, "What it gets, and who set it"), origins(said.explanation), el("h3", {}, "Its configs, the newest first"), past);
  }).catch((error) => {
    if (mine === turn) fill(more, el("p", { class: "bad" }, error.message));
  });
  const soon = calmly(signal, draw);
  let seen = null;
  store.addEventListener("change", (event) => {
    const now = store.pools.get(name);
    const names = event.detail.nodes;
    const mine = names === null || now !== seen || [...names].some((n) => store.nodes.get(n)?.pool === name);
    seen = now;
    if (mine) soon();
  }, { signal });
  draw();
  read();
  return el("div", {}, el("h2", {}, `Pool ${name}`), top, ahead(signal, name), more);
}
