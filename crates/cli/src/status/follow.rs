//! Pools and nodes as the cluster has them now, kept up by watches: what `mco status` plans over, trimmed as in the
//! controller, so that thousands of nodes cost little here and one request of each kind at the API server.
//!
//! What it is not: the controller's caches. It writes nothing, and ends with its command.

use super::{Snapshot, from_plan};
use anyhow::{Context, bail};
use api::k8s::{Node, Time};
use api::names;
use api::v1::{ControllerConfig, MachineConfig, MachineConfigPool};
use futures::{Stream, StreamExt};
use kube::core::PartialObjectMeta;
use kube::runtime::WatchStreamExt;
use kube::runtime::watcher::{self, Event, watcher};
use kube::{Api, Client, ResourceExt};
use rollout::view::{Names, NodeView};
use rollout::{Facts, Inputs, PoolInput};
use std::collections::BTreeMap;
use std::pin::Pin;
use std::time::Duration;
use tokio::time::Instant;

/// An API server that needs longer for the first lists is as good as away.
const FIRST_LISTS: Duration = Duration::from_secs(30);
/// Changes are gathered for this long before they are shown: as fast as an eye follows.
const REDRAW: Duration = Duration::from_millis(250);

/// Fewer strings than these are not worth a look for unused ones.
const MANY_NAMES: usize = 10_000;

/// One kind: what is known, and the list that is coming in.
struct Kind<T> {
    known: BTreeMap<String, T>,
    coming: BTreeMap<String, T>,
    listed: bool,
}

impl<T> Kind<T> {
    fn new() -> Self {
        Self { known: BTreeMap::new(), coming: BTreeMap::new(), listed: false }
    }

    fn take<K: ResourceExt>(&mut self, event: Event<K>, keep: impl FnOnce(&K) -> T) {
        match event {
            Event::Init => self.coming.clear(),
            Event::InitApply(object) => {
                self.coming.insert(object.name_any(), keep(&object));
            }
            Event::InitDone => {
                self.known = std::mem::take(&mut self.coming);
                self.listed = true;
            }
            Event::Apply(object) => {
                self.known.insert(object.name_any(), keep(&object));
            }
            Event::Delete(object) => {
                self.known.remove(&object.name_any());
            }
        }
    }
}

/// What one of the watches brought.
#[allow(clippy::large_enum_variant, reason = "it lives for a moment, and one at a time")]
enum Seen {
    Pool(Event<MachineConfigPool>),
    Node(Event<Node>),
    Config(Event<PartialObjectMeta<MachineConfig>>),
}

/// The cluster, followed.
pub struct Followed {
    seen: Pin<Box<dyn Stream<Item = Result<Seen, watcher::Error>> + Send>>,
    pools: Kind<MachineConfigPool>,
    nodes: Kind<NodeView>,
    configs: Kind<()>,
    names: Names,
    /// Strings that nobody holds any more are thrown away when there are so many.
    prune_at: usize,
    facts: Facts,
}

impl std::fmt::Debug for Followed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Followed").field("nodes", &self.nodes.known.len()).finish_non_exhaustive()
    }
}

impl Followed {
    /// Begins; returns when everything was listed once.
    ///
    /// # Errors
    /// An API server that does not answer, or refuses.
    pub async fn start(client: &Client) -> anyhow::Result<Self> {
        let begin = async {
            let config = Api::<ControllerConfig>::all(client.clone()).get(names::CONTROLLER_CONFIG).await;
            let config = match config {
                Ok(config) => Some(config),
                Err(kube::Error::Api(e)) if e.code == 404 => None,
                Err(e) => return Err(e).context("cannot read the ControllerConfig"),
            };
            let topology = config.as_ref().map(|c| c.spec.control_plane_topology()).unwrap_or_default();
            let mut me = Self {
                seen: streams(client),
                pools: Kind::new(),
                nodes: Kind::new(),
                configs: Kind::new(),
                names: Names::default(),
                prune_at: MANY_NAMES,
                facts: Facts { control_plane_topology: topology.into(), ..Facts::default() },
            };
            while !(me.pools.listed && me.nodes.listed && me.configs.listed) {
                match me.seen.next().await {
                    Some(Ok(seen)) => me.take(seen),
                    Some(Err(e)) => return Err(refused(e)),
                    None => bail!("the watches ended"),
                }
            }
            Ok(me)
        };
        let late = |_| {
            let seconds = FIRST_LISTS.as_secs();
            anyhow::anyhow!(
                "no answer from the API server within {seconds} s; is the kubeconfig the right one?"
            )
        };
        tokio::time::timeout(FIRST_LISTS, begin).await.map_err(late)?
    }

