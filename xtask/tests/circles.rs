//! The imports inside of crates: this test fails when files of a crate import each other in a circle, so that none of them can
//! be read, tested or moved without the others. A module and the files in its folder count as one there and may import each other.
//! The same holds for what is at the top of a crate, folders and files, where a folder counts with all that is in it.
//!
//! It reads the sources, and sees `use` lines and paths that begin with `crate::`, `super::` or `self::`. It does not see which
//! methods a file calls: those of a type that has them in several files are free of this rule.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on ends")]

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

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

/// Each crate with its modules.
fn crates() -> Vec<(String, Modules)> {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let entries = std::fs::read_dir(here.join("../crates")).unwrap().map(|entry| entry.unwrap().path());
    let folders = entries.chain([here.to_owned()]).map(|folder| {
        let modules = modules(&folder.join("src"));
        (folder.file_name().unwrap().to_str().unwrap().to_owned(), modules)
    });
    let all: Vec<_> = folders.collect();
    assert!(
        all.len() > 15 && all.iter().all(|(_, modules)| !modules.is_empty()),
        "some sources are not found"
    );
    all
}

/// The paths in its own crate that a file names outside of its tests.
fn named(name: &[String], text: &str) -> BTreeSet<Vec<String>> {
    let code = without_tests(text);
    let code: String = code.lines().map(|line| format!("{}\n", line.split("//").next().unwrap())).collect();
    let starts = ["use crate::", "use super::", "use self::"];
    let uses = starts.iter().flat_map(|start| code.split(start).skip(1).map(|rest| (*start, rest)));
    let mut all = BTreeSet::new();
    for (start, rest) in uses {
        let tree = format!("{}{}", start.trim_start_matches("use "), rest.split(';').next().unwrap());
        all.extend(paths(&tree).iter().map(|path| absolute(name, path)));
    }
    let words = code.split(|c: char| !c.is_alphanumeric() && !['_', ':'].contains(&c));
    let is_path = |word: &&str| ["crate::", "super::", "self::"].iter().any(|start| word.starts_with(start));
    all.extend(words.filter(is_path).map(|path| absolute(name, path)));
    all
}

/// A source without its items for tests: declarations up to their semicolon, and blocks up to the brace that is indented as they are.
fn without_tests(text: &str) -> String {
    let mut code = String::new();
    let mut parts = text.split("#[cfg(test)]");
    let mut before = parts.next().unwrap_or_default();
    code.push_str(before);
    for part in parts {
        let end = match is_block(part) {
            true if part.lines().find(|line| line.contains('{')).is_some_and(|line| line.ends_with('}')) => {
                "}\n".to_owned()
            }
            true => format!("\n{}}}", before.rsplit('\n').next().unwrap()),
            false => ";".to_owned(),
        };
        code.push_str(part.split_once(&end).map_or("", |(_, rest)| rest));
        before = part;
    }
    code
}

/// Whether an item ends with a brace. A `use` may have braces, and ends with its semicolon all the same.
fn is_block(item: &str) -> bool {
    let after_attributes =
        item.lines().map(str::trim).find(|line| !line.is_empty() && !line.starts_with('#'));
    let mut words = after_attributes.unwrap_or_default().split_whitespace();
    let first = words.find(|word| !word.starts_with("pub"));
    if first.is_some_and(|word| ["use", "const", "static", "type"].contains(&word)) {
        return false;
    }
    item.find('{').is_some_and(|brace| item.find(';').is_none_or(|end| brace < end))
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

/// What is at the top, with all that is named below it.
fn folders(modules: &Modules) -> Modules {
    let mut folders = Modules::new();
    for (name, named) in modules {
        folders.entry(name[..1].to_vec()).or_default().extend(named.iter().cloned());
    }
    folders
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
    for (name, modules) in crates() {
        assert_eq!(circles(&modules), Vec::<String>::new(), "{name}: these import each other in a circle");
    }
}

#[test]
fn folders_import_each_other_one_way() {
    for (name, modules) in crates() {
        let circles = circles(&folders(&modules));
        assert_eq!(circles, Vec::<String>::new(), "{name}: these import each other in a circle");
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
    assert_eq!(circle("fn f() { super::b::c::f() }"), whole);
    assert_eq!(circle("fn f(b: &super::b::c::C) {}"), whole);
    assert!(circle("// use crate::b::c;\nuse api::b::c;").is_empty());
    assert!(circle("use api::x;\n#[cfg(test)]\nmod tests {\n    use crate::b::c;\n}").is_empty());
    assert_eq!(circle("#[cfg(test)]\nmod tests;\nuse crate::b::c;"), whole);
    assert_eq!(circle("#[cfg(test)]\npub(crate) use crate::{x, y};\nuse crate::b::c;\nfn f() {\n}"), whole);
    assert_eq!(circle("#[cfg(test)]\nfn g() { x() }\nuse crate::b::c;\nfn f() {\n}"), whole);
    assert_eq!(circle("#[cfg(test)]\nmod tests {\n    use super::*;\n}\nuse crate::b::c;"), whole);
    // A module and what is in its folder.
    assert!(circles(&[module("a", "use self::b::B;"), module("a::b", "use super::A;")].into()).is_empty());
    // Folders can import each other although no files do.
    let two = [module("a::x", "use crate::b::X;"), module("a::y", ""), module("b::z", "use crate::a::y::Y;")];
    let two: Modules = two.into();
    assert!(circles(&two).is_empty());
    assert_eq!(circles(&folders(&two)), ["a", "b"]);
}
