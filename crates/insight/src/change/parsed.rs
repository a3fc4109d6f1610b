//! The configs that a change is about: each is parsed once, when it is first asked for.
//!
//! What it is not: a cache. It lives as long as one computation.

use api::v1::MachineConfig;
use desired::{DesiredHost, Irreconcilable};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

/// A config, or why it cannot be read.
pub(crate) type Parsed = Result<DesiredHost, Vec<Irreconcilable>>;

/// Configs by name.
#[derive(Debug)]
pub(crate) struct ParsedConfigs<'a> {
    configs: &'a BTreeMap<String, MachineConfig>,
    parsed: RefCell<BTreeMap<String, Rc<Parsed>>>,
}

impl<'a> ParsedConfigs<'a> {
    pub(crate) fn new(configs: &'a BTreeMap<String, MachineConfig>) -> Self {
        Self { configs, parsed: RefCell::default() }
    }

    /// The config of a name. `None`: there is none.
    pub(crate) fn get(&self, name: &str) -> Option<Rc<Parsed>> {
        let config = self.configs.get(name)?;
        if let Some(known) = self.parsed.borrow().get(name) {
            return Some(known.clone());
        }
        let parsed = Rc::new(DesiredHost::parse(&config.spec));
        self.parsed.borrow_mut().insert(name.to_owned(), parsed.clone());
        Some(parsed)
    }
}