    /// Waits for changes, and a moment more for those that come with them. A watch that fails is begun again; what is
    /// known stays, and the trouble is logged once.
    pub async fn changed(&mut self) {
        let mut end: Option<Instant> = None;
        let mut told = false;
        loop {
            let seen = match end {
                None => self.seen.next().await,
                Some(end) => match tokio::time::timeout_at(end, self.seen.next()).await {
                    Ok(seen) => seen,
                    Err(_) => return,
                },
            };
            match seen {
                Some(Ok(seen)) => {
                    self.take(seen);
                    end = end.or_else(|| Some(Instant::now() + REDRAW));
                }
                Some(Err(error)) => {
                    if !std::mem::replace(&mut told, true) {
                        tracing::warn!("what is shown may be old; asking the API server again: {error}");
                    }
                }
                // Watches do not end.
                None => return,
            }
        }
    }

    fn take(&mut self, seen: Seen) {
        match seen {
            Seen::Pool(event) => self.pools.take(event, Clone::clone),
            Seen::Node(event) => self.nodes.take(event, |n| NodeView::interned(n, &mut self.names)),
            Seen::Config(event) => self.configs.take(event, |_| ()),
        }
        if self.names.len() >= self.prune_at {
            self.names.prune();
            self.prune_at = self.names.len().saturating_mul(2).max(MANY_NAMES);
        }
    }

    /// Where everything stands.
    pub fn snapshot(&self, only: &[String]) -> Snapshot {
        let pool = |pool| {
            let input = PoolInput::of(pool);
            let config_exists = self.configs.known.contains_key(&pool.spec.configuration.name);
            PoolInput { config_exists, ..input }
        };
        let plan = rollout::plan(&Inputs {
            pools: self.pools.known.values().map(pool).collect(),
            nodes: self.nodes.known.values().collect(),
            facts: &self.facts,
            now: Time(jiff::Timestamp::now()),
        });
        from_plan(&plan, &self.pools.known, &self.nodes.known, only)
    }
}

fn streams(client: &Client) -> Pin<Box<dyn Stream<Item = Result<Seen, watcher::Error>> + Send>> {
    let how = watcher::Config::default;
    let pools = watcher(Api::<MachineConfigPool>::all(client.clone()), how()).default_backoff();
    let nodes = watcher(Api::<Node>::all(client.clone()), how()).default_backoff();
    let configs =
        watcher(Api::<PartialObjectMeta<MachineConfig>>::all(client.clone()), how()).default_backoff();
    Box::pin(futures::stream::select_all([
        pools.map(|e| e.map(Seen::Pool)).boxed(),
        nodes.map(|e| e.map(Seen::Node)).boxed(),
        configs.map(|e| e.map(Seen::Config)).boxed(),
    ]))
}

fn refused(error: watcher::Error) -> anyhow::Error {
    let absent = matches!(
        &error,
        watcher::Error::InitialListFailed(kube::Error::Api(status)) if status.code == 404
    );
    let error = anyhow::Error::new(error);
    match absent {
        true => error.context("the cluster does not serve our kinds; `mco install` puts them there"),
        false => error.context("cannot list pools, nodes and MachineConfigs"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_new_list_does_not_have_is_gone_and_what_was_known_stays_until_the_list_is_whole() {
        let pool = |name: &str| MachineConfigPool::new(name, Default::default());
        let mut kind = Kind::new();
        let mut steps: Vec<(Event<MachineConfigPool>, &[&str])> = vec![
            (Event::Init, &[]),
            (Event::InitApply(pool("a")), &[]),
            (Event::InitApply(pool("b")), &[]),
            (Event::InitDone, &["a", "b"]),
            (Event::Apply(pool("c")), &["a", "b", "c"]),
            (Event::Delete(pool("a")), &["b", "c"]),
            (Event::Init, &["b", "c"]),
            (Event::InitApply(pool("c")), &["b", "c"]),
            (Event::InitDone, &["c"]),
        ];
        for (n, (event, want)) in steps.drain(..).enumerate() {
            kind.take(event, |_| ());
            assert_eq!(kind.known.keys().collect::<Vec<_>>(), want, "step {n}");
        }
    }
}
