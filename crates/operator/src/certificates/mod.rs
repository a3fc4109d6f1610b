//! A CA and a certificate that it signs: what to create, when, and in which order, so that clients always trust the server.
//! [`decide`] is pure; [`issue`] creates keys. The config server has such a pair for booting machines, and each part one for
//! who scrapes its metrics.
//!
//! Names and times are the reference's: valid for ten years, renewed after eight. One thing differs: machines get a new
//! CA first, and the server's certificate is signed with it a week later. Machines that are provisioned in between trust
//! both. A certificate never outlives the CA that has signed it. When the server gets another name, its certificate keeps the last
//! ones: machines that were provisioned earlier ask at these.
//!
//! What it is not: the owner of other people's Secrets. A Secret without our label is used and never written. That its CA ends soon is
//! said, because nobody else renews it.

use api::first_boot::server_tls::{self, MANAGED_BY};
use api::k8s::{ByteString, ObjectMeta, Secret};
use api::names::NAMESPACE;
use k8s_openapi::api::core::v1::ConfigMap;
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer,
    KeyPair, KeyUsagePurpose,
};
use std::collections::BTreeMap;
use std::time::Duration;

/// How long a CA or certificate is valid.
const VALID: SignedDuration = SignedDuration::from_hours(24 * 365 * 10);
/// The age at which it is renewed.
const REFRESH: SignedDuration = SignedDuration::from_hours(24 * 365 * 8);
/// The age of a new CA at which it signs the server's certificate: machines get it for a week before. Two days are added
/// because a CA's validity begins before it is created.
const SETTLE: SignedDuration = SignedDuration::from_hours(24 * 9);
/// A certificate that expires sooner than this is replaced in any case, and a CA of somebody else is spoken of.
const LAST: SignedDuration = SignedDuration::from_hours(24 * 30);
/// Certificates are valid from this long before now, because clocks of machines without a time server may be slow.
const EARLY: SignedDuration = SignedDuration::from_hours(24);
/// The seconds of a day.
const DAY: i64 = 24 * 60 * 60;
/// How many names of the certificate before stay in a new one: those of the last changes of the API server's address.
const FORMER: usize = 6;

/// How the objects are called.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Names<'a> {
    /// The Secret with the CA and its key, and the ConfigMap with the CAs that clients trust.
    pub ca: &'a str,
    /// The Secret with the certificate and its key.
    pub serving: &'a str,
    /// The beginning of the subjects' common names; `-signer` and `-serving` follow.
    pub subject: &'a str,
}

/// Those of the config server, for booting machines.
pub const SERVER: Names<'static> = Names {
    ca: server_tls::CA,
    serving: server_tls::SERVING,
    subject: "machine-config.machine-config-server",
};

/// The objects in the cluster.
#[derive(Debug, Clone, Copy)]
pub struct StoredObjects<'a> {
    /// How they are called.
    pub names: Names<'a>,
    /// The CA and its key.
    pub ca: Option<&'a Secret>,
    /// The CAs that machines trust.
    pub bundle: Option<&'a ConfigMap>,
    /// The server's certificate and key.
    pub serving: Option<&'a Secret>,
    /// The names and addresses that clients reach the server by.
    pub hosts: &'a [String],
}

/// What to create, and why.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Decision {
    /// Why a CA is created; `None`: it stays.
    pub ca: Option<&'static str>,
    /// Why a certificate is created; `None`: it stays.
    pub serving: Option<&'static str>,
    /// The names of the certificate before that stay in the new one, the latest first.
    pub former: Vec<String>,
    /// Objects that others own, and only they can renew.
    pub foreign: Vec<String>,
    /// The CA of somebody else ends soon or has ended, and what to do about it.
    pub ending: Option<String>,
}

fn is_ours(secret: &Secret) -> bool {
    secret.metadata.labels.as_ref().and_then(|l| l.get(MANAGED_BY.0)).is_some_and(|v| v == MANAGED_BY.1)
}

fn field<'a>(secret: &'a Secret, key: &str) -> Option<&'a str> {
    std::str::from_utf8(&secret.data.as_ref()?.get(key)?.0).ok().filter(|t| !t.is_empty())
}

/// The fields of a certificate that matter here.
#[derive(Debug)]
struct Read {
    not_before: Timestamp,
    not_after: Timestamp,
    /// Its names and addresses, in its order.
    hosts: Vec<String>,
}

