//! Reads a dump of a cluster: files and folders with their subfolders, as `oc adm must-gather`, `oc adm inspect` and
//! `kubectl get -o yaml` write them. YAML and JSON, one object, many, or lists, packed with gzip or not.
//!
//! A dump holds much that is no object at all, and files in it are often cut short. A file that cannot be read is noted and
//! skipped, unless it names a kind that the plan depends on: without that object the plan would be wrong, so there is none.
//!
//! What it is not: manifests that somebody wrote, which the program reads, or what the objects mean (see `rollout::Situation`).

use crate::objects::settings_kinds::FEATURE_GATE;
use rollout::Situation;
use serde_json::Value;
use std::io::Read;
use std::path::{Path, PathBuf};

/// A file with all pods of a large cluster is a tenth of this. The limit bounds what a wrong path costs, and the size that a
/// packed file unpacks to.
const MAX_BYTES: u64 = 1024 * 1024 * 1024;
/// A must-gather dump is a dozen folders deep; anything deeper is taken for a loop of links.
const MAX_DEPTH: usize = 24;
/// How many archives a note names before it counts the rest.
const NAMED: usize = 5;
/// What was read.
#[derive(Debug, Default)]
pub struct Dump {
    /// Each object with the file that it is from.
    pub objects: Vec<(String, Value)>,
    /// What was skipped, and why.
    pub notes: Vec<String>,
}

