//! Tests of the approval of machines that join: which requests fit their boot token, and what a failed approval leads to.

use super::*;
use api::first_boot::boot_token::{ENTROPY, Token, TokenUse};
use api::k8s::ByteString;
use rcgen::{CertificateParams, DistinguishedName, DnType, KeyPair};

fn request(organisation: &str, name: &str, other: bool) -> Vec<u8> {
    let mut params = CertificateParams::default();
    let mut dn = DistinguishedName::new();
    dn.push(DnType::OrganizationName, organisation);
    dn.push(DnType::CommonName, name);
    params.distinguished_name = dn;
    if other {
        params.subject_alt_names =
            CertificateParams::new(vec!["api.example.com".to_owned()]).unwrap().subject_alt_names;
    }
    let key = KeyPair::generate().unwrap();
    params.serialize_request(&key).unwrap().pem().unwrap().into_bytes()
}

fn csr(pem: Vec<u8>) -> CertificateSigningRequest {
    let mut csr = CertificateSigningRequest::default();
    csr.spec.request = ByteString(pem);
    csr.spec.signer_name = SIGNER.to_owned();
    csr.spec.username = Some(format!("system:serviceaccount:{NAMESPACE}:{BOOTSTRAPPER}"));
    csr.spec.usages = Some(vec!["client auth".to_owned(), "digital signature".to_owned()]);
    csr
}

/// The request of the machine of node `nN`, for which nobody has decided yet.
pub(crate) fn named(n: u8) -> CertificateSigningRequest {
    let mut csr = csr(request(NODES, &format!("system:node:n{n}"), false));
    csr.metadata.name = Some(format!("csr-{n}"));
    csr
}

/// The boot token that this machine has just used.
pub(crate) fn token(n: u8, now: Timestamp) -> Secret {
    let used = Some(TokenUse { at: now, by: std::net::IpAddr::from([10, 0, 0, n]) });
    let record = Record::new(&Token::new(&[n; ENTROPY]), "worker");
    Record { node: Some(format!("n{n}")), single_use: true, used, ..record }.to_secret()
}

/// Of five machines the first one's request fails at a server that is busy, and one's request has gone meanwhile. One is refused: that
/// lasts, and is told. The others are approved.
#[tokio::test]
async fn one_approval_that_fails_keeps_no_other_machine_waiting() {
    use std::sync::{Arc, Mutex};
    let now = Timestamp::now();
    let (requests, tokens) =
        (json!([1, 2, 3, 4, 5].map(named)), json!([1, 2, 3, 4, 5].map(|n| token(n, now))));
    let asked = Arc::new(Mutex::new(vec![]));
    let seen = Arc::clone(&asked);
    let serve = tower::service_fn(move |request: http::Request<kube::client::Body>| {
        let path = request.uri().path().to_owned();
        let (code, answer) = match path.rsplit('/').next().unwrap() {
            "certificatesigningrequests" => (200, json!({"metadata": {}, "items": requests})),
            "secrets" => (200, json!({"metadata": {}, "items": tokens})),
            "approval" if path.contains("csr-1/") => (
                503,
                json!({"kind": "Status", "status": "Failure",
                "code": 503, "reason": "ServiceUnavailable", "message": "busy"}),
            ),
            "approval" if path.contains("csr-4/") => (
                404,
                json!({"kind": "Status", "status": "Failure", "code": 404, "reason": "NotFound", "message": "gone"}),
            ),
            "approval" if path.contains("csr-5/") => (
                403,
                json!({"kind": "Status", "status": "Failure", "code": 403, "reason": "Forbidden", "message": "no"}),
            ),
            "approval" => (200, json!(named(1))),
            _ => (
                404,
                json!({"kind": "Status", "status": "Failure", "code": 404, "reason": "NotFound", "message": ""}),
            ),
        };
        seen.lock().unwrap().push(path);
        let body = kube::client::Body::from(answer.to_string().into_bytes());
        async move { Ok::<_, std::io::Error>(http::Response::builder().status(code).body(body).unwrap()) }
    });
    let mut done = vec![];
    let error = approve(&Client::new(serve, "default"), &mut done).await.unwrap_err();
    assert!(client::chain(&error).contains("approve CertificateSigningRequest csr-5"), "{error:?}");
    assert_eq!(done.len(), 2, "{done:?} {asked:?}");
    assert!(done[0].contains("csr-2: approved for node n2") && done[1].contains("csr-3"), "{done:?}");
}

