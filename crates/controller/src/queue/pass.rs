//! A pass as its queue knows it: which passes there are, how far apart they run, and what one of them ended with.
//!
//! What it is not: the queues, or what a pass does (see [`crate::passes`]).

use std::time::Duration;

/// The list of all passes, handed to another macro: what the keys of each pass are, its name, and its module in [`crate::passes`]. The
/// names are made here, and the list of descriptors there.
macro_rules! every_pass {
    ($then:ident) => {
        $then! {
            /// Node patches and pools' statuses. One key, [`ALL_NODES`]: a plan looks at the whole cluster, because a node's pool depends
            /// on all pools.
            Node = nodes;
            /// A pool's rendered config. The key is the pool.
            Render = render;
            /// A node's drain. The key is the node.
            Drain = drain;
            /// MachineConfigs made from templates. One key.
            Templates = templates;
            /// MachineConfigs made from the cluster's settings. One key.
            Generated = generated;
            /// The topology in the ControllerConfig. One key.
            Topology = topology;
            /// Rendered configs that nothing uses any more. The key is the pool.
            Garbage = garbage;
            /// A node's MachineConfigNode. The key is the node.
            MachineConfigNodes = machine_config_nodes;
            /// The builds of a pool's OS image. The key is the pool.
            ImageBuilds = image_builds;
            /// What builds have pushed and nothing names any more. One key.
            OldImages = old_images;
            /// Which PinnedImageSets a pool has. The key is the pool.
            PinnedImages = pinned_images;
            /// What is known of a pool's next OS image. The key is the pool.
            OsImages = os_images;
            /// The status of OSImageStream `cluster`. One key.
            Streams = streams;
        }
    };
}
pub(crate) use every_pass;

macro_rules! names {
    ($($(#[$doc:meta])* $name:ident = $module:ident;)*) => {
        /// The passes.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
        pub(crate) enum Pass {
            $($(#[$doc])* $name,)*
        }
    };
}
every_pass!(names);

/// The only key of [`Pass::Node`].
pub(crate) const ALL_NODES: &str = "cluster";

/// The outcome of a pass over one key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// Nothing is left to do until something changes.
    Done,
    /// It was decided on an old version of an object. Decide again when the new one has arrived.
    Stale,
    /// Run again later, even if nothing changes; the pass has logged why.
    After(Duration),
    /// It failed. Try again after a growing wait.
    Failed(String),
}

/// How far apart passes over one key are while changes keep coming. A key that was quiet for twice the present distance
/// is served at once again.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Spacing {
    pub(crate) first: Duration,
    pub(crate) last: Duration,
    pub(crate) growth: Growth,
}

/// When the distance between passes doubles.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Growth {
    /// With each pass that closely follows another.
    Passes,
    /// With each pass that closely follows another and finds several changes at once; a pass that finds a single change
    /// halves the distance. So a burst is spread out, and somebody who waits for one result before making the next
    /// change is not slowed down.
    Changes,
}

impl Spacing {
    /// A distance that grows with passes.
    pub(crate) const fn millis(first: u64, last: u64) -> Self {
        let (first, last) = (Duration::from_millis(first), Duration::from_millis(last));
        Self { first, last, growth: Growth::Passes }
    }

    /// The distance after a pass that starts now, `since` after the last one, with this many changes to look at.
    pub(super) fn after(self, gap: Duration, since: Option<Duration>, changes: u32) -> Duration {
        match since {
            Some(since) if since < gap.saturating_mul(2) => {
                if self.growth == Growth::Passes || changes > 1 {
                    gap.saturating_mul(2).min(self.last)
                } else {
                    (gap / 2).max(self.first)
                }
            }
            _ => self.first,
        }
    }
}

/// How a queue is worked off.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Work {
    /// Its name in logs and metrics.
    pub(crate) name: &'static str,
    /// How many passes run at once.
    pub(crate) parallel: usize,
    /// See [`Spacing`].
    pub(crate) spacing: Spacing,
}

impl Work {
    /// A queue with one key, whose pass looks at everything of its kind.
    pub(crate) const SINGLE_KEY: Self = Self { name: "", parallel: 1, spacing: Spacing::millis(50, 1000) };
    /// A queue for work that nobody waits for.
    pub(crate) const QUIET: Self = Self { name: "", parallel: 16, spacing: Spacing::millis(50, 5000) };
}
