//! Clusters whose nodes nobody has labelled for us: which pool a node of kubeadm or k3s is in, and that control-plane
//! nodes go one at a time whatever pools they are in.
//!
//! What it is not: the cases of OpenShift's clusters (see `nodes`).

use crate::common::{Mk, World, goes, moved, node, notes, patch, pool};
use api::v1::ControllerConfigSpec;
use rollout::{Cluster, Facts, NoPool, Step, Wait};
use serde_json::{Value, json};

fn labelled(labels: &[(&str, &str)]) -> Mk {
    let with = |n: Mk, (key, value): &(&str, &str)| n.label(key, value);
    labels.iter().fold(node("n").roles(&[]).state("Done"), with)
}

#[test]
fn a_node_of_a_plain_cluster_needs_no_label_of_ours() {
    let role = |r: &'static str| format!("node-role.kubernetes.io/{r}");
    let pools = || ["infra", "master", "worker"].map(|p| pool(p, "v1", Value::Null)).to_vec();
    // Description, roles with their values, the pool on a plain cluster, and the pool on OpenShift.
    type Row<'a> = (&'a str, &'a [(&'static str, &'a str)], Option<&'a str>, Option<&'a str>);
    let rows: [Row<'_>; 14] = [
        ("a worker of kubeadm", &[], Some("worker"), None),
        ("kubeadm's control plane", &[("control-plane", "")], Some("master"), None),
        ("an older kubeadm's", &[("master", "")], Some("master"), Some("master")),
        ("k3s", &[("control-plane", "true"), ("master", "true"), ("etcd", "true")], Some("master"), None),
        ("k3s, newer", &[("control-plane", "true"), ("etcd", "true")], Some("master"), None),
        ("both", &[("control-plane", ""), ("worker", "")], Some("master"), Some("worker")),
        ("labelled by hand", &[("worker", "worker")], Some("worker"), None),
        ("labelled as we do", &[("worker", "")], Some("worker"), Some("worker")),
        ("a custom pool", &[("infra", "")], Some("infra"), Some("infra")),
        ("a custom pool's label, another value", &[("infra", "true")], None, None),
        (
            "a custom pool and control plane",
            &[("infra", ""), ("control-plane", "")],
            Some("master"),
            Some("infra"),
        ),
        ("etcd alone is no worker", &[("etcd", "true")], None, None),
        ("a role of nobody's", &[("unmanaged", "")], None, None),
        ("a role of nobody's, and worker", &[("storage", ""), ("worker", "true")], Some("worker"), None),
    ];
    for (about, roles, plain, openshift) in rows {
        let labels: Vec<(String, &str)> = roles.iter().map(|(r, v)| (role(r), *v)).collect();
        let labels: Vec<(&str, &str)> = labels.iter().map(|(k, v)| (k.as_str(), *v)).collect();
        for (cluster, want) in [(Cluster::Plain, plain), (Cluster::OpenShift, openshift)] {
            let mut world = World::new(pools(), vec![labelled(&labels)]);
            world.facts.cluster = cluster;
            let plan = world.plan();
            let owner = plan.pools.iter().find(|p| !p.nodes.is_empty()).map(|p| &*p.pool);
            assert_eq!(owner, want, "{about}, {cluster:?}");
            assert_eq!(plan.unmanaged.is_empty(), want.is_some(), "{about}, {cluster:?}");
        }
    }
}

