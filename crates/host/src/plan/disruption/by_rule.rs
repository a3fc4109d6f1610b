//! What a change costs by the rules that decide for each of its paths: a policy, the table of effects, or the default. Pure.
//!
//! What it is not: the table (see `plan::effects`).

use std::collections::BTreeMap;

use api::v1alpha1::Reboots;
use desired::{
    DEFAULT_SERVICES, DesiredHost, DesiredPath, DisruptionPolicy, Irreconcilable, OsField, PolicyAction,
    Scope, UPDATE_CA_TRUST, has_contents,
};

use super::{Changes, Disruption, Rule, RuleDecision, ServiceDisruption};
use crate::paths::{FORCE_FILE, REGISTRIES_CONF};
use crate::plan::effects::{Effect, Planned, RowApplied, RowRefused, TakesEffect, UnitVerb, table, units};
use crate::plan::facts::Facts;
use crate::plan::os_before::ImageGivenUp;
use crate::plan::registries::drain_reason;
use crate::system::systemd::ServiceAction;

/// The cost of the changes according to the policies. Adds notes on actions that are skipped, and refusals.
pub(crate) fn disruption(
    changes: &Changes,
    old: &DesiredHost,
    new: &DesiredHost,
    policy: &DisruptionPolicy,
    facts: &Facts,
    notes: &mut Vec<String>,
    bad: &mut Vec<Irreconcilable>,
) -> Disruption {
    let Asked { asked, by_table, decided, live } = Asked::by((old, new), changes, policy, facts);
    let mut out = Disruption { decided, ..Disruption::default() };
    for (action, because) in &asked {
        if matches!(action, PolicyAction::Reboot) {
            push(&mut out.reboot, because);
            push(&mut out.drain, because);
        }
    }
    // A change of the operating system that is booted into needs a new kernel, so restarting userspace is not enough.
    let whole = out.needs_reboot() || !live.is_empty();
    for path in &by_table.userspace {
        push(&mut out.reboot, path);
        push(&mut out.drain, path);
    }
    let reboots = out.needs_reboot();
    for field in &live {
        if reboots {
            push(&mut out.reboot, field);
            push(&mut out.drain, field);
            out.decided.push(by_default(field));
        } else {
            push(&mut out.live, field);
            // The packages may have units.
            push(&mut out.daemon_reload, field);
            out.decided.push(applied_live(field));
        }
    }
    if out.needs_reboot() {
        let can = facts.effects.as_ref().is_some_and(|f| f.soft_reboot && !f.owes_reboot);
        out.soft = !whole && can && !policy.only_whole_reboots;
        return out;
    }
    by_table.settle(&mut out, facts, notes);
    for (action, because) in &asked {
        carry_over(action, because, (old, new), &mut out, bad);
    }
    keep_what_is_there(&mut out, new, facts, notes, bad);
    out
}

/// What the changes ask for, and which rule said so.
struct Asked {
    asked: Vec<(PolicyAction, String)>,
    by_table: ByTable,
    decided: Vec<RuleDecision>,
    /// What takes effect in the running system, if nothing else reboots the machine.
    live: Vec<String>,
}

