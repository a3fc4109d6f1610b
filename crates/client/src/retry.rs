//! Sends a request again: while the API server serves nobody ([`on_outage`], [`on_outage_or_start`]), and while others change the
//! object in between ([`on_conflict`]). Each retry waits longer than the one before, with jitter.
//!
//! What it is not: work that goes on by itself after a failure, such as a watch (see [`crate::watch`]) or a pass. Whoever calls this
//! waits for the answer.

use crate::{Backoff, CallError};
use std::time::Duration;
use tokio::time::Instant;

/// The waits between two tries during an outage.
const WAITS: Backoff = Backoff { first: Duration::from_millis(500), last: Duration::from_secs(5) };
/// The waits after a conflict. The API server works, and what changed the object is over: a person who waits for the answer should not
/// wait for a minute, but two that race for an object should not meet each time.
const CONFLICT_WAITS: Backoff =
    Backoff { first: Duration::from_millis(20), last: Duration::from_millis(500) };
/// How many conflicts in a row are taken as a race. More are a fight over the object.
const MOST_CONFLICTS: u32 = 20;

/// How long an API server that has just started may refuse everything, because it does not know yet who may what. A refusal that
/// lasts longer is a right that is missing.
pub const STARTS: Duration = Duration::from_secs(30);
/// How often people hear what is waited for.
const TELL: Duration = Duration::from_secs(30);

/// The answer to a request, which is sent again while the API server serves nobody (see [`CallError::is_outage`]). No retry begins
/// when `limit` has passed. At the first failure, and twice a minute from then on, `tell` gets the reason, so that people learn what
/// is waited for.
///
/// The request must do no harm when it arrives twice: one without an answer may have been carried out.
///
/// # Errors
/// The API server's answer, at once; or the last failure, when it serves nobody for `limit`.
pub async fn on_outage<T, F>(
    limit: Duration,
    tell: impl FnMut(String),
    request: impl FnMut() -> F,
) -> Result<T, CallError>
where
    F: Future<Output = Result<T, CallError>>,
{
    sent_again(limit, Duration::ZERO, tell, request).await
}

/// As [`on_outage`]; a request is sent again, too, while the API server refuses it as one does that has just started (see
/// [`CallError::may_be_starting`]), until such refusals have lasted for [`STARTS`]. For work that takes long, during which the API
/// server may start anew; whoever lacks a right hears of it that much later.
///
/// # Errors
/// As [`on_outage`]; a refusal when it has lasted.
pub async fn on_outage_or_start<T, F>(
    limit: Duration,
    tell: impl FnMut(String),
    request: impl FnMut() -> F,
) -> Result<T, CallError>
where
    F: Future<Output = Result<T, CallError>>,
{
    sent_again(limit, STARTS, tell, request).await
}

/// Sends a request again during an outage, and during refusals in a row that last for less than `starts`.
async fn sent_again<T, F>(
    limit: Duration,
    starts: Duration,
    mut tell: impl FnMut(String),
    mut request: impl FnMut() -> F,
) -> Result<T, CallError>
where
    F: Future<Output = Result<T, CallError>>,
{
    let (begin, mut waits) = (Instant::now(), 0);
    let (mut told, mut refused): (Option<Instant>, Option<Instant>) = (None, None);
    loop {
        let error = match request().await {
            Err(error) if begin.elapsed() >= limit => return Err(error),
            Err(error) if error.is_outage() => {
                refused = None;
                error
            }
            Err(error)
                if error.may_be_starting() && refused.get_or_insert_with(Instant::now).elapsed() < starts =>
            {
                error
            }
            done => return done,
        };
        if told.is_none_or(|at| at.elapsed() >= TELL) {
            told = Some(Instant::now());
            tell(error.chain());
        }
        tokio::time::sleep(WAITS.delay(waits)).await;
        waits += 1;
    }
}

/// Makes a change that is bound to the version of an object, again while others change the object in between. `change` reads the
/// object each time, and decides again.
///
/// # Errors
/// The API server's answer; a conflict only after many in a row, which take up to ten seconds and the time of the requests.
pub async fn on_conflict<T, F>(mut change: impl FnMut() -> F) -> Result<T, CallError>
where
    F: Future<Output = Result<T, CallError>>,
{
    for attempt in 0..MOST_CONFLICTS {
        match change().await {
            Err(error) if error.is_conflict() => {}
            done => return done,
        }
        tokio::time::sleep(CONFLICT_WAITS.delay(attempt)).await;
    }
    change().await
}

#[cfg(test)]
mod tests {
    use super::*;
    use kube::core::Status;
    use std::future::ready;

    fn answer(code: u16, message: &str) -> CallError {
        let status = Status::failure(message, "Reason").with_code(code);
        CallError::Api { what: "get Node n".to_owned(), source: Box::new(kube::Error::Api(Box::new(status))) }
    }

    /// Answers with these codes one after the other, with the last one again and again; 0 is an answer without an error. Counts.
    fn answers(codes: &[u16], asked: &mut usize) -> Result<usize, CallError> {
        let code = codes.get(*asked).or(codes.last()).copied().unwrap_or_default();
        *asked += 1;
        if code == 0 { Ok(*asked) } else { Err(answer(code, "no")) }
    }

