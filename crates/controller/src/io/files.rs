//! The few files that the controller reads and writes: a template tree, a folder of manifests, a bootstrap's output.
//!
//! What it is not: parsing. Text goes in and out; errors name the path.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::fs::{DirEntry, FileType, OpenOptions, Permissions};
use std::io::{self, Write as _};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

/// A file that cannot be read or written.
#[derive(Debug, thiserror::Error)]
#[error("{}: {action}", path.display())]
pub struct FileError {
    /// The file or folder.
    pub path: PathBuf,
    /// What was tried.
    pub action: &'static str,
    /// Why it failed.
    pub source: io::Error,
}

fn failed<'a>(path: &'a Path, action: &'static str) -> impl FnOnce(io::Error) -> FileError + 'a {
    move |source| FileError { path: path.to_owned(), action, source }
}

/// Template trees are five folders deep. A deeper one is a loop of links, or the wrong folder.
const MAX_DEPTH: usize = 8;
/// The template tree of the largest known distribution has some 220 files of a few kilobytes.
const MAX_FILES: usize = 10_000;

/// All files below a folder, by their path relative to it, separated by `/`.
pub(crate) fn tree(root: &Path) -> Result<BTreeMap<String, String>, FileError> {
    let mut files = BTreeMap::new();
    let mut open = vec![(root.to_owned(), String::new(), 0)];
    while let Some((folder, prefix, depth)) = open.pop() {
        for entry in std::fs::read_dir(&folder).map_err(failed(&folder, "cannot list the folder"))? {
            let entry = entry.map_err(failed(&folder, "cannot list the folder"))?;
            let path = entry.path();
            let name = entry.file_name();
            let name = name.to_str().ok_or_else(|| {
                failed(&path, "not read")(io::Error::new(io::ErrorKind::InvalidData, "its name is not UTF-8"))
            })?;
            // The kubelet mounts ConfigMaps as symbolic links beside hidden folders of this kind.
            if name.starts_with('.') {
                continue;
            }
            let relative = if prefix.is_empty() { name.to_owned() } else { format!("{prefix}/{name}") };
            let kind = kind(&entry, &path)?;
            if kind.is_dir() {
                if depth == MAX_DEPTH {
                    let e = io::Error::new(io::ErrorKind::InvalidData, "folders are nested too deep");
                    return Err(failed(&path, "not read")(e));
                }
                open.push((path, relative, depth + 1));
            } else if kind.is_file() {
                let text = std::fs::read_to_string(&path).map_err(failed(&path, "cannot be read"))?;
                files.insert(relative, text);
            }
            if files.len() > MAX_FILES {
                let e =
                    io::Error::new(io::ErrorKind::InvalidData, "more than 10,000 files: not a template tree");
                return Err(failed(root, "not read")(e));
            }
        }
    }
    Ok(files)
}

/// The regular files directly in a folder, by name.
pub(crate) fn folder(root: &Path) -> Result<Vec<PathBuf>, FileError> {
    let mut files = vec![];
    for entry in std::fs::read_dir(root).map_err(failed(root, "cannot list the folder"))? {
        let entry = entry.map_err(failed(root, "cannot list the folder"))?;
        let path = entry.path();
        if kind(&entry, &path)?.is_file() {
            files.push(path);
        }
    }
    files.sort();
    Ok(files)
}

/// The type of a directory entry. Links are followed, because files of a mounted ConfigMap are links.
fn kind(entry: &DirEntry, path: &Path) -> Result<FileType, FileError> {
    let kind = entry.file_type().map_err(failed(path, "cannot be read"))?;
    if !kind.is_symlink() {
        return Ok(kind);
    }
    Ok(std::fs::metadata(path).map_err(failed(path, "cannot be read"))?.file_type())
}

/// One file's text.
pub(crate) fn read(path: &Path) -> Result<String, FileError> {
    std::fs::read_to_string(path).map_err(failed(path, "cannot be read"))
}

/// The modes of a bootstrap's output. The config server reads it as another user.
const FOLDER_MODE: u32 = 0o764;
const FILE_MODE: u32 = 0o664;

/// A folder that files are written into. They all appear once all are written: each subfolder is staged in a hidden
/// folder beside its place, and is renamed at the end. If the subfolder exists already, its staged files are moved into
/// it. What was not put in place is removed.
#[derive(Debug)]
pub(crate) struct Output<'a> {
    root: &'a Path,
    /// The subfolders, and where their files are staged.
    folders: BTreeMap<PathBuf, Staged>,
    /// Whether the folder did not exist before.
    made_root: bool,
}

#[derive(Debug)]
struct Staged {
    place: PathBuf,
    /// Whether the subfolder existed before.
    over: bool,
}

impl<'a> Output<'a> {
    pub(crate) fn new(root: &'a Path) -> Self {
        Self { root, folders: BTreeMap::new(), made_root: !root.exists() }
    }

    /// Stages one file by its path from the root, and creates folders on the way. Of two files with one path the later
    /// counts.
    pub(crate) fn write(&mut self, relative: &str, text: &str) -> Result<(), FileError> {
        let path = self.root.join(relative);
        let path = self.place(path.parent().unwrap_or(self.root))?.join(path.file_name().unwrap_or_default());
        let open = OpenOptions::new().write(true).create(true).truncate(true).open(&path);
        let mut file = open.map_err(failed(&path, "cannot be written"))?;
        file.write_all(text.as_bytes()).map_err(failed(&path, "cannot be written"))?;
        let mode = Permissions::from_mode(FILE_MODE);
        file.set_permissions(mode).map_err(failed(&path, "cannot set the mode"))
    }

