//! Hosts of OSTree: images by bootc, or by `ostree container` where there is no bootc; kernel arguments by OSTree's own
//! commands on both.
//!
//! ```text
//! bootc status --json | ostree admin status, origin files ─► status
//! fetch: ostree container image pull
//! stage: bootc switch, or nothing for an image that was pulled, then ostree admin deploy --stage with the arguments
//! undo:  ostree admin undeploy, or set-default if the new deployment has booted
//! ```
//!
//! OSTree finalises what was staged at shutdown, and may fail then: the caller checks what booted. No command of this
//! file reboots, and none holds OSTree's lock over a reboot.
//!
//! Not here: packages and other kernels, which an image of such a host has or has not.

mod found;
mod kargs_d;

use std::time::Duration;

use desired::{DEFAULT_KERNEL, OsField};

use crate::disk::found::{Attributes, Found};
use crate::disk::root::Root;
use crate::paths::JOURNAL_DIR;
use crate::system::os::arguments::{
    CMDLINE, argument_changes, booted_arguments, of_deployment, really_booted, without_secrets,
};
use crate::system::os::loader::entries;
use crate::system::os::reference::{Reference, same_image};
use crate::system::os::undo_token::UndoToken;
use crate::system::os::{
    DEPLOYMENTS, Deployment, OsBackend, OsError, OsStatus, Token, boot_room, credentials, image_check, proxy,
    pull_trouble, staged, store_room, stored_image, without,
};
use crate::system::programs::{Output, ProgramError, Programs};
use crate::system::pull::Pull;
use found::{Deployments, One, admin_status, bootc_status, number_of, origin_image};

pub(crate) const OSTREE: &str = "/usr/bin/ostree";
const BOOTC: &str = "/usr/bin/bootc";
/// The part of OSTree that knows container images: `ostree container` starts it.
pub(crate) const CONTAINER: &str = "/usr/libexec/libostree/ext/ostree-container";
const UNSHARE: &str = "/usr/bin/unshare";
/// Runs a command where `/sysroot` and `/boot` can be written to. The mounts of the host stay read-only.
const WRITABLE: &str = "mount --make-rprivate / && mount -o remount,rw /sysroot && \
    if mountpoint -q /boot; then mount -o remount,rw /boot; fi && exec \"$@\"";
/// OSTree's repository of the system.
pub(crate) const REPO: &str = "/ostree/repo";
/// What a program says of a command that it does not know: clap's words, now and in former versions.
const UNKNOWN_COMMAND: [&str; 2] = ["unrecognized subcommand", "wasn't recognized"];
/// What OSTree says when its repository's file system has no room, or less than it always leaves free.
const NO_SPACE: [&str; 2] = ["min-free-space", "No space left on device"];
/// What a deployment of an image that was pulled is made from, in OSTree's form. It is read by the command that stages.
const ORIGIN: &str = "/run/machine-config-daemon-origin";
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
}

impl OstreeHost {
    /// The back end of this host, which runs the host's programs with `programs`.
    #[must_use]
    pub(crate) fn new(root: Root, programs: Box<dyn Programs>, images: Images) -> Self {
        Self { root, programs, images }
    }

