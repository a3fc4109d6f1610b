//! What `mco install` writes into the ControllerConfig: how machines reach the cluster, and its topology. Pure.
//!
//! Each value has up to four sources, and the first one present is used: what the administrator passes now, what
//! somebody wrote into the object, what is detected now, and what was detected before. A record in the object
//! ([`api::detected`]) distinguishes detected values from written ones.
//!
//! What it is not: detecting values, and writing the object.

use api::detected::{
    API_SERVER_CA, API_SERVER_URL, CLUSTER_DNS_IP, CONTROL_PLANE_TOPOLOGY, Detected, INFRASTRUCTURE_TOPOLOGY,
    IP_FAMILIES, digest,
};
use api::first_boot::user_data::{is_loopback, url_host};
use api::k8s::ByteString;
use api::names;
use api::names::annotation::{FOUND_OUT, GENERATED_BY_VERSION};
use api::v1::{ControllerConfig, ControllerConfigSpec};
use serde_json::{Map, Value, json};

/// The default address of the cluster's DNS service: kubeadm's.
pub const DEFAULT_DNS_IP: &str = "10.96.0.10";
/// `.apiServerURL`, which has the same value as [`API_SERVER_URL`] unless somebody sets it to another.
const PUBLIC_URL: &str = "apiServerURL";
/// Has the same value as [`API_SERVER_CA`].
const ROOT_CA: &str = "rootCAData";

/// Values for a ControllerConfig, as far as they are known.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ControllerConfigValues {
    /// The address of the cluster's DNS service.
    pub cluster_dns_ip: Option<String>,
    /// The API server's URL as machines reach it.
    pub api_server_url: Option<String>,
    /// The CA that clients of the API server trust (PEM).
    pub api_server_ca: Option<Vec<u8>>,
    /// `IPv4`, `IPv6`, `DualStack` or `DualStackIPv6Primary`.
    pub ip_families: Option<String>,
    /// The topology of the control plane, `HighlyAvailable` or `SingleReplica`.
    pub control_plane_topology: Option<String>,
    /// The same for the nodes that run the workload.
    pub infrastructure_topology: Option<String>,
}

/// Why settings cannot be used.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum ControllerConfigValuesError {
    /// A loopback URL: each machine would ask itself.
    #[error(
        "{url} is a loopback address, at which no other machine reaches the API server: pass --api-server-url \
        with an address that machines reach"
    )]
    Loopback {
        /// The URL.
        url: String,
    },
    /// Not a URL.
    #[error("--api-server-url {url:?} is not an https URL with a host, such as https://api.example.com:6443")]
    NoUrl {
        /// The text that was passed.
        url: String,
    },
}

/// Checks the administrator's settings.
///
/// # Errors
/// A URL that machines cannot use.
pub(crate) fn check(given: &ControllerConfigValues) -> Result<(), ControllerConfigValuesError> {
    let Some(url) = &given.api_server_url else { return Ok(()) };
    match url_host(url) {
        None => Err(ControllerConfigValuesError::NoUrl { url: url.clone() }),
        Some(host) if is_loopback(&host) => Err(ControllerConfigValuesError::Loopback { url: url.clone() }),
        Some(_) => Ok(()),
    }
}

/// The URL, unless machines cannot use it.
pub(crate) fn reachable_url(url: Option<&str>) -> Option<&str> {
    url.filter(|u| url_host(u).is_some_and(|h| !is_loopback(&h)))
}

/// The URL by which machines reach the API server, from this object. `None`: they cannot use it.
pub(crate) fn api_server_url(spec: &ControllerConfigSpec) -> Option<&str> {
    reachable_url(spec.infra_status(&[API_SERVER_URL]))
}

/// Chooses the value of one field, and records it if it was detected. `None`: the field stays.
fn choose(
    record: &mut Detected,
    field: &str,
    has: &str,
    given: Option<&str>,
    detected: Option<&str>,
) -> Option<String> {
    if let Some(given) = given {
        record.forget(field);
        return (given != has).then(|| given.to_owned());
    }
    let ours = has.is_empty() || record.is_ours(field, has);
    let detected = detected.filter(|detected| ours && *detected != has)?;
    record.set(field, detected);
    Some(detected.to_owned())
}

