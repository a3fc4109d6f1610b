//! Which MachineConfig set what in a rendered one, and which others it overrode. Pure; holds names, never contents.

use crate::config::check::Component;
use crate::config::merge::is_generated;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::{Deserialize, Serialize};
use std::borrow::Borrow;
use std::collections::BTreeMap;
use std::io::Write as _;

/// The largest packed form that is stored, in bytes. Kubernetes allows 256 KiB for all annotations of an object. Half
/// of that is five times what five hundred MachineConfigs with five settings each need.
pub const MAX_PACKED: usize = 128 * 1024;

/// A packed form that cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum ProvenanceError {
    /// Not base64.
    #[error("is not base64")]
    Base64(#[from] base64::DecodeError),
    /// It does not unpack.
    #[error(transparent)]
    Packed(#[from] ignition::ResourceError),
    /// It has another structure.
    #[error("has a format that this version does not read")]
    Form(#[from] serde_json::Error),
}

/// The kinds of things that a MachineConfig sets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Kind {
    /// A file; its name is the path.
    File,
    /// A directory; its name is the path.
    Directory,
    /// A link; its name is the path.
    Link,
    /// A unit.
    Unit,
    /// A drop-in; its name is `UNIT/DROPIN`.
    Dropin,
    /// A user.
    User,
    /// A public key of a user; its name is `USER/KEY`, the key by its type and comment.
    SshKey,
    /// A group.
    Group,
    /// A kernel argument; its name is the argument.
    KernelArgument,
    /// An extension.
    Extension,
    /// A field of the spec with a single value.
    Scalar,
    /// A section of the Ignition config that is not broken down further.
    Section,
}

/// The origin of one thing.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Origin {
    /// What sort of thing.
    pub kind: Kind,
    /// Its name.
    pub name: String,
    /// Which part of it, for example `contents` or `mode`. Empty: all of it.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub field: String,
    /// The MachineConfig whose value is in force.
    pub set_by: String,
    /// The MachineConfigs that it overrode, in merge order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub lost: Vec<String>,
}

/// The origins of everything in a rendered MachineConfig, sorted by kind, name and field.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Provenance(pub Vec<Origin>);

impl Provenance {
    /// The origins of a thing by its name: a path, a unit, a drop-in, a kernel argument.
    pub fn of<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a Origin> {
        self.0.iter().filter(move |o| o.name == name)
    }

    /// The form for an annotation: JSON, gzip, base64. `None` if it would be too large to store. The provenance can be
    /// computed again as long as the MachineConfigs are unchanged.
    pub fn pack(&self) -> Option<String> {
        let json = serde_json::to_vec(self).ok()?;
        let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
        gzip.write_all(&json).ok()?;
        Some(STANDARD.encode(gzip.finish().ok()?)).filter(|packed| packed.len() <= MAX_PACKED)
    }

    /// Reads what [`Provenance::pack`] wrote.
    ///
    /// # Errors
    /// Text that is something else.
    pub fn unpack(packed: &str) -> Result<Self, ProvenanceError> {
        Ok(serde_json::from_slice(&ignition::gunzip(&STANDARD.decode(packed)?)?)?)
    }

    /// Things that more than one MachineConfig sets.
    pub fn contested(&self) -> impl Iterator<Item = &Origin> {
        self.0.iter().filter(|o| !o.lost.is_empty())
    }
}

#[derive(Default)]
struct Ledger {
    keyed: BTreeMap<(Kind, String, String), (String, Vec<String>)>,
    listed: Vec<Origin>,
}

impl Ledger {
    fn set(&mut self, kind: Kind, name: &str, field: &str, by: &str) {
        let slot = self.keyed.entry((kind, name.to_owned(), field.to_owned()));
        let (set_by, lost) = slot.or_insert_with(|| (by.to_owned(), Vec::new()));
        if set_by != by {
            lost.push(std::mem::replace(set_by, by.to_owned()));
        }
    }

    /// If a path becomes another kind of thing, it keeps the history of the earlier one.
    fn take_path(&mut self, kind: Kind, path: &str, by: &str) {
        let others = [Kind::File, Kind::Directory, Kind::Link].into_iter().filter(|k| *k != kind);
        let mut history = Vec::new();
        for other in others {
            // Fields sort after the empty string, so everything about this path follows from here.
            let first = (other, path.to_owned(), String::new());
            let these = self.keyed.range(first..).map(|(key, _)| key);
            let keys: Vec<_> =
                these.take_while(|(k, name, _)| *k == other && name == path).cloned().collect();
            for key in keys {
                if let Some((set_by, lost)) = self.keyed.remove(&key) {
                    history.extend(lost.into_iter().chain([set_by]));
                }
            }
        }
        history.dedup();
        if !history.is_empty() {
            self.keyed.insert((kind, path.to_owned(), String::new()), (by.to_owned(), history));
        }
    }
}