    #[tokio::test(start_paused = true)]
    async fn only_an_api_server_that_serves_nobody_is_asked_again_and_not_for_longer_than_the_limit() {
        let limit = Duration::from_secs(60);
        // Columns: the answers; the code that is returned in the end, 0 for success; the least and the most requests.
        let rows: [(&[u16], u16, usize, usize); 8] = [
            (&[0], 0, 1, 1),
            (&[503, 429, 500, 0], 0, 4, 4),
            (&[503, 404], 404, 2, 2),
            (&[403], 403, 1, 1),
            (&[409], 409, 1, 1),
            (&[422], 422, 1, 1),
            (&[503, 409], 409, 2, 2),
            // At most 5 s apart, and with jitter at least half as long; the first four waits are shorter.
            (&[503], 503, 12, 30),
        ];
        for (codes, code, least, most) in rows {
            let (mut asked, mut told, begin) = (0, vec![], Instant::now());
            let done = on_outage(limit, |why| told.push(why), || ready(answers(codes, &mut asked))).await;
            assert_eq!(done.as_ref().err().and_then(CallError::code).unwrap_or_default(), code, "{codes:?}");
            assert!((least..=most).contains(&asked), "{codes:?}: {asked} requests");
            // At once, and again after half a minute.
            let most = match codes {
                [503] => 2,
                [503, ..] => 1,
                _ => 0,
            };
            assert!((most.min(1)..=most).contains(&told.len()), "{codes:?}: {told:?}");
            assert!(told.iter().all(|why| why.starts_with("get Node n: no (")), "{told:?}");
            assert!(begin.elapsed() < limit + WAITS.last, "{codes:?}: {:?}", begin.elapsed());
        }
    }

    #[tokio::test(start_paused = true)]
    async fn an_admission_policy_that_is_not_ready_is_waited_for_and_one_that_denies_is_not() {
        let not_ready = "pools \"p\" is forbidden: ValidatingAdmissionPolicy 'p' denied request: failed to configure policy: x";
        let denied =
            "pools \"p\" is forbidden: ValidatingAdmissionPolicy 'p' with binding 'b' denied request: no";
        let hook = "admission webhook \"w\" denied the request: not today";
        let away = "failed calling webhook \"w\": connection refused";
        for (code, said, requests) in [
            (422, not_ready, 2),
            (422, denied, 1),
            // A webhook chooses the code itself.
            (500, hook, 1),
            (429, hook, 1),
            (500, away, 2),
        ] {
            let mut asked = 0;
            let done = on_outage(Duration::from_secs(60), drop, || {
                asked += 1;
                ready(if asked == 1 { Err(answer(code, said)) } else { Ok(()) })
            });
            assert_eq!((done.await.is_ok(), asked), (requests == 2, requests), "{code} {said}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_refusal_counts_only_when_it_lasts_longer_than_an_api_server_needs_to_start() {
        let policy =
            "nodes \"n\" is forbidden: ValidatingAdmissionPolicy 'p' with binding 'b' denied request: no";
        // Columns: for how many seconds each code is the answer, then success; what is said; whether it succeeds, and from and until
        // when it ends.
        for (answers, said, succeeds, least, most) in [
            (&[(403, 10)][..], "no", true, 10, 16),
            (&[(403, 100)], "no", false, 30, 36),
            (&[(403, 100)], policy, false, 0, 1),
            // It was away, and has started.
            (&[(403, 20), (503, 60), (403, 20)], "no", true, 100, 110),
            // For ever is longer than anybody waits.
            (&[(403, 20), (503, 20), (403, 20), (503, 20), (403, 20), (503, 100)], "no", false, 120, 126),
        ] {
            let begin = Instant::now();
            let done = on_outage_or_start(Duration::from_secs(120), drop, || {
                let mut left = begin.elapsed().as_secs();
                let code = answers.iter().find(|(_, lasts)| {
                    let now = left < *lasts;
                    left = left.saturating_sub(*lasts);
                    now
                });
                ready(code.map_or(Ok(()), |(code, _)| Err(answer(*code, said))))
            });
            assert_eq!(done.await.is_ok(), succeeds, "{answers:?} {said}");
            let lasted = begin.elapsed().as_secs();
            assert!((least..=most).contains(&lasted), "{answers:?} {said}: {lasted} s");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_change_is_made_again_after_a_conflict_and_given_up_after_many() {
        let most = MOST_CONFLICTS as usize + 1;
        for (codes, code, requests) in [
            (&[0][..], 0, 1),
            (&[409, 409, 0], 0, 3),
            (&[409, 404], 404, 2),
            (&[503], 503, 1),
            (&[422], 422, 1),
            (&[409], 409, most),
        ] {
            let (mut asked, begin) = (0, Instant::now());
            let done = on_conflict(|| ready(answers(codes, &mut asked))).await;
            assert_eq!(done.as_ref().err().and_then(CallError::code).unwrap_or_default(), code, "{codes:?}");
            assert_eq!(asked, requests, "{codes:?}");
            assert!(begin.elapsed() <= Duration::from_secs(10), "{:?}", begin.elapsed());
        }
        let mut asked = 0;
        let denied = on_conflict(|| {
            asked += 1;
            ready(Err::<(), _>(answer(409, "admission webhook \"w\" denied the request: not today")))
        });
        assert!(denied.await.is_err());
        assert_eq!(asked, 1, "a webhook chooses the code itself");
    }
}
