//! The spec's rules for disks, RAID, LUKS and file systems. What it is not: a check against a machine's actual disks.
//!
//! Source: <https://coreos.github.io/ignition/configuration-v3_5/>.

use super::fields::{check_path, resource};
use crate::model::{Clevis, Disk, Filesystem, Luks, Partition, Raid, Storage};
use crate::report::Report;
use std::fmt::Arguments;

/// The longest label of a GPT partition.
const PARTITION_LABEL_MAX: usize = 36;
/// The longest label of a LUKS volume.
const LUKS_LABEL_MAX: usize = 47;

/// Checks all storage below files.
pub(crate) fn disks(report: &mut Report, s: &Storage) {
    report.unique("storage.disks", s.disks.iter().map(|d| d.device.as_str()));
    report.unique("storage.raid", s.raid.iter().map(|r| r.name.as_str()));
    report.unique("storage.luks", s.luks.iter().map(|l| l.name.as_str()));
    report.unique("storage.filesystems", s.filesystems.iter().map(|f| f.device.as_str()));
    for (i, d) in s.disks.iter().enumerate() {
        disk(report, &format!("storage.disks[{i}]"), d);
    }
    for (i, r) in s.raid.iter().enumerate() {
        raid(report, &format!("storage.raid[{i}]"), r);
    }
    for (i, l) in s.luks.iter().enumerate() {
        luks(report, &format!("storage.luks[{i}]"), l);
    }
    for (i, f) in s.filesystems.iter().enumerate() {
        filesystem(report, &format!("storage.filesystems[{i}]"), f);
    }
}

fn disk(report: &mut Report, at: &str, d: &Disk) {
    report.check(format_args!("{at}.device"), check_path(&d.device));
    let mut numbers = std::collections::HashSet::new();
    let mut labels = std::collections::HashSet::new();
    let mut spans: Vec<(i64, i64, usize)> = Vec::new();
    for (i, p) in d.partitions.iter().enumerate() {
        let at = format!("{at}.partitions[{i}]");
        partition(report, &at, p);
        if p.number != 0 && !numbers.insert(p.number) {
            report.add(format!("{at}.number"), "is used twice on this disk");
        }
        if let Some(label) = p.label.as_deref().filter(|l| !l.is_empty())
            && !labels.insert(label)
        {
            report.add(format!("{at}.label"), "is used twice on this disk");
        }
        if let (Some(start), Some(size)) = (p.start_mib.filter(|s| *s > 0), p.size_mib.filter(|s| *s > 0)) {
            spans.push((start, start.saturating_add(size), i));
        }
    }
    let goes = d.partitions.iter().any(|p| p.should_exist == Some(false));
    if let Some(i) = d.partitions.iter().position(|p| p.number == 0).filter(|_| goes) {
        let rule = "needs a number, because another partition of the disk is to be deleted, and the next \
            free number is then unknown";
        report.add(format!("{at}.partitions[{i}].number"), rule);
    }
    spans.sort_unstable();
    for pair in spans.windows(2) {
        if let [(_, end, a), (start, _, b)] = pair
            && start < end
        {
            report.add(format!("{at}.partitions[{b}]"), format!("overlaps {at}.partitions[{a}]"));
        }
    }
}

fn partition(report: &mut Report, at: &str, p: &Partition) {
    let Partition { guid, label, number, resize: _, should_exist, size_mib, start_mib, type_guid, .. } = p;
    if *number < 0 {
        report.add(format!("{at}.number"), "must not be negative");
    }
    for (name, value) in [("sizeMiB", size_mib), ("startMiB", start_mib)] {
        if value.is_some_and(|v| v < 0) {
            report.add(format!("{at}.{name}"), "must not be negative");
        }
    }
    if *number == 0 && label.as_deref().unwrap_or_default().is_empty() {
        report.add(at, "a partition needs a number or a label");
    }
    if let Some(label) = label {
        if label.chars().count() > PARTITION_LABEL_MAX {
            report.add(format!("{at}.label"), format!("has at most {PARTITION_LABEL_MAX} characters"));
        }
        if label.contains(':') {
            report.add(format!("{at}.label"), "a label has no colon (sgdisk would truncate it)");
        }
    }
    for (name, value) in [("guid", guid), ("typeGuid", type_guid)] {
        if value.as_deref().is_some_and(|v| !v.is_empty() && !is_guid(v)) {
            report.add(format!("{at}.{name}"), "must be a GUID: 8-4-4-4-12 hex digits");
        }
    }
    let says_how =
        label.is_some() || guid.is_some() || type_guid.is_some() || size_mib.is_some() || start_mib.is_some();
    if should_exist == &Some(false) && says_how {
        report.add(at, "a partition that is to be deleted has no label, size, start or GUIDs");
    }
}

