//! Whether the API server's CA is being rotated, as the annotation
//! [`SERVICE_CA_ROTATE`](crate::names::annotation::SERVICE_CA_ROTATE) of the ControllerConfig says it.
//!
//! Not here: when it says so (see `operator`), or what agents do then (see `daemon`).

/// The annotation's value while the CA is being rotated.
const YES: &str = "true";
/// The value at other times.
const NO: &str = "false";

/// The annotation's value. `rotating`: the CA is being rotated.
pub const fn text(rotating: bool) -> &'static str {
    if rotating { YES } else { NO }
}

/// Whether a value says that the CA is being rotated. `None`: it says neither; there is no annotation, or it is another word.
pub fn parse(value: &str) -> Option<bool> {
    [true, false].into_iter().find(|rotating| text(*rotating) == value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_is_read_as_it_is_written_and_no_other_word_counts() {
        for (value, want) in [
            ("true", Some(true)),
            ("false", Some(false)),
            ("", None),
            ("True", None),
            ("yes", None),
            (" true", None),
        ] {
            assert_eq!(parse(value), want, "{value:?}");
        }
        assert_eq!((text(true), text(false)), ("true", "false"));
    }
}
