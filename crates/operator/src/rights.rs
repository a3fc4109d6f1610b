//! What controller, config server and operator may do in a cluster: one service account, ClusterRole and Role each, with
//! the verbs that the part uses and no others. Pure.
//!
//! What it is not: the agents' rights (see `agent`), and putting these into the cluster (see `install`). A cluster test
//! runs each part with nothing but these and looks for what was refused and for what was never used.

use api::names::{CONTROLLER_CONFIG, GROUP, NAMESPACE};
use serde_json::{Value, json};

/// The controller's objects.
pub(crate) const CONTROLLER: &str = "machine-config-controller";
/// The config server's objects.
pub(crate) const SERVER: &str = "machine-config-server";
/// The operator's objects.
pub(crate) const OPERATOR: &str = "machine-config-operator";
/// Whom machines that boot speak as, until they have credentials of their own.
pub(crate) const BOOTSTRAPPER: &str = "node-bootstrapper";
/// Its token, which the config server hands out.
pub(crate) const BOOTSTRAP_TOKEN: &str = "node-bootstrapper-token";

const RBAC: &str = "rbac.authorization.k8s.io";
const READ: [&str; 3] = ["get", "list", "watch"];
const FOLLOW: [&str; 2] = ["list", "watch"];

fn rule(group: &str, resources: &[&str], verbs: &[&str]) -> Value {
    json!({"apiGroups": [group], "resources": resources, "verbs": verbs})
}

/// The same for objects of these names only.
fn named(group: &str, resource: &str, names: &[&str], verbs: &[&str]) -> Value {
    json!({"apiGroups": [group], "resources": [resource], "resourceNames": names, "verbs": verbs})
}

/// All of them, in the order in which they must come. `tokens`: the config server asks for boot tokens, which stand in
/// Secrets beside the CA's key; nobody reads them otherwise.
pub(crate) fn all(tokens: bool) -> Vec<Value> {
    let provider = api::user_data::NAMESPACE;
    let mut all = vec![json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": provider}})];
    all.extend(account(CONTROLLER));
    all.push(cluster_role(CONTROLLER, &controller()));
    all.push(cluster_binding(CONTROLLER));
    all.extend(role(CONTROLLER, NAMESPACE, &controller_here()));
    all.extend(account(SERVER));
    all.push(cluster_role(SERVER, &server()));
    all.push(cluster_binding(SERVER));
    all.extend(role(SERVER, NAMESPACE, &server_here(tokens)));
    all.extend(account(OPERATOR));
    all.push(cluster_role(OPERATOR, &operator(provider)));
    all.push(cluster_binding(OPERATOR));
    all.extend(role(OPERATOR, NAMESPACE, &operator_here(tokens)));
    all.extend(role(OPERATOR, provider, &[rule("", &["secrets"], &["list", "watch", "create", "update"])]));
    all.extend(bootstrapper());
    all
}

fn controller() -> Vec<Value> {
    let config = "config.openshift.io";
    vec![
        rule(GROUP, &["machineconfigs"], &["get", "list", "watch", "create", "update", "patch", "delete"]),
        rule(GROUP, &["machineconfigpools"], &["get", "list", "watch", "patch"]),
        rule(GROUP, &["controllerconfigs"], &READ),
        // Whose version it is, see `controller::claim`, and the topology, see `rollout::topology`.
        named(GROUP, "controllerconfigs", &[CONTROLLER_CONFIG], &["patch"]),
        rule(GROUP, &["kubeletconfigs", "containerruntimeconfigs"], &["get", "list", "watch", "patch"]),
        rule(
            GROUP,
            &[
                "machineconfigpools/status",
                "controllerconfigs/status",
                "kubeletconfigs/status",
                "containerruntimeconfigs/status",
                "machineconfignodes/status",
            ],
            &["patch"],
        ),
        // Where an API server asks for it (OwnerReferencesPermissionEnforcement): what is made from these has them as
        // owners that are not to go first.
        rule(
            GROUP,
            &[
                "machineconfigpools/finalizers",
                "controllerconfigs/finalizers",
                "kubeletconfigs/finalizers",
                "containerruntimeconfigs/finalizers",
            ],
            &["update"],
        ),
        rule(GROUP, &["machineconfignodes"], &["get", "list", "watch", "create", "patch", "delete"]),
        rule(GROUP, &["machineosconfigs", "machineosbuilds", "osimagestreams"], &READ),
        rule("", &["nodes"], &["get", "list", "watch", "patch"]),
        rule("", &["pods"], &READ),
        rule("", &["pods/eviction"], &["create"]),
        rule("policy", &["poddisruptionbudgets"], &READ),
        rule(
            config,
            &[
                "apiservers",
                "clusterimagepolicies",
                "clusterversions",
                "featuregates",
                "imagedigestmirrorsets",
                "imagepolicies",
                "images",
                "imagetagmirrorsets",
                "nodes",
                "schedulers",
            ],
            &READ,
        ),
        rule(config, &["imagepolicies/status"], &["patch"]),
        rule("operator.openshift.io", &["imagecontentsourcepolicies", "machineconfigurations"], &READ),
    ]
}

fn controller_here() -> Vec<Value> {
    vec![
        named("coordination.k8s.io", "leases", &[CONTROLLER], &["get", "update"]),
        // A name cannot limit what does not exist yet.
        rule("coordination.k8s.io", &["leases"], &["create"]),
        rule("", &["events"], &["create"]),
        // The pull secret's name stands in the ControllerConfig.
        rule("", &["secrets"], &READ),
    ]
}

fn server() -> Vec<Value> {
    vec![
        rule(GROUP, &["machineconfigs"], &READ),
        rule(GROUP, &["machineconfigpools", "machineosconfigs", "machineosbuilds"], &FOLLOW),
        named(GROUP, "controllerconfigs", &[CONTROLLER_CONFIG], &FOLLOW),
        // Where the cluster's own registry can be reached: machines that boot cannot.
        rule("", &["services"], &["list"]),
        rule("route.openshift.io", &["routes"], &["list"]),
    ]
}

fn server_here(tokens: bool) -> Vec<Value> {
    let mut rules = vec![named("", "configmaps", &["kubeconfig-data"], &FOLLOW)];
    if tokens {
        rules.push(rule("", &["secrets"], &["get", "list", "watch", "patch"]));
    }
    rules
}

fn operator(provider: &str) -> Vec<Value> {
    vec![
        named(GROUP, "controllerconfigs", &[CONTROLLER_CONFIG], &READ),
        rule(GROUP, &["machineconfigpools"], &FOLLOW),
        named("", "namespaces", &[provider], &["get"]),
    ]
}

fn operator_here(tokens: bool) -> Vec<Value> {
    let certificates = [api::server_tls::CA, api::server_tls::SERVING];
    let mut rules = vec![
        named("", "configmaps", &[api::server_tls::CA], &["get", "list", "watch", "update"]),
        rule("", &["configmaps", "secrets"], &["create"]),
        // How many controllers run follows the number of control-plane nodes.
        named("apps", "deployments", &[CONTROLLER], &["get", "patch"]),
    ];
    if tokens {
        rules.push(rule("", &["secrets"], &["get", "list", "watch", "update", "delete"]));
    } else {
        rules.push(named("", "secrets", &certificates, &["get", "list", "watch", "update"]));
    }
    rules
}

/// Machines that boot ask for a kubelet's certificate as this account, and renew it as nodes. That these requests are
/// approved is the cluster's decision.
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
            "system-bootstrap-node-bootstrapper",
            "system:node-bootstrapper",
            json!({"kind": "ServiceAccount", "name": BOOTSTRAPPER, "namespace": NAMESPACE}),
        ),
        bind(
            "system-bootstrap-node-renewal",
            "system:certificates.k8s.io:certificatesigningrequests:selfnodeclient",
            json!({"kind": "Group", "apiGroup": RBAC, "name": "system:nodes"}),
        ),
    ]
}

