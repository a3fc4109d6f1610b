//! Windows by cron expression, and freezes by date. Pure: times are arguments, and a time zone is a value that the
//! caller has looked up.
//!
//! Format: five fields as in POSIX `crontab` and Vixie cron's `crontab(5)`: minute, hour, day of month, month, day
//! of week, read in the window's time zone. A start inside an hour that a clock change skips is moved by that hour. A
//! start inside an hour that occurs twice is the first of the two.

use cronexpr::{Crontab, FallbackTimezoneOption, MakeTimestamp, ParseOptions, parse_crontab_with};
use jiff::tz::{Offset, TimeZone};
use jiff::{SignedDuration, Timestamp};
use serde::Serialize;
use std::fmt;

/// Fields of a cron expression.
const FIELDS: usize = 5;
/// Clock changes are an hour or two. A start in local time may be that far from where it is searched.
const CLOCK_SHIFT: SignedDuration = SignedDuration::from_hours(2);
/// Nobody waits for a start further away than this: 29 February comes at least every eight years.
const NEVER: SignedDuration = SignedDuration::from_hours(9 * 366 * 24);

/// A recurring time in which nodes may begin.
#[derive(Clone, Debug)]
pub struct Window {
    text: String,
    starts: Crontab,
    zone: TimeZone,
    lasts: SignedDuration,
}

/// A span of time in which nothing begins.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Freeze {
    /// From when.
    pub from: Timestamp,
    /// Until when, exclusive; `None` means until it is removed.
    pub until: Option<Timestamp>,
    /// The reason, as a sentence for people.
    pub reason: String,
    /// Changes of certificates alone are rolled out nevertheless.
    pub certificates: bool,
}

/// A window that cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WindowError {
    /// Not five fields. The time zone is given separately, not in the expression.
    #[error("{0:?}: a cron expression has five fields: minute, hour, day of month, month, day of week")]
    Fields(String),
    /// A field that cannot be parsed.
    #[error("{expression:?}: {why}")]
    Expression {
        /// As it was given.
        expression: String,
        /// What is wrong with it.
        why: String,
    },
    /// It has no duration.
    #[error("a window cannot be longer than {0}; shorten its duration")]
    Duration(String),
}

/// A point in time in relation to a window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WindowState {
    /// The window is open until then.
    Open(Timestamp),
    /// The window opens then; `None` if never.
    Shut(Option<Timestamp>),
}

/// What a policy's windows and freezes say of a time.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase", rename_all_fields = "camelCase", tag = "state")]
pub enum Hours {
    /// New updates may begin.
    Open {
        /// When that ends; `None`: it does not, or not within a year.
        #[serde(skip_serializing_if = "Option::is_none")]
        until: Option<Timestamp>,
    },
    /// No window is open.
    Shut {
        /// When one opens; `None`: never.
        #[serde(skip_serializing_if = "Option::is_none")]
        opens: Option<Timestamp>,
        /// Which changes may begin nevertheless, as text; empty: none.
        #[serde(skip_serializing_if = "String::is_empty")]
        passes: String,
    },
    /// A freeze is in force.
    Frozen {
        /// Until when; `None`: until it is removed.
        #[serde(skip_serializing_if = "Option::is_none")]
        until: Option<Timestamp>,
        /// The reason, as it was written.
        reason: String,
        /// As for [`Hours::Shut`].
        #[serde(skip_serializing_if = "String::is_empty")]
        passes: String,
    },
}

impl fmt::Display for Hours {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let but = |f: &mut fmt::Formatter<'_>, passes: &str| match passes {
            "" => Ok(()),
            some => write!(f, " ({some})"),
        };
        match self {
            Self::Open { until: None } => write!(f, "updates may begin"),
            Self::Open { until: Some(until) } => write!(f, "updates may begin until {until}"),
            Self::Shut { opens, passes } => {
                match opens {
                    None => write!(f, "its windows never open")?,
                    Some(opens) => write!(f, "its next window opens at {opens}")?,
                }
                but(f, passes)
            }
            Self::Frozen { until, reason, passes } => {
                write!(f, "frozen")?;
                if let Some(until) = until {
                    write!(f, " until {until}")?;
                }
                write!(f, ": {reason}")?;
                but(f, passes)
            }
        }
    }
}

/// How far it is looked ahead: nobody plans further.
const YEAR: SignedDuration = SignedDuration::from_hours(366 * 24);
/// How many openings in a row are followed at most.
const IN_A_ROW: usize = 400;

/// When windows that are open now are not any more: one that opens before another one closes goes on. `None`: not within a year.
/// Where there are very many openings, it may be a later time than the one returned.
pub(crate) fn open_until(windows: &[Window], now: Timestamp) -> Option<Timestamp> {
    let closes = |at: Timestamp| windows.iter().filter_map(|w| w.closes(at)).max();
    let mut end = closes(now)?;
    for _ in 0..IN_A_ROW {
        if end.duration_since(now) > YEAR {
            return None;
        }
        match closes(end).filter(|next| *next > end) {
            Some(next) => end = next,
            None => break,
        }
    }
    Some(end)
}

