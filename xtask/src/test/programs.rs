//! The workspace's test programs: which there are, how they are built, and which tests they hold.
//!
//! Not here: which of them run (`jobs.rs`).

use anyhow::{Context, bail};
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Something from which cargo can build a test program.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Target {
    pub(super) package: String,
    /// The name that cargo gives it: that of the test, or of the crate.
    pub(super) name: String,
    pub(super) kind: Kind,
    /// The root source file.
    pub(super) source: PathBuf,
    /// The package's folder, in which cargo runs its tests.
    pub(super) folder: PathBuf,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// Unit tests of a library.
    Library,
    /// Unit tests of a program.
    Program,
    /// An integration test in `tests/`.
    Test,
}

/// A test program that is built.
#[derive(Debug, Clone)]
pub(super) struct Program {
    pub(super) target: Target,
    pub(super) executable: PathBuf,
    /// The names of its tests, in its own order.
    pub(super) tests: Vec<String>,
}

impl Target {
    /// The name to print: `host bad_input`, or `host` for a library.
    pub(super) fn title(&self) -> String {
        match self.kind {
            Kind::Test => format!("{} {}", self.package, self.name),
            Kind::Library => self.package.clone(),
            Kind::Program => format!("{} (program {})", self.package, self.name),
        }
    }

    /// The tests of a program that is not built. They are read from its source files: functions below a line that ends
    /// in `test]` or begins with `#[tokio::test`.
    pub(super) fn tests_in_source(&self) -> anyhow::Result<Vec<String>> {
        let mut tests = vec![];
        for file in sources(&self.source)? {
            let text =
                std::fs::read_to_string(&file).with_context(|| format!("cannot read {}", file.display()))?;
            tests.extend(test_functions(&text));
        }
        Ok(tests)
    }

    /// The names of the program's modules, from its files.
    pub(super) fn modules_in_source(&self) -> anyhow::Result<Vec<String>> {
        Ok(sources(&self.source)?.iter().filter_map(|file| module(file)).collect())
    }
}

/// The name of the module that a file has, or of the one whose folder it stands in.
fn module(file: &Path) -> Option<String> {
    let named = match file.file_stem()?.to_str()? {
        "main" => return None,
        "mod" => file.parent()?.file_name()?.to_str()?,
        name => name,
    };
    Some(named.to_owned())
}

/// A program's source files: one file, or everything in the folder of its `main.rs`.
fn sources(first: &Path) -> anyhow::Result<Vec<PathBuf>> {
    if first.file_name().is_none_or(|name| name != "main.rs") {
        return Ok(vec![first.to_owned()]);
    }
    let (mut files, mut folders) = (vec![], vec![first.parent().unwrap_or(first).to_owned()]);
    while let Some(folder) = folders.pop() {
        for entry in
            std::fs::read_dir(&folder).with_context(|| format!("cannot read {}", folder.display()))?
        {
            let path = entry?.path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|e| e == "rs") {
                files.push(path);
            }
        }
    }
    files.sort();
    Ok(files)
}

fn test_functions(text: &str) -> Vec<String> {
    let (mut found, mut marked) = (vec![], false);
    for line in text.lines().map(str::trim) {
        if line == "#[test]" || line.starts_with("#[tokio::test") {
            marked = true;
        } else if let Some(rest) = line.strip_prefix("async fn ").or_else(|| line.strip_prefix("fn ")) {
            if marked {
                found.extend(rest.split(['(', '<']).next().map(str::to_owned));
            }
            marked = false;
        }
    }
    found
}

/// Everything from which cargo can build test programs.
pub(super) fn targets(root: &Path) -> anyhow::Result<Vec<Target>> {
    let output = Command::new(env!("CARGO"))
        .args(["metadata", "--no-deps", "--format-version", "1"])
        .current_dir(root)
        .stderr(Stdio::inherit())
        .output()
        .context("cannot run cargo metadata")?;
    if !output.status.success() {
        bail!("cargo metadata ended with {}", output.status);
    }
    targets_of(&serde_json::from_slice(&output.stdout).context("cargo metadata is not JSON")?)
}

fn targets_of(metadata: &Value) -> anyhow::Result<Vec<Target>> {
    let mut targets = vec![];
    for package in metadata["packages"].as_array().context("cargo metadata names no packages")? {
        let folder =
            Path::new(text(&package["manifest_path"])?).parent().unwrap_or(Path::new("/")).to_owned();
        for target in package["targets"].as_array().into_iter().flatten().filter(|t| t["test"] == true) {
            let kind = match target["kind"][0].as_str() {
                Some("lib") => Kind::Library,
                Some("bin") => Kind::Program,
                Some("test") => Kind::Test,
                _ => continue,
            };
            targets.push(Target {
                package: text(&package["name"])?.to_owned(),
                name: text(&target["name"])?.to_owned(),
                kind,
                source: PathBuf::from(text(&target["src_path"])?),
                folder: folder.clone(),
            });
        }
    }
    Ok(targets)
}

/// The test programs, and every file that cargo named while it built them.
#[derive(Debug)]
pub(super) struct Built {
    pub(super) programs: Vec<Program>,
    pub(super) files: Vec<PathBuf>,
}

