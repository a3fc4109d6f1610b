//! Tests of `plan`: what goes, in which order, and what stays.

use super::*;
use crate::objects::FIELD_MANAGER;
use serde_json::json;

fn object(kind: &str, name: &str, manager: &str) -> Value {
    json!({"kind": kind, "metadata": {"name": name, "managedFields": [{"manager": manager, "operation": "Apply"}]}})
}

#[test]
fn what_would_make_things_again_goes_first_and_what_others_made_stays() {
    let node = json!({"kind": "Node", "metadata": {"name": "n", "annotations": {
            annotation::CURRENT_CONFIG: "a", annotation::DESIRED_CONFIG: "a", annotation::STATE: "Done", "other": "x"}},
            "spec": {"taints": [{"key": "UpdateInProgress", "effect": "PreferNoSchedule"}, {"key": "machineconfig.dev/joining", "effect": "NoSchedule"}]}});
    let secret = |name: &str, managed: bool| {
        let labels = if managed { json!({api::first_boot::user_data::MANAGED: ""}) } else { json!({}) };
        json!({"kind": "Secret", "metadata": {"name": name, "labels": labels}})
    };
    let facts = Facts {
        objects: vec![
            object("Deployment", "machine-config-operator", FIELD_MANAGER),
            object("DaemonSet", "machine-config-daemon", FIELD_MANAGER),
            object("ClusterRole", "machine-config-server", "kubectl"),
            object("ClusterRole", "machine-config-controller", FIELD_MANAGER),
        ],
        held: vec![
            json!({"kind": "KubeletConfig", "metadata": {"name": "k", "finalizers": ["99-worker-generated-kubelet"]}}),
            json!({"kind": "MachineConfig", "metadata": {"name": "m", "finalizers": ["gitops.example.com/finalizer"]}}),
        ],
        definitions: vec![
            object("CustomResourceDefinition", "x", FIELD_MANAGER),
            object("CustomResourceDefinition", "y", "cvo"),
        ],
        nodes: vec![node],
        provider_secrets: vec![secret("worker-user-data-managed", true), secret("theirs", false)],
        namespaces: vec![object("Namespace", "n", FIELD_MANAGER)],
        inside: vec![],
        provider: Some(object("Namespace", "openshift-machine-api", FIELD_MANAGER)),
    };
    let found = plan(&facts);
    let lines: Vec<String> = found.actions.iter().map(ToString::to_string).collect();
    assert_eq!(
        lines,
        [
            "delete Deployment machine-config-operator",
            "pause the pools, and ask the agents of all nodes (1) to end trials and to remove what they installed \
             for them",
            "delete DaemonSet machine-config-daemon",
            "delete ClusterRole machine-config-controller",
            "remove our finalizers from KubeletConfig k",
            "remove our finalizers from objects that got them in the meantime",
            "delete Secret worker-user-data-managed",
            "delete CustomResourceDefinition x",
            "remove our annotations from Node n",
            "remove our annotations and taints from Nodes that registered in the meantime",
            "delete Namespace n",
        ]
    );
    assert_eq!(found.busy, Vec::<String>::new());
    assert_eq!(
        found.stays,
        [
            "ClusterRole machine-config-server: somebody else created it",
            "CustomResourceDefinition y and its objects: somebody else created it",
            "Namespace openshift-machine-api: it contains Secrets of others",
        ]
    );
    let Action::Clean { annotations, tainted, .. } = &found.actions[8] else {
        panic!("{:?}", found.actions[8])
    };
    assert!(annotations.len() == 3 && !annotations.contains(&"other".to_owned()) && *tainted);
}

type Change = fn(&mut Facts);

