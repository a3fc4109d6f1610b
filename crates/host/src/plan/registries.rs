//! Decides whether a change of `registries.conf` could make running pods pull different images than before. Only then
//! is a drain needed before the container runtime reads it. Pure.
//!
//! Source: containers-registries.conf(5).

use std::collections::BTreeMap;

use toml::{Table, Value};

/// The only `pull-from-mirror` value with which a mirror cannot change the meaning of a tag
/// (containers-registries.conf(5)).
const DIGEST_ONLY: &str = "digest-only";

/// Why the change from `old` to `new` needs a drain. `None`: it needs none. An absent file counts as empty.
///
/// # Errors
/// `new` is not TOML. The text names the line and shows nothing of its contents.
pub(crate) fn drain_reason(old: &str, new: &str) -> Result<Option<String>, String> {
    let line = |at: usize| new.bytes().take(at).filter(|b| *b == b'\n').count() + 1;
    let new: Table = new.parse().map_err(|e: toml::de::Error| match e.span() {
        Some(span) => format!("it is not TOML, line {}", line(span.start)),
        None => "it is not TOML".to_owned(),
    })?;
    let Ok(old) = old.parse::<Table>() else {
        return Ok(Some("the old file cannot be read".to_owned()));
    };
    Ok(unsafe_change(&old, &new))
}

fn unsafe_change(old: &Table, new: &Table) -> Option<String> {
    let (was, is) = (search_list(old), search_list(new));
    if is.get(..was.len()) != Some(was.as_slice()) {
        return Some("unqualified-search-registries loses or reorders entries".to_owned());
    }
    let (was, is) = (registries(old), registries(new));
    for (key, before) in &was {
        let Some(after) = is.get(key) else { return Some(format!("registry {key} is removed")) };
        for field in ["prefix", "location"] {
            if text(before, field) != text(after, field) {
                return Some(format!("registry {key} changes its {field}"));
            }
        }
        for field in ["blocked", "insecure"] {
            if flag(before, field) != flag(after, field) {
                return Some(format!("registry {key} changes its {field}"));
            }
        }
        if let Some(why) = mirrors_changed(key, before, after) {
            return Some(why);
        }
    }
    for (key, added) in is.iter().filter(|(k, _)| !was.contains_key(*k)) {
        let mirrors = mirrors(added);
        let safe = if mirrors.is_empty() {
            flag(added, "mirror-by-digest-only")
        } else {
            mirrors.values().all(|m| text(m, "pull-from-mirror") == DIGEST_ONLY)
        };
        if !safe {
            return Some(format!("registry {key} is added and not for digests only"));
        }
    }
    None
}

fn mirrors_changed(key: &str, before: &Table, after: &Table) -> Option<String> {
    let (was, is) = (mirrors(before), mirrors(after));
    for (location, old) in &was {
        let Some(new) = is.get(location) else {
            return Some(format!("mirror {location} of registry {key} is removed"));
        };
        let pull = text(new, "pull-from-mirror");
        if text(old, "pull-from-mirror") != pull && pull != DIGEST_ONLY {
            return Some(format!("mirror {location} of registry {key} is no longer for digests only"));
        }
    }
    let added = is.iter().filter(|(l, _)| !was.contains_key(*l));
    for (location, mirror) in added {
        if text(mirror, "pull-from-mirror") != DIGEST_ONLY && !flag(after, "mirror-by-digest-only") {
            return Some(format!("mirror {location} of registry {key} is added and not for digests only"));
        }
    }
    None
}

fn search_list(t: &Table) -> Vec<&str> {
    let list = t.get("unqualified-search-registries").and_then(Value::as_array);
    list.into_iter().flatten().filter_map(Value::as_str).collect()
}

/// The registries by their prefix, or by location where there is no prefix.
fn registries(t: &Table) -> BTreeMap<&str, &Table> {
    let list = t.get("registry").and_then(Value::as_array);
    let tables = list.into_iter().flatten().filter_map(Value::as_table);
    let key = |r: &Table| matches!(r.get("prefix").and_then(Value::as_str), Some(p) if !p.is_empty());
    tables.map(|r| (text(r, if key(r) { "prefix" } else { "location" }), r)).collect()
}

fn mirrors(registry: &Table) -> BTreeMap<&str, &Table> {
    let list = registry.get("mirror").and_then(Value::as_array);
    list.into_iter().flatten().filter_map(Value::as_table).map(|m| (text(m, "location"), m)).collect()
}

fn text<'t>(t: &'t Table, key: &str) -> &'t str {
    t.get(key).and_then(Value::as_str).unwrap_or_default()
}

fn flag(t: &Table, key: &str) -> bool {
    t.get(key).and_then(Value::as_bool).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: &str = "[[registry]]\nlocation = \"a\"\n[[registry.mirror]]\nlocation = \"m\"\npull-from-mirror = \"digest-only\"\n";
    const SEARCH: &str = "unqualified-search-registries = [\"r1\", \"r2\"]\n";

    #[test]
    fn a_drain_is_needed_only_when_running_pods_could_get_other_images() {
        let plain_mirror = format!("{A}[[registry.mirror]]\nlocation = \"n\"\n");
        let digest_mirror = format!("{plain_mirror}pull-from-mirror = \"digest-only\"\n");
        let by_digest = A.replace("location = \"a\"", "location = \"a\"\nmirror-by-digest-only = true");
        let by_digest_more = format!("{by_digest}[[registry.mirror]]\nlocation = \"n\"\n");
        let blocked = A.replace("location = \"a\"", "location = \"a\"\nblocked = true");
        let prefix = A.replace("location = \"a\"", "location = \"a\"\nprefix = \"p\"");
        let only_blocked = "[[registry]]\nlocation = \"z\"\nblocked = true\n";
        let with_blocked = format!("{only_blocked}{A}");
        let appended = SEARCH.replace("\"r2\"", "\"r2\", \"r3\"");
        let shorter = "unqualified-search-registries = [\"r1\"]\n";
        let reordered = "unqualified-search-registries = [\"r2\", \"r1\"]\n";
        let cases: &[(&str, &str, &str, bool)] = &[
            ("identical", A, A, false),
            ("a registry whose mirror is for digests", "", A, false),
            ("a registry without mirrors", "", "[[registry]]\nlocation = \"a\"\n", true),
            (
                "a registry for digests without mirrors",
                "",
                "[[registry]]\nlocation = \"a\"\nmirror-by-digest-only = true\n",
                false,
            ),
            ("a registry removed", A, "", true),
            ("a mirror for digests added", A, &digest_mirror, false),
            ("one added next to a blocked one", only_blocked, &with_blocked, false),
            ("a plain mirror added", A, &plain_mirror, true),
            ("a mirror removed", &digest_mirror, A, true),
            ("a search entry removed", SEARCH, shorter, true),
            ("a search entry appended", SEARCH, &appended, false),
            ("search entries reordered", SEARCH, reordered, true),
            ("prefix changed", A, &prefix, true),
            ("blocked changed", A, &blocked, true),
            ("a plain mirror where all is by digest", &by_digest, &by_digest_more, false),
            ("a broken old file", "= x", "", true),
        ];
        for (about, old, new, want) in cases {
            let got = drain_reason(old, new).unwrap();
            assert_eq!(got.is_some(), *want, "{about}: {got:?}");
        }
    }

    #[test]
    fn registries_conf_that_is_not_toml_is_an_error() {
        assert!(drain_reason("", "[[registry]\n").is_err());
    }
}
