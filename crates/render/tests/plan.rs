//! `render::plan` as tables: what is merged, what is refused and with which words, and where things come from.
//!
//! What it is not: the recorded cases (see `conformance`).
#![allow(clippy::unwrap_used, clippy::panic, clippy::needless_pass_by_value, reason = "helpers of tests")]

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
fn a_plain_file_takes_the_place_of_a_packed_one() {
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
fn a_hash_that_outlives_its_contents_is_refused_in_a_cluster_and_names_both() {
    let hash = format!("sha256-{}", "2d711642b726b04401627ca9fbac32f5c8530fb1903cc4db02258717921a4881");
    let x = json!({"source": "data:,x", "verification": {"hash": hash}});
    let all = [
        mk_file("a", json!({"path": "/etc/x", "mode": 420, "contents": x})),
        mk_file("b", json!({"path": "/etc/x", "mode": 420, "contents": {"source": "data:,y"}})),
    ];
    assert!(plan(&all[..1]).is_ok());
    let e = plan(&all).unwrap_err().to_string();
    for word in [
        "MachineConfig",
        "spec.config.storage.files[0].contents",
        "/etc/x",
        "another hash",
        "along with them",
    ] {
        assert!(e.contains(word), "no {word:?}: {e}");
    }
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

/// A MachineConfig, the kind of refusal, and words that the message must contain: the object, the path, the remedy.
#[test]
fn bad_input_is_refused_with_object_path_and_remedy() {
    let contents = |c: Value| mk_file("50-bad", json!({"path": "/etc/a", "mode": 420, "contents": c}));
    let files = |f: Value| mk_config("50-bad", json!({"storage": {"files": f}}));
    let x = json!({"source": "data:,x"});
    let zeros = format!("sha512-{}", "0".repeat(128));
    let rows: Vec<(MachineConfig, &[&str])> = vec![
        (
            contents(json!({"source": "data:;base64,@@@"})),
            &["spec.config.storage.files[0].contents.source", "base64"],
        ),
        (
            contents(json!({"source": "data:,x", "verification": {"hash": zeros}})),
            &["contents", "verification.hash"],
        ),
        (
            contents(json!({"source": "data:,x", "compression": "gzip"})),
            &["files[0].contents", "gzip", "unpack"],
        ),
        (contents(json!({"source": "data:,x", "compression": "xz"})), &["contents.compression", "gzip"]),
        (contents(json!({"source": "https://example.com/x"})), &["files[0].contents", "/etc/a", "data: URL"]),
        (contents(json!({"source": "ftp://example.com/x"})), &["contents.source", "its scheme is not known"]),
        (
            files(json!([{"path": "/a", "contents": x}, {"path": "/a", "contents": x}])),
            &["storage.files[1].path", "storage.files[0]", "keep one"],
        ),
        (files(json!([{"path": "etc/a", "contents": x}])), &["storage.files[0].path", "absolute"]),
        (files(json!([{"path": "/etc/../a", "contents": x}])), &["storage.files[0].path", "simplest form"]),
        (
            files(json!([{"path": "/a", "mode": 0o4755, "contents": x}])),
            &["storage.files[0].mode", "0o4755", "0777"],
        ),
        (
            files(json!([{"path": "/a", "mode": "0644", "contents": x}])),
            &["storage.files[0].mode", "a whole number"],
        ),
        (files(json!([{"path": "/a", "mode": 420}])), &["/a", "contents.source", "data:,"]),
        (
            mk_config(
                "50-bad",
                json!({"systemd": {"units": [{"name": "a.service"}, {"name": "a.service"}]}}),
            ),
            &["systemd.units[1]", "keep one"],
        ),
        (
            mk_config("50-bad", json!({"systemd": {"units": [{"name": "nodots"}]}})),
            &["systemd.units[0].name", ".service"],
        ),
        (
            mk_config("50-bad", json!({"systemd": {"units": [{"name": "a b.service"}]}})),
            &["units[0].name", "systemd-escape"],
        ),
        (
            mk_config(
                "50-bad",
                json!({"systemd": {"units": [{"name": "a.service", "contents": "[Unit\n"}]}}),
            ),
            &["systemd.units[0].contents", "line 1"],
        ),
        (
            mk("50-bad", json!({"extensions": ["usbguard", "nonsense"]})),
            &["spec.extensions[1]", "nonsense", "usbguard"],
        ),
        (mk("50-bad", json!({"kernelType": "fast"})), &["spec.kernelType", "realtime"]),
        (
            mk("50-bad", json!({"kernelType": "realtime", "extensions": ["kernel-devel"]})),
            &["spec.extensions[0]", "remove one"],
        ),
        (
            mk("50-bad", json!({"config": {"ignition": {"version": "3.7.0"}}})),
            &["ignition.version", "unknown version", "3.5"],
        ),
        (
            mk("50-bad", json!({"config": {"ignition": {"version": "3.6.0"}}})),
            &["ignition.version", "write 3.5.0"],
        ),
        (
            mk("50-bad", json!({"config": {"ignition": {"version": "bogus"}}})),
            &["ignition.version", "not a version"],
        ),
        (mk("50-bad", json!({"config": {}})), &["ignition.version", "is required"]),
        (mk("50-bad", json!({"config": "text"})), &["50-bad", "spec.config"]),
    ];
    for (bad, words) in rows {
        let good = mk_file("40-good", json!({"path": "/etc/good", "mode": 420, "contents": x}));
        let e = plan(&[good, bad.clone()]).unwrap_err();
        let text = e.to_string();
        assert_eq!(e.reason, Reason::Refused, "{text}");
        for word in words.iter().chain(&["pool worker", "MachineConfig 50-bad", "spec."]) {
            assert!(text.contains(word), "{word:?} is not in: {text}");
        }
        assert!(!text.contains("40-good"), "{text}");
    }
}

#[test]
fn every_broken_machine_config_of_a_pool_is_named_at_once() {
    let all = [
        mk("a", json!({"kernelType": "x"})),
        mk("b", json!({"extensions": ["y"]})),
        mk("c", json!({"config": 1})),
    ];
    let e = plan(&all).unwrap_err();
    let objects: Vec<&str> = e.findings.iter().map(|f| f.object.as_str()).collect();
    assert_eq!(objects, ["MachineConfig a", "MachineConfig b", "MachineConfig c"]);
}

#[test]
fn errors_do_not_tell_contents_or_password_hashes() {
    let secret = "U0VDUkVULVRPS0VO";
    let rows = [
        mk_file("a", json!({"path": "x", "contents": {"source": format!("data:,{secret}")}})),
        mk_file("a", json!({"path": "/x", "contents": {"source": format!("data:;base64,{secret}!")}})),
        mk_config("a", json!({"passwd": {"users": [{"name": "", "passwordHash": secret}]}})),
        mk_config("a", json!({"passwd": {"users": [{"name": "core", "passwordHash": [secret]}]}})),
    ];
    for bad in rows {
        let e = plan(&[bad]).unwrap_err();
        assert!(!format!("{e} {e:?}").contains(secret), "{e}");
    }
}

#[test]
fn a_pool_that_selects_nothing_says_so() {
    let e = plan(&[mk_role("a", "nobody", json!({}))]).unwrap_err();
    assert_eq!(e.reason, Reason::NoConfigs);
    assert!(e.to_string().contains("MachineConfigPool worker: spec.machineConfigSelector"), "{e}");
    let mut empty = pool();
    empty.spec.machine_config_selector = Some(api::k8s::LabelSelector::default());
    assert!(render::select(&empty, &[mk("a", json!({}))]).unwrap().is_empty());
}

#[test]
fn a_broken_selector_names_pool_and_path() {
    let mut broken = pool();
    broken.spec.machine_config_selector =
        serde_json::from_value(json!({"matchExpressions": [{"key": "a", "operator": "Equals"}]})).ok();
    let e = render::select(&broken, &[mk("a", json!({}))]).unwrap_err();
    assert_eq!(e.reason, Reason::Selector);
    assert!(e.to_string().contains("spec.machineConfigSelector") && e.to_string().contains("Equals"), "{e}");
}

#[test]
fn inputs_of_another_version_wait_in_a_cluster_and_pass_in_bootstrap() {
    let (pool, mut cc, versions) = (pool(), controller_config(), Versions::unknown());
    let annotations = cc.metadata.annotations.get_or_insert_default();
    annotations.insert(api::names::annotation::GENERATED_BY_VERSION.to_owned(), "v9".to_owned());
    let mc = mk("a", json!({}));
    let configs = [&mc];
    let mut inputs = Inputs::new(&pool, &configs, &cc, &versions);
    let e = render::plan(&inputs).unwrap_err();
    assert_eq!(e.reason, Reason::VersionSkew);
    assert!(e.to_string().contains("ControllerConfig machine-config-controller"), "{e}");
    inputs.mode = Mode::Bootstrap;
    assert!(render::plan(&inputs).is_ok());

    let mut old = mk("a", json!({}));
    let key = api::names::annotation::GENERATED_BY_CONTROLLER.to_owned();
    old.metadata.annotations = Some([(key.clone(), "old".to_owned())].into());
    let e = plan(&[old.clone()]).unwrap_err();
    assert_eq!(e.reason, Reason::VersionSkew);
    // A MachineConfig that nothing generates any more would block the pool for ever, so the remedy is part of the
    // message.
    assert!(
        e.to_string().contains("MachineConfig a: ")
            && e.to_string().contains("if nothing makes it any more, delete it"),
        "{e}"
    );
    old.metadata.annotations = Some([(key, String::new())].into());
    assert!(plan(&[old]).is_ok());
}

#[test]
fn an_image_of_ones_own_excludes_a_stream() {
    let (mut pool, cc, versions) = (pool(), controller_config(), Versions::unknown());
    pool.spec.os_image_stream = Some(api::v1::NamedRef { name: "s".to_owned() });
    let mc = mk("a", json!({"osImageURL": "mine@sha256:1"}));
    let e = render::plan(&Inputs::new(&pool, &[&mc], &cc, &versions)).unwrap_err();
    assert!(e.to_string().contains("spec.osImageStream"), "{e}");
}

#[test]
fn an_image_without_a_digest_is_a_warning() {
    let p = plan(&[mk("a", json!({"osImageURL": "mine:latest"}))]).unwrap();
    assert_eq!(p.warnings.len(), 1);
    assert!(p.warnings[0].to_string().starts_with("MachineConfig a: spec.osImageURL"), "{}", p.warnings[0]);
}

#[test]
fn unknown_fields_are_warnings_with_a_hint() {
    let p = plan(&[mk_config("a", json!({"storage": {"fils": []}, "nonsense": 1}))]).unwrap();
    let mut texts: Vec<String> = p.warnings.iter().map(ToString::to_string).collect();
    texts.sort();
    assert!(texts[0].contains("spec.config.nonsense"), "{texts:?}");
    assert!(texts[1].contains("spec.config.storage.fils") && texts[1].contains("\"files\""), "{texts:?}");
}

#[test]
fn enabling_a_unit_without_an_install_section_is_a_warning() {
    let of = |text: &str| {
        let units = json!([{"name": "u.service", "enabled": true, "contents": text}]);
        plan(&[mk_config("a", json!({"systemd": {"units": units}}))]).unwrap().warnings
    };
    assert!(of("[Install]\nWantedBy=multi-user.target\n").is_empty());
    let text = of("[Unit]\n")[0].to_string();
    assert!(text.contains("MachineConfig a: spec.config.systemd.units[0].enabled"), "{text}");
}

#[test]
fn what_running_machines_cannot_follow_is_refused_and_blamed() {
    let base = mk_file("00-base", json!({"path": "/etc/a", "mode": 420, "contents": {"source": "data:,a"}}));
    let rows: [(Value, Option<&str>); 14] = [
        (json!({"storage": {"disks": [{"device": "/dev/sdb", "wipeTable": true}]}}), Some("storage.disks")),
        (
            json!({"storage": {"filesystems": [{"device": "/dev/sdb", "format": "xfs"}]}}),
            Some("storage.filesystems"),
        ),
        (
            json!({"storage": {"raid": [{"name": "r", "level": "raid0", "devices": ["/dev/a"]}]}}),
            Some("storage.raid"),
        ),
        (json!({"storage": {"directories": [{"path": "/d"}]}}), None),
        (json!({"storage": {"links": [{"path": "/l", "target": "/t"}]}}), None),
        (json!({"storage": {"luks": [{"name": "l", "device": "/dev/sdb"}]}}), Some("storage.luks")),
        (
            json!({"storage": {"files": [{"path": "/f", "append": [{"source": "data:,x"}], "overwrite": false}]}}),
            Some("storage.files"),
        ),
        (
            json!({"storage": {"files": [{"path": "/run/machine-config-daemon-force", "contents": {"source": "data:,"}}]}}),
            Some("storage.files"),
        ),
        (json!({"passwd": {"groups": [{"name": "g"}]}}), Some("passwd.groups")),
        (json!({"passwd": {"users": [{"name": "core", "sshAuthorizedKeys": ["k"]}]}}), None),
        (json!({"passwd": {"users": [{"name": "bob", "sshAuthorizedKeys": ["k"]}]}}), Some("passwd.users")),
        (
            json!({"passwd": {"users": [{"name": "core", "homeDir": "/h", "sshAuthorizedKeys": ["k"]}]}}),
            Some("passwd.users"),
        ),
        (json!({"passwd": {"users": [{"name": "core"}]}}), Some("passwd.users")),
        (json!({"systemd": {"units": [{"name": "a.service", "mask": true}]}}), None),
    ];
    let current = plan(std::slice::from_ref(&base)).unwrap().rendered;
    for (sections, want) in rows {
        let all = [base.clone(), mk_config("50-new", sections.clone())];
        match (plan_in(Mode::Cluster, &all, Some(&current)), want) {
            (Ok(_), None) => {}
            (Err(e), Some(path)) => {
                let text = e.to_string();
                assert_eq!(e.reason, Reason::Irreconcilable, "{text}");
                assert!(text.contains(&format!("MachineConfig 50-new: spec.config.{path}")), "{text}");
            }
            (got, want) => panic!("{sections}: want {want:?}, got {got:?}"),
        }
    }
    let kargs =
        json!({"config": {"ignition": {"version": "3.3.0"}, "kernelArguments": {"shouldExist": ["a"]}}});
    let e = plan_in(Mode::Cluster, &[base.clone(), mk("50-new", kargs)], Some(&current)).unwrap_err();
    assert!(e.to_string().contains("spec.config.kernelArguments"), "{e}");
    let e = plan_in(Mode::Cluster, &[base, mk("50-new", json!({"fips": true}))], Some(&current)).unwrap_err();
    assert!(e.to_string().contains("MachineConfig 50-new: spec.fips"), "{e}");
}

#[test]
fn what_no_machine_can_do_is_refused_before_the_pools_first_config_too() {
    let file = |path: &str| json!({"storage": {"files": [{"path": path, "mode": 420, "contents": {"source": "data:,x"}}]}});
    let unit = |unit: Value| json!({"systemd": {"units": [unit]}});
    let masked = json!({"name": "a.service", "mask": true});
    let rows = [
        (
            unit(json!({"name": "a.service", "mask": true, "enabled": true})),
            "systemd.units[0]: a.service is masked",
        ),
        (file("/var/lib/machine-config-daemon/journal/x"), "storage.files[0].path: /var/lib"),
        (file("/etc/machine-config-daemon/currentconfig"), "storage.files[0].path: /etc"),
        (file("/run/machine-config-daemon-force"), "storage.files[0].path: /run"),
        (
            json!({"passwd": {"users": [{"name": "bob", "sshAuthorizedKeys": ["k"]}]}}),
            "passwd.users[0]: user \"bob\"",
        ),
        (json!({"passwd": {"users": [{"name": "core"}]}}), "passwd.users[0]: core has neither"),
        (
            json!({"storage": {"files": [{"path": "/a", "contents": {"source": "data:,two words"}}]}}),
            "storage.files[0].contents.source: /a: the data URL",
        ),
        (
            json!({"storage": {"files": [{"path": "/a", "contents": {"source": "data:,"}}, {"path": "/a/b", "contents": {"source": "data:,"}}]}}),
            "storage.files[1].path: /a/b: the config also wants a file at /a",
        ),
    ];
    // Another MachineConfig precedes it, so indices in the merged config differ from those in this one.
    let base = mk_config("00-base", {
        let mut all = file("/etc/a");
        all["systemd"] = unit(json!({"name": "z.service", "enabled": true}))["systemd"].clone();
        all
    });
    for (sections, want) in rows {
        let all = [base.clone(), mk_config("50-new", sections.clone())];
        let e = plan_in(Mode::Cluster, &all, None).unwrap_err();
        assert_eq!(e.reason, Reason::Refused, "{e}");
        assert!(e.to_string().contains(&format!("MachineConfig 50-new: spec.config.{want}")), "{want}: {e}");
        let before = plan_in(Mode::Bootstrap, &all, None).unwrap();
        assert!(
            before.warnings.iter().any(|w| w.to_string().contains(want)),
            "{want}: {:?}",
            before.warnings
        );
    }
    // One masks, another enables: both are named. If a later one removes the mask, the result is valid.
    let on = mk_config("60-on", unit(json!({"name": "a.service", "enabled": true})));
    let off = mk_config("50-off", unit(masked));
    let e = plan_in(Mode::Cluster, &[off.clone(), on.clone()], None).unwrap_err().to_string();
    assert!(
        e.contains("MachineConfigs 50-off, 60-on: spec.config.systemd.units[0]: a.service is masked"),
        "{e}"
    );
    // Both configure core; only one of them asks for something impossible.
    let core = |name: &str, user: Value| {
        let mut user = user;
        user["name"] = json!("core");
        mk_config(name, json!({"passwd": {"users": [user]}}))
    };
    let (key, home) = (
        core("50-key", json!({"sshAuthorizedKeys": ["k"]})),
        core("60-home", json!({"homeDir": "/h", "sshAuthorizedKeys": ["k"]})),
    );
    let e = plan_in(Mode::Cluster, &[key, home], None).unwrap_err().to_string();
    assert!(e.contains("MachineConfig 60-home: spec.config.passwd.users[0]: of core only"), "{e}");
    let again = mk_config("70-again", unit(json!({"name": "a.service", "mask": false})));
    plan_in(Mode::Cluster, &[off, on, again], None).unwrap();
}

#[test]
fn what_only_an_installer_sets_may_stand_in_a_first_config_with_a_warning() {
    let disks = mk_config("50-new", json!({"storage": {"disks": [{"device": "/dev/sdb"}]}}));
    let p = plan(std::slice::from_ref(&disks)).unwrap();
    assert_eq!(p.warnings.len(), 1, "{:?}", p.warnings);
    assert!(p.warnings[0].to_string().starts_with("MachineConfig 50-new: spec.config.storage.disks: only"));
    let current = p.rendered;
    assert!(plan_in(Mode::Cluster, &[disks], Some(&current)).unwrap().warnings.is_empty());
}

#[test]
fn a_change_that_takes_the_last_key_of_core_is_warned_of() {
    let with = |name: &str, core: Value| {
        let mut core = core;
        core["name"] = json!("core");
        mk_config(name, json!({"passwd": {"users": [core]}}))
    };
    let key = with("50-a", json!({"sshAuthorizedKeys": ["ssh-ed25519 A"]}));
    let password = with("50-b", json!({"passwordHash": "$6$a$b"}));
    let (locked, other) = (with("50-c", json!({"passwordHash": "!"})), mk("60-d", json!({"fips": false})));
    let before = |all: &[&MachineConfig]| {
        plan(&all.iter().map(|mc| (*mc).clone()).collect::<Vec<_>>()).unwrap().rendered
    };
    let rows: [(MachineConfig, &[&MachineConfig], bool); 5] = [
        (before(&[&key, &other]), &[&other], true),
        (before(&[&key, &password, &other]), &[&locked, &other], true),
        (before(&[&key, &password]), &[&key], false),
        (before(&[&key]), &[&password], false),
        (before(&[&other]), &[&locked], false),
    ];
    for (current, all, told) in rows {
        let owned: Vec<MachineConfig> = all.iter().map(|mc| (*mc).clone()).collect();
        let plan = plan_in(Mode::Cluster, &owned, Some(&current)).unwrap();
        let warned = plan.warnings.iter().find(|w| w.message.contains("can log in"));
        assert_eq!(warned.is_some(), told, "{:?}", plan.warnings);
        assert!(warned.is_none_or(|w| w.object == "MachineConfigPool worker"), "{warned:?}");
    }
}

/// A pool that an earlier version put into such a config continues to work: nothing new is asked of it.
#[test]
fn a_config_that_is_in_force_already_is_warned_of() {
    let unit = json!({"systemd": {"units": [{"name": "a.service", "mask": true, "enabled": true}]}});
    let all = [mk_config("50-new", unit)];
    let current = plan_in(Mode::Bootstrap, &all, None).unwrap().rendered;
    assert!(plan_in(Mode::Cluster, &all, None).is_err());
    assert_eq!(plan_in(Mode::Cluster, &all, Some(&current)).unwrap().warnings.len(), 1);
}

#[test]
fn an_override_lets_a_change_of_disks_pass() {
    let base = mk("00-base", json!({}));
    let current = plan(std::slice::from_ref(&base)).unwrap().rendered;
    let new = mk_config("50-new", json!({"storage": {"disks": [{"device": "/dev/sdb"}]}}));
    let (pool, cc, versions, configs) = (pool(), controller_config(), Versions::unknown(), [&base, &new]);
    let mut inputs = Inputs::new(&pool, &configs, &cc, &versions);
    inputs.current = Some(&current);
    assert!(render::plan(&inputs).is_err());
    inputs.overrides.disks = true;
    assert!(render::plan(&inputs).is_ok());
}

#[test]
fn a_config_that_is_too_large_for_one_object_is_refused_and_warned_of_before() {
    let of = |bytes: usize| {
        let source = format!("data:,{}", "x".repeat(bytes));
        plan(&[mk_file("a", json!({"path": "/a", "mode": 420, "contents": {"source": source}}))])
    };
    assert!(of(1_000_000).unwrap().warnings.is_empty());
    assert!(of(1_300_000).unwrap().warnings[0].to_string().contains("1572864"));
    let e = of(1_600_000).unwrap_err();
    assert_eq!(e.reason, Reason::TooLarge);
    assert!(e.to_string().contains("compression: gzip"), "{e}");
}

#[test]
fn provenance_says_who_set_what_and_who_lost() {
    let all = [
        mk(
            "10-a",
            json!({"kernelArguments": ["quiet"], "kernelType": "realtime", "config": {"ignition": {"version": "3.2.0"},
            "storage": {"files": [{"path": "/etc/x", "mode": 420, "contents": {"source": "data:,a"}}]},
            "passwd": {"users": [{"name": "core", "sshAuthorizedKeys": ["ssh-ed25519 AAAAC3Nza me@home"]}]},
            "systemd": {"units": [{"name": "u.service", "enabled": true, "contents": "[Unit]\n"}]}}}),
        ),
        mk_config(
            "20-b",
            json!({"storage": {"files": [{"path": "/etc/x", "contents": {"source": "data:,b"}}]},
            "systemd": {"units": [{"name": "u.service", "dropins": [{"name": "d.conf", "contents": "[Unit]\n"}]}]}}),
        ),
        mk_config(
            "30-c",
            json!({"storage": {"files": [{"path": "/etc/x", "contents": {"source": "data:,c"}}]}}),
        ),
    ];
    let p = plan(&all).unwrap();
    let of = |kind: Kind, name: &str, field: &str| {
        let mut found =
            p.provenance.0.iter().filter(|o| o.kind == kind && o.name == name && o.field == field);
        let origin = found.next().unwrap_or_else(|| panic!("{kind:?} {name} {field}"));
        (origin.set_by.clone(), origin.lost.clone())
    };
    let (none, a) = (Vec::<String>::new(), "10-a".to_owned());
    assert_eq!(of(Kind::File, "/etc/x", "contents"), ("30-c".to_owned(), vec![a.clone(), "20-b".to_owned()]));
    assert_eq!(of(Kind::File, "/etc/x", "mode"), (a.clone(), none.clone()));
    assert_eq!(of(Kind::Unit, "u.service", "contents"), (a.clone(), none.clone()));
    assert_eq!(of(Kind::Dropin, "u.service/d.conf", ""), ("20-b".to_owned(), none.clone()));
    assert_eq!(of(Kind::SshKey, "core/ssh-ed25519 …AAAC3Nza me@home", ""), (a.clone(), none.clone()));
    assert_eq!(of(Kind::KernelArgument, "quiet", ""), (a.clone(), none.clone()));
    assert_eq!(of(Kind::Scalar, "kernelType", ""), (a, none));
    assert_eq!(p.provenance.contested().count(), 1);
}

#[test]
fn a_file_that_becomes_a_link_takes_its_history_along() {
    let all = [
        mk_file("10-a", json!({"path": "/etc/x", "mode": 420, "contents": {"source": "data:,a"}})),
        mk_config("20-b", json!({"storage": {"links": [{"path": "/etc/x", "target": "/etc/y"}]}})),
    ];
    let p = plan(&all).unwrap();
    assert!(config(&p).pointer("/storage/files").is_none());
    let origins: Vec<_> = p.provenance.of("/etc/x").collect();
    assert_eq!(origins.len(), 1);
    assert_eq!((origins[0].kind, origins[0].set_by.as_str()), (Kind::Link, "20-b"));
    assert_eq!(origins[0].lost, ["10-a"]);
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
        for document in api::yaml::documents(&text).unwrap() {
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

#[test]
fn in_a_cluster_the_provenance_stands_on_the_object_and_the_name_stays_the_same() {
    let all = [mk_file("10-a", json!({"path": "/etc/x", "mode": 420, "contents": {"source": "data:,a"}}))];
    let (stored, plain) = (plan(&all).unwrap(), plan_in(Mode::Bootstrap, &all, None).unwrap());
    let key = api::names::annotation::PROVENANCE;
    let packed = &stored.rendered.metadata.annotations.as_ref().unwrap()[key];
    assert_eq!(render::Provenance::unpack(packed).unwrap(), stored.provenance);
    assert_eq!(stored.name(), plain.name());
    assert!(!plain.rendered.metadata.annotations.as_ref().unwrap().contains_key(key));
}

#[test]
fn a_config_that_only_just_fits_is_stored_without_its_provenance() {
    let mc = |bytes: usize| {
        let source = format!("data:,{}", "x".repeat(bytes));
        [mk_file("10-a", json!({"path": "/etc/x", "mode": 420, "contents": {"source": source}}))]
    };
    let room = api::names::MAX_RENDERED_BYTES
        - serde_json::to_vec(&plan_in(Mode::Bootstrap, &mc(0), None).unwrap().rendered).unwrap().len();
    let p = plan(&mc(room - 20)).unwrap();
    assert!(!p.rendered.metadata.annotations.unwrap().contains_key(api::names::annotation::PROVENANCE));
    assert_eq!(p.provenance.of("/etc/x").count(), 2);
}