/// The merge patch that brings a ControllerConfig to these settings; `{}`: it has them already. `is_new`: it does not exist
/// in a cluster yet. Once it does, the controller keeps the topology up to date.
pub(crate) fn patch(
    config: &ControllerConfig,
    is_new: bool,
    given: &ControllerConfigValues,
    detected: &ControllerConfigValues,
) -> Value {
    let (spec, before) = (&config.spec, Detected::of(&config.metadata));
    let mut record = before.clone();
    let (mut fields, mut status) = (Map::new(), Map::new());

    let (dns, dns_detected) = (given.cluster_dns_ip.as_deref(), detected.cluster_dns_ip.as_deref());
    if let Some(dns) = choose(&mut record, CLUSTER_DNS_IP, &spec.cluster_dns_ip, dns, dns_detected) {
        fields.insert(CLUSTER_DNS_IP.to_owned(), json!(dns));
    }

    // A ControllerConfig always has families: those of a new one are not somebody's word.
    let has = if is_new { "" } else { spec.ip_families.as_str() };
    let families = (given.ip_families.as_deref(), detected.ip_families.as_deref());
    if let Some(families) = choose(&mut record, IP_FAMILIES, has, families.0, families.1) {
        fields.insert(IP_FAMILIES.to_owned(), json!(families));
    }

    // An address that machines cannot use was not written on purpose: earlier versions took it from the kubeconfig.
    let has = api_server_url(spec).unwrap_or_default();
    let (url, url_detected) =
        (given.api_server_url.as_deref(), reachable_url(detected.api_server_url.as_deref()));
    let chosen = choose(&mut record, API_SERVER_URL, has, url, url_detected);
    // Setting one sets both.
    if let Some(url) = chosen.as_deref().or(url) {
        for field in [API_SERVER_URL, PUBLIC_URL].into_iter().filter(|f| spec.infra_status(&[f]) != Some(url))
        {
            status.insert(field.to_owned(), json!(url));
        }
    }

    let some = |ca: &Option<Vec<u8>>| ca.clone().filter(|ca| !ca.is_empty());
    let (ca, ca_detected) = (some(&given.api_server_ca), some(&detected.api_server_ca));
    let has = some(&Some(spec.kube_api_server_serving_ca_data.0.clone()));
    let hash = |ca: &Option<Vec<u8>>| ca.as_deref().map(digest);
    let hashes = (hash(&has).unwrap_or_default(), hash(&ca), hash(&ca_detected));
    if choose(&mut record, API_SERVER_CA, &hashes.0, hashes.1.as_deref(), hashes.2.as_deref()).is_some() {
        let pem = json!(ca.or(ca_detected).map(ByteString));
        fields.insert(API_SERVER_CA.to_owned(), pem.clone());
        fields.insert(ROOT_CA.to_owned(), pem);
    }

    for (field, value) in [
        (CONTROL_PLANE_TOPOLOGY, detected.control_plane_topology.as_deref()),
        (INFRASTRUCTURE_TOPOLOGY, detected.infrastructure_topology.as_deref()),
    ] {
        if let Some(value) = choose(&mut record, field, "", None, value.filter(|_| is_new)) {
            status.insert(field.to_owned(), json!(value));
        }
    }

    if !status.is_empty() {
        let mut infra = json!({ "status": status });
        if spec.infra.is_none() {
            // The CRD requires these fields of the nested object.
            infra["apiVersion"] = json!("config.openshift.io/v1");
            infra["kind"] = json!("Infrastructure");
            infra["spec"] = json!({});
        }
        fields.insert("infra".to_owned(), infra);
    }
    let mut patch = Map::new();
    if record != before {
        patch.insert("metadata".to_owned(), json!({"annotations": {FOUND_OUT: record.text()}}));
    }
    if !fields.is_empty() {
        patch.insert("spec".to_owned(), fields.into());
    }
    patch.into()
}