    /// Where the files of a subfolder are staged.
    fn place(&mut self, folder: &Path) -> Result<&Path, FileError> {
        let free = match self.folders.entry(folder.to_owned()) {
            Entry::Occupied(staged) => return Ok(&staged.into_mut().place),
            Entry::Vacant(free) => free,
        };
        let mut name = std::ffi::OsString::from(".");
        name.push(folder.file_name().unwrap_or_default());
        name.push(".new");
        let parent = if folder == self.root { folder } else { folder.parent().unwrap_or(self.root) };
        let place = parent.join(name);
        // Left behind by a run that was interrupted.
        if let Err(e) = std::fs::remove_dir_all(&place)
            && e.kind() != io::ErrorKind::NotFound
        {
            return Err(failed(&place, "cannot be removed")(e));
        }
        std::fs::create_dir_all(&place).map_err(failed(&place, "cannot create the folder"))?;
        let mode = Permissions::from_mode(FOLDER_MODE);
        std::fs::set_permissions(&place, mode).map_err(failed(&place, "cannot set the mode"))?;
        Ok(&free.insert(Staged { place, over: folder.exists() }).place)
    }

    /// Everything is written: moves it to its final names.
    pub(crate) fn finish(mut self) -> Result<(), FileError> {
        for (folder, Staged { place, over }) in &self.folders {
            if !over {
                std::fs::rename(place, folder).map_err(failed(folder, "cannot be put in place"))?;
                continue;
            }
            for entry in std::fs::read_dir(place).map_err(failed(place, "cannot list the folder"))? {
                let name = entry.map_err(failed(place, "cannot list the folder"))?.file_name();
                let path = folder.join(&name);
                std::fs::rename(place.join(&name), &path).map_err(failed(&path, "cannot be put in place"))?;
            }
            std::fs::remove_dir(place).map_err(failed(place, "cannot be removed"))?;
        }
        self.folders.clear();
        self.made_root = false;
        Ok(())
    }
}

impl Drop for Output<'_> {
    fn drop(&mut self) {
        // What cannot be removed is left to the next run.
        for Staged { place, .. } in self.folders.values() {
            let _ = std::fs::remove_dir_all(place);
        }
        if self.made_root {
            let _ = std::fs::remove_dir(self.root);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tree_is_read_by_relative_paths_through_links_and_without_hidden_folders() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path();
        std::fs::create_dir_all(root.join("worker/00-worker/_base/files")).unwrap();
        std::fs::create_dir_all(root.join("..data")).unwrap();
        std::fs::write(root.join("..data/x.yaml"), "x").unwrap();
        std::os::unix::fs::symlink(
            "../../../../..data/x.yaml",
            root.join("worker/00-worker/_base/files/x.yaml"),
        )
        .unwrap();
        let files = tree(root).unwrap();
        assert_eq!(
            files,
            BTreeMap::from([("worker/00-worker/_base/files/x.yaml".to_owned(), "x".to_owned())])
        );
    }

    #[test]
    fn a_loop_of_links_and_a_missing_folder_are_errors_that_name_the_path() {
        let dir = tempfile::tempdir().unwrap();
        std::os::unix::fs::symlink(dir.path(), dir.path().join("again")).unwrap();
        let error = tree(dir.path()).unwrap_err();
        assert!(error.to_string().contains("again"), "{error}");
        let error = tree(Path::new("/nowhere/templates")).unwrap_err().to_string();
        assert!(error.contains("/nowhere/templates"), "{error}");
    }

    #[test]
    fn output_has_the_modes_that_the_server_expects_and_leaves_nothing_beside() {
        let dir = tempfile::tempdir().unwrap();
        let mut output = Output::new(dir.path());
        output.write("machine-pools/worker.yaml", "a: 1\n").unwrap();
        assert!(!dir.path().join("machine-pools").exists(), "a new folder appears as a whole");
        output.finish().unwrap();
        // Over an existing folder, and beside the remains of an interrupted run.
        std::fs::create_dir(dir.path().join(".controller-config.new")).unwrap();
        std::fs::write(dir.path().join(".controller-config.new/old"), "old").unwrap();
        let mut output = Output::new(dir.path());
        output.write("machine-pools/worker.yaml", "a: 2\n").unwrap();
        output.write("controller-config/x.yaml", "b: 1\n").unwrap();
        output.finish().unwrap();
        assert_eq!(std::fs::read_dir(dir.path().join("controller-config")).unwrap().count(), 1);
        let mut given_up = Output::new(dir.path());
        given_up.write("api-server/x.yaml", "c: 1\n").unwrap();
        drop(given_up);
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 2, "no temporary folder is left");
        let mode = |p: &str| std::fs::metadata(dir.path().join(p)).unwrap().permissions().mode() & 0o7777;
        assert_eq!((mode("machine-pools"), mode("machine-pools/worker.yaml")), (0o764, 0o664));
        assert_eq!(std::fs::read_to_string(dir.path().join("machine-pools/worker.yaml")).unwrap(), "a: 2\n");
        assert_eq!(std::fs::read_dir(dir.path().join("machine-pools")).unwrap().count(), 1);
    }
}
