// The page: which view is shown, the line of the connection, and the choice of colours.
// What it is not: the views.
import { el, fill } from "./dom.js";
import { Store, ask } from "./store.js";
import { fleet } from "./fleet.js";
import { pool, pools } from "./pools.js";
import { rollouts } from "./rollout.js";
import { node } from "./node.js";
import { config, configs } from "./config.js";
import { images, operator, trust } from "./trust.js";

export const store = new Store();
const main = document.getElementById("main");
const VIEWS = { fleet: ["Fleet", fleet], pools: ["Pools", pools], rollout: ["Rollout", rollouts], configs: ["Configs", configs], images: ["Images", images], trust: ["Certificates", trust], operator: ["Operator", operator] };
const DETAILS = { pool, node, config };
let ends = new AbortController();

/** The view that is shown. */
export let current = null;

function show() {
  const [, name = "", ...rest] = location.hash.split("/");
  const view = Object.hasOwn(VIEWS, name) || Object.hasOwn(DETAILS, name) ? name : "fleet";
  ends.abort();
  ends = new AbortController();
  const make = DETAILS[view] ?? VIEWS[view][1];
  let what = "";
  try {
    what = decodeURIComponent(rest.join("/"));
  } catch {
    // An address that somebody has cut off.
  }
  current = make(store, ends.signal, what);
  fill(main, current);
  fill(document.getElementById("nav"), Object.entries(VIEWS).map(([key, [title]]) => el("a", { href: `#/${key}`, "data-key": key, "aria-current": key === view ? "page" : false }, title)));
  document.title = `${VIEWS[view]?.[0] ?? what} – mco`;
}

function connection() {
  const words = { connecting: "connecting…", live: "live", away: `${store.why || "no connection to the dashboard"}; trying again…`, ended: "the session has ended: reload this page, which says how to go on", refused: `${store.refusal}. Reload this page when you have the right.` };
  const line = document.getElementById("connection");
  line.className = ["connecting", "live"].includes(store.connection) ? "" : "bad";
  fill(line, words[store.connection]);
}

/** A line above the views; empty: it is not there. */
function line(id, text) {
  const at = document.getElementById(id);
  at.hidden = !text;
  // A reader of the screen reads it aloud each time that it is written.
  if (at.textContent !== text) fill(at, text);
}

function trouble() {
  line("unread", store.unread.length ? `You do not see everything. ${store.unread.map((one) => one.words).join("; ")}.` : "");
  line("trouble", store.trouble ? `What is shown may be out of date: ${store.trouble}` : "");
  fill(document.getElementById("cluster"), store.cluster);
}

/** Who looks, where the dashboard runs in the cluster, and the way out of a session. */
async function person() {
  let said;
  try {
    said = await ask("api/session");
  } catch {
    // The line of the connection says why.
    return;
  }
  if (!said.user) return;
  fill(document.getElementById("user"), said.user);
  document.getElementById("person").hidden = false;
  const button = document.getElementById("sign-out");
  button.hidden = !said.canSignOut;
  button.addEventListener("click", async () => {
    button.disabled = true;
    try {
      await ask("api/session", undefined, "DELETE");
      location.reload();
    } catch (error) {
      button.disabled = false;
      fill(document.getElementById("connection"), `not signed out: ${error.message}`);
    }
  });
}

function theme(choice) {
  if (choice) document.documentElement.dataset.theme = choice;
  else delete document.documentElement.dataset.theme;
  document.dispatchEvent(new Event("mco-theme"));
}

/** What the browser keeps of the choice; some keep nothing. */
const kept = {
  get theme() {
    try {
      return localStorage.getItem("mco-theme") ?? "";
    } catch {
      return "";
    }
  },
  set theme(choice) {
    try {
      localStorage.setItem("mco-theme", choice);
    } catch {
      // It holds until the page is loaded again.
    }
  },
};
const chooser = document.getElementById("theme");
chooser.value = kept.theme;
theme(chooser.value);
chooser.addEventListener("change", () => {
  kept.theme = chooser.value;
  theme(chooser.value);
});
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => theme(chooser.value));
document.querySelector(".skip").addEventListener("click", (event) => {
  event.preventDefault();
  main.focus();
});
window.addEventListener("hashchange", () => {
  show();
  main.focus({ preventScroll: true });
});
store.addEventListener("connection", connection);
store.addEventListener("change", trouble);
connection();
show();
person();
store.connect();
