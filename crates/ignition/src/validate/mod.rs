//! The spec's rules beyond types; each finding has its JSON path. Pure.
//!
//! What it is not: rules of MachineConfigs on top of the spec (see `render`), or storage below files (see
//! `disks`).

mod disks;

use crate::check::Warning;
use crate::data_url;
use crate::model::{
    Clevis, Config, Directory, Dropin, File, Ignition, Link, Owner, Passwd, Proxy, Resource, Storage, Unit,
};
use crate::parse::Version;
use crate::unit;
use std::collections::HashMap;
use std::fmt::{Arguments, Display};

/// One broken rule.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ValidationError {
    /// Where, for example `storage.files[0].path`.
    pub path: String,
    /// Which rule is broken, and what to do.
    pub message: String,
}

impl std::fmt::Display for ValidationError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}: {}", self.path, self.message)
    }
}

/// Every broken rule of a config; never empty.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ValidationErrors(pub Vec<ValidationError>);

impl std::error::Error for ValidationErrors {}

impl std::fmt::Display for ValidationErrors {
    /// All findings, up to the number that fits into a condition's message.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        const SHOWN: usize = 8;
        for (i, e) in self.0.iter().take(SHOWN).enumerate() {
            write!(f, "{}{e}", if i == 0 { "" } else { "; " })?;
        }
        match self.0.len().checked_sub(SHOWN) {
            Some(more) if more > 0 => write!(f, "; and {more} more"),
            _ => Ok(()),
        }
    }
}

/// The findings so far.
#[derive(Debug, Default)]
pub(crate) struct Report(Vec<ValidationError>);

impl Report {
    /// Adds a finding. The path is formatted only if there is one.
    pub(crate) fn add(&mut self, path: impl Display, message: impl Into<String>) {
        self.0.push(ValidationError { path: path.to_string(), message: message.into() });
    }

    /// Adds the error of a check, if it has one.
    pub(crate) fn check(&mut self, path: impl Display, result: Result<(), impl Into<String>>) {
        if let Err(message) = result {
            self.add(path, message);
        }
    }

    /// Finds names that occur twice in a list.
    pub(crate) fn unique<'a>(&mut self, list: impl Display, names: impl Iterator<Item = &'a str>) {
        self.duplicates(list, names, |name| format!("{name:?} "));
    }

    /// Finds values that occur twice in a list. Unlike names they may be secret, and are not quoted.
    pub(crate) fn unique_values<'a>(&mut self, list: impl Display, values: impl Iterator<Item = &'a str>) {
        self.duplicates(list, values, |_| "the same value ".to_owned());
    }

    fn duplicates<'a>(
        &mut self,
        list: impl Display,
        keys: impl Iterator<Item = &'a str>,
        told: impl Fn(&str) -> String,
    ) {
        let mut seen: HashMap<&str, usize> = HashMap::new();
        for (i, key) in keys.enumerate() {
            if let Some(first) = seen.insert(key, i) {
                self.add(
                    format!("{list}[{i}]"),
                    format!("{}stands in {list}[{first}] already; keep one of them", told(key)),
                );
            }
        }
    }
}

/// Checks a config against the spec of the model's version.
///
/// # Errors
/// Every broken rule.
pub fn validate(config: &Config) -> Result<(), ValidationErrors> {
    validate_as(config, Version::V3_5)
}

/// Checks a config by the rules of the version in which it was written. Later versions have more rules.
///
/// # Errors
/// Every broken rule.
pub fn validate_as(config: &Config, version: Version) -> Result<(), ValidationErrors> {
    let Config { ignition, kernel_arguments, passwd, storage, systemd } = config;
    let mut report = Report::default();
    self::ignition(&mut report, ignition);
    let arguments = kernel_arguments.should_exist.iter().chain(&kernel_arguments.should_not_exist);
    report.unique_values("kernelArguments", arguments.map(String::as_str));
    users(&mut report, passwd);
    nodes(&mut report, storage);
    disks::disks(&mut report, storage);
    report.unique("systemd.units", systemd.units.iter().map(|u| u.name.as_str()));
    for (i, u) in systemd.units.iter().enumerate() {
        self::unit(&mut report, format_args!("systemd.units[{i}]"), u);
    }
    for ValidationError { path, message } in crate::newer::newer(config, version) {
        report.add(path, format!("{message}, and this config is {version}; raise ignition.version"));
    }
    if version >= Version::V3_4 {
        unit_paths(&mut report, config);
    }
    if report.0.is_empty() { Ok(()) } else { Err(ValidationErrors(report.0)) }
}

