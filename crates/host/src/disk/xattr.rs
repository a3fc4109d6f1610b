//! Metadata that a copy of a file preserves besides contents, mode and owner: the modification time and the extended
//! attributes (security labels, capabilities, access lists; see xattr(7)).
//!
//! Attributes that the kernel or a file system does not let us read or set are skipped, as file-copying tools do.

use std::io;
use std::os::fd::OwnedFd;

use rustix::buffer::spare_capacity;
use rustix::fs::{XattrFlags, fgetxattr, flistxattr, fsetxattr};
use serde::{Deserialize, Serialize};

/// The SELinux label. A new file gets the label of its folder, which is wrong for `/etc/shadow` and others.
const LABEL: &str = "security.selinux";
/// The kernel's own limit for a list of names and for one value (xattr(7)).
const MAX: usize = 64 * 1024;
/// A limit for one label; real ones are a few words long.
const MAX_LABEL: usize = 4 * 1024;

/// One extended attribute.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Xattr {
    name: String,
    value: Vec<u8>,
}

/// The metadata that a written file takes over from another one, besides contents, mode and owner.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct FileMetadata {
    /// The modification time: seconds and nanoseconds.
    pub(crate) modified: Option<(i64, i64)>,
    /// Its extended attributes. `None`: only the security label of the file that is replaced.
    #[serde(default)]
    pub(crate) xattrs: Vec<Xattr>,
}

impl FileMetadata {
    pub(crate) fn of(file: &OwnedFd) -> io::Result<Self> {
        let stat = rustix::fs::fstat(file)?;
        let modified = Some((stat.st_mtime, i64::try_from(stat.st_mtime_nsec).unwrap_or(0)));
        Ok(Self { modified, xattrs: all(file) })
    }
}

/// All extended attributes of a file.
fn all(file: &OwnedFd) -> Vec<Xattr> {
    let mut names = Vec::with_capacity(MAX);
    if flistxattr(file, spare_capacity(&mut names)).is_err() {
        return Vec::new();
    }
    let names = names.split(|b| *b == 0).filter(|n| !n.is_empty());
    names.filter_map(|n| one(file, std::str::from_utf8(n).ok()?, MAX)).collect()
}

/// A file's security label.
pub(crate) fn label(file: &OwnedFd) -> Option<Xattr> {
    one(file, LABEL, MAX_LABEL)
}

fn one(file: &OwnedFd, name: &str, max: usize) -> Option<Xattr> {
    let mut value = Vec::with_capacity(max);
    fgetxattr(file, name, spare_capacity(&mut value)).ok()?;
    value.shrink_to_fit();
    Some(Xattr { name: name.to_owned(), value })
}

/// Sets extended attributes. Call it after the owner is set, because a change of owner removes capabilities.
pub(crate) fn set<'x>(file: &OwnedFd, attributes: impl IntoIterator<Item = &'x Xattr>) {
    for Xattr { name, value } in attributes {
        if let Err(error) = fsetxattr(file, name.as_str(), value, XattrFlags::empty()) {
            tracing::debug!(%name, %error, "an extended attribute could not be copied");
        }
    }
}
