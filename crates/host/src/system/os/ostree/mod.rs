//! Hosts of OSTree: images by bootc, or by `ostree container` where there is no bootc; kernel arguments by OSTree's own
//! commands on both.
//!
//! ```text
//! bootc status --json | ostree admin status, origin files ─► status
//! fetch: ostree container image pull, by bootc where OSTree has no such command
//! stage: bootc switch, or nothing for an image that was pulled, then ostree admin deploy --stage with the arguments
//! undo:  ostree admin undeploy, or set-default if the new deployment has booted
//! ```
//!
//! OSTree finalises what was staged at shutdown, and may fail then: the caller checks what booted. No command of this
//! file reboots, and none holds OSTree's lock over a reboot.
//!
//! Not here: packages and other kernels, which an image of such a host has or has not.
//!
//! Sources: <https://ostreedev.github.io/ostree/> and <https://bootc-dev.github.io/bootc/>.

mod entries;
mod found;
mod images;
mod kargs_d;
mod stage;
mod superseded;

use std::time::Duration;

use desired::{DEFAULT_KERNEL, OsField};

use crate::disk::root::Root;
use crate::paths::JOURNAL_DIR;
use crate::system::os::arguments::{booted_arguments, really_booted, without_secrets};
use crate::system::os::origin::OsOrigin;
use crate::system::os::ostree_repository::{CONTAINER, OSTREE, REPO, says_full};
use crate::system::os::reference::Reference;
use crate::system::os::undo_token::UndoToken;
use crate::system::os::{
    DEPLOYMENTS, Deployment, OsBackend, OsError, OsStatus, Token, proxy, pull_trouble, registry_inspection,
    staged, stored_image,
};
use crate::system::programs::{Output, ProgramError, Programs};
use crate::system::pull::Pull;
use found::{
    Deployments, OstreeDeployment, admin_status, bootc_status, number_of, origin_branch, origin_image,
};

const BOOTC: &str = "/usr/bin/bootc";
const UNSHARE: &str = "/usr/bin/unshare";
/// Runs a command where `/sysroot` and `/boot` can be written to. The mounts of the host stay read-only.
const WRITABLE: &str = "mount --make-rprivate / && mount -o remount,rw /sysroot && \
    if mountpoint -q /boot; then mount -o remount,rw /boot; fi && exec \"$@\"";
const ENTRIES: &str = "/boot/loader/entries";
const ASK: Duration = Duration::from_secs(60);
/// An image of several GB over a slow network.
const PULL: Duration = Duration::from_secs(2 * 60 * 60);
const STAGE: Duration = Duration::from_secs(30 * 60);
const DROP: &str = "reboot into it, or drop it with ostree admin undeploy 0; ostree admin status shows it";

/// What changes the image of a host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Images {
    /// bootc.
    Bootc,
    /// `ostree container`.
    Container,
    /// Nothing: this OSTree knows no container images.
    None,
}

/// The back end.
#[derive(Debug)]
pub(crate) struct OstreeHost {
    root: Root,
    programs: Box<dyn Programs>,
    images: Images,
    /// How commands for container images begin, once that was asked.
    container_command: Option<Option<images::ContainerCommand>>,
}

impl OstreeHost {
    /// The back end of this host, which runs the host's programs with `programs`.
    #[must_use]
    pub(crate) fn new(root: Root, programs: Box<dyn Programs>, images: Images) -> Self {
        Self { root, programs, images, container_command: None }
    }

    fn run(&mut self, program: &str, args: &[&str], limit: Duration) -> Result<String, OsError> {
        let done = self.programs.run(program, args, limit);
        Self::output_or_error(program, args, done)
    }

    /// Runs a command that may ask a registry, through the cluster's proxy if there is one.
    fn run_fetch(
        &mut self,
        program: &str,
        args: &[&str],
        limit: Duration,
        pull: &Pull,
    ) -> Result<String, OsError> {
        let done = self.fetched(program, args, limit, pull)?;
        Self::output_or_error(program, args, done)
    }

    fn fetched(
        &mut self,
        program: &str,
        args: &[&str],
        limit: Duration,
        pull: &Pull,
    ) -> Result<Result<Output, ProgramError>, OsError> {
        let environment = proxy::environment(&self.root)?;
        let done = self.programs.fetch(program, args, limit, &environment, pull);
        Ok(done.map_err(|e| ProgramError { why: proxy::hidden(&e.why, &environment), ..e }))
    }

