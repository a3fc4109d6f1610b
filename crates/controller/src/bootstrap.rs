//! `bootstrap`: renders a folder of manifests before there is a cluster. File input and output around
//! [`render::bootstrap::plan`]; the rules are there.

use crate::call::chain;
use crate::files::{self, FileError};
use crate::version::versions;
use render::TemplateSet;
use render::bootstrap::{BootstrapError, BootstrapOutput, plan};
use serde_json::Value;
use std::num::NonZero;
use std::path::{Path, PathBuf};

/// Where things are and where they go.
#[derive(Debug, Clone)]
pub struct BootstrapArgs {
    /// Manifests: the regular files of this folder, YAML or JSON, several documents in each.
    pub manifest_dir: PathBuf,
    /// Where `machine-pools/`, `machine-configs/`, `controller-config/` and `api-server/` are made.
    pub dest_dir: PathBuf,
    /// A `kubernetes.io/dockerconfigjson` Secret.
    pub pull_secret: PathBuf,
    /// The template directory.
    pub templates: PathBuf,
}

/// A bootstrap that could not be done. Nothing was written unless the error is about writing.
#[derive(Debug, thiserror::Error)]
pub enum BootstrapFailed {
    /// A file.
    #[error(transparent)]
    File(#[from] FileError),
    /// Text that is not YAML or JSON.
    #[error("{path}: {message}")]
    Text {
        /// The file.
        path: String,
        /// Why.
        message: String,
    },
    /// Manifests that cannot be rendered.
    #[error("cannot render the manifests")]
    Plan(#[from] BootstrapError),
}

impl BootstrapFailed {
    /// The whole chain in one line.
    pub fn chain(&self) -> String {
        chain(self)
    }
}

/// Renders the manifests and writes the result; returns the warnings.
///
/// # Errors
/// See [`BootstrapFailed`]; every one names the file or the object.
pub fn run(args: &BootstrapArgs) -> Result<Vec<String>, BootstrapFailed> {
    let BootstrapArgs { manifest_dir, dest_dir, pull_secret, templates } = args;
    let manifests = read_all(&files::folder(manifest_dir)?)?;
    let text = files::read(pull_secret)?;
    // The library's message would show lines of the secret.
    let secret = api::yaml::from_str::<Value>(&text).map_err(|_| BootstrapFailed::Text {
        path: pull_secret.display().to_string(),
        message: "is not YAML or JSON".to_owned(),
    })?;
    let set = TemplateSet::from_map(files::tree(templates)?);
    let mut output = plan(manifests, &set, Some(&secret), &versions())?;
    let warnings = std::mem::take(&mut output.warnings);
    write(output, dest_dir)?;
    Ok(warnings.iter().map(ToString::to_string).collect())
}

/// Objects, each with the name of its file.
type Objects = Vec<(String, Value)>;

/// A thread takes as long to start as so many files take to read.
const SHARE: usize = 16;
/// More threads than this wait for the disk and for memory.
const MOST_READERS: usize = 4;

/// The objects of all files, in their order. Reading YAML is half of the work, and files know nothing of each other: each
/// thread takes its share of them. The first file that cannot be read is the one that is told.
fn read_all(paths: &[PathBuf]) -> Result<Objects, BootstrapFailed> {
    let cores = std::thread::available_parallelism().map_or(1, NonZero::get);
    let readers = cores.min(MOST_READERS).min(paths.len() / SHARE).max(1);
    let mut shares = paths.chunks(paths.len().div_ceil(readers).max(1));
    let own = shares.next().unwrap_or_default();
    std::thread::scope(|scope| {
        let others: Vec<_> = shares.map(|share| scope.spawn(|| read_share(share))).collect();
        let mut all = read_share(own)?;
        for other in others {
            match other.join() {
                Ok(objects) => all.extend(objects?),
                Err(panic) => std::panic::resume_unwind(panic),
            }
        }
        Ok(all)
    })
}

fn read_share(paths: &[PathBuf]) -> Result<Objects, BootstrapFailed> {
    let mut all = vec![];
    for path in paths {
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        for document in documents(&name, &files::read(path)?)? {
            all.extend(api::yaml::objects(document).into_iter().map(|object| (name.clone(), object)));
        }
    }
    Ok(all)
}

/// How many texts wait for the disk at most.
const WAITING: usize = 16;

/// Writes the output. Making a file takes the kernel about as long as its text takes us, so both go on at once.
fn write(output: BootstrapOutput, dest_dir: &Path) -> Result<(), BootstrapFailed> {
    let (texts, ready) = std::sync::mpsc::sync_channel::<(String, String)>(WAITING);
    std::thread::scope(|scope| {
        let writer = scope.spawn(move || -> Result<files::Output<'_>, FileError> {
            let mut dest = files::Output::new(dest_dir);
            ready.iter().try_for_each(|(path, text)| dest.write(&path, &text))?;
            Ok(dest)
        });
        for file in output.into_files() {
            // The writer is gone only where it failed, and says why below.
            if texts.send(file?).is_err() {
                break;
            }
        }
        drop(texts);
        match writer.join() {
            Ok(written) => Ok(written?.finish()?),
            Err(panic) => std::panic::resume_unwind(panic),
        }
    })
}

fn documents(name: &str, text: &str) -> Result<Vec<Value>, BootstrapFailed> {
    let text_error = |message| BootstrapFailed::Text { path: name.to_owned(), message };
    api::yaml::documents(text).map_err(|e| {
        // A Secret's lines are not shown.
        let secret = text.contains("kind: Secret") || text.contains("\"Secret\"");
        text_error(if secret { "is not YAML or JSON".to_owned() } else { e.to_string() })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_read_side_by_side_and_told_of_in_their_order() {
        let folder = tempfile::tempdir().unwrap();
        let file = |i: usize| folder.path().join(format!("{i:03}.yaml"));
        for i in 0..(MOST_READERS * SHARE + 3) {
            std::fs::write(file(i), format!("kind: A\nn: {i}\n---\nkind: B\nn: {i}\n")).unwrap();
        }
        let paths = files::folder(folder.path()).unwrap();
        let read = read_all(&paths).unwrap();
        let wanted = (0..paths.len()).flat_map(|i| ["A", "B"].map(|kind| (kind, i)));
        let found =
            read.iter().map(|(_, o)| (o["kind"].as_str().unwrap(), o["n"].as_u64().unwrap() as usize));
        assert!(found.eq(wanted));
        assert_eq!(read[2].0, "001.yaml");
        for broken in [paths.len() - 1, paths.len() / 2, 5] {
            std::fs::write(file(broken), "a: [").unwrap();
            let error = read_all(&paths).unwrap_err().chain();
            assert!(error.starts_with(&format!("{broken:03}.yaml: ")), "{error}");
        }
    }
}