/// A unit or drop-in and a file cannot have the same path.
fn unit_paths(report: &mut Report, config: &Config) {
    const FOLDER: &str = "/etc/systemd/system";
    let full = |text: &Option<String>| text.as_deref().is_some_and(|t| !t.is_empty());
    let mut taken: HashMap<String, String> = HashMap::new();
    for (i, u) in config.systemd.units.iter().enumerate() {
        if full(&u.contents) {
            taken.insert(format!("{FOLDER}/{}", u.name), format!("systemd.units[{i}]"));
        }
        for (n, d) in u.dropins.iter().enumerate().filter(|(_, d)| full(&d.contents)) {
            let path = format!("{FOLDER}/{}.d/{}", u.name, d.name);
            taken.insert(path, format!("systemd.units[{i}].dropins[{n}]"));
        }
    }
    let Storage { files, directories, links, .. } = &config.storage;
    let all = (files.iter().map(|f| &f.path).enumerate().map(|(i, p)| ("files", i, p)))
        .chain(directories.iter().map(|d| &d.path).enumerate().map(|(i, p)| ("directories", i, p)))
        .chain(links.iter().map(|l| &l.path).enumerate().map(|(i, p)| ("links", i, p)));
    for (list, i, path) in all {
        if let Some(unit) = taken.get(path) {
            report.add(
                format_args!("storage.{list}[{i}].path"),
                format!("{path:?} is where {unit} is written; keep one of them"),
            );
        }
    }
}

/// Finds settings that are valid but will not do what they say.
pub fn lint(config: &Config) -> Vec<Warning> {
    let links = config.storage.links.iter().enumerate();
    let owned = links
        .filter(|(_, l)| l.hard == Some(true) && (l.user != Owner::default() || l.group != Owner::default()));
    let ignored = owned.map(|(i, _)| {
        let message = "a hard link has the owner of its target, user and group are ignored; remove them";
        Warning::effect(format!("storage.links[{i}]"), message)
    });
    let units = config.systemd.units.iter().enumerate();
    let lame = units.filter(|(_, u)| {
        let text = u.contents.as_deref().unwrap_or_default();
        u.enabled == Some(true) && !text.is_empty() && !unit::has_section(text, "Install")
    });
    let warning = |(i, u): (usize, &Unit)| {
        let message =
            format!("{} has no [Install] section, so enabling it does nothing; add WantedBy=", u.name);
        Warning::effect(format!("systemd.units[{i}].enabled"), message)
    };
    ignored.chain(lame.map(warning)).collect()
}

fn ignition(report: &mut Report, i: &Ignition) {
    for (n, r) in i.config.merge.iter().enumerate() {
        required_resource(report, format_args!("ignition.config.merge[{n}]"), r);
    }
    resource(report, format_args!("ignition.config.replace"), &i.config.replace);
    let authorities = &i.security.tls.certificate_authorities;
    for (n, r) in authorities.iter().enumerate() {
        required_resource(report, format_args!("ignition.security.tls.certificateAuthorities[{n}]"), r);
    }
    report.unique_values("ignition.config.merge", sources(&i.config.merge));
    report.unique_values("ignition.security.tls.certificateAuthorities", sources(authorities));
    let Proxy { http_proxy, https_proxy, no_proxy } = &i.proxy;
    for (name, value) in [("httpProxy", http_proxy), ("httpsProxy", https_proxy)] {
        let Some(value) = value.as_deref() else { continue };
        let known = url::Url::parse(value).is_ok_and(|u| matches!(u.scheme(), "http" | "https"));
        if !known {
            report.add(format_args!("ignition.proxy.{name}"), "must be an http: or https: URL");
        }
    }
    report.unique_values("ignition.proxy.noProxy", no_proxy.iter().map(String::as_str));
}

fn sources(list: &[Resource]) -> impl Iterator<Item = &str> {
    list.iter().filter_map(|r| r.source.as_deref())
}

fn required_resource(report: &mut Report, path: Arguments<'_>, r: &Resource) {
    if r.source.as_deref().unwrap_or_default().is_empty() {
        report.add(format_args!("{path}.source"), "a source is required here");
    }
    resource(report, path, r);
}

