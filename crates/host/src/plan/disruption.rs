//! What a change costs the node: nothing, reloads and restarts of services, a drain, a reboot. Each comes with the
//! path that requires it. Pure.

use std::collections::BTreeSet;
use std::fmt;

use desired::{Irreconcilable, Scope, Want, Wanted, has_contents};
use serde::Serialize;

use crate::paths::{FORCE_FILE, REGISTRIES_CONF};
use crate::plan::facts::Facts;
use crate::plan::policy::{DEFAULT_SERVICES, DisruptionPolicy, PolicyAction, UPDATE_CA_TRUST};
use crate::plan::registries::drain_reason;
use crate::system::systemd::ServiceAction;

/// The cost of a whole change.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Disruption {
    /// What requires a drain before the change. Empty: no drain.
    pub drain: Vec<String>,
    /// What requires a reboot after the change. Empty: no reboot.
    pub reboot: Vec<String>,
    /// What requires systemd to reload its units. Empty: no reload.
    pub daemon_reload: Vec<String>,
    /// The services to reload or restart, in order, each once.
    pub services: Vec<ServiceDisruption>,
}

/// A service that is reloaded or restarted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ServiceDisruption {
    /// The unit.
    pub unit: String,
    /// The action.
    pub action: ServiceAction,
    /// What requires it.
    pub because: Vec<String>,
}

impl Disruption {
    /// Whether nothing on the node is disturbed.
    #[must_use]
    pub fn is_none(&self) -> bool {
        *self == Self::default()
    }

    /// Whether the node must be drained first.
    #[must_use]
    pub fn needs_drain(&self) -> bool {
        !self.drain.is_empty()
    }

    /// Whether the node must reboot afterwards.
    #[must_use]
    pub fn needs_reboot(&self) -> bool {
        !self.reboot.is_empty()
    }
}

impl fmt::Display for Disruption {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_none() {
            return f.write_str("none");
        }
        let mut parts = Vec::new();
        if self.needs_drain() {
            parts.push(format!("drain ({})", self.drain.join(", ")));
        }
        if self.needs_reboot() {
            parts.push(format!("reboot ({})", self.reboot.join(", ")));
        }
        if !self.daemon_reload.is_empty() {
            parts.push(format!("daemon-reload ({})", self.daemon_reload.join(", ")));
        }
        for s in &self.services {
            parts.push(format!("{} {} ({})", s.action.verb(), s.unit, s.because.join(", ")));
        }
        f.write_str(&parts.join("; "))
    }
}

/// The differences between two configs that disruption policies distinguish.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Changes {
    /// The changed fields of the operating system.
    pub(crate) os: Vec<&'static str>,
    /// The paths of changed files.
    pub(crate) files: BTreeSet<String>,
    /// The names of changed units.
    pub(crate) units: BTreeSet<String>,
    /// Whether keys or password of the core user changed.
    pub(crate) passwd: bool,
}

impl Changes {
    /// The differences between two configs. The order of entries does not matter. Another encoding of the same bytes
    /// is a difference.
    pub(crate) fn between(old: &Wanted, new: &Wanted) -> Self {
        let mut os = Vec::new();
        let mut differs = |field, differs: bool| {
            if differs {
                os.push(field);
            }
        };
        let (a, b) = (&old.os, &new.os);
        differs("spec.osImageURL", a.image != b.image);
        differs("spec.kernelArguments", a.kernel_arguments != b.kernel_arguments);
        differs("spec.kernelType", a.kernel_type != b.kernel_type);
        differs("spec.extensions", a.extensions != b.extensions);
        let (a, b) = (&old.config.storage, &new.config.storage);
        let mut files = keyed(&a.files, &b.files, |f| &f.path);
        files.extend(keyed(&a.directories, &b.directories, |d| &d.path));
        files.extend(keyed(&a.links, &b.links, |l| &l.path));
        let units = keyed(&old.config.systemd.units, &new.config.systemd.units, |u| &u.name);
        Self { os, files, units, passwd: old.config.passwd != new.config.passwd }
    }
}

/// The keys of elements that differ between the two sides or exist on one only.
fn keyed<T: PartialEq>(old: &[T], new: &[T], key: impl Fn(&T) -> &String) -> BTreeSet<String> {
    let find = |list: &[T], k: &String| list.iter().rposition(|x| key(x) == k);
    let all = old.iter().chain(new).map(&key).collect::<BTreeSet<_>>();
    let same = |k: &&&String| match (find(old, k), find(new, k)) {
        (Some(a), Some(b)) => old.get(a) == new.get(b),
        _ => false,
    };
    all.iter().filter(|k| !same(k)).map(|k| (*k).clone()).collect()
}

