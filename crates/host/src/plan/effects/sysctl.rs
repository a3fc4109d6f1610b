//! Kernel parameters: what has to be set when a file of sysctl.d(5) changes, and what needs a boot. Pure.
//!
//! Only parameters that a changed file names, now or before, are set: others may have been changed by the kubelet or by
//! hand since the boot.
//!
//! Not here: what such a file says (see `language`), nor writing a parameter and reading it back (see `transaction::effects`).

mod language;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use desired::{DesiredHost, DesiredPath};

use super::{Effect, Planned, RowApplied, RowRefused};
use crate::paths;
use crate::plan::facts::EffectFacts;
pub(crate) use language::{FOLDERS, Setting, parse, same_value};
use language::{in_force, may_match};

const ROW: &str = "kernel parameters";
/// What the kernel does not give back as it was written, or acts on when it is written.
const NOT_STATE: [&str; 6] = [
    "vm/drop_caches",
    "vm/compact_memory",
    "net/ipv4/route/flush",
    "net/ipv6/route/flush",
    "kernel/sysrq",
    "kernel/modules_disabled",
];

/// Beginnings of parameters that have no effect on what exists when they are set now: they count for interfaces that
/// come later, or are read when a program starts, or are those of the namespace of this process.
const AT_BOOT: [&str; 13] = [
    "kernel/sem",
    "kernel/shm",
    "kernel/msg",
    "kernel/hostname",
    "kernel/domainname",
    "fs/mqueue/",
    "net/ipv4/conf/default/",
    "net/ipv6/conf/default/",
    "net/ipv4/neigh/default/",
    "net/ipv6/neigh/default/",
    "net/core/default_qdisc",
    "vm/nr_hugepages",
    "vm/nr_overcommit_hugepages",
];
/// Beginnings of parameters that cannot be taken back: the kernel refuses another value, or they overwrite the values of
/// all interfaces.
const ONE_WAY: [&str; 7] = [
    "kernel/unprivileged_bpf_disabled",
    "kernel/kexec_load_",
    "kernel/yama/ptrace_scope",
    "kernel/perf_event_paranoid",
    "net/ipv4/ip_forward",
    "net/ipv4/conf/all/",
    "net/ipv6/conf/all/",
];

fn is_one_way(key: &str) -> bool {
    ONE_WAY.iter().any(|p| key.starts_with(p))
}

fn text_of<'w>(config: &'w DesiredHost, path: &str) -> Option<&'w str> {
    match config.at(path)? {
        DesiredPath::File { content, .. } => std::str::from_utf8(content.bytes()).ok(),
        _ => None,
    }
}

/// The parameters that one of these configs names in a file of `/etc/sysctl.d`.
pub(crate) fn keys(configs: &[&DesiredHost]) -> Vec<String> {
    let paths = configs.iter().flat_map(|c| c.paths.iter().map(move |(path, _)| (c, path)));
    let texts = paths.filter(|(_, p)| p.starts_with("/etc/sysctl.d/")).filter_map(|(c, p)| text_of(c, p));
    texts.flat_map(|t| parse(t).unwrap_or_default()).map(|s| s.key).collect()
}

