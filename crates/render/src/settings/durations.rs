//! Durations in a kubelet's config, as Go reads and writes them (<https://pkg.go.dev/time#ParseDuration>).
//!
//! What it is not: the rest of that config (see `kubelet`, `kubelet_config`).

use serde_json::Value;

/// Fields that hold a duration, at any depth.
pub(crate) const DURATIONS: [&str; 20] = [
    "containerLogMonitorInterval",
    "cpuCFSQuotaPeriod",
    "maxContainerRestartPeriod",
    "cacheTTL",
    "cacheAuthorizedTTL",
    "cacheUnauthorizedTTL",
    "cpuManagerReconcilePeriod",
    "evictionPressureTransitionPeriod",
    "fileCheckFrequency",
    "httpCheckFrequency",
    "imageMaximumGCAge",
    "imageMinimumGCAge",
    "nodeStatusReportFrequency",
    "nodeStatusUpdateFrequency",
    "runtimeRequestTimeout",
    "shutdownGracePeriod",
    "shutdownGracePeriodCriticalPods",
    "streamingConnectionIdleTimeout",
    "syncFrequency",
    "volumeStatsAggPeriod",
];

/// Writes every duration in a kubelet's config in the form in which Go writes it.
pub(crate) fn normalise_durations(value: &mut Value) {
    let Some(map) = value.as_object_mut() else { return };
    for (key, value) in map {
        match value {
            Value::String(text) if DURATIONS.contains(&key.as_str()) => {
                if let Some(nanos) = parse_duration(text) {
                    *text = format_duration(nanos);
                }
            }
            Value::Object(_) => normalise_durations(value),
            _ => {}
        }
    }
}

/// Parses Go's `1h2m3.5s` as nanoseconds. Digits beyond the unit's precision are cut off.
pub(crate) fn parse_duration(text: &str) -> Option<u64> {
    let mut rest = text;
    let mut nanos: u64 = 0;
    if text == "0" {
        return Some(0);
    }
    while !rest.is_empty() {
        let number_end = rest.find(|c: char| !c.is_ascii_digit() && c != '.')?;
        let (number, tail) = rest.split_at_checked(number_end)?;
        let unit_end = tail.find(|c: char| c.is_ascii_digit() || c == '.').unwrap_or(tail.len());
        let (unit, tail) = tail.split_at_checked(unit_end)?;
        let scale: u64 = match unit {
            "ns" => 1,
            "us" | "µs" => 1_000,
            "ms" => 1_000_000,
            "s" => 1_000_000_000,
            "m" => 60_000_000_000,
            "h" => 3_600_000_000_000,
            _ => return None,
        };
        let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
        if whole.is_empty() && fraction.is_empty() {
            return None;
        }
        let whole: u64 = if whole.is_empty() { 0 } else { whole.parse().ok()? };
        let mut part = scale;
        let fraction = fraction.chars().try_fold(0_u64, |sum, c| {
            part /= 10;
            sum.checked_add(part.checked_mul(u64::from(c.to_digit(10)?))?)
        })?;
        nanos = nanos.checked_add(whole.checked_mul(scale)?)?.checked_add(fraction)?;
        rest = tail;
    }
    (!text.is_empty()).then_some(nanos)
}

/// Writes a duration as Go does.
fn format_duration(nanos: u64) -> String {
    const SECOND: u64 = 1_000_000_000;
    let decimal = |value: u64, scale: u64, unit: &str| {
        let digits = scale.ilog10() as usize;
        let fraction = format!("{:0digits$}", value % scale);
        let fraction = if digits == 0 { "" } else { fraction.trim_end_matches('0') };
        let dot = if fraction.is_empty() { "" } else { "." };
        format!("{}{dot}{fraction}{unit}", value / scale)
    };
    match nanos {
        0 => "0s".to_owned(),
        n if n < 1_000 => format!("{n}ns"),
        n if n < 1_000_000 => decimal(n, 1_000, "µs"),
        n if n < SECOND => decimal(n, 1_000_000, "ms"),
        n => {
            let (hours, minutes) = (n / (3_600 * SECOND), n / (60 * SECOND) % 60);
            let seconds = decimal(n % (60 * SECOND), SECOND, "s");
            match (hours, minutes) {
                (0, 0) => seconds,
                (0, m) => format!("{m}m{seconds}"),
                (h, m) => format!("{h}h{m}m{seconds}"),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_written_as_go_writes_them() {
        for (text, want) in [
            ("0s", "0s"),
            ("0", "0s"),
            ("5m", "5m0s"),
            ("90s", "1m30s"),
            ("1h", "1h0m0s"),
            ("1.5s", "1.5s"),
            ("300ms", "300ms"),
            ("1h2m3.25s", "1h2m3.25s"),
            ("24h", "24h0m0s"),
            ("15us", "15µs"),
        ] {
            assert_eq!(parse_duration(text).map(format_duration).as_deref(), Some(want), "{text}");
        }
        for bad in ["", "5", "m", "5x", "-5s", "99999999999999999h"] {
            assert_eq!(parse_duration(bad), None, "{bad}");
        }
    }
}
