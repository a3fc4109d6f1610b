//! `cargo xtask docs`: checks the book in `docs/` and builds it into `target/book`.
//!
//! The checks need neither mdBook nor a network, so a plain test runs them too: every page is in the table of contents,
//! every link and anchor leads somewhere, the program accepts every `mco` command, every manifest and every patch fits
//! the schema of its kind, every manifest passes `lint`, texts quoted from the program exist in its sources, and every
//! unchecked block gives a reason. What it is not: a check of the wording.

mod book;
mod cargo;
mod commands;
mod installed;
mod manifests;
mod mdbook;
mod programs;
mod quotes;

use anyhow::{Context, bail};
use book::{Block, Page};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

#[derive(Debug, clap::Args)]
pub(crate) struct Docs {
    /// Check only; build nothing
    #[arg(long)]
    check: bool,
    /// Also let kubectl and helm parse their commands (builds them if they are missing: minutes)
    #[arg(long)]
    programs: bool,
}

/// What was checked.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Checked {
    pages: usize,
    links: usize,
    commands: usize,
    manifests: usize,
    quotes: usize,
    /// Commands of other programs that can parse them without running them.
    others: BTreeSet<Vec<String>>,
    /// Blocks that are marked as unchecked: the place and the reason.
    unchecked: Vec<String>,
}

pub(crate) fn run(root: &Path, args: &Docs) -> anyhow::Result<()> {
    let (checked, wrong) = check(root)?;
    if !wrong.is_empty() {
        bail!("{} faults in the book:\n{}", wrong.len(), wrong.join("\n"));
    }
    println!(
        "{} pages: {} links, {} commands, {} manifests, {} quotes; {} blocks cannot be checked",
        checked.pages,
        checked.links,
        checked.commands,
        checked.manifests,
        checked.quotes,
        checked.unchecked.len()
    );
    checked.unchecked.iter().for_each(|place| println!("  {place}"));
    if let missing @ [_, ..] = &installed::missing()[..] {
        println!("these are not installed, so their commands are known by name only: {}", missing.join(", "));
    }
    if args.programs {
        programs::check(&checked)?;
        println!("{} commands are accepted by kubectl and helm", checked.others.len());
    }
    if !args.check {
        println!("{}", build(root)?.display());
    }
    Ok(())
}

/// Builds the book into `target/book`, and returns its first page.
///
/// # Errors
/// As [`mdbook::build`].
pub(crate) fn build(root: &Path) -> anyhow::Result<PathBuf> {
    mdbook::build(root, &book::pages(root)?)
}

/// Lets kubectl and helm parse their commands in the book; returns how many there are.
///
/// # Errors
/// As [`programs::check`].
pub(crate) fn check_with_programs(root: &Path) -> anyhow::Result<usize> {
    let (checked, _) = check(root)?;
    programs::check(&checked)?;
    Ok(checked.others.len())
}

/// Everything that is wrong in the book and in README.md, each with file and line.
pub(crate) fn check(root: &Path) -> anyhow::Result<(Checked, Vec<String>)> {
    let pages = book::pages(root)?;
    let mut checked = Checked { pages: pages.len(), ..Checked::default() };
    let mut wrong = book::links(root, &pages, &mut checked.links);
    for page in &pages {
        for block in &page.blocks {
            if let Err(why) = block_is_true(page, block, &mut checked) {
                wrong.push(format!("{}:{}: {why:#}", page.path.display(), block.line));
            }
        }
        for (line, words) in &page.cargo {
            checked.commands += 1;
            let words: Vec<&str> = words.split_whitespace().collect();
            if let Err(why) = cargo::check(root, &words) {
                wrong.push(format!("{}:{line}: {why:#}", page.path.display()));
            }
        }
    }
    let sources = quotes::sources(root);
    for page in quotes::PAGES {
        let text = std::fs::read_to_string(root.join(page)).with_context(|| format!("cannot read {page}"))?;
        let (count, unknown) = quotes::unknown(&text, &sources);
        if count == 0 {
            wrong.push(format!("{page}: no message is quoted in a form that is checked"));
        }
        checked.quotes += count;
        wrong.extend(unknown.iter().map(|q| format!("{page}: the program does not say {q:?}")));
    }
    Ok((checked, wrong))
}

fn block_is_true(page: &Page, block: &Block, checked: &mut Checked) -> anyhow::Result<()> {
    if let Some(reason) = &block.unchecked {
        if reason.split_whitespace().count() < 3 {
            bail!("the marker `unchecked` needs a reason");
        }
        checked.unchecked.push(format!("{}:{}: {reason}", page.path.display(), block.line));
        return Ok(());
    }
    match block.language.as_str() {
        // The output of programs, and drawings.
        "text" => {}
        "console" | "sh" => {
            let text = match block.language.as_str() {
                "sh" => &commands::with_prompts(&block.text),
                _ => &block.text,
            };
            checked.commands += commands::console(text)?;
            checked.others.extend(commands::of_programs(text, programs::PARSE));
        }
        "yaml" => checked.manifests += manifests::check(&block.text)?,
        // Examples in Rust are in the crates, where rustdoc runs them.
        other => bail!(
            "a block of {other:?} cannot be checked: use console, sh, yaml or text, or put \
             `<!-- unchecked: why -->` before it"
        ),
    }
    Ok(())
}

