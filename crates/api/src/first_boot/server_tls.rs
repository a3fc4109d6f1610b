//! Names of the objects that hold the config server's CA and certificate. Pure.
//!
//! What it is not: making certificates (see `operator`), or serving with them (see `server`, which reads files).

use crate::formats::pem::certificates;
use crate::formats::text::hex;
use crate::k8s::ObjectMeta;
use crate::names::NAMESPACE;
use sha2::{Digest as _, Sha256};

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_certificate_has_its_own_fingerprint() {
        let one = |byte: u8| crate::formats::pem::from_der(crate::formats::pem::CERTIFICATE, &[byte; 100]);
        let (a, b) = (one(1), one(2));
        let both = fingerprints(&format!("{a}{b}"));
        assert_eq!(both, [fingerprints(&a), fingerprints(&b)].concat());
        assert_ne!(both.first(), both.last());
        assert!(fingerprints("nothing").is_empty());
    }
}
