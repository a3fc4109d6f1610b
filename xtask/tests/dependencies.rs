//! Dependencies: each declared dependency is used, and a library in two versions has a reason in `deny.toml`.
//!
//! Not here: `cargo deny` and `cargo machete`, which check more, and which `cargo xtask test` runs where they are
//! installed. The two rules here are checked on every computer.
#![allow(clippy::unwrap_used, reason = "helpers of tests")]

use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;

/// The platform of the product: dependencies for other platforms are not considered.
const TARGET: &str = "x86_64-unknown-linux-gnu";

/// Libraries whose name in code is not the name of the package.
const RENAMED: [(&str, &str); 1] = [("md-5", "md5")];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

fn cargo(args: &[&str]) -> String {
    let output = Command::new(env!("CARGO")).args(args).current_dir(root()).output().unwrap();
    assert!(output.status.success(), "cargo {args:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

fn table(path: &str) -> toml::Table {
    std::fs::read_to_string(root().join(path)).unwrap().parse().unwrap()
}

/// Whether the code uses the library: `name::` or `use name`, not at the end of another name.
fn names(code: &str, library: &str) -> bool {
    let is_word = |c: char| c.is_alphanumeric() || c == '_';
    code.match_indices(library).any(|(at, _)| {
        let (before, after) = (&code[..at], &code[at + library.len()..]);
        // `::name` is a library for certain; `other::name` is not.
        let before = before.strip_suffix("::").filter(|b| !b.ends_with(is_word)).unwrap_or(before);
        let begins = !before.ends_with(is_word) && !before.ends_with("::");
        let used = before.ends_with("use ") && !after.starts_with(is_word);
        begins && (after.starts_with("::") || used)
    })
}

/// All Rust code below a folder.
fn code(folder: &Path) -> String {
    let Ok(entries) = std::fs::read_dir(folder) else { return String::new() };
    let paths = entries.map(|entry| entry.unwrap().path());
    paths
        .map(|path| match path.extension() {
            _ if path.is_dir() => code(&path),
            Some(extension) if extension == "rs" => std::fs::read_to_string(&path).unwrap(),
            _ => String::new(),
        })
        .collect()
}

#[test]
fn every_dependency_is_used() {
    let metadata: Value =
        serde_json::from_str(&cargo(&["metadata", "--no-deps", "--format-version", "1"])).unwrap();
    let (mut unused, mut declared, mut looked_at) = (vec![], BTreeSet::new(), 0);
    for package in metadata["packages"].as_array().unwrap() {
        let folder = Path::new(package["manifest_path"].as_str().unwrap()).parent().unwrap();
        let product = code(&folder.join("src"));
        let tests = ["tests", "examples", "benches"].map(|name| code(&folder.join(name))).concat();
        let build = std::fs::read_to_string(folder.join("build.rs")).unwrap_or_default();
        // cargo-machete honours the same list of exceptions.
        let excused = package.pointer("/metadata/cargo-machete/ignored").and_then(Value::as_array);
        for dependency in package["dependencies"].as_array().unwrap() {
            let name = dependency["name"].as_str().unwrap();
            declared.insert(name.to_owned());
            if excused.is_some_and(|names| names.iter().any(|excused| excused == name)) {
                continue;
            }
            let library = dependency["rename"].as_str().unwrap_or(name);
            let library =
                RENAMED.iter().find(|(package, _)| *package == library).map_or(library, |(_, name)| name);
            let library = library.replace('-', "_");
            let is_used = match dependency["kind"].as_str() {
                Some("build") => names(&build, &library),
                Some("dev") => names(&product, &library) || names(&tests, &library),
                _ => names(&product, &library),
            };
            looked_at += 1;
            if !is_used {
                unused.push(format!("{}: {name}", package["name"]));
            }
        }
    }
    assert!(looked_at > 100, "{looked_at} dependencies are not all");
    assert_eq!(unused, Vec::<String>::new(), "nobody uses them: take them out of the crate's Cargo.toml");

    let workspace = table("Cargo.toml");
    let shared = workspace["workspace"]["dependencies"].as_table().unwrap();
    let fuzz = table("fuzz/Cargo.toml");
    let stale: Vec<&String> = shared
        .keys()
        .filter(|name| {
            !declared.contains(*name) && !fuzz["dependencies"].as_table().unwrap().contains_key(*name)
        })
        .collect();
    assert_eq!(stale, Vec::<&String>::new(), "no crate takes them from the workspace's Cargo.toml");
}

#[test]
fn a_library_in_two_versions_has_a_reason() {
    let deny = table("deny.toml");
    let bans = deny["bans"].as_table().unwrap();
    assert_eq!(bans["multiple-versions"].as_str(), Some("deny"));
    let mut excused: BTreeMap<(String, String), bool> = BTreeMap::new();
    for entry in bans["skip"].as_array().unwrap() {
        let (name, version) = entry["crate"].as_str().unwrap().split_once('@').unwrap();
        assert!(entry["reason"].as_str().is_some_and(|r| r.len() > 10), "{name}@{version}: why?");
        excused.insert((name.to_owned(), version.to_owned()), false);
    }

    let tree = cargo(&[
        "tree",
        "--workspace",
        "--locked",
        "--target",
        TARGET,
        "-e",
        "normal,build,dev",
        "--prefix",
        "none",
        "-f",
        "{p}",
    ]);
    let mut versions: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for line in tree.lines() {
        let mut words = line.split(' ');
        if let (Some(name), Some(version)) = (words.next(), words.next()) {
            versions.entry(name).or_default().insert(version.trim_start_matches('v'));
        }
    }
    assert!(versions.len() > 200, "{} packages are not all", versions.len());
    for (name, mut found) in versions.into_iter().filter(|(_, found)| found.len() > 1) {
        found.retain(|found| {
            let entry = excused
                .iter_mut()
                .find(|((n, version), _)| n == name && found.starts_with(&format!("{version}.")));
            entry.map(|(_, used)| *used = true).is_none()
        });
        assert!(
            found.len() <= 1,
            "{name} is there in the versions {found:?}: take one, or say in deny.toml why not"
        );
    }
    let needless: Vec<_> = excused.iter().filter(|(_, used)| !**used).collect();
    assert!(needless.is_empty(), "deny.toml excuses what is not there: {needless:?}");
}

#[test]
fn names_of_libraries_are_told_from_other_words() {
    for (code, named) in [
        ("use serde::Serialize;", true),
        ("use serde;", true),
        ("x(serde::de::Error)", true),
        ("// serde is nice", false),
        ("use my_serde::x;", false),
        ("use serde_json::Value;", false),
        ("crate::serde::x", false),
        ("use ::serde::Serialize;", true),
        ("x(::serde::de::Error)", true),
    ] {
        assert_eq!(names(code, "serde"), named, "{code}");
    }
}

/// Nobody builds the fuzz targets after a file is moved: they are a workspace of their own that needs another toolchain.
#[test]
fn what_the_fuzz_targets_take_by_path_is_there() {
    let mut taken = 0;
    for entry in std::fs::read_dir(root().join("fuzz/fuzz_targets")).unwrap() {
        let target = entry.unwrap().path();
        let code = std::fs::read_to_string(&target).unwrap();
        for path in code.split("#[path = \"").skip(1).filter_map(|rest| rest.split('"').next()) {
            taken += 1;
            let file = target.parent().unwrap().join(path);
            assert!(file.is_file(), "{} takes {path}, which is not there: was it moved?", target.display());
        }
    }
    assert!(taken >= 3, "{taken}");
}