/// Our own sources in these languages, without `tests/` folders.
pub(crate) fn sources(root: &Path, extensions: &[&str]) -> Vec<PathBuf> {
    let crates = std::fs::read_dir(root.join("crates")).into_iter().flatten().flatten();
    let files = crates.flat_map(|c| book::walk(&c.path().join("src")));
    files.filter(|p| p.extension().is_some_and(|e| extensions.iter().any(|x| e == *x))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_book_is_true() {
        let (checked, wrong) = check(&crate::root()).unwrap();
        assert!(wrong.is_empty(), "{}", wrong.join("\n"));
        assert!(
            checked.commands > 80 && checked.manifests > 10 && checked.links > 50 && checked.quotes > 60,
            "{checked:?}"
        );
        assert!(checked.unchecked.len() < 10, "{:#?}", checked.unchecked);
    }

    fn faults(markdown: &str) -> Vec<String> {
        let page = Page::parse("docs/a.md".into(), markdown);
        let mut checked = Checked::default();
        let blocks = page.blocks.iter().filter_map(|b| block_is_true(&page, b, &mut checked).err());
        blocks.map(|e| format!("{e:#}")).collect()
    }

    #[test]
    fn a_block_that_is_not_true_is_found() {
        for (block, fault) in [
            ("```console\n$ mco status --nothing\n```\n", "--nothing"),
            ("```console\n$ kubectl annotate mcp worker x=y | mco stat\n```\n", "stat"),
            ("```console\n$ kubectl get machineconfigpol\n```\n", "machineconfigpol"),
            ("```console\n$ kubectl frobnicate pods\n```\n", "frobnicate"),
            ("```console\n$ cargo xtask nothing\n```\n", "nothing"),
            ("```console\n$ cargo test -p host --test crahs\n```\n", "crahs"),
            ("```sh\nfrobnicate\n```\n", "frobnicate"),
            ("```console\n$ sudo systemctl restrat kubelet\n```\n", "restrat"),
            ("```console\n$ echo a | | cat\n```\n", "the shell cannot parse it"),
            ("```yaml\nkind: MachineConfig\n```\n", "apiVersion"),
            (
                "```yaml\napiVersion: machineconfiguration.openshift.io/v1\nkind: MachineConfigPol\nmetadata: {name: a}\n```\n",
                "MachineConfigPol",
            ),
            (
                "```yaml\napiVersion: machineconfiguration.openshift.io/v1\nkind: MachineConfig\nmetadata: {name: a, labels: {machineconfiguration.openshift.io/role: worker}}\nspec:\n  config:\n    ignition: {version: 3.4.0}\n    storage:\n      files: [{path: relative, mode: 0644}]\n```\n",
                "files[0].path",
            ),
            (
                "```yaml\napiVersion: machineconfig.dev/v1alpha1\nkind: RolloutPolicy\nmetadata: {name: a}\nspec:\n  pools: {names: [worker]}\n  waves: [{name: first, size: 1, maxUnavailabel: 1}]\n```\n",
                "spec.waves[0].maxUnavailabel",
            ),
            (
                "```yaml\napiVersion: rbac.authorization.k8s.io/v1\nkind: Role\nmetadata: {name: a, namespace: b}\nrules:\n- {apiGroups: [\"\"], resource: [pods], verbs: [get]}\n```\n",
                "rules[0].resource",
            ),
            (
                "```yaml\napiVersion: apps/v1\nkind: DaemonSet\nmetadata: {name: a}\nspec: {selector: {}, template: {spec: {containers: [{name: a, imgae: b}]}}}\n```\n",
                "spec.template.spec.containers[0].imgae",
            ),
            (
                "```console\n$ kubectl patch mcp worker --type merge -p '{\"spec\":{\"maxUnavailabel\":1}}'\n```\n",
                "spec.maxUnavailabel",
            ),
            (
                "```console\n$ kubectl patch mcp worker --type=merge -p '{\"spec\":{\"paused\":\"yes\"}}'\n```\n",
                "spec.paused",
            ),
            (
                "```console\n$ kubectl patch mcp worker --type=merge -p '{\"spec\":{\"paused\":true}'\n```\n",
                "not JSON",
            ),
            (
                "```console\n$ kubectl patch mcp worker -p '{\"spec\":{\"paused\":true}}'\n```\n",
                "--type=merge",
            ),
            (
                "```console\n$ kubectl patch node n1 -p '{\"spec\":{\"unschedulable\":true}'\n```\n",
                "not JSON",
            ),
            ("```ini\n[Unit]\n```\n", "cannot be checked"),
            ("<!-- unchecked: x -->\n```ini\n[Unit]\n```\n", "reason"),
        ] {
            let found = faults(block);
            assert!(found.len() == 1 && found[0].contains(fault), "{block}: {found:?}");
        }
        let good = "```console\n$ mco status -w\npool worker\n# mco daemon recover\n$ kubectl get mcp,nodes -o wide | sort\n$ kubectl patch mcp/worker --type merge --patch '{\"spec\":{\"maxUnavailable\":\"10%\",\"paused\":null}}'\n$ mco pointer worker --token \"$(mco token create worker --ttl 1h)\" > user-data.ign\n```\n<!-- unchecked: a unit of another program -->\n```ini\n[Unit]\n```\n";
        assert_eq!(faults(good), Vec::<String>::new());
    }
}
