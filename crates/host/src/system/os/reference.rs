//! How OSTree writes where an image comes from and what is verified about it
//! (<https://docs.rs/ostree-ext/latest/ostree_ext/container/struct.OstreeImageReference.html>). Pure.
//!
//! A config names an image, mostly without such words. The host then keeps its own way to verify images: an update must
//! not turn verification off.

use std::fmt;

/// What is verified about an image.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Verified {
    /// Nothing but the connection to the registry.
    Nothing,
    /// Its signature, by the host's `/etc/containers/policy.json`.
    Signature,
    /// Its OSTree commit, with the keys of this remote.
    Commit(String),
}

/// A reference to an image.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Reference {
    verified: Verified,
    /// `registry`, `containers-storage`, `oci` and so on.
    transport: String,
    /// The image: its name with tag or digest.
    pub(crate) image: String,
}

const UNVERIFIED: &str = "ostree-unverified-image:";
const UNVERIFIED_REGISTRY: &str = "ostree-unverified-registry:";
const SIGNED: &str = "ostree-image-signed:";
const REMOTE: &str = "ostree-remote-image:";
const REMOTE_REGISTRY: &str = "ostree-remote-registry:";
const REGISTRY: &str = "registry";

/// Splits `TRANSPORT:IMAGE`, or `docker://IMAGE`.
fn transport(text: &str) -> Option<(String, String)> {
    let (name, image) = text.split_once(':')?;
    let docker = image.strip_prefix("//").filter(|_| name == "docker");
    let (name, image) = docker.map_or((name, image), |image| (REGISTRY, image));
    (!image.is_empty()).then(|| (name.to_owned(), image.to_owned()))
}

impl Reference {
    /// Reads a reference. `None`: it is none of these forms, such as the plain name of an image.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let of = |verified, rest: &str| {
            transport(rest).map(|(transport, image)| Self { verified, transport, image })
        };
        let in_registry = |verified, image: &str| {
            (!image.is_empty()).then(|| Self {
                verified,
                transport: REGISTRY.to_owned(),
                image: image.to_owned(),
            })
        };
        if let Some(image) = text.strip_prefix(UNVERIFIED_REGISTRY) {
            return in_registry(Verified::Nothing, image);
        }
        if let Some(rest) = text.strip_prefix(UNVERIFIED) {
            return of(Verified::Nothing, rest);
        }
        if let Some(rest) = text.strip_prefix(SIGNED) {
            return of(Verified::Signature, rest);
        }
        if let Some(rest) = text.strip_prefix(REMOTE_REGISTRY) {
            let (remote, image) = rest.split_once(':')?;
            return in_registry(Verified::Commit(remote.to_owned()), image);
        }
        let (remote, rest) = text.strip_prefix(REMOTE)?.split_once(':')?;
        of(Verified::Commit(remote.to_owned()), rest)
    }

    /// Reads the form of [`Reference::place`]. `None`: it is of another form.
    pub(crate) fn at(place: &str) -> Option<Self> {
        transport(place).map(|(transport, image)| Self { verified: Verified::Nothing, transport, image })
    }

    /// `registry` and so on.
    pub(crate) fn transport(&self) -> &str {
        &self.transport
    }

    /// The image with its transport, and without what is verified: the form of commands that ask about images on the host.
    pub(crate) fn place(&self) -> String {
        format!("{}:{}", self.transport, self.image)
    }

    /// Whether nothing is verified but the connection to the registry.
    pub(crate) fn is_unverified(&self) -> bool {
        self.verified == Verified::Nothing
    }

    /// Whether it names the image by its digest, so that it is the same one whenever it is pulled.
    pub(crate) fn has_digest(&self) -> bool {
        api::formats::image_name::is_by_digest(&self.image)
    }

    /// The same image by this digest, if it is one of a registry that is named by a tag or not at all.
    pub(crate) fn at_digest(&self, digest: &str) -> Self {
        if self.transport != REGISTRY || self.image.contains('@') {
            return self.clone();
        }
        let name = api::formats::image_name::repository(&self.image);
        Self { image: format!("{name}@{digest}"), ..self.clone() }
    }

    /// Whether it is kept where the host finds it by itself, and not in a registry.
    pub(crate) fn is_of_registry(&self) -> bool {
        self.transport == REGISTRY
    }

    /// Whether its signature is verified, by the host's policy.
    pub(crate) fn is_signed(&self) -> bool {
        self.verified == Verified::Signature
    }

    /// Whether its commit is verified, with the keys of a remote.
    pub(crate) fn has_remote(&self) -> bool {
        matches!(self.verified, Verified::Commit(_))
    }

    /// The reference for what a config names, on a host that runs `now`.
    pub(crate) fn for_config(config: &str, now: Option<&Self>) -> Self {
        let verified = now.map_or(Verified::Nothing, |now| now.verified.clone());
        Self::parse(config).unwrap_or_else(|| Self {
            verified,
            transport: REGISTRY.to_owned(),
            image: config.to_owned(),
        })
    }
}

