//! Completes a machine's first boot. Ignition has written the files of the config that the server served. What
//! Ignition cannot do (kernel arguments, kernel, image, extensions) is done here, before the kubelet starts.
//!
//! Not here: the agent. There is no cluster at this point. The result is left in `node-annotations.json`, which the
//! agent later copies to the Node.
//!
//! ```text
//! encapsulated config (operating system) ─┐
//! served config (all of it) ──────────────┼─► plan ─► apply, recorded as the config in effect ─► reboot, if it asks
//! the machine as it booted ───────────────┘
//! ```
//!
//! Source: <https://github.com/openshift/machine-config-operator/blob/HEAD/docs/OSUpgrades.md>.

use crate::error::DaemonError;
use crate::node::machine::{ANNOTATIONS_FILE, SERVED_FILE};
use crate::protocol::EMPTY_CONFIG;
use api::names::annotation;
use api::v1::{MachineConfig, MachineConfigSpec};
use client::spread;
use desired::{arguments, by_digest, in_image, with_image};
use host::{Change, DesiredOs, DisruptionPolicy, Facts, Host, Irreconcilable, Names, OsStatus, RebootStatus};
use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;
use tokio_util::sync::CancellationToken;

/// What can be done about packages that a config asks for.
const NO_PACKAGES: &str = "a first boot installs no packages, because it does not know its pool, which would have to allow that: put \
    them into the machine's image, or have machines join without them, and name them in a MachineConfig of a pool that they are \
    moved to afterwards";

/// The arguments that the running kernel was booted with.
const CMDLINE: &str = "/proc/cmdline";
/// The pause before a first boot that could not be completed is retried. The cause may pass, such as a registry
/// outage.
const RETRY: Duration = Duration::from_secs(60);
/// A machine that still runs this long after its reboot was started is not rebooting.
const REBOOT_PATIENCE: Duration = Duration::from_secs(600);

/// The result of a first boot.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FirstBoot {
    /// This is not a first boot: there is no input, or it was used already.
    Nothing,
    /// The machine is in this config.
    Complete {
        /// The config.
        config: String,
    },
    /// The machine is rebooting into this config.
    Rebooting {
        /// The config.
        config: String,
    },
}

/// Completes the first boot of a host, however long that takes: a failure is logged and retried each minute. Returns
/// when the kubelet may start, or `None` when it is stopped.
///
/// # Errors
/// The root folder cannot be used, or the reboot does not happen.
pub async fn first_boot(
    root_mount: &Path,
    file: &str,
    shutdown: CancellationToken,
) -> Result<Option<FirstBoot>, DaemonError> {
    loop {
        let (mut host, _) = crate::entry::open_host::open(root_mount, tokio::runtime::Handle::current())?;
        let path = file.to_owned();
        let done = tokio::task::spawn_blocking(move || complete_first_boot(&mut host, &path)).await;
        let error = match done {
            Ok(Ok(FirstBoot::Rebooting { config })) => {
                // The kubelet must not start before the reboot, so wait here for it.
                tracing::info!(%config, "rebooting");
                return match shutdown.run_until_cancelled(tokio::time::sleep(REBOOT_PATIENCE)).await {
                    None => Ok(Some(FirstBoot::Rebooting { config })),
                    Some(()) => {
                        let minutes = REBOOT_PATIENCE.as_secs() / 60;
                        let why = format!(
                            "the machine is still running {minutes} minutes after its reboot was started; \
                             reboot it by hand"
                        );
                        Err(DaemonError::FirstBoot { why })
                    }
                };
            }
            Ok(Ok(done)) => return Ok(Some(done)),
            Ok(Err(error)) => error,
            Err(error) => DaemonError::FirstBoot { why: format!("the work ended abnormally: {error}") },
        };
        let wait = spread(RETRY);
        tracing::error!(%error, again_in = ?wait, "the first boot is not complete; it is retried, and the \
            kubelet waits for it");
        if shutdown.run_until_cancelled(tokio::time::sleep(wait)).await.is_none() {
            return Ok(None);
        }
    }
}

