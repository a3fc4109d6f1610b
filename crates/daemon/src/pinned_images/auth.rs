//! With which credentials an image is pulled: those that the kubelet itself has on this node. Pure.
//!
//! Not here: credential providers, which are programs that the kubelet runs. An image that needs one is pulled by the kubelet
//! only.

use super::wire::Message;
use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, STANDARD_NO_PAD};
use serde_json::Value;
use std::collections::BTreeMap;

/// The node's pull secret, which the kubelet reads.
pub(super) const PULL_SECRET: &str = "/var/lib/kubelet/config.json";

/// Credentials of a registry. No `Debug`: one of the fields is a secret.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct Credentials {
    user: String,
    password: String,
    identity_token: String,
}

impl Credentials {
    /// As CRI's `AuthConfig`.
    pub(super) fn message(&self) -> Message {
        Message::default().text(1, &self.user).text(2, &self.password).text(5, &self.identity_token)
    }

    fn read(entry: &Value) -> Result<Option<Self>, &'static str> {
        let text = |key: &str| entry.get(key).and_then(Value::as_str).unwrap_or_default().to_owned();
        let (mut user, mut password) = (text("username"), text("password"));
        let auth = text("auth");
        if !auth.is_empty() {
            let trimmed = auth.trim();
            let bytes = STANDARD.decode(trimmed).or_else(|_| STANDARD_NO_PAD.decode(trimmed));
            let both = bytes.ok().and_then(|b| String::from_utf8(b).ok()).ok_or("auth is not base64")?;
            let (name, word) = both.split_once(':').ok_or("auth is not base64 of USER:PASSWORD")?;
            // Some programs end the password with a zero byte.
            (user, password) = (name.to_owned(), word.trim_end_matches('\0').to_owned());
        }
        let all = Self { user, password, identity_token: text("identitytoken") };
        Ok(Some(all).filter(|c| !c.user.is_empty() || !c.identity_token.is_empty()))
    }
}

/// All credentials of the node. A runtime gives them to the image's own registry only; with a mirror it logs in by its own
/// settings (CRI-O: `global_auth_file`), so entries of mirrors are of no use here.
#[derive(Default)]
pub(super) struct Keyring {
    /// By registry, or by registry and a part of the path.
    entries: BTreeMap<String, Value>,
}

impl Keyring {
    /// Reads the node's pull secret. A node may have none.
    ///
    /// # Errors
    /// The pull secret is no JSON object with `auths`.
    pub(super) fn read(secret: Option<&str>) -> Result<Self, String> {
        let bad = |what: &str| format!("{PULL_SECRET} {what}; correct the cluster's pull secret");
        let mut entries = BTreeMap::new();
        if let Some(text) = secret.filter(|t| !t.trim().is_empty()) {
            // An error of the parser could show a part of the secret.
            let value: Value = serde_json::from_str(text).map_err(|_| bad("is not JSON"))?;
            let auths = value.get("auths").cloned().unwrap_or_else(|| Value::Object(serde_json::Map::new()));
            let Value::Object(auths) = auths else { return Err(bad("has auths that are no object")) };
            for (key, entry) in auths {
                entries.insert(registry_key(&key), entry);
            }
        }
        Ok(Self { entries })
    }

    /// The credentials for an image.
    ///
    /// # Errors
    /// The entry for the image cannot be read.
    pub(super) fn of(&self, image: &str) -> Result<Option<Credentials>, String> {
        let mut key = image.split('@').next().unwrap_or_default();
        loop {
            if let Some(entry) = self.entries.get(key) {
                let read = Credentials::read(entry);
                let read = read.map_err(|why| format!("the entry {key:?} of {PULL_SECRET}: {why}"))?;
                if read.is_some() {
                    return Ok(read);
                }
            }
            match key.rsplit_once('/') {
                Some((shorter, _)) => key = shorter,
                None => break,
            }
        }
        Ok(None)
    }
}

/// A key of a pull secret without its scheme and without the version of the protocol that old ones end with.
fn registry_key(key: &str) -> String {
    let key = key.strip_prefix("https://").or_else(|| key.strip_prefix("http://")).unwrap_or(key);
    let key = key.trim_end_matches('/');
    let key = key.strip_suffix("/v1").or_else(|| key.strip_suffix("/v2")).unwrap_or(key);
    if key == "index.docker.io" { "docker.io".to_owned() } else { key.to_owned() }
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
        let sent = ring.of("registry.example.com/app@sha256:1").unwrap().unwrap().message().finish();
        assert_eq!(sent, [0x0a, 4, b'h', b'o', b's', b't', 0x12, 1, b'o']);
    }
}
