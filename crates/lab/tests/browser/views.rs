//! The page with a simulated fleet: 5,000 nodes, names that contain markup, a server that goes away, accessibility checks, and
//! pictures of every view.

use crate::chromium::Chromium;
use crate::dashboard::{APP, program};
use crate::product::lab;
use ::lab::{Environment, FleetApi, Reporter};
use serde_json::{Value, json};
use std::path::Path;
use std::time::{Duration, Instant};

/// The nodes of the large fleet.
const MANY: usize = 5000;
/// The number of nodes in the pictures.
const SOME: usize = 240;
/// Every view, and a condition that shows that it is complete.
pub(crate) const VIEWS: [(&str, &str, &str); 10] = [
    ("fleet", "#/fleet", "document.querySelectorAll('tr[data-node]').length > 10"),
    ("pools", "#/pools", "document.querySelectorAll('[data-pool]').length === 4"),
    ("pool", "#/pool/worker", "document.body.innerText.includes('/etc/example')"),
    ("node", "#/node/node-5", "document.body.innerText.includes('Conditions of the Node')"),
    ("rollout", "#/rollout", "document.querySelectorAll('.track div').length > 20"),
    ("configs", "#/configs", "document.body.innerText.includes('Compare two')"),
    (
        "config",
        "#/config/rendered-worker-00000000000000000000000000000001",
        "document.body.innerText.includes('/etc/example')",
    ),
    ("images", "#/images", "document.body.innerText.includes('registry.example.com/os:1')"),
    ("certificates", "#/trust", "document.body.innerText.includes('CN=kube-apiserver')"),
    (
        "operator",
        "#/operator",
        "['everything runs', 'It has no conditions yet', '1 of 2', 'silent since', '48,211', '37 MiB'].every((t) => document.body.innerText.includes(t))",
    ),
];

/// A simulated fleet, and a folder with its kubeconfig; installs the browser. `None`: skipped, with a message.
pub(crate) async fn fleet(nodes: usize, markup: &str) -> Option<(FleetApi, tempfile::TempDir)> {
    let _ = lab()?;
    if !::lab::require((!::lab::is_root()).then(|| "Chromium is installed as root".to_owned())) {
        return None;
    }
    ::lab::ensure_browser(&Reporter::stderr()).await.unwrap();
    let fleet = FleetApi::start(nodes, markup).await.unwrap();
    let folder = tempfile::tempdir().unwrap();
    fleet.write_kubeconfig(&folder.path().join("kubeconfig")).unwrap();
    Some((fleet, folder))
}

/// A fleet, its dashboard, and the dashboard's address.
async fn site(
    nodes: usize,
    markup: &str,
) -> Option<(FleetApi, tokio::process::Child, String, tempfile::TempDir)> {
    let (fleet, folder) = fleet(nodes, markup).await?;
    let (child, address) = program(&folder.path().join("kubeconfig")).await;
    Some((fleet, child, address, folder))
}

pub(crate) fn origin(address: &str) -> String {
    address.split("/?").next().unwrap().to_owned()
}

pub(crate) async fn live(browser: &mut Chromium, nodes: usize) -> Duration {
    browser
        .wait(&format!("{APP}.then((m) => m.store.connection === 'live' && m.store.nodes.size === {nodes})"))
        .await
}

