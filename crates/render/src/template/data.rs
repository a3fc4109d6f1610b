//! What templates can refer to: the ControllerConfig's fields by their JSON names, the pull secret, TLS settings, and a
//! few functions. Undefined names are errors. Pure.
//!
//! Source: <https://docs.rs/minijinja/latest/minijinja/syntax/>.

use crate::template::functions;
use crate::template::platform::Platform;
use crate::tls::TlsProfile;
use api::k8s::ResourceExt as _;
use api::names::annotation;
use api::v1::ControllerConfig;
use minijinja::syntax::SyntaxConfig;
use minijinja::{AutoEscape, Environment, Error, UndefinedBehavior};
use serde_json::{Value, json};

/// Everything that templates are rendered with.
#[derive(Clone, Copy)]
pub struct Data<'a> {
    /// Cluster facts.
    pub controller_config: &'a ControllerConfig,
    /// The pull secret's `.dockerconfigjson`, if there is one.
    pub pull_secret: Option<&'a str>,
    /// The TLS versions and ciphers that kubelets may use.
    pub tls: &'a TlsProfile,
}

impl std::fmt::Debug for Data<'_> {
    /// Leaves the pull secret out.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { controller_config, pull_secret, tls } = self;
        f.debug_struct("Data")
            .field("controller_config", &controller_config.metadata.name)
            .field("pull_secret", &pull_secret.map(|_| "present"))
            .field("tls", tls)
            .finish()
    }
}

/// The layers that the administrator has enabled.
pub(crate) fn chosen_layers(controller_config: &ControllerConfig) -> Vec<String> {
    let said = controller_config.annotations().get(annotation::TEMPLATE_LAYERS);
    let all = said.into_iter().flat_map(|s| s.split(',')).map(str::trim).filter(|l| !l.is_empty());
    all.map(str::to_owned).collect()
}

/// The template engine with our functions.
pub(crate) fn environment(data: &Data<'_>) -> Environment<'static> {
    let platform = Platform::of(&data.controller_config.spec);
    let mut e = Environment::new();
    e.set_undefined_behavior(UndefinedBehavior::Strict);
    e.set_auto_escape_callback(|_| AutoEscape::None);
    // Only wrong delimiters fail here, and these are the defaults.
    if let Ok(syntax) =
        SyntaxConfig::builder().keep_trailing_newline(true).trim_blocks(true).lstrip_blocks(true).build()
    {
        e.set_syntax(syntax);
    }
    functions::add(&mut e, &data.controller_config.spec, &platform);
    e
}

/// The names that templates can use.
pub(crate) fn context(data: &Data<'_>) -> minijinja::Value {
    minijinja::Value::from(minijinja::value::Serde(names(data)))
}

fn names(data: &Data<'_>) -> Value {
    let spec = &data.controller_config.spec;
    // Every optional field exists, as null if it is not given, so that templates can test for it.
    let mut context = json!({
        "additionalTrustBundle": null, "cloudProviderCAData": null, "proxy": null, "infra": null, "dns": null,
        "network": null, "networkType": null, "baseOSExtensionsContainerImage": null,
    });
    if let (Some(map), Ok(Value::Object(fields))) = (context.as_object_mut(), serde_json::to_value(spec)) {
        map.extend(fields);
        let pem = |b: &api::k8s::ByteString| Value::String(String::from_utf8_lossy(&b.0).into_owned());
        map.insert("kubeAPIServerServingCAData".to_owned(), pem(&spec.kube_api_server_serving_ca_data));
        map.insert("rootCAData".to_owned(), pem(&spec.root_ca_data));
        for (name, bytes) in [
            ("cloudProviderCAData", &spec.cloud_provider_ca_data),
            ("additionalTrustBundle", &spec.additional_trust_bundle),
        ] {
            map.insert(name.to_owned(), bytes.as_ref().map_or(Value::Null, pem));
        }
        map.insert("pullSecret".to_owned(), data.pull_secret.map_or(Value::Null, Value::from));
        map.insert("tlsMinVersion".to_owned(), Value::from(data.tls.min_version.as_str()));
        map.insert("tlsCipherSuites".to_owned(), Value::from(data.tls.cipher_suites.clone()));
        map.insert("layers".to_owned(), Value::from(chosen_layers(data.controller_config)));
        map.insert("constants".to_owned(), json!({"apiServerURLFile": "/etc/kubernetes/apiserver-url.env"}));
    }
    context
}

/// The engine's error with its line, but without the values of the context.
pub(crate) fn describe(e: &Error) -> String {
    let line = e.line().map(|l| format!("line {l}: ")).unwrap_or_default();
    let detail = e.detail().map(|d| format!(": {d}")).unwrap_or_default();
    format!("{line}{}{detail}", e.kind())
}

#[cfg(test)]
mod tests {
    use super::*;
    use api::v1::ControllerConfigSpec;

    fn mk_spec(platform: &str, topology: &str) -> ControllerConfigSpec {
        let infra =
            json!({"status": {"controlPlaneTopology": topology, "platformStatus": {"type": platform}}});
        ControllerConfigSpec { infra: Some(infra), ..ControllerConfigSpec::default() }
    }

    #[test]
    fn layers_follow_platform_and_topology() {
        let rows: [(&str, &str, &[&str]); 9] = [
            ("BareMetal", "HighlyAvailable", &["_base", "on-prem", "baremetal"]),
            ("BareMetal", "DualReplica", &["_base", "on-prem", "baremetal", "two-node-with-fencing"]),
            ("GCP", "HighlyAvailable", &["_base", "gcp"]),
            ("None", "SingleReplica", &["_base", "none", "sno"]),
            ("None", "HighlyAvailableArbiter", &["_base", "none"]),
            ("None", "External", &["_base", "none"]),
            ("None", "of another version", &["_base", "none"]),
            ("", "", &["_base", "none"]),
            ("_bad_", "", &["_base", "none"]),
        ];
        for (platform, topology, want) in rows {
            assert_eq!(Platform::of(&mk_spec(platform, topology)).layers(), want, "{platform} {topology}");
        }
    }

    #[test]
    fn a_cluster_with_its_own_dns_gets_its_layer() {
        let mut spec = mk_spec("GCP", "HighlyAvailable");
        spec.infra =
            Some(json!({"status": {"platformStatus": {"type": "GCP", "gcp": {"cloudLoadBalancerConfig":
            {"dnsType": "ClusterHosted", "clusterHosted": {"apiIntLoadBalancerIPs": ["10.0.0.1"]}}}}}}));
        assert_eq!(Platform::of(&spec).layers(), ["_base", "cloud-platform-alt-dns", "gcp"]);
    }

    #[test]
    fn cloud_providers_are_external_or_none() {
        for (platform, want) in [("AWS", true), ("VSphere", true), ("BareMetal", false), ("None", false)] {
            assert_eq!(Platform::of(&mk_spec(platform, "")).external_cloud, want, "{platform}");
        }
    }
}
