//! The rules of the controller's ClusterRole, and of its Role in its own namespace, made from the descriptors of its passes. `operator`
//! compiles them in: it may not know `controller`.
//!
//! What it is not: the rights to Secrets that other objects name, which `operator` adds.

use controller::{Place, Right};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

/// The file of `operator` that has the rules.
pub(crate) const FILE: &str = "crates/operator/src/manifests/rights/controller/rules.rs";

/// The opening of that file.
const HEAD: &str = "\
//! The rules of the controller's ClusterRole, and of its Role in its own namespace. Made by `cargo xtask gen` from the descriptors in
//! crates/controller/src/passes; do not edit.
//!
//! What it is not: the reasons for these rights, which stand in the descriptors.

use super::Rule;

";

/// The tables in that file.
const TABLES: [(Place, &str); 2] = [(Place::Cluster, "RULES"), (Place::OwnNamespace, "IN_OWN_NAMESPACE")];

/// The verbs in the order in which people write them. Others come after them, by name.
const VERBS: [&str; 7] = ["get", "list", "watch", "create", "update", "patch", "delete"];

/// A rule of a ClusterRole. Sorted by group and resources.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Rule {
    group: &'static str,
    resources: Vec<String>,
    /// Empty: all objects.
    names: Vec<&'static str>,
    verbs: Vec<&'static str>,
}

/// The text of [`FILE`].
pub(crate) fn text() -> String {
    let rights = controller::rights();
    let table = |(place, name): (Place, &str)| {
        let of_place: Vec<Right> = rights.iter().filter(|right| right.place == place).copied().collect();
        table(name, &of_place)
    };
    HEAD.to_owned() + &TABLES.map(table).join("\n")
}

fn table(name: &str, rights: &[Right]) -> String {
    // rustfmt would join short lists.
    let mut text = format!("#[rustfmt::skip]\npub(super) const {name}: &[Rule] = &[\n");
    for Rule { group, resources, names, verbs } in rules(rights) {
        let _ = write!(text, "    Rule {{\n        group: {group:?},\n        resources: &[");
        match &resources[..] {
            [resource] => {
                let _ = write!(text, "{resource:?}");
            }
            several => {
                for resource in several {
                    let _ = write!(text, "\n            {resource:?},");
                }
                text.push_str("\n        ");
            }
        }
        let _ = writeln!(text, "],\n        names: &{names:?},\n        verbs: &{verbs:?},\n    }},");
    }
    text + "];\n"
}

/// One rule for all kinds of a group with the same verbs and names.
fn rules(rights: &[Right]) -> Vec<Rule> {
    let mut verbs: BTreeMap<(&str, String, BTreeSet<&str>), BTreeSet<&str>> = BTreeMap::new();
    for right in rights {
        let names = right.names.iter().copied().collect();
        verbs.entry((right.group, right.resource(), names)).or_default().insert(right.verb);
    }
    let mut resources: BTreeMap<_, Vec<String>> = BTreeMap::new();
    for ((group, resource, names), verbs) in verbs {
        resources.entry((group, names, verbs)).or_default().push(resource);
    }
    let place = |verb: &&str| VERBS.iter().position(|v| v == verb).unwrap_or(VERBS.len());
    let rule = |((group, names, verbs), resources): ((_, BTreeSet<_>, BTreeSet<_>), _)| {
        let mut verbs: Vec<_> = verbs.into_iter().collect();
        verbs.sort_by_key(place);
        Rule { group, resources, names: names.into_iter().collect(), verbs }
    };
    let mut rules: Vec<_> = resources.into_iter().map(rule).collect();
    rules.sort();
    rules
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::Value;

    const fn right(verb: &'static str, plural: &'static str, names: &'static [&'static str]) -> Right {
        Right { place: Place::Cluster, group: "", plural, subresource: "", verb, names }
    }

    fn written(rights: &[Right]) -> Vec<String> {
        let text = |r: &Rule| match r.names.join(",") {
            names if names.is_empty() => format!("{}: {}", r.resources.join(","), r.verbs.join(",")),
            names => format!("{} {names}: {}", r.resources.join(","), r.verbs.join(",")),
        };
        rules(rights).iter().map(text).collect()
    }

    #[test]
    fn kinds_with_the_same_verbs_share_a_rule_and_names_and_groups_keep_them_apart() {
        let cases: [(&[Right], &[&str]); 6] = [
            (&[], &[]),
            (
                &[right("patch", "a", &[]), right("get", "a", &[]), right("patch", "a", &[])],
                &["a: get,patch"],
            ),
            (&[right("get", "b", &[]), right("get", "a", &[])], &["a,b: get"]),
            (&[right("get", "b", &[]), right("list", "a", &[])], &["a: list", "b: get"]),
            // A right by name never grows to one to all objects, nor to another verb.
            (&[right("patch", "a", &["n"]), right("get", "a", &[])], &["a: get", "a n: patch"]),
            (&[right("approve", "a", &[]), right("delete", "a", &[])], &["a: delete,approve"]),
        ];
        for (rights, expected) in cases {
            assert_eq!(written(rights), expected, "{rights:?}");
            let backwards: Vec<Right> = rights.iter().rev().copied().collect();
            assert_eq!(written(&backwards), expected, "the order of passes is of no account");
        }
        let other = Right { group: "g", ..right("get", "a", &[]) };
        assert_eq!(rules(&[other, right("get", "a", &[])]).len(), 2);
        let status = Right { subresource: "status", ..right("get", "a", &[]) };
        assert_eq!(written(&[status]), ["a/status: get"]);
    }

    /// Of the tables that are compiled in, in both directions: `gen --check` compares the texts, this the rights.
    #[test]
    fn the_controllers_roles_allow_what_it_needs_and_nothing_else() {
        let texts = |rule: &Value, key: &str| -> Vec<String> {
            serde_json::from_value(rule.get(key).cloned().unwrap_or_default()).unwrap_or_default()
        };
        let mut allowed = BTreeSet::new();
        for (place, rules) in [
            (Place::Cluster, operator::controller_rules()),
            (Place::OwnNamespace, operator::controller_rules_in_namespace(None)),
        ] {
            for rule in rules {
                let names = texts(&rule, "resourceNames");
                for group in texts(&rule, "apiGroups") {
                    for resource in texts(&rule, "resources") {
                        let verbs = texts(&rule, "verbs").into_iter();
                        allowed.extend(
                            verbs.map(|verb| format!("{place:?}: {verb} {resource} {names:?} of {group:?}")),
                        );
                    }
                }
            }
        }
        let text =
            |r: &Right| format!("{:?}: {} {} {:?} of {:?}", r.place, r.verb, r.resource(), r.names, r.group);
        let needed: BTreeSet<String> = controller::rights().iter().map(text).collect();
        let lacking: Vec<_> = needed.difference(&allowed).collect();
        let idle: Vec<_> = allowed.difference(&needed).collect();
        assert!(
            lacking.is_empty() && idle.is_empty(),
            "run `cargo xtask gen`. Needed and not allowed: {lacking:?}; allowed for nothing: {idle:?}"
        );
    }
}
