//! `mco status` for people: a table of pools, one of nodes, and what else is to be said.
//!
//! What it is not: what is said; see [`super::Snapshot`].

use super::{Snapshot, since::age};
use api::names::pool_condition::RENDER_DEGRADED;
use comfy_table::{Table, presets};
use jiff::Timestamp;

impl Snapshot {
    /// Tables for people, with the ages as of now.
    pub fn text(&self) -> String {
        self.text_at(Timestamp::now())
    }

    pub(super) fn text_at(&self, now: Timestamp) -> String {
        let mut pools =
            table(&["POOL", "CONFIG", "NODES", "UPDATED", "MOVING", "MAX", "DEGRADED", "CONDITIONS", "LEFT"]);
        let mut nodes = table(&["NODE", "POOL", "STATE", "CURRENT", "DESIRED", "SINCE", "WHY"]);
        let mut notes = String::new();
        for p in &self.pools {
            let conditions: Vec<&str> = p.conditions.keys().map(String::as_str).collect();
            pools.add_row([
                p.name.clone(),
                short(&p.config, &p.name),
                p.machines.to_string(),
                format!("{} ({} %)", p.updated, p.percent),
                p.moving.to_string(),
                p.max_unavailable.to_string(),
                p.degraded.to_string(),
                conditions.join(","),
                p.estimate.to_string(),
            ]);
            for n in &p.nodes {
                nodes.add_row([
                    n.name.clone(),
                    p.name.clone(),
                    n.state.clone(),
                    short(&n.current, &p.name),
                    short(&n.desired, &p.name),
                    n.since.map(|since| age(since, now)).unwrap_or_default(),
                    n.why.clone(),
                ]);
            }
            if let Some(held) = &p.held {
                notes += &format!("pool {}: {held}\n", p.name);
            }
            if let Some(pinned) = &p.pinned {
                notes += &format!("pool {}: {pinned}\n", p.name);
            }
            if let Some(message) = p.conditions.get(RENDER_DEGRADED) {
                notes += &format!("pool {}: {message}\n", p.name);
            }
        }
        for line in &self.unmanaged {
            notes += &format!("{line}\n");
        }
        match self.hidden_nodes {
            0 => {}
            1 => notes += "1 node is not shown; --all shows it\n",
            n => notes += &format!("{n} nodes are not shown; --all shows them\n"),
        }
        let nodes = if nodes.is_empty() { String::new() } else { format!("{nodes}\n") };
        format!("{pools}\n\n{nodes}{notes}")
    }
}

fn table(header: &[&str]) -> Table {
    let mut table = Table::new();
    table.load_style(presets::NOTHING).set_header(header.iter().copied());
    table
}

/// `rendered-worker-0123456789abcdef…` → `01234567…`: within a pool's table only the hash tells configs apart.
fn short(config: &str, pool: &str) -> String {
    match config.strip_prefix(&format!("rendered-{pool}-")) {
        Some(hash) if hash.len() == 32 => format!("{}…", &hash[..8]),
        _ => config.to_owned(),
    }
}