impl Window {
    /// Makes a window from a cron expression for its starts, the zone that the expression is read in, and its duration.
    ///
    /// # Errors
    /// An expression that cannot be parsed, or an empty duration.
    pub fn new(cron: &str, zone: TimeZone, lasts: SignedDuration) -> Result<Self, WindowError> {
        if cron.split_whitespace().count() != FIELDS {
            return Err(WindowError::Fields(cron.to_owned()));
        }
        if lasts <= SignedDuration::ZERO {
            return Err(WindowError::Duration(format!("{lasts:#}")));
        }
        let mut options = ParseOptions::default();
        // Parsed as if clocks showed UTC; the zone is applied by us.
        options.fallback_timezone_option = FallbackTimezoneOption::UTC;
        let starts = parse_crontab_with(cron, options).map_err(|e| WindowError::Expression {
            expression: cron.to_owned(),
            why: e.to_string().lines().last().unwrap_or_default().to_owned(),
        })?;
        Ok(Self { text: cron.to_owned(), starts, zone, lasts })
    }

    /// The expression, as it was given.
    pub fn expression(&self) -> &str {
        &self.text
    }

    /// Whether it has a start at all: 30 February has none.
    pub(crate) fn ever_opens(&self) -> bool {
        // Any time will do: a year and its leap day come again within `NEVER`.
        self.next(Timestamp::UNIX_EPOCH).is_some()
    }

    /// The first start after a time.
    fn next(&self, after: Timestamp) -> Option<Timestamp> {
        let local = Offset::UTC.to_timestamp(self.zone.to_datetime(after)).ok()?;
        let mut from = local.checked_sub(CLOCK_SHIFT).ok()?;
        loop {
            let start = self.starts.find_next(MakeTimestamp(from)).ok()?.timestamp();
            if start.duration_since(local) > NEVER {
                return None;
            }
            let there = self.zone.to_ambiguous_zoned(Offset::UTC.to_datetime(start)).compatible().ok()?;
            if there.timestamp() > after {
                return Some(there.timestamp());
            }
            from = start;
        }
    }

    /// When a window ends that is open at this time, by one of its last starts: starts may come sooner than it ends.
    fn closes(&self, at: Timestamp) -> Option<Timestamp> {
        let mut back = SignedDuration::from_mins(1).min(self.lasts);
        loop {
            let start = at.checked_sub(back).ok().and_then(|from| self.next(from));
            if let Some(start) = start.filter(|start| *start <= at) {
                return start.checked_add(self.lasts).ok();
            }
            if back >= self.lasts {
                return None;
            }
            back = back.saturating_add(back).min(self.lasts);
        }
    }

    /// This point in time in relation to the window.
    pub(crate) fn at(&self, now: Timestamp) -> WindowState {
        let Some(first) = now.checked_sub(self.lasts).ok().and_then(|from| self.next(from)) else {
            return WindowState::Shut(None);
        };
        match first.checked_add(self.lasts) {
            Ok(end) if first <= now => WindowState::Open(end),
            _ => WindowState::Shut(Some(first)),
        }
    }
}

impl Freeze {
    /// Whether it is in force.
    pub(crate) fn holds(&self, now: Timestamp) -> bool {
        self.from <= now && self.until.is_none_or(|until| now < until)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(text: &str) -> Timestamp {
        text.parse().unwrap()
    }

    #[test]
    fn a_window_opens_by_the_clock_of_its_zone_and_closes_when_its_time_is_over() {
        use WindowState::{Open, Shut};
        let rows = [
            // Every night at ten, for four hours: 20:00 UTC in summer, 21:00 in winter.
            ("0 22 * * *", 4, "2026-07-01T19:59:59Z", Shut(Some(at("2026-07-01T20:00:00Z")))),
            ("0 22 * * *", 4, "2026-07-01T20:00:00Z", Open(at("2026-07-02T00:00:00Z"))),
            ("0 22 * * *", 4, "2026-07-01T23:59:59Z", Open(at("2026-07-02T00:00:00Z"))),
            ("0 22 * * *", 4, "2026-07-02T00:00:00Z", Shut(Some(at("2026-07-02T20:00:00Z")))),
            ("0 22 * * *", 4, "2026-12-01T20:30:00Z", Shut(Some(at("2026-12-01T21:00:00Z")))),
            // Saturdays.
            ("30 6 * * 6", 1, "2026-07-01T00:00:00Z", Shut(Some(at("2026-07-04T04:30:00Z")))),
            // On 29 March clocks go from two to three: a start at half past two is an hour later.
            ("30 2 * * *", 1, "2026-03-29T00:00:00Z", Shut(Some(at("2026-03-29T01:30:00Z")))),
            // On 25 October clocks go from three to two: the first half past two counts.
            ("30 2 * * *", 1, "2026-10-25T00:00:00Z", Shut(Some(at("2026-10-25T00:30:00Z")))),
            ("30 2 * * *", 1, "2026-10-25T01:30:00Z", Shut(Some(at("2026-10-26T01:30:00Z")))),
            // It lasts longer than the time between two starts, so it is always open.
            ("0 * * * *", 2, "2026-07-01T12:30:00Z", Open(at("2026-07-01T13:00:00Z"))),
            ("0 0 30 2 *", 1, "2026-07-01T12:30:00Z", Shut(None)),
            ("0 0 29 2 *", 1, "2026-07-01T12:30:00Z", Shut(Some(at("2028-02-28T23:00:00Z")))),
        ];
        // Central European Time as a rule, not read from a file.
        let berlin = TimeZone::posix("CET-1CEST,M3.5.0,M10.5.0/3").unwrap();
        for (cron, lasts, now, want) in rows {
            let window = Window::new(cron, berlin.clone(), SignedDuration::from_hours(lasts)).unwrap();
            assert_eq!(window.at(at(now)), want, "{cron} for {lasts} h at {now}");
        }
    }
}
