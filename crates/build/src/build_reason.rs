//! The reasons of a build's conditions that are more than the name of the state: code reads them back.
//!
//! What it is not: the reasons that go with each state (see `state`), or the message for people.

/// Why a build is in its state.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum BuildReason {
    /// It was interrupted by a newer build. It may begin again.
    Superseded,
    /// It stands for an image from elsewhere.
    Seeded,
    /// It failed because its registry did not take the image.
    NotPushed,
}

impl BuildReason {
    /// All of them.
    pub(crate) const ALL: [Self; 3] = [Self::Superseded, Self::Seeded, Self::NotPushed];

    /// The reason as it is in the condition.
    pub(crate) const fn text(self) -> &'static str {
        match self {
            Self::Superseded => "Superseded",
            Self::Seeded => "PreBuiltImageSeeded",
            Self::NotPushed => "ImageNotPushed",
        }
    }

    /// The reason that a condition has. `None`: the one that goes with its state, or one of another implementation.
    pub(crate) fn parse(reason: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|known| known.text() == reason)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reason_is_read_as_it_is_written() {
        let words = ["Superseded", "PreBuiltImageSeeded", "ImageNotPushed"];
        assert_eq!(BuildReason::ALL.map(BuildReason::text), words);
        for reason in BuildReason::ALL {
            assert_eq!(BuildReason::parse(reason.text()), Some(reason));
        }
        for other in ["", "Interrupted", "Failed", "Ready", "superseded"] {
            assert_eq!(BuildReason::parse(other), None, "{other:?}");
        }
    }
}
