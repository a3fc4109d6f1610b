//! Paths on a host. The names are those of OpenShift's daemon, so that either can take over from the other. Only the
//! journal and the files beside it are our own. Paths that rules about configs name come from `desired::paths`.
//!
//! Source: <https://github.com/openshift/machine-config-operator/blob/HEAD/pkg/daemon/constants/constants.go>.

pub use desired::paths::{
    CURRENT_CONFIG, CURRENT_IMAGE, DAEMON_DIR, FORCE_FILE, JOURNAL_DIR, ORIGINALS, REBOOT_PENDING, STATE_DIR,
    UNITS_DIR, dropin, no_original, original, original_dir, unit,
};

/// Exists on a host that was booted from an OSTree deployment (ostree-prepare-root(1)).
pub(crate) const OSTREE_BOOTED: &str = "/run/ostree-booted";
/// The lock of the one process that changes the host.
pub const LOCK: &str = "/var/lib/machine-config-daemon/lock";
/// The lock that the agent of this host holds while it runs.
pub const AGENT_LOCK: &str = "/var/lib/machine-config-daemon/agent.lock";
/// A stand-in for the links that systemd makes in this folder, to check whether it can make them.
pub const UNITS_PROBE: &str = "/etc/systemd/system/default.target";
/// The folders of unit files, highest precedence first (systemd.unit(5)).
pub const UNIT_DIRS: [&str; 5] = [
    UNITS_DIR,
    "/run/systemd/system",
    "/usr/local/lib/systemd/system",
    "/usr/lib/systemd/system",
    "/lib/systemd/system",
];
/// The folders in which generators put units (systemd.generator(7)).
pub const GENERATED_UNIT_DIRS: [&str; 3] =
    ["/run/systemd/generator", "/run/systemd/generator.early", "/run/systemd/generator.late"];