/// The origins of everything that MachineConfigs, in merge order, set together.
pub fn trace<'a>(components: &[impl Borrow<Component<'a>>]) -> Provenance {
    let mut ledger = Ledger::default();
    for c in components {
        let c: &Component<'a> = c.borrow();
        ignition(&mut ledger, c);
        spec(&mut ledger, c);
    }
    let Ledger { keyed, mut listed } = ledger;
    listed.extend(keyed.into_iter().map(|((kind, name, field), (set_by, lost))| Origin {
        kind,
        name,
        field,
        set_by,
        lost,
    }));
    listed.sort_by(|a, b| (a.kind, &a.name, &a.field).cmp(&(b.kind, &b.name, &b.field)));
    Provenance(listed)
}

fn spec(ledger: &mut Ledger, c: &Component<'_>) {
    let (by, spec) = (c.name(), &c.machine_config.spec);
    let listed = |kind, name: &String| Origin {
        kind,
        name: name.clone(),
        field: String::new(),
        set_by: by.to_owned(),
        lost: Vec::new(),
    };
    ledger.listed.extend(spec.kernel_arguments.iter().flatten().map(|a| listed(Kind::KernelArgument, a)));
    ledger.listed.extend(spec.extensions.iter().flatten().map(|e| listed(Kind::Extension, e)));
    if spec.fips {
        ledger.set(Kind::Scalar, "fips", "", by);
    }
    // A later `default` does not remove a special kernel.
    if desired::kernel_type(&spec.kernel_type) != desired::DEFAULT_KERNEL {
        ledger.set(Kind::Scalar, "kernelType", "", by);
    }
    if !is_generated(c) {
        if !spec.os_image_url.is_empty() {
            ledger.set(Kind::Scalar, "osImageURL", "", by);
        }
        if !spec.base_os_extensions_container_image.is_empty() {
            ledger.set(Kind::Scalar, "baseOSExtensionsContainerImage", "", by);
        }
    }
}

fn ignition(ledger: &mut Ledger, c: &Component<'_>) {
    let (by, Some(config)) = (c.name(), &c.config) else { return };
    for f in &config.storage.files {
        ledger.take_path(Kind::File, &f.path, by);
        let append = (!f.append.is_empty()).then_some("append");
        let parts = [
            f.contents.source.as_ref().map(|_| "contents"),
            f.mode.map(|_| "mode"),
            (f.user != ignition::Owner::default()).then_some("user"),
            (f.group != ignition::Owner::default()).then_some("group"),
            f.overwrite.map(|_| "overwrite"),
            append,
        ];
        parts.into_iter().flatten().for_each(|part| ledger.set(Kind::File, &f.path, part, by));
    }
    for d in &config.storage.directories {
        ledger.take_path(Kind::Directory, &d.path, by);
        ledger.set(Kind::Directory, &d.path, "", by);
    }
    for l in &config.storage.links {
        ledger.take_path(Kind::Link, &l.path, by);
        ledger.set(Kind::Link, &l.path, "", by);
    }
    for u in &config.systemd.units {
        let parts =
            [u.contents.as_ref().map(|_| "contents"), u.enabled.map(|_| "enabled"), u.mask.map(|_| "mask")];
        parts.into_iter().flatten().for_each(|part| ledger.set(Kind::Unit, &u.name, part, by));
        for d in &u.dropins {
            ledger.set(Kind::Dropin, &format!("{}/{}", u.name, d.name), "", by);
        }
    }
    for u in &config.passwd.users {
        if u.password_hash.is_some() {
            ledger.set(Kind::User, &u.name, "passwordHash", by);
        }
        for key in &u.ssh_authorized_keys {
            ledger.set(Kind::SshKey, &format!("{}/{}", u.name, short_key(key)), "", by);
        }
        let rest = ignition::User { password_hash: None, ssh_authorized_keys: Vec::new(), ..u.clone() };
        if rest != (ignition::User { name: u.name.clone(), ..ignition::User::default() }) {
            ledger.set(Kind::User, &u.name, "account", by);
        }
    }
    for g in &config.passwd.groups {
        ledger.set(Kind::Group, &g.name, "", by);
    }
    let s = &config.storage;
    let sections = [
        ("storage.disks", s.disks.is_empty()),
        ("storage.raid", s.raid.is_empty()),
        ("storage.luks", s.luks.is_empty()),
        ("storage.filesystems", s.filesystems.is_empty()),
        ("kernelArguments", config.kernel_arguments == ignition::KernelArguments::default()),
        ("ignition.config", config.ignition.config == ignition::IgnitionConfig::default()),
        ("ignition.proxy", config.ignition.proxy == ignition::Proxy::default()),
        ("ignition.security", config.ignition.security == ignition::Security::default()),
        ("ignition.timeouts", config.ignition.timeouts == ignition::Timeouts::default()),
    ];
    sections
        .into_iter()
        .filter(|(_, empty)| !empty)
        .for_each(|(name, _)| ledger.set(Kind::Section, name, "", by));
}

