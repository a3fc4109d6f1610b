//! os-release(5): which operating system a host has.

use crate::Error;
use crate::disk::root::Root;

/// Where the text is. The first file that exists counts.
const FILES: [&str; 2] = ["/etc/os-release", "/usr/lib/os-release"];

/// The fields that are used.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OsRelease {
    /// `ID`, such as `debian`. Empty if the host does not say.
    pub id: String,
    /// `OSTREE_VERSION` of hosts that boot images, else `VERSION_ID`. Empty if the host does not say.
    pub version: String,
    /// `PRETTY_NAME`, for messages. Empty if the host does not say.
    pub name: String,
}

impl OsRelease {
    /// The host's. Nothing is known of a host without the file.
    pub(crate) fn read(root: &Root) -> Result<Self, Error> {
        for path in FILES {
            if let Some(text) = root.text(path)? {
                return Ok(Self::parse(&text));
            }
        }
        Ok(Self::default())
    }

    /// Reads the text. Lines of another form are left out.
    #[must_use]
    fn parse(text: &str) -> Self {
        let field = |name: &str| field(text, name).map(str::to_owned);
        let version = field("OSTREE_VERSION").or_else(|| field("VERSION_ID"));
        Self {
            id: field("ID").unwrap_or_default(),
            version: version.unwrap_or_default(),
            name: field("PRETTY_NAME").unwrap_or_default(),
        }
    }
}

/// A field of the text without its quotes. `None`: it is not there, or empty.
pub(crate) fn field<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    let value = text.lines().find_map(|l| l.trim().strip_prefix(name)?.strip_prefix('='));
    value.map(|v| v.trim_matches(['"', '\''])).filter(|v| !v.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_image_version_comes_before_the_distributions() {
        for (text, id, version) in [
            ("PRETTY_NAME=\"Debian\"\nID=debian\nVERSION_ID=\"12\"\n", "debian", "12"),
            (
                "ID=\"rhcos\"\nVERSION_ID=\"4.19\"\nOSTREE_VERSION='9.6.20250611-0'\n",
                "rhcos",
                "9.6.20250611-0",
            ),
            ("ID=arch\n", "arch", ""),
            ("VARIANT_ID=coreos\n", "", ""),
            ("", "", ""),
        ] {
            let name = if text.starts_with("PRETTY_NAME") { "Debian" } else { "" };
            let want = OsRelease { id: id.to_owned(), version: version.to_owned(), name: name.to_owned() };
            assert_eq!(OsRelease::parse(text), want);
        }
    }
}