/// The file whose change may need a drain although it needs no reboot.
pub const REGISTRIES_CONF: &str = api::paths::REGISTRIES_CONF;
/// The home folder of the user that MachineConfigs may manage.
pub const CORE_HOME: &str = "/home/core";
/// The file with that user's keys from MachineConfigs.
pub const CORE_KEYS: &str = "/home/core/.ssh/authorized_keys.d/ignition";
/// The file with that user's own keys. A stock sshd reads it.
pub const CORE_OWN_KEYS: &str = "/home/core/.ssh/authorized_keys";
/// A copy of the SSH server drop-in as we wrote it. The drop-in is compared with it to find drift.
pub const SSHD_DROPIN_RECORD: &str = "/var/lib/machine-config-daemon/sshd-dropin";
/// The prefix of a temporary folder with a copy of the SSH server's configuration for `sshd -T`. The process id
/// follows.
pub const SSHD_COPY: &str = "/run/machine-config-daemon-sshd";
/// The user database.
pub const PASSWD: &str = "/etc/passwd";
/// The backup that user management tools make of it when they change a password.
pub const PASSWD_BACKUP: &str = "/etc/passwd-";
/// The group database.
pub const GROUP: &str = "/etc/group";
/// Password hashes.
pub const SHADOW: &str = "/etc/shadow";
/// The backup that user management tools make of it when they change a password.
pub const SHADOW_BACKUP: &str = "/etc/shadow-";
/// The lock that tools hold while they change any of the above (lckpwdf(3)).
pub const PASSWD_LOCK: &str = "/etc/.pwd.lock";
/// The record that the machine should have booted into the operating system of a config and came up in another one.
pub const OS_FAILURE: &str = "/var/lib/machine-config-daemon/os-failure.json";
/// The packages that MachineConfigs have installed on a host without an image.
pub const PACKAGES: &str = "/var/lib/machine-config-daemon/packages.json";
/// The OS images that MachineConfigs have brought to a host of OSTree, or replaced on it.
pub const OS_IMAGES: &str = "/var/lib/machine-config-daemon/os-images.json";
/// What the host ran before a config first named an OS image for it.
pub const OS_BEFORE: &str = "/var/lib/machine-config-daemon/os-before.json";
/// The config whose extensions could not be applied to the running system. It is applied with a reboot.
pub const LIVE_REFUSED: &str = "/var/lib/machine-config-daemon/live-refused.json";
/// What became of packages that were only staged before a change that was undone: the deployment that has them again, or why none has.
pub const RESTAGED_PACKAGES: &str = "/var/lib/machine-config-daemon/os-staged-again.json";
/// How the operating system was when the last change of it was kept.
pub const OS_KEPT: &str = "/var/lib/machine-config-daemon/os-kept.json";
/// The record that a config was tried and undone, because the change was not confirmed.
pub const TRIAL_FAILURE: &str = "/var/lib/machine-config-daemon/trial-failure.json";
/// The names of the units that this program has written beside those of configs, one a line (see `Host::ensure_units`).
pub const OWN_UNITS: &str = "/var/lib/machine-config-daemon/own-units";
/// Room on the disk for the records of a trial's end, should the disk be full then.
pub const TRIAL_RESERVE: &str = "/var/lib/machine-config-daemon/trial-reserve";
/// Beside the journal of a change on trial: how much of the trial's time has passed.
pub const TRIAL_CLOCK: &str = "/var/lib/machine-config-daemon/journal/trial.json";
/// Beside the journal of a change that is being undone: why. It is the verdict on a trial.
pub const TRIAL_VERDICT: &str = "/var/lib/machine-config-daemon/journal/failed.json";
/// Beside the journal: exists if the change was interrupted before its commit, and the machine booted what it had staged.
pub const INTERRUPTED: &str = "/var/lib/machine-config-daemon/journal/interrupted";
/// Beside the journal: what OSTree's merge of `/etc` left behind, and whether it is written.
pub const ETC_MERGE: &str = "/var/lib/machine-config-daemon/journal/merge.json";
/// The kernel arguments that MachineConfigs set, where the boot loader's own files do not tell them from the host's.
pub const KERNEL_ARGUMENTS: &str = "/var/lib/machine-config-daemon/kernel-arguments.json";
/// The values that kernel parameters had before this agent set them, by their path below `/proc/sys`.
pub const PARAMETERS_BEFORE: &str = "/var/lib/machine-config-daemon/parameters-before.json";
/// The folder of kernel parameters (proc(5)).
pub const PARAMETERS: &str = "/proc/sys";
/// Says that this agent has asked for a soft reboot since the kernel started. It stays in `/run` over one.
pub const SOFT_REBOOT: &str = "/run/machine-config-daemon-soft-reboot";
/// Whether the kernel runs in FIPS mode.
pub const FIPS_ENABLED: &str = "/proc/sys/crypto/fips_enabled";
/// The kernel's boot id, new at each boot (random(4)).
pub const BOOT_ID: &str = "/proc/sys/kernel/random/boot_id";
/// Our own token for this boot. Containers may share the boot id of their computer, but each boot begins with an empty
/// `/run`.
pub const BOOT_TOKEN: &str = "/run/machine-config-daemon-boot";
/// Which staged deployment is the agent's own.
pub(crate) const STAGED: &str = "/run/machine-config-daemon-staged";
/// The packages that were fetched for an ordinary host, for the process that installs them after the drain.
pub(crate) const FETCHED_PACKAGES: &str = "/run/machine-config-daemon-packages.json";
/// What a deployment of an image that was pulled is made from, in OSTree's form. It is read by the command that stages.
pub(crate) const OSTREE_ORIGIN: &str = "/run/machine-config-daemon-origin";
/// Where GRUB's configuration is generated before it is checked.
pub(crate) const GENERATED_GRUB: &str = "/run/machine-config-daemon-grub.cfg";
/// The kubelet has to be restarted: its kubeconfigs got a CA of the API server that it needs now. After a boot it has read them.
pub const KUBELET_RESTART: &str = "/run/machine-config-daemon-kubelet-restart";
/// The kubelet's certificate authority. The certificate part of the daemon writes it, not a MachineConfig.
pub const KUBELET_CA: &str = api::paths::KUBELET_CA;

/// Files that others keep up to date. They are never removed as stale.
pub const NEVER_STALE: [&str; 3] = [
    "/etc/pki/ca-trust/source/anchors/openshift-config-user-ca-bundle.crt",
    KUBELET_CA,
    api::paths::CLOUD_CA,
];
/// Files in a folder whose path contains this are never removed as stale.
pub const NEVER_STALE_BELOW: &str = api::paths::REGISTRY_CERTIFICATES;
/// Files that others keep up to date. They are not compared with the config.
pub const NOT_VALIDATED: [&str; 3] = [KUBELET_CA, api::paths::CLOUD_CA, desired::paths::INTERNAL_PULL_SECRET];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_config_may_write_what_the_agent_trusts() {
        let below_run = [
            SSHD_COPY,
            SOFT_REBOOT,
            BOOT_TOKEN,
            STAGED,
            FETCHED_PACKAGES,
            OSTREE_ORIGIN,
            GENERATED_GRUB,
            KUBELET_RESTART,
        ];
        let kept = [
            CURRENT_CONFIG,
            CURRENT_IMAGE,
            ORIGINALS,
            STATE_DIR,
            JOURNAL_DIR,
            REBOOT_PENDING,
            LOCK,
            OS_BEFORE,
            PACKAGES,
        ];
        for path in below_run.into_iter().chain(kept) {
            assert!(desired::paths::is_reserved(path), "{path}");
        }
        assert!(below_run.iter().all(|path| path.starts_with(desired::paths::RUN_PREFIX)));
        assert!(!desired::paths::is_reserved(FORCE_FILE), "it is the administrator's");
    }
}
