//! Texts in a bug report: logs, and words in objects. Lines that look like secrets are hidden, and what is public although it looks
//! random is not. Pure.
//!
//! What it is not: objects and their fields (see `redact`).

use api::rendered::RenderedName;
use desired::mask::hidden_lines;
use std::borrow::Cow;

/// Shown in place of a line.
pub(super) const HIDDEN: &str = "<hidden>";
/// The length of the shortest time, to the second.
const TIME: usize = "2026-01-01T00:00:00Z".len();

/// A text without the parts that are public although they look random: names of rendered configs (also as a drain is asked for), UUIDs, digests
/// of images, names of EC2 instances.
pub(super) fn without_ids(text: &str) -> Cow<'_, str> {
    let is_part = |c: char| c.is_ascii_alphanumeric() || "-.:".contains(c);
    let is_hex = |t: &str, length: usize| t.len() == length && t.bytes().all(|b| b.is_ascii_hexdigit());
    let is_instance = |host: &str| host.strip_prefix("i-").is_some_and(|id| is_hex(id, 17));
    let is_id = |token: &str| {
        let token = token.trim_matches(['.', ':']);
        let config = api::drain_request::config_of(token).unwrap_or(token);
        is_instance(token)
            || RenderedName::parse(config).is_some_and(|name| name.is_generated())
            || token.strip_prefix("sha256:").is_some_and(|digest| is_hex(digest, 64))
            || token.split('-').map(str::len).eq([8, 4, 4, 4, 12])
                && token.split('-').all(|p| is_hex(p, p.len()))
    };
    // A node is often named by its instance and a domain. Only the instance is known to be public.
    let first = |token: &str| token.split('.').next().filter(|host| is_instance(host)).map(str::len);
    if !text.split(|c| !is_part(c)).any(|token| is_id(token) || first(token).is_some()) {
        return Cow::Borrowed(text);
    }
    let pieces = text.split_inclusive(|c| !is_part(c)).map(|piece| {
        let token = piece.trim_end_matches(|c| !is_part(c));
        match first(token) {
            _ if is_id(token) => piece.replace(token, "id"),
            Some(length) => format!("id{}", &piece[length..]),
            None => piece.to_owned(),
        }
    });
    Cow::Owned(pieces.collect())
}

/// A log, or any other text, without the lines that look like secrets and those that belong to them, by the rules of
/// [`hidden_lines`]. The times that a container's log has before each line do not count.
pub fn redacted_lines(text: &str) -> String {
    let lines: Vec<&str> = text.lines().collect();
    let said: Vec<&str> = lines.iter().map(|line| without_time(line)).collect();
    let hidden = hidden_lines(&said, without_ids);
    let shown = lines.iter().zip(hidden).map(|(line, hidden)| if hidden { HIDDEN } else { *line });
    shown.collect::<Vec<_>>().join("\n")
}

/// A line without the time that it begins with.
fn without_time(line: &str) -> &str {
    match line.split_once(' ') {
        Some((time, rest)) if time.len() >= TIME && time.parse::<jiff::Timestamp>().is_ok() => rest,
        _ => line,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_is_hidden_that_another_line_announces_also_behind_the_times_of_a_log() {
        for text in [
            "password:\n  hunter2",
            "passwords:\n- hunter2",
            "passwords:\n\n  - hunter2",
            "<password>\nhunter2\n</password>",
            "[auth]\nvalue=hunter2",
            "--password \\\n  hunter2",
        ] {
            assert!(!redacted_lines(text).contains("hunter2"), "{text:?}");
            // As a container's log has it.
            let logged = |line: &str| format!("2026-01-01T00:00:00.123456789Z {line}\n");
            let log: String = std::iter::once("before").chain(text.lines()).map(logged).collect();
            let shown = redacted_lines(&log);
            assert!(!shown.contains("hunter2") && shown.contains("Z before"), "{text:?}: {shown}");
        }
        assert_eq!(redacted_lines("password:\nuser: me"), "password:\nuser: me");
        assert_eq!(redacted_lines("one\npassword=hunter2\nthree"), "one\n<hidden>\nthree");
        assert!(redacted_lines("-----BEGIN A-----\nx\n-----END A-----\nafter").ends_with("after"));
    }
}
