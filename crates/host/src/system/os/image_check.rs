//! Whether an image that was fetched can be this host's OS, before the node is drained for it. Pure: the configuration of the
//! image in (<https://github.com/opencontainers/image-spec/blob/main/config.md>), a refusal out.
//!
//! Not here: what is verified of its signature or digest. The program that fetches does that.

use serde::Deserialize;
use std::collections::BTreeMap;

/// The labels that an image which can boot has: of OSTree, and of bootc.
const BOOTABLE: [&str; 2] = ["ostree.bootable", "containers.bootc"];

#[derive(Deserialize)]
struct Image {
    architecture: String,
    os: String,
    #[serde(default)]
    config: Option<Config>,
}

#[derive(Deserialize)]
struct Config {
    #[serde(rename = "Labels", default)]
    labels: Option<BTreeMap<String, String>>,
}

/// Rust's name of this computer's architecture, as images name it (that of Go).
fn architecture(rust: &str) -> &str {
    match rust {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        "powerpc64" => "ppc64le",
        other => other,
    }
}

/// Checks the configuration of an image for a host with this architecture, in Rust's name of it.
///
/// # Errors
/// Why it is no OS for this host, and what to do.
pub(super) fn check(configuration: &str, host: &str) -> Result<(), String> {
    let Image { architecture: of_image, os, config } = serde_json::from_str(configuration)
        .map_err(|e| format!("its configuration cannot be read ({e}); build it again"))?;
    let host = architecture(host);
    if (os.as_str(), of_image.as_str()) != ("linux", host) {
        return Err(format!(
            "it is built for {os}/{of_image}, and this machine is linux/{host}; name an image for this architecture, or \
             one for several"
        ));
    }
    let labels = config.and_then(|c| c.labels).unwrap_or_default();
    if BOOTABLE.iter().any(|label| labels.contains_key(*label)) {
        return Ok(());
    }
    Err(format!(
        "it is no bootable OS: it has neither of the labels {}; name an image of an OS, such as one made by ostree container \
         encapsulate or built from a bootc base image",
        BOOTABLE.join(" and ")
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_bootable_image_of_this_architecture_is_taken() {
        let image = |architecture: &str, labels: &str| {
            format!(
                r#"{{"architecture":"{architecture}","os":"linux","config":{{"Labels":{labels}}},"rootfs":{{}}}}"#
            )
        };
        let bootable = r#"{"ostree.bootable":"true"}"#;
        for (configuration, host, why) in [
            (image("amd64", bootable), "x86_64", None),
            (image("arm64", r#"{"containers.bootc":"1"}"#), "aarch64", None),
            (image("s390x", bootable), "s390x", None),
            (
                image("arm64", bootable),
                "x86_64",
                Some("built for linux/arm64, and this machine is linux/amd64"),
            ),
            (image("amd64", r#"{"maintainer":"me"}"#), "x86_64", Some("no bootable OS")),
            (image("amd64", "null"), "x86_64", Some("no bootable OS")),
            (r#"{"architecture":"amd64","os":"linux"}"#.to_owned(), "x86_64", Some("no bootable OS")),
            (r#"{"architecture":"amd64","os":"windows"}"#.to_owned(), "x86_64", Some("windows/amd64")),
            (r#"{"os":"linux"}"#.to_owned(), "x86_64", Some("cannot be read")),
        ] {
            let said = check(&configuration, host).err();
            assert_eq!(said.is_some(), why.is_some(), "{configuration}: {said:?}");
            assert!(said.unwrap_or_default().contains(why.unwrap_or_default()), "{configuration}");
        }
    }
}