fn is_guid(s: &str) -> bool {
    let lengths: Vec<usize> = s.split('-').map(str::len).collect();
    lengths == [8, 4, 4, 4, 12] && s.bytes().all(|b| b == b'-' || b.is_ascii_hexdigit())
}

fn raid(report: &mut Report, at: &str, r: &Raid) {
    if r.name.is_empty() {
        report.add(format!("{at}.name"), "an array needs a name");
    }
    if r.devices.is_empty() {
        report.add(format!("{at}.devices"), "an array needs devices");
    }
    for (i, d) in r.devices.iter().enumerate() {
        report.check(format_args!("{at}.devices[{i}]"), check_path(d));
    }
    report.unique(format_args!("{at}.devices"), r.devices.iter().map(String::as_str));
    match r.level.as_deref() {
        Some("linear" | "raid0" | "0" | "stripe") => {
            if r.spares.is_some_and(|s| s != 0) {
                report.add(format!("{at}.spares"), "this level has no spares");
            }
        }
        Some("raid1" | "1" | "mirror" | "raid4" | "4" | "raid5" | "5" | "raid6" | "6" | "raid10" | "10") => {}
        _ => report.add(format!("{at}.level"), "must be linear, raid0, raid1, raid4, raid5, raid6 or raid10"),
    }
}

fn luks(report: &mut Report, at: &str, l: &Luks) {
    if l.name.is_empty() || l.name.contains('/') {
        report.add(format!("{at}.name"), "must be a plain name, without a slash");
    }
    report.check(format_args!("{at}.device"), check_path(l.device.as_deref().unwrap_or_default()));
    if l.label.as_deref().is_some_and(|v| v.len() > LUKS_LABEL_MAX) {
        report.add(format!("{at}.label"), format!("has at most {LUKS_LABEL_MAX} bytes"));
    }
    resource(report, format_args!("{at}.keyFile"), &l.key_file);
    clevis(report, format_args!("{at}.clevis"), &l.clevis);
    if l.cex.enabled == Some(true) && (l.clevis != Clevis::default() || l.key_file.source.is_some()) {
        report.add(format!("{at}.cex"), "excludes clevis and keyFile");
    }
}

/// The rules of clevis, used by `disks`.
fn clevis(report: &mut Report, at: Arguments<'_>, c: &Clevis) {
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

fn filesystem(report: &mut Report, at: &str, f: &Filesystem) {
    report.check(format_args!("{at}.device"), check_path(&f.device));
    if let Some(path) = f.path.as_deref().filter(|p| !p.is_empty()) {
        report.check(format_args!("{at}.path"), check_path(path));
    }
    let longest = match f.format.as_deref().unwrap_or_default() {
        "" => {
            let any = f.path.as_deref().is_some_and(|p| !p.is_empty())
                || f.label.as_deref().is_some_and(|l| !l.is_empty())
                || f.uuid.as_deref().is_some_and(|u| !u.is_empty())
                || f.wipe_filesystem == Some(true)
                || !f.options.is_empty()
                || !f.mount_options.is_empty();
            if any {
                report.add(format!("{at}.format"), "a format is required when anything else is given");
            }
            return;
        }
        "ext4" => 16,
        "btrfs" => 256,
        "xfs" => 12,
        "vfat" => 11,
        "swap" => 15,
        "none" => 0,
        _ => return report.add(format!("{at}.format"), "must be ext4, btrfs, xfs, vfat, swap or none"),
    };
    if f.label.as_deref().is_some_and(|l| l.len() > longest) {
        report.add(format!("{at}.label"), format!("has at most {longest} bytes for this format"));
    }
}