#[test]
fn a_cluster_of_another_operator_is_left_as_it_is() {
    let theirs = |kind: &str, name: &str, manager: &str| json!({"kind": kind, "metadata": {"name": name, "managedFields": [{"manager": manager, "operation": "Update"}]}});
    let theirs = Facts {
        // The reference's operator has the name of our field manager.
        objects: vec![theirs("Deployment", "machine-config-controller", FIELD_MANAGER)],
        held: vec![
            json!({"kind": "KubeletConfig", "metadata": {"name": "k", "finalizers": ["99-worker-generated-kubelet"]}}),
        ],
        definitions: vec![theirs(
            "CustomResourceDefinition",
            "kubeletconfigs.machineconfiguration.openshift.io",
            "cvo",
        )],
        nodes: vec![json!({"metadata": {"name": "n", "annotations": {annotation::STATE: "Done"}},
                "spec": {"taints": [{"key": "UpdateInProgress"}]}})],
        provider_secrets: vec![json!({"kind": "Secret",
                "metadata": {"name": "worker-user-data-managed", "labels": {api::first_boot::user_data::MANAGED: ""}}})],
        namespaces: vec![theirs("Namespace", NAMESPACE, "cvo")],
        inside: vec![],
        provider: Some(theirs("Namespace", "openshift-machine-api", "cvo")),
    };
    let rows: [(&str, Change, bool); 4] = [
        ("nothing of ours", |_| {}, false),
        ("our object", |f| f.objects.push(object("ClusterRole", "c", FIELD_MANAGER)), true),
        ("our kind", |f| f.definitions.push(object("C", "rolloutpolicies.machineconfig.dev", "helm")), true),
        // A run that was cut off at the end.
        ("our namespace", |f| f.namespaces = vec![object("Namespace", NAMESPACE, FIELD_MANAGER)], true),
    ];
    for (what, change, goes) in rows {
        let mut facts = theirs.clone();
        change(&mut facts);
        let plan = plan(&facts);
        assert_eq!(!plan.actions.is_empty(), goes, "{what}: {:?}", plan.actions);
        assert!(
            plan.stays.contains(&"Deployment machine-config-controller: somebody else created it".to_owned())
        );
    }
}

#[test]
fn what_somebody_else_made_in_our_namespace_is_named_and_secrets_need_a_flag_of_their_own() {
    let inside = |kind: &str, namespace: &str, name: &str| json!({"kind": kind, "metadata": {"name": name, "namespace": namespace}});
    let facts = |inside: Vec<Value>| Facts {
        namespaces: vec![
            object("Namespace", "machine-config-boot-tokens", FIELD_MANAGER),
            object("Namespace", NAMESPACE, FIELD_MANAGER),
        ],
        inside,
        ..Facts::default()
    };
    let found = plan(&facts(vec![
        inside("Secret", NAMESPACE, "node-bootstrapper-token"),
        inside("ConfigMap", NAMESPACE, "kube-root-ca.crt"),
        inside("ConfigMap", NAMESPACE, "theirs"),
        inside("Secret", "elsewhere", "theirs"),
    ]));
    assert_eq!(found.lost.iter().map(ToString::to_string).collect::<Vec<_>>(), ["ConfigMap theirs"]);
    assert_eq!(
        found.also_deletes(),
        "all MachineConfigs and pools, too, and with their namespace what somebody else made: ConfigMap theirs"
    );
    assert!(found.check_begin(false, false, false).is_ok(), "no secret is in it");
    let found = plan(&facts(vec![
        inside("Secret", NAMESPACE, "os-signing"),
        inside("Secret", NAMESPACE, "push"),
        inside("Secret", "machine-config-boot-tokens", "mine"),
        inside("ConfigMap", NAMESPACE, "theirs"),
    ]));
    assert!(found.actions.iter().any(|action| deletes(action, "Namespace", NAMESPACE)), "{found:?}");
    for (restores, force) in [(false, false), (true, false), (false, true), (true, true)] {
        let said = found.check_begin(restores, force, false).unwrap_err().to_string();
        for words in [
            "nothing was removed: ",
            "somebody else made: Secret machine-config-boot-tokens/mine, Secret os-signing, Secret push. ",
            "(kubectl -n machine-config-boot-tokens get secret mine -o yaml; \
             kubectl -n openshift-machine-config-operator get secret os-signing push -o yaml)",
            "run the command again with --delete-secrets, or delete the Secrets first",
        ] {
            assert!(said.contains(words), "{words}: {said}");
        }
        assert!(!said.contains("--force"), "{said}");
        assert!(found.check_begin(restores, force, true).is_ok(), "{restores} {force}");
    }
    let busy = Plan { busy: vec!["Node n is on its way".to_owned()], ..found };
    // Whether Secrets may go says nothing of hosts.
    for delete_secrets in [false, true] {
        let found = busy.check_begin(false, false, delete_secrets);
        assert!(matches!(found, Err(UninstallError::Busy { .. })), "{delete_secrets}: {found:?}");
    }
    assert!(matches!(busy.check_begin(true, false, false), Err(UninstallError::Secrets { .. })));
    assert!(matches!(busy.check_begin(false, true, false), Err(UninstallError::Secrets { .. })));
    assert!(busy.check_begin(false, true, true).is_ok());
    assert_eq!(plan(&facts(vec![])).also_deletes(), "all MachineConfigs and pools, too");
}

