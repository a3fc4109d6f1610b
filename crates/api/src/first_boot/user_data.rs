//! The address at which machines reach the config server, and the user-data Secrets from which machine providers read
//! pointer configs. Pure.
//!
//! What it is not: the pointer config itself (see `ignition`), or the writing of the Secrets (see `operator`).
//!
//! Source: <https://github.com/openshift/machine-config-operator/blob/HEAD/docs/MachineConfigServer.md>.

use crate::k8s::{ByteString, ObjectMeta, OwnerReference, Secret};
use crate::v1::{ControllerConfigSpec, MachineConfigPool};
use serde_json::Value;
use std::net::IpAddr;

/// The port at which machines fetch their config.
pub const PORT: u16 = 22623;
/// Where machine providers look for user data.
pub const NAMESPACE: &str = "openshift-machine-api";
/// On user-data Secrets that are ours: their CA comes from a ConfigMap and is rotated with it.
pub const MANAGED: &str = crate::names::annotation::MANAGED_USER_DATA;
/// The key of the pointer config in a user-data Secret.
pub const USER_DATA: &str = "userData";
/// Platforms whose machines reach the API by a virtual address, without DNS, and the name of their status there.
const BY_ADDRESS: [(&str, &str); 4] =
    [("BareMetal", "baremetal"), ("OpenStack", "openstack"), ("Ovirt", "ovirt"), ("VSphere", "vsphere")];
/// All platforms with virtual addresses: the server's certificate must cover these addresses too.
const WITH_ADDRESSES: [(&str, &str); 5] = [
    ("BareMetal", "baremetal"),
    ("OpenStack", "openstack"),
    ("Ovirt", "ovirt"),
    ("VSphere", "vsphere"),
    ("Nutanix", "nutanix"),
];

fn addresses<'a>(facts: &'a ControllerConfigSpec, platforms: &[(&str, &str)]) -> Vec<&'a str> {
    let platform = facts.platform_type();
    let Some((_, key)) = platforms.iter().find(|(name, _)| *name == platform) else { return vec![] };
    let list = facts
        .infra
        .as_ref()
        .and_then(|i| i.pointer(&format!("/status/platformStatus/{key}/apiServerInternalIPs"))?.as_array());
    list.into_iter().flatten().filter_map(Value::as_str).filter(|a| !a.is_empty()).collect()
}

fn api_int(facts: &ControllerConfigSpec) -> Option<String> {
    let url = url::Url::parse(facts.infra_status(&["apiServerInternalURI"])?).ok()?;
    url.host_str().map(str::to_owned)
}

/// The host of an `https` URL, unchanged; `None`: it is no such URL.
pub fn url_host(url: &str) -> Option<String> {
    let url = url::Url::parse(url).ok().filter(|u| u.scheme() == "https")?;
    url.host_str().filter(|h| !h.is_empty()).map(str::to_owned)
}

/// Whether a host in a URL means the requesting machine itself. A machine that boots would then ask itself.
pub fn is_loopback(host: &str) -> bool {
    let host = host.trim_matches(['[', ']']).trim_end_matches('.').to_ascii_lowercase();
    match host.parse::<IpAddr>() {
        Ok(address) => {
            let address = address.to_canonical();
            address.is_loopback() || address.is_unspecified()
        }
        Err(_) => host == "localhost" || host == "localhost.localdomain" || host.ends_with(".localhost"),
    }
}

/// The host at which machines of this cluster reach the server, as written in a URL.
pub fn host(facts: &ControllerConfigSpec) -> Option<String> {
    match addresses(facts, &BY_ADDRESS).first() {
        Some(address) if address.contains(':') && !address.starts_with('[') => Some(format!("[{address}]")),
        Some(address) => Some((*address).to_owned()),
        None => api_int(facts),
    }
}

/// The names and addresses that the server's certificate must cover; addresses without brackets.
pub fn host_names(facts: &ControllerConfigSpec) -> Vec<String> {
    let plain = |h: &str| h.trim_matches(['[', ']']).to_owned();
    let mut all: Vec<String> = api_int(facts).iter().map(|h| plain(h)).collect();
    all.extend(addresses(facts, &WITH_ADDRESSES).into_iter().map(plain));
    all.sort();
    all.dedup();
    all
}

/// The name of a pool's user-data Secret.
pub fn secret_name(pool: &str) -> String {
    format!("{pool}-user-data-managed")
}

