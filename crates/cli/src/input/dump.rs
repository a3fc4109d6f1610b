//! Reads a dump of a cluster: files and folders with their subfolders, as `oc adm must-gather`, `oc adm inspect` and
//! `kubectl get -o yaml` write them. YAML and JSON, one object, many, or lists, packed with gzip or not.
//!
//! A dump holds much that is no object at all, and files in it are often cut short. A file that cannot be read is noted and
//! skipped, unless it names a kind that the plan depends on: without that object the plan would be wrong, so there is none.
//!
//! What it is not: manifests that somebody wrote (`manifests.rs`), or what the objects mean.

use anyhow::{Context, bail};
use api::definition::Defined as _;
use api::v1alpha1::RolloutPolicy;
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
/// Kinds that the plan depends on. Lists of them count as well.
const MATTER: [&str; 10] = [
    "MachineConfigPool",
    "MachineConfig",
    "ControllerConfig",
    "MachineOSConfig",
    "MachineOSBuild",
    RolloutPolicy::DEFINITION.kind,
    "Scheduler",
    "PodDisruptionBudget",
    "Node",
    "Pod",
];

/// What was read.
#[derive(Debug, Default)]
pub(crate) struct Dump {
    /// Each object with the file that it is from.
    pub(crate) objects: Vec<(String, Value)>,
    /// What was skipped, and why.
    pub(crate) notes: Vec<String>,
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

/// Reads all of it.
///
/// # Errors
/// A path that does not exist, or a file that cannot be read although it was named or holds something that the plan depends
/// on. The text names it.
pub(crate) fn read(paths: &[PathBuf]) -> anyhow::Result<Dump> {
    let (mut dump, mut archives, mut any) = (Dump::default(), vec![], false);
    for path in paths {
        if !path.is_dir() {
            any = true;
            if Sort::of(path) == Sort::Archive {
                bail!("{0}: is an archive; unpack it and name the folder: tar -xf {0}", path.display());
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
                Sort::Plain | Sort::Gzip => from_folder(&mut dump, &file, sort == Sort::Gzip)?,
            }
        }
    }
    if !archives.is_empty() {
        let named = api::text::names(archives.iter().map(|p| p.display()), NAMED);
        dump.notes.push(format!("archives were skipped: {named}"));
    }
    if !any {
        let notes: String = dump.notes.iter().map(|n| format!("; {n}")).collect();
        bail!("no .yaml, .yml or .json file was found at the path that --from names{notes}");
    }
    Ok(dump)
}

fn below(
    folder: &Path,
    depth: usize,
    files: &mut Vec<PathBuf>,
    notes: &mut Vec<String>,
) -> anyhow::Result<()> {
    if depth > MAX_DEPTH {
        bail!("{}: folders are nested too deep; is there a link that leads back?", folder.display());
    }
    let cannot = || format!("cannot list {}", folder.display());
    let entries: Result<Vec<_>, _> = std::fs::read_dir(folder).with_context(cannot)?.collect();
    let mut paths: Vec<PathBuf> = entries.with_context(cannot)?.into_iter().map(|e| e.path()).collect();
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

/// Reads one file of a folder; a file that is no object is skipped with a note.
fn from_folder(dump: &mut Dump, path: &Path, gzip: bool) -> anyhow::Result<()> {
    let (bytes, whole) = bytes(path, gzip)?;
    let Err(error) = whole.and_then(|()| objects(&mut dump.objects, path, &bytes)) else { return Ok(()) };
    if let Some(kind) = kinds(&String::from_utf8_lossy(&bytes)).find(|k| MATTER.contains(k)) {
        bail!(
            "{error:#}\nit names the kind {kind}, which the plan depends on: repair the file, or move it away"
        );
    }
    dump.notes.push(format!("{}: skipped, because it holds no objects in YAML or JSON", path.display()));
    Ok(())
}

/// The contents of a file, and whether they are complete: a packed file may be cut short.
fn bytes(path: &Path, gzip: bool) -> anyhow::Result<(Vec<u8>, anyhow::Result<()>)> {
    let cannot = || format!("cannot read {}", path.display());
    let file = std::fs::File::open(path).with_context(cannot)?;
    let mut bytes = vec![];
    let read = match gzip {
        false => file.take(MAX_BYTES + 1).read_to_end(&mut bytes),
        true => flate2::read::MultiGzDecoder::new(file).take(MAX_BYTES + 1).read_to_end(&mut bytes),
    };
    match read {
        Ok(_) if bytes.len() as u64 > MAX_BYTES => bail!("{}: is larger than 1 GiB", path.display()),
        Ok(_) => Ok((bytes, Ok(()))),
        Err(error) if gzip => Ok((bytes, Err(error).with_context(cannot))),
        Err(error) => Err(error).with_context(cannot),
    }
}

/// The objects of one file: all of them, or none where a part cannot be read.
fn objects(all: &mut Vec<(String, Value)>, path: &Path, bytes: &[u8]) -> anyhow::Result<()> {
    let origin = path.display().to_string();
    let text = std::str::from_utf8(bytes).map_err(|_| anyhow::anyhow!("{origin}: is not UTF-8 text"))?;
    let text = text.trim_start_matches('\u{feff}');
    let documents = match json(text) {
        Some(documents) => documents,
        None => api::yaml::documents(text)
            .map_err(|error| anyhow::anyhow!("{origin}: is not YAML or JSON: {error}"))?,
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
mod tests {
    use super::*;
    use std::io::Write;

    fn folder(files: &[(&str, &[u8])]) -> tempfile::TempDir {
        let dir = tempfile::tempdir().unwrap();
        for (name, bytes) in files {
            let path = dir.path().join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, bytes).unwrap();
        }
        dir
    }

    fn gzip(text: &str) -> Vec<u8> {
        let mut out = flate2::write::GzEncoder::new(vec![], flate2::Compression::fast());
        out.write_all(text.as_bytes()).unwrap();
        out.finish().unwrap()
    }

    fn names(dump: &Dump) -> Vec<String> {
        let name = |v: &Value| v["metadata"]["name"].as_str().unwrap_or("?").to_owned();
        dump.objects
            .iter()
            .map(|(_, v)| format!("{} {}", v["kind"].as_str().unwrap_or("?"), name(v)))
            .collect()
    }

    #[test]
    fn a_dump_is_read_in_every_shape_that_tools_write() {
        let packed = gzip("kind: Pod\nmetadata: {name: packed}\n");
        let dir = folder(&[
            ("a/core/nodes.yaml", b"---\napiVersion: v1\nkind: NodeList\nitems:\n- metadata: {name: listed}\n"),
            ("a/core/pods.json", br#"{"kind":"List","items":[{"kind":"PodList","apiVersion":"v1","items":[{"metadata":{"name":"deep"}}]}]}"#),
            ("b/lines.json", b"{\"kind\":\"Pod\",\"metadata\":{\"name\":\"one\"}}\n{\"kind\":\"Pod\",\"metadata\":{\"name\":\"two\"}}\n"),
            ("b/array.json", br#"[{"kind":"Event","metadata":{"name":"e"}}, 5, "log"]"#),
            ("b/many.yaml", b"\xef\xbb\xbfkind: Node\nmetadata: {name: first}\n---\n# nothing\n---\nkind: Event\n---\nkind: Node\nmetadata: {name: second}\n"),
            ("c/packed.yaml.gz", &packed),
            ("c/broken.yaml", b"a: [1\nlog line: {"),
            ("c/binary.json", b"\xff\xfe\x00"),
            ("c/cut.json.gz", &packed[..10]),
            ("c/insights.tar.gz", b"x"),
            ("c/kubelet.log", b"kind: Node\n"),
        ]);
        std::os::unix::fs::symlink("/nowhere", dir.path().join("c/link.yaml")).unwrap();
        let dump = read(&[dir.path().to_owned()]).unwrap();
        let want = [
            "Node listed",
            "Pod deep",
            "Event e",
            "Pod one",
            "Pod two",
            "Node first",
            "Event ?",
            "Node second",
            "Pod packed",
        ];
        assert_eq!(names(&dump), want);
        let notes = dump.notes.join("\n");
        for word in [
            "link.yaml: skipped",
            "broken.yaml: skipped",
            "binary.json: skipped",
            "cut.json.gz: skipped",
            "insights.tar.gz",
        ] {
            assert!(notes.contains(word), "{word} in {notes}");
        }
        assert_eq!(dump.notes.len(), 5, "{notes}");
        assert!(dump.objects[0].0.ends_with("a/core/nodes.yaml"));
    }

    #[test]
    fn what_matters_and_cannot_be_read_is_an_error_that_names_it() {
        for (name, text) in [
            ("nodes.yaml", "apiVersion: v1\nkind: NodeList\nitems:\n- metadata: {name: [\n"),
            ("pool.json", "{\"kind\": \"MachineConfigPool\", \"metadata\": {"),
        ] {
            let dir = folder(&[(name, text.as_bytes()), ("ok.yaml", b"kind: Event\n")]);
            let error = read(&[dir.path().to_owned()]).unwrap_err().to_string();
            assert!(error.contains(name) && error.contains("depends on"), "{error}");
        }
        // A file that is named as an argument must be readable, whatever it holds; an archive must be unpacked first.
        let dir = folder(&[
            ("x.yaml", b"a: [1"),
            ("dump.tar.gz", b""),
            ("s.yaml", b"kind: Secret\ndata: {a: \"hunter2\n"),
        ]);
        for (name, word) in [("x.yaml", "x.yaml"), ("dump.tar.gz", "unpack"), ("nowhere.yaml", "cannot read")]
        {
            let error = format!("{:#}", read(&[dir.path().join(name)]).unwrap_err());
            assert!(error.contains(word), "{error}");
        }
        let error = format!("{:#}", read(&[dir.path().join("s.yaml")]).unwrap_err());
        assert!(!error.contains("hunter2"), "{error}");
        let empty = folder(&[("notes.txt", b"kind: Node")]);
        let error = read(&[empty.path().to_owned()]).unwrap_err().to_string();
        assert!(error.contains("no .yaml"), "{error}");
    }

    #[test]
    fn a_large_cluster_is_read() {
        let node = |i: usize| {
            let labels: Vec<String> = (0..116).map(|l| format!("l{l}: x")).collect();
            format!("kind: Node\nmetadata:\n  name: n{i}\n  labels: {{{}}}\n", labels.join(", "))
        };
        let many: Vec<String> = (0..1_100).map(node).collect();
        let dir = folder(&[("nodes.yaml", many.join("---\n").as_bytes())]);
        assert_eq!(read(&[dir.path().to_owned()]).unwrap().objects.len(), 1_100);
    }
}
