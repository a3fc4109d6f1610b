//! Credentials for registries in the form of auth.json (containers-auth.json(5)), which pull secrets have too: by registry,
//! or by registry and a part of the repository's name; the most specific counts. Pure.
//!
//! What it is not: credential helpers (`credHelpers`, `credsStore`), which are programs of a host; a registry that is listed
//! there only has no credentials here.

use crate::reference::Reference;
use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, STANDARD_NO_PAD};
use serde::Deserialize;
use std::collections::BTreeMap;
use std::fmt;

/// The registry that images of `docker.io` are in, and the names under which old files list it.
const DOCKER: [&str; 3] = ["docker.io", "index.docker.io", "registry-1.docker.io"];

/// How to log in: with a name and a password, or with a token to get tokens with, which counts where both are there. All of
/// it is secret.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Login {
    /// The name; may be empty where there is a token.
    pub user: String,
    /// The password.
    pub password: String,
    /// The token to get tokens with; may be empty.
    pub identity_token: String,
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
    #[error("does not have the format of auth.json (line {line}, column {column})")]
    Form {
        /// Where it ends to be.
        line: usize,
        /// Where it ends to be.
        column: usize,
    },
}

/// The entry that counts for an image cannot be read. Nothing of its contents is in the text.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the entry {entry:?} of its credentials: {why}")]
pub struct BrokenEntry {
    /// The registry, or the registry and a part of the repository's name.
    pub entry: String,
    /// What is wrong.
    pub why: &'static str,
}

/// Credentials, by registry. Of several files the first that has some for an image counts.
#[derive(Debug, Clone, Default)]
pub struct Credentials {
    files: Vec<BTreeMap<String, Result<Login, &'static str>>>,
}

/// `null` is nothing, everywhere: the kubelet and the container tools read it so.
#[derive(Deserialize)]
struct File {
    auths: Option<BTreeMap<String, Option<Entry>>>,
}

#[derive(Deserialize)]
struct Entry {
    auth: Option<String>,
    username: Option<String>,
    password: Option<String>,
    identitytoken: Option<String>,
}

impl Entry {
    /// `None`: there is nothing to log in with, as where a program of the host keeps it.
    fn login(self) -> Option<Result<Login, &'static str>> {
        let Self { auth, username, password, identitytoken } = self;
        let auth = auth.unwrap_or_default();
        let (mut user, mut password) = (username.unwrap_or_default(), password.unwrap_or_default());
        if !auth.is_empty() {
            let trimmed = auth.trim();
            let bytes = STANDARD.decode(trimmed).or_else(|_| STANDARD_NO_PAD.decode(trimmed));
            let Some(text) = bytes.ok().and_then(|bytes| String::from_utf8(bytes).ok()) else {
                return Some(Err("auth is not base64"));
            };
            let Some((name, word)) = text.split_once(':') else {
                return Some(Err("auth is not base64 of USER:PASSWORD"));
            };
            // Some programs end the password with a zero byte.
            (user, password) = (name.to_owned(), word.trim_end_matches('\0').to_owned());
        }
        let login = Login { user, password, identity_token: identitytoken.unwrap_or_default() };
        (!login.user.is_empty() || !login.identity_token.is_empty()).then_some(Ok(login))
    }
}

/// An entry's name without its scheme and without the version of the protocol that old ones end with:
/// `https://quay.io/v1/` and `quay.io` alike. A path stays, so that credentials of a part of a registry are not sent for all of
/// it: `quay.io/team/v1` is a repository.
fn key(text: &str) -> String {
    let name = text.strip_prefix("https://").or_else(|| text.strip_prefix("http://")).unwrap_or(text);
    let name = name.trim_end_matches('/');
    let host = name.strip_suffix("/v1").or_else(|| name.strip_suffix("/v2"));
    of_docker(host.filter(|host| !host.contains('/')).unwrap_or(name))
}

/// The name with the one of its registry's names that is used here.
fn of_docker(name: &str) -> String {
    let (host, rest) = name.split_at(name.find('/').unwrap_or(name.len()));
    if DOCKER.contains(&host) { format!("{}{rest}", DOCKER[0]) } else { name.to_owned() }
}

impl Credentials {
    /// Adds a file: an auth.json, or a pull secret's `.dockerconfigjson`. Those added before come first.
    ///
    /// # Errors
    /// Another form.
    pub fn add(&mut self, json: &[u8]) -> Result<(), CredentialsError> {
        let file: File = serde_json::from_slice(json)
            .map_err(|e| CredentialsError::Form { line: e.line(), column: e.column() })?;
        let all = file.auths.unwrap_or_default().into_iter();
        let logins = all.filter_map(|(name, entry)| Some((name, entry?.login()?)));
        // What is listed by its own name comes last, and stays.
        let (exact, others): (Vec<_>, Vec<_>) = logins.partition(|(name, _)| key(name) == *name);
        self.files.push(others.into_iter().chain(exact).map(|(name, login)| (key(&name), login)).collect());
        Ok(())
    }

