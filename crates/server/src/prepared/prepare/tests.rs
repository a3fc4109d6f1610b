//! Tables for `prepare`.

use super::*;

fn mk_config(config: Value) -> Source {
    let mut machine_config = MachineConfig::new("rendered-worker-1", api::v1::MachineConfigSpec::default());
    machine_config.spec.config = Some(config);
    Source {
        pool: "worker".to_owned(),
        rendered: Arc::new(Rendered::new(machine_config)),
        mode: Mode::Cluster,
        kubelet_ca: b"CA\n".to_vec(),
        cloud_ca: Vec::new(),
        kubeconfig: b"kind: Config\n".to_vec(),
        registry_certificates: Vec::new(),
        layered_image: None,
    }
}

fn mk_empty() -> Source {
    mk_config(json!({"ignition": {"version": "3.5.0"}}))
}

fn served(source: &Source, version: Version) -> Value {
    serde_json::from_slice(&prepare(source, version).unwrap().body).unwrap()
}

/// The decoded contents of a served file.
fn content(config: &Value, path: &str) -> String {
    let files = config["storage"]["files"].as_array().unwrap();
    let all: Vec<_> = files.iter().filter(|f| f["path"] == path).collect();
    assert_eq!(all.len(), 1, "{path} stands once in {config}");
    String::from_utf8(ignition::data_url::decode(all[0]["contents"]["source"].as_str().unwrap()).unwrap())
        .unwrap()
}

fn json_file(config: &Value, path: &str) -> Value {
    serde_json::from_str(&content(config, path)).unwrap()
}

#[test]
fn the_data_url_is_escaped_as_the_reference_does() {
    assert_eq!(ignition::data_url::encode(b"Hello, world!"), "data:,Hello%2C%20world!");
}

#[test]
fn an_empty_config_in_2_2_is_32_bytes() {
    let value = ignition::translate(&ignition::empty(), Version::V2_2).unwrap();
    assert_eq!(
        finish(value, Version::V2_2, Vec::new()).unwrap().body,
        br#"{"ignition":{"version":"2.2.0"}}"#
    );
}

#[test]
fn every_version_that_is_served_gets_the_files_of_the_first_boot() {
    for version in SERVED {
        let config = served(&mk_empty(), version);
        assert_eq!(config["ignition"]["version"], version.as_str());
        let paths: Vec<_> =
            config["storage"]["files"].as_array().unwrap().iter().map(|f| &f["path"]).collect();
        assert_eq!(
            paths,
            [KUBELET_CA, NODE_ANNOTATIONS, KUBECONFIG, SERVED_CONFIG, ENCAPSULATED],
            "{version}"
        );
        assert_eq!(content(&config, KUBECONFIG), "kind: Config\n");
        assert_eq!(json_file(&config, SERVED_CONFIG)["metadata"]["name"], "rendered-worker-1");
        let annotations = json_file(&config, NODE_ANNOTATIONS);
        assert_eq!(annotations[annotation::CURRENT_CONFIG], "rendered-worker-1");
        assert_eq!(annotations[annotation::STATE], "Done");
        assert_eq!(annotations.as_object().unwrap().len(), 4);
    }
}

#[test]
fn the_encapsulated_config_is_in_the_version_asked_for_and_at_bootstrap_in_3_5() {
    for version in SERVED {
        let inner = |s: &Source| json_file(&served(s, version), ENCAPSULATED)["spec"]["config"].clone();
        // Agents read versions up to 3.5.
        let want = version.min(Version::V3_5);
        assert_eq!(inner(&mk_empty()), json!({"ignition": {"version": want.as_str()}}));
        let bootstrap = Source { mode: Mode::Bootstrap, ..mk_empty() };
        assert_eq!(inner(&bootstrap), json!({"ignition": {"version": "3.5.0"}}), "{version}");
    }
}

#[test]
fn spec_3_0_is_asked_for_in_vain() {
    let refusal = prepare(&mk_empty(), Version::V3_0).unwrap_err();
    assert_eq!(refusal.status(), http::StatusCode::NOT_ACCEPTABLE);
    assert!(
        matches!(&refusal, Refusal::Inexpressible { places, .. } if places[0].path == "ignition.version")
    );
}

#[test]
fn what_a_version_cannot_say_is_named_with_its_path() {
    let source = mk_config(json!({
        "ignition": {"version": "3.4.0"},
        "storage": {"luks": [{"name": "r", "device": "/dev/sdb", "discard": true}]},
    }));
    assert!(prepare(&source, Version::V3_4).is_ok());
    let Refusal::Inexpressible { places, .. } = prepare(&source, Version::V3_3).unwrap_err() else {
        panic!("another refusal")
    };
    assert_eq!(places[0].path, "storage.luks[0].discard");
}

#[test]
fn a_stored_config_that_is_not_valid_is_the_servers_fault_and_named() {
    for config in [
        json!({"ignition": {"version": "9.0.0"}}),
        json!({"storage": {}}),
        json!({"ignition": {"version": "3.5.0"}, "storage": {"files": [
            {"path": "/etc/a", "overwrite": true, "append": [{"source": "data:,more"}]},
        ]}}),
        json!({"ignition": {"version": "3.5.0"}, "storage": {"files": [{"path": "relative"}]}}),
    ] {
        let refusal = prepare(&mk_config(config.clone()), Version::V3_5).unwrap_err();
        assert_eq!(refusal.status(), http::StatusCode::INTERNAL_SERVER_ERROR, "{config}");
        assert!(refusal.to_string().contains("rendered-worker-1: spec.config"), "{refusal}");
    }
}

