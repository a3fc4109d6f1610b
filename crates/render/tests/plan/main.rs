//! `render::plan` as tables: what is merged, what is refused and with which words, and where things come from.
//!
//! Not here: the recorded cases (see `conformance`).
#![allow(clippy::unwrap_used, clippy::panic, clippy::needless_pass_by_value, reason = "helpers of tests")]

mod reconcilable;
mod refused;
mod stored;

use api::v1::{ControllerConfig, MachineConfig, MachineConfigPool};
use render::{Inputs, Mode, Reason, RenderError, RenderPlan, Versions, provenance::Kind};
use serde_json::{Value, json};

const ROLE: &str = "machineconfiguration.openshift.io/role";

fn mk_role(name: &str, role: &str, spec: Value) -> MachineConfig {
    serde_json::from_value(json!({"metadata": {"name": name, "labels": {ROLE: role}}, "spec": spec})).unwrap()
}

fn mk(name: &str, spec: Value) -> MachineConfig {
    mk_role(name, "worker", spec)
}

fn mk_config(name: &str, sections: Value) -> MachineConfig {
    let mut config = sections;
    config["ignition"]["version"] = json!("3.2.0");
    mk(name, json!({ "config": config }))
}

fn mk_file(name: &str, file: Value) -> MachineConfig {
    mk_config(name, json!({"storage": {"files": [file]}}))
}

fn pool() -> MachineConfigPool {
    serde_json::from_value(
        json!({"metadata": {"name": "worker", "uid": "u1"}, "spec": {"machineConfigSelector":
        {"matchExpressions": [{"key": ROLE, "operator": "In", "values": ["worker", "infra"]}]}}}),
    )
    .unwrap()
}

fn controller_config() -> ControllerConfig {
    serde_json::from_value(json!({"metadata": {"name": "machine-config-controller", "annotations":
        {"machineconfiguration.openshift.io/release-image-version": "4.20"}},
        "spec": {"baseOSContainerImage": "base@sha256:1"}}))
    .unwrap()
}

fn plan_in(
    mode: Mode,
    all: &[MachineConfig],
    current: Option<&MachineConfig>,
) -> Result<RenderPlan, RenderError> {
    let (pool, cc, versions) = (pool(), controller_config(), Versions::unknown());
    let picked = render::select(&pool, all)?;
    let mut inputs = Inputs::new(&pool, &picked, &cc, &versions);
    (inputs.mode, inputs.current) = (mode, current);
    render::plan(&inputs)
}

fn plan(all: &[MachineConfig]) -> Result<RenderPlan, RenderError> {
    plan_in(Mode::Cluster, all, None)
}

fn config(plan: &RenderPlan) -> &Value {
    plan.rendered.spec.config.as_ref().unwrap()
}

#[test]
fn one_machine_config_without_ignition_gives_the_defaults() {
    let p = plan(&[mk("a", json!({"fips": true}))]).unwrap();
    let spec = serde_json::to_value(&p.rendered.spec).unwrap();
    assert_eq!(
        spec,
        json!({"baseOSExtensionsContainerImage": "", "config": {"ignition": {"version": "3.5.0"}}, "extensions": [],
            "fips": true, "kernelArguments": [], "kernelType": "default", "osImageURL": "base@sha256:1"})
    );
    let owner = &p.rendered.metadata.owner_references.as_ref().unwrap()[0];
    assert_eq!(
        (owner.kind.as_str(), owner.name.as_str(), owner.uid.as_str()),
        ("MachineConfigPool", "worker", "u1")
    );
    let annotations = p.rendered.metadata.annotations.as_ref().unwrap();
    assert_eq!(annotations.get("machineconfiguration.openshift.io/release-image-version").unwrap(), "4.20");
}

#[test]
fn recorded_vector_5_merges_to_its_text_and_name() {
    let a = mk(
        "50-a",
        json!({"osImageURL": "dummy-image", "kernelArguments": ["a", "b"], "config":
        {"ignition": {"version": "3.2.0"}, "storage": {"files": [
            {"path": "/etc/a", "mode": 420, "contents": {"source": "data:,A"}},
            {"path": "/etc/g", "mode": 420, "contents": {"compression": "gzip", "source": "data:;base64,H4sIAAAAAAAA/w=="}},
            {"path": "/etc/base", "mode": 493, "overwrite": false, "contents": {"source": "data:,base"}}]},
        "passwd": {"users": [{"name": "core", "sshAuthorizedKeys": ["1234"]}]},
        "systemd": {"units": [{"name": "a.service", "enabled": true, "contents": "[Unit]\nDescription=A\n"}]}}}),
    );
    let b = mk(
        "60-b",
        json!({"kernelArguments": ["a"], "config":
        {"ignition": {"version": "3.4.0"}, "storage": {"files": [
            {"path": "/etc/g", "contents": {"source": "data:,plain"}},
            {"path": "/etc/new", "mode": 384, "user": {"name": "root"}, "contents": {"source": "data:,new"}}],
            "directories": [{"path": "/etc/d", "mode": 493}],
            "links": [{"path": "/etc/l", "target": "/etc/a", "hard": false}]},
        "passwd": {"users": [{"name": "core", "passwordHash": "$y$h", "sshAuthorizedKeys": ["5678", "1234"]}]},
        "systemd": {"units": [{"name": "a.service", "dropins": [{"name": "10.conf", "contents": "[Service]\nNice=1\n"}]},
            {"name": "b.service", "mask": true}]}}}),
    );
    let p = plan_in(Mode::Bootstrap, &[a, b], None).unwrap();
    let want: Value = serde_json::from_str(
        r#"{"ignition":{"version":"3.5.0"},"passwd":{"users":[{"name":"core","passwordHash":"$y$h","sshAuthorizedKeys":["1234","5678"]}]},"storage":{"directories":[{"path":"/etc/d","mode":493}],"files":[{"overwrite":true,"path":"/etc/a","contents":{"source":"data:,A"},"mode":420},{"overwrite":true,"path":"/etc/g","contents":{"source":"data:,plain"},"mode":420},{"overwrite":false,"path":"/etc/base","contents":{"source":"data:,base"},"mode":493},{"overwrite":true,"path":"/etc/new","user":{"name":"root"},"contents":{"source":"data:,new"},"mode":384}],"links":[{"path":"/etc/l","hard":false,"target":"/etc/a"}]},"systemd":{"units":[{"contents":"[Unit]\nDescription=A\n","dropins":[{"contents":"[Service]\nNice=1\n","name":"10.conf"}],"enabled":true,"name":"a.service"},{"mask":true,"name":"b.service"}]}}"#,
    )
    .unwrap();
    assert_eq!(config(&p), &want);
    assert_eq!(p.name(), "rendered-worker-a46fea0d0b76f5f85a352e0c42fedad5");
}

