//! `cargo xtask gen`: writes the generated files that are committed: the rules of the controller's ClusterRole, CRDs, man pages,
//! completions, the reference pages of the book, the Helm chart and the kustomize base.
//!
//! It is not a build step: nothing else in the tree depends on it. `gen --check` fails if the files differ from what
//! the code would generate, and names the command that updates them.

use anyhow::{Context, bail};
use clap::CommandFactory;
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Folders that hold only generated files: any other file in them is removed.
const OWNED: [&str; 6] = [
    "deploy/crds",
    "docs/man",
    "deploy/completions",
    crate::reference::FOLDER,
    crate::charts::OWNED[0],
    crate::charts::OWNED[1],
];

/// Files for monitoring: rules for Prometheus, objects for the Prometheus operator, dashboards for Grafana. The folder
/// also holds the rules' tests, which are written by hand.
fn monitoring() -> anyhow::Result<BTreeMap<PathBuf, String>> {
    use operator::monitoring::{dashboards, prometheus_rule, rule_groups, service_monitors};
    let folder = Path::new("deploy/monitoring");
    let head = "# Made by `cargo xtask gen` from crates/operator/src/monitoring; do not edit.\n";
    let yaml = |objects: &[serde_json::Value]| -> anyhow::Result<String> {
        let texts = objects.iter().map(api::formats::yaml::to_string).collect::<Result<Vec<_>, _>>()?;
        Ok(head.to_owned() + &texts.join("---\n"))
    };
    let mut files = BTreeMap::from([
        (folder.join("rules.yaml"), yaml(&[rule_groups()])?),
        (folder.join("prometheus-rule.yaml"), yaml(&[prometheus_rule()])?),
        (folder.join("service-monitors.yaml"), yaml(&service_monitors())?),
    ]);
    for dashboard in dashboards() {
        let text = serde_json::to_string_pretty(&dashboard.model)? + "\n";
        files.insert(folder.join("dashboards").join(format!("{}.json", dashboard.name)), text);
    }
    Ok(files)
}

/// Writes the files. With `check`: reports which of them are out of date.
pub(crate) fn run(root: &Path, check: bool) -> anyhow::Result<()> {
    let unknown = api::crds::fields_unknown_to_the_schemas()?;
    if !unknown.is_empty() {
        bail!("crates/api: fields that the published schemas do not have: {}", unknown.join(", "));
    }
    let (rules, text) = (PathBuf::from(crate::controller_rules::FILE), crate::controller_rules::text());
    if !check && !is(root, &rules, &text) {
        write(root, &rules, &text)?;
        return run_anew(root);
    }
    let mut files = files()?;
    files.insert(rules, text);
    files.extend(crate::reference::pages(root)?);
    files.extend(crate::charts::files()?);
    let mut wrong = vec![];
    for (path, text) in &files {
        if is(root, path, text) {
            continue;
        }
        wrong.push(path.clone());
        if !check {
            write(root, path, text)?;
        }
    }
    for stale in OWNED.iter().flat_map(|d| walk(&root.join(d))) {
        let path = stale.strip_prefix(root)?.to_path_buf();
        if !files.contains_key(&path) {
            if !check {
                fs::remove_file(&stale)?;
            }
            wrong.push(path);
        }
    }
    let list: Vec<String> = wrong.iter().map(|p| p.display().to_string()).collect();
    if check && !list.is_empty() {
        bail!("not as generated: {}\nrun `cargo xtask gen` and commit the result", list.join(", "));
    }
    println!("generated files: {}, changed: {}", files.len(), if check { 0 } else { list.len() });
    Ok(())
}

/// Whether the file has this text.
fn is(root: &Path, path: &Path, text: &str) -> bool {
    fs::read_to_string(root.join(path)).is_ok_and(|have| have == text)
}

fn write(root: &Path, path: &Path, text: &str) -> anyhow::Result<()> {
    let full = root.join(path);
    if let Some(folder) = full.parent() {
        fs::create_dir_all(folder)?;
    }
    fs::write(&full, text).with_context(|| format!("cannot write {}", full.display()))
}

/// The chart and the kustomize base contain the controller's rules as they are compiled into this program, so they are made by one
/// that is built with the new rules.
fn run_anew(root: &Path) -> anyhow::Result<()> {
    println!("the controller's rules have changed: building with them");
    let status = Command::new(env!("CARGO")).args(["xtask", "gen"]).current_dir(root).status();
    if !status.context("cannot start cargo")?.success() {
        bail!("the controller's rules are written, the other files are not: run `cargo xtask gen` again");
    }
    Ok(())
}

fn files() -> anyhow::Result<BTreeMap<PathBuf, String>> {
    let mut files = BTreeMap::new();
    for crd in api::crds::all()? {
        let folder = if crd.ours { "deploy/crds" } else { "deploy/crds/openshift" };
        let path = PathBuf::from(folder).join(format!("{}.{}.yaml", crd.plural, crd.group));
        let head = "# Made by `cargo xtask gen` from crates/api/schemas; do not edit.\n";
        files.insert(path, head.to_owned() + &api::formats::yaml::to_string(&crd.object)?);
    }
    let command = cli::args::Mco::command();
    for shell in [clap_complete::Shell::Bash, clap_complete::Shell::Zsh, clap_complete::Shell::Fish] {
        let mut out = vec![];
        clap_complete::generate(shell, &mut command.clone(), "mco", &mut out);
        files.insert(PathBuf::from(format!("deploy/completions/mco.{shell}")), String::from_utf8(out)?);
    }
    files.extend(monitoring()?);
    let mut built = command;
    built.build();
    man_pages(&built, &mut files)?;
    Ok(files)
}

/// A page for the program and one for each subcommand, named like `mco-controller-start`.
fn man_pages(command: &clap::Command, files: &mut BTreeMap<PathBuf, String>) -> anyhow::Result<()> {
    for sub in command.get_subcommands().filter(|c| !c.is_hide_set()) {
        man_pages(sub, files)?;
    }
    let name = command.get_display_name().unwrap_or(command.get_name()).to_owned();
    let mut out = vec![];
    clap_mangen::Man::new(command.clone()).date("").render(&mut out)?;
    files.insert(PathBuf::from(format!("docs/man/{name}.1")), String::from_utf8(out)?);
    Ok(())
}

fn walk(folder: &Path) -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir(folder) else { return vec![] };
    let paths = entries.flatten().map(|e| e.path());
    paths.flat_map(|p| if p.is_dir() { walk(&p) } else { vec![p] }).collect()
}
