//! Kernel arguments in a text that is one command line. Pure: text in, text out. What stays keeps its bytes.
//!
//! Not here: which text that is (see `entries` and the parent module).
//!
//! Sources: bootparam(7), <https://www.raspberrypi.com/documentation/computers/configuration.html> (`cmdline.txt`).

use std::ops::Range;

/// The first line: the only one that firmware reads.
pub(super) fn first(text: &str) -> &str {
    text.lines().next().unwrap_or_default()
}

/// The places of the arguments, split as the kernel does: at white space outside of double quotes.
fn spans(text: &str) -> Vec<Range<usize>> {
    let (mut out, mut start, mut quoted) = (Vec::new(), None, false);
    for (at, c) in text.char_indices() {
        quoted ^= c == '"';
        if c.is_ascii_whitespace() && !quoted {
            out.extend(start.take().map(|from| from..at));
        } else if start.is_none() {
            start = Some(at);
        }
    }
    out.extend(start.map(|from| from..text.len()));
    out
}

/// The text without the last occurrence of each argument of `had`, and with `has` after all others.
pub(super) fn edit(text: &str, had: &[String], has: &[String]) -> String {
    let mut left = spans(text);
    let mut gone = Vec::new();
    for one in had {
        if let Some(at) = left.iter().rposition(|s| text.get(s.clone()) == Some(one)) {
            gone.push(left.remove(at));
        }
    }
    gone.sort_by_key(|s| s.start);
    let mut out = text.to_owned();
    for span in gone.into_iter().rev() {
        // With the white space before it, or the white space after it if it is the first.
        let before = out.get(..span.start).unwrap_or_default().trim_end().len();
        let after = out.get(span.end..).unwrap_or_default();
        let end = match before {
            0 => span.end + (after.len() - after.trim_start_matches([' ', '\t']).len()),
            _ => span.end,
        };
        out.replace_range(if before == 0 { span.start..end } else { before..end }, "");
    }
    let at = out.trim_end().len();
    let lead = if at == 0 || has.is_empty() { "" } else { " " };
    out.insert_str(at, &format!("{lead}{}", has.join(" ")));
    out
}

/// As [`edit`], of the first line only.
pub(super) fn edit_first(text: &str, had: &[String], has: &[String]) -> String {
    let line = first(text);
    format!("{}{}", edit(line, had, has), text.get(line.len()..).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(text: &str) -> Vec<String> {
        text.split_whitespace().map(str::to_owned).collect()
    }

    #[test]
    fn only_the_given_arguments_go_and_the_new_ones_come_last() {
        for (text, had, has, want) in [
            ("", "", "", ""),
            ("\n", "", "a b=1", "a b=1\n"),
            ("ro quiet\n", "", "a b=1", "ro quiet a b=1\n"),
            ("ro quiet a b=1\n", "a b=1", "", "ro quiet\n"),
            ("ro  quiet a", "a", "a", "ro  quiet a"),
            // The host's own `quiet` stays: it is the first of two.
            ("quiet ro quiet", "quiet", "", "quiet ro"),
            ("a ro", "a", "", "ro"),
            ("a\n", "a", "", "\n"),
            ("a", "a", "", ""),
            // Others put theirs after ours.
            ("ro a systemd.machine_id=1", "a", "b", "ro systemd.machine_id=1 b"),
            ("ro x=\"a b\" a", "a", "", "ro x=\"a b\""),
            ("ro", "a", "", "ro"),
            ("ro\nquiet\n", "", "a", "ro\nquiet a\n"),
        ] {
            assert_eq!(edit(text, &words(had), &words(has)), want, "{text:?} -{had} +{has}");
        }
    }

    #[test]
    fn what_was_added_comes_off_without_a_trace() {
        for text in ["ro quiet\n", "ro  quiet", " console=tty1\n", "x=\"1  2\" ro\nfoo\n"] {
            let own = words("a b=1 a");
            assert_eq!(edit(&edit(text, &[], &own), &own, &[]), text);
            assert_eq!(edit_first(&edit_first(text, &[], &own), &own, &[]), text);
        }
        assert_eq!(edit_first("ro\n# more\n", &[], &words("a")), "ro a\n# more\n");
    }
}
