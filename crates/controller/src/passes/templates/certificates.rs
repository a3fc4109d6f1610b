//! The certificates in the ControllerConfig's bundles, as its status lists them.
//!
//! What it is not: a check. A bundle that cannot be read is reported with the position of the fault; the certificates
//! before it are listed.

use api::k8s::Time;
use api::v1::{ControllerCertificate, ControllerConfigSpec};
use x509_parser::pem::Pem;
use x509_parser::time::ASN1Time;

/// Every certificate of every bundle, and the errors of bundles that could not be read.
pub(super) fn list(spec: &ControllerConfigSpec) -> (Vec<ControllerCertificate>, Vec<String>) {
    let optional = |b: &Option<api::k8s::ByteString>| b.as_ref().map(|b| b.0.clone()).unwrap_or_default();
    let mut bundles = vec![
        ("KubeAPIServerServingCAData".to_owned(), spec.kube_api_server_serving_ca_data.0.clone()),
        ("CloudProviderCAData".to_owned(), optional(&spec.cloud_provider_ca_data)),
        ("RootCAData".to_owned(), spec.root_ca_data.0.clone()),
        ("AdditionalTrustBundle".to_owned(), optional(&spec.additional_trust_bundle)),
    ];
    for bundle in [&spec.image_registry_bundle_data, &spec.image_registry_bundle_user_data]
        .into_iter()
        .flatten()
        .flatten()
    {
        bundles.push((bundle.file.clone(), bundle.data.0.clone()));
    }
    let (mut all, mut broken) = (vec![], vec![]);
    for (name, pem) in bundles {
        read(&name, &pem, &mut all, &mut broken);
    }
    (all, broken)
}

fn read(name: &str, pem: &[u8], all: &mut Vec<ControllerCertificate>, broken: &mut Vec<String>) {
    for (i, block) in Pem::iter_from_buffer(pem).enumerate() {
        let block = match block {
            Ok(block) => block,
            Err(e) => {
                broken.push(format!("spec, bundle {name}, block {i}: not PEM: {e}"));
                return;
            }
        };
        if block.label != "CERTIFICATE" {
            continue;
        }
        match block.parse_x509() {
            Ok(certificate) => all.push(ControllerCertificate {
                subject: certificate.subject().to_string(),
                signer: certificate.issuer().to_string(),
                bundle_file: name.to_owned(),
                not_before: time(certificate.validity().not_before),
                not_after: time(certificate.validity().not_after),
            }),
            Err(e) => {
                broken.push(format!("spec, bundle {name}, block {i}: not a certificate: {e}"));
                return;
            }
        }
    }
}

fn time(at: ASN1Time) -> Option<Time> {
    jiff::Timestamp::from_second(at.timestamp()).ok().map(Time)
}

#[cfg(test)]
mod tests {
    use super::*;
    use api::k8s::ByteString;

    #[test]
    fn certificates_are_listed_and_a_broken_bundle_stops_only_itself() {
        let key = rcgen::generate_simple_self_signed(vec!["ca".to_owned()]).unwrap();
        let pem = key.cert.pem();
        let cut = format!("{pem}-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n{pem}");
        let spec = ControllerConfigSpec {
            kube_api_server_serving_ca_data: ByteString(cut.into_bytes()),
            root_ca_data: ByteString(pem.into_bytes()),
            ..ControllerConfigSpec::default()
        };
        let (all, broken) = list(&spec);
        let bundles: Vec<&str> = all.iter().map(|c| c.bundle_file.as_str()).collect();
        assert_eq!(bundles, ["KubeAPIServerServingCAData", "RootCAData"]);
        assert!(all[0].subject.contains("CN=") && all[0].not_after > all[0].not_before, "{all:?}");
        assert!(broken.len() == 1 && broken[0].contains("KubeAPIServerServingCAData, block 1"), "{broken:?}");
    }
}
