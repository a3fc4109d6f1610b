//! What a change would do, for people: `mco plan -f`, and `mco undo` before it asks.
//!
//! What it is not: what is said; that is `insight`'s.

use super::history::line;
use insight::{ChangePlan, Outcome, PoolChange, UndoPlan};
use std::fmt::Write;

/// All pools that a change touches, and the notes.
pub(crate) fn plan(changes: &ChangePlan) -> String {
    let mut out: String = changes.pools.iter().map(pool).collect();
    if changes.pools.is_empty() {
        out += "no pool's config changes\n";
    }
    for note in &changes.notes {
        let _ = writeln!(out, "note: {note}");
    }
    out
}

/// One pool: from where to where, the disruption, the nodes in order, the difference.
fn pool(change: &PoolChange) -> String {
    let (p, mut out) = (change, String::new());
    let from = if p.from.is_empty() { "(none)" } else { &p.from };
    let _ = writeln!(out, "pool {}: {from} → {}", p.pool, p.to);
    for cost in &p.costs {
        let whose = match cost.from == p.from {
            true => String::new(),
            false => format!(" for {} nodes in {}", cost.nodes, cost.from),
        };
        let _ = match &cost.outcome {
            Outcome::Applied { disruption, .. } => writeln!(out, "  disruption{whose}: {disruption}"),
            Outcome::Irreconcilable { irreconcilable } => {
                let _ = writeln!(out, "  cannot be applied to a running host{whose}:");
                irreconcilable.iter().try_for_each(|i| writeln!(out, "    {i}"))
            }
            Outcome::Unknown { because } => writeln!(out, "  disruption{whose}: unknown, {because}"),
        };
    }
    let count = p.nodes.len();
    let _ = match &p.held {
        _ if count == 0 => writeln!(out, "  no node of the pool has to move"),
        Some(why) => writeln!(out, "  {count} nodes, none of them now: {why}"),
        None => writeln!(out, "  {count} nodes, at most {} at once, in this order:", p.max_unavailable),
    };
    for (i, node) in p.nodes.iter().enumerate() {
        let when = match (&node.waits, node.now) {
            (Some(why), _) => format!(" (waits: {why})"),
            (None, true) => " (at once)".to_owned(),
            (None, false) => String::new(),
        };
        let _ = writeln!(out, "  {:>4}. {}{when}", i + 1, node.node);
    }
    out += &p.diff;
    out
}

/// What an undo means, before it is done; what it meant, afterwards.
pub(crate) fn undo(plan: &UndoPlan) -> String {
    let mut out = String::new();
    let name = &plan.pool;
    if let (Some(change), false) = (&plan.change, plan.done) {
        out += &pool(change);
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
        plan.machine_configs.iter().for_each(|c| out += &format!("  {}\n", line(c)));
    }
    if plan.pin.is_some() {
        let _ = writeln!(out, "no change of them is rolled out until `mco undo {name} --release`");
    }
    out
}
