//! The example and a status keep their fields through reading and writing, and durations are parsed.

use super::*;
use crate::v1alpha1::Duration;
use serde_json::{Value, json};

const EXAMPLE: &str = include_str!("../../../../../examples/policies/rollout-policy.yaml");

/// All of `wanted` stands in `got`; what `got` has besides are defaults.
fn stands_in(wanted: &Value, got: &Value, at: &str) {
    match (wanted, got) {
        (Value::Object(fields), _) => {
            for (key, value) in fields {
                stands_in(value, &got[key], &format!("{at}.{key}"));
            }
        }
        (Value::Array(list), Value::Array(others)) => {
            assert_eq!(list.len(), others.len(), "{at}");
            list.iter().zip(others).for_each(|(a, b)| stands_in(a, b, at));
        }
        _ => assert_eq!(wanted, got, "{at}"),
    }
}

#[test]
fn the_example_round_trips() {
    let text: Value = crate::formats::yaml::from_str(EXAMPLE).unwrap();
    let policy: RolloutPolicy = crate::formats::yaml::from_str(EXAMPLE).unwrap();
    let written = serde_json::to_value(&policy).unwrap();
    stands_in(&text, &written, "");
    let again: RolloutPolicy = serde_json::from_value(written).unwrap();
    assert_eq!(again, policy);
    assert_eq!(policy.spec.gates[1].when, [When::BeforeWave, When::Soak]);
    assert_eq!(policy.spec.zones.as_ref().unwrap().topology_key, "topology.kubernetes.io/zone");
    assert_eq!(policy.spec.waves[2].approval, Approval::NotNeeded);
}

#[test]
fn a_status_round_trips() {
    let at = "2026-01-02T03:04:05Z";
    let status = json!({
        "observedGeneration": 3,
        "conditions": [{"type": "Ready", "status": "True", "lastTransitionTime": at, "reason": "AsWanted", "message": ""}],
        "currentWave": "canary",
        "pools": [{
            "name": "worker", "config": "rendered-worker-2", "proved": "rendered-worker-1", "wave": "canary", "soakUntil": at,
            "approvals": [{"wave": "tenth", "config": "rendered-worker-2", "by": "jane", "at": at}],
            "held": "gate errors fails", "gates": [{"gate": "errors", "outcome": "Failed", "message": "0.2"}],
            "baseline": [{"gate": "errors", "broken": ["0.1"]}],
            "rejected": [{"config": "rendered-worker-0", "reason": "gate errors: 0.2 is not at most 0.01", "at": at}],
        }],
    });
    let read: RolloutPolicyStatus = serde_json::from_value(status.clone()).unwrap();
    assert_eq!(serde_json::to_value(&read).unwrap(), status);
    // A stored object may lack everything; it must not end a watch.
    let bare: RolloutPolicy = crate::formats::yaml::from_str("metadata: {name: x}").unwrap();
    assert_eq!((bare.spec, bare.status), (RolloutPolicySpec::default(), None));
}

#[test]
fn durations_with_several_units_are_parsed() {
    for (text, seconds) in [
        ("30s", Some(30)),
        ("1h30m", Some(5400)),
        ("2h5s", Some(7205)),
        ("0m", Some(0)),
        ("", None),
        ("30", None),
        ("m", None),
        ("5m1h", None),
        ("1h1h", None),
        ("1d", None),
        ("99999999999999999999s", None),
    ] {
        let got = Duration(text.to_owned()).get().map(|d| d.as_secs());
        assert_eq!(got, seconds, "{text}");
    }
}
