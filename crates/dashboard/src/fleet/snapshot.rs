//! What the page shows of the fleet: the snapshot that `mco status` prints, with the zone of each node, and the difference
//! between two states of it. Pure.
//!
//! All texts in it are masked: reasons and conditions are written by many, and a person who looks at a page shows it to others.
//!
//! What it is not: how differences travel (see `feed`).

use insight::{Finding, NodeRow, PolicyRow, PoolRow, Snapshot, UnreadKind};
use serde::Serialize;
use std::collections::{BTreeMap, HashMap};

/// A node, as the page knows it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Cell {
    /// Its pool.
    pub(crate) pool: String,
    /// Its zone; empty: its Node has no label for it.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(crate) zone: String,
    /// As `mco status` shows it.
    #[serde(flatten)]
    pub(crate) row: NodeRow,
}

/// Everything that is shown at one moment.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Fleet {
    /// The pools by name, without their nodes.
    pub(crate) pools: BTreeMap<String, PoolRow>,
    /// The nodes of all pools, by name.
    pub(crate) nodes: BTreeMap<String, Cell>,
    /// Nodes that no pool owns, and why.
    pub(crate) unmanaged: Vec<String>,
    /// What is not as it should be.
    pub(crate) findings: Vec<Finding>,
    /// Why all this is not known, or may be out of date.
    pub(crate) trouble: Option<String>,
    /// What of it is not known because it may not be read.
    pub(crate) unread: Vec<UnreadKind>,
}

/// Masks texts, and remembers what it made of them: thousands of nodes wait for the same reason.
#[derive(Debug, Default)]
pub(crate) struct Masker(HashMap<String, String>);

impl Masker {
    /// More texts than this are not remembered.
    const MOST: usize = 20_000;

    fn mask(&mut self, text: &mut String) {
        if text.is_empty() {
            return;
        }
        if self.0.len() >= Self::MOST {
            self.0.clear();
        }
        // Nearly every text is known, and stays as it is: nothing is copied then.
        if let Some(masked) = self.0.get(&*text) {
            if masked != text {
                text.clone_from(masked);
            }
            return;
        }
        let masked = insight::redacted_lines(text);
        self.0.insert(std::mem::replace(text, masked.clone()), masked);
    }
}

impl Fleet {
    /// A snapshot as the page shows it. `zone` names the zone of a node.
    pub(crate) fn of<'a>(
        snapshot: Snapshot,
        zone: impl Fn(&str) -> Option<&'a str>,
        masker: &mut Masker,
    ) -> Self {
        let Snapshot { pools, mut unmanaged, mut findings, hidden_nodes: _, unread, trouble } = snapshot;
        let mut all = Self { trouble, unread, ..Self::default() };
        all.trouble.iter_mut().for_each(|t| masker.mask(t));
        all.unread.iter_mut().for_each(|u| masker.mask(&mut u.words));
        unmanaged.iter_mut().for_each(|t| masker.mask(t));
        findings.iter_mut().for_each(|f| masker.mask(&mut f.message));
        (all.unmanaged, all.findings) = (unmanaged, findings);
        for mut pool in pools {
            for mut row in std::mem::take(&mut pool.nodes) {
                [&mut row.why, &mut row.state, &mut row.current, &mut row.desired]
                    .into_iter()
                    .for_each(|text| masker.mask(text));
                let mut zone = zone(&row.name).unwrap_or_default().to_owned();
                masker.mask(&mut zone);
                all.nodes.insert(row.name.clone(), Cell { pool: pool.name.clone(), zone, row });
            }
            let texts =
                [&mut pool.held, &mut pool.pinned, &mut pool.images, &mut pool.stuck].into_iter().flatten();
            let policy = pool.policy.iter_mut().flat_map(PolicyRow::texts_mut);
            texts.chain(pool.conditions.values_mut()).chain(policy).for_each(|t| masker.mask(t));
            all.pools.insert(pool.name.clone(), pool);
        }
        all
    }
}

/// What changes one state of the fleet into the next. It is applied in the order of its fields.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct FleetDelta<'a> {
    /// Texts in `why` that took the place of others, at every node that has them: when a slot is given on, the reason of
    /// thousands that wait changes in the same way, and that is one line here.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) whys: Vec<(&'a str, &'a str)>,
    /// Nodes that are new, or differ in anything else.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) nodes: Vec<&'a Cell>,
    /// Nodes that are gone.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) gone: Vec<&'a str>,
    /// Pools that are new, or differ.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) pools: Vec<&'a PoolRow>,
    /// Pools that are gone.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) pools_gone: Vec<&'a str>,
    /// All of them, if any differs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) unmanaged: Option<&'a [String]>,
    /// All of them, if any differs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) findings: Option<&'a [Finding]>,
    /// The new trouble, if it differs; empty: there is none any more.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) trouble: Option<&'a str>,
    /// All of it, if any differs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) unread: Option<&'a [UnreadKind]>,
}

