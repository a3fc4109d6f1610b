//! What the controller has found out about the OS image of a rendered MachineConfig before a node goes there: kept on that config
//! in [`own::OS_IMAGE`]. Annotations are not part of a rendered config's name, so the name stays that of the reference.
//!
//! A tag is resolved to a digest once, and every node that goes to the config takes the image by that digest, whatever the tag
//! names meanwhile. Also which labels say that a node can boot an image: one answer for the controller, for people and for nodes.
//!
//! What it is not: the look at the image (see `registry`), or what a rollout makes of it (see `rollout`).

pub use crate::formats::image_name::is_by_digest;
use crate::formats::image_name::{is_digest, repository};
use crate::names::own;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// What was found out.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct OsImage {
    /// The `osImageURL` that this is about.
    pub of: String,
    /// The image by its digest; empty: not known.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub image: String,
    /// The architectures that it is for; empty: not known.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub architectures: Vec<String>,
    /// The bytes of its layers as they are pulled; 0: not known.
    #[serde(skip_serializing_if = "is_zero")]
    pub size: u64,
    /// Why no node can run it; empty: nothing is known against it.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub refused: String,
    /// Why it is not known what it is; empty: it is.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub unknown: String,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes it so")]
fn is_zero(n: &u64) -> bool {
    *n == 0
}

impl OsImage {
    /// What the annotations of a config say about its image. What was found out about another one does not count.
    pub fn read(annotations: Option<&BTreeMap<String, String>>, url: &str) -> Option<Self> {
        let text = annotations?.get(own::OS_IMAGE)?;
        serde_json::from_str::<Self>(text).ok().filter(|found| found.of == url)
    }

    /// The `osImageURL` that the annotations are about; empty if they are about none.
    pub fn url(annotations: Option<&BTreeMap<String, String>>) -> String {
        let text = annotations.and_then(|a| a.get(own::OS_IMAGE));
        text.and_then(|text| serde_json::from_str::<Self>(text).ok()).unwrap_or_default().of
    }

    /// The annotation's value.
    #[must_use]
    pub fn text(&self) -> String {
        serde_json::json!(self).to_string()
    }

    /// The image by its digest. An annotation cannot lead to another repository.
    #[must_use]
    pub fn by_digest(&self) -> Option<&str> {
        let (name, digest) = self.image.split_once('@')?;
        (is_digest(digest) && name == repository(&self.of)).then_some(self.image.as_str())
    }
}

/// Labels of images that a node can boot, the first that says so counts: bootc's, and what OSTree writes into its own images.
pub const BOOTABLE_LABELS: [&str; 3] = ["containers.bootc", "ostree.bootable", "ostree.commit"];

/// The label by which a node can boot an image. `None`: it has none, or denies it.
///
/// bootc and rpm-ostree take an image that has `containers.bootc` or `ostree.bootable`, whatever its value is
/// (<https://github.com/bootc-dev/bootc/blob/HEAD/crates/ostree-ext/src/container/store.rs>, `require_bootable`). A value that is not
/// known here, of a later version perhaps, must not hold nodes that could go. Only `false`, `0` and the empty text deny it: an image
/// that says of itself that it is no OS is named by mistake, and a Containerfile has no other way to take back a label of its base.
///
/// `ostree.commit` alone is on an image of a commit that does not say that it boots, as those of older versions of OSTree and of
/// `ostree commit` without `--bootable`. `ostree container image pull` takes it, and so did rpm-ostree until 2022. A newer rpm-ostree
/// and bootc refuse it themselves, before the drain. Labels do not say which of them a node has, so it holds nobody.
#[must_use]
pub fn bootable_by(labels: &BTreeMap<String, String>) -> Option<&'static str> {
    let denies = |value: &str| value.is_empty() || value == "0" || value.eq_ignore_ascii_case("false");
    BOOTABLE_LABELS.into_iter().find(|label| labels.get(*label).is_some_and(|value| !denies(value)))
}

/// Whether an `osImageURL` names an image in a registry, so that it can be looked into: not a short name, and none of OSTree's
/// forms, which say how a host verifies an image.
#[must_use]
pub fn is_in_registry(url: &str) -> bool {
    let Some((host, rest)) = url.split_once('/') else { return false };
    let is_host = match host.rsplit_once(':') {
        // Another colon is of OSTree's words, or of an IPv6 address in brackets.
        Some((name, port)) => {
            !name.is_empty() && (name.starts_with('[') || !name.contains(':')) && port.parse::<u16>().is_ok()
        }
        None => host.contains('.') || host == "localhost",
    };
    is_host && !rest.is_empty() && !rest.starts_with('/') && !url.contains(char::is_whitespace)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_found_out_is_read_for_that_image_only() {
        let image = format!("q.io:5000/os@sha256:{}", "0a".repeat(32));
        let found = OsImage { of: "q.io:5000/os:1".to_owned(), image: image.clone(), ..OsImage::default() };
        assert_eq!(found.by_digest(), Some(image.as_str()));
        let notes = BTreeMap::from([(own::OS_IMAGE.to_owned(), found.text())]);
        assert_eq!(OsImage::read(Some(&notes), "q.io:5000/os:1"), Some(found.clone()));
        assert_eq!(OsImage::read(Some(&notes), "q.io:5000/os:2"), None);
        assert_eq!(OsImage::read(None, "q.io:5000/os:1"), None);
        for image in [
            image.replace("/os@", "/evil@"),
            image.replace("0a", "0"),
            image.replace("0a", "0A"),
            "q.io:5000/os:2".to_owned(),
            String::new(),
        ] {
            assert_eq!(OsImage { image, ..found.clone() }.by_digest(), None);
        }
        let broken = BTreeMap::from([(own::OS_IMAGE.to_owned(), "{".to_owned())]);
        assert_eq!(OsImage::read(Some(&broken), "q.io:5000/os:1"), None);
    }

    #[test]
    fn labels_say_whether_a_node_can_boot_the_image() {
        let [bootc, bootable, commit] = BOOTABLE_LABELS;
        for (labels, by) in [
            (&[(bootc, "1"), (commit, "0a")][..], Some(bootc)),
            (&[(bootc, "True")], Some(bootc)),
            (&[(bootc, "2")], Some(bootc)),
            (&[(bootc, "False")], None),
            (&[(bootc, "0"), (bootable, "true")], Some(bootable)),
            (&[(bootc, ""), (bootable, "false")], None),
            (&[(bootable, "1")], Some(bootable)),
            (&[(bootable, "false"), (commit, "0a")], Some(commit)),
            (&[(commit, "0a")], Some(commit)),
            (&[(commit, "")], None),
            (&[("maintainer", "me")], None),
            (&[], None),
        ] {
            let all = labels.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned()));
            assert_eq!(bootable_by(&all.collect()), by, "{labels:?}");
        }
    }

    #[test]
    fn only_names_with_a_registry_are_looked_into() {
        for (url, is) in [
            ("q.io/os:1", true),
            ("q.io:5000/os@sha256:1", true),
            ("localhost/os", true),
            ("registry:5000/os", true),
            ("os:1", false),
            ("team/os", false),
            ("", false),
            ("fake:2", false),
            ("ostree-image-signed:docker://q.io/os", false),
            ("docker://q.io/os", false),
            ("ostree-unverified-registry:q.io/os", false),
            ("ostree-unverified-registry:q.io:5000/os", false),
            ("ostree-image-signed:registry:q.io:5000/os", false),
            ("ostree-remote-registry:lab:q.io:5000/os", false),
            ("[::1]:5000/os", true),
        ] {
            assert_eq!(is_in_registry(url), is, "{url}");
        }
    }
}
