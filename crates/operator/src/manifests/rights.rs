//! What controller, config server and operator may do in a cluster: one service account, ClusterRole and Role each, with
//! the verbs that the part uses and no others. Pure.
//!
//! What it is not: the agents' rights (see `agents`), and putting these into the cluster (see `install`). A cluster test
//! runs each part with nothing but these and looks for what was refused and for what was never used.

use api::boot_token;
use api::names::{CONTROLLER_CONFIG, GROUP, NAMESPACE};
use serde_json::{Value, json};

/// The controller's objects.
pub(crate) const CONTROLLER: &str = "machine-config-controller";
/// The config server's objects.
pub(crate) const SERVER: &str = "machine-config-server";
/// The operator's objects.
pub(crate) const OPERATOR: &str = "machine-config-operator";
/// The account that booting machines use until they have credentials of their own.
pub(crate) const BOOTSTRAPPER: &str = "node-bootstrapper";
/// The Secret with its token, which the config server hands out.
pub(crate) const BOOTSTRAP_TOKEN: &str = "node-bootstrapper-token";

const RBAC: &str = "rbac.authorization.k8s.io";
const READ: [&str; 3] = ["get", "list", "watch"];
const FOLLOW: [&str; 2] = ["list", "watch"];

fn rule(group: &str, resources: &[&str], verbs: &[&str]) -> Value {
    json!({"apiGroups": [group], "resources": resources, "verbs": verbs})
}

/// The same, limited to objects with these names.
fn named(group: &str, resource: &str, names: &[&str], verbs: &[&str]) -> Value {
    json!({"apiGroups": [group], "resources": [resource], "resourceNames": names, "verbs": verbs})
}

/// The pull secret that the controller may read even if the ControllerConfig does not name it.
pub(crate) const PULL_SECRET: &str = "pull-secret";

/// The operator's right to finish the move of boot tokens into their own namespace: a Role in the old namespace that names
/// each token there, and nothing else. `mco install` creates it if there are such tokens; the operator deletes it when they
/// are gone.
pub(crate) const TOKEN_MOVE: &str = "machine-config-operator-token-move";
/// The same for config servers of the previous version, which record uses of such tokens until they are replaced.
pub(crate) const TOKEN_USE: &str = "machine-config-server-token-move";

/// The namespace and name of the pull secret that the ControllerConfig names.
pub type PullSecret = (String, String);

/// All objects, in the order in which they must be written. `tokens`: the config server asks for boot tokens. `pull_secret`:
/// the one that the ControllerConfig names. `old_tokens`: the boot tokens' Secrets in the old namespace.
pub(crate) fn all(tokens: bool, pull_secret: Option<&PullSecret>, old_tokens: &[String]) -> Vec<Value> {
    let (provider, boot) = (api::user_data::NAMESPACE, boot_token::NAMESPACE);
    let namespace = |name| json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}});
    let mut all = vec![namespace(provider), namespace(boot)];
    all.extend(account(CONTROLLER));
    all.push(cluster_role(CONTROLLER, &[controller(), who_reads_metrics()].concat()));
    all.push(cluster_binding(CONTROLLER));
    let elsewhere = pull_secret.filter(|(namespace, _)| namespace != NAMESPACE);
    let here = pull_secret.filter(|(namespace, _)| namespace == NAMESPACE).map(|(_, name)| name.as_str());
    all.extend(role(CONTROLLER, NAMESPACE, &controller_here(here)));
    if let Some((namespace, name)) = elsewhere {
        all.extend(role(CONTROLLER, namespace, &[named("", "secrets", &[name], &READ)]));
    }
    all.extend(account(SERVER));
    all.push(cluster_role(SERVER, &[server(), who_reads_metrics()].concat()));
    all.push(cluster_binding(SERVER));
    all.extend(role(SERVER, NAMESPACE, &server_here()));
    // Without tokens these two Roles have no rules: applying them removes earlier ones.
    let rules = |verbs: &[&str]| if tokens { vec![rule("", &["secrets"], verbs)] } else { vec![] };
    all.extend(role(SERVER, boot, &rules(&["get", "list", "watch", "patch"])));
    all.extend(account(OPERATOR));
    all.push(cluster_role(OPERATOR, &operator(&[provider, boot])));
    all.push(cluster_binding(OPERATOR));
    all.extend(role(OPERATOR, NAMESPACE, &operator_here()));
    // With get and patch it completes a move, see [`TOKEN_MOVE`].
    all.extend(role(OPERATOR, boot, &rules(&["get", "list", "watch", "create", "patch", "delete"])));
    let provides = [
        rule("", &["secrets"], &["list", "watch", "create", "update"]),
        // Of user data that cannot have a token.
        rule("", &["events"], &["create"]),
    ];
    all.extend(role(OPERATOR, provider, &provides));
    if tokens && !old_tokens.is_empty() {
        all.extend(moves(old_tokens));
    }
    all.extend(bootstrapper());
    all
}

