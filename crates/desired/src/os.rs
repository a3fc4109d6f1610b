//! What a config wants of the operating system.
//!
//! What it is not: what is found on a host, or how the host gets to what is wanted (see `host`).

use serde::{Deserialize, Serialize};

/// What a MachineConfig says about the operating system.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct OsWanted {
    /// The image; empty if the config leaves it to the host.
    pub image: String,
    /// Kernel arguments that the config adds, in order. An entry may hold several (see [`arguments`]).
    pub kernel_arguments: Vec<String>,
    /// `default`, `realtime` or `64k-pages`.
    pub kernel_type: String,
    /// Extensions.
    pub extensions: Vec<String>,
}

/// A field of a MachineConfig that sets a part of the operating system.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum OsField {
    /// The image.
    Image,
    /// The kernel's arguments.
    KernelArguments,
    /// The kernel.
    KernelType,
    /// Packages in addition to the image's.
    Extensions,
}

impl OsField {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Image, Self::KernelArguments, Self::KernelType, Self::Extensions];

    /// Its path in a MachineConfig.
    #[must_use]
    pub fn path(self) -> &'static str {
        match self {
            Self::Image => "spec.osImageURL",
            Self::KernelArguments => "spec.kernelArguments",
            Self::KernelType => "spec.kernelType",
            Self::Extensions => "spec.extensions",
        }
    }
}

/// Splits a list of entries into single kernel arguments in the same way as the reference: at white space, except
/// between double quotes, which are kept. There are no escapes.
#[must_use]
pub fn arguments(entries: &[String]) -> Vec<String> {
    let mut out = Vec::new();
    for entry in entries {
        let (mut argument, mut quoted) = (String::new(), false);
        for c in entry.chars() {
            quoted ^= c == '"';
            // Only the white space of the C locale counts.
            if !quoted && matches!(c, ' ' | '\t' | '\n' | '\u{b}' | '\u{c}' | '\r') {
                out.extend(Some(std::mem::take(&mut argument)).filter(|a| !a.is_empty()));
            } else {
                argument.push(c);
            }
        }
        out.extend(Some(argument).filter(|a| !a.is_empty()));
    }
    out
}

/// The kernel type of configs that name none.
pub const DEFAULT_KERNEL: &str = "default";

/// The kernel types that there are.
pub const KERNEL_TYPES: [&str; 3] = [DEFAULT_KERNEL, "realtime", "64k-pages"];

/// The kernel type that a config's text selects. Any text that is not in [`KERNEL_TYPES`] selects the default.
#[must_use]
pub fn kernel_type(text: &str) -> &'static str {
    KERNEL_TYPES.into_iter().find(|known| *known == text).unwrap_or(DEFAULT_KERNEL)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kernel_arguments_are_split_at_white_space_outside_of_quotes() {
        let entries = ["a  b=1\tc", "", "d=\"x y\" e", "\"", "f\u{a0}g"].map(str::to_owned);
        assert_eq!(arguments(&entries), ["a", "b=1", "c", "d=\"x y\"", "e", "\"", "f\u{a0}g"]);
    }
}
