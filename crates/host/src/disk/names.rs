//! Names of files: how a path is split, and how temporary files and folders that are kept are called. Pure.
//!
//! Not here: how paths are resolved (see `resolve`).

use std::io;

use api::formats::text::hex;
use sha2::{Digest, Sha256};

/// The folder and the last component of an absolute path.
pub(crate) fn split(path: &str) -> io::Result<(&str, &str)> {
    let bad = || io::Error::new(io::ErrorKind::InvalidInput, "not an absolute, plain path");
    let (dir, name) = path.rsplit_once('/').ok_or_else(bad)?;
    if !path.starts_with('/') || matches!(name, "" | "." | "..") || path.contains('\0') {
        return Err(bad());
    }
    Ok((if dir.is_empty() { "/" } else { dir }, name))
}

/// The name of the temporary file for `path`: of fixed length, and always the same for one path.
pub(crate) fn temp_name(path: &str) -> String {
    format!(".mcd-{}.tmp", &hex(&Sha256::digest(path.as_bytes()))[..16])
}

/// The name under which a folder that was at `path` is kept beside it. Unlike a temporary file, the agent never
/// removes it.
pub(crate) fn kept_name(path: &str, number: u32) -> String {
    let dir = split(path).map_or("", |(dir, _)| dir.trim_end_matches('/'));
    format!("{dir}/.mcd-{}.kept-{number}", &hex(&Sha256::digest(path.as_bytes()))[..16])
}
