//! The differences between two rendered MachineConfigs, in a form for people: decoded contents, units, kernel arguments
//! and single values, as unified diffs. Pure. What may be secret is shown only on request; otherwise only the fact that
//! it differs.
//!
//! What it is not: what a host does about a difference (see `host::plan`), or what is secret (see `desired::mask`).

use crate::config::provenance;
use api::v1::{MachineConfig, MachineConfigSpec};
use desired::FILE_MODE;
use desired::mask::{self, Privacy, Secrets, Side, Why, text};
use ignition::{Config, File, Owner};
use similar::TextDiff;
use std::collections::BTreeMap;

/// Unchanged lines around a change, as in `diff -u`.
const CONTEXT: usize = 3;

/// One item of a config: the part that is always shown, and contents that may have to be hidden.
#[derive(Clone, Default, PartialEq, Eq)]
struct Item {
    shown: String,
    /// Contents that are compared, and shown if nothing in them is secret on either side.
    contents: Vec<Part>,
    /// Contents that are compared but never shown.
    hidden: Vec<u8>,
}

/// Contents of a file, unit or drop-in.
#[derive(Clone, PartialEq, Eq)]
struct Part {
    bytes: Vec<u8>,
    private: Option<Why>,
}

impl Part {
    fn side(&self) -> Side<'_> {
        Side { bytes: &self.bytes, private: self.private }
    }
}

impl Item {
    fn plain(shown: String) -> Self {
        Self { shown, ..Self::default() }
    }

    /// The item as text, next to the other version of it.
    fn text(&self, why: Option<Why>, other: Option<&Self>, when: &str) -> String {
        let mut out = self.shown.clone();
        for (i, part) in self.contents.iter().enumerate() {
            let len = part.bytes.len();
            let binary = format!("(binary, {len} bytes)\n");
            out += &match (why, text(&part.bytes)) {
                (Some(why), _) => format!("({len} bytes, not shown: {why})\n"),
                (None, Some(text)) => ended(text),
                (None, None) => binary,
            };
            let unseen = why.is_some() || text(&part.bytes).is_none();
            let differs = other.is_some_and(|o| o.contents.get(i).is_none_or(|o| o.bytes != part.bytes));
            if unseen && differs {
                out += &format!("(hidden value, {when})\n");
            }
        }
        if !self.hidden.is_empty() && other.is_some_and(|o| o.hidden != self.hidden) {
            out += &format!("(hidden value, {when})\n");
        }
        out
    }
}

/// Why the contents of two versions are not shown.
fn why_hidden(old: Option<&Item>, new: Option<&Item>) -> Option<Why> {
    let part = |item: Option<&Item>, i: usize| item.and_then(|item| item.contents.get(i)).cloned();
    let most = [old, new].into_iter().flatten().map(|i| i.contents.len()).max().unwrap_or_default();
    (0..most).find_map(|i| {
        let (old, new) = (part(old, i), part(new, i));
        mask::hidden(old.as_ref().map(Part::side), new.as_ref().map(Part::side))
    })
}

