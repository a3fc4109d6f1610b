//! `bootstrap`: renders a folder of manifests before there is a cluster. This file reads and writes the files; the
//! rules are in [`render::bootstrap::plan`].

use crate::io::files::{self, FileError};
use client::chain;
use render::bootstrap::{BootstrapError, Manifests, plan};
use render::{TemplateSet, Versions};
use serde_json::Value;
use std::num::NonZero;
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;
use std::thread::ScopedJoinHandle;

/// The folders and files of one bootstrap.
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
    /// A file that cannot be read or written.
    #[error(transparent)]
    File(#[from] FileError),
    /// Text that is not YAML or JSON.
    #[error("{path}: {message}")]
    Text {
        /// The file.
        path: String,
        /// What is wrong.
        message: String,
    },
    /// Manifests that cannot be rendered.
    #[error("cannot render the manifests")]
    Plan(#[from] BootstrapError),
}

impl BootstrapFailed {
    /// The error and its causes in one line.
    pub fn chain(&self) -> String {
        chain(self)
    }
}

/// How many texts may wait for the disk.
const WAITING: usize = 16;

/// Renders the manifests and writes the result; returns the warnings.
///
/// Manifests that are written unchanged go to disk while the rest is rendered, and rendered objects go to disk while
/// more are rendered. New folders and files get their names only when all of them are written.
///
/// # Errors
/// See [`BootstrapFailed`]; every one names the file or the object.
pub fn run(args: &BootstrapArgs) -> Result<Vec<String>, BootstrapFailed> {
    let BootstrapArgs { manifest_dir, dest_dir, pull_secret, templates } = args;
    let others = || -> Result<_, BootstrapFailed> {
        let text = files::read(pull_secret)?;
        // The library's message would show lines of the secret.
        let secret = api::formats::yaml::from_str::<Value>(&text).map_err(|_| BootstrapFailed::Text {
            path: pull_secret.display().to_string(),
            message: "is not YAML or JSON".to_owned(),
        })?;
        Ok((secret, TemplateSet::from_map(files::tree(templates)?)))
    };
    let (manifests, others) = read_all(&files::folder(manifest_dir)?, others)?;
    let (secret, set) = others?;
    let (texts, made) = mpsc::sync_channel::<(String, String)>(WAITING);
    std::thread::scope(|scope| {
        let given = &manifests;
        let writer = scope.spawn(move || -> Result<files::Output<'_>, BootstrapFailed> {
            let mut dest = files::Output::new(dest_dir);
            for file in given.files() {
                let (path, text) = file?;
                dest.write(&path, &text)?;
            }
            made.iter().try_for_each(|(path, text)| dest.write(&path, &text))?;
            Ok(dest)
        });
        let mut output = plan(&manifests, &set, Some(&secret), &Versions::of_this_build())?;
        let warnings = std::mem::take(&mut output.warnings);
        for file in output.into_files() {
            // The receiver is gone only if the writer failed; the writer reports why below.
            if texts.send(file?).is_err() {
                break;
            }
        }
        drop(texts);
        joined(writer)?.finish()?;
        Ok(warnings.iter().map(ToString::to_string).collect())
    })
}

/// How many files a thread takes at once: enough that taking them costs nothing compared with reading them.
const SHARE: usize = 8;
/// From this many shares on, it is worth asking how many cores there are: the answer costs ten system calls.
const MANY: usize = 16;
/// The most threads that read. More would only wait for the disk and for memory.
const MOST_READERS: usize = 4;

/// Reads the objects of all files, in their order, and runs `beside` meanwhile. Reading YAML is a third of the work and
/// files are independent, so each thread takes the next few files until none are left. The error is that of the first
/// file, in order, that cannot be read.
fn read_all<T: Send>(
    paths: &[PathBuf],
    beside: impl FnOnce() -> T + Send,
) -> Result<(Manifests, T), BootstrapFailed> {
    let shares: Vec<&[PathBuf]> = paths.chunks(SHARE).collect();
    let cores = || std::thread::available_parallelism().map_or(2, NonZero::get);
    let readers = if shares.len() < MANY { 2 } else { cores().clamp(2, MOST_READERS) };
    let next = AtomicUsize::new(0);
    let read = || {
        let take = || {
            let i = next.fetch_add(1, Ordering::Relaxed);
            shares.get(i).map(|share| (i, read_share(share)))
        };
        std::iter::from_fn(take).collect::<Vec<_>>()
    };
    let (mut all, beside) = std::thread::scope(|scope| {
        let first = scope.spawn(|| (beside(), read()));
        let others: Vec<_> = (2..readers).map(|_| scope.spawn(read)).collect();
        let mut all = read();
        for other in others {
            all.extend(joined(other));
        }
        let (beside, more) = joined(first);
        all.extend(more);
        (all, beside)
    });
    all.sort_by_key(|(i, _)| *i);
    let mut manifests = Manifests::default();
    for (_, more) in all {
        manifests.append(more?);
    }
    Ok((manifests, beside))
}

