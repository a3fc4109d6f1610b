//! Metrics of image builds and of the images' rollouts, under the names of the reference, so that its alerts and dashboards
//! work. Every label has few values: a pool, and a word of a fixed list.
//!
//! What it is not: what they are made from (see `build::BuildCounts`). What only the builder's pod knows is not here: it
//! has no way to say that it is pushing, or how long that took.

use super::labels::{Pool, PoolState};
use build::{BuildCounts, BuildObservation, CurrentBuild, PushResult, State};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;
use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, PoisonError};

/// The states of a build, as the reference names them.
const BUILD_STATES: [(&str, &[State]); 5] = [
    ("pending", &[State::Initial, State::Prepared]),
    ("building", &[State::Building]),
    ("succeeded", &[State::Succeeded]),
    ("failed", &[State::Failed]),
    ("interrupted", &[State::Interrupted]),
];
/// The states of a Job.
const JOB_STATES: [(&str, &[State]); 3] = [
    ("active", &[State::Prepared, State::Building]),
    ("succeeded", &[State::Succeeded]),
    ("failed", &[State::Failed]),
];
/// What became of an image at the registry.
const PUSH_STATES: [(&str, PushResult); 2] =
    [("succeeded", PushResult::Succeeded), ("failed", PushResult::Failed)];

type Histograms<L> = Family<L, Histogram, fn() -> Histogram>;

/// The reference's buckets: from a minute to an hour.
fn durations() -> Histogram {
    Histogram::new([60.0, 180.0, 300.0, 600.0, 900.0, 1200.0, 1800.0, 2400.0, 3000.0, 3600.0])
}

/// The reference's buckets: from five seconds to ten minutes.
fn queue_durations() -> Histogram {
    Histogram::new([5.0, 15.0, 30.0, 60.0, 120.0, 300.0, 600.0])
}

/// What was seen of a pool the last time, so that a change is counted once.
#[derive(Debug, Clone, Default)]
struct Seen {
    rendered: String,
    retries: BTreeMap<String, u64>,
}

/// The nodes of a pool with an image of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ImageNodes {
    /// All.
    pub(crate) total: i64,
    /// Those that are in the pool's config and image.
    pub(crate) updated: i64,
    /// Those that run an image that was built here.
    pub(crate) layered: i64,
}

/// All metrics of image builds.
#[derive(Debug, Clone)]
pub(crate) struct ImageMetrics {
    build_state: Family<PoolState, Gauge>,
    build_duration: Histograms<PoolState>,
    build_start: Family<Pool, Gauge>,
    build_end: Family<PoolState, Gauge>,
    builds: Family<PoolState, Counter>,
    job_state: Family<PoolState, Gauge>,
    config_changes: Family<Pool, Counter>,
    retries: Family<Pool, Counter>,
    layered_nodes: Family<Pool, Gauge>,
    updated_nodes: Family<Pool, Gauge>,
    total_nodes: Family<Pool, Gauge>,
    active_builds: Family<Pool, Gauge>,
    push_state: Family<PoolState, Gauge>,
    pushes: Family<PoolState, Counter>,
    queue_duration: Histograms<Pool>,
    os_configs: Gauge,
    seen: Arc<Mutex<HashMap<String, Seen>>>,
}

