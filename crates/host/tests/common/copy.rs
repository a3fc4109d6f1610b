//! Copies of folders for the tests, with all that a host's tree has: owners, modes, times, extended attributes, hard links,
//! symlinks and special files.
//!
//! Why not `cp -a`: thousands of copies are made, and starting a program costs more than copying what is in them.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt, lchown, symlink};
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, CWD, FileType, Mode, Timespec, Timestamps, makedev, mknodat, utimensat};

/// Copies what is in a folder into another one, which exists, and the folder's own attributes.
pub fn copy_tree(from: &Path, to: &Path) {
    into(from, to, &mut BTreeMap::new());
}

/// Copies one file, symlink or special file; `to` does not exist.
pub fn copy_one(from: &Path, to: &Path) {
    one(from, to, &mut BTreeMap::new());
}

/// `seen`: the first copy of each file with several names, by its number.
fn into(from: &Path, to: &Path, seen: &mut BTreeMap<(u64, u64), PathBuf>) {
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let (from, to) = (entry.path(), to.join(entry.file_name()));
        if !entry.file_type().unwrap().is_dir() {
            one(&from, &to, seen);
            continue;
        }
        match fs::create_dir(&to) {
            Ok(()) => into(&from, &to, seen),
            // The target may have the folder already, as a new file system has `lost+found`.
            Err(_) if to.is_dir() => into(&from, &to, seen),
            Err(error) => panic!("{}: {error}", to.display()),
        }
    }
    attributes(from, to, &fs::symlink_metadata(from).unwrap());
}

fn one(from: &Path, to: &Path, seen: &mut BTreeMap<(u64, u64), PathBuf>) {
    let about = fs::symlink_metadata(from).unwrap();
    let kind = about.file_type();
    if about.nlink() > 1 {
        if let Some(first) = seen.get(&(about.dev(), about.ino())) {
            fs::hard_link(first, to).unwrap();
            return;
        }
        seen.insert((about.dev(), about.ino()), to.to_owned());
    }
    if kind.is_symlink() {
        symlink(fs::read_link(from).unwrap(), to).unwrap();
    } else if kind.is_file() {
        fs::copy(from, to).unwrap();
    } else {
        let kind = match () {
            () if kind.is_fifo() => FileType::Fifo,
            () if kind.is_socket() => FileType::Socket,
            () if kind.is_block_device() => FileType::BlockDevice,
            () => FileType::CharacterDevice,
        };
        let device = makedev(rustix::fs::major(about.rdev()), rustix::fs::minor(about.rdev()));
        mknodat(CWD, to, kind, Mode::from_raw_mode(0o600), device).unwrap();
    }
    attributes(from, to, &about);
}

fn attributes(from: &Path, to: &Path, about: &fs::Metadata) {
    if rustix::process::geteuid().is_root() {
        lchown(to, Some(about.uid()), Some(about.gid())).unwrap();
    }
    if !about.is_symlink() {
        // After the owner: a change of owner clears set-user-ID bits.
        fs::set_permissions(to, fs::Permissions::from_mode(about.mode() & 0o7777)).unwrap();
    }
    let names = extended(|buffer| rustix::fs::llistxattr(from, buffer));
    for name in names.split(|byte| *byte == 0).filter(|name| !name.is_empty()) {
        let value = extended(|buffer| rustix::fs::lgetxattr(from, name, buffer));
        rustix::fs::lsetxattr(to, name, &value, rustix::fs::XattrFlags::empty()).unwrap();
    }
    let time = |seconds, nanoseconds| Timespec { tv_sec: seconds, tv_nsec: nanoseconds };
    let times = Timestamps {
        last_access: time(about.atime(), about.atime_nsec()),
        last_modification: time(about.mtime(), about.mtime_nsec()),
    };
    utimensat(CWD, to, &times, AtFlags::SYMLINK_NOFOLLOW).unwrap();
}

/// Extended attributes: all names, each ended by a zero byte, or the value of one. None where the file system has none.
fn extended(read: impl FnOnce(&mut [u8]) -> rustix::io::Result<usize>) -> Vec<u8> {
    let mut buffer = vec![0; 4096];
    match read(&mut buffer) {
        Ok(length) => {
            buffer.truncate(length);
            buffer
        }
        Err(rustix::io::Errno::OPNOTSUPP) => vec![],
        Err(error) => panic!("extended attributes: {error}"),
    }
}
