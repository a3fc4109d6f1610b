//! The cluster's status, shown again and again, until all pools are updated if that is asked for: what `mco status` prints, and when
//! and how it ends. A pool counts as updated when its nodes are, and nothing that is not rendered yet will give it another config.
//!
//! What it is not: the watches (see `follow`), or the printing.

use crate::change::rendering::RenderWith;
use crate::change::unrendered::unrendered;
use crate::objects::lists::{ListError, Listed, for_rendering};
use crate::status::Snapshot;
use crate::status::follow::ClusterWatch;
use crate::status::watch_errors::FollowError;
use api::v1::ControllerConfig;
use client::{Backoff, chain};
use futures::FutureExt as _;
use futures::future::BoxFuture;
use kube::Client;
use render::TemplateSet;
use std::collections::BTreeSet;
use std::time::Duration;
use tokio::time::Instant;

/// The wait before an API server that did not answer is asked again.
const AGAIN: Backoff = Backoff { first: Duration::from_millis(500), last: Duration::from_secs(10) };

/// The wait before the API server is asked again what is rendered, after an answer that the controller has not rendered everything. It
/// ends earlier when MachineConfigs change, or the names of the pools' configs, but not before the first wait is over: each answer is
/// all MachineConfigs with their contents.
const RENDERING: Backoff = Backoff { first: Duration::from_secs(1), last: Duration::from_secs(30) };

/// How long a view waits for what is rendered when it begins to ask for it. After that it is shown without.
const PATIENCE: Duration = Duration::from_secs(2);

/// What is followed, and until when.
#[derive(Debug, Clone, Default)]
pub struct FollowOptions {
    /// The pools that are wanted; empty: all.
    pub pools: Vec<String>,
    /// It ends when these pools are updated, or cannot be until somebody changes something.
    pub until_updated: bool,
    /// It ends then in any case.
    pub end: Option<Instant>,
    /// The ControllerConfig to use if the cluster has none.
    pub controller_config: ControllerConfig,
}

/// How it ends before its time is over.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FollowEnd {
    /// All pools are updated.
    Updated,
    /// A pool cannot get to its config unless a person changes something; why.
    Stuck(String),
}

/// The status at one moment.
#[derive(Debug)]
pub struct StatusView {
    /// Where everything stands.
    pub snapshot: Snapshot,
    /// It ends so now.
    pub end: Option<FollowEnd>,
    /// What is waited for besides what the snapshot shows. Each reason is told once.
    pub waiting: Option<String>,
    /// Optional kinds that may not be listed, and count as absent. Each is told once.
    pub forbidden: Vec<String>,
}

/// The status of a cluster, followed.
pub struct FollowedStatus {
    client: Client,
    options: FollowOptions,
    cluster: ClusterWatch,
    /// Why it is not at its end although all pools shown are updated.
    unrendered: Option<String>,
    /// What was told of that.
    told: Option<String>,
    told_forbidden: BTreeSet<String>,
    /// The API server is being asked what is rendered.
    look: Option<Look>,
    /// How often in a row the API server did not say what is rendered.
    misses: u32,
    /// How often in a row it said that something is not.
    unrendered_answers: u32,
    /// Until when it is not asked again.
    pause: Option<Pause>,
}

/// What a question is about.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Seen {
    /// The pools that the API server is asked for, with their configs.
    pools: Vec<(String, String)>,
    /// See [`ClusterWatch::source_changes`].
    source_changes: u64,
}

/// The time after a question that was not answered, or not with the end.
#[derive(Debug)]
struct Pause {
    /// Why it goes on.
    why: String,
    /// What the question was about.
    seen: Seen,
    /// That has changed since the question.
    changed: bool,
    /// When the API server is asked again if it has.
    if_changed: Instant,
    /// When it is asked again in any case.
    latest: Instant,
}

impl Pause {
    /// One that begins now and lasts this long, or this long if something changes.
    fn begin(why: String, seen: Seen, if_changed: Duration, at_most: Duration) -> Self {
        let now = Instant::now();
        let latest = now + at_most;
        Self { why, seen, changed: false, if_changed: latest.min(now + if_changed), latest }
    }

    /// Takes note of what is seen now.
    fn note(&mut self, seen: &Seen) {
        self.changed |= self.seen != *seen;
    }

    /// When it ends, as far as is known.
    fn end(&self) -> Instant {
        if self.changed { self.if_changed } else { self.latest }
    }
}

/// A question to the API server what is rendered.
struct Look {
    seen: Seen,
    /// Why it goes on by the last answer to the same question. That counts until this one is answered.
    before: Option<String>,
    lists: BoxFuture<'static, Result<Listed, ListError>>,
    /// The answer, when it has come.
    answer: Option<Result<Listed, ListError>>,
}

impl Look {
    fn begin(client: Client, seen: Seen, before: Option<String>) -> Self {
        let lists = async move { for_rendering(&client).await }.boxed();
        Self { seen, before, lists, answer: None }
    }

    /// Waits for the answer. If the caller is dropped meanwhile, nothing is lost.
    async fn answered(&mut self) {
        if self.answer.is_none() {
            self.answer = Some((&mut self.lists).await);
        }
    }
}

impl std::fmt::Debug for FollowedStatus {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("FollowedStatus").field("options", &self.options).finish_non_exhaustive()
    }
}

