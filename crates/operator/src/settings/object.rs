//! The settings object: read into what the manifests need, with every invalid entry named. Pure.
//!
//! The API server refuses invalid entries by the rules of the kind's CRD. An object can still hold some: it was written before
//! a rule was there, or the CRD is of another version.
//!
//! What it is not: detecting what the settings leave open.

use api::detected::{API_SERVER_CA, API_SERVER_URL, CLUSTER_DNS_IP, Detected};
use api::formats::network;
use api::v1alpha1::{
    Access, DashboardObjects, ImageFrom, MachineConfigOperator, PrometheusObjects, RunAs, RunDashboard,
};
use ipnet::IpNet;
use std::net::IpAddr;

use crate::controller_config_values::{self, ControllerConfigValues};

/// Settings that are sound.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct CheckedSettings {
    /// The image of all parts.
    pub image: String,
    /// [`Self::image`] is to be that of the release's payload, see [`Self::with_payload_image`].
    pub follows_payload: bool,
    /// Agents that run as pods. `None`: they run as services of their hosts.
    pub agents: Option<AgentPods>,
    /// The config server gives configs only to machines with a boot token.
    pub require_token: bool,
    /// Load balancers that send the client's address by PROXY protocol.
    pub balancers: Vec<IpNet>,
    /// The built-in pools.
    pub pools: Vec<String>,
    /// Prometheus is told of the parts, where the kinds for it are served.
    pub prometheus: bool,
    /// Grafana gets the dashboards.
    pub dashboards: bool,
    /// The page that shows the fleet. `None`: it does not run.
    pub dashboard: Option<DashboardSettings>,
    /// What the administrator says about the cluster.
    pub given: ControllerConfigValues,
    /// What an installation found out with the administrator's kubeconfig, and wrote into the settings.
    pub detected: ControllerConfigValues,
}

/// Agents that run as pods.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct AgentPods {
    /// Their image.
    pub image: String,
    /// The kubeconfig, as a path on the hosts. `None`: they look for the kubelet's.
    pub kubeconfig: Option<String>,
}

/// How the dashboard is reached.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct DashboardSettings {
    /// Names besides the Service's.
    pub hosts: Vec<String>,
    /// Proxies that sign people in.
    pub proxies: Vec<IpNet>,
    /// Who may connect; empty: everybody.
    pub connections_from: Vec<IpNet>,
}

impl CheckedSettings {
    /// The same with the image of the release's payload, where the settings say so. An image that they name for the agents
    /// alone stays.
    ///
    /// # Errors
    /// That of `image`: the payload names none.
    pub(crate) fn with_payload_image(
        mut self,
        image: impl FnOnce() -> Result<String, String>,
    ) -> Result<Self, String> {
        if self.follows_payload {
            let image = image()?;
            if let Some(agents) = self.agents.as_mut().filter(|agents| agents.image == self.image) {
                agents.image.clone_from(&image);
            }
            self.image = image;
        }
        Ok(self)
    }
}

