//! The texts about what people do and what a change would do, as the terminal prints them and the page shows them. Pure.
//!
//! What it is not: the facts in them, which come from `insight` and from this crate's other modules.

use crate::{Approval, Mode, Paused, Preview, RetriedNode};
use insight::{ChangePlan, Cost, Outcome, PoolChange, PoolHistory, UndoPlan};
use render::history::Change;
use std::fmt::Write;

/// What is made of the texts of others (of gates, agents, configs) before they are shown. Names of pools, nodes, waves, configs and
/// people are shown as they are: who is to confirm something must be able to read what it is about.
pub type Show = fn(&str) -> String;

/// Shows them as they are.
pub fn as_it_is(text: &str) -> String {
    text.to_owned()
}

/// How many nodes are named before it is said how many more there are.
const NAMED: usize = 5;
/// How many nodes a list of drains shows; for the rest it gives a number.
const SHOWN: usize = 10;

/// All pools that a change touches, and the notes.
pub fn plan(changes: &ChangePlan, show: Show) -> String {
    let mut out: String = changes.pools.iter().map(|change| pool(change, show)).collect();
    if changes.pools.is_empty() {
        out += "no pool's config changes\n";
    }
    for note in &changes.notes {
        let _ = writeln!(out, "note: {}", show(note));
    }
    out
}

/// One pool: from where to where, the disruption, the nodes in order, the difference.
fn pool(change: &PoolChange, show: Show) -> String {
    let (p, mut out) = (change, String::new());
    let from = if p.from.is_empty() { "(none)" } else { &p.from };
    let _ = writeln!(out, "pool {}: {from} → {}", p.pool, p.to);
    for cost in &p.costs {
        let whose = match cost.from == p.from {
            true => String::new(),
            false => format!(" for {} nodes in {}", cost.nodes, cost.from),
        };
        costs(cost, &whose, show, &mut out);
    }
    if let Some(pulls) = &p.pulls {
        let _ = writeln!(out, "  {}", show(&pulls.to_string()));
    }
    let count = p.nodes.len();
    let _ = match &p.held {
        _ if count == 0 => writeln!(out, "  no node of the pool has to move"),
        Some(why) => writeln!(out, "  {count} nodes, none of them now: {}", show(why)),
        None => writeln!(out, "  {count} nodes, at most {} at once, in this order:", p.max_unavailable),
    };
    for (i, node) in p.nodes.iter().enumerate() {
        let when = match (&node.waits, node.now) {
            (Some(why), _) => format!(" (waits: {})", show(why)),
            (None, true) => " (at once)".to_owned(),
            (None, false) => String::new(),
        };
        let _ = writeln!(out, "  {:>4}. {}{when}", i + 1, node.node);
    }
    drains_and_policy(p, show, &mut out);
    out += &lines_of(&p.diff, show);
    out
}

/// A text of several lines.
fn lines_of(text: &str, show: Show) -> String {
    let mut shown = show(text);
    if text.ends_with('\n') && !shown.ends_with('\n') {
        shown.push('\n');
    }
    shown
}

/// What a change costs a node.
fn costs(cost: &Cost, whose: &str, show: Show, out: &mut String) {
    let _ = match &cost.outcome {
        Outcome::Applied { disruption, .. } => {
            let _ = writeln!(out, "  disruption{whose}: {}", show(&disruption.to_string()));
            let mut rules = disruption.decided.iter().map(|decided| show(&decided.to_string()));
            rules.try_for_each(|decided| writeln!(out, "    rule: {decided}"))
        }
        Outcome::Irreconcilable { irreconcilable } => {
            let _ = writeln!(out, "  cannot be applied to a running host{whose}:");
            irreconcilable.iter().try_for_each(|i| writeln!(out, "    {}", show(&i.to_string())))
        }
        Outcome::Unknown { because } => writeln!(out, "  disruption{whose}: unknown, {}", show(because)),
    };
}

/// What the nodes of a pool do once the pool may continue.
pub fn of_pool(preview: &Preview, show: Show) -> String {
    preview.change.as_ref().map(|change| pool(change, show)).unwrap_or_default()
}

/// What a node does that tries again.
pub fn of_node(preview: &Preview, show: Show) -> String {
    let mut out = String::new();
    let Some(change) = preview.change.as_ref().filter(|change| change.from != change.to) else { return out };
    let _ = writeln!(out, "  it continues to {}", change.to);
    change.costs.iter().filter(|c| c.from == change.from).for_each(|c| costs(c, "", show, &mut out));
    out
}

