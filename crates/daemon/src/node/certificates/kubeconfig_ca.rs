//! The API server's CA in a kubeconfig: finds the certificates that are new, adds them to the kubeconfig, and decides
//! whether the kubelet must read it at once. Pure.
//!
//! Not here: reading and writing these files (see `kubeconfig_files`), and restarting the kubelet (see `writer`).
//!
//! Source: <https://kubernetes.io/docs/reference/config-api/kubeconfig.v1/>.

use api::k8s::ByteString;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use x509_parser::pem::Pem;
use x509_parser::prelude::{FromDer, X509Certificate};

/// Signers of serving certificates that a kubelet on another host never sees. For these the kubelet need not be
/// restarted at once.
const CAN_WAIT: [&str; 3] = [
    "kube-apiserver-localhost-signer",
    "openshift-kube-apiserver-operator_localhost-recovery-serving-signer",
    "kube-apiserver-lb-signer",
];

/// The change that a new CA bundle requires.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Rotation {
    /// The CA data that the kubeconfigs get (PEM).
    pub(super) ca: Vec<u8>,
    /// The names of the new certificates.
    pub(super) new: Vec<String>,
    /// Whether the kubelet must read it now.
    pub(super) at_once: bool,
}

/// Compares a bundle with the CA of a kubeconfig. `None`: the kubeconfig has all of its certificates.
pub(super) fn rotation(bundle: &[u8], kubeconfig: &Value) -> Option<Rotation> {
    let have: BTreeSet<Vec<u8>> = certificates(&ca_of(kubeconfig)).map(|pem| pem.contents).collect();
    let mut ca = Vec::new();
    let mut new = Vec::new();
    for pem in certificates(bundle) {
        let Ok((_, certificate)) = X509Certificate::from_der(&pem.contents) else {
            tracing::warn!(
                "the API server's CA bundle holds something that is not a certificate; it is left out"
            );
            continue;
        };
        if !have.contains(&pem.contents) {
            let name = certificate.subject().iter_common_name().next().and_then(|n| n.as_str().ok());
            new.push(name.unwrap_or_default().to_owned());
        }
        ca.extend(api::formats::pem::from_der(api::formats::pem::CERTIFICATE, &pem.contents).into_bytes());
    }
    let at_once = new.iter().any(|name| !CAN_WAIT.iter().any(|signer| name.contains(signer)));
    (!new.is_empty()).then_some(Rotation { ca, new, at_once })
}

/// The kubeconfig with another CA for its first cluster.
pub(super) fn with_ca(mut kubeconfig: Value, ca: &[u8]) -> Option<Value> {
    let cluster = kubeconfig.pointer_mut("/clusters/0/cluster")?.as_object_mut()?;
    cluster.insert("certificate-authority-data".to_owned(), json!(ByteString(ca.to_vec())));
    // Only one of the two fields may be set.
    cluster.remove("certificate-authority");
    Some(kubeconfig)
}

/// The CA data of the first cluster (PEM).
pub(super) fn ca_of(kubeconfig: &Value) -> Vec<u8> {
    let data = kubeconfig.pointer("/clusters/0/cluster/certificate-authority-data").cloned();
    data.and_then(|d| serde_json::from_value::<ByteString>(d).ok()).unwrap_or_default().0
}

fn certificates(pem: &[u8]) -> impl Iterator<Item = Pem> {
    Pem::iter_from_buffer(pem)
        .flatten()
        .filter(|p| p.label == api::formats::pem::CERTIFICATE)
        .collect::<Vec<_>>()
        .into_iter()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mk_ca(name: &str) -> String {
        let key = rcgen::KeyPair::generate().unwrap();
        let mut params = rcgen::CertificateParams::default();
        params.distinguished_name.push(rcgen::DnType::CommonName, name);
        params.self_signed(&key).unwrap().pem().replace("\r\n", "\n")
    }

    fn mk_kubeconfig(ca: &str) -> Value {
        json!({"clusters": [{"name": "local", "cluster": {
            "server": "https://api:6443", "certificate-authority-data": ByteString(ca.as_bytes().to_vec()),
        }}], "users": [{"name": "kubelet", "user": {"token": "t"}}]})
    }

    #[test]
    fn new_signers_are_added_and_restart_the_kubelet_only_when_needed() {
        let (old, lb, service) = (mk_ca("old"), mk_ca("kube-apiserver-lb-signer"), mk_ca("service-signer"));
        let kubeconfig = mk_kubeconfig(&old);
        // The same certificates in another text form are not new.
        assert_eq!(rotation(format!("\n# a comment\n{old}").as_bytes(), &kubeconfig), None);
        let rows = [
            (format!("{old}{lb}"), vec!["kube-apiserver-lb-signer"], false),
            (format!("{lb}{service}"), vec!["kube-apiserver-lb-signer", "service-signer"], true),
            (format!("{old}{service}not a certificate"), vec!["service-signer"], true),
        ];
        for (bundle, new, at_once) in rows {
            let got = rotation(bundle.as_bytes(), &kubeconfig).unwrap();
            assert_eq!((got.new, got.at_once), (new.into_iter().map(str::to_owned).collect(), at_once));
            let changed = with_ca(kubeconfig.clone(), &got.ca).unwrap();
            assert_eq!(rotation(bundle.as_bytes(), &changed), None, "the kubeconfig has the new CA now");
            assert_eq!(changed["users"], kubeconfig["users"]);
        }
        // A removed signer alone is no reason to change a working kubeconfig.
        assert_eq!(rotation(old.as_bytes(), &mk_kubeconfig(&format!("{old}{lb}"))), None);
    }

    #[test]
    fn a_kubeconfig_in_an_unknown_form_is_not_changed() {
        assert_eq!(with_ca(json!({"clusters": []}), b"x"), None);
        assert!(ca_of(&json!({"clusters": [{"cluster": {"certificate-authority-data": 7}}]})).is_empty());
        assert_eq!(
            rotation(b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n", &json!({})),
            None
        );
    }
}
