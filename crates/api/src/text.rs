//! Texts of others that go into an object: cut to a length that every reader and the API server take, and saying so.
//!
//! What it is not: a rule of what may be shown. Who writes a text sees to it that no secret stands in it.

use std::borrow::Cow;

/// Characters of a Node's [`crate::names::annotation::REASON`]. The reference's limit.
pub const MAX_REASON_CHARS: usize = 2000;
/// Characters of one node's reason in a pool's condition, which names up to ten nodes.
pub const MAX_NODE_WORDS: usize = 1000;
/// Characters of an API server's answer in a condition: its own messages are a few hundred long, but some repeat the
/// object that they refuse.
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

#[cfg(test)]
mod tests {
    use super::*;

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
                assert_eq!(cut(&short, most), short, "it is not cut again");
            }
        }
    }
}
