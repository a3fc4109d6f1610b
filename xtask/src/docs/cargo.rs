//! Checks the book's commands of cargo against the repository: packages, programs of tests and the words that choose tests in them,
//! and targets to fuzz. cargo itself cannot be asked without building.
//!
//! What it is not: a parser of all of cargo's options, a check of `cargo xtask` (see `commands`), or a run.

use super::book::{self, is_placeholder};
use anyhow::bail;
use std::path::{Path, PathBuf};

/// The commands of cargo that the book names.
const COMMANDS: [&str; 11] =
    ["build", "check", "clippy", "deny", "fmt", "fuzz", "install", "machete", "rustc", "test", "tree"];
/// Options, of cargo and of test programs, whose value is the next word.
const WITH_VALUE: [&str; 14] = [
    "-p",
    "--package",
    "--test",
    "--bin",
    "--example",
    "--target",
    "--features",
    "--profile",
    "-e",
    "-f",
    "-j",
    "-s",
    "--skip",
    "--test-threads",
];

/// The words of a command after its name.
struct Words<'w> {
    /// Options with a value.
    named: Vec<(&'w str, &'w str)>,
    /// Options without one.
    switches: Vec<&'w str>,
    plain: Vec<&'w str>,
}

impl<'w> Words<'w> {
    fn read(words: &[&'w str]) -> Self {
        let mut read = Self { named: vec![], switches: vec![], plain: vec![] };
        let mut rest = words.iter();
        while let Some(word) = rest.next() {
            if WITH_VALUE.contains(word) {
                read.named.extend(rest.next().map(|value| (*word, *value)));
            } else if let Some(option) = word.split_once('=').filter(|(name, _)| name.starts_with('-')) {
                read.named.push(option);
            } else if word.starts_with('-') {
                read.switches.push(word);
            } else {
                read.plain.push(word);
            }
        }
        read
    }

    fn of(&self, option: &'static str) -> impl Iterator<Item = &'w str> {
        self.named.iter().filter(move |(name, _)| *name == option).map(|(_, value)| *value)
    }
}

/// Checks one command, without the word `cargo`.
///
/// # Errors
/// It names a package, a program or a test that does not exist.
pub(super) fn check(root: &Path, words: &[&str]) -> anyhow::Result<()> {
    let words = match words {
        [toolchain, rest @ ..] if toolchain.starts_with('+') => rest,
        all => all,
    };
    let Some((command, rest)) = words.split_first() else { return Ok(()) };
    if !COMMANDS.contains(command) {
        bail!("cargo {command} is not a command that the book's checks know (xtask/src/docs/cargo.rs)");
    }
    let at = rest.iter().position(|word| *word == "--").unwrap_or(rest.len());
    let (own, of_program) = rest.split_at(at);
    let (own, of_program) = (Words::read(own), Words::read(of_program.get(1..).unwrap_or_default()));
    if *command == "fuzz" {
        return match own.plain[..] {
            ["run", target, ..] if !is_placeholder(target) => {
                exists(root, &format!("fuzz/fuzz_targets/{target}.rs"))
            }
            _ => Ok(()),
        };
    }
    let mut packages = vec![];
    for name in own.of("-p").chain(own.of("--package")) {
        let folder = if name == "xtask" { name.to_owned() } else { format!("crates/{name}") };
        exists(root, &format!("{folder}/Cargo.toml"))?;
        packages.push(root.join(folder));
    }
    if packages.is_empty() {
        let crates = std::fs::read_dir(root.join("crates"))?.flatten().map(|entry| entry.path());
        packages = crates.chain([root.join("xtask")]).collect();
    }
    for name in own.of("--bin") {
        let declares = |package: &PathBuf| {
            let manifest = std::fs::read_to_string(package.join("Cargo.toml")).unwrap_or_default();
            manifest.contains(&format!("[[bin]]\nname = \"{name}\"\n"))
        };
        if !packages.iter().any(declares) {
            bail!("no package declares the program {name}");
        }
    }
    let mut places: Vec<PathBuf> = vec![];
    for name in own.of("--test") {
        let programs = packages.iter().flat_map(|package| {
            let tests = package.join("tests");
            [tests.join(format!("{name}.rs")), tests.join(name).join("main.rs")]
        });
        let Some(found) = programs.into_iter().find(|program| program.is_file()) else {
            bail!("no program of tests is called {name:?}");
        };
        let is_folder = found.file_name().is_some_and(|file| file == "main.rs");
        places.push(if is_folder { found.with_file_name("") } else { found });
    }
    if own.switches.contains(&"--lib") {
        places.extend(packages.iter().map(|package| package.join("src")));
    }
    if places.is_empty() {
        places.extend(packages.iter().flat_map(|package| [package.join("src"), package.join("tests")]));
    }
    if *command != "test" {
        return Ok(());
    }
    let filters: Vec<&str> =
        own.plain.iter().chain(&of_program.plain).copied().chain(of_program.of("--skip")).collect();
    let filters = filters.into_iter().filter(|word| !is_placeholder(word));
    let mut names = None;
    for filter in filters {
        let names: &Vec<String> =
            names.get_or_insert_with(|| places.iter().flat_map(|place| tests(place)).collect());
        if !names.iter().any(|name| name.contains(filter)) {
            bail!("no test has {filter:?} in its name");
        }
    }
    Ok(())
}

fn exists(root: &Path, file: &str) -> anyhow::Result<()> {
    if !root.join(file).is_file() {
        bail!("there is no {file}");
    }
    Ok(())
}

/// The names of the tests in a file or a folder, each with its modules, as the test program lists them.
fn tests(place: &Path) -> Vec<String> {
    let files = if place.is_dir() { book::walk(place) } else { vec![place.to_owned()] };
    let mut names = vec![];
    for file in files.iter().filter(|file| file.extension().is_some_and(|e| e == "rs")) {
        let text = std::fs::read_to_string(file).unwrap_or_default();
        let within = file.strip_prefix(place).unwrap_or(Path::new("")).with_extension("");
        let parts = within.components().filter_map(|part| part.as_os_str().to_str());
        let mut modules: Vec<&str> = parts.filter(|part| !["main", "lib", "mod"].contains(part)).collect();
        // A test beside the code is in a module of its own.
        modules.extend(text.contains("\nmod tests {").then_some("tests"));
        names.extend(tests_in(&text).map(|test| [&modules[..], &[test]].concat().join("::")));
    }
    names
}

/// The functions of a source file that are marked as tests.
fn tests_in(text: &str) -> impl Iterator<Item = &str> {
    let mut is_marked = false;
    text.lines().filter_map(move |line| {
        let line = line.trim_start();
        is_marked |= line.starts_with("#[test]") || line.starts_with("#[tokio::test");
        let after = line.strip_prefix("async ").unwrap_or(line).strip_prefix("fn ")?;
        std::mem::take(&mut is_marked).then(|| after.split(['(', '<']).next()).flatten()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_that_names_what_does_not_exist_is_found() {
        for (line, why) in [
            ("build", None),
            ("build -p cli", None),
            ("biuld -p cli", Some("cargo biuld")),
            ("check -p rolout --tests", Some("crates/rolout")),
            ("check -p xtask", None),
            ("rustc --release -p cli --bin mco -- -Ctarget-feature=+crt-static", None),
            ("rustc --release -p cli --bin mcoo", Some("mcoo")),
            ("rustc --release -p host --bin mco", Some("mco")),
            ("test", None),
            ("test --workspace", None),
            ("test -p xtask --lib the_program_lists_no_such_test", Some("the_program_lists_no_such_test ")),
            ("test -p xtask a_command_that_names_what_does_not_exist", None),
            ("test -p xtask docs::cargo::tests::a_command", None),
            ("test -p xtask docs::tests::a_command", Some("docs::tests::a_command")),
            ("test -p host --lib a_command_that_names_what", Some("a_command_that_names_what")),
            ("test -p xtask --test walk", None),
            ("test -p xtask --test wlak", Some("wlak")),
            ("test -p host --test walk", Some("walk")),
            ("test -p xtask --test walk -- --ignored the_way_of_a_change --nocapture", None),
            ("test -p xtask --test walk -- --ignored every_arrow", Some("every_arrow")),
            ("test -p host --test crash fault_points::", None),
            ("test -p host WORD", None),
            ("test -p host -- --test-threads 1", None),
            ("test -p xtask --test walk -- --skip every_arrow", Some("every_arrow")),
            ("+nightly fuzz run -s none parse corpus/parse -- -max_len=800", None),
            ("+nightly fuzz run -s none prase", Some("prase")),
            ("+nightly fuzz run -s none TARGET FILE", None),
        ] {
            let words: Vec<&str> = line.split(' ').collect();
            let refused = check(&crate::root(), &words).err().map(|error| format!("{error:#} "));
            assert_eq!(refused.is_some(), why.is_some(), "{line}: {refused:?}");
            let refused = refused.unwrap_or_default().replace('"', " ");
            assert!(why.is_none_or(|why| refused.contains(why)), "{line}: {refused}");
        }
    }
}
