//! Shortens text from elsewhere that goes into an object: cut to a length that every reader and the API server accept,
//! with a note that it was cut.
//!
//! Also here: an error with its causes as one line ([`chain`]), for conditions, reasons and logs, bytes as hexadecimal
//! digits ([`hex`]), the first of a list with the number of the others ([`names`], [`statements`]), and a number of bytes in
//! words ([`size`]).
//!
//! What it is not: a filter for secrets. Whoever writes a text makes sure that it holds none.

use std::borrow::Cow;
use std::error::Error;
use std::fmt::{Display, Write as _};

/// Characters of a Node's [`crate::names::annotation::REASON`]. The reference's limit.
pub const MAX_REASON_CHARS: usize = 2000;
/// Characters of one node's reason in a pool's condition, which names up to ten nodes.
pub const MAX_NODE_WORDS: usize = 1000;
/// Characters of an API server's answer in a condition. The server's own messages are a few hundred long, but some
/// repeat the object that they refuse.
pub const MAX_ANSWER_CHARS: usize = 2000;

/// The text, of at most `most` characters. Of a longer one the beginning stays, with a note of how long it was. Cutting
/// twice is cutting once.
pub fn cut(text: &str, most: usize) -> Cow<'_, str> {
    // Bytes are at least as many as characters: most texts are not counted.
    if text.len() <= most {
        return Cow::Borrowed(text);
    }
    let count = text.chars().count();
    if count <= most {
        return Cow::Borrowed(text);
    }
    let note = format!("… (cut: {count} characters)");
    let room = most.saturating_sub(note.chars().count());
    let end = text.char_indices().nth(room).map_or(text.len(), |(at, _)| at);
    let kept = text.get(..end).unwrap_or_default();
    Cow::Owned(format!("{kept}{note}"))
}

/// Bytes as hexadecimal digits, in lower case: digests, and names that are made from them.
pub fn hex<'b>(bytes: impl IntoIterator<Item = &'b u8>) -> String {
    bytes.into_iter().fold(String::new(), |mut text, byte| {
        // Writing to a String cannot fail.
        let _ = write!(text, "{byte:02x}");
        text
    })
}

/// An error and its causes in one line. A cause whose text its error contains already is left out.
///
/// For errors of a Kubernetes client, use `client::chain`.
pub fn chain(error: &(dyn Error + 'static)) -> String {
    chain_with(error, |_| None)
}

/// The same, where `told` may say what is written for an error instead of its own text, and whether its causes are in
/// that already.
pub fn chain_with(
    error: &(dyn Error + 'static),
    told: impl Fn(&(dyn Error + 'static)) -> Option<(String, bool)>,
) -> String {
    let mut text = String::new();
    let mut next = Some(error);
    while let Some(error) = next {
        let (words, whole) = told(error).unwrap_or_else(|| (error.to_string(), false));
        if text.is_empty() {
            text = words;
        } else if !text.contains(&words) {
            text.push_str(": ");
            text.push_str(&words);
        }
        next = if whole { None } else { error.source() };
    }
    text
}

/// The first `most` names of a list, and how many more there are: "a, b and 3 more".
pub fn names<T: Display>(all: impl IntoIterator<Item = T>, most: usize) -> String {
    list(all, most, ", ", " and ")
}

/// The same for texts that may hold commas: "a; b; and 3 more".
pub fn statements<T: Display>(all: impl IntoIterator<Item = T>, most: usize) -> String {
    list(all, most, "; ", "; and ")
}

fn list<T: Display>(
    all: impl IntoIterator<Item = T>,
    most: usize,
    between: &str,
    before_rest: &str,
) -> String {
    let (mut text, mut count) = (String::new(), 0_usize);
    for one in all {
        if count < most {
            // Writing to a String cannot fail.
            let _ = write!(text, "{}{one}", if count == 0 { "" } else { between });
        }
        count += 1;
    }
    match count.saturating_sub(most) {
        0 => text,
        more => format!("{text}{before_rest}{more} more"),
    }
}

/// A number of bytes in decimal units, as programs that pull images print them.
#[must_use]
pub fn size(bytes: u64) -> String {
    const UNITS: [(u64, &str); 3] = [(1_000_000_000, "GB"), (1_000_000, "MB"), (1_000, "kB")];
    match UNITS.iter().find(|(unit, _)| bytes >= *unit) {
        Some((unit, name)) => format!("{}.{} {name}", bytes / unit, bytes % unit * 10 / unit),
        None => format!("{bytes} bytes"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_two_hexadecimal_digits_each() {
        assert_eq!(hex(&[0, 10, 255]), "000aff");
        assert_eq!(hex([0, 10, 255].iter().take(2)), "000a");
        assert_eq!(hex(&[]), "");
    }

    #[test]
    fn a_long_list_ends_with_a_number() {
        for (all, want) in [
            (&[][..], ("", "")),
            (&["a"], ("a", "a")),
            (&["a", "b"], ("a, b", "a; b")),
            (&["a", "b", "c"], ("a, b and 1 more", "a; b; and 1 more")),
            (&["a", "b", "c", "d"], ("a, b and 2 more", "a; b; and 2 more")),
        ] {
            assert_eq!((&*names(all, 2), &*statements(all, 2)), want);
        }
    }

    #[derive(Debug, thiserror::Error)]
    #[error("{0}")]
    struct Link(&'static str, #[source] Option<Box<Link>>);

    #[test]
    fn an_error_lists_each_of_its_causes_once() {
        let chained = |all: &[&'static str]| {
            let link = |below, text: &&'static str| Some(Box::new(Link(text, below)));
            chain(&*all.iter().rev().fold(None, link).unwrap())
        };
        assert_eq!(chained(&["write /etc/a"]), "write /etc/a");
        assert_eq!(chained(&["write /etc/a", "rename", "no space"]), "write /etc/a: rename: no space");
        assert_eq!(chained(&["write /etc/a: no space", "no space"]), "write /etc/a: no space");
        let hidden = Link("Status { object: … }", Some(Box::new(Link("below", None))));
        assert_eq!(chain_with(&hidden, |_| Some(("forbidden".to_owned(), true))), "forbidden");
    }

    #[test]
    fn a_long_text_is_cut_between_characters_and_says_so() {
        for text in ["", "short", "exactly ten", &"ü".repeat(50)] {
            assert_eq!(cut(text, 50), text);
        }
        for unit in ["x", "ü", "語", "🦀", "é\u{301}"] {
            let long = unit.repeat(240_000);
            for most in [40, 1000, 2000] {
                let short = cut(&long, most);
                assert_eq!(short.chars().count(), most, "{unit}");
                let count = long.chars().count();
                assert!(short.ends_with(&format!("… (cut: {count} characters)")), "{short}");
                assert_eq!(cut(&short, most), short, "a text that was cut is not cut again");
            }
        }
    }
}
