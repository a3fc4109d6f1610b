//! Rules of single fields that several parts of a config have: resources, paths, modes, owners.
//!
//! What it is not: rules of whole sections (see the parent module and `disks`).
//!
//! Source: <https://coreos.github.io/ignition/configuration-v3_5/>.

use crate::data_url;
use crate::model::{Owner, Resource};
use crate::report::Report;
use std::fmt::{Arguments, Display};

/// The rules of one resource: compression, URL, headers, hash.
pub(crate) fn resource(report: &mut Report, path: Arguments<'_>, r: &Resource) {
    if !matches!(r.compression.as_deref(), None | Some("" | "gzip")) {
        report.add(format_args!("{path}.compression"), "must be gzip, or empty for none");
    }
    if let Some(hash) = &r.verification.hash {
        report.check(format_args!("{path}.verification.hash"), crate::resource::hash_parts(hash).map(|_| ()));
        if r.source.is_none() {
            report.add(format_args!("{path}.verification"), "there is no source for it to verify");
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
                    "must not be empty; leave it out to remove a parent's header",
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
        _ => Err("its scheme is unknown; use data:, http:, https:, tftp:, s3:, arn: or gs:".to_owned()),
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

pub(crate) fn mode(report: &mut Report, path: impl Display, mode: Option<i64>) {
    if mode.is_some_and(|m| !(0..=0o7777).contains(&m)) {
        report.add(
            format_args!("{path}.mode"),
            "must be between 0 and 07777 (decimal 4095); JSON has no octal numbers",
        );
    }
}

pub(crate) fn owners(report: &mut Report, path: impl Display, user: &Owner, group: &Owner) {
    for (name, owner) in [("user", user), ("group", group)] {
        if owner.id.is_some() && owner.name.as_deref().is_some_and(|n| !n.is_empty()) {
            report.add(format_args!("{path}.{name}"), "give the id or the name, not both");
        }
    }
}

/// The directories above a path, without the root.
pub(crate) fn parents(path: &str) -> impl Iterator<Item = &str> {
    path.match_indices('/').filter(|(i, _)| *i > 0).filter_map(|(i, _)| path.get(..i))
}
