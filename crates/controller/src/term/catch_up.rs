//! The start of a term: waits until the caches are at least as new as what the API server holds at that moment.
//!
//! Another controller may have led until a moment ago. The nodes that it sent, and the inputs that it rendered from,
//! are in the cluster, but not yet in our caches if their watches are slow, were cut, or died silently. A plan made
//! without them could send one node too many; a config rendered without them would send nodes back. So the names and
//! versions of every kind that decisions rest on are read from the API server itself. Nothing is decided before the
//! caches hold all of these objects, and no object that is gone.
//!
//! Kinds that no decision rests on ([`ReadRequirement::NonBlocking`]) delay the start only for a moment. What a term waits for, and what
//! cannot be read while it lasts, is reported on the pools.
//!
//! What it is not: a cache, or needed later in a term: from then on the answers to our own writes keep the caches up to
//! date.

use crate::cache::watch::{ReadRequirement, WatchedKind, key_of, version_of};
use crate::flight::pools::set_condition;
use crate::flight::refusals::Topic;
use crate::io::backoff::WORK;
use crate::shared::Shared;
use api::conditions::Condition;
use api::formats::text::{MAX_ANSWER_CHARS, cut};
use api::names::pool_condition::RENDER_DEGRADED;
use api::render_reason::RenderReason;
use client::{CallError, MissingRight, Pages, call};
use futures::future::join_all;
use kube::api::ListParams;
use rollout::TroubleOf;
use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;
use tokio::time::Instant;

/// How often the caches are checked.
const LOOK: Duration = Duration::from_millis(20);
/// A working watch delivers changes within milliseconds. One that has not by then lists everything again, and names and
/// versions are read again, so that the wait does not depend on objects that were deleted in between. Each time it gets twice as
/// long, so that an API server whose lists are slow is not asked for more and more of them.
const SILENT: Duration = Duration::from_secs(2);
/// The longest of these waits.
const LONGEST_SILENCE: Duration = Duration::from_secs(15);
/// How many times a kind of setting is requested before it counts as unknown.
const TRIES: u32 = 6;
/// How long the start of a term waits for kinds that no decision rests on.
const MOMENT: Duration = Duration::from_secs(5);
/// After how long an unreadable kind is reported: people are promised a condition within ten seconds.
const LASTS: Duration = Duration::from_secs(8);
/// How often the state of unreadable kinds is checked. It costs no request.
const LOOK_AT_WATCHES: Duration = Duration::from_secs(2);

/// What a term waits for, by kind, and why.
type Waits = Mutex<BTreeMap<String, String>>;

fn set(waits: &Waits, kind: &str, why: Option<String>) {
    let mut waits = waits.lock().unwrap_or_else(PoisonError::into_inner);
    match why {
        Some(why) => waits.insert(kind.to_owned(), why),
        None => waits.remove(kind),
    };
}

/// Waits until each kind was listed once, or is known to be absent, and is as new as on the API server. Otherwise a
/// pool whose image builds are not listed yet would be taken for one without image builds, and rolled out.
pub(crate) async fn caught_up(shared: &Shared) {
    let (followed, waits) = (shared.watched_kinds(), Waits::default());
    let all = followed.iter().map(|kind| async {
        let done = catch_up_with(kind, &waits);
        if kind.need != ReadRequirement::NonBlocking {
            done.await;
        } else if tokio::time::timeout(MOMENT, done).await.is_err() {
            let known = kind.cache.is_synced();
            tracing::warn!(
                kind = kind.kind,
                known,
                "it is unknown whether this cache is up to date; \
                starting without it"
            );
        }
        set(&waits, &kind.kind, None);
    });
    tokio::select! {
        _ = join_all(all) => {}
        () = report_waits(shared, &waits) => {}
    }
}

/// Reports on every pool what the term waits for, because no pass reports anything before the term has begun.
async fn report_waits(shared: &Shared, waits: &Waits) {
    loop {
        tokio::time::sleep(LASTS).await;
        let waits = waits.lock().unwrap_or_else(PoisonError::into_inner).clone();
        if waits.is_empty() {
            continue;
        }
        let all: Vec<String> = waits.into_iter().map(|(kind, why)| format!("{kind}: {why}")).collect();
        let message = format!(
            "this controller is the leader but cannot start, because it cannot read {}; until it can, \
             nothing is rendered and no node moves",
            cut(&all.join("; "), MAX_ANSWER_CHARS)
        );
        let condition = Condition::new(RENDER_DEGRADED, true, RenderReason::NotStarted, message);
        let pools = shared.stores.pools.all();
        let told = pools.iter().map(|pool| set_condition(shared, pool, condition.clone()));
        for error in join_all(told).await.into_iter().filter_map(Result::err) {
            tracing::debug!("{}", error.chain());
        }
    }
}