/// How long the change may take, which drains would wait, and the pool's policy.
fn drains_and_policy(p: &PoolChange, show: Show, out: &mut String) {
    if let Some(time) = &p.time {
        let _ = writeln!(out, "  {time}");
    }
    let (waits, loses): (Vec<_>, Vec<_>) = p.drains.iter().partition(|d| d.waits);
    for (title, drains) in
        [("drains that would wait now", waits), ("pods and data that drains would lose", loses)]
    {
        if drains.is_empty() {
            continue;
        }
        let _ = writeln!(out, "  {title}:");
        for drain in drains.iter().take(SHOWN) {
            let _ = writeln!(out, "    {}: {}", drain.node, show(&drain.why));
        }
        if drains.len() > SHOWN {
            let _ = writeln!(out, "    and {} more", drains.len() - SHOWN);
        }
    }
    let Some(policy) = &p.policy else { return };
    let _ = writeln!(out, "  RolloutPolicy {} applies:", policy.policy);
    let parts = [
        ("waves", &policy.waves),
        ("gates", &policy.gates),
        ("windows", &policy.windows),
        ("freezes", &policy.freezes),
    ];
    for (what, all) in parts.into_iter().filter(|(_, all)| !all.is_empty()) {
        let all: Vec<String> = all.iter().map(|text| show(text)).collect();
        let _ = writeln!(out, "    {what}: {}", all.join("; "));
    }
}

/// What an undo means, before it is done; what it meant, afterwards.
pub fn undo(plan: &UndoPlan, show: Show) -> String {
    let mut out = String::new();
    let name = &plan.pool;
    if let (Some(change), false) = (&plan.change, plan.done) {
        out += &pool(change, show);
    }
    let _ = match (&plan.pin, plan.done) {
        (Some(config), true) => {
            writeln!(out, "pool {name} is pinned to {config}: the controller sends its nodes there")
        }
        (None, true) => writeln!(out, "pool {name} follows its MachineConfigs again"),
        (None, false) => writeln!(out, "pool {name} would follow its MachineConfigs again"),
        (Some(config), false) => writeln!(out, "pool {name} would be pinned to {config}"),
    };
    if !plan.machine_configs.is_empty() {
        out += "these MachineConfigs still differ; correct them at their source:\n";
        plan.machine_configs.iter().for_each(|c| out += &format!("  {}\n", line(c, show)));
    }
    if plan.pin.is_some() {
        let _ = writeln!(out, "no change to them is rolled out until `mco undo {name} --release`");
    }
    out
}

/// A pool's rendered configs, the newest first, each with what it changed.
pub fn history(past: &PoolHistory) -> String {
    let mut out = String::new();
    for row in &past.configs {
        let mut words = vec![];
        words.extend(row.step.rendered.as_ref().map(|t| format!("rendered {}", t.0)));
        words.extend(row.in_force.last().map(|t| format!("in force since {}", t.0)).filter(|_| row.current));
        words.extend(
            row.in_force.last().map(|t| format!("was in force from {}", t.0)).filter(|_| !row.current),
        );
        words.extend((row.nodes > 0).then(|| format!("{} nodes in it", row.nodes)));
        let mark = if row.current { "*" } else { " " };
        let pin = if past.pinned.as_deref() == Some(&row.step.config) { " (pinned)" } else { "" };
        let _ = writeln!(out, "{mark} {}{pin}  {}", row.step.config, words.join(", "));
        for change in &row.step.changes {
            let _ = writeln!(out, "    {}", line(change, as_it_is));
        }
        if let Some(unknown) = &row.step.unknown {
            let _ = writeln!(out, "    the difference is not known: {unknown}");
        }
    }
    if past.configs.is_empty() {
        let _ = writeln!(out, "pool {} has no rendered config yet; is the controller running?", past.pool);
    }
    for gone in &past.gone {
        let since = gone.since.as_ref().map(|t| format!(" from {}", t.0)).unwrap_or_default();
        let _ = writeln!(out, "  {}  was in force{since}; deleted since", gone.config);
    }
    out
}