    /// What a command printed, or its failure in words with the remedy.
    fn output_or_error(
        program: &str,
        args: &[&str],
        done: Result<Output, ProgramError>,
    ) -> Result<String, OsError> {
        done.map(|output| output.text).map_err(|e| {
            let words = if args.first() == Some(&"container") { 3 } else { 2 };
            let verb = args.iter().take(words).copied().collect::<Vec<_>>().join(" ");
            let says = |words: &[&str]| words.iter().any(|word| e.why.contains(word));
            let remedy = if says(&["sysroot lock", "Waiting for lock"]) {
                Some("another program is changing deployments: wait until it ends")
            } else if says_full(&e.why) {
                Some("the file system of /ostree is full: free space on it (df -h /sysroot), for example with ostree admin cleanup")
            } else {
                // Those that pull.
                let pulls = program == BOOTC || args.first() == Some(&"container");
                pulls.then(|| pull_trouble::remedy(&e.why)).flatten()
            };
            let remedy = remedy.map(|remedy| format!("; {remedy}")).unwrap_or_default();
            OsError::new(format!("{program} {verb}: {}{remedy}", without_secrets(&e.why, args)))
        })
    }

    fn ask(&mut self) -> Result<Deployments, OsError> {
        let text = self.run(OSTREE, &["admin", "status"], ASK)?;
        let all = admin_status(&text).map_err(OsError::new)?;
        if self.images != Images::Bootc {
            return Ok(all);
        }
        let text = self.run(BOOTC, &["status", "--json"], ASK)?;
        let by_bootc = bootc_status(&text, &all.booted.stateroot).map_err(OsError::new)?;
        let next = |d: &Deployments| d.next().id();
        if (by_bootc.booted.id(), next(&by_bootc)) != (all.booted.id(), next(&all)) {
            return Err(OsError::new(format!(
                "bootc and OSTree differ on what boots next ({} and {}); see bootc status and ostree admin status",
                next(&by_bootc),
                next(&all)
            )));
        }
        Ok(by_bootc)
    }

    /// Its deployments, if nobody else staged anything.
    fn deployments_without_foreign(&mut self) -> Result<Deployments, OsError> {
        let all = self.ask()?;
        staged::refuse_foreign(&self.root, all.pending.as_ref().map(OstreeDeployment::id).as_deref(), DROP)?;
        Ok(all)
    }

    fn reference(&self, one: &OstreeDeployment) -> Result<Option<Reference>, OsError> {
        let origin = self.root.text(&one.origin())?.unwrap_or_default();
        Ok(one.image.as_deref().or(origin_image(&origin)).and_then(Reference::parse))
    }

    fn deployment(
        &self,
        one: &OstreeDeployment,
        kernel_arguments: Vec<String>,
    ) -> Result<Deployment, OsError> {
        let image = self.reference(one)?.map(|r| r.image).unwrap_or_default();
        let kernel_type = DEFAULT_KERNEL.to_owned();
        Ok(Deployment { image, kernel_arguments, kernel_type, extensions: Vec::new() })
    }
}

