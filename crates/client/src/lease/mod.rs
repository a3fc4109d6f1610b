//! Leadership: of several processes that do the same, only the holder of a Lease (`coordination.k8s.io/v1`) acts; the
//! others keep their caches warm.
//!
//! Flow: read the lease; take it if it is free, ours or expired; renew it well before it ends, by a write that is bound to the
//! version that was written last; give it up at once when renewing fails for too long, or on shutdown. Each write is bound to a
//! version that was read or written before, so two candidates never both succeed. A holder reads the lease again only when that
//! version is not the present one any more.
//!
//! Guarantees: a free lease is taken at the first look, so a fresh cluster waits for one request. Clocks of machines
//! are not compared: a lease is expired when *we* have seen no change of it for its whole duration.
//!
//! What it is not: fencing. A holder that is cut off stops by its own clock four seconds before the lease ends, but
//! what it sent before may still arrive. [`Handover`] says whether that is possible; the next holder voids it.
//!
//! Source: <https://kubernetes.io/docs/concepts/architecture/leases/>.

mod candidacy;

pub use candidacy::Candidacy;

use crate::call::{CallError, call, call_within};
use crate::process_counts::ProcessCounts;
use api::k8s::ObjectMeta;
use api::names::{NAMESPACE, own};
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use k8s_openapi::jiff;
use kube::api::{Api, PostParams};
use kube::{Client, ResourceExt};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// A holder that is silent for this long counts as dead.
const DURATION: Duration = Duration::from_secs(15);
/// How often the lease is renewed, and how long a try waits for the lease to be read or renewed: after a connection that died, a
/// holder has time for another try.
const RENEW: Duration = Duration::from_secs(4);
/// If the holder could not renew for this long it stops acting, before anyone else may start.
const GIVE_UP: Duration = Duration::from_secs(11);
/// How long a shutdown waits until the lease is released. Together with the last patches this is less than a hand-over
/// may take.
const GIVING_UP: Duration = Duration::from_secs(2);
/// How often a candidate looks at the lease: what a clean hand-over costs.
const LOOK: Duration = Duration::from_secs(1);

/// A request that was sent this long ago has arrived or never will: the API server ends each request after a minute.
pub const STRAY: Duration = Duration::from_mins(2);
/// The annotation on a lease that was released: requests of its last holder, or of one before, may still be on their
/// way.
const STRAYS: &str = own::REQUESTS_UNDER_WAY;

/// How this process became the leader.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Handover {
    /// Nobody led before, or the last leader had an answer to every request.
    Clean,
    /// The last leader ended without releasing the lease: its requests may still arrive.
    Unclean,
}

/// Whether this process should act.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Role {
    /// It should not.
    Standby,
    /// It should.
    Leads(Handover),
}

impl Role {
    /// Whether it should.
    fn leads(&self) -> bool {
        matches!(self, Self::Leads(_))
    }
}

/// What the leadership task and those who act tell each other, besides the role.
#[derive(Debug, Default)]
pub struct TermSignals {
    ends: Mutex<Option<Instant>>,
    unanswered: std::sync::atomic::AtomicBool,
}

impl TermSignals {
    /// Whether the lease has expired, even if no other process has noticed yet. A process that was suspended and continues sees
    /// it here.
    pub fn has_expired(&self) -> bool {
        self.ends.lock().unwrap_or_else(PoisonError::into_inner).is_some_and(|at| Instant::now() >= at)
    }

    /// Records that the lease was held at this time.
    pub fn renewed(&self, at: Instant) {
        *self.ends.lock().unwrap_or_else(PoisonError::into_inner) = Some(at + GIVE_UP);
    }

    /// Records that a request has no answer when the lease is released.
    pub fn leave_unanswered(&self) {
        self.unanswered.store(true, std::sync::atomic::Ordering::Relaxed);
    }

    fn left_unanswered(&self) -> bool {
        self.unanswered.load(std::sync::atomic::Ordering::Relaxed)
    }
}

/// Leads until `stop`: for a process that is known to be the only one.
async fn always(leading: watch::Sender<Role>, stop: CancellationToken) {
    leading.send_replace(Role::Leads(Handover::Clean));
    stop.cancelled().await;
    leading.send_replace(Role::Standby);
}

/// Returns what a process has counted so far; called at each renewal.
pub type Count = Box<dyn Fn() -> ProcessCounts + Send + Sync>;

/// A candidate for a Lease.
struct ByLease {
    client: Client,
    name: &'static str,
    identity: String,
    terms: Arc<TermSignals>,
    count: Count,
}

impl ByLease {
    /// A candidate for the Lease of this name in [`NAMESPACE`].
    fn new(client: Client, name: &'static str, terms: Arc<TermSignals>, count: Count) -> Self {
        let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
        let (host, pid) = (host.trim(), std::process::id());
        let start = jiff::Timestamp::now().as_microsecond();
        Self { client, name, identity: format!("{host}_{pid}_{start:x}"), terms, count }
    }
}

