//! What has to be done so that this node has the images of its PinnedImageSets, and keeps them: pure. The executor (`sync`)
//! makes no choice of its own.
//!
//! The order: pins that go come first, because what they held may make room. Then what is there already is pinned, so that
//! nothing takes it away while other images are pulled. Then the missing images are pulled, in the order of the sets' names, so
//! that one set is complete before the next is begun; each is pinned when it is there.
//!
//! Not here: which sets a pool has (`rollout::pinned_images`), or what is reported (see `report`).

use api::v1::PinnedImageSet;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

/// The kubelet's `imagefs.available` where its configuration names none.
const USUAL_PERCENT: u64 = 15;
/// What stays free in any case, but no more than a hundredth.
const LEAST: u64 = 1 << 30;
/// What pulls leave above that, but no more than a fiftieth: room is looked at every two seconds, and what pulls have fetched
/// stays when they end.
const MARGIN: u64 = 2 << 30;
/// How many images are pulled at once.
const AT_ONCE: usize = 5;
/// A control-plane node has etcd on the same disk.
const AT_ONCE_ON_CONTROL_PLANE: usize = 1;

/// A PinnedImageSet of this node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct PinnedSet {
    /// Its name.
    pub(super) name: String,
    /// Its generation.
    pub(super) generation: i32,
    /// Its images.
    pub(super) images: Vec<String>,
}

impl PinnedSet {
    pub(super) fn of(set: &PinnedImageSet) -> Self {
        Self {
            name: set.metadata.name.clone().unwrap_or_default(),
            generation: set.generation(),
            images: set.spec.pinned_images.iter().map(|image| image.name.trim().to_owned()).collect(),
        }
    }
}

/// What must stay free on the file system of images: where the kubelet begins to evict pods.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Reserve {
    /// A share of its size, in thousandths.
    Share(u64),
    /// Bytes.
    Bytes(u64),
}

impl Reserve {
    /// As the kubelet's configuration (YAML) says, or else its default.
    pub(super) fn of(settings: Option<&str>) -> Self {
        let settings: Option<serde_json::Value> =
            settings.and_then(|text| api::formats::yaml::from_str(text).ok());
        let Some(hard) =
            settings.as_ref().and_then(|s| s.get("evictionHard")).filter(|hard| hard.is_object())
        else {
            return Self::Share(USUAL_PERCENT * 10);
        };
        let named =
            ["imagefs.available", "nodefs.available"].into_iter().find_map(|key| hard.get(key)?.as_str());
        named.and_then(Self::read).unwrap_or(Self::Bytes(0))
    }

    /// A percentage, or a quantity of Kubernetes.
    fn read(text: &str) -> Option<Self> {
        if let Some(percent) = text.strip_suffix('%') {
            let share = percent.trim().parse::<f64>().ok().filter(|p| (0.0..=100.0).contains(p))?;
            return Some(Self::Share((share * 10.0).round() as u64));
        }
        let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
        let (number, unit) = text.split_at(digits);
        let (base, power) = match unit {
            "" => (1_u64, 0),
            "k" => (1000, 1),
            "M" => (1000, 2),
            "G" => (1000, 3),
            "T" => (1000, 4),
            "Ki" => (1024, 1),
            "Mi" => (1024, 2),
            "Gi" => (1024, 3),
            "Ti" => (1024, 4),
            _ => return None,
        };
        Some(Self::Bytes(number.parse::<u64>().ok()?.saturating_mul(base.pow(power))))
    }
}

/// Room on the file system of images, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Space {
    /// What is free.
    pub(super) free: u64,
    /// Its size.
    pub(super) total: u64,
    /// What must stay free.
    pub(super) reserve: Reserve,
}

impl Space {
    fn reserved(self) -> u64 {
        let bytes = match self.reserve {
            Reserve::Share(thousandths) => self.total / 1000 * thousandths,
            Reserve::Bytes(bytes) => bytes,
        };
        // A file system that is full to the last byte breaks more than pods.
        bytes.max(LEAST.min(self.total / 100))
    }

    /// What pulls leave free.
    fn kept(self) -> u64 {
        self.reserved().saturating_add(MARGIN.min(self.total / 50))
    }

    /// Whether nothing more may be written.
    pub(super) fn is_short(self) -> bool {
        self.free < self.kept()
    }

    /// Whether so many bytes more fit.
    fn fits(self, bytes: u64) -> bool {
        self.free.saturating_sub(bytes) >= self.kept()
    }
}

fn gib(bytes: u64) -> f64 {
    bytes as f64 / f64::from(1 << 30)
}

impl fmt::Display for Space {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "storage available is less than minimum required: {:.1} of {:.1} GiB are free, and pulls leave {:.1} GiB, \
             because the kubelet evicts pods below {:.1} GiB; remove images or files, or enlarge the file system",
            gib(self.free),
            gib(self.total),
            gib(self.kept()),
            gib(self.reserved()),
        )
    }
}

/// A layer of an image that is missing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Layer {
    /// Its size as it is pulled.
    pub(super) size: u64,
    /// It was fetched, of another image or before a pull ended.
    pub(super) fetched: bool,
}