#[test]
fn a_namespace_in_which_another_operator_runs_stays_unless_we_applied_it() {
    let part = |manager: &str| {
        let mut part = object("Deployment", "machine-config-controller", manager);
        part["metadata"]["namespace"] = json!(NAMESPACE);
        part
    };
    let secret = json!({"kind": "Secret", "metadata": {"name": "theirs", "namespace": NAMESPACE}});
    // Columns: who applied the namespace, whose Deployment is in it, and whether the namespace goes.
    for (namespace, part, goes) in [
        ("cvo", Some(part("cvo")), false),
        (FIELD_MANAGER, Some(part("cvo")), true),
        // A chart or GitOps made it for our operator, which applies its parts itself.
        ("helm", Some(part(FIELD_MANAGER)), true),
        ("helm", None, true),
    ] {
        let ours = object("ClusterRole", "c", FIELD_MANAGER);
        let facts = Facts {
            objects: part.into_iter().chain([ours]).collect(),
            namespaces: vec![object("Namespace", NAMESPACE, namespace)],
            inside: vec![secret.clone()],
            ..Facts::default()
        };
        let found = plan(&facts);
        let about = format!("{namespace}: {found:?}");
        assert_eq!(
            found.actions.iter().any(|action| deletes(action, "Namespace", NAMESPACE)),
            goes,
            "{about}"
        );
        assert_eq!(found.lost.is_empty(), !goes, "{about}");
        let stays = found.stays.iter().any(|line| {
            line.starts_with(
                "Namespace openshift-machine-config-operator: somebody else created it, and Deployment",
            )
        });
        assert_eq!(stays, !goes, "{about}");
    }
}

#[test]
fn finalizers_of_others_are_left_to_them() {
    let kept = |finalizers: Value| {
        let object = json!({"metadata": {"finalizers": finalizers}});
        kept_finalizers(&object).map(|kept| kept.join(" "))
    };
    for (finalizers, want) in [
        (json!(null), None),
        (json!(["a.example.com/x", "foregroundDeletion"]), None),
        (json!(["99-worker-generated-kubelet"]), Some("")),
        (json!(["0a1b2c3d-0000-4000-8000-000000000000", "orphan", "a/b"]), Some("orphan a/b")),
    ] {
        assert_eq!(kept(finalizers.clone()).as_deref(), want, "{finalizers}");
    }
}

#[test]
fn agents_are_waited_for_as_long_as_a_trial_may_take_and_dead_ones_for_a_moment() {
    let node = |name: &str, state: &str, left: &str| {
        json!({"metadata": {"name": name, "annotations": {
                annotation::STATE: state, own::LEAVE: "r", own::LEFT: left}}})
    };
    let gone = json!({"metadata": {"name": "unasked", "annotations": {annotation::STATE: "Done"}}});
    let nodes = [
        node("done", "Done", "r"),
        node("idle", "Done", "earlier"),
        node("trial", "Working", ""),
        node("other", "Done", ""),
        gone,
        // It has somewhere to go and has not begun: its agent does not run.
        json!({"metadata": {"name": "sent", "annotations": {annotation::STATE: "Done", own::LEAVE: "r",
                annotation::CURRENT_CONFIG: "a", annotation::DESIRED_CONFIG: "b"}}}),
    ];
    let asked = ["done", "idle", "trial", "unasked", "sent"].map(str::to_owned);
    for (seconds, open, late) in [
        (0, vec!["idle", "trial", "sent"], vec![]),
        (30, vec!["trial"], vec!["idle", "sent"]),
        (720, vec![], vec!["idle", "trial", "sent"]),
    ] {
        let found = waited_for(&nodes, &asked, "r", Duration::from_secs(seconds));
        assert_eq!(found, (open, late), "after {seconds} s");
    }
    let bare = Facts { nodes: vec![json!({"metadata": {"name": "n"}})], ..Facts::default() };
    assert!(plan(&bare).actions.is_empty(), "no agent has ever run there");
}

