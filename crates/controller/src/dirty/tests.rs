//! For each change, the keys of each pass that it makes dirty. All other keys stay clean.

mod answers;

use super::*;
use crate::cache::settings::{API_SERVER, FEATURE_GATE, IMAGE, MACHINE_CONFIGURATION, STREAMS};
use crate::cache::stores::Stores;
use crate::flight::pools::OwnPoolWrites;
use crate::passes::REACTIONS;
use crate::render_prerequisites::TemplatesPrerequisite;
use api::names::label;
use api::v1::{MachineConfigNode, PinnedImageSet};
use rollout::view::{DaemonState, NodeView};
use serde_json::{Value, json};
use std::collections::BTreeSet;

/// Pools `worker` and `infra`, nodes `n1` and `n2` in config `rendered-worker-a`, and the MachineConfigNode of a third.
fn stores() -> Stores {
    let stores = Stores::default();
    let item = |uid: &str| (1, uid.to_owned());
    for name in ["infra", "worker"] {
        let (version, uid) = item(name);
        let value = pool(name, json!({})).unwrap();
        stores.pools.apply(name.to_owned(), Item { version, uid, value });
    }
    for name in ["n1", "n2"] {
        let (version, uid) = item(name);
        stores.nodes.apply(name.to_owned(), Item { version, uid, value: node("Done").unwrap() });
    }
    let (version, uid) = item("gone");
    let value = Arc::new(MachineConfigNode::new("gone", api::v1::MachineConfigNodeSpec::default()));
    stores.machine_config_nodes.apply("gone".to_owned(), Item { version, uid, value });
    for name in ["rendered-worker-a", "rendered-worker-b"] {
        let (version, uid) = item(name);
        stores.configs.apply(name.to_owned(), Item { version, uid, value: rendered(name).unwrap() });
    }
    stores
}

#[expect(clippy::needless_pass_by_value, reason = "reads better with json!")]
fn pool(name: &str, with: Value) -> Option<Arc<MachineConfigPool>> {
    let mut pool = json!({
        "metadata": {"name": name, "uid": name},
        "spec": {
            "machineConfigSelector": {"matchLabels": {label::ROLE: name}},
            "configuration": {"name": format!("rendered-{name}-a")},
        },
    });
    json_patch::merge(&mut pool, &with);
    Some(Arc::new(serde_json::from_value(pool).unwrap()))
}

fn node(state: &str) -> Option<Arc<NodeView>> {
    let state = DaemonState::Other(state.into());
    let current_config = Some("rendered-worker-b".into());
    Some(Arc::new(NodeView { name: "n1".into(), state, current_config, ..NodeView::default() }))
}

#[expect(clippy::needless_pass_by_value, reason = "reads better with json!")]
fn config(name: &str, role: &str, owner: Value) -> Option<Arc<Config>> {
    let config: MachineConfig = serde_json::from_value(json!({
        "metadata": {"name": name, "labels": {label::ROLE: role}, "ownerReferences": owner},
        "spec": {},
    }))
    .unwrap();
    Some(Arc::new(Config::new(config)))
}

fn rendered(name: &str) -> Option<Arc<Config>> {
    let owner = json!([{"apiVersion": "v1", "kind": "MachineConfigPool", "name": "worker", "uid": "worker", "controller": true}]);
    config(name, "", owner)
}

fn change<T>(name: &str, old: Option<Arc<T>>, new: Option<Arc<T>>) -> Change<T> {
    Change { name: name.to_owned(), old, new }
}

/// The marks as `PASS: key key; PASS: key`, in the order of the passes.
fn words(marks: DirtyKeys) -> String {
    let one = |(pass, keys): (Pass, BTreeSet<String>)| {
        format!("{pass:?}: {}", keys.into_iter().collect::<Vec<_>>().join(" "))
    };
    marks.into_iter().map(one).collect::<Vec<_>>().join("; ").replace(CONTROLLER_CONFIG, "cc")
}

