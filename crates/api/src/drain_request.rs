//! Requests between agent and controller in the annotations `desiredDrain` and `lastAppliedDrain`: `drain-CONFIG` and
//! `uncordon-CONFIG`.
//!
//! What it is not: when a request is made or served (see `daemon` and `rollout`).
//!
//! Source: <https://github.com/openshift/machine-config-operator/blob/HEAD/pkg/daemon/constants/constants.go>.

/// How a request to drain begins.
const DRAIN: &str = "drain-";
/// How a request to uncordon begins.
const UNCORDON: &str = "uncordon-";

/// What a request asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DrainVerb {
    /// `drain`: cordon the node and evict its pods.
    Drain,
    /// `uncordon`: let pods come back.
    Uncordon,
    /// Anything else, the empty text among it.
    Unknown,
}

impl DrainVerb {
    /// The verb of a request, served or not.
    pub fn of(request: &str) -> Self {
        match request.split('-').next() {
            Some("drain") => Self::Drain,
            Some("uncordon") => Self::Uncordon,
            _ => Self::Unknown,
        }
    }
}

/// The request to drain a node on its way to a config.
pub fn drain(config: &str) -> String {
    format!("{DRAIN}{config}")
}

/// The request to uncordon a node in a config.
pub fn uncordon(config: &str) -> String {
    format!("{UNCORDON}{config}")
}

/// The config that a request to uncordon names. `None`: it asks for something else.
pub fn uncordoned(request: &str) -> Option<&str> {
    request.strip_prefix(UNCORDON)
}

/// The config that a request of either kind names. `None`: it is no request.
pub fn config_of(request: &str) -> Option<&str> {
    request.strip_prefix(DRAIN).or_else(|| request.strip_prefix(UNCORDON))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_begins_with_its_verb() {
        for (request, verb, config) in [
            ("drain-rendered-worker-1", DrainVerb::Drain, None),
            ("uncordon-rendered-worker-1", DrainVerb::Uncordon, Some("rendered-worker-1")),
            ("drained-x", DrainVerb::Unknown, None),
            ("", DrainVerb::Unknown, None),
        ] {
            assert_eq!((DrainVerb::of(request), uncordoned(request)), (verb, config), "{request}");
            assert_eq!(config_of(request).is_some(), verb != DrainVerb::Unknown, "{request}");
        }
        for request in [drain("c-1"), uncordon("c-1")] {
            assert_eq!(config_of(&request), Some("c-1"));
        }
        assert_eq!((drain("c"), uncordon("c")), ("drain-c".to_owned(), "uncordon-c".to_owned()));
    }
}