/// One try. If it is repeated after a crash at any point, the result is the same.
///
/// # Errors
/// A file that cannot be read, and everything in the config that this machine cannot do.
pub fn complete_first_boot(host: &mut Host, file: &str) -> Result<FirstBoot, DaemonError> {
    host.recover().map_err(DaemonError::Recover)?;
    let fail = |why: String| DaemonError::FirstBoot { why };
    let Some(text) = host.root().text(file).map_err(|e| fail(e.to_string()))? else {
        return Ok(FirstBoot::Nothing);
    };
    let asked = by_digest(read(file, &text)?);
    let config = asked.metadata.name.clone().unwrap_or_default();
    let served = host.root().text(SERVED_FILE).map_err(|e| fail(e.to_string()))?;
    let served = served.map(|t| read(SERVED_FILE, &t)).transpose()?;
    let Some(served) = served.filter(|s| s.metadata.name == asked.metadata.name) else {
        return Err(fail(format!(
            "{SERVED_FILE} is not the config {config} that {file} names; reprovision the machine"
        )));
    };
    let to = MachineConfigSpec { config: served.spec.config, ..asked.spec };
    let image = image_of_pool(host).map_err(fail)?;
    let (to, config) = (in_image(to, &image), with_image(&config, &image));
    let names = Names { current: EMPTY_CONFIG.to_owned(), desired: config.clone() };
    let refused = |why: Vec<Irreconcilable>| {
        let why: Vec<String> = why.iter().map(ToString::to_string).collect();
        fail(format!("this machine cannot apply config {config}: {}", why.join("; ")))
    };
    let change = Change::adopt(&to, names).map_err(refused)?;
    let facts = host.inspect(&change).map_err(|e| fail(e.to_string()))?.without_pool(NO_PACKAGES);
    let found = found_os(host, &change.new_config().os, &facts)?;
    let plan = change.with_current_os(found).plan(&DisruptionPolicy::default(), &facts).map_err(refused)?;
    tracing::info!(%config, disruption = %plan.disruption, steps = plan.steps.len(), "completing the first boot");
    host.apply(&plan).map_err(|e| fail(api::formats::text::chain(&e)))?;
    // The input is used once: a later boot that finds it would start over.
    host.root().rename(file, &format!("{file}.bak")).map_err(|e| fail(e.to_string()))?;
    if let RebootStatus::Owed(_) = host.reboot_status().map_err(|e| fail(e.to_string()))? {
        let why = format!("first boot into config {config}");
        host.reboot(&why).map_err(|e| fail(api::formats::text::chain(&e)))?;
        return Ok(FirstBoot::Rebooting { config });
    }
    Ok(FirstBoot::Complete { config })
}

/// The image that the server left for the Node: its pool has one of its own. Empty: it has none.
fn image_of_pool(host: &Host) -> Result<String, String> {
    let text = host.root().text(ANNOTATIONS_FILE).map_err(|e| e.to_string())?;
    let Some(text) = text else { return Ok(String::new()) };
    let mut notes: BTreeMap<String, String> =
        api::formats::shape::read_bytes(text.as_bytes()).map_err(|e| {
            format!("{ANNOTATIONS_FILE} is not a map of annotations ({e}); reprovision the machine")
        })?;
    Ok(notes.remove(annotation::CURRENT_IMAGE).unwrap_or_default())
}

fn read(file: &str, text: &str) -> Result<MachineConfig, DaemonError> {
    api::formats::shape::read_bytes(text.as_bytes()).map_err(|e| DaemonError::FirstBoot {
        why: format!("{file} is not a MachineConfig ({e}); reprovision the machine"),
    })
}

/// The parts of a config's wishes for the operating system that the machine has already, as it booted. Everything else
/// on the machine is its own.
fn found_os(host: &Host, wanted: &DesiredOs, facts: &Facts) -> Result<DesiredOs, DaemonError> {
    let Some(os) = facts.os.as_ref().map(OsStatus::next) else {
        // The image or the boot loader entry may have set them.
        let running = host.root().text(CMDLINE).map_err(|e| DaemonError::FirstBoot { why: e.to_string() })?;
        let has = arguments(&[running.unwrap_or_default().trim_end().to_owned()]);
        let kernel_arguments = present(&wanted.kernel_arguments, &has);
        return Ok(DesiredOs { kernel_arguments, ..DesiredOs::default() });
    };
    Ok(DesiredOs {
        image: if wanted.image.is_empty() { String::new() } else { os.image.clone() },
        kernel_arguments: present(&wanted.kernel_arguments, &os.kernel_arguments),
        kernel_type: os.kernel_type.clone(),
        extensions: wanted.extensions.iter().filter(|e| os.has_extension(e)).cloned().collect(),
        ..DesiredOs::default()
    })
}

/// The entries of `wanted` whose arguments are all in `has`. An entry may hold several arguments.
fn present(wanted: &[String], has: &[String]) -> Vec<String> {
    let there = |entry: &&String| arguments(&[(*entry).clone()]).iter().all(|one| has.contains(one));
    wanted.iter().filter(there).cloned().collect()
}

#[cfg(test)]
mod tests;
