//! The functions that templates can call. Pure; their answers come from the ControllerConfig's Infrastructure.
//!
//! What it is not: the values that templates see (see `data`).

use crate::template::platform::{ON_PREM, Platform};
use api::v1::ControllerConfigSpec;
use minijinja::{Environment, Error, ErrorKind};
use serde_json::Value;
use std::sync::Arc;

/// The platforms for whose load balancers the cluster itself may serve DNS.
const CLOUDS: [&str; 3] = ["AWS", "GCP", "Azure"];
/// The platforms that say where their DNS records are kept.
const DNS_RECORDS: [&str; 4] = ["BareMetal", "Nutanix", "OpenStack", "VSphere"];
/// The path of the kubelet's credential provider plug-ins on a host.
const CREDENTIAL_PLUGINS: &str = "/usr/libexec/kubelet-image-credential-provider-plugins";
/// The path of their settings.
const CREDENTIAL_CONFIGS: &str = "/etc/kubernetes/credential-providers";

/// The platform's own part of the Infrastructure's status.
struct Infra {
    kind: String,
    section: Option<Value>,
}

fn failed(message: impl Into<String>) -> Error {
    Error::new(ErrorKind::InvalidOperation, message.into())
}

impl Infra {
    fn of(spec: &ControllerConfigSpec, kind: &str) -> Self {
        let path = format!("/status/platformStatus/{}", kind.to_ascii_lowercase());
        let section = spec.infra.as_ref().and_then(|i| i.pointer(&path)).filter(|s| s.is_object()).cloned();
        Self { kind: kind.to_owned(), section }
    }

    fn get(&self, path: &str) -> Option<&Value> {
        self.section.as_ref()?.pointer(path)
    }

    fn text(&self, path: &str) -> Option<&str> {
        self.get(path)?.as_str()
    }

    fn list(&self, path: &str) -> Vec<String> {
        let all = self.get(path).and_then(Value::as_array).into_iter().flatten();
        all.filter_map(Value::as_str).map(str::to_owned).collect()
    }

    /// Addresses on a platform with one's own hardware: the list, or the single address of older releases.
    fn on_prem(&self, list: &str, one: &str) -> Result<Vec<String>, Error> {
        if !ON_PREM.iter().any(|(kind, _)| *kind == self.kind) {
            return Err(failed(format!("platform {:?} has no addresses of its own for this", self.kind)));
        }
        let all = self.list(list);
        if !all.is_empty() {
            return Ok(all);
        }
        Ok(self.text(one).filter(|ip| !ip.is_empty()).map(str::to_owned).into_iter().collect())
    }

    /// Addresses of a cloud's load balancers, if the cluster itself resolves their names.
    fn cloud(&self, which: &str) -> Result<Vec<String>, Error> {
        if !CLOUDS.contains(&self.kind.as_str()) {
            return Err(failed(format!("platform {:?} has no such load balancers", self.kind)));
        }
        if self.text("/cloudLoadBalancerConfig/dnsType") != Some("ClusterHosted") {
            return Ok(Vec::new());
        }
        let all = self.list(&format!("/cloudLoadBalancerConfig/clusterHosted/{which}"));
        if all.is_empty() {
            let at = format!("infra.status.platformStatus.{}", self.kind.to_ascii_lowercase());
            return Err(failed(format!("{at}.cloudLoadBalancerConfig.clusterHosted.{which} is empty")));
        }
        Ok(all)
    }

    /// Whether the cluster runs its own load balancers.
    fn managed_load_balancer(&self) -> bool {
        if !ON_PREM.iter().any(|(kind, _)| *kind == self.kind) {
            return true;
        }
        let has_addresses = || self.on_prem("/apiServerInternalIPs", "/apiServerInternalIP");
        if self.section.is_none()
            || (self.kind == "VSphere" && has_addresses().is_ok_and(|all| all.is_empty()))
        {
            return false;
        }
        matches!(self.text("/loadBalancer/type"), None | Some("" | "OpenShiftManagedDefault"))
    }

    fn dns_records(&self) -> String {
        match (&self.section, DNS_RECORDS.contains(&self.kind.as_str())) {
            (Some(_), true) => self.text("/dnsRecordsType").unwrap_or_default().to_owned(),
            _ => "Internal".to_owned(),
        }
    }

    fn credential_flags(&self) -> String {
        let provider = match self.kind.as_str() {
            "AWS" => "ecr",
            "GCP" => "gcr",
            "Azure" => "acr",
            _ => return String::new(),
        };
        format!(
            "--image-credential-provider-bin-dir={CREDENTIAL_PLUGINS} \
             --image-credential-provider-config={CREDENTIAL_CONFIGS}/{provider}-credential-provider.yaml"
        )
    }
}