#[test]
fn a_machine_gets_the_certificate_of_the_node_that_its_token_was_made_for_and_of_no_other() {
    let now = Timestamp::from_second(1_000_000).unwrap();
    let token = |node: Option<&str>, used: Option<i64>, single_use: bool| {
        let by = std::net::IpAddr::from([10, 0, 0, 1]);
        let used = used.map(|ago| TokenUse { at: Timestamp::from_second(1_000_000 - ago).unwrap(), by });
        Record {
            node: node.map(str::to_owned),
            used,
            single_use,
            ..Record::new(&Token::new(&[1; ENTROPY]), "worker")
        }
    };
    let good = || csr(request(NODES, "system:node:n1", false));
    let verdict = |csr: &CertificateSigningRequest, token: Record, there: bool| {
        decide(csr, std::slice::from_ref(csr), &[token], |_| there, now)
            .map(|v| v.map(|(node, _)| node).unwrap_or_else(|why| why))
    };
    let fine = || token(Some("n1"), Some(60), true);
    assert_eq!(verdict(&good(), fine(), false).as_deref(), Some("n1"));
    for (record, there, why) in [
        (token(Some("n2"), Some(60), true), false, "no boot token for node n1"),
        (token(None, Some(60), true), false, "no boot token for node n1"),
        (token(Some("n1"), None, true), false, "no boot token for node n1"),
        (token(Some("n1"), Some(7200), true), false, "within the last hour"),
        (token(Some("n1"), Some(60), false), false, "no boot token for node n1"),
        (fine(), true, "exists already"),
    ] {
        let said = verdict(&good(), record, there).unwrap();
        assert!(said.contains(why), "{said}");
    }
    let with = |change: fn(&mut CertificateSigningRequest)| {
        let mut csr = good();
        change(&mut csr);
        csr
    };
    // Somebody else asks for the same node since the token was used: one of the two is not that machine.
    let at = |csr: CertificateSigningRequest, ago: i64| {
        let mut csr = csr;
        let made = Timestamp::from_second(1_000_000 - ago).unwrap();
        csr.metadata.creation_timestamp = Some(api::k8s::Time(made));
        csr.metadata.name = Some(format!("csr-{ago}"));
        csr
    };
    let mine = at(good(), 20);
    let among = |other: CertificateSigningRequest| {
        let all = [mine.clone(), other];
        decide(&mine, &all, &[fine()], |_| false, now).unwrap().is_ok()
    };
    assert!(!among(at(good(), 30)), "another key");
    let mut approved = at(good(), 30);
    approved.status.get_or_insert_default().conditions =
        Some(vec![CertificateSigningRequestCondition::default()]);
    assert!(!among(approved), "another key, which was approved");
    assert!(among(at(good(), 130)), "of an earlier life of that machine");
    // Whoever has asked before that machine booted is somebody else. The clocks may differ by a minute.
    for (ago, approved) in [(59, true), (119, true), (130, false), (7200, false)] {
        let said = verdict(&at(good(), ago), fine(), false).unwrap();
        assert_eq!(said == "n1", approved, "{ago}: {said}");
        assert_eq!(said.contains("made before boot token"), !approved, "{ago}: {said}");
    }
    // Of two tokens, whatever their order, the last use counts: what was asked for since the first one is too early.
    let (first, second) = (token(Some("n1"), Some(1800), true), token(Some("n1"), Some(60), true));
    for tokens in [[first.clone(), second.clone()], [second, first]] {
        let early = at(good(), 900);
        for (csr, approved) in [(&early, false), (&mine, true)] {
            let said = decide(csr, &[early.clone(), mine.clone()], &tokens, |_| false, now).unwrap();
            assert_eq!(said.is_ok(), approved, "{said:?}");
        }
    }
    assert!(among(mine.clone()), "the same key again");
    let mut elsewhere = at(good(), 30);
    elsewhere.spec.username = Some("system:node:n9".to_owned());
    assert!(among(elsewhere), "not by the account of booting machines");
    for (about, csr) in [
        ("another group", csr(request("system:masters", "system:node:n1", false))),
        ("no node", csr(request(NODES, "admin", false))),
        ("another name beside", csr(request(NODES, "system:node:n1", true))),
        ("nonsense", csr(b"x".to_vec())),
        ("another account", with(|c| c.spec.username = Some("jane".to_owned()))),
        ("another signer", with(|c| c.spec.signer_name = "kubernetes.io/kubelet-serving".to_owned())),
        ("another usage", with(|c| c.spec.usages.as_mut().unwrap().push("server auth".to_owned()))),
        (
            "denied already",
            with(|c| {
                c.status.get_or_insert_default().conditions =
                    Some(vec![CertificateSigningRequestCondition::default()]);
            }),
        ),
    ] {
        assert_eq!(verdict(&csr, fine(), false), None, "{about}");
    }
}
