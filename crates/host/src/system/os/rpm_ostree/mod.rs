//! Hosts of rpm-ostree: images, kernel arguments, kernels and extensions, through its command line
//! (<https://coreos.github.io/rpm-ostree/>).
//!
//! ```text
//! status --json, kargs ─► status    fetch: rebase --download-only    stage: rebase, kargs, override, install
//! undo: cleanup --pending, or rollback if the new deployment has booted
//! ```
//!
//! Not here: which commands (see `commands`), what its answers mean (see `status`), and the reboot: no command is given
//! `--reboot`.

mod apply_live;
mod commands;
mod extensions_image;
mod packages;
mod restage;
mod status;

use std::time::Duration;

use desired::OsField;

use crate::disk::root::Root;
use crate::paths::{JOURNAL_DIR, RESTAGED_PACKAGES};
use crate::system::os::arguments::{booted_arguments, of_deployment, really_booted, without_secrets};
use crate::system::os::origin::OsOrigin;
use crate::system::os::ostree_repository::{CONTAINER, OSTREE};
use crate::system::os::reference::{Reference, same_image};
use crate::system::os::undo_token::UndoToken;
use crate::system::os::{
    DEPLOYMENTS, Deployment, OsBackend, OsError, OsStatus, Token, boot_space, credentials, differs,
    image_check, pull_trouble, registry_inspection, repository_space, staged, stored_image,
};
use crate::system::os_release::OsRelease;
use crate::system::programs::{Output, ProgramError, Programs};
use crate::system::pull::Pull;
use status::{RpmDeployment, Status};

const PROGRAM: &str = "/usr/bin/rpm-ostree";
/// Questions are answered within seconds; the daemon may have to start first.
const ASK: Duration = Duration::from_secs(60);
/// An image of several GB over a slow network.
const PULL: Duration = Duration::from_secs(2 * 60 * 60);
/// Packages are unpacked, and an initramfs may be made.
const STAGE: Duration = Duration::from_secs(60 * 60);
/// What rpm-ostree says if another transaction runs (its D-Bus daemon takes one at a time).
const BUSY: &str = "Transaction in progress";
/// What rpm-ostree says if a program has registered itself as the one that updates the host.
const DRIVEN: &str = "Updates and deployments are driven by";
const DROP: &str = "reboot into it, or drop it with rpm-ostree cleanup --pending; rpm-ostree status shows it";
const PACKAGES: &str = "check spec.extensions, which are the names of packages, and the host's repositories (dnf repolist, /etc/yum.repos.d) \
    or spec.baseOSExtensionsContainerImage, which must have them";
const WAIT: &str = "wait until it ends (rpm-ostree status), or stop it with rpm-ostree cancel";
/// The distributions that have other kernels as packages.
const HAVE_KERNELS: [&str; 4] = ["rhcos", "scos", "rhel", "centos"];

/// The back end.
#[derive(Debug)]
pub(crate) struct RpmOstree {
    root: Root,
    programs: Box<dyn Programs>,
    /// The image that has the packages of extensions and kernels. Empty: the host's repositories have them.
    extensions_image: String,
}

impl RpmOstree {
    /// The back end of this host, which runs the host's programs with `programs`.
    #[must_use]
    pub(crate) fn new(root: Root, programs: Box<dyn Programs>) -> Self {
        Self { root, programs, extensions_image: String::new() }
    }

    fn run(&mut self, args: &[String], limit: Duration) -> Result<String, OsError> {
        let args: Vec<&str> = args.iter().map(String::as_str).collect();
        let done = self.programs.run(PROGRAM, &args, limit);
        Self::output_or_error(&args, done)
    }

    /// Runs a command that fetches. Its daemon fetches, so it needs no proxy.
    fn run_fetch(&mut self, args: &[String], pull: &Pull) -> Result<(), OsError> {
        let args: Vec<&str> = args.iter().map(String::as_str).collect();
        let done = self.programs.fetch(PROGRAM, &args, PULL, &[], pull);
        Self::output_or_error(&args, done).map(drop)
    }

    /// Ends the transaction of a command of the agent that was killed: it goes on in rpm-ostree's daemon.
    fn cancel(&mut self) {
        if let Err(error) = self.run(&["cancel".to_owned()], ASK) {
            tracing::info!(%error, "no transaction was there to be cancelled");
        }
    }