/// Registers all functions.
pub(crate) fn add(e: &mut Environment<'static>, spec: &ControllerConfigSpec, platform: &Platform) {
    let infra = Arc::new(Infra::of(spec, &platform.kind));
    let kind = platform.kind.clone();
    e.add_function("platformType", move || kind.clone());
    let provider = if platform.external_cloud { "external" } else { "" };
    e.add_function("cloudProvider", move || provider);
    let short = ON_PREM.iter().find(|(k, _)| *k == platform.kind).map_or("", |(_, short)| *short);
    e.add_function("onPremPlatformShortName", move || short);

    let (api, ingress) = (("/apiServerInternalIPs", "/apiServerInternalIP"), ("/ingressIPs", "/ingressIP"));
    for (one, many, at) in [
        ("onPremPlatformAPIServerInternalIP", "onPremPlatformAPIServerInternalIPs", api),
        ("onPremPlatformIngressIP", "onPremPlatformIngressIPs", ingress),
    ] {
        let i = infra.clone();
        e.add_function(one, move || i.on_prem(at.0, at.1).map(|all| all.into_iter().next()));
        let i = infra.clone();
        e.add_function(many, move || i.on_prem(at.0, at.1));
    }
    for (name, which) in [
        ("cloudPlatformAPIIntLoadBalancerIPs", "apiIntLoadBalancerIPs"),
        ("cloudPlatformAPILoadBalancerIPs", "apiLoadBalancerIPs"),
        ("cloudPlatformIngressLoadBalancerIPs", "ingressLoadBalancerIPs"),
    ] {
        let i = infra.clone();
        e.add_function(name, move || i.cloud(which));
    }
    let i = infra.clone();
    e.add_function("isOpenShiftManagedDefaultLB", move || i.managed_load_balancer());
    let i = infra.clone();
    e.add_function("dnsRecordsType", move || i.dns_records());
    e.add_function("credentialProviderConfigFlag", move || infra.credential_flags());

    e.add_function("skip", |key: String| skip(&key));
    e.add_function("urlHost", |url: String| url_part(&url).map(|(host, _)| host));
    e.add_function("urlPort", |url: String| url_part(&url).map(|(_, port)| port));
    e.add_function("toString", |value: minijinja::Value| value.to_string());
    e.add_function("join", |all: Vec<String>, by: String| all.join(&by));
    // Unlike the filter of the same name, this also indents the first line.
    e.add_function("indent", |by: usize, text: String| {
        let pad = " ".repeat(by);
        format!("{pad}{}", text.replace('\n', &format!("\n{pad}")))
    });
}

/// A placeholder that a later reader of the file replaces.
fn skip(key: &str) -> Result<String, Error> {
    let mut chars = key.chars();
    let start = chars.next().is_some_and(|c| c == '_' || c.is_ascii_lowercase());
    if start && chars.all(|c| c == '_' || c.is_ascii_alphanumeric()) && key.len() > 1 {
        Ok(format!("{{{{.{key}}}}}"))
    } else {
        Err(failed(format!("skip: {key:?} must start with a lower-case letter and have no blanks")))
    }
}

