//! What a pool was in and who changed what, for people: `mco history`.
//!
//! What it is not: what is said; that is `insight`'s and [`render::history`]'s.

use insight::PoolHistory;
use render::history::Change;
use std::fmt::Write;

/// A pool's rendered configs, the newest first, each with what it changed.
pub(crate) fn history(past: &PoolHistory) -> String {
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
            let _ = writeln!(out, "    {}", line(change));
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
pub(super) fn line(change: &Change) -> String {
    let things: Vec<String> = change.things.iter().map(ToString::to_string).collect();
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
            let kept = written.kept_by.as_ref().map(|k| format!(", kept by {k}")).unwrap_or_default();
            format!("; last written by {}{at}{since}{kept}", written.by)
        }
    };
    format!("{name}: {}{who}", things.join(", "))
}
