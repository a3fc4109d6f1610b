//! Mirrors of registries, from IDMS, ICSP and ITMS objects: one ordered list for each source. Pure.
//!
//! Source: <https://github.com/openshift/machine-config-operator/blob/HEAD/docs/ImageMirrorSetDesign.md>.

use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};

/// Which images a mirror is used for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum MirrorUse {
    /// Images referenced by digest.
    Digest,
    /// Images referenced by tag.
    Tag,
}

/// Mirrors that cannot be rendered.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{object}: {path}: {message}")]
pub struct MirrorError {
    /// The object.
    pub object: String,
    /// The field's path.
    pub path: String,
    /// The rule.
    pub message: String,
}

/// All mirrors of a cluster.
#[derive(Debug, Clone, Default)]
pub(crate) struct MirrorSets {
    /// Mirror lists by source and use, in the order of objects.
    lists: BTreeMap<String, BTreeMap<MirrorUse, Vec<Vec<String>>>>,
    /// Sources that are never contacted directly.
    never: BTreeSet<String>,
    any_object: bool,
}

/// The values of a source policy.
const NEVER: &str = "NeverContactSource";
const ALLOW: &str = "AllowContactingSource";

impl MirrorSets {
    /// Reads IDMS, ICSP and ITMS objects; others are ignored.
    pub(crate) fn read<'a>(objects: impl IntoIterator<Item = &'a Value>) -> Result<Self, MirrorError> {
        let objects: Vec<&Value> = objects.into_iter().collect();
        let mut sets = Self::default();
        let mut policies: BTreeMap<String, String> = BTreeMap::new();
        // Digest mirrors of the newer kind come before those of the older kind.
        for (kind, field, pull) in [
            ("ImageDigestMirrorSet", "imageDigestMirrors", MirrorUse::Digest),
            ("ImageContentSourcePolicy", "repositoryDigestMirrors", MirrorUse::Digest),
            ("ImageTagMirrorSet", "imageTagMirrors", MirrorUse::Tag),
        ] {
            let of_kind = |o: &&&Value| o.get("kind").and_then(Value::as_str) == Some(kind);
            for object in objects.iter().filter(of_kind) {
                sets.any_object = true;
                let name = object.pointer("/metadata/name").and_then(Value::as_str).unwrap_or_default();
                let rules = object.get("spec").and_then(|s| s.get(field)).and_then(Value::as_array);
                for (i, rule) in rules.into_iter().flatten().enumerate() {
                    sets.rule(rule, pull, &mut policies).map_err(|(part, message)| MirrorError {
                        object: format!("{kind} {name}"),
                        path: format!("spec.{field}[{i}].{part}"),
                        message,
                    })?;
                }
            }
        }
        Ok(sets)
    }

    fn rule(
        &mut self,
        rule: &Value,
        pull: MirrorUse,
        policies: &mut BTreeMap<String, String>,
    ) -> Result<(), (&'static str, String)> {
        let text = |key: &str| rule.get(key).and_then(Value::as_str).unwrap_or_default();
        let source = text("source");
        check_location(source, true).map_err(|e| ("source", e))?;
        let mirrors: Vec<String> = rule
            .get("mirrors")
            .and_then(Value::as_array)
            .into_iter()
            .flatten()
            .filter_map(Value::as_str)
            .map(str::to_owned)
            .collect();
        for mirror in &mirrors {
            check_location(mirror, false).map_err(|e| ("mirrors", e))?;
        }
        let policy = match text("mirrorSourcePolicy") {
            "" => ALLOW,
            policy => policy,
        };
        if mirrors.iter().all(|m| m == source) {
            return Ok(());
        }
        let known = policies.entry(source.to_owned()).or_insert_with(|| policy.to_owned());
        if known != policy {
            let message =
                format!("is {policy}, but another object says {known} for {source}; make them agree");
            return Err(("mirrorSourcePolicy", message));
        }
        if policy == NEVER {
            if mirrors.iter().any(|m| m == source) {
                return Err((
                    "mirrors",
                    format!("{source} must never be contacted, but is among the mirrors"),
                ));
            }
            self.never.insert(source.to_owned());
        }
        self.lists.entry(source.to_owned()).or_default().entry(pull).or_default().push(mirrors);
        Ok(())
    }

    /// Sources with mirrors, in order.
    pub(crate) fn sources(&self) -> impl Iterator<Item = &str> {
        self.lists.keys().map(String::as_str)
    }

    /// Sources that are never contacted directly.
    pub(crate) fn never_contacted(&self) -> impl Iterator<Item = &str> {
        self.never.iter().map(String::as_str)
    }

    /// Whether there is any object, even one without mirrors.
    pub(crate) fn any_object(&self) -> bool {
        self.any_object
    }

    /// The mirrors of a source, in an order that keeps the order of every list as far as possible.
    pub(crate) fn of(&self, source: &str, pull: MirrorUse) -> Vec<String> {
        let lists = self.lists.get(source).and_then(|l| l.get(&pull)).map(Vec::as_slice).unwrap_or_default();
        let mut order = sort(lists, source);
        if order.last().map(String::as_str) == Some(source) {
            order.pop();
        }
        order
    }
}

