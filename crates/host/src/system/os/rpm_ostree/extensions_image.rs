//! The packages of an extensions image (`spec.baseOSExtensionsContainerImage`) as a repository of the host, while rpm-ostree
//! needs it: podman pulls the image, its folder of packages is copied out, and a file names that as a repository.
//!
//! Both are removed at the end of each step, and before the next one if the agent was killed. The image stays in podman's store
//! until the machine cleans that, so that the second copy, after the drain, needs no network.
//!
//! Not here: which packages are installed (see `commands`).
//!
//! Source: <https://coreos.github.io/rpm-ostree/extensions/>.

use std::time::Duration;

use crate::disk::attributes::Attributes;
use crate::disk::path_state::PathState;
use crate::disk::root::Root;
use crate::system::os::{OsError, credentials, proxy};
use crate::system::programs::Programs;
use crate::system::pull::Pull;

const PODMAN: &str = "/usr/bin/podman";
/// Where the packages are in the image.
const IN_IMAGE: &str = "/usr/share/rpm-ostree/extensions";
const FOLDER: &str = "/run/mco-extensions";
const REPOSITORY: &str = "/etc/yum.repos.d/coreos-extensions.repo";
const CONTAINER: &str = "machine-config-extensions";
const SELINUX: &str = "/sys/fs/selinux/enforce";
const ASK: Duration = Duration::from_secs(60);
const PULL: Duration = Duration::from_secs(2 * 60 * 60);
const COPY: Duration = Duration::from_secs(15 * 60);
const PUBLIC: Attributes = Attributes { mode: 0o644, uid: 0, gid: 0 };
const PUBLIC_FOLDER: Attributes = Attributes { mode: 0o755, uid: 0, gid: 0 };

/// The text of the repository's file.
fn repository() -> String {
    let folder = IN_IMAGE.rsplit('/').next().unwrap_or_default();
    format!(
        "[coreos-extensions]\nenabled=1\nmetadata_expire=1m\nbaseurl={FOLDER}/{folder}/\ngpgcheck=0\nskip_if_unavailable=False\n"
    )
}

fn failed(image: &str, what: &str, why: &str) -> OsError {
    OsError::new(format!(
        "the extensions image {image} (spec.baseOSExtensionsContainerImage): podman {what}: {why}"
    ))
}

/// Brings the image to the host, if it is not there.
pub(super) fn pull(
    root: &Root,
    programs: &mut dyn Programs,
    image: &str,
    pull: &Pull,
) -> Result<(), OsError> {
    if root.found(PODMAN)?.is_absent() {
        return Err(OsError::new(format!(
            "the extensions image {image} cannot be read, because there is no {PODMAN} on this host; install it, or remove \
             spec.baseOSExtensionsContainerImage to use the host's repositories"
        )));
    }
    if programs.run(PODMAN, &["image", "exists", image], ASK).is_err() {
        let environment = proxy::environment(root)?;
        let secret = credentials::file(root)?;
        let mut args = vec!["pull", "-q"];
        if let Some(path) = secret {
            args.extend(["--authfile", path]);
        }
        args.push(image);
        let done = programs.fetch(PODMAN, &args, PULL, &environment, pull);
        done.map_err(|e| failed(image, "pull", &proxy::hidden(&e.why, &environment)))?;
    }
    Ok(())
}

/// Makes the packages of an image a repository.
pub(super) fn open(
    root: &Root,
    programs: &mut dyn Programs,
    image: &str,
    progress: &Pull,
) -> Result<(), OsError> {
    close(root)?;
    if !root.found(REPOSITORY)?.is_absent() {
        return Err(OsError::new(format!(
            "{REPOSITORY} is not this program's, and it needs that name for the extensions image {image}; remove or rename it"
        )));
    }
    pull(root, programs, image, progress)?;
    let mut run = |args: &[&str], limit| {
        let done = programs.run(PODMAN, args, limit);
        done.map(drop).map_err(|e| failed(image, args.first().copied().unwrap_or_default(), &e.why))
    };
    root.make_dir(FOLDER, PUBLIC_FOLDER)?;
    // One of a copy that was interrupted.
    run(&["rm", "-f", "--ignore", CONTAINER], ASK)?;
    let annotation = "--annotation=org.openshift.machineconfigoperator.pivot=true";
    // It never runs, but podman wants a command for images that name none.
    run(&["create", "--net=none", annotation, "--name", CONTAINER, image, "/usr/bin/true"], ASK)?;
    let copied = run(&["cp", &format!("{CONTAINER}:{IN_IMAGE}"), FOLDER], COPY);
    let removed = run(&["rm", "-f", CONTAINER], ASK);
    copied.and(removed)?;
    if !root.found(SELINUX)?.is_absent() {
        let args = ["-R", "-t", "var_run_t", FOLDER];
        let done = programs.run("/usr/bin/chcon", &args, ASK);
        done.map_err(|e| OsError::new(format!("chcon {FOLDER}: {}", e.why)))?;
    }
    Ok(root.write_bytes(REPOSITORY, repository().as_bytes(), PUBLIC)?)
}

/// Removes the repository and the packages, if they are there.
pub(super) fn close(root: &Root) -> Result<(), OsError> {
    // One with another text is somebody else's.
    if root.text(REPOSITORY)?.is_some_and(|text| text == repository()) {
        root.remove(REPOSITORY)?;
    }
    match root.found(FOLDER)? {
        PathState::Dir { .. } => Ok(root.remove_tree(FOLDER)?),
        _ => Ok(()),
    }
}
