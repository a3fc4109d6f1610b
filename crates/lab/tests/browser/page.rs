//! The page as different people use it: on a phone and on a large screen, with the keyboard alone, in another time zone, with
//! few permissions, and with objects that a newer version has written.
//!
//! Not here: a live rollout (`dashboard`), large fleets and failures (`views`).

use crate::chromium::Chromium;
use crate::dashboard::{APP, program};
use crate::views::{VIEWS, fleet, live};
use serde_json::{Value, json};

const NODES: usize = 48;
const SECRET: &str = "hunter2secret";

/// Presses a key.
fn press(browser: &mut Chromium, key: &str, code: u32) {
    let text = if key == "Enter" { json!("\r") } else { Value::Null };
    for kind in ["keyDown", "keyUp"] {
        let mut event = json!({"type": kind, "key": key, "code": key, "windowsVirtualKeyCode": code});
        if kind == "keyDown" && !text.is_null() {
            event["text"] = text.clone();
        }
        browser.ask("Input.dispatchKeyEvent", event);
    }
}

/// Presses Tab until the focused element fits.
fn tab_to(browser: &mut Chromium, fits: &str) {
    for _ in 0..120 {
        press(browser, "Tab", 9);
        if browser.value(&format!("Boolean(((e) => {fits})(document.activeElement))")) == json!(true) {
            return;
        }
    }
    panic!("no key leads to {fits}");
}

