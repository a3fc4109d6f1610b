//! Tables of nodes and of who goes next.

use super::*;
use api::k8s::Node;
use api::names::annotation;
use serde_json::{Map, Value, json};

const LIMIT: Duration = Duration::from_mins(30);

fn node(name: &str, role: &str, [current, desired, state]: [&str; 3], ready: bool) -> NodeView {
    let notes = [
        (annotation::CURRENT_CONFIG, current),
        (annotation::DESIRED_CONFIG, desired),
        (annotation::STATE, state),
        (annotation::REASON, "disk full"),
    ];
    let notes = notes.into_iter().filter(|(_, value)| !value.is_empty());
    let notes: Map<String, Value> = notes.map(|(key, value)| (key.to_owned(), json!(value))).collect();
    let status = if ready { "True" } else { "False" };
    let node: Node = serde_json::from_value(json!({
        "metadata": {"name": name, "annotations": notes, "labels": {format!("node-role.kubernetes.io/{role}"): ""}},
        "status": {"conditions": [{"type": "Ready", "status": status}]},
    }))
    .unwrap();
    NodeView::from_node(&node)
}

const IN: [&str; 3] = ["rendered-1", "rendered-1", "Done"];
const GOING: [&str; 3] = ["rendered-1", EMPTY_CONFIG, "Working"];
const BACK: [&str; 3] = [EMPTY_CONFIG, EMPTY_CONFIG, "Done"];
const FAILED: [&str; 3] = ["rendered-1", EMPTY_CONFIG, "Degraded"];

fn worker_pool(max: i64) -> MachineConfigPool {
    serde_json::from_value(json!({"metadata": {"name": "worker"}, "spec": {"maxUnavailable": max,
        "nodeSelector": {"matchLabels": {"node-role.kubernetes.io/worker": ""}}}}))
    .unwrap()
}

/// A round over these nodes: two workers at once, each node for `waited` in its present state.
fn decide(nodes: &[NodeView], waited: Duration, force: bool, etcd: &[&str]) -> RestoreRound {
    let member =
        |node: &&str| EtcdMember { node: Arc::from(*node), ready: false, container: Some("old".into()) };
    beside(nodes, waited, force, &etcd.iter().map(member).collect::<Vec<_>>())
}

/// The same beside these members of etcd.
fn beside(nodes: &[NodeView], waited: Duration, force: bool, etcd: &[EtcdMember]) -> RestoreRound {
    let memory = nodes.iter().map(|n| (n.name.clone(), NodeMemory { waited, sent_well: true })).collect();
    let refused = BTreeMap::new();
    let pools = [worker_pool(2)];
    round(&RoundInputs {
        nodes,
        pools: &pools,
        etcd,
        memory: &memory,
        refused: &refused,
        limit: LIMIT,
        force,
    })
}

fn sent(nodes: &[NodeView]) -> Vec<String> {
    decide(nodes, Duration::ZERO, false, &[]).send.iter().map(ToString::to_string).collect()
}

#[test]
fn a_pool_that_somebody_resumes_is_named_with_who_did_it() {
    let pool = |name: &str, paused: bool, managers: &[(&str, &str)]| -> MachineConfigPool {
        let entry = |(manager, time): &(&str, &str)| {
            json!({"manager": manager, "operation": "Update", "time": time,
            "fieldsType": "FieldsV1", "fieldsV1": {"f:spec": {"f:paused": {}}}})
        };
        let mut entries: Vec<Value> = managers.iter().map(entry).collect();
        entries.push(json!({"manager": "later", "time": "2026-01-03T00:00:00Z", "fieldsV1": {"f:spec": {"f:maxUnavailable": {}}}}));
        serde_json::from_value(
            json!({"metadata": {"name": name, "managedFields": entries}, "spec": {"paused": paused}}),
        )
        .unwrap()
    };
    let both = [("first", "2026-01-01T00:00:00Z"), ("kubectl-patch", "2026-01-02T00:00:00Z")];
    let pools = [pool("worker", false, &both), pool("master", true, &both), pool("infra", false, &[])];
    assert_eq!(
        unpaused_pools(&pools),
        ["MachineConfigPool worker (resumed by kubectl-patch) is", "MachineConfigPool infra is"]
    );
}