/// The state of the lease as it was read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum LeaseState {
    /// Nobody has it: take it.
    Free,
    /// Its holder is silent: take it.
    Expired,
    /// We have it: renew it.
    Ours,
    /// Somebody else has it.
    Theirs,
}

fn lease_state(spec: &LeaseSpec, identity: &str, unchanged_for: Duration) -> LeaseState {
    let lasts = spec.lease_duration_seconds.and_then(|s| u64::try_from(s).ok()).unwrap_or_default();
    match spec.holder_identity.as_deref() {
        None | Some("") => LeaseState::Free,
        Some(holder) if holder == identity => LeaseState::Ours,
        Some(_) if unchanged_for >= Duration::from_secs(lasts) => LeaseState::Expired,
        Some(_) => LeaseState::Theirs,
    }
}

/// Follows the Lease until `stop`, then gives it up.
async fn campaign(me: ByLease, leading: watch::Sender<Role>, stop: CancellationToken) {
    let api: Api<Lease> = Api::namespaced(me.client.clone(), NAMESPACE);
    let mut known = Known::default();
    let mut renewed: Option<Instant> = None;
    let mut told: Option<String> = None;
    let mut begun: Option<(Instant, Handover)> = None;
    loop {
        // Neither a try nor a pause may last beyond the moment when we must stop. A candidate has as much time as a holder: a
        // write that it gives up too early may still take the lease, and then nobody leads.
        let left = |renewed: Option<Instant>| renewed.map(|at| GIVE_UP.saturating_sub(at.elapsed()));
        let limit = left(renewed).unwrap_or(GIVE_UP);
        let counts = ProcessCounts { holder: me.identity.clone(), ..(me.count)() };
        let result = tokio::select! {
            result = tokio::time::timeout(limit, attempt_once(&api, me.name, &counts, &mut known)) => result,
            // A write that is under way may take the lease, so a process that ends still waits for it, but not for long.
            () = async { stop.cancelled().await; tokio::time::sleep(RENEW).await } => break,
        };
        let mut pause = LOOK;
        match result {
            Ok(Ok(LeaseHolder::Ours { handover, sent })) => {
                renewed = Some(sent);
                me.terms.renewed(sent);
                told = None;
                pause = RENEW.saturating_sub(sent.elapsed());
                if !leading.borrow().leads() {
                    tracing::info!(identity = me.identity, ?handover, "leading");
                    begun = Some((sent, handover));
                    leading.send_replace(Role::Leads(handover));
                }
            }
            Ok(Ok(LeaseHolder::Theirs(holder))) => {
                if leading.send_replace(Role::Standby).leads() {
                    tracing::warn!(holder, "lost the lease to another holder; standing by");
                } else if told.as_ref() != Some(&holder) {
                    tracing::info!(holder, "standing by: another holder leads");
                    told = Some(holder);
                }
                renewed = None;
                known.held = None;
            }
            // Somebody has changed the lease after it was read: another candidate, who then stands in it, a late write of our own,
            // or a person.
            Ok(Err(error)) if error.is_conflict() => {
                tracing::debug!("looking at the lease again: {}", error.chain());
            }
            Ok(Err(error)) => {
                let text = if error.is_not_found() {
                    format!(
                        "namespace {NAMESPACE} does not exist; `mco install` creates it, \
                         or run without a lease with --leader-elect=false"
                    )
                } else {
                    error.chain()
                };
                if told.as_ref() != Some(&text) {
                    tracing::warn!("cannot get the lease: {text}");
                    told = Some(text);
                }
            }
            Err(_) => {
                tracing::warn!("cannot get the lease: the API server did not answer within {limit:.1?}");
            }
        }
        if left(renewed) == Some(Duration::ZERO) {
            tracing::warn!("the lease could not be renewed for {} s; standing by", GIVE_UP.as_secs());
            leading.send_replace(Role::Standby);
            renewed = None;
            // Whoever has lost it takes it anew, as any other candidate does.
            known.held = None;
        }
        let pause = left(renewed).map_or(pause, |left| left.min(pause));
        tokio::select! {
            () = stop.cancelled() => break,
            () = tokio::time::sleep(pause) => {}
        }
    }
    if leading.send_replace(Role::Standby).leads() {
        let early = begun.is_some_and(|(at, how)| how == Handover::Unclean && at.elapsed() < STRAY);
        release(&api, me.name, &me.identity, early || me.terms.left_unanswered()).await;
    }
}

enum LeaseHolder {
    /// We hold it.
    Ours {
        /// The kind of hand-over, if we did not lead a moment ago.
        handover: Handover,
        /// When the write was sent: nobody else has seen it before that.
        sent: Instant,
    },
    Theirs(String),
}

/// What a candidate knows of the lease from its earlier tries.
#[derive(Debug, Default)]
struct Known {
    /// The version that was read last, and when it was read first.
    seen: Option<(String, Instant)>,
    /// The lease as we wrote it last, while we lead.
    held: Option<Lease>,
}

impl Known {
    /// We hold it. Without a version no later write could be bound to it.
    fn hold(&mut self, lease: Lease) {
        self.held = Some(lease).filter(|lease| lease.metadata.resource_version.is_some());
    }
}

