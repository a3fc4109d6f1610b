//! The objects that rights are made of: accounts, roles, bindings, and their rules.
//!
//! Source: <https://kubernetes.io/docs/reference/access-authn-authz/rbac/>.

use super::RBAC;
use api::names::NAMESPACE;
use serde_json::{Value, json};

pub(super) const READ: [&str; 3] = ["get", "list", "watch"];
pub(super) const FOLLOW: [&str; 2] = ["list", "watch"];
/// To apply an object of this name, whether it is there or not.
pub(super) const APPLY: [&str; 3] = ["get", "create", "patch"];
/// And to delete it when it is no longer wanted.
pub(super) const PRUNE: [&str; 4] = ["get", "create", "patch", "delete"];

pub(super) fn rule(group: &str, resources: &[&str], verbs: &[&str]) -> Value {
    json!({"apiGroups": [group], "resources": resources, "verbs": verbs})
}

/// The same, limited to objects with these names.
pub(super) fn named(group: &str, resource: &str, names: &[&str], verbs: &[&str]) -> Value {
    json!({"apiGroups": [group], "resources": [resource], "resourceNames": names, "verbs": verbs})
}

pub(super) fn account(name: &str) -> [Value; 1] {
    [
        json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": name, "namespace": NAMESPACE}}),
    ]
}

pub(super) fn subject(name: &str) -> Value {
    json!([{"kind": "ServiceAccount", "name": name, "namespace": NAMESPACE}])
}

pub(super) fn cluster_role(name: &str, rules: &[Value]) -> Value {
    json!({"apiVersion": format!("{RBAC}/v1"), "kind": "ClusterRole", "metadata": {"name": name}, "rules": rules})
}

pub(super) fn cluster_binding(name: &str) -> Value {
    json!({
        "apiVersion": format!("{RBAC}/v1"), "kind": "ClusterRoleBinding", "metadata": {"name": name},
        "roleRef": {"apiGroup": RBAC, "kind": "ClusterRole", "name": name}, "subjects": subject(name),
    })
}

/// A Role in a namespace, and its RoleBinding to the account.
pub(super) fn role(name: &str, namespace: &str, rules: &[Value]) -> [Value; 2] {
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
