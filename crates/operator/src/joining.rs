//! Joining: the kubelet's first certificate of a machine that booted with a boot token made for one node is approved, for
//! that node and no other. [`decide`] is pure; [`approve`] reads and writes.
//!
//! All booting machines speak as the same account, so the request itself proves nothing. What proves it: a boot token was made
//! for the node of this name (`mco token create --node`), a machine has used it before the request was made and not long ago,
//! there is no such Node yet, and nobody has asked for the same node with another key since: a token is worth one key, whoever
//! else has the booting machines' account. A request that does not fit is left alone: somebody else may approve it.
//!
//! What it is not: the renewal of certificates and the kubelets' serving certificates, which the cluster's own controllers
//! and its administrators approve.

use crate::accounts::{BOOTSTRAPPER, SIGNER};
use crate::reconcile_error::ReconcileError;
use crate::request::call;
use api::first_boot::boot_token::{self, Record};
use api::k8s::{Node, Secret};
use api::names::NAMESPACE;
use k8s_openapi::api::certificates::v1::{CertificateSigningRequest, CertificateSigningRequestCondition};
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use kube::Client;
use kube::api::{Api, ListParams, Patch, PatchParams};
use serde_json::json;

/// The group of all nodes, which the certificate must be for.
const NODES: &str = "system:nodes";
/// The prefix of a node's name as a user.
const NODE: &str = "system:node:";
/// How long after the token's use the request may come: a first boot, with an update of the operating system and a reboot.
const BOOT: SignedDuration = SignedDuration::from_hours(1);
/// How far the clock of the config server, which writes the token's use down, may be ahead of the API server's.
const SKEW: SignedDuration = SignedDuration::from_mins(1);
/// What a kubelet's client certificate is for. `key encipherment` is asked for with RSA keys only.
const USAGES: [&str; 3] = ["client auth", "digital signature", "key encipherment"];

/// What a joining kubelet asks for.
#[derive(Debug, PartialEq, Eq)]
struct JoinRequest {
    /// The node.
    node: String,
    /// The public key, as in the request.
    key: Vec<u8>,
}

/// What a request asks for that is still to be decided. `None`: it is not a joining kubelet's.
fn pending_join_request(csr: &CertificateSigningRequest) -> Option<JoinRequest> {
    let decided = csr
        .status
        .as_ref()
        .is_some_and(|s| s.conditions.iter().flatten().next().is_some() || s.certificate.is_some());
    join_request(csr).filter(|_| !decided)
}

/// What a joining kubelet's request asks for, decided or not.
fn join_request(csr: &CertificateSigningRequest) -> Option<JoinRequest> {
    let account = format!("system:serviceaccount:{NAMESPACE}:{BOOTSTRAPPER}");
    let usages = csr.spec.usages.as_deref().unwrap_or_default();
    let fits = csr.spec.signer_name == SIGNER
        && csr.spec.username.as_deref() == Some(&account)
        && usages.iter().any(|u| u == USAGES[0])
        && usages.iter().all(|u| USAGES.contains(&u.as_str()));
    if !fits {
        return None;
    }
    subject(&csr.spec.request.0)
}

/// The node in the subject: `O=system:nodes, CN=system:node:NAME`, and no other name anywhere.
fn subject(pem: &[u8]) -> Option<JoinRequest> {
    use x509_parser::prelude::*;
    let (_, pem) = parse_x509_pem(pem).ok()?;
    let (_, request) = X509CertificationRequest::from_der(&pem.contents).ok()?;
    let info = &request.certification_request_info;
    // Both attributes once each, and nothing else, whatever it is encoded as.
    let (organisation, name) =
        (info.subject.iter_organization().next()?, info.subject.iter_common_name().next()?);
    let (organisation, name) = (organisation.as_str().ok()?, name.as_str().ok()?);
    let alone = info.subject.iter_attributes().count() == 2;
    // A client certificate has no other names.
    let other_names = request
        .requested_extensions()
        .into_iter()
        .flatten()
        .any(|e| matches!(e, ParsedExtension::SubjectAlternativeName(_)));
    let node = name.strip_prefix(NODE)?;
    let key = info.subject_pki.raw.to_vec();
    (alone && !other_names && organisation == NODES && !node.is_empty())
        .then(|| JoinRequest { node: node.to_owned(), key })
}

/// Whether a request was made before this moment, as far as two clocks can tell.
fn is_before(csr: &CertificateSigningRequest, since: Timestamp) -> bool {
    let made = csr.metadata.creation_timestamp.as_ref();
    made.is_some_and(|at| since.duration_since(at.0) > SKEW)
}

/// A request for the same node with another key, made since the token was used.
fn rival<'a>(
    asked: &JoinRequest,
    all: &'a [CertificateSigningRequest],
    since: Timestamp,
) -> Option<&'a CertificateSigningRequest> {
    all.iter().find(|other| {
        !is_before(other, since)
            && join_request(other).is_some_and(|o| o.node == asked.node && o.key != asked.key)
    })
}