/// The bytes that layers take: each as it is pulled, and as much again when it is unpacked.
pub(super) fn needed<'l>(layers: impl IntoIterator<Item = &'l Layer>) -> u64 {
    layers.into_iter().fold(0, |sum: u64, layer| {
        sum.saturating_add(layer.size.saturating_mul(if layer.fetched { 1 } else { 2 }))
    })
}

/// Why nothing is pulled, although something is missing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum PullHold {
    /// The node is not Ready yet, or not any more. That is no failure of the sets.
    NotReady,
    /// The kubelet reports DiskPressure.
    DiskPressure,
    /// There is no room.
    Space(Space),
    /// There is less room than the missing images take.
    Needed {
        /// The room.
        space: Space,
        /// What they take, in bytes.
        needed: u64,
        /// How many are missing.
        images: usize,
    },
}

impl fmt::Display for PullHold {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotReady => write!(f, "the node is not Ready"),
            Self::DiskPressure => {
                write!(f, "the node has DiskPressure; free space on it, then the images are pulled")
            }
            Self::Space(space) => space.fmt(f),
            Self::Needed { space, needed, images } => write!(
                f,
                "storage available is less than minimum required: {images} missing images take about {:.1} GiB, by the sizes \
                 that their registries report; {:.1} of {:.1} GiB are free, and pulls leave {:.1} GiB; nothing is pulled; \
                 remove images or files, or enlarge the file system",
                gib(*needed),
                gib(space.free),
                gib(space.total),
                gib(space.kept()),
            ),
        }
    }
}

/// What is known of the node.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Facts {
    /// The wanted images that the runtime has, and whether it says that they are pinned.
    pub(super) present: BTreeMap<String, bool>,
    /// The images that this agent has pinned.
    pub(super) ours: BTreeSet<String>,
    /// Room for images. `None`: unknown, and then the runtime is left to find out.
    pub(super) space: Option<Space>,
    /// The bytes that missing images take, as far as it is known.
    pub(super) needed: u64,
    /// The node's Ready condition.
    pub(super) ready: bool,
    /// The node's DiskPressure condition.
    pub(super) disk_pressure: bool,
    /// It has the role label of the control plane.
    pub(super) control_plane: bool,
}

/// What is done.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Plan {
    /// Pins that go.
    pub(super) unpin: Vec<String>,
    /// Images that are there, and are to be pinned.
    pub(super) pin: Vec<String>,
    /// Images to pull, and then to pin.
    pub(super) pull: Vec<String>,
    /// Why none is pulled now.
    pub(super) held: Option<PullHold>,
    /// How many are pulled at once.
    pub(super) at_once: usize,
}

impl Plan {
    /// Whether everything is as it should be.
    pub(super) fn is_empty(&self) -> bool {
        self.unpin.is_empty() && self.pin.is_empty() && self.pull.is_empty()
    }
}

/// All images of the sets, each once, in their order.
pub(super) fn images(sets: &[PinnedSet]) -> Vec<String> {
    let mut seen = BTreeSet::new();
    let all = sets.iter().flat_map(|set| &set.images).filter(|image| !image.is_empty());
    all.filter(|image| seen.insert(image.as_str())).cloned().collect()
}

/// What has to be done. `stored`: the name under which the runtime keeps an image.
pub(super) fn plan(sets: &[PinnedSet], facts: &Facts, stored: impl Fn(&str) -> String) -> Plan {
    let wanted = images(sets);
    let kept: BTreeSet<String> = wanted.iter().map(|image| stored(image)).collect();
    let (there, pull): (Vec<_>, Vec<_>) = wanted.into_iter().partition(|i| facts.present.contains_key(i));
    let pin = there.into_iter().filter(|image| {
        // What another program has pinned is pinned; what we have pinned is, even if the runtime does not say so.
        facts.present.get(image) != Some(&true) && !facts.ours.contains(&stored(image))
    });
    let held = match facts.space {
        _ if pull.is_empty() => None,
        _ if !facts.ready => Some(PullHold::NotReady),
        _ if facts.disk_pressure => Some(PullHold::DiskPressure),
        Some(space) if space.is_short() => Some(PullHold::Space(space)),
        Some(space) if !space.fits(facts.needed) => {
            Some(PullHold::Needed { space, needed: facts.needed, images: pull.len() })
        }
        Some(_) | None => None,
    };
    Plan {
        unpin: facts.ours.difference(&kept).cloned().collect(),
        pin: pin.collect(),
        pull,
        held,
        at_once: if facts.control_plane { AT_ONCE_ON_CONTROL_PLANE } else { AT_ONCE },
    }
}

/// CRI-O's list of pinned images, as a file of its configuration. `None`: no file.
pub(super) fn drop_in(sets: &[PinnedSet]) -> Option<String> {
    let mut images = images(sets);
    images.sort_unstable();
    let list: toml::value::Array = images.into_iter().map(toml::Value::String).collect();
    let list = (!list.is_empty()).then_some(toml::Value::Array(list))?;
    Some(format!("[crio.image]\npinned_images = {list}\n"))
}

#[cfg(test)]
mod tests;
