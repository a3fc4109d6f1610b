//! Writes the 3.5 model in an older version (or 3.6), or reports exactly what that version cannot express. Pure.
//!
//! Source: <https://coreos.github.io/ignition/migrating-configs/>.

use crate::model::{Cex, Config, Owner};
use crate::newer_values::{drop_compression, fetched, newer, resources, special_modes};
use crate::object::Absent;
use crate::report::ValidationError;
use crate::validate::fields::parents;
use crate::version::Version;
use serde_json::Value;

/// What the older version cannot express; never empty.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TranslateError {
    /// The requested version.
    pub version: Version,
    /// Every path that has no counterpart in it.
    pub places: Vec<ValidationError>,
}

impl std::error::Error for TranslateError {}

impl std::fmt::Display for TranslateError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "cannot be written in Ignition spec {}", self.version)?;
        for place in &self.places {
            write!(f, "; {place}")?;
        }
        Ok(())
    }
}

/// The config as JSON of this version.
///
/// # Errors
/// Every path that the version cannot express.
pub fn translate(config: &Config, version: Version) -> Result<Value, TranslateError> {
    let mut found = Places::default();
    if version < Version::V3_6 {
        for at in special_modes(config) {
            found.add(at, "set-user-ID, set-group-ID and sticky bits came with 3.6");
        }
    }
    if version < Version::V3_5 {
        for (i, l) in config.storage.luks.iter().enumerate() {
            found.if_set(l.cex.enabled == Some(true), format!("storage.luks[{i}].cex"), "came with 3.5");
        }
    }
    if version < Version::V3_4 {
        before_3_4(&mut found, config);
    }
    if version < Version::V3_3 {
        for (name, list) in [
            ("shouldExist", &config.kernel_arguments.should_exist),
            ("shouldNotExist", &config.kernel_arguments.should_not_exist),
        ] {
            found.if_set(!list.is_empty(), format!("kernelArguments.{name}"), "came with 3.3");
        }
    }
    if version < Version::V3_2 {
        before_3_2(&mut found, config);
    }
    if version < Version::V3_1 {
        before_3_1(&mut found, config);
    }
    found.0.extend(newer(config, version));
    if version == Version::V2_2 {
        only_3(&mut found, config);
    }
    let written = if version == Version::V2_2 {
        serde_json::to_value(crate::v2::from_v3(&without_defaults(config, version)))
    } else {
        without_defaults(config, version).to_value()
    };
    match written {
        Err(e) => {
            found.add("(the whole config)".to_owned(), &e.to_string());
            Err(TranslateError { version, places: found.0 })
        }
        Ok(_) if !found.0.is_empty() => Err(TranslateError { version, places: found.0 }),
        Ok(mut value) => {
            if let Some(v) = value.pointer_mut("/ignition/version") {
                *v = Value::from(version.as_str());
            }
            Ok(value)
        }
    }
}

/// The config without fields that the version does not know and that only set a default. Any other value of such a
/// field was refused before.
fn without_defaults(config: &Config, version: Version) -> Config {
    let mut config = config.clone();
    if version < Version::V3_5 {
        config.storage.luks.iter_mut().for_each(|l| l.cex = Cex::default());
    }
    if version < Version::V3_4 {
        for l in &mut config.storage.luks {
            l.discard = None;
            l.clevis.tang.iter_mut().for_each(|t| t.advertisement = None);
        }
    }
    if version < Version::V3_2 {
        config.passwd.users.iter_mut().for_each(|u| u.should_exist = None);
        config.passwd.groups.iter_mut().for_each(|g| g.should_exist = None);
        let partitions = config.storage.disks.iter_mut().flat_map(|d| &mut d.partitions);
        partitions.for_each(|p| p.resize = None);
    }
    if version < Version::V3_1 {
        drop_compression(&mut config);
    }
    config
}

#[derive(Default)]
struct Places(Vec<ValidationError>);

impl Places {
    fn add(&mut self, path: String, message: &str) {
        self.0.push(ValidationError { path, message: message.to_owned() });
    }

    fn if_set(&mut self, set: bool, path: String, message: &str) {
        if set {
            self.add(path, message);
        }
    }
}

fn before_3_4(found: &mut Places, config: &Config) {
    for (i, l) in config.storage.luks.iter().enumerate() {
        let at = format!("storage.luks[{i}]");
        found.if_set(l.discard == Some(true), format!("{at}.discard"), "came with 3.4");
        found.if_set(!l.open_options.is_empty(), format!("{at}.openOptions"), "came with 3.4");
        for (n, t) in l.clevis.tang.iter().enumerate() {
            let said = t.advertisement.as_deref().is_some_and(|a| !a.is_empty());
            found.if_set(said, format!("{at}.clevis.tang[{n}].advertisement"), "came with 3.4");
        }
    }
}