/// Whether a request is approved, of all that there are: the node, and the token that speaks for it. `Err`: why it is left alone.
pub(crate) fn decide(
    csr: &CertificateSigningRequest,
    all: &[CertificateSigningRequest],
    tokens: &[Record],
    is_there: impl Fn(&str) -> bool,
    now: Timestamp,
) -> Option<Result<(String, String), String>> {
    let asked = pending_join_request(csr)?;
    let node = asked.node.clone();
    if is_there(&node) {
        return Some(Err(format!(
            "Node {node} exists already, and a machine that joins must not have a Node yet; delete the Node if the machine \
             was reinstalled"
        )));
    }
    let recent = |r: &&Record| {
        let used = r.used.as_ref().is_some_and(|u| now.duration_since(u.at) <= BOOT);
        r.single_use && r.node.as_deref() == Some(&node) && used
    };
    // The one that was used last: a machine that boots once more has got another one.
    let used_at = |r: &&Record| r.used.as_ref().map(|used| used.at);
    let Some(token) = tokens.iter().filter(recent).max_by_key(used_at) else {
        return Some(Err(format!("no boot token for node {node} was used within the last hour")));
    };
    let since = token.used.as_ref().map_or(now, |used| used.at);
    // The kubelet starts with the config that the token was used for. Whoever asks before waits for another machine's boot.
    if is_before(csr, since) {
        return Some(Err(format!(
            "it was made before boot token {} for node {node} was used, and a machine that joins asks after that. If it is of \
             that machine, approve it by hand; otherwise the bootstrap credentials have leaked: revoke the token",
            token.id
        )));
    }
    Some(match rival(&asked, all, since) {
        None => Ok((node, token.id.clone())),
        Some(other) => Err(format!(
            "CertificateSigningRequest {} asks for node {node} with another key, and boot token {} allows one certificate. If both \
             come from that machine, approve this one by hand; otherwise the bootstrap credentials have leaked: revoke the token",
            other.metadata.name.as_deref().unwrap_or_default(),
            token.id
        )),
    })
}

/// Approves what is to be approved, and adds a line for each. One that fails keeps none of the others waiting.
///
/// # Errors
/// The API server's answer, the first one.
pub(crate) async fn approve(client: &Client, done: &mut Vec<String>) -> Result<(), ReconcileError> {
    let now = Timestamp::now();
    let requests: Api<CertificateSigningRequest> = Api::all(client.clone());
    let params = ListParams::default().fields(&format!("spec.signerName={SIGNER}"));
    let all = call("list CertificateSigningRequests".to_owned(), requests.list(&params)).await?.items;
    let pending: Vec<&CertificateSigningRequest> =
        all.iter().filter(|c| pending_join_request(c).is_some()).collect();
    if pending.is_empty() {
        return Ok(());
    }
    let secrets: Api<Secret> = Api::namespaced(client.clone(), boot_token::NAMESPACE);
    let labelled = ListParams::default().labels(boot_token::LABEL);
    let secrets = call("list boot tokens".to_owned(), secrets.list(&labelled)).await?.items;
    let tokens: Vec<Record> = secrets.iter().filter_map(|s| Record::from_secret(s).ok()).collect();
    let mut first = Ok(());
    for csr in pending {
        match one(client, csr, (&all[..], &tokens[..]), now).await {
            Ok(line) => done.extend(line),
            Err(error) => first = first.and(Err(error)),
        }
    }
    first
}

/// Decides about one request, among all and with all tokens, and returns a line if it was approved.
async fn one(
    client: &Client,
    csr: &CertificateSigningRequest,
    (all, tokens): (&[CertificateSigningRequest], &[Record]),
    now: Timestamp,
) -> Result<Option<String>, ReconcileError> {
    let requests: Api<CertificateSigningRequest> = Api::all(client.clone());
    let nodes: Api<Node> = Api::all(client.clone());
    let name = csr.metadata.name.clone().unwrap_or_default();
    let Some(JoinRequest { node, .. }) = pending_join_request(csr) else { return Ok(None) };
    let there = call(format!("get Node {node}"), nodes.get_opt(&node)).await?.is_some();
    match decide(csr, all, tokens, |_| there, now) {
        Some(Ok((node, token))) => {
            let condition = CertificateSigningRequestCondition {
                type_: "Approved".to_owned(),
                status: "True".to_owned(),
                reason: Some("BootToken".to_owned()),
                message: Some(format!(
                    "boot token {token} was made for node {node}, which has just booted with it"
                )),
                ..CertificateSigningRequestCondition::default()
            };
            // Bound to what was looked at: nobody has decided otherwise since.
            let version = csr.metadata.resource_version.clone();
            let patch = Patch::Merge(json!({
                "metadata": {"resourceVersion": version}, "status": {"conditions": [condition]},
            }));
            let params = PatchParams::default();
            let request = requests.patch_approval(&name, &params, &patch);
            call(format!("approve CertificateSigningRequest {name}"), request).await?;
            return Ok(Some(format!(
                "CertificateSigningRequest {name}: approved for node {node}, by boot token {token}"
            )));
        }
        Some(Err(why)) => {
            tracing::info!("CertificateSigningRequest {name} is not approved automatically: {why}");
        }
        None => {}
    }
    Ok(None)
}

#[cfg(test)]
pub(crate) mod tests {
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

    /// Of three machines the first one's request is refused by a server that is busy: the others are approved, and the error
    /// is told.
    #[tokio::test]
    async fn one_approval_that_fails_keeps_no_other_machine_waiting() {
        use std::sync::{Arc, Mutex};
        let now = Timestamp::now();
        let (requests, tokens) =
            (json!([named(1), named(2), named(3)]), json!([token(1, now), token(2, now), token(3, now)]));
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
        assert!(client::chain(&error).contains("approve CertificateSigningRequest csr-1"), "{error:?}");
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
}
