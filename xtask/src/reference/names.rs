//! The pages of annotations, labels and conditions, from `crates/api/src/names.rs`: each constant with its docs.
//!
//! The file is read as text, because a program does not contain its docs. The file is a flat list of modules and string
//! constants; anything else in it is an error, so that nothing is left out silently.

use super::{cell, columns, head, row};
use anyhow::{Context, bail};
use api::render_reason::RenderReason;
use std::collections::BTreeMap;
use std::path::Path;

const SOURCE: &str = "crates/api/src/names.rs";

/// Links in docs that are not names of objects, each with what a reader of the page gets instead.
const MEANT: [(&str, &str); 8] = [
    ("crate::drift", "[Drift](../drift.md)"),
    ("crate::trial", "[Safe rollouts](../safe-rollouts.md#changes-that-can-cut-a-node-off)"),
    ("crate::images::prefetch", "[Images before they are needed](../os.md#images-before-they-are-needed)"),
    ("crate::v1alpha1::Reboots", "[Disruption](../disruption.md)"),
    ("crate::images::os_image", "[Operating systems](../os.md)"),
    ("crate::detected", "[Install](../operations.md#install)"),
    ("crate::formats::text::MAX_REASON_CHARS", "2000"),
    ("super::state", "the [states](#values-of-machineconfigurationopenshiftiostate)"),
];

#[derive(Debug, Clone, PartialEq, Eq)]
struct Name {
    value: String,
    docs: String,
}

/// The constants of each module, in the order of the file.
#[derive(Debug, Default)]
pub(super) struct Names {
    modules: BTreeMap<String, Vec<Name>>,
}

impl Names {
    pub(super) fn read(root: &Path) -> anyhow::Result<Self> {
        let path = root.join(SOURCE);
        let text = std::fs::read_to_string(&path).with_context(|| format!("cannot read {SOURCE}"))?;
        Self::parse(&text).with_context(|| SOURCE.to_owned())
    }

    fn parse(text: &str) -> anyhow::Result<Self> {
        let mut names = Self::default();
        let mut values = BTreeMap::new();
        let (mut module, mut docs) = (String::new(), String::new());
        let mut lines = text.lines().map(str::trim);
        while let Some(line) = lines.next() {
            if let Some(doc) = line.strip_prefix("///") {
                docs.push_str(doc);
            } else if let Some(rest) = line.strip_prefix("pub mod ") {
                rest.trim_end_matches(" {").clone_into(&mut module);
                docs.clear();
            } else if line == "}" {
                module.clear();
            } else if let Some(rest) = line.strip_prefix("pub const ") {
                let mut whole = rest.to_owned();
                while !whole.ends_with(';') {
                    let Some(next) = lines.next() else { bail!("a constant that does not end: {rest}") };
                    whole += next;
                }
                let docs = std::mem::take(&mut docs);
                let (name, value) = whole.split_once(": ").context("a constant without a type")?;
                // Constants outside of modules do not appear in objects.
                if module.is_empty() {
                    continue;
                }
                let value = value.split('"').nth(1).with_context(|| {
                    format!(
                        "{module}::{name} is not a string in quotes: write it out, so that it can be found"
                    )
                })?;
                values.insert(name.to_owned(), value.to_owned());
                let name = Name { value: value.to_owned(), docs: docs.trim().to_owned() };
                names.modules.entry(module.clone()).or_default().push(name);
            } else if !(line.is_empty() || line.starts_with("//")) {
                bail!("neither a module nor a constant: {line}");
            }
        }
        for name in names.modules.values_mut().flatten() {
            name.docs = resolved(&name.docs, &values)?;
        }
        Ok(names)
    }

    fn of(&self, module: &str) -> anyhow::Result<&[Name]> {
        let names = self.modules.get(module).with_context(|| format!("{SOURCE}: no module {module}"))?;
        Ok(names)
    }

