//! The rights of the controller: its ClusterRole, and its Role in its own namespace.
//!
//! What it is not: which rights these are. The descriptors of the controller's passes say that, and `cargo xtask gen` makes `rules.rs`
//! from them.

mod rules;

use super::PULL_SECRET;
use super::objects::{READ, rule};
use serde_json::{Value, json};

/// A rule of the controller's ClusterRole or Role.
struct Rule {
    group: &'static str,
    resources: &'static [&'static str],
    /// The names of the objects that it is limited to; empty: all objects.
    names: &'static [&'static str],
    verbs: &'static [&'static str],
}

impl Rule {
    /// With these names besides its own.
    fn value(&self, more: Option<&str>) -> Value {
        let Self { group, resources, names: own, verbs } = *self;
        let own: &[&str] = own;
        let names: Vec<&str> = own.iter().copied().chain(more).collect();
        match &names[..] {
            [] => rule(group, resources, verbs),
            names => {
                json!({"apiGroups": [group], "resources": resources, "resourceNames": names, "verbs": verbs})
            }
        }
    }
}

/// The rules of the controller's ClusterRole.
pub fn controller() -> Vec<Value> {
    rules::RULES.iter().map(|rule| rule.value(None)).collect()
}

/// The kinds of this group that the controller only reads.
pub(super) fn read_by_controller(group: &str) -> Vec<&'static str> {
    let rules = rules::RULES.iter().filter(|rule| rule.group == group && rule.verbs == READ);
    rules.flat_map(|rule| rule.resources).copied().collect()
}

/// The rules of its Role in its own namespace. `pull_secret`: the one there that the ControllerConfig names.
pub fn controller_in_namespace(pull_secret: Option<&str>) -> Vec<Value> {
    let other = pull_secret.filter(|name| *name != PULL_SECRET);
    let is_pull = |rule: &Rule| rule.resources == ["secrets"] && rule.names == [PULL_SECRET];
    rules::IN_OWN_NAMESPACE.iter().map(|rule| rule.value(other.filter(|_| is_pull(rule)))).collect()
}
