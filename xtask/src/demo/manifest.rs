//! The MachineConfig that the demo rolls out: reads it, checks that it is what the demo needs, and finds what to show
//! of it on the nodes afterwards. Not here: validation, which the controller does and reports.

use anyhow::{Context, bail};
use api::names::label;
use api::v1::MachineConfig;
use kube::ResourceExt;
use serde_json::Value;
use std::path::Path;

pub(super) fn read(path: &Path) -> anyhow::Result<MachineConfig> {
    let text = std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
    let documents =
        api::formats::yaml::documents(&text).with_context(|| format!("{} is not YAML", path.display()))?;
    let [document] = documents.as_slice() else {
        bail!("{}: {} documents; the demo rolls out one MachineConfig", path.display(), documents.len());
    };
    let kind = document.get("kind").and_then(Value::as_str).unwrap_or("nothing");
    if kind != "MachineConfig" {
        bail!("{}: kind is {kind}; the demo rolls out a MachineConfig", path.display());
    }
    let mc: MachineConfig = serde_json::from_value(document.clone())
        .with_context(|| format!("{} is not a MachineConfig", path.display()))?;
    if mc.metadata.name.is_none() {
        bail!("{}: metadata.name is missing", path.display());
    }
    if mc.labels().get(label::ROLE).is_none_or(|role| role != "worker") {
        bail!(
            "{}: no pool would pick it up: set metadata.labels[\"{}\"] to \"worker\"",
            path.display(),
            label::ROLE
        );
    }
    Ok(mc)
}

/// The paths of the files that it writes.
pub(super) fn files(mc: &MachineConfig) -> Vec<String> {
    names(mc, "/storage/files", "path")
}

/// The names of the units that it mentions.
pub(super) fn units(mc: &MachineConfig) -> Vec<String> {
    names(mc, "/systemd/units", "name")
}

fn names(mc: &MachineConfig, list: &str, key: &str) -> Vec<String> {
    let list = mc.spec.config.as_ref().and_then(|c| c.pointer(list)).and_then(Value::as_array);
    let text = |v: &Value| v.get(key).and_then(Value::as_str).map(str::to_owned);
    list.into_iter().flatten().filter_map(text).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn example(name: &str) -> MachineConfig {
        read(&Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples").join(name)).unwrap()
    }

    #[test]
    fn the_demo_knows_what_to_look_at() {
        let mc = example("50-worker-motd-and-unit.yaml");
        assert_eq!(files(&mc), ["/etc/motd"]);
        assert_eq!(units(&mc), ["hello-mco.service"]);
        assert_eq!(files(&example("50-worker-kernel-arguments.yaml")), Vec::<String>::new());
    }

    #[test]
    fn a_manifest_that_no_pool_would_pick_is_refused_with_the_remedy() {
        let folder = std::env::temp_dir().join(format!("xtask-demo-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let rows = [
            ("kind: Pod\n", "kind is Pod"),
            ("kind: MachineConfig\nmetadata: {name: a}\n", "no pool would pick it up"),
            ("kind: MachineConfig\n---\nkind: MachineConfig\n", "2 documents"),
            ("kind: [\n", "not YAML"),
        ];
        for (text, want) in rows {
            let file = folder.join("m.yaml");
            std::fs::write(&file, text).unwrap();
            let error = format!("{:#}", read(&file).unwrap_err());
            assert!(error.contains(want), "{text:?}: {error}");
        }
        std::fs::remove_dir_all(&folder).unwrap();
    }
}