/// The first certificate of a PEM text.
fn read(pem: &str) -> Option<Read> {
    use x509_parser::prelude::*;
    let (_, pem) = parse_x509_pem(pem.as_bytes()).ok()?;
    let certificate = pem.parse_x509().ok()?;
    let time = |t: &ASN1Time| Timestamp::from_second(t.timestamp()).ok();
    let names = certificate.subject_alternative_name().ok().flatten();
    let hosts: Vec<String> = names
        .iter()
        .flat_map(|n| &n.value.general_names)
        .filter_map(|name| match name {
            GeneralName::DNSName(name) => Some((*name).to_owned()),
            GeneralName::IPAddress(bytes) => address(bytes),
            _ => None,
        })
        .collect();
    let validity = certificate.validity();
    Some(Read { not_before: time(&validity.not_before)?, not_after: time(&validity.not_after)?, hosts })
}

fn address(bytes: &[u8]) -> Option<String> {
    let v4 = <[u8; 4]>::try_from(bytes).map(|b| std::net::Ipv4Addr::from(b).to_string());
    v4.or_else(|_| <[u8; 16]>::try_from(bytes).map(|b| std::net::Ipv6Addr::from(b).to_string())).ok()
}

/// The bundle for machines: the CA, and earlier ones that have not expired.
pub fn bundle(ca: &str, before: &str, now: Timestamp) -> String {
    let mut all: Vec<String> = vec![];
    for text in [ca, before] {
        for pem in x509_parser::pem::Pem::iter_from_buffer(text.as_bytes()).flatten() {
            let text = api::formats::pem::from_der(api::formats::pem::CERTIFICATE, &pem.contents);
            let good = read(&text).is_some_and(|c| c.not_after > now);
            if good && !all.contains(&text) {
                all.push(text);
            }
        }
    }
    all.concat()
}

/// Decides what to create.
pub fn decide(have: &StoredObjects<'_>, now: Timestamp) -> Decision {
    let mut decision = Decision::default();
    let ca = have.ca.and_then(|s| field(s, server_tls::CERT)).and_then(read);
    decision.ca = match (have.ca, &ca) {
        (None, _) => Some("there is none"),
        (Some(secret), theirs) if !is_ours(secret) => {
            decision.foreign.push(format!("Secret {}", have.names.ca));
            let ends = theirs.as_ref().map(|ca| ca.not_after).filter(|end| ends_soon(*end, now));
            decision.ending = ends.map(|end| ending(have.names.ca, end, now));
            None
        }
        (_, None) => Some("it cannot be read"),
        (_, Some(ca)) => (now.duration_since(ca.not_before) >= REFRESH).then_some("it is eight years old"),
    };
    let Some(serving) = have.serving else {
        decision.serving = Some("there is none");
        return decision;
    };
    if !is_ours(serving) {
        decision.foreign.push(format!("Secret {}", have.names.serving));
        return decision;
    }
    let is_old_enough = |ca: &Read| now.duration_since(ca.not_before) >= SETTLE;
    let settled = decision.ca.is_none() && ca.as_ref().is_some_and(is_old_enough);
    // Nobody trusts it after the end of its signer. A new one is no better where that signer is all that there is.
    let signer_end = signer_end(serving, have);
    let end = |now_in: &Read| signer_end.map_or(now_in.not_after, |signer| signer.min(now_in.not_after));
    let best = end_if_signed_now(ca.as_ref(), now);
    decision.serving = match field(serving, server_tls::CERT).and_then(read) {
        None => Some("it cannot be read"),
        Some(_) if !trusted(serving, have) => Some("machines do not trust its signer"),
        Some(now_in) if !have.hosts.iter().all(|host| now_in.hosts.contains(host)) => {
            decision.former = former(&now_in, have.hosts);
            Some("the server's names changed")
        }
        Some(now_in) if ends_soon(end(&now_in), now) && best > end(&now_in) => Some("it expires soon"),
        Some(now_in) if settled && now.duration_since(now_in.not_before) >= REFRESH => {
            Some("it is eight years old")
        }
        Some(_) => None,
    };
    decision
}

fn ends_soon(end: Timestamp, now: Timestamp) -> bool {
    end.duration_since(now) <= LAST
}

