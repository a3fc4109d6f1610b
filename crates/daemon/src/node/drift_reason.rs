//! The text that reports drift as the reason on the Node. It stays the same as long as the same paths differ in the
//! same way.
//!
//! Not here: the comparison (`drift_check`), nor how differences in contents are shown (`host` and its masking).

use crate::node::drift_repair::{MOST, WINDOW};
use desired::DesiredHost;
use host::{Drift, Host};

/// How many paths a reason names. The others are only counted.
const NAMED: usize = 10;
/// How many characters of the reason differences in contents may use. The annotation holds 2,000 in all.
const DIFFERENCES: usize = 1200;

/// The last reason that was reported for drift.
#[derive(Debug, Default)]
pub(crate) struct LastReason {
    /// The config, what differs from it, and which repairs were given up; without contents.
    about: Vec<String>,
    text: String,
}

impl LastReason {
    /// The reason for this drift. As long as the same paths differ in the same way, the first text is kept, whatever
    /// the files contain by now. A file that is written in a loop therefore has one reason.
    ///
    /// # Errors
    /// That of `words`, which is called only for another drift than the last one.
    pub(crate) fn once<E>(
        &mut self,
        about: Vec<String>,
        words: impl FnOnce() -> Result<String, E>,
    ) -> Result<String, E> {
        if self.about != about {
            *self = Self { about, text: words()? };
        }
        Ok(self.text.clone())
    }
}

/// The reason: what drifted, the remedy, and how contents differ.
pub(crate) fn drift_reason(host: &Host, config: &DesiredHost, name: &str, drifts: &[Drift]) -> String {
    let told: Vec<String> = drifts.iter().map(ToString::to_string).collect();
    let mut text = format!(
        "unexpected on-disk state validating against {name}: {}; restore what {name} says, or create {} to \
         have it written again",
        listed(&told),
        host::paths::FORCE_FILE
    );
    let mut room = DIFFERENCES;
    for drift in drifts.iter().take(NAMED) {
        let Some(difference) = host.explain(config, drift) else { continue };
        let more = format!("\n{}: {difference}", drift.path());
        let Some(left) = room.checked_sub(more.chars().count()) else { break };
        room = left;
        text.push_str(&more);
    }
    text
}

pub(crate) fn listed(items: &[String]) -> String {
    api::formats::text::statements(items, NAMED)
}

pub(crate) fn given_up(paths: &[String]) -> String {
    format!(
        "{} was repaired {MOST} times within {} minutes and changed again each time: it is not repaired any \
         more. Find what changes it (auditctl -w PATH -p wa), then restore it or restart the agent",
        listed(paths),
        WINDOW.as_mins()
    )
}
