//! Paths on a host. The names are those of OpenShift's daemon, so that either can take over from the other. Only the
//! journal and the files beside it are our own. Paths that rules about configs name come from `desired::paths`.

pub use desired::paths::{
    CURRENT_CONFIG, DAEMON_DIR, FORCE_FILE, JOURNAL_DIR, ORIGINALS, REBOOT_PENDING, STATE_DIR, UNITS_DIR,
    dropin, no_original, original, original_dir, unit,
};

/// Held by the one process that changes the host.
pub const LOCK: &str = "/var/lib/machine-config-daemon/lock";
/// Stands for whatever link systemd makes in that folder, where the question is whether it can.
pub const UNITS_PROBE: &str = "/etc/systemd/system/default.target";
/// Folders in which units stand, the first one wins.
pub const UNIT_DIRS: [&str; 5] = [
    UNITS_DIR,
    "/run/systemd/system",
    "/usr/local/lib/systemd/system",
    "/usr/lib/systemd/system",
    "/lib/systemd/system",
];
/// Folders in which generators put units.
pub const GENERATED_UNIT_DIRS: [&str; 3] =
    ["/run/systemd/generator", "/run/systemd/generator.early", "/run/systemd/generator.late"];
/// The file whose change may need a drain though it needs no reboot.
pub const REGISTRIES_CONF: &str = "/etc/containers/registries.conf";
/// Home of the user that MachineConfigs may manage.
pub const CORE_HOME: &str = "/home/core";
/// Where that user's keys stand.
pub const CORE_KEYS: &str = "/home/core/.ssh/authorized_keys.d/ignition";
/// Where that user's own keys stand: a stock sshd reads them.
pub const CORE_OWN_KEYS: &str = "/home/core/.ssh/authorized_keys";
/// The drop-in for the SSH server that we wrote, as we wrote it: what it is compared with.
pub const SSHD_DROPIN_RECORD: &str = "/var/lib/machine-config-daemon/sshd-dropin";
/// A folder whose name begins so has a copy of the SSH server's configuration, for as long as the server reads it. The
/// process id follows.
pub const SSHD_COPY: &str = "/run/machine-config-daemon-sshd";
/// The user database.
pub const PASSWD: &str = "/etc/passwd";
/// The copy of it that tools keep when they change a password.
pub const PASSWD_BACKUP: &str = "/etc/passwd-";
/// The group database.
pub const GROUP: &str = "/etc/group";
/// Password hashes.
pub const SHADOW: &str = "/etc/shadow";
/// The copy of it that tools keep when they change a password.
pub const SHADOW_BACKUP: &str = "/etc/shadow-";
/// The lock that tools hold while they change any of the above.
pub const PASSWD_LOCK: &str = "/etc/.pwd.lock";
/// Says that the machine was booted into the operating system of a config and came up in another.
pub const OS_FAILURE: &str = "/var/lib/machine-config-daemon/os-failure.json";
/// Whether the kernel runs in FIPS mode.
pub const FIPS_ENABLED: &str = "/proc/sys/crypto/fips_enabled";
/// Another one at each boot.
pub const BOOT_ID: &str = "/proc/sys/kernel/random/boot_id";
/// A token of our own for this boot: containers may share the boot id of their computer, and begin with an empty `/run`.
pub const BOOT_TOKEN: &str = "/run/machine-config-daemon-boot";
/// The kubelet's certificate authority: written by the certificate part of the daemon, not from MachineConfigs.
pub const KUBELET_CA: &str = "/etc/kubernetes/kubelet-ca.crt";

/// Files that somebody else keeps up to date: never removed as stale.
pub const NEVER_STALE: [&str; 3] = [
    "/etc/pki/ca-trust/source/anchors/openshift-config-user-ca-bundle.crt",
    KUBELET_CA,
    "/etc/kubernetes/static-pod-resources/configmaps/cloud-config/ca-bundle.pem",
];
/// A part of the path of files that are never removed as stale.
pub const NEVER_STALE_BELOW: &str = "/etc/docker/certs.d";
/// Files that somebody else keeps up to date: not compared with the config.
pub const NOT_VALIDATED: [&str; 3] = [
    KUBELET_CA,
    "/etc/kubernetes/static-pod-resources/configmaps/cloud-config/ca-bundle.pem",
    "/etc/mco/internal-registry-pull-secret.json",
];
