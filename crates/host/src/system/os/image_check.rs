//! Whether an image that was fetched can be this host's OS, before the node is drained for it. Pure: the configuration of the
//! image in (<https://github.com/opencontainers/image-spec/blob/main/config.md>), a refusal out.
//!
//! Not here: what is verified of its signature or digest. The program that fetches does that.

use crate::system::os::ostree_repository::REPO;
use crate::system::pull::KubernetesVersion;
use api::images::os_image::{BOOTABLE_LABELS, bootable_by};
use serde::Deserialize;
use std::collections::BTreeMap;

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

/// The label with the version of the image's kubelet, such as `v1.36.3`. Who builds images sets it.
const KUBELET: &str = api::names::KUBELET_VERSION_LABEL;
/// The label of OpenShift's images: `kubernetes=1.36.3,machine-os=...`.
const BUILD_VERSIONS: &str = "io.openshift.build.versions";
/// How many minor versions a kubelet may be older than the API server
/// (<https://kubernetes.io/releases/version-skew-policy/#kubelet>).
const OLDEST: u32 = 3;

/// What `ostree container image` is asked for the configuration of an image that was fetched.
pub(super) fn metadata_command(image: &str) -> [&str; 5] {
    ["metadata", "--repo", REPO, "--config", image]
}

/// The version of the kubelet that the labels name.
fn kubelet(labels: &BTreeMap<String, String>) -> Option<KubernetesVersion> {
    let of_openshift = || {
        let all = labels.get(BUILD_VERSIONS)?;
        all.split(',').find_map(|one| one.trim().strip_prefix("kubernetes="))
    };
    let text = labels.get(KUBELET).map(String::as_str).or_else(of_openshift)?;
    KubernetesVersion::parse(text)
}

/// Whether a kubelet may talk to this API server.
fn skew(kubelet: KubernetesVersion, server: KubernetesVersion) -> Result<(), String> {
    let fits = kubelet.major == server.major
        && kubelet.minor <= server.minor
        && server.minor - kubelet.minor <= OLDEST;
    if fits {
        return Ok(());
    }
    Err(format!(
        "its kubelet is {kubelet}, and the API server is {server}: a kubelet may not be newer, nor older by more than {OLDEST} \
         minor versions; name an image with another kubelet, or upgrade the control plane first"
    ))
}

/// What the image's label says of its os-release. `None`: nothing, or the configuration cannot be read, which [`check`] tells.
pub(super) fn labelled_os_release(configuration: &str) -> Option<String> {
    let image: Image = serde_json::from_str(configuration).ok()?;
    image.config?.labels?.remove(api::names::OS_RELEASE_LABEL)
}

/// Checks the configuration of an image for a host with this architecture, in Rust's name of it. `server`: the version of the
/// cluster's API server, if it is known.
///
/// # Errors
/// Why it is no OS for this host, and what to do.
pub(super) fn check(
    configuration: &str,
    host: &str,
    server: Option<KubernetesVersion>,
) -> Result<(), String> {
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
    if bootable_by(&labels).is_some() {
        return kubelet(&labels).zip(server).map_or(Ok(()), |(kubelet, server)| skew(kubelet, server));
    }
    Err(format!(
        "it is no bootable OS: none of the labels {} says that it is one; name an image of an OS, such as one made by ostree \
         container encapsulate or built from a bootc base image",
        BOOTABLE_LABELS.join(", ")
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kubelet_that_the_api_server_does_not_allow_is_refused_and_one_that_no_label_names_is_not() {
        let check = |labels: &str, server: &str| {
            let image = format!(
                r#"{{"architecture":"amd64","os":"linux","config":{{"Labels":{{"ostree.bootable":"1"{labels}}}}}}}"#
            );
            super::check(&image, "x86_64", KubernetesVersion::parse(server))
        };
        let ours = |version: &str| format!(r#","machineconfig.dev/kubelet-version":"{version}""#);
        for (labels, server, fits) in [
            (String::new(), "v1.36.3", true),
            (ours("v1.36.0"), "v1.36.3", true),
            (ours("1.33.9"), "v1.36.3", true),
            (ours("v1.32.1"), "v1.36.3", false),
            (ours("v1.37.0"), "v1.36.3+k3s1", false),
            (ours("v2.36.0"), "v1.36.3", false),
            (ours("v1.32.1"), "", true),
            (ours("latest"), "v1.36.3", true),
            (
                r#","io.openshift.build.versions":"machine-os=9.6, kubernetes=1.31.4""#.to_owned(),
                "v1.36.3",
                false,
            ),
        ] {
            let said = check(&labels, server);
            assert_eq!(said.is_ok(), fits, "{labels} {server}: {said:?}");
            if let Err(why) = said {
                assert!(why.contains("its kubelet is") && why.contains("; name an image"), "{why}");
            }
        }
    }

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
            // What the controller finds by these labels, see `registry::ImageFacts`.
            (image("amd64", r#"{"containers.bootc":"2"}"#), "x86_64", None),
            (image("amd64", r#"{"containers.bootc":"false"}"#), "x86_64", Some("no bootable OS")),
            (image("amd64", r#"{"containers.bootc":""}"#), "x86_64", Some("no bootable OS")),
            (image("amd64", r#"{"containers.bootc":"0","ostree.bootable":"true"}"#), "x86_64", None),
            (image("amd64", r#"{"ostree.commit":"0a"}"#), "x86_64", None),
            (image("amd64", r#"{"ostree.commit":""}"#), "x86_64", Some("no bootable OS")),
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
            let said = check(&configuration, host, None).err();
            assert_eq!(said.is_some(), why.is_some(), "{configuration}: {said:?}");
            assert!(said.unwrap_or_default().contains(why.unwrap_or_default()), "{configuration}");
        }
    }
}