/// Reads the settings.
///
/// # Errors
/// Every invalid entry: its path, and what to write.
pub fn read(object: &MachineConfigOperator) -> Result<CheckedSettings, Vec<String>> {
    let spec = &object.spec;
    let mut wrong = vec![];
    let mut image = |path: &str, image: &str| {
        if image.is_empty() || image.contains(char::is_whitespace) {
            wrong.push(format!(
                "{path} {image:?} is not the name of an image; write one such as \
                registry.example.com/mco:1"
            ));
        }
    };
    image("spec.image", &spec.image);
    if let Some(other) = &spec.agents.image {
        image("spec.agents.image", other);
    }
    if let Some(path) = &spec.agents.kubeconfig
        && (!path.starts_with('/') || path.contains(char::is_whitespace))
    {
        wrong.push(format!(
            "spec.agents.kubeconfig {path:?} is not an absolute path; write one such as /etc/mco/agent.kubeconfig"
        ));
    }
    let mut nets = |path: &str, given: &[String]| {
        let mut nets = vec![];
        for (i, text) in given.iter().enumerate() {
            match network::network(text) {
                Some(net) => nets.push(net),
                None => wrong.push(format!(
                    "{path}[{i}] {text:?} is not an address or a range; write one such as 10.0.0.4/31"
                )),
            }
        }
        nets
    };
    let balancers = nets("spec.configServer.proxyProtocolFrom", &spec.config_server.proxy_protocol_from);
    let proxies = nets("spec.dashboard.trustedProxies", &spec.dashboard.trusted_proxies);
    let connections_from = nets("spec.dashboard.connectionsFrom", &spec.dashboard.connections_from);
    for net in balancers.iter().filter(|net| network::is_everybody(net)) {
        wrong.push(format!(
            "spec.configServer.proxyProtocolFrom {net} covers every address, so every machine could claim to be any client; \
             name the load balancer's own address"
        ));
    }
    for net in proxies.iter().filter(|net| network::is_everybody(net)) {
        wrong.push(format!(
            "spec.dashboard.trustedProxies {net} covers every address, so every client could claim to be any user; name the \
             proxy's own address"
        ));
    }
    for (i, host) in spec.dashboard.hosts.iter().enumerate() {
        if !network::is_host(host) {
            wrong.push(format!(
                "spec.dashboard.hosts[{i}] {host:?} is not a host name; write one such as mco.example.com"
            ));
        }
    }
    for (i, pool) in spec.pools.iter().enumerate() {
        let fits = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
        if pool.is_empty() || !pool.chars().all(fits) || pool.starts_with('-') || pool.ends_with('-') {
            wrong.push(format!("spec.pools[{i}] {pool:?} is not the name of a pool; use a-z, 0-9 and -"));
        }
    }
    if let Some(ip) = spec.cluster_dns_ip.as_ref().filter(|ip| ip.parse::<IpAddr>().is_err()) {
        wrong.push(format!("spec.clusterDNSIP {ip:?} is not an IP address"));
    }
    let both = ControllerConfigValues {
        cluster_dns_ip: spec.cluster_dns_ip.clone(),
        api_server_url: spec.api_server.url.clone(),
        api_server_ca: spec.api_server.ca_data.clone().map(|data| data.0),
        ..ControllerConfigValues::default()
    };
    if let Err(error) = controller_config_values::check(&both) {
        wrong.push(format!("spec.apiServer.url: {error}"));
    }
    let no_certificate =
        |ca: &Vec<u8>| api::formats::pem::certificates(&String::from_utf8_lossy(ca)).next().is_none();
    if both.api_server_ca.as_ref().is_some_and(no_certificate) {
        wrong.push("spec.apiServer.caData contains no PEM certificate".to_owned());
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
    let found = ControllerConfigValues {
        cluster_dns_ip: both.cluster_dns_ip.clone().filter(|_| dns_found),
        api_server_url: both.api_server_url.clone().filter(|_| url_found),
        api_server_ca: both.api_server_ca.clone().filter(|_| ca_found),
        ..ControllerConfigValues::default()
    };
    let said = ControllerConfigValues {
        cluster_dns_ip: both.cluster_dns_ip.filter(|_| !dns_found),
        api_server_url: both.api_server_url.filter(|_| !url_found),
        api_server_ca: both.api_server_ca.filter(|_| !ca_found),
        ..ControllerConfigValues::default()
    };
    let agents = match spec.agents.run_as {
        RunAs::HostServices => None,
        RunAs::Pods => Some(AgentPods {
            image: spec.agents.image.clone().unwrap_or_else(|| spec.image.clone()),
            kubeconfig: spec.agents.kubeconfig.clone(),
        }),
    };
    Ok(CheckedSettings {
        image: spec.image.clone(),
        follows_payload: spec.image_from == ImageFrom::ReleasePayload,
        agents,
        require_token: spec.config_server.access == Access::BootTokens,
        balancers,
        pools: spec.pools.clone(),
        prometheus: spec.monitoring.prometheus == PrometheusObjects::WhereServed,
        dashboards: spec.monitoring.dashboards == DashboardObjects::ConfigMaps,
        dashboard: (spec.dashboard.run == RunDashboard::InCluster).then(|| DashboardSettings {
            hosts: spec.dashboard.hosts.clone(),
            proxies,
            connections_from,
        }),
        given: said,
        detected: found,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::facts::release;

    fn object(text: &str) -> MachineConfigOperator {
        api::formats::yaml::from_str(text).unwrap()
    }

    #[test]
    fn every_invalid_entry_is_named_with_its_path() {
        let bad = object(
            "spec: {image: 'a b', pools: [worker, Bad_Pool], clusterDNSIP: x, agents: {runAs: Pods, image: '', kubeconfig: etc/mine}, \
             configServer: {proxyProtocolFrom: [10.0.0.1, 10.0.0.0/99, '::/0']}, \
             dashboard: {hosts: [a.example, 'https://a'], trustedProxies: [10.0.0.7, ten, 0.0.0.0/0]}, \
             apiServer: {url: 'http://a', caData: bm9uZQ==}}",
        );
        let wrong = read(&bad).unwrap_err();
        for path in [
            "spec.image \"a b\"",
            "spec.agents.image \"\"",
            "spec.agents.kubeconfig \"etc/mine\"",
            "spec.configServer.proxyProtocolFrom[1]",
            "spec.configServer.proxyProtocolFrom ::/0",
            "spec.dashboard.hosts[1]",
            "spec.dashboard.trustedProxies[1]",
            "spec.dashboard.trustedProxies 0.0.0.0/0",
            "spec.pools[1]",
            "spec.clusterDNSIP",
            "spec.apiServer.url",
            "spec.apiServer.caData",
        ] {
            assert!(wrong.iter().any(|w| w.starts_with(path)), "{path}: {wrong:?}");
        }
        assert_eq!(wrong.len(), 12, "{wrong:?}");
    }

    #[test]
    fn what_an_installation_found_out_is_not_the_administrators_word() {
        let spec = "spec: {image: mco:1, agents: {runAs: Pods}, apiServer: {url: 'https://a:6443'}, clusterDNSIP: 10.0.0.10}";
        let mut settings = object(spec);
        let wanted = read(&settings).unwrap();
        assert_eq!(
            (wanted.given.api_server_url.as_deref(), wanted.detected.api_server_url),
            (Some("https://a:6443"), None)
        );
        assert_eq!(wanted.agents.map(|a| a.image).as_deref(), Some("mco:1"));
        assert!(wanted.require_token);
        let mut record = Detected::default();
        record.set(API_SERVER_URL, "https://a:6443");
        let note = api::names::annotation::FOUND_OUT.to_owned();
        settings.metadata.annotations = Some([(note, record.text().unwrap())].into());
        let wanted = read(&settings).unwrap();
        assert_eq!(
            (wanted.detected.api_server_url.as_deref(), wanted.given.api_server_url),
            (Some("https://a:6443"), None)
        );
        assert_eq!(wanted.given.cluster_dns_ip.as_deref(), Some("10.0.0.10"));
    }

    #[test]
    fn the_payloads_image_is_that_of_all_parts_where_the_settings_say_so() {
        let found = release::PayloadSources {
            images: Some("{\"machineConfigOperator\": \"r/mco@sha256:1\"}".to_owned()),
            ..release::PayloadSources::default()
        };
        let of = |spec: &str| {
            let wanted = read(&object(&format!("spec: {{{spec}}}"))).unwrap();
            let wanted = wanted.with_payload_image(|| release::operator_image(&found)).unwrap();
            (wanted.image, wanted.agents.unwrap_or_default().image)
        };
        let both = |a: &str, b: &str| (a.to_owned(), b.to_owned());
        assert_eq!(of("image: mco:1, agents: {runAs: Pods}"), both("mco:1", "mco:1"));
        let follows = "image: mco:1, imageFrom: ReleasePayload";
        assert_eq!(
            of(&format!("{follows}, agents: {{runAs: Pods}}")),
            both("r/mco@sha256:1", "r/mco@sha256:1")
        );
        assert_eq!(
            of(&format!("{follows}, agents: {{runAs: Pods, image: 'mine:1'}}")),
            both("r/mco@sha256:1", "mine:1")
        );
        assert_eq!(of(follows), both("r/mco@sha256:1", "r/mco@sha256:1"));
        assert_eq!(of(&format!("{follows}, agents: {{runAs: HostServices}}")), both("r/mco@sha256:1", ""));
        let none = read(&object(&format!("spec: {{{follows}}}"))).unwrap();
        let empty = release::PayloadSources::default();
        let why = none.with_payload_image(|| release::operator_image(&empty)).unwrap_err();
        assert!(why.contains("machine-config-operator-images does not exist"), "{why}");
    }

    /// During an upgrade the new operator reads what stands in the cluster, and until it leads the old one reads what somebody
    /// has already written for the new one.
    #[test]
    fn settings_of_the_version_before_mean_the_same_and_fields_of_the_next_one_do_no_harm() {
        let text = include_str!("../../../../tests/compatibility/v0.1.0/settings.yaml");
        let before = object(text);
        let wanted = read(&before).unwrap();
        assert_eq!(wanted.image, "registry.example.com/mco:0.1.0");
        assert_eq!(wanted.agents.map(|a| a.image).as_deref(), Some("registry.example.com/agent:0.1.0"));
        assert!(!wanted.require_token);
        assert_eq!(
            wanted.balancers,
            ["10.0.0.4/32".parse().unwrap(), "10.0.1.0/24".parse::<IpNet>().unwrap()]
        );
        assert_eq!(wanted.pools, ["master", "worker", "infra"]);
        assert_eq!(
            (wanted.prometheus, wanted.dashboards),
            (true, false),
            "what it has no word for is the default"
        );
        assert_eq!(wanted.given.api_server_url.as_deref(), Some("https://api.example.com:6443"));
        assert!(wanted.given.api_server_ca.is_some_and(|ca| ca.starts_with(b"-----BEGIN CERTIFICATE-----")));
        assert_eq!(wanted.detected.cluster_dns_ip.as_deref(), Some("10.96.0.10"));
        let status = before.status.clone().unwrap();
        assert_eq!(status.versions[0].version, "v0.1.0");
        // Nothing that stood there is lost when the object is written as this version knows it.
        let raw: serde_json::Value = api::formats::yaml::from_str(text).unwrap();
        let again = serde_json::to_value(&before).unwrap();
        for part in ["spec", "status"] {
            assert!(crate::sync::objects::covers(&raw[part], &again[part]), "{part}: {again:#}");
        }
        let next = text.replace("spec:\n", "spec:\n  ofTheNextVersion: {some: [thing]}\n");
        assert_eq!(read(&object(&next)).unwrap(), read(&before).unwrap());
    }
}
