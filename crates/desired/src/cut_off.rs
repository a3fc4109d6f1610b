//! Which parts of a config can cut a node off: from its network, from its cluster, or from the people who could repair
//! it. A change of such a part is kept only if the node proves afterwards that it is still there (see `host::Trial`).
//! Pure, one table.
//!
//! What it is not: what a change costs (see `DisruptionPolicy`), nor whether a certain file is right: that only the node
//! itself can show.

use crate::os::OsField;
use serde::{Serialize, Serializer};
use std::fmt;

/// Which paths a row is about.
#[derive(Clone, Copy, Debug)]
enum Where {
    /// This file.
    File(&'static str),
    /// Everything below this folder.
    Below(&'static str),
    /// Everything below this folder that sets a kernel parameter of the network.
    NetSysctl(&'static str),
}

/// Why a part of a config can cut a node off. People read its text, and in JSON it is that text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CutOffReason {
    /// A file that configures the network.
    Network,
    /// A file of name resolution.
    Names,
    /// A file about network devices.
    Devices,
    /// A file with kernel parameters of the network.
    NetworkParameters,
    /// A file of the firewall.
    Firewall,
    /// A file of the kubelet or of static pods.
    ReadByKubelet,
    /// A file of the pods' network.
    PodNetwork,
    /// A file of the container runtime.
    Runtime,
    /// A file of the SSH server or of logins.
    Logins,
    /// A unit of the SSH server.
    SshServer,
    /// A mount.
    Mounts,
    /// The kubelet's unit.
    IsKubelet,
    /// The container runtime's unit.
    IsRuntime,
    /// A unit that brings up the network.
    BringsUpNetwork,
    /// A unit that waits for the network.
    AwaitsNetwork,
    /// The unit of name resolution.
    ResolvesNames,
    /// The unit of network devices.
    SetsUpDevices,
    /// The unit of the message bus.
    Bus,
    /// A unit of the firewall.
    IsFirewall,
    /// A unit that starts at boot.
    StartsAtBoot,
    /// The operating system's image.
    Image,
    /// The kernel's arguments.
    KernelArguments,
    /// Another kernel.
    KernelType,
    /// Packages.
    Extensions,
}

impl CutOffReason {
    /// As people read it, after the name of the part.
    #[must_use]
    pub fn text(self) -> &'static str {
        match self {
            Self::Network => "it configures the network",
            Self::Names => "it decides how names are resolved, the API server's among them",
            Self::Devices => "it decides which network devices there are and what they are called",
            Self::NetworkParameters => "it sets kernel parameters of the network",
            Self::Firewall => "it configures the firewall",
            Self::ReadByKubelet => "the kubelet or a static pod reads it",
            Self::PodNetwork => "the runtime sets up the network of pods by it",
            Self::Runtime => "the container runtime does not start with a wrong one",
            Self::Logins => "people log in through what it configures",
            Self::SshServer => "people log in through it",
            Self::Mounts => "the machine stops in emergency mode if a mount in it fails",
            Self::IsKubelet => "it is the kubelet",
            Self::IsRuntime => "it is the container runtime",
            Self::BringsUpNetwork => "it brings up the network",
            Self::AwaitsNetwork => "services that need the network wait for it",
            Self::ResolvesNames => "it resolves names, the API server's among them",
            Self::SetsUpDevices => "it sets up network devices",
            Self::Bus => "the network and systemd are controlled through it",
            Self::IsFirewall => "it is the firewall",
            Self::StartsAtBoot => "it starts at boot, and may stop other units or change the network",
            Self::Image => "kubelet, drivers and network come from the image",
            Self::KernelArguments => "the machine boots with them",
            Self::KernelType => "the machine boots this kernel",
            Self::Extensions => "packages bring units and drivers of their own",
        }
    }

    /// Whether it is about people's logins: they must be able to log in afterwards if they were before.
    #[must_use]
    pub fn is_about_logins(self) -> bool {
        matches!(self, Self::Logins | Self::SshServer)
    }
}

impl fmt::Display for CutOffReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.text())
    }
}

