//! Reads manifests for the commands that work without a cluster.
//!
//! What it is not: what the manifests mean.

use anyhow::{Context, bail};
use serde_json::Value;
use std::collections::BTreeMap;
use std::io::Read;
use std::path::{Path, PathBuf};

/// An object in an API server is at most 1.5 MiB, and a stream of many is far below this. The limit bounds what a wrong
/// path costs.
const MAX_BYTES: u64 = 256 * 1024 * 1024;
/// A template tree is five folders deep; anything deeper is taken for a loop of links.
const MAX_DEPTH: usize = 8;

/// All documents of files, folders (their YAML and JSON files, by name) and `-`, each with where it comes from.
///
/// # Errors
/// What cannot be read or is not YAML; the text names the file.
pub(crate) fn read(paths: &[PathBuf]) -> anyhow::Result<Vec<(String, Value)>> {
    let mut all = Vec::new();
    for path in paths {
        if path.as_os_str() == "-" {
            let mut text = String::new();
            std::io::stdin().take(MAX_BYTES).read_to_string(&mut text).context("standard input")?;
            documents(&mut all, "standard input", &text)?;
        } else if path.is_dir() {
            let entries =
                std::fs::read_dir(path).with_context(|| format!("cannot list {}", path.display()))?;
            let mut files: Vec<PathBuf> =
                entries.flatten().map(|e| e.path()).filter(|p| is_manifest(p)).collect();
            files.sort();
            if files.is_empty() {
                bail!("{}: no .yaml, .yml or .json file in it", path.display());
            }
            for file in files {
                documents(&mut all, &file.display().to_string(), &text(&file)?)?;
            }
        } else {
            documents(&mut all, &path.display().to_string(), &text(path)?)?;
        }
    }
    Ok(all)
}

fn is_manifest(path: &Path) -> bool {
    path.is_file() && path.extension().is_some_and(|e| e == "yaml" || e == "yml" || e == "json")
}

fn text(path: &Path) -> anyhow::Result<String> {
    let file = std::fs::File::open(path).with_context(|| format!("cannot read {}", path.display()))?;
    let mut text = String::new();
    file.take(MAX_BYTES)
        .read_to_string(&mut text)
        .with_context(|| format!("cannot read {}", path.display()))?;
    Ok(text)
}

fn documents(all: &mut Vec<(String, Value)>, origin: &str, text: &str) -> anyhow::Result<()> {
    let documents = api::formats::yaml::documents(text)
        .map_err(|e| anyhow::anyhow!("{origin}: is not YAML or JSON: {e}"))?;
    for document in documents {
        all.extend(
            api::formats::yaml::objects(document).into_iter().map(|object| (origin.to_owned(), object)),
        );
    }
    Ok(())
}

/// All files below a folder, by their path from it.
///
/// # Errors
/// What cannot be read; the text names the path.
pub(crate) fn tree(root: &Path) -> anyhow::Result<BTreeMap<String, String>> {
    let mut files = BTreeMap::new();
    let mut open = vec![(root.to_owned(), String::new(), 0)];
    while let Some((folder, prefix, depth)) = open.pop() {
        if depth > MAX_DEPTH {
            bail!("{}: folders are nested too deep for templates", folder.display());
        }
        let entries =
            std::fs::read_dir(&folder).with_context(|| format!("cannot list {}", folder.display()))?;
        for entry in entries {
            let path = entry.with_context(|| format!("cannot list {}", folder.display()))?.path();
            let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            let relative = if prefix.is_empty() { name } else { format!("{prefix}/{name}") };
            if path.is_dir() {
                open.push((path, relative, depth + 1));
            } else {
                files.insert(relative, text(&path)?);
            }
        }
    }
    Ok(files)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_folders_and_lists_are_read_and_errors_name_the_file() {
        let dir = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| std::fs::write(dir.path().join(name), text).unwrap();
        write("b.yaml", "kind: B\n---\nkind: C\n");
        write("a.json", "{\"kind\": \"List\", \"items\": [{\"kind\": \"A\"}]}");
        write("notes.txt", "not: [a manifest");
        let all = read(&[dir.path().to_owned()]).unwrap();
        let kinds: Vec<_> = all.iter().map(|(_, v)| v["kind"].as_str().unwrap().to_owned()).collect();
        assert_eq!(kinds, ["A", "B", "C"]);
        let error = read(&[dir.path().join("notes.txt")]).unwrap_err().to_string();
        assert!(error.contains("notes.txt"), "{error}");
        let error = format!("{:#}", read(&["/nowhere/x.yaml".into()]).unwrap_err());
        assert!(error.contains("/nowhere/x.yaml"), "{error}");
    }
}
