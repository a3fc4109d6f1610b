//! A file that is put into a node before it boots. Not here: which files a node gets (`real_node`, `real_kubelet`,
//! `first_boot`).

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};

/// A file that is put into a node before it boots.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeFile {
    /// Its path, without the first slash.
    pub path: String,
    /// Its mode.
    pub mode: u32,
    /// What is in it.
    pub content: Vec<u8>,
}

impl NodeFile {
    pub(crate) fn new(path: &str, mode: u32, content: impl Into<Vec<u8>>) -> Self {
        Self { path: path.to_owned(), mode, content: content.into() }
    }

    /// Writes the file below a node's upper folder.
    pub(crate) fn write(&self, upper: &Path) -> Result<()> {
        let path = upper.join(&self.path);
        if let Some(parent) = path.parent() {
            fs::create_dir_all(parent).map_err(Error::io("create", parent))?;
        }
        fs::write(&path, &self.content).map_err(Error::io("write", &path))?;
        fs::set_permissions(&path, fs::Permissions::from_mode(self.mode))
            .map_err(Error::io("set the mode of", &path))
    }
}
