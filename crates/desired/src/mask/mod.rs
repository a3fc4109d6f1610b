//! Decides how much of a file's contents people may see. It is the only masker, for reasons of drift, diffs, plans,
//! events, logs and conditions, which more people can read than the files themselves. Pure.
//!
//! Contents are shown only if every side of a comparison is public by mode and by path ([`Privacy`]) and no line looks
//! like a secret ([`looks_secret`]). Otherwise only sizes are reported, and no hash, because a hash would confirm a
//! guess.
//!
//! What it is not: a proof. A secret that looks like ordinary text is treated as such.

mod line;
mod log;
mod path;

use std::fmt::{self, Write as _};
use std::ops::Range;

use imara_diff::{Algorithm, Diff, InternedInput, Token};

pub use line::{argument, looks_secret};
pub use log::hidden_lines;
pub use path::{Privacy, is_private_path};

use crate::content::sha256;

/// Larger files are described by size and hash: their lines would be too many for an annotation.
pub const MAX_SHOWN: u64 = 64 * 1024;
/// How many changed lines are shown.
const MAX_LINES: usize = 12;
/// How many characters of each line are shown.
const MAX_WIDTH: usize = 100;
/// How many characters of a hash are shown: enough to tell two versions of a public file apart.
const HASH: usize = 12;
/// The mode bit that lets everybody read a file.
const READ: u32 = 0o004;

/// Whether somebody who may read the contents asked to see them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Secrets {
    /// Mask them.
    #[default]
    Hide,
    /// Show them.
    Show,
}

/// Why contents are not shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MaskReason {
    /// The mode of one of the files is not public.
    Mode,
    /// A folder above one of the files is closed.
    Folder,
    /// Secrets are kept at this path.
    Path,
    /// A line looks like a secret.
    Line,
    /// The new side is empty, so what the old one held is in no file any more.
    Emptied,
}

impl fmt::Display for MaskReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Mode => "not everybody may read the file",
            Self::Folder => "not everybody may open its folder",
            Self::Path => "files at such paths hold secrets",
            Self::Line => "a line looks like a secret",
            Self::Emptied => "it was emptied",
        })
    }
}

/// One side of a comparison.
#[derive(Clone, Copy)]
pub struct MaskSide<'a> {
    /// Contents.
    pub bytes: &'a [u8],
    /// Why these contents are private, regardless of what they are.
    pub private: Option<MaskReason>,
}

impl fmt::Debug for MaskSide<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "<{} bytes, private: {:?}>", self.bytes.len(), self.private)
    }
}

impl<'a> MaskSide<'a> {
    /// Contents that are not marked as private.
    #[must_use]
    pub fn public(bytes: &'a [u8]) -> Self {
        Self { bytes, private: None }
    }

    /// Contents of a file of this mode.
    #[must_use]
    pub fn with_mode(bytes: &'a [u8], mode: u32) -> Self {
        Self { bytes, private: (mode & READ == 0).then_some(MaskReason::Mode) }
    }
}

/// Why a comparison cannot be shown; `None` if it can. A missing side hides nothing.
#[must_use]
pub fn hidden(old: Option<MaskSide<'_>>, new: Option<MaskSide<'_>>) -> Option<MaskReason> {
    let sides = || [old, new].into_iter().flatten();
    if let Some(why) = sides().find_map(|s| s.private) {
        return Some(why);
    }
    if sides().any(|s| looks_secret(&String::from_utf8_lossy(s.bytes))) {
        return Some(MaskReason::Line);
    }
    let emptied = old.is_some_and(|o| !o.bytes.is_empty()) && new.is_some_and(|n| n.bytes.is_empty());
    emptied.then_some(MaskReason::Emptied)
}

/// Whether the contents of a file, or their hash, may be shown. Large files are not searched for secrets, so theirs may
/// not.
#[must_use]
pub fn may_show(path: &str, mode: u32, bytes: &[u8]) -> bool {
    bytes.len() as u64 <= MAX_SHOWN
        && !is_private_path(path)
        && hidden(None, Some(MaskSide::with_mode(bytes, mode))).is_none()
}

/// Bytes as text, if they are text.
#[must_use]
pub fn text(bytes: &[u8]) -> Option<&str> {
    std::str::from_utf8(bytes).ok().filter(|t| !t.contains('\0'))
}

/// What a host has at a path, to be compared with the config.
#[derive(Clone, Copy, Debug)]
pub struct HostContents<'a> {
    /// The contents; `None` if the file is too long to be read.
    pub read: Option<MaskSide<'a>>,
    /// Length in bytes.
    pub len: u64,
}

/// Describes how the host's contents at a path differ from the wanted ones, in a form that may be shown.
#[must_use]
pub fn difference(path: &str, want: MaskSide<'_>, found: HostContents<'_>) -> String {
    let (len, wanted) = (found.len, want.bytes.len());
    let why = match (is_private_path(path), found.read) {
        (true, _) => Some(MaskReason::Path),
        (false, Some(read)) => hidden(Some(want), Some(read)),
        // What cannot be checked is treated like a secret.
        (false, None) => return format!("{len} bytes instead of {wanted}"),
    };
    if let Some(why) = why {
        return format!("{len} bytes instead of {wanted}; contents are not shown: {why}");
    }
    let read = found.read.map_or(&[][..], |s| s.bytes);
    if read.len().max(wanted) as u64 <= MAX_SHOWN
        && let (Some(a), Some(b)) = (text(want.bytes), text(read))
    {
        return lines(a, b);
    }
    let hash = |bytes: &[u8]| sha256(bytes).get(..HASH).unwrap_or_default().to_owned();
    format!("{len} bytes (sha256 {}…) instead of {wanted} (sha256 {}…)", hash(read), hash(want.bytes))
}

