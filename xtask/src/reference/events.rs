//! The page of events, from the tables in `crates/api/src/events.rs`.

use super::{cell, columns, head, row};
use api::events::{AgentEvent, ControllerEvent, Entry, OperatorEvent};

pub(super) fn page() -> String {
    let mut out = head("Events", "crates/api/src/events.rs");
    out += "\nEvents about pools, nodes and MachineConfigs are in the namespace `openshift-machine-config-operator`, \
            those about user data in `openshift-machine-api`.\n\n\
            ```console\n$ kubectl get events -n openshift-machine-config-operator --sort-by .lastTimestamp\n\
            $ kubectl describe node worker-1\n```\n";
    let of = |title: &str, all: &mut dyn Iterator<Item = Entry>| {
        let mut out = format!("\n## {title}\n\n");
        out += &columns(&["reason", "type", "about", "meaning"]);
        for e in all {
            out += &row(&[&format!("`{}`", e.reason), e.severity.text(), e.about, &cell(e.meaning)]);
        }
        out
    };
    out += &of("Controller", &mut ControllerEvent::ALL.iter().map(|e| e.entry()));
    out += &of("Agent", &mut AgentEvent::ALL.iter().map(|e| e.entry()));
    out += &of("Operator", &mut OperatorEvent::ALL.iter().map(|e| e.entry()));
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_event_of_the_tables_is_written_somewhere() {
        let root = crate::root();
        let sources: Vec<String> = crate::docs::sources(&root, &["rs"])
            .into_iter()
            .filter(|p| !p.starts_with(root.join("crates/api")))
            .map(|p| std::fs::read_to_string(p).unwrap())
            .collect();
        let reasons = ControllerEvent::ALL.iter().map(|e| e.text());
        let reasons = reasons.chain(AgentEvent::ALL.iter().map(|e| e.text()));
        let reasons = reasons.chain(OperatorEvent::ALL.iter().map(|e| e.text()));
        let stale: Vec<_> =
            reasons.filter(|r| !sources.iter().any(|s| s.contains(&format!("::{r}")))).collect();
        assert!(stale.is_empty(), "nothing writes {stale:?}: take them out of crates/api/src/events.rs");
    }
}
