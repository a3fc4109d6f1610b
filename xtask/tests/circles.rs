//! The imports inside of crates: this test fails when files of a crate import each other in a circle, so that none of them can
//! be read, tested or moved without the others. It reads the sources and sees `use` lines and paths that begin with `crate::`.
//! A module and the files in its folder count as one and may import each other.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on ends")]

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// Crates without circles of imports.
const ONE_WAY: [&str; 16] = [
    "actions",
    "api",
    "cli",
    "client",
    "controller",
    "daemon",
    "dashboard",
    "desired",
    "ignition",
    "insight",
    "lab",
    "listen",
    "operator",
    "render",
    "rollout",
    "server",
];

/// A crate's modules by path (`cache::watch`), with the paths in the same crate that each one names.
type Modules = BTreeMap<Vec<String>, BTreeSet<Vec<String>>>;

fn sources(folder: &Path, all: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            sources(&path, all);
        } else if path.extension().is_some_and(|e| e == "rs") {
            all.push(path);
        }
    }
}

fn modules(source: &Path) -> Modules {
    let mut files = vec![];
    sources(source, &mut files);
    let mut modules = Modules::new();
    for file in files {
        let path = file.strip_prefix(source).unwrap().with_extension("");
        let mut name: Vec<String> =
            path.components().map(|c| c.as_os_str().to_str().unwrap().to_owned()).collect();
        name.pop_if(|last| last == "mod");
        if name.iter().any(|n| n.contains("tests")) || ["lib", "main"].contains(&name[0].as_str()) {
            continue;
        }
        let text = std::fs::read_to_string(&file).unwrap();
        let named = named(&name, &text);
        modules.insert(name, named);
    }
    modules
}

/// The paths in its own crate that a file names outside of its tests.
fn named(name: &[String], text: &str) -> BTreeSet<Vec<String>> {
    let code = text.split("#[cfg(test)]").next().unwrap_or_default();
    let code: String = code.lines().map(|line| format!("{}\n", line.split("//").next().unwrap())).collect();
    let starts = ["use crate::", "use super::", "use self::"];
    let uses = starts.iter().flat_map(|start| code.split(start).skip(1).map(|rest| (*start, rest)));
    let mut all = BTreeSet::new();
    for (start, rest) in uses {
        let tree = format!("{}{}", start.trim_start_matches("use "), rest.split(';').next().unwrap());
        all.extend(paths(&tree).iter().map(|path| absolute(name, path)));
    }
    for rest in code.split("crate::").skip(1) {
        let path: String =
            rest.chars().take_while(|c| c.is_alphanumeric() || ['_', ':'].contains(c)).collect();
        all.insert(absolute(name, &format!("crate::{path}")));
    }
    all
}

/// `a::{b, c::{d}}` as `a::b` and `a::c::d`.
fn paths(tree: &str) -> Vec<String> {
    let Some((before, inside)) = tree.split_once('{') else { return vec![tree.trim().to_owned()] };
    let inside = inside.rsplit_once('}').map_or(inside, |(inside, _)| inside);
    let (mut depth, mut parts) = (0_i32, vec![String::new()]);
    for c in inside.chars() {
        depth += i32::from(c == '{') - i32::from(c == '}');
        match c {
            ',' if depth == 0 => parts.push(String::new()),
            _ => parts.last_mut().unwrap().push(c),
        }
    }
    parts.iter().flat_map(|part| paths(part)).map(|part| format!("{}{part}", before.trim())).collect()
}

fn absolute(name: &[String], path: &str) -> Vec<String> {
    let mut at = name.to_vec();
    for (i, part) in path.split("::").map(str::trim).enumerate() {
        match (part, i) {
            ("crate", 0) => at.clear(),
            ("super", _) => drop(at.pop()),
            ("self" | "", _) => {}
            _ => at.push(part.to_owned()),
        }
    }
    at
}

/// Each module with the modules that it imports, except for its parents and children.
fn arrows(modules: &Modules) -> BTreeMap<&[String], BTreeSet<&[String]>> {
    let known = |path: &Vec<String>| {
        let parts = (1..=path.len()).rev().filter_map(|n| modules.get_key_value(&path[..n]));
        parts.map(|(name, _)| name.as_slice()).next()
    };
    let targets = |(from, named): (&Vec<String>, &BTreeSet<Vec<String>>)| {
        let is_other = |to: &&[String]| !to.starts_with(from) && !from.starts_with(to);
        named.iter().filter_map(known).filter(is_other).collect()
    };
    modules.iter().map(|of| (of.0.as_slice(), targets(of))).collect()
}

/// The modules that lead back to themselves.
fn circles(modules: &Modules) -> Vec<String> {
    let arrows = arrows(modules);
    let leads_back = |from: &&&[String]| {
        let (mut seen, mut open) = (BTreeSet::new(), vec![**from]);
        while let Some(at) = open.pop() {
            open.extend(arrows[at].iter().copied().filter(|to| seen.insert(*to)));
        }
        seen.contains(**from)
    };
    arrows.keys().filter(leads_back).map(|path| path.join("::")).collect()
}

#[test]
fn files_import_each_other_one_way() {
    for name in ONE_WAY {
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("../crates/{name}/src"));
        let modules = modules(&source);
        assert!(modules.len() > 3, "{name}: {modules:?}");
        assert_eq!(circles(&modules), Vec::<String>::new(), "{name}: these import each other in a circle");
    }
}

#[test]
fn a_circle_is_seen_however_it_is_written() {
    let module = |name: &str, text: &str| {
        let name: Vec<String> = name.split("::").map(str::to_owned).collect();
        (name.clone(), named(&name, text))
    };
    let circle = |text: &str| {
        let others =
            [module("b::c", "use super::d::D;"), module("b::d", "use crate::a::{self, A};"), module("b", "")];
        circles(&[module("a", text)].into_iter().chain(others).collect())
    };
    let whole = ["a", "b::c", "b::d"];
    assert_eq!(circle("use crate::{api, b::{c::{C, E}, F}};"), whole);
    assert_eq!(circle("fn f() { crate::b::c::f() }"), whole);
    assert!(circle("// use crate::b::c;\nuse api::b::c;").is_empty());
    assert!(circle("use api::x;\n#[cfg(test)]\nmod tests { use crate::b::c; }").is_empty());
    // A module and what is in its folder.
    assert!(circles(&[module("a", "use self::b::B;"), module("a::b", "use super::A;")].into()).is_empty());
}
