//! Names of the objects that hold the config server's CA and certificate. Pure.
//!
//! What it is not: making certificates (see `operator`), or serving with them (see `server`, which reads files).

use crate::k8s::ObjectMeta;
use crate::names::NAMESPACE;
use crate::text::hex;
use sha2::{Digest as _, Sha256};
use std::fmt::Write as _;

/// The Secret with the CA and its key, and the ConfigMap with what machines trust.
pub const CA: &str = "machine-config-server-ca";
/// The Secret with the server's certificate and key.
pub const SERVING: &str = "machine-config-server-tls";
/// The key of the bundle in the ConfigMap.
pub const BUNDLE: &str = "ca-bundle.crt";
/// The key of the certificate in the Secrets.
pub const CERT: &str = "tls.crt";
/// The key of the key in the Secrets.
pub const KEY: &str = "tls.key";
/// On the server's certificate: the SHA-256 of the CA certificate that signed it.
pub const SIGNER: &str = crate::names::own::SIGNER;
/// The label, and its value, on what is ours to write.
pub const MANAGED_BY: (&str, &str) = ("app.kubernetes.io/managed-by", "machine-config-operator");

/// The metadata of a new object of ours.
pub fn metadata(name: &str) -> ObjectMeta {
    ObjectMeta {
        name: Some(name.to_owned()),
        namespace: Some(NAMESPACE.to_owned()),
        labels: Some([(MANAGED_BY.0.to_owned(), MANAGED_BY.1.to_owned())].into()),
        ..ObjectMeta::default()
    }
}

/// The SHA-256 of each certificate in a PEM text, in the order of the text, in hex.
pub fn fingerprints(pem: &str) -> Vec<String> {
    certificates(pem).map(|body| hex(&Sha256::digest(body.as_bytes()))).collect()
}

/// The certificates in a PEM text, in the order of the text: what stands between their marks, without white space. Whether it is
/// a certificate is for whoever uses it to find out.
pub fn certificates(pem: &str) -> impl Iterator<Item = String> {
    let body = |part: &str| part.split("-----END").next().unwrap_or_default().split_whitespace().collect();
    pem.split(BEGIN).skip(1).map(body)
}

/// How a certificate begins in PEM.
const BEGIN: &str = "-----BEGIN CERTIFICATE-----";

/// DER as PEM.
pub fn pem(kind: &str, der: &[u8]) -> String {
    let text = serde_json::to_value(crate::k8s::ByteString(der.to_vec())).unwrap_or_default();
    let text = text.as_str().unwrap_or_default().as_bytes();
    let mut out = format!("-----BEGIN {kind}-----\n");
    for line in text.chunks(64) {
        out.push_str(&String::from_utf8_lossy(line));
        out.push('\n');
    }
    let _ = writeln!(out, "-----END {kind}-----");
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pem_is_wrapped_and_each_certificate_has_its_own_fingerprint() {
        let (a, b) = (pem("CERTIFICATE", &[1; 100]), pem("CERTIFICATE", &[2; 100]));
        assert!(
            a.starts_with("-----BEGIN CERTIFICATE-----\nAQEB") && a.lines().all(|l| l.len() <= 64),
            "{a}"
        );
        let both = fingerprints(&format!("{a}{b}"));
        assert_eq!(both, [fingerprints(&a), fingerprints(&b)].concat());
        assert_ne!(both.first(), both.last());
        assert!(fingerprints("nothing").is_empty());
    }
}
