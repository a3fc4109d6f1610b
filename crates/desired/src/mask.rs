//! How the contents of a managed file differ from what the config says, in a form that may be shown: a few lines of text
//! with secrets masked, or sizes and hashes where lines would say too much or nothing. Pure.
//!
//! It ends in a Node's annotations, in events and logs, which more people read than the file itself. So a file that the
//! config does not let everybody read is never shown, not even its hash: that would tell whether a guess is right.

use std::fmt::Write as _;

use similar::{ChangeTag, TextDiff};

use crate::content::sha256;

/// Larger files are told by size and hash: nobody reads their lines in an annotation.
pub const MAX_SHOWN: u64 = 64 * 1024;
/// So many changed lines are shown.
const MAX_LINES: usize = 12;
/// So many characters of each.
const MAX_WIDTH: usize = 100;
/// Characters of a hash: enough to tell two versions of a public file apart.
const HASH: usize = 12;
/// The bits by which everybody may read a file.
const PUBLIC: u32 = 0o004;
/// What a word that names a secret holds.
const SECRET_WORDS: [&str; 12] = [
    "password",
    "passwd",
    "passphrase",
    "secret",
    "token",
    "credential",
    "privatekey",
    "private-key",
    "private_key",
    "apikey",
    "api-key",
    "api_key",
];
/// The same for words that are longer in harmless cases.
const SECRET_KEYS: [&str; 5] = ["auth", "authorization", "bearer", "psk", "key"];
/// Values that are no secret, whatever they belong to.
const HARMLESS: [&str; 10] =
    ["yes", "no", "true", "false", "on", "off", "none", "null", "required", "optional"];
/// A run of letters and digits from this length on looks like a key.
const LONG_RUN: usize = 20;
/// The same where it could be a word.
const LONG_HEX: usize = 32;
/// What is put in place of a secret.
const MASK: &str = "***";

/// Whether the contents of a file with this mode may be shown.
#[must_use]
pub fn is_public(mode: u32) -> bool {
    mode & PUBLIC != 0
}

/// Says how `found` differs from `want`. `None` for `found`: too long to be read.
#[must_use]
pub fn difference(want: &[u8], found: Option<&[u8]>, found_len: u64, mode: u32) -> String {
    if !is_public(mode) {
        return format!(
            "{found_len} bytes instead of {}; contents are not shown, as not everybody may read the file",
            want.len()
        );
    }
    let hash = |bytes: &[u8]| sha256(bytes).get(..HASH).unwrap_or_default().to_owned();
    let short = found.filter(|f| f.len().max(want.len()) as u64 <= MAX_SHOWN);
    if let Some((a, b)) = short.and_then(|f| Some((text(want)?, text(f)?))) {
        return lines(a, b);
    }
    match found {
        Some(f) => format!(
            "{found_len} bytes (sha256 {}…) instead of {} (sha256 {}…)",
            hash(f),
            want.len(),
            hash(want)
        ),
        None => format!("{found_len} bytes instead of {} (sha256 {}…)", want.len(), hash(want)),
    }
}

fn text(bytes: &[u8]) -> Option<&str> {
    std::str::from_utf8(bytes).ok().filter(|t| !t.contains('\0'))
}

/// The changed lines: `-` as the config says, `+` as the host has it.
fn lines(want: &str, found: &str) -> String {
    let mut out = String::from("(- config, + host)");
    let (mut shown, mut more, mut at) = (0, 0, None);
    let diff = TextDiff::from_lines(want, found);
    for change in diff.iter_all_changes() {
        let sign = match change.tag() {
            ChangeTag::Equal => {
                at = None;
                continue;
            }
            ChangeTag::Delete => '-',
            ChangeTag::Insert => '+',
        };
        if shown == MAX_LINES {
            more += 1;
            continue;
        }
        if at.is_none() {
            let line = change.old_index().or(change.new_index()).unwrap_or_default() + 1;
            let _ = write!(out, "\n@@ line {line} @@");
            at = Some(line);
        }
        let line = change.value();
        let end = if line.ends_with('\n') { "" } else { " (no newline at the end)" };
        let _ = write!(out, "\n{sign}{}{end}", cut(&masked(line.trim_end_matches(['\n', '\r']))));
        shown += 1;
    }
    if more > 0 {
        let _ = write!(out, "\n… and {more} more changed lines");
    }
    out
}

fn cut(line: &str) -> String {
    let clean = line.chars().map(|c| if c.is_control() && c != '\t' { '\u{fffd}' } else { c });
    let mut out: String = clean.take(MAX_WIDTH).collect();
    if line.chars().count() > MAX_WIDTH {
        out.push('…');
    }
    out
}

/// A line without what looks like a secret: the value of a key that names one, a name and password in a URL, runs of
/// letters and digits as keys have them.
fn masked(line: &str) -> String {
    let mut line = without_userinfo(line);
    if let Some(value) = secret_value(&line) {
        let rest = line.split_off(value);
        let word = rest.trim().trim_matches(['"', '\'', ',', ';']).to_lowercase();
        let harmless = word.is_empty()
            || HARMLESS.contains(&word.as_str())
            || word.len() < 5 && word.bytes().all(|b| b.is_ascii_digit());
        line.push_str(if harmless { &rest } else { MASK });
    }
    without_runs(&line)
}