/// The differences, in the order scalars, arguments, files, units, users; empty when there are none.
///
/// # Errors
/// A config that cannot be read; the text names the MachineConfig.
pub fn diff(
    old: Option<&MachineConfig>,
    new: Option<&MachineConfig>,
    secrets: Secrets,
) -> Result<String, String> {
    let (old, new) = (items(old, secrets)?, items(new, secrets)?);
    let keys: std::collections::BTreeSet<_> = old.keys().chain(new.keys()).collect();
    let mut out = String::new();
    for key in keys {
        let (a, b) = (old.get(key), new.get(key));
        if a == b {
            continue;
        }
        let name = &key.1;
        let header = |item: Option<&Item>| if item.is_some() { name.clone() } else { "(none)".to_owned() };
        let why = if secrets == Secrets::Show { None } else { why_hidden(a, b) };
        let text = |item: Option<&Item>, other: Option<&Item>, when: &str| {
            item.map(|i| i.text(why, other, when)).unwrap_or_default()
        };
        let (before, after) = (text(a, b, "before"), text(b, a, "after"));
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

/// Sections in the order in which they are shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Section {
    Spec,
    Storage,
    Units,
    Passwd,
    Rest,
}

type Items = BTreeMap<(Section, String), Item>;

fn items(mc: Option<&MachineConfig>, secrets: Secrets) -> Result<Items, String> {
    let Some(mc) = mc else { return Ok(Items::new()) };
    let name = mc.metadata.name.as_deref().unwrap_or_default();
    let mut items = Items::new();
    spec(&mut items, &mc.spec, secrets);
    let Some(raw) = mc.spec.config.as_ref().filter(|c| !c.is_null()) else { return Ok(items) };
    let parsed = ignition::parse_value(raw).map_err(|e| format!("MachineConfig {name}: spec.config: {e}"))?;
    ignition_items(&mut items, parsed.config, secrets);
    Ok(items)
}

fn spec(items: &mut Items, spec: &MachineConfigSpec, secrets: Secrets) {
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
    // Values that are not set are not shown.
    for (name, value) in values.into_iter().filter(|(_, v)| !matches!(v.as_str(), "" | "false" | "default")) {
        put(items, Section::Spec, name, Item::plain(format!("{value}\n")));
    }
    for (name, list) in [("kernelArguments", kernel_arguments), ("extensions", extensions)] {
        let shown = |l: &String| match secrets {
            Secrets::Show => format!("{l}\n"),
            Secrets::Hide => format!("{}\n", mask::argument(l)),
        };
        let lines: String = list.iter().flatten().map(shown).collect();
        if !lines.is_empty() {
            let hidden = list.iter().flatten().flat_map(|l| [l.as_bytes(), b"\n"].concat()).collect();
            // The shown lines are complete unless something in them is masked.
            let masked = list.iter().flatten().any(|l| !lines.lines().any(|shown| shown == l));
            let hidden = if masked { hidden } else { Vec::new() };
            put(items, Section::Spec, name, Item { shown: lines, hidden, ..Item::default() });
        }
    }
}

fn put(items: &mut Items, section: Section, name: impl Into<String>, item: Item) {
    items.insert((section, name.into()), item);
}

fn ignition_items(items: &mut Items, mut config: Config, secrets: Secrets) {
    let privacy = Privacy::of(&config);
    for f in std::mem::take(&mut config.storage.files) {
        file(items, &f, &privacy);
    }
    for d in std::mem::take(&mut config.storage.directories) {
        let owner = owner("user", &d.user) + &owner("group", &d.group);
        put(items, Section::Storage, format!("directory {}", d.path), Item::plain(mode(d.mode) + &owner));
    }
    for l in std::mem::take(&mut config.storage.links) {
        let kind = if l.hard == Some(true) { "hard link to" } else { "link to" };
        let text = format!("{kind} {}\n", l.target.unwrap_or_default());
        put(items, Section::Storage, format!("link {}", l.path), Item::plain(text));
    }
    for u in std::mem::take(&mut config.systemd.units) {
        let shown = flag("enabled", u.enabled) + &flag("mask", u.mask);
        let contents = |path: &str, text: Option<&str>| {
            let bytes = text.unwrap_or_default().as_bytes().to_vec();
            let private = privacy.is_private(path).then_some(Why::Path);
            vec![Part { bytes, private }]
        };
        let item = Item {
            shown,
            contents: contents(&desired::paths::unit(&u.name), u.contents.as_deref()),
            ..Item::default()
        };
        put(items, Section::Units, format!("unit {}", u.name), item);
        for d in u.dropins {
            let path = desired::paths::dropin(&u.name, &d.name);
            let item = Item { contents: contents(&path, d.contents.as_deref()), ..Item::default() };
            put(items, Section::Units, format!("drop-in {}.d/{}", u.name, d.name), item);
        }
    }
    for mut u in std::mem::take(&mut config.passwd.users) {
        let mut hidden = u.password_hash.take().unwrap_or_default().into_bytes();
        let mut shown = match (hidden.is_empty(), secrets) {
            (true, _) => String::new(),
            (false, Secrets::Hide) => "passwordHash: (hidden)\n".to_owned(),
            (false, Secrets::Show) => format!("passwordHash: {}\n", String::from_utf8_lossy(&hidden)),
        };
        for key in std::mem::take(&mut u.ssh_authorized_keys) {
            // Options before the key's type can hold commands and variables.
            match secrets {
                Secrets::Show => shown += &format!("key: {key}\n"),
                Secrets::Hide => shown += &format!("key: {}\n", provenance::short_key(&key)),
            }
            hidden.extend(key.bytes().chain([b'\n']));
        }
        if secrets == Secrets::Show {
            hidden.clear();
        }
        shown += &json(&u);
        put(items, Section::Passwd, format!("user {}", u.name), Item { shown, hidden, ..Item::default() });
    }
    for mut g in std::mem::take(&mut config.passwd.groups) {
        let hidden = g.password_hash.take().unwrap_or_default().into_bytes();
        let item = Item { shown: json(&g), hidden, ..Item::default() };
        put(items, Section::Passwd, format!("group {}", g.name), item);
    }
    // The rest is rare and is not broken down: disks, proxies, what Ignition fetches. It may hold keys.
    let rest = serde_json::to_vec(&config).unwrap_or_default();
    if config != ignition::empty() {
        let item = Item { shown: "(present)\n".to_owned(), hidden: rest, ..Item::default() };
        put(items, Section::Rest, "other sections of spec.config", item);
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

fn file(items: &mut Items, f: &File, privacy: &Privacy) {
    let shown = mode(f.mode) + &owner("user", &f.user) + &owner("group", &f.group);
    let mut item = Item::plain(shown);
    let file_mode = f.mode.and_then(|m| u32::try_from(m).ok()).unwrap_or(FILE_MODE);
    let closed = privacy.is_private(&f.path).then_some(Why::Path);
    let all = Some(&f.contents).filter(|c| c.source.is_some()).into_iter().chain(&f.append);
    for (i, r) in all.enumerate() {
        if i > 0 || f.contents.source.is_none() {
            item.shown += "append: yes\n";
        }
        match r.decode() {
            Ok(bytes) => {
                let private = closed.or(Side::with_mode(&bytes, file_mode).private);
                item.contents.push(Part { bytes, private });
            }
            Err(e) => {
                item.shown += &format!("(cannot be read here: {e})\n");
                item.hidden.extend(r.source.clone().unwrap_or_default().into_bytes());
            }
        }
    }
    put(items, Section::Storage, format!("file {}", f.path), item);
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
        assert_eq!(diff(Some(&a), Some(&a), Secrets::Hide).unwrap(), "");
        assert_eq!(
            diff(Some(&a), Some(&b), Secrets::Hide).unwrap(),
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
            let text = diff(Some(&a), Some(&b), Secrets::Hide).unwrap();
            assert!(text.contains("+(hidden value, after)"), "{text}");
            assert!(!text.contains("SECRET"), "{text}");
            let added = diff(None, Some(&b), Secrets::Hide).unwrap();
            assert!(!added.is_empty() && !added.contains("SECRET"), "{added}");
        }
    }

    /// Puts a secret into every place that holds text, in every state of the other side.
    #[test]
    fn no_place_and_no_state_shows_a_secret() {
        const SECRET: &str = "hunter2";
        let line = format!("one\nSMTP_PASS={SECRET}\n");
        let file = |path: &str, mode: u32, text: &str| {
            let source = ignition::data_url::encode(text.as_bytes());
            mk_config(json!({"storage": {
                "directories": [{"path": "/etc/closed", "mode": 0o700}],
                "files": [{"path": path, "mode": mode, "contents": {"source": source}}]}}))
        };
        let unit =
            |text: &str| mk_config(json!({"systemd": {"units": [{"name": "a.service", "contents": text}]}}));
        let dropin = |text: &str| {
            mk_config(
                json!({"systemd": {"units": [{"name": "a.service", "dropins": [{"name": "x.conf", "contents": text}]}]}}),
            )
        };
        // Nothing in the text looks like a secret; the name of the unit or drop-in reveals it.
        let named = |unit: &str, dropin: &str| {
            let text = format!("[Unit]\nDescription={SECRET}\n");
            mk_config(
                json!({"systemd": {"units": [{"name": unit, "dropins": [{"name": dropin, "contents": text}]}]}}),
            )
        };
        let unit_text = format!("[Service]\nEnvironment=\"SMTP_PASS={SECRET}\"\n");
        let pairs = [
            (file("/etc/app.conf", 0o644, &line), file("/etc/app.conf", 0o644, "one\n")),
            (file("/etc/app.conf", 0o644, &line), file("/etc/app.conf", 0o644, "")),
            (file("/etc/app.conf", 0o644, "one\n"), file("/etc/app.conf", 0o644, &line)),
            (file("/etc/app.conf", 0o600, "hunter2"), file("/etc/app.conf", 0o644, "hunter2 too")),
            (file("/etc/closed/app.conf", 0o644, "hunter2"), file("/etc/closed/app.conf", 0o644, "x")),
            (file("/etc/ssl/private/app", 0o644, "hunter2"), file("/etc/ssl/private/app", 0o644, "x")),
            (unit(&unit_text), unit("[Service]\n")),
            (unit(&unit_text), unit("")),
            (dropin(&unit_text), dropin("[Service]\n")),
            (named("fetch-token.service", "x.conf"), named("fetch-token.service", "y.conf")),
            (named("a.service", "secret.conf"), mk_config(json!({}))),
            (
                mk(json!({"kernelArguments": ["nbd.password=hunter2"]})),
                mk(json!({"kernelArguments": ["nbd.password=hunter2x"]})),
            ),
            (
                mk_config(
                    json!({"passwd": {"users": [{"name": "core", "sshAuthorizedKeys": ["environment=\"X=hunter2\" ssh-ed25519 AAAA me"]}]}}),
                ),
                mk_config(json!({"passwd": {"users": [{"name": "core", "sshAuthorizedKeys": ["hunter2"]}]}})),
            ),
        ];
        for (a, b) in &pairs {
            for (old, new) in [(Some(a), Some(b)), (Some(b), Some(a))] {
                let masked = diff(old, new, Secrets::Hide).unwrap();
                assert!(!masked.is_empty() && !masked.contains(SECRET), "{masked}");
                let shown = diff(old, new, Secrets::Show).unwrap();
                assert!(shown.contains(SECRET), "{shown}");
            }
        }
        // Contents that were removed are in no file any more, whatever they looked like.
        let words = file("/etc/app.conf", 0o644, SECRET);
        let emptied = diff(Some(&words), Some(&file("/etc/app.conf", 0o644, "")), Secrets::Hide).unwrap();
        assert!(emptied.contains("emptied") && !emptied.contains(SECRET), "{emptied}");
        for (a, _) in &pairs[..4] {
            for (old, new) in [(Some(a), None), (None, Some(a))] {
                let masked = diff(old, new, Secrets::Hide).unwrap();
                assert!(!masked.is_empty() && !masked.contains(SECRET), "{masked}");
            }
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
            let text = diff(Some(&mk(json!({}))), Some(&mk(spec)), Secrets::Hide).unwrap();
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
            let text =
                diff(Some(&mk_config(json!({}))), Some(&mk_config(section.clone())), Secrets::Hide).unwrap();
            assert!(!text.is_empty(), "{section}");
        }
    }
}
