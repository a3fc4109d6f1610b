//! The operating system below the files: image, kernel and its arguments, extensions. Types for what a host has, and a
//! trait for back ends that can change it: rpm-ostree, bootc and boot loaders do it in different ways, some can change
//! only a part of it, and many hosts cannot do it at all.
//!
//! ```text
//! choose ─► status ─► plan (see `plan::os`) ─► fetch ─► (drain) ─► mark ─► stage ─► (reboot) ─► status
//!                                                                    └───── undo ◄┘
//! ```
//!
//! Not here: what a config wants (see `desired::DesiredOs`), what should be done about it (see `plan::os`), nor which back
//! end a host gets (see `os_choice`).

pub(crate) mod argument_rules;
mod arguments;
mod boot_space;
mod credentials;
pub(crate) mod extensions;
#[cfg(test)]
pub(crate) mod fake_programs;
mod image_check;
pub(crate) mod loader;
pub(crate) mod ordinary;
pub(crate) mod origin;
pub(crate) mod ostree;
pub(crate) mod ostree_repository;
mod proxy;
mod pull_trouble;
pub(crate) mod reference;
mod registry_inspection;
mod repository_space;
pub(crate) mod rpm_ostree;
mod staged;
mod stored_image;
mod undo_token;
mod unsupported;

use std::fmt;

/// What changes on every host of OSTree when a deployment is made, staged or dropped: OSTree updates the time of the folder
/// (`ostree_sysroot_write_deployments`), and keeps what is staged in a file.
const DEPLOYMENTS: [&str; 2] = ["/ostree/deploy", "/run/ostree/staged-deployment"];

pub(crate) use argument_rules::{ArgumentRules, ArgumentSyntax};
use desired::mask::argument;
use desired::{DesiredOs, OsField};
use extensions::is_within;
use origin::OsOrigin;
use reference::same_image;
use serde::{Deserialize, Serialize, Serializer};
pub(crate) use unsupported::UNSUPPORTED;
pub use unsupported::Unsupported;

use crate::system::pull::Pull;

/// An operation on the operating system that failed.
#[derive(Debug, thiserror::Error)]
#[error("cannot change the operating system: {why}")]
pub struct OsError {
    /// What happened, and the remedy.
    pub why: String,
    /// A fault point simulated the end of the process here.
    pub(crate) killed: bool,
}

impl OsError {
    /// An error with this text.
    #[must_use]
    pub fn new(why: impl Into<String>) -> Self {
        Self { why: why.into(), killed: false }
    }
}

/// One bootable state of the host.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Deployment {
    /// The image that it was made from. Empty if the host does not use images.
    pub image: String,
    /// All kernel arguments in order, including the host's own. Those that the boot loader adds itself, such as the
    /// name of the kernel's file, are left out.
    pub kernel_arguments: Vec<String>,
    /// `default`, `realtime` or `64k-pages`.
    pub kernel_type: String,
    /// The installed extensions.
    pub extensions: Vec<String>,
}

impl Deployment {
    /// Whether it has all packages of an extension.
    #[must_use]
    pub fn has_extension(&self, name: &String) -> bool {
        is_within(name, &self.extensions)
    }
}

/// The deployments of a host.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct OsStatus {
    /// The deployment that is running.
    pub booted: Deployment,
    /// The deployment that replaces it at the next boot. It may be the same one with its own kernel arguments, if
    /// somebody booted it with others once.
    pub staged: Option<Deployment>,
    /// The deployment to fall back to.
    pub previous: Option<Deployment>,
    /// The kernel arguments that the image of the running deployment brings along.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub of_image: Vec<String>,
}

impl OsStatus {
    /// The deployment that the host will boot into, if nothing fails.
    #[must_use]
    pub fn next(&self) -> &Deployment {
        self.staged.as_ref().unwrap_or(&self.booted)
    }
}

/// Serializes kernel arguments masked, because they can hold passwords.
pub(crate) fn masked<S: Serializer>(arguments: &[String], s: S) -> Result<S::Ok, S::Error> {
    s.collect_seq(arguments.iter().map(|a| argument(a)))
}

/// How a deployment differs from the requested one. Additional kernel arguments and extensions are fine.
pub(crate) fn differs(got: &Deployment, asked: &Deployment) -> Option<String> {
    if !asked.image.is_empty() && !same_image(&got.image, &asked.image) {
        return Some(format!("its image is {:?} and not {:?}", got.image, asked.image));
    }
    if got.kernel_type != asked.kernel_type {
        return Some(format!("its kernel is {:?} and not {:?}", got.kernel_type, asked.kernel_type));
    }
    if let Some(missing) = asked.extensions.iter().find(|e| !is_within(e, &got.extensions)) {
        return Some(format!("the extension {missing} is missing"));
    }
    let missing = without(&asked.kernel_arguments, &got.kernel_arguments);
    missing.first().map(|a| format!("the kernel argument {} is missing", argument(a)))
}

/// A list without these entries. Of equal entries the last one is removed, because a config's entries come after the
/// host's own.
pub(crate) fn without(list: &[String], these: &[String]) -> Vec<String> {
    let mut out = list.to_vec();
    for one in these {
        if let Some(at) = out.iter().rposition(|a| a == one) {
            out.remove(at);
        }
    }
    out
}