/// Where the value of a key begins that names a secret.
fn secret_value(line: &str) -> Option<usize> {
    let lower = line.to_ascii_lowercase();
    let contained = SECRET_WORDS.iter().filter_map(|w| lower.find(w).map(|at| at + w.len()));
    let whole = SECRET_KEYS.iter().filter_map(|w| {
        lower.match_indices(w).map(|(at, _)| (at, at + w.len())).find_map(|(at, end)| {
            let letter = |b: Option<u8>| b.is_some_and(|b| b.is_ascii_alphanumeric());
            let before = at.checked_sub(1).and_then(|i| lower.as_bytes().get(i)).copied();
            (!letter(before) && !letter(lower.as_bytes().get(end).copied())).then_some(end)
        })
    });
    let end = contained.chain(whole).min()?;
    let separator = lower.get(end..)?.find(['=', ':', ' ', '\t'])?;
    let mut value = end + separator;
    while lower.as_bytes().get(value).is_some_and(|b| b"=: \t".contains(b)) {
        value += 1;
    }
    Some(value)
}

/// `scheme://user:password@host` without the middle.
fn without_userinfo(line: &str) -> String {
    let mut out = String::new();
    let mut rest = line;
    while let Some((before, after)) = rest.split_once("://") {
        out.push_str(before);
        out.push_str("://");
        let end = after.find(['/', ' ', '\t', '"', '\'']).unwrap_or(after.len());
        let authority = after.get(..end).unwrap_or_default();
        rest = match authority.rsplit_once('@') {
            Some((userinfo, _)) => {
                out.push_str(MASK);
                after.get(userinfo.len()..).unwrap_or_default()
            }
            None => after,
        };
    }
    out + rest
}

/// Long runs of letters and digits are masked where they mix cases and digits, or are as long as hashes.
fn without_runs(line: &str) -> String {
    let in_run = |c: char| c.is_ascii_alphanumeric() || c == '+' || c == '=';
    let mut out = String::new();
    let mut rest = line;
    while !rest.is_empty() {
        let end = rest.find(|c| !in_run(c)).unwrap_or(rest.len());
        let (run, after) = rest.split_at(end);
        let has = |f: fn(&u8) -> bool| run.bytes().any(|b| f(&b));
        let digits = has(u8::is_ascii_digit);
        let mixed = digits && has(u8::is_ascii_lowercase) && has(u8::is_ascii_uppercase);
        let secret = run.len() >= LONG_RUN && mixed || run.len() >= LONG_HEX && digits;
        out.push_str(if secret { MASK } else { run });
        let other = after.chars().take_while(|c| !in_run(*c)).map(char::len_utf8).sum();
        let (between, next) = after.split_at(other);
        out.push_str(between);
        rest = next;
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changed_lines_are_shown_with_their_place() {
        let want = b"a\nb\nc\n";
        assert_eq!(
            difference(want, Some(b"a\nX\nc\n"), 6, 0o644),
            "(- config, + host)\n@@ line 2 @@\n-b\n+X"
        );
        let end = difference(want, Some(b"a\nb\nc"), 5, 0o644);
        assert!(end.ends_with("+c (no newline at the end)"), "{end}");
        let many: String = (0..50).map(|i| format!("{i}\n")).collect();
        let text = difference(b"", Some(many.as_bytes()), many.len() as u64, 0o644);
        assert!(text.ends_with("… and 38 more changed lines"), "{text}");
        let long = "x y ".repeat(1000);
        assert!(difference(b"", Some(long.as_bytes()), long.len() as u64, 0o644).len() < 400);
    }

    #[test]
    fn binary_and_large_files_are_told_by_size_and_hash() {
        let text = difference(b"text", Some(b"\0\x01"), 2, 0o644);
        assert!(
            text.starts_with("2 bytes (sha256 ") && text.contains("instead of 4 (sha256 982d9e3eb996…"),
            "{text}"
        );
        let large = vec![b'a'; 70_000];
        let text = difference(b"text", Some(&large), 70_000, 0o644);
        assert!(text.starts_with("70000 bytes (sha256 "), "{text}");
        assert!(difference(b"text", None, 1 << 40, 0o644).starts_with("1099511627776 bytes instead of 4"));
    }

    #[test]
    fn nothing_is_told_of_files_that_not_everybody_may_read() {
        for mode in [0o600, 0o640, 0o700] {
            let text = difference(b"hunter2", Some(b"hunter3"), 7, mode);
            assert!(!text.contains("hunter") && !text.contains("sha256"), "{text}");
            assert!(text.contains("7 bytes instead of 7"), "{text}");
        }
    }

    #[test]
    fn secrets_are_masked() {
        for (line, shown) in [
            ("password=hunter2", "password=***"),
            ("DB_PASSWORD: hunter2", "DB_PASSWORD: ***"),
            ("  \"auth\": \"dXNlcg==\",", "  \"auth\": ***"),
            ("requirepass_token abc", "requirepass_token ***"),
            ("key = abcdef", "key = ***"),
            ("keyboard = us", "keyboard = us"),
            ("PasswordAuthentication no", "PasswordAuthentication no"),
            ("PasswordAuthentication yes", "PasswordAuthentication yes"),
            ("max_token_count 40", "max_token_count 40"),
            ("proxy=http://me:pw@proxy:3128/", "proxy=http://***@proxy:3128/"),
            ("proxy=http://proxy:3128/", "proxy=http://proxy:3128/"),
            ("MIIEvQIBADANBgkqhkiG9w0BAQEFAASCBKcwggSj", "***"),
            ("x 0123456789abcdef0123456789abcdef", "x ***"),
            (
                "ExecStart=/usr/lib/systemd/system-generators/a",
                "ExecStart=/usr/lib/systemd/system-generators/a",
            ),
            ("server time.example.com iburst", "server time.example.com iburst"),
        ] {
            assert_eq!(masked(line), shown, "{line}");
        }
    }
}
