//! The fleet as all viewers share it, and the numbered differences by which each of them follows it. What is sent is written
//! once, whatever the number of viewers.
//!
//! A viewer that reads too slowly loses its stream. It comes back with the number of the last difference that it has; if
//! those since are still here it gets them, else it is told to take the whole fleet again.
//!
//! What it is not: where the fleet comes from (see `follow`).

use crate::fleet::snapshot::{Fleet, FleetDelta};
use insight::{Finding, PoolRow, UnreadKind};
use serde::Serialize;
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::broadcast;

use crate::fleet::snapshot::Cell;

/// How many differences a viewer may be behind before its stream ends. At twenty a second that is
/// half a minute.
const BEHIND: usize = 512;
/// How many bytes of past differences are kept for viewers that come back.
const KEPT: usize = 2 << 20;

/// One difference, as it is sent.
#[derive(Debug)]
struct Message {
    seq: u64,
    /// A whole server-sent event.
    text: Arc<str>,
}

/// What a viewer gets who comes with the number of the last difference that it has: numbers alone, so that one who stands still
/// keeps no texts. [`Feed::text`] gives the text of a number.
pub(crate) struct Followed {
    /// What it has missed; `None`: it must take the whole fleet.
    pub(crate) missed: Option<Vec<u64>>,
    /// What comes.
    pub(crate) news: broadcast::Receiver<u64>,
}

/// The shared fleet.
#[derive(Debug)]
pub(crate) struct Feed {
    /// What the page calls the cluster.
    cluster: String,
    /// Numbers of another run of the program mean nothing here.
    epoch: String,
    state: Mutex<State>,
    news: broadcast::Sender<u64>,
}

#[derive(Debug, Default)]
struct State {
    seq: u64,
    fleet: Arc<Fleet>,
    /// The whole fleet as JSON, once somebody has asked for it.
    written: Option<Arc<str>>,
    past: VecDeque<Message>,
    past_bytes: usize,
}

/// The whole fleet.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Whole<'a> {
    id: String,
    cluster: &'a str,
    version: &'static str,
    pools: Vec<&'a PoolRow>,
    nodes: Vec<&'a Cell>,
    unmanaged: &'a [String],
    findings: &'a [Finding],
    trouble: &'a str,
    unread: &'a [UnreadKind],
}

impl Feed {
    pub(crate) fn new(cluster: &str) -> Self {
        let cluster = without_user(cluster);
        let epoch = jiff::Timestamp::now().as_millisecond().to_string();
        let state = State {
            fleet: Arc::new(Fleet { trouble: Some("asking the API server".to_owned()), ..Fleet::default() }),
            ..State::default()
        };
        Self { cluster, epoch, state: Mutex::new(state), news: broadcast::Sender::new(BEHIND) }
    }

    /// Takes the next state of the fleet, and sends what differs.
    pub(crate) fn put(&self, fleet: Arc<Fleet>) {
        // Only one task puts new states. Readers need not wait while two of them are compared.
        let before = self.fleet();
        let Some(delta) = FleetDelta::between(&before, &fleet) else { return };
        let mut state = self.lock();
        let seq = state.seq + 1;
        // Values of our own types: they always have a form in JSON.
        let data = serde_json::to_string(&delta).unwrap_or_default();
        let text = format!("id: {}.{seq}\nevent: delta\ndata: {data}\n\n", self.epoch);
        let message = Message { seq, text: text.into() };
        state.seq = seq;
        state.fleet = fleet;
        state.written = None;
        state.past_bytes += message.text.len();
        state.past.push_back(message);
        // The newest stays, however long it is: nobody has taken it yet.
        while state.past.len() > 1 && (state.past_bytes > KEPT || state.past.len() > BEHIND) {
            let Some(oldest) = state.past.pop_front() else { break };
            state.past_bytes -= oldest.text.len();
        }
        // Under the lock, so that nobody who follows misses one. Nobody may be there.
        let _ = self.news.send(seq);
    }

    /// Says why nothing is known, or what is known may be out of date.
    pub(crate) fn trouble(&self, why: &str) {
        let trouble = Some(insight::redacted_lines(why));
        self.put(Arc::new(Fleet { trouble, ..(*self.fleet()).clone() }));
    }

    /// The fleet as it is shown now.
    pub(crate) fn fleet(&self) -> Arc<Fleet> {
        Arc::clone(&self.lock().fleet)
    }

    /// The whole fleet as JSON, with the number to follow it from.
    pub(crate) fn full_state(&self) -> Arc<str> {
        let mut state = self.lock();
        if let Some(written) = &state.written {
            return Arc::clone(written);
        }
        let Fleet { pools, nodes, unmanaged, findings, trouble, unread } = &*state.fleet;
        let whole = Whole {
            id: format!("{}.{}", self.epoch, state.seq),
            cluster: &self.cluster,
            version: api::names::VERSION_RAW,
            pools: pools.values().collect(),
            nodes: nodes.values().collect(),
            unmanaged,
            findings,
            trouble: trouble.as_deref().unwrap_or_default(),
            unread,
        };
        let written: Arc<str> = serde_json::to_string(&whole).unwrap_or_default().into();
        state.written = Some(Arc::clone(&written));
        written
    }

    /// Whether anything is known of the cluster, be it why nothing is.
    pub(crate) fn has_begun(&self) -> bool {
        self.lock().seq > 0
    }