/// How a changed file of `/etc/sysctl.d` takes effect. `modules`: the change loads kernel modules, which may bring
/// parameters that do not exist yet.
pub(crate) fn of_file(
    path: &str,
    old: &DesiredHost,
    new: &DesiredHost,
    facts: Option<&EffectFacts>,
    modules: bool,
) -> Result<RowApplied, RowRefused> {
    let refuse = |why: String| Err(RowRefused { row: ROW, why });
    let (was, is) = (text_of(old, path).unwrap_or_default(), text_of(new, path).unwrap_or_default());
    let mut named: Vec<String> = Vec::new();
    for text in [was, is] {
        match parse(text) {
            Ok(settings) => named.extend(settings.into_iter().map(|s| s.key)),
            Err(why) => return refuse(why),
        }
    }
    named.sort();
    named.dedup();
    if let Some(key) = named.iter().find(|key| NOT_STATE.contains(&key.as_str())) {
        return refuse(format!("{key} cannot be set back"));
    }
    if let Some(key) = named.iter().find(|key| AT_BOOT.iter().any(|p| key.starts_with(p))) {
        return refuse(format!("{key} takes full effect only at boot"));
    }
    let Some(facts) = facts else {
        // No host was inspected, so its present value is not known.
        if let Some(key) = named.iter().find(|key| is_one_way(key)) {
            return refuse(one_way(key));
        }
        let settings = parse(is).unwrap_or_default().into_iter();
        let set = settings.map(|s| set(&s, None, path));
        let mut taken = RowApplied::by(ROW, set.collect());
        if named.len() > parse(is).unwrap_or_default().len() {
            taken = taken.note(format!(
                "{path}: a parameter that is no longer set is set back on nodes that recorded its value; others reboot"
            ));
        }
        return Ok(taken);
    };
    let files = |config: &DesiredHost, other: &DesiredHost| {
        let mut files = facts.sysctl_files.clone();
        for (path, _) in other.paths.iter().filter(|(p, _)| p.starts_with("/etc/sysctl.d/")) {
            if config.at(path).is_none()
                && let Some(original) = files.get(&paths::original(path)).cloned()
            {
                files.insert(path.clone(), original);
            } else if config.at(path).is_none() {
                files.remove(path);
            }
        }
        for (path, _) in config.paths.iter().filter(|(p, _)| p.starts_with("/etc/sysctl.d/")) {
            files.insert(path.clone(), text_of(config, path).unwrap_or_default().to_owned());
        }
        files
    };
    let (before, after) = (files(old, new), files(new, old));
    let (before, after) = (
        in_force(before.iter().map(|(p, t)| (p.as_str(), t.as_str()))),
        in_force(after.iter().map(|(p, t)| (p.as_str(), t.as_str()))),
    );
    for key in &named {
        if let Some(line) = before.others.iter().chain(&after.others).find(|line| may_match(line, key)) {
            let pattern = line.split_once('=').map_or(*line, |(key, _)| key).trim();
            return refuse(format!("{key} may also be set by {pattern:?} in another file of this host"));
        }
    }
    let (before, after) = (before.settings, after.settings);
    let mut effects = Vec::new();
    let mut record = BTreeMap::new();
    for key in named {
        let now = facts.parameters.get(&key);
        match after.get(&key) {
            Some(s) if s.tolerated && now.is_none() => {}
            Some(s) => match now {
                None if modules => effects.push(set(s, None, path)),
                None => return refuse(format!("the kernel has no parameter {key} now")),
                Some(None) => {
                    return refuse(format!("{key} cannot be read, so setting it cannot be checked"));
                }
                Some(Some(now)) if same_value(now, &s.value) => {}
                Some(Some(_)) if is_one_way(&key) => return refuse(one_way(&key)),
                Some(Some(now)) => {
                    if !before.contains_key(&key) && !facts.parameters_before.contains_key(&key) {
                        record.insert(key.clone(), Some(now.clone()));
                    }
                    effects.push(set(s, Some(now), path));
                }
            },
            None => match (facts.parameters_before.get(&key), now) {
                (_, None) => {}
                (Some(_), Some(_)) if is_one_way(&key) => return refuse(one_way(&key)),
                (Some(value), Some(now)) => {
                    let back = Setting { key: key.clone(), value: value.clone(), tolerated: false };
                    effects.push(set(&back, now.as_deref(), path));
                    record.insert(key.clone(), None);
                }
                (None, Some(_)) => {
                    return refuse(format!(
                        "{key} is no longer set, and its value from before was not recorded on this host"
                    ));
                }
            },
        }
    }
    Ok(RowApplied { record, ..RowApplied::by(ROW, effects) })
}

fn one_way(key: &str) -> String {
    format!("{key} cannot be set back once it is set")
}

fn set(s: &Setting, now: Option<&str>, path: &str) -> Planned {
    let effect = |value: &str, tolerated| Effect::Parameter {
        key: s.key.clone(),
        value: value.to_owned(),
        tolerated,
        private: false,
    };
    let undo = now.map(|now| effect(now, true));
    Planned { because: vec![path.to_owned()], ..Planned::with(effect(&s.value, s.tolerated), undo) }
}
