//! What differs between two rendered MachineConfigs, as people read it: decoded contents, units, kernel arguments,
//! single values, as unified diffs. Pure. Secrets are never shown, only that they differ.
//!
//! What it is not: what a host does about it; `host::plan` says that.

use api::v1::{MachineConfig, MachineConfigSpec};
use ignition::{Config, File, Owner, Resource};
use similar::TextDiff;
use std::collections::BTreeMap;

/// Lines around a change; as `diff -u`.
const CONTEXT: usize = 3;
/// Files that hold the cluster's pull secret.
const PULL_SECRETS: [&str; 2] =
    ["/var/lib/kubelet/config.json", "/etc/mco/internal-registry-pull-secret.json"];
/// Text that only stands in what nobody else may read: keys, registry logins, kubeconfigs and tokens.
const SECRET_MARKS: [&str; 6] =
    ["PRIVATE KEY-----", "\"auths\"", "client-key-data:", "token:", "password=", "password:"];

/// One thing in a config: what is shown of it, and what must not be.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Item {
    shown: String,
    /// Compared, never shown.
    hidden: Vec<u8>,
}

/// The differences, in the order scalars, arguments, files, units, users; empty when there are none.
///
/// # Errors
/// A config that cannot be read; the text names the MachineConfig.
pub fn diff(old: Option<&MachineConfig>, new: Option<&MachineConfig>) -> Result<String, String> {
    let (old, new) = (items(old)?, items(new)?);
    let keys: std::collections::BTreeSet<_> = old.keys().chain(new.keys()).collect();
    let mut out = String::new();
    for key in keys {
        let (a, b) = (old.get(key), new.get(key));
        if a == b {
            continue;
        }
        let name = &key.1;
        let header = |item: Option<&Item>| if item.is_some() { name.clone() } else { "(none)".to_owned() };
        let text = |item: Option<&Item>, other: Option<&Item>, hidden: &str| {
            let Some(item) = item else { return String::new() };
            let differs = !item.hidden.is_empty() && other.is_some_and(|o| o.hidden != item.hidden);
            if differs { format!("{}{hidden}\n", item.shown) } else { item.shown.clone() }
        };
        let before = text(a, b, "(hidden value, before)");
        let after = text(b, a, "(hidden value, after)");
        if before == after {
            out += &format!("--- {}\n+++ {}\n", header(a), header(b));
            continue;
        }
        let lines = TextDiff::from_lines(&before, &after);
        let mut unified = lines.unified_diff();
        out += &unified.context_radius(CONTEXT).header(&header(a), &header(b)).to_string();
    }
    Ok(out)
}

/// Sections in the order that they are shown in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Section {
    Spec,
    Storage,
    Units,
    Passwd,
    Rest,
}

type Items = BTreeMap<(Section, String), Item>;

fn items(mc: Option<&MachineConfig>) -> Result<Items, String> {
    let Some(mc) = mc else { return Ok(Items::new()) };
    let name = mc.metadata.name.as_deref().unwrap_or_default();
    let mut items = Items::new();
    spec(&mut items, &mc.spec);
    let Some(raw) = mc.spec.config.as_ref().filter(|c| !c.is_null()) else { return Ok(items) };
    let parsed = ignition::parse_value(raw).map_err(|e| format!("MachineConfig {name}: spec.config: {e}"))?;
    ignition_items(&mut items, parsed.config);
    Ok(items)
}

fn spec(items: &mut Items, spec: &MachineConfigSpec) {
    let MachineConfigSpec {
        os_image_url,
        base_os_extensions_container_image,
        config: _,
        kernel_arguments,
        extensions,
        fips,
        kernel_type,
    } = spec;
    let values = [
        ("osImageURL", os_image_url.clone()),
        ("baseOSExtensionsContainerImage", base_os_extensions_container_image.clone()),
        ("fips", fips.to_string()),
        ("kernelType", kernel_type.clone()),
    ];
    // What is not said is not shown.
    for (name, value) in values.into_iter().filter(|(_, v)| !matches!(v.as_str(), "" | "false" | "default")) {
        put(items, Section::Spec, name, format!("{value}\n"), Vec::new());
    }
    for (name, list) in [("kernelArguments", kernel_arguments), ("extensions", extensions)] {
        let lines: String = list.iter().flatten().map(|l| format!("{l}\n")).collect();
        if !lines.is_empty() {
            put(items, Section::Spec, name, lines, Vec::new());
        }
    }
}

