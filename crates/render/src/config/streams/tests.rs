//! Tables: which stream a pool follows, and which configs ask for runc on images without it.
#![allow(clippy::needless_pass_by_value, reason = "json! values read better where they stand")]

use super::*;
use crate::{Inputs, plan};
use api::v1::{ControllerConfig, MachineConfig};
use serde_json::json;

fn pool(name: &str, stream: &str) -> MachineConfigPool {
    let role = json!({"matchExpressions": [{"key": "machineconfiguration.openshift.io/role", "operator": "Exists"}]});
    let mut spec = json!({ "machineConfigSelector": role });
    if !stream.is_empty() {
        spec["osImageStream"] = json!({ "name": stream });
    }
    serde_json::from_value(json!({"metadata": {"name": name, "uid": "u"}, "spec": spec})).unwrap()
}

fn streams(hash: Option<&str>) -> Value {
    let listed = |name: &str| json!({"name": name, "osImage": format!("{name}@os"), "osExtensionsImage": format!("{name}@ext")});
    json!({
        "metadata": {"name": "cluster", "annotations": {annotation::RELEASE_IMAGE_VERSION: hash}},
        "status": {"availableStreams": [listed("rhel-9"), listed("rhel-10")], "defaultStream": "rhel-9"},
    })
}

#[test]
fn a_pool_follows_its_own_stream_a_custom_one_that_of_worker_and_all_others_the_default() {
    let versions = Versions::unknown();
    for (name, own, worker, want) in [
        ("worker", "rhel-10", None, "rhel-10"),
        ("worker", "", None, "rhel-9"),
        ("infra", "", Some("rhel-10"), "rhel-10"),
        ("infra", "rhel-9", Some("rhel-10"), "rhel-9"),
        ("infra", "", Some(""), "rhel-9"),
        ("infra", "", None, "rhel-9"),
        ("master", "", Some("rhel-10"), "rhel-9"),
        ("arbiter", "", Some("rhel-10"), "rhel-9"),
    ] {
        let worker = worker.map(|s| pool("worker", s));
        let found = stream(&pool(name, own), worker.as_ref(), Some(&streams(None)), &versions, Mode::Cluster);
        let found = found.unwrap().unwrap();
        assert_eq!(found.name, want, "{name} {own:?}");
        let want = (format!("{want}@os"), format!("{want}@ext"));
        assert_eq!((found.images.os, found.images.extensions), want);
    }
    let none = stream(&pool("worker", ""), None, None, &versions, Mode::Cluster);
    assert_eq!(none, Ok(None), "a cluster without streams");
}

#[test]
fn what_is_not_listed_or_of_another_release_is_refused_with_its_place() {
    let versions = Versions::unknown();
    let mut empty = streams(None);
    empty["status"]["availableStreams"] = json!([]);
    let mut lost = streams(None);
    lost["status"]["defaultStream"] = json!("rhel-8");
    let other = streams(Some("another"));
    for (pool, worker, object, words) in [
        (
            pool("worker", "rhel-8"),
            None,
            Some(&empty),
            ["MachineConfigPool worker: spec.osImageStream.name", "it lists: none"],
        ),
        (
            pool("infra", ""),
            Some(pool("worker", "x")),
            Some(&lost),
            ["MachineConfigPool worker: spec.osImageStream.name", "rhel-9, rhel-10"],
        ),
        (
            pool("worker", "rhel-9"),
            None,
            None,
            ["MachineConfigPool worker: spec.osImageStream.name", "no OSImageStream cluster"],
        ),
        (
            pool("worker", ""),
            None,
            Some(&lost),
            ["OSImageStream cluster: status.defaultStream", "name one of those"],
        ),
        (pool("worker", ""), None, Some(&other), ["OSImageStream cluster: metadata.annotations", "another"]),
    ] {
        let said = stream(&pool, worker.as_ref(), object, &versions, Mode::Cluster).unwrap_err().to_string();
        assert!(words.iter().all(|w| said.contains(w)), "{said}");
    }
    let same = streams(Some(&versions.hash));
    for (object, mode) in [(&same, Mode::Cluster), (&other, Mode::Bootstrap)] {
        assert!(stream(&pool("worker", ""), None, Some(object), &versions, mode).is_ok());
    }
}