impl fmt::Display for Reference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { verified, transport, image } = self;
        match (verified, transport.as_str()) {
            (Verified::Nothing, REGISTRY) => write!(f, "{UNVERIFIED_REGISTRY}{image}"),
            (Verified::Nothing, _) => write!(f, "{UNVERIFIED}{transport}:{image}"),
            (Verified::Signature, _) => write!(f, "{SIGNED}{transport}:{image}"),
            (Verified::Commit(remote), REGISTRY) => write!(f, "{REMOTE_REGISTRY}{remote}:{image}"),
            (Verified::Commit(remote), _) => write!(f, "{REMOTE}{remote}:{transport}:{image}"),
        }
    }
}

/// Whether two references or names mean the same image, however it is verified.
pub(crate) fn same_image(a: &str, b: &str) -> bool {
    let name = |text: &str| Reference::parse(text).map_or_else(|| text.to_owned(), |r| r.image);
    name(a) == name(b)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_form_is_read_and_written_and_names_its_image() {
        for (text, written, image) in [
            ("ostree-unverified-registry:q.io/a/b:1", "", "q.io/a/b:1"),
            (
                "ostree-unverified-image:docker://q.io:5000/b@sha256:1",
                "ostree-unverified-registry:q.io:5000/b@sha256:1",
                "q.io:5000/b@sha256:1",
            ),
            ("ostree-unverified-image:containers-storage:q.io/b", "", "q.io/b"),
            ("ostree-image-signed:docker://q.io/b", "ostree-image-signed:registry:q.io/b", "q.io/b"),
            ("ostree-image-signed:registry:q.io/b", "", "q.io/b"),
            ("ostree-remote-registry:fedora:q.io/b", "", "q.io/b"),
            ("ostree-remote-image:fedora:docker://q.io/b", "ostree-remote-registry:fedora:q.io/b", "q.io/b"),
            ("ostree-remote-image:fedora:oci:/b", "", "/b"),
        ] {
            let read = Reference::parse(text).unwrap();
            assert_eq!(read.image, image);
            assert_eq!(read.to_string(), if written.is_empty() { text } else { written });
            assert!(same_image(text, image) && !same_image(text, "q.io/c"), "{text}");
        }
        for text in ["q.io/a/b:1", "fedora:fedora/x86_64/coreos/stable", "ostree-unverified-registry:", ""] {
            assert_eq!(Reference::parse(text), None, "{text}");
        }
    }

    #[test]
    fn a_host_that_verifies_images_goes_on_to_verify_them() {
        let wanted =
            |config, now: &str| Reference::for_config(config, Reference::parse(now).as_ref()).to_string();
        assert_eq!(
            wanted("q.io/b", "ostree-image-signed:docker://q.io/a"),
            "ostree-image-signed:registry:q.io/b"
        );
        assert_eq!(wanted("q.io/b", "fedora:stable"), "ostree-unverified-registry:q.io/b");
        assert_eq!(
            wanted("q.io/b", "ostree-unverified-image:containers-storage:q.io/a"),
            "ostree-unverified-registry:q.io/b"
        );
        let signed = "ostree-image-signed:registry:q.io/b";
        assert_eq!(wanted(signed, "ostree-unverified-registry:q.io/a"), signed);
    }
}
