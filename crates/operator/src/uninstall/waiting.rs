//! How a removal waits: requests that are sent again while the API server is away, how long something has been waited for without
//! that time, and when people hear of it.
//!
//! What it is not: what is waited for (see `execute` and `restore`), and when one request is sent again (see [`client::retry`]).

use super::progress::{SILENCE, Step, WaitReport};
use client::{CallError, retry};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;
use tokio::time::Instant;

/// How much later than the API server returns its clients notice that, at most: their waits between tries grow while it is away.
const NOTICED: Duration = Duration::from_secs(10);

/// For how long something has been waited for, without the time in which the API server served nobody: nobody could do anything
/// then.
#[derive(Debug)]
pub(super) struct Clock {
    begin: Instant,
    /// What is left out because the API server was away.
    away: Duration,
    /// What is left out because it did not answer a change. That may concern only this change.
    unanswered: Duration,
    /// How much was left out since something was last reached.
    since_progress: Duration,
    /// For how long the API server is waited for, in one outage and in all of them until something is reached.
    limit: Duration,
}

impl Clock {
    /// Begins to wait now.
    pub(super) fn begin(limit: Duration) -> Self {
        let none = Duration::ZERO;
        Self { begin: Instant::now(), away: none, unanswered: none, since_progress: none, limit }
    }

    /// For how long it has been waited.
    pub(super) fn waited(&self) -> Duration {
        self.tried().saturating_sub(self.unanswered)
    }

    /// The same with the time in which changes had no answer: for how long one of them has been tried.
    pub(super) fn tried(&self) -> Duration {
        self.begin.elapsed().saturating_sub(self.away)
    }

    /// Something that is waited for was reached, and the wait for the rest begins: as much as before may be left out again.
    pub(super) fn progressed(&mut self) {
        self.since_progress = Duration::ZERO;
    }

    /// The answer to a request, which is sent again while the API server is away or starts. That time is left out. Not more than the
    /// limit until something is reached: each wait ends, even where the API server comes and goes.
    pub(super) async fn ask<T, F>(
        &mut self,
        mut tell: impl FnMut(String),
        request: impl FnMut() -> F,
    ) -> Result<T, CallError>
    where
        F: Future<Output = Result<T, CallError>>,
    {
        let (begin, mut was_away) = (Instant::now(), false);
        let tell = |why| {
            was_away = true;
            tell(why);
        };
        let answer = retry::on_outage_or_start(self.limit, tell, request).await;
        if was_away {
            self.leave_out(begin.elapsed());
        }
        answer
    }

    /// Leaves the time of an outage out, and a little more for those who are waited for to notice that it is over. Not more than the
    /// limit until something is reached.
    pub(super) fn leave_out(&mut self, lasted: Duration) {
        let allowed = self.allowed(lasted + lasted.min(NOTICED));
        self.away += allowed;
    }

    /// Leaves the time out in which a change had no answer. It may fail like that again and again, so nothing is added: time would
    /// stand still.
    pub(super) fn leave_out_unanswered(&mut self, lasted: Duration) {
        let allowed = self.allowed(lasted);
        self.unanswered += allowed;
    }

    /// How much of this may be left out. That much counts as left out.
    fn allowed(&mut self, lasted: Duration) -> Duration {
        let allowed = lasted.min(self.limit.saturating_sub(self.since_progress));
        self.since_progress += allowed;
        allowed
    }
}

/// How long requests are sent again in a removal. One for each of many objects.
#[derive(Debug)]
pub(super) struct Patience {
    /// For how long the API server is waited for.
    limit: Duration,
    /// When a refusal has lasted: what is refused after that needs no time of its own to tell that the API server has started.
    refused: Mutex<Option<Instant>>,
    /// When an outage has lasted: what meets it after that is tried once. Not each of many objects is waited for.
    away: Mutex<Option<Instant>>,
}

impl Patience {
    pub(super) fn new(limit: Duration) -> Self {
        Self { limit, refused: Mutex::new(None), away: Mutex::new(None) }
    }

    /// The answer to a request, which is sent again while the API server is away or starts.
    pub(super) async fn ask<T, F>(
        &self,
        tell: impl FnMut(String),
        request: impl FnMut() -> F,
    ) -> Result<T, CallError>
    where
        F: Future<Output = Result<T, CallError>>,
    {
        let has_lasted = |since: &Mutex<Option<Instant>>| {
            let since = *since.lock().unwrap_or_else(PoisonError::into_inner);
            since.is_some_and(|at| at.elapsed() < retry::STARTS)
        };
        let limit = if has_lasted(&self.away) { Duration::ZERO } else { self.limit };
        let answer = match has_lasted(&self.refused) {
            true => retry::on_outage(limit, tell, request).await,
            false => retry::on_outage_or_start(limit, tell, request).await,
        };
        let now = |since: &Mutex<Option<Instant>>| {
            *since.lock().unwrap_or_else(PoisonError::into_inner) = Some(Instant::now());
        };
        match &answer {
            Err(error) if error.may_be_starting() => now(&self.refused),
            Err(error) if error.is_outage() => now(&self.away),
            _ => {}
        }
        answer
    }
}