#[tokio::test(flavor = "multi_thread")]
async fn five_thousand_nodes_with_names_of_markup_are_shown_and_followed() {
    let markup = "<img src=x onerror=window.hacked=1>\"'&";
    let Some((fleet, mut child, address, _folder)) = site(MANY, markup).await else { return };
    let mut browser = Chromium::start();
    let begun = Instant::now();
    browser.open(&address);
    live(&mut browser, MANY).await;
    println!("{MANY} nodes were on the page {:?} after it was opened", begun.elapsed());
    let views = VIEWS.iter().filter(|(name, ..)| !["config", "node"].contains(name));
    for (name, hash, there) in views {
        browser.value(&format!("location.hash = {hash:?}"));
        browser.wait(there).await;
        let found = browser.value("String(window.hacked) + document.querySelectorAll('img').length");
        assert_eq!(found, json!("undefined0"), "{name}");
    }
    browser.value("location.hash = '#/node/node-7'");
    browser.wait("document.body.innerText.includes('onerror')").await;
    assert_eq!(
        browser.value("String(window.hacked) + document.querySelectorAll('img').length"),
        json!("undefined0")
    );

    // A change reaches its cell, and the page stays smooth while hundreds come each second.
    browser.value("location.hash = '#/fleet'");
    browser.wait(VIEWS[0].2).await;
    let mut times = vec![];
    for n in 0..10 {
        let name = format!("node-{n}");
        fleet.step(&name, 0, "it works");
        times.push(
            browser.wait(&format!("{APP}.then((m) => m.store.nodes.get('{name}').phase === 'moving')")).await,
        );
    }
    times.sort();
    println!("a change of a node was on the page after {:?} (median), {:?} (longest)", times[5], times[9]);
    browser.value("window.frames_ = 0; (function next() { window.frames_ += 1; requestAnimationFrame(next); })(); window.since_ = performance.now()");
    let end = Instant::now() + Duration::from_secs(3);
    let mut step = 0;
    while Instant::now() < end {
        for _ in 0..20 {
            fleet.step(&format!("node-{}", step % MANY), step / MANY, "it works");
            step += 1;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let rate = browser.value("1000 * window.frames_ / (performance.now() - window.since_)").as_f64().unwrap();
    println!("{rate:.0} frames a second (aim: 30) at {} changes a second", step / 3);
    assert!(rate > 1.0, "the page stands still");
    let last = format!("node-{}", (step - 1) % MANY);
    browser.wait(&format!("{APP}.then((m) => m.store.nodes.get('{last}').why !== '')")).await;

    // As a manifest: ten megabytes, and one byte more.
    browser.value("location.hash = '#/configs'");
    browser.wait("document.getElementById('manifest')").await;
    for (length, says) in [(10 << 20, "no manifest"), ((10 << 20) + 1, "More than 10 MB are not accepted")] {
        browser.value(&format!("document.getElementById('manifest').value = '#'.repeat({length})"));
        browser.value("document.querySelector('[data-check]').click()");
        browser.wait(&format!("document.querySelector('main').innerText.includes({says:?})")).await;
    }
    let complaints = browser.complaints(&origin(&address));
    // The browser logs a refused request as an error on the console.
    let others: Vec<_> = complaints.iter().filter(|c| !c.contains("api/check")).collect();
    assert!(others.is_empty(), "{others:?}");
    assert!(child.try_wait().unwrap().is_none(), "it serves still");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_goes_away_comes_back_and_a_session_that_ends_says_so() {
    let Some((fleet, mut child, address, folder)) = site(20, "").await else { return };
    let mut browser = Chromium::start();
    browser.open(&address);
    live(&mut browser, 20).await;
    // Each kind has its own watch: the first reported trouble may be of another kind.
    let trouble = "!document.getElementById('trouble').hidden \
        && document.getElementById('trouble').textContent.includes(' Nodes')";
    fleet.go_away(true);
    browser.wait(trouble).await;
    fleet.go_away(false);
    fleet.step("node-3", 0, "it works again");
    // Its watch is answered: Nodes are up to date again. Other kinds may still be reported as unknown.
    browser.wait("!/[ ]Nodes[,:]/.test(document.getElementById('trouble').textContent)").await;
    browser.wait(&format!("{APP}.then((m) => m.store.nodes.get('node-3').phase === 'moving')")).await;

    // The dashboard itself ends, and another one starts on its port: it does not accept the old session.
    let says = |what: &str| format!("document.getElementById('connection').textContent.includes({what:?})");
    child.kill().await.unwrap();
    browser.wait(&says("trying again")).await;
    let port = origin(&address);
    let port = port.trim_start_matches("http://127.0.0.1:").split('/').next().unwrap().to_owned();
    let (_second, address) =
        crate::dashboard::program_with(&folder.path().join("kubeconfig"), &["--port", &port]).await;
    browser.wait(&says("session has ended")).await;
    browser.open(&address);
    live(&mut browser, 20).await;

    // A session whose cookie is gone.
    browser.ask("Network.clearBrowserCookies", json!({}));
    browser.value(&format!("{APP}.then((m) => {{ m.store.connect(); }})"));
    browser.wait(&says("session has ended")).await;
    browser.open(&format!("{}/", origin(&address)));
    browser.wait("document.body.innerText.includes('press Enter')").await;
}

/// A policy for one pool whose first wave is under way.
fn policy() -> Value {
    let now = "2026-01-01T00:00:00Z";
    json!({"apiVersion": "machineconfig.dev/v1alpha1", "kind": "RolloutPolicy",
    "metadata": {"name": "careful", "uid": "careful", "generation": 1, "resourceVersion": "1"},
    "spec": {
        "pools": {"names": ["infra"]},
        "waves": [{"name": "canary", "size": 1, "soak": "10m"}, {"name": "rest"}],
        "gates": [{"name": "shop", "http": {"url": "http://shop.example.com/healthz"}}],
        "windows": [{"name": "always", "cron": "0 0 * * *", "timeZone": "Etc/UTC", "duration": "24h"}],
    },
    "status": {"observedGeneration": 1, "conditions": [], "currentWave": "canary", "pools": [{
        "name": "infra", "config": "rendered-infra-00000000000000000000000000000002", "since": now,
        "proved": "rendered-infra-00000000000000000000000000000001", "wave": "canary", "waveBegun": true,
        "gates": [{"gate": "shop", "outcome": "Failing", "message": "status 503"}],
        "baseline": [{"gate": "shop"}],
    }]}})
}

/// Two pools that are held, with everything that a card can show: one waits for an approval; the other's gate has failed, and
/// its window is closed.
fn held() -> [Value; 2] {
    let policy = |pool: &str, spec: Value, progress: Value| {
        let mut status = json!({"name": pool, "config": format!("rendered-{pool}-00000000000000000000000000000002"),
            "since": "2026-01-01T00:00:00Z", "proved": format!("rendered-{pool}-00000000000000000000000000000001")});
        status.as_object_mut().unwrap().extend(progress.as_object().unwrap().clone());
        let mut spec = spec;
        spec["pools"] = json!({"names": [pool]});
        json!({"apiVersion": "machineconfig.dev/v1alpha1", "kind": "RolloutPolicy",
            "metadata": {"name": pool, "uid": pool, "generation": 1, "resourceVersion": "1"}, "spec": spec,
            "status": {"observedGeneration": 1, "conditions": [], "pools": [status]}})
    };
    [
        policy(
            "gpu",
            json!({"waves": [{"name": "by-hand", "approval": "Needed"}]}),
            json!({"wave": "by-hand"}),
        ),
        policy(
            "edge",
            json!({"gates": [{"name": "shop", "http": {"url": "http://shop.example.com/healthz"}}],
                "freezes": [{"name": "year-end", "from": "2026-01-01T00:00:00Z", "to": "2096-01-01T00:00:00Z"}],
                "waves": [{"name": "all"}]}),
            json!({"wave": "all", "waveBegun": true, "baseline": [{"gate": "shop"}],
                "gates": [{"gate": "shop", "outcome": "Failed", "message": "status 503"}]}),
        ),
    ]
}

/// Sets the colour scheme that the system asks for.
pub(crate) fn in_colours(browser: &mut Chromium, scheme: &str) {
    let feature = json!({"features": [{"name": "prefers-color-scheme", "value": scheme}]});
    browser.ask("Emulation.setEmulatedMedia", feature);
}

/// The serious violations that axe finds, one text for each.
pub(crate) fn serious(browser: &mut Chromium, axe: &str, what: &str) -> Vec<String> {
    browser.value(&format!("window.axe ? 0 : (0, eval)({axe}), 0"));
    let said = browser.value(
        "axe.run(document, {resultTypes: ['violations']}).then((r) => JSON.stringify(r.violations \
         .filter((v) => ['serious', 'critical'].includes(v.impact)) \
         .map((v) => [v.id, v.help, v.nodes.slice(0, 3).map((n) => n.html + ' ' + n.failureSummary)])))",
    );
    let said: Vec<Value> = serde_json::from_str(said.as_str().unwrap()).unwrap();
    said.iter().map(|one| format!("{what}: {one:#}")).collect()
}

/// Shows every view in one colour scheme; returns what axe finds, and takes a picture of each.
async fn look_at_all(browser: &mut Chromium, scheme: &str, axe: &str, pictures: &Path) -> Vec<String> {
    in_colours(browser, scheme);
    let mut found = vec![];
    for (name, hash, there) in VIEWS {
        browser.value(&format!("location.hash = {hash:?}"));
        browser.wait(there).await;
        browser.wait("!document.querySelector('main').innerText.includes('Reading…')").await;
        browser.picture(&pictures.join(format!("{name}-{scheme}.png")));
        found.extend(serious(browser, axe, &format!("{name}, {scheme}")));
    }
    found
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_serious_keeps_people_from_using_any_view_dark_or_light() {
    let Some((fleet, folder)) = fleet(SOME, "").await else { return };
    fleet.add("rolloutpolicies", policy());
    held().into_iter().for_each(|policy| fleet.add("rolloutpolicies", policy));
    let (_child, address) = program(&folder.path().join("kubeconfig")).await;
    let axe = ::lab::axe(&Environment::read().cache, &Reporter::stderr()).await.unwrap();
    let pictures = Path::new(env!("CARGO_TARGET_TMPDIR")).join("screenshots");
    std::fs::create_dir_all(&pictures).unwrap();
    let names = fleet.nodes();
    for (n, name) in names.iter().enumerate().take(SOME / 2) {
        fleet.step(name, if n % 6 == 5 { n / 6 % 2 } else { 2 }, "");
    }
    for (n, name) in names.iter().enumerate().take(SOME / 8).filter(|(n, _)| n % 6 == 5) {
        let waits = if n % 4 == 1 {
            "pod shop/cart-1: budget shop/cart allows no disruption"
        } else {
            "pod shop/web-0 to end"
        };
        fleet.begin(name, waits);
    }
    fleet.fail("node-13", "cannot write /etc/example: the file system is read-only");
    let mut browser = Chromium::start();
    // axe is not one of the page's own scripts, so its content security policy would refuse it.
    browser.ask("Page.setBypassCSP", json!({"enabled": true}));
    browser.open(&address);
    live(&mut browser, SOME).await;
    // Wave, gates and window of a pool, beside the map and on its card.
    for card in ["[data-brief=infra]", "[data-pool=infra]"] {
        browser.value(&format!(
            "location.hash = '#/{}'",
            if card.contains("brief") { "fleet" } else { "pools" }
        ));
        browser.wait(&format!("document.querySelector('{card}')")).await;
        let text = browser.value(&format!("document.querySelector('{card}').innerText"));
        let text = text.as_str().unwrap();
        for part in
            ["canary (wave 1 of 2): has begun, and is held", "shop: fails", "status 503", "updates may begin"]
        {
            assert!(text.contains(part), "{card}, {part}: {text}");
        }
    }
    // The cards of held pools. The approval button is only where an approval is needed.
    for (pool, parts) in [
        ("gpu", &["by-hand (wave 1 of 1): waits for an approval", "Held", "Approve the wave that waits"][..]),
        ("edge", &["gate shop fails: status 503", "frozen until", "year-end", "Held"]),
    ] {
        let text = browser.value(&format!("document.querySelector('[data-pool={pool}]').innerText"));
        let text = text.as_str().unwrap();
        parts.iter().for_each(|part| assert!(text.contains(part), "{pool}, {part}: {text}"));
        assert_eq!(text.contains("Approve"), pool == "gpu", "{text}");
    }
    let axe = json!(axe).to_string();
    let mut found = vec![];
    for scheme in ["light", "dark"] {
        found.extend(look_at_all(&mut browser, scheme, &axe, &pictures).await);
    }
    // A confirmation is a view of its own.
    browser.value("location.hash = '#/pools'");
    browser.wait(VIEWS[1].2).await;
    browser.value("document.querySelector('[data-pool=worker] [data-action=pause]').click()");
    browser.wait("document.querySelector('dialog [data-confirm]:enabled')").await;
    let said = browser.value("axe.run(document.querySelector('dialog')).then((r) => r.violations.filter((v) => ['serious', 'critical'].includes(v.impact)).map((v) => v.id).join())");
    assert_eq!(said, json!(""), "the confirmation");
    assert!(found.is_empty(), "{}", found.join("\n"));
    assert_eq!(std::fs::read_dir(&pictures).unwrap().count(), 2 * VIEWS.len());
}