impl Serialize for CutOffReason {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(self.text())
    }
}

/// The files. Registries, pull policies and registry certificates are not here: a wrong one stops pulls, not the node.
const FILES: [(Where, CutOffReason); 49] = [
    (Where::Below("/etc/systemd/network"), CutOffReason::Network),
    (Where::File("/etc/systemd/networkd.conf"), CutOffReason::Network),
    (Where::Below("/etc/systemd/networkd.conf.d"), CutOffReason::Network),
    (Where::Below("/etc/netplan"), CutOffReason::Network),
    (Where::Below("/etc/NetworkManager"), CutOffReason::Network),
    (Where::Below("/etc/nmstate"), CutOffReason::Network),
    (Where::Below("/etc/network"), CutOffReason::Network),
    (Where::Below("/etc/sysconfig/network-scripts"), CutOffReason::Network),
    (Where::File("/etc/sysconfig/network"), CutOffReason::Network),
    (Where::Below("/etc/wpa_supplicant"), CutOffReason::Network),
    (Where::File("/etc/resolv.conf"), CutOffReason::Names),
    (Where::File("/etc/hosts"), CutOffReason::Names),
    (Where::File("/etc/hostname"), CutOffReason::Names),
    (Where::File("/etc/nsswitch.conf"), CutOffReason::Names),
    (Where::File("/etc/systemd/resolved.conf"), CutOffReason::Names),
    (Where::Below("/etc/systemd/resolved.conf.d"), CutOffReason::Names),
    (Where::Below("/etc/udev/rules.d"), CutOffReason::Devices),
    (Where::Below("/etc/modprobe.d"), CutOffReason::Devices),
    (Where::NetSysctl("/etc/sysctl.d"), CutOffReason::NetworkParameters),
    (Where::NetSysctl("/etc/sysctl.conf"), CutOffReason::NetworkParameters),
    (Where::File("/etc/nftables.conf"), CutOffReason::Firewall),
    (Where::Below("/etc/nftables"), CutOffReason::Firewall),
    (Where::File("/etc/sysconfig/nftables.conf"), CutOffReason::Firewall),
    (Where::Below("/etc/iptables"), CutOffReason::Firewall),
    (Where::File("/etc/sysconfig/iptables"), CutOffReason::Firewall),
    (Where::File("/etc/sysconfig/ip6tables"), CutOffReason::Firewall),
    (Where::Below("/etc/firewalld"), CutOffReason::Firewall),
    (Where::Below("/etc/ufw"), CutOffReason::Firewall),
    (Where::Below("/etc/kubernetes"), CutOffReason::ReadByKubelet),
    (Where::Below("/var/lib/kubelet"), CutOffReason::ReadByKubelet),
    (Where::File("/etc/default/kubelet"), CutOffReason::ReadByKubelet),
    (Where::File("/etc/sysconfig/kubelet"), CutOffReason::ReadByKubelet),
    (Where::Below("/etc/rancher"), CutOffReason::ReadByKubelet),
    (Where::Below("/etc/k0s"), CutOffReason::ReadByKubelet),
    (Where::Below("/var/lib/rancher"), CutOffReason::ReadByKubelet),
    (Where::Below("/var/lib/k0s"), CutOffReason::ReadByKubelet),
    (Where::Below("/etc/cni/net.d"), CutOffReason::PodNetwork),
    (Where::Below("/etc/crio"), CutOffReason::Runtime),
    (Where::File("/etc/containerd/config.toml"), CutOffReason::Runtime),
    (Where::Below("/etc/containerd/conf.d"), CutOffReason::Runtime),
    (Where::Below("/etc/containerd/config.d"), CutOffReason::Runtime),
    (Where::File("/etc/containers/storage.conf"), CutOffReason::Runtime),
    (Where::Below("/etc/containers/storage.conf.d"), CutOffReason::Runtime),
    (Where::File("/etc/docker/daemon.json"), CutOffReason::Runtime),
    (Where::Below("/etc/ssh"), CutOffReason::Logins),
    (Where::Below("/etc/pam.d"), CutOffReason::Logins),
    (Where::Below("/etc/security"), CutOffReason::Logins),
    (Where::File("/etc/fstab"), CutOffReason::Mounts),
    (Where::File("/etc/crypttab"), CutOffReason::Mounts),
];