/// Host and port of a URL; without a port, that of the scheme.
fn url_part(url: &str) -> Result<(String, String), Error> {
    let bad = |why: &str| failed(format!("{url:?}: {why}"));
    let (scheme, rest) = url.split_once("://").ok_or_else(|| bad("not a URL"))?;
    let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
    let authority = authority.rsplit_once('@').map_or(authority, |(_, host)| host);
    let (host, port) = match authority.strip_prefix('[').and_then(|v6| v6.split_once(']')) {
        Some((host, after)) => (host, after.strip_prefix(':')),
        None => authority.split_once(':').map_or((authority, None), |(h, p)| (h, Some(p))),
    };
    let port = match (port, scheme) {
        (Some(port), _) if !port.is_empty() => port,
        (_, "https") => "443",
        (_, "http") => "80",
        _ => return Err(bad("has no port, and the default port of its scheme is unknown")),
    };
    Ok((host.to_owned(), port.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    /// The value of an expression on a platform with this status.
    fn said(kind: &str, section: Value, expression: &str) -> Result<String, String> {
        let mut status = json!({"platformStatus": {"type": kind}});
        if !section.is_null() {
            status["platformStatus"][kind.to_ascii_lowercase()] = section;
        }
        let spec = ControllerConfigSpec { infra: Some(json!({ "status": status })), ..Default::default() };
        let mut e = Environment::new();
        add(&mut e, &spec, &Platform::of(&spec));
        e.render_str(&format!("{{{{ {expression} }}}}"), ()).map_err(|e| e.to_string())
    }

    #[test]
    fn addresses_on_own_hardware() {
        let two = json!({"apiServerInternalIPs": ["10.0.0.1", "10.0.0.2"], "ingressIP": "10.0.0.9"});
        let rows = [
            ("onPremPlatformAPIServerInternalIP()", "10.0.0.1"),
            ("join(onPremPlatformAPIServerInternalIPs(), ',')", "10.0.0.1,10.0.0.2"),
            ("onPremPlatformIngressIP()", "10.0.0.9"),
            ("onPremPlatformShortName()", "kni"),
        ];
        for (expression, want) in rows {
            assert_eq!(said("BareMetal", two.clone(), expression).unwrap(), want, "{expression}");
        }
        assert_eq!(said("VSphere", Value::Null, "onPremPlatformAPIServerInternalIPs()").unwrap(), "[]");
        assert!(said("AWS", json!({}), "onPremPlatformIngressIPs()").unwrap_err().contains("AWS"));
    }

    #[test]
    fn load_balancers_and_dns() {
        let managed = "isOpenShiftManagedDefaultLB() | lower";
        let vips = |lb: Value| json!({"apiServerInternalIPs": ["10.0.0.1"], "loadBalancer": lb});
        for (kind, section, want) in [
            ("BareMetal", vips(json!(null)), "true"),
            ("BareMetal", vips(json!({"type": "UserManaged"})), "false"),
            ("VSphere", json!({}), "false"),
            ("VSphere", vips(json!({"type": "OpenShiftManagedDefault"})), "true"),
            ("OpenStack", Value::Null, "false"),
            ("None", Value::Null, "true"),
        ] {
            assert_eq!(said(kind, section.clone(), managed).unwrap(), want, "{kind} {section}");
        }
        let records = "dnsRecordsType()";
        assert_eq!(said("BareMetal", json!({"dnsRecordsType": "External"}), records).unwrap(), "External");
        assert_eq!(said("BareMetal", json!({}), records).unwrap(), "");
        assert_eq!(said("AWS", json!({}), records).unwrap(), "Internal");
        let hosted = |ips: Value| json!({"cloudLoadBalancerConfig": {"dnsType": "ClusterHosted", "clusterHosted": {"apiIntLoadBalancerIPs": ips}}});
        let ips = "cloudPlatformAPIIntLoadBalancerIPs() | join(' ')";
        assert_eq!(said("GCP", hosted(json!(["1.1.1.1"])), ips).unwrap(), "1.1.1.1");
        assert_eq!(said("GCP", json!({}), ips).unwrap(), "");
        assert!(said("GCP", hosted(json!([])), ips).unwrap_err().contains("apiIntLoadBalancerIPs is empty"));
        assert!(said("None", json!({}), ips).is_err());
    }

    #[test]
    fn credential_providers_of_clouds_and_helpers_for_text() {
        for (kind, want) in [("AWS", "/ecr-"), ("GCP", "/gcr-"), ("Azure", "/acr-")] {
            let flags = said(kind, Value::Null, "credentialProviderConfigFlag()").unwrap();
            assert!(
                flags.starts_with("--image-credential-provider-bin-dir=/") && flags.contains(want),
                "{flags}"
            );
        }
        assert_eq!(said("None", Value::Null, "credentialProviderConfigFlag()").unwrap(), "");
        assert_eq!(said("None", Value::Null, "indent(2, 'a\\nb')").unwrap(), "  a\n  b");
        assert_eq!(said("None", Value::Null, "toString(7)").unwrap(), "7");
    }

    #[test]
    fn skip_keeps_a_placeholder_for_later() {
        assert_eq!(skip("index").unwrap(), "{{.index}}");
        for bad in ["", "2two", "test index"] {
            assert!(skip(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn urls_have_a_host_and_a_port() {
        let part = |url| url_part(url).unwrap();
        assert_eq!(part("https://api.example.com:6443/x"), ("api.example.com".to_owned(), "6443".to_owned()));
        assert_eq!(part("http://a"), ("a".to_owned(), "80".to_owned()));
        assert_eq!(part("https://[::1]:8443"), ("::1".to_owned(), "8443".to_owned()));
        assert!(url_part("ftp://a").is_err() && url_part("nothing").is_err());
    }
}
