//! How busy this computer's processors were while the tests ran: it tells whether a run lacks processors, or waits.
//!
//! What it is not: the time of one job, which [`super::lanes`] measures.

/// The processors' time until now, in clock ticks: all of it, and what they did nothing in. `None` on a computer whose kernel does
/// not say it. Source: `/proc/stat`, see proc(5).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Ticks {
    all: u64,
    idle: u64,
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
        let [_, _, _, idle, waiting] = *ticks.get(..5)? else { return None };
        Some(Self { all: ticks.iter().take(8).sum(), idle: idle + waiting })
    }

    /// How much of the time since then the processors were busy, in percent.
    pub(super) fn busy_since(self, then: Self) -> u64 {
        let all = self.all.saturating_sub(then.all).max(1);
        100 * all.saturating_sub(self.idle.saturating_sub(then.idle)) / all
    }
}

/// The fields of `/proc/PID/stat` from the third on: those after the program's name, which is in parentheses and may hold spaces.
/// Source: proc_pid_stat(5).
pub(super) fn fields_after_name(stat: &str) -> impl Iterator<Item = &str> {
    stat.rsplit_once(')').map_or("", |(_, rest)| rest).split_ascii_whitespace()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn idle_time_and_waits_for_disks_count_as_free() {
        let then = Ticks::parse("cpu  100 0 50 300 50 0 0 0 40 0\ncpu0 1 2 3\n").unwrap();
        assert_eq!(then, Ticks { all: 500, idle: 350 });
        let now = Ticks::parse("cpu  150 100 50 340 60 0 0 0 90 0\n").unwrap();
        assert_eq!(now.busy_since(then), 75);
        assert_eq!(then.busy_since(then), 100);
        for text in ["", "cpu  1 2 3", "intr 1 2 3 4 5 6 7 8", "cpu  1 2 3 x 5"] {
            assert_eq!(Ticks::parse(text), None, "{text}");
        }
    }

    #[test]
    fn fields_are_found_behind_any_name() {
        let stat = |name: &str| format!("7 ({name}) S 1 7 7 0 -1 4194304\n");
        for name in ["xtask", "a) b"] {
            assert_eq!(fields_after_name(&stat(name)).take(2).collect::<Vec<_>>(), ["S", "1"]);
        }
        assert_eq!(fields_after_name("").next(), None);
    }
}
