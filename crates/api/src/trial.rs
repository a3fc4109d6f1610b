//! How changes that can cut a node off are tried. Parses the text of the annotation
//! [`TRIAL`](crate::names::own::TRIAL).
//!
//! `off`, or settings with spaces between them: `within=10m` (how long the node may take to prove that it is still
//! there) and `units=a.service,b.service` (units that have to run afterwards if they ran before).
//!
//! What it is not: the trial itself (see `host`).

use jiff::SignedDuration;
use std::fmt;

/// The time for the confirmation if none is set: a slow boot and a kubelet that pulls its pods' images fit in.
pub const DEFAULT_WITHIN: SignedDuration = SignedDuration::from_mins(10);
/// The shortest time that may be set: a reboot of a small machine takes this long.
const SHORTEST: SignedDuration = SignedDuration::from_secs(30);
/// The longest.
const LONGEST: SignedDuration = SignedDuration::from_hours(24);
/// The most units that may be named.
const MAX_UNITS: usize = 32;

/// The settings.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TrialRules {
    /// Changes that can cut the node off are tried.
    pub on: bool,
    /// The time for the confirmation.
    pub within: SignedDuration,
    /// Units that have to run afterwards if they ran before.
    pub units: Vec<String>,
}

impl Default for TrialRules {
    fn default() -> Self {
        Self { on: true, within: DEFAULT_WITHIN, units: Vec::new() }
    }
}

/// A text that is not such settings: what is wrong with it, and what to write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BadTrialRules(pub String);

impl fmt::Display for BadTrialRules {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for BadTrialRules {}

impl TrialRules {
    /// Parses the text. An empty one means the defaults.
    ///
    /// # Errors
    /// It is not understood.
    pub fn parse(text: &str) -> Result<Self, BadTrialRules> {
        let mut rules = Self::default();
        if text.trim() == "off" {
            return Ok(Self { on: false, ..rules });
        }
        for word in text.split_whitespace() {
            match word.split_once('=') {
                Some(("within", time)) => rules.within = parse_time_limit(time).map_err(BadTrialRules)?,
                Some(("units", names)) => {
                    rules.units =
                        names.split(',').filter(|name| !name.is_empty()).map(str::to_owned).collect();
                }
                _ => {
                    let why = "write off, or within=TIME and units=UNIT,UNIT";
                    return Err(BadTrialRules(format!("{word:?} is not understood; {why}")));
                }
            }
        }
        if let Some(unit) = rules.units.iter().find(|unit| !unit.contains('.') || unit.contains('/')) {
            let why = "is not the name of a unit; write it with its suffix, for example chronyd.service";
            return Err(BadTrialRules(format!("{unit:?} {why}")));
        }
        if rules.units.len() > MAX_UNITS {
            return Err(BadTrialRules(format!("more than {MAX_UNITS} units are named")));
        }
        Ok(rules)
    }
}

/// Parses the time for a confirmation.
///
/// # Errors
/// It is not a time, or is shorter or longer than allowed.
pub fn parse_time_limit(time: &str) -> Result<SignedDuration, String> {
    let bad = || format!("{time:?} is not a time between 30s and 24h, for example 10m");
    let parsed: SignedDuration = time.parse().map_err(|_| bad())?;
    if parsed < SHORTEST || parsed > LONGEST { Err(bad()) } else { Ok(parsed) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_are_read_and_what_is_not_understood_is_named() {
        let rules = |text: &str| TrialRules::parse(text).unwrap();
        assert_eq!(rules(" "), TrialRules::default());
        assert!(!rules("off").on && rules("within=2m").on);
        let both = rules("within=1h30m units=a.service,b.socket");
        assert_eq!((both.within.as_mins(), both.units.len()), (90, 2));
        for (text, word) in [
            ("within=1s", "30s"),
            ("within=soon", "soon"),
            ("units=kubelet", "kubelet"),
            ("units=/etc/a.service", "suffix"),
            ("on", "within=TIME"),
        ] {
            let why = TrialRules::parse(text).unwrap_err().to_string();
            assert!(why.contains(word), "{text}: {why}");
        }
    }
}
