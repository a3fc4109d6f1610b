//! Networks and host names in settings and arguments: whether a text is one. Pure.
//!
//! What it is not: what a network or a host may do, or the resolution of names.
//!
//! Sources: <https://www.rfc-editor.org/rfc/rfc4632> and <https://www.rfc-editor.org/rfc/rfc1123> (section 2.1).

use ipnet::IpNet;
use std::net::{IpAddr, Ipv6Addr};

/// A network, or a single address. `None`: the text is neither.
pub fn network(text: &str) -> Option<IpNet> {
    text.parse().ok().or_else(|| text.parse::<IpAddr>().ok().map(IpNet::from))
}

/// Whether every address is in a network: to trust it is to trust everybody.
pub fn is_everybody(network: &IpNet) -> bool {
    network.prefix_len() == 0
}

/// A host's name or address, and its port.
pub fn name_and_port(host: &str) -> (&str, Option<&str>) {
    match host.rsplit_once(':') {
        // An IPv6 address has brackets.
        Some((name, port)) if !port.contains(']') => (name, Some(port)),
        _ => (host, None),
    }
}

/// Whether a text is the name or the address of a host, with or without a port, as browsers send it. An IPv6 address has brackets. A
/// name may have underscores: some DNS names do. A port is from 1 to 65535, without leading zeros.
///
/// The CEL rule of `spec.dashboard.hosts` in [`MachineConfigOperator`](crate::v1alpha1::MachineConfigOperator) accepts the same texts.
pub fn is_host(text: &str) -> bool {
    let (name, port) = name_and_port(text);
    let is_name = |c: char| c.is_ascii_alphanumeric() || ['.', '-', '_'].contains(&c);
    let v6 = name.strip_prefix('[').and_then(|rest| rest.strip_suffix(']'));
    let fits = match v6 {
        Some(address) => address.parse::<Ipv6Addr>().is_ok(),
        None => !name.is_empty() && name.chars().all(is_name),
    };
    // Numbers are parsed with a sign, too.
    let is_port =
        |port: &str| port.starts_with(|c: char| ('1'..='9').contains(&c)) && port.parse::<u16>().is_ok();
    fits && port.is_none_or(is_port)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn networks_and_hosts_are_told_from_other_texts() {
        for (text, want) in [
            ("10.0.0.4", Some("10.0.0.4/32")),
            ("10.0.0.4/31", Some("10.0.0.4/31")),
            ("fd00::1", Some("fd00::1/128")),
            ("10.0.0.1/99", None),
            ("ten", None),
            ("", None),
        ] {
            assert_eq!(network(text).map(|net| net.to_string()).as_deref(), want, "{text}");
        }
        assert!(network("0.0.0.0/0").is_some_and(|net| is_everybody(&net)));
        assert!(network("10.0.0.0/8").is_some_and(|net| !is_everybody(&net)));
    }

    /// A test with a real API server runs the CEL rule over the same table.
    #[test]
    fn hosts_are_told_from_other_texts() {
        let mut rows = 0;
        for line in include_str!("../../tests/hosts.txt").lines().filter(|line| !line.starts_with('#')) {
            let (word, host) = line.split_once(' ').unwrap();
            assert!(["yes", "no"].contains(&word), "{line}");
            assert_eq!(is_host(host), word == "yes", "{host}");
            rows += 1;
        }
        assert!(rows > 30 && !is_host(""), "{rows}");
    }
}
