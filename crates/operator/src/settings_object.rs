//! The settings object: read into what the manifests need, with every entry that makes no sense named. Pure.
//!
//! The API server refuses nonsense by the rules of the kind's CRD. An object can still hold some: it was written before a
//! rule was there, or the CRD is of another version.
//!
//! What it is not: detecting what the settings leave open.

use api::detected::{API_SERVER_CA, API_SERVER_URL, CLUSTER_DNS_IP, Detected};
use api::names::CLUSTER;
use api::v1alpha1::{Access, MachineConfigOperator, RunAs};
use ipnet::IpNet;
use std::net::IpAddr;

use crate::install::settings::{self, Settings};

/// The kind's name in URLs.
pub(crate) const PLURAL: &str = "machineconfigoperators";

/// Settings that are sound.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Wanted {
    /// The image of all parts.
    pub image: String,
    /// The image of agents that run as pods. `None`: agents run as services of their hosts.
    pub agents: Option<String>,
    /// The config server gives configs only to machines with a boot token.
    pub require_token: bool,
    /// Load balancers that send the client's address by PROXY protocol.
    pub balancers: Vec<IpNet>,
    /// The built-in pools.
    pub pools: Vec<String>,
    /// What the administrator says about the cluster.
    pub said: Settings,
    /// What an installation found out with the administrator's kubeconfig, and wrote into the settings.
    pub found: Settings,
}

/// Reads the settings.
///
/// # Errors
/// Every entry that makes no sense: its path, and what to write.
pub fn read(object: &MachineConfigOperator) -> Result<Wanted, Vec<String>> {
    let spec = &object.spec;
    let mut wrong = vec![];
    let mut image = |path: &str, image: &str| {
        if image.is_empty() || image.contains(char::is_whitespace) {
            wrong.push(format!("{path} {image:?} is no image; write one such as registry.example.com/mco:1"));
        }
    };
    image("spec.image", &spec.image);
    if let Some(other) = &spec.agents.image {
        image("spec.agents.image", other);
    }
    let mut balancers = vec![];
    for (i, text) in spec.config_server.proxy_protocol_from.iter().enumerate() {
        match text.parse::<IpNet>().or_else(|_| text.parse::<IpAddr>().map(IpNet::from)) {
            Ok(net) => balancers.push(net),
            Err(_) => wrong.push(format!(
                "spec.configServer.proxyProtocolFrom[{i}] {text:?} is no address or range; write one such as 10.0.0.4/31"
            )),
        }
    }
    for (i, pool) in spec.pools.iter().enumerate() {
        let fits = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
        if pool.is_empty() || !pool.chars().all(fits) || pool.starts_with('-') || pool.ends_with('-') {
            wrong.push(format!("spec.pools[{i}] {pool:?} is no name of a pool; use a-z, 0-9 and -"));
        }
    }
    if let Some(ip) = spec.cluster_dns_ip.as_ref().filter(|ip| ip.parse::<IpAddr>().is_err()) {
        wrong.push(format!("spec.clusterDNSIP {ip:?} is no IP address"));
    }
    let both = Settings {
        cluster_dns_ip: spec.cluster_dns_ip.clone(),
        api_server_url: spec.api_server.url.clone(),
        api_server_ca: spec.api_server.ca_data.clone().map(|data| data.0),
        ..Settings::default()
    };
    if let Err(error) = settings::check(&both) {
        wrong.push(format!("spec.apiServer.url: {error}"));
    }
    let no_certificate = |ca: &Vec<u8>| !String::from_utf8_lossy(ca).contains("-----BEGIN CERTIFICATE-----");
    if both.api_server_ca.as_ref().is_some_and(no_certificate) {
        wrong.push("spec.apiServer.caData holds no certificate in PEM".to_owned());
    }
    if !wrong.is_empty() {
        return Err(wrong);
    }
    let record = Detected::of(&object.metadata);
    // What an installation found out is not the administrator's word: the cluster's own objects come before it.
    let is_found = |field: &str, value: &Option<String>| {
        value.as_ref().is_some_and(|value| record.is_ours(field, value))
    };
    let ca_found = both
        .api_server_ca
        .as_ref()
        .is_some_and(|ca| record.is_ours(API_SERVER_CA, &api::detected::digest(ca)));
    let (url_found, dns_found) =
        (is_found(API_SERVER_URL, &both.api_server_url), is_found(CLUSTER_DNS_IP, &both.cluster_dns_ip));
    let found = Settings {
        cluster_dns_ip: both.cluster_dns_ip.clone().filter(|_| dns_found),
        api_server_url: both.api_server_url.clone().filter(|_| url_found),
        api_server_ca: both.api_server_ca.clone().filter(|_| ca_found),
        ..Settings::default()
    };
    let said = Settings {
        cluster_dns_ip: both.cluster_dns_ip.filter(|_| !dns_found),
        api_server_url: both.api_server_url.filter(|_| !url_found),
        api_server_ca: both.api_server_ca.filter(|_| !ca_found),
        ..Settings::default()
    };
    let agents = match spec.agents.run_as {
        RunAs::HostServices => None,
        RunAs::Pods => Some(spec.agents.image.clone().unwrap_or_else(|| spec.image.clone())),
    };
    Ok(Wanted {
        image: spec.image.clone(),
        agents,
        require_token: spec.config_server.access == Access::BootTokens,
        balancers,
        pools: spec.pools.clone(),
        said,
        found,
    })
}

