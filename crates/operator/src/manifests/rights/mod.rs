//! What controller, config server and operator may do in a cluster: one service account, ClusterRole and Role each, with
//! the verbs that the part uses and no others, and with those that it gives to others. Pure.
//!
//! What it is not: the agents' rights (see `agents`), and putting these into the cluster (see `install`). A cluster test
//! runs each part with nothing but these and looks for what was refused and for what was never used.

mod controller;
mod dashboard;
mod objects;
mod operator;
mod push_secrets;

use api::definition::Defined as _;
use api::first_boot::boot_token;
use api::names::{CONTROLLER_CONFIG, GROUP, NAMESPACE};
use api::v1alpha1::MachineConfigOperator;
use serde_json::{Value, json};

pub(crate) use crate::accounts::{
    AGENT, BOOTSTRAP_TOKEN, BOOTSTRAPPER, BUILDER, CLUSTER_OPERATOR, CONTROLLER, DASHBOARD, OPERATOR,
    PULL_SECRET, SERVER, TOKEN_MOVE, TOKEN_USE, VIEWER,
};
pub use controller::{controller, controller_in_namespace};
pub(crate) use dashboard::dashboard;
pub(crate) use push_secrets::{PUSH_SECRETS, push_secrets};

use objects::{FOLLOW, READ, account, cluster_binding, cluster_role, named, role, rule, subject};
use operator::{operator, operator_at_tokens, operator_in_namespace};

/// OpenShift's own role of those who may run pods as any user.
const ANY_USER: &str = "system:openshift:scc:anyuid";
const RBAC: &str = "rbac.authorization.k8s.io";
/// The group of the Prometheus operator's kinds.
const MONITORING_GROUP: &str = "monitoring.coreos.com";
/// The group of the settings object.
const SETTINGS_GROUP: &str = MachineConfigOperator::DEFINITION.group;
/// Kubernetes' own roles for booting machines, which the operator may bind.
const BOOTSTRAP_ROLES: [&str; 2] =
    ["system:node-bootstrapper", "system:certificates.k8s.io:certificatesigningrequests:selfnodeclient"];
/// Their bindings.
const BOOTSTRAP_BINDINGS: [&str; 2] = ["system-bootstrap-node-bootstrapper", "system-bootstrap-node-renewal"];

/// The namespace and name of the pull secret that the ControllerConfig names.
pub type PullSecret = (String, String);

/// The name of this pull secret, if it stands in our own namespace.
fn in_own_namespace(pull_secret: Option<&PullSecret>) -> Option<&str> {
    pull_secret.filter(|(namespace, _)| namespace == NAMESPACE).map(|(_, name)| name.as_str())
}

/// What the operator needs before it can run, in the order in which it must be written: namespaces, its account and rights,
/// and the rights that only an administrator can give. `pull_secret`: the one that the ControllerConfig names.
/// `old_tokens`: the boot tokens' Secrets in the old namespace. `openshift`: those of OpenShift's namespaces that there are.
pub(crate) fn installer(
    pull_secret: Option<&PullSecret>,
    old_tokens: &[String],
    openshift: &[&str],
) -> Vec<Value> {
    let (provider, boot) = (api::first_boot::user_data::NAMESPACE, boot_token::NAMESPACE);
    // With a label, so that an uninstallation sees that we have made it: the API server records no owner of an object without
    // fields.
    let (label, value) = api::first_boot::server_tls::MANAGED_BY;
    let namespace = |name| json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": {label: value}}});
    let mut all = vec![namespace(provider), namespace(boot)];
    all.extend(account(OPERATOR));
    all.push(cluster_role(OPERATOR, &operator(&[provider, boot])));
    all.push(cluster_binding(OPERATOR));
    all.extend(role(OPERATOR, NAMESPACE, &operator_in_namespace(in_own_namespace(pull_secret))));
    all.extend(role(OPERATOR, boot, &operator_at_tokens()));
    let provides = [
        rule("", &["secrets"], &["list", "watch", "create", "update"]),
        // Of user data that cannot have a token.
        rule("", &["events"], &["create"]),
    ];
    all.extend(role(OPERATOR, provider, &provides));
    // What kubeadm and others write down about their clusters.
    let system = [
        named("", "configmaps", &["kubeadm-config", "kubelet-config", "bootstrap", "root-ca"], &READ),
        named("", "services", &crate::facts::DNS_SERVICES, &["get"]),
    ];
    all.extend(role(OPERATOR, "kube-system", &system));
    all.extend(role(OPERATOR, "kube-public", &[named("", "configmaps", &["cluster-info"], &READ)]));
    // What OpenShift says about itself. Some of these ConfigMaps have names that other objects say.
    for namespace in openshift {
        all.extend(role(OPERATOR, namespace, &[rule("", &["configmaps"], &READ)]));
    }
    // The operator may not read Secrets of other namespaces, so it cannot give that right to the controller.
    if let Some((namespace, name)) = pull_secret.filter(|(namespace, _)| namespace != NAMESPACE) {
        all.extend(role(CONTROLLER, namespace, &[named("", "secrets", &[name], &READ)]));
    }
    if !old_tokens.is_empty() {
        all.extend(moves(old_tokens));
    }
    all
}

