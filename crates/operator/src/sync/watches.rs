//! The watches of a term: what they say, which of them do not work, and how long a pass waits for them.
//!
//! A watch that does not work is retried for ever, and tells of nothing meanwhile. When that has lasted for [`BLIND`], it is said, and
//! passes look for changes as often.
//!
//! What it is not: which objects are watched (see `followed`), or the stream of one watch (see [`client::watch_with_starts`]).

use api::formats::text::statements;
use client::{Backoff, chain, is_answer, watch_is_expired, watch_with_starts};
use futures::stream::{BoxStream, SelectAll};
use futures::{FutureExt as _, StreamExt as _};
use kube::runtime::watcher::{self, Event};
use kube::{Api, Client, Resource};
use serde::de::DeserializeOwned;
use std::collections::BTreeMap;
use std::fmt::Debug;
use std::time::Duration;
use tokio::time::Instant;

/// The waits between tries of a watch that fails. A kind that is served again is watched after the last one at the latest.
pub(super) const WATCH: Backoff =
    Backoff { first: Duration::from_millis(500), last: Duration::from_secs(10) };
/// How long a watch may not work before that is said, and how often a pass is made from then on.
const BLIND: Duration = Duration::from_mins(1);
/// How long a watch that was not listened to, because a pass was made, has to say that it works.
const HEARD: Duration = Duration::from_secs(5);
/// How many of the watches that do not work are named.
const SHOWN: usize = 3;

/// What a watch says.
#[derive(Debug, PartialEq, Eq)]
enum Said {
    /// The objects were listed. A change may have come before that, and none is seen until the watch works.
    Listed,
    /// An object has changed.
    Changed,
    /// The API server has accepted the watch.
    Works,
    /// It does not work, and why.
    Fails(String),
}

impl Said {
    /// `None`: nothing of interest. The begin of a list comes before the API server is asked, and a version that is too old is its
    /// ordinary way to ask for a new list.
    fn of<K>(event: watcher::Result<Option<Event<K>>>) -> Option<Self> {
        match event {
            Ok(None) => Some(Self::Works),
            Ok(Some(Event::Apply(_) | Event::Delete(_))) => Some(Self::Changed),
            Ok(Some(event)) => is_answer(&event).then_some(Self::Listed),
            Err(error) if watch_is_expired(&error) => None,
            Err(error) => Some(Self::Fails(chain(&error))),
        }
    }

    /// Whether something may have changed.
    fn is_change(&self) -> bool {
        matches!(self, Self::Listed | Self::Changed)
    }
}

/// A watch that does not work.
#[derive(Debug, Default)]
struct Broken {
    /// Since when somebody has listened to it in vain.
    since: Option<Instant>,
    /// The failure; `None`: no answer came.
    why: Option<String>,
    /// It was said.
    told: bool,
}

/// All watches of a term.
#[derive(Default)]
pub(super) struct Watches {
    streams: SelectAll<BoxStream<'static, (usize, Said)>>,
    /// What each of them watches.
    names: Vec<String>,
    broken: BTreeMap<usize, Broken>,
}

impl Watches {
    /// Watches these objects, too.
    pub(super) fn follow<K>(
        &mut self,
        client: &Client,
        api: impl Fn(Client) -> Api<K>,
        config: watcher::Config,
    ) where
        K: Resource + Clone + DeserializeOwned + Debug + Send + 'static,
    {
        let url = api(client.clone()).resource_url().to_owned();
        let selector = config.field_selector.iter().chain(&config.label_selector).next();
        let number = self.names.len();
        self.names.push(selector.map_or_else(|| url.clone(), |selector| format!("{url}?{selector}")));
        self.broken.insert(number, Broken::default());
        let events = watch_with_starts(client, api, config, WATCH);
        let said = events.filter_map(|event| std::future::ready(Said::of(event)));
        self.streams.push(said.map(move |said| (number, said)).boxed());
    }

    /// Waits until something changes, for at most `wait`; not longer than [`BLIND`] while a watch does not work.
    pub(super) async fn until_change(&mut self, wait: Duration) {
        let begin = self.begin_wait();
        loop {
            let look = self.broken.values().map(|broken| broken.is_due(begin)).min();
            let due = (begin + wait).min(look.unwrap_or(begin + wait));
            tokio::select! {
                biased;
                Some(said) = self.streams.next() => {
                    if self.heard(said) {
                        return;
                    }
                }
                () = tokio::time::sleep_until(due) => return self.tell_broken(begin),
            }
        }
    }

