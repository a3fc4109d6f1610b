//! Password hashes in `/etc/shadow`, under the lock that every user management tool takes. Only the one line changes,
//! both when a hash is set and when it is undone.
//!
//! Not here: parsing such files (see `users`).
//!
//! Sources: shadow(5), lckpwdf(3).

use std::fmt;
use std::os::fd::OwnedFd;
use std::time::Duration;

use rustix::fs::{FlockOperation, OFlags};
use serde::{Deserialize, Serialize};

use crate::disk::attributes::Attributes;
use crate::disk::fs_error::FsError;
use crate::disk::path_state::PathState;
use crate::disk::root::Root;
use crate::error::Error;
use crate::paths::{PASSWD_LOCK, SHADOW, SHADOW_BACKUP};
use crate::system::users::{ShadowError, fields_of, with_fields, with_hash};

/// How often to try for the lock of the user database: 15 seconds in all, as long as lckpwdf(3) waits.
const LOCK_TRIES: u32 = 150;
/// The pause between two tries.
const LOCK_PAUSE: Duration = Duration::from_millis(100);

/// What undo needs to know about a password: the two old fields of its line, and the new hash.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct PasswordBefore {
    user: String,
    hash: String,
    day: String,
    to: String,
}

impl fmt::Debug for PasswordBefore {
    /// Never shown.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PasswordBefore").field("user", &self.user).finish_non_exhaustive()
    }
}

impl PasswordBefore {
    /// Reads the current fields. `None`: the user has no line.
    pub(crate) fn read(root: &Root, user: &str, to: &str) -> Result<Option<Self>, FsError> {
        let text = root.text(SHADOW)?.unwrap_or_default();
        Ok(fields_of(&text, user).map(|(hash, day)| Self {
            user: user.to_owned(),
            hash,
            day,
            to: to.to_owned(),
        }))
    }

    /// Restores the line's two fields, unless somebody else has set another password since.
    pub(crate) fn put_back(&self, root: &Root) -> Result<(), Error> {
        root.discard_temporary(SHADOW)?;
        let as_before = |text: &str| {
            let now = fields_of(text, &self.user);
            now.is_none_or(|now| now == (self.hash.clone(), self.day.clone()))
        };
        if as_before(&root.text(SHADOW)?.unwrap_or_default()) {
            return Ok(());
        }
        let _lock = lock(root)?;
        let (text, attributes) = read(root, &self.user)?;
        if as_before(&text) {
            return Ok(());
        }
        if fields_of(&text, &self.user).is_some_and(|(hash, _)| hash != self.to && hash != self.hash) {
            tracing::warn!(user = %self.user, "the password was changed by somebody else in the meantime; it \
                is left as it is");
            return Ok(());
        }
        let text = with_fields(&text, &self.user, &self.hash, &self.day)?;
        root.write_bytes(SHADOW, text.as_bytes(), attributes)?;
        Ok(())
    }
}

/// Changes one hash, and keeps a backup of the old file as other tools do.
pub(crate) fn set(root: &Root, user: &str, hash: &str, day: u64) -> Result<(), Error> {
    let _lock = lock(root)?;
    let (text, attributes) = read(root, user)?;
    let text = with_hash(&text, user, hash, day)?;
    root.copy(SHADOW, SHADOW_BACKUP)?;
    root.write_bytes(SHADOW, text.as_bytes(), attributes)?;
    Ok(())
}

fn read(root: &Root, user: &str) -> Result<(String, Attributes), Error> {
    let PathState::File { mode, uid, gid, .. } = root.found(SHADOW)? else {
        return Err(ShadowError::NoUser(user.to_owned()).into());
    };
    let Ok(text) = String::from_utf8(root.read(SHADOW)?) else {
        return Err(ShadowError::NotText.into());
    };
    Ok((text, Attributes { mode, uid, gid }))
}

/// Takes the lock. Closing its handle releases it.
fn lock(root: &Root) -> Result<OwnedFd, Error> {
    let lock = root.handle(PASSWD_LOCK, OFlags::WRONLY | OFlags::CREATE, 0o600)?;
    for _ in 0..LOCK_TRIES {
        if rustix::fs::fcntl_lock(&lock, FlockOperation::NonBlockingLockExclusive).is_ok() {
            return Ok(lock);
        }
        std::thread::sleep(LOCK_PAUSE);
    }
    Err(Error::PasswdLocked { path: PASSWD_LOCK })
}