/// The rules of the controller's ClusterRole. A test compares them with what its passes declare.
pub fn controller() -> Vec<Value> {
    let config = "config.openshift.io";
    vec![
        rule(GROUP, &["machineconfigs"], &["get", "list", "watch", "create", "update", "patch", "delete"]),
        rule(GROUP, &["machineconfigpools"], &["get", "list", "watch", "patch"]),
        rule(GROUP, &["controllerconfigs"], &READ),
        // Whose version it is, see `passes/version_claim.rs` of the controller, and the topology, see `rollout::topology`.
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

/// The rights to ask whose token a scraper shows, and whether he may read metrics. Nodes have them already: kubelets ask the
/// same.
fn who_reads_metrics() -> Vec<Value> {
    vec![
        rule("authentication.k8s.io", &["tokenreviews"], &["create"]),
        rule("authorization.k8s.io", &["subjectaccessreviews"], &["create"]),
    ]
}

fn controller_here(pull_secret: Option<&str>) -> Vec<Value> {
    let mut pull = vec![PULL_SECRET];
    pull.extend(pull_secret.filter(|name| *name != PULL_SECRET));
    vec![
        named("coordination.k8s.io", "leases", &[CONTROLLER], &["get", "update"]),
        // `create` cannot be limited by name.
        rule("coordination.k8s.io", &["leases"], &["create"]),
        rule("", &["events"], &["create"]),
        named("", "secrets", &pull, &READ),
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

fn server_here() -> Vec<Value> {
    vec![named("", "configmaps", &["kubeconfig-data"], &FOLLOW)]
}

fn operator(namespaces: &[&str]) -> Vec<Value> {
    vec![
        named(GROUP, "controllerconfigs", &[CONTROLLER_CONFIG], &READ),
        rule(GROUP, &["machineconfigpools"], &FOLLOW),
        named("", "namespaces", namespaces, &["get"]),
    ]
}

fn operator_here() -> Vec<Value> {
    let certificates = [api::server_tls::CA, api::server_tls::SERVING];
    let moving = [TOKEN_MOVE, TOKEN_USE];
    vec![
        named("", "configmaps", &[api::server_tls::CA], &["get", "list", "watch", "update"]),
        rule("", &["configmaps", "secrets"], &["create"]),
        // The number of controllers depends on the topology of the control plane.
        named("apps", "deployments", &[CONTROLLER], &["get", "patch"]),
        named("", "secrets", &certificates, &["get", "list", "watch", "update"]),
        // Its Role names the tokens to move. It deletes the Role in the end.
        named(RBAC, "roles", &moving, &["get", "delete"]),
        named(RBAC, "rolebindings", &moving, &["delete"]),
    ]
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

/// A Role in a namespace, and its RoleBinding to the account.
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

    /// All rules of a part, each with its namespace.
    fn rules(part: &str, tokens: bool) -> Vec<(String, Value)> {
        let roles = all(tokens, None, &[]).into_iter().filter(|o| o["metadata"]["name"] == part);
        roles
            .flat_map(|o| {
                let namespace = o["metadata"]["namespace"].as_str().unwrap_or_default().to_owned();
                let rules = o["rules"].as_array().cloned().unwrap_or_default();
                rules.into_iter().map(move |r| (namespace.clone(), r))
            })
            .collect()
    }

    fn lists(value: &Value, word: &str) -> bool {
        value.as_array().is_some_and(|all| all.iter().any(|v| v == word))
    }

    #[test]
    fn nothing_is_allowed_wholesale_and_secrets_only_by_name_or_where_nothing_else_is() {
        for part in [CONTROLLER, SERVER, OPERATOR] {
            let found = rules(part, true);
            assert!(found.len() > 3, "{part}");
            for (namespace, rule) in found {
                assert!(!rule.to_string().contains('*'), "{part}: {rule}");
                if !lists(&rule["resources"], "secrets") {
                    continue;
                }
                let reads = ["get", "list", "watch"].iter().any(|v| lists(&rule["verbs"], v));
                let own = [api::user_data::NAMESPACE, boot_token::NAMESPACE].contains(&namespace.as_str());
                assert!(
                    own || !reads || rule.get("resourceNames").is_some(),
                    "{part} in {namespace:?}: {rule}"
                );
            }
        }
    }

    #[test]
    fn without_tokens_the_server_reads_no_secret_and_writes_nothing() {
        // Reviews are questions: they are created, and nothing is kept.
        let question = |rule: &Value| rule["resources"].to_string().contains("reviews");
        for (_, rule) in rules(SERVER, false).into_iter().filter(|(_, rule)| !question(rule)) {
            let verbs = rule["verbs"].as_array().unwrap();
            assert!(verbs.iter().all(|v| READ.contains(&v.as_str().unwrap())), "{rule}");
            assert!(!rule["resources"].to_string().contains("secrets"), "{rule}");
        }
        let patch = |rule: &Value| lists(&rule["verbs"], "patch");
        let writes: Vec<_> = rules(SERVER, true).into_iter().filter(|(_, r)| patch(r)).collect();
        let places: Vec<&str> = writes.iter().map(|(namespace, _)| namespace.as_str()).collect();
        assert_eq!(places, [boot_token::NAMESPACE]);
        assert!(writes.iter().all(|(_, rule)| rule["resources"] == json!(["secrets"])), "{writes:?}");
        // Earlier rights are removed.
        let role = |o: &Value| {
            o["kind"] == "Role"
                && o["metadata"]["name"] == SERVER
                && o["metadata"]["namespace"] == boot_token::NAMESPACE
        };
        assert_eq!(all(false, None, &[]).iter().find(|o| role(o)).unwrap()["rules"], json!([]));
    }

    #[test]
    fn tokens_of_the_old_namespace_are_reached_by_name_and_only_while_there_are_some() {
        let old = ["boot-token-1".to_owned(), "boot-token-2".to_owned()];
        // The rights to Secrets of the old namespace.
        let reach = |tokens: bool, old: &[String]| -> Vec<(String, Value, Value)> {
            let all = all(tokens, None, old);
            let here = |o: &&Value| o["metadata"]["namespace"] == boot_token::OLD_NAMESPACE;
            let bound = |role: &Value| {
                let binds = |o: &&Value| o["kind"] == "RoleBinding" && o["roleRef"]["name"] == *role;
                let binding = all.iter().filter(here).find(binds).unwrap();
                binding["subjects"][0]["name"].as_str().unwrap().to_owned()
            };
            let roles = all.iter().filter(here).filter(|o| o["kind"] == "Role");
            let rules = roles.flat_map(|o| {
                let who = bound(&o["metadata"]["name"]);
                o["rules"].as_array().unwrap().iter().map(move |rule| (who.clone(), rule))
            });
            let certificates = |rule: &Value| lists(&rule["resourceNames"], api::server_tls::CA);
            rules
                .filter(|(who, rule)| who != CONTROLLER && lists(&rule["resources"], "secrets"))
                .filter(|(_, rule)| !certificates(rule) && rule["verbs"] != json!(["create"]))
                .map(|(who, rule)| (who, rule["resourceNames"].clone(), rule["verbs"].clone()))
                .collect()
        };
        assert_eq!(
            reach(true, &old),
            [
                (OPERATOR.to_owned(), json!(old), json!(["get", "patch", "delete"])),
                (SERVER.to_owned(), json!(old), json!(["get", "patch"])),
            ]
        );
        assert_eq!(reach(true, &[]), []);
        assert_eq!(reach(false, &old), []);
        // Here it completes a move; there it deletes its right to do so.
        let operator = rules(OPERATOR, true);
        let here = operator.iter().find(|(place, _)| place == boot_token::NAMESPACE).unwrap();
        assert!(["get", "create", "patch"].iter().all(|verb| lists(&here.1["verbs"], verb)), "{here:?}");
        for kind in ["roles", "rolebindings"] {
            let found = operator.iter().find(|(_, rule)| lists(&rule["resources"], kind)).unwrap();
            assert_eq!(found.1["resourceNames"], json!([TOKEN_MOVE, TOKEN_USE]));
            assert!(lists(&found.1["verbs"], "delete") && !lists(&found.1["verbs"], "create"), "{found:?}");
        }
    }

    #[test]
    fn the_controller_reads_the_one_pull_secret_that_is_named() {
        let secrets = |at: Option<(&str, &str)>| -> Vec<(String, Value)> {
            let at = at.map(|(namespace, name)| (namespace.to_owned(), name.to_owned()));
            let roles = all(true, at.as_ref(), &[])
                .into_iter()
                .filter(|o| o["kind"] == "Role" && o["metadata"]["name"] == CONTROLLER);
            let found = roles.flat_map(|o| {
                let namespace = o["metadata"]["namespace"].as_str().unwrap().to_owned();
                let rules = o["rules"].as_array().cloned().unwrap();
                rules
                    .into_iter()
                    .filter(|r| lists(&r["resources"], "secrets"))
                    .map(move |r| (namespace.clone(), r["resourceNames"].clone()))
            });
            found.collect()
        };
        let here = |names: Value| (NAMESPACE.to_owned(), names);
        assert_eq!(secrets(None), [here(json!(["pull-secret"]))]);
        assert_eq!(secrets(Some((NAMESPACE, "mine"))), [here(json!(["pull-secret", "mine"]))]);
        assert_eq!(
            secrets(Some(("openshift-config", "mine"))),
            [here(json!(["pull-secret"])), ("openshift-config".to_owned(), json!(["mine"]))]
        );
    }
}
