// OS images, certificates and boot tokens (names and ends), and the operator's conditions.
// What it is not: anything secret; the server sends none of it.
import { el, fill, link, table, time } from "./dom.js";
import { ask } from "./store.js";

function load(title, path, draw) {
  const body = el("div", {}, el("p", { class: "soft" }, "Reading…"));
  ask(path).then((said) => fill(body, el("p", { class: "soft" }, "As of ", time(new Date().toISOString())), draw(said))).catch((error) => fill(body, el("p", { class: "bad" }, error.message)));
  return el("div", {}, el("h2", {}, title), body);
}

const part = (value, draw) => (value?.error ? el("p", { class: "bad" }, value.error) : draw(value));

/** Which operating system the nodes have. */
export function images() {
  const row = (s) => [s.config ? el("span", { class: "mono" }, link("config", s.config)) : "none yet",
    s.image?.error ? el("span", { class: "bad" }, s.image.error) : el("span", { class: "mono" }, s.layered || s.image || "the hosts' own"),
    s.os, s.kernel, s.count, [s.nodes.map((n) => [link("node", n), " "]), s.count > s.nodes.length ? `and ${s.count - s.nodes.length} more` : ""]];
  return load("Images", "api/images", (said) => table("Operating systems of the nodes", ["Config", "OS image", "OS", "Kernel", "Nodes", "Which"], said.systems.map(row)));
}

/** Certificates and boot tokens. */
export function trust() {
  return load("Certificates and boot tokens", "api/trust", (said) => [
    part(said.certificates, (all) => table(`${all.length} certificates`, ["Subject", "Issuer", "Bundle", "Ends"], all.map((c) => [c.subject, c.signer, c.bundleFile, time(c.notAfter)]))),
    part(said.tokens, (all) => table(`${all.length} boot tokens`, ["ID", "Pool", "State", "Uses", "For", "Ends", "Used"], all.map((t) => [t.id, link("pool", t.pool), t.state, t.singleUse ? "one" : "any", [t.node, ...t.addresses].filter(Boolean).join(" "), t.expires ? time(t.expires) : "never", time(t.usedAt)]))),
  ]);
}

/** The operator's conditions. */
export function operator() {
  return load("Operator", "api/operator", (said) => Object.entries(said).map(([object, conditions]) => el("section", {}, el("h3", {}, object),
    conditions ? part(conditions, (all) => (all.length ? table(`Conditions of ${object}`, ["Condition", "Status", "Since", "Reason", "Message"], all.map((c) => [c.type, c.status, time(c.lastTransitionTime), c.reason ?? "", c.message ?? ""])) : el("p", { class: "soft" }, "It says nothing yet."))) : el("p", { class: "soft" }, "It is not in this cluster."))));
}
