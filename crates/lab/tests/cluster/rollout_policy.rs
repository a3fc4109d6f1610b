//! RolloutPolicies against a real API server: the CRD is accepted without a warning, its CEL rules stay within the cost limit,
//! and each contradiction is refused with its remedy.
//!
//! Not here: what the controller does with them (`followed_policies`).

use crate::product::{Cluster, lab, repository};
use serde_json::{Value, json};

/// The example with one value changed; null removes a field.
fn with(pointer: &str, value: Value) -> Value {
    let file = repository().join("examples/policies/rollout-policy.yaml");
    let mut policy: Value = api::formats::yaml::from_str(&std::fs::read_to_string(file).unwrap()).unwrap();
    policy["metadata"]["name"] = json!("changed");
    let (above, field) = pointer.rsplit_once('/').unwrap();
    let place = policy["spec"].pointer_mut(above).unwrap();
    match (place, value) {
        (Value::Object(fields), Value::Null) => drop(fields.remove(field)),
        (Value::Object(fields), value) => drop(fields.insert(field.to_owned(), value)),
        (Value::Array(list), value) => match field.parse::<usize>() {
            Ok(i) => *list.get_mut(i).unwrap() = value,
            Err(_) => list.push(value),
        },
        (other, _) => panic!("{pointer}: {other}"),
    }
    policy
}

#[tokio::test(flavor = "multi_thread")]
async fn a_rollout_policy_is_stored_and_its_contradictions_are_refused() {
    let Some(builder) = lab() else { return };
    let cluster = Cluster::start(builder).await;
    let said = cluster.mco(&["install"]).await;
    assert_eq!(said.code, 0, "{said:?}");
    for _ in 0..2 {
        let file = "deploy/crds/rolloutpolicies.machineconfig.dev.yaml";
        let said = cluster.kubectl(&["apply", "--server-side", "--force-conflicts", "-f", file]).await;
        assert_eq!((said.code, said.err.as_str()), (0, ""), "{said:?}");
    }
    let crd = "crd/rolloutpolicies.machineconfig.dev";
    let said = cluster.kubectl(&["wait", "--for", "condition=Established", "--timeout=60s", crd]).await;
    assert_eq!(said.code, 0, "{said:?}");
    let said = cluster.kubectl(&["get", crd, "-o", "json"]).await;
    let stored: Value = serde_json::from_str(&said.out).unwrap();
    let conditions = stored["status"]["conditions"].as_array().unwrap();
    let unsound = conditions.iter().find(|c| c["type"] == "NonStructuralSchema" && c["status"] == "True");
    assert_eq!(unsound, None);

    let said = cluster.kubectl(&["apply", "-f", "examples/policies/rollout-policy.yaml"]).await;
    assert_eq!((said.code, said.err.as_str()), (0, ""), "{said:?}");
    let said = cluster.kubectl(&["get", "rop"]).await;
    let lines: Vec<Vec<&str>> = said.out.lines().map(|l| l.split_whitespace().collect()).collect();
    assert_eq!(lines[0].join(" "), "NAME WAVE HELD ON-FAILURE READY REASON AGE");
    assert_eq!(lines[1][..2], ["workers", "Rollback"]);
    let policy = cluster.get("RolloutPolicy", "workers").await;
    assert_eq!(
        policy["spec"]["gates"][1]["when"],
        json!(["BeforeWave", "Soak"]),
        "defaults are the API server's"
    );
    assert_eq!(policy["spec"]["zones"]["topologyKey"], "topology.kubernetes.io/zone");
    let read: api::v1alpha1::RolloutPolicy = serde_json::from_value(policy).unwrap();
    assert_eq!(read.spec.gates.len(), 5);

    let one_wave = |wave: Value| json!([wave]);
    let gate = |more: Value| {
        let mut gate = json!({"name": "extra"});
        gate.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        gate
    };
    let ready = || json!({"type": "Ready"});
    let rows = [
        ("/pools/selector", json!({"matchLabels": {"a": "b"}}), "give either names"),
        ("/pools/names", Value::Null, "give either names"),
        ("/pools", json!({"selector": {}}), "selects no pool"),
        ("/waves/0/nodeSelector", json!({"matchLabels": {"a": "b"}}), "not both"),
        ("/waves/0/size", Value::Null, "only the last can be one"),
        ("/waves/0/size", json!("95%"), "more than 100%"),
        ("/waves/0/size", json!(0), "spec.waves[0].size"),
        ("/waves/0/size", json!("0%"), "spec.waves[0].size"),
        ("/waves/0/soak", json!("soon"), "spec.waves[0].soak"),
        ("/waves/1/name", json!("canary"), "Duplicate value"),
        ("/waves", one_wave(json!({"name": "A b"})), "spec.waves[0].name"),
        ("/gates/0/http", json!({"url": "https://a"}), "write one gate for each"),
        ("/gates/0/nodeCondition", Value::Null, "write one gate for each"),
        ("/gates/0/when", json!(["Always", "Soak"]), "write it alone"),
        ("/gates/0/timeout", json!("31s"), "longer than interval"),
        ("/gates/0/interval", json!("0s"), "must be longer than 0s"),
        ("/gates/4/when", json!(["Always"]), "runs once a node"),
        ("/gates/1/workloads/selector", json!({}), "selects no workload"),
        ("/gates/2/prometheus/bound/value", json!("a little"), "bound.value"),
        ("/gates/3/http/url", json!("https://me:pw@shop.example.com/"), "http.url"),
        ("/waves", one_wave(json!({"name": "all"})), "no wave has a soak"),
        ("/waves", one_wave(json!({"name": "all", "soak": "1m"})), ""),
        ("/gates", json!([gate(json!({"when": ["Soak"], "nodeCondition": ready()}))]), ""),
        ("/nodeDeadline", json!("0m"), "must be longer than 0s"),
        ("/windows/0/duration", json!("0h"), "must be longer than 0s"),
        ("/windows/0/cron", json!("at night"), "spec.windows[0].cron"),
        ("/windows", Value::Null, "there are none"),
        ("/freezes/0/to", json!("2026-12-19T00:00:00Z"), "the freeze never takes effect"),
        ("/maxDisruption", json!("Reboot"), "spec.maxDisruption"),
    ];
    let policies = cluster.api("RolloutPolicy");
    let dry = kube::api::PostParams { dry_run: true, ..Default::default() };
    for (pointer, value, word) in rows {
        let object = serde_json::from_value(with(pointer, value.clone())).unwrap();
        match policies.create(&dry, &object).await {
            Ok(_) => assert_eq!(word, "", "{pointer} {value} was taken"),
            Err(kube::Error::Api(status)) => {
                let told = status.code == 422 && !word.is_empty() && status.message.contains(word);
                assert!(told, "{pointer} {value}: {word}: {status:?}");
            }
            Err(error) => panic!("{error}"),
        }
    }
    // Gates that are only checked during a soak, in a policy whose waves have no soak.
    let mut never = with("/gates", json!([gate(json!({"when": ["Soak"], "nodeCondition": ready()}))]));
    for waves in [json!([{"name": "all"}]), json!([])] {
        never["spec"]["waves"] = waves;
        let refused =
            policies.create(&dry, &serde_json::from_value(never.clone()).unwrap()).await.unwrap_err();
        assert!(refused.to_string().contains("no wave has a soak"), "{refused}");
    }
    cluster.stop().await;
}