    /// The credentials for an image by its name without tag and digest: `HOST[:PORT]/REPOSITORY`. `None`: there are none for
    /// it.
    ///
    /// # Errors
    /// The entry that counts for it cannot be read. A less specific one does not take its place.
    pub fn login(&self, name: &str) -> Result<Option<&Login>, BrokenEntry> {
        let mut scopes = vec![of_docker(name)];
        while let Some((shorter, _)) = scopes.last().and_then(|scope| scope.rsplit_once('/')) {
            scopes.push(shorter.to_owned());
        }
        let found =
            self.files.iter().find_map(|file| scopes.iter().find_map(|scope| file.get_key_value(scope)));
        match found {
            Some((_, Ok(login))) => Ok(Some(login)),
            Some((entry, Err(why))) => Err(BrokenEntry { entry: entry.clone(), why }),
            None => Ok(None),
        }
    }

    /// The credentials for an image.
    pub(crate) fn of(&self, image: &Reference) -> Result<Option<&Login>, BrokenEntry> {
        self.login(&image.name())
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
            "broken.io": {"auth": "%%"}, "broken.io/but": {"auth": auth("not:1")}, "half.io": {"auth": auth("user")},
            "empty.io": {}, "bare.io": {"auth": auth("n:pw").trim_end_matches('=')}, "https://path.io/team": {"auth": auth("t:1")},
            "https://old.io/v2/": {"auth": auth("old:1")}, "https://versions.io/v1": {"auth": auth("versions:1")},
            "null.io": {"auth": auth("null:1"), "username": null, "password": null, "identitytoken": null}, "nothing.io": null,
            "paths.io/team/v1": {"auth": auth("v1:1")}, "paths.io/v2/os": {"auth": auth("v2:1")},
            "paths.io/other": {"auth": auth("other:1")}, "paths.io/other/v2": {"auth": auth("v2:2")},
            "docker.io/mine": {"auth": auth("mine:1")},
            "index.docker.io/mine": {"auth": auth("alias:2")},
        }, "credHelpers": {"x.io": "h"}});
        all.add(first.to_string().as_bytes()).unwrap();
        let second = json!({"auths": {"q.io/team/os": {"auth": auth("later:1")}, "t.io:5000": {"identitytoken": "t", "auth": auth("n:")}}});
        all.add(second.to_string().as_bytes()).unwrap();
        let password = |name: &str, word: &str| {
            Some(Login { user: name.to_owned(), password: word.to_owned(), ..Login::default() })
        };
        for (image, want) in [
            ("q.io/team/os:1", password("team", "a:b")),
            ("q.io/teams/os:1", password("all", "1")),
            ("q.io/x", password("all", "1")),
            ("docker.io/library/x", password("d", "p")),
            ("registry-1.docker.io/library/x", password("d", "p")),
            ("t.io:5000/x", Some(Login { identity_token: "t".to_owned(), ..password("n", "").unwrap() })),
            ("t.io/x", None),
            ("empty.io/x", None),
            ("bare.io/x", password("n", "pw")),
            ("broken.io/but", password("not", "1")),
            ("path.io/team/x", password("t", "1")),
            ("path.io/other", None),
            ("old.io/x", password("old", "1")),
            ("q.io.evil/team", None),
            ("versions.io/x", password("versions", "1")),
            ("null.io/x", password("null", "1")),
            ("nothing.io/x", None),
            ("paths.io/team/os", None),
            ("paths.io/team/v1", password("v1", "1")),
            ("paths.io/team/v1/os", password("v1", "1")),
            ("paths.io/v2/os", password("v2", "1")),
            ("paths.io/other/os", password("other", "1")),
            ("paths.io/other/v2", password("v2", "2")),
            ("docker.io/mine/os", password("mine", "1")),
            ("index.docker.io/mine/os", password("mine", "1")),
        ] {
            assert_eq!(all.of(&Reference::parse(image).unwrap()), Ok(want.as_ref()), "{image}");
        }
        for broken in ["broken.io", "half.io"] {
            let why = all.login(&format!("{broken}/x")).unwrap_err().to_string();
            assert!(why.contains(broken) && why.contains("auth") && !why.contains("%%"), "{why}");
        }
        assert!(!format!("{all:?}").contains("team:a"), "{all:?}");
    }

    #[test]
    fn an_exact_spelling_counts_before_an_alias_and_nothing_is_an_empty_file() {
        let mut all = Credentials::default();
        let file = json!({"auths": {
            "docker.io": {"auth": auth("exact:1")}, "registry-1.docker.io": {"auth": auth("alias:1")},
            "https://index.docker.io/v1/": {"auth": auth("alias:2")}, "q.io": {"auth": auth("exact:1")},
            "https://q.io/v1/": {"auth": auth("alias:1")},
        }});
        all.add(file.to_string().as_bytes()).unwrap();
        for name in ["docker.io/x", "registry-1.docker.io/x", "q.io/x"] {
            assert_eq!(all.login(name).unwrap().unwrap().user, "exact", "{name}");
        }
        for empty in ["{}", "{\"auths\": null}"] {
            let mut none = Credentials::default();
            none.add(empty.as_bytes()).unwrap();
            assert_eq!(none.login("q.io/x"), Ok(None), "{empty}");
        }
    }

    #[test]
    fn what_cannot_be_read_is_told_without_its_contents() {
        let why =
            Credentials::default().add(b"{\"auths\": {\"q.io\": \"hunter2\"}}").unwrap_err().to_string();
        assert!(!why.contains("hunter2") && why.contains("line 1"), "{why}");
    }
}