    /// Every value of these modules, for the check that no other file spells out such a name.
    #[cfg(test)]
    pub(crate) fn values(&self) -> impl Iterator<Item = &str> {
        self.modules.values().flatten().map(|n| n.value.as_str())
    }
}

/// Docs with rustdoc's links resolved: a link to a constant becomes its value, any other link of this file its name.
///
/// # Errors
/// A link leads out of the file, and it is not said what a reader gets instead.
fn resolved(docs: &str, values: &BTreeMap<String, String>) -> anyhow::Result<String> {
    let mut out = String::new();
    let mut rest = docs;
    while let Some(at) = rest.find("[`") {
        out.push_str(&rest[..at]);
        let Some((link, after)) = rest[at + 2..].split_once("`]") else { break };
        let name = link.rsplit("::").next().unwrap_or(link);
        match (values.get(name), MEANT.iter().find(|(meant, _)| *meant == link)) {
            (Some(value), _) => out.push_str(&format!("`{value}`")),
            (None, Some((_, text))) => out.push_str(text),
            (None, None) if link.contains("::") => bail!("add a text for the link {link} to MEANT"),
            (None, None) => out.push_str(&format!("`{name}`")),
        }
        // In ``[`a`](b)`` the target is dropped.
        rest = after.strip_prefix('(').and_then(|a| a.split_once(')')).map_or(after, |(_, a)| a);
    }
    Ok(out + rest)
}

/// The kind of object that carries an annotation: the words before the first colon of its docs.
fn on(docs: &str) -> (&str, String) {
    match docs.split_once(": ") {
        Some((on, meaning)) if on.split(' ').count() <= 12 && !on.contains('.') => {
            (on.trim_start_matches("On "), capital(meaning))
        }
        _ => ("", docs.to_owned()),
    }
}

fn capital(text: &str) -> String {
    let mut chars = text.chars();
    chars.next().map(|c| c.to_uppercase().chain(chars).collect()).unwrap_or_default()
}

fn table(names: &[Name], first: &str) -> String {
    let mut out = columns(&[first, "on", "meaning"]);
    for name in names {
        let (on, meaning) = on(&name.docs);
        out += &row(&[&format!("`{}`", name.value), &cell(on), &cell(&meaning)]);
    }
    out
}

fn plain(names: &[Name], first: &str) -> String {
    let mut out = columns(&[first, "meaning"]);
    for name in names {
        out += &row(&[&format!("`{}`", name.value), &cell(&name.docs)]);
    }
    out
}

pub(super) fn annotations(names: &Names) -> anyhow::Result<String> {
    let mut out = head("Annotations", SOURCE);
    out += "\n## Shared with OpenShift's operator\n\nThanks to these, either implementation's controller \
        works with the other's agent. A few are ours alone; their text says so.\n\n";
    // Both modules also hold values that an annotation may have, which are not annotations themselves.
    let of = |module: &str| -> anyhow::Result<Vec<Name>> {
        Ok(names.of(module)?.iter().filter(|n| n.value.contains('/')).cloned().collect())
    };
    out += &table(&of("annotation")?, "annotation");
    out += "\n## Our own\n\nNo other implementation reads these.\n\n";
    out += &table(&of("own")?, "annotation");
    out += "\n## Values of `machineconfiguration.openshift.io/state`\n\n";
    out += &plain(names.of("state")?, "state");
    Ok(out)
}

pub(super) fn labels(names: &Names) -> anyhow::Result<String> {
    let mut out = head("Labels", SOURCE);
    out += "\n";
    out += &plain(names.of("label")?, "label");
    Ok(out)
}