/// The rules of one resource: compression, URL, headers, hash.
pub(crate) fn resource(report: &mut Report, path: Arguments<'_>, r: &Resource) {
    if !matches!(r.compression.as_deref(), None | Some("" | "gzip")) {
        report.add(format_args!("{path}.compression"), "must be gzip, or empty for none");
    }
    if let Some(hash) = &r.verification.hash {
        report.check(format_args!("{path}.verification.hash"), crate::resource::hash_parts(hash).map(|_| ()));
        if r.source.is_none() {
            report.add(format_args!("{path}.verification"), "there is no source that it could verify");
        }
    }
    let source = r.source.as_deref().unwrap_or_default();
    if !source.is_empty() {
        report.check(format_args!("{path}.source"), check_source(source));
    }
    if !r.http_headers.is_empty() {
        if !["http:", "https:"].iter().any(|s| source.starts_with(s)) {
            report.add(format_args!("{path}.httpHeaders"), "only http: and https: sources have headers");
        }
        report.unique(format_args!("{path}.httpHeaders"), r.http_headers.iter().map(|h| h.name.as_str()));
        for (i, h) in r.http_headers.iter().enumerate() {
            if h.name.is_empty() {
                report.add(format_args!("{path}.httpHeaders[{i}].name"), "a header needs a name");
            }
            if h.value.as_deref() == Some("") {
                report.add(
                    format_args!("{path}.httpHeaders[{i}].value"),
                    "must not be empty; leave it out to take away a parent's header",
                );
            }
        }
    }
}

fn check_source(source: &str) -> Result<(), String> {
    if data_url::is_data_url(source) {
        return data_url::check(source).map_err(|e| e.to_string());
    }
    let url = url::Url::parse(source).map_err(|e| format!("not a URL: {e}"))?;
    match url.scheme() {
        scheme if crate::resource::REMOTE.contains(&scheme) => Ok(()),
        // Text that is not a URL may begin like one.
        _ => Err("its scheme is not known; use data:, http:, https:, tftp:, s3:, arn: or gs:".to_owned()),
    }
}

fn users(report: &mut Report, passwd: &Passwd) {
    report.unique("passwd.users", passwd.users.iter().map(|u| u.name.as_str()));
    report.unique("passwd.groups", passwd.groups.iter().map(|g| g.name.as_str()));
    for (i, u) in passwd.users.iter().enumerate() {
        let at = format!("passwd.users[{i}]");
        if u.name.is_empty() {
            report.add(format_args!("{at}.name"), "a user needs a name");
        }
        let keys = u.ssh_authorized_keys.iter().map(String::as_str);
        report.unique_values(format_args!("{at}.sshAuthorizedKeys"), keys);
        report.unique(format_args!("{at}.groups"), u.groups.iter().map(String::as_str));
    }
    for (i, g) in passwd.groups.iter().enumerate() {
        if g.name.is_empty() {
            report.add(format_args!("passwd.groups[{i}].name"), "a group needs a name");
        }
    }
}

/// Checks that this is an absolute path in its simplest form.
pub(crate) fn check_path(path: &str) -> Result<(), &'static str> {
    if path.is_empty() {
        return Err("a path is required");
    }
    if !path.starts_with('/') {
        return Err("must be absolute: start it with /");
    }
    if path.contains('\0') {
        return Err("a path has no zero byte");
    }
    let odd = path.len() > 1 && path.split('/').skip(1).any(|part| matches!(part, "" | "." | ".."));
    if odd { Err("must be in its simplest form: no //, /./, /../ and no / at the end") } else { Ok(()) }
}

fn mode(report: &mut Report, path: impl Display, mode: Option<i64>) {
    if mode.is_some_and(|m| !(0..=0o7777).contains(&m)) {
        report.add(
            format_args!("{path}.mode"),
            "must be between 0 and 07777 (decimal 4095); JSON has no octal numbers",
        );
    }
}

fn owners(report: &mut Report, path: impl Display, user: &Owner, group: &Owner) {
    for (name, owner) in [("user", user), ("group", group)] {
        if owner.id.is_some() && owner.name.as_deref().is_some_and(|n| !n.is_empty()) {
            report.add(format_args!("{path}.{name}"), "give the id or the name, not both");
        }
    }
}

