//! Which parts of a config can cut a node off: from its network, from its cluster, or from the people who could repair
//! it. A change of such a part is kept only if the node proves afterwards that it is still there (see `host::Trial`).
//! Pure, one table.
//!
//! What it is not: what a change costs (see `DisruptionPolicy`), nor whether a certain file is right: that only the node
//! itself can show.

use crate::os::OsField;

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

/// The reasons, as people read them.
mod because {
    pub(super) const NETWORK: &str = "it configures the network";
    pub(super) const NAMES: &str = "it decides how names are resolved, the API server's among them";
    pub(super) const DEVICES: &str = "it decides which network devices there are and what they are called";
    pub(super) const SYSCTL: &str = "it sets kernel parameters of the network";
    pub(super) const FIREWALL: &str = "it configures the firewall";
    pub(super) const KUBELET: &str = "the kubelet or a static pod reads it";
    pub(super) const CNI: &str = "the runtime sets up the network of pods by it";
    pub(super) const RUNTIME: &str = "the container runtime does not start with a wrong one";
    pub(super) const SSH: &str = "people log in through what it configures";
    pub(super) const SSH_UNIT: &str = "people log in through it";
    pub(super) const MOUNTS: &str = "the machine stops in emergency mode if a mount in it fails";
}

/// The files. Registries, pull policies and registry certificates are not here: a wrong one stops pulls, not the node.
const FILES: [(Where, &str); 49] = [
    (Where::Below("/etc/systemd/network"), because::NETWORK),
    (Where::File("/etc/systemd/networkd.conf"), because::NETWORK),
    (Where::Below("/etc/systemd/networkd.conf.d"), because::NETWORK),
    (Where::Below("/etc/netplan"), because::NETWORK),
    (Where::Below("/etc/NetworkManager"), because::NETWORK),
    (Where::Below("/etc/nmstate"), because::NETWORK),
    (Where::Below("/etc/network"), because::NETWORK),
    (Where::Below("/etc/sysconfig/network-scripts"), because::NETWORK),
    (Where::File("/etc/sysconfig/network"), because::NETWORK),
    (Where::Below("/etc/wpa_supplicant"), because::NETWORK),
    (Where::File("/etc/resolv.conf"), because::NAMES),
    (Where::File("/etc/hosts"), because::NAMES),
    (Where::File("/etc/hostname"), because::NAMES),
    (Where::File("/etc/nsswitch.conf"), because::NAMES),
    (Where::File("/etc/systemd/resolved.conf"), because::NAMES),
    (Where::Below("/etc/systemd/resolved.conf.d"), because::NAMES),
    (Where::Below("/etc/udev/rules.d"), because::DEVICES),
    (Where::Below("/etc/modprobe.d"), because::DEVICES),
    (Where::NetSysctl("/etc/sysctl.d"), because::SYSCTL),
    (Where::NetSysctl("/etc/sysctl.conf"), because::SYSCTL),
    (Where::File("/etc/nftables.conf"), because::FIREWALL),
    (Where::Below("/etc/nftables"), because::FIREWALL),
    (Where::File("/etc/sysconfig/nftables.conf"), because::FIREWALL),
    (Where::Below("/etc/iptables"), because::FIREWALL),
    (Where::File("/etc/sysconfig/iptables"), because::FIREWALL),
    (Where::File("/etc/sysconfig/ip6tables"), because::FIREWALL),
    (Where::Below("/etc/firewalld"), because::FIREWALL),
    (Where::Below("/etc/ufw"), because::FIREWALL),
    (Where::Below("/etc/kubernetes"), because::KUBELET),
    (Where::Below("/var/lib/kubelet"), because::KUBELET),
    (Where::File("/etc/default/kubelet"), because::KUBELET),
    (Where::File("/etc/sysconfig/kubelet"), because::KUBELET),
    (Where::Below("/etc/rancher"), because::KUBELET),
    (Where::Below("/etc/k0s"), because::KUBELET),
    (Where::Below("/var/lib/rancher"), because::KUBELET),
    (Where::Below("/var/lib/k0s"), because::KUBELET),
    (Where::Below("/etc/cni/net.d"), because::CNI),
    (Where::Below("/etc/crio"), because::RUNTIME),
    (Where::File("/etc/containerd/config.toml"), because::RUNTIME),
    (Where::Below("/etc/containerd/conf.d"), because::RUNTIME),
    (Where::Below("/etc/containerd/config.d"), because::RUNTIME),
    (Where::File("/etc/containers/storage.conf"), because::RUNTIME),
    (Where::Below("/etc/containers/storage.conf.d"), because::RUNTIME),
    (Where::File("/etc/docker/daemon.json"), because::RUNTIME),
    (Where::Below("/etc/ssh"), because::SSH),
    (Where::Below("/etc/pam.d"), because::SSH),
    (Where::Below("/etc/security"), because::SSH),
    (Where::File("/etc/fstab"), because::MOUNTS),
    (Where::File("/etc/crypttab"), because::MOUNTS),
];