pub(super) fn conditions(names: &Names) -> anyhow::Result<String> {
    let mut out = head("Conditions", "crates/api");
    out += "\n## MachineConfigPool\n\n";
    out += &plain(names.of("pool_condition")?, "condition");
    out += "\nThe reasons of `RenderDegraded`:\n\n";
    out += &columns(&["reason", "meaning"]);
    for reason in RenderReason::ALL {
        out += &row(&[&format!("`{reason}`"), &cell(reason.meaning())]);
    }
    out += "\nFor `Degraded`, `NodeDegraded` and `RenderDegraded` see [Troubleshooting](../troubleshooting.md).\n";
    out += "\n## MachineConfigNode\n\nThe steps of an update, as `kubectl describe machineconfignode NODE` shows them.\n\n";
    out += &plain(names.of("node_condition")?, "condition");
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn constants_are_read_with_their_docs_and_links_become_values() {
        let text = "/// Annotations.\npub mod annotation {\n    /// Node: see [`part`] and\n    /// [`B`].\n    pub const A: &str =\n        \"x/a\";\n    /// On Pods: two.\n    pub const B: &str = \"x/b\";\n}\n";
        let names = Names::parse(text).unwrap();
        let of = names.of("annotation").unwrap();
        assert_eq!(of[0].docs, "Node: see `part` and `x/b`.");
        assert_eq!(on(&of[1].docs), ("Pods", "Two.".to_owned()));
    }

    #[test]
    fn the_longest_reason_is_told_as_it_is() {
        let told = MEANT.iter().find(|(link, _)| link.ends_with("MAX_REASON_CHARS")).unwrap().1;
        assert_eq!(told, api::formats::text::MAX_REASON_CHARS.to_string());
    }

    #[test]
    fn values_are_not_listed_as_annotations() {
        let page = annotations(&Names::read(&crate::root()).unwrap()).unwrap();
        let (keys, states) = page.split_once("## Values of").unwrap();
        let listed: Vec<&str> = keys.lines().filter_map(|line| line.strip_prefix("| `")).collect();
        assert!(listed.len() > 50, "{listed:?}");
        assert!(listed.iter().all(|row| row.split('`').next().unwrap().contains('/')), "{listed:?}");
        assert!(states.contains("`Degraded`") && !states.contains("`Rebooting`"), "{states}");
    }

    #[test]
    fn what_cannot_be_read_is_an_error() {
        let hidden = "pub mod own {\n    /// Node: a.\n    pub const A: &str = concat(X);\n}\n";
        assert!(Names::parse(hidden).unwrap_err().to_string().contains("own::A"));
        Names::parse("fn f() {}\n").unwrap_err();
        // What a reader gets in place of a link to another module is said, or nothing is made.
        let elsewhere =
            "pub mod own {\n    /// Node: see [`crate::moved`].\n    pub const A: &str = \"x/a\";\n}\n";
        assert!(Names::parse(elsewhere).unwrap_err().to_string().contains("the link crate::moved"));
    }

    #[test]
    fn no_other_file_has_a_name_of_its_own() {
        let root = crate::root();
        let names = Names::read(&root).unwrap();
        let prefixes = ["\"machineconfiguration.openshift.io/", "\"machineconfig.dev/"];
        let mut wrong = vec![];
        for path in crate::docs::sources(&root, &["rs"]) {
            let is_test = path.with_extension("").components().any(|part| part.as_os_str() == "tests");
            if path.ends_with(SOURCE) || is_test {
                continue;
            }
            let text = std::fs::read_to_string(&path).unwrap();
            // Tests spell names out on purpose, to notice a change.
            let code = text.split("#[cfg(test)]").next().unwrap_or_default();
            for line in code.lines().filter(|l| !l.trim_start().starts_with("//")) {
                let Some(name) = prefixes.iter().find_map(|prefix| line.split(prefix).nth(1)) else {
                    continue;
                };
                let name = name.split('"').next().unwrap_or_default();
                if !name.starts_with("v1") && !name.is_empty() {
                    let is_known = names.values().any(|v| v.ends_with(&format!("/{name}")));
                    wrong.push(format!("{}: {name} (in names.rs: {is_known})", path.display()));
                }
            }
        }
        assert!(wrong.is_empty(), "names belong into {SOURCE}: {wrong:#?}");
    }
}