#[test]
fn a_node_without_role_and_agent_takes_no_slot_and_is_not_sent() {
    let bare = |n: &str| node(n).roles(&[]);
    let old = moved("old", "v0", "v0").roles(&[]);
    let nodes = vec![bare("virtual"), old, bare("lost").unready()];
    let mut world = World::workers(json!(1), nodes);
    let plan = world.plan();
    assert_eq!(goes(&plan.pools[0]), ["old"], "{plan}");
    let why: Vec<_> = plan.unmanaged.iter().map(|n| (&*n.node, n.why.clone())).collect();
    assert_eq!(why, [("lost", NoPool::NoDaemon), ("virtual", NoPool::NoDaemon)]);
    assert!(plan.unmanaged[0].to_string().contains("no agent has reported"), "{plan}");
    assert_eq!(plan.pools[0].status.as_ref().unwrap().machine_count, 1);
    // Any annotation of an agent makes it a worker; so does the role's label.
    let words = [("state", "Working"), ("currentConfig", "v1"), ("desiredConfig", "v1")];
    let counted = words.map(|(key, value)| bare("n").note(key, value)).into_iter();
    for node in counted.chain([bare("n").label("node-role.kubernetes.io/worker", "true")]) {
        world = World::workers(json!(1), vec![node]);
        assert!(world.plan().unmanaged.is_empty(), "{}", world.plan());
    }
}

#[test]
fn without_a_controller_config_nobody_is_assumed_a_worker_or_told_a_topology() {
    let role = |r: &str| format!("node-role.kubernetes.io/{r}");
    let pools = ["infra", "master", "worker"].map(|p| pool(p, "v0", Value::Null)).to_vec();
    let bare =
        |n: &str| node(n).roles(&[]).note("currentConfig", "v0").note("desiredConfig", "v0").state("Done");
    let nodes = vec![
        bare("bare"),
        bare("worker").label(&role("worker"), ""),
        bare("custom").label(&role("infra"), "").label(&role("control-plane"), ""),
    ];
    let mut world = World::new(pools, nodes);
    world.facts = Facts::of(None, &world.nodes);
    assert_eq!(world.facts.control_plane_topology, "".into());
    let plan = world.plan();
    assert_eq!(plan.unmanaged.iter().map(|n| &*n.node).collect::<Vec<_>>(), ["bare"]);
    let of = |pool: usize| plan.pools[pool].nodes.iter().map(|n| &*n.node).collect::<Vec<_>>();
    assert_eq!((of(0), of(1), of(2)), (vec![], vec!["custom"], vec!["worker"]), "no custom pool gets it");
    assert!(!plan.to_string().contains("controlPlaneTopology"), "{plan}");
}

#[test]
fn without_a_pool_of_their_own_nodes_are_in_none_and_windows_is_never_ours() {
    let worker = || vec![pool("worker", "v1", Value::Null)];
    let control_plane = labelled(&[("node-role.kubernetes.io/control-plane", "")]);
    let windows = labelled(&[("kubernetes.io/os", "windows")]);
    for (about, node) in [("no pool master", control_plane), ("Windows", windows)] {
        assert!(World::new(worker(), vec![node]).plan_of("worker").nodes.is_empty(), "{about}");
    }
    let only_master = World::new(vec![pool("master", "v1", Value::Null)], vec![labelled(&[])]);
    assert!(only_master.plan_of("master").nodes.is_empty());
}

#[test]
fn the_controller_config_says_which_cluster_it_is() {
    let spec = |image: &str| ControllerConfigSpec { release_image: image.to_owned(), ..Default::default() };
    assert_eq!(Cluster::of(None), Cluster::Unknown);
    assert_eq!(Cluster::of(Some(&spec(""))), Cluster::Plain);
    assert_eq!(Cluster::of(Some(&spec("quay.io/release@sha256:1"))), Cluster::OpenShift);
}

/// A control-plane node in a pool of workers: without a pool `master`, its worker's label decides.
fn hybrid(name: &str, current: &str) -> Mk {
    moved(name, current, current).label("node-role.kubernetes.io/control-plane", "true")
}

