//! When the certificates of the ControllerConfig's bundles end, as a metric.
//!
//! What it is not: the reading of certificates (see `passes::templates`), or the config server's own certificate, which that
//! server reports.

use api::v1::ControllerCertificate;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeLabelSet, EncodeMetric};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::gauge::ConstGauge;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

/// `bundle`: a bundle of certificates, as the ControllerConfig's status names it.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Bundle {
    bundle: String,
}

/// For each bundle the Unix time at which it ends. All are replaced at once, so that no scrape comes between.
#[derive(Debug, Clone, Default)]
pub(crate) struct BundleEnds(Arc<Mutex<BTreeMap<String, i64>>>);

impl BundleEnds {
    /// Sets them. Of a bundle the last certificate counts: while one replaces another, both are in it.
    pub(crate) fn set(&self, certificates: &[ControllerCertificate]) {
        let mut ends: BTreeMap<String, i64> = BTreeMap::new();
        for certificate in certificates {
            let Some(end) = certificate.not_after.as_ref().map(|time| time.0.as_second()) else { continue };
            let last = ends.entry(certificate.bundle_file.clone()).or_insert(end);
            *last = end.max(*last);
        }
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = ends;
    }

    /// Says nothing any more.
    pub(crate) fn clear(&self) {
        self.set(&[]);
    }

    /// One series.
    pub(super) fn sample(&self) {
        let now = crate::io::clock::now();
        self.set(&[ControllerCertificate { not_after: Some(now), ..ControllerCertificate::default() }]);
    }
}

impl Collector for BundleEnds {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), std::fmt::Error> {
        let all = self.0.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let mut family = encoder.encode_descriptor(
            "mcc_certificate_not_after_timestamp_seconds",
            "Unix time at which the last certificate to expire of a bundle in the ControllerConfig expires",
            None,
            MetricType::Gauge,
        )?;
        for (bundle, end) in all {
            ConstGauge::new(end).encode(family.encode_family(&Bundle { bundle })?)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use api::k8s::Time;
    use prometheus_client::registry::Registry;

    #[test]
    fn a_bundle_ends_with_its_last_certificate_and_one_that_is_gone_says_nothing() {
        let (mut registry, ends) = (Registry::default(), BundleEnds::default());
        registry.register_collector(Box::new(ends.clone()));
        let text = || {
            let mut text = String::new();
            prometheus_client::encoding::text::encode(&mut text, &registry).unwrap();
            text.lines()
                .filter(|line| !line.starts_with('#'))
                .map(|line| format!("{line}\n"))
                .collect::<String>()
        };
        let one = |bundle: &str, end: i64| ControllerCertificate {
            bundle_file: bundle.to_owned(),
            not_after: Some(Time(jiff::Timestamp::from_second(end).unwrap())),
            ..ControllerCertificate::default()
        };
        ends.set(&[one("RootCAData", 9), one("KubeAPIServerServingCAData", 30), one("RootCAData", 7)]);
        let name = "mcc_certificate_not_after_timestamp_seconds";
        assert_eq!(
            text(),
            format!(
                "{name}{{bundle=\"KubeAPIServerServingCAData\"}} 30\n{name}{{bundle=\"RootCAData\"}} 9\n"
            )
        );
        ends.set(&[one("RootCAData", 9)]);
        assert_eq!(text(), format!("{name}{{bundle=\"RootCAData\"}} 9\n"));
        ends.clear();
        assert_eq!(text(), "");
    }
}
