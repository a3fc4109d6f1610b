//! Opens the host that this process runs on, with its root folder, systemd and the back end for its operating system.
//!
//! Not here: what is done with the host.

use crate::error::DaemonError;
use crate::node::boot_units::PROGRAM;
use host::{DbusSystemd, Host, HostPrograms, OsChoice, Programs, Root};
use std::path::Path;
use tokio::runtime::{Handle, Runtime};

/// Opens a host, with the back end for its operating system and why that one was chosen.
pub(crate) fn open(root_mount: &Path, runtime: Handle) -> Result<(Host, OsChoice), DaemonError> {
    let path = root_mount.display().to_string();
    let remedy = root_remedy(root_mount);
    let root = Root::open(root_mount).map_err(|source| DaemonError::Root { path, source, remedy })?;
    let systemd = DbusSystemd::new(runtime, root_mount);
    // Programs of the host can be run only if its root folder is this process's own.
    let is_ours = root_mount == Path::new("/");
    let programs = || is_ours.then(|| Box::new(HostPrograms) as Box<dyn Programs>);
    let (os, choice) = host::choose_os(&root, &programs);
    let host = Host::new(root, Box::new(systemd), os);
    let host = match programs() {
        Some(programs) => host.with_programs(programs).with_trial_watch(watch_command()),
        None => host,
    };
    Ok((host, choice))
}

/// The remedy for a root folder that cannot be opened.
pub(crate) fn root_remedy(root_mount: &Path) -> String {
    match root_mount == Path::new("/") {
        true => "Run it as root".to_owned(),
        false => format!(
            "On the host itself, outside of a pod, pass --root-mount=/; in a pod, mount the host's / at {}",
            root_mount.display()
        ),
    }
}

/// Opens the host, with the runtime whose own thread talks to systemd while this thread waits.
pub(crate) fn open_with_runtime(root_mount: &Path) -> Result<(Host, Runtime), DaemonError> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()
        .map_err(DaemonError::Runtime)?;
    let (host, _) = open(root_mount, runtime.handle().clone())?;
    Ok((host, runtime))
}

/// The command of the unit that watches over a trial. The program may have been replaced by another version since this process began.
fn watch_command() -> Vec<String> {
    let own = std::env::current_exe().ok().and_then(|path| path.to_str().map(str::to_owned));
    let own = own.map(|path| path.trim_end_matches(" (deleted)").to_owned());
    let program = own.filter(|path| Path::new(path).exists()).unwrap_or_else(|| PROGRAM.to_owned());
    ["daemon", "watch-trial", "--root-mount=/"].iter().fold(vec![program], |mut all, word| {
        all.push((*word).to_owned());
        all
    })
}
