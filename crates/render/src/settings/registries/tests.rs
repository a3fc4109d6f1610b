//! Tables of registries, and of blocked and allowed scopes.

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
        &EffectiveScopes {
            allowed: Some(vec!["a.io".to_owned(), "b.io/1/2/3".to_owned()]),
            ..EffectiveScopes::default()
        },
        "",
        &Signatures::default(),
    )
    .and_then(|p| p.write())
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
    let got =
        files(&e, &MirrorSets::default(), &Signatures::default(), "c.io/r@sha256:1", Templates::default());
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

fn image_policy(kind: &str, name: &str, scopes: &[&str], root: Value) -> Value {
    json!({"kind": kind, "metadata": {"name": name, "namespace": "ns"},
        "spec": {"scopes": scopes, "policy": {"rootOfTrust": root}}})
}

fn key(data: &str) -> Value {
    json!({"policyType": "PublicKey", "publicKey": {"keyData": data}})
}

fn signed(image: Value, cluster: &[Value], namespaced: &[Value]) -> Result<Vec<(String, String)>, String> {
    let mirrors = idms(json!([{"source": "test.io", "mirrors": ["m.io/t"]}]));
    let signatures = Signatures::read(cluster, namespaced).map_err(|e| e.to_string())?;
    let sources = sources(image).map_err(|e| e.to_string())?;
    files(&sources, &mirrors, &signatures, "c.io/r@sha256:1", Templates::default()).map_err(|e| e.to_string())
}

#[test]
fn signed_scopes_are_required_in_the_order_of_fields_that_go_writes() {
    let mut remap = image_policy("ClusterImagePolicy", "c", &["test.io/a"], key("S0VZ"));
    remap["spec"]["policy"]["signedIdentity"] = json!({"matchPolicy": "RemapIdentity", "remapIdentity": {"prefix": "m.io", "signedPrefix": "test.io"}});
    let pki = json!({"policyType": "PKI", "pki": {"caRootsData": "Q0E=", "pkiCertificateSubject": {"hostname": "h"}}});
    let own = image_policy("ImagePolicy", "n", &["own.io/1/2/3", "test.io/a/b"], pki);
    let made = signed(json!({}), &[remap], &[own]).unwrap();
    let text = |path: &str| made.iter().find(|(p, _)| p == path).map(|(_, t)| t.as_str()).unwrap_or_default();
    let paths: Vec<&str> = made.iter().map(|(p, _)| p.as_str()).collect();
    assert_eq!(
        paths,
        [
            "/etc/containers/registries.conf",
            "/etc/containers/policy.json",
            "/etc/containers/registries.d/sigstore-registries.yaml",
            "/etc/crio/policies/ns.json"
        ]
    );
    insta::assert_snapshot!("policy_json", text("/etc/containers/policy.json"));
    insta::assert_snapshot!("namespace_policy_json", text("/etc/crio/policies/ns.json"));
    insta::assert_snapshot!(
        "sigstore_registries",
        text("/etc/containers/registries.d/sigstore-registries.yaml")
    );
}

#[test]
fn policies_must_agree_with_what_is_allowed_and_blocked() {
    let policy = |scope: &str| image_policy("ClusterImagePolicy", "c", &[scope], key("S0VZ"));
    let made =
        signed(json!({"allowedRegistries": ["allow.io", "test0.com"]}), &[policy("test0.com")], &[]).unwrap();
    let text = &made.iter().find(|(p, _)| p == POLICY_JSON).unwrap().1;
    let v: Value = serde_json::from_str(text).unwrap();
    let docker = &v["transports"]["docker"];
    assert_eq!(
        (&v["default"][0]["type"], &docker["allow.io"][0]["type"]),
        (&json!("reject"), &json!("insecureAcceptAnything"))
    );
    assert_eq!(docker["test0.com"].as_array().unwrap().len(), 1);
    assert_eq!(docker["test0.com"][0]["type"], "sigstoreSigned");
    for (image, want) in [
        (json!({"allowedRegistries": ["allow.io"]}), "allowedRegistries"),
        (json!({"blockedRegistries": ["test0.com"]}), "blockedRegistries"),
    ] {
        let e = signed(image, &[policy("test0.com/x")], &[]).unwrap_err();
        assert!(e.starts_with("ClusterImagePolicy c: spec.scopes: test0.com/x") && e.contains(want), "{e}");
    }
}

#[test]
fn broken_policies_name_the_field_and_conflicts_the_scope() {
    for (root, want) in [
        (json!({"policyType": "Trust"}), "spec.policy.rootOfTrust.policyType: \"Trust\""),
        (json!({"policyType": "PublicKey"}), "spec.policy.rootOfTrust: has no publicKey.keyData"),
        (json!({"policyType": "FulcioCAWithRekor"}), "fulcioCAWithRekor.fulcioCAData"),
    ] {
        let e =
            signed(json!({}), &[image_policy("ClusterImagePolicy", "c", &["a.io"], root)], &[]).unwrap_err();
        assert!(e.starts_with("ClusterImagePolicy c: ") && e.contains(want), "{e}");
    }
    let cluster = image_policy("ClusterImagePolicy", "c", &["a.io"], key("S0VZ"));
    let own = image_policy("ImagePolicy", "n", &["a.io/x", "b.io"], key("S0VZ"));
    let all = Signatures::read([&cluster], [&own]).unwrap();
    assert_eq!(all.namespaces["ns"].keys().collect::<Vec<_>>(), ["b.io"]);
    assert!(
        all.conflicts[0].message.contains("a.io/x (in a.io of ClusterImagePolicy c)"),
        "{:?}",
        all.conflicts
    );
}
