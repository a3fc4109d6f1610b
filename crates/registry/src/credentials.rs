//! Credentials for registries in the form of auth.json (containers-auth.json(5)), which pull secrets have too: by registry,
//! or by registry and a part of the repository's name; the most specific counts. Pure.
//!
//! What it is not: credential helpers (`credHelpers`, `credsStore`), which are programs of a host; a registry that is listed
//! there only has no credentials here.

use crate::reference::Reference;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::Deserialize;
use std::collections::BTreeMap;
use std::fmt;

/// The registry that images of `docker.io` are in, and the name under which old files list it.
const DOCKER: [&str; 3] = ["docker.io", "index.docker.io", "registry-1.docker.io"];

/// How to log in.
#[derive(Clone, PartialEq, Eq)]
pub(crate) enum Login {
    /// Name and password.
    Password(String, String),
    /// A token to get tokens with.
    Identity(String),
}

impl fmt::Debug for Login {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Login(…)")
    }
}

/// Why a file of credentials cannot be used. Nothing of its contents is in the text.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CredentialsError {
    /// Not JSON of this form.
    #[error("is not of the form of auth.json (line {line}, column {column})")]
    Form {
        /// Where it ends to be.
        line: usize,
        /// Where it ends to be.
        column: usize,
    },
}

/// Credentials, by registry. Of several files the first that has some for an image counts.
#[derive(Debug, Clone, Default)]
pub struct Credentials {
    files: Vec<BTreeMap<String, Login>>,
}

#[derive(Deserialize)]
struct File {
    #[serde(default)]
    auths: BTreeMap<String, Entry>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Entry {
    auth: String,
    username: String,
    password: String,
    identitytoken: String,
}

impl Entry {
    fn login(self) -> Option<Login> {
        if !self.identitytoken.is_empty() {
            return Some(Login::Identity(self.identitytoken));
        }
        if !self.auth.is_empty() {
            let text = String::from_utf8(STANDARD.decode(self.auth.trim()).ok()?).ok()?;
            let (name, password) = text.split_once(':')?;
            return Some(Login::Password(name.to_owned(), password.trim_end_matches('\0').to_owned()));
        }
        (!self.username.is_empty()).then_some(Login::Password(self.username, self.password))
    }
}

/// `https://quay.io/v1/` and `quay.io` alike.
fn key(text: &str) -> String {
    let scheme = ["https://", "http://"].iter().find_map(|scheme| text.strip_prefix(scheme));
    let name = match scheme {
        // A URL is that of a registry: what follows is its API's version.
        Some(rest) => rest.split('/').next().unwrap_or_default(),
        None => text.trim_end_matches('/'),
    };
    if DOCKER.contains(&name) { DOCKER[0].to_owned() } else { name.to_owned() }
}

impl Credentials {
    /// Adds a file: an auth.json, or a pull secret's `.dockerconfigjson`. Those added before come first.
    ///
    /// # Errors
    /// Another form.
    pub fn add(&mut self, json: &[u8]) -> Result<(), CredentialsError> {
        let file: File = serde_json::from_slice(json)
            .map_err(|e| CredentialsError::Form { line: e.line(), column: e.column() })?;
        let all = file.auths.into_iter();
        self.files.push(all.filter_map(|(name, entry)| Some((key(&name), entry.login()?))).collect());
        Ok(())
    }

    /// The credentials for an image.
    pub(crate) fn of(&self, image: &Reference) -> Option<&Login> {
        let whole = key(image.host());
        let rest = image.name();
        let rest = rest.strip_prefix(image.host()).unwrap_or_default();
        let mut scopes = vec![format!("{whole}{rest}")];
        while let Some((shorter, _)) = scopes.last().and_then(|scope| scope.rsplit_once('/')) {
            scopes.push(shorter.to_owned());
        }
        self.files.iter().find_map(|file| scopes.iter().find_map(|scope| file.get(scope)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn auth(text: &str) -> String {
        STANDARD.encode(text)
    }

    #[test]
    fn the_most_specific_credentials_of_the_first_file_count() {
        let mut all = Credentials::default();
        let first = json!({"auths": {
            "q.io": {"auth": auth("all:1")}, "q.io/team": {"auth": auth("team:a:b")},
            "https://index.docker.io/v1/": {"username": "d", "password": "p"},
            "broken.io": {"auth": "%%"}, "empty.io": {},
        }, "credHelpers": {"x.io": "h"}});
        all.add(first.to_string().as_bytes()).unwrap();
        let second = json!({"auths": {"q.io/team/os": {"auth": auth("later:1")}, "t.io:5000": {"identitytoken": "t"}}});
        all.add(second.to_string().as_bytes()).unwrap();
        let password = |name: &str, word: &str| Some(Login::Password(name.to_owned(), word.to_owned()));
        for (image, want) in [
            ("q.io/team/os:1", password("team", "a:b")),
            ("q.io/teams/os:1", password("all", "1")),
            ("q.io/x", password("all", "1")),
            ("docker.io/library/x", password("d", "p")),
            ("t.io:5000/x", Some(Login::Identity("t".to_owned()))),
            ("t.io/x", None),
            ("broken.io/x", None),
            ("empty.io/x", None),
        ] {
            assert_eq!(all.of(&Reference::parse(image).unwrap()), want.as_ref(), "{image}");
        }
        assert!(!format!("{all:?}").contains("team:a"), "{all:?}");
    }

    #[test]
    fn what_cannot_be_read_is_told_without_its_contents() {
        let why =
            Credentials::default().add(b"{\"auths\": {\"q.io\": \"hunter2\"}}").unwrap_err().to_string();
        assert!(!why.contains("hunter2") && why.contains("line 1"), "{why}");
    }
}