    /// Waits this long, whatever changes, and listens all the time: a watch makes no step while nobody listens to it, so that
    /// nobody could say whether it works.
    pub(super) async fn whole_wait(&mut self, wait: Duration) {
        let begin = self.begin_wait();
        let end = begin + wait;
        loop {
            // One that was said needs no look before the next pass.
            let unsaid = self.broken.values().filter(|broken| !broken.told);
            let due = unsaid.map(|broken| broken.is_due(begin)).min().map_or(end, |look| look.min(end));
            tokio::select! {
                biased;
                // First: changes without a pause must not make the wait longer.
                () = tokio::time::sleep_until(due) => {
                    self.tell_broken(begin);
                    if due >= end {
                        return;
                    }
                }
                Some(said) = self.streams.next() => {
                    self.heard(said);
                }
            }
        }
    }

    /// A wait begins: somebody listens from now on.
    fn begin_wait(&mut self) -> Instant {
        let begin = Instant::now();
        for broken in self.broken.values_mut() {
            broken.since.get_or_insert(begin);
        }
        begin
    }

    /// Takes note of what was said meanwhile: the next pass looks at everything.
    pub(super) fn catch_up(&mut self) {
        while let Some(Some(said)) = self.streams.next().now_or_never() {
            self.heard(said);
        }
    }

    /// Why changes are seen late. `None`: all watches work.
    pub(super) fn trouble(&self) -> Option<String> {
        let told = self.broken.iter().filter(|(_, broken)| broken.told);
        let words: Vec<String> = told.map(|(number, broken)| self.words(*number, broken)).collect();
        (!words.is_empty()).then(|| {
            format!(
                "{}; the operator looks for changes every {} s instead",
                statements(&words, SHOWN),
                BLIND.as_secs()
            )
        })
    }

    /// What is watched: the path, and what selects the objects.
    #[cfg(test)]
    pub(super) fn names(&self) -> &[String] {
        &self.names
    }

    fn words(&self, number: usize, broken: &Broken) -> String {
        let what = self.names.get(number).map(String::as_str).unwrap_or_default();
        let why = broken.why.as_deref().unwrap_or("no answer");
        format!("the watch of {what} does not work: {why}")
    }

    /// Takes note of what a watch says. Returns whether a pass is due: something may have changed, or a watch works again of which
    /// the last pass has said that it does not.
    fn heard(&mut self, (number, said): (usize, Said)) -> bool {
        let is_change = said.is_change();
        match said {
            Said::Works | Said::Changed => {
                if self.broken.remove(&number).is_some_and(|broken| broken.told) {
                    let what = self.names.get(number).map(String::as_str).unwrap_or_default();
                    tracing::info!("the watch of {what} works again");
                    return true;
                }
            }
            Said::Listed => {
                let broken = self.broken.entry(number).or_default();
                (broken.since, broken.why) = (Some(Instant::now()), None);
            }
            Said::Fails(why) => {
                let broken = self.broken.entry(number).or_default();
                broken.since.get_or_insert_with(Instant::now);
                broken.why = Some(why);
            }
        }
        is_change
    }

    /// Says once which watches do not work.
    fn tell_broken(&mut self, begin: Instant) {
        let now = Instant::now();
        let new = self.broken.iter_mut().filter(|(_, broken)| !broken.told && broken.is_due(begin) <= now);
        let new: Vec<usize> = new
            .map(|(number, broken)| {
                broken.told = true;
                *number
            })
            .collect();
        for (number, broken) in self.broken.iter().filter(|(number, _)| new.contains(number)) {
            tracing::warn!(
                "{}; changes are looked for every {} s",
                self.words(*number, broken),
                BLIND.as_secs()
            );
        }
    }
}

impl Broken {
    /// When a pass has to look for what this watch does not tell, in a wait that began at `begin`.
    fn is_due(&self, begin: Instant) -> Instant {
        match self.since {
            Some(since) if !self.told => (since + BLIND).max(begin + HEARD),
            _ => begin + BLIND,
        }
    }
}

#[cfg(test)]
mod tests;