/// How the settings object is called in texts.
pub(crate) fn name() -> String {
    format!("MachineConfigOperator {CLUSTER}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn object(text: &str) -> MachineConfigOperator {
        api::yaml::from_str(text).unwrap()
    }

    #[test]
    fn every_entry_that_makes_no_sense_is_named_with_its_path() {
        let bad = object(
            "spec: {image: 'a b', pools: [worker, Bad_Pool], clusterDNSIP: x, agents: {runAs: Pods, image: ''}, \
             configServer: {proxyProtocolFrom: [10.0.0.1, 10.0.0.0/99]}, \
             apiServer: {url: 'http://a', caData: bm9uZQ==}}",
        );
        let wrong = read(&bad).unwrap_err();
        for path in [
            "spec.image \"a b\"",
            "spec.agents.image \"\"",
            "spec.configServer.proxyProtocolFrom[1]",
            "spec.pools[1]",
            "spec.clusterDNSIP",
            "spec.apiServer.url",
            "spec.apiServer.caData",
        ] {
            assert!(wrong.iter().any(|w| w.starts_with(path)), "{path}: {wrong:?}");
        }
        assert_eq!(wrong.len(), 7, "{wrong:?}");
    }

    #[test]
    fn what_an_installation_found_out_is_not_the_administrators_word() {
        let spec = "spec: {image: mco:1, agents: {runAs: Pods}, apiServer: {url: 'https://a:6443'}, clusterDNSIP: 10.0.0.10}";
        let mut settings = object(spec);
        let wanted = read(&settings).unwrap();
        assert_eq!(
            (wanted.said.api_server_url.as_deref(), wanted.found.api_server_url),
            (Some("https://a:6443"), None)
        );
        assert_eq!(wanted.agents.as_deref(), Some("mco:1"));
        assert!(wanted.require_token);
        let mut record = Detected::default();
        record.set(API_SERVER_URL, "https://a:6443");
        let note = api::names::annotation::FOUND_OUT.to_owned();
        settings.metadata.annotations = Some([(note, record.text().unwrap())].into());
        let wanted = read(&settings).unwrap();
        assert_eq!(
            (wanted.found.api_server_url.as_deref(), wanted.said.api_server_url),
            (Some("https://a:6443"), None)
        );
        assert_eq!(wanted.said.cluster_dns_ip.as_deref(), Some("10.0.0.10"));
    }
}