    fn run(&mut self, program: &str, args: &[&str], limit: Duration) -> Result<String, OsError> {
        let done = self.programs.run(program, args, limit);
        Self::heard(program, args, done)
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
        Self::heard(program, args, done)
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

    fn heard(program: &str, args: &[&str], done: Result<Output, ProgramError>) -> Result<String, OsError> {
        done.map(|output| output.text).map_err(|e| {
            let words = if args.first() == Some(&"container") { 3 } else { 2 };
            let verb = args.iter().take(words).copied().collect::<Vec<_>>().join(" ");
            let says = |words: &[&str]| words.iter().any(|word| e.why.contains(word));
            let remedy = if says(&["sysroot lock", "Waiting for lock"]) {
                Some("another program changes deployments: wait for its end")
            } else if says(&NO_SPACE) {
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

    /// Runs a command for container images. It writes to the read-only `/sysroot`, and does not see to that itself.
    fn run_container(&mut self, args: &[&str], limit: Duration, pull: &Pull) -> Result<String, OsError> {
        let command: Vec<&str> = ["container", "image"].iter().chain(args).copied().collect();
        let mut all = vec!["--mount", "/bin/sh", "-c", WRITABLE, "sh", OSTREE];
        all.extend(&command);
        let done = self.fetched(UNSHARE, &all, limit, pull)?;
        Self::heard(OSTREE, &command, done)
    }

    /// Checks an image that was fetched: whether it can be this host's OS.
    fn check_image(&mut self, reference: &Reference, pull: &Pull) -> Result<(), OsError> {
        let image = reference.place();
        let configuration = match self.run(OSTREE, &image_check::question(&image), ASK) {
            Ok(text) => text,
            // Versions before 0.13 of ostree-ext cannot be asked. They check it when they stage.
            Err(error) if UNKNOWN_COMMAND.iter().any(|said| error.why.contains(said)) => return Ok(()),
            Err(error) => return Err(error),
        };
        image_check::check(&configuration, std::env::consts::ARCH, pull.cluster())
            .map_err(|why| OsError::new(format!("the image {} cannot be used: {why}", reference.image)))?;
        stored_image::keeps_its_promise(self.programs.as_mut(), reference, &configuration)
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
    fn free(&mut self) -> Result<Deployments, OsError> {
        let all = self.ask()?;
        staged::refuse_foreign(&self.root, all.pending.as_ref().map(One::id).as_deref(), DROP)?;
        Ok(all)
    }

    fn reference(&self, one: &One) -> Result<Option<Reference>, OsError> {
        let origin = self.root.text(&one.origin())?.unwrap_or_default();
        Ok(one.image.as_deref().or(origin_image(&origin)).and_then(Reference::parse))
    }

    fn deployment(&self, one: &One, kernel_arguments: Vec<String>) -> Result<Deployment, OsError> {
        let image = self.reference(one)?.map(|r| r.image).unwrap_or_default();
        let kernel_type = DEFAULT_KERNEL.to_owned();
        Ok(Deployment { image, kernel_arguments, kernel_type, extensions: Vec::new() })
    }

    /// The arguments of a deployment's boot loader entry. An entry names its deployment by a link, whose name changes
    /// when OSTree writes all entries anew.
    fn entry_of(&self, one: &One) -> Result<Option<Vec<String>>, OsError> {
        let place = format!("/deploy/{}/deploy/{}.{}", one.stateroot, one.checksum, one.serial);
        self.find_entry(|link| {
            Ok(match self.root.found(link)? {
                Found::Link { target, .. } => target.trim_end_matches('/').ends_with(&place),
                _ => false,
            })
        })
    }

    /// The arguments of the running deployment's boot loader entry: what it boots with, whatever a person typed at the
    /// prompt this time.
    fn entry_of_booted(&self, booted: &One) -> Result<Vec<String>, OsError> {
        if let Some(all) = self.entry_of(booted)? {
            return Ok(all);
        }
        let cmdline = self.root.text(CMDLINE)?.unwrap_or_default();
        let mark = cmdline.split_whitespace().find_map(|w| w.strip_prefix("ostree="));
        let by_mark = self.find_entry(|link| Ok(Some(link) == mark && self.root.found(link)?.is_absent()))?;
        by_mark.ok_or_else(|| {
            OsError::new(format!(
                "no boot loader entry in {ENTRIES} is that of the running deployment {}, so its kernel arguments are not \
                 known; see that /boot is mounted, and write the entries anew with ostree admin deploy",
                booted.id()
            ))
        })
    }

    /// The arguments of the first entry whose link is taken.
    fn find_entry(&self, is: impl Fn(&str) -> Result<bool, OsError>) -> Result<Option<Vec<String>>, OsError> {
        for name in self.root.list(ENTRIES)?.into_iter().filter(|n| n.ends_with(".conf")) {
            let text = self.root.text(&format!("{ENTRIES}/{name}"))?.unwrap_or_default();
            let all = entries::arguments_of(&text);
            let link = all.iter().find_map(|a| a.strip_prefix("ostree="));
            if let Some(link) = link
                && is(link)?
            {
                return Ok(Some(of_deployment(&all.join(" "))));
            }
        }
        Ok(None)
    }

    /// The arguments that the image of a deployment brings along.
    fn of_image(&self, one: &One) -> Result<Vec<String>, OsError> {
        let folder = format!("{}/usr/lib/bootc/kargs.d", one.folder());
        let mut out = Vec::new();
        for name in self.root.list(&folder)?.into_iter().filter(|n| n.ends_with(".toml")) {
            let path = format!("{folder}/{name}");
            let text = self.root.text(&path)?.unwrap_or_default();
            let some = kargs_d::of(&text, std::env::consts::ARCH);
            out.extend(
                some.map_err(|e| OsError::new(format!("{path} of the image: {e}; correct the image")))?,
            );
        }
        Ok(out)
    }

    /// Stages a commit that is on the host with these words for the arguments.
    fn stage_arguments(&mut self, one: &One, words: &[String]) -> Result<(), OsError> {
        let (os, origin) = (format!("--os={}", one.stateroot), format!("--origin-file={}", one.origin()));
        let mut args = vec!["admin", "deploy", "--stage", &os, &origin];
        args.extend(words.iter().map(String::as_str));
        args.push(&one.checksum);
        self.run(OSTREE, &args, STAGE).map(drop)
    }

    /// What an image that is not that of `now` is pulled by.
    fn wanted(&self, image: &str, now: Option<&Reference>) -> Result<Reference, OsError> {
        let to = Reference::wanted(image, now);
        if self.images == Images::Bootc && to.has_remote() && !to.is_signed() {
            return Err(OsError::new(format!("bootc cannot be given {to}; use ostree-image-signed")));
        }
        Ok(to)
    }

    /// Stages another image. `arguments`: the whole list.
    ///
    /// What was fetched before the drain is deployed by its commit. `ostree container image deploy` would ask the registry
    /// again: it may not answer any more, or have another image under the same tag. That command is for what is not found.
    fn stage_image(&mut self, now: &One, to: &Reference, arguments: &[String]) -> Result<(), OsError> {
        let text = to.to_string();
        if self.images == Images::Container {
            if let Some(commit) = stored_image::commit(self.programs.as_mut(), to) {
                let origin = format!("[origin]\ncontainer-image-reference={text}\n");
                self.root.write_bytes(
                    ORIGIN,
                    origin.as_bytes(),
                    Attributes { mode: 0o600, uid: 0, gid: 0 },
                )?;
                let (os, origin) = (format!("--os={}", now.stateroot), format!("--origin-file={ORIGIN}"));
                let words: Vec<String> = arguments.iter().map(|a| format!("--karg-append={a}")).collect();
                let mut args = vec!["admin", "deploy", "--stage", &os, &origin, "--karg-none"];
                args.extend(words.iter().map(String::as_str));
                args.push(&commit);
                match self.run(OSTREE, &args, STAGE) {
                    Ok(_) => return Ok(()),
                    Err(error) => {
                        tracing::warn!(%error, image = %to.image, "the image is staged by its name instead");
                    }
                }
            }
            let words: Vec<String> = arguments.iter().map(|a| format!("--karg={a}")).collect();
            let mut args = vec!["deploy", "--sysroot", "/", "--stateroot", &now.stateroot, "--imgref", &text];
            args.extend(words.iter().map(String::as_str));
            return self.run_container(&args, STAGE, &Pull::default()).map(drop);
        }
        let mut args = vec!["switch"];
        let transport = format!("--transport={}", to.transport());
        if to.transport() != "registry" {
            args.push(&transport);
        }
        if to.is_signed() {
            args.push("--enforce-container-sigpolicy");
        }
        args.push(&to.image);
        self.run_fetch(BOOTC, &args, STAGE, &Pull::default()).map(drop)
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

    fn fetch(&mut self, target: &Deployment, pull: &Pull) -> Result<(), OsError> {
        let all = self.free()?;
        let now = self.reference(all.next())?;
        let runs = now.as_ref().map(|r| r.image.clone()).unwrap_or_default();
        if target.image.is_empty() || same_image(&target.image, &runs) {
            return Ok(());
        }
        let to = self.wanted(&target.image, now.as_ref())?;
        boot_room::check(&self.root)?;
        credentials::link(&self.root)?;
        let reference = to.to_string();
        if self.root.found(CONTAINER)?.is_absent() {
            // bootc alone cannot fetch without staging. It fetches when it stages.
            return Ok(());
        }
        // One that is named by its digest need not be asked for again, unless the registry has what it is verified by.
        let same = to.has_digest() && to.is_unverified();
        if same && stored_image::commit(self.programs.as_mut(), &to).is_some() {
            return self.check_image(&to, pull);
        }
        store_room::limit(&self.root, pull)?;
        let done = self.run_container(&["pull", REPO, &reference], PULL, pull);
        done.map_err(|error| store_room::refusal(pull).unwrap_or(error))?;
        self.check_image(&to, pull)
    }

    fn mark(&mut self) -> Result<Token, OsError> {
        let all = self.ask()?;
        if all.pending.is_none() {
            staged::forget(&self.root)?;
        }
        let id = all.next().id();
        UndoToken { id }.token()
    }

    fn folder_of(&self, before: &Token) -> Result<Option<String>, OsError> {
        Ok(UndoToken::read(before, "OSTree")?.folder())
    }

    fn stage(&mut self, target: &Deployment) -> Result<(), OsError> {
        let all = self.free()?;
        let status = self.status()?;
        let has = &status.next().kernel_arguments;
        let now = self.reference(all.next())?;
        let runs = now.as_ref().map(|r| r.image.clone()).unwrap_or_default();
        let (gone, added) = argument_changes(has, &target.kernel_arguments);
        let mut arguments = target.kernel_arguments.clone();
        if !target.image.is_empty() && !same_image(&target.image, &runs) {
            let to = self.wanted(&target.image, now.as_ref())?;
            staged::begin(&self.root, &arguments)?;
            self.stage_image(all.next(), &to, &arguments)?;
            let after = self.ask()?;
            let one = after.next().clone();
            if self.images == Images::Bootc {
                // What the old image brought goes, what the new one brings comes, before what configs ask for.
                let old = self.of_image(&all.booted)?;
                let new = self.of_image(&one)?;
                let host = without(&without(&arguments, &added), &without(&old, &new));
                arguments = [host, without(&new, &old), added.clone()].concat();
                if !gone.is_empty() || !added.is_empty() {
                    staged::begin(&self.root, &arguments)?;
                    let all_words = arguments.iter().map(|a| format!("--karg-append={a}"));
                    let words: Vec<String> =
                        ["--karg-none".to_owned()].into_iter().chain(all_words).collect();
                    self.stage_arguments(&one, &words)?;
                }
            }
        } else {
            let gone = gone.iter().map(|a| format!("--karg-delete={a}"));
            let words: Vec<String> = gone.chain(added.iter().map(|a| format!("--karg-append={a}"))).collect();
            staged::begin(&self.root, &arguments)?;
            self.stage_arguments(all.next(), &words)?;
        }
        let Some(one) = self.ask()?.pending else {
            return Err(OsError::new(
                "the commands succeeded, but nothing is staged; see ostree admin status",
            ));
        };
        staged::record(&self.root, &one.id(), &arguments)?;
        let got = self.deployment(&one, arguments)?;
        match target.image.is_empty() || same_image(&got.image, &target.image) {
            true => Ok(()),
            false => Err(OsError::new(format!("{:?} was staged instead of {:?}", got.image, target.image))),
        }
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

    fn runs(&mut self, before: &Token) -> Result<bool, OsError> {
        let before = UndoToken::read(before, "OSTree")?;
        Ok(self.ask()?.booted.id() == before.id)
    }
}

#[cfg(test)]
mod tests;
