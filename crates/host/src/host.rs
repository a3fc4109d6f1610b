//! One host: its root folder, its systemd, its operating system and its programs. The operations on it are in `inspect`
//! (gathers what a plan needs to know), `transaction` (applies and undoes a change) and `drift` (compares its disk
//! with its config).

use crate::baseline::Baseline;
use crate::disk::bounded::Bounded;
use crate::disk::root::Root;
use crate::error::Error;
use crate::paths;
use crate::record::CurrentConfig;
use crate::system::os::OsBackend;
use crate::system::os_release::OsRelease;
use crate::system::programs::Programs;
use crate::system::systemd::Systemd;
use desired::OsField;

/// A host.
#[derive(Debug)]
pub struct Host {
    pub(crate) root: Root,
    pub(crate) systemd: Box<dyn Systemd>,
    pub(crate) os: Box<dyn OsBackend>,
    pub(crate) programs: Option<Box<dyn Programs>>,
    pub(crate) bounded: Bounded,
    /// The program that watches over a change on trial, with its arguments. Empty: none does.
    pub(crate) trial_watch: Vec<String>,
    /// The baseline that a recovery made, for the first caller of [`Host::baseline`].
    pub(crate) baseline_of_recovery: Option<Baseline>,
}

impl Host {
    /// A host with its root folder, its systemd and its operating system.
    #[must_use]
    pub fn new(root: Root, systemd: Box<dyn Systemd>, os: Box<dyn OsBackend>) -> Self {
        let (bounded, trial_watch) = (Bounded::default(), Vec::new());
        Self { root, systemd, os, programs: None, bounded, trial_watch, baseline_of_recovery: None }
    }

    /// Adds a way to run the host's programs, where that is possible. The SSH server can then be asked which key files
    /// it reads.
    #[must_use]
    pub fn with_programs(self, programs: Box<dyn Programs>) -> Self {
        Self { programs: Some(programs), ..self }
    }

    /// Whether the host can run an image that its Node names instead of its config.
    #[must_use]
    pub fn takes_node_image(&self) -> bool {
        self.os.refuses(OsField::Image).is_none()
    }

    /// Whether the machine reboots as a whole now, whoever asked for it. One that is switched off does not.
    ///
    /// # Errors
    /// systemd cannot be reached.
    pub fn is_stopping(&mut self) -> Result<bool, Error> {
        Ok(self.systemd.is_stopping()?)
    }

    /// Which operating system the host has.
    ///
    /// # Errors
    /// It cannot be read.
    pub fn os_release(&self) -> Result<OsRelease, Error> {
        OsRelease::read(&self.root)
    }

    /// How many packages were added to the running image, removed from it or replaced in it that are part of no
    /// extension. Hosts without such packages have none.
    ///
    /// # Errors
    /// The host cannot report it.
    pub fn unsupported_packages(&mut self) -> Result<usize, Error> {
        Ok(self.os.unsupported_packages()?)
    }

    /// The root folder.
    #[must_use]
    pub fn root(&self) -> &Root {
        &self.root
    }

    /// The config that was applied last. `None`: the host was never changed.
    ///
    /// # Errors
    /// It cannot be read.
    pub fn current_config(&self) -> Result<Option<CurrentConfig>, Error> {
        let config = |why| Error::Config { name: paths::CURRENT_CONFIG.to_owned(), why };
        let bytes = self.root.read_if_there(paths::CURRENT_CONFIG)?;
        // Another implementation may have written both, the config as its object has it.
        let image = self.root.text(paths::CURRENT_IMAGE)?.unwrap_or_default();
        bytes.map(|b| CurrentConfig::from_json(&b, image.trim()).map_err(config)).transpose()
    }
}
