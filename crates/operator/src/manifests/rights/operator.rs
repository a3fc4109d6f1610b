//! The rights of the operator. It may give no right that it does not have itself, so it has those of the parts that it installs.

use super::controller::{controller, controller_in_namespace};
use super::dashboard::dashboard_rules;
use super::objects::{APPLY, FOLLOW, PRUNE, READ, named, rule};
use super::{
    AGENT, ANY_USER, BOOTSTRAP_BINDINGS, BOOTSTRAP_ROLES, BOOTSTRAP_TOKEN, BOOTSTRAPPER, BUILDER,
    CLUSTER_OPERATOR, CONTROLLER, DASHBOARD, MONITORING_GROUP, OPERATOR, PUSH_SECRETS, RBAC, SERVER,
    SETTINGS_GROUP, TOKEN_MOVE, TOKEN_USE, VIEWER, server, server_in_namespace,
};
use crate::manifests::admission::{JOINING, joining_binding};
use crate::monitoring::{self, READER};
use api::names::GROUP;
use serde_json::{Value, json};

/// The ClusterRole of the operator. It may give no right that it does not have (the API server sees to that), so it has
/// those of the parts that it installs; the other way, `escalate`, would let it give any.
pub(super) fn operator(namespaces: &[&str]) -> Vec<Value> {
    let own = crate::settings::PLURAL;
    let crds = crate::definitions::names();
    let crds: Vec<&str> = crds.iter().map(String::as_str).collect();
    let policies = crate::manifests::admission::names();
    let bindings: Vec<String> = policies.iter().map(|name| format!("{name}-binding")).collect();
    let bindings: Vec<&str> = bindings.iter().map(String::as_str).collect();
    let parts = [CONTROLLER, SERVER, AGENT, READER, DASHBOARD, VIEWER];
    let bound = [&parts[..], &BOOTSTRAP_BINDINGS].concat();
    let admission = "admissionregistration.k8s.io";
    let mut rules = vec![
        rule(SETTINGS_GROUP, &[own], &READ),
        rule(SETTINGS_GROUP, &[&format!("{own}/status")], &["patch"]),
        rule("apiextensions.k8s.io", &["customresourcedefinitions"], &FOLLOW),
        named("apiextensions.k8s.io", "customresourcedefinitions", &crds, &APPLY),
        // When a kind gets another version: which versions are stored, and to have each object written in the new one.
        named("apiextensions.k8s.io", "customresourcedefinitions/status", &crds, &["patch"]),
        rule(GROUP, &["controllerconfigs"], &["create"]),
        rule(GROUP, &["machineconfigpools"], &["create"]),
        rule(RBAC, &["clusterroles", "clusterrolebindings"], &FOLLOW),
        named(RBAC, "clusterroles", &parts, &PRUNE),
        named(RBAC, "clusterrolebindings", &bound, &PRUNE),
        // To give booting machines what Kubernetes' own roles allow, and nothing else of theirs.
        named(RBAC, "clusterroles", &BOOTSTRAP_ROLES, &["bind"]),
        // The same for the pods that build images.
        named(RBAC, "clusterroles", &[ANY_USER], &["bind"]),
        rule(admission, &["validatingadmissionpolicies", "validatingadmissionpolicybindings"], &FOLLOW),
        named(admission, "validatingadmissionpolicies", policies, &PRUNE),
        named(admission, "validatingadmissionpolicybindings", &bindings, &PRUNE),
        // Whoever writes a policy must be able to read its parameters: PodDisruptionBudgets, which the controller reads, too.
        rule(admission, &["mutatingadmissionpolicies", "mutatingadmissionpolicybindings"], &FOLLOW),
        named(admission, "mutatingadmissionpolicies", &[JOINING], &PRUNE),
        named(admission, "mutatingadmissionpolicybindings", &[&joining_binding()], &PRUNE),
        rule("config.openshift.io", &["clusteroperators"], &READ),
        named("config.openshift.io", "clusteroperators", &[CLUSTER_OPERATOR], &APPLY),
        named("config.openshift.io", "clusteroperators/status", &[CLUSTER_OPERATOR], &["patch"]),
        rule("operator.openshift.io", &["machineconfigurations"], &["create"]),
        named("operator.openshift.io", "machineconfigurations", &[api::names::CLUSTER], &["patch"]),
        named("operator.openshift.io", "machineconfigurations/status", &[api::names::CLUSTER], &["patch"]),
        named("", "namespaces", &[namespaces, &crate::facts::openshift::NAMESPACES].concat(), &["get"]),
        // What OpenShift says about itself; the controller's rights have the others.
        rule("config.openshift.io", &["infrastructures", "networks", "dnses", "proxies"], &READ),
        // The kubelets of machines that join.
        rule("certificates.k8s.io", &["certificatesigningrequests"], &FOLLOW),
        rule("certificates.k8s.io", &["certificatesigningrequests/approval"], &["patch"]),
        named("certificates.k8s.io", "signers", &[crate::accounts::SIGNER], &["approve"]),
        // To give it to who reads metrics.
        json!({"nonResourceURLs": ["/metrics"], "verbs": ["get"]}),
    ];
    for (group, plurals) in crate::definitions::kinds() {
        let plurals: Vec<&str> = plurals.iter().map(String::as_str).collect();
        rules.push(rule(&group, &plurals, &["list", "patch"]));
    }
    rules.extend(controller());
    rules.extend(server());
    rules.extend(crate::manifests::agents::rules());
    rules.extend(dashboard_rules());
    rules
}