#[test]
fn custom_machine_configs_win_over_those_of_worker_whatever_their_names() {
    let file = |source: &str| json!({"path": "/etc/test", "mode": 420, "contents": {"source": source}});
    let of = |name: &str, role: &str, source: &str| {
        let config = json!({"ignition": {"version": "3.2.0"}, "storage": {"files": [file(source)]}});
        mk_role(name, role, json!({"config": config, "kernelArguments": [name]}))
    };
    let all = [of("zz", "worker", "data:,w"), of("aa", "infra", "data:,i"), of("bb", "worker", "data:,b")];
    let p = plan(&all).unwrap();
    assert_eq!(config(&p).pointer("/storage/files/0/contents/source"), Some(&json!("data:,i")));
    let source: Vec<&str> = p.source.iter().map(|r| r.name.as_deref().unwrap()).collect();
    assert_eq!(source, ["bb", "zz", "aa"]);
    assert_eq!(p.rendered.spec.kernel_arguments.unwrap(), ["bb", "zz", "aa"]);
}

#[test]
fn a_plain_file_replaces_a_compressed_one() {
    let gzip = "data:;base64,H4sIAAAAAAAC/6vKLChITQEAV2jC4gYAAAA=";
    let all = [
        mk_file(
            "a",
            json!({"path": "/etc/x", "mode": 420, "contents": {"source": gzip, "compression": "gzip"}}),
        ),
        mk_file("b", json!({"path": "/etc/x", "contents": {"source": "data:,plain"}})),
    ];
    let p = plan(&all).unwrap();
    let want =
        json!([{"path": "/etc/x", "mode": 420, "overwrite": true, "contents": {"source": "data:,plain"}}]);
    assert_eq!(config(&p).pointer("/storage/files"), Some(&want));
}

#[test]
fn kernel_type_image_and_fips_follow_their_own_rules() {
    let mut generated = mk("zz", json!({"osImageURL": "old@sha256:9"}));
    let key = "machineconfiguration.openshift.io/generated-by-controller-version".to_owned();
    generated.metadata.annotations = Some([(key, "was-not-built-properly".to_owned())].into());
    let all = [
        mk("a", json!({"kernelType": "realtime", "fips": true, "osImageURL": "a@sha256:1"})),
        mk("b", json!({"kernelType": "default", "osImageURL": "b@sha256:2"})),
        generated,
    ];
    let image = |all: &[MachineConfig]| plan(all).unwrap().rendered.spec.os_image_url;
    let p = plan(&all).unwrap();
    let spec = &p.rendered.spec;
    assert_eq!(
        (spec.kernel_type.as_str(), spec.fips, spec.os_image_url.as_str()),
        ("realtime", true, "b@sha256:2")
    );
    let more: Vec<_> = all.iter().cloned().chain([mk("c", json!({"osImageURL": "c@sha256:3"}))]).collect();
    assert_eq!(image(&more), "c@sha256:3");
    assert_eq!(image(&more[..1]), "a@sha256:1");
    let overridden = "machineconfiguration.openshift.io/os-image-url-overridden";
    assert_eq!(p.rendered.metadata.annotations.unwrap().get(overridden).map(String::as_str), Some("true"));
}

#[test]
fn the_same_inputs_in_any_order_give_the_same_name() {
    let all: Vec<MachineConfig> = (0..6)
        .map(|i| {
            mk_file(
                &format!("{i}"),
                json!({"path": format!("/etc/{}", i % 4), "contents": {"source": format!("data:,{i}")}}),
            )
        })
        .collect();
    let mut turned = all.clone();
    turned.reverse();
    assert_eq!(plan(&all).unwrap().rendered, plan(&turned).unwrap().rendered);
}

#[test]
fn the_shipped_examples_render_without_a_warning() {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples");
    let mut all = Vec::new();
    for entry in std::fs::read_dir(folder).unwrap().flatten().filter(|e| e.path().is_file()) {
        let text = std::fs::read_to_string(entry.path()).unwrap();
        for document in api::formats::yaml::documents(&text).unwrap() {
            if document["kind"] == "MachineConfig" {
                all.push(serde_json::from_value::<MachineConfig>(document).unwrap());
            }
        }
    }
    assert!(!all.is_empty());
    for mc in &all {
        let p = plan(std::slice::from_ref(mc)).unwrap_or_else(|e| panic!("{e}"));
        assert!(p.warnings.is_empty(), "{:?}", p.warnings);
    }
    let current = plan(&[mk("00", json!({}))]).unwrap().rendered;
    plan_in(Mode::Cluster, &all, Some(&current)).unwrap_or_else(|e| panic!("{e}"));
}
