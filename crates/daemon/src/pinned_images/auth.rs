//! With which credentials an image is pulled: those that the kubelet itself has on this node, as a message for the runtime.
//! Pure.
//!
//! Not here: the form of the file, and which of its entries counts (see `registry`), and credential providers, which are
//! programs that the kubelet runs. An image that needs one is pulled by the kubelet only.
//!
//! Sources: containers-auth.json(5), <https://github.com/kubernetes/cri-api/blob/master/pkg/apis/runtime/v1/api.proto>.

use super::wire::Message;
use registry::{Credentials, Login};

/// The node's pull secret, which the kubelet reads.
pub(super) const PULL_SECRET: &str = desired::paths::PULL_SECRET;

/// A login as CRI's `AuthConfig`.
pub(super) fn message(login: &Login) -> Message {
    Message::default().text(1, &login.user).text(2, &login.password).text(5, &login.identity_token)
}

/// All credentials of the node. A runtime gives them to the image's own registry only; with a mirror it logs in by its own
/// settings (CRI-O: `global_auth_file`), so entries of mirrors are of no use here.
#[derive(Debug, Default)]
pub(super) struct Keyring(Credentials);

impl Keyring {
    /// Reads the node's pull secret. A node may have none.
    ///
    /// # Errors
    /// The pull secret has another form.
    pub(super) fn read(secret: Option<&str>) -> Result<Self, String> {
        let mut all = Credentials::default();
        if let Some(text) = secret.filter(|t| !t.trim().is_empty()) {
            all.add(text.as_bytes())
                .map_err(|why| format!("{PULL_SECRET} {why}; correct the cluster's pull secret"))?;
        }
        Ok(Self(all))
    }

    /// The credentials of the node.
    pub(super) fn credentials(self) -> Credentials {
        self.0
    }

    /// The credentials for an image, which is named by its digest.
    ///
    /// # Errors
    /// The entry for the image cannot be read.
    pub(super) fn of(&self, image: &str) -> Result<Option<&Login>, String> {
        let name = image.split('@').next().unwrap_or_default();
        self.0.login(name).map_err(|why| format!("{PULL_SECRET}: {why}; correct the cluster's pull secret"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECRET: &str = r#"{"auths": {
        "registry.example.com": {"auth": "aG9zdDpv"},
        "registry.example.com/team": {"auth": "dGVhbTpw"},
        "registry.example.com:5000": {"auth": "cG9ydDpx"},
        "https://index.docker.io/v1/": {"username": "hub", "password": "r"},
        "mirror.example.com:443": {"auth": "bWlycm9yOnM="},
        "token.example.com": {"identitytoken": "t"},
        "empty.example.com": {},
        "bad.example.com": {"auth": "???"},
        "half.example.com": {"auth": "dXNlcg=="}
    }}"#;

    fn user(image: &str) -> Option<String> {
        let ring = Keyring::read(Some(SECRET)).unwrap();
        ring.of(image).unwrap().map(|c| format!("{}{}", c.user, c.identity_token))
    }

    #[test]
    fn the_entry_that_says_most_about_an_image_is_taken() {
        for (image, want) in [
            ("registry.example.com/app@sha256:1", Some("host")),
            ("registry.example.com/team/app@sha256:1", Some("team")),
            ("registry.example.com/teams/app@sha256:1", Some("host")),
            ("registry.example.com:5000/team/app@sha256:1", Some("port")),
            ("docker.io/library/app@sha256:1", Some("hub")),
            ("token.example.com/app@sha256:1", Some("t")),
            ("empty.example.com/app@sha256:1", None),
            ("other.example.com/app@sha256:1", None),
            ("registry.example.com.evil/app@sha256:1", None),
        ] {
            assert_eq!(user(image).as_deref(), want, "{image}");
        }
    }

    #[test]
    fn what_cannot_be_read_is_named_and_never_shown() {
        let ring = Keyring::read(Some(SECRET)).unwrap();
        for registry in ["bad", "half"] {
            let why = ring.of(&format!("{registry}.example.com/a@sha256:1")).err().unwrap();
            assert!(why.contains(registry) && why.contains(PULL_SECRET) && !why.contains("???"), "{why}");
        }
        for text in ["{\"auths\": \"s3cret\"}", "{s3cret"] {
            let why = Keyring::read(Some(text)).err().unwrap();
            assert!(why.contains(PULL_SECRET) && !why.contains("s3cret"), "{why}");
        }
        assert!(Keyring::read(None).is_ok());
        assert!(Keyring::read(Some("")).is_ok());
    }

    #[test]
    fn credentials_travel_as_cri_says() {
        let ring = Keyring::read(Some(SECRET)).unwrap();
        let sent = message(ring.of("registry.example.com/app@sha256:1").unwrap().unwrap()).finish();
        assert_eq!(sent, [0x0a, 4, b'h', b'o', b's', b't', 0x12, 1, b'o']);
    }
}