/// Reports on the pools which kinds cannot be read, as long as that is so. Only for kinds whose absence delays nothing.
pub(crate) async fn report_unreadable_kinds(shared: &Shared) {
    loop {
        for followed in shared.watched_kinds().iter().filter(|f| f.need == ReadRequirement::NonBlocking) {
            let (kind, why) = (&followed.kind, followed.cache.trouble_for(LASTS));
            let text = why.map(|why| {
                format!(
                    "{kind} cannot be read, so the last known state is used: {}",
                    cut(&why, MAX_ANSWER_CHARS)
                )
            });
            shared.report_problem(Topic::Unread(kind.clone()), TroubleOf::Cluster, text);
        }
        tokio::time::sleep(LOOK_AT_WATCHES).await;
    }
}

async fn catch_up_with(followed: &WatchedKind, waits: &Waits) {
    let (begin, mut attempt) = (Instant::now(), 0);
    'list: loop {
        let Some((list, at)) = read(followed, waits).await else { return };
        let since = Instant::now();
        loop {
            let behind = followed.cache.behind(&list, at);
            // Whether settings are known is checked where they are used.
            if behind.is_none() && (followed.need == ReadRequirement::Setting || followed.cache.is_synced()) {
                break;
            }
            if since.elapsed() >= api::backoff::longest(SILENT, LONGEST_SILENCE, attempt) {
                let kind = &followed.kind;
                let why = followed.cache.trouble_for(Duration::ZERO);
                set(waits, kind, Some(why.unwrap_or_else(|| "its watch is behind".to_owned())));
                if attempt == 0 {
                    tracing::info!(kind, ?behind, "the cache is behind the API server; listing again");
                }
                attempt += 1;
                followed.cache.list_again();
                continue 'list;
            }
            tokio::time::sleep(LOOK).await;
        }
        if attempt > 0 {
            tracing::info!(kind = followed.kind, after = ?begin.elapsed(), "the cache has caught up");
        }
        return;
    }
}

/// Names and versions, and the version of the list; `None` if there is nothing to wait for.
async fn read(followed: &WatchedKind, waits: &Waits) -> Option<(BTreeMap<String, u64>, u64)> {
    let mut attempt = 0;
    loop {
        let error = match listed(followed).await {
            Ok(list) => return Some(list),
            Err(error) => error,
        };
        let none = error.is_not_found() && followed.need != ReadRequirement::Always;
        if none || error.is_forbidden() && followed.need == ReadRequirement::NonBlocking {
            return None;
        }
        if followed.need == ReadRequirement::Setting && (error.is_forbidden() || attempt >= TRIES) {
            tracing::warn!(
                kind = followed.kind,
                "it is unknown whether this cache is up to date: {}",
                error.chain()
            );
            followed.cache.doubt();
            return None;
        }
        let delay = WORK.delay(attempt);
        let why = with_remedy(&error);
        tracing::warn!(?delay, "not started yet: {why}");
        set(waits, &followed.kind, Some(why));
        tokio::time::sleep(delay).await;
        attempt += 1;
    }
}

/// The error, and for a missing right how it is given.
fn with_remedy(error: &CallError) -> String {
    match MissingRight::of(error) {
        Some(right) => format!(
            "{}; `mco install` gives the controller all of its rights; to give only this one: {}",
            error.chain(),
            right.commands()
        ),
        None => error.chain(),
    }
}

/// Whether the cache of a kind is as new as the API server is now. A kind that need not be served, and is not, has nothing to know.
pub(crate) async fn is_current(followed: &WatchedKind) -> Result<bool, CallError> {
    match listed(followed).await {
        Ok((list, at)) => Ok(followed.cache.behind(&list, at).is_none()),
        Err(e) if e.is_not_found() && followed.need != ReadRequirement::Always => Ok(true),
        Err(e) => Err(e),
    }
}

/// A consistent read, with the version of its first page. Where a later page is of a later version, it shows more than that, and
/// the cache has to know more.
async fn listed(followed: &WatchedKind) -> Result<(BTreeMap<String, u64>, u64), CallError> {
    let mut params = ListParams::default();
    params.field_selector.clone_from(&followed.which.field_selector);
    params.label_selector.clone_from(&followed.which.label_selector);
    let (mut all, mut at) = (BTreeMap::new(), None);
    let mut pages = Pages::of(params);
    while let Some(params) = pages.next() {
        let what = || format!("list of {}s", followed.kind);
        let page = call(what, followed.api.list_metadata(&params)).await;
        if let Ok(page) = &page {
            let version = page.metadata.resource_version.as_deref().and_then(|v| v.parse().ok());
            at.get_or_insert(version.unwrap_or_default());
        }
        all.extend(pages.take(page)?.iter().map(|o| (key_of(o), version_of(o))));
    }
    Ok((all, at.unwrap_or_default()))
}

#[cfg(test)]
pub(crate) mod tests;
