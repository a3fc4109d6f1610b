//! Networks and host names in settings and arguments: whether a text is one. Pure.
//!
//! What it is not: what a network or a host may do, or the resolution of names.

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

/// Whether a text is the name or the address of a host, with or without a port. An IPv6 address has brackets. A name may
/// have underscores: some DNS names do.
pub fn is_host(text: &str) -> bool {
    let (name, port) = match text.rsplit_once(':') {
        Some((name, port)) if !port.contains(']') => (name, Some(port)),
        _ => (text, None),
    };
    let is_name = |c: char| c.is_ascii_alphanumeric() || ['.', '-', '_'].contains(&c);
    let v6 = name.strip_prefix('[').and_then(|rest| rest.strip_suffix(']'));
    let fits = match v6 {
        Some(address) => address.parse::<Ipv6Addr>().is_ok(),
        None => !name.is_empty() && name.chars().all(is_name),
    };
    fits && port.is_none_or(|port| port.parse::<u16>().is_ok())
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
        for host in [
            "mco.example.com",
            "my_dash.example.com",
            "mco.example.com:8443",
            "10.0.0.1",
            "[fd00::1]",
            "[fd00::1]:443",
        ] {
            assert!(is_host(host), "{host}");
        }
        for other in ["", "https://a", "a/b", "a b", "me@a", "a:", "a:99999", "[x]", ":443", "fd00::1"] {
            assert!(!is_host(other), "{other}");
        }
    }
}
