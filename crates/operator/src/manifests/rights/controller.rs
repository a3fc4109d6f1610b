//! The rights of the controller: its ClusterRole, and its Role in its own namespace.
//!
//! What it is not: which rights its passes need. Their descriptors say that, and `cargo xtask gen` makes `rules.rs` from them.

mod rules;

use super::objects::{READ, named, rule};
use super::{CONTROLLER, PULL_SECRET};
use api::names::PUSHED_IMAGES;
use serde_json::{Value, json};

/// A rule of the controller's ClusterRole.
struct Rule {
    group: &'static str,
    resources: &'static [&'static str],
    /// The names of the objects that it is limited to; empty: all objects.
    names: &'static [&'static str],
    verbs: &'static [&'static str],
}

/// The rules of the controller's ClusterRole.
pub fn controller() -> Vec<Value> {
    let value = |Rule { group, resources, names, verbs }: &Rule| match names {
        [] => rule(group, resources, verbs),
        names => {
            json!({"apiGroups": [group], "resources": resources, "resourceNames": names, "verbs": verbs})
        }
    };
    rules::RULES.iter().map(value).collect()
}

/// The kinds of this group that the controller only reads.
pub(super) fn read_by_controller(group: &str) -> Vec<&'static str> {
    let rules = rules::RULES.iter().filter(|rule| rule.group == group && rule.verbs == READ);
    rules.flat_map(|rule| rule.resources).copied().collect()
}

pub(super) fn controller_in_namespace(pull_secret: Option<&str>) -> Vec<Value> {
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
        // The list of what builds have pushed. The right to read push secrets is in a Role of its own, see `push_secrets`.
        named("", "configmaps", &[PUSHED_IMAGES], &["patch"]),
    ]
}
