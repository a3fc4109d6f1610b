//! What can never be rendered, and what only causes a warning.

use super::*;

#[test]
fn a_stale_hash_is_refused_in_a_cluster_and_the_error_names_both_machine_configs() {
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
        "must also set compression",
    ] {
        assert!(e.contains(word), "no {word:?}: {e}");
    }
}

/// Columns: a MachineConfig, the kind of refusal, and words that the message must contain: the object, the path, the
/// remedy.
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
        (contents(json!({"source": "ftp://example.com/x"})), &["contents.source", "its scheme is unknown"]),
        (
            files(json!([{"path": "/a", "contents": x}, {"path": "/a", "contents": x}])),
            &["storage.files[1].path", "storage.files[0]", "keep one"],
        ),
        (files(json!([{"path": "etc/a", "contents": x}])), &["storage.files[0].path", "absolute"]),
        (files(json!([{"path": "/etc/../a", "contents": x}])), &["storage.files[0].path", "simplest form"]),
        (
            files(json!([{"path": "/a", "mode": 0o4755, "contents": x}])),
            &["storage.files[0].mode", "mode 4755", "0777"],
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
            mk(
                "50-bad",
                json!({"config": {"ignition": {"version": "3.4.0"}}, "extensions": ["usbguard", "nonsense"]}),
            ),
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
        (mk("50-bad", json!({"config": {"storage": {}}})), &["ignition.version", "is required"]),
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
        mk("b", json!({"extensions": ["--reboot"]})),
        mk("c", json!({"config": 1})),
    ];
    let e = plan(&all).unwrap_err();
    let objects: Vec<&str> = e.findings.iter().map(|f| f.object.as_str()).collect();
    assert_eq!(objects, ["MachineConfig a", "MachineConfig b", "MachineConfig c"]);
}

#[test]
fn errors_do_not_quote_contents_or_password_hashes() {
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
    // A generated MachineConfig whose source is gone would block the pool for ever, so the message names the remedy.
    assert!(
        e.to_string().contains("MachineConfig a: ")
            && e.to_string().contains("if nothing generates it any more, delete it"),
        "{e}"
    );
    old.metadata.annotations = Some([(key, String::new())].into());
    assert!(plan(&[old]).is_ok());
}

#[test]
fn a_custom_image_excludes_a_stream() {
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
