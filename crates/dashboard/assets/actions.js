// What a person does: each action is shown first, with what it means, in the words of `mco`, and is done after a confirmation,
// which says what was shown: where that changed meanwhile, the server does nothing.
// What it is not: the checks, which are the server's.
import { el, fill } from "./dom.js";
import { ask } from "./store.js";

/** A button for an action. `wanted` is what the server is asked for. */
export function button(title, wanted, danger = false) {
  return el("button", { class: danger ? "danger" : false, "data-action": wanted.action, "data-key": `${wanted.action}-${wanted.pool ?? wanted.node}`, on: { click: () => confirm(title, wanted) } }, title);
}

async function confirm(title, wanted) {
  const body = el("div", { role: "status" }, "Asking what this means…");
  const yes = el("button", { disabled: true, "data-confirm": true }, title);
  const no = el("button", {}, "Cancel");
  const dialog = el("dialog", { "aria-label": title }, el("h2", {}, title), body, el("p", { class: "row" }, yes, no));
  document.body.append(dialog);
  dialog.addEventListener("close", () => dialog.remove());
  no.addEventListener("click", () => dialog.close());
  dialog.showModal();
  let seen = null;
  const failed = (error) => fill(body, el("p", { class: "bad" }, error.message));
  try {
    const said = await ask("api/actions", wanted);
    seen = said.seen;
    fill(body, el("p", {}, "What it means:"), el("pre", { tabindex: "0" }, said.text), said.possible ? "" : el("p", { class: "bad" }, "No running host can apply this config."));
    yes.disabled = !said.possible;
  } catch (error) {
    failed(error);
  }
  yes.addEventListener("click", async () => {
    yes.disabled = true;
    try {
      const said = await ask("api/actions", { ...wanted, seen, confirm: true });
      fill(body, el("p", {}, said.done ? "Done:" : "Nothing was done:"), el("pre", { tabindex: "0", "data-done": String(said.done) }, said.text));
      yes.remove();
      no.textContent = "Close";
    } catch (error) {
      failed(error);
    }
  });
}

/** What can be done about a pool. */
export function forPool(pool) {
  const name = pool.name;
  return el("p", { class: "row" },
    pool.paused ? button("Resume", { action: "resume", pool: name }) : button("Pause", { action: "pause", pool: name }),
    pool.needsApproval ? button(pool.policy?.wave ? "Approve the wave that waits" : "Approve the change that waits", { action: "approve", pool: name, config: pool.config }) : "",
    button("Undo: back to the config before", { action: "undo", pool: name }, true),
    pool.pinned ? button("Release: follow the MachineConfigs again", { action: "release", pool: name }) : "");
}
