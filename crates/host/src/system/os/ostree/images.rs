//! Container images on a host of OSTree: what a config's image is pulled by, pulled, checked, staged, and removed when nothing
//! needs it any more.
//!
//! Not here: kernel arguments (see `entries`), and which deployments there are (see `found`).
//!
//! Sources: <https://docs.rs/ostree-ext/latest/ostree_ext/container/>, bootc-switch(8).

use super::found::OstreeDeployment;
use super::{
    ASK, BOOTC, Images, OSTREE, OstreeHost, PULL, REPO, STAGE, UNSHARE, WRITABLE, found, superseded,
};
use crate::disk::attributes::Attributes;
use crate::paths::{OS_BEFORE, OSTREE_ORIGIN};
use crate::system::os::origin::OsOrigin;
use crate::system::os::ostree_repository::CONTAINER;
use crate::system::os::reference::{Reference, same_image};
use crate::system::os::{
    Deployment, OsError, boot_space, credentials, image_check, registry_inspection, repository_space,
    stored_image,
};
use crate::system::pull::Pull;
use std::time::Duration;

/// How commands for container images begin: the program, and its first arguments.
pub(super) type ContainerCommand = (&'static str, &'static [&'static str]);

/// How they begin where OSTree has them.
const BY_OSTREE: ContainerCommand = (OSTREE, &["container"]);
/// How they begin where bootc is installed without that command (<https://github.com/bootc-dev/bootc/blob/main/crates/lib/src/cli.rs>,
/// `InternalsOpts`).
const BY_BOOTC: ContainerCommand = (BOOTC, &["internals", "ostree-container"]);

/// What a program says of a command that it does not know: clap's words, now and in former versions.
const UNKNOWN_COMMAND: [&str; 2] = ["unrecognized subcommand", "wasn't recognized"];

/// Whether this is the image of a deployment, or that names none.
pub(super) fn has_image(image: Option<&Reference>, target: &Deployment) -> bool {
    target.image.is_empty() || image.is_some_and(|reference| same_image(&target.image, &reference.image))
}

fn is_unknown_command(error: &OsError) -> bool {
    UNKNOWN_COMMAND.iter().any(|said| error.why.contains(said))
}

/// Where OSTree's repository has the names of layers.
const LAYERS: &str = "/ostree/repo/refs/heads/ostree/container/blob";
const REFS: &str = "/ostree/repo/refs/heads";
/// What these names begin with.
const LAYER: &str = "ostree/container/blob";
/// What the second names of layers begin with, while images are removed in the middle of a pull.
const KEPT: &str = "machine-config/arrived";

impl OstreeHost {
    /// How commands for container images begin on this host. `None`: none of its programs has such commands, so an image can only be
    /// staged, and not fetched before that. bootc is asked once, by its help.
    fn container_command(&mut self) -> Result<Option<ContainerCommand>, OsError> {
        if let Some(known) = self.container_command {
            return Ok(known);
        }
        let command = if !self.root.found(CONTAINER)?.is_absent() {
            Some(BY_OSTREE)
        } else if self.images == Images::Bootc {
            let (bootc, first) = BY_BOOTC;
            match self.run(bootc, &[first, &["--help"]].concat(), ASK) {
                Ok(_) => Some(BY_BOOTC),
                Err(error) if is_unknown_command(&error) => None,
                Err(error) => return Err(error),
            }
        } else {
            None
        };
        self.container_command = Some(command);
        Ok(command)
    }

    /// The program for a command for container images, and all its arguments. Where none has such commands, OSTree says so.
    fn for_container<'a>(&mut self, args: &[&'a str]) -> Result<(&'static str, Vec<&'a str>), OsError> {
        let (program, first) = self.container_command()?.unwrap_or(BY_OSTREE);
        Ok((program, [first, &["image"], args].concat()))
    }

    /// Runs a command for container images. It writes to the read-only `/sysroot`, and does not see to that itself.
    pub(super) fn run_container(
        &mut self,
        args: &[&str],
        limit: Duration,
        pull: &Pull,
    ) -> Result<String, OsError> {
        let (program, args) = self.for_container(args)?;
        self.run_writable(program, &args, limit, pull)
    }

    /// Runs a program where `/sysroot` can be written to.
    fn run_writable(
        &mut self,
        program: &str,
        args: &[&str],
        limit: Duration,
        pull: &Pull,
    ) -> Result<String, OsError> {
        let mut all = vec!["--mount", "/bin/sh", "-c", WRITABLE, "sh", program];
        all.extend(args);
        let done = self.fetched(UNSHARE, &all, limit, pull)?;
        Self::output_or_error(program, args, done)
    }

    /// Fetches the image of a deployment, if it is another one than that of the next boot.
    pub(super) fn fetch_image(&mut self, target: &Deployment, pull: &Pull) -> Result<(), OsError> {
        let all = self.deployments_without_foreign()?;
        let now = self.reference(all.next())?;
        let Some(to) = self.other_image(target, now.as_ref())? else { return Ok(()) };
        boot_space::check(&self.root)?;
        credentials::link(&self.root)?;
        if self.container_command()?.is_none() {
            // This bootc cannot fetch without staging. It fetches when it stages.
            return registry_inspection::check_before_pull(&self.root, self.programs.as_mut(), &to, pull);
        }
        self.note_fetch(now.as_ref(), &to)?;
        // An image that is named by its digest need not be requested again, unless its signature has to come from the
        // registry. An image that is in no registry may exist only on this host.
        let same = to.has_digest() && to.is_unverified() || !to.is_of_registry();
        let is_there = same && stored_image::commit(self.programs.as_mut(), &to).is_some();
        if is_there || same && self.find_by_digest(&to)? {
            return self.check_image(&to, pull);
        }
        registry_inspection::check_before_pull(&self.root, self.programs.as_mut(), &to, pull)?;
        if let Err(error) = repository_space::limit(&self.root, pull) {
            // Without the images that nothing needs there may be room.
            if self.remove_superseded(true)?.is_empty() {
                return Err(error);
            }
            repository_space::limit(&self.root, pull)?;
        }
        self.pull_in_room(&to, pull)?;
        self.check_image(&to, pull)
    }

    /// Pulls an image.
    ///
    /// `ostree container` (0.15) gives a layer its name before it knows whether its bytes are those of the digest, and fails after
    /// that. The next pull would take the layer as it is. So whatever a pull that failed, or had no end, stored last is forgotten.
    fn pull_image(&mut self, reference: &Reference, pull: &Pull) -> Result<(), OsError> {
        let record = superseded::Images::read(&self.root)?;
        if record.pulling() {
            self.forget_last_layer(&[])?;
        }
        let before = self.root.list(LAYERS)?;
        record.clone().with_pulling(true).write(&self.root)?;
        let text = reference.to_string();
        let done = self.run_container(&["pull", REPO, &text], PULL, pull).map(drop);
        if done.is_err() {
            self.forget_last_layer(&before)?;
        }
        record.with_pulling(false).write(&self.root)?;
        done
    }

    /// Removes the name of the layer that was stored last, unless it is one of these, so that it is pulled again.
    fn forget_last_layer(&mut self, before: &[String]) -> Result<(), OsError> {
        let mut last = None;
        for name in self.root.list(LAYERS)?.into_iter().filter(|name| !before.contains(name)) {
            let stored = self.root.metadata_of_file(&format!("{LAYERS}/{name}"))?.modified;
            last = last.max(Some((stored, name)));
        }
        let Some((_, name)) = last else { return Ok(()) };
        let (repo, layer) = (format!("--repo={REPO}"), format!("ostree/container/blob/{name}"));
        tracing::warn!(%layer, "this layer may not be what its digest says; it is pulled again");
        self.run_writable(OSTREE, &["refs", &repo, "--delete", &layer], ASK, &Pull::default()).map(drop)
    }

    /// Checks an image that was fetched: whether it can be this host's OS.
    pub(super) fn check_image(&mut self, reference: &Reference, pull: &Pull) -> Result<(), OsError> {
        let image = reference.place();
        let (program, args) = self.for_container(&image_check::metadata_command(&image))?;
        let configuration = match self.run(program, &args, ASK) {
            Ok(text) => text,
            // Versions before 0.13 of ostree-ext cannot be asked. They check it when they stage.
            Err(error) if is_unknown_command(&error) => return Ok(()),
            Err(error) => return Err(error),
        };
        image_check::check(&configuration, std::env::consts::ARCH, pull.cluster())
            .map_err(|why| OsError::new(format!("the image {} cannot be used: {why}", reference.image)))?;
        stored_image::check_label(self.programs.as_mut(), reference, &configuration)
    }

    /// What the image of a deployment is pulled by, if it is another one than that of `now`.
    pub(super) fn other_image(
        &self,
        target: &Deployment,
        now: Option<&Reference>,
    ) -> Result<Option<Reference>, OsError> {
        if has_image(now, target) {
            return Ok(None);
        }
        self.wanted(&target.image, now).map(Some)
    }

    /// What an image that is not that of `now` is pulled by.
    fn wanted(&self, image: &str, now: Option<&Reference>) -> Result<Reference, OsError> {
        let to = Reference::for_config(image, now);
        if self.images == Images::Bootc && to.has_remote() && !to.is_signed() {
            return Err(OsError::new(format!("bootc cannot be given {to}; use ostree-image-signed")));
        }
        Ok(to)
    }

    /// Stages another image. `arguments`: the whole list.
    ///
    /// What was fetched before the drain is deployed by its commit. `ostree container image deploy` would ask the registry
    /// again: it may not answer any more, or have another image under the same tag. That command is for what is not found.
    pub(super) fn stage_image(
        &mut self,
        now: &OstreeDeployment,
        to: &Reference,
        arguments: &[String],
    ) -> Result<(), OsError> {
        let text = to.to_string();
        if self.images == Images::Container {
            if let Some(commit) = stored_image::commit(self.programs.as_mut(), to) {
                let origin = format!("[origin]\ncontainer-image-reference={text}\n");
                self.root.write_bytes(
                    OSTREE_ORIGIN,
                    origin.as_bytes(),
                    Attributes { mode: 0o600, uid: 0, gid: 0 },
                )?;
                let (os, origin) =
                    (format!("--os={}", now.stateroot), format!("--origin-file={OSTREE_ORIGIN}"));
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

    /// Records an image that is about to be pulled, and the one that it replaces.
    pub(super) fn note_fetch(&self, now: Option<&Reference>, to: &Reference) -> Result<(), OsError> {
        let runs = now.map(Reference::place);
        superseded::Images::read(&self.root)?.with(runs.as_deref(), &to.place()).write(&self.root)
    }

    /// The record of images, and those of them that no deployment needs. `short`: there is no room for another one.
    fn superseded(&mut self, short: bool) -> Result<(superseded::Images, Vec<String>), OsError> {
        let images = superseded::Images::read(&self.root)?;
        if self.images != Images::Container || images == superseded::Images::default() {
            return Ok((images, Vec::new()));
        }
        let text = self.run(OSTREE, &["admin", "status"], ASK)?;
        let mut deployed = Vec::new();
        for one in found::all(&text).map_err(OsError::new)? {
            deployed.extend(self.reference(&one)?.map(|image| image.place()));
        }
        let before = self.root.text(OS_BEFORE)?;
        let before = before.and_then(|text| serde_json::from_str::<OsOrigin>(&text).ok());
        let before = before.and_then(|before| before.on_host());
        let gone = images.superseded(&deployed, before.as_ref(), short);
        Ok((images, gone))
    }

    /// Removes the images that no deployment needs, and what only they were made of. `pulling`: what has arrived of an image
    /// that is being pulled may go too.
    pub(super) fn remove_superseded(&mut self, pulling: bool) -> Result<Vec<String>, OsError> {
        let (images, gone) = self.superseded(pulling)?;
        // Layers of a pull that was cut belong to no image yet, and the next try goes on with them.
        if gone.is_empty() || !pulling && !self.has(images.fetched()) {
            return Ok(Vec::new());
        }
        self.remove_images(images, &gone)?;
        Ok(gone)
    }

    fn remove_images(&mut self, images: superseded::Images, gone: &[String]) -> Result<(), OsError> {
        // Somebody else may have removed one, and the command refuses that.
        let there: Vec<&str> = gone.iter().filter(|image| self.has(image)).map(String::as_str).collect();
        if !there.is_empty() {
            let args = [&["remove", "--repo", REPO][..], &there].concat();
            self.run_container(&args, STAGE, &Pull::default())?;
        }
        // The command leaves the files to OSTree.
        self.run(OSTREE, &["admin", "cleanup"], STAGE)?;
        images.without(gone).write(&self.root)
    }

    /// Pulls an image. If there is no room for it, the images that nothing needs any more are removed, once, and the pull goes on
    /// with what has arrived.
    pub(super) fn pull_in_room(&mut self, reference: &Reference, pull: &Pull) -> Result<(), OsError> {
        // An agent that ended while it made room has left them.
        self.restore_layers()?;
        let before = self.root.list(LAYERS)?;
        let mut done = self.pull_image(reference, pull);
        if let Err(error) = &done
            && repository_space::is_short(&self.root, pull, error)
            && self.make_room(&before, pull)?
        {
            done = self.pull_image(reference, pull);
        }
        done.map_err(|error| repository_space::refusal(pull).unwrap_or(error))
    }

    /// Removes the images that nothing needs any more, and keeps the layers that have arrived since there were only those of
    /// `before`. Returns whether any image was removed.
    ///
    /// The command that removes images also forgets the layers that belong to no image yet. They get second names meanwhile.
    fn make_room(&mut self, before: &[String], pull: &Pull) -> Result<bool, OsError> {
        let (record, gone) = self.superseded(true)?;
        if gone.is_empty() {
            return Ok(false);
        }
        let arrived = self.root.list(LAYERS)?;
        for layer in arrived.iter().filter(|layer| !before.contains(layer)) {
            self.refs(&["--create", &format!("{KEPT}/{layer}"), &format!("{LAYER}/{layer}")])?;
        }
        self.remove_images(record, &gone)?;
        self.restore_layers()?;
        tracing::warn!(images = %gone.join(", "), "removed OS images that nothing needs any more, because there was no room \
            for a pull");
        pull.begin_again();
        repository_space::limit(&self.root, pull)?;
        Ok(true)
    }

    /// Gives the layers that [`Self::make_room`] kept their names again, and ends the second names.
    pub(super) fn restore_layers(&mut self) -> Result<(), OsError> {
        let kept = self.root.list(&format!("{REFS}/{KEPT}"))?;
        if kept.is_empty() {
            return Ok(());
        }
        let there = self.root.list(LAYERS)?;
        for layer in kept.iter().filter(|layer| !there.contains(layer)) {
            self.refs(&["--create", &format!("{LAYER}/{layer}"), &format!("{KEPT}/{layer}")])?;
        }
        let names: Vec<String> = kept.iter().map(|layer| format!("{KEPT}/{layer}")).collect();
        let words: Vec<&str> = ["--delete"].into_iter().chain(names.iter().map(String::as_str)).collect();
        self.refs(&words)
    }

    fn refs(&mut self, words: &[&str]) -> Result<(), OsError> {
        let repo = format!("--repo={REPO}");
        let mut args = vec!["refs", &repo];
        args.extend(words);
        self.run_writable(OSTREE, &args, ASK, &Pull::default()).map(drop)
    }

    /// Looks for an image that is named by its digest among those that MachineConfigs brought or replaced, under whatever tag, and
    /// gives it that name. So what a machine ran before needs no registry. Returns whether it is there.
    pub(super) fn find_by_digest(&mut self, wanted: &Reference) -> Result<bool, OsError> {
        let Some((name, digest)) = wanted.image.split_once('@') else { return Ok(false) };
        let of_it = |image: &Reference| {
            let rest = image.image.strip_prefix(name);
            image.is_of_registry()
                && image.image != wanted.image
                && rest.is_some_and(|rest| rest.is_empty() || rest.starts_with([':', '@']))
        };
        let record = superseded::Images::read(&self.root)?;
        for image in record.known().iter().filter_map(|place| Reference::at(place)).filter(of_it) {
            let Some(commit) = stored_image::commit(self.programs.as_mut(), &image) else { continue };
            if stored_image::digest(self.programs.as_mut(), &commit).as_deref() == Some(digest) {
                tracing::info!(image = %wanted.image, tag = %image.image, "the image is on the host already");
                self.refs(&["--create", &stored_image::name(wanted), &commit])?;
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Whether an image is on the host.
    fn has(&mut self, place: &str) -> bool {
        Reference::at(place)
            .is_some_and(|image| stored_image::commit(self.programs.as_mut(), &image).is_some())
    }
}
