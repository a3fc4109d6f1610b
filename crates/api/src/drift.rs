//! What to do about drift, that is, when somebody changes a managed path by hand. Parses the text of the annotation
//! [`DRIFT`](crate::names::annotation::DRIFT).
//!
//! Each line is one rule, `ACTION GLOB`. The first rule that matches a path decides; if none does, the drift is
//! reported, as it is without the annotation. Empty lines and lines that begin with `#` are skipped; `;` also ends a
//! line, for those who write the annotation on a command line.
//!
//! What it is not: the detection or the repair of drift.

use std::fmt;

/// The most rules that one text may have, because each path is compared with each rule.
pub const MAX_RULES: usize = 200;

/// What to do about a managed path that was changed by hand.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DriftAction {
    /// The node is Degraded until it is repaired.
    #[default]
    Report,
    /// The agent restores what the config says.
    Repair,
    /// Nothing. The next update that writes the path overwrites the change.
    Ignore,
}

/// One rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DriftRule {
    /// What to do.
    pub action: DriftAction,
    /// For which paths: `*` and `?` stop at a slash, `**` does not.
    pub glob: String,
}

/// The rules in their order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DriftPolicy {
    /// The first one that matches decides.
    pub rules: Vec<DriftRule>,
}

/// A text that is not a drift policy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BadDriftPolicy {
    /// The line, from 1.
    pub line: usize,
    /// What is wrong with it, and what to write.
    pub why: String,
}

impl fmt::Display for BadDriftPolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}: {}", self.line, self.why)
    }
}

impl std::error::Error for BadDriftPolicy {}

impl DriftPolicy {
    /// Parses the text of the annotation. An empty text is a policy without rules.
    ///
    /// # Errors
    /// The first line that is not a rule.
    pub fn parse(text: &str) -> Result<Self, BadDriftPolicy> {
        let mut rules = Vec::new();
        for (i, line) in text.split(['\n', ';']).map(str::trim).enumerate() {
            let bad = |why: String| BadDriftPolicy { line: i + 1, why };
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            let (word, glob) = line.split_once(char::is_whitespace).unwrap_or((line, ""));
            let action = match word {
                "report" => DriftAction::Report,
                "repair" => DriftAction::Repair,
                "ignore" => DriftAction::Ignore,
                _ => return Err(bad(format!("{word:?} is not report, repair or ignore"))),
            };
            let glob = glob.trim();
            if !glob.starts_with('/') {
                return Err(bad(format!(
                    "{glob:?} is not an absolute path; write for example {word} /etc/app/**"
                )));
            }
            if rules.len() == MAX_RULES {
                return Err(bad(format!("there are more than {MAX_RULES} rules; use wider globs")));
            }
            rules.push(DriftRule { action, glob: glob.to_owned() });
        }
        Ok(Self { rules })
    }

    /// What to do about a path.
    #[must_use]
    pub fn action(&self, path: &str) -> DriftAction {
        let rule = self.rules.iter().find(|r| matches(r.glob.as_bytes(), path.as_bytes()));
        rule.map_or_else(DriftAction::default, |r| r.action)
    }
}

/// Whether a path matches a glob. Takes at most as many steps as the product of the two lengths, whatever the glob.
fn matches(glob: &[u8], path: &[u8]) -> bool {
    // `row[p]`: the glob so far matches the first `p` bytes of the path.
    let mut row = vec![false; path.len() + 1];
    if let Some(first) = row.first_mut() {
        *first = true;
    }
    let mut rest = glob;
    while let Some((c, after)) = rest.split_first() {
        let deep = rest.starts_with(b"**");
        rest = if deep { rest.get(2..).unwrap_or_default() } else { after };
        let mut next = vec![false; row.len()];
        for (p, slot) in next.iter_mut().enumerate() {
            let here = row.get(p).copied().unwrap_or_default();
            let byte = p.checked_sub(1).and_then(|i| path.get(i));
            let before = p.checked_sub(1).and_then(|i| row.get(i)).copied().unwrap_or_default();
            *slot = match (c, byte) {
                // Nothing so far; below it takes more.
                (b'*', _) => here,
                (b'?', Some(b)) => before && *b != b'/',
                (c, Some(b)) => before && c == b,
                _ => false,
            };
        }
        if *c == b'*' {
            // `**` matches anything, `*` anything but a slash.
            for p in 1..next.len() {
                let longer = next.get(p - 1).copied().unwrap_or_default()
                    && path.get(p - 1).is_some_and(|b| deep || *b != b'/');
                if let Some(slot) = next.get_mut(p) {
                    *slot |= longer;
                }
            }
        }
        row = next;
    }
    row.last().copied().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn globs_match_paths_as_people_expect() {
        for (glob, path, want) in [
            ("/etc/a", "/etc/a", true),
            ("/etc/a", "/etc/ab", false),
            ("/etc/*", "/etc/a", true),
            ("/etc/*", "/etc/a/b", false),
            ("/etc/*.conf", "/etc/a.conf", true),
            ("/etc/*.conf", "/etc/.conf", true),
            ("/etc/*.conf", "/etc/a/b.conf", false),
            ("/etc/**", "/etc/a/b/c", true),
            ("/etc/**", "/etcetera", false),
            ("/etc/**/c", "/etc/a/b/c", true),
            ("/etc/?", "/etc/a", true),
            ("/etc/?", "/etc/ab", false),
            ("/etc?a", "/etc/a", false),
            ("/**", "/", true),
            ("/a*b*c", "/aXbYc", true),
            ("/a*b*c", "/aXbY", false),
        ] {
            assert_eq!(matches(glob.as_bytes(), path.as_bytes()), want, "{glob} {path}");
        }
        // No glob takes long.
        let glob = format!("/{}b", "*a".repeat(100));
        assert!(!matches(glob.as_bytes(), format!("/{}", "a".repeat(4000)).as_bytes()));
    }

    #[test]
    fn the_first_matching_rule_decides_and_the_default_is_to_report() {
        let text = "# ours\nignore /etc/app/cache.conf\n\n  repair   /etc/app/**  ; report /etc/**";
        let policy = DriftPolicy::parse(text).unwrap();
        for (path, want) in [
            ("/etc/app/cache.conf", DriftAction::Ignore),
            ("/etc/app/x/y", DriftAction::Repair),
            ("/etc/other", DriftAction::Report),
            ("/var/x", DriftAction::Report),
        ] {
            assert_eq!(policy.action(path), want, "{path}");
        }
        assert_eq!(DriftPolicy::parse(""), Ok(DriftPolicy::default()));
    }

    #[test]
    fn an_invalid_rule_is_named_in_the_error() {
        for (text, line, part) in [
            ("repair /a\nrepare /b", 2, "\"repare\" is not report, repair or ignore"),
            ("repair", 1, "not an absolute path"),
            ("ignore etc/a", 1, "\"etc/a\" is not an absolute path"),
        ] {
            let bad = DriftPolicy::parse(text).unwrap_err();
            assert_eq!(bad.line, line);
            assert!(bad.to_string().contains(part), "{bad}");
        }
        let many = "repair /a\n".repeat(MAX_RULES + 1);
        assert!(DriftPolicy::parse(&many).unwrap_err().why.contains("more than 200"));
    }
}