async fn attempt_once(
    api: &Api<Lease>,
    name: &str,
    counts: &ProcessCounts,
    known: &mut Known,
) -> Result<LeaseHolder, CallError> {
    let identity = &*counts.holder;
    let what = || format!("lease {NAMESPACE}/{name}");
    if let Some(held) = known.held.clone() {
        let (sent, next) = (Instant::now(), renewal(held, counts));
        match call_within(RENEW, what, api.replace(name, &PostParams::default(), &next)).await {
            // Somebody has changed it, or deleted it.
            Err(error) if error.is_conflict() || error.is_not_found() => {
                tracing::debug!("reading the lease again: {}", error.chain());
                known.held = None;
            }
            done => {
                known.hold(done?);
                return Ok(LeaseHolder::Ours { handover: Handover::Clean, sent });
            }
        }
    }
    let Some(lease) = call_within(RENEW, what, api.get_opt(name)).await? else {
        let mut lease = Lease {
            metadata: ObjectMeta { name: Some(name.to_owned()), ..ObjectMeta::default() },
            spec: None,
        };
        lease.spec = Some(taken(None, identity));
        let sent = Instant::now();
        known.hold(call(what, api.create(&PostParams::default(), &lease)).await?);
        return Ok(LeaseHolder::Ours { handover: Handover::Clean, sent });
    };
    let version = lease.resource_version().unwrap_or_default();
    let since = match &known.seen {
        Some((v, at)) if *v == version => *at,
        _ => {
            let now = Instant::now();
            known.seen = Some((version, now));
            now
        }
    };
    let spec = lease.spec.clone().unwrap_or_default();
    let mut next = lease;
    let strays = next.annotations_mut().remove(STRAYS).is_some();
    let handover = match lease_state(&spec, identity, since.elapsed()) {
        LeaseState::Theirs => return Ok(LeaseHolder::Theirs(spec.holder_identity.unwrap_or_default())),
        LeaseState::Free if !strays => Handover::Clean,
        // The lease is ours, but we did not lead: we had lost it for a while, and with it the answers to our requests.
        LeaseState::Free | LeaseState::Expired | LeaseState::Ours => Handover::Unclean,
    };
    let (sent, next) = (Instant::now(), renewal(next, counts));
    known.hold(call(what, api.replace(name, &PostParams::default(), &next)).await?);
    Ok(LeaseHolder::Ours { handover, sent })
}

/// The lease as we write it: held by us from now on, with what this process has counted.
fn renewal(mut lease: Lease, counts: &ProcessCounts) -> Lease {
    let spec = lease.spec.take().unwrap_or_default();
    lease.spec = Some(taken(Some(&spec), &counts.holder));
    // Numbers and a name: they always have a form in JSON.
    let text = serde_json::to_string(counts).unwrap_or_default();
    lease.annotations_mut().insert(own::PROCESS_COUNTS.to_owned(), text);
    lease
}

/// The lease's spec when we hold it.
fn taken(old: Option<&LeaseSpec>, identity: &str) -> LeaseSpec {
    let now = MicroTime(jiff::Timestamp::now());
    let ours = old.filter(|o| o.holder_identity.as_deref() == Some(identity));
    let transitions = old.and_then(|o| o.lease_transitions).unwrap_or_default();
    LeaseSpec {
        holder_identity: Some(identity.to_owned()),
        lease_duration_seconds: i32::try_from(DURATION.as_secs()).ok(),
        acquire_time: ours.and_then(|o| o.acquire_time.clone()).or_else(|| Some(now.clone())),
        renew_time: Some(now),
        lease_transitions: Some(if ours.is_some() { transitions } else { transitions.saturating_add(1) }),
        ..LeaseSpec::default()
    }
}

/// Gives the lease up, so that the next leader does not wait until it expires.
async fn release(api: &Api<Lease>, name: &str, identity: &str, strays: bool) {
    let what = || format!("lease {NAMESPACE}/{name}");
    let given_up = async {
        let Some(mut lease) = call(what, api.get_opt(name)).await? else { return Ok(()) };
        let Some(spec) = lease.spec.as_mut().filter(|s| s.holder_identity.as_deref() == Some(identity))
        else {
            return Ok(());
        };
        spec.holder_identity = Some(String::new());
        spec.lease_duration_seconds = Some(1);
        lease.annotations_mut().remove(own::PROCESS_COUNTS);
        if strays {
            lease.annotations_mut().insert(STRAYS.to_owned(), "true".to_owned());
        }
        call(what, api.replace(name, &PostParams::default(), &lease)).await.map(|_| ())
    };
    // A shutdown does not wait for an API server that is away: the lease then expires by itself.
    match tokio::time::timeout(GIVING_UP, given_up).await {
        Ok(Ok(())) => tracing::info!("lease released"),
        Ok(Err(error)) => tracing::warn!("lease not released: {}", error.chain()),
        Err(_) => tracing::warn!("lease not released: no answer"),
    }
}

#[cfg(test)]
mod tests;