fn account(name: &str) -> [Value; 1] {
    [
        json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": name, "namespace": NAMESPACE}}),
    ]
}

fn subject(name: &str) -> Value {
    json!([{"kind": "ServiceAccount", "name": name, "namespace": NAMESPACE}])
}

fn cluster_role(name: &str, rules: &[Value]) -> Value {
    json!({"apiVersion": format!("{RBAC}/v1"), "kind": "ClusterRole", "metadata": {"name": name}, "rules": rules})
}

fn cluster_binding(name: &str) -> Value {
    json!({
        "apiVersion": format!("{RBAC}/v1"), "kind": "ClusterRoleBinding", "metadata": {"name": name},
        "roleRef": {"apiGroup": RBAC, "kind": "ClusterRole", "name": name}, "subjects": subject(name),
    })
}

/// A role in a namespace, and that the account has it.
fn role(name: &str, namespace: &str, rules: &[Value]) -> [Value; 2] {
    [
        json!({
            "apiVersion": format!("{RBAC}/v1"), "kind": "Role",
            "metadata": {"name": name, "namespace": namespace}, "rules": rules,
        }),
        json!({
            "apiVersion": format!("{RBAC}/v1"), "kind": "RoleBinding",
            "metadata": {"name": name, "namespace": namespace},
            "roleRef": {"apiGroup": RBAC, "kind": "Role", "name": name}, "subjects": subject(name),
        }),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    /// All rules of a part, with the namespace in which they count.
    fn rules(part: &str, tokens: bool) -> Vec<(String, Value)> {
        let roles = all(tokens).into_iter().filter(|o| o["metadata"]["name"] == part);
        roles
            .flat_map(|o| {
                let namespace = o["metadata"]["namespace"].as_str().unwrap_or_default().to_owned();
                let rules = o["rules"].as_array().cloned().unwrap_or_default();
                rules.into_iter().map(move |r| (namespace.clone(), r))
            })
            .collect()
    }

    #[test]
    fn nothing_is_allowed_wholesale_and_secrets_only_in_our_own_namespaces() {
        for part in [CONTROLLER, SERVER, OPERATOR] {
            let found = rules(part, true);
            assert!(found.len() > 3, "{part}");
            for (namespace, rule) in found {
                assert!(!rule.to_string().contains('*'), "{part}: {rule}");
                let secrets = rule["resources"].as_array().unwrap().contains(&json!("secrets"));
                assert!(!secrets || !namespace.is_empty(), "{part}: {rule}");
            }
        }
    }

    #[test]
    fn without_tokens_the_server_reads_no_secret_and_writes_nothing() {
        for (_, rule) in rules(SERVER, false) {
            let verbs = rule["verbs"].as_array().unwrap();
            assert!(verbs.iter().all(|v| READ.contains(&v.as_str().unwrap())), "{rule}");
            assert!(!rule["resources"].to_string().contains("secrets"), "{rule}");
        }
        let patch = |rule: &Value| rule["verbs"].as_array().unwrap().contains(&json!("patch"));
        let writes: Vec<_> = rules(SERVER, true).into_iter().filter(|(_, r)| patch(r)).collect();
        assert_eq!(writes.len(), 1);
        assert_eq!(writes[0].1["resources"], json!(["secrets"]));
    }
}