/// Files, directories and links: their own rules, the shared name space of paths, and nothing below a link.
fn nodes(report: &mut Report, s: &Storage) {
    let mut seen: HashMap<&str, (&str, usize)> = HashMap::new();
    let files = s.files.iter().map(|f| &f.path).enumerate().map(|(i, path)| (path, ("files", i)));
    let directories =
        s.directories.iter().map(|d| &d.path).enumerate().map(|(i, path)| (path, ("directories", i)));
    let links = s.links.iter().map(|l| &l.path).enumerate().map(|(i, path)| (path, ("links", i)));
    let under: std::collections::HashSet<&str> = s.links.iter().map(|l| l.path.as_str()).collect();
    for (path, (list, i)) in files.chain(directories).chain(links) {
        report.check(format_args!("storage.{list}[{i}].path"), check_path(path));
        if let Some(link) = parents(path).find(|p| under.contains(p)) {
            report.add(
                format_args!("storage.{list}[{i}].path"),
                format!("stands under {link:?}, which is a link in this config"),
            );
        }
        if let Some((first, n)) = seen.get(path.as_str()) {
            report.add(
                format_args!("storage.{list}[{i}].path"),
                format!("{path:?} stands in storage.{first}[{n}] already; keep one of them"),
            );
        } else {
            seen.insert(path, (list, i));
        }
    }
    for (i, f) in s.files.iter().enumerate() {
        file(report, format_args!("storage.files[{i}]"), f);
    }
    for (i, d) in s.directories.iter().enumerate() {
        let Directory { group, mode: m, overwrite: _, path: _, user } = d;
        let at = format!("storage.directories[{i}]");
        mode(report, &at, *m);
        owners(report, &at, user, group);
    }
    for (i, l) in s.links.iter().enumerate() {
        let Link { group, hard, overwrite: _, path: _, target, user } = l;
        let at = format!("storage.links[{i}]");
        owners(report, &at, user, group);
        let target = target.as_deref().unwrap_or_default();
        if target.is_empty() {
            report.add(format_args!("{at}.target"), "a link needs a target");
        }
        if hard == &Some(true) && s.directories.iter().any(|d| d.path == target) {
            report.add(format_args!("{at}.target"), "a hard link cannot point to a directory");
        }
    }
}

/// The directories above a path, without the root.
pub(crate) fn parents(path: &str) -> impl Iterator<Item = &str> {
    path.match_indices('/').filter(|(i, _)| *i > 0).filter_map(|(i, _)| path.get(..i))
}

fn file(report: &mut Report, at: Arguments<'_>, f: &File) {
    let File { append, contents, group, mode: m, overwrite, path: _, user } = f;
    mode(report, at, *m);
    owners(report, at, user, group);
    resource(report, format_args!("{at}.contents"), contents);
    for (i, r) in append.iter().enumerate() {
        resource(report, format_args!("{at}.append[{i}]"), r);
    }
    if overwrite == &Some(true) && contents.source.is_none() {
        report.add(
            format_args!("{at}.contents.source"),
            "a file that overwrites needs a source; for an empty file write \"data:,\", to keep what is there set \
             overwrite to false",
        );
    }
}

fn unit(report: &mut Report, at: Arguments<'_>, u: &Unit) {
    let Unit { contents, dropins, enabled: _, mask: _, name } = u;
    report.check(format_args!("{at}.name"), unit::check_name(name));
    if let Some(text) = contents {
        report.check(format_args!("{at}.contents"), unit::check_contents(text));
    }
    report.unique(format_args!("{at}.dropins"), dropins.iter().map(|d| d.name.as_str()));
    for (i, Dropin { contents, name }) in dropins.iter().enumerate() {
        report.check(format_args!("{at}.dropins[{i}].name"), unit::check_dropin_name(name));
        if let Some(text) = contents {
            report.check(format_args!("{at}.dropins[{i}].contents"), unit::check_contents(text));
        }
    }
}

/// The rules of clevis, used by `disks`.
pub(crate) fn clevis(report: &mut Report, at: Arguments<'_>, c: &Clevis) {
    let custom = &c.custom;
    let any_custom = custom.config.is_some() || custom.pin.is_some() || custom.needs_network.is_some();
    if any_custom {
        if !c.tang.is_empty() || c.tpm2 == Some(true) || c.threshold.is_some_and(|t| t != 0) {
            report.add(at, "a custom pin excludes tang, tpm2 and threshold");
        }
        if custom.pin.as_deref().unwrap_or_default().is_empty() {
            report.add(format_args!("{at}.custom.pin"), "a custom pin needs its name");
        }
        if custom.config.as_deref().unwrap_or_default().is_empty() {
            report.add(format_args!("{at}.custom.config"), "a custom pin needs its config");
        }
    }
    for (i, t) in c.tang.iter().enumerate() {
        let known = url::Url::parse(t.url.as_deref().unwrap_or_default())
            .is_ok_and(|u| matches!(u.scheme(), "http" | "https"));
        if !known {
            report.add(format_args!("{at}.tang[{i}].url"), "must be an http: or https: URL");
        }
        let advertisement = t.advertisement.as_deref().filter(|a| !a.is_empty());
        if advertisement.is_some_and(|a| serde_json::from_str::<serde::de::IgnoredAny>(a).is_err()) {
            report.add(
                format_args!("{at}.tang[{i}].advertisement"),
                "must be the JSON that the Tang server gives",
            );
        }
        if t.thumbprint.as_deref().unwrap_or_default().is_empty() {
            report.add(format_args!("{at}.tang[{i}].thumbprint"), "a Tang server's thumbprint is required");
        }
    }
    report.unique_values(format_args!("{at}.tang"), c.tang.iter().filter_map(|t| t.url.as_deref()));
}
