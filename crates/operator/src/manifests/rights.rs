//! What controller, config server and operator may do in a cluster: one service account, ClusterRole and Role each, with
//! the verbs that the part uses and no others. Pure.
//!
//! What it is not: the agents' rights (see `agents`), and putting these into the cluster (see `install`). A cluster test
//! runs each part with nothing but these and looks for what was refused and for what was never used.

use crate::manifests::admission::{JOINING, joining_binding};
use crate::monitoring::{self, READER};
use api::boot_token;
use api::names::{CONTROLLER_CONFIG, GROUP, NAMESPACE};
use serde_json::{Value, json};

/// The controller's objects.
pub(crate) const CONTROLLER: &str = "machine-config-controller";
/// The config server's objects.
pub(crate) const SERVER: &str = "machine-config-server";
/// The operator's objects.
pub(crate) const OPERATOR: &str = "machine-config-operator";
/// The agents' objects.
pub(crate) const AGENT: &str = "machine-config-daemon";
/// The dashboard's objects.
pub(crate) const DASHBOARD: &str = "machine-config-dashboard";
/// What a person needs for the dashboard. Nobody has it before an administrator binds it.
pub(crate) const VIEWER: &str = "machine-config-dashboard-viewer";
/// The account of the pods that build OS images. It may do nothing in the API; on OpenShift a pod's account decides whether it
/// may run as root.
pub(crate) const BUILDER: &str = api::names::BUILDER_ACCOUNT;
/// OpenShift's own role of those who may run pods as any user.
const ANY_USER: &str = "system:openshift:scc:anyuid";
/// The account that booting machines use until they have credentials of their own.
pub(crate) const BOOTSTRAPPER: &str = "node-bootstrapper";
/// The Secret with its token, which the config server hands out.
pub(crate) const BOOTSTRAP_TOKEN: &str = "node-bootstrapper-token";

const RBAC: &str = "rbac.authorization.k8s.io";
/// The group of the Prometheus operator's kinds.
const MONITORING_GROUP: &str = "monitoring.coreos.com";
const READ: [&str; 3] = ["get", "list", "watch"];
const FOLLOW: [&str; 2] = ["list", "watch"];
/// To apply an object of this name, whether it is there or not.
const KEEP: [&str; 3] = ["get", "create", "patch"];
/// And to delete it when it is no longer wanted.
const PRUNE: [&str; 4] = ["get", "create", "patch", "delete"];
/// The group of the settings object.
const SETTINGS_GROUP: &str = "machineconfig.dev";
/// The operator's name among OpenShift's ClusterOperators.
pub(crate) const CLUSTER_OPERATOR: &str = "machine-config";
/// Kubernetes' own roles for booting machines, which the operator may bind.
const BOOTSTRAP_ROLES: [&str; 2] =
    ["system:node-bootstrapper", "system:certificates.k8s.io:certificatesigningrequests:selfnodeclient"];
/// Their bindings.
const BOOTSTRAP_BINDINGS: [&str; 2] = ["system-bootstrap-node-bootstrapper", "system-bootstrap-node-renewal"];

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

