//! The rows of the table: which files take effect without a reboot, and how. Data.
//!
//! What it is not: what a row asks of a host (see `table`).
//!
//! Sources: sysctl.d(5), modules-load.d(5), tmpfiles.d(5), journald.conf(5), udev(7).

use super::UnitVerb;
use crate::disk::root::split;

use FileMatch::{Below, In, Is};
use UnitVerb::{Reload, Restart};

/// How the files of a row take effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FileEffect {
    /// They are read at each use.
    AtEachUse,
    /// The first of these units that the host has applies the files, by this action.
    Unit(UnitVerb, &'static [&'static str]),
    /// sysctl.d(5).
    Parameters,
    /// modules-load.d(5).
    Modules,
    /// A program that reads the one file: it is given the path.
    Reads(&'static str, &'static [&'static str]),
    /// udev(7).
    UdevRules,
    /// systemd.network(5).
    Networks,
    /// `sshd -t` and a reload.
    Sshd,
    /// The host's store of certificate authorities.
    Authorities,
    /// Only a restart of userspace (soft reboot).
    Userspace,
}

/// The files of a row.
#[derive(Clone, Copy, Debug)]
pub(super) enum FileMatch {
    /// This file.
    Is(&'static str),
    /// Files in this folder with this ending.
    In(&'static str, &'static str),
    /// All files below this folder.
    Below(&'static str),
}

impl FileMatch {
    pub(super) fn covers(self, path: &str) -> bool {
        match self {
            Self::Is(file) => path == file,
            Self::In(dir, ending) => split(path)
                .is_ok_and(|(d, name)| d == dir && name.ends_with(ending) && name.len() > ending.len()),
            Self::Below(dir) => path.strip_prefix(dir).is_some_and(|rest| rest.starts_with('/')),
        }
    }
}

pub(super) struct Row {
    /// What people call it.
    pub(super) name: &'static str,
    /// Its files.
    pub(super) files: &'static [FileMatch],
    /// How they take effect.
    pub(super) how: FileEffect,
}

/// Loads kernel modules.
pub(crate) const MODPROBE: &str = "/usr/sbin/modprobe";
pub(super) const TMPFILES: &str = "/usr/bin/systemd-tmpfiles";
pub(super) const SYSUSERS: &str = "/usr/bin/systemd-sysusers";
pub(super) const UDEVADM: &str = "/usr/bin/udevadm";
pub(super) const NETWORKCTL: &str = "/usr/bin/networkctl";
pub(super) const SSHD: &str = "/usr/sbin/sshd";
/// The programs that rows run.
pub(crate) const PROGRAMS: [&str; 6] = [MODPROBE, TMPFILES, SYSUSERS, UDEVADM, NETWORKCTL, SSHD];
pub(super) const UDEVD: &str = "systemd-udevd.service";
pub(super) const NETWORKD: &str = "systemd-networkd.service";
pub(super) const SSHD_UNITS: [&str; 2] = ["ssh.service", "sshd.service"];
/// Where they run, each connection starts a server of its own, or the first one starts it.
pub(super) const SSHD_SOCKETS: [&str; 2] = ["ssh.socket", "sshd.socket"];
/// Container runtimes read the host's authorities once.
pub(super) const RUNTIMES: [&str; 2] = ["crio.service", "containerd.service"];
/// How long `udevadm settle` waits for devices, in seconds.
pub(super) const SETTLE: &str = "--timeout=30";

pub(super) const ROWS: &[Row] = &[
    Row {
        name: "messages at login",
        files: &[
            Is("/etc/motd"),
            Below("/etc/motd.d"),
            Below("/etc/update-motd.d"),
            Is("/etc/issue"),
            Below("/etc/issue.d"),
            Is("/etc/issue.net"),
        ],
        how: FileEffect::AtEachUse,
    },
    Row { name: "shell profiles", files: &[In("/etc/profile.d", ".sh")], how: FileEffect::AtEachUse },
    Row {
        name: "log rotation",
        files: &[Is("/etc/logrotate.conf"), Below("/etc/logrotate.d")],
        how: FileEffect::AtEachUse,
    },
    Row { name: "kernel parameters", files: &[In("/etc/sysctl.d", ".conf")], how: FileEffect::Parameters },
    Row { name: "kernel modules", files: &[In("/etc/modules-load.d", ".conf")], how: FileEffect::Modules },
    Row {
        name: "temporary files",
        files: &[In("/etc/tmpfiles.d", ".conf")],
        how: FileEffect::Reads(TMPFILES, &["--create"]),
    },
    Row {
        name: "system users",
        files: &[In("/etc/sysusers.d", ".conf")],
        how: FileEffect::Reads(SYSUSERS, &[]),
    },
    Row { name: "udev rules", files: &[In("/etc/udev/rules.d", ".rules")], how: FileEffect::UdevRules },
    Row {
        name: "chrony",
        files: &[Is("/etc/chrony.conf"), Below("/etc/chrony")],
        how: FileEffect::Unit(Restart, &["chrony.service", "chronyd.service"]),
    },
    Row {
        name: "timesyncd",
        files: &[Is("/etc/systemd/timesyncd.conf"), In("/etc/systemd/timesyncd.conf.d", ".conf")],
        how: FileEffect::Unit(Restart, &["systemd-timesyncd.service"]),
    },
    Row {
        name: "journald",
        files: &[Is("/etc/systemd/journald.conf"), In("/etc/systemd/journald.conf.d", ".conf")],
        how: FileEffect::Unit(Restart, &["systemd-journald.service"]),
    },
    Row {
        name: "logind",
        files: &[Is("/etc/systemd/logind.conf"), In("/etc/systemd/logind.conf.d", ".conf")],
        how: FileEffect::Unit(Reload, &["systemd-logind.service"]),
    },
    Row {
        name: "resolved",
        files: &[Is("/etc/systemd/resolved.conf"), In("/etc/systemd/resolved.conf.d", ".conf")],
        how: FileEffect::Unit(Restart, &["systemd-resolved.service"]),
    },
    Row {
        name: "networkd",
        files: &[Is("/etc/systemd/networkd.conf"), In("/etc/systemd/networkd.conf.d", ".conf")],
        how: FileEffect::Unit(Restart, &[NETWORKD]),
    },
    Row { name: "networks of networkd", files: &[Below("/etc/systemd/network")], how: FileEffect::Networks },
    Row {
        name: "SSH server",
        files: &[Is("/etc/ssh/sshd_config"), In("/etc/ssh/sshd_config.d", ".conf")],
        how: FileEffect::Sshd,
    },
    Row {
        name: "registries of containerd",
        files: &[Below("/etc/containerd/certs.d")],
        how: FileEffect::AtEachUse,
    },
    Row {
        name: "containerd",
        files: &[In("/etc/containerd/conf.d", ".toml")],
        how: FileEffect::Unit(Restart, &["containerd.service"]),
    },
    Row {
        name: "CRI-O",
        files: &[In("/etc/crio/crio.conf.d", "")],
        how: FileEffect::Unit(Restart, &["crio.service"]),
    },
    Row {
        name: "kubelet",
        files: &[In("/etc/kubernetes/kubelet.conf.d", ".conf")],
        how: FileEffect::Unit(Restart, &["kubelet.service"]),
    },
    Row {
        name: "all processes",
        files: &[
            Is("/etc/environment"),
            Is("/etc/nsswitch.conf"),
            Is("/etc/ssl/openssl.cnf"),
            Is("/etc/systemd/system.conf"),
            In("/etc/systemd/system.conf.d", ".conf"),
            Is("/etc/locale.conf"),
            Below("/etc/dbus-1"),
            Below("/etc/polkit-1"),
        ],
        how: FileEffect::Userspace,
    },
];