#[test]
fn a_ca_file_of_the_config_keeps_its_owner_and_gets_the_current_bytes() {
    let source = mk_config(json!({
        "ignition": {"version": "3.5.0"},
        "storage": {"files": [{
            "path": KUBELET_CA, "mode": 384, "user": {"name": "core"},
            "contents": {"source": "data:;base64,H4sIAAAAAAAA", "compression": "gzip"},
        }]},
    }));
    let config = served(&source, Version::V3_5);
    assert_eq!(content(&config, KUBELET_CA), "CA\n");
    let file = &config["storage"]["files"][0];
    assert_eq!((&file["mode"], &file["user"]["name"]), (&json!(384), &json!("core")));
    assert!(file["contents"].get("compression").is_none(), "{file}");
    let with_cloud = Source { cloud_ca: b"cloud".to_vec(), kubelet_ca: Vec::new(), ..mk_empty() };
    let config = served(&with_cloud, Version::V3_5);
    assert_eq!(content(&config, CLOUD_CA), "cloud");
    assert!(!config.to_string().contains(KUBELET_CA));
}

#[test]
fn a_file_of_the_config_does_not_stand_in_the_way_of_the_first_boot() {
    let source = mk_config(json!({
        "ignition": {"version": "3.5.0"},
        "storage": {"files": [{"path": KUBECONFIG, "contents": {"source": "data:,mine"}}]},
    }));
    assert_eq!(content(&served(&source, Version::V3_5), KUBECONFIG), "kind: Config\n");
}

#[test]
fn kernel_arguments_to_add_move_to_the_daemon_before_3_3_and_only_in_the_cluster() {
    let source = mk_config(json!({
        "ignition": {"version": "3.3.0"}, "kernelArguments": {"shouldExist": ["a=b", "c"]},
    }));
    for (version, moved) in [(Version::V2_2, true), (Version::V3_2, true), (Version::V3_3, false)] {
        let config = served(&source, version);
        let spec = &json_file(&config, ENCAPSULATED)["spec"];
        assert_eq!(spec["kernelArguments"] == json!(["a=b", "c"]), moved, "{version}: {spec}");
        assert_eq!(config.get("kernelArguments").is_none(), moved, "{version}");
    }
    let bootstrap = Source { mode: Mode::Bootstrap, ..source };
    assert!(matches!(prepare(&bootstrap, Version::V3_2), Err(Refusal::Inexpressible { .. })));
    let removal = mk_config(json!({
        "ignition": {"version": "3.3.0"}, "kernelArguments": {"shouldNotExist": ["quiet"]},
    }));
    assert!(matches!(prepare(&removal, Version::V3_2), Err(Refusal::Inexpressible { .. })));
    assert!(prepare(&removal, Version::V3_3).is_ok());
}

#[test]
fn a_layered_image_is_embedded_and_the_one_on_the_config_wins_for_the_annotations() {
    let found = Source { layered_image: Some("quay.io/os@sha256:a".to_owned()), ..mk_empty() };
    let config = served(&found, Version::V3_5);
    assert_eq!(json_file(&config, ENCAPSULATED)["spec"]["osImageURL"], "quay.io/os@sha256:a");
    let annotations = json_file(&config, NODE_ANNOTATIONS);
    assert_eq!(annotations[annotation::CURRENT_IMAGE], "quay.io/os@sha256:a");
    assert_eq!(annotations[annotation::DESIRED_IMAGE], "quay.io/os@sha256:a");

    let mut pre_built = found.rendered.unpacked_object().unwrap();
    pre_built.metadata.annotations =
        Some([(PRE_BUILT_IMAGE.to_owned(), "quay.io/os@sha256:b".to_owned())].into());
    let config = served(&Source { rendered: Arc::new(Rendered::new(pre_built)), ..found }, Version::V3_5);
    assert_eq!(json_file(&config, NODE_ANNOTATIONS)[annotation::CURRENT_IMAGE], "quay.io/os@sha256:b");
}

#[test]
fn registry_certificates_become_files() {
    let source = Source {
        mode: Mode::Bootstrap,
        registry_certificates: vec![("foo".to_owned(), b"PEM".to_vec())],
        ..mk_empty()
    };
    assert_eq!(content(&served(&source, Version::V3_5), "/etc/docker/certs.d/foo/ca.crt"), "PEM");
}

#[test]
fn a_secure_key_is_left_out_where_the_reference_leaves_it_out_and_that_is_told() {
    let source = mk_config(json!({
        "ignition": {"version": "3.5.0"},
        "storage": {"luks": [{"name": "r", "device": "/dev/sdb", "cex": {"enabled": true}}]},
    }));
    assert!(prepare(&source, Version::V3_5).unwrap().dropped.is_empty());
    let old = prepare(&source, Version::V3_4).unwrap();
    assert_eq!(old.dropped[0].path, "storage.luks[0].cex");
    assert!(!String::from_utf8(old.body).unwrap().contains("\"cex\""));
}

#[test]
fn equal_sources_have_equal_tags_and_another_byte_gives_another() {
    let tag = |s: &Source| prepare(s, Version::V3_5).unwrap().etag;
    let other = Source { kubeconfig: b"other".to_vec(), ..mk_empty() };
    assert_eq!(tag(&mk_empty()), tag(&mk_empty()));
    assert_ne!(tag(&mk_empty()), tag(&other));
    assert_eq!(mk_empty().fingerprint(), mk_empty().fingerprint());
    assert_ne!(mk_empty().fingerprint(), other.fingerprint());
}

#[test]
fn the_packed_body_unpacks_to_the_plain_one() {
    let prepared = prepare(&mk_empty(), Version::V3_5).unwrap();
    let packed = prepared.gzip.unwrap();
    assert!(packed.len() < prepared.body.len());
    assert_eq!(ignition::gunzip(&packed).unwrap(), prepared.body);
    assert_ne!(prepared.etag, prepared.gzip_etag);
}