impl<'a> FleetDelta<'a> {
    /// `None`: the two show the same.
    pub(crate) fn between(old: &'a Fleet, new: &'a Fleet) -> Option<Self> {
        let whys = whys(old, new);
        let map: HashMap<&str, &str> = whys.iter().copied().collect();
        // What the page has for this node once `whys` is applied.
        let expected = |cell: &'a Cell| map.get(cell.row.why.as_str()).copied().unwrap_or(&cell.row.why);
        let is_known = |cell: &&'a Cell| {
            old.nodes.get(&cell.row.name).is_some_and(|was| expected(was) == cell.row.why && like(was, cell))
        };
        let delta = Self {
            nodes: new.nodes.values().filter(|cell| !is_known(cell)).collect(),
            gone: old.nodes.keys().filter(|n| !new.nodes.contains_key(*n)).map(String::as_str).collect(),
            pools: new.pools.values().filter(|p| old.pools.get(&p.name) != Some(*p)).collect(),
            pools_gone: old
                .pools
                .keys()
                .filter(|n| !new.pools.contains_key(*n))
                .map(String::as_str)
                .collect(),
            unmanaged: (old.unmanaged != new.unmanaged).then_some(&new.unmanaged[..]),
            findings: (old.findings != new.findings).then_some(&new.findings[..]),
            unread: (old.unread != new.unread).then_some(&new.unread[..]),
            trouble: (old.trouble != new.trouble).then(|| new.trouble.as_deref().unwrap_or_default()),
            whys,
        };
        (delta != Self::default()).then_some(delta)
    }
}

/// The same in everything but the reason.
fn like(a: &Cell, b: &Cell) -> bool {
    let Cell { pool, zone, row: NodeRow { name, state, current, desired, phase, since, why: _, stuck } } = a;
    let (row, same) = (&b.row, *pool == b.pool && *zone == b.zone);
    same && *name == row.name
        && *state == row.state
        && *current == row.current
        && *desired == row.desired
        && *phase == row.phase
        && *since == row.since
        && *stuck == row.stuck
}

