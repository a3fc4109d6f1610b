//! The differences between two texts in the format of `diff -u`, without its two lines with names. Pure.
//!
//! What it is not: the decision about what may be shown (`desired::mask`).
//!
//! Source: diff(1).

use imara_diff::{Algorithm, Diff, Hunk, InternedInput, Token};
use std::fmt::Write as _;
use std::ops::Range;

/// Unchanged lines around a change, as in `diff -u`.
const CONTEXT: u32 = 3;

/// The hunks. The library's own printer is not used: it shows more context than it says when the first change is in lines
/// five to seven.
pub(super) fn diff(old: &str, new: &str) -> String {
    let input = InternedInput::new(old, new);
    let mut diff = Diff::compute(Algorithm::Myers, &input);
    diff.postprocess_lines(&input);
    let mut out = String::new();
    let print = |sign: char, tokens: &[Token], range: Range<u32>, out: &mut String| {
        for token in tokens.get(range.start as usize..range.end as usize).unwrap_or_default() {
            let line = input.interner[*token];
            let end = if line.ends_with('\n') { "" } else { "\n\\ No newline at end of file\n" };
            let _ = write!(out, "{sign}{line}{end}");
        }
    };
    let changes: Vec<Hunk> = diff.hunks().collect();
    // Two changes whose context would touch or overlap are shown together.
    for group in changes.chunk_by(|a, b| b.before.start - a.before.end <= 2 * CONTEXT) {
        let [first, ..] = group else { continue };
        let last = group.last().unwrap_or(first);
        let lead = first.before.start.min(CONTEXT);
        let trail = u32::try_from(input.before.len()).unwrap_or(u32::MAX) - last.before.end;
        let trail = trail.min(CONTEXT);
        let old = first.before.start - lead..last.before.end + trail;
        let new = first.after.start - lead..last.after.end + trail;
        let _ = writeln!(out, "@@ -{} +{} @@", place(&old), place(&new));
        let mut at = old.start;
        for change in group {
            print(' ', &input.before, at..change.before.start, &mut out);
            print('-', &input.before, change.before.clone(), &mut out);
            print('+', &input.after, change.after.clone(), &mut out);
            at = change.before.end;
        }
        print(' ', &input.before, at..old.end, &mut out);
    }
    out
}

/// The place of a hunk as `diff -u` writes it: its first line and the number of lines, which is left out when it is one.
/// The place of no lines is the line before them.
fn place(lines: &Range<u32>) -> String {
    match lines.len() {
        0 => format!("{},0", lines.start),
        1 => format!("{}", lines.start + 1),
        len => format!("{},{len}", lines.start + 1),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hunks_are_those_of_diff_u() {
        let ten = |changed: usize| -> String {
            (1..=10).map(|n| if n == changed { "changed\n".to_owned() } else { format!("{n}\n") }).collect()
        };
        for (old, new, expected) in [
            ("", "a\nb\n", "@@ -0,0 +1,2 @@\n+a\n+b\n"),
            ("a\n", "", "@@ -1 +0,0 @@\n-a\n"),
            ("a\n", "b\n", "@@ -1 +1 @@\n-a\n+b\n"),
            ("a\nb", "a\nb\n", "@@ -1,2 +1,2 @@\n a\n-b\n\\ No newline at end of file\n+b\n"),
            (&ten(0), &ten(6), "@@ -3,7 +3,7 @@\n 3\n 4\n 5\n-6\n+changed\n 7\n 8\n 9\n"),
            ("a\n", "a\n", ""),
        ] {
            assert_eq!(diff(old, new), expected, "{old:?} → {new:?}");
        }
    }

    #[test]
    fn changes_that_are_far_apart_are_hunks_of_their_own() {
        let text = |changed: &[usize]| -> String {
            (1..=20).map(|n| if changed.contains(&n) { "x\n".to_owned() } else { format!("{n}\n") }).collect()
        };
        let hunks = diff(&text(&[]), &text(&[1, 20]));
        let heads: Vec<&str> = hunks.lines().filter(|l| l.starts_with("@@")).collect();
        assert_eq!(heads, ["@@ -1,4 +1,4 @@", "@@ -17,4 +17,4 @@"], "{hunks}");
    }
}