    /// Follows from a number on.
    pub(crate) fn follow(&self, last: Option<&str>) -> Followed {
        let state = self.lock();
        let news = self.news.subscribe();
        let last =
            last.and_then(|id| id.strip_prefix(self.epoch.as_str())?.strip_prefix('.')?.parse::<u64>().ok());
        let first_kept = state.past.front().map_or(state.seq + 1, |m| m.seq);
        let missed = last.filter(|last| *last <= state.seq && last + 1 >= first_kept);
        let missed = missed.map(|last| state.past.iter().map(|m| m.seq).filter(|seq| *seq > last).collect());
        Followed { missed, news }
    }

    /// The text of a difference, a whole server-sent event; `None`: it is not kept any more.
    pub(crate) fn text(&self, seq: u64) -> Option<Arc<str>> {
        let state = self.lock();
        let at = state.past.binary_search_by_key(&seq, |m| m.seq).ok()?;
        state.past.get(at).map(|m| Arc::clone(&m.text))
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The address of a cluster without a user and a password in it. The rest stays as it is: addresses of managed clusters look
/// random and are public.
fn without_user(address: &str) -> String {
    let (scheme, rest) = address.split_once("://").map_or(("", address), |(scheme, rest)| (scheme, rest));
    let (authority, path) = rest.split_at(rest.find(['/', '?', '#']).unwrap_or(rest.len()));
    let Some((_, host)) = authority.rsplit_once('@') else { return address.to_owned() };
    let mark = if scheme.is_empty() { "" } else { "://" };
    format!("{scheme}{mark}{host}{path}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fleet::snapshot::tests::fleet;
    use insight::Phase;

    fn made(nodes: &[(&str, Phase, &str)]) -> Arc<Fleet> {
        Arc::new(fleet(nodes))
    }

    fn id(feed: &Feed) -> String {
        let whole: serde_json::Value = serde_json::from_str(&feed.full_state()).unwrap();
        whole["id"].as_str().unwrap().to_owned()
    }

    #[test]
    fn who_comes_back_gets_what_it_missed_or_is_told_to_begin_again() {
        let feed = Feed::new("c");
        let start = id(&feed);
        let missed = |last: Option<&str>| feed.follow(last).missed.map(|all| all.len());
        assert_eq!(missed(Some(&start)), Some(0));
        feed.put(made(&[("a", Phase::Done, "")]));
        feed.put(made(&[("a", Phase::Done, "")]));
        feed.put(made(&[("a", Phase::Moving, "")]));
        assert_eq!(missed(Some(&start)), Some(2), "the same again is no news");
        assert_eq!(missed(Some(&id(&feed))), Some(0));
        for unknown in [None, Some(""), Some("1.1"), Some("x"), Some(format!("{}9", id(&feed)).as_str())] {
            assert_eq!(missed(unknown), None, "{unknown:?}");
        }
        for n in 0..BEHIND {
            feed.put(made(&[("a", Phase::Moving, &n.to_string())]));
        }
        assert_eq!(missed(Some(&start)), None, "too long ago");
    }

    #[test]
    fn the_name_of_the_cluster_has_no_password() {
        for (address, shown) in [
            ("https://jane:hunter2@c.example.com:6443/a@b", "https://c.example.com:6443/a@b"),
            ("https://0123456789ABCDEF.gr7.example.com", "https://0123456789ABCDEF.gr7.example.com"),
            ("jane:p@ss@c", "c"),
            ("", ""),
        ] {
            let whole: serde_json::Value = serde_json::from_str(&Feed::new(address).full_state()).unwrap();
            assert_eq!(whole["cluster"], shown);
        }
    }

    #[test]
    fn past_differences_take_no_more_than_their_share() {
        let feed = Feed::new("c");
        for n in 0..8 {
            feed.put(made(&[("a", Phase::Moving, &format!("{n}{}", "x".repeat(KEPT / 3)))]));
        }
        let state = feed.lock();
        assert!(state.past_bytes <= KEPT && !state.past.is_empty());
        assert_eq!(state.past_bytes, state.past.iter().map(|m| m.text.len()).sum::<usize>());
    }

    #[test]
    fn a_reader_that_stands_still_keeps_no_more_texts_than_there_are_for_those_who_come_back() {
        let feed = Feed::new("c");
        let slow = feed.follow(None).news;
        let big = "x".repeat(64 << 10);
        let mut texts = vec![];
        for n in 0..BEHIND {
            feed.put(made(&[("a", Phase::Moving, &format!("{n}{big}"))]));
            texts.extend(feed.lock().past.back().map(|m| (Arc::downgrade(&m.text), m.text.len())));
        }
        let largest = texts.iter().map(|(_, length)| *length).max().unwrap();
        let alive = texts.iter().filter(|(text, _)| text.strong_count() > 0).map(|(_, length)| length);
        assert!(alive.sum::<usize>() <= KEPT + largest);
        drop(slow);
        assert_eq!(feed.text(1), None, "whoever is that far behind comes back");
        feed.put(made(&[("a", Phase::Moving, &"x".repeat(2 * KEPT))]));
        let newest = feed.lock().seq;
        assert!(feed.text(newest).is_some(), "the newest can be taken, however long it is");
    }

    #[test]
    fn a_slow_reader_is_told_that_it_is_behind_and_holds_nothing_up() {
        let feed = Feed::new("c");
        let mut slow = feed.follow(None).news;
        for n in 0..=BEHIND {
            feed.put(made(&[("a", Phase::Moving, &n.to_string())]));
        }
        assert!(matches!(slow.try_recv(), Err(broadcast::error::TryRecvError::Lagged(_))));
    }
}