/// The cost of the changes according to the policies. Adds notes on actions that are skipped, and refusals.
pub(crate) fn disruption(
    changes: &Changes,
    old: &Wanted,
    new: &Wanted,
    policy: &DisruptionPolicy,
    facts: &Facts,
    notes: &mut Vec<String>,
    bad: &mut Vec<Irreconcilable>,
) -> Disruption {
    let mut asked: Vec<(PolicyAction, String)> = Vec::new();
    if facts.force {
        asked.push((PolicyAction::Reboot, FORCE_FILE.to_owned()));
    }
    asked.extend(changes.os.iter().map(|field| (PolicyAction::Reboot, (*field).to_owned())));
    for path in &changes.files {
        match policy.for_path(path) {
            Some(p) => asked.extend(p.actions.iter().map(|a| (a.clone(), path.clone()))),
            None => asked.push((PolicyAction::Reboot, path.clone())),
        }
    }
    for unit in &changes.units {
        match policy.for_unit(unit) {
            Some(p) => asked.extend(p.actions.iter().map(|a| (a.clone(), unit.clone()))),
            None => asked.push((PolicyAction::Reboot, unit.clone())),
        }
    }
    if changes.passwd {
        asked.extend(policy.sshkey.actions.iter().map(|a| (a.clone(), "spec.config.passwd".to_owned())));
    }
    let mut out = Disruption::default();
    for (action, because) in &asked {
        if matches!(action, PolicyAction::Reboot) {
            push(&mut out.reboot, because);
            push(&mut out.drain, because);
        }
    }
    if out.needs_reboot() {
        return out;
    }
    for (action, because) in &asked {
        match action {
            PolicyAction::Reboot | PolicyAction::None => {}
            PolicyAction::Drain => push(&mut out.drain, because),
            PolicyAction::DaemonReload => push(&mut out.daemon_reload, because),
            PolicyAction::Reload { reload } => {
                service(&mut out, ServiceAction::Reload, &reload.service_name, because);
            }
            PolicyAction::Restart { restart } => {
                service(&mut out, ServiceAction::Restart, &restart.service_name, because);
            }
            PolicyAction::Special => {
                service(&mut out, ServiceAction::Reload, "crio.service", because);
                match registries_drain(old, new) {
                    Ok(None) => {}
                    Ok(Some(why)) => push(&mut out.drain, &format!("{because}: {why}")),
                    Err(why) => bad.push(Irreconcilable {
                        path: because.clone(),
                        why: format!("it is not TOML: {why}"),
                        remedy: "correct the file's contents".to_owned(),
                        scope: Scope::Config,
                    }),
                }
            }
        }
    }
    if let Some(tool) = &facts.trust_tool
        && !facts.unit_files.contains(UPDATE_CA_TRUST)
        && let Some(s) = out.services.iter_mut().find(|s| s.unit == UPDATE_CA_TRUST)
    {
        (s.action, s.unit) = (ServiceAction::Run, tool.program.clone());
    }
    out.services.retain(|s| {
        if s.action == ServiceAction::Run {
            return true;
        }
        let there = facts.unit_files.contains(&s.unit)
            || crate::system::unit_file::template_of(&s.unit).is_some_and(|t| facts.unit_files.contains(&t))
            || new.config.systemd.units.iter().any(|u| u.name == s.unit && has_contents(u));
        if there {
            return true;
        }
        if DEFAULT_SERVICES.contains(&s.unit.as_str()) {
            notes.push(format!("{} is not on this host: nothing to {}", s.unit, s.action.verb()));
        } else {
            bad.push(Irreconcilable {
                path: s.unit.clone(),
                why: format!(
                    "the node disruption policy for {} names it and this host has no such unit",
                    s.because.join(", ")
                ),
                remedy: "correct the policy's serviceName, or install the unit first".to_owned(),
                scope: Scope::Machine,
            });
        }
        false
    });
    out
}

fn push(list: &mut Vec<String>, because: &str) {
    if !list.iter().any(|x| x == because) {
        list.push(because.to_owned());
    }
}

/// Adds a service once. A restart replaces a reload.
fn service(out: &mut Disruption, action: ServiceAction, unit: &str, because: &str) {
    if let Some(s) = out.services.iter_mut().find(|s| s.unit == unit) {
        s.action = s.action.max(action);
        push(&mut s.because, because);
    } else {
        let because = vec![because.to_owned()];
        out.services.push(ServiceDisruption { unit: unit.to_owned(), action, because });
    }
}

fn registries_drain(old: &Wanted, new: &Wanted) -> Result<Option<String>, String> {
    let text = |w: &Wanted| match w.at(REGISTRIES_CONF) {
        Some(Want::File { content, .. }) => String::from_utf8_lossy(content.bytes()).into_owned(),
        _ => String::new(),
    };
    drain_reason(&text(old), &text(new))
}
