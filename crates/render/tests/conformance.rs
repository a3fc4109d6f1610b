//! Runs the recorded render cases through [`render::bootstrap::plan`]: manifests in, rendered MachineConfigs out,
//! compared with what the reference implementation wrote, names included.
//!
//! Not here: `check_render.py`, which compares any program's output by meaning. Here equal specs must be equal JSON.

#![allow(clippy::unwrap_used, clippy::panic, clippy::needless_pass_by_value, reason = "helpers of tests")]

#[path = "common/template_folder.rs"]
mod template_folder;

use render::bootstrap::{self, Manifests};
use render::{TemplateSet, Versions};
use serde_json::Value;
use std::collections::{BTreeMap, HashSet};
use std::path::{Path, PathBuf};

fn conformance() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/conformance")
}

fn templates() -> TemplateSet {
    template_folder::read(&conformance().join("common/templates"))
}

fn base() -> Vec<(String, Value)> {
    let mut all = Vec::new();
    for entry in std::fs::read_dir(conformance().join("common/base")).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_str().unwrap().to_owned();
        for document in api::formats::yaml::documents(&std::fs::read_to_string(&path).unwrap()).unwrap() {
            all.push((name.clone(), document));
        }
    }
    all.sort_by(|a, b| a.0.cmp(&b.0));
    all
}

fn id(v: &Value) -> (String, String) {
    let text = |p| v.pointer(p).and_then(Value::as_str).unwrap_or_default().to_owned();
    (text("/kind"), text("/metadata/name"))
}

/// The differences of one case; empty if it agrees.
fn differences(
    case: &Value,
    templates: &TemplateSet,
    base: &[(String, Value)],
    secret: &Value,
) -> Vec<String> {
    let own: Vec<Value> = case["manifests"].as_array().unwrap().clone();
    let taken: HashSet<_> = own.iter().map(id).collect();
    let mut manifests: Vec<_> = base.iter().filter(|(_, v)| !taken.contains(&id(v))).cloned().collect();
    manifests.extend(own.into_iter().enumerate().map(|(i, v)| (format!("m{i:03}.yaml"), v)));
    let result = Manifests::read(manifests)
        .and_then(|m| bootstrap::plan(&m, templates, Some(secret), &Versions::unknown()));
    let recorded_error = case.get("error").and_then(Value::as_str);
    let out = match (result, recorded_error) {
        (Err(e), Some(_)) if e.to_string().len() > 20 => return Vec::new(),
        (Err(e), _) => return vec![format!("refused: {e}")],
        (Ok(_), Some(e)) => return vec![format!("accepted, but recorded: {e}")],
        (Ok(out), None) => out,
    };
    let made: BTreeMap<String, _> = out
        .machine_configs
        .iter()
        .filter_map(|mc| {
            let name = mc.metadata.name.as_deref()?;
            let (pool, _) = name.strip_prefix("rendered-")?.rsplit_once('-')?;
            Some((pool.to_owned(), mc))
        })
        .collect();
    let mut found = Vec::new();
    for (pool, want) in case["rendered"].as_object().unwrap() {
        let Some(mc) = made.get(pool) else {
            found.push(format!("pool {pool}: nothing rendered"));
            continue;
        };
        let got = serde_json::to_value(&mc.spec).unwrap();
        if got != want["spec"] {
            found.push(format!("pool {pool}: spec differs: {}", first_difference("", &want["spec"], &got)));
        }
        if Some(mc.metadata.name.as_deref().unwrap()) != want["name"].as_str() {
            found.push(format!("pool {pool}: name: want {} got {:?}", want["name"], mc.metadata.name));
        }
        let annotations = serde_json::to_value(&mc.metadata.annotations).unwrap();
        if annotations != want["annotations"] {
            found.push(format!("pool {pool}: annotations: want {} got {annotations}", want["annotations"]));
        }
    }
    found
}

fn first_difference(path: &str, want: &Value, got: &Value) -> String {
    match (want, got) {
        (Value::Object(w), Value::Object(g)) => {
            for key in w.keys().chain(g.keys()) {
                if w.get(key) != g.get(key) {
                    let (w, g) = (w.get(key).unwrap_or(&Value::Null), g.get(key).unwrap_or(&Value::Null));
                    return first_difference(&format!("{path}.{key}"), w, g);
                }
            }
            String::new()
        }
        (Value::Array(w), Value::Array(g)) => {
            for i in 0..w.len().max(g.len()) {
                if w.get(i) != g.get(i) {
                    let (w, g) = (w.get(i).unwrap_or(&Value::Null), g.get(i).unwrap_or(&Value::Null));
                    return first_difference(&format!("{path}[{i}]"), w, g);
                }
            }
            String::new()
        }
        _ => format!("{path}: want {want:.300} got {got:.300}"),
    }
}

fn run(prefix: &str) {
    let (templates, base) = (templates(), base());
    let secret = std::fs::read_to_string(conformance().join("common/pull-secret")).unwrap();
    let secret: Value = api::formats::yaml::from_str(&secret).unwrap();
    let (mut count, mut failed) = (0, Vec::new());
    let mut files: Vec<_> =
        std::fs::read_dir(conformance().join("render")).unwrap().map(|e| e.unwrap().path()).collect();
    files.sort();
    for path in files {
        let name = path.file_stem().unwrap().to_str().unwrap().to_owned();
        if !name.starts_with(prefix) {
            continue;
        }
        let case: Value = serde_json::from_str(&std::fs::read_to_string(&path).unwrap()).unwrap();
        count += 1;
        let found = differences(&case, &templates, &base, &secret);
        failed.extend(found.into_iter().map(|d| format!("{name}: {d}")));
    }
    assert!(count > 0, "no case is named {prefix}*");
    assert!(failed.is_empty(), "{} differences in {count} cases:\n{}", failed.len(), failed.join("\n"));
}

#[test]
fn recorded_merges_render_equal_with_equal_names() {
    run("merge-");
}

#[test]
fn recorded_random_sets_render_equal_with_equal_names() {
    run("random-");
}

#[test]
fn recorded_generated_configs_render_equal_with_equal_names() {
    run("generated-");
}
