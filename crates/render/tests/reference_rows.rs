//! What is generated from KubeletConfigs, ContainerRuntimeConfigs and registries, with the rows of the reference's own
//! unit tests, each run through the whole of bootstrap.
//!
//! Not here: the recorded cases (see `conformance`), and what exists only in a cluster: numbers, finalizers and
//! statuses (see `generated`).
#![allow(clippy::unwrap_used, clippy::panic, clippy::needless_pass_by_value, reason = "helpers of tests")]

#[path = "common/template_folder.rs"]
mod template_folder;

use api::v1::MachineConfig;
use render::bootstrap::{Manifests, plan};
use render::{TemplateSet, Versions};
use serde_json::{Value, json};
use std::path::Path;

const MCO: &str = "machineconfiguration.openshift.io";
const KUBELET: &str = "/etc/kubernetes/kubelet.conf";

fn common() -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/conformance/common")
}

fn templates() -> TemplateSet {
    template_folder::read(&common().join("templates"))
}

/// Bootstraps a cluster with these objects in addition to those of the recorded cases.
fn made(objects: Vec<Value>) -> Result<Vec<MachineConfig>, String> {
    let mut all = vec![];
    for entry in std::fs::read_dir(common().join("base")).unwrap() {
        let text = std::fs::read_to_string(entry.unwrap().path()).unwrap();
        for document in api::formats::yaml::documents(&text).unwrap() {
            all.push(("base".to_owned(), document));
        }
    }
    all.extend(objects.into_iter().map(|o| ("row".to_owned(), o)));
    let secret =
        api::formats::yaml::from_str(&std::fs::read_to_string(common().join("pull-secret")).unwrap())
            .unwrap();
    plan(&Manifests::read(all).unwrap(), &templates(), Some(&secret), &Versions::unknown())
        .map(|o| o.machine_configs)
        .map_err(|e| e.to_string())
}

#[test]
fn a_manifest_that_does_not_fit_its_kind_is_refused_without_its_values() {
    let of = |kind: &str, spec: Value| json!({"apiVersion": format!("{MCO}/v1"), "kind": kind, "metadata": {"name": "x"}, "spec": spec});
    for (row, place) in [
        (of("MachineConfig", json!({"kernelArguments": "p=hunter2"})), "spec.kernelArguments: "),
        (of("MachineConfig", json!({"fips": "hunter2"})), "spec.fips: "),
        (of("MachineConfigPool", json!({"paused": "hunter2"})), "spec.paused: "),
        (of("ControllerConfig", json!({"proxy": "hunter2"})), "spec.proxy: "),
    ] {
        let said = Manifests::read([("row.yaml".to_owned(), row)]).unwrap_err().to_string();
        assert!(said.contains(place) && !said.contains("hunter2"), "{said}");
    }
}

fn object(kind: &str, name: &str, pool: &str, mut spec: Value) -> Value {
    let labels = json!({"matchLabels": {format!("pools.operator.{MCO}/{pool}"): ""}});
    spec["machineConfigPoolSelector"] = labels;
    json!({"apiVersion": format!("{MCO}/v1"), "kind": kind, "metadata": {"name": name}, "spec": spec})
}

/// A file of a generated MachineConfig; `None` if there is none.
fn file(all: &[MachineConfig], name: &str, path: &str) -> Option<String> {
    let mc = all
        .iter()
        .find(|mc| mc.metadata.name.as_deref() == Some(name))
        .unwrap_or_else(|| panic!("no {name}"));
    let config = ignition::parse_value(mc.spec.config.as_ref().unwrap()).unwrap().config;
    let file = config.storage.files.iter().find(|f| f.path == path)?;
    Some(String::from_utf8(file.contents.decode().unwrap()).unwrap())
}