fn put(items: &mut Items, section: Section, name: impl Into<String>, shown: String, hidden: Vec<u8>) {
    items.insert((section, name.into()), Item { shown, hidden });
}

fn ignition_items(items: &mut Items, mut config: Config) {
    for f in std::mem::take(&mut config.storage.files) {
        file(items, &f);
    }
    for d in std::mem::take(&mut config.storage.directories) {
        let owner = owner("user", &d.user) + &owner("group", &d.group);
        put(items, Section::Storage, format!("directory {}", d.path), mode(d.mode) + &owner, Vec::new());
    }
    for l in std::mem::take(&mut config.storage.links) {
        let kind = if l.hard == Some(true) { "hard link to" } else { "link to" };
        let text = format!("{kind} {}\n", l.target.unwrap_or_default());
        put(items, Section::Storage, format!("link {}", l.path), text, Vec::new());
    }
    for u in std::mem::take(&mut config.systemd.units) {
        let mut shown = flag("enabled", u.enabled) + &flag("mask", u.mask);
        shown += &ended(u.contents.as_deref().unwrap_or_default());
        put(items, Section::Units, format!("unit {}", u.name), shown, Vec::new());
        for d in u.dropins {
            let text = ended(d.contents.as_deref().unwrap_or_default());
            put(items, Section::Units, format!("drop-in {}.d/{}", u.name, d.name), text, Vec::new());
        }
    }
    for mut u in std::mem::take(&mut config.passwd.users) {
        let hidden = u.password_hash.take().unwrap_or_default().into_bytes();
        let mut shown = if hidden.is_empty() { String::new() } else { "passwordHash: (hidden)\n".to_owned() };
        let keys = std::mem::take(&mut u.ssh_authorized_keys);
        keys.iter().for_each(|k| shown += &format!("key: {k}\n"));
        shown += &json(&u);
        put(items, Section::Passwd, format!("user {}", u.name), shown, hidden);
    }
    for mut g in std::mem::take(&mut config.passwd.groups) {
        let hidden = g.password_hash.take().unwrap_or_default().into_bytes();
        put(items, Section::Passwd, format!("group {}", g.name), json(&g), hidden);
    }
    // What is left is seldom and not taken apart: disks, proxies, what Ignition fetches. It may hold keys.
    let rest = serde_json::to_vec(&config).unwrap_or_default();
    if config != ignition::empty() {
        put(items, Section::Rest, "other sections of spec.config", "(present)\n".to_owned(), rest);
    }
}

fn json<T: serde::Serialize>(value: &T) -> String {
    serde_json::to_string(value).unwrap_or_default() + "\n"
}

fn flag(name: &str, value: Option<bool>) -> String {
    value.map(|v| format!("{name}: {v}\n")).unwrap_or_default()
}

fn mode(mode: Option<i64>) -> String {
    mode.map(|m| format!("mode: {m:04o}\n")).unwrap_or_default()
}

fn owner(what: &str, o: &Owner) -> String {
    let id = o.id.map(|id| id.to_string());
    o.name.clone().or(id).map(|o| format!("{what}: {o}\n")).unwrap_or_default()
}

fn ended(text: &str) -> String {
    if text.is_empty() || text.ends_with('\n') {
        text.to_owned()
    } else {
        format!("{text}\n(no newline at the end)\n")
    }
}

fn file(items: &mut Items, f: &File) {
    let mut shown = mode(f.mode) + &owner("user", &f.user) + &owner("group", &f.group);
    let mut hidden = Vec::new();
    if f.contents.source.is_some() {
        contents(&f.path, &f.contents, &mut shown, &mut hidden);
    }
    for r in &f.append {
        shown += "append:\n";
        contents(&f.path, r, &mut shown, &mut hidden);
    }
    put(items, Section::Storage, format!("file {}", f.path), shown, hidden);
}

fn contents(path: &str, r: &Resource, shown: &mut String, hidden: &mut Vec<u8>) {
    match r.decode() {
        Ok(bytes) => match std::str::from_utf8(&bytes) {
            Ok(text) if is_secret(path, text) => {
                *shown += &format!("(hidden, {} bytes)\n", bytes.len());
                hidden.extend(bytes);
            }
            Ok(text) if !text.contains('\0') => *shown += &ended(text),
            _ => {
                *shown += &format!("(binary, {} bytes)\n", bytes.len());
                hidden.extend(bytes);
            }
        },
        Err(e) => {
            *shown += &format!("(cannot be read here: {e})\n");
            hidden.extend(r.source.clone().unwrap_or_default().into_bytes());
        }
    }
}

