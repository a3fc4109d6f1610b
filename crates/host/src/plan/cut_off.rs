//! What in a change can cut the node off: from its network, from its cluster, or from people. Pure.
//!
//! Not here: the table itself (see `desired`), nor the trial of such a change (see `transaction::trial`).

use std::fmt;

use desired::{
    CutOffReason, DesiredHost, DesiredPath, KUBELET_UNITS, field_cuts_off, file_cuts_off, unit_cuts_off,
};
use serde::Serialize;

use crate::paths;
use crate::plan::disruption::Changes;

/// A part of a change that can cut the node off.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct CutOff {
    /// The path, unit or field.
    pub path: String,
    /// How it can.
    pub why: CutOffReason,
}

impl fmt::Display for CutOff {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.path, self.why)
    }
}

/// All of them in the change from one config to another, on any host.
#[must_use]
pub fn cut_offs(old: &DesiredHost, new: &DesiredHost) -> Vec<CutOff> {
    cut_offs_of(&Changes::between(old, new), old, new)
}

pub(crate) fn cut_offs_of(changes: &Changes, old: &DesiredHost, new: &DesiredHost) -> Vec<CutOff> {
    let text = |config: &DesiredHost, path: &str| match config.at(path) {
        Some(DesiredPath::File { content, .. }) => content.bytes().to_vec(),
        _ => Vec::new(),
    };
    let mut out: Vec<CutOff> = changes
        .os
        .iter()
        .map(|field| CutOff { path: field.path().to_owned(), why: field_cuts_off(*field) })
        .collect();
    for path in &changes.files {
        let (before, after) = (text(old, path), text(new, path));
        // Files of units count as the unit does.
        let unit = path.strip_prefix(paths::UNITS_DIR).and_then(|rest| rest.split('/').nth(1));
        let named = unit.map(|unit| unit.strip_suffix(".d").unwrap_or(unit));
        let why = file_cuts_off(path, &[&before, &after]);
        let why = why.or_else(|| named.and_then(|unit| unit_cuts_off(unit, false)));
        out.extend(why.map(|why| CutOff { path: path.clone(), why }));
    }
    for name in &changes.units {
        let mut units = new.config.systemd.units.iter().filter(|u| u.name == *name);
        let starts = units.any(|u| u.enabled == Some(true) && u.mask != Some(true));
        out.extend(unit_cuts_off(name, starts).map(|why| CutOff { path: name.clone(), why }));
    }
    out
}

/// The units that have to run after such a change if they ran before it: the kubelet.
#[must_use]
pub(crate) fn needed_units() -> Vec<String> {
    KUBELET_UNITS.iter().map(|unit| (*unit).to_owned()).collect()
}

/// Whether such a change concerns the SSH server: then people must be able to log in afterwards if they were before.
#[must_use]
pub(crate) fn concerns_logins(cut_offs: &[CutOff]) -> bool {
    cut_offs.iter().any(|c| c.why.is_about_logins())
}

#[cfg(test)]
#[expect(clippy::needless_pass_by_value, reason = "reads better with json!")]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn wanted(config: Value) -> DesiredHost {
        let mut spec = json!({"config": config});
        spec["config"]["ignition"] = json!({"version": "3.4.0"});
        DesiredHost::parse(&serde_json::from_value(spec).unwrap()).unwrap()
    }

    #[test]
    fn a_change_names_each_part_that_can_cut_the_node_off_also_one_that_is_removed() {
        let file =
            |path: &str, text: &str| json!({"path": path, "contents": {"source": format!("data:,{text}")}});
        let old = wanted(json!({
            "storage": {"files": [file("/etc/systemd/network/10.network", "a"), file("/etc/sysctl.d/1.conf", "net.core.x=1")]},
            "systemd": {"units": [{"name": "mine.service", "enabled": true, "contents": "[Service]\nExecStart=/bin/true\n"}]},
        }));
        let new = wanted(json!({
            "storage": {"files": [
                file("/etc/motd", "hi"), file("/etc/ssh/sshd_config", "x"),
                file("/etc/systemd/system/kubelet.service.d/10.conf", "x"),
            ]},
            "systemd": {"units": [
                {"name": "mine.service", "enabled": true, "contents": "[Service]\nExecStart=/bin/false\n"},
                {"name": "idle.service", "contents": "[Service]\nExecStart=/bin/true\n"},
                {"name": "crio.service", "mask": true},
            ]},
        }));
        let found = cut_offs(&old, &new);
        let paths: Vec<&str> = found.iter().map(|c| c.path.as_str()).collect();
        assert_eq!(
            paths,
            [
                "/etc/ssh/sshd_config",
                "/etc/sysctl.d/1.conf",
                "/etc/systemd/network/10.network",
                "/etc/systemd/system/kubelet.service.d/10.conf",
                "crio.service",
                "mine.service",
            ]
        );
        assert_eq!(cut_offs(&new, &new), []);
        assert!(concerns_logins(&found) && !concerns_logins(&[]));
        for unit in ["sshd.service", "ssh.service", "sshd.socket", "ssh.socket", "ssh@.service"] {
            let masked = wanted(json!({"systemd": {"units": [{"name": unit, "mask": true}]}}));
            assert!(concerns_logins(&cut_offs(&new, &masked)), "{unit}");
        }
        let drop_in = |path: &str| wanted(json!({"storage": {"files": [file(path, "x")]}}));
        let none = wanted(json!({}));
        assert!(concerns_logins(&cut_offs(&none, &drop_in("/etc/systemd/system/ssh.service.d/10.conf"))));
        assert!(!concerns_logins(&cut_offs(
            &none,
            &drop_in("/etc/systemd/system/kubelet.service.d/10.conf")
        )));
        assert_eq!(needed_units(), KUBELET_UNITS);
    }
}
