// OS images, certificates and boot tokens (names and ends), and the installation: the operator's conditions, its parts, who leads and
// what those count.
// What it is not: anything secret; the server sends none of it.
import { el, fill, link, table, time } from "./dom.js";
import { ask } from "./store.js";

/** How often these are read again, in milliseconds: the stream does not tell of them. */
const AGAIN = 30000;
/** Those that count: what they show changes every few seconds. */
const SOON = 8000;

function load(signal, title, path, draw, pause = AGAIN) {
  const body = el("div", {}, el("p", { class: "soft" }, "Reading…"));
  const read = async () => {
    try {
      const said = await ask(path);
      if (!signal.aborted) fill(body, el("p", { class: "soft" }, "As of ", time(new Date().toISOString())), draw(said));
    } catch (error) {
      if (!signal.aborted) fill(body, el("p", { class: "bad" }, error.message));
    }
  };
  const again = setInterval(() => { if (!document.hidden) read(); }, pause);
  signal.addEventListener("abort", () => clearInterval(again));
  read();
  return el("div", {}, el("h2", {}, title), body);
}

const part = (value, draw) => (value?.error ? el("p", { class: "bad" }, value.error) : draw(value));

/** Which operating system the nodes have. */
export function images(store, signal) {
  const row = (s) => [s.config ? el("span", { class: "mono" }, link("config", s.config)) : "none yet",
    s.image?.error ? el("span", { class: "bad" }, s.image.error) : el("span", { class: "mono" }, s.layered || s.image || "the hosts' own"),
    s.os, s.kernel, s.count, [s.nodes.map((n) => [link("node", n), " "]), s.count > s.nodes.length ? `and ${s.count - s.nodes.length} more` : ""]];
  return load(signal, "Images", "api/images", (said) => table("Operating systems of the nodes", ["Config", "OS image", "OS", "Kernel", "Nodes", "Which"], said.systems.map(row)));
}

/** Certificates and boot tokens. */
export function trust(store, signal) {
  return load(signal, "Certificates and boot tokens", "api/trust", (said) => [
    part(said.certificates, (all) => table(`${all.length} certificates`, ["Subject", "Issuer", "Bundle", "Ends"], all.map((c) => [c.subject, c.signer, c.bundleFile, time(c.notAfter)]))),
    part(said.tokens, (all) => table(`${all.length} boot tokens`, ["ID", "Pool", "State", "Uses", "For", "Ends", "Used"], all.map((t) => [t.id, link("pool", t.pool), t.state, t.singleUse ? "one" : "any", [t.node, ...t.addresses].filter(Boolean).join(" "), t.expires ? time(t.expires) : "never", time(t.usedAt)]))),
  ]);
}

const MEBI = 1024 * 1024;
const NUMBER = new Intl.NumberFormat();

/** What the leaders have counted. `before`: what each had counted at the last look, for how much it is now. */
function counted(leaders, before) {
  const pace = (now, was, key) => {
    const seconds = was && was.since === now.since ? (now.at - was.at) / 1000 : 0;
    return seconds > 0 ? `${NUMBER.format(now[key])} (${NUMBER.format(Math.round((60 * (now[key] - was[key])) / seconds))} a minute)` : NUMBER.format(now[key]);
  };
  const bad = (number) => (number ? el("span", { class: "bad" }, NUMBER.format(number)) : "0");
  const row = ({ name, lease }) => {
    if (!lease || lease.error) return [name, "nothing is known: see above"];
    if (!lease.counted) return [name, "its leader does not say: there is none, or it is of an older version or another implementation"];
    const now = { ...lease.counted, at: Date.parse(lease.renewed) };
    const was = before.get(name);
    if (!was || was.at !== now.at) before.set(name, now);
    return [name, time(now.since), now.memory ? `${NUMBER.format(Math.round(now.memory / MEBI))} MiB` : "–", pace(now, was, "requests"), bad(now.refused), bad(now.unanswered), pace(now, was, "passes"), bad(now.failed), NUMBER.format(now.waiting)];
  };
  return el("section", {}, el("h3", {}, "What the leaders have counted"),
    el("p", { class: "soft" }, "Each writes it onto its Lease every few seconds. Config servers and agents hold no Lease: their metrics are for Prometheus."),
    table("Since the process began", ["Part", "Counts since", "Memory", "Requests", "Refused", "No answer", "Passes", "Failed", "Wait for a pass now"], leaders.map(row)));
}

/** The installation: what the operator says, whether its parts run, who leads, and what those have counted. */
export function operator(store, signal) {
  const before = new Map();
  const none = (text) => el("p", { class: "soft" }, text);
  const conditions = ({ object, conditions: all }) => el("section", {}, el("h3", {}, object), !all ? none("It is not in this cluster.") : part(all, () => (all.length
    ? table(`Conditions of ${object}`, ["Condition", "Status", "Since", "Reason", "Message"], all.map((c) => [c.type, c.status, time(c.lastTransitionTime), c.reason ?? "", c.message ?? ""])) : none("It has no conditions yet."))));
  const bad = (is, text) => (is ? el("span", { class: "bad" }, text) : text);
  const runs = ({ kind, name, state }) => {
    const what = `${kind} ${name}`;
    if (!state) return [what, "it is not in this cluster", "", ""];
    if (state.error) return [what, bad(true, state.error), "", ""];
    return [what, bad(state.available < state.wanted, `${state.available} of ${state.wanted}`), state.counted ? bad(state.updated < state.wanted, `${state.updated} of ${state.wanted}`) : "not counted yet", el("span", { class: "mono" }, state.images.join(", "))];
  };
  const leads = ({ name, lease }) => {
    if (!lease) return [name, "there is no Lease", "", ""];
    if (lease.error) return [name, bad(true, lease.error), "", ""];
    return [name, lease.holder || bad(true, "nobody"), time(lease.since), lease.silent ? bad(true, ["silent since ", time(lease.renewed)]) : time(lease.renewed)];
  };
  return load(signal, "Operator", "api/operator", (said) => [
    said.said.map(conditions),
    el("section", {}, el("h3", {}, "Parts"), table("What runs", ["Part", "Pods available", "Of this image", "Image"], said.parts.map(runs))),
    el("section", {}, el("h3", {}, "Who leads"), table("Only one process of each part acts", ["Part", "Process", "Since", "Renewed"], said.leaders.map(leads))),
    counted(said.leaders, before),
  ], SOON);
}