/// The sentence about somebody else's CA that ends soon.
fn ending(name: &str, end: Timestamp, now: Timestamp) -> String {
    let ends = if end > now { "ends" } else { "ended" };
    format!(
        "the CA in Secret {NAMESPACE}/{name} is not the operator's, and {ends} at {end}: after that nobody trusts the certificates \
         that it has signed; put a new CA there (tls.crt and tls.key), or delete the Secret, and the operator makes one"
    )
}

/// When a certificate ends that this CA signs now: no later than the CA. `None`: a CA that is made now.
fn end_if_signed_now(ca: Option<&Read>, now: Timestamp) -> Timestamp {
    ca.map_or(now + VALID, |ca| ca.not_after.min(now + VALID))
}

/// The names of the certificate before that stay in the next one. A certificate has those that count first, so that the latest of
/// the others are kept.
fn former(before: &Read, hosts: &[String]) -> Vec<String> {
    before.hosts.iter().filter(|host| !hosts.contains(host)).take(FORMER).cloned().collect()
}

/// The CA that has signed our certificate, as our annotation names it.
fn signer_of(serving: &Secret) -> Option<&String> {
    serving.metadata.annotations.as_ref()?.get(server_tls::SIGNER)
}

/// What machines trust, and the CA that they are about to trust.
fn trusted_texts<'a>(have: &StoredObjects<'a>) -> [&'a str; 2] {
    let trust = have.bundle.and_then(|b| b.data.as_ref()?.get(server_tls::BUNDLE)).map_or("", String::as_str);
    [trust, have.ca.and_then(|s| field(s, server_tls::CERT)).unwrap_or_default()]
}

/// Whether machines trust the signer of our certificate.
fn trusted(serving: &Secret, have: &StoredObjects<'_>) -> bool {
    let mut known = trusted_texts(have).into_iter().flat_map(server_tls::fingerprints);
    signer_of(serving).is_some_and(|signer| known.any(|k| k == *signer))
}

/// When the CA ends that has signed our certificate. `None`: it is not among those that machines trust.
fn signer_end(serving: &Secret, have: &StoredObjects<'_>) -> Option<Timestamp> {
    let signer = signer_of(serving)?;
    let parts = trusted_texts(have).into_iter().flat_map(api::formats::pem::parts);
    let mut theirs = parts.filter(|part| server_tls::fingerprints(part).contains(signer));
    theirs.find_map(read).map(|ca| ca.not_after)
}

/// The created objects, to be written in this order.
#[derive(Debug, Default)]
pub struct Issued {
    /// The CA and its key, if it is new.
    pub ca: Option<Secret>,
    /// The bundle for machines, if it changes.
    pub bundle: Option<ConfigMap>,
    /// The server's certificate and key, if they are new.
    pub serving: Option<Secret>,
}

/// Why nothing could be created. No variant holds a key.
#[derive(Debug, thiserror::Error)]
pub enum CertificateError {
    /// The library failed.
    #[error("{what} cannot be made: {why}")]
    Make {
        /// What.
        what: &'static str,
        /// Why.
        why: String,
    },
    /// The CA's Secret belongs to somebody else and cannot be used to sign.
    #[error("Secret {NAMESPACE}/{name} has no certificate and key that can sign")]
    Signer {
        /// Its name.
        name: String,
    },
}

/// Creates what was decided.
///
/// # Errors
/// See [`CertificateError`].
pub fn issue(
    decision: &Decision,
    have: &StoredObjects<'_>,
    now: Timestamp,
) -> Result<Issued, CertificateError> {
    let mut issued = Issued::default();
    let no_signer = || CertificateError::Signer { name: have.names.ca.to_owned() };
    if decision.ca.is_some() {
        issued.ca = Some(make_ca(now, have)?);
    }
    let ca = issued.ca.as_ref().or(have.ca);
    let certificate = ca.and_then(|s| field(s, server_tls::CERT)).ok_or_else(no_signer)?;
    let before =
        have.bundle.and_then(|b| b.data.as_ref()?.get(server_tls::BUNDLE)).map_or("", String::as_str);
    let after = bundle(certificate, before, now);
    // Where every CA has ended, machines keep what they have: user data without a CA is no better.
    if after != before && !after.is_empty() {
        issued.bundle = Some(bundle_map(after, have));
    }
    if decision.serving.is_some() {
        // A new CA signs at once only if machines trust no other.
        let old = have.ca.filter(|s| have.serving.is_some() && field(s, server_tls::KEY).is_some());
        let signer = old.filter(|s| field(s, server_tls::CERT).and_then(read).is_some()).or(ca);
        let hosts = [have.hosts, &decision.former[..]].concat();
        issued.serving = Some(make_serving(now, signer.ok_or_else(no_signer)?, hosts, have)?);
    }
    Ok(issued)
}

