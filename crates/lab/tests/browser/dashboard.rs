//! The page shows a live fleet: cells follow nodes, every view is filled, actions and a pasted manifest do what they say, text
//! from objects never becomes markup, and no request goes to another host.

use crate::chromium::Chromium;
use crate::product::controllers::Controller;
use crate::product::{Cluster, lab, machine_config, one_file, pods};
use kube::api::Patch;
use serde_json::{Value, json};
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, Command};

const NODES: usize = 4;
/// The node whose drain waits until the test ends the wait. It is not the first node, so that another one has waited for its
/// turn and is done.
const HELD: &str = "worker-1";
/// Imports the module that the page already runs: a browser loads each module address once.
pub(crate) const APP: &str = "import(new URL('app.js', document.baseURI).href)";

/// A running `mco dashboard`, and the address that it prints.
pub(crate) async fn program(kubeconfig: &Path) -> (Child, String) {
    program_with(kubeconfig, &[]).await
}

pub(crate) async fn program_with(kubeconfig: &Path, more: &[&str]) -> (Child, String) {
    let mut child = Command::new("setpriv")
        .args(["--pdeathsig", "KILL", "--"])
        .arg(lab::built_mco().unwrap())
        .args(["dashboard", "--no-open", "--kubeconfig"])
        .arg(kubeconfig)
        .args(more)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let line = tokio::time::timeout(Duration::from_secs(60), lines.next_line()).await;
    (child, line.unwrap().unwrap().expect("it prints an address"))
}

/// Whether the canvas shows a node in this phase: both the state that was drawn and the colour of its pixel.
fn shows(node: &str, phase: &str) -> String {
    let colour = format!("getComputedStyle(document.documentElement).getPropertyValue('--{phase}').trim()");
    let hex = "'#' + c.pixel.map((n) => n.toString(16).padStart(2, '0')).join('')";
    format!(
        "{APP}.then((m) => {{ const c = m.current.cell('{node}'); return c && c.phase === '{phase}' && ({hex}) === {colour}; }})"
    )
}

/// Performs an action by its button, and waits until the page reports that it is done.
async fn act(browser: &mut Chromium, button: &str, means: &str) {
    browser.wait(&format!("document.querySelector({button:?})")).await;
    browser.value(&format!("document.querySelector({button:?}).click()"));
    browser.wait("document.querySelector('dialog [data-confirm]:enabled')").await;
    let said = browser.value("document.querySelector('dialog pre').textContent");
    assert!(said.as_str().unwrap().contains(means), "{said}");
    browser.value("document.querySelector('dialog [data-confirm]').click()");
    browser.wait("document.querySelector('dialog [data-done=true]')").await;
    browser.value("document.querySelector('dialog').close()");
}

/// Opens a view, and waits until its text has all of these words.
async fn view(browser: &mut Chromium, hash: &str, says: &[&str]) {
    browser.value(&format!("location.hash = {hash:?}"));
    reads(browser, says).await;
}

/// Waits until the text of the open view has all of these words.
async fn reads(browser: &mut Chromium, says: &[&str]) {
    for text in says {
        browser.wait(&format!("document.querySelector('main').innerText.includes({text:?})")).await;
    }
}

