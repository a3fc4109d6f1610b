//! The bridge to which all nodes of a lab are attached, with a subnet that nothing else on this computer uses.
//!
//! The bridge's name is made from its subnet, so creating the link also reserves the subnet: two labs that start at the
//! same moment cannot get the same one.
//!
//! Not here: the veth of each node, which nspawn creates and attaches at every boot.

use std::net::{IpAddr, Ipv4Addr};
use std::path::Path;
use std::time::Duration;

use crate::error::{Error, Result};
use crate::system::command::{output, run, run_blocking};
use crate::system::random::random;

const IP_LIMIT: Duration = Duration::from_secs(10);
/// Subnets are tried from here on in 10/8, away from those that clouds, VPNs and container engines usually take.
const FIRST: u8 = 196;
const LAST: u8 = 227;
/// How many subnets are tried before the lab fails.
const ATTEMPTS: u32 = 200;

/// A bridge with a /24 subnet. Dropping it deletes the link.
#[derive(Debug)]
pub struct Bridge {
    name: String,
    second: u8,
    third: u8,
}

impl Bridge {
    /// Creates a bridge on a free subnet.
    ///
    /// # Errors
    /// Not root, or no subnet is free.
    pub async fn create() -> Result<Self> {
        let taken = taken_networks().await?;
        let mut seed = random();
        let mut refused = String::new();
        for _ in 0..ATTEMPTS {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let [high, low, ..] = seed.to_be_bytes();
            let (second, third) = (FIRST + high % (LAST - FIRST + 1), low);
            let subnet = Ipv4Addr::new(10, second, third, 0);
            if taken.iter().any(|network| network.overlaps(Network { address: subnet, prefix: 24 })) {
                continue;
            }
            let bridge = Self { name: format!("mcl{second}-{third}"), second, third };
            // The bridge gets a fixed MAC address. Otherwise it would take that of a node that joins, and the ARP
            // entries of other nodes for the API server would become stale.
            let hardware = format!("02:6d:63:6c:{second:02x}:{third:02x}");
            let added =
                output("ip", ["link", "add", &bridge.name, "address", &hardware, "type", "bridge"], IP_LIMIT)
                    .await?;
            if added.code != 0 {
                refused = added.stderr;
                std::mem::forget(bridge);
                if refused.contains("File exists") {
                    continue;
                }
                break;
            }
            let address = format!("{}/24", bridge.gateway());
            run("ip", ["address", "add", &address, "dev", &bridge.name], IP_LIMIT).await?;
            run("ip", ["link", "set", &bridge.name, "up"], IP_LIMIT).await?;
            tracing::info!(bridge = %bridge.name, %address, "bridge");
            return Ok(bridge);
        }
        Err(Error::Options(format!("no bridge could be made: {}", refused.trim())))
    }

    /// The name of the link.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The bridge's own address: the nodes' gateway and the API server's address.
    #[must_use]
    pub fn gateway(&self) -> IpAddr {
        IpAddr::V4(Ipv4Addr::new(10, self.second, self.third, 1))
    }

    /// The address of node number `index`, counted from 0.
    #[must_use]
    pub fn node_address(&self, index: usize) -> Option<IpAddr> {
        /// .1 is the gateway; node addresses start here.
        const OFFSET: usize = 10;
        let last = u8::try_from(index + OFFSET).ok().filter(|last| *last < 255)?;
        Some(IpAddr::V4(Ipv4Addr::new(10, self.second, self.third, last)))
    }

    /// A name for node number `index` that no other lab on this computer uses at the same time. It is short, because
    /// the name of the node's link is made from it (15 bytes at most).
    #[must_use]
    pub fn machine_name(&self, index: usize) -> String {
        format!("m{}-{}-{index}", self.second, self.third)
    }
}

impl Drop for Bridge {
    fn drop(&mut self) {
        delete(&self.name);
    }
}

/// Deletes a bridge and the links of machines that are attached to it. The links would disappear with their machines'
/// network namespaces anyway, but that takes the kernel some time, and the next lab with the same names would find
/// them. Blocks.
pub(crate) fn delete(bridge: &str) {
    let links = Path::new("/sys/class/net");
    let ports = std::fs::read_dir(links.join(bridge).join("brif")).into_iter().flatten().flatten();
    let ports = ports.map(|port| port.file_name().to_string_lossy().into_owned());
    for link in ports.chain([bridge.to_owned()]) {
        let there = || links.join(&link).exists();
        // The kernel may have deleted the link in the meantime.
        if there() && run_blocking("ip", &["link", "delete", &link]).is_none() && there() {
            tracing::warn!(%link, "a network link could not be deleted");
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Network {
    address: Ipv4Addr,
    prefix: u8,
}

impl Network {
    fn parse(text: &str) -> Option<Self> {
        let (address, prefix) = text.split_once('/').unwrap_or((text, "32"));
        Some(Self {
            address: address.parse().ok()?,
            prefix: prefix.parse().ok().filter(|prefix| *prefix <= 32)?,
        })
    }

    fn overlaps(self, other: Self) -> bool {
        let prefix = u32::from(self.prefix.min(other.prefix));
        let mask = u32::MAX.checked_shl(32 - prefix).unwrap_or(0);
        u32::from(self.address) & mask == u32::from(other.address) & mask
    }
}

/// Every network in an address or a route of this computer.
async fn taken_networks() -> Result<Vec<Network>> {
    let routes = run("ip", ["-4", "-o", "route", "show", "table", "all"], IP_LIMIT).await?;
    Ok(parse_routes(&routes))
}

fn parse_routes(text: &str) -> Vec<Network> {
    text.lines()
        .filter_map(|line| {
            line.split_whitespace().find(|word| !matches!(*word, "local" | "broadcast" | "unicast"))
        })
        .filter_map(Network::parse)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_subnet_that_a_route_covers_is_taken() {
        let routes = "default via 192.0.2.1 dev eth0\n10.200.0.0/16 dev x scope link\n\
                      local 10.201.3.1 dev y table local scope host\n10.0.0.0/24 dev z";
        let taken = parse_routes(routes);
        let cases = [
            ("10.200.77.0/24", true),
            ("10.201.3.0/24", true),
            ("10.201.4.0/24", false),
            ("10.0.1.0/24", false),
        ];
        for (subnet, want) in cases {
            let network = Network::parse(subnet).unwrap();
            assert_eq!(taken.iter().any(|other| other.overlaps(network)), want, "{subnet}");
        }
    }

    #[test]
    fn the_names_of_the_nodes_links_fit() {
        let bridge = Bridge { name: String::new(), second: 227, third: 255 };
        assert!(format!("vb-{}", bridge.machine_name(244)).len() <= 15);
        assert!(bridge.node_address(244).is_some() && bridge.node_address(245).is_none());
        std::mem::forget(bridge);
    }
}
