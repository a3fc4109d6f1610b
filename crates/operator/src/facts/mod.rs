//! What the cluster says about itself, for the ControllerConfig: the API server's address and CA, the cluster's DNS, its IP
//! families. [`Facts::settings`] is pure; [`read`] reads.
//!
//! On kubeadm the ConfigMaps `kube-public/cluster-info`, `kube-system/kubeadm-config` and `kubelet-config` say it; on OpenShift
//! its own objects do (see [`openshift`]); elsewhere the DNS Service and `kube-root-ca.crt`, and what the installation found
//! out with the administrator's kubeconfig.
//!
//! What it is not: what wins over it. What the administrator says, in the settings or in the ControllerConfig itself, comes
//! first (see `settings`).

pub(crate) mod openshift;
pub(crate) mod owners;
mod read;
pub(crate) mod release;

pub(crate) use read::{DNS_SERVICES, read, service_addresses};

use crate::controller_config_values::ControllerConfigValues;
use ipnet::IpNet;
use serde_json::Value;
use std::collections::BTreeSet;
use std::net::IpAddr;

/// What was read. Everything may be missing.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Facts {
    /// `kube-public/cluster-info`, key `kubeconfig`.
    pub(crate) cluster_info: Option<String>,
    /// `kube-system/kubeadm-config`, key `ClusterConfiguration`.
    pub(crate) cluster_configuration: Option<String>,
    /// `kube-system/kubelet-config`, key `kubelet`.
    pub(crate) kubelet_config: Option<String>,
    /// `kube-root-ca.crt`, key `ca.crt`.
    pub(crate) root_ca: Option<String>,
    /// The addresses of the Service `kube-system/kube-dns` or of its counterpart.
    pub(crate) dns_service: Vec<String>,
    /// The topologies of control plane and workload, by the nodes. Read only when there is no ControllerConfig yet: the
    /// controller keeps them then.
    pub(crate) topologies: [Option<&'static str>; 2],
}

impl Facts {
    /// What is to stand in the ControllerConfig as far as nobody has written otherwise there. `said`: what the settings object
    /// says, which comes first. `installed`: what the installation found out with the administrator's kubeconfig; the
    /// cluster's own objects come before it. `present`: the CA in the ControllerConfig; empty: none.
    ///
    /// While `kube-root-ca.crt` cannot be read, what else names a CA may name one from before a rotation. It is taken only if
    /// it keeps every certificate of the present one: a kubelet that was given an older CA could not even fetch the next one.
    pub(crate) fn settings(
        &self,
        said: &ControllerConfigValues,
        installed: &ControllerConfigValues,
        present: &[u8],
    ) -> ControllerConfigValues {
        let kubeadm = self.cluster_configuration.as_deref().and_then(yaml).unwrap_or_default();
        let kubelet = self.kubelet_config.as_deref().and_then(yaml).unwrap_or_default();
        let info = self.cluster_info.as_deref().and_then(yaml).unwrap_or_default();
        let text = |v: &Value| v.as_str().filter(|t| !t.is_empty()).map(str::to_owned);
        let services: Vec<IpNet> = kubeadm["networking"]["serviceSubnet"]
            .as_str()
            .into_iter()
            .flat_map(|list| list.split(','))
            .filter_map(|net| net.trim().parse().ok())
            .collect();
        let dns = text(&kubelet["clusterDNS"][0])
            .or_else(|| self.dns_service.first().cloned())
            .or_else(|| services.first().and_then(dns_address));
        let endpoint = text(&kubeadm["controlPlaneEndpoint"]).map(|at| format!("https://{}", with_port(&at)));
        let url = endpoint.or_else(|| text(&info["clusters"][0]["cluster"]["server"]));
        // The first is kept by the cluster's own controllers when the CA is rotated; the second by people.
        let by_info = text(&info["clusters"][0]["cluster"]["certificate-authority-data"]);
        let is_pem =
            |pem: &Vec<u8>| api::formats::pem::certificates(&String::from_utf8_lossy(pem)).next().is_some();
        let by_info = by_info.and_then(|data| decode(&data)).filter(is_pem);
        let ca = self.root_ca.clone().map(String::into_bytes).filter(is_pem).or_else(|| {
            let found = [by_info, installed.api_server_ca.clone()].into_iter().flatten();
            let (kept, others): (Vec<_>, Vec<_>) = found.partition(|ca| keeps(ca, present));
            if kept.is_empty() && !others.is_empty() {
                tracing::warn!(
                    "the CA stays as it is: ConfigMap kube-root-ca.crt cannot be read, and the other sources of the CA lack \
                     certificates of the one in use; if the CA was replaced, write it into the ControllerConfig, at \
                     spec.kubeAPIServerServingCAData"
                );
            }
            kept.into_iter().next()
        });
        let by_service: Vec<IpAddr> = self.dns_service.iter().filter_map(|a| a.parse().ok()).collect();
        let of_nets = services.iter().map(|n| n.addr().is_ipv6());
        let families: Vec<bool> = if services.is_empty() {
            by_service.iter().map(IpAddr::is_ipv6).collect()
        } else {
            of_nets.collect()
        };
        let [control_plane_topology, infrastructure_topology] = self.topologies.map(|t| t.map(str::to_owned));
        ControllerConfigValues {
            cluster_dns_ip: said.cluster_dns_ip.clone().or(dns).or_else(|| installed.cluster_dns_ip.clone()),
            api_server_url: said.api_server_url.clone().or(url).or_else(|| installed.api_server_url.clone()),
            api_server_ca: said.api_server_ca.clone().or(ca),
            ip_families: families_word(&families).map(str::to_owned),
            control_plane_topology,
            infrastructure_topology,
        }
    }
}

