//! What a MachineConfig may say but rarely means.
//!
//! What it is not: what is refused (see `config::check`).

use super::finding::{Lint, Severity};
use crate::config::check::Component;
use crate::error::Rule;

/// What one MachineConfig may say but rarely means.
pub(super) fn suspicious(component: &Component<'_>) -> Vec<Lint> {
    let mut all = Vec::new();
    let mut say = |rule, path: String, message: String, remedy: &str| {
        let object = format!("MachineConfig {}", component.name());
        all.push(Lint {
            severity: Severity::Warning,
            object,
            path,
            rule,
            message,
            remedy: remedy.to_owned(),
        });
    };
    let owner = component.machine_config.metadata.owner_references.is_some();
    for (i, f) in component.config.iter().flat_map(|c| &c.storage.files).enumerate() {
        let at = format!("spec.config.storage.files[{i}]");
        if f.mode.is_none() && !owner && f.contents.source.is_some() {
            let message = format!("{} has no mode; it becomes 0644", f.path);
            say(Rule::FileMode, format!("{at}.mode"), message, "write the mode, for example 0644");
        }
        if f.mode.is_some_and(|m| m & 0o002 != 0) {
            let message = format!("every user of the host may write {}", f.path);
            say(
                Rule::FileMode,
                format!("{at}.mode"),
                message,
                "remove the write permission for others, for example 0644",
            );
        }
        // 644 where 0644 was meant: the owner could not read it.
        if let Some(mode) = f.mode.filter(|m| m & 0o400 == 0) {
            let message =
                format!("mode {mode:04o} ({mode} decimal) of {} does not let its owner read it", f.path);
            say(
                Rule::FileMode,
                format!("{at}.mode"),
                message,
                "write octal with a leading zero in YAML, decimal in JSON",
            );
        }
    }
    for (i, a) in component.machine_config.spec.kernel_arguments.iter().flatten().enumerate() {
        if a.split_whitespace().count() != 1 && !a.contains('"') {
            let message = format!("{:?} is not one argument", desired::mask::argument(a));
            say(
                Rule::KernelArgument,
                format!("spec.kernelArguments[{i}]"),
                message,
                "write one list entry for each",
            );
        }
    }
    all
}
