//! Writes the 3.5 model in an older version (or 3.6), or says exactly what that version cannot say. Pure.

use crate::model::{Config, Resource};
use crate::object::Absent;
use crate::parse::Version;
use crate::validate::ValidationError;
use serde_json::Value;

/// What the older version cannot say; never empty.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TranslateError {
    /// The version that was asked for.
    pub version: Version,
    /// Every place that has no counterpart in it.
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

/// The config as JSON of the version.
///
/// # Errors
/// Every place that the version has no words for.
pub fn translate(config: &Config, version: Version) -> Result<Value, TranslateError> {
    let mut found = Places::default();
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
    for (i, l) in config.storage.luks.iter().enumerate() {
        found.if_set(
            version < Version::V3_5 && !l.cex.absent(),
            format!("storage.luks[{i}].cex"),
            "came with 3.5",
        );
    }
    if version == Version::V2_2 {
        only_3(&mut found, config);
    }
    let written = if version == Version::V2_2 {
        serde_json::to_value(crate::v2_write::from_v3(&without_defaults(config, version)))
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

/// The config without fields that the version does not know and that say what goes without saying. What says more was
/// refused before.
fn without_defaults(config: &Config, version: Version) -> Config {
    let mut config = config.clone();
    if version < Version::V3_4 {
        config.storage.luks.iter_mut().for_each(|l| l.discard = None);
    }
    if version < Version::V3_2 {
        config.passwd.users.iter_mut().for_each(|u| u.should_exist = None);
        config.passwd.groups.iter_mut().for_each(|g| g.should_exist = None);
        let partitions = config.storage.disks.iter_mut().flat_map(|d| &mut d.partitions);
        partitions.for_each(|p| p.resize = None);
    }
    if version < Version::V3_1 {
        let i = &mut config.ignition;
        let authorities = &mut i.security.tls.certificate_authorities;
        let fetched = i.config.merge.iter_mut().chain([&mut i.config.replace]).chain(authorities);
        fetched.for_each(|r| r.compression = None);
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

/// Every resource of a config with its path.
fn resources(config: &Config) -> Vec<(String, &Resource)> {
    let mut all = fetched(config);
    for (i, f) in config.storage.files.iter().enumerate() {
        all.push((format!("storage.files[{i}].contents"), &f.contents));
        all.extend(f.append.iter().enumerate().map(|(n, r)| (format!("storage.files[{i}].append[{n}]"), r)));
    }
    for (i, l) in config.storage.luks.iter().enumerate() {
        all.push((format!("storage.luks[{i}].keyFile"), &l.key_file));
    }
    all
}

/// The resources that Ignition itself needs.
fn fetched(config: &Config) -> Vec<(String, &Resource)> {
    let i = &config.ignition;
    let merge = i.config.merge.iter().enumerate().map(|(n, r)| (format!("ignition.config.merge[{n}]"), r));
    let tls = i.security.tls.certificate_authorities.iter().enumerate();
    merge
        .chain([("ignition.config.replace".to_owned(), &i.config.replace)])
        .chain(tls.map(|(n, r)| (format!("ignition.security.tls.certificateAuthorities[{n}]"), r)))
        .collect()
}

fn before_3_4(found: &mut Places, config: &Config) {
    /// Set-user-ID, set-group-ID and sticky.
    const SPECIAL: i64 = 0o7000;
    for (i, l) in config.storage.luks.iter().enumerate() {
        let at = format!("storage.luks[{i}]");
        found.if_set(l.discard == Some(true), format!("{at}.discard"), "came with 3.4");
        found.if_set(!l.open_options.is_empty(), format!("{at}.openOptions"), "came with 3.4");
        for (n, t) in l.clevis.tang.iter().enumerate() {
            found.if_set(
                t.advertisement.is_some(),
                format!("{at}.clevis.tang[{n}].advertisement"),
                "came with 3.4",
            );
        }
    }
    let files =
        config.storage.files.iter().enumerate().map(|(i, f)| (format!("storage.files[{i}].mode"), f.mode));
    let directories = config.storage.directories.iter().enumerate();
    let modes = files.chain(directories.map(|(i, d)| (format!("storage.directories[{i}].mode"), d.mode)));
    for (at, mode) in modes {
        found.if_set(mode.is_some_and(|m| m & SPECIAL != 0), at, "special mode bits came with 3.4");
    }
    for (at, r) in resources(config) {
        let arn = r.source.as_deref().is_some_and(|s| s.starts_with("arn:"));
        found.if_set(arn, format!("{at}.source"), "arn: sources came with 3.4");
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

/// What only spec 3 can say.
fn only_3(found: &mut Places, config: &Config) {
    const NONE: &str = "has no counterpart in spec 2";
    for (i, f) in config.storage.files.iter().enumerate() {
        let keeps = f.contents.source.is_none() && f.append.is_empty();
        found.if_set(
            keeps,
            format!("storage.files[{i}].contents"),
            "spec 2 cannot keep what stands in a file; add a source",
        );
    }
    for (i, d) in config.storage.disks.iter().enumerate() {
        for (n, p) in d.partitions.iter().enumerate() {
            let at = format!("storage.disks[{i}].partitions[{n}]");
            found.if_set(p.size_mib.is_some(), format!("{at}.sizeMiB"), NONE);
            found.if_set(p.start_mib.is_some(), format!("{at}.startMiB"), NONE);
            found.if_set(p.should_exist == Some(false), format!("{at}.shouldExist"), NONE);
            found.if_set(p.wipe_partition_entry == Some(true), format!("{at}.wipePartitionEntry"), NONE);
        }
    }
}