/// Whether a bundle has every certificate of another one.
fn keeps(new: &[u8], old: &[u8]) -> bool {
    let certificates = |pem: &[u8]| -> BTreeSet<String> {
        api::formats::pem::certificates(&String::from_utf8_lossy(pem)).collect()
    };
    certificates(old).is_subset(&certificates(new))
}

fn yaml(text: &str) -> Option<Value> {
    api::formats::yaml::from_str(text).ok()
}

/// The word of the ControllerConfig for these families, in their order; true: IPv6.
fn families_word(is_v6: &[bool]) -> Option<&'static str> {
    let first = *is_v6.first()?;
    Some(match (first, is_v6.contains(&!first)) {
        (false, false) => "IPv4",
        (true, false) => "IPv6",
        (false, true) => "DualStack",
        (true, true) => "DualStackIPv6Primary",
    })
}

/// The tenth address of a range, where clusters put their DNS. `None`: the range is too small.
pub(crate) fn dns_address(net: &IpNet) -> Option<String> {
    let address = match net.network() {
        IpAddr::V4(first) => IpAddr::from(u32::from(first).checked_add(10)?.to_be_bytes()),
        IpAddr::V6(first) => IpAddr::from(u128::from(first).checked_add(10)?.to_be_bytes()),
    };
    net.contains(&address).then(|| address.to_string())
}

/// kubeadm's default port where none is named.
fn with_port(endpoint: &str) -> String {
    let after_host = endpoint.rsplit_once(']').map_or(endpoint, |(_, rest)| rest);
    let has_port = after_host.rsplit_once(':').is_some_and(|(_, port)| port.parse::<u16>().is_ok());
    if has_port { endpoint.to_owned() } else { format!("{endpoint}:6443") }
}