/// Checks a host (or `*.host` for a source) with port and lower-case path.
fn check_location(location: &str, wildcard: bool) -> Result<(), String> {
    let bad = |why: &str| Err(format!("{location:?} is not a repository: {why}"));
    if location.is_empty() || location.contains(char::is_whitespace) {
        return bad("it is empty or has blanks");
    }
    if let Some(rest) = location.strip_prefix("*.") {
        if !wildcard {
            return bad("a mirror cannot contain *");
        }
        return if rest.contains(['/', '*', '@']) {
            bad("after *. only a host name can stand")
        } else {
            Ok(())
        };
    }
    let (host, path) = location.split_once('/').unwrap_or((location, ""));
    let host_fits =
        !host.is_empty() && host.chars().all(|c| c.is_ascii_alphanumeric() || ".-:[]_".contains(c));
    let path_fits = path.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || "._-/".contains(c));
    match (host_fits, path_fits) {
        (false, _) => bad("its host has characters that hosts do not have"),
        (_, false) => bad("paths are lower case, without tag and digest"),
        _ => Ok(()),
    }
}

/// Sorts the nodes of all lists so that each list's order is kept; the source comes last in lists that do not contain
/// it. A cycle is broken at its first node by name.
fn sort(lists: &[Vec<String>], source: &str) -> Vec<String> {
    let mut edges: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for list in lists {
        let own = list.iter().any(|m| m == source);
        let chain: Vec<&str> = list.iter().map(String::as_str).chain((!own).then_some(source)).collect();
        chain.iter().for_each(|n| {
            edges.entry(n).or_default();
        });
        for pair in chain.windows(2) {
            if let [a, b] = pair
                && a != b
            {
                edges.entry(a).or_default().insert(b);
            }
        }
    }
    let mut waiting: BTreeMap<&str, usize> = edges.keys().map(|n| (*n, 0)).collect();
    for to in edges.values().flatten() {
        waiting.entry(to).and_modify(|n| *n += 1);
    }
    let ready: Vec<&str> = waiting.iter().filter(|(_, n)| **n == 0).map(|(node, _)| *node).collect();
    ready.iter().for_each(|n| {
        waiting.remove(n);
    });
    let mut queue: std::collections::VecDeque<&str> = ready.into_iter().collect();
    let mut order = Vec::new();
    while order.len() < edges.len() {
        let node = match queue.pop_front().or_else(|| waiting.keys().next().copied()) {
            Some(node) => node,
            None => break,
        };
        waiting.remove(node);
        order.push(node.to_owned());
        let mut freed = Vec::new();
        for to in edges.get(node).into_iter().flatten() {
            if let Some(count) = waiting.get_mut(to) {
                *count = count.saturating_sub(1);
                if *count == 0 {
                    freed.push(*to);
                }
            }
        }
        for n in freed {
            waiting.remove(n);
            queue.push_back(n);
        }
    }
    order
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lists(all: &[&[&str]]) -> Vec<Vec<String>> {
        all.iter().map(|l| l.iter().map(|s| (*s).to_owned()).collect()).collect()
    }

    #[test]
    fn the_order_of_every_list_is_kept() {
        let rows: [(&[&[&str]], &[&str]); 5] = [
            (&[&["m1", "m2"], &["m2", "m3"]], &["m1", "m2", "m3", "s"]),
            (&[&["b"], &["a"]], &["a", "b", "s"]),
            (&[&["z", "s", "a"]], &["z", "s", "a"]),
            (&[&["a", "b"], &["b", "a"]], &["a", "b", "s"]),
            (&[], &[]),
        ];
        for (input, want) in rows {
            assert_eq!(sort(&lists(input), "s"), want, "{input:?}");
        }
    }

    #[test]
    fn locations_are_hosts_with_paths() {
        for good in ["a", "a.example", "a.example:5000/x/y", "*.example.com"] {
            assert_eq!(check_location(good, true), Ok(()), "{good}");
        }
        for bad in ["", " a", "a b", "*.example.com/x", "a/B", "a/x@sha256:1", "a/x:tag"] {
            assert!(check_location(bad, true).is_err(), "{bad}");
        }
        assert!(check_location("*.example.com", false).is_err());
    }
}
