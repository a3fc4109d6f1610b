//! A finding of the linter, and how a finding of the renderer becomes one.

use crate::error::{Finding, Rule};
use serde::Serialize;

/// How bad.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// The pool would not be rendered, or no host could apply it.
    Error,
    /// It has no effect, or a different one than it seems.
    Warning,
}

/// One finding.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Lint {
    /// How bad.
    pub severity: Severity,
    /// Kind and name.
    pub object: String,
    /// JSON path in the object; empty for the object as a whole.
    pub path: String,
    /// Which rule, as a word for filters.
    pub rule: Rule,
    /// What is wrong.
    pub message: String,
    /// What to do.
    pub remedy: String,
}

/// Converts a finding of the renderer.
pub(super) fn of(severity: Severity, finding: Finding) -> Lint {
    let Finding { rule, object, path, message, remedy } = finding;
    let (message, remedy) = match remedy {
        Some(remedy) => (message, Some(remedy)),
        None => parts(message),
    };
    let remedy = remedy.unwrap_or_else(|| default_remedy(rule).to_owned());
    Lint { severity, object, path, rule, message, remedy }
}

/// The parts of a sentence that another crate has written (`ignition`'s errors and warnings, `desired::refused_extension`): what to
/// do stands at its end, after a semicolon. For layout only: nothing is decided by it.
fn parts(sentence: String) -> (String, Option<String>) {
    match sentence.rsplit_once("; ") {
        Some((message, remedy)) => (message.to_owned(), Some(remedy.to_owned())),
        None => (sentence, None),
    }
}

fn default_remedy(rule: Rule) -> &'static str {
    match rule {
        Rule::SystemdUnit => "correct the unit; `systemd-analyze verify` says more",
        Rule::FileContents => {
            "put the content into a data: URL whose compression and hash are those of the bytes"
        }
        Rule::FileMode => "write a mode up to 0777",
        Rule::OsImage => "name the image by its digest",
        Rule::UnknownField => "remove the field",
        _ => "correct or remove the field",
    }
}