/// The rights of controller and config server, and the account of booting machines, in the order in which they must be
/// written. `tokens`: the config server asks for boot tokens. `pull_secret`: the one that the ControllerConfig names.
pub(crate) fn operands(tokens: bool, pull_secret: Option<&PullSecret>) -> Vec<Value> {
    let boot = boot_token::NAMESPACE;
    let mut all = vec![];
    all.extend(account(CONTROLLER));
    all.push(cluster_role(CONTROLLER, &[controller(), who_reads_metrics()].concat()));
    all.push(cluster_binding(CONTROLLER));
    all.extend(role(CONTROLLER, NAMESPACE, &controller_in_namespace(in_own_namespace(pull_secret))));
    all.extend(account(SERVER));
    all.push(cluster_role(SERVER, &[server(), who_reads_metrics()].concat()));
    all.push(cluster_binding(SERVER));
    all.extend(role(SERVER, NAMESPACE, &server_in_namespace()));
    // Without tokens there is no such Role; what an earlier setting left is pruned.
    if tokens {
        all.extend(role(SERVER, boot, &server_at_tokens()));
    }
    all.extend(bootstrapper());
    all.extend(builder());
    all
}

/// The pods that build OS images. The role that the binding names is OpenShift's; elsewhere there is none, and the binding gives
/// nothing.
fn builder() -> [Value; 2] {
    [
        json!({
            "apiVersion": "v1", "kind": "ServiceAccount",
            "metadata": {"name": BUILDER, "namespace": NAMESPACE}, "automountServiceAccountToken": false,
        }),
        json!({
            "apiVersion": format!("{RBAC}/v1"), "kind": "RoleBinding",
            "metadata": {"name": BUILDER, "namespace": NAMESPACE},
            "roleRef": {"apiGroup": RBAC, "kind": "ClusterRole", "name": ANY_USER}, "subjects": subject(BUILDER),
        }),
    ]
}

/// The rights to ask whose token a scraper presents, and whether that account may read metrics. Nodes have them already:
/// kubelets ask the same.
fn who_reads_metrics() -> Vec<Value> {
    vec![
        rule("authentication.k8s.io", &["tokenreviews"], &["create"]),
        rule("authorization.k8s.io", &["subjectaccessreviews"], &["create"]),
    ]
}

fn server() -> Vec<Value> {
    vec![
        rule(GROUP, &["machineconfigs"], &READ),
        rule(GROUP, &["machineconfigpools", "machineosconfigs", "machineosbuilds"], &FOLLOW),
        named(GROUP, "controllerconfigs", &[CONTROLLER_CONFIG], &FOLLOW),
        // To find the cluster's own registry, which booting machines cannot reach.
        rule("", &["services"], &["list"]),
        rule("route.openshift.io", &["routes"], &["list"]),
    ]
}

/// Rights to the tokens in the old namespace, by name: the operator marks and deletes Secrets that were copied, and old
/// servers record uses. Old servers can no longer watch these tokens; they continue with what they have read.
fn moves(names: &[String]) -> Vec<Value> {
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let place = boot_token::OLD_NAMESPACE;
    let given = |name: &str, to: &str, verbs: &[&str]| {
        let [role, mut binding] = role(name, place, &[named("", "secrets", &names, verbs)]);
        binding["subjects"] = subject(to);
        [role, binding]
    };
    let operator = given(TOKEN_MOVE, OPERATOR, &["get", "patch", "delete"]);
    [operator, given(TOKEN_USE, SERVER, &["get", "patch"])].concat()
}

fn server_in_namespace() -> Vec<Value> {
    vec![named("", "configmaps", &["kubeconfig-data"], &FOLLOW)]
}

fn server_at_tokens() -> Vec<Value> {
    vec![rule("", &["secrets"], &["get", "list", "watch", "patch"])]
}

/// Booting machines request a kubelet's certificate as this account, and renew it as nodes. The cluster approves the
/// requests.
fn bootstrapper() -> Vec<Value> {
    let bind = |name: &str, role: &str, subject: Value| {
        json!({
            "apiVersion": format!("{RBAC}/v1"), "kind": "ClusterRoleBinding", "metadata": {"name": name},
            "roleRef": {"apiGroup": RBAC, "kind": "ClusterRole", "name": role}, "subjects": [subject],
        })
    };
    vec![
        json!({
            "apiVersion": "v1", "kind": "ServiceAccount",
            "metadata": {"name": BOOTSTRAPPER, "namespace": NAMESPACE}, "automountServiceAccountToken": false,
        }),
        json!({
            "apiVersion": "v1", "kind": "Secret", "type": "kubernetes.io/service-account-token",
            "metadata": {
                "name": BOOTSTRAP_TOKEN, "namespace": NAMESPACE,
                "annotations": {"kubernetes.io/service-account.name": BOOTSTRAPPER},
            },
        }),
        bind(
            BOOTSTRAP_BINDINGS[0],
            BOOTSTRAP_ROLES[0],
            json!({"kind": "ServiceAccount", "name": BOOTSTRAPPER, "namespace": NAMESPACE}),
        ),
        bind(
            BOOTSTRAP_BINDINGS[1],
            BOOTSTRAP_ROLES[1],
            json!({"kind": "Group", "apiGroup": RBAC, "name": "system:nodes"}),
        ),
    ]
}

#[cfg(test)]
mod tests;