/// What the operator needs before it can run, in the order in which it must be written: namespaces, its account and rights,
/// and the rights that only an administrator can give. `pull_secret`: the one that the ControllerConfig names.
/// `old_tokens`: the boot tokens' Secrets in the old namespace. `openshift`: those of OpenShift's namespaces that there are.
pub(crate) fn installer(
    pull_secret: Option<&PullSecret>,
    old_tokens: &[String],
    openshift: &[&str],
) -> Vec<Value> {
    let (provider, boot) = (api::user_data::NAMESPACE, boot_token::NAMESPACE);
    // With a label, so that an uninstallation sees that we have made it: the API server records no owner of an object without
    // fields.
    let (label, value) = api::server_tls::MANAGED_BY;
    let namespace = |name| json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": {label: value}}});
    let mut all = vec![namespace(provider), namespace(boot)];
    all.extend(account(OPERATOR));
    all.push(cluster_role(OPERATOR, &operator(&[provider, boot])));
    all.push(cluster_binding(OPERATOR));
    all.extend(role(OPERATOR, NAMESPACE, &operator_in_namespace()));
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
    let in_namespace =
        pull_secret.filter(|(namespace, _)| namespace == NAMESPACE).map(|(_, name)| name.as_str());
    all.extend(role(CONTROLLER, NAMESPACE, &controller_in_namespace(in_namespace)));
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

/// The dashboard's account and rights, and the ClusterRole of people who look at it, in the order in which they must be written.
pub(crate) fn dashboard() -> Vec<Value> {
    let mut all = account(DASHBOARD).to_vec();
    all.push(cluster_role(DASHBOARD, &dashboard_rules()));
    all.push(cluster_binding(DASHBOARD));
    all.extend(role(DASHBOARD, boot_token::NAMESPACE, &[rule("", &["secrets"], &["list"])]));
    all.push(cluster_role(VIEWER, &viewer()));
    all
}

/// What the page shows, except boot tokens. Of kinds that can have secrets in them it shows a part: no API server serves their
/// subresource `masked`, so this is a right to the page alone.
fn viewer() -> Vec<Value> {
    let config = "config.openshift.io";
    vec![
        rule(GROUP, &["controllerconfigs/masked", "machineconfigs/masked"], &READ),
        rule("", &["events/masked", "pods/masked"], &READ),
        rule(
            GROUP,
            &[
                "containerruntimeconfigs",
                "kubeletconfigs",
                "machineconfignodes",
                "machineconfigpools",
                "machineosbuilds",
                "machineosconfigs",
                "osimagestreams",
                "pinnedimagesets",
            ],
            &READ,
        ),
        rule(SETTINGS_GROUP, &["rolloutpolicies", crate::settings_object::PLURAL], &READ),
        rule("", &["nodes"], &READ),
        rule("policy", &["poddisruptionbudgets"], &["list"]),
        // Whether the parts run, and who leads.
        named("apps", "deployments", &[CONTROLLER, OPERATOR, DASHBOARD], &["get"]),
        named("apps", "daemonsets", &[SERVER, AGENT], &["get"]),
        named("coordination.k8s.io", "leases", &[CONTROLLER, OPERATOR], &["get"]),
        rule(
            config,
            &[
                "apiservers",
                "clusterimagepolicies",
                "clusteroperators",
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
        rule("operator.openshift.io", &["imagecontentsourcepolicies", "machineconfigurations"], &["list"]),
    ]
}

/// What people see and do on the page, and the questions whether they may: nothing is done for anybody without one.
fn dashboard_rules() -> Vec<Value> {
    let mut all = viewer();
    all.push(rule(GROUP, &["controllerconfigs", "machineconfigs"], &READ));
    all.push(rule("", &["pods"], &READ));
    all.push(rule("", &["events"], &["list"]));
    all.push(rule(GROUP, &["machineconfigpools"], &["patch"]));
    all.push(rule("", &["nodes"], &["patch"]));
    all.extend(who_reads_metrics());
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
                "machineosconfigs/status",
                "machineosbuilds/status",
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
        rule(GROUP, &["machineosconfigs"], &["get", "list", "watch", "patch"]),
        rule(GROUP, &["machineosbuilds"], &["get", "list", "watch", "create", "patch", "delete"]),
        rule(GROUP, &["osimagestreams"], &["get", "list", "watch", "patch"]),
        rule(GROUP, &["pinnedimagesets"], &READ),
        rule(GROUP, &["osimagestreams/status"], &["patch"]),
        rule(SETTINGS_GROUP, &["rolloutpolicies"], &READ),
        rule(SETTINGS_GROUP, &["rolloutpolicies/status"], &["patch"]),
        // Gates of RolloutPolicies. Rights to Secrets and Jobs are for people to give, by name and namespace.
        rule("apps", &["deployments", "statefulsets", "daemonsets"], &["list"]),
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

fn controller_in_namespace(pull_secret: Option<&str>) -> Vec<Value> {
    let mut pull = vec![PULL_SECRET];
    pull.extend(pull_secret.filter(|name| *name != PULL_SECRET));
    vec![
        named("coordination.k8s.io", "leases", &[CONTROLLER], &["get", "update"]),
        // `create` cannot be limited by name.
        rule("coordination.k8s.io", &["leases"], &["create"]),
        // Of pods of image builds that do not start.
        rule("", &["events"], &["create", "list"]),
        named("", "secrets", &pull, &READ),
        // Image builds. Their names are hashes, so they cannot be limited by name.
        rule("batch", &["jobs"], &["get", "list", "watch", "create", "delete"]),
        rule("", &["configmaps"], &["get", "create", "delete"]),
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

/// The ClusterRole of the operator. It may give no right that it does not have (the API server sees to that), so it has
/// those of the parts that it installs; the other way, `escalate`, would let it give any.
fn operator(namespaces: &[&str]) -> Vec<Value> {
    let own = crate::settings_object::PLURAL;
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
        named("apiextensions.k8s.io", "customresourcedefinitions", &crds, &KEEP),
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
        named("config.openshift.io", "clusteroperators", &[CLUSTER_OPERATOR], &KEEP),
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
        named("certificates.k8s.io", "signers", &[crate::joining::SIGNER], &["approve"]),
        // To give it to who reads metrics.
        json!({"nonResourceURLs": ["/metrics"], "verbs": ["get"]}),
    ];
    for (group, plurals) in crate::definitions::kinds() {
        let plurals: Vec<&str> = plurals.iter().map(String::as_str).collect();
        rules.push(rule(&group, &plurals, &["list", "patch"]));
    }
    rules.extend(controller());
    rules.extend(server());
    rules.extend(super::agents::rules());
    rules.extend(dashboard_rules());
    rules
}

/// The operator's Role in its own namespace: what it keeps there, and the rights that it gives to the parts there.
fn operator_in_namespace() -> Vec<Value> {
    let parts = [CONTROLLER, SERVER, AGENT, DASHBOARD];
    let of_metrics = [&parts[..], &[OPERATOR]].concat().into_iter().map(monitoring::certificate);
    let of_metrics: Vec<String> = of_metrics.collect();
    let mut certificates = vec![api::server_tls::CA, api::server_tls::SERVING, monitoring::CA];
    certificates.extend(of_metrics.iter().map(String::as_str));
    let moving = [TOKEN_MOVE, TOKEN_USE];
    let mut rules = vec![
        named("", "configmaps", &[api::server_tls::CA, monitoring::CA], &["get", "list", "watch", "update"]),
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
        named("coordination.k8s.io", "leases", &[OPERATOR], &["get", "update"]),
        // Its Role names the tokens to move. It deletes the Role in the end.
        named(RBAC, "roles", &moving, &["get", "delete"]),
        named(RBAC, "rolebindings", &moving, &["delete"]),
    ];
    let accounts = [&parts[..], &[BOOTSTRAPPER, READER, BUILDER]].concat();
    let bindings = [&parts[..], &[BUILDER]].concat();
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
        (RBAC, "roles", &parts),
        (RBAC, "rolebindings", &bindings),
    ] {
        rules.push(rule(group, &[resource], &FOLLOW));
        rules.push(named(group, resource, names, &PRUNE));
    }
    rules.extend(controller_in_namespace(None));
    rules.extend(server_in_namespace());
    rules.extend(super::agents::rules_in_namespace());
    rules
}

/// In the namespace of boot tokens: those of user data, and the config server's rights. With get and patch it completes a
/// move, see [`TOKEN_MOVE`].
fn operator_at_tokens() -> Vec<Value> {
    vec![
        rule("", &["secrets"], &["get", "list", "watch", "create", "patch", "delete"]),
        rule(RBAC, &["roles", "rolebindings"], &FOLLOW),
        named(RBAC, "roles", &[SERVER, DASHBOARD], &PRUNE),
        named(RBAC, "rolebindings", &[SERVER, DASHBOARD], &PRUNE),
    ]
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
#[path = "rights_tests.rs"]
mod tests;