/// For each text that nodes had: the text that most of them have now, if that is another one.
fn whys<'a>(old: &'a Fleet, new: &'a Fleet) -> Vec<(&'a str, &'a str)> {
    let mut became: BTreeMap<&str, HashMap<&str, usize>> = BTreeMap::new();
    for (name, was) in &old.nodes {
        if let Some(is) = new.nodes.get(name) {
            *became.entry(&was.row.why).or_default().entry(&is.row.why).or_default() += 1;
        }
    }
    let most = |(was, now): (&'a str, HashMap<&'a str, usize>)| {
        let (is, count) = now.into_iter().max_by_key(|(text, count)| (*count, *text))?;
        // For a single node the whole row is as short, and says it without a detour.
        (was != is && count > 1).then_some((was, is))
    };
    became.into_iter().filter_map(most).collect()
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use insight::Phase;

    pub(crate) fn cell(name: &str, phase: Phase, why: &str) -> Cell {
        let row = NodeRow {
            name: name.to_owned(),
            state: "Done".to_owned(),
            current: "rendered-worker-1".to_owned(),
            desired: "rendered-worker-1".to_owned(),
            phase,
            since: None,
            why: why.to_owned(),
            stuck: false,
        };
        Cell { pool: "worker".to_owned(), zone: String::new(), row }
    }

    pub(crate) fn pool(name: &str, config: &str) -> PoolRow {
        PoolRow {
            name: name.to_owned(),
            config: config.to_owned(),
            machines: 1,
            max_unavailable: 1,
            ..PoolRow::default()
        }
    }

    pub(crate) fn fleet(nodes: &[(&str, Phase, &str)]) -> Fleet {
        let nodes = nodes.iter().map(|(n, p, w)| ((*n).to_owned(), cell(n, *p, w))).collect();
        Fleet { nodes, ..Fleet::default() }
    }

    /// As the page applies it.
    fn applied(old: &Fleet, delta: &FleetDelta<'_>) -> Fleet {
        let mut all = old.clone();
        let whys: HashMap<&str, &str> = delta.whys.iter().copied().collect();
        for cell in all.nodes.values_mut() {
            if let Some(new) = whys.get(cell.row.why.as_str()) {
                (*new).clone_into(&mut cell.row.why);
            }
        }
        for cell in &delta.nodes {
            all.nodes.insert(cell.row.name.clone(), (*cell).clone());
        }
        for name in &delta.gone {
            all.nodes.remove(*name);
        }
        if let Some(trouble) = delta.trouble {
            all.trouble = (!trouble.is_empty()).then(|| trouble.to_owned());
        }
        all
    }

    #[test]
    fn a_difference_is_small_and_brings_one_state_to_the_next() {
        let (done, moving, waits) = (Phase::Done, Phase::Moving, Phase::Waits);
        let slot = |by: &str| format!("the slot is taken by {by}");
        let many = |by: &str, out: &str| {
            let mut all = fleet(&[]);
            for n in 0..50 {
                let name = format!("n{n}");
                let (phase, why) =
                    if name == out { (moving, "it works".to_owned()) } else { (waits, slot(by)) };
                all.nodes.insert(name.clone(), cell(&name, phase, &why));
            }
            all
        };
        let troubled = Fleet { trouble: Some("away".to_owned()), ..fleet(&[("a", done, "")]) };
        // Old, new, rows of nodes in the difference, replaced texts.
        let rows = [
            (fleet(&[("a", done, "")]), fleet(&[("a", done, "")]), 0, 0),
            (fleet(&[("a", done, ""), ("b", done, "")]), fleet(&[("a", moving, "x"), ("b", done, "")]), 1, 0),
            (fleet(&[("a", done, "")]), fleet(&[("a", done, ""), ("b", done, "")]), 1, 0),
            (fleet(&[("a", done, ""), ("b", done, "")]), fleet(&[("a", done, "")]), 0, 0),
            // The slot goes from one to the next: those two, and one text for the 48 others.
            (many("n1", "n1"), many("n2", "n2"), 2, 1),
            // Most go one way, one goes another.
            (
                fleet(&[("a", waits, "x"), ("b", waits, "x"), ("c", waits, "x")]),
                fleet(&[("a", waits, "y"), ("b", waits, "y"), ("c", waits, "z")]),
                1,
                1,
            ),
            // Most stay: only the other is told.
            (
                fleet(&[("a", waits, "x"), ("b", waits, "x"), ("c", waits, "x")]),
                fleet(&[("a", waits, "x"), ("b", waits, "x"), ("c", waits, "z")]),
                1,
                0,
            ),
            // Two texts change places.
            (
                fleet(&[("a", waits, "x"), ("b", waits, "x"), ("c", waits, "y"), ("d", waits, "y")]),
                fleet(&[("a", waits, "y"), ("b", waits, "y"), ("c", waits, "x"), ("d", waits, "x")]),
                0,
                2,
            ),
            (fleet(&[("a", done, "")]), troubled.clone(), 0, 0),
            (troubled, fleet(&[("a", done, "")]), 0, 0),
        ];
        for (n, (old, new, nodes, whys)) in rows.into_iter().enumerate() {
            let Some(delta) = FleetDelta::between(&old, &new) else {
                assert_eq!(old, new, "row {n}");
                continue;
            };
            assert_eq!((delta.nodes.len(), delta.whys.len()), (nodes, whys), "row {n}: {delta:?}");
            assert_eq!(applied(&old, &delta), new, "row {n}");
        }
    }

    #[test]
    fn what_looks_like_a_secret_is_in_no_text_and_markup_stays_text() {
        let pool = PoolRow {
            degraded: 1,
            conditions: BTreeMap::from([("Degraded".to_owned(), "password=hunter2secret".to_owned())]),
            held: Some("token: hunter2secret".to_owned()),
            needs_approval: true,
            policy: Some(PolicyRow {
                name: "prod".to_owned(),
                wave: None,
                gates: vec![api::v1alpha1::GateResult {
                    gate: "shop".to_owned(),
                    outcome: api::v1alpha1::GateOutcome::Failed,
                    message: "password=hunter2secret".to_owned(),
                }],
                hours: Some(rollout::policy::Hours::Frozen {
                    until: None,
                    reason: "password=hunter2secret".to_owned(),
                    passes: String::new(),
                }),
            }),
            pinned: Some("password=hunter2secret".to_owned()),
            images: Some("password=hunter2secret".to_owned()),
            stuck: Some("password=hunter2secret".to_owned()),
            nodes: vec![
                cell("a", Phase::Failing, "https://admin:hunter2secret@registry/x cannot be read").row,
                cell("<img src=x onerror=alert(1)>", Phase::Done, "<script>alert(1)</script>").row,
                cell("b", Phase::Waits, "goes to rendered-worker-00000000000000000000000000000001 next").row,
            ],
            ..pool("worker", "rendered-worker-00000000000000000000000000000001")
        };
        let problem = insight::Problem::Degraded;
        let finding =
            Finding { problem, pool: None, node: None, message: "password=hunter2secret".to_owned() };
        let snapshot = Snapshot {
            pools: vec![pool],
            unmanaged: vec!["secret=hunter2secret".to_owned()],
            findings: vec![finding],
            unread: vec![UnreadKind { kind: "MachineConfig", words: "token=hunter2secret".to_owned() }],
            trouble: Some("Bearer hunter2secrethunter2secret".to_owned()),
            ..Snapshot::default()
        };
        let shown = Fleet::of(snapshot, |_| Some("password=hunter2secret"), &mut Masker::default());
        let empty = Fleet::default();
        let text = serde_json::to_string(&FleetDelta::between(&empty, &shown)).unwrap();
        assert!(!text.contains("hunter2"), "{text}");
        assert!(text.contains("rendered-worker-00000000000000000000000000000001 next"), "{text}");
        assert!(
            text.contains("<script>alert(1)</script>") && text.contains("onerror"),
            "the page shows it as text"
        );
        assert!(text.contains("\"zone\":\"<hidden>\""), "{text}");
    }
}
