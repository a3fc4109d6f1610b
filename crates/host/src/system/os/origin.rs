//! What a deployment was made from, as a host's back end names it, so that the host can be brought back to it later, and the record
//! of that. Pure.
//!
//! Not here: when it is recorded, and when the host goes back (see `plan::os_before`).
//!
//! Source: <https://docs.rs/ostree-ext/latest/ostree_ext/container/struct.OstreeImageReference.html>.

use api::formats::image_name::is_digest;
use serde::{Deserialize, Serialize};

use super::reference::Reference;

/// What a deployment was made from, in the words of the host's back end.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "from", rename_all = "camelCase", rename_all_fields = "camelCase", deny_unknown_fields)]
pub enum OsOrigin {
    /// A container image.
    Image {
        /// Its reference; by its digest, if that is known and a registry has the image.
        reference: String,
        /// Its reference as the host had it, if that is another one. Empty: it is the same.
        #[serde(default, skip_serializing_if = "String::is_empty")]
        named: String,
    },
    /// Anything else, such as a branch of OSTree. No back end goes back to it.
    Other {
        /// What the back end calls it.
        origin: String,
        /// The commit.
        commit: String,
    },
}

impl OsOrigin {
    /// That of a container image. `digest`: of its manifest, if it is known. Then the image is named by it, so that a tag which
    /// moves meanwhile names no other one; only a registry has images by their digest.
    pub(super) fn of_image(reference: &Reference, digest: Option<&str>) -> Self {
        let exact = match digest {
            Some(digest) if is_digest(digest) => reference.at_digest(digest),
            _ => reference.clone(),
        };
        let named = if exact == *reference { String::new() } else { reference.to_string() };
        Self::Image { reference: exact.to_string(), named }
    }

    /// Whether it is the same, whatever the host called it.
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Image { reference: a, .. }, Self::Image { reference: b, .. }) => a == b,
            (a, b) => a == b,
        }
    }

    /// The image as the host had it. `None`: it is none.
    pub(super) fn on_host(&self) -> Option<Reference> {
        match self {
            Self::Image { reference, named } if named.is_empty() => Reference::parse(reference),
            Self::Image { named, .. } => Reference::parse(named),
            Self::Other { .. } => None,
        }
    }
}

/// The record of what the host ran before a config first named an image.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum RecordedOs {
    /// There is none: no config has named an image, or an agent without such records moved the host.
    #[default]
    Nothing,
    /// What it ran.
    Ran(OsOrigin),
    /// The record cannot be read.
    Damaged(String),
}

impl RecordedOs {
    /// Reads the record's file. `None`: it does not exist.
    #[must_use]
    pub fn read(text: Option<&str>) -> Self {
        match text.map(serde_json::from_str) {
            None => Self::Nothing,
            Some(Ok(origin)) => Self::Ran(origin),
            Some(Err(error)) => Self::Damaged(error.to_string()),
        }
    }

    /// The image to go back to, if it is one.
    #[must_use]
    pub fn image(&self) -> Option<&str> {
        match self {
            Self::Ran(OsOrigin::Image { reference, .. }) => Some(reference),
            Self::Ran(OsOrigin::Other { .. }) | Self::Nothing | Self::Damaged(_) => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn had_other(a: &str, b: &str) -> bool {
        Reference::parse(a) != Reference::parse(b)
    }

    #[test]
    fn an_image_is_named_by_its_digest_if_a_registry_has_it() {
        let digest = format!("sha256:{}", "ab".repeat(32));
        for (reference, known, want) in [
            (
                "ostree-unverified-registry:q.io:5000/a/os:9",
                &*digest,
                "ostree-unverified-registry:q.io:5000/a/os@DIGEST",
            ),
            (
                "ostree-unverified-registry:q.io:5000/os",
                &digest,
                "ostree-unverified-registry:q.io:5000/os@DIGEST",
            ),
            (
                "ostree-image-signed:docker://q.io/os:9",
                &digest,
                "ostree-image-signed:registry:q.io/os@DIGEST",
            ),
            (
                "ostree-unverified-registry:q.io/os@sha256:1",
                &digest,
                "ostree-unverified-registry:q.io/os@sha256:1",
            ),
            ("ostree-unverified-registry:q.io/os:9", "", "ostree-unverified-registry:q.io/os:9"),
            ("ostree-unverified-registry:q.io/os:9", "sha256:1", "ostree-unverified-registry:q.io/os:9"),
            (
                "ostree-unverified-registry:q.io/os:9",
                &digest.replace("ab", "AB"),
                "ostree-unverified-registry:q.io/os:9",
            ),
            ("ostree-unverified-image:oci:/var/os:9", &digest, "ostree-unverified-image:oci:/var/os:9"),
        ] {
            let origin = OsOrigin::of_image(&Reference::parse(reference).unwrap(), Some(known));
            let want = want.replace("DIGEST", &digest);
            let (had, is) = (Reference::parse(reference), Reference::parse(&want));
            assert_eq!(origin.on_host(), had, "{reference}");
            let named = had.filter(|_| had_other(reference, &want)).map(|had| had.to_string());
            assert_eq!(
                origin,
                OsOrigin::Image { reference: want, named: named.unwrap_or_default() },
                "{is:?}"
            );
        }
    }
}