impl ImageMetrics {
    /// Creates and registers them.
    pub(crate) fn new(registry: &mut Registry) -> Self {
        let m = Self {
            build_state: Family::default(),
            build_duration: Family::new_with_constructor(durations as fn() -> Histogram),
            build_start: Family::default(),
            build_end: Family::default(),
            builds: Family::default(),
            job_state: Family::default(),
            config_changes: Family::default(),
            retries: Family::default(),
            layered_nodes: Family::default(),
            updated_nodes: Family::default(),
            total_nodes: Family::default(),
            active_builds: Family::default(),
            push_state: Family::default(),
            pushes: Family::default(),
            queue_duration: Family::new_with_constructor(queue_durations as fn() -> Histogram),
            os_configs: Gauge::default(),
            seen: Arc::default(),
        };
        let r = registry;
        r.register("ocl_build_state", "1 for the state of a pool's image build", m.build_state.clone());
        r.register(
            "ocl_build_duration_seconds",
            "How long Jobs of image builds took",
            m.build_duration.clone(),
        );
        r.register(
            "ocl_build_start_timestamp_seconds",
            "Unix time at which a pool's image build began",
            m.build_start.clone(),
        );
        r.register(
            "ocl_build_end_timestamp_seconds",
            "Unix time at which a pool's image build ended",
            m.build_end.clone(),
        );
        r.register("ocl_build", "Image builds by their final state", m.builds.clone());
        r.register(
            "ocl_build_job_state",
            "1 for the state of the Job of a pool's image build",
            m.job_state.clone(),
        );
        r.register(
            "ocl_config_change",
            "New rendered configs of pools whose image is built here",
            m.config_changes.clone(),
        );
        r.register(
            "ocl_build_retries",
            "Pods of image builds that were started after a failed one",
            m.retries.clone(),
        );
        r.register(
            "ocl_layered_nodes_count",
            "Nodes of a pool that run an image that was built here",
            m.layered_nodes.clone(),
        );
        r.register(
            "ocl_rollout_updated_nodes",
            "Nodes of a pool whose image is built here that are in its config and image",
            m.updated_nodes.clone(),
        );
        r.register(
            "ocl_rollout_total_nodes",
            "Nodes of a pool whose image is built here",
            m.total_nodes.clone(),
        );
        r.register(
            "ocl_active_builds",
            "Image builds of a pool that have begun and not ended",
            m.active_builds.clone(),
        );
        r.register(
            "ocl_image_push_state",
            "1 for the outcome of the last push of a pool's image to its registry",
            m.push_state.clone(),
        );
        r.register("ocl_image_push", "Pushes of images by their outcome", m.pushes.clone());
        r.register(
            "ocl_build_queue_duration_seconds",
            "How long image builds waited for their Job to start",
            m.queue_duration.clone(),
        );
        r.register("mco_mosc_count", "MachineOSConfigs in the cluster", m.os_configs.clone());
        m
    }

    /// Sets how many MachineOSConfigs there are.
    pub(crate) fn count_configs(&self, count: usize) {
        self.os_configs.set(i64::try_from(count).unwrap_or(i64::MAX));
    }

    /// Sets what is known of a pool's builds. `rendered`: the config that the pool names.
    pub(crate) fn observe(&self, pool: &str, rendered: &str, counts: &BuildCounts) {
        let BuildCounts { current, active, retries } = counts;
        let of_pool = Pool { pool: pool.to_owned() };
        self.active_builds.get_or_create(&of_pool).set(*active);
        self.set_current(pool, current.as_ref());
        // An increase is seen from the first one on only if the series was there before.
        for (state, _) in &BUILD_STATES[2..] {
            drop(self.builds.get_or_create(&in_state(pool, state)));
        }
        for (state, _) in PUSH_STATES {
            drop(self.pushes.get_or_create(&in_state(pool, state)));
        }
        let mut all = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        let new = Seen { rendered: rendered.to_owned(), retries: retries.clone() };
        let old = all.insert(pool.to_owned(), new.clone());
        drop(all);
        // A leader that begins does not know what its predecessor has counted.
        let old = old.unwrap_or(new);
        let changed = !rendered.is_empty() && old.rendered != rendered;
        self.config_changes.get_or_create(&of_pool).inc_by(u64::from(changed));
        let more = retries.iter().map(|(job, now)| {
            let before = old.retries.get(job).copied().unwrap_or(0);
            now.saturating_sub(before)
        });
        self.retries.get_or_create(&of_pool).inc_by(more.sum());
    }

    fn set_current(&self, pool: &str, current: Option<&CurrentBuild>) {
        let of_pool = Pool { pool: pool.to_owned() };
        for (name, states) in BUILD_STATES {
            let build = current.filter(|c| states.contains(&c.state));
            let labels = in_state(pool, name);
            self.build_state.get_or_create(&labels).set(build.is_some().into());
            set_or_remove(
                &self.build_end,
                &labels,
                build.and_then(|c| c.end.as_ref()).map(|t| t.0.as_second()),
            );
        }
        let start = current.and_then(|c| c.start.as_ref()).map(|t| t.0.as_second());
        set_or_remove(&self.build_start, &of_pool, start);
        for (name, states) in JOB_STATES {
            let is_in_state = current.and_then(|c| c.job).is_some_and(|job| states.contains(&job));
            self.job_state.get_or_create(&in_state(pool, name)).set(is_in_state.into());
        }
        for (name, push) in PUSH_STATES {
            let is_in_state = current.is_some_and(|c| c.push == Some(push));
            self.push_state.get_or_create(&in_state(pool, name)).set(is_in_state.into());
        }
    }

