//! Images that are on the nodes before they are needed: what the controller asks of an agent, and what that answers, as the
//! texts of [`PREFETCH`](crate::names::own::PREFETCH) and [`PREFETCHED`](crate::names::own::PREFETCHED) on a Node.
//!
//! ```text
//! 2 rendered-worker-1 q.io/os@sha256:ab            the second try for this config and this image
//! 2 rendered-worker-1 q.io/os@sha256:ab; no route  it failed
//! ```
//!
//! What it is not: which node is asked when (see `rollout`), or the fetch (see `daemon`).

use std::fmt;

/// The separator before the reason of a failure. Neither names of objects nor images contain it.
const FAILED: &str = "; ";

/// What an agent is asked to fetch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request<'a> {
    /// Which try it is, from 1.
    pub attempt: u32,
    /// The rendered MachineConfig whose OS image is fetched.
    pub config: &'a str,
    /// The image that the pool has instead of the config's. Empty: none.
    pub image: &'a str,
}

impl<'a> Request<'a> {
    /// Reads the text. `None`: it is of another form.
    pub fn parse(text: &'a str) -> Option<Self> {
        let mut words = text.split(' ');
        let (attempt, config) = (words.next()?.parse().ok()?, words.next().filter(|c| !c.is_empty())?);
        let image = words.next().unwrap_or_default();
        words.next().is_none().then_some(Self { attempt, config, image })
    }

    /// Whether it is about this config and this image.
    pub fn is_for(&self, config: &str, image: Option<&str>) -> bool {
        self.config == config && self.image == image.unwrap_or_default()
    }
}

impl fmt::Display for Request<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.attempt, self.config)?;
        if self.image.is_empty() { Ok(()) } else { write!(f, " {}", self.image) }
    }
}

/// What the agent answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Answer<'a> {
    /// The request that it answers.
    pub request: Request<'a>,
    /// Why the image is not on the node. `None`: it is.
    pub failed: Option<&'a str>,
}

impl<'a> Answer<'a> {
    /// Reads the text. `None`: it is of another form.
    pub fn parse(text: &'a str) -> Option<Self> {
        let (request, failed) = match text.split_once(FAILED) {
            Some((request, why)) => (request, Some(why)),
            None => (text, None),
        };
        Some(Self { request: Request::parse(request)?, failed })
    }
}

impl fmt::Display for Answer<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.request)?;
        self.failed.map_or(Ok(()), |why| write!(f, "{FAILED}{why}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_again_and_nothing_else_is() {
        for (text, config, image, failed) in [
            ("1 rendered-worker-1", "rendered-worker-1", "", None),
            ("2 rendered-worker-1 q.io/os@sha256:ab", "rendered-worker-1", "q.io/os@sha256:ab", None),
            ("3 r; no route; try again", "r", "", Some("no route; try again")),
            ("3 r q.io/os; ", "r", "q.io/os", Some("")),
        ] {
            let answer = Answer::parse(text).unwrap();
            assert_eq!((answer.request.config, answer.request.image, answer.failed), (config, image, failed));
            assert_eq!(answer.to_string(), text);
            assert!(answer.request.is_for(config, Some(image).filter(|i| !i.is_empty())));
            assert!(!answer.request.is_for(config, Some("other")) && !answer.request.is_for("other", None));
        }
        for bad in ["", "r", "1", "1 ", "x r", "-1 r", "1 r i more", "1  r i j; why"] {
            assert_eq!(Answer::parse(bad), None, "{bad:?}");
        }
    }
}