#[test]
fn control_plane_nodes_go_one_at_a_time_in_any_pool() {
    let nodes = ["a", "b", "c"].map(|n| hybrid(n, "v0"));
    let workers = ["w1", "w2"].map(|n| moved(n, "v0", "v0"));
    let mut world = World::workers(json!("100%"), [nodes.to_vec(), workers.to_vec()].concat());
    let plan = world.plan_of("worker");
    assert_eq!(goes(&plan), ["a", "w1", "w2"], "etcd loses one member, and workers go as before");
    let waits = plan.nodes.iter().find(|n| &*n.node == "b").unwrap();
    assert_eq!(waits.step, Step::Waits(Wait::ControlPlane(["a".into()].into())));
    assert!(waits.step.to_string().contains("one at a time, and the turn is taken by a"), "{waits}");
    // The next one goes when the first is back, and not before.
    let plan = world.plan();
    world.apply(&plan);
    assert!(goes(&world.plan_of("worker")).is_empty());
    world.nodes[0] = hybrid("a", "v1").view();
    assert_eq!(goes(&world.plan_of("worker")), ["b"]);
}

#[test]
fn pools_share_the_one_turn_of_the_control_plane() {
    let pools =
        || [pool("etcd", "v1", json!(3)), pool("master", "v1", json!(1)), pool("worker", "v1", json!(3))];
    let master = |n: &str| moved(n, "v0", "v0").roles(&["master"]);
    let etcd = |n: &str| moved(n, "v0", "v0").roles(&["etcd"]);
    let sent = |world: &World| -> Vec<String> { world.plan().pools.iter().flat_map(goes).collect() };
    let world = World::new(pools().to_vec(), vec![etcd("e1"), etcd("e2"), master("m1"), master("m2")]);
    assert_eq!(sent(&world), ["e1"]);
    // A control-plane node that is not ready holds the turn, even if no pool owns it.
    let lost = node("lost").roles(&["etcd", "infra2"]).unready();
    let unowned =
        [pool("infra2", "v1", json!(1)), pool("etcd", "v1", json!(1)), pool("master", "v1", json!(1))];
    let world = World::new(unowned.to_vec(), vec![lost, master("m1")]);
    assert!(!world.plan().unmanaged.is_empty() && sent(&world).is_empty(), "{}", world.plan());
    // A node that holds the turn is itself sent: nothing else would bring it back.
    let world = World::new(pools().to_vec(), vec![etcd("e1").unready(), master("m1")]);
    assert_eq!(sent(&world), Vec::<String>::new(), "it is not ready: it goes when it is");
    // A member that is out counts, whether its pool is paused or not.
    let mut world = World::new(pools().to_vec(), vec![etcd("e1").unready(), master("m1")]);
    world.pools[0].spec.paused = true;
    assert!(sent(&world).is_empty());
    world.nodes[0] = etcd("e1").view();
    assert_eq!(sent(&world), ["m1"]);
}

#[test]
fn only_control_plane_nodes_are_told_that_they_are_alone() {
    let master = |n: &str| moved(n, "v1", "v1").roles(&["control-plane"]);
    let pools = [pool("master", "v1", json!(1)), pool("worker", "v1", json!(1))].to_vec();
    let told = |n: Mk| n.note("controlPlaneTopology", "SingleReplica");
    let nodes = vec![master("m"), moved("w", "v1", "v1"), told(moved("x", "v1", "v1"))];
    let mut world = World::new(pools, nodes);
    world.facts.control_plane_topology = "SingleReplica".into();
    assert_eq!(
        patch(&world.plan_of("master"), "m"),
        notes(&[("controlPlaneTopology", Some("SingleReplica"))])
    );
    let workers = world.plan_of("worker");
    assert_eq!(patch(&workers, "w"), Value::Null, "they have each other");
    assert_eq!(patch(&workers, "x"), notes(&[("controlPlaneTopology", None)]), "of an earlier version");
    world.settle();
    world.facts.control_plane_topology = "HighlyAvailable".into();
    let all = notes(&[("controlPlaneTopology", Some("HighlyAvailable"))]);
    assert_eq!(patch(&world.plan_of("worker"), "w"), all);
    assert_eq!(patch(&world.plan_of("master"), "m"), all);
}
