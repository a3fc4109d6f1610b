//! Renders a folder of manifests into another folder, to compare it with recorded cases: `--manifest-dir DIR --dest-dir
//! DIR --pull-secret FILE --templates DIR`.
//!
//! What it is not: the product's program, which wraps the same pure function.

use render::bootstrap::{self, Manifests};
use render::{TemplateSet, Versions};
use std::collections::BTreeMap;
use std::error::Error;
use std::fs;
use std::path::Path;

fn main() -> std::process::ExitCode {
    match run() {
        Ok(()) => std::process::ExitCode::SUCCESS,
        Err(e) => {
            eprintln!("error: {e}");
            std::process::ExitCode::FAILURE
        }
    }
}

fn run() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let flags: BTreeMap<&str, &str> = arguments
        .chunks(2)
        .filter_map(|pair| match pair {
            [flag, value] => Some((flag.as_str(), value.as_str())),
            _ => None,
        })
        .collect();
    let flag = |name: &str| flags.get(name).copied().ok_or_else(|| format!("{name} is required"));
    let mut names: Vec<_> = fs::read_dir(flag("--manifest-dir")?)?.collect::<Result<Vec<_>, _>>()?;
    names.sort_by_key(fs::DirEntry::file_name);
    let mut manifests = Vec::new();
    for entry in names.iter().filter(|e| e.path().is_file()) {
        let origin = entry.file_name().to_string_lossy().into_owned();
        let text = fs::read_to_string(entry.path())?;
        let documents = api::formats::yaml::documents(&text).map_err(|e| format!("{origin}: {e}"))?;
        manifests.extend(documents.into_iter().map(|d| (origin.clone(), d)));
    }
    let root = Path::new(flag("--templates")?);
    let mut templates = Vec::new();
    walk(root, root, &mut templates)?;
    let secret = api::formats::yaml::from_str(&fs::read_to_string(flag("--pull-secret")?)?)?;
    let templates = TemplateSet::from_map(templates);
    let manifests = Manifests::read(manifests)?;
    let out = bootstrap::plan(&manifests, &templates, Some(&secret), &Versions::unknown())?;
    for warning in &out.warnings {
        eprintln!("warning: {warning}");
    }
    for file in manifests.files().chain(out.into_files()) {
        let (path, text) = file?;
        let path = Path::new(flag("--dest-dir")?).join(path);
        path.parent().map(fs::create_dir_all).transpose()?;
        fs::write(path, text)?;
    }
    Ok(())
}

fn walk(root: &Path, dir: &Path, all: &mut Vec<(String, String)>) -> Result<(), Box<dyn Error>> {
    for entry in fs::read_dir(dir)? {
        let path = entry?.path();
        if path.is_dir() {
            walk(root, &path, all)?;
        } else if let Some(relative) = path.strip_prefix(root)?.to_str() {
            all.push((relative.to_owned(), fs::read_to_string(&path)?));
        }
    }
    Ok(())
}