/// Base64, as in a kubeconfig.
fn decode(text: &str) -> Option<Vec<u8>> {
    let quoted = Value::String(text.trim().to_owned());
    serde_json::from_value::<api::k8s::ByteString>(quoted).ok().map(|bytes| bytes.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    const PEM: &str = "-----BEGIN CERTIFICATE-----\nb3RoZXI=\n-----END CERTIFICATE-----\n";

    fn info(server: &str, ca: bool) -> String {
        let data = serde_json::to_value(api::k8s::ByteString(PEM.as_bytes().to_vec())).unwrap();
        let data = if ca {
            format!("\n    certificate-authority-data: {}", data.as_str().unwrap())
        } else {
            String::new()
        };
        format!(
            "apiVersion: v1\nkind: Config\nclusters:\n- name: \"\"\n  cluster:\n    server: {server}{data}\n"
        )
    }

    fn row(settings: &ControllerConfigValues) -> [&str; 4] {
        [
            settings.cluster_dns_ip.as_deref().unwrap_or_default(),
            settings.api_server_url.as_deref().unwrap_or_default(),
            if settings.api_server_ca.as_deref() == Some(PEM.as_bytes()) { "ca" } else { "" },
            settings.ip_families.as_deref().unwrap_or_default(),
        ]
    }

    #[test]
    fn the_cluster_says_what_it_is() {
        let kubeadm = |endpoint: &str, subnet: &str| {
            Some(format!(
                "apiVersion: kubeadm.k8s.io/v1beta4\nkind: ClusterConfiguration\ncontrolPlaneEndpoint: \"{endpoint}\"\nnetworking:\n  dnsDomain: cluster.local\n  serviceSubnet: {subnet}\n"
            ))
        };
        let kubelet = Some("kind: KubeletConfiguration\nclusterDNS:\n- 10.96.0.10\n".to_owned());
        let installed = ControllerConfigValues {
            cluster_dns_ip: Some("10.0.0.1".to_owned()),
            api_server_url: Some("https://kubeconfig:6443".to_owned()),
            ..ControllerConfigValues::default()
        };
        let rows: [(Facts, [&str; 4]); 8] = [
            (Facts::default(), ["10.0.0.1", "https://kubeconfig:6443", "", ""]),
            // kubeadm with one control plane node: cluster-info has its address.
            (
                Facts {
                    cluster_info: Some(info("https://10.1.0.2:6443", true)),
                    cluster_configuration: kubeadm("", "10.96.0.0/12"),
                    kubelet_config: kubelet,
                    ..Facts::default()
                },
                ["10.96.0.10", "https://10.1.0.2:6443", "ca", "IPv4"],
            ),
            // Three control plane nodes behind one address, which all machines use.
            (
                Facts {
                    cluster_info: Some(info("https://10.1.0.2:6443", true)),
                    cluster_configuration: kubeadm("api.example.com", "10.96.0.0/12,fd00:10:96::/112"),
                    ..Facts::default()
                },
                ["10.96.0.10", "https://api.example.com:6443", "ca", "DualStack"],
            ),
            (
                Facts {
                    cluster_configuration: kubeadm("[fd00::5]:8443", "fd00:10:96::/112,10.96.0.0/12"),
                    ..Facts::default()
                },
                ["fd00:10:96::a", "https://[fd00::5]:8443", "", "DualStackIPv6Primary"],
            ),
            (
                Facts { cluster_configuration: kubeadm("[fd00::5]", "fd00::/112"), ..Facts::default() },
                ["fd00::a", "https://[fd00::5]:6443", "", "IPv6"],
            ),
            // Another distribution, without kubeadm's ConfigMaps: the Services have the addresses.
            (
                Facts {
                    dns_service: vec!["10.43.0.10".to_owned()],
                    root_ca: Some(PEM.to_owned()),
                    ..Facts::default()
                },
                ["10.43.0.10", "https://kubeconfig:6443", "ca", "IPv4"],
            ),
            // Unreadable facts count as absent.
            (
                Facts {
                    cluster_info: Some("{".to_owned()),
                    cluster_configuration: Some("- a".to_owned()),
                    kubelet_config: Some("3".to_owned()),
                    root_ca: Some("none".to_owned()),
                    ..Facts::default()
                },
                ["10.0.0.1", "https://kubeconfig:6443", "", ""],
            ),
            (
                Facts {
                    cluster_info: Some(info("https://a:1", false)),
                    root_ca: Some(PEM.to_owned()),
                    ..Facts::default()
                },
                ["10.0.0.1", "https://a:1", "ca", ""],
            ),
        ];
        for (facts, want) in rows {
            assert_eq!(
                row(&facts.settings(&ControllerConfigValues::default(), &installed, b"")),
                want,
                "{facts:?}"
            );
            let said = ControllerConfigValues {
                api_server_url: Some("https://said".to_owned()),
                ..ControllerConfigValues::default()
            };
            assert_eq!(
                row(&facts.settings(&said, &installed, b"")),
                [want[0], "https://said", want[2], want[3]]
            );
        }
    }

    #[test]
    fn an_older_ca_does_not_come_back_while_the_cluster_does_not_say_its_own() {
        let pem = |name: &str| format!("-----BEGIN CERTIFICATE-----\n{name}\n-----END CERTIFICATE-----\n");
        let (old, new) = (PEM.to_owned(), pem("bmV3"));
        let both = format!("{old}{new}");
        let installed = ControllerConfigValues {
            api_server_ca: Some(old.clone().into_bytes()),
            ..ControllerConfigValues::default()
        };
        let by_info = Facts { cluster_info: Some(info("https://a:1", true)), ..Facts::default() };
        for (facts, present, want) in [
            // The first one.
            (&by_info, "", Some(&old)),
            (&Facts::default(), "", Some(&old)),
            // After a rotation: cluster-info and the installation still say the old one.
            (&by_info, new.as_str(), None),
            (&Facts::default(), &new, None),
            (&by_info, &both, None),
            // What is newer is not hidden by what is older.
            (&Facts { cluster_info: Some(info("https://a:1", true)), ..Facts::default() }, &old, Some(&old)),
            (&by_info, &old, Some(&old)),
            (&Facts { root_ca: Some(new.clone()), ..by_info.clone() }, &old, Some(&new)),
        ] {
            let got = facts.settings(&ControllerConfigValues::default(), &installed, present.as_bytes());
            let got = got.api_server_ca.map(|ca| String::from_utf8(ca).unwrap());
            assert_eq!(got.as_ref(), want, "{facts:?} with {present:?}");
        }
        let said = ControllerConfigValues {
            api_server_ca: Some(new.clone().into_bytes()),
            ..ControllerConfigValues::default()
        };
        let got = by_info.settings(&said, &installed, both.as_bytes());
        assert_eq!(got.api_server_ca, said.api_server_ca, "a person's word counts");
        assert!(keeps(both.as_bytes(), new.as_bytes()) && !keeps(new.as_bytes(), both.as_bytes()));
    }

    #[test]
    fn the_tenth_address_is_counted_from_the_ranges_beginning() {
        for (net, want) in [
            ("192.168.2.0/20", Some("192.168.0.10")),
            ("2001:db8::/32", Some("2001:db8::a")),
            ("192.168.1.254/32", None),
            ("255.255.255.248/29", None),
        ] {
            assert_eq!(dns_address(&net.parse().unwrap()).as_deref(), want, "{net}");
        }
    }
}
