//! A finding of linting, and how one of the renderer becomes one.
//!
//! What it is not: the rules that are broken.

use crate::error::Finding;
use serde::Serialize;

/// How bad.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// The pool would not be rendered, or no host could apply it.
    Error,
    /// It has no effect, or another than it seems.
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
    pub rule: &'static str,
    /// What is wrong.
    pub message: String,
    /// What to do.
    pub remedy: String,
}

/// A finding of the renderer: its text ends with the remedy after a semicolon.
pub(super) fn of(severity: Severity, finding: Finding) -> Lint {
    let Finding { object, path, message } = finding;
    let rule = rule(&object, &path, &message);
    let (message, remedy) = match message.rsplit_once("; ") {
        Some((message, remedy)) => (message.to_owned(), remedy.to_owned()),
        None => (message, default_remedy(rule).to_owned()),
    };
    Lint { severity, object, path, rule, message, remedy }
}

fn rule(object: &str, path: &str, message: &str) -> &'static str {
    let rules = [
        (path.contains("osImageStream") || object.starts_with("OSImageStream"), "os-image-stream"),
        (object.starts_with("MachineConfigPool"), "selector"),
        (message.contains(" bytes of at most "), "too-large"),
        (path.starts_with("spec.kernelType"), "kernel-type"),
        (path.starts_with("spec.extensions"), "extension"),
        (path.starts_with("spec.osImageURL"), "os-image"),
        (path.ends_with(".mode"), "file-mode"),
        (message.contains("does not know this field") || message.contains("is read as"), "unknown-field"),
        (path.contains("systemd.units"), "systemd-unit"),
        (message.contains("cannot be fetched here"), "remote-source"),
        (path.contains(".contents") || path.contains(".append"), "file-contents"),
        (path.starts_with("spec.config"), "ignition"),
    ];
    rules.into_iter().find(|(applies, _)| *applies).map_or("machine-config", |(_, rule)| rule)
}

fn default_remedy(rule: &str) -> &'static str {
    match rule {
        "systemd-unit" => "correct the unit; `systemd-analyze verify` says more",
        "file-contents" => {
            "put the content into a data: URL whose compression and hash are those of the bytes"
        }
        "file-mode" => "write a mode up to 0777",
        "os-image" => "name the image by its digest",
        "unknown-field" => "take the field out",
        _ => "correct or remove the field",
    }
}
