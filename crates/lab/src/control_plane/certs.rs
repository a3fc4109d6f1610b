//! The certificates of a throw-away cluster: one CA, a serving certificate, one client certificate per identity.
//!
//! Not here: long-lived or rotated certificates (`server` has those). Keys live as long as the data folder,
//! which only its owner can read.

use std::net::IpAddr;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DistinguishedName, DnType, ExtendedKeyUsagePurpose,
    IsCa, KeyPair, KeyUsagePurpose, PKCS_RSA_SHA256, RsaKeySize,
};

use crate::error::{Error, Result};

/// A certificate authority that can sign more identities later.
pub struct Authority {
    issuer: CertifiedIssuer<'static, KeyPair>,
}

impl std::fmt::Debug for Authority {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Authority").finish_non_exhaustive()
    }
}

/// A certificate and its private key, PEM.
#[derive(Clone)]
pub struct Pair {
    /// The certificate.
    pub cert: String,
    /// The private key (PKCS#8).
    pub key: String,
}

impl std::fmt::Debug for Pair {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Pair").finish_non_exhaustive()
    }
}

/// Makes a private and a public key without a certificate: service account tokens are signed with them.
pub(crate) fn bare_keys() -> Result<(String, String)> {
    let key = KeyPair::generate().map_err(failed("the service-account key"))?;
    Ok((key.serialize_pem(), key.public_key_pem()))
}

fn failed(subject: &str) -> impl FnOnce(rcgen::Error) -> Error {
    let subject = subject.to_owned();
    move |source| Error::Certificate { subject, source }
}

fn name(common: &str, groups: &[&str]) -> DistinguishedName {
    let mut name = DistinguishedName::new();
    for group in groups {
        name.push(DnType::OrganizationName, *group);
    }
    name.push(DnType::CommonName, common);
    name
}

impl Authority {
    /// A new CA.
    ///
    /// # Errors
    /// When it cannot be made.
    pub fn new() -> Result<Self> {
        const SUBJECT: &str = "mco-lab-ca";
        // RSA, as in the CAs that kubeadm makes: the API server verifies this signature with every request, and an
        // elliptic curve signature costs it four times as much.
        let key = KeyPair::generate_rsa_for(&PKCS_RSA_SHA256, RsaKeySize::_2048).map_err(failed(SUBJECT))?;
        let mut params = CertificateParams::default();
        params.distinguished_name = name(SUBJECT, &[]);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages =
            vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign, KeyUsagePurpose::DigitalSignature];
        Ok(Self { issuer: CertifiedIssuer::self_signed(params, key).map_err(failed(SUBJECT))? })
    }

    /// The CA's certificate and key (the controller manager signs requests with it).
    #[must_use]
    pub fn pair(&self) -> Pair {
        Pair { cert: self.issuer.pem(), key: self.issuer.key().serialize_pem() }
    }

    /// The CA's certificate alone, PEM.
    #[must_use]
    pub fn cert(&self) -> String {
        self.issuer.pem()
    }

    /// A serving certificate for these addresses and names.
    ///
    /// # Errors
    /// When a name is not a host name.
    pub fn server(&self, common: &str, addresses: &[IpAddr], names: &[&str]) -> Result<Pair> {
        let alternatives: Vec<String> = addresses
            .iter()
            .map(ToString::to_string)
            .chain(names.iter().map(|name| (*name).to_owned()))
            .collect();
        let mut params = CertificateParams::new(alternatives).map_err(failed(common))?;
        params.distinguished_name = name(common, &[]);
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        self.sign(common, params)
    }

    /// A client certificate for a user in groups.
    ///
    /// # Errors
    /// When it cannot be signed.
    pub fn client(&self, user: &str, groups: &[&str]) -> Result<Pair> {
        let mut params = CertificateParams::default();
        params.distinguished_name = group_name(user, groups);
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        self.sign(user, params)
    }

    fn sign(&self, subject: &str, mut params: CertificateParams) -> Result<Pair> {
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.use_authority_key_identifier_extension = true;
        let key = KeyPair::generate().map_err(failed(subject))?;
        let cert = params.signed_by(&key, &self.issuer).map_err(failed(subject))?;
        Ok(Pair { cert: cert.pem(), key: key.serialize_pem() })
    }
}

/// The user's name and group. rcgen keeps one value per attribute type, so only the first group is kept.
fn group_name(user: &str, groups: &[&str]) -> DistinguishedName {
    debug_assert!(groups.len() <= 1, "one group per lab identity");
    name(user, groups)
}

/// A kubeconfig that contains all certificates and keys, so that the file can be copied to a node.
#[must_use]
pub(crate) fn kubeconfig(server: &str, ca: &str, client: &Pair) -> String {
    format!(
        "apiVersion: v1\nkind: Config\ncurrent-context: lab\nclusters:\n- name: lab\n  cluster:\n    server: \
         {server}\n    certificate-authority-data: {}\ncontexts:\n- name: lab\n  context:\n    cluster: lab\n    \
         user: lab\nusers:\n- name: lab\n  user:\n    client-certificate-data: {}\n    client-key-data: {}\n",
        STANDARD.encode(ca),
        STANDARD.encode(&client.cert),
        STANDARD.encode(&client.key),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kubeconfig_is_one_that_the_client_library_reads() {
        let authority = Authority::new().unwrap();
        let client = authority.client("admin", &["system:masters"]).unwrap();
        let text = kubeconfig("https://127.0.0.1:6443", &authority.cert(), &client);
        let parsed = kube::config::Kubeconfig::from_yaml(&text).unwrap();
        assert_eq!(parsed.current_context.as_deref(), Some("lab"));
        assert_eq!(parsed.auth_infos.len(), 1);
    }

    #[test]
    fn keys_do_not_show_in_debug_output() {
        let authority = Authority::new().unwrap();
        let pair = authority.server("x", &[IpAddr::from([127, 0, 0, 1])], &["localhost"]).unwrap();
        assert!(!format!("{pair:?} {authority:?}").contains("PRIVATE"));
    }
}