/// A change in a line: the MachineConfig, what it is about, and who wrote it last.
fn line(change: &Change, show: Show) -> String {
    let things: Vec<String> = change.things.iter().map(|thing| show(&thing.to_string())).collect();
    let name = match change.machine_config.as_str() {
        "" => "(no MachineConfig is recorded)",
        name => name,
    };
    let who = match &change.written {
        _ if change.deleted => "; it is deleted".to_owned(),
        None => String::new(),
        Some(written) => {
            let at = written.at.as_ref().map(|t| format!(" at {}", t.0)).unwrap_or_default();
            let since = if change.written_since { ", after this config was rendered" } else { "" };
            let kept = written.kept_by.as_ref().map(|k| format!(", kept by {}", show(k))).unwrap_or_default();
            format!("; last written by {}{at}{since}{kept}", show(&written.by))
        }
    };
    format!("{name}: {}{who}", things.join(", "))
}

/// Pools that are paused or resumed, or would be, and what becomes of their nodes.
pub fn paused(all: &[Paused], how: Mode) -> String {
    let mut out = String::new();
    for d in all {
        let word = if d.paused { "paused" } else { "resumed" };
        let is = match (d.changed, how) {
            (false, _) => "is already",
            (true, Mode::Write) => "is",
            (true, Mode::Preview) => "would be",
        };
        let _ = writeln!(out, "pool {} {is} {word}", d.pool);
        if !d.under_way.is_empty() {
            let _ = writeln!(out, "  already under way, and will finish: {}", named(&d.under_way));
        }
        if !d.waiting.is_empty() {
            let what = if d.paused { "wait for `mco resume`" } else { "will be updated in turn" };
            let _ = writeln!(out, "  {what}: {}", named(&d.waiting));
        }
    }
    out
}

fn named(nodes: &[String]) -> String {
    api::formats::text::names(nodes, NAMED)
}

/// That objects of a kind may not be listed, and what that means for what is shown.
pub fn not_allowed(kind: &str) -> String {
    format!(
        "you may not list {kind} objects, so this assumes that there are none, and can be wrong; ask for the right to \
         \"list\" them"
    )
}

/// A node whose agent tries again, or would.
pub fn retried(of: &RetriedNode, how: Mode, show: Show) -> String {
    let (RetriedNode { node, state, reason }, fails) = (of, of.fails());
    let why = if reason.is_empty() { String::new() } else { format!(": {}", show(reason)) };
    let state = show(state);
    match (fails, how) {
        (true, Mode::Write) => format!("node {node}: retries now; it was {state}{why}\n"),
        (true, Mode::Preview) => format!("node {node}: would retry now; it is {state}{why}\n"),
        (false, Mode::Write) => {
            format!("node {node}: is {state}; anything that it waits to retry is retried now\n")
        }
        (false, Mode::Preview) => {
            format!("node {node}: is {state}; anything that it waits to retry would be retried now\n")
        }
    }
}

/// A wave that is approved, or would be.
pub fn approved(done: &Approval, how: Mode) -> String {
    let Approval { pool, config, wave, by, .. } = done;
    let is = if how == Mode::Write { "is" } else { "would be" };
    format!("wave {wave} of pool {pool} {is} approved for {config} by {by}\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_says_what_becomes_of_nodes_under_way_and_of_those_that_wait() {
        let names = |n: usize| (0..n).map(|i| format!("n{i}")).collect::<Vec<_>>();
        let done = |paused, changed, moving, waiting| Paused {
            pool: "worker".to_owned(),
            paused,
            changed,
            under_way: names(moving),
            waiting: names(waiting),
        };
        let rows = [
            (
                done(true, true, 1, 6),
                "pool worker is paused\n  already under way, and will finish: n0\n  wait for `mco resume`: \
                 n0, n1, n2, n3, n4 and 1 more\n",
            ),
            (done(true, false, 0, 0), "pool worker is already paused\n"),
            (done(false, true, 0, 2), "pool worker is resumed\n  will be updated in turn: n0, n1\n"),
            (done(false, false, 0, 0), "pool worker is already resumed\n"),
        ];
        for (done, want) in rows {
            assert_eq!(paused(std::slice::from_ref(&done), Mode::Write), want);
            let would = want.replace("worker is paused", "worker would be paused");
            let would = would.replace("worker is resumed", "worker would be resumed");
            assert_eq!(paused(&[done], Mode::Preview), would);
        }
    }
}
