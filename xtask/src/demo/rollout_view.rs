//! The live view of a rollout: on a terminal a table that is updated in place, otherwise one line for each change.

use cli::output::tables;
use insight::Snapshot;
use std::collections::BTreeMap;
use std::io::{IsTerminal, Write};
use std::time::Instant;

/// Shows snapshots as they arrive.
#[derive(Debug)]
pub(super) struct RolloutView {
    start: Instant,
    terminal: bool,
    lines: usize,
    nodes: BTreeMap<String, String>,
    pools: BTreeMap<String, String>,
}

impl RolloutView {
    /// Times are counted from `start`.
    pub(super) fn new(start: Instant) -> Self {
        Self {
            start,
            terminal: std::io::stdout().is_terminal(),
            lines: 0,
            nodes: BTreeMap::new(),
            pools: BTreeMap::new(),
        }
    }

    /// Shows one snapshot.
    pub(super) fn show(&mut self, now: &Snapshot) -> std::io::Result<()> {
        let elapsed = self.start.elapsed().as_secs_f64();
        let mut out = std::io::stdout().lock();
        if self.terminal {
            let text = format!("\n{elapsed:6.1} s\n{}", tables::status(now));
            let text = text.trim_end_matches('\n');
            if self.lines > 0 {
                // Back to the start of the last table, then clear to the end of the screen.
                write!(out, "\x1b[{}F\x1b[J", self.lines)?;
            }
            writeln!(out, "{text}")?;
            self.lines = text.lines().count();
            return out.flush();
        }
        for line in self.changes(now) {
            writeln!(out, "{elapsed:6.1} s  {line}")?;
        }
        out.flush()
    }

    /// What differs from the last snapshot, one line each.
    fn changes(&mut self, now: &Snapshot) -> Vec<String> {
        let mut lines = vec![];
        for p in &now.pools {
            let conditions: Vec<&str> = p.conditions.keys().map(String::as_str).collect();
            let held = p.held.as_ref().map(|h| format!("; {h}")).unwrap_or_default();
            let text = format!(
                "pool {}: {} of {} updated, {} moving, {} degraded [{}]{held}",
                p.name,
                p.updated,
                p.machines,
                p.moving,
                p.degraded,
                conditions.join(",")
            );
            if self.pools.insert(p.name.clone(), text.clone()).as_ref() != Some(&text) {
                lines.push(text);
            }
            for n in &p.nodes {
                let text = format!("  {} {}: {}", n.name, n.state, n.why);
                if self.nodes.insert(n.name.clone(), text.clone()).as_ref() != Some(&text) {
                    lines.push(text);
                }
            }
        }
        lines
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use insight::{NodeRow, Phase, PoolRow};

    #[test]
    fn only_what_changed_is_a_line() {
        let node = |why: &str| NodeRow {
            name: "worker-0".to_owned(),
            state: "Done".to_owned(),
            current: "a".to_owned(),
            desired: "a".to_owned(),
            phase: Phase::Waits,
            stuck: false,
            why: why.to_owned(),
            since: None,
        };
        let pool = |nodes| PoolRow {
            name: "worker".to_owned(),
            config: "a".to_owned(),
            machines: 1,
            max_unavailable: 1,
            nodes,
            ..PoolRow::default()
        };
        let snapshot = |why: &str| Snapshot { pools: vec![pool(vec![node(why)])], ..Snapshot::default() };
        let mut view = RolloutView::new(Instant::now());
        assert_eq!(view.changes(&snapshot("waits")).len(), 2);
        assert_eq!(view.changes(&snapshot("waits")), Vec::<String>::new());
        assert_eq!(view.changes(&snapshot("drains")), ["  worker-0 Done: drains"]);
    }
}