impl OsBackend for OstreeHost {
    fn name(&self) -> &'static str {
        match self.images {
            Images::Bootc => "bootc",
            Images::Container | Images::None => "OSTree",
        }
    }

    fn refuses(&self, field: OsField) -> Option<String> {
        match (field, self.images) {
            (OsField::KernelArguments, _) | (OsField::Image, Images::Bootc | Images::Container) => None,
            (OsField::Image, Images::None) => Some(format!(
                "this OSTree knows no container images ({CONTAINER} is missing); install it, or remove the image from the \
                 MachineConfig"
            )),
            (OsField::KernelType | OsField::Extensions, _) => Some(
                "packages of a host of OSTree are part of its image; remove it from the MachineConfig, and build it into \
                 the image"
                    .to_owned(),
            ),
        }
    }

    fn paths(&self) -> Vec<String> {
        DEPLOYMENTS.map(str::to_owned).to_vec()
    }

    fn status(&mut self) -> Result<OsStatus, OsError> {
        let all = self.ask()?;
        let entry = self.entry_of_booted(&all.booted)?;
        let runs = really_booted(&entry, &booted_arguments(&self.root)?);
        let same = entry == runs;
        let booted = self.deployment(&all.booted, runs)?;
        let staged = match &all.pending {
            Some(one) => {
                let recorded = staged::arguments(&self.root, &one.id())?;
                let known = recorded.map_or_else(|| self.entry_of(one), |list| Ok(Some(list)))?;
                Some(self.deployment(one, known.unwrap_or(entry))?)
            }
            None if same => None,
            None => Some(self.deployment(&all.booted, entry)?),
        };
        let previous = all.previous.as_ref().map(|one| self.deployment(one, Vec::new())).transpose()?;
        let of_image = match self.images {
            Images::Bootc => self.of_image(&all.booted)?,
            Images::Container | Images::None => Vec::new(),
        };
        Ok(OsStatus { booted, staged, previous, of_image })
    }

    fn origin(&mut self) -> Result<Option<OsOrigin>, OsError> {
        let booted = self.ask()?.booted;
        let Some(reference) = self.reference(&booted)? else {
            let text = self.root.text(&booted.origin())?.unwrap_or_default();
            let origin = origin_branch(&text).unwrap_or_default().to_owned();
            return Ok(Some(OsOrigin::Other { origin, commit: booted.checksum }));
        };
        let digest = match booted.digest {
            None if self.images == Images::Container => {
                stored_image::digest(self.programs.as_mut(), &booted.checksum)
            }
            known => known,
        };
        Ok(Some(OsOrigin::of_image(&reference, digest.as_deref())))
    }

    fn image_size(&mut self, target: &Deployment) -> Result<Option<u64>, OsError> {
        let all = self.ask()?;
        let now = self.reference(all.next())?;
        let Some(to) = self.other_image(target, now.as_ref())? else { return Ok(None) };
        if to.has_digest() && stored_image::commit(self.programs.as_mut(), &to).is_some() {
            return Ok(None);
        }
        registry_inspection::size(&self.root, self.programs.as_mut(), &to)
    }

    fn fetch(&mut self, target: &Deployment, pull: &Pull) -> Result<(), OsError> {
        self.fetch_image(target, pull)
    }

    fn mark(&mut self) -> Result<Token, OsError> {
        let all = self.ask()?;
        match all.pending {
            None => staged::forget(&self.root)?,
            Some(_) => staged::begin_change(&self.root)?,
        }
        let id = all.next().id();
        UndoToken { id, live: None }.token()
    }

    fn folder_of(&self, before: &Token) -> Result<Option<String>, OsError> {
        Ok(UndoToken::read(before, "OSTree")?.folder())
    }

    fn stage(&mut self, target: &Deployment) -> Result<(), OsError> {
        self.stage_deployment(target)
    }

    fn undo(&mut self, before: &Token) -> Result<(), OsError> {
        let before = UndoToken::read(before, "OSTree")?;
        let mut all = self.ask()?;
        if all.next().id() == before.id {
            return Ok(());
        }
        if let Some(pending) = &all.pending {
            staged::refuse_foreign(&self.root, Some(&pending.id()), DROP)?;
            self.run(OSTREE, &["admin", "undeploy", "0"], STAGE)?;
            all = self.ask()?;
        }
        if all.pending.is_none() {
            staged::forget(&self.root)?;
        }
        if all.next().id() != before.id {
            let text = self.run(OSTREE, &["admin", "status"], ASK)?;
            if let Some(number) = number_of(&text, &before.id).map_err(OsError::new)? {
                self.run(OSTREE, &["admin", "set-default", &number.to_string()], STAGE)?;
                all = self.ask()?;
            }
        }
        match all.next().id() {
            id if id == before.id => Ok(()),
            id => Err(OsError::new(format!(
                "the machine would boot {id} and not {}, as it did before the change; make that one the default \
                 (ostree admin set-default; ostree admin status shows it). If it is gone, remove {JOURNAL_DIR} to keep \
                 the operating system that runs",
                before.id
            ))),
        }
    }

    fn tidy(&mut self) -> Result<Vec<String>, OsError> {
        // An agent that ended while it made room has left them, and a pull that would take them up may never come.
        self.restore_layers()?;
        self.remove_superseded(false)
    }

    fn runs(&mut self, before: &Token) -> Result<bool, OsError> {
        let before = UndoToken::read(before, "OSTree")?;
        Ok(self.ask()?.booted.id() == before.id)
    }
}

#[cfg(test)]
mod tests;