/// The units that a node cannot do without: any change of them counts, also of their drop-ins and of their enablement.
const UNITS: [(&str, &str); 34] = [
    ("kubelet.service", "it is the kubelet"),
    ("k3s.service", "it is the kubelet"),
    ("k3s-agent.service", "it is the kubelet"),
    ("rke2-server.service", "it is the kubelet"),
    ("rke2-agent.service", "it is the kubelet"),
    ("k0scontroller.service", "it is the kubelet"),
    ("k0sworker.service", "it is the kubelet"),
    ("crio.service", "it is the container runtime"),
    ("containerd.service", "it is the container runtime"),
    ("docker.service", "it is the container runtime"),
    ("docker.socket", "it is the container runtime"),
    ("cri-docker.service", "it is the container runtime"),
    ("cri-docker.socket", "it is the container runtime"),
    ("systemd-networkd.service", "it brings up the network"),
    ("systemd-networkd.socket", "it brings up the network"),
    ("systemd-networkd-wait-online.service", "services that need the network wait for it"),
    ("NetworkManager.service", "it brings up the network"),
    ("NetworkManager-wait-online.service", "services that need the network wait for it"),
    ("networking.service", "it brings up the network"),
    ("nmstate.service", "it brings up the network"),
    ("systemd-resolved.service", "it resolves names, the API server's among them"),
    ("systemd-udevd.service", "it sets up network devices"),
    ("dbus.service", "the network and systemd are controlled through it"),
    ("nftables.service", "it is the firewall"),
    ("iptables.service", "it is the firewall"),
    ("netfilter-persistent.service", "it is the firewall"),
    ("firewalld.service", "it is the firewall"),
    ("ufw.service", "it is the firewall"),
    ("sshd.service", because::SSH_UNIT),
    ("ssh.service", because::SSH_UNIT),
    ("sshd.socket", because::SSH_UNIT),
    ("ssh.socket", because::SSH_UNIT),
    ("sshd@.service", because::SSH_UNIT),
    ("ssh@.service", because::SSH_UNIT),
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
pub fn file_cuts_off(path: &str, texts: &[&[u8]]) -> Option<&'static str> {
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
pub fn unit_cuts_off(name: &str, starts: bool) -> Option<&'static str> {
    if let Some((_, why)) = UNITS.iter().find(|(unit, _)| *unit == name) {
        return Some(why);
    }
    if name.ends_with(".mount") && starts {
        return Some(because::MOUNTS);
    }
    let runs = [".service", ".path", ".socket", ".timer", ".target"].iter().any(|kind| name.ends_with(kind));
    (starts && runs).then_some("it starts at boot, and may stop other units or change the network")
}

/// Whether such a reason is about people's logins.
#[must_use]
pub fn is_about_logins(why: &str) -> bool {
    [because::SSH, because::SSH_UNIT].contains(&why)
}

/// Why a change of this field can cut a node off.
#[must_use]
pub fn field_cuts_off(field: OsField) -> &'static str {
    match field {
        OsField::Image => "kubelet, drivers and network come from the image",
        OsField::KernelArguments => "the machine boots with them",
        OsField::KernelType => "the machine boots this kernel",
        OsField::Extensions => "packages bring units and drivers of their own",
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
            assert!(why.is_some_and(|why| why.contains(word)), "{path}: {why:?}");
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
        assert_eq!(unit_cuts_off("kubelet.service", false), Some("it is the kubelet"));
        assert!(unit_cuts_off("mine.service", true).is_some_and(|why| why.contains("boot")));
        assert_eq!(unit_cuts_off("mine.service", false), None);
        assert_eq!(unit_cuts_off("mine.slice", true), None);
        assert!(KUBELET_UNITS.iter().chain(&SSH_UNITS).all(|u| unit_cuts_off(u, false).is_some()));
        assert!(OsField::ALL.iter().all(|f| !field_cuts_off(*f).is_empty()));
    }
}