/// These fields of the kubelet's configuration that results from a KubeletConfig for `pool`; or the error.
fn kubelet(pool: &str, spec: Value, fields: &[&str]) -> Result<Value, String> {
    let all = made(vec![object("KubeletConfig", "k", pool, spec)])?;
    let text = file(&all, &format!("99-{pool}-generated-kubelet"), KUBELET).unwrap();
    let config: Value = api::formats::yaml::from_str(&text).unwrap();
    Ok(fields.iter().map(|f| config.get(f).cloned().unwrap_or(Value::Null)).collect())
}

#[test]
fn a_forbidden_kubelet_field_is_refused_with_its_path() {
    let user = |config: Value| json!({ "kubeletConfig": config });
    for (pool, spec, place) in [
        ("worker", user(json!({"cgroupDriver": "x"})), "cgroupDriver"),
        ("worker", user(json!({"clusterDNS": ["192.0.2.1"]})), "clusterDNS"),
        ("worker", user(json!({"clusterDomain": "x"})), "clusterDomain"),
        ("worker", user(json!({"featureGates": {"A": true}})), "featureGates"),
        ("worker", user(json!({"failSwapOn": true})), "failSwapOn"),
        ("worker", user(json!({"failSwapOn": false})), "failSwapOn"),
        ("worker", user(json!({"memorySwap": {"swapBehavior": "NoSwap"}})), "memorySwap.swapBehavior"),
        ("worker", user(json!({"staticPodPath": "/some/path"})), "staticPodPath"),
        ("master", user(json!({"staticPodPath": "/some/path"})), "staticPodPath"),
        ("master", user(json!({"staticPodPath": ""})), "staticPodPath"),
        ("worker", user(json!({"maxPods": 3_000_000_000_u64})), "maxPods"),
        ("worker", user(json!({"evictionHard": {"memory.available": 5}})), "evictionHard.memory.available"),
        ("worker", user(json!({"syncFrequency": 10})), "syncFrequency"),
        (
            "worker",
            user(json!({"systemCgroups": "/a", "systemReservedCgroup": "/b"})),
            "systemReservedCgroup",
        ),
        ("worker", user(json!([1])), "spec.kubeletConfig"),
        ("worker", json!({"logLevel": -1}), "spec.logLevel"),
        ("worker", json!({"logLevel": 11}), "spec.logLevel"),
        (
            "worker",
            json!({"autoSizingReserved": true, "kubeletConfig": {"systemReserved": {"cpu": "1"}}}),
            "systemReserved",
        ),
    ] {
        let said = kubelet(pool, spec.clone(), &[]).unwrap_err();
        assert!(said.contains("KubeletConfig k: spec.") && said.contains(place), "{spec}: {said}");
    }
}

#[test]
fn a_kubelet_config_overrides_its_pools_kubelet_settings() {
    let user = |config: Value| json!({ "kubeletConfig": config });
    let tls = |kind: &str| json!({"tlsSecurityProfile": {"type": kind, kind.to_lowercase(): {}}});
    for (spec, fields, want) in [
        (user(json!({"maxPods": 100})), vec!["maxPods"], json!([100])),
        (user(json!({"MaxPods": 100, "nonsense": 1})), vec!["maxPods", "nonsense"], json!([100, null])),
        (user(json!("maxPods: 3")), vec!["maxPods"], json!([3])),
        (user(json!({"maxPods": 0, "serializeImagePulls": false})), vec!["maxPods"], json!([250])),
        (user(json!({"staticPodPath": ""})), vec!["staticPodPath"], json!([null])),
        (user(json!({"memorySwap": {}})), vec!["memorySwap"], json!([{}])),
        (user(json!({"protectKernelDefaults": false})), vec!["protectKernelDefaults"], json!([null])),
        (
            user(json!({"nodeStatusUpdateFrequency": "90s", "cpuCFSQuotaPeriod": "1m"})),
            vec!["nodeStatusUpdateFrequency", "cpuCFSQuotaPeriod"],
            json!(["1m30s", "1m0s"]),
        ),
        (
            user(json!({"reservedSystemCPUs": "0-1", "enforceNodeAllocatable": ["kube-reserved"]})),
            vec!["systemReservedCgroup", "enforceNodeAllocatable"],
            json!([null, ["pods", "kube-reserved"]]),
        ),
        (
            user(json!({"authentication": {"x509": {"clientCAFile": "/x"}}})),
            vec!["authentication"],
            json!([{"anonymous": {"enabled": false}, "webhook": {"cacheTTL": "0s"}, "x509": {"clientCAFile": "/x"}}]),
        ),
        (tls("Modern"), vec!["tlsMinVersion"], json!(["VersionTLS13"])),
        (tls("Old"), vec!["tlsMinVersion"], json!(["VersionTLS10"])),
        (json!({"tlsSecurityProfile": {"type": "Custom"}}), vec!["tlsMinVersion"], json!(["VersionTLS12"])),
        (json!({"tlsSecurityProfile": {"type": "Other"}}), vec!["tlsMinVersion"], json!(["VersionTLS12"])),
    ] {
        assert_eq!(kubelet("worker", spec.clone(), &fields), Ok(want), "{spec}");
    }
}

