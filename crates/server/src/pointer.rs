//! Pointer configs: the few lines of Ignition that a machine is provisioned with, which send it to this server, and
//! the user-data Secrets that machine providers read them from. Pure.
//!
//! What it is not: writing the Secrets (the operator's), and the server's certificate.

use api::k8s::{ObjectMeta, OwnerReference, Secret};
use api::v1::{ControllerConfigSpec, MachineConfigPool};
use ignition::{Config, Resource, TranslateError, Version};
use k8s_openapi::ByteString;
use serde_json::Value;

/// The port that machines fetch their config from.
pub const PORT: u16 = 22623;
/// Where machine providers look for user data.
pub const NAMESPACE: &str = "openshift-machine-api";
/// On user-data Secrets that are ours: their CA comes from a ConfigMap and is rotated with it.
pub const MANAGED: &str = "machineconfiguration.openshift.io/managed-ca-bundle-derived-from-configmap";
/// Platforms whose machines reach the API by a virtual address, without DNS, and the name of their status there.
const BY_ADDRESS: [(&str, &str); 4] =
    [("BareMetal", "baremetal"), ("OpenStack", "openstack"), ("Ovirt", "ovirt"), ("VSphere", "vsphere")];

/// The host that machines of this cluster reach the server by, as it stands in a URL.
pub fn host(facts: &ControllerConfigSpec) -> Option<String> {
    let platform = facts.platform_type();
    if let Some((_, key)) = BY_ADDRESS.iter().find(|(name, _)| *name == platform) {
        let status = facts.infra.as_ref().and_then(|i| i.pointer(&format!("/status/platformStatus/{key}")));
        let first = status.and_then(|s| s.pointer("/apiServerInternalIPs/0")).and_then(Value::as_str);
        if let Some(address) = first.filter(|a| !a.is_empty()) {
            let v6 = address.contains(':') && !address.starts_with('[');
            return Some(if v6 { format!("[{address}]") } else { address.to_owned() });
        }
    }
    let url = url::Url::parse(facts.infra_status(&["apiServerInternalURI"])?).ok()?;
    url.host_str().map(str::to_owned)
}

/// The pointer config of a pool: where to fetch from, and whom to trust there (PEM). Ignition that is older than 3.5
/// needs it in its own version.
///
/// # Errors
/// A version that is not spec 3.
pub fn pointer(
    host: &str,
    port: u16,
    pool: &str,
    ca: &[u8],
    version: Version,
) -> Result<Value, TranslateError> {
    let mut config: Config = ignition::empty();
    let source = |source: String| Resource { source: Some(source), ..Resource::default() };
    config.ignition.config.merge.push(source(format!("https://{host}:{port}/config/{pool}")));
    let ca = ignition::data_url::encode_base64("text/plain;charset=utf-8", ca);
    config.ignition.security.tls.certificate_authorities.push(source(ca));
    ignition::translate(&config, version)
}

/// The user-data Secret of a pool.
pub fn user_data_secret(pool: &MachineConfigPool, pointer: &Value) -> Secret {
    let name = pool.metadata.name.clone().unwrap_or_default();
    let owner = OwnerReference {
        api_version: format!("{}/v1", api::names::GROUP),
        kind: "MachineConfigPool".to_owned(),
        name: name.clone(),
        uid: pool.metadata.uid.clone().unwrap_or_default(),
        ..OwnerReference::default()
    };
    Secret {
        metadata: ObjectMeta {
            name: Some(format!("{name}-user-data-managed")),
            namespace: Some(NAMESPACE.to_owned()),
            labels: Some([(MANAGED.to_owned(), String::new())].into()),
            owner_references: Some(vec![owner]),
            ..ObjectMeta::default()
        },
        type_: Some("Opaque".to_owned()),
        data: Some(
            [
                ("disableTemplating".to_owned(), ByteString(b"true\n".to_vec())),
                ("userData".to_owned(), ByteString(pointer.to_string().into_bytes())),
            ]
            .into(),
        ),
        ..Secret::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[allow(clippy::needless_pass_by_value, reason = "reads better in the table")]
    fn mk_facts(status: Value) -> ControllerConfigSpec {
        ControllerConfigSpec { infra: Some(json!({ "status": status })), ..ControllerConfigSpec::default() }
    }

    #[test]
    fn the_host_is_a_virtual_address_where_the_platform_has_one_and_else_the_api_servers_name() {
        let uri = "https://api-int.example.com:6443";
        let with = |platform: &str, key: &str, ip: &str| {
            mk_facts(json!({
                "apiServerInternalURI": uri,
                "platformStatus": {"type": platform, key: {"apiServerInternalIPs": [ip]}},
            }))
        };
        let name = Some("api-int.example.com");
        let rows = [
            (with("BareMetal", "baremetal", "10.0.0.5"), Some("10.0.0.5")),
            (with("OpenStack", "openstack", "fd00::5"), Some("[fd00::5]")),
            (with("VSphere", "vsphere", ""), name),
            (with("AWS", "aws", "10.0.0.5"), name),
            (mk_facts(json!({"apiServerInternalURI": uri})), name),
            (mk_facts(json!({"apiServerInternalURI": "nonsense"})), None),
            (ControllerConfigSpec::default(), None),
        ];
        for (facts, want) in rows {
            assert_eq!(host(&facts).as_deref(), want, "{:?}", facts.infra);
        }
    }

    #[test]
    fn the_pointer_names_the_pool_and_the_ca() {
        let got = pointer("api-int.example.com", PORT, "worker", b"PEM", Version::V3_5).unwrap();
        let want = json!({"ignition": {
            "version": "3.5.0",
            "config": {"merge": [{"source": "https://api-int.example.com:22623/config/worker"}]},
            "security": {"tls": {"certificateAuthorities": [
                {"source": "data:text/plain;charset=utf-8;base64,UEVN"},
            ]}},
        }});
        assert_eq!(got, want);
        let old = pointer("h", PORT, "worker", b"PEM", Version::V3_3).unwrap();
        assert_eq!(old["ignition"]["version"], "3.3.0");
    }

    #[test]
    fn the_secret_has_the_names_that_machine_providers_know() {
        let mut pool = MachineConfigPool::new("infra", api::v1::MachineConfigPoolSpec::default());
        pool.metadata.uid = Some("u".to_owned());
        let secret = user_data_secret(&pool, &json!({"ignition": {}}));
        assert_eq!(secret.metadata.name.as_deref(), Some("infra-user-data-managed"));
        let data = secret.data.unwrap();
        assert_eq!(data["disableTemplating"].0, b"true\n");
        assert_eq!(data["userData"].0, br#"{"ignition":{}}"#);
        assert_eq!(secret.metadata.owner_references.unwrap()[0].uid, "u");
    }
}