impl Asked {
    fn by(
        (old, new): (&DesiredHost, &DesiredHost),
        changes: &Changes,
        policy: &DisruptionPolicy,
        facts: &Facts,
    ) -> Self {
        let mut asked: Vec<(PolicyAction, String)> = Vec::new();
        let mut by_table = ByTable::default();
        let mut decided = Vec::new();
        if facts.force {
            asked.push((PolicyAction::Reboot, FORCE_FILE.to_owned()));
            decided.push(by_default(FORCE_FILE));
        }
        let stays = matches!(ImageGivenUp::of(old, new, facts), ImageGivenUp::Keeps | ImageGivenUp::Runs);
        let mut live = Vec::new();
        for field in changes.os.iter().filter(|field| **field != OsField::Image || !stays) {
            if changes.live && *field == OsField::Extensions {
                live.push(field.path().to_owned());
                continue;
            }
            asked.push((PolicyAction::Reboot, field.path().to_owned()));
            decided.push(by_default(field.path()));
        }
        let when_needed = policy.reboots == Reboots::WhenNeeded;
        let ours = DisruptionPolicy::default();
        let mut by_policy = |what: &str, name: &str, built_in: bool, actions: &[PolicyAction]| {
            asked.extend(actions.iter().map(|a| (a.clone(), what.to_owned())));
            let policy = name.to_owned();
            let rule = if built_in { Rule::BuiltIn { policy } } else { Rule::Policy { policy } };
            let cost = actions.iter().map(in_words).collect::<Vec<_>>().join(", ");
            decided.push(RuleDecision { what: what.to_owned(), rule, cost });
        };
        let mut rest: Vec<(&String, Option<Result<RowApplied, RowRefused>>)> = Vec::new();
        let modules = when_needed && changes.files.iter().any(|p| p.starts_with("/etc/modules-load.d/"));
        for path in &changes.files {
            match policy.for_path(path) {
                Some(p) => by_policy(path, &p.path, ours.files.contains(p), &p.actions),
                None if when_needed => rest.push((path, table::of_file(path, old, new, facts, modules))),
                None => rest.push((path, None)),
            }
        }
        for unit in &changes.units {
            match policy.for_unit(unit) {
                Some(p) => by_policy(unit, &p.name, ours.units.contains(p), &p.actions),
                None if when_needed => {
                    let drifted = changes.drifted_units.contains(unit);
                    rest.push((unit, Some(units::of_unit(unit, (old, new), drifted, facts))));
                }
                None => rest.push((unit, None)),
            }
        }
        if changes.passwd {
            let p = &policy.sshkey;
            by_policy("spec.config.passwd", "sshkey", *p == ours.sshkey, &p.actions);
        }
        for (what, taken) in rest {
            let rule = match taken {
                Some(Ok(taken)) => {
                    decided.push(by_table.add(what, taken));
                    continue;
                }
                Some(Err(RowRefused { row, why })) => Rule::NotHere { row: row.to_owned(), why },
                None => Rule::Default,
            };
            asked.push((PolicyAction::Reboot, what.clone()));
            decided.push(RuleDecision { rule, ..by_default(what) });
        }
        Self { asked, by_table, decided, live }
    }
}

/// Adds an action of a policy to the cost.
fn carry_over(
    action: &PolicyAction,
    because: &str,
    (old, new): (&DesiredHost, &DesiredHost),
    out: &mut Disruption,
    bad: &mut Vec<Irreconcilable>,
) {
    match action {
        PolicyAction::Reboot | PolicyAction::None => {}
        PolicyAction::Drain => push(&mut out.drain, because),
        PolicyAction::DaemonReload => push(&mut out.daemon_reload, because),
        PolicyAction::Reload { reload } => {
            service(out, ServiceAction::Reload, &reload.service_name, because);
        }
        PolicyAction::Restart { restart } => {
            service(out, ServiceAction::Restart, &restart.service_name, because);
        }
        PolicyAction::Special => {
            service(out, ServiceAction::Reload, "crio.service", because);
            match registries_drain(old, new) {
                Ok(None) => {}
                Ok(Some(why)) => push(&mut out.drain, &format!("{because}: {why}")),
                Err(why) => bad.push(Irreconcilable {
                    path: because.to_owned(),
                    why: format!("it is not TOML: {why}"),
                    remedy: "correct the file's contents".to_owned(),
                    scope: Scope::Config,
                }),
            }
        }
    }
}

/// Drops services that this host does not have: with a note if a rule of ours names them, else as a fault of the policy. And
/// effects on units that are restarted in any case.
fn keep_what_is_there(
    out: &mut Disruption,
    new: &DesiredHost,
    facts: &Facts,
    notes: &mut Vec<String>,
    bad: &mut Vec<Irreconcilable>,
) {
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
    let restarted =
        |unit: &String| out.services.iter().any(|s| s.unit == *unit && s.action >= ServiceAction::Restart);
    out.effects.retain(|p| match &p.effect {
        Effect::Unit { action: UnitVerb::Restart | UnitVerb::Reload, unit } => !restarted(unit),
        _ => true,
    });
}

/// What no rule makes cheaper.
fn by_default(what: &str) -> RuleDecision {
    RuleDecision { what: what.to_owned(), rule: Rule::Default, cost: "reboot".to_owned() }
}

/// The decision about extensions that are applied to the running system.
fn applied_live(what: &str) -> RuleDecision {
    let annotation = api::names::annotation::LIVE_EXTENSIONS;
    let cost = "applied to the running system".to_owned();
    RuleDecision { what: what.to_owned(), rule: Rule::Allowed { annotation }, cost }
}