fn before_3_2(found: &mut Places, config: &Config) {
    for (i, _) in config.storage.luks.iter().enumerate() {
        found.add(format!("storage.luks[{i}]"), "came with 3.2");
    }
    let users = config.passwd.users.iter().enumerate();
    let users = users.map(|(i, u)| (format!("passwd.users[{i}].shouldExist"), u.should_exist));
    let groups = config.passwd.groups.iter().enumerate();
    for (at, exist) in
        users.chain(groups.map(|(i, g)| (format!("passwd.groups[{i}].shouldExist"), g.should_exist)))
    {
        found.if_set(exist == Some(false), at, "came with 3.2");
    }
    for (i, d) in config.storage.disks.iter().enumerate() {
        for (n, p) in d.partitions.iter().enumerate() {
            let at = format!("storage.disks[{i}].partitions[{n}].resize");
            found.if_set(p.resize == Some(true), at, "came with 3.2");
        }
    }
}

fn before_3_1(found: &mut Places, config: &Config) {
    found.if_set(!config.ignition.proxy.absent(), "ignition.proxy".to_owned(), "came with 3.1");
    for (at, r) in fetched(config) {
        let packed = r.compression.as_deref().is_some_and(|c| !c.is_empty());
        found.if_set(packed, format!("{at}.compression"), "came with 3.1");
    }
    for (at, r) in resources(config) {
        found.if_set(!r.http_headers.is_empty(), format!("{at}.httpHeaders"), "came with 3.1");
    }
    for (i, f) in config.storage.filesystems.iter().enumerate() {
        let at = format!("storage.filesystems[{i}].mountOptions");
        found.if_set(!f.mount_options.is_empty(), at, "came with 3.1");
    }
}

/// What only spec 3 can express.
fn only_3(found: &mut Places, config: &Config) {
    const NONE: &str = "has no counterpart in spec 2";
    let s = &config.storage;
    for (i, f) in s.files.iter().enumerate() {
        let keeps = f.contents.source.is_none() && f.append.is_empty();
        found.if_set(
            keeps,
            format!("storage.files[{i}].contents"),
            "spec 2 cannot keep a file's present contents; add a source",
        );
    }
    for (i, d) in s.directories.iter().enumerate() {
        // Spec 3 creates missing parents with mode 0755 for root; spec 2 gives them the directory's own mode and owner.
        let plain = d.mode.is_none_or(|m| m == crate::v2::DIRECTORY_MODE) && root(&d.user) && root(&d.group);
        let alone =
            parents(&d.path).find(|p| !BASE.contains(p) && !s.directories.iter().any(|o| o.path == *p));
        if let Some(parent) = alone.filter(|_| !plain) {
            let message = format!(
                "spec 2 would give {parent} the same mode and owner if it had to create it; add {parent} as a directory"
            );
            found.add(format!("storage.directories[{i}]"), &message);
        }
    }
    for (i, f) in s.filesystems.iter().enumerate() {
        let format = f.format.as_deref().unwrap_or_default();
        found.if_set(
            format.is_empty(),
            format!("storage.filesystems[{i}].format"),
            "spec 2 has no file system without a format",
        );
        let path = f.path.as_deref().unwrap_or_default();
        let twice = !path.is_empty() && s.filesystems.iter().take(i).any(|o| o.path.as_deref() == Some(path));
        found.if_set(
            twice,
            format!("storage.filesystems[{i}].path"),
            "spec 2 cannot give two file systems the same name",
        );
    }
    let roots = crate::v2::Roots::of(&s.filesystems);
    for (i, l) in s.links.iter().enumerate().filter(|(_, l)| l.hard == Some(true)) {
        let target = l.target.as_deref().unwrap_or_default();
        let across = target.starts_with('/') && roots.place(target).0 != roots.place(&l.path).0;
        found.if_set(
            across || !target.starts_with('/'),
            format!("storage.links[{i}].target"),
            "spec 2 takes the target of a hard link as an absolute path on the link's own file system",
        );
    }
    for (i, d) in s.disks.iter().enumerate() {
        for (n, p) in d.partitions.iter().enumerate() {
            let at = format!("storage.disks[{i}].partitions[{n}]");
            found.if_set(p.size_mib.is_some(), format!("{at}.sizeMiB"), NONE);
            found.if_set(p.start_mib.is_some(), format!("{at}.startMiB"), NONE);
            found.if_set(p.should_exist == Some(false), format!("{at}.shouldExist"), NONE);
            found.if_set(p.wipe_partition_entry == Some(true), format!("{at}.wipePartitionEntry"), NONE);
        }
    }
}

/// Directories that every machine has, so that spec 2 never creates them.
const BASE: [&str; 16] = [
    "/etc",
    "/etc/systemd",
    "/etc/systemd/system",
    "/home",
    "/mnt",
    "/opt",
    "/root",
    "/srv",
    "/usr",
    "/usr/local",
    "/usr/local/bin",
    "/usr/local/sbin",
    "/var",
    "/var/home",
    "/var/lib",
    "/var/log",
];

/// Whether the owner is root: by number, by name, or because none is given.
fn root(owner: &Owner) -> bool {
    owner.id.is_none_or(|id| id == 0) && owner.name.as_deref().is_none_or(|n| n.is_empty() || n == "root")
}