    /// What a command printed, or its failure in words with the remedy.
    fn output_or_error(args: &[&str], done: Result<Output, ProgramError>) -> Result<String, OsError> {
        match done {
            Ok(output) => Ok(output.text),
            Err(e) if e.why.contains(BUSY) => {
                Err(OsError::new(format!("rpm-ostree is busy with another transaction; {WAIT} ({})", e.why)))
            }
            Err(e) if e.why.contains(DRIVEN) => Err(OsError::new(format!(
                "another program updates this host, and would replace what a MachineConfig stages; stop it, for example with \
                 systemctl disable --now zincati.service ({})",
                e.why
            ))),
            Err(e) => {
                let verb = args.first().copied().unwrap_or_default();
                let remedy = match verb {
                    "rebase" => pull_trouble::remedy(&e.why),
                    "install" => Some(PACKAGES),
                    _ => None,
                };
                let remedy = remedy.map(|remedy| format!("; {remedy}")).unwrap_or_default();
                Err(OsError::new(format!("rpm-ostree {verb}: {}{remedy}", without_secrets(&e.why, args))))
            }
        }
    }

    fn ask(&mut self) -> Result<Status, OsError> {
        let text = self.run(&["status".to_owned(), "--json".to_owned()], ASK)?;
        Status::parse(&text).map_err(OsError::new)
    }

    /// Its state, if no transaction runs. One that the agent began goes on when the agent has ended.
    fn idle_status(&mut self) -> Result<Status, OsError> {
        let status = self.ask()?;
        match status.busy() {
            Some(what) => Err(OsError::new(format!(
                "rpm-ostree is busy ({what}), for somebody else or for an interrupted update; {WAIT}"
            ))),
            None => Ok(status),
        }
    }

    /// Its state, if no transaction runs and nobody else staged anything.
    fn status_without_foreign(&mut self) -> Result<Status, OsError> {
        let status = self.idle_status()?;
        staged::refuse_foreign(&self.root, status.pending().map(|d| d.id.as_str()), DROP)?;
        Ok(status)
    }

    /// Checks an image that was fetched: whether it can be this host's OS. rpm-ostree itself cannot be asked, but where it is,
    /// `ostree container` mostly is too. What that does not answer is left to rpm-ostree, which checks when it stages.
    fn check_image(&mut self, reference: &Reference, pull: &Pull) -> Result<(), OsError> {
        if self.root.found(CONTAINER)?.is_absent() {
            return Ok(());
        }
        let place = reference.place();
        let words = [&["container", "image"][..], &image_check::metadata_command(&place)].concat();
        match self.programs.run(OSTREE, &words, ASK) {
            Ok(Output { text }) => {
                image_check::check(&text, std::env::consts::ARCH, pull.cluster()).map_err(|why| {
                    OsError::new(format!("the image {} cannot be used: {why}", reference.image))
                })?;
                stored_image::check_label(self.programs.as_mut(), reference, &text)
            }
            Err(error) => {
                tracing::warn!(image = %reference.image, %error, "the image is not checked before it is staged");
                Ok(())
            }
        }
    }

    /// Runs commands while the packages of the extensions image are a repository, if one of them needs any (`needed`).
    fn with_packages(
        &mut self,
        needed: bool,
        pull: &Pull,
        run: impl FnOnce(&mut Self) -> Result<(), OsError>,
    ) -> Result<(), OsError> {
        if self.extensions_image.is_empty() || !needed {
            return run(self);
        }
        let image = self.extensions_image.clone();
        let opened = extensions_image::open(&self.root, self.programs.as_mut(), &image, pull);
        let done = opened.and_then(|()| run(self));
        if done.as_ref().is_err_and(|e| e.killed) {
            return done;
        }
        let closed = extensions_image::close(&self.root);
        done.and(closed)
    }

    /// The kernel arguments of the next boot.
    fn arguments(&mut self) -> Result<Vec<String>, OsError> {
        let text = self.run(&["kargs".to_owned()], ASK)?;
        Ok(of_deployment(&text))
    }
}

/// Whether the target's image is the one that the next boot has already, or none.
fn now_same_image(now: &RpmDeployment, target: &Deployment) -> bool {
    target.image.is_empty() || same_image(&target.image, &now.deployment(Vec::new()).image)
}