#[tokio::test(flavor = "multi_thread")]
async fn every_view_fits_a_phone_and_a_large_screen_and_needs_no_mouse() {
    let Some((fleet, folder)) = fleet(NODES, "").await else { return };
    let (_child, address) = program(&folder.path().join("kubeconfig")).await;
    let mut browser = Chromium::start();
    browser.ask("Emulation.setTimezoneOverride", json!({"timezoneId": "Asia/Tokyo"}));
    browser.open(&address);
    live(&mut browser, NODES).await;
    let mut wide = vec![];
    for (width, height) in [(360, 740), (1280, 900), (3840, 2160)] {
        let size = json!({"width": width, "height": height, "deviceScaleFactor": 1, "mobile": false});
        browser.ask("Emulation.setDeviceMetricsOverride", size);
        for (name, hash, there) in VIEWS {
            browser.value(&format!("location.hash = {hash:?}"));
            browser.wait(there).await;
            browser.wait("!document.querySelector('main').innerText.includes('Reading…')").await;
            let over =
                browser.value("document.documentElement.scrollWidth - window.innerWidth").as_i64().unwrap();
            if over > 0 {
                wide.push(format!("{name} is {over} too wide at {width}"));
            }
        }
    }
    assert_eq!(wide, Vec::<String>::new());
    browser.ask("Emulation.clearDeviceMetricsOverride", json!({}));

    // Midnight in Greenwich is nine o'clock in Tokyo.
    browser.value("location.hash = '#/node/node-5'");
    browser
        .wait("[...document.querySelectorAll('time')].some((t) => t.dateTime === '2026-01-01T00:00:00Z' && / 9:00:00/.test(t.textContent))")
        .await;

    // The keyboard alone: the content, a node on the map, its page, an action and back.
    browser.value("location.hash = '#/fleet'; document.activeElement.blur()");
    browser.wait(VIEWS[0].2).await;
    browser.value("document.body.focus(); window.getSelection().removeAllRanges()");
    tab_to(&mut browser, "e.className === 'viewport'");
    press(&mut browser, "Home", 36);
    let first = browser.value("document.querySelector('main p[role=status]').textContent");
    press(&mut browser, "ArrowRight", 39);
    let second = browser.value("document.querySelector('main p[role=status]').textContent");
    assert!(first != second && second.as_str().unwrap().contains("pool "), "{first} {second}");
    press(&mut browser, "Enter", 13);
    browser.wait("location.hash.startsWith('#/node/')").await;
    browser.wait("document.querySelector('[data-action=retry]')").await;
    tab_to(&mut browser, "e.dataset.action === 'retry'");
    press(&mut browser, "Enter", 13);
    browser.wait("document.querySelector('dialog[open]')").await;
    assert_eq!(
        browser.value("document.querySelector('dialog').contains(document.activeElement)"),
        json!(true)
    );
    press(&mut browser, "Escape", 27);
    browser.wait("!document.querySelector('dialog')").await;
    assert_eq!(
        browser.value("document.activeElement.dataset.action"),
        json!("retry"),
        "the focus is where it was"
    );

    // One group fills the map, when chosen in the list or by its heading.
    browser.value("location.hash = '#/fleet'");
    browser.wait(VIEWS[0].2).await;
    let shown =
        format!("{APP}.then((m) => ['node-0', 'node-1'].map((n) => Boolean(m.current.cell(n))).join())");
    browser.wait(&format!("{shown}.then((x) => x === 'true,true')")).await;
    let choose = |text: &str| {
        format!(
            "((s) => {{ s.value = [...s.options].find((o) => o.textContent.startsWith({text:?})).value; s.dispatchEvent(new Event('change')); }})(document.querySelector('[data-key=group]'))"
        )
    };
    browser.value(&choose("worker · zone-a"));
    browser.wait(&format!("{shown}.then((x) => x === 'true,false')")).await;
    browser.value(&choose("every group"));
    browser.wait(&format!("{shown}.then((x) => x === 'true,true')")).await;
    let click = format!(
        "{APP}.then((m) => {{ const v = document.querySelector('.viewport'); const b = v.getBoundingClientRect(); \
         v.dispatchEvent(new MouseEvent('click', {{ clientX: b.left + 30, clientY: b.top + m.current.head('worker · zone-a').y - v.scrollTop + 5, bubbles: true }})); }})"
    );
    browser.value(&click);
    browser.wait(&format!("{shown}.then((x) => x === 'true,false')")).await;
    assert_eq!(fleet.nodes().len(), NODES);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_shows_its_drift_its_drain_and_its_past_and_configs_are_compared_and_dropped() {
    let Some((fleet, folder)) = fleet(NODES, "").await else { return };
    let (_child, address) = program(&folder.path().join("kubeconfig")).await;
    let drift = format!(
        "unexpected on-disk state validating against rendered-edge-1: content mismatch for file /etc/example\n\
         /etc/example: \n-as it was\n+as it is\n+password={SECRET}"
    );
    fleet.fail("node-13", &drift);
    fleet.begin("node-14", "pod shop/cart-1: budget shop/cart allows no disruption");
    let mut browser = Chromium::start();
    browser.open(&address);
    live(&mut browser, NODES).await;
    browser.value("location.hash = '#/node/node-13'");
    browser
        .wait("[...document.querySelectorAll('pre .added')].some((l) => l.textContent === '+as it is')")
        .await;
    browser
        .wait("[...document.querySelectorAll('pre .removed')].some((l) => l.textContent === '-as it was')")
        .await;
    browser.wait("document.body.innerText.includes('Its updates so far, the newest first')").await;
    assert_eq!(
        browser.value("document.querySelectorAll('main table')[0].rows.length"),
        json!(3),
        "two, and the head"
    );
    let text = browser.value("document.documentElement.outerHTML");
    assert!(!text.as_str().unwrap().contains("hunter2"), "{text}");
    browser.value("location.hash = '#/node/node-14'");
    browser.wait("document.body.innerText.includes('budget shop/cart allows no disruption')").await;

    // What the drain waits for changes while the page is open.
    fleet.step("node-14", 0, "");
    fleet.change("nodes", "node-14", |node| {
        let key = "machineconfiguration.openshift.io/drainWaitsFor";
        node["metadata"]["annotations"][key] =
            json!("pod shop/cart-2: budget shop/cart allows no disruption");
    });
    let waits = "[...document.querySelectorAll('dt')].find((t) => t.textContent === 'Drain waits for').nextSibling.textContent";
    browser.wait(&format!("{waits}.includes('cart-2')")).await;

    // Rollouts that were over before the dashboard started, and one that is under way.
    browser.value("location.hash = '#/rollout'");
    browser.wait("document.body.innerText.includes('pod shop/cart-2')").await;
    let past = "[...document.querySelectorAll('section')].filter((s) => s.textContent.includes('rendered-worker-00000000000000000000000000000000'))[0].querySelectorAll('.track div').length";
    assert_eq!(browser.value(past), json!(5 * NODES / 4), "four parts and the end of each of its nodes");

    browser.value("location.hash = '#/configs'");
    browser.wait("document.body.innerText.includes('Compare two')").await;
    let pick = "(() => { const [from, to] = document.querySelectorAll('select[aria-label$=config]'); \
        [from.value, to.value] = [1, 2].map((n) => 'rendered-worker-0000000000000000000000000000000' + n); \
        [...document.querySelectorAll('button')].find((b) => b.textContent === 'Compare').click(); })()";
    browser.value(pick);
    browser.wait("[...document.querySelectorAll('pre .added')].some((l) => l.textContent === '+2')").await;

    // A dropped file is checked as if it had been pasted.
    let manifest = json!({"apiVersion": "machineconfiguration.openshift.io/v1", "kind": "MachineConfig",
        "metadata": {"name": "50-dropped", "labels": {"machineconfiguration.openshift.io/role": "worker"}},
        "spec": {"config": {"ignition": {"version": "3.4.0"}, "storage": {"files": [
            {"path": "/etc/dropped", "mode": 420, "contents": {"source": "data:,fell"}}]}}}});
    let drop = format!(
        "(() => {{ const d = new DataTransfer(); d.items.add(new File([{:?}], 'a.json')); \
         document.getElementById('manifest').dispatchEvent(new DragEvent('drop', {{ dataTransfer: d, bubbles: true, cancelable: true }})); }})()",
        manifest.to_string()
    );
    browser.value(&drop);
    browser.wait("document.getElementById('manifest').value.includes('50-dropped')").await;
    browser.value("document.querySelector('[data-check]').click()");
    browser.wait("document.body.innerText.includes('Nothing to criticise in 1 manifests')").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_person_does_with_the_mouse_stops_no_view_and_what_is_not_known_is_not_denied() {
    let Some((fleet, folder)) = fleet(NODES, "").await else { return };
    let at = "2026-01-03T00:00:00Z";
    let config = "rendered-worker-00000000000000000000000000000002";
    fleet.add("rolloutpolicies", json!({"apiVersion": "machineconfig.dev/v1alpha1", "kind": "RolloutPolicy",
        "metadata": {"name": "careful", "uid": "careful", "resourceVersion": "1", "generation": 1},
        "spec": {"pools": {"names": ["worker"]}, "waves": [{"name": "canary", "size": 1}, {"name": "rest", "approval": "Needed"}],
            "gates": [{"name": "shop", "workloads": {"selector": {"matchLabels": {"app": "shop"}}}}],
            "windows": [{"name": "night", "cron": "0 22 * * *", "duration": "6h"}],
            "freezes": [{"name": "year-end", "from": "2030-12-20T00:00:00Z", "to": "2031-01-03T00:00:00Z"}]},
        "status": {"observedGeneration": 1, "pools": [{"name": "worker", "config": config, "since": at, "wave": "canary",
            "waveBegun": true, "approvals": [{"wave": "canary", "config": config, "by": "jane", "at": at}],
            "gates": [{"gate": "shop", "outcome": "Failing", "message": "two of three are gone"}]}]}}));
    let (mut child, address) = program(&folder.path().join("kubeconfig")).await;
    let mut browser = Chromium::start();
    browser.open(&address);
    live(&mut browser, NODES).await;

    // The browser does not always report the end of a press: not if the press opens a menu, and sometimes not otherwise.
    let row = "document.querySelector('tr[data-node=node-5]')";
    let moving = |node: &str| format!("document.querySelector('tr[data-node={node}][data-phase=moving]')");
    for (button, node) in [(2, "node-5"), (0, "node-9")] {
        browser.wait(row).await;
        browser.value(&format!(
            "{row}.dispatchEvent(new PointerEvent('pointerdown', {{ button: {button}, bubbles: true }}))"
        ));
        fleet.step(node, 0, "it works");
        browser.wait(&moving(node)).await;
    }

    // A policy is shown in words.
    browser.value("location.hash = '#/pool/worker'");
    for says in [
        "canary (it has begun)",
        "fails, not for long enough yet",
        "two of three are gone",
        "0 22 * * *",
        "year-end",
        "by jane",
        "by a person",
        // The reason for a pool's hold contains no secret, and must not be masked as one.
        "gate shop has not passed: two of three are gone",
    ] {
        browser.wait(&format!("document.querySelector('main').innerText.includes({says:?})")).await;
    }

    // A table that was scrolled sideways keeps its position while its rows change.
    let size = json!({"width": 200, "height": 740, "deviceScaleFactor": 1, "mobile": false});
    browser.ask("Emulation.setDeviceMetricsOverride", size);
    let region = "document.querySelector('.scroll')";
    browser.wait(&format!("{region}.scrollWidth > {region}.clientWidth + 40")).await;
    browser.value(&format!("window.before_ = {region}; {region}.scrollLeft = 40"));
    fleet.step("node-8", 0, "it works");
    browser.wait(&format!("{region} !== window.before_ && {region}.textContent.includes('moving')")).await;
    assert_eq!(browser.value(&format!("{region}.scrollLeft")), json!(40));
    browser.ask("Emulation.clearDeviceMetricsOverride", json!({}));

    // The duration of a running step uses the server's clock, whatever the clock of the reader's computer says.
    fleet.step("node-13", 0, "");
    fleet.begin("node-13", "pod shop/cart-1: budget shop/cart allows no disruption");
    browser.value("Date.now = () => 0; location.hash = '#/rollout'");
    let track = "[...document.querySelectorAll('.track')].map((t) => t.getAttribute('aria-label')).find((t) => t.startsWith('drain') && t.includes('so far'))";
    browser.wait(track).await;
    let said = browser.value(track);
    assert!(
        said.as_str().unwrap().starts_with("drain 9") || said.as_str().unwrap().starts_with("drain 2 min"),
        "{said}"
    );

    // A line for screen readers is written when its text is new, not at every change.
    browser.value(&format!(
        "{APP}.then((m) => {{ m.store.trouble = 'x'; window.written_ = 0; \
         new MutationObserver((all) => {{ window.written_ += all.length; }}).observe(document.getElementById('trouble'), {{ childList: true }}); \
         for (let n = 0; n < 5; n += 1) m.store.dispatchEvent(new CustomEvent('change', {{ detail: {{ nodes: new Set() }} }})); }})"
    ));
    assert_eq!(browser.value("new Promise((r) => setTimeout(() => r(window.written_), 50))"), json!(1));

    // Another version of the dashboard has another page, which has to be loaded.
    browser.value(&format!(
        "window.old_ = true; {APP}.then((m) => {{ m.store.version = 'v0.0.1'; m.store.connect(); }})"
    ));
    browser.wait("!window.old_").await;
    live(&mut browser, NODES).await;

    // Without the dashboard, the page says so, and does not show unknown values as absent.
    browser.value("location.hash = '#/node/node-5'");
    browser.wait("document.body.innerText.includes('Conditions of the Node')").await;
    child.kill().await.unwrap();
    browser.wait("document.getElementById('connection').className === 'bad'").await;
    browser.value("document.querySelector('[data-action=retry]').click()");
    browser
        .wait("document.querySelector('dialog').textContent.includes('the dashboard does not answer')")
        .await;
    browser.value("document.querySelector('dialog').close()");
    for (hash, says) in [("#/node/x", "No pool has"), ("#/pool/x", "There is no pool")] {
        browser.value(&format!("location.hash = {hash:?}"));
        browser.wait(&format!("document.querySelector('main').innerText.includes({says:?})")).await;
        browser.value(&format!("{APP}.then((m) => {{ m.store.version = ''; m.store.dispatchEvent(new CustomEvent('change', {{ detail: {{ nodes: null }} }})); }})"));
        browser
            .wait("document.querySelector('main').innerText.includes('The fleet has not been read yet')")
            .await;
        browser.value(&format!("{APP}.then((m) => {{ m.store.version = 'v'; }})"));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_may_not_be_read_says_so_and_objects_of_a_newer_version_are_shown_with_the_rest() {
    let Some((fleet, folder)) = fleet(NODES, "").await else { return };
    for resource in ["machineconfignodes", "pods", "events", "secrets"] {
        fleet.forbid(resource);
    }
    // Objects from a newer version: fields, values and kinds of steps that this version does not know.
    fleet.change("machineconfigpools", "worker", |pool| {
        pool["spec"]["gravity"] = json!({"up": true});
        pool["status"]["conditions"].as_array_mut().unwrap().push(json!({"type": "Levitating", "status": "True",
            "reason": "New", "message": "it floats", "lastTransitionTime": "2026-01-01T00:00:00Z", "depth": 3}));
    });
    fleet.change("nodes", "node-4", |node| {
        node["metadata"]["annotations"]["machineconfiguration.openshift.io/state"] = json!("Hibernating");
        node["spec"]["orbit"] = json!([1, 2]);
    });
    fleet.change("machineconfigs", "rendered-gpu-00000000000000000000000000000002", |config| {
        config["spec"]["config"]["ignition"]["version"] = json!("3.99.0");
        config["spec"]["teleport"] = json!(true);
    });
    fleet.add("rolloutpolicies", json!({"apiVersion": "machineconfig.dev/v1alpha1", "kind": "RolloutPolicy",
        "metadata": {"name": "newer", "uid": "newer", "resourceVersion": "1"},
        "spec": {"pools": {"names": ["edge"]}, "waves": [{"name": "all", "approval": "ByTelepathy", "tide": "high"}]}}));
    let (mut child, address) = program(&folder.path().join("kubeconfig")).await;
    let mut browser = Chromium::start();
    browser.open(&address);
    live(&mut browser, NODES).await;
    let unread = "document.getElementById('unread').textContent";
    browser.wait(&format!("{unread}.includes('MachineConfigNodes cannot be read')")).await;
    browser.wait(&format!("{unread}.includes('operator cannot be read')")).await;
    browser.wait(&format!("{unread}.includes('RolloutPolicy newer cannot be read')")).await;
    for (hash, says) in [
        ("#/rollout", "MachineConfigNodes cannot be read"),
        ("#/rollout", "You may not list events"),
        ("#/node/node-5", "may not list events"),
        ("#/node/node-5", "somebody may not"),
        ("#/node/node-5", "Conditions of the Node"),
        ("#/trust", "you may not list them"),
        ("#/pool/worker", "it floats"),
        ("#/pool/worker", "/etc/example"),
        ("#/node/node-4", "Hibernating"),
        ("#/config/rendered-gpu-00000000000000000000000000000002", "3.99.0"),
        ("#/images", "registry.example.com/os:1"),
    ] {
        browser.value(&format!("location.hash = {hash:?}"));
        browser.wait(&format!("document.querySelector('main').innerText.includes({says:?})")).await;
    }
    // The page still follows changes.
    fleet.step("node-5", 0, "it works");
    browser.wait(&format!("{APP}.then((m) => m.store.nodes.get('node-5').phase === 'moving')")).await;
    assert!(child.try_wait().unwrap().is_none(), "it serves still");
}