/// The user-data Secret of a pool.
pub fn secret(pool: &MachineConfigPool, pointer: &Value) -> Secret {
    let name = pool.metadata.name.clone().unwrap_or_default();
    let owner = OwnerReference {
        api_version: format!("{}/v1", crate::names::GROUP),
        kind: "MachineConfigPool".to_owned(),
        name: name.clone(),
        uid: pool.metadata.uid.clone().unwrap_or_default(),
        ..OwnerReference::default()
    };
    let data = [("disableTemplating", "true\n".to_owned()), (USER_DATA, pointer.to_string())];
    Secret {
        metadata: ObjectMeta {
            name: Some(secret_name(&name)),
            namespace: Some(NAMESPACE.to_owned()),
            labels: Some([(MANAGED.to_owned(), String::new())].into()),
            owner_references: Some(vec![owner]),
            ..ObjectMeta::default()
        },
        type_: Some("Opaque".to_owned()),
        data: Some(data.into_iter().map(|(k, v)| (k.to_owned(), ByteString(v.into_bytes()))).collect()),
        ..Secret::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[expect(clippy::needless_pass_by_value, reason = "reads better in the table")]
    fn mk_facts(status: Value) -> ControllerConfigSpec {
        ControllerConfigSpec { infra: Some(json!({ "status": status })), ..ControllerConfigSpec::default() }
    }

    #[test]
    fn an_address_of_the_machine_itself_is_distinguished_from_others() {
        let own = [
            "localhost",
            "LOCALHOST.",
            "api.localhost",
            "localhost.localdomain",
            "127.0.0.1",
            "127.1.2.3",
            "[::1]",
            "::1",
            "0.0.0.0",
            "[::]",
            "[::ffff:127.0.0.1]",
        ];
        assert_eq!(own.map(is_loopback), [true; 11]);
        let others = ["api.example.com", "10.0.0.1", "localhost.example.com", "[fd00::1]", "128.0.0.1", ""];
        assert_eq!(others.map(is_loopback), [false; 6]);
        for (url, host) in [
            ("https://api.example.com:6443", Some("api.example.com")),
            ("https://[fd00::5]:6443/x", Some("[fd00::5]")),
            ("http://api.example.com", None),
            ("api.example.com:6443", None),
            ("https://", None),
        ] {
            assert_eq!(url_host(url).as_deref(), host, "{url}");
        }
    }

    #[test]
    fn the_host_is_the_platforms_virtual_address_or_else_the_api_servers_name() {
        let uri = "https://api-int.example.com:6443";
        let with = |platform: &str, key: &str, ip: &str| {
            mk_facts(json!({
                "apiServerInternalURI": uri,
                "platformStatus": {"type": platform, key: {"apiServerInternalIPs": [ip]}},
            }))
        };
        let name = "api-int.example.com";
        let rows: [(_, Option<&str>, &[&str]); 8] = [
            (with("BareMetal", "baremetal", "10.0.0.5"), Some("10.0.0.5"), &["10.0.0.5", name]),
            (with("OpenStack", "openstack", "fd00::5"), Some("[fd00::5]"), &[name, "fd00::5"]),
            (with("Nutanix", "nutanix", "10.0.0.5"), Some(name), &["10.0.0.5", name]),
            (with("VSphere", "vsphere", ""), Some(name), &[name]),
            (with("AWS", "aws", "10.0.0.5"), Some(name), &[name]),
            (mk_facts(json!({"apiServerInternalURI": uri})), Some(name), &[name]),
            (mk_facts(json!({"apiServerInternalURI": "nonsense"})), None, &[]),
            (ControllerConfigSpec::default(), None, &[]),
        ];
        for (facts, want, names) in rows {
            assert_eq!(host(&facts).as_deref(), want, "{:?}", facts.infra);
            assert_eq!(host_names(&facts), names, "{:?}", facts.infra);
        }
    }

    #[test]
    fn the_secret_has_the_names_that_machine_providers_know() {
        let mut pool = MachineConfigPool::new("infra", crate::v1::MachineConfigPoolSpec::default());
        pool.metadata.uid = Some("u".to_owned());
        let secret = secret(&pool, &json!({"ignition": {}}));
        assert_eq!(secret.metadata.name.as_deref(), Some("infra-user-data-managed"));
        let data = secret.data.unwrap();
        assert_eq!(data["disableTemplating"].0, b"true\n");
        assert_eq!(data["userData"].0, br#"{"ignition":{}}"#);
        assert_eq!(secret.metadata.owner_references.unwrap()[0].uid, "u");
    }
}
