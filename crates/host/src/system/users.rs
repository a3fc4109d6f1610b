//! Users, groups and password hashes, parsed from the host's own files (passwd(5), group(5), shadow(5)). This
//! process's name service is never asked, because it may be that of another system.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::disk::fs_error::FsError;
use crate::disk::root::Root;
use crate::paths;

/// A user of the host.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct User {
    /// The user id.
    pub uid: u32,
    /// The id of the main group.
    pub gid: u32,
    /// The home folder.
    pub home: String,
}

/// Users and groups of the host, by name.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Users {
    /// The users by name.
    pub users: BTreeMap<String, User>,
    /// The ids of groups by name.
    pub groups: BTreeMap<String, u32>,
}

/// Why a password could not be changed.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum ShadowError {
    /// The user has no line in the file.
    #[error(
        "/etc/shadow has no line for user {0}; create the user on the host first (pwconv adds missing lines)"
    )]
    NoUser(String),
    /// The hash would corrupt the file.
    #[error("the password hash of user {0} holds a colon or a line break; make it with mkpasswd")]
    BadHash(String),
    /// The file has bytes that would be lost.
    #[error(
        "/etc/shadow is not UTF-8 text, so that it cannot be rewritten without loss; correct the line (pwck)"
    )]
    NotText,
}

impl Users {
    /// The users and groups of a host. A file that is missing counts as empty.
    pub(crate) fn read(root: &Root) -> Result<Self, FsError> {
        let text = |path: &str| root.text(path).map(Option::unwrap_or_default);
        Ok(Self::parse(&text(paths::PASSWD)?, &text(paths::GROUP)?))
    }

    /// Parses the texts of `/etc/passwd` and `/etc/group`. Malformed lines are skipped, and the first line for a name
    /// is used, as in the C library.
    #[must_use]
    pub fn parse(passwd: &str, group: &str) -> Self {
        let mut out = Self::default();
        for line in passwd.lines() {
            let f: Vec<&str> = line.split(':').collect();
            if let [name, _, uid, gid, _, home, ..] = f.as_slice()
                && let (Ok(uid), Ok(gid)) = (uid.parse(), gid.parse())
            {
                let user = User { uid, gid, home: (*home).to_owned() };
                out.users.entry((*name).to_owned()).or_insert(user);
            }
        }
        for line in group.lines() {
            let f: Vec<&str> = line.split(':').collect();
            if let [name, _, gid, ..] = f.as_slice()
                && let Ok(gid) = gid.parse()
            {
                out.groups.entry((*name).to_owned()).or_insert(gid);
            }
        }
        out
    }
}

/// A user's password hash in the text of `/etc/shadow`.
#[must_use]
pub(crate) fn hash_of(shadow: &str, user: &str) -> Option<String> {
    let line = shadow.lines().find(|l| l.split(':').next() == Some(user))?;
    line.split(':').nth(1).map(str::to_owned)
}

/// A user's password hash and the day of its last change in the text of `/etc/shadow`.
pub(crate) fn fields_of(shadow: &str, user: &str) -> Option<(String, String)> {
    let line = shadow.lines().find(|l| l.split(':').next() == Some(user))?;
    let mut fields = line.split(':').skip(1).map(str::to_owned);
    Some((fields.next()?, fields.next().unwrap_or_default()))
}

/// The text of `/etc/shadow` with another hash for a user, and the day of this change.
///
/// # Errors
/// The user has no line, or the hash would corrupt the file.
pub(crate) fn with_hash(shadow: &str, user: &str, hash: &str, day: u64) -> Result<String, ShadowError> {
    with_fields(shadow, user, hash, &day.to_string())
}

/// As [`with_hash`], with the day as the text of the field.
///
/// # Errors
/// As [`with_hash`].
pub(crate) fn with_fields(shadow: &str, user: &str, hash: &str, day: &str) -> Result<String, ShadowError> {
    if hash.contains([':', '\n', '\r', '\0']) {
        return Err(ShadowError::BadHash(user.to_owned()));
    }
    let mut seen = false;
    let mut out = String::with_capacity(shadow.len() + hash.len() + 8);
    for line in shadow.split_inclusive('\n') {
        let mut fields: Vec<&str> = line.split(':').collect();
        if !seen && fields.first() == Some(&user) {
            seen = true;
            if let Some(f) = fields.get_mut(1) {
                *f = hash;
            }
            if let Some(f) = fields.get_mut(2) {
                *f = day;
            }
        }
        out.push_str(&fields.join(":"));
    }
    if seen { Ok(out) } else { Err(ShadowError::NoUser(user.to_owned())) }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHADOW: &str = "root:*:19000:0:99999:7:::\ncore:!:19000:0:99999:7:::\ncorey:x:1::::::\n";

    #[test]
    fn users_and_groups_are_read_from_text() {
        let u = Users::parse(
            "root:x:0:0:root:/root:/bin/bash\n\nbroken\ncore:x:1000:1001::/home/core:/bin/sh\ncore:x:5:5::/x:/x\n",
            "root:x:0:\nadm:x:4:core\nbad:x:no:\n",
        );
        assert_eq!(u.users["core"], User { uid: 1000, gid: 1001, home: "/home/core".to_owned() });
        assert_eq!(u.users.len(), 2);
        assert_eq!(u.groups, BTreeMap::from([("root".to_owned(), 0), ("adm".to_owned(), 4)]));
    }

    #[test]
    fn only_the_line_of_the_user_changes() {
        let new = with_hash(SHADOW, "core", "$6$a$b", 20_000).unwrap();
        assert_eq!(new, "root:*:19000:0:99999:7:::\ncore:$6$a$b:20000:0:99999:7:::\ncorey:x:1::::::\n");
        assert_eq!(hash_of(&new, "core").as_deref(), Some("$6$a$b"));
        assert_eq!(hash_of(&new, "cor"), None);
    }

    #[test]
    fn a_password_hash_with_separators_is_refused() {
        for hash in ["a:b", "a\nroot::0:0"] {
            assert_eq!(with_hash(SHADOW, "core", hash, 1), Err(ShadowError::BadHash("core".to_owned())));
        }
        assert_eq!(with_hash(SHADOW, "bob", "x", 1), Err(ShadowError::NoUser("bob".to_owned())));
    }
}
