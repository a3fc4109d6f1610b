//! The configs that a change is about: each is parsed once, when it is first asked for.
//!
//! What it is not: a cache. It lives as long as one computation.

use api::v1::MachineConfig;
use desired::mask::Secrets;
use desired::{DesiredHost, Irreconcilable};
use render::DiffSide;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

/// A config, or why it cannot be read.
pub(crate) type Parsed = Result<DesiredHost, Vec<Irreconcilable>>;

/// A config's name; empty if it has none.
pub(crate) fn name_of(config: &MachineConfig) -> &str {
    config.metadata.name.as_deref().unwrap_or_default()
}

/// Configs by name.
#[derive(Debug)]
pub(crate) struct ParsedConfigs<'a> {
    configs: BTreeMap<&'a str, &'a MachineConfig>,
    parsed: RefCell<BTreeMap<String, Rc<Parsed>>>,
}

impl<'a> ParsedConfigs<'a> {
    /// `targets`: what pools would be in. They need not be among `configs`.
    pub(crate) fn new(
        configs: &'a BTreeMap<String, MachineConfig>,
        targets: impl IntoIterator<Item = &'a MachineConfig>,
    ) -> Self {
        let configs = configs.iter().map(|(name, config)| (name.as_str(), config));
        let targets = targets.into_iter().map(|config| (name_of(config), config));
        Self { configs: configs.chain(targets).collect(), parsed: RefCell::default() }
    }

    /// The object of a name. `None`: there is none.
    pub(crate) fn object(&self, name: &str) -> Option<&'a MachineConfig> {
        self.configs.get(name).copied()
    }

    /// The config of a name. `None`: there is none.
    pub(crate) fn get(&self, name: &str) -> Option<Rc<Parsed>> {
        let config = self.object(name)?;
        if let Some(known) = self.parsed.borrow().get(name) {
            return Some(known.clone());
        }
        let parsed = Rc::new(DesiredHost::parse(&config.spec));
        self.parsed.borrow_mut().insert(name.to_owned(), parsed.clone());
        Some(parsed)
    }
    /// What differs between two configs; without the first one, all of the second.
    ///
    /// # Errors
    /// A config that cannot be read; the text names the MachineConfig.
    pub(crate) fn difference(&self, from: &str, to: &str, secrets: Secrets) -> Result<String, String> {
        let read = |name: &str| self.object(name).zip(self.get(name));
        let (old, new) = (read(from), read(to));
        Ok(render::diff_parsed(side(old.as_ref())?, side(new.as_ref())?, secrets))
    }
}

fn side<'a>(one: Option<&'a (&'a MachineConfig, Rc<Parsed>)>) -> Result<Option<DiffSide<'a>>, String> {
    let Some((object, parsed)) = one else { return Ok(None) };
    match &**parsed {
        Ok(host) => Ok(Some(DiffSide { object, config: &host.config })),
        Err(bad) => Err(unreadable(name_of(object), bad)),
    }
}

/// Why a config cannot be read, in words.
pub(crate) fn unreadable(name: &str, bad: &[Irreconcilable]) -> String {
    let why: Vec<String> = bad.iter().map(|b| format!("{}: {}", b.path, b.why)).collect();
    format!("MachineConfig {name}: {}", why.join("; "))
}
