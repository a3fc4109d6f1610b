//! Which lines of a text are hidden: those that look like a secret, and the lines after them that belong to the same value. Pure.
//!
//! What it is not: the rules by which one line looks like a secret (see `line`).

use super::line::{continues_value, is_secret};
use std::borrow::Cow;

/// What of the lines after a hidden one is hidden with it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Open {
    /// Nothing.
    Shut,
    /// Lines that are indented; with `list` also entries of a list, with `next` also the next line, whatever it is.
    Value { list: bool, next: bool },
    /// All to the end of a PEM block.
    Pem,
    /// All to the next header of an INI or TOML file.
    Section,
    /// All to the end of this many XML elements.
    Element(usize),
}

impl Open {
    /// After a hidden line. `list`: it looks like a secret because of the line after it.
    fn after(line: &str, list: bool) -> Self {
        let line = line.trim();
        let ended = line.ends_with("/>") || line.contains("</");
        let element = line.ends_with('>') && !ended;
        let next = element || goes_on(line);
        match line {
            _ if line.starts_with('[') && line.ends_with(']') && !line.contains('=') => Self::Section,
            _ if element && (line.starts_with('<') || list && line.contains('<')) => Self::Element(1),
            _ => Self::Value { list, next },
        }
    }

    /// Whether a line belongs to what was hidden before it.
    fn covers(self, line: &str) -> bool {
        let is_header = || {
            let name = line.strip_prefix('[').map(|rest| rest.trim_start_matches('['));
            name.is_some_and(|name| name.starts_with(|c: char| c.is_alphanumeric()))
        };
        match self {
            Self::Shut => false,
            Self::Value { list, next } => {
                next || line.trim().is_empty()
                    || line.starts_with([' ', '\t'])
                    || list && line.starts_with('-')
            }
            Self::Section => !is_header(),
            Self::Pem | Self::Element(_) => true,
        }
    }

    /// After a line that it covers, and that is no secret by itself.
    fn over(self, line: &str) -> Self {
        match self {
            Self::Value { list, .. } if !line.trim().is_empty() => Self::Value { list, next: goes_on(line) },
            Self::Element(depth) => {
                let count = |mark: &str| line.matches(mark).count();
                let (ended, all) = (count("</"), count("<"));
                match (depth + all).saturating_sub(2 * ended + count("/>")) {
                    0 => Self::Value { list: false, next: false },
                    depth => Self::Element(depth),
                }
            }
            same => same,
        }
    }
}

/// Whether the next line belongs to this one by its last character.
fn goes_on(line: &str) -> bool {
    line.trim_end().ends_with(['\\', '|', '[', '{', '(', ','])
}

/// For each of these lines, whether it is hidden. `judged` gives a line without what is public in it although it looks random.
#[must_use]
pub fn hidden_lines<'a>(lines: &[&'a str], judged: impl Fn(&'a str) -> Cow<'a, str>) -> Vec<bool> {
    let mut nexts = Vec::with_capacity(lines.len());
    let mut next = None;
    for line in lines.iter().rev() {
        nexts.push(next);
        if !line.trim().is_empty() {
            next = Some(*line);
        }
    }
    let mut open = Open::Shut;
    let mut all = Vec::with_capacity(lines.len());
    for (line, next) in lines.iter().zip(nexts.into_iter().rev()) {
        let plain = judged(line).replace('\0', "");
        let secret = is_secret(&plain, next.is_some_and(|next| continues_value(line, next)));
        let in_pem = open == Open::Pem || line.contains("-----BEGIN");
        let covered = open.covers(line);
        open = match () {
            () if in_pem && !line.contains("-----END") => Open::Pem,
            () if in_pem => Open::Value { list: false, next: false },
            () if secret && !matches!(open, Open::Element(_)) => Open::after(line, !is_secret(&plain, false)),
            () if covered => open.over(line),
            () => Open::Shut,
        };
        all.push(in_pem || secret || covered);
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(text: &str) -> String {
        let lines: Vec<&str> = text.lines().collect();
        let hidden = hidden_lines(&lines, Cow::Borrowed);
        let shown = lines.iter().zip(hidden).map(|(line, hidden)| if hidden { "#" } else { *line });
        shown.collect::<Vec<_>>().join("\n")
    }

    #[test]
    fn lines_that_belong_to_a_secret_are_hidden_with_it_and_no_others() {
        for (text, want) in [
            ("a\npassword=x\nb", "a\n#\nb"),
            ("a\npassword:\n  hunter2\nb", "a\n#\n#\nb"),
            ("password:\n  hunter2\n\n  hunter3\nb", "#\n#\n#\n#\nb"),
            ("passwords:\n- hunter2\n- hunter3\nb", "#\n#\n#\nb"),
            ("passwords:\n\n  - hunter2\nb", "#\n#\n#\nb"),
            ("password: |\nhunter2\nb", "#\n#\nb"),
            ("password: |\n  [hunter2]\nb", "#\n#\nb"),
            ("tokens: [\nhunter2,\nhunter3\n]", "#\n#\n#\n]"),
            ("--password \\\nhunter2\nb", "#\n#\nb"),
            ("a\n<password>\nhunter2\nhunter3\n</password>\nb", "a\n#\n#\n#\n#\nb"),
            ("<password type=\"x\">\nhunter2\n</password>\nb", "#\n#\n#\nb"),
            ("<password/>\nb", "<password/>\nb"),
            ("<password>hunter2</password>\nb", "#\nb"),
            ("<secrets>\n<token>hunter2</token>\n<a/>\nhunter3\n</secrets>\nb", "#\n#\n#\n#\n#\nb"),
            ("<secrets>\n<token>\nhunter2\n</token>\nhunter3\n</secrets>\nb", "#\n#\n#\n#\n#\n#\nb"),
            ("a\n[auth]\nvalue=hunter2\n\nother=hunter3\n[unit]\nb", "a\n#\n#\n#\n#\n[unit]\nb"),
            ("[a.auth]\nx = [\n[\"hunter2\"],\n]\n[[b]]\nc", "#\n#\n#\n#\n[[b]]\nc"),
            ("[INFO] the auth plugin [rbac]\n[INFO] b", "#\n[INFO] b"),
            ("-----BEGIN A-----\nx\n\ny\n-----END A-----\nb", "#\n#\n#\n#\n#\nb"),
            ("password:\nuser: me", "password:\nuser: me"),
            ("password:\n\nuser: me", "password:\n\nuser: me"),
            ("a:\n  b\n- c", "a:\n  b\n- c"),
            ("pass\0word=x\nb", "#\nb"),
        ] {
            assert_eq!(shown(text), want, "{text:?}");
        }
    }
}