/// Builds them all in one run of cargo, so that every library is built with one set of features, and lists their tests.
pub(super) fn build(root: &Path, chosen: &[Target], all: bool) -> anyhow::Result<Built> {
    let mut args = vec!["test", "--workspace", "--no-run", "--message-format", "json-render-diagnostics"];
    if !all {
        for (kind, flag) in [(Kind::Library, "--lib"), (Kind::Program, "--bins")] {
            args.extend(chosen.iter().any(|t| t.kind == kind).then_some(flag));
        }
        args.extend(chosen.iter().filter(|t| t.kind == Kind::Test).flat_map(|t| ["--test", t.name.as_str()]));
    }
    let output = Command::new(env!("CARGO"))
        .args(&args)
        .current_dir(root)
        .stderr(Stdio::inherit())
        .output()
        .context("cannot run cargo test")?;
    if !output.status.success() {
        bail!("cargo {} ended with {}", args.join(" "), output.status);
    }
    let said = String::from_utf8_lossy(&output.stdout);
    let built: Vec<(PathBuf, PathBuf)> = said.lines().filter_map(executable).collect();
    let mut programs = vec![];
    for target in chosen {
        let (_, executable) = built
            .iter()
            .find(|(source, _)| *source == target.source)
            .with_context(|| format!("cargo has built no test program of {}", target.source.display()))?;
        programs.push(Program {
            target: target.clone(),
            executable: executable.clone(),
            tests: list(executable)?,
        });
    }
    Ok(Built { programs, files: said.lines().flat_map(files).collect() })
}

/// The files of a line of cargo's JSON messages.
fn files(line: &str) -> Vec<PathBuf> {
    let message: Value = serde_json::from_str(line).unwrap_or_default();
    let names = message["filenames"].as_array().cloned().unwrap_or_default();
    names.iter().filter_map(Value::as_str).map(PathBuf::from).collect()
}

/// The root source file and the path of a test program, from a line of cargo's JSON messages.
fn executable(line: &str) -> Option<(PathBuf, PathBuf)> {
    let message: Value = serde_json::from_str(line).ok()?;
    let is_test = message["reason"] == "compiler-artifact" && message["profile"]["test"] == true;
    let source = message["target"]["src_path"].as_str().filter(|_| is_test)?;
    Some((source.into(), message["executable"].as_str()?.into()))
}

/// Asks a program for its tests, without ignored ones.
fn list(executable: &Path) -> anyhow::Result<Vec<String>> {
    let ask = |more: &[&str]| {
        let output = Command::new(executable).args(["--list", "--format", "terse"]).args(more).output();
        let output = output.with_context(|| format!("cannot run {}", executable.display()))?;
        if !output.status.success() {
            bail!("{} --list ended with {}", executable.display(), output.status);
        }
        Ok(listed(&String::from_utf8_lossy(&output.stdout)))
    };
    let ignored = ask(&["--ignored"])?;
    Ok(ask(&[])?.into_iter().filter(|name| !ignored.contains(name)).collect())
}

fn listed(text: &str) -> Vec<String> {
    text.lines().filter_map(|line| line.strip_suffix(": test")).map(str::to_owned).collect()
}

fn text(value: &Value) -> anyhow::Result<&str> {
    value.as_str().with_context(|| format!("cargo metadata has {value} where a string is expected"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn what_cargo_says_is_understood() {
        let target = |kind: &str, name: &str, test: bool| json!({"kind": [kind], "name": name, "test": test, "src_path": format!("/w/a/{name}.rs")});
        let targets = [
            target("lib", "a", true),
            target("example", "e", false),
            target("test", "t", true),
            target("custom-build", "b", false),
        ];
        let found = targets_of(
            &json!({"packages": [{"name": "a", "manifest_path": "/w/a/Cargo.toml", "targets": targets}]}),
        )
        .unwrap();
        let titles: Vec<String> = found.iter().map(Target::title).collect();
        assert_eq!(titles, ["a", "a t"]);
        assert_eq!(found[1].folder, Path::new("/w/a"));

        let line = |test: bool| json!({"reason": "compiler-artifact", "profile": {"test": test}, "target": {"src_path": "/w/a/t.rs"}, "executable": "/t/t-1"});
        assert_eq!(executable(&line(true).to_string()), Some(("/w/a/t.rs".into(), "/t/t-1".into())));
        assert_eq!(executable(&line(false).to_string()), None);
        assert_eq!(executable("warning: no JSON"), None);
        assert_eq!(files(r#"{"filenames": ["/t/a.rlib", "/t/a.rmeta"]}"#).len(), 2);
        assert!(files("warning: no JSON").is_empty());
        let modules = ["main.rs", "faults/mod.rs", "lost_objects.rs"]
            .map(|file| module(&Path::new("/w/tests").join(file)));
        assert_eq!(modules, [None, Some("faults".to_owned()), Some("lost_objects".to_owned())]);
        assert_eq!(
            listed("m::one: test\nm::bench: benchmark\ntwo: test\n\n2 tests, 1 benchmarks\n"),
            ["m::one", "two"]
        );
    }

    #[test]
    fn tests_are_found_in_source_files() {
        let text = "#[test]\nfn one() {}\n\nfn helper() {}\n    #[tokio::test(flavor = \"multi_thread\")]\n    #[ignore]\n    async fn two() {\n// #[test]\nfn no() {}\n";
        assert_eq!(test_functions(text), ["one", "two"]);
        // This file's program, and a folder with modules.
        let here = Path::new(env!("CARGO_MANIFEST_DIR"));
        assert_eq!(sources(&here.join("src/test/programs.rs")).unwrap().len(), 1);
        let node = sources(&here.join("../crates/lab/tests/node/main.rs")).unwrap();
        assert!(node.iter().any(|p| p.ends_with("first_boot.rs")), "{node:?}");
    }
}