/// The changed lines: `-` for the config's, `+` for the host's.
fn lines(want: &str, found: &str) -> String {
    let mut out = String::from("(- config, + host)");
    let (mut shown, mut more) = (0, 0);
    let input = InternedInput::new(want, found);
    let mut diff = Diff::compute(Algorithm::Myers, &input);
    diff.postprocess_lines(&input);
    let of = |tokens: &[Token], range: Range<u32>| -> Vec<&str> {
        let tokens = tokens.get(range.start as usize..range.end as usize).unwrap_or_default();
        tokens.iter().map(|token| input.interner[*token]).collect()
    };
    for hunk in diff.hunks() {
        if shown < MAX_LINES {
            // The line of the config; where the config has none, that of the host.
            let start = if hunk.before.is_empty() { hunk.after.start } else { hunk.before.start };
            let _ = write!(out, "\n@@ line {} @@", start + 1);
        }
        let gone = of(&input.before, hunk.before).into_iter().map(|line| ('-', line));
        let come = of(&input.after, hunk.after).into_iter().map(|line| ('+', line));
        for (sign, line) in gone.chain(come) {
            if shown == MAX_LINES {
                more += 1;
                continue;
            }
            let end = if line.ends_with('\n') { "" } else { " (no newline at the end)" };
            let _ = write!(out, "\n{sign}{}{end}", cut(line.trim_end_matches(['\n', '\r'])));
            shown += 1;
        }
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

#[cfg(test)]
mod tests {
    use super::*;

    fn told(want: &[u8], found: &[u8]) -> String {
        let read = Some(MaskSide::public(found));
        difference("/etc/app.conf", MaskSide::public(want), HostContents { read, len: found.len() as u64 })
    }

    #[test]
    fn a_diff_shows_changed_lines_with_line_numbers() {
        assert_eq!(told(b"a\nb\nc\n", b"a\nX\nc\n"), "(- config, + host)\n@@ line 2 @@\n-b\n+X");
        let end = told(b"a\nb\nc\n", b"a\nb\nc");
        assert!(end.ends_with("+c (no newline at the end)"), "{end}");
        let many: String = (0..50).map(|i| format!("{i}\n")).collect();
        let text = told(b"", many.as_bytes());
        assert!(text.ends_with("… and 38 more changed lines"), "{text}");
        assert!(told(b"", "x y ".repeat(1000).as_bytes()).len() < 400);
    }

    #[test]
    fn binary_and_large_files_are_shown_as_size_and_hash() {
        let text = told(b"text", b"\0\x01");
        assert!(
            text.starts_with("2 bytes (sha256 ") && text.contains("instead of 4 (sha256 982d9e3eb996…"),
            "{text}"
        );
        let large = "a b\n".repeat(20_000);
        assert!(told(b"text", large.as_bytes()).starts_with("80000 bytes (sha256 "));
        let unread = difference("/a", MaskSide::public(b"text"), HostContents { read: None, len: 1 << 40 });
        assert_eq!(unread, "1099511627776 bytes instead of 4");
        // Not even a hash, because that would confirm a guess.
        let wide: Vec<u8> = b"pin=1234".iter().flat_map(|b| [*b, 0]).collect();
        assert!(!told(b"text", &wide).contains("sha256"));
    }

    /// Mode, folder, path or a line of either side: each is enough by itself.
    #[test]
    fn contents_are_shown_only_where_both_sides_are_public() {
        let public = MaskSide::public(b"hello\n");
        let (other, empty) = (MaskSide::public(b"hunter2\n"), MaskSide::public(b""));
        let private = |why| MaskSide { private: Some(why), ..other };
        let rows = [
            ("/etc/a", public, other, None),
            ("/etc/a", public, MaskSide::with_mode(b"hunter2\n", 0o600), Some(MaskReason::Mode)),
            ("/etc/a", public, MaskSide::with_mode(b"hunter2\n", 0o640), Some(MaskReason::Mode)),
            ("/etc/a", MaskSide::with_mode(b"hunter2\n", 0o600), public, Some(MaskReason::Mode)),
            ("/etc/a", private(MaskReason::Folder), public, Some(MaskReason::Folder)),
            ("/etc/a", public, private(MaskReason::Folder), Some(MaskReason::Folder)),
            ("/etc/kubernetes/pki/a", public, other, Some(MaskReason::Path)),
            ("/etc/a", public, MaskSide::public(b"pwd=hunter2"), Some(MaskReason::Line)),
            ("/etc/a", MaskSide::public(b"pwd=hunter2"), public, Some(MaskReason::Line)),
            // The secret line did not change, but lines beside it are hidden too.
            (
                "/etc/a",
                MaskSide::public(b"x\nPASS=hunter2\n"),
                MaskSide::public(b"y\nPASS=hunter2\n"),
                Some(MaskReason::Line),
            ),
            ("/etc/a", other, empty, Some(MaskReason::Emptied)),
        ];
        for (path, want, found, why) in rows {
            let held = HostContents { read: Some(found), len: found.bytes.len() as u64 };
            let text = difference(path, want, held);
            match why {
                None => assert!(text.contains("+hunter2"), "{text}"),
                Some(why) => {
                    assert!(text.ends_with(&format!("contents are not shown: {why}")), "{text}");
                    assert!(!text.contains("hunter") && !text.contains("sha256"), "{text}");
                }
            }
        }
        assert_eq!(hidden(Some(empty), Some(other)), None, "an empty file was filled");
        assert_eq!(hidden(Some(other), None), None);
    }
}