/// Follows the rollout of `50-page` in every view: while a node waits, when it continues, and when the rollout is over. The
/// page is never reloaded. Returns the config that was rolled out.
async fn watch_a_rollout(browser: &mut Chromium, cluster: &Cluster, first: &str) -> String {
    let second = cluster.rendered("worker").await;
    // The rollout has reached the node whose drain waits.
    browser.value("location.hash = '#/fleet'");
    browser.wait(&shows(HELD, "moving")).await;
    browser.wait(&shows("worker-0", "done")).await;
    browser.wait(&shows("worker-3", "waits")).await;
    let brief = "document.querySelector('[data-brief=worker]').innerText";
    for says in ["1 of 4 nodes", "Left"] {
        browser.wait(&format!("{brief}.includes({says:?})")).await;
    }
    reads(browser, &["the slot is taken by worker-1", "draining"]).await;
    view(browser, "#/pools", &["1 of 4 nodes (25 %)", &second]).await;
    view(browser, "#/rollout", &[&second, "pod default/held", "1 under way, 2 waiting, 1 done"]).await;
    // A node that has not begun is listed too, with what it waits for and for how long.
    let row = "[...document.querySelectorAll('main section:first-of-type tbody tr')].find((r) => r.innerText.startsWith('worker-3'))";
    browser.wait(&format!("{row}?.innerText.includes('the slot is taken by worker-1') && {row}.querySelector('.seg-wait.seg-open')")).await;
    let drains = "[...document.querySelectorAll('.track')].find((t) => /(^|, )drain .* so far$/.test(t.getAttribute('aria-label')))";
    browser.wait(&format!("{drains}?.querySelector('.seg-drain.seg-open')")).await;
    browser
        .wait("[...document.querySelectorAll('.track')].some((t) => t.querySelector('.seg-reboot'))")
        .await;
    view(
        browser,
        &format!("#/node/{HELD}"),
        &["pod default/held", "+shown", "Conditions of the Node", "Drained", first],
    )
    .await;
    view(browser, &format!("#/config/{second}"), &["/etc/page", "shown", "50-page"]).await;
    view(browser, "#/pool/worker", &["/etc/page", "50-page", "draining"]).await;
    view(browser, "#/images", &[first, &second]).await;
    view(browser, "#/trust", &["certificates", "boot tokens"]).await;
    view(browser, "#/operator", &["Who leads", "ControllerConfig machine-config-controller"]).await;
    let counted = "[...[...document.querySelectorAll('main section')].at(-1).querySelectorAll('tbody tr')].find((r) => r.cells[0].innerText === 'machine-config-controller').cells";
    let many = format!(
        "((cells) => / MiB$/.test(cells[2].innerText) && parseInt(cells[3].innerText) > 20 && parseInt(cells[6].innerText) > 4)({counted})"
    );
    browser.wait(&many).await;
    assert_eq!(cluster.get("Node", HELD).await["spec"]["unschedulable"], json!(true), "it went on by itself");

    // The drain continues, and the node's view follows: its journal has the update, with what its drain waited for.
    view(browser, &format!("#/node/{HELD}"), &["Its updates so far"]).await;
    let patch = json!({"metadata": {"finalizers": null}});
    pods::pods(cluster, "default").patch("held", &Default::default(), &Patch::Merge(patch)).await.unwrap();
    browser.wait(&format!("document.querySelector('[data-node={HELD}][data-phase=done]')")).await;
    reads(browser, &["Its updates so far, the newest first", "a free slot (", "pod default/held"]).await;
    // The last nodes, in the view of the rollout: each has its bars, and is done. The rollout stays listed when it is over.
    browser.value("location.hash = '#/rollout'");
    let rows = "[...document.querySelectorAll('main section:first-of-type tbody tr')]";
    let whole = "r.innerText.includes('done') && ['apply', 'reboot', 'back'].every((p) => r.querySelector(`.seg-${p}`))";
    browser.wait(&format!("{rows}.filter((r) => {whole}).length === {NODES}")).await;
    assert_eq!(cluster.settled("worker", NODES, &["50-page"], &[]).await, second);
    browser.value("location.hash = '#/fleet'");
    for n in 0..NODES {
        browser.wait(&shows(&format!("worker-{n}"), "done")).await;
    }
    browser.wait(&format!("{brief}.includes('4 of 4 nodes')")).await;
    view(browser, "#/rollout", &[&second, "a free slot (", "pod default/held"]).await;
    view(browser, "#/images", &[&second]).await;
    browser.wait(&format!("!document.querySelector('main').innerText.includes({first:?})")).await;
    assert_eq!(browser.value("window.same"), json!("never loaded again"));
    second
}