/// What a thread returned. Its panic becomes ours.
fn joined<T>(thread: ScopedJoinHandle<'_, T>) -> T {
    thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

fn read_share(paths: &[PathBuf]) -> Result<Manifests, BootstrapFailed> {
    let mut manifests = Manifests::default();
    for path in paths {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        for document in documents(&name, &files::read(path)?)? {
            api::formats::yaml::objects(document)
                .into_iter()
                .try_for_each(|object| manifests.add(&name, object))?;
        }
    }
    Ok(manifests)
}

fn documents(name: &str, text: &str) -> Result<Vec<Value>, BootstrapFailed> {
    let text_error = |message| BootstrapFailed::Text { path: name.to_owned(), message };
    api::formats::yaml::documents(text).map_err(|e| text_error(format!("is not YAML or JSON: {e}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn machine_config(name: &str) -> String {
        format!("apiVersion: {}/v1\nkind: MachineConfig\nmetadata: {{name: {name}}}\n", api::names::GROUP)
    }

    #[test]
    fn files_are_read_side_by_side_and_told_of_in_their_order() {
        let folder = tempfile::tempdir().unwrap();
        let file = |i: usize| folder.path().join(format!("{i:03}.yaml"));
        for i in 0..(MANY * SHARE + 3) {
            let name = |letter| machine_config(&format!("m{i:03}{letter}"));
            std::fs::write(file(i), format!("{}---\n{}", name("a"), name("b"))).unwrap();
        }
        let paths = files::folder(folder.path()).unwrap();
        let (read, beside) = read_all(&paths, || 7).unwrap();
        assert_eq!(beside, 7);
        let wanted =
            (0..paths.len()).flat_map(|i| ["a", "b"].map(|l| format!("machine-configs/m{i:03}{l}.yaml")));
        assert!(read.files().map(|f| f.unwrap().0).eq(wanted));
        for broken in [paths.len() - 1, paths.len() / 2, 5] {
            std::fs::write(file(broken), "a: [").unwrap();
            let error = read_all(&paths, || ()).unwrap_err().chain();
            assert!(error.starts_with(&format!("{broken:03}.yaml: ")), "{error}");
        }
    }

    #[test]
    fn what_cannot_be_rendered_leaves_everything_as_it_was() {
        let dir = tempfile::tempdir().unwrap();
        let path = |name: &str| dir.path().join(name);
        for folder in ["in", "templates", "old/machine-configs"] {
            std::fs::create_dir_all(path(folder)).unwrap();
        }
        std::fs::write(path("in/a.yaml"), machine_config("a")).unwrap();
        std::fs::write(path("old/machine-configs/a.yaml"), "old").unwrap();
        std::fs::write(
            path("secret"),
            "type: kubernetes.io/dockerconfigjson\nstringData: {.dockerconfigjson: '{}'}\n",
        )
        .unwrap();
        let run = |dest: &str| {
            let args = BootstrapArgs {
                manifest_dir: path("in"),
                dest_dir: path(dest),
                pull_secret: path("secret"),
                templates: path("templates"),
            };
            run(&args).map_err(|e| e.chain())
        };
        for dest in ["old", "new"] {
            let error = run(dest).unwrap_err();
            assert!(error.contains("there is no ControllerConfig"), "{error}");
        }
        std::fs::write(path("in/b.yaml"), machine_config("../b")).unwrap();
        let error = run("new").unwrap_err();
        assert!(error.contains("b.yaml: MachineConfig ../b: metadata.name: "), "{error}");
        std::fs::remove_file(path("in/b.yaml")).unwrap();
        assert!(!path("new").exists());
        let left: Vec<_> = files::folder(&path("old/machine-configs")).unwrap();
        assert_eq!(left, [path("old/machine-configs/a.yaml")]);
        assert_eq!(std::fs::read_to_string(&left[0]).unwrap(), "old");
        // Of several objects with one name the last one is used, both in an existing folder and in a new one.
        let facts = format!(
            "apiVersion: {}/v1\nkind: ControllerConfig\nmetadata: {{name: machine-config-controller}}\n",
            api::names::GROUP
        );
        std::fs::write(
            path("in/z.yaml"),
            format!("{facts}---\n{}spec: {{fips: true}}\n", machine_config("a")),
        )
        .unwrap();
        for dest in ["old", "new"] {
            run(dest).unwrap();
            let text = std::fs::read_to_string(path(dest).join("machine-configs/a.yaml")).unwrap();
            assert!(text.contains("fips: true"), "{text}");
            assert_eq!(std::fs::read_dir(path(dest).join("machine-configs")).unwrap().count(), 1, "{dest}");
            assert_eq!(std::fs::read_dir(path(dest)).unwrap().count(), 2, "{dest}");
        }
    }
}