#[test]
fn nodes_are_looked_at_again_where_something_wrote_to_them() {
    let later = |kind: &str, manager: &str| {
        let facts = Facts { objects: vec![object(kind, "n", manager)], ..Facts::default() };
        plan(&facts).actions.contains(&Action::CleanLater)
    };
    assert!(later("DaemonSet", FIELD_MANAGER) && later("MutatingAdmissionPolicyBinding", FIELD_MANAGER));
    assert!(!later("ClusterRole", FIELD_MANAGER) && !later("DaemonSet", "kubectl"));
    assert!(plan(&Facts::default()).actions.is_empty(), "nothing is installed");
    let registered = json!({"metadata": {"name": "new"},
            "spec": {"taints": [{"key": "machineconfig.dev/joining", "effect": "NoSchedule"}]}});
    let found = cleaning(&[json!({"metadata": {"name": "bare"}}), registered]);
    assert_eq!(found, [Action::Clean { node: "new".to_owned(), annotations: vec![], tainted: true }]);
}

#[test]
fn the_namespace_of_machine_providers_goes_only_where_it_is_ours_alone() {
    let shared = json!({"kind": "Namespace", "metadata": {"name": "n", "managedFields": [
            {"manager": FIELD_MANAGER, "operation": "Apply"}, {"manager": "installer", "operation": "Update"}]}});
    let with = |provider: Value| plan(&Facts { provider: Some(provider), ..Facts::default() }).actions.len();
    assert_eq!((with(object("Namespace", "n", FIELD_MANAGER)), with(shared)), (1, 0));
}

#[test]
fn an_object_of_which_we_only_wrote_the_status_is_somebody_elses() {
    let theirs = json!({"kind": "ClusterRole", "metadata": {"name": "c", "managedFields": [
            {"manager": "kubectl", "operation": "Apply"},
            {"manager": FIELD_MANAGER, "operation": "Apply", "subresource": "status"}]}});
    let found = plan(&Facts { objects: vec![theirs], ..Facts::default() });
    assert_eq!(
        (found.actions, found.stays),
        (vec![], vec!["ClusterRole c: somebody else created it".to_owned()])
    );
}

#[test]
fn a_node_on_its_way_holds_it_up() {
    let node = |current: &str, desired: &str, state: &str| {
        json!({"metadata": {"name": "n", "annotations": {annotation::CURRENT_CONFIG: current,
                annotation::DESIRED_CONFIG: desired, annotation::STATE: state}}})
    };
    for (node, busy) in [
        (node("a", "a", "Done"), false),
        (node("a", "b", "Done"), true),
        (node("a", "a", "Working"), true),
        (node("a", "a", "Degraded"), false),
        (json!({"metadata": {"name": "n"}}), false),
    ] {
        assert_eq!(
            !plan(&Facts { nodes: vec![node.clone()], ..Facts::default() }).busy.is_empty(),
            busy,
            "{node}"
        );
    }
}

#[test]
fn a_removal_begins_while_nodes_are_on_their_way_only_where_they_are_waited_for_or_by_force() {
    let busy = Plan { busy: vec!["Node n is on its way from a to b".to_owned()], ..Plan::default() };
    for (plan, restores, force, begins) in [
        (&Plan::default(), false, false, true),
        (&busy, false, false, false),
        (&busy, true, false, true),
        (&busy, false, true, true),
    ] {
        let checked = plan.check_begin(restores, force, false);
        assert_eq!(checked.is_ok(), begins, "{restores} {force}");
        if let Err(error) = checked {
            let said = error.to_string();
            assert!(said.starts_with("nothing was removed: Node n is on its way from a to b. "), "{said}");
        }
    }
}
