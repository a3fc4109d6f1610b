// The pools: how far each is, what holds it, and since when; and one pool with its policy, what it gets, who set that, and its
// nodes.
// What it is not: what the actions do (see actions.js).
import { PHASES, byName, el, facts, fill, link, phase, span, table, time } from "./dom.js";
import { forPool } from "./actions.js";
import { ask } from "./store.js";

/** When the rest of a pool may be done, in words. */
export function estimate(pool) {
  if (pool.estimate === "about") return `about ${span(pool.seconds)}, at the pace of ${pool.fromNodes} nodes`;
  if (pool.estimate === "done") return "no node is left";
  return `not known: ${pool.because ?? ""}`;
}

function progress(store, pool) {
  const nodes = store.of(pool.name);
  const bar = el("div", { class: "bar", role: "progressbar", "aria-valuemin": "0", "aria-valuemax": String(pool.machines), "aria-valuenow": String(pool.updated), "aria-label": `${pool.name}: ${pool.updated} of ${pool.machines} nodes updated` });
  const part = el("div", { class: "done" });
  part.style.width = `${pool.machines ? (100 * pool.updated) / pool.machines : 100}%`;
  bar.append(part);
  const counts = Object.keys(PHASES).map((p) => [p, nodes.filter((n) => n.phase === p).length]).filter(([, n]) => n);
  return [bar, el("p", { class: "row" }, counts.map(([p, n]) => el("span", {}, phase(p), ` ${n}`)))];
}

function about(pool) {
  return facts([
    ["Updated", `${pool.updated} of ${pool.machines} nodes (${pool.percent} %)`],
    ["Config", pool.config ? el("span", { class: "mono" }, link("config", pool.config)) : "none yet"],
    ["At once", `at most ${pool.maxUnavailable}`],
    ["The rest", estimate(pool)],
    ["Held", pool.held && el("span", { class: "bad" }, pool.held)],
    ["Pinned", pool.pinned],
    ["Stuck", pool.stuck && el("span", { class: "bad" }, pool.stuck)],
    ["Conditions", pool.conditions.length ? el("ul", {}, pool.conditions.map((c) => el("li", {}, el("strong", {}, c.type), c.message ? `: ${c.message}` : ""))) : ""],
  ]);
}

/** All pools. */
export function pools(store, signal) {
  const cards = el("div", { class: "cards" });
  const draw = () => fill(cards, [...store.pools.values()].sort((a, b) => a.name.localeCompare(b.name)).map((p) => el("section", { class: "panel", "data-pool": p.name }, el("h3", {}, link("pool", p.name)), progress(store, p), about(p), forPool(p))));
  store.addEventListener("change", draw, { signal });
  draw();
  return el("div", {}, el("h2", {}, "Pools"), cards);
}

function policies(list) {
  if (list.error) return el("p", { class: "bad" }, list.error);
  if (!list.length) return el("p", { class: "soft" }, "No RolloutPolicy is in force here.");
  return list.map((policy) => {
    const now = policy.progress ?? {};
    const waves = (policy.spec.waves ?? []).map((w) => [w.name === now.wave ? el("strong", {}, `${w.name} (now)`) : w.name, w.size ?? "", w.approval ?? "", w.soak ?? ""]);
    const gates = (policy.spec.gates ?? []).map((g) => g.name).join(", ");
    const windows = policy.spec.windows?.length ? JSON.stringify(policy.spec.windows) : "";
    const said = Object.entries(now).filter(([key]) => !["name", "config", "wave"].includes(key)).map(([key, value]) => [key, typeof value === "string" ? value : el("span", { class: "mono" }, JSON.stringify(value))]);
    return el("div", {}, facts([["Policy", policy.name], ["Wave", now.wave], ["Gates", gates], ["Windows", windows], ...said]), waves.length ? table("Waves", ["Wave", "Size", "Approval", "Soak"], waves) : "");
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

/** One pool. */
export function pool(store, signal, name) {
  const top = el("div");
  const more = el("div", {}, el("p", { class: "soft" }, "Reading…"));
  let last = "";
  let waiting = 0;
  const draw = () => {
    const p = store.pools.get(name);
    if (!p) return fill(top, el("p", {}, `There is no pool ${name}.`));
    // The wave, and what the pool gets, follow from these.
    const now = JSON.stringify([p.config, p.held, p.pinned, p.updated]);
    if (now !== last && last) waiting ||= setTimeout(() => { waiting = 0; if (!signal.aborted) read(); }, 1000);
    last = now;
    const nodes = store.of(name).sort((a, b) => byName(a.name, b.name));
    const rows = nodes.slice(0, 500).map((n) => [link("node", n.name), phase(n.phase), n.since ? time(n.since) : "–", n.why]);
    return fill(top, el("section", { class: "panel" }, progress(store, p), about(p), forPool(p)), table(nodes.length > 500 ? `The first 500 of ${nodes.length} nodes` : `${nodes.length} nodes`, ["Node", "Phase", "Since", "What it does or waits for"], rows));
  };
  const read = () => ask(`api/pools/${encodeURIComponent(name)}`).then((said) => {
    if (signal.aborted) return;
    const past = said.history.error ? el("p", { class: "bad" }, said.history.error) : el("pre", { tabindex: "0" }, said.history);
    fill(more, el("h3", {}, "Rollout policy"), policies(said.policies), el("h3", {}, "What it gets, and who set it"), origins(said.explanation), el("h3", {}, "Its configs, the newest first"), past);
  }).catch((error) => fill(more, el("p", { class: "bad" }, error.message)));
  store.addEventListener("change", draw, { signal });
  draw();
  read();
  return el("div", {}, el("h2", {}, `Pool ${name}`), top, more);
}