fn is_secret(path: &str, text: &str) -> bool {
    PULL_SECRETS.contains(&path) || SECRET_MARKS.iter().any(|mark| text.contains(mark))
}

#[cfg(test)]
#[allow(clippy::needless_pass_by_value, reason = "helpers of tests")]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn mk(spec: Value) -> MachineConfig {
        serde_json::from_value(json!({"metadata": {"name": "rendered-worker-1"}, "spec": spec})).unwrap()
    }

    fn mk_config(sections: Value) -> MachineConfig {
        let mut config = sections;
        config["ignition"]["version"] = json!("3.4.0");
        mk(json!({ "config": config }))
    }

    fn mk_file(path: &str, text: &str) -> MachineConfig {
        let source = ignition::data_url::encode(text.as_bytes());
        mk_config(
            json!({"storage": {"files": [{"path": path, "mode": 420, "contents": {"source": source}}]}}),
        )
    }

    #[test]
    fn equal_configs_have_no_differences_and_changes_are_shown_decoded() {
        let (a, b) = (mk_file("/etc/motd", "one\ntwo\n"), mk_file("/etc/motd", "one\n2\n"));
        assert_eq!(diff(Some(&a), Some(&a)).unwrap(), "");
        assert_eq!(
            diff(Some(&a), Some(&b)).unwrap(),
            "--- file /etc/motd\n+++ file /etc/motd\n@@ -1,3 +1,3 @@\n mode: 0644\n one\n-two\n+2\n"
        );
    }

    #[test]
    fn secrets_are_said_to_differ_and_never_shown() {
        let user =
            |hash: &str| mk_config(json!({"passwd": {"users": [{"name": "core", "passwordHash": hash}]}}));
        let pull = |auth: &str| mk_file("/var/lib/kubelet/config.json", &format!("{{\"auths\":\"{auth}\"}}"));
        let key = |k: &str| mk_file("/etc/k", &format!("-----BEGIN PRIVATE KEY-----\n{k}\n"));
        for (a, b) in [
            (user("SECRET-A"), user("SECRET-B")),
            (pull("SECRET-A"), pull("SECRET-B")),
            (key("SECRET-A"), key("SECRET-B")),
        ] {
            let text = diff(Some(&a), Some(&b)).unwrap();
            assert!(text.contains("+(hidden value, after)"), "{text}");
            assert!(!text.contains("SECRET"), "{text}");
            let added = diff(None, Some(&b)).unwrap();
            assert!(added.contains("hidden") && !added.contains("SECRET"), "{added}");
        }
    }

    #[test]
    fn whatever_a_field_says_its_change_is_seen() {
        let rows = [
            (json!({"kernelArguments": ["quiet"]}), "+quiet"),
            (json!({"kernelType": "realtime"}), "+realtime"),
            (json!({"fips": true}), "+true"),
            (json!({"extensions": ["usbguard"]}), "+usbguard"),
            (json!({"osImageURL": "os@sha256:1"}), "+os@sha256:1"),
        ];
        for (spec, want) in rows {
            let text = diff(Some(&mk(json!({}))), Some(&mk(spec))).unwrap();
            assert!(text.contains(want), "{text}");
        }
        let sections = [
            json!({"systemd": {"units": [{"name": "a.service", "enabled": true}]}}),
            json!({"systemd": {"units": [{"name": "a.service", "dropins": [{"name": "x.conf", "contents": "[Unit]\n"}]}]}}),
            json!({"passwd": {"users": [{"name": "core", "sshAuthorizedKeys": ["k"]}]}}),
            json!({"passwd": {"groups": [{"name": "g"}]}}),
            json!({"storage": {"directories": [{"path": "/d"}]}}),
            json!({"storage": {"links": [{"path": "/l", "target": "/t"}]}}),
            json!({"storage": {"files": [{"path": "/f", "contents": {"source": "https://h/x"}}]}}),
            json!({"storage": {"disks": [{"device": "/dev/a", "wipeTable": true}]}}),
        ];
        for section in sections {
            let text = diff(Some(&mk_config(json!({}))), Some(&mk_config(section.clone()))).unwrap();
            assert!(!text.is_empty(), "{section}");
        }
    }
}
