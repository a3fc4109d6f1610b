//! Values that a field accepts only from a later version of the spec on: a hash function, a scheme, a file system's
//! format. One list serves both directions: what a config of an old version may not contain when it is read, and what
//! cannot be written into one. The source is the spec's migration notes
//! (<https://coreos.github.io/ignition/migrating-configs/>). Pure.
//!
//! What it is not: fields that came later. Those are in the model's tables (`since`); reading leaves them out, and
//! `translate` refuses them when writing.

use crate::check::Warning;
use crate::model::{Config, Resource};
use crate::report::ValidationError;
use crate::version::Version;

/// Set-user-ID, set-group-ID and sticky.
pub(crate) const SPECIAL: i64 = 0o7000;

/// Every value in the config that this version does not have.
pub(crate) fn newer(config: &Config, version: Version) -> Vec<ValidationError> {
    let mut found = Vec::new();
    let mut add = |since: Version, path: String, what: &str| {
        if version < since {
            found.push(ValidationError { path, message: format!("{what} came with {}", short(since)) });
        }
    };
    for (at, r) in resources(config) {
        let starts = |prefix: &str, text: &Option<String>| {
            text.as_deref()
                .and_then(|t| t.get(..prefix.len()))
                .is_some_and(|t| t.eq_ignore_ascii_case(prefix))
        };
        if starts("sha256-", &r.verification.hash) {
            add(Version::V3_1, format!("{at}.verification.hash"), "SHA-256");
        }
        if starts("gs:", &r.source) {
            add(Version::V3_2, format!("{at}.source"), "gs: sources");
        }
        if starts("arn:", &r.source) {
            add(Version::V3_4, format!("{at}.source"), "arn: sources");
        }
    }
    for (i, f) in config.storage.filesystems.iter().enumerate() {
        if f.format.as_deref() == Some("none") {
            add(Version::V3_3, format!("storage.filesystems[{i}].format"), "the format none");
        }
    }
    for (i, l) in config.storage.luks.iter().enumerate() {
        let pin = l.clevis.custom.pin.as_deref().unwrap_or_default();
        if !pin.is_empty() && !matches!(pin, "tpm2" | "tang" | "sss") {
            add(
                Version::V3_6,
                format!("storage.luks[{i}].clevis.custom.pin"),
                "a pin other than tpm2, tang and sss",
            );
        }
    }
    found
}

/// `3.4` for version 3.4.0.
fn short(version: Version) -> &'static str {
    version.as_str().trim_end_matches(".0")
}

/// Every mode of a file or directory with bits that Ignition leaves out before 3.6.
pub(crate) fn special_modes(config: &Config) -> impl Iterator<Item = String> {
    let special = |mode: Option<i64>| mode.is_some_and(|m| m & SPECIAL != 0);
    let s = &config.storage;
    let files = s.files.iter().enumerate().filter(move |(_, f)| special(f.mode));
    let directories = s.directories.iter().enumerate().filter(move |(_, d)| special(d.mode));
    let files = files.map(|(i, _)| format!("storage.files[{i}].mode"));
    files.chain(directories.map(|(i, _)| format!("storage.directories[{i}].mode")))
}

/// A warning that says what becomes of such a mode.
pub(crate) fn left_out(path: String) -> Warning {
    let message = "Ignition before spec 3.6 leaves set-user-ID, set-group-ID and sticky bits out, and machines that \
        ask for an older version are refused this config; set them with a file in /etc/tmpfiles.d";
    Warning::effect(path, message)
}

/// Removes the compression of resources that Ignition itself fetches, which a config before 3.1 cannot express. Returns
/// the paths where it was set.
pub(crate) fn drop_compression(config: &mut Config) -> Vec<String> {
    let said = |r: &Resource| r.compression.as_deref().is_some_and(|c| !c.is_empty());
    let at: Vec<String> = fetched(config).into_iter().filter(|(_, r)| said(r)).map(|(at, _)| at).collect();
    let i = &mut config.ignition;
    let authorities = &mut i.security.tls.certificate_authorities;
    let fetched = i.config.merge.iter_mut().chain([&mut i.config.replace]).chain(authorities);
    fetched.for_each(|r| r.compression = None);
    at
}

/// Every resource of a config, with its path.
pub(crate) fn resources(config: &Config) -> Vec<(String, &Resource)> {
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

/// The resources that Ignition itself fetches.
pub(crate) fn fetched(config: &Config) -> Vec<(String, &Resource)> {
    let i = &config.ignition;
    let merge = i.config.merge.iter().enumerate().map(|(n, r)| (format!("ignition.config.merge[{n}]"), r));
    let tls = i.security.tls.certificate_authorities.iter().enumerate();
    merge
        .chain([("ignition.config.replace".to_owned(), &i.config.replace)])
        .chain(tls.map(|(n, r)| (format!("ignition.security.tls.certificateAuthorities[{n}]"), r)))
        .collect()
}
