//! How much memory the Go programs of a control plane may use before they collect garbage at any cost (`GOMEMLIMIT`).
//!
//! Not here: how much garbage they let pile up before that (`GOGC`).

use std::fs;

/// The limit without any nodes, in MiB.
const LEAST: u64 = 6 * 1024;
/// What a node adds, in MiB: its objects and their newest changes in the API server's caches, several times over.
const PER_NODE: u64 = 3;

/// `GOMEMLIMIT` for a cluster of this many nodes, in MiB. A program that reached the limit would collect garbage all
/// the time, which costs more than anything else, so the limit is generous.
pub(crate) fn garbage_limit(nodes: usize) -> u64 {
    limit(nodes, machine())
}

/// At most half of the machine's memory, unless that is less than the minimum.
fn limit(nodes: usize, machine: u64) -> u64 {
    let wanted = PER_NODE.saturating_mul(u64::try_from(nodes).unwrap_or(u64::MAX));
    wanted.min(machine / 2).max(LEAST)
}

/// This machine's memory in MiB; 0 if it cannot be determined.
fn machine() -> u64 {
    let text = fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let kib = text.lines().find_map(|line| line.strip_prefix("MemTotal:")?.trim().strip_suffix(" kB"));
    kib.and_then(|kib| kib.parse::<u64>().ok()).unwrap_or_default() / 1024
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_nodes_get_more_as_far_as_the_machine_has_it() {
        let rows =
            [(0, 24_000, LEAST), (1000, 24_000, LEAST), (5000, 64_000, 15_000), (5000, 24_000, 12_000)];
        for (nodes, machine, want) in rows {
            assert_eq!(limit(nodes, machine), want, "{nodes} nodes on {machine} MiB");
        }
        assert_eq!(limit(5000, 0), LEAST);
        assert!(machine() > 0);
    }
}