#[test]
fn a_node_stands_where_its_annotations_say() {
    let (w, e) = ("rendered-1", EMPTY_CONFIG);
    for (notes, sent_well, want) in [
        (["", "", ""], false, RestoreState::Unmanaged),
        (["", w, "Working"], false, RestoreState::Busy),
        (IN, false, RestoreState::Ready),
        ([w, "rendered-2", "Done"], false, RestoreState::Busy),
        ([w, "rendered-2", "Working"], false, RestoreState::Busy),
        ([w, "rendered-2", "Degraded"], false, RestoreState::Ready),
        ([w, e, "Done"], true, RestoreState::Asked),
        (GOING, true, RestoreState::Going),
        (FAILED, true, RestoreState::Failed),
        ([w, e, "Unreconcilable"], true, RestoreState::Failed),
        // It had failed before it was sent, or an earlier run has sent it.
        (FAILED, false, RestoreState::Asked),
        ([e, e, "Working"], true, RestoreState::Asked),
        ([e, e, "Degraded"], true, RestoreState::Asked),
        (BACK, false, RestoreState::Done),
    ] {
        assert_eq!(
            restore_state(&node("n", "worker", notes, true), sent_well),
            want,
            "{notes:?} {sent_well}"
        );
    }
    let mut drained = node("n", "worker", FAILED, true);
    drained.desired_drain = Some(format!("drain-{EMPTY_CONFIG}").into());
    assert_eq!(restore_state(&drained, false), RestoreState::Going);
}

#[test]
fn as_many_go_at_once_as_the_pool_allows() {
    let w = |name: &str, notes, ready| node(name, "worker", notes, ready);
    let rows: [(&str, Vec<NodeView>, &[&str]); 8] = [
        ("all are up", vec![w("a", IN, true), w("b", IN, true), w("c", IN, true)], &["a", "b"]),
        ("one is going", vec![w("a", GOING, true), w("b", IN, true), w("c", IN, true)], &["b"]),
        (
            "one updates still",
            vec![w("a", ["r1", "r2", "Working"], true), w("b", IN, true), w("c", IN, true)],
            &["b"],
        ),
        ("a reboot takes a place", vec![w("a", BACK, false), w("b", GOING, false), w("c", IN, true)], &[]),
        (
            "one that is down goes first, and has its place",
            vec![w("a", IN, true), w("b", IN, false), w("c", IN, true)],
            &["a", "b"],
        ),
        (
            "three are down",
            vec![w("a", IN, false), w("b", IN, false), w("c", IN, false), w("d", IN, true)],
            &["a", "b"],
        ),
        (
            "one has no agent",
            vec![w("a", ["", "", ""], false), w("b", IN, true), w("c", IN, true)],
            &["b", "c"],
        ),
        ("no pool: one at a time", vec![node("a", "infra", IN, true), node("b", "infra", IN, true)], &["a"]),
    ];
    for (about, nodes, want) in rows {
        assert_eq!(sent(&nodes), want, "{about}");
    }
}

#[test]
fn control_plane_nodes_go_alone_and_only_while_etcd_is_whole() {
    let m = |name: &str, notes, ready| node(name, "control-plane", notes, ready);
    let all = [m("a", IN, true), m("b", IN, true), m("c", IN, true)];
    assert_eq!(sent(&all), ["a"]);
    assert_eq!(sent(&[m("a", GOING, true), m("b", IN, true)]), [""; 0]);
    assert_eq!(sent(&[m("a", BACK, false), m("b", IN, true)]), [""; 0], "it is not back yet");
    assert_eq!(sent(&[m("a", IN, true), m("b", IN, false)]), ["b"], "only the one that is down");
    assert_eq!(sent(&[m("a", IN, false), m("b", IN, false)]), [""; 0]);
    let with = |etcd: &[&str]| {
        let nodes = [m("a", BACK, true), m("b", IN, true), m("c", IN, true)];
        decide(&nodes, Duration::ZERO, false, etcd).send.iter().map(ToString::to_string).collect::<Vec<_>>()
    };
    assert_eq!(with(&["a"]), [""; 0], "its node is Ready before its member of etcd is");
    assert_eq!(with(&["c"]), ["c"], "the node itself may need it");
    assert_eq!(with(&[]), ["b"]);
    // Two that were cordoned still serve.
    let cordoned = |name: &str| NodeView { unschedulable: true, ..m(name, IN, true) };
    assert_eq!(sent(&[cordoned("a"), cordoned("b")]), ["a"]);
}