    /// Counts what a new status of one of a pool's builds adds.
    pub(crate) fn count(&self, pool: &str, observation: &BuildObservation) {
        let BuildObservation { ended, queued, lasted, push } = observation;
        if let Some(seconds) = queued {
            self.queue_duration.get_or_create(&Pool { pool: pool.to_owned() }).observe(*seconds);
        }
        if let Some((name, _)) =
            ended.and_then(|state| BUILD_STATES.iter().find(|(_, all)| all.contains(&state)))
        {
            let labels = in_state(pool, name);
            self.builds.get_or_create(&labels).inc();
            if let Some(seconds) = lasted {
                self.build_duration.get_or_create(&labels).observe(*seconds);
            }
        }
        if let Some((name, _)) = push.and_then(|push| PUSH_STATES.iter().find(|(_, p)| *p == push)) {
            self.pushes.get_or_create(&in_state(pool, name)).inc();
        }
    }

    /// Sets how far an image is on its pool's nodes; `None`: the pool has no image of its own.
    pub(crate) fn nodes(&self, pool: &str, nodes: Option<ImageNodes>) {
        let of_pool = Pool { pool: pool.to_owned() };
        for (family, value) in [
            (&self.total_nodes, nodes.map(|n| n.total)),
            (&self.updated_nodes, nodes.map(|n| n.updated)),
            (&self.layered_nodes, nodes.map(|n| n.layered)),
        ] {
            set_or_remove(family, &of_pool, value);
        }
    }

    /// Removes what is said of a pool's builds: it has none any more.
    pub(crate) fn forget_builds(&self, pool: &str) {
        let of_pool = Pool { pool: pool.to_owned() };
        self.build_start.remove(&of_pool);
        self.active_builds.remove(&of_pool);
        self.config_changes.remove(&of_pool);
        self.retries.remove(&of_pool);
        self.queue_duration.remove(&of_pool);
        for (state, _) in BUILD_STATES {
            let labels = in_state(pool, state);
            self.build_state.remove(&labels);
            self.build_end.remove(&labels);
            self.build_duration.remove(&labels);
            self.builds.remove(&labels);
        }
        for (state, _) in JOB_STATES {
            self.job_state.remove(&in_state(pool, state));
        }
        for (state, _) in PUSH_STATES {
            self.push_state.remove(&in_state(pool, state));
            self.pushes.remove(&in_state(pool, state));
        }
        self.seen.lock().unwrap_or_else(PoisonError::into_inner).remove(pool);
    }

    /// Clears what this process reported when it stops leading. Counters stay.
    pub(crate) fn clear_for_standby(&self) {
        for family in [&self.build_state, &self.build_end, &self.job_state, &self.push_state] {
            family.clear();
        }
        for family in [
            &self.build_start,
            &self.active_builds,
            &self.total_nodes,
            &self.updated_nodes,
            &self.layered_nodes,
        ] {
            family.clear();
        }
        self.os_configs.set(0);
        self.seen.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }

    /// One series of each.
    pub(super) fn sample(&self) {
        let current = CurrentBuild {
            state: State::Succeeded,
            start: Some(crate::io::clock::now()),
            end: Some(crate::io::clock::now()),
            job: Some(State::Succeeded),
            push: Some(PushResult::Succeeded),
        };
        self.observe("", "", &BuildCounts { current: Some(current), ..BuildCounts::default() });
        self.nodes("", Some(ImageNodes { total: 0, updated: 0, layered: 0 }));
        let ended = Some(State::Succeeded);
        self.count(
            "",
            &BuildObservation {
                ended,
                queued: Some(1.0),
                lasted: Some(1.0),
                push: Some(PushResult::Succeeded),
            },
        );
    }
}

fn in_state(pool: &str, state: &str) -> PoolState {
    PoolState { pool: pool.to_owned(), state: state.to_owned() }
}

fn set_or_remove<L>(family: &Family<L, Gauge>, labels: &L, value: Option<i64>)
where
    L: Clone + std::hash::Hash + Eq,
{
    match value {
        Some(value) => {
            family.get_or_create(labels).set(value);
        }
        None => {
            family.remove(labels);
        }
    }
}

#[cfg(test)]
mod tests;
