//! How busy this computer's processors were while the tests ran: it tells whether a run lacks processors, or waits.
//!
//! What it is not: the time of one job, which [`super::lanes`] measures.

/// The processors' time until now, in clock ticks: all of it, what they did nothing in, and what niced programs used. `None` on a
/// computer whose kernel does not say it. Source: `/proc/stat`, see proc(5).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Ticks {
    all: u64,
    idle: u64,
    niced: u64,
}

impl Ticks {
    pub(super) fn now() -> Option<Self> {
        Self::parse(&std::fs::read_to_string("/proc/stat").ok()?)
    }

    /// The fields of the first line are `cpu USER NICE SYSTEM IDLE IOWAIT IRQ SOFTIRQ STEAL GUEST GUEST_NICE`; the last two are
    /// part of the first two.
    fn parse(stat: &str) -> Option<Self> {
        let fields = stat.lines().next()?.strip_prefix("cpu ")?.split_ascii_whitespace();
        let ticks: Vec<u64> = fields.map(str::parse).collect::<Result<_, _>>().ok()?;
        let [_, niced, _, idle, waiting] = *ticks.get(..5)? else { return None };
        Some(Self { all: ticks.iter().take(8).sum(), idle: idle + waiting, niced })
    }

    /// How much of the time since then the processors were busy, in percent.
    pub(super) fn busy_since(self, then: Self) -> u64 {
        let all = self.all.saturating_sub(then.all).max(1);
        100 * all.saturating_sub(self.idle.saturating_sub(then.idle)) / all
    }

    /// The same without what niced programs used, such as the release build in the background: they give way to what is started.
    /// `is_niced`: this program is niced itself, and with it what it starts, so that all of it counts.
    pub(super) fn needed_since(self, then: Self, is_niced: bool) -> u64 {
        let all = self.all.saturating_sub(then.all).max(1);
        let niced = if is_niced { 0 } else { self.niced.saturating_sub(then.niced) };
        self.busy_since(then).saturating_sub(100 * niced / all)
    }
}

/// Whether this program is niced. Source: `/proc/self/stat`, field 19, see proc(5).
pub(super) fn is_niced() -> bool {
    std::fs::read_to_string("/proc/self/stat").is_ok_and(|stat| niceness(&stat) > 0)
}

/// The fields of `/proc/PID/stat` from the third on: those after the program's name, which is in parentheses and may hold spaces.
/// Source: proc_pid_stat(5).
pub(super) fn fields_after_name(stat: &str) -> impl Iterator<Item = &str> {
    stat.rsplit_once(')').map_or("", |(_, rest)| rest).split_ascii_whitespace()
}

fn niceness(stat: &str) -> i64 {
    fields_after_name(stat).nth(16).and_then(|nice| nice.parse().ok()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn idle_time_and_waits_for_disks_count_as_free() {
        let then = Ticks::parse("cpu  100 0 50 300 50 0 0 0 40 0\ncpu0 1 2 3\n").unwrap();
        assert_eq!(then, Ticks { all: 500, idle: 350, niced: 0 });
        let now = Ticks::parse("cpu  150 100 50 340 60 0 0 0 90 0\n").unwrap();
        assert_eq!(now.busy_since(then), 75);
        assert_eq!((now.needed_since(then, false), now.needed_since(then, true)), (25, 75));
        assert_eq!(then.busy_since(then), 100);
        for text in ["", "cpu  1 2 3", "intr 1 2 3 4 5 6 7 8", "cpu  1 2 3 x 5"] {
            assert_eq!(Ticks::parse(text), None, "{text}");
        }
    }

    #[test]
    fn the_niceness_is_found_behind_any_name() {
        let stat = |name: &str| format!("7 ({name}) S 1 7 7 0 -1 4194304 1 0 0 0 1 1 0 0 39 19 1 0 5\n");
        assert_eq!((niceness(&stat("xtask")), niceness(&stat("a) b"))), (19, 19));
        assert_eq!(niceness(""), 0);
    }
}