fn params(name: &str, now: Timestamp, end: Timestamp) -> CertificateParams {
    let mut params = CertificateParams::default();
    let mut dn = DistinguishedName::new();
    dn.push(DnType::OrganizationalUnitName, "openshift");
    dn.push(DnType::CommonName, format!("{name}@{}", now.as_second()));
    params.distinguished_name = dn;
    let date = |t: Timestamp| {
        let date = t.to_zoned(k8s_openapi::jiff::tz::TimeZone::UTC).date();
        rcgen::date_time_ymd(i32::from(date.year()), date.month().unsigned_abs(), date.day().unsigned_abs())
    };
    params.not_before = date(now - EARLY);
    // To the second: what is to end with its signer has the signer's end.
    params.not_after = date(end) + Duration::from_secs(end.as_second().rem_euclid(DAY).unsigned_abs());
    params
}

fn make_ca(now: Timestamp, have: &StoredObjects<'_>) -> Result<Secret, CertificateError> {
    let make = |e: rcgen::Error| CertificateError::Make { what: "the CA", why: e.to_string() };
    let mut params = params(&format!("{}-signer", have.names.subject), now, now + VALID);
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages =
        vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign, KeyUsagePurpose::DigitalSignature];
    let key = KeyPair::generate().map_err(make)?;
    let certificate = params.self_signed(&key).map_err(make)?;
    Ok(secret(have.names.ca, certificate.pem(), key.serialize_pem(), None, have.ca))
}

fn make_serving(
    now: Timestamp,
    signer: &Secret,
    hosts: Vec<String>,
    have: &StoredObjects<'_>,
) -> Result<Secret, CertificateError> {
    let make =
        |e: rcgen::Error| CertificateError::Make { what: "the server's certificate", why: e.to_string() };
    let no_signer = || CertificateError::Signer { name: have.names.ca.to_owned() };
    let (Some(certificate), Some(key)) = (field(signer, server_tls::CERT), field(signer, server_tls::KEY))
    else {
        return Err(no_signer());
    };
    // The library's error could quote the key.
    let signing = KeyPair::from_pem(key).map_err(|_| no_signer())?;
    let issuer = Issuer::from_ca_cert_pem(certificate, signing).map_err(|_| no_signer())?;
    let end = end_if_signed_now(read(certificate).as_ref(), now);
    let mut params = params(&format!("{}-serving", have.names.subject), now, end);
    let names = CertificateParams::new(hosts).map_err(make)?;
    params.subject_alt_names = names.subject_alt_names;
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    params.use_authority_key_identifier_extension = true;
    let key = KeyPair::generate().map_err(make)?;
    let made = params.signed_by(&key, &issuer).map_err(make)?;
    let by = server_tls::fingerprints(certificate).into_iter().next();
    Ok(secret(have.names.serving, made.pem(), key.serialize_pem(), by, have.serving))
}

fn secret(
    name: &str,
    certificate: String,
    key: String,
    signer: Option<String>,
    before: Option<&Secret>,
) -> Secret {
    let data = [(server_tls::CERT, certificate), (server_tls::KEY, key)];
    Secret {
        metadata: ObjectMeta {
            annotations: signer.map(|s| [(server_tls::SIGNER.to_owned(), s)].into()),
            resource_version: before.and_then(|b| b.metadata.resource_version.clone()),
            ..server_tls::metadata(name)
        },
        type_: Some("kubernetes.io/tls".to_owned()),
        data: Some(data.map(|(k, v)| (k.to_owned(), ByteString(v.into_bytes()))).into()),
        ..Secret::default()
    }
}

fn bundle_map(bundle: String, have: &StoredObjects<'_>) -> ConfigMap {
    let mut map = have.bundle.cloned().unwrap_or_default();
    if have.bundle.is_none() {
        map.metadata = server_tls::metadata(have.names.ca);
    }
    map.metadata.managed_fields = None;
    map.data.get_or_insert_with(BTreeMap::new).insert(server_tls::BUNDLE.to_owned(), bundle);
    map
}

#[cfg(test)]
pub(crate) mod tests;