fn in_words(action: &PolicyAction) -> String {
    match action {
        PolicyAction::Reboot => "reboot".to_owned(),
        PolicyAction::Drain => "drain".to_owned(),
        PolicyAction::Reload { reload } => format!("reload {}", reload.service_name),
        PolicyAction::Restart { restart } => format!("restart {}", restart.service_name),
        PolicyAction::DaemonReload => "daemon-reload".to_owned(),
        PolicyAction::None => "nothing".to_owned(),
        PolicyAction::Special => "reload crio.service, and a drain if pods could get other images".to_owned(),
    }
}

/// What the table says about a whole change.
#[derive(Default)]
struct ByTable {
    /// What needs a restart of userspace (soft reboot).
    userspace: Vec<String>,
    effects: Vec<Planned>,
    notes: Vec<String>,
    /// Changes of the record of kernel parameters.
    record: BTreeMap<String, Option<String>>,
}

impl ByTable {
    /// Adds what the table says about one path or unit.
    fn add(&mut self, what: &str, taken: RowApplied) -> RuleDecision {
        let RowApplied { row, way, notes, record } = taken;
        self.notes.extend(notes);
        self.record.extend(record);
        let rule = Rule::Table { row: row.to_owned(), at_each_use: way == TakesEffect::AtEachUse };
        let cost = match way {
            TakesEffect::AtEachUse => "nothing".to_owned(),
            TakesEffect::Userspace => {
                self.userspace.push(what.to_owned());
                "a restart of userspace (soft reboot)".to_owned()
            }
            TakesEffect::Effects(effects) if effects.is_empty() => "nothing".to_owned(),
            TakesEffect::Effects(effects) => {
                let words = effects.iter().map(|e| e.effect.to_string()).collect::<Vec<_>>().join(", ");
                for mut planned in effects {
                    planned.because = vec![what.to_owned()];
                    match self.effects.iter_mut().find(|p| p.effect == planned.effect) {
                        Some(there) => push(&mut there.because, what),
                        None => self.effects.push(planned),
                    }
                }
                words
            }
        };
        RuleDecision { what: what.to_owned(), rule, cost }
    }

    /// Puts the effects in their order: units are stopped first, modules bring parameters, programs prepare what units
    /// read, sockets come before their services. A restart replaces a reload.
    fn settle(self, out: &mut Disruption, facts: &Facts, notes: &mut Vec<String>) {
        let Self { userspace: _, mut effects, notes: more, record } = self;
        let rank = |p: &Planned| match &p.effect {
            Effect::Unit { action: UnitVerb::Stop, .. } => 0,
            Effect::Program { program, .. } if program == table::MODPROBE => 1,
            Effect::Parameter { .. } => 2,
            Effect::Program { .. } => 3,
            // systemd refuses to open a socket whose service runs already.
            Effect::Unit { unit, .. } if !unit.ends_with(".service") => 4,
            Effect::Unit { .. } => 5,
        };
        effects.sort_by_key(rank);
        let restarts: Vec<String> = effects
            .iter()
            .filter_map(|p| match &p.effect {
                Effect::Unit { action: UnitVerb::Restart, unit } => Some(unit.clone()),
                _ => None,
            })
            .collect();
        effects.retain(|p| {
            !matches!(&p.effect, Effect::Unit { action: UnitVerb::Reload, unit } if restarts.contains(unit))
        });
        notes.extend(more);
        out.effects = effects;
        if !record.is_empty() {
            let mut all = facts.effects.as_ref().map(|f| f.parameters_before.clone()).unwrap_or_default();
            for (key, value) in record {
                match value {
                    Some(value) => drop(all.insert(key, value)),
                    None => drop(all.remove(&key)),
                }
            }
            out.parameters_before = Some(all);
        }
    }
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

fn registries_drain(old: &DesiredHost, new: &DesiredHost) -> Result<Option<String>, String> {
    let text = |w: &DesiredHost| match w.at(REGISTRIES_CONF) {
        Some(DesiredPath::File { content, .. }) => String::from_utf8_lossy(content.bytes()).into_owned(),
        _ => String::new(),
    };
    drain_reason(&text(old), &text(new))
}