/// The units that a node cannot do without: any change of them counts, also of their drop-ins and of their enablement.
const UNITS: [(&str, CutOffReason); 34] = [
    ("kubelet.service", CutOffReason::IsKubelet),
    ("k3s.service", CutOffReason::IsKubelet),
    ("k3s-agent.service", CutOffReason::IsKubelet),
    ("rke2-server.service", CutOffReason::IsKubelet),
    ("rke2-agent.service", CutOffReason::IsKubelet),
    ("k0scontroller.service", CutOffReason::IsKubelet),
    ("k0sworker.service", CutOffReason::IsKubelet),
    ("crio.service", CutOffReason::IsRuntime),
    ("containerd.service", CutOffReason::IsRuntime),
    ("docker.service", CutOffReason::IsRuntime),
    ("docker.socket", CutOffReason::IsRuntime),
    ("cri-docker.service", CutOffReason::IsRuntime),
    ("cri-docker.socket", CutOffReason::IsRuntime),
    ("systemd-networkd.service", CutOffReason::BringsUpNetwork),
    ("systemd-networkd.socket", CutOffReason::BringsUpNetwork),
    ("systemd-networkd-wait-online.service", CutOffReason::AwaitsNetwork),
    ("NetworkManager.service", CutOffReason::BringsUpNetwork),
    ("NetworkManager-wait-online.service", CutOffReason::AwaitsNetwork),
    ("networking.service", CutOffReason::BringsUpNetwork),
    ("nmstate.service", CutOffReason::BringsUpNetwork),
    ("systemd-resolved.service", CutOffReason::ResolvesNames),
    ("systemd-udevd.service", CutOffReason::SetsUpDevices),
    ("dbus.service", CutOffReason::Bus),
    ("nftables.service", CutOffReason::IsFirewall),
    ("iptables.service", CutOffReason::IsFirewall),
    ("netfilter-persistent.service", CutOffReason::IsFirewall),
    ("firewalld.service", CutOffReason::IsFirewall),
    ("ufw.service", CutOffReason::IsFirewall),
    ("sshd.service", CutOffReason::SshServer),
    ("ssh.service", CutOffReason::SshServer),
    ("sshd.socket", CutOffReason::SshServer),
    ("ssh.socket", CutOffReason::SshServer),
    ("sshd@.service", CutOffReason::SshServer),
    ("ssh@.service", CutOffReason::SshServer),
];

/// The units that are a kubelet, one for each distribution. What runs of them before a change has to run after it.
pub const KUBELET_UNITS: [&str; 7] = [
    "kubelet.service",
    "k3s.service",
    "k3s-agent.service",
    "rke2-server.service",
    "rke2-agent.service",
    "k0scontroller.service",
    "k0sworker.service",
];
/// The units that are an SSH server, or the socket that starts one for each login. People can log in while one of them
/// runs.
pub const SSH_UNITS: [&str; 4] = ["sshd.service", "ssh.service", "sshd.socket", "ssh.socket"];

/// Why a change of the file, link or folder at this path can cut a node off. `texts`: what the path holds before and
/// after the change. `None`: it cannot.
#[must_use]
pub fn file_cuts_off(path: &str, texts: &[&[u8]]) -> Option<CutOffReason> {
    let below = |folder: &str| path.strip_prefix(folder).is_some_and(|rest| rest.starts_with('/'));
    let row = FILES.iter().find(|(place, _)| match place {
        Where::File(file) => *file == path,
        Where::Below(folder) => *folder == path || below(folder),
        Where::NetSysctl(at) => (*at == path || below(at)) && texts.iter().any(|text| sets_network(text)),
    });
    row.map(|(_, why)| *why)
}

