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
use crate::request::call;
use api::first_boot::boot_token::{self, Record};
use api::k8s::{Node, Secret};
use api::names::NAMESPACE;
use client::{CallError, if_found};
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
/// The API server's answer. Of several the first refusal, which lasts, else the first one.
pub(crate) async fn approve(client: &Client, done: &mut Vec<String>) -> Result<(), CallError> {
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
    let mut errors: Vec<CallError> = vec![];
    for csr in pending {
        match one(client, csr, (&all[..], &tokens[..]), now).await {
            Ok(line) => done.extend(line),
            Err(error) => errors.push(error),
        }
    }
    errors.sort_by_key(|error| !error.is_refused());
    errors.into_iter().next().map_or(Ok(()), Err)
}

/// Decides about one request, among all and with all tokens, and returns a line if it was approved.
async fn one(
    client: &Client,
    csr: &CertificateSigningRequest,
    (all, tokens): (&[CertificateSigningRequest], &[Record]),
    now: Timestamp,
) -> Result<Option<String>, CallError> {
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
            let answer = call(format!("approve CertificateSigningRequest {name}"), request).await;
            // It is gone: nobody waits for it any more.
            if if_found(answer)?.is_none() {
                return Ok(None);
            }
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
pub(crate) mod tests;