/// Whoever hears of a removal. Several requests at a time may have something to say.
pub(super) struct Listener<'p, P>(Mutex<Heard<'p, P>>);

struct Heard<'p, P> {
    progress: &'p mut P,
    wait_report: WaitReport,
    /// When it was last said that the API server is away.
    away: Option<Instant>,
}

impl<'p, P: FnMut(Step<'_>)> Listener<'p, P> {
    pub(super) fn new(progress: &'p mut P) -> Self {
        Self(Mutex::new(Heard { progress, wait_report: WaitReport::now(), away: None }))
    }

    /// Says it.
    pub(super) fn say(&self, step: Step<'_>) {
        let mut heard = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        heard.wait_report.spoken();
        (heard.progress)(step);
    }

    /// Says that the API server is away; once for all requests that find out, and again after a while.
    pub(super) fn say_away(&self, why: &str) {
        let mut heard = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if heard.away.is_none_or(|at| at.elapsed() >= SILENCE) {
            heard.away = Some(Instant::now());
            heard.wait_report.spoken();
            (heard.progress)(Step::Waits(format!("the API server: {why}")));
        }
    }

    /// Says what is waited for, if nothing was said for a while.
    pub(super) fn say_if_due(&self, what: impl FnOnce() -> String) {
        let mut heard = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if heard.wait_report.is_due() {
            (heard.progress)(Step::Waits(what()));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use kube::core::Status;

    fn away() -> CallError {
        let status = Status::failure("starts", "R").with_code(503);
        CallError::Api { what: "get x".to_owned(), source: Box::new(kube::Error::Api(Box::new(status))) }
    }

    #[tokio::test(start_paused = true)]
    async fn the_time_of_an_outage_is_left_out_and_a_wait_ends_all_the_same() {
        let secs = Duration::from_secs;
        let mut clock = Clock::begin(secs(720));
        tokio::time::sleep(secs(20)).await;
        let begin = Instant::now();
        let back = || {
            let is_away = begin.elapsed() < secs(40);
            async move { if is_away { Err(away()) } else { Ok(()) } }
        };
        clock.ask(drop, back).await.unwrap();
        // Whoever is waited for needs a few seconds to notice that the API server is back.
        assert!((8..=12).contains(&clock.waited().as_secs()), "{:?}", clock.waited());
        clock.ask(drop, || async { Ok(()) }).await.unwrap();
        tokio::time::sleep(secs(30)).await;
        assert!((38..=42).contains(&clock.waited().as_secs()), "{:?}", clock.waited());
        // An API server that is away every other second.
        let (mut clock, begin, mut asked) = (Clock::begin(secs(720)), Instant::now(), 0);
        while clock.waited() < secs(720) {
            let flaps = || {
                asked += 1;
                let is_away = asked % 2 == 1;
                async move { if is_away { Err(away()) } else { Ok(()) } }
            };
            clock.ask(drop, flaps).await.unwrap();
            tokio::time::sleep(Duration::from_millis(500)).await;
        }
        assert!(begin.elapsed() <= secs(1450), "{:?}", begin.elapsed());
    }

    #[tokio::test(start_paused = true)]
    async fn no_more_than_the_limit_is_left_out_until_something_is_reached() {
        let secs = Duration::from_secs;
        let mut clock = Clock::begin(secs(60));
        let mut waited = vec![];
        for progress in [false, false, true] {
            if progress {
                clock.progressed();
            }
            let before = clock.waited();
            tokio::time::sleep(secs(50)).await;
            clock.leave_out(secs(40));
            waited.push((clock.waited() - before).as_secs());
        }
        assert_eq!(waited, [0, 40, 0]);
        // A change without an answer is tried all that time.
        let (before, tried) = (clock.waited(), clock.tried());
        tokio::time::sleep(secs(15)).await;
        clock.leave_out_unanswered(secs(10));
        assert_eq!((clock.waited() - before, clock.tried() - tried), (secs(5), secs(15)));
        clock.leave_out_unanswered(secs(10));
        assert_eq!(clock.waited(), before + secs(5), "no more than the limit, whatever it was");
    }
}
