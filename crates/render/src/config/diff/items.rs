//! The items of a MachineConfig that differences are shown of: its scalars, arguments, files, units and users, as text.
//!
//! What it is not: the comparison (see `diff`), or what is secret (see `desired::mask`).

use super::DiffSide;
use crate::config::provenance;
use api::v1::MachineConfigSpec;
use desired::FILE_MODE;
use desired::mask::{self, MaskReason, MaskSide, Privacy, Secrets, text};
use ignition::{Config, File, Owner};
use std::collections::BTreeMap;

/// One item of a config: the part that is always shown, and contents that may have to be hidden.
#[derive(Clone, Default, PartialEq, Eq)]
pub(super) struct Item {
    shown: String,
    /// Contents that are compared, and shown if nothing in them is secret on either side.
    pub(super) contents: Vec<PartContents>,
    /// Contents that are compared but never shown.
    hidden: Vec<u8>,
}

/// Contents of a file, unit or drop-in.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct PartContents {
    bytes: Vec<u8>,
    private: Option<MaskReason>,
}

impl PartContents {
    pub(super) fn side(&self) -> MaskSide<'_> {
        MaskSide { bytes: &self.bytes, private: self.private }
    }
}

impl Item {
    fn plain(shown: String) -> Self {
        Self { shown, ..Self::default() }
    }

    /// The item as text, next to the other version of it.
    pub(super) fn text(&self, why: Option<MaskReason>, other: Option<&Self>, when: &str) -> String {
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

/// Sections in the order in which they are shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Section {
    Spec,
    Storage,
    Units,
    Passwd,
    Rest,
}

pub(super) type Items = BTreeMap<(Section, String), Item>;

pub(super) fn items(side: Option<DiffSide<'_>>, secrets: Secrets) -> Items {
    let mut items = Items::new();
    if let Some(DiffSide { object, config }) = side {
        spec(&mut items, &object.spec, secrets);
        ignition_items(&mut items, config.clone(), secrets);
    }
    items
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
            let private = privacy.is_private(path).then_some(MaskReason::Path);
            vec![PartContents { bytes, private }]
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
    let closed = privacy.is_private(&f.path).then_some(MaskReason::Path);
    let all = Some(&f.contents).filter(|c| c.source.is_some()).into_iter().chain(&f.append);
    for (i, r) in all.enumerate() {
        if i > 0 || f.contents.source.is_none() {
            item.shown += "append: yes\n";
        }
        match r.decode() {
            Ok(bytes) => {
                let private = closed.or(MaskSide::with_mode(&bytes, file_mode).private);
                item.contents.push(PartContents { bytes, private });
            }
            Err(e) => {
                item.shown += &format!("(cannot be read here: {e})\n");
                item.hidden.extend(r.source.clone().unwrap_or_default().into_bytes());
            }
        }
    }
    put(items, Section::Storage, format!("file {}", f.path), item);
}
