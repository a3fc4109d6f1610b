//! Tests of KubeletConfigs: which fields are refused, and what sets what.

use super::*;

fn read(spec: Value) -> Result<(), String> {
    KubeletConfig::read(&json!({"metadata": {"name": "k"}, "spec": spec}))
        .map(|_| ())
        .map_err(|e| e.to_string())
}

#[test]
fn fields_that_belong_to_the_cluster_are_refused_by_path() {
    for (field, value) in [
        ("cgroupDriver", json!("cgroupfs")),
        ("clusterDNS", json!(["10.0.0.1"])),
        ("clusterDomain", json!("x")),
        ("featureGates", json!({"Foo": true})),
        ("failSwapOn", json!(false)),
        ("memorySwap", json!({"swapBehavior": "NoSwap"})),
        ("maxPods", json!("many")),
        ("syncFrequency", json!("often")),
    ] {
        let e = read(json!({"kubeletConfig": {field: value}})).unwrap_err();
        assert!(e.starts_with(&format!("KubeletConfig k: spec.kubeletConfig.{field}")), "{e}");
    }
    assert_eq!(read(json!({"kubeletConfig": {"maxPods": 100}})), Ok(()));
    for (level, fits) in [(0, true), (10, true), (-1, false), (11, false)] {
        assert_eq!(read(json!({ "logLevel": level })).is_ok(), fits, "{level}");
    }
}

#[test]
fn no_error_quotes_a_value() {
    let rows = [
        json!({"machineConfigPoolSelector": "hunter2"}),
        json!({"machineConfigPoolSelector": {"matchLabels": ["hunter2"]}}),
        json!({"machineConfigPoolSelector": {"matchExpressions": [{"key": "a", "operator": "In", "values": "hunter2"}]}}),
        json!({"logLevel": "hunter2"}),
        json!({"kubeletConfig": "a: [hunter2"}),
        json!({"kubeletConfig": "hunter2"}),
        json!({"kubeletConfig": ["hunter2"]}),
        json!({"kubeletConfig": {"maxPods": "hunter2"}}),
        json!({"kubeletConfig": {"clusterDNS": "hunter2"}}),
        json!({"kubeletConfig": {"evictionHard": {"memory.available": ["hunter2"]}}}),
        json!({"kubeletConfig": {"authentication": {"x509": {"clientCAFile": {"hunter2": 1}}}}}),
        json!({"kubeletConfig": {"systemCgroups": "hunter2", "systemReservedCgroup": "hunter3"}}),
    ];
    for spec in rows {
        let error = read(spec.clone()).unwrap_err();
        assert!(error.starts_with("KubeletConfig k: spec.") && !error.contains("hunter"), "{spec}: {error}");
    }
}

fn merged(user: Value, base: Value) -> Result<Map<String, Value>, String> {
    let object = json!({"metadata": {"name": "k"}, "spec": {"kubeletConfig": user}});
    let kc = KubeletConfig::read(&object).map_err(|e| e.to_string())?;
    let base = base.as_object().cloned().unwrap_or_default();
    kc.merge(base, kc.user.clone()).map_err(|e| e.to_string())
}

#[test]
fn reserved_cpus_and_enforcement_clear_the_system_cgroup() {
    let base = json!({"systemReservedCgroup": "/system.slice", "systemCgroups": "/system.slice",
        "enforceNodeAllocatable": ["pods", "system-reserved-compressible"]});
    let m = merged(json!({"reservedSystemCPUs": "0-1"}), base.clone()).unwrap();
    assert_eq!(
        (m.get("systemReservedCgroup"), m.get("enforceNodeAllocatable")),
        (None, Some(&json!(["pods"])))
    );
    let m = merged(json!({"maxPods": 200}), base.clone()).unwrap();
    assert_eq!(m.get("systemReservedCgroup"), Some(&json!("/system.slice")));
    let m = merged(json!({"enforceNodeAllocatable": ["pods"]}), base.clone()).unwrap();
    assert_eq!(m.get("systemReservedCgroup"), None);
    assert!(merged(json!({"systemCgroups": "/foo.slice"}), base).unwrap_err().contains("systemCgroups"));
}

#[test]
fn no_time_sets_no_duration_and_is_a_grace_period_all_the_same() {
    let user =
        json!({"syncFrequency": "0m", "cpuCFSQuotaPeriod": "0s", "evictionSoftGracePeriod": {"a": "0s"}});
    let m = merged(user, json!({"syncFrequency": "1m0s", "evictionSoftGracePeriod": {"a": "1m"}})).unwrap();
    assert_eq!(
        m,
        *json!({"syncFrequency": "1m0s", "evictionSoftGracePeriod": {"a": "0s"}}).as_object().unwrap()
    );
}

#[test]
fn zero_values_set_nothing() {
    let m = merged(
        json!({"maxPods": 0, "evictionHard": {"a": "1"}}),
        json!({"maxPods": 7, "evictionHard": {"b": "2"}}),
    );
    assert_eq!(m.unwrap(), *json!({"maxPods": 7, "evictionHard": {"a": "1", "b": "2"}}).as_object().unwrap());
}