#[tokio::test(flavor = "multi_thread")]
async fn the_dashboard_shows_a_rollout_live_and_does_what_it_says() {
    let Some(builder) = lab() else { return };
    if !::lab::require((!::lab::is_root()).then(|| "Chromium is installed as root".to_owned())) {
        return;
    }
    ::lab::ensure_browser(&::lab::Reporter::stderr()).await.unwrap();
    let cluster = Cluster::start(builder.nodes(NODES).simulated().reboot_time(Duration::from_secs(3))).await;
    assert_eq!(cluster.mco(&["install"]).await.code, 0);
    // It leads by its Lease, and publishes its request counts there.
    let mut controller = Controller::with(&cluster, "mco-controller", cluster.lab.kubeconfig(), &[], &[]);
    let first = cluster.settled("worker", NODES, &["00-worker"], &[]).await;
    let (mut program, address) = program(cluster.lab.kubeconfig()).await;
    let origin = address.split("/?").next().unwrap().to_owned();
    let mut browser = Chromium::start();

    // The fleet view, and a change of one node in its cell.
    browser.open(&address);
    browser
        .wait(&format!("{APP}.then((m) => m.store.connection === 'live' && m.store.nodes.size === {NODES})"))
        .await;
    assert_eq!(
        browser.value("location.href"),
        json!(format!("{origin}/")),
        "the token is not in the address any more"
    );
    assert_eq!(browser.value("document.cookie"), json!(""), "no script reads the cookie");
    for n in 0..NODES {
        browser.wait(&shows(&format!("worker-{n}"), "done")).await;
    }
    cluster.patch("Node", "worker-1", json!({"spec": {"unschedulable": true}})).await;
    let took = browser.wait(&shows("worker-1", "unavailable")).await;
    println!("a change of a node was in its cell after {took:?}");
    browser.wait("document.querySelector('tr[data-node=worker-1][data-phase=unavailable]')").await;
    cluster.patch("Node", "worker-1", json!({"spec": {"unschedulable": null}})).await;
    browser.wait(&shows("worker-1", "done")).await;
    // The pod on one node cannot leave until the test lets it, so the coming rollout stops there.
    pods::pod(&cluster, "held", "held", pods::Place::on(HELD)).await;
    let patch = json!({"metadata": {"finalizers": ["example.com/stays"]}});
    pods::pods(&cluster, "default").patch("held", &Default::default(), &Patch::Merge(patch)).await.unwrap();

    // A pasted manifest: the page shows what it would do, and writes nothing.
    browser.value("location.hash = '#/configs'");
    browser.wait("document.getElementById('manifest')").await;
    let change = machine_config("50-page", "worker", one_file("/etc/page", "shown"));
    browser.value(&format!("document.getElementById('manifest').value = {}", json!(change.to_string())));
    browser.value("document.querySelector('[data-check]').click()");
    browser.wait("document.body.innerText.includes('+shown')").await;
    let text = browser.value("document.body.innerText");
    assert!(text.as_str().unwrap().contains("reboot (/etc/page)"), "{text}");
    assert_eq!(cluster.get("MachineConfig", "50-page").await, Value::Null);

    // A pause by its button, then the change: nodes wait. After a resume, cells change, and nodes are done.
    browser.value("location.hash = '#/pools'");
    act(&mut browser, "[data-pool=worker] [data-action=pause]", "pool worker would be paused").await;
    assert_eq!(cluster.get("MachineConfigPool", "worker").await["spec"]["paused"], json!(true));
    cluster.create(change).await;
    browser.wait("document.querySelector('[data-pool=worker]').textContent.includes('paused')").await;
    browser.value("location.hash = '#/fleet'");
    browser.wait(&shows("worker-2", "waits")).await;
    browser.value("location.hash = '#/pools'");
    browser.value("window.same = 'never loaded again'");
    // The confirmation says what it costs: which nodes, and what happens to each.
    act(&mut browser, "[data-pool=worker] [data-action=resume]", "reboot (/etc/page)").await;
    let second = watch_a_rollout(&mut browser, &cluster, &first).await;
    browser.value("location.hash = '#/trust'");
    browser.wait("document.body.innerText.includes('0 boot tokens')").await;
    browser.value("location.hash = '#/operator'");
    browser.wait("document.body.innerText.includes('ControllerConfig machine-config-controller')").await;

    // Markup in texts of others stays text, in every view that shows it.
    let markup = "<img src=x onerror=\"window.hacked=1\">";
    let event = json!({"apiVersion": "v1", "kind": "Event", "metadata": {"name": "markup", "namespace": "default"},
        "involvedObject": {"apiVersion": "v1", "kind": "Node", "name": "worker-3"}, "type": "Warning",
        "reason": "Markup", "message": markup});
    let file = cluster.lab.folder().join("event.json");
    std::fs::write(&file, event.to_string()).unwrap();
    let created = cluster.kubectl(&["create", "-f", &file.to_string_lossy()]).await;
    assert_eq!(created.code, 0, "{created:?}");
    browser.value("location.hash = '#/node/worker-3'");
    browser.wait("document.body.innerText.includes('onerror')").await;
    assert_eq!(
        browser.value("String(window.hacked) + document.querySelectorAll('img').length"),
        json!("undefined0")
    );
    browser.wait("document.body.innerText.includes('Conditions of the Node')").await;

    // Undo says what it costs, and does it.
    browser.value("location.hash = '#/pools'");
    act(&mut browser, "[data-pool=worker] [data-action=undo]", "would be pinned to").await;
    cluster
        .wait("the pool to go back", async || (cluster.rendered("worker").await == first).then_some(()))
        .await;

    // Release: the pool follows its MachineConfigs again.
    browser.wait("document.querySelector('[data-pool=worker] [data-action=release]')").await;
    act(&mut browser, "[data-pool=worker] [data-action=release]", "").await;
    cluster
        .wait("the pool to follow again", async || (cluster.rendered("worker").await == second).then_some(()))
        .await;

    // Retry leaves its request on the Node.
    browser.value("location.hash = '#/node/worker-0'");
    act(&mut browser, "[data-action=retry]", "worker-0").await;
    let node = cluster.get("Node", "worker-0").await;
    assert!(node["metadata"]["annotations"].to_string().contains("retry"), "{node:#}");

    // Approve: a wave that waits continues.
    cluster.settled("worker", NODES, &["50-page"], &[]).await;
    cluster
        .create(json!({"apiVersion": "machineconfig.dev/v1alpha1", "kind": "RolloutPolicy", "metadata": {"name": "by-hand"},
            "spec": {"pools": {"names": ["worker"]}, "waves": [{"name": "all", "approval": "Needed"}]}}))
        .await;
    cluster.create(machine_config("51-page", "worker", one_file("/etc/page2", "shown"))).await;
    browser.value("location.hash = '#/pools'");
    act(&mut browser, "[data-pool=worker] [data-action=approve]", "reboot (/etc/page2)").await;
    cluster.settled("worker", NODES, &["51-page"], &[]).await;

    assert!(browser.requests() > 10, "requests are seen");
    assert_eq!(browser.complaints(&origin), Vec::<String>::new());

    // The printed address can be used once: another browser gets nothing.
    browser.as_a_stranger();
    browser.open(&address);
    browser.wait("document.body.innerText.includes('used already')").await;
    browser.open(&format!("{origin}/api/snapshot"));
    browser.wait("document.body.innerText.includes('no session')").await;
    assert!(!browser.value("document.body.innerText").as_str().unwrap().contains("worker-0"));

    assert!(program.try_wait().unwrap().is_none(), "it serves still");
    controller.lives();
    cluster.stop().await;
}