#[test]
fn log_level_and_reserved_sizes_have_files_of_their_own() {
    let level = "/etc/systemd/system/kubelet.service.d/20-logging.conf";
    let sizing = "/etc/node-sizing-enabled.env";
    let env = |enabled: bool, memory: &str, cpu: &str, storage: &str| {
        Some(format!(
            "NODE_SIZING_ENABLED={enabled}\nSYSTEM_RESERVED_MEMORY={memory}\nSYSTEM_RESERVED_CPU={cpu}\nSYSTEM_RESERVED_ES={storage}\n"
        ))
    };
    let reserved = |what: Value| json!({"kubeletConfig": {"systemReserved": what}});
    for (spec, path, want) in [
        (json!({"logLevel": 0}), level, Some("[Service]\nEnvironment=\"KUBELET_LOG_LEVEL=0\"\n".to_owned())),
        (
            json!({"logLevel": 10}),
            level,
            Some("[Service]\nEnvironment=\"KUBELET_LOG_LEVEL=10\"\n".to_owned()),
        ),
        (json!({"logLevel": null}), level, None),
        (json!({"autoSizingReserved": true}), sizing, env(true, "1Gi", "500m", "1Gi")),
        (json!({"autoSizingReserved": false}), sizing, env(false, "1Gi", "500m", "1Gi")),
        (reserved(json!({"cpu": "1", "memory": "2Gi"})), sizing, env(false, "2Gi", "1", "1Gi")),
        (reserved(json!({"ephemeral-storage": "3Gi"})), sizing, env(false, "1Gi", "500m", "3Gi")),
        (reserved(json!({"pid": "100"})), sizing, None),
    ] {
        let all = made(vec![object("KubeletConfig", "k", "worker", spec.clone())]).unwrap();
        assert_eq!(file(&all, "99-worker-generated-kubelet", path), want, "{spec}");
    }
}