/// A public key by its type, the end of its body and its comment: enough to recognise it, and short enough to show.
/// Options before the type can hold commands and variables, and are not shown.
pub(crate) fn short_key(key: &str) -> String {
    const TAIL: usize = 8;
    const TYPES: [&str; 3] = ["ssh-", "ecdsa-", "sk-"];
    let words: Vec<&str> = key.split_whitespace().collect();
    let Some(at) = words.iter().position(|w| TYPES.iter().any(|t| w.starts_with(t))) else {
        return "a key of no known type".to_owned();
    };
    let options = if at > 0 { "(options) " } else { "" };
    let (kind, body) =
        (words.get(at).copied().unwrap_or_default(), words.get(at + 1).copied().unwrap_or_default());
    let tail: String = body.chars().rev().take(TAIL).collect::<Vec<_>>().into_iter().rev().collect();
    let comment = words.get(at + 2..).unwrap_or_default().join(" ");
    let comment = if desired::mask::looks_secret(&comment) { "" } else { &comment };
    format!("{options}{kind} …{tail} {comment}").trim_end().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mk(configs: usize) -> Provenance {
        let origin = |kind, name: String, field: &str, i: usize| {
            let lost = if i.is_multiple_of(10) {
                vec!["00-worker".to_owned(), format!("40-base-{i}")]
            } else {
                Vec::new()
            };
            Origin {
                kind,
                name,
                field: field.to_owned(),
                set_by: format!("50-team-{}-setting-{i}", i % 7),
                lost,
            }
        };
        let all = (0..configs).flat_map(|i| {
            [
                origin(
                    Kind::File,
                    format!("/etc/app-{}/conf.d/{i:03}-{:x}.conf", i % 11, i * 7919),
                    "contents",
                    i,
                ),
                origin(
                    Kind::File,
                    format!("/etc/app-{}/conf.d/{i:03}-{:x}.conf", i % 11, i * 7919),
                    "mode",
                    i,
                ),
                origin(Kind::Unit, format!("app-{i}.service"), "contents", i),
                origin(Kind::Unit, format!("app-{i}.service"), "enabled", i),
                origin(Kind::Dropin, format!("kubelet.service/{i}-x.conf"), "", i),
            ]
        });
        Provenance(all.collect())
    }

    #[test]
    fn what_is_packed_unpacks_to_the_same() {
        for configs in [0, 1, 60] {
            let provenance = mk(configs);
            assert_eq!(Provenance::unpack(&provenance.pack().unwrap()).unwrap(), provenance);
        }
        assert!(Provenance::unpack("@").is_err());
        assert!(Provenance::unpack("aGk=").is_err());
    }

    #[test]
    fn a_large_pool_needs_a_small_part_of_what_annotations_may_take() {
        for (configs, most) in [(60, 4_000), (500, 30_000)] {
            let provenance = mk(configs);
            let (plain, packed) =
                (serde_json::to_vec(&provenance).unwrap().len(), provenance.pack().unwrap().len());
            println!(
                "{configs} MachineConfigs: {} origins, {plain} bytes, packed {packed}",
                provenance.0.len()
            );
            assert!(packed < most, "{packed}");
        }
    }

    #[test]
    fn what_does_not_pack_small_enough_is_not_stored() {
        let name = |i: u64| i.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let origin = |i: u64| Origin {
            kind: Kind::File,
            name: format!("/{:x}{:x}", name(i), name(i * i + 7)),
            field: String::new(),
            set_by: format!("{:x}", name(i + 1)),
            lost: Vec::new(),
        };
        assert!(Provenance((0..10_000).map(origin).collect()).pack().is_none());
    }
}