/// Whether a file of sysctl.d(5) sets a parameter of the network. Slashes and dots separate alike, and a minus has a
/// failure ignored.
fn sets_network(text: &[u8]) -> bool {
    String::from_utf8_lossy(text).lines().any(|line| {
        let name = line.trim_start().trim_start_matches('-').trim_start();
        name.starts_with("net.") || name.starts_with("net/")
    })
}

/// Why a change of this unit can cut a node off. `starts`: the new config enables it, so it starts at boot. `None`: it
/// cannot.
#[must_use]
pub fn unit_cuts_off(name: &str, starts: bool) -> Option<CutOffReason> {
    if let Some((_, why)) = UNITS.iter().find(|(unit, _)| *unit == name) {
        return Some(*why);
    }
    if name.ends_with(".mount") && starts {
        return Some(CutOffReason::Mounts);
    }
    let runs = [".service", ".path", ".socket", ".timer", ".target"].iter().any(|kind| name.ends_with(kind));
    (starts && runs).then_some(CutOffReason::StartsAtBoot)
}

/// Why a change of this field can cut a node off.
#[must_use]
pub fn field_cuts_off(field: OsField) -> CutOffReason {
    match field {
        OsField::Image => CutOffReason::Image,
        OsField::KernelArguments => CutOffReason::KernelArguments,
        OsField::KernelType => CutOffReason::KernelType,
        OsField::Extensions => CutOffReason::Extensions,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_kind_of_change_that_can_cut_a_node_off_has_its_reason_and_others_have_none() {
        for (path, text, word) in [
            ("/etc/systemd/network/10-lan.network", "", "network"),
            ("/etc/netplan/50.yaml", "", "network"),
            ("/etc/NetworkManager/system-connections/a.nmconnection", "", "network"),
            ("/etc/resolv.conf", "", "names"),
            ("/etc/sysctl.d/90.conf", "vm.swappiness=1\n -net/ipv4/ip_forward = 0\n", "kernel parameters"),
            ("/etc/nftables.conf", "", "firewall"),
            ("/etc/kubernetes/kubelet.conf", "", "kubelet"),
            ("/etc/crio/crio.conf.d/10", "", "runtime"),
            ("/etc/containerd/config.toml", "", "runtime"),
            ("/etc/ssh/sshd_config.d/10.conf", "", "log in"),
            ("/etc/netplan", "", "network"),
        ] {
            let why = file_cuts_off(path, &[b"", text.as_bytes()]);
            assert!(why.is_some_and(|why| why.text().contains(word)), "{path}: {why:?}");
        }
        for (path, text) in [
            ("/etc/motd", "net.ipv4.ip_forward=0"),
            ("/etc/sysctl.d/90.conf", "# net.ipv4.ip_forward=0\nvm.swappiness=1\n"),
            ("/etc/netplanner/a", ""),
            ("/etc/containerd/certs.d/a/hosts.toml", ""),
            ("/etc/containers/registries.conf", ""),
        ] {
            assert_eq!(file_cuts_off(path, &[text.as_bytes()]), None, "{path}");
        }
    }

    #[test]
    fn a_unit_that_a_node_needs_counts_always_and_any_other_if_it_starts_at_boot() {
        assert_eq!(unit_cuts_off("kubelet.service", false), Some(CutOffReason::IsKubelet));
        assert!(unit_cuts_off("mine.service", true).is_some_and(|why| why.text().contains("boot")));
        assert_eq!(unit_cuts_off("mine.service", false), None);
        assert_eq!(unit_cuts_off("mine.slice", true), None);
        assert!(KUBELET_UNITS.iter().chain(&SSH_UNITS).all(|u| unit_cuts_off(u, false).is_some()));
        assert!(OsField::ALL.iter().all(|f| !field_cuts_off(*f).text().is_empty()));
    }
}
