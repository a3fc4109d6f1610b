//! Who set what in a pool's rendered config, and who lost: [`Explanation`]. Pure.
//!
//! What it is not: the tracing of origins (see [`render::provenance`]), or their table.

pub(crate) mod requests;

use desired::mask::{Secrets, argument};
use render::provenance::Kind;
use render::{Origin, Provenance};
use serde::Serialize;
use std::collections::BTreeMap;

/// Where the answer comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Source {
    /// It was stored when the config was rendered.
    Stored,
    /// Computed from the MachineConfigs as they are now, and why.
    Computed(String),
}

/// Nothing in the config has the name that was asked for; the text names what there is.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("no MachineConfig of pool {pool} sets {what:?} in {config}; {hint}")]
pub struct NotInConfig {
    /// The pool.
    pub pool: String,
    /// Its rendered config.
    pub config: String,
    /// What was asked for.
    pub what: String,
    /// The names that exist.
    pub hint: String,
}

/// Who set what in a pool's rendered config.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Explanation {
    /// The pool.
    pub pool: String,
    /// Its rendered config.
    pub config: String,
    /// Set when nothing stored could be used and the MachineConfigs may have changed since.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub worked_out_because: Option<String>,
    /// Each thing, with who set it and who lost, in merge order.
    pub origins: Provenance,
}

impl Explanation {
    /// Everything that a config sets.
    pub fn new(pool: &str, config: &str, origins: Provenance, source: &Source) -> Self {
        let worked_out_because = match source {
            Source::Stored => None,
            Source::Computed(why) => Some(why.clone()),
        };
        Self { pool: pool.to_owned(), config: config.to_owned(), worked_out_because, origins }
    }

    /// Narrowed to the thing that was asked for (a path, a unit, a kernel argument) and, if `contested`, to things that more
    /// than one MachineConfig sets.
    ///
    /// # Errors
    /// Nothing has that name; the text names what there is.
    pub fn only(mut self, what: Option<&str>, contested: bool) -> Result<Self, NotInConfig> {
        if contested {
            self.origins.0.retain(|o| !o.lost.is_empty());
        }
        let Some(what) = what else { return Ok(self) };
        let found: Vec<Origin> = self.origins.find(what).into_iter().cloned().collect();
        if found.is_empty() {
            let near = self.origins.nearest(what);
            let mut kinds: BTreeMap<String, usize> = BTreeMap::new();
            self.origins.0.iter().for_each(|o| *kinds.entry(kind_of(o)).or_default() += 1);
            let kinds: Vec<String> = kinds.iter().map(|(k, n)| format!("{n} {k}")).collect();
            let hint = match near.as_slice() {
                [] => format!("it has: {}; `mco explain {}` lists them", kinds.join(", "), self.pool),
                near => {
                    let near: Vec<_> = near.iter().map(|n| argument(n)).collect();
                    format!("nearest: {}", near.join(", "))
                }
            };
            let Self { pool, config, .. } = self;
            return Err(NotInConfig { pool, config, what: what.to_owned(), hint });
        }
        self.origins = Provenance(found);
        Ok(self)
    }

    /// Without the values of kernel arguments that look like secrets. Everything else in it is names.
    #[must_use]
    pub fn masked(mut self, secrets: Secrets) -> Self {
        if secrets == Secrets::Hide {
            for origin in self.origins.0.iter_mut().filter(|o| o.kind == Kind::KernelArgument) {
                origin.name = argument(&origin.name).into_owned();
            }
        }
        self
    }
}

/// The kind as it is written in JSON.
pub fn kind_of(o: &Origin) -> String {
    serde_json::to_value(o.kind).ok().and_then(|v| v.as_str().map(str::to_owned)).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mk() -> Explanation {
        let origin = |kind, name: &str, field: &str, set_by: &str, lost: &[&str]| Origin {
            kind,
            name: name.to_owned(),
            field: field.to_owned(),
            set_by: set_by.to_owned(),
            lost: lost.iter().map(|l| (*l).to_owned()).collect(),
        };
        let all = vec![
            origin(Kind::File, "/etc/motd", "contents", "50-motd", &["00-worker", "40-base"]),
            origin(Kind::File, "/etc/motd", "mode", "00-worker", &[]),
            origin(Kind::KernelArgument, "nosmt=force", "", "50-karg", &[]),
        ];
        Explanation::new("worker", "rendered-worker-1", Provenance(all), &Source::Stored)
    }

    #[test]
    fn a_contested_field_names_who_lost() {
        assert_eq!(mk().only(None, true).unwrap().origins.0.len(), 1);
    }

    #[test]
    fn kernel_arguments_keep_their_names_and_lose_what_looks_secret() {
        let mut all = mk();
        for origin in &mut all.origins.0 {
            origin.name = "nbd.password=hunter2".to_owned();
        }
        let found = || all.clone().only(Some("nbd.password=hunter2"), false).unwrap();
        let masked = found().masked(Secrets::Hide);
        let text = serde_json::to_string(&masked).unwrap();
        assert!(text.contains("nbd.password=***"), "{text}");
        assert!(serde_json::to_string(&found().masked(Secrets::Show)).unwrap().contains("hunter2"));
        let kargs = masked.origins.0.iter().filter(|o| o.kind == Kind::KernelArgument);
        assert!(kargs.into_iter().all(|o| !o.name.contains("hunter2")));
        let near = all.only(Some("nbd.password=hunter"), false).unwrap_err().to_string();
        assert!(!near.contains("hunter2"), "{near}");
    }

    #[test]
    fn an_unknown_path_is_answered_with_the_known_ones() {
        let error = mk().only(Some("/etc/mtod"), false).unwrap_err().to_string();
        assert!(error.contains("\"/etc/mtod\"") && error.contains("nearest: /etc/motd"), "{error}");
        let error = mk().only(Some("zzzz"), false).unwrap_err().to_string();
        assert!(error.contains("2 file, 1 kernelArgument"), "{error}");
    }
}