#[test]
fn a_change_makes_dirty_what_looks_at_it_and_nothing_else() {
    let worker = || pool("worker", json!({}));
    let with = |with: Value| pool("worker", with);
    let pools = |old, new| change("worker", old, new);
    let template = || {
        let owner = json!([{"apiVersion": "v1", "kind": "ControllerConfig", "name": CONTROLLER_CONFIG, "uid": "c", "controller": true}]);
        config("00-worker", "worker", owner)
    };
    let cc = |spec: Value| -> Option<Arc<ControllerConfig>> {
        Some(Arc::new(
            serde_json::from_value(json!({"metadata": {"name": CONTROLLER_CONFIG}, "spec": spec})).unwrap(),
        ))
    };
    let mcn = |pool: &str| -> Option<Arc<MachineConfigNode>> {
        let spec = json!({"node": {"name": "n1"}, "pool": {"name": pool}, "configVersion": {"desired": "a"}});
        Some(Arc::new(serde_json::from_value(json!({"metadata": {"name": "n1"}, "spec": spec})).unwrap()))
    };
    let labelled = || {
        let labels = [("node-role.kubernetes.io/control-plane", "")].into_iter().collect();
        Some(Arc::new(NodeView { labels, ..(*node("Done").unwrap()).clone() }))
    };
    let moved = || {
        Some(Arc::new(NodeView {
            current_config: Some("rendered-worker-a".into()),
            ..(*node("Done").unwrap()).clone()
        }))
    };
    let status = json!({"status": {"configuration": {"name": "rendered-worker-a"}}});
    let pool_rows = [
        (
            "a new pool",
            None,
            worker(),
            "Node: cluster; Render: infra worker; Generated: cc; MachineConfigNodes: n1 n2; PinnedImages: worker; OsImages: worker",
        ),
        (
            "the PinnedImageSets that it names",
            worker(),
            with(json!({"spec": {"pinnedImageSets": [{"name": "a"}]}})),
            "Node: cluster; Render: worker; PinnedImages: worker",
        ),
        ("a pool that is gone", worker(), None, "Node: cluster; Generated: cc; MachineConfigNodes: n1 n2"),
        (
            "its own counts",
            with(json!({"status": {"machineCount": 2}})),
            with(json!({"status": {"machineCount": 3}})),
            "Node: cluster",
        ),
        (
            "a config that it has reached",
            with(json!({"status": {}})),
            with(status),
            "Node: cluster; Garbage: worker",
        ),
        ("a pause", worker(), with(json!({"spec": {"paused": true}})), "Node: cluster; Render: worker"),
        (
            "its nodes",
            worker(),
            with(json!({"spec": {"nodeSelector": {"matchLabels": {"a": "b"}}}})),
            "Node: cluster; Render: worker; MachineConfigNodes: n1 n2",
        ),
        (
            "its labels",
            worker(),
            with(json!({"metadata": {"labels": {"a": "b"}}})),
            "Node: cluster; Render: worker; Generated: cc",
        ),
        (
            "another program set the config that it names",
            worker(),
            with(json!({"spec": {"configuration": {"name": "x"}}})),
            "Node: cluster; Render: worker; OsImages: worker",
        ),
        (
            "rendering set the config that it names",
            worker(),
            with(json!({"spec": {"configuration": {"name": "ours"}}})),
            "Node: cluster; OsImages: worker",
        ),
        (
            "a pin",
            worker(),
            with(json!({"metadata": {"annotations": {api::names::own::PINNED: "rendered-worker-b"}}})),
            "Node: cluster; Render: worker",
        ),
        (
            "a stream that other pools inherit",
            worker(),
            with(json!({"spec": {"osImageStream": {"name": "s"}}})),
            "Node: cluster; Render: infra worker",
        ),
    ];
    let (stores, own_writes, templates) =
        (stores(), OwnPoolWrites::default(), TemplatesPrerequisite::default());
    own_writes.expect("worker", api::v1::PoolConfiguration { name: "ours".to_owned(), ..Default::default() });
    let known = KnownObjects { stores: &stores, own_writes: &own_writes, templates: &templates };
    let wrong = std::cell::RefCell::new(vec![]);
    let is = |about: &str, changed: Changed<'_>, want: &str| {
        let marked = words(dirty(&REACTIONS, &changed, known));
        if marked != want {
            wrong.borrow_mut().push(format!("{about}: {marked}, and not {want}"));
        }
    };
    for (about, old, new, want) in pool_rows {
        is(about, Changed::Pool(&pools(old, new)), want);
    }
    let all = "Node: cluster; Render: infra worker; Templates: cc; Generated: cc; Topology: cc; Garbage: infra worker";
    for (about, name, old, new, want) in [
        ("one of somebody's own", "50-a", None, config("50-a", "worker", json!(null)), "Render: worker"),
        (
            "from one role to another",
            "50-a",
            config("50-a", "worker", json!(null)),
            config("50-a", "infra", json!(null)),
            "Render: infra worker",
        ),
        ("one that nobody selects", "50-a", None, config("50-a", "other", json!(null)), ""),
        ("a template's", "00-worker", None, template(), "Render: worker; Templates: cc"),
        (
            "a setting's",
            "99-worker-generated-kubelet",
            config("99-worker-generated-kubelet", "worker", json!(null)),
            None,
            "Render: worker; Generated: cc",
        ),
        (
            "a rendered one that its pool names",
            "rendered-worker-a",
            rendered("rendered-worker-a"),
            None,
            "Node: cluster; Render: worker",
        ),
        (
            "a rendered one that no pool names",
            "rendered-worker-b",
            rendered("rendered-worker-b"),
            None,
            "Node: cluster",
        ),
    ] {
        let change = change(name, old, new);
        is(about, Changed::Config(&change), want);
    }
    for (about, name, old, new, want) in [
        ("another ControllerConfig", "other", None, cc(json!({})), String::new()),
        (
            "the ControllerConfig",
            CONTROLLER_CONFIG,
            None,
            cc(json!({})),
            format!("{all}; MachineConfigNodes: n1 n2; OsImages: infra worker"),
        ),
        ("its status", CONTROLLER_CONFIG, cc(json!({})), cc(json!({})), all.replace("; Generated: cc", "")),
        (
            "its spec",
            CONTROLLER_CONFIG,
            cc(json!({})),
            cc(json!({"clusterDNSIP": "10.0.0.10"})),
            format!("{all}; OsImages: infra worker"),
        ),
    ] {
        is(about, Changed::ControllerConfig(&change(name, old, new)), &want);
    }
    for (about, old, new, want) in [
        ("a heartbeat", node("Done"), node("Done"), ""),
        ("a node's state", node("Done"), node("Working"), "Node: cluster; Drain: n1; MachineConfigNodes: n1"),
        (
            "a node's role",
            node("Done"),
            labelled(),
            "Node: cluster; Drain: n1; Topology: cc; MachineConfigNodes: n1",
        ),
        (
            "a config that a node has left",
            node("Done"),
            moved(),
            "Node: cluster; Drain: n1; Garbage: worker; MachineConfigNodes: n1",
        ),
        ("a new node", None, node("Done"), "Node: cluster; Drain: n1; Topology: cc; MachineConfigNodes: n1"),
        (
            "a deleted node",
            node("Done"),
            None,
            "Node: cluster; Drain: n1; Topology: cc; Garbage: worker; MachineConfigNodes: n1",
        ),
    ] {
        is(about, Changed::Node(&change("n1", old, new)), want);
    }
    is(
        "a MachineConfigNode",
        Changed::MachineConfigNode(&change("n1", mcn("a"), mcn("b"))),
        "MachineConfigNodes: n1",
    );
    is("its status", Changed::MachineConfigNode(&change("n1", mcn("a"), mcn("a"))), "");
    let has_pins = || {
        let mut node = (*mcn("a").unwrap()).clone();
        let pins = json!({"pinnedImageSets": [{"name": "s", "desiredGeneration": 1}]});
        node.status = serde_json::from_value(pins).unwrap();
        Some(Arc::new(node))
    };
    let pins = change("n1", mcn("a"), has_pins());
    is("what it says of PinnedImageSets", Changed::MachineConfigNode(&pins), "Node: cluster");
    let set = |role: &str, generation: i64| -> Option<Arc<PinnedImageSet>> {
        let metadata = json!({"name": "s", "generation": generation, "labels": {label::ROLE: role}});
        Some(Arc::new(serde_json::from_value(json!({ "metadata": metadata })).unwrap()))
    };
    for (about, old, new, want) in [
        ("a new PinnedImageSet", None, set("worker", 1), "Node: cluster; PinnedImages: infra worker"),
        ("its images", set("worker", 1), set("worker", 2), "Node: cluster"),
        ("its labels", set("worker", 1), set("infra", 1), "PinnedImages: infra worker"),
    ] {
        is(about, Changed::PinnedImageSet(&change("s", old, new)), want);
    }
    for (about, changed, want) in [
        ("what a rollout reads of an image build", Changed::PlanInput, "Node: cluster"),
        ("an image build", Changed::ImageBuild("infra"), "ImageBuilds: infra; OldImages: cluster"),
        ("one of no pool", Changed::ImageBuild(""), "OldImages: cluster"),
        ("registries", Changed::Setting(IMAGE), "Generated: cc"),
        ("TLS versions", Changed::Setting(API_SERVER), "Templates: cc; Generated: cc"),
        ("streams", Changed::Setting(STREAMS), "Node: cluster; Render: infra worker; Streams: cluster"),
        ("overrides", Changed::Setting(MACHINE_CONFIGURATION), "Render: infra worker"),
        (
            "feature gates",
            Changed::Setting(FEATURE_GATE),
            "Node: cluster; Render: infra worker; Generated: cc; Streams: cluster",
        ),
        ("a kind that is known now", Changed::SettingKnown, "Generated: cc"),
        ("what rendering waits for", Changed::RenderPrerequisite, "Render: infra worker"),
        ("a pool names a config", Changed::ConfigNamed("worker"), "Garbage: worker"),
        ("one that is gone", Changed::ConfigNamed("infra"), "Render: infra; Garbage: infra"),
        ("configs of templates differ", Changed::TemplatesNotStored, "Templates: cc"),
        ("how long drains may take", Changed::DrainLimits(&["n1".into()]), "Drain: n1"),
        ("a template", Changed::TemplateInput, "Templates: cc; Generated: cc; OsImages: infra worker"),
    ] {
        is(about, changed, want);
    }
    let term = "Node: cluster; Render: infra worker; Drain: n1 n2; Templates: cc; Generated: cc; Topology: cc; \
                Garbage: infra worker; MachineConfigNodes: gone n1 n2; OldImages: cluster; PinnedImages: infra worker; OsImages: infra worker; \
                Streams: cluster";
    is("a term", Changed::TermBegins, term);
    assert_eq!(wrong.into_inner(), Vec::<String>::new());
}
