//! The status of a KubeletConfig or ContainerRuntimeConfig. Pure; the clock is an argument.
//!
//! What it is not: the verdict itself.
//!
//! Source: <https://github.com/openshift/api/blob/HEAD/machineconfiguration/v1/types.go>.

use super::Kind;
use api::conditions::Condition;
use api::k8s::Time;
use serde_json::{Value, json};

/// How many former verdicts stay in the list, to show what was wrong before.
const HISTORY: usize = 3;

/// The status for a verdict, if it says something that the old one does not.
///
/// A KubeletConfig gets `Accepted`, followed by `Success` or `Failure` for readers of older releases; a
/// ContainerRuntimeConfig gets only `Success` or `Failure`. The last condition is the one that counts.
pub fn status(
    kind: Kind,
    old: Option<&Value>,
    generation: i64,
    verdict: &Result<(), String>,
    now: &Time,
) -> Option<Value> {
    let read = |key: &str| old.and_then(|s| s.get(key));
    let before: Vec<Condition> =
        read("conditions").and_then(|c| serde_json::from_value(c.clone()).ok()).unwrap_or_default();
    let (ok, message) = match verdict {
        Ok(()) => (true, "Success".to_owned()),
        Err(e) => (false, format!("Error: {e}")),
    };
    let is_legacy = |c: &Condition| matches!(c.type_.as_str(), "Success" | "Failure");
    let legacy = Condition::new(if ok { "Success" } else { "Failure" }, true, "", message.clone());
    let (mut list, last) = match kind {
        Kind::KubeletConfig => {
            let list: Vec<Condition> = before.iter().filter(|c| !is_legacy(c)).cloned().collect();
            (list, Condition::new("Accepted", ok, "", message))
        }
        Kind::ContainerRuntimeConfig => (before.clone(), legacy.clone()),
    };
    let same =
        |a: &Condition, b: &Condition| (&a.type_, &a.status, &a.message) == (&b.type_, &b.status, &b.message);
    let timed = |mut condition: Condition| {
        condition.last_transition_time = Some(now.clone());
        condition
    };
    if !list.last().is_some_and(|c| same(c, &last)) {
        list.push(timed(last));
    }
    list.drain(..list.len().saturating_sub(HISTORY));
    if kind == Kind::KubeletConfig {
        let known = before.iter().rev().find(|c| same(c, &legacy)).cloned();
        list.push(known.unwrap_or_else(|| timed(legacy)));
    }
    let unchanged = list == before && read("observedGeneration").and_then(Value::as_i64) == Some(generation);
    (!unchanged).then(|| json!({"observedGeneration": generation, "conditions": list}))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(s: &str) -> Time {
        serde_json::from_value(json!(s)).unwrap()
    }

    fn types(status: &Value) -> Vec<String> {
        let all = status["conditions"].as_array().unwrap();
        all.iter()
            .map(|c| format!("{}={} {}", c["type"], c["status"], c["message"]).replace('"', ""))
            .collect()
    }

    #[test]
    fn verdicts_are_kept_and_written_only_when_they_change() {
        let (one, two) = (at("2026-01-01T00:00:00Z"), at("2026-01-02T00:00:00Z"));
        let kind = Kind::KubeletConfig;
        let first = status(kind, None, 1, &Err("a".to_owned()), &one).unwrap();
        assert_eq!(types(&first), ["Accepted=False Error: a", "Failure=True Error: a"]);
        assert_eq!(status(kind, Some(&first), 1, &Err("a".to_owned()), &two), None);
        let again = status(kind, Some(&first), 2, &Err("a".to_owned()), &two).unwrap();
        assert_eq!(again["conditions"], first["conditions"], "a new generation of the same fault");
        let second = status(kind, Some(&first), 2, &Ok(()), &two).unwrap();
        assert_eq!(
            types(&second),
            ["Accepted=False Error: a", "Accepted=True Success", "Success=True Success"]
        );
        assert_eq!(second["observedGeneration"], 2);
        let mut last = second;
        for text in ["b", "c", "d"] {
            last = status(kind, Some(&last), 2, &Err(text.to_owned()), &two).unwrap();
        }
        assert_eq!(
            types(&last)[..3],
            ["Accepted=False Error: b", "Accepted=False Error: c", "Accepted=False Error: d"]
        );
        assert_eq!(last["conditions"].as_array().unwrap().len(), 4);
        let runtime = status(Kind::ContainerRuntimeConfig, None, 1, &Ok(()), &one).unwrap();
        assert_eq!(types(&runtime), ["Success=True Success"]);
        assert_eq!(status(Kind::ContainerRuntimeConfig, Some(&runtime), 1, &Ok(()), &two), None);
    }
}