/// Why a dump cannot be read. The text names the file.
#[derive(Debug, thiserror::Error)]
pub enum DumpError {
    /// A file cannot be read, or is cut short.
    #[error("cannot read {}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// A folder cannot be read.
    #[error("cannot list {}", path.display())]
    List {
        /// The folder.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// An archive was named.
    #[error("{0}: is an archive; unpack it and name the folder: tar -xf {0}", path.display())]
    Archive {
        /// The file.
        path: PathBuf,
    },
    /// Folders within folders without an end.
    #[error("{}: folders are nested too deep; is there a link that leads back?", path.display())]
    TooDeep {
        /// The folder.
        path: PathBuf,
    },
    /// More than a file with all objects of a large cluster has.
    #[error("{}: is larger than 1 GiB", path.display())]
    TooLarge {
        /// The file.
        path: PathBuf,
    },
    /// It is no text.
    #[error("{}: is not UTF-8 text", path.display())]
    NotText {
        /// The file.
        path: PathBuf,
    },
    /// It is text of another sort. The values in it are not repeated.
    #[error("{}: is not YAML or JSON: {why}", path.display())]
    NotObjects {
        /// The file.
        path: PathBuf,
        /// What is wrong with it, and where.
        why: String,
    },
    /// The plan would be wrong without what this file holds.
    #[error("{cause}\nit names the kind {kind}, which the plan depends on: repair the file, or move it away")]
    Matters {
        /// The kind.
        kind: String,
        /// Why the file cannot be read, with its causes.
        cause: String,
    },
    /// There is no file that may hold objects.
    #[error("no .yaml, .yml or .json file was found at the path that --from names{notes}")]
    Nothing {
        /// What was skipped.
        notes: String,
    },
}

/// Whether the plan depends on objects of this kind. Lists of them count as well.
fn matters(kind: &str) -> bool {
    // Which streams there are depends on the one, and what changes cost on the other.
    let of_others = [FEATURE_GATE.1, "MachineConfiguration"];
    of_others.contains(&kind) || Situation::kinds().any(|known| known == kind)
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Sort {
    Plain,
    Gzip,
    Archive,
    Other,
}

impl Sort {
    fn of(path: &Path) -> Self {
        let name = path.file_name().unwrap_or_default().to_string_lossy().to_lowercase();
        let ends = |all: &[&str]| all.iter().any(|e| name.ends_with(e));
        if ends(&[".tar", ".tgz", ".tar.gz", ".tar.xz", ".tar.zst", ".zip"]) {
            Self::Archive
        } else if ends(&[".yaml", ".yml", ".json"]) {
            Self::Plain
        } else if ends(&[".yaml.gz", ".yml.gz", ".json.gz"]) {
            Self::Gzip
        } else {
            Self::Other
        }
    }
}

impl Dump {
    /// Reads all files at these paths, and below them.
    ///
    /// # Errors
    /// A path that does not exist, or a file that cannot be read although it was named or holds something that the plan depends
    /// on.
    pub fn read(paths: &[PathBuf]) -> Result<Self, DumpError> {
        let (mut dump, mut archives, mut any) = (Self::default(), vec![], false);
        for path in paths {
            if !path.is_dir() {
                any = true;
                if Sort::of(path) == Sort::Archive {
                    return Err(DumpError::Archive { path: path.clone() });
                }
                let gzip = Sort::of(path) == Sort::Gzip || path.extension().is_some_and(|e| e == "gz");
                let (bytes, whole) = bytes(path, gzip)?;
                whole?;
                objects(&mut dump.objects, path, &bytes)?;
                continue;
            }
            let mut files = vec![];
            below(path, 0, &mut files, &mut dump.notes)?;
            for file in files {
                let sort = Sort::of(&file);
                any |= matches!(sort, Sort::Plain | Sort::Gzip);
                match sort {
                    Sort::Other => {}
                    Sort::Archive => archives.push(file),
                    Sort::Plain | Sort::Gzip => dump.take(&file, sort == Sort::Gzip)?,
                }
            }
        }
        if !archives.is_empty() {
            let named = api::formats::text::names(archives.iter().map(|p| p.display()), NAMED);
            dump.notes.push(format!("archives were skipped: {named}"));
        }
        if !any {
            let notes = dump.notes.iter().map(|n| format!("; {n}")).collect();
            return Err(DumpError::Nothing { notes });
        }
        Ok(dump)
    }

    /// Reads one file of a folder; a file that is no object is skipped with a note.
    fn take(&mut self, path: &Path, gzip: bool) -> Result<(), DumpError> {
        let (bytes, whole) = bytes(path, gzip)?;
        let read = whole.and_then(|()| objects(&mut self.objects, path, &bytes));
        let Err(error) = read else { return Ok(()) };
        if let Some(kind) = kinds(&String::from_utf8_lossy(&bytes)).find(|kind| matters(kind)) {
            return Err(DumpError::Matters {
                kind: kind.to_owned(),
                cause: api::formats::text::chain(&error),
            });
        }
        self.notes.push(format!("{}: skipped, because it holds no objects in YAML or JSON", path.display()));
        Ok(())
    }
}

fn below(
    folder: &Path,
    depth: usize,
    files: &mut Vec<PathBuf>,
    notes: &mut Vec<String>,
) -> Result<(), DumpError> {
    if depth > MAX_DEPTH {
        return Err(DumpError::TooDeep { path: folder.to_owned() });
    }
    let cannot = |source| DumpError::List { path: folder.to_owned(), source };
    let entries: Result<Vec<_>, _> = std::fs::read_dir(folder).map_err(cannot)?.collect();
    let mut paths: Vec<PathBuf> = entries.map_err(cannot)?.into_iter().map(|e| e.path()).collect();
    paths.sort();
    for path in paths {
        if path.is_dir() {
            below(&path, depth + 1, files, notes)?;
        } else if path.is_file() {
            files.push(path);
        } else if matches!(Sort::of(&path), Sort::Plain | Sort::Gzip) {
            notes.push(format!("{}: skipped, because it is a dangling link or not a file", path.display()));
        }
    }
    Ok(())
}

/// The contents of a file, and whether they are complete: a packed file may be cut short.
fn bytes(path: &Path, gzip: bool) -> Result<(Vec<u8>, Result<(), DumpError>), DumpError> {
    let cannot = |source| DumpError::Read { path: path.to_owned(), source };
    let file = std::fs::File::open(path).map_err(cannot)?;
    let mut bytes = vec![];
    let read = match gzip {
        false => file.take(MAX_BYTES + 1).read_to_end(&mut bytes),
        true => flate2::read::MultiGzDecoder::new(file).take(MAX_BYTES + 1).read_to_end(&mut bytes),
    };
    match read {
        Ok(_) if bytes.len() as u64 > MAX_BYTES => Err(DumpError::TooLarge { path: path.to_owned() }),
        Ok(_) => Ok((bytes, Ok(()))),
        Err(error) if gzip => Ok((bytes, Err(cannot(error)))),
        Err(error) => Err(cannot(error)),
    }
}

/// The objects of one file: all of them, or none where a part cannot be read.
fn objects(all: &mut Vec<(String, Value)>, path: &Path, bytes: &[u8]) -> Result<(), DumpError> {
    let origin = path.display().to_string();
    let owned = || path.to_owned();
    let text = std::str::from_utf8(bytes).map_err(|_| DumpError::NotText { path: owned() })?;
    let text = text.trim_start_matches('\u{feff}');
    let documents = match json(text) {
        Some(documents) => documents,
        None => api::formats::yaml::documents(text)
            .map_err(|error| DumpError::NotObjects { path: owned(), why: error.to_string() })?,
    };
    let mut found = vec![];
    documents.into_iter().for_each(|document| unfold(document, None, &mut found));
    all.extend(found.into_iter().map(|object| (origin.clone(), object)));
    Ok(())
}

/// One JSON value or several, one after the other; `None`: it is something else.
fn json(text: &str) -> Option<Vec<Value>> {
    if !text.trim_start().starts_with(['{', '[']) {
        return None;
    }
    serde_json::Deserializer::from_str(text).into_iter().collect::<Result<_, _>>().ok()
}

/// Objects out of lists and arrays. Items of a list that the API server wrote do not say what they are: the list does.
fn unfold(value: Value, list: Option<(&str, &str)>, found: &mut Vec<Value>) {
    match value {
        Value::Array(items) => items.into_iter().for_each(|item| unfold(item, list, found)),
        Value::Object(mut object) => {
            let text = |object: &serde_json::Map<String, Value>, key: &str| {
                object.get(key).and_then(Value::as_str).unwrap_or_default().to_owned()
            };
            let (version, kind) = (text(&object, "apiVersion"), text(&object, "kind"));
            if let Some(of) = kind.strip_suffix("List")
                && let Some(Value::Array(items)) = object.get_mut("items").map(Value::take)
            {
                let list = (!of.is_empty()).then_some((version.as_str(), of));
                items.into_iter().for_each(|item| unfold(item, list, found));
                return;
            }
            if let (true, Some((version, of))) = (kind.is_empty(), list) {
                object.insert("apiVersion".to_owned(), version.into());
                object.insert("kind".to_owned(), of.into());
            }
            found.push(Value::Object(object));
        }
        // A line of a log, or a number: no object.
        _ => {}
    }
}

/// The value of each `kind` in a text that cannot be parsed; for a list, the kind of its items.
fn kinds(text: &str) -> impl Iterator<Item = &str> {
    text.split("kind").skip(1).filter_map(|rest| {
        let word = rest.trim_start_matches(['"', ':', ' ', '\'']);
        let end = word.find(|c: char| !c.is_ascii_alphanumeric()).unwrap_or(word.len());
        let word = word.get(..end)?;
        Some(word.strip_suffix("List").filter(|w| !w.is_empty()).unwrap_or(word))
    })
}

#[cfg(test)]
mod tests;
