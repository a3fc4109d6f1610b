//! The tables of `mco status` and `mco explain` for people: pools, nodes, who set what, and the notes below them.
//!
//! What it is not: the facts in them (see `insight`).

use api::names::pool_condition::RENDER_DEGRADED;
use comfy_table::{Table, presets};
use insight::{Explanation, Snapshot};
use jiff::Timestamp;

/// Pools and nodes with their states; ages are counted until now.
pub fn status(snapshot: &Snapshot) -> String {
    status_at(snapshot, Timestamp::now())
}

fn status_at(snapshot: &Snapshot, now: Timestamp) -> String {
    let mut pools =
        table(&["POOL", "CONFIG", "NODES", "UPDATED", "MOVING", "MAX", "DEGRADED", "CONDITIONS", "LEFT"]);
    let mut nodes = table(&["NODE", "POOL", "STATE", "CURRENT", "DESIRED", "SINCE", "WHY"]);
    let mut notes = String::new();
    for p in &snapshot.pools {
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
        if let Some(policy) = &p.policy
            && policy.says_something()
        {
            notes += &format!("pool {}: {policy}\n", p.name);
        }
        if let Some(pinned) = &p.pinned {
            notes += &format!("pool {}: {pinned}\n", p.name);
        }
        if let Some(images) = &p.images {
            notes += &format!("pool {}: {images}\n", p.name);
        }
        if let Some(message) = p.conditions.get(RENDER_DEGRADED) {
            notes += &format!("pool {}: {message}\n", p.name);
        }
    }
    for line in &snapshot.unmanaged {
        notes += &format!("{line}\n");
    }
    match snapshot.hidden_nodes {
        0 => {}
        1 => notes += "1 node is not shown; --all shows it\n",
        n => notes += &format!("{n} nodes are not shown; --all shows them\n"),
    }
    let nodes = if nodes.is_empty() { String::new() } else { format!("{nodes}\n") };
    format!("{pools}\n\n{nodes}{notes}")
}

