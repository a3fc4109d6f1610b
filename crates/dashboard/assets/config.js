// The configs: what is rendered, two of them side by side, and a look at manifests before they are applied.
// What it is not: a way to write any of it.
import { difference, el, facts, fill, link, table, time } from "./dom.js";
import { origins } from "./pools.js";
import { ask } from "./store.js";

const LARGEST = 10 * 1024 * 1024;

/** One rendered config. */
export function config(store, signal, name) {
  const body = el("div", {}, el("p", { class: "soft" }, "Reading…"));
  ask(`api/configs/${encodeURIComponent(name)}`).then((said) => {
    const contents = said.contents.error ? el("p", { class: "bad" }, said.contents.error) : difference(said.contents.text);
    const who = said.explanation?.error ? [el("p", { class: "soft" }, `${said.explanation.error}. `, said.pool ? ["It can be computed for the config that the pool has now: ", link("pool", said.pool), "."] : "")] : said.explanation ? origins(said.explanation) : "";
    fill(body, facts([["Pool", said.pool && link("pool", said.pool)], ["OS image", said.osImage], ["Extensions", said.extensionsImage], ["Kernel", said.kernelType], ["FIPS", said.fips ? "yes" : "no"]]), el("h3", {}, "What it sets"), contents, who ? [el("h3", {}, "Who set it, and who lost"), who] : "");
  }).catch((error) => fill(body, el("p", { class: "bad" }, error.message)));
  return el("div", {}, el("h2", {}, el("span", { class: "mono" }, name)), body);
}

function paste() {
  const text = el("textarea", { id: "manifest", spellcheck: "false", placeholder: "Paste manifests here, or drop a file" });
  const result = el("div", { role: "status" });
  const look = async () => {
    if (text.value.length > LARGEST) return fill(result, el("p", { class: "bad" }, "More than 10 MB are not accepted; use `mco plan -f`."));
    fill(result, el("p", { class: "soft" }, "Working it out…"));
    try {
      const said = await ask("api/check", text.value, "POST");
      const rows = said.findings.map((f) => [f.severity, f.object, el("span", { class: "mono" }, f.path), f.message, f.remedy]);
      const found = rows.length ? table(`${rows.length} findings in ${said.manifests} manifests`, ["Severity", "Object", "Path", "Finding", "Remedy"], rows) : el("p", {}, `Nothing to criticise in ${said.manifests} manifests.`);
      const plan = said.plan.error ? el("p", { class: "bad" }, said.plan.error) : difference(said.plan.text);
      return fill(result, found, el("h3", {}, "What they would do"), plan);
    } catch (error) {
      return fill(result, el("p", { class: "bad" }, error.message));
    }
  };
  const take = async (file) => {
    if (!file) return;
    if (file.size > LARGEST) fill(result, el("p", { class: "bad" }, "More than 10 MB are not accepted; use `mco plan -f`."));
    else text.value = await file.text();
  };
  text.addEventListener("dragover", (event) => event.preventDefault());
  text.addEventListener("drop", (event) => {
    if (!event.dataTransfer.files.length) return;
    event.preventDefault();
    take(event.dataTransfer.files[0]);
  });
  const file = el("input", { type: "file", accept: ".yaml,.yml,.json", "aria-label": "A file with manifests" });
  file.addEventListener("change", () => take(file.files[0]));
  return el("section", { class: "panel" }, el("h3", {}, el("label", { for: "manifest" }, "What would a manifest do?")), el("p", { class: "soft" }, "Nothing is written."), text, el("p", { class: "row" }, el("button", { "data-check": true, on: { click: look } }, "Look at it"), file), result);
}

/** The view. */
export function configs(store, signal) {
  const list = el("div", {}, el("p", { class: "soft" }, "Reading…"));
  ask("api/configs").then((said) => {
    const all = said.configs.sort((a, b) => a.pool.localeCompare(b.pool) || String(b.created).localeCompare(String(a.created)));
    const choice = (label) => el("select", { "aria-label": label }, all.map((c) => el("option", { value: c.name }, c.name)));
    const [from, to] = [choice("The old config"), choice("The new config")];
    if (all.length > 1) from.selectedIndex = 1;
    const result = el("div", { role: "status" });
    const compare = () => ask(`api/compare/${encodeURIComponent(from.value)}/${encodeURIComponent(to.value)}`)
      .then((answer) => fill(result, answer.error ? el("p", { class: "bad" }, answer.error) : difference(answer.text)))
      .catch((error) => fill(result, el("p", { class: "bad" }, error.message)));
    fill(list, el("section", { class: "panel" }, el("h3", {}, "Compare two"), el("p", { class: "row" }, from, "→", to, el("button", { on: { click: compare } }, "Compare")), result),
      table("Rendered configs", ["Config", "Pool", "Rendered"], all.map((c) => [el("span", { class: "mono" }, link("config", c.name)), link("pool", c.pool), time(c.created)])));
  }).catch((error) => fill(list, el("p", { class: "bad" }, error.message)));
  return el("div", {}, el("h2", {}, "Configs"), paste(), list);
}
