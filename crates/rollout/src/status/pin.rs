//! A pool that is pinned to an earlier config (a rollback), and which configs it had before: two annotations on the
//! pool.
//!
//! A pool's config follows from its MachineConfigs, so the only lasting way back is to change those, usually in the
//! repository that they come from. Until that is done, [`own::PINNED`] keeps the pool in an older rendered config: the
//! controller names that config in `spec.configuration`, continues to render, and rolls out nothing else. GitOps tools
//! leave the annotation alone, as they do with annotations that they did not set.
//!
//! What it is not: a person's choice of a config (`mco undo`), or the writing.

use crate::view::own;
use api::k8s::Time;
use api::v1::MachineConfigPool;
use serde::{Deserialize, Serialize};

/// How many configs a pool remembers; more than are kept by default.
const REMEMBERED: usize = 20;

/// A config that a pool was in, as an entry of the record.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PastConfig {
    /// The rendered MachineConfig.
    pub config: String,
    /// Since when the pool named it; absent if that was before this was recorded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub since: Option<Time>,
}

fn note<'a>(pool: &'a MachineConfigPool, key: &str) -> Option<&'a str> {
    pool.metadata.annotations.as_ref()?.get(key).map(|text| text.trim()).filter(|text| !text.is_empty())
}

/// The config that the pool is pinned to, by name.
pub fn pinned_config(pool: &MachineConfigPool) -> Option<&str> {
    note(pool, own::PINNED)
}

/// The configs that the pool was in, oldest first. If the record cannot be read, it counts as empty.
pub fn past_configs(pool: &MachineConfigPool) -> Vec<PastConfig> {
    note(pool, own::CONFIG_HISTORY).and_then(|text| serde_json::from_str(text).ok()).unwrap_or_default()
}

/// The new value of [`own::CONFIG_HISTORY`] when the pool names another config.
pub fn history_with(pool: &MachineConfigPool, config: &str, now: &Time) -> String {
    let mut all = past_configs(pool);
    let current = &pool.spec.configuration.name;
    if !current.is_empty() && all.last().is_none_or(|last| last.config != *current) {
        all.push(PastConfig { config: current.clone(), since: None });
    }
    if all.last().is_none_or(|last| last.config != config) {
        all.push(PastConfig { config: config.to_owned(), since: Some(now.clone()) });
    }
    let from = all.len().saturating_sub(REMEMBERED);
    serde_json::to_string(&all.get(from..).unwrap_or_default()).unwrap_or_default()
}

/// The config before the current one that still exists. `existing` are the pool's rendered configs, oldest first;
/// without a record, the newest of the others is taken.
pub fn previous_config<'a>(pool: &MachineConfigPool, existing: &[&'a str]) -> Option<&'a str> {
    let current = &pool.spec.configuration.name;
    let find = |name: &str| existing.iter().copied().find(|e| *e == name && name != current);
    let past = past_configs(pool);
    // Whatever was recorded after the current one was last named does not count: the record may come from an earlier
    // controller.
    past.iter()
        .rev()
        .find_map(|p| find(&p.config))
        .or_else(|| existing.iter().rev().copied().find(|e| e != current))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn pool(current: &str, history: &str) -> MachineConfigPool {
        serde_json::from_value(json!({
            "metadata": {"name": "worker", "annotations": {own::CONFIG_HISTORY: history, own::PINNED: " "}},
            "spec": {"configuration": {"name": current}},
        }))
        .unwrap()
    }

    #[test]
    fn the_history_grows_with_each_config_and_an_unreadable_one_is_replaced() {
        let now: Time = serde_json::from_value(json!("2026-01-01T00:00:00Z")).unwrap();
        let names = |text: &str| -> Vec<String> {
            past_configs(&pool("", text)).into_iter().map(|p| p.config).collect()
        };
        let a = history_with(&pool("", ""), "a", &now);
        assert_eq!(a, r#"[{"config":"a","since":"2026-01-01T00:00:00Z"}]"#);
        let b = history_with(&pool("a", &a), "b", &now);
        assert_eq!(names(&b), ["a", "b"]);
        assert_eq!(
            names(&history_with(&pool("b", &b), "b", &now)),
            ["a", "b"],
            "the same config adds no entry"
        );
        assert_eq!(names(&history_with(&pool("b", &b), "a", &now)), ["a", "b", "a"]);
        // A pool from before this record existed, or with a damaged record.
        assert_eq!(names(&history_with(&pool("x", ""), "y", &now)), ["x", "y"]);
        assert_eq!(names(&history_with(&pool("x", "{"), "y", &now)), ["x", "y"]);
        let mut text = String::new();
        let mut current = String::new();
        for i in 0..100 {
            text = history_with(&pool(&current, &text), &format!("c{i}"), &now);
            current = format!("c{i}");
        }
        assert_eq!((names(&text).len(), names(&text)[0].as_str()), (REMEMBERED, "c80"));
        assert_eq!(pinned_config(&pool("a", "")), None, "blank says nothing");
    }

    #[test]
    fn the_previous_config_is_the_latest_other_one_that_exists() {
        let history = |names: &[&str]| {
            json!(names.iter().map(|n| json!({"config": n})).collect::<Vec<_>>()).to_string()
        };
        for (current, past, existing, want) in [
            ("b", &["a", "b"][..], &["a", "b"][..], Some("a")),
            // The pool was rolled back once: the config that it left is the previous one.
            ("a", &["a", "b", "a"], &["a", "b"], Some("b")),
            ("c", &["a", "b", "c"], &["a", "c"], Some("a")),
            ("b", &[], &["z", "a", "b"], Some("a")),
            ("b", &[], &["b"], None),
            ("", &[], &[], None),
        ] {
            assert_eq!(
                previous_config(&pool(current, &history(past)), existing),
                want,
                "{current} after {past:?}"
            );
        }
    }
}