/// The ControllerConfig of an unknown cluster, for rendering without a cluster.
pub fn unknown() -> ControllerConfig {
    let mut config = empty();
    DEFAULT_DNS_IP.clone_into(&mut config.spec.cluster_dns_ip);
    config
}

/// The ControllerConfig of a cluster that has no `config.openshift.io` objects to take it from, before any setting.
pub(crate) fn empty() -> ControllerConfig {
    let spec = ControllerConfigSpec {
        ip_families: "IPv4".to_owned(),
        infra: Some(json!({
            "apiVersion": "config.openshift.io/v1",
            "kind": "Infrastructure",
            "metadata": {"name": names::CLUSTER},
            "spec": {"cloudConfig": {"name": ""}, "platformSpec": {"type": "None"}},
            "status": {
                "infrastructureName": "",
                "etcdDiscoveryDomain": "",
                "platform": "None",
                "platformStatus": {"type": "None"},
            },
        })),
        ..Default::default()
    };
    let mut config = ControllerConfig::new(names::CONTROLLER_CONFIG, spec);
    let version = [(GENERATED_BY_VERSION.to_owned(), names::VERSION_RAW.to_owned())];
    config.metadata.annotations = Some(version.into());
    config
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(dns: &str, url: &str, ca: &str) -> ControllerConfigValues {
        let some = |text: &str| (!text.is_empty()).then(|| text.to_owned());
        ControllerConfigValues {
            cluster_dns_ip: some(dns),
            api_server_url: some(url),
            api_server_ca: some(ca).map(String::into_bytes),
            ..ControllerConfigValues::default()
        }
    }

    /// The object after an installation.
    fn after(
        there: &ControllerConfig,
        is_new: bool,
        given: &ControllerConfigValues,
        detected: &ControllerConfigValues,
    ) -> ControllerConfig {
        let mut object = serde_json::to_value(there).unwrap();
        json_patch::merge(&mut object, &patch(there, is_new, given, detected));
        serde_json::from_value(object).unwrap()
    }

    fn values(config: &ControllerConfig) -> [String; 3] {
        let spec = &config.spec;
        let url = spec.infra_status(&[API_SERVER_URL]).unwrap_or_default();
        assert_eq!(spec.infra_status(&[PUBLIC_URL]).unwrap_or_default(), url);
        assert_eq!(spec.kube_api_server_serving_ca_data, spec.root_ca_data);
        let ca = String::from_utf8(spec.root_ca_data.0.clone()).unwrap();
        [spec.cluster_dns_ip.clone(), url.to_owned(), ca]
    }

    const A: &str = "https://a.example.com:6443";
    const B: &str = "https://b.example.com:6443";

    #[test]
    fn what_is_said_now_wins_over_what_was_said_before_and_that_over_what_is_found() {
        let none = ControllerConfigValues::default();
        // Columns: given and detected at the first installation, given and detected at the second one, and the result.
        let rows = [
            (
                &none,
                settings("1", A, "ca1"),
                settings("2", B, "ca2"),
                settings("1", A, "ca1"),
                ["2", B, "ca2"],
            ),
            (&none, settings("1", A, "ca1"), none.clone(), settings("2", B, "ca2"), ["2", B, "ca2"]),
            (&none, settings("1", A, "ca1"), none.clone(), none.clone(), ["1", A, "ca1"]),
            (
                &settings("1", A, "ca1"),
                settings("0", B, "ca0"),
                none.clone(),
                settings("2", B, "ca2"),
                ["1", A, "ca1"],
            ),
            (&settings("1", A, "ca1"), none.clone(), settings("2", B, "ca2"), none.clone(), ["2", B, "ca2"]),
            (
                &settings("", A, ""),
                settings("1", B, "ca1"),
                settings("3", "", ""),
                settings("2", B, "ca2"),
                ["3", A, "ca2"],
            ),
            // Machines cannot use the loopback address of this computer.
            (
                &none,
                settings("1", "https://127.0.0.1:6443", "ca1"),
                none.clone(),
                none.clone(),
                ["1", "", "ca1"],
            ),
            (
                &none,
                settings("1", A, "ca1"),
                none.clone(),
                settings("", "https://localhost:6443", ""),
                ["1", A, "ca1"],
            ),
        ];
        for (given, detected, given_then, detected_then, want) in rows {
            let first = after(&empty(), true, given, &detected);
            let second = after(&first, false, &given_then, &detected_then);
            assert_eq!(
                values(&second),
                want,
                "{given:?} {detected:?}, then {given_then:?} {detected_then:?}"
            );
            assert_eq!(
                patch(&second, false, &given_then, &detected_then),
                json!({}),
                "once more, nothing changes"
            );
        }
    }

    #[test]
    fn what_somebody_wrote_into_the_object_stays_until_something_else_is_said() {
        let mut config = after(&empty(), true, &ControllerConfigValues::default(), &settings("1", A, "ca1"));
        config.spec.cluster_dns_ip = "9".to_owned();
        config.spec.kube_api_server_serving_ca_data = ByteString(b"rotated".to_vec());
        config.spec.root_ca_data = ByteString(b"rotated".to_vec());
        let detected = settings("2", B, "ca2");
        assert_eq!(
            values(&after(&config, false, &ControllerConfigValues::default(), &detected)),
            ["9", B, "rotated"]
        );
        assert_eq!(values(&after(&config, false, &settings("3", "", "ca3"), &detected)), ["3", B, "ca3"]);
        // An object of an earlier version without the record: a URL that no machine can use was not set by a user;
        // other values may have been.
        let mut old = empty();
        old.spec.cluster_dns_ip = "10.96.0.10".to_owned();
        old.spec.infra.as_mut().unwrap()["status"][API_SERVER_URL] = json!("https://127.0.0.1:6443");
        let then = after(&old, false, &ControllerConfigValues::default(), &detected);
        assert_eq!(values(&then), ["10.96.0.10", B, "ca2"]);
        assert_eq!(then.metadata.annotations.unwrap()[GENERATED_BY_VERSION], names::VERSION_RAW);
    }

    #[test]
    fn the_topology_is_found_once_and_kept_by_the_controller_then() {
        let detected = |t: &str| ControllerConfigValues {
            control_plane_topology: Some(t.to_owned()),
            ..ControllerConfigValues::default()
        };
        let first = after(&empty(), true, &ControllerConfigValues::default(), &detected("SingleReplica"));
        assert_eq!(first.spec.control_plane_topology(), "SingleReplica");
        assert!(Detected::of(&first.metadata).is_ours(CONTROL_PLANE_TOPOLOGY, "SingleReplica"));
        assert_eq!(
            patch(&first, false, &ControllerConfigValues::default(), &detected("HighlyAvailable")),
            json!({})
        );
        let mut bare = empty();
        bare.spec.infra = None;
        let infra =
            patch(&bare, false, &settings("", A, ""), &ControllerConfigValues::default())["spec"]["infra"]
                .clone();
        assert_eq!((&infra["kind"], &infra["status"][PUBLIC_URL]), (&json!("Infrastructure"), &json!(A)));
    }

    #[test]
    fn a_url_that_machines_cannot_use_is_refused() {
        for bad in ["", "api.example.com", "http://api.example.com", "https://"] {
            let url = bad.to_owned();
            let given = ControllerConfigValues {
                api_server_url: Some(url.clone()),
                ..ControllerConfigValues::default()
            };
            assert_eq!(check(&given), Err(ControllerConfigValuesError::NoUrl { url }));
        }
        for own in ["https://127.0.0.1:6443", "https://localhost:6443", "https://[::1]:6443"] {
            let error = check(&settings("", own, "")).unwrap_err();
            assert!(
                matches!(error, ControllerConfigValuesError::Loopback { .. })
                    && error.to_string().contains(own),
                "{error}"
            );
        }
        assert_eq!(check(&settings("", A, "")), Ok(()));
    }
}
