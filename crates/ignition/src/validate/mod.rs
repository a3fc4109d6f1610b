//! The spec's rules beyond types; each finding has its JSON path. Pure.
//!
//! What it is not: rules of MachineConfigs on top of the spec (see `render`), or storage below files (see
//! `disks`).
//!
//! Source: <https://coreos.github.io/ignition/configuration-v3_5/>.

mod disks;
pub(crate) mod fields;

use crate::check::Warning;
use crate::model::{
    Config, Directory, Dropin, File, Ignition, Link, Owner, Passwd, Proxy, Resource, Storage, Unit,
};
use crate::report::{Report, ValidationError, ValidationErrors};
use crate::unit;
use crate::version::Version;
use fields::{check_path, mode, owners, parents, resource};
use std::collections::HashMap;
use std::fmt::Arguments;

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
    for ValidationError { path, message } in crate::newer_values::newer(config, version) {
        report.add(path, format!("{message}, and this config is {version}; raise ignition.version"));
    }
    if version >= Version::V3_4 {
        unit_paths(&mut report, config);
    }
    report.result()
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
                format!("is below {link:?}, which is a link in this config"),
            );
        }
        if let Some((first, n)) = seen.get(path.as_str()) {
            report.add(
                format_args!("storage.{list}[{i}].path"),
                format!("{path:?} is already in storage.{first}[{n}]; keep one of them"),
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
