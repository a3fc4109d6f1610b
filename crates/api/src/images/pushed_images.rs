//! What parts besides the controller read in the list of pushed images ([`crate::names::PUSHED_IMAGES`]): the Secret that each was
//! pushed with.
//!
//! What it is not: the entries themselves, which the controller writes and reads as a whole (`build::pushed`).

use serde::Deserialize;

/// An entry, without what only the controller needs.
#[derive(Deserialize)]
struct Entry {
    secret: String,
}

/// The Secret that an entry of the list was pushed with. `None`: it is no entry, or names none.
pub fn secret_of(entry: &str) -> Option<String> {
    let Entry { secret } = serde_json::from_str(entry).ok()?;
    (!secret.is_empty()).then_some(secret)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_entry_names_no_secret() {
        for (text, want) in [
            (r#"{"what":{"layers":{"repository":"r/x"}},"secret":"push","pool":"p"}"#, Some("push")),
            (r#"{"secret":""}"#, None),
            (r#"{"secret":1}"#, None),
            ("{}", None),
            ("push", None),
        ] {
            assert_eq!(secret_of(text).as_deref(), want, "{text}");
        }
    }
}
