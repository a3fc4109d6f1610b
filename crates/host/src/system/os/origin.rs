//! What a deployment was made from, as a host's back end names it, so that the host can be brought back to it later. Pure.
//!
//! Not here: when it is recorded, and when the host goes back (see `plan::os_before`).

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
        Self::Image { reference: exact.to_string() }
    }
}

/// Whether a text is a digest of the kind that registries and OSTree use.
fn is_digest(text: &str) -> bool {
    let hex = |rest: &str| rest.len() == 64 && rest.bytes().all(|b| b.is_ascii_hexdigit());
    text.strip_prefix("sha256:").is_some_and(hex)
}

#[cfg(test)]
mod tests {
    use super::*;

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
            ("ostree-unverified-image:oci:/var/os:9", &digest, "ostree-unverified-image:oci:/var/os:9"),
        ] {
            let origin = OsOrigin::of_image(&Reference::parse(reference).unwrap(), Some(known));
            let want = want.replace("DIGEST", &digest);
            assert_eq!(origin, OsOrigin::Image { reference: want }, "{reference}");
        }
    }
}