/// Identifies the deployment that a host would boot into. It is opaque to all but the back end. The journal keeps it.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Token(pub String);

impl fmt::Debug for Token {
    /// Shows nothing of it, because it may hold kernel arguments.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("<token>")
    }
}

/// A back end that changes the operating system of one host.
///
/// Its changes take effect at the next boot, with two exceptions: [`OsBackend::apply_live`] brings packages into the running system,
/// and on hosts without images [`OsBackend::stage`] installs packages there at once. These hosts reboot nevertheless.
///
/// What needs a network is fetched before the drain and outside of the journal, by [`OsBackend::fetch`], with three exceptions, which
/// [`OsBackend::stage`] fetches on a node that is drained, because no command of these programs fetches them without staging. bootc
/// and rpm-ostree ask the registry for the manifest of an image that is named by a tag, and older versions of any image. A bootc that has no `bootc
/// internals ostree-container` fetches the whole image then, if there is no `ostree container`. rpm-ostree fetches the packages of
/// another kernel if they come from the host's repositories and not from an extensions image, and may refresh the repositories' lists.
///
/// A change is made by one process, which calls `fetch`, `mark` and `stage` in this order, with the same deployment. An earlier process
/// may have fetched before the drain; then this `fetch` finds everything there. A change that a crash interrupted is undone, and not
/// continued: [`OsBackend::undo`] follows an interrupted `stage`, and is repeated if it is interrupted itself.
pub trait OsBackend: Send + fmt::Debug {
    /// The name of the mechanism, such as rpm-ostree.
    fn name(&self) -> &'static str;
    /// Why a part of the operating system cannot be changed here, and the remedy. `None`: it can be changed. Back ends ask
    /// the host for the feature itself, such as a subcommand or a file. They compare no versions: distributions port
    /// features back.
    fn refuses(&self, field: OsField) -> Option<String>;
    /// Why a part of the operating system is changed only where the cluster has allowed it, and how that is allowed. `None`: no
    /// consent is needed.
    fn needs_consent(&self, _field: OsField) -> Option<String> {
        None
    }
    /// The part of what a config wants that is in effect on this host. Without consent a config may name what a host never
    /// had. Cheap: no program is started.
    ///
    /// # Errors
    /// The host cannot report it.
    fn managed(&self, wanted: &DesiredOs) -> Result<DesiredOs, OsError> {
        Ok(wanted.clone())
    }
    /// How kernel arguments are taken, and which of them configs set. Cheap: no program is started.
    ///
    /// # Errors
    /// The host cannot report it.
    fn argument_rules(&self) -> Result<ArgumentRules, OsError> {
        Ok(ArgumentRules::default())
    }
    /// How many packages were added to the running image, removed from it or replaced in it that are part of no
    /// extension. It may start a program.
    ///
    /// # Errors
    /// The host cannot report it.
    fn unsupported_packages(&mut self) -> Result<usize, OsError> {
        Ok(0)
    }
    /// The paths that change when somebody stages another deployment or changes what boots, for a watch.
    fn paths(&self) -> Vec<String> {
        Vec::new()
    }
    /// The deployments of the host.
    ///
    /// # Errors
    /// The host cannot report it.
    fn status(&mut self) -> Result<OsStatus, OsError>;
    /// What the running deployment was made from. `None`: the host uses no images, or cannot say. It may start a program.
    ///
    /// # Errors
    /// The host cannot report it.
    fn origin(&mut self) -> Result<Option<OsOrigin>, OsError> {
        Ok(None)
    }
    /// Names the image that has the packages of extensions and kernels, for what is fetched and staged next. Empty: the host's
    /// repositories have them.
    fn use_extensions(&mut self, _image: &str) {}
    /// The size in bytes of the image layers that would be pulled for a deployment, for plans. `None`: nothing has to be pulled, or
    /// the size cannot be found out. It may ask a registry, and pulls nothing. An image that is named by its digest, and that the
    /// host has, needs none; rpm-ostree cannot look that up and always gives the size. For a tag every back end gives it, because
    /// the tag is resolved again.
    ///
    /// # Errors
    /// The host cannot report what it has.
    fn image_size(&mut self, _target: &Deployment) -> Result<Option<u64>, OsError> {
        Ok(None)
    }
    /// Fetches what a deployment needs, such as an image or packages. It may take long, does not change what the host
    /// boots into, and runs before the node is drained. Idempotent: a second run does nothing, or resumes an
    /// interrupted one. `pull` tells the caller how far it is, and can end it.
    ///
    /// # Errors
    /// It cannot be fetched, there is no space for it, it was cancelled, or somebody else staged a deployment.
    fn fetch(&mut self, target: &Deployment, pull: &Pull) -> Result<(), OsError>;
    /// Returns a token for the deployment that the host would boot into now, for [`OsBackend::undo`]. It is recorded
    /// before anything is staged, because a crash may come in between. Before `stage` it also says what this process has
    /// fetched, where an undo has to know that. A recovery compares it with the token of the change, to see whether there is
    /// anything to undo: so it must differ from that once `stage` has changed anything.
    ///
    /// # Errors
    /// The host cannot report it, or a command that stages still runs.
    fn mark(&mut self) -> Result<Token, OsError>;
    /// The folder that holds the deployment of the token, with its own `/etc`, where deployments have one each and OSTree
    /// merges them.
    ///
    /// # Errors
    /// The token is another back end's, or damaged.
    fn folder_of(&self, _before: &Token) -> Result<Option<String>, OsError> {
        Ok(None)
    }
    /// Makes the host boot into a deployment that this process has fetched and for which it has a token. It takes as long as the
    /// host's program for it, which is seconds to a few minutes: making a deployment, or installing packages on a host without
    /// images. Where something has to be fetched as well (see [`OsBackend`]), it takes as long as that. Idempotent: once it has
    /// succeeded, another call with the same deployment changes nothing and succeeds. It may fail or end at any point, also in the
    /// middle of a command; then [`OsBackend::undo`] follows.
    ///
    /// # Errors
    /// The host refuses or fails; somebody else staged a deployment, which is not replaced; or nothing was fetched.
    fn stage(&mut self, target: &Deployment) -> Result<(), OsError>;
    /// Whether this back end can bring packages that were staged into the running system (see [`OsBackend::apply_live`]). Cheap:
    /// no program is started, so it may turn out that the host's version cannot.
    fn can_apply_live(&self) -> bool {
        false
    }
    /// Brings what is staged into the running system. It must only add packages.
    ///
    /// # Errors
    /// The host refuses or fails. The running system may have a part of it then (see [`OsBackend::undo_live`]).
    fn apply_live(&mut self) -> Result<(), OsError> {
        Err(OsError::new("this host cannot change its running system"))
    }
    /// Removes the packages that [`OsBackend::apply_live`] has added to the running system since the token. Idempotent.
    ///
    /// # Errors
    /// The host refuses or fails. A boot ends what was brought there, too.
    fn undo_live(&mut self, _before: &Token) -> Result<(), OsError> {
        Ok(())
    }
    /// Called at the end of an undo, when files, services and effects are as they were before the change. Stages again what was
    /// only staged before it, and what the change or [`OsBackend::undo`] has dropped. It may need the network, and take long. That
    /// it cannot be had is no error (see [`OsBackend::not_brought_back`]). Idempotent.
    ///
    /// # Errors
    /// The host cannot report what it has, or something else is at work.
    fn stage_again(&mut self, _before: &Token) -> Result<(), OsError> {
        Ok(())
    }
    /// Called after [`OsBackend::stage_again`]. If that had to stage what was in the running system before the change, and that is
    /// there still as it was, what is staged is brought there in its place, if the cluster has `allowed` such things.
    /// Returns whether the running system has it; if not, the next boot has. Idempotent.
    ///
    /// # Errors
    /// The host cannot report it.
    fn bring_back_live(&mut self, _before: &Token, _allowed: bool) -> Result<bool, OsError> {
        Ok(true)
    }
    /// What the last undo could not bring back, why, and what to do. It may start a program.
    ///
    /// # Errors
    /// The host cannot report it.
    fn not_brought_back(&mut self) -> Result<Option<String>, OsError> {
        Ok(None)
    }
    /// Called when no change is under way and the one that was booted is kept: removes what only an undo would have needed.
    /// Idempotent.
    ///
    /// # Errors
    /// The host refuses or fails.
    fn discard_undo_data(&mut self) -> Result<(), OsError> {
        Ok(())
    }
    /// Whether [`OsBackend::discard_undo_data`] has something left to remove. Cheap: no program is started.
    ///
    /// # Errors
    /// The host cannot report it.
    fn has_undo_data(&self) -> Result<bool, OsError> {
        Ok(false)
    }
    /// Why the machine did not boot what was staged, if the boot loader gave up on it by itself.
    fn fell_back(&mut self) -> Option<String> {
        None
    }
    /// Makes the host boot into the deployment of the token, or into the one that ran then, if the former was only staged (see
    /// [`OsBackend::stage_again`]), and drops what was staged. It needs no network. Idempotent.
    ///
    /// # Errors
    /// The host refuses or fails; something else is at work; or somebody else staged a deployment.
    fn undo(&mut self, before: &Token) -> Result<(), OsError>;
    /// Removes images that MachineConfigs brought or replaced and that nothing needs any more: neither what runs, boots next, can be
    /// gone back to or is pinned, nor what was fetched last. Returns what went. It may take minutes, and disturbs nothing that
    /// runs. Idempotent.
    ///
    /// # Errors
    /// The host refuses or fails.
    fn tidy(&mut self) -> Result<Vec<String>, OsError> {
        Ok(Vec::new())
    }
    /// Whether the deployment of the token runs. If not, an undone change ends with the next boot. Back ends that have
    /// one deployment only always say yes.
    ///
    /// # Errors
    /// The host cannot report it.
    fn runs(&mut self, _before: &Token) -> Result<bool, OsError> {
        Ok(true)
    }
}

#[cfg(test)]
mod tests;
