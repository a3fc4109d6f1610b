//! Tables for registries, blocked and allowed scopes.

use super::*;

fn sources(spec: Value) -> Result<Sources, RegistriesError> {
    Sources::read(Some(&json!({"spec": {"registrySources": spec}})))
}

fn idms(rules: Value) -> MirrorSets {
    let object = json!({"kind": "ImageDigestMirrorSet", "metadata": {"name": "d"}, "spec": {"imageDigestMirrors": rules}});
    MirrorSets::read(&[object]).unwrap()
}

#[test]
fn scopes_nest_by_path_and_by_wildcard() {
    for (sub, scope, want) in [
        ("a.b/c", "a.b/c", true),
        ("a.b/c/d", "a.b/c", true),
        ("a.b/cd", "a.b/c", false),
        ("x.example.com/y", "*.example.com", true),
        ("example.com", "*.example.com", false),
        ("x.example.com:5000/y", "*.example.com", true),
        ("x.example.com/y:tag", "*.example.com", false),
    ] {
        assert_eq!(nested(sub, scope), want, "{sub} in {scope}");
    }
}

#[test]
fn entries_come_blocked_first_then_insecure() {
    let mut conf = Conf::default();
    let list = |all: &[&str]| all.iter().map(|s| (*s).to_owned()).collect::<Vec<_>>();
    conf.edit(
        &list(&["registry.access.redhat.com", "insecure.com", "common.com"]),
        &list(&["blocked.com", "common.com", "docker.io"]),
        &MirrorSets::default(),
    );
    let got: Vec<_> = conf.registries.iter().map(|r| (r.scope(), r.blocked, r.insecure)).collect();
    assert_eq!(
        got,
        [
            ("blocked.com", true, false),
            ("common.com", true, true),
            ("docker.io", true, false),
            ("registry.access.redhat.com", false, true),
            ("insecure.com", false, true)
        ]
    );
}

#[test]
fn the_release_can_always_be_pulled() {
    let payload = "payload-reg.io/release-image";
    let blocked = sources(json!({"blockedRegistries": ["payload-reg.io"]})).unwrap();
    let e = effective(&blocked, payload, &MirrorSets::default());
    assert_eq!((e.registries, e.policy, e.allowed), (None, None, None));
    let mirrored = idms(json!([{"source": payload, "mirrors": ["m.io/r"]}]));
    let e = effective(&blocked, payload, &mirrored);
    let own = Some(vec!["payload-reg.io".to_owned()]);
    assert_eq!((e.registries, e.policy, e.allowed), (own.clone(), own, Some(vec![payload.to_owned()])));
}

#[test]
fn allowed_registries_reject_all_others() {
    let text = policy(
        r#"{"default": [{"type": "insecureAcceptAnything"}], "transports": {"docker-daemon": {"": []}}}"#,
        &Effective {
            allowed: Some(vec!["a.io".to_owned(), "b.io/1/2/3".to_owned()]),
            ..Effective::default()
        },
        "",
    )
    .unwrap();
    let v: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(v["default"][0]["type"], "reject");
    assert_eq!(v["transports"]["docker"]["b.io/1/2/3"][0]["type"], "insecureAcceptAnything");
    assert!(v["transports"]["atomic"].get("b.io/1/2/3").is_none());
    assert!(v["transports"]["docker-daemon"].is_object());
}

#[test]
fn allowed_and_blocked_exclude_each_other() {
    let e = sources(json!({"allowedRegistries": ["a.io"], "blockedRegistries": ["b.io"]})).unwrap();
    let got = files(&e, &MirrorSets::default(), "c.io/r@sha256:1", Templates::default());
    assert_eq!(got, Err(RegistriesError::AllowedAndBlocked));
}

#[test]
fn broken_scopes_name_list_and_scope() {
    for bad in ["", " a.io", "a.*.io", "*.a.io/x"] {
        let e = sources(json!({"blockedRegistries": [bad]})).unwrap_err().to_string();
        assert!(e.contains("blockedRegistries") && e.contains(&format!("{bad:?}")), "{e}");
    }
}

#[test]
fn mirrors_are_inherited_and_policies_must_agree() {
    let mut conf = Conf::default();
    let mirrors = idms(json!([{"source": "a.io/x", "mirrors": ["m.io"]}]));
    conf.edit(&[], &["a.io/x/y".to_owned()], &mirrors);
    assert_eq!(conf.registries[1].mirrors[0].location, "m.io/y");
    let of = |policy: &str| json!({"source": "a", "mirrors": ["b"], "mirrorSourcePolicy": policy});
    let object = json!({"kind": "ImageDigestMirrorSet", "metadata": {"name": "d"},
        "spec": {"imageDigestMirrors": [of("NeverContactSource"), of("")]}});
    let e = MirrorSets::read(&[object]).unwrap_err().to_string();
    assert!(e.contains("ImageDigestMirrorSet d: spec.imageDigestMirrors[1].mirrorSourcePolicy"), "{e}");
}
