//! What is stored on the rendered config: which MachineConfig set what, and the limit on its size.

use super::*;

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
fn provenance_names_who_set_each_field_and_who_was_overridden() {
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
fn a_file_that_becomes_a_link_keeps_its_provenance() {
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
fn in_a_cluster_provenance_is_an_annotation_and_does_not_change_the_name() {
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
