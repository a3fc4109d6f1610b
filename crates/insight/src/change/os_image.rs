//! The OS image that nodes pull for a change, and how large it is. Pure.
//!
//! What it is not: a look into a registry. The controller has looked before the first node goes (see `api::images::os_image`), and until then
//! the size is not known.

use api::formats::text::size;
use api::images::os_image::OsImage;
use api::v1::MachineConfig;
use serde::Serialize;
use std::collections::BTreeMap;
use std::fmt;

/// An OS image that nodes pull.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct PulledImage {
    /// The image, as the config names it.
    pub image: String,
    /// The bytes of its layers. A node pulls those that it does not have. `None`: nobody has looked.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub size: Option<u64>,
}

impl PulledImage {
    /// The image of the new config, if it is another one than that of the old config. `configs`: where the controller notes what it
    /// has found out.
    pub(crate) fn of(
        configs: &BTreeMap<String, MachineConfig>,
        from: Option<&MachineConfig>,
        to: &MachineConfig,
    ) -> Option<Self> {
        let image = &to.spec.os_image_url;
        if image.is_empty() || from.is_some_and(|from| from.spec.os_image_url == *image) {
            return None;
        }
        let looked = [to].into_iter().chain(configs.values());
        let found = looked.filter_map(|config| OsImage::read(config.metadata.annotations.as_ref(), image));
        let size = found.map(|found| found.size).find(|size| *size > 0);
        Some(Self { image: image.clone(), size })
    }
}

impl fmt::Display for PulledImage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { image, size: of_all } = self;
        match of_all {
            Some(bytes) => {
                write!(f, "pulls the OS image {image}: {}, less the layers that a node has", size(*bytes))
            }
            None => write!(
                f,
                "pulls the OS image {image}; its size is not known yet: the controller finds it out before the first node \
                 goes, and `mco image inspect` shows it now"
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use api::names::own;

    fn config(name: &str, image: &str, found: Option<OsImage>) -> MachineConfig {
        let spec = api::v1::MachineConfigSpec { os_image_url: image.to_owned(), ..Default::default() };
        let mut config = MachineConfig::new(name, spec);
        config.metadata.annotations =
            found.map(|found| BTreeMap::from([(own::OS_IMAGE.to_owned(), found.text())]));
        config
    }

    #[test]
    fn what_is_pulled_is_named_with_its_size_as_far_as_anybody_has_looked() {
        let found = |of: &str, size| Some(OsImage { of: of.to_owned(), size, ..OsImage::default() });
        let old = config("old", "q.io/os:1", None);
        for (about, to, elsewhere, want) in [
            ("the same image", config("new", "q.io/os:1", found("q.io/os:1", 5)), None, None),
            ("none", config("new", "", None), None, None),
            (
                "known",
                config("new", "q.io/os:2", found("q.io/os:2", 1_230_000_000)),
                None,
                Some("pulls the OS image q.io/os:2: 1.2 GB, less the layers that a node has"),
            ),
            (
                "known from another config",
                config("new", "q.io/os:2", None),
                found("q.io/os:2", 40_000_000),
                Some("pulls the OS image q.io/os:2: 40.0 MB, less the layers that a node has"),
            ),
            (
                "of another image",
                config("new", "q.io/os:2", found("q.io/os:1", 5)),
                found("q.io/os:2", 0),
                Some("pulls the OS image q.io/os:2; its size is not known"),
            ),
        ] {
            let other = config("other", "q.io/os:2", elsewhere);
            let configs = BTreeMap::from([("other".to_owned(), other), ("old".to_owned(), old.clone())]);
            let got = PulledImage::of(&configs, Some(&old), &to).map(|pulled| pulled.to_string());
            assert_eq!(got.is_some(), want.is_some(), "{about}: {got:?}");
            assert!(got.unwrap_or_default().starts_with(want.unwrap_or_default()), "{about}");
        }
        assert!(PulledImage::of(&BTreeMap::new(), None, &old).is_some(), "a pool's first config");
    }
}