/// The controller that drains workers runs there, and its reboot would interrupt them.
#[test]
fn the_control_plane_goes_when_no_other_node_is_on_its_way() {
    let m = || node("m", "control-plane", IN, true);
    let w = |name: &str, notes, ready| node(name, "worker", notes, ready);
    let (now, long) = (Duration::ZERO, Duration::from_mins(1));
    let late = LIMIT + Duration::from_secs(1);
    type Row = (&'static str, Vec<NodeView>, Duration, bool, &'static [&'static str]);
    let rows: [Row; 9] = [
        ("workers go first", vec![w("a", IN, true), w("b", IN, true)], now, false, &["a", "b"]),
        ("one is on its way", vec![w("a", BACK, true), w("b", GOING, true)], long, false, &[]),
        (
            "one reboots, and keeps the next",
            vec![w("a", BACK, false), w("b", GOING, false), w("c", IN, true)],
            now,
            false,
            &[],
        ),
        ("all are back", vec![w("a", BACK, true), w("b", BACK, true)], now, false, &["m"]),
        ("one has no agent", vec![w("a", ["", "", ""], true)], now, false, &["m"]),
        (
            "the rest cannot go yet",
            vec![w("a", BACK, false), w("b", BACK, false), w("c", IN, true)],
            now,
            false,
            &[],
        ),
        (
            "the rest cannot go",
            vec![w("a", BACK, false), w("b", BACK, false), w("c", IN, true)],
            long,
            false,
            &["m"],
        ),
        ("one failed, and that is accepted", vec![w("a", FAILED, true)], now, true, &["m"]),
        ("one takes too long, and that is accepted", vec![w("a", GOING, true)], late, true, &["m"]),
    ];
    for (about, workers, waited, force, want) in rows {
        let nodes: Vec<NodeView> = workers.into_iter().chain([m()]).collect();
        let send = decide(&nodes, waited, force, &[]).send;
        assert_eq!(send.iter().map(|name| &**name).collect::<Vec<_>>(), want, "{about}");
    }
}

#[test]
fn a_long_wait_says_which_nodes_are_on_their_way_and_why() {
    let mut drains = node("b", "worker", GOING, true);
    drains.drain_wait = Some("pod default/held".into());
    let mut reboots = node("d", "infra", GOING, true);
    reboots.rebooting = true;
    let nodes = [
        node("a", "worker", BACK, true),
        drains,
        node("c", "infra", ["r1", EMPTY_CONFIG, "Done"], true),
        reboots,
        node("e", "infra", ["", "", ""], true),
        node("m", "control-plane", IN, true),
    ];
    let waited = Duration::from_secs(95);
    let say = |nodes: &[NodeView], unsent: &[&str]| {
        let memory: BTreeMap<_, _> =
            nodes.iter().map(|n| (n.name.clone(), NodeMemory { waited, sent_well: true })).collect();
        let unsent: Vec<String> = unsent.iter().map(ToString::to_string).collect();
        how_far(nodes, &decide(nodes, waited, false, &[]), &memory, &unsent)
    };
    assert_eq!(
        say(&nodes, &[]),
        "1 of 5 nodes have their own files; b (95 s: its drain waits for pod default/held); c (95 s: its agent has not begun); \
         d (95 s: it reboots)"
    );
    let others_are_out =
        [node("a", "worker", BACK, false), node("b", "worker", BACK, false), node("c", "worker", IN, true)];
    assert_eq!(say(&others_are_out, &[]), "2 of 3 nodes have their own files; no other node can go yet");
    // Those that cannot be sent hide none that is on its way, nor the other way round.
    let unsent = ["b (9 s: no)", "c (8 s: no)", "d (7 s: no)", "e (6 s: no)", "f (5 s: no)", "g (4 s: no)"];
    let five = unsent[..5].join("; ");
    assert_eq!(
        say(&[node("a", "worker", BACK, true), node("b", "worker", IN, true)], &unsent),
        format!("1 of 2 nodes have their own files; {five}; and 1 more")
    );
    assert_eq!(
        say(&[node("a", "worker", GOING, true), node("b", "worker", IN, true)], &unsent[..1]),
        "0 of 2 nodes have their own files; a (95 s: its agent restores files); b (9 s: no)"
    );
}

#[test]
fn etcd_counts_when_its_pod_is_that_of_the_present_boot() {
    let at = |name: &str, notes, boot: &str, before: Option<&str>| NodeView {
        boot: Some(boot.into()),
        etcd_before: before.map(Arc::from),
        ..node(name, "control-plane", notes, true)
    };
    let member = |node: &str, container: &str| EtcdMember {
        node: node.into(),
        ready: true,
        container: Some(container.into()),
    };
    // `a` is back from its reboot, Ready and Done. Its kubelet has not yet reported the new container of etcd.
    let nodes = [at("a", BACK, "2", Some("1 old")), at("b", IN, "1", None), at("c", IN, "1", None)];
    let with = |container: &str, waited| {
        beside(&nodes, waited, false, &[member("a", container), member("b", "x"), member("c", "y")])
    };
    let held = with("old", LIMIT);
    assert!(held.send.is_empty(), "{held:?}");
    let said = held.not_restored();
    let words = "it was not sent back: etcd is not Ready again on a; fix its pod there";
    assert_eq!(said.get("b").map(String::as_str), Some(words));
    assert!(held.is_stuck(false, LIMIT, LIMIT) && !held.is_stuck(false, Duration::ZERO, LIMIT));
    assert_eq!(with("new", Duration::ZERO).send, BTreeSet::from(["b".into()]));
    // The note for its own reboot.
    assert_eq!(member("b", "x").leaving(&nodes[1]).as_deref(), Some("1 x"));
    // It went back without a reboot: its pod is the same, and says what is true.
    let nodes = [at("a", BACK, "1", Some("1 old")), at("b", IN, "1", None)];
    let goes = beside(&nodes, Duration::ZERO, false, &[member("a", "old"), member("b", "x")]);
    assert_eq!(goes.send, BTreeSet::from(["b".into()]));
}

#[test]
fn a_node_that_fails_holds_all_others_unless_told_otherwise() {
    let nodes =
        [node("a", "worker", FAILED, true), node("b", "worker", IN, true), node("c", "worker", IN, true)];
    let held = decide(&nodes, Duration::ZERO, false, &[]);
    assert!(held.send.is_empty() && held.is_stuck(false, Duration::ZERO, LIMIT) && !held.is_over());
    let said = held.not_restored();
    assert_eq!(said.get("a").map(String::as_str), Some("disk full"));
    assert_eq!(said.get("b").map(String::as_str), Some("it was not sent back, because others failed"));
    let forced = decide(&nodes, Duration::ZERO, true, &[]);
    assert_eq!(forced.send.iter().map(|n| &**n).collect::<Vec<_>>(), ["b", "c"]);
    assert!(!forced.is_stuck(true, Duration::ZERO, LIMIT));
    // One that is under way is waited for.
    let nodes = [node("a", "worker", FAILED, true), node("b", "worker", GOING, true)];
    assert!(!decide(&nodes, Duration::ZERO, false, &[]).is_stuck(false, Duration::ZERO, LIMIT));
    let back = [node("a", "worker", BACK, true), node("b", "worker", ["", "", ""], true)];
    assert!(decide(&back, Duration::ZERO, false, &[]).is_over());
}

#[test]
fn a_node_that_the_api_server_refuses_to_change_has_failed_and_is_not_sent_again() {
    let nodes =
        [node("a", "worker", IN, true), node("b", "worker", IN, true), node("m", "control-plane", IN, true)];
    let refused = BTreeMap::from([("a".into(), "the webhook says no".to_owned())]);
    let decide = |nodes: &[NodeView]| {
        let memory = nodes.iter().map(|n| (n.name.clone(), NodeMemory::default())).collect();
        let pools = [worker_pool(2)];
        round(&RoundInputs {
            nodes,
            pools: &pools,
            etcd: &[],
            memory: &memory,
            refused: &refused,
            limit: LIMIT,
            force: true,
        })
    };
    let first = decide(&nodes);
    assert_eq!(first.send, BTreeSet::from(["b".into()]));
    assert_eq!(first.not_restored().get("a").map(String::as_str), Some("the webhook says no"));
    // Nobody waits for it.
    let [a, _, m] = nodes;
    assert_eq!(decide(&[a, node("b", "worker", BACK, true), m]).send, BTreeSet::from(["m".into()]));
}

#[test]
fn a_node_that_takes_too_long_has_failed_and_the_reason_says_what_to_do() {
    let late = LIMIT + Duration::from_secs(1);
    let mut drains = node("n", "worker", GOING, true);
    drains.drain_wait = Some("pod default/held".into());
    for (node, waited, want) in [
        (node("n", "worker", ["r1", EMPTY_CONFIG, "Done"], true), Duration::from_secs(119), None),
        (node("n", "worker", ["r1", EMPTY_CONFIG, "Done"], true), Duration::from_secs(121), Some("start it")),
        (node("n", "worker", [EMPTY_CONFIG, EMPTY_CONFIG, "Degraded"], true), late, Some("disk full")),
        (node("n", "worker", GOING, true), LIMIT, None),
        (node("n", "worker", GOING, true), late, Some("mco status --node n")),
        (drains, late, Some("its drain waits for pod default/held")),
        (node("n", "worker", ["r1", "r2", "Working"], true), late, Some("still on its way to r2")),
        (node("n", "worker", IN, true), late, None),
    ] {
        let failed = decide(&[node], waited, false, &[]).failed;
        match want {
            None => assert!(failed.is_empty(), "{failed:?}"),
            Some(words) => assert!(failed.get("n").unwrap().contains(words), "{failed:?}"),
        }
    }
}

#[test]
fn the_plan_says_of_each_node_what_happens() {
    let nodes = [
        node("c", "control-plane", IN, true),
        node("d", "worker", BACK, true),
        node("u", "worker", ["", "", ""], true),
        node("w", "worker", IN, true),
    ];
    let lines: Vec<String> = members(&nodes, &[worker_pool(2)]).iter().map(ToString::to_string).collect();
    assert_eq!(
        lines,
        [
            "Node c: goes back to its own files (the control plane, 1 at a time)",
            "Node d: has its own files already",
            "Node u: has no agent, and is left alone",
            "Node w: goes back to its own files (worker, 2 at a time)",
        ]
    );
}