impl OsBackend for RpmOstree {
    fn name(&self) -> &'static str {
        "rpm-ostree"
    }

    fn refuses(&self, field: OsField) -> Option<String> {
        if field != OsField::KernelType {
            return None;
        }
        let OsRelease { id, .. } = OsRelease::read(&self.root).unwrap_or_default();
        (!HAVE_KERNELS.contains(&id.as_str())).then(|| {
            format!(
                "{} has no other kernels as packages; remove spec.kernelType from the MachineConfig, or use an image \
                 that has the kernel",
                if id.is_empty() { "this distribution" } else { &id }
            )
        })
    }

    fn unsupported_packages(&mut self) -> Result<usize, OsError> {
        Ok(self.ask()?.booted().map_or(0, RpmDeployment::unsupported))
    }

    fn paths(&self) -> Vec<String> {
        DEPLOYMENTS.map(str::to_owned).to_vec()
    }

    fn status(&mut self) -> Result<OsStatus, OsError> {
        let status = self.ask()?;
        let next = self.arguments()?;
        // What is in the running system already counts as booted.
        let runs = match (status.live(), status.pending()) {
            (Some(live), _) => Some(live),
            (None, Some(_)) => None,
            (None, None) => status.booted(),
        };
        let booted = match runs {
            None => booted_arguments(&self.root)?,
            Some(_) => really_booted(&next, &booted_arguments(&self.root)?),
        };
        let same = runs.is_some() && next == booted;
        let staged = status.next().filter(|_| !same).map(|d| d.deployment(next));
        let booted = runs.or(status.booted()).map(|d| d.deployment(booted)).unwrap_or_default();
        let previous = status.previous().map(|d| d.deployment(Vec::new()));
        Ok(OsStatus { booted, staged, previous, ..OsStatus::default() })
    }

    fn origin(&mut self) -> Result<Option<OsOrigin>, OsError> {
        Ok(self.ask()?.booted().map(RpmDeployment::made_from))
    }

    fn use_extensions(&mut self, image: &str) {
        image.clone_into(&mut self.extensions_image);
    }

    fn image_size(&mut self, target: &Deployment) -> Result<Option<u64>, OsError> {
        let status = self.ask()?;
        let Some(next) = status.next().filter(|next| !now_same_image(next, target)) else { return Ok(None) };
        let image = Reference::for_config(&target.image, next.reference().as_ref());
        registry_inspection::size(&self.root, self.programs.as_mut(), &image)
    }

    fn fetch(&mut self, target: &Deployment, pull: &Pull) -> Result<(), OsError> {
        // An agent that was killed, or a power cut, has left it open: without its folder it fails every command that looks up packages.
        extensions_image::close(&self.root)?;
        let status = self.status_without_foreign()?;
        if target.kernel_type == "64k-pages" && std::env::consts::ARCH != "aarch64" {
            return Err(OsError::new("the kernel type 64k-pages exists for arm64 only; choose another one"));
        }
        let now = status.next().map(|now| commands::fetch(now, target)).unwrap_or_default();
        if now.iter().any(|command| command.first().is_some_and(|verb| verb == "rebase")) {
            boot_space::check(&self.root)?;
            credentials::link(&self.root)?;
            if let Some(next) = status.next() {
                let image = Reference::for_config(&target.image, next.reference().as_ref());
                registry_inspection::check_before_pull(&self.root, self.programs.as_mut(), &image, pull)?;
            }
        }
        let needs = |commands: &[Vec<String>]| {
            status.next().is_some_and(|next| commands::need_repositories(commands, next))
        };
        let staging = status.next().map(|next| commands::stage(next, &target.kernel_arguments, target));
        let needed = needs(&now);
        if !needed && needs(&staging.unwrap_or_default()) && !self.extensions_image.is_empty() {
            // rpm-ostree asks for the packages only when it stages, as for another kernel. Their image is pulled before that.
            extensions_image::pull(&self.root, self.programs.as_mut(), &self.extensions_image, pull)?;
        }
        self.with_packages(needed, pull, |os| {
            for command in &now {
                repository_space::limit(&os.root, pull)?;
                let done = os.run_fetch(command, pull);
                if done.is_err() && pull.is_cancelled() {
                    os.cancel();
                }
                done.map_err(|error| repository_space::refusal(pull).unwrap_or(error))?;
            }
            Ok(())
        })?;
        match status.next().filter(|now| !now_same_image(now, target)) {
            Some(now) => {
                self.check_image(&Reference::for_config(&target.image, now.reference().as_ref()), pull)
            }
            None => Ok(()),
        }
    }

    fn mark(&mut self) -> Result<Token, OsError> {
        let status = self.idle_status()?;
        extensions_image::close(&self.root)?;
        if status.pending().is_none() {
            staged::forget(&self.root)?;
        }
        let id = status.next().map(|d| d.id.clone()).unwrap_or_default();
        let live = self.live_before(&status)?;
        UndoToken { id, live }.token()
    }

    fn folder_of(&self, before: &Token) -> Result<Option<String>, OsError> {
        Ok(UndoToken::read(before, "rpm-ostree")?.folder())
    }

    fn stage(&mut self, target: &Deployment) -> Result<(), OsError> {
        let status = self.status_without_foreign()?;
        let has = self.status()?.next().kernel_arguments.clone();
        let commands = status.next().map(|now| commands::stage(now, &has, target)).unwrap_or_default();
        let needed = status.next().is_some_and(|next| commands::need_repositories(&commands, next));
        self.with_packages(needed, &Pull::default(), |os| {
            for command in &commands {
                staged::begin(&os.root, &target.kernel_arguments)?;
                os.run(command, STAGE)?;
                // Each stages a deployment of its own.
                if let Some(staged) = os.ask()?.pending() {
                    staged::record(&os.root, &staged.id, &target.kernel_arguments)?;
                }
            }
            Ok(())
        })?;
        let after = self.ask()?;
        let arguments = self.arguments()?;
        let got = after.next().map(|d| d.deployment(arguments)).unwrap_or_default();
        differs(&got, target).map_or(Ok(()), |what| {
            Err(OsError::new(format!(
                "rpm-ostree reported success, but the staged deployment is not as requested: {what}"
            )))
        })
    }

    fn can_apply_live(&self) -> bool {
        true
    }

    fn apply_live(&mut self) -> Result<(), OsError> {
        self.bring_live()
    }

    fn undo_live(&mut self, before: &Token) -> Result<(), OsError> {
        self.take_back_live(&UndoToken::read(before, "rpm-ostree")?)
    }

    fn stage_again(&mut self, before: &Token) -> Result<(), OsError> {
        self.stage_packages_again(&UndoToken::read(before, "rpm-ostree")?)
    }

    fn bring_back_live(&mut self, before: &Token, allowed: bool) -> Result<bool, OsError> {
        self.bring_staged_again_live(before, allowed)
    }

    fn not_brought_back(&mut self) -> Result<Option<String>, OsError> {
        self.not_staged_again()
    }

    fn discard_undo_data(&mut self) -> Result<(), OsError> {
        Ok(self.root.remove(RESTAGED_PACKAGES)?)
    }

    fn has_undo_data(&self) -> Result<bool, OsError> {
        self.has_needless_record()
    }

    fn undo(&mut self, before: &Token) -> Result<(), OsError> {
        let before = UndoToken::read(before, "rpm-ostree")?;
        let ids = self.deployments_to_return_to(&before)?;
        let is = |d: Option<&RpmDeployment>| d.is_some_and(|d| ids.contains(&d.id));
        let mut status = self.idle_status()?;
        if status.next().is_some_and(|d| d.id == before.id) || is(status.pending()) {
            return Ok(());
        }
        if let Some(pending) = status.pending() {
            staged::refuse_foreign(&self.root, Some(&pending.id), DROP)?;
            self.run(&["cleanup".to_owned(), "--pending".to_owned()], STAGE)?;
            status = self.idle_status()?;
        }
        if status.pending().is_none() {
            staged::forget(&self.root)?;
        }
        if !is(status.next()) && is(status.previous()) {
            self.run(&["rollback".to_owned()], STAGE)?;
            status = self.idle_status()?;
        }
        match status.next() {
            next if is(next) => Ok(()),
            next => Err(OsError::new(format!(
                "the machine would boot {} and not {}, as it did before the change; make that one the default by hand \
                 (rpm-ostree status shows it). If it is gone, remove {JOURNAL_DIR} to keep the operating system that runs",
                next.map(|d| d.id.as_str()).unwrap_or_default(),
                before.id
            ))),
        }
    }

    fn runs(&mut self, before: &Token) -> Result<bool, OsError> {
        let before = UndoToken::read(before, "rpm-ostree")?;
        let ids = self.deployments_to_return_to(&before)?;
        Ok(self.ask()?.booted().is_some_and(|d| ids.contains(&d.id)))
    }
}

#[cfg(test)]
mod tests;