/// Who set what in a pool's config, and who lost.
pub fn explanation(answer: &Explanation) -> String {
    let mut table = table(&["KIND", "NAME", "PART", "SET BY", "LOST, IN MERGE ORDER"]);
    for o in &answer.origins.0 {
        table.add_row([
            insight::kind_of(o),
            o.name.clone(),
            o.field.clone(),
            o.set_by.clone(),
            o.lost.join(", "),
        ]);
    }
    let mut out = format!("pool {}: {}\n", answer.pool, answer.config);
    if let Some(why) = &answer.worked_out_because {
        out += &format!("computed from the present MachineConfigs, because {why}\n");
    }
    let lines: Vec<String> = table.lines().map(|l| l.trim_end().to_owned()).collect();
    format!("{out}\n{}\n", lines.join("\n"))
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

/// `41 s`, `5 min`, `3 h`, `12 d`.
fn age(since: Timestamp, now: Timestamp) -> String {
    let seconds = now.duration_since(since).as_secs().max(0);
    match seconds {
        0..=119 => format!("{seconds} s"),
        120..=7_199 => format!("{} min", seconds / 60),
        7_200..=172_799 => format!("{} h", seconds / 3_600),
        _ => format!("{} d", seconds / 86_400),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use insight::{Filter, Finding, NodeRow, Phase, PoolRow, Problem, Source};
    use render::provenance::Kind;
    use render::{Origin, Provenance};
    use serde_json::json;
    use std::collections::BTreeMap;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    /// A pool of 1,000 nodes of which two are not updated.
    fn thousand() -> Snapshot {
        let node = |i: usize, phase, since, why: &str| NodeRow {
            name: format!("worker-{i}"),
            state: "Done".to_owned(),
            current: "rendered-worker-1".to_owned(),
            desired: "rendered-worker-1".to_owned(),
            phase,
            since,
            why: why.to_owned(),
            stuck: false,
        };
        let mut nodes: Vec<_> = (0..998).map(|i| node(i, Phase::Done, None, "done")).collect();
        nodes.push(node(998, Phase::Waits, Some(at(1_000_000 - 42)), "the kubelet is not ready"));
        nodes.push(node(999, Phase::Waits, Some(at(1_000_000 - 600)), "the slot is taken"));
        let pool = PoolRow {
            name: "worker".to_owned(),
            config: "rendered-worker-1".to_owned(),
            machines: 1000,
            updated: 998,
            max_unavailable: 1,
            conditions: BTreeMap::from([("Degraded".to_owned(), "x".to_owned())]),
            paused: true,
            held: Some("the pool is paused".to_owned()),
            policy: Some(insight::PolicyRow {
                name: "prod".to_owned(),
                wave: None,
                gates: vec![],
                hours: Some(rollout::policy::Hours::Open { until: None }),
            }),
            stuck: Some("the pool is paused".to_owned()),
            percent: 99,
            nodes,
            ..PoolRow::default()
        };
        let finding = Finding {
            problem: Problem::Held,
            pool: Some("worker".to_owned()),
            node: None,
            message: "the pool is paused".to_owned(),
        };
        Snapshot { pools: vec![pool], findings: vec![finding], ..Snapshot::default() }
    }

    #[test]
    fn of_a_thousand_nodes_the_table_lists_those_that_are_not_done_and_counts_the_others() {
        let filtered = |phase| thousand().filtered(&Filter { phases: vec![phase], nodes: vec![] });
        let text = status_at(&filtered(Phase::Waits), at(1_000_000));
        assert!(text.lines().count() < 12, "{text}");
        let row = |node: &str| text.lines().find(|l| l.trim_start().starts_with(node)).unwrap().to_owned();
        assert!(row("worker-998").contains("42 s") && row("worker-998").contains("kubelet"), "{text}");
        assert!(row("worker-999").contains("10 min"), "{text}");
        assert!(text.contains("998 nodes are not shown"), "{text}");
        assert!(text.contains("pool worker: RolloutPolicy prod: updates may begin\n"), "{text}");
        assert!(!status_at(&filtered(Phase::Failing), at(0)).contains("NODE "));
    }

    #[test]
    fn ages_are_short() {
        for (seconds, want) in
            [(-5, "0 s"), (119, "119 s"), (120, "2 min"), (7_200, "2 h"), (90_000, "25 h"), (172_800, "2 d")]
        {
            assert_eq!(age(at(1_000_000), at(1_000_000 + seconds)), want);
        }
    }

    #[test]
    fn the_table_shows_who_set_what_and_who_lost() {
        let origin = |kind, name: &str, field: &str, set_by: &str, lost: &[&str]| Origin {
            kind,
            name: name.to_owned(),
            field: field.to_owned(),
            set_by: set_by.to_owned(),
            lost: lost.iter().map(|l| (*l).to_owned()).collect(),
        };
        let all = || {
            Provenance(vec![
                origin(Kind::File, "/etc/motd", "contents", "50-motd", &["00-worker", "40-base"]),
                origin(Kind::File, "/etc/motd", "mode", "00-worker", &[]),
                origin(Kind::KernelArgument, "nosmt=force", "", "50-karg", &[]),
            ])
        };
        let stored = Explanation::new("worker", "rendered-worker-1", all(), &Source::Stored);
        insta::assert_snapshot!(explanation(&stored));
        let why = Source::Computed("no provenance is stored on it".to_owned());
        let worked_out = Explanation::new("worker", "rendered-worker-1", all(), &why);
        insta::assert_snapshot!(explanation(&worked_out.only(Some("nosmt"), false).unwrap()));
    }

    /// Follows a path of jq, as far as examples use it: fields, `[]`, `| {a, b}`, `| select(.a == "b")`.
    fn follows(value: &serde_json::Value, filter: &str) -> Result<(), String> {
        let mut at = vec![value];
        for part in filter.split('|').map(str::trim) {
            if let Some(fields) = part.strip_prefix('{').and_then(|p| p.strip_suffix('}')) {
                let missing =
                    fields.split(',').map(str::trim).find(|f| at.iter().all(|v| v.get(f).is_none()));
                return missing.map_or(Ok(()), |f| Err(format!("no field {f:?}")));
            }
            for step in part.trim_start_matches('.').split('.') {
                let (field, each) = step.strip_suffix("[]").map_or((step, false), |f| (f, true));
                at = at.into_iter().filter_map(|v| v.get(field)).collect();
                if each {
                    at = at.into_iter().filter_map(|v| v.as_array()).flatten().collect();
                }
                if at.is_empty() {
                    return Err(format!("no field {field:?}"));
                }
            }
        }
        Ok(())
    }

    #[test]
    fn the_fields_that_examples_of_jq_name_are_there() {
        let value = json!(thousand());
        follows(&value, ".pools[].waiting").unwrap_err();
        let help = <crate::args::Mco as clap::CommandFactory>::command();
        let status = help.find_subcommand("status").unwrap().get_after_help().unwrap().to_string();
        let guide = include_str!("../../../../docs/rollouts.md");
        let lines = status.lines().chain(guide.lines()).filter(|l| l.contains("mco status"));
        let filters: Vec<&str> = lines.filter_map(|l| l.split("jq '").nth(1)?.split('\'').next()).collect();
        assert!(filters.len() >= 2, "{filters:?}");
        for filter in filters {
            follows(&value, filter).unwrap_or_else(|e| panic!("jq '{filter}': {e} in {value}"));
        }
    }
}