#[test]
fn a_container_runtime_config_makes_a_file_for_each_setting() {
    let drop_in = |name: &str| format!("/etc/crio/crio.conf.d/01-ctrcfg-{name}");
    let line = |line: &str| Some(format!("[crio]\n  [crio.runtime]\n    {line}\n"));
    for (field, value, want) in [
        ("pidsLimit", json!(0), Some("[crio]\n  [crio.runtime]\n".to_owned())),
        ("pidsLimit", json!(2048), line("pids_limit = 2048")),
        ("logSizeMax", json!("8193"), line("log_size_max = 8193")),
        ("logSizeMax", json!("10G"), line("log_size_max = 10000000000")),
        ("logSizeMax", json!("1.5Mi"), line("log_size_max = 1572864")),
        ("logSizeMax", json!("-5"), line("log_size_max = -5")),
        ("logSizeMax", json!("0k"), None),
        ("logLevel", json!("debug"), line("log_level = \"debug\"")),
        ("logLevel", json!(""), None),
        ("defaultRuntime", json!("crun"), line("default_runtime = \"crun\"")),
    ] {
        let spec = json!({"containerRuntimeConfig": {field: value}});
        let all = made(vec![object("ContainerRuntimeConfig", "c", "worker", spec.clone())]).unwrap();
        assert_eq!(file(&all, "99-worker-generated-containerruntime", &drop_in(field)), want, "{spec}");
    }
    for (size, want) in
        [("8G", "size = \"8G\""), ("10240Mi", "size = \"10Gi\""), ("1.5G", "size = \"1500M\"")]
    {
        let spec = json!({"containerRuntimeConfig": {"overlaySize": size}});
        let all = made(vec![object("ContainerRuntimeConfig", "c", "worker", spec)]).unwrap();
        let storage =
            file(&all, "99-worker-generated-containerruntime", "/etc/containers/storage.conf").unwrap();
        assert!(storage.contains(want), "{size}: {storage}");
    }
    for (field, value) in [
        ("pidsLimit", json!(10)),
        ("pidsLimit", json!(-10)),
        ("pidsLimit", json!("100")),
        ("logSizeMax", json!("3k")),
        ("logSizeMax", json!("8192")),
        ("logSizeMax", json!("x")),
        ("overlaySize", json!("-1G")),
        ("logLevel", json!("loud")),
        ("defaultRuntime", json!("kata")),
        ("additionalImageStores", json!([{"path": "/var//lib/store"}])),
        ("additionalLayerStores", json!([{"path": "var/lib/store"}])),
        ("additionalArtifactStores", json!([{"path": ""}])),
    ] {
        let spec = json!({"containerRuntimeConfig": {field: value}});
        let said = made(vec![object("ContainerRuntimeConfig", "c", "worker", spec.clone())]).unwrap_err();
        assert!(
            said.contains(&format!("ContainerRuntimeConfig c: spec.containerRuntimeConfig.{field}")),
            "{spec}: {said}"
        );
    }
}

#[test]
fn bootstrap_takes_one_object_per_pool_and_none_without_a_pool() {
    for kind in ["KubeletConfig", "ContainerRuntimeConfig"] {
        let one = |name: &str, pool: &str| object(kind, name, pool, json!({}));
        let said = made(vec![one("a", "worker"), one("b", "worker")]).unwrap_err();
        assert!(said.contains(kind) && said.contains("a, b") && said.contains("worker"), "{said}");
        assert!(made(vec![one("a", "worker"), one("b", "master")]).is_ok());
        let none = made(vec![one("a", "nobody")]).unwrap();
        assert!(
            none.iter().all(|mc| !mc
                .metadata
                .name
                .as_deref()
                .unwrap()
                .ends_with("-generated-containerruntime"))
        );
    }
}

#[test]
fn the_images_of_a_stream_override_the_controller_configs() {
    let streams = |status: Value| json!({"apiVersion": format!("{MCO}/v1"), "kind": "OSImageStream", "metadata": {"name": "cluster"}, "status": status});
    let gate = json!({"apiVersion": "config.openshift.io/v1", "kind": "FeatureGate", "metadata": {"name": "cluster"},
        "status": {"featureGates": [{"version": "0.0.1-snapshot", "enabled": [{"name": "OSStreams"}], "disabled": []}]}});
    let listed = json!({"defaultStream": "s", "availableStreams": [{"name": "s", "osImage": "r/os@sha256:1", "osExtensionsImage": "r/ext@sha256:2"}]});
    let image = |objects: Vec<Value>| {
        let all = made(objects).unwrap();
        let mc = all
            .iter()
            .find(|mc| mc.metadata.name.as_deref().unwrap().starts_with("rendered-worker-"))
            .unwrap();
        mc.spec.os_image_url.clone()
    };
    let without = image(vec![]);
    assert_eq!(
        image(vec![streams(listed.clone())]),
        without,
        "the recorded cluster's gates do not know streams"
    );
    assert_eq!(image(vec![gate.clone(), streams(listed)]), "r/os@sha256:1");
    assert_eq!(image(vec![gate, streams(json!({}))]), without, "cannot look into images");
}