impl FollowedStatus {
    /// Begins to follow; `None`: the time is over first.
    ///
    /// With `until_updated`, an API server that does not answer is waited for from the first request on: the only control-plane node
    /// may be rebooting into the very config that is waited for. `tell` gets the reason, once.
    ///
    /// # Errors
    /// The API server does not answer, or refuses.
    pub async fn start(
        client: &Client,
        options: FollowOptions,
        mut tell: impl FnMut(&str),
    ) -> Result<Option<Self>, FollowError> {
        let mut misses = 0;
        let cluster = loop {
            let error = match within(options.end, ClusterWatch::start(client)).await {
                None => return Ok(None),
                Some(Ok(cluster)) => break cluster,
                Some(Err(error)) if options.until_updated && error.is_transient() => error,
                Some(Err(error)) => return Err(error),
            };
            if misses == 0 {
                tell(&chain(&error));
            }
            let again = Instant::now() + AGAIN.delay(misses);
            misses += 1;
            if options.end.is_some_and(|end| end <= again) {
                return Ok(None);
            }
            tokio::time::sleep_until(again).await;
        };
        Ok(Some(Self {
            client: client.clone(),
            options,
            cluster,
            unrendered: None,
            told: None,
            told_forbidden: BTreeSet::new(),
            look: None,
            misses: 0,
            unrendered_answers: 0,
            pause: None,
        }))
    }

    /// The status now.
    pub async fn view(&mut self) -> StatusView {
        let snapshot = self.cluster.snapshot(&self.options.pools);
        let pools = snapshot.pools.iter().map(|p| (p.name.clone(), p.config.clone())).collect();
        let seen = Seen { pools, source_changes: self.cluster.source_changes() };
        let now = Instant::now();
        let ended = self.pause.take_if(|pause| {
            pause.note(&seen);
            pause.end() <= now
        });
        let before = ended.filter(|pause| !pause.changed).map(|pause| pause.why);
        self.unrendered = None;
        let mut forbidden = vec![];
        let is_updated = self.options.until_updated && snapshot.is_updated();
        match &self.pause {
            _ if !is_updated => (self.look, self.unrendered_answers) = (None, 0),
            Some(pause) => self.unrendered = Some(pause.why.clone()),
            None => self.look_for_unrendered(seen, before, &mut forbidden).await,
        }
        let end = match &self.unrendered {
            _ if !self.options.until_updated => None,
            Some(_) => None,
            None if is_updated => Some(FollowEnd::Updated),
            None => snapshot.stuck().map(FollowEnd::Stuck),
        };
        let is_new = self.told != self.unrendered && !self.is_over();
        self.told.clone_from(&self.unrendered);
        StatusView { snapshot, end, waiting: self.unrendered.clone().filter(|_| is_new), forbidden }
    }

    /// Whether MachineConfigs are still to be rendered for the pools that are seen. An answer that takes long is not waited for here
    /// (see [`Self::changed`]).
    async fn look_for_unrendered(&mut self, seen: Seen, before: Option<String>, forbidden: &mut Vec<String>) {
        let begun = self.look.take().filter(|look| look.seen.pools == seen.pools);
        let patience = if begun.is_none() { PATIENCE } else { Duration::ZERO };
        let mut look = begun.unwrap_or_else(|| Look::begin(self.client.clone(), seen, before));
        let until = [Some(Instant::now() + patience), self.options.end].into_iter().flatten().min();
        within(until, look.answered()).await;
        let cannot_tell = |error: &ListError| {
            format!("cannot tell whether all MachineConfigs are rendered: {}", chain(error))
        };
        match look.answer.take() {
            Some(Ok(listed)) => {
                let templates = TemplateSet::default();
                let controller_config = &self.options.controller_config;
                let with = RenderWith { templates: &templates, controller_config };
                self.unrendered = unrendered(listed.objects, &look.seen.pools, with);
                self.misses = 0;
                let turn = self.unrendered_answers;
                self.unrendered_answers = turn.saturating_add(1);
                let pause = |why| Pause::begin(why, look.seen, RENDERING.delay(0), RENDERING.delay(turn));
                self.pause = self.unrendered.clone().map(pause);
                let is_new = |kind: &String| self.told_forbidden.insert(kind.clone());
                forbidden.extend(listed.forbidden.into_iter().filter(is_new));
            }
            Some(Err(error)) => {
                let why = cannot_tell(&error);
                self.unrendered = Some(why.clone());
                // Whatever changes.
                let again = AGAIN.delay(self.misses);
                self.pause = Some(Pause::begin(why, look.seen, again, again));
                self.misses = self.misses.saturating_add(1);
            }
            None => {
                let unanswered = || cannot_tell(&ListError::Unanswered);
                self.unrendered = Some(look.before.clone().unwrap_or_else(unanswered));
                self.look = Some(look);
            }
        }
    }

    /// Waits for a change. Returns what is still waited for if the time is over.
    pub async fn changed(&mut self) -> Option<String> {
        let again = self.pause.as_ref().map(Pause::end);
        let until = [self.options.end, again].into_iter().flatten().min();
        let (look, cluster) = (&mut self.look, &mut self.cluster);
        let answered = async {
            match look {
                Some(look) => look.answered().await,
                None => std::future::pending().await,
            }
        };
        let change = async {
            tokio::select! {
                () = cluster.changed() => {}
                () = answered => {}
            }
        };
        within(until, change).await;
        let waits = || self.cluster.snapshot(&self.options.pools).waits_for();
        self.is_over().then(|| self.unrendered.clone().unwrap_or_else(waits))
    }

    fn is_over(&self) -> bool {
        self.options.end.is_some_and(|end| Instant::now() >= end)
    }
}

/// What comes of it until then; `None`: nothing.
async fn within<T>(end: Option<Instant>, work: impl Future<Output = T>) -> Option<T> {
    match end {
        None => Some(work.await),
        Some(end) => tokio::time::timeout_at(end, work).await.ok(),
    }
}

#[cfg(test)]
mod tests;
