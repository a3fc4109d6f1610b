//! What a config wants of the operating system.
//!
//! What it is not: what is found on a host, or how the host gets to what is wanted (see `host`).
//!
//! Source: <https://github.com/openshift/machine-config-operator/blob/HEAD/docs/MachineConfiguration.md>.

use serde::{Deserialize, Serialize};

/// What a MachineConfig says about the operating system.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct DesiredOs {
    /// The image; empty if the config leaves it to the host.
    pub image: String,
    /// Kernel arguments that the config adds, in order. An entry may hold several (see [`arguments`]).
    pub kernel_arguments: Vec<String>,
    /// `default`, `realtime` or `64k-pages`.
    pub kernel_type: String,
    /// Extensions.
    pub extensions: Vec<String>,
    /// The image with the packages of extensions and kernels. Empty: they come from the host's repositories.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub extensions_image: String,
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

/// Why this name of an extension is not passed to a package manager. `None`: it can be the name of a package. A name that begins with `-` would be an
/// option, and one that ends with it would remove the package.
#[must_use]
pub fn refused_extension(name: &str) -> Option<String> {
    let fine = |c: char| c.is_ascii_alphanumeric() || "+-._".contains(c);
    let first = name.chars().next().is_some_and(|c| c.is_ascii_alphanumeric());
    let whole = first && !name.ends_with('-') && name.chars().all(fine);
    (!whole).then(|| {
        format!(
            "{name:?} is no name of a package; use letters, digits and + - . _ only, a letter or digit first, and no - at \
             the end"
        )
    })
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

/// All kernel types.
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
    fn an_extension_is_the_name_of_a_package_and_no_option() {
        for fine in ["usbguard", "g++", "libstdc++6", "krb5-workstation", "openvswitch3.5-ipsec", "7zip"] {
            assert_eq!(refused_extension(fine), None);
        }
        for bad in
            ["", "-y", "--reboot", "vim-", "a b", "a=1", "a/stable", "a*", "vim\n", "@core", "./x.deb", "é"]
        {
            assert!(refused_extension(bad).is_some(), "{bad}");
        }
    }

    #[test]
    fn kernel_arguments_are_split_at_white_space_outside_of_quotes() {
        let entries = ["a  b=1\tc", "", "d=\"x y\" e", "\"", "f\u{a0}g"].map(str::to_owned);
        assert_eq!(arguments(&entries), ["a", "b=1", "c", "d=\"x y\"", "e", "\"", "f\u{a0}g"]);
    }
}
