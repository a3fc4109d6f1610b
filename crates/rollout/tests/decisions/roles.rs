//! Clusters whose nodes nobody has labelled for us: which pool a node of kubeadm or k3s is in, and that control-plane
//! nodes go one at a time whatever pools they are in.
//!
//! What it is not: the cases of OpenShift's clusters (see `nodes`).

use crate::common::{Mk, World, at, goes, moved, node, notes, patch, pool};
use api::v1::ControllerConfigSpec;
use rollout::view::EtcdMember;
use rollout::{Cluster, Facts, NoPool, Sources, Step, Streams, Wait};
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
fn a_node_without_role_and_agent_takes_no_slot_and_is_not_updated() {
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
fn without_a_controller_config_no_node_is_assumed_a_worker_or_gets_a_topology() {
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
fn nodes_without_a_matching_pool_and_windows_nodes_are_in_no_pool() {
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
    assert_eq!(goes(&plan), ["a", "w1", "w2"], "one etcd member is out, and workers are updated as before");
    let waits = plan.nodes.iter().find(|n| &*n.node == "b").unwrap();
    assert_eq!(waits.step, Step::Waits(Wait::ControlPlane(["a".into()].into())));
    assert!(waits.step.to_string().contains("one at a time, and the turn is taken by a"), "{waits}");
    // The next one is sent only when the first is back.
    let plan = world.plan();
    world.apply(&plan);
    assert!(goes(&world.plan_of("worker")).is_empty());
    world.nodes[0] = hybrid("a", "v1").view();
    assert_eq!(goes(&world.plan_of("worker")), ["b"]);
}

#[test]
fn all_pools_share_the_one_slot_of_the_control_plane() {
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
    assert_eq!(sent(&world), Vec::<String>::new(), "it is not ready, and is updated when it is");
    // A member that is out counts, whether its pool is paused or not.
    let mut world = World::new(pools().to_vec(), vec![etcd("e1").unready(), master("m1")]);
    world.pools[0].spec.paused = true;
    assert!(sent(&world).is_empty());
    world.nodes[0] = etcd("e1").view();
    assert_eq!(sent(&world), ["m1"]);
}

#[test]
fn only_control_plane_nodes_get_the_single_replica_topology() {
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
    assert_eq!(patch(&workers, "w"), Value::Null, "two control-plane nodes are no single replica");
    assert_eq!(patch(&workers, "x"), notes(&[("controlPlaneTopology", None)]), "of an earlier version");
    world.settle();
    world.facts.control_plane_topology = "HighlyAvailable".into();
    let all = notes(&[("controlPlaneTopology", Some("HighlyAvailable"))]);
    assert_eq!(patch(&world.plan_of("worker"), "w"), all);
    assert_eq!(patch(&world.plan_of("master"), "m"), all);
}

/// kubeadm's stacked etcd: a node is Ready and Done some seconds before its member of etcd is back.
#[test]
fn the_next_control_plane_node_waits_until_etcd_is_ready_on_the_one_before() {
    let master = |name: &str, config: &str| moved(name, config, config).roles(&["master"]);
    let nodes = vec![master("a", "v1"), master("b", "v0"), master("c", "v0")];
    let mut world = World::new(vec![pool("master", "v1", Value::Null)], nodes);
    assert_eq!(goes(&world.plan_of("master")), ["b"], "etcd runs elsewhere, or all of it is Ready");
    world.facts.etcd_not_ready = vec!["a".into()];
    let plan = world.plan_of("master");
    assert_eq!(goes(&plan), Vec::<String>::new());
    let waits = plan.nodes.iter().find(|n| &*n.node == "b").unwrap();
    assert_eq!(waits.step, Step::Waits(Wait::Etcd(["a".into()].into())));
    let words = "the next control-plane node goes when etcd is Ready again on a; see kubectl get pods -A --field-selector spec.nodeName=a";
    assert!(waits.to_string().contains(words), "{waits}");
    let status = serde_json::to_string(&plan.status).unwrap();
    assert!(status.contains(words), "the pool says so: {status}");
    // A member that only the node's new config brings back does not keep the node from it.
    world.facts.etcd_not_ready = vec!["b".into()];
    assert_eq!(goes(&world.plan_of("master")), ["b"]);
    world.facts.etcd_not_ready = vec!["b".into(), "c".into()];
    assert_eq!(goes(&world.plan_of("master")), Vec::<String>::new(), "two of three are gone");
    // Workers do not wait.
    let workers = vec![moved("w", "v0", "v0"), master("a", "v1")];
    let mut world =
        World::new(vec![pool("master", "v1", Value::Null), pool("worker", "v1", Value::Null)], workers);
    world.facts.etcd_not_ready = vec!["a".into()];
    assert_eq!(goes(&world.plan_of("worker")), ["w"]);
}

/// After a short reboot the pod's condition Ready is still the one from before.
#[test]
fn a_pod_of_etcd_from_before_the_reboot_does_not_count_as_ready() {
    let member = |container: &str, ready: bool| {
        let status = json!({"conditions": [{"type": "Ready", "status": if ready { "True" } else { "False" }}],
            "containerStatuses": [{"name": "etcd", "containerID": container, "image": "", "imageID": "", "ready": ready, "restartCount": 0}]});
        let pod = json!({
            "metadata": {"name": "etcd-a", "namespace": "kube-system", "labels": {"component": "etcd"},
                "annotations": {"kubernetes.io/config.mirror": "1"}},
            "spec": {"nodeName": "a", "containers": []}, "status": status,
        });
        EtcdMember::from_pod(&serde_json::from_value(pod).unwrap()).unwrap()
    };
    let master =
        |name: &str, config: &str, boot: &str| moved(name, config, config).roles(&["master"]).boot(boot);
    // The note is made when the node is sent.
    let nodes = vec![master("a", "v0", "b1"), master("b", "v0", "b7")];
    let mut world = World::new(vec![pool("master", "v1", Value::Null)], nodes);
    world.facts.etcd_containers = [("a".into(), "c1".into())].into();
    let plan = world.plan_of("master");
    let note = patch(&plan, "a")["metadata"]["annotations"]["machineconfig.dev/etcd-before"].clone();
    assert_eq!((goes(&plan), note), (vec!["a".to_owned()], json!("b1 c1")), "{plan}");
    // Until the reboot it follows the container; after it, and on a node that is not sent, it stays.
    for (about, mk, note, want) in [
        ("sent", moved("a", "v0", "v1").boot("b1"), "b1 c1", json!("b1 c2")),
        ("has booted", moved("a", "v0", "v1").boot("b2"), "b1 c1", Value::Null),
        ("is updated", moved("a", "v1", "v1").boot("b1"), "b1 c1", Value::Null),
        ("as noted", moved("a", "v0", "v1").boot("b1"), "b1 c2", Value::Null),
    ] {
        let mk = mk.roles(&["master"]).note("machineconfig.dev/etcd-before", note);
        let mut world = World::new(vec![pool("master", "v1", Value::Null)], vec![mk]);
        world.facts.etcd_containers = [("a".into(), "c2".into())].into();
        let plan = world.plan_of("master");
        let got = plan.patches.first().map_or(Value::Null, |p| {
            p.merge_patch()["metadata"]["annotations"]["machineconfig.dev/etcd-before"].clone()
        });
        assert_eq!(got, want, "{about}: {plan}");
    }
    for (about, note, boot, member, waits) in [
        ("the pod is from before the reboot", Some("b1 c1"), "b2", member("c1", true), true),
        ("the kubelet has reported the new container", Some("b1 c1"), "b2", member("c2", true), false),
        ("it is not Ready yet", Some("b1 c1"), "b2", member("c2", false), true),
        ("no reboot was needed", Some("b1 c1"), "b1", member("c1", true), false),
        ("it was sent by an older controller", None, "b2", member("c1", true), false),
        ("not a note of ours", Some("b1"), "b2", member("c1", true), false),
        ("the kubelet reports no container", Some("b1 c1"), "b2", member("", true), false),
    ] {
        let mut a = master("a", "v1", boot);
        if let Some(note) = note {
            a = a.note("machineconfig.dev/etcd-before", note);
        }
        let world = World::new(vec![pool("master", "v1", Value::Null)], vec![a, master("b", "v0", "b7")]);
        let sources = Sources {
            pools: world.pools.iter().collect(),
            nodes: world.nodes.iter().collect(),
            configs: None,
            os_configs: vec![],
            os_builds: vec![],
            controller_config: None,
            streams: Streams::Known(None),
            operator_nodes: vec![],
            masters_schedulable: None,
            etcd: vec![member],
            policies: None,
            outlooks: None,
            pins: Default::default(),
            memory: Default::default(),
        };
        let facts = Facts { cluster: world.facts.cluster, ..sources.facts() };
        let plan = rollout::plan(&sources.inputs(&facts, api::k8s::Time(at(5_000))));
        assert_eq!(goes(&plan.pools[0]).is_empty(), waits, "{about}: {}", plan.pools[0]);
    }
}

#[test]
fn only_a_mirror_pod_of_etcd_is_a_member() {
    let member = |pod: Value| {
        EtcdMember::from_pod(&serde_json::from_value(pod).unwrap()).map(|m| (m.node.to_string(), m.ready))
    };
    let mut pod = json!({
        "metadata": {"name": "etcd-a", "namespace": "kube-system", "labels": {"component": "etcd", "tier": "control-plane"},
            "annotations": {"kubernetes.io/config.mirror": "1"}},
        "spec": {"nodeName": "a"},
        "status": {"conditions": [{"type": "Initialized", "status": "True"}, {"type": "Ready", "status": "True"}]},
    });
    assert_eq!(member(pod.clone()), Some(("a".to_owned(), true)));
    pod["status"]["conditions"][1]["status"] = json!("False");
    assert_eq!(member(pod.clone()), Some(("a".to_owned(), false)));
    pod["status"] = json!({});
    assert_eq!(member(pod.clone()), Some(("a".to_owned(), false)));
    let mut openshift = pod.clone();
    openshift["metadata"]["namespace"] = json!("openshift-etcd");
    openshift["metadata"]["labels"] = json!({"app": "etcd", "k8s-app": "etcd"});
    assert_eq!(member(openshift.clone()), Some(("a".to_owned(), false)));
    openshift["metadata"]["labels"] = json!({"app": "guard"});
    assert_eq!(member(openshift), None);
    for (path, value) in [
        ("/metadata/annotations", json!({})),
        ("/metadata/labels/component", json!("etcd-backup")),
        ("/metadata/namespace", json!("default")),
        ("/spec/nodeName", json!("")),
        ("/metadata/deletionTimestamp", json!("2026-01-01T00:00:00Z")),
    ] {
        let mut other = pod.clone();
        match other.pointer_mut(path) {
            Some(place) => *place = value,
            None => other["metadata"]["deletionTimestamp"] = value,
        }
        assert_eq!(member(other), None, "{path}");
    }
}