#[test]
fn a_gate_that_is_off_or_unknown_to_the_release_switches_streams_off() {
    let list = |enabled: Value, disabled: Value| json!({"status": {"featureGates": [{"version": "v", "enabled": enabled, "disabled": disabled}]}});
    let this = || json!([{"name": GATE}]);
    for (gate, off) in [
        (None, false),
        (Some(json!({})), false),
        (Some(list(this(), json!([]))), false),
        (Some(list(json!([]), this())), true),
        (Some(list(json!([{"name": "Another"}]), json!([]))), true),
        (Some(json!({"spec": {"customNoUpgrade": {"disabled": [GATE]}}})), true),
        (Some(json!({"spec": {"customNoUpgrade": {"enabled": [GATE]}}})), false),
    ] {
        assert_eq!(switched_off(gate.as_ref()), off, "{gate:?}");
    }
}

fn crio(name: &str, file: &str, text: &str, image: &str) -> MachineConfig {
    let source =
        format!("data:;base64,{}", base64::Engine::encode(&base64::engine::general_purpose::STANDARD, text));
    let file = json!({"path": format!("{CRIO}{file}"), "mode": 420, "contents": {"source": source}});
    let config = json!({"ignition": {"version": "3.4.0"}, "storage": {"files": [file]}});
    let object = json!({
        "metadata": {"name": name, "labels": {"machineconfiguration.openshift.io/role": "worker"}},
        "spec": {"config": config, "osImageURL": image},
    });
    serde_json::from_value(object).unwrap()
}

#[test]
fn runc_is_refused_where_the_streams_images_have_none_and_nowhere_else() {
    let (runc, crun) =
        ("[crio.runtime]\ndefault_runtime = \"runc\"\n", "[crio.runtime]\ndefault_runtime = \"crun\"\n");
    let level = "[crio.runtime]\nlog_level = \"debug\"\n";
    let rows: [(&str, Vec<MachineConfig>, Option<&str>); 9] = [
        ("rhel-10", vec![crio("a", "00-default", runc, "")], Some("a")),
        ("centos-10", vec![crio("a", "00-default", runc, "")], Some("a")),
        ("rhel-9", vec![crio("a", "00-default", runc, "")], None),
        ("rhel-10", vec![crio("a", "00-default", crun, "")], None),
        ("rhel-10", vec![crio("a", "00-default", level, "")], None),
        ("rhel-10", vec![crio("a", "00-default", runc, ""), crio("b", "01-x", crun, "")], None),
        ("rhel-10", vec![crio("a", "00-default", crun, ""), crio("b", "01-x", runc, "")], Some("b")),
        ("rhel-10", vec![crio("a", "01-x", runc, ""), crio("b", "02-x", level, "")], Some("a")),
        ("rhel-10", vec![crio("a", "00-default", runc, "mine@sha256:1")], None),
    ];
    for (name, configs, refused) in rows {
        let stream = Stream {
            name: name.to_owned(),
            images: OsImages { os: "os".to_owned(), extensions: String::new() },
        };
        let (pool, facts, versions) = (pool("worker", ""), ControllerConfig::default(), Versions::unknown());
        let all: Vec<&MachineConfig> = configs.iter().collect();
        let inputs = Inputs { stream: Some(&stream), ..Inputs::new(&pool, &all, &facts, &versions) };
        match (plan(&inputs), refused) {
            (Ok(plan), None) => {
                assert!(["os", "mine@sha256:1"].contains(&plan.rendered.spec.os_image_url.as_str()));
            }
            (Err(e), Some(by)) => {
                let said = e.to_string();
                let words = [
                    format!("MachineConfig {by}: spec.config.storage.files["),
                    "write crun".to_owned(),
                    name.to_owned(),
                ];
                assert!(words.iter().all(|w| said.contains(w)), "{said}");
            }
            (got, want) => panic!("{name}: {want:?}, {got:?}"),
        }
    }
}