/// The operator's Role in its own namespace: what it keeps there, and the rights that it gives to the parts there. `pull_secret`: the
/// one there that the ControllerConfig names, which the controller gets the right to read.
pub(super) fn operator_in_namespace(pull_secret: Option<&str>) -> Vec<Value> {
    let parts = [CONTROLLER, SERVER, AGENT, DASHBOARD];
    let of_metrics = [&parts[..], &[OPERATOR]].concat().into_iter().map(monitoring::certificate);
    let of_metrics: Vec<String> = of_metrics.collect();
    let mut certificates =
        vec![api::first_boot::server_tls::CA, api::first_boot::server_tls::SERVING, monitoring::CA];
    certificates.extend(of_metrics.iter().map(String::as_str));
    let moving = [TOKEN_MOVE, TOKEN_USE];
    let mut rules = vec![
        named(
            "",
            "configmaps",
            &[api::first_boot::server_tls::CA, monitoring::CA],
            &["get", "list", "watch", "update"],
        ),
        named(
            "",
            "configmaps",
            &["kube-root-ca.crt", "machine-config-operator-images", "machine-config-osimageurl"],
            &READ,
        ),
        named("", "configmaps", &["kubeconfig-data"], &["get", "list", "watch", "update"]),
        rule("", &["configmaps", "secrets"], &["create"]),
        named("", "secrets", &certificates, &["get", "list", "watch", "update"]),
        named("", "secrets", &[BOOTSTRAP_TOKEN, READER], &["get", "patch", "delete"]),
        // To give it to the controller for the Secrets that images are pushed with: their names are people's. The other way,
        // `escalate` and `bind` on that Role, would let it give any right in this namespace. It has no use for it beyond that.
        rule("", &["secrets"], &["get"]),
        named("coordination.k8s.io", "leases", &[OPERATOR], &["get", "update"]),
        // Its Role names the tokens to move. It deletes the Role in the end.
        named(RBAC, "roles", &moving, &["get", "delete"]),
        named(RBAC, "rolebindings", &moving, &["delete"]),
    ];
    let accounts = [&parts[..], &[BOOTSTRAPPER, READER, BUILDER]].concat();
    let roles = [&parts[..], &[PUSH_SECRETS]].concat();
    let bindings = [&roles[..], &[BUILDER]].concat();
    let workloads = [&parts[..], &[OPERATOR]].concat();
    for (group, resource, names) in [
        ("", "serviceaccounts", &accounts[..]),
        ("", "services", &workloads),
        ("", "configmaps", &monitoring::CONFIG_MAPS),
        (MONITORING_GROUP, "servicemonitors", &workloads),
        (MONITORING_GROUP, "prometheusrules", &[OPERATOR]),
        ("apps", "deployments", &[CONTROLLER, OPERATOR, DASHBOARD]),
        ("apps", "daemonsets", &[SERVER, AGENT]),
        ("policy", "poddisruptionbudgets", &[CONTROLLER]),
        ("networking.k8s.io", "networkpolicies", &workloads),
        (RBAC, "roles", &roles),
        (RBAC, "rolebindings", &bindings),
    ] {
        rules.push(rule(group, &[resource], &FOLLOW));
        rules.push(named(group, resource, names, &PRUNE));
    }
    rules.extend(controller_in_namespace(pull_secret));
    rules.extend(server_in_namespace());
    rules.extend(crate::manifests::agents::rules_in_namespace());
    rules
}

/// In the namespace of boot tokens: those of user data, and the config server's rights. With get and patch it completes a
/// move, see [`TOKEN_MOVE`].
pub(super) fn operator_at_tokens() -> Vec<Value> {
    vec![
        rule("", &["secrets"], &["get", "list", "watch", "create", "patch", "delete"]),
        rule(RBAC, &["roles", "rolebindings"], &FOLLOW),
        named(RBAC, "roles", &[SERVER, DASHBOARD], &PRUNE),
        named(RBAC, "rolebindings", &[SERVER, DASHBOARD], &PRUNE),
    ]
}
