//! Broken rules, each with its JSON path, as they are collected and told.
//!
//! What it is not: the rules (see `validate`).

use std::collections::HashMap;
use std::fmt::Display;

/// One broken rule.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ValidationError {
    /// Where, for example `storage.files[0].path`.
    pub path: String,
    /// Which rule is broken, and what to do.
    pub message: String,
}

impl std::fmt::Display for ValidationError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}: {}", self.path, self.message)
    }
}

/// Every broken rule of a config; never empty.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ValidationErrors(pub Vec<ValidationError>);

impl std::error::Error for ValidationErrors {}

impl std::fmt::Display for ValidationErrors {
    /// All findings, up to the number that fits into a condition's message.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        const SHOWN: usize = 8;
        for (i, e) in self.0.iter().take(SHOWN).enumerate() {
            write!(f, "{}{e}", if i == 0 { "" } else { "; " })?;
        }
        match self.0.len().checked_sub(SHOWN) {
            Some(more) if more > 0 => write!(f, "; and {more} more"),
            _ => Ok(()),
        }
    }
}

/// The findings so far.
#[derive(Debug, Default)]
pub(crate) struct Report(Vec<ValidationError>);

impl Report {
    /// The findings, if there are any.
    pub(crate) fn result(self) -> Result<(), ValidationErrors> {
        if self.0.is_empty() { Ok(()) } else { Err(ValidationErrors(self.0)) }
    }

    /// Adds a finding. The path is formatted only if there is one.
    pub(crate) fn add(&mut self, path: impl Display, message: impl Into<String>) {
        self.0.push(ValidationError { path: path.to_string(), message: message.into() });
    }

    /// Adds the error of a check, if it has one.
    pub(crate) fn check(&mut self, path: impl Display, result: Result<(), impl Into<String>>) {
        if let Err(message) = result {
            self.add(path, message);
        }
    }

    /// Finds names that occur twice in a list.
    pub(crate) fn unique<'a>(&mut self, list: impl Display, names: impl Iterator<Item = &'a str>) {
        self.duplicates(list, names, |name| format!("{name:?} "));
    }

    /// Finds values that occur twice in a list. Unlike names they may be secret, and are not quoted.
    pub(crate) fn unique_values<'a>(&mut self, list: impl Display, values: impl Iterator<Item = &'a str>) {
        self.duplicates(list, values, |_| "the same value ".to_owned());
    }

    fn duplicates<'a>(
        &mut self,
        list: impl Display,
        keys: impl Iterator<Item = &'a str>,
        told: impl Fn(&str) -> String,
    ) {
        let mut seen: HashMap<&str, usize> = HashMap::new();
        for (i, key) in keys.enumerate() {
            if let Some(first) = seen.insert(key, i) {
                self.add(
                    format!("{list}[{i}]"),
                    format!("{}is already in {list}[{first}]; keep one of them", told(key)),
                );
            }
        }
    }
}
