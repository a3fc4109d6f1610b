//! Images that MachineConfigs brought to a host of OSTree, or replaced on it, and that no deployment is made of any more.
//! `ostree container` keeps each image that was ever pulled; bootc and rpm-ostree remove such images themselves.
//!
//! Pure but for the record, which is written before each pull. An image that is not in the record was pulled by somebody else,
//! and stays.
//!
//! Not here: the commands that remove images (see the parent module).
//!
//! Source: <https://docs.rs/ostree-ext/latest/ostree_ext/container/>.

use serde::{Deserialize, Serialize};

use crate::disk::attributes::PRIVATE;
use crate::disk::root::Root;
use crate::paths::OS_IMAGES;
use crate::system::os::OsError;
use crate::system::os::reference::Reference;

/// The record. Images are named with their transport, as commands name them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Images {
    /// Those that were pulled for MachineConfigs, and those that they replaced.
    known: Vec<String>,
    /// The one that was fetched last. A change that comes may need it.
    fetched: String,
    /// A pull was begun, and how it ended is not recorded.
    pulling: bool,
}

impl Images {
    /// The host's record. From one that is damaged nothing is known: all images stay, and no update waits for it.
    ///
    /// # Errors
    /// It cannot be read.
    pub(super) fn read(root: &Root) -> Result<Self, OsError> {
        let Some(text) = root.text(OS_IMAGES)? else { return Ok(Self::default()) };
        Ok(serde_json::from_str(&text).unwrap_or_else(|error| {
            tracing::warn!(%error, "{OS_IMAGES} is damaged: images that nothing needs stay on the host");
            Self::default()
        }))
    }

    /// Writes it, if it is not what is there.
    pub(super) fn write(&self, root: &Root) -> Result<(), OsError> {
        if Self::read(root).is_ok_and(|there| there == *self) {
            return Ok(());
        }
        let json = serde_json::to_vec(self).map_err(|e| OsError::new(e.to_string()))?;
        Ok(root.write_bytes(OS_IMAGES, &json, PRIVATE)?)
    }

    /// Those that were pulled for MachineConfigs, and those that they replaced.
    pub(super) fn known(&self) -> &[String] {
        &self.known
    }

    /// The image that was fetched last. Empty: none was.
    pub(super) fn fetched(&self) -> &str {
        &self.fetched
    }

    /// Whether a pull was begun whose end is not recorded.
    pub(super) fn pulling(&self) -> bool {
        self.pulling
    }

    /// The record when a pull begins, or has ended.
    pub(super) fn with_pulling(self, pulling: bool) -> Self {
        Self { pulling, ..self }
    }

    /// The record with an image that is about to be fetched, on a host that boots `runs`.
    pub(super) fn with(mut self, runs: Option<&str>, to: &str) -> Self {
        for image in runs.into_iter().chain([to]) {
            if !self.known.iter().any(|known| known == image) {
                self.known.push(image.to_owned());
            }
        }
        to.clone_into(&mut self.fetched);
        self
    }

    /// Which images go, on a host with deployments of these. `before`: the one to go back to when no config names an image any
    /// more. It stays, except where there is no room for another image (`short`) and a registry has it.
    pub(super) fn superseded(
        &self,
        deployed: &[String],
        before: Option<&Reference>,
        short: bool,
    ) -> Vec<String> {
        let kept = before.filter(|image| !short || !image.is_of_registry()).map(Reference::place);
        let stays = |image: &&String| {
            deployed.contains(image) || **image == self.fetched || kept.as_ref() == Some(image)
        };
        self.known.iter().filter(|image| !stays(image)).cloned().collect()
    }

    /// The record when these images are gone.
    pub(super) fn without(mut self, gone: &[String]) -> Self {
        self.known.retain(|image| !gone.contains(image));
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(text: &str) -> Vec<String> {
        text.split_whitespace().map(str::to_owned).collect()
    }

    #[test]
    fn only_images_of_machine_configs_that_no_deployment_needs_go() {
        for (about, known, fetched, deployed, gone) in [
            ("nothing is known", "", "", "a b", ""),
            ("booted and previous stay", "a b", "b", "b a", ""),
            ("the one before the previous one goes", "a b c", "c", "c b", "a"),
            ("one that waits for its update stays", "a b c", "c", "b a", ""),
            ("one that was given up goes when another was fetched", "a b c", "c", "a", "b"),
            ("a pinned deployment keeps its image", "a b c", "c", "c b a", ""),
            ("what others pulled stays", "a b", "b", "b x", "a"),
        ] {
            let images = Images { known: words(known), fetched: fetched.to_owned(), pulling: false };
            assert_eq!(images.superseded(&words(deployed), None, false), words(gone), "{about}");
            let left = images.clone().without(&words(gone));
            assert!(left.superseded(&words(deployed), None, false).is_empty(), "{about}");
        }
    }

    #[test]
    fn an_image_is_recorded_before_it_is_fetched_together_with_the_one_that_runs() {
        let dir = tempfile::tempdir().unwrap();
        let root = Root::open(dir.path()).unwrap();
        std::fs::create_dir_all(dir.path().join("var/lib/machine-config-daemon")).unwrap();
        assert_eq!(Images::read(&root).unwrap(), Images::default());
        let first = Images::default().with(Some("a"), "b");
        first.write(&root).unwrap();
        let second = Images::read(&root).unwrap().with(Some("b"), "c");
        assert_eq!(second, Images { known: words("a b c"), fetched: "c".to_owned(), pulling: false });
        let file = dir.path().join(OS_IMAGES.trim_start_matches('/'));
        // Of an agent that knows more.
        std::fs::write(&file, r#"{"known":["a"],"fetched":"a","pulling":false,"later":1}"#).unwrap();
        assert_eq!(Images::read(&root).unwrap(), Images::default().with(None, "a"));
        std::fs::write(&file, "{").unwrap();
        assert_eq!(Images::read(&root).unwrap(), Images::default(), "a damaged one stops no update");
        second.write(&root).unwrap();
        assert_eq!(Images::read(&root).unwrap(), second);
    }

    #[test]
    fn the_image_of_before_stays_unless_there_is_no_room_and_a_registry_has_it() {
        let known = ["oci:/var/os", "registry:q.io/stock:1", "registry:q.io/b"].map(str::to_owned);
        let images = Images { known: known.to_vec(), fetched: "registry:q.io/b".to_owned(), pulling: false };
        for (before, short, gone) in [
            ("ostree-unverified-image:oci:/var/os", false, vec![&known[1]]),
            ("ostree-unverified-image:oci:/var/os", true, vec![&known[1]]),
            ("ostree-unverified-registry:q.io/stock:1", false, vec![&known[0]]),
            ("ostree-unverified-registry:q.io/stock:1", true, vec![&known[0], &known[1]]),
        ] {
            let before = Reference::parse(before);
            assert_eq!(images.superseded(&[], before.as_ref(), short).iter().collect::<Vec<_>>(), gone);
        }
    }
}
