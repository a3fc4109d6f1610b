//! Sends a request again: while the API server serves nobody ([`on_outage`]), and while others change the object in between
//! ([`on_conflict`]). Each retry waits longer than the one before, with jitter.
//!
//! What it is not: work that goes on by itself after a failure, such as a watch (see [`crate::watch`]) or a pass. Whoever calls this
//! waits for the answer.

use crate::{Backoff, CallError};
use std::time::Duration;
use tokio::time::Instant;

/// The waits between two tries.
const WAITS: Backoff = Backoff { first: Duration::from_millis(500), last: Duration::from_secs(5) };
/// How many conflicts in a row are taken as a race. More are a fight over the object.
const MOST_CONFLICTS: u32 = 20;

/// The answer to a request, which is sent again while the API server serves nobody (see [`CallError::is_outage`]). No retry begins
/// when `limit` has passed. At the first failure, `tell` gets the reason, so that people learn what is waited for.
///
/// The request must do no harm when it arrives twice: one without an answer may have been carried out.
///
/// # Errors
/// The API server's answer, at once; or the last failure, when it serves nobody for `limit`.
pub async fn on_outage<T, F>(
    limit: Duration,
    tell: impl FnOnce(String),
    mut request: impl FnMut() -> F,
) -> Result<T, CallError>
where
    F: Future<Output = Result<T, CallError>>,
{
    let (mut tell, begin, mut waits) = (Some(tell), Instant::now(), 0);
    loop {
        let error = match request().await {
            Err(error) if error.is_outage() && begin.elapsed() < limit => error,
            done => return done,
        };
        if let Some(tell) = tell.take() {
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
/// The API server's answer; a conflict only after many in a row, which take about a minute.
pub async fn on_conflict<T, F>(mut change: impl FnMut() -> F) -> Result<T, CallError>
where
    F: Future<Output = Result<T, CallError>>,
{
    for attempt in 0..MOST_CONFLICTS {
        match change().await {
            Err(error) if error.is_conflict() && !error.is_refused() => {}
            done => return done,
        }
        tokio::time::sleep(WAITS.delay(attempt)).await;
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
            assert_eq!(told.len(), usize::from(codes[0] == 503), "{codes:?}: {told:?}");
            assert!(told.iter().all(|why| why.starts_with("get Node n: no (")), "{told:?}");
            assert!(begin.elapsed() < limit + WAITS.last, "{codes:?}: {:?}", begin.elapsed());
        }
    }

    #[tokio::test(start_paused = true)]
    async fn an_admission_policy_that_is_not_ready_is_waited_for_and_one_that_denies_is_not() {
        let not_ready = "pools \"p\" is forbidden: ValidatingAdmissionPolicy 'p' denied request: failed to configure policy: x";
        let denied =
            "pools \"p\" is forbidden: ValidatingAdmissionPolicy 'p' with binding 'b' denied request: no";
        for (said, requests) in [(not_ready, 2), (denied, 1)] {
            let mut asked = 0;
            let done = on_outage(Duration::from_secs(60), drop, || {
                asked += 1;
                ready(if asked == 1 { Err(answer(422, said)) } else { Ok(()) })
            });
            assert_eq!((done.await.is_ok(), asked), (requests == 2, requests), "{said}");
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
            assert!(begin.elapsed() <= Duration::from_secs(90), "{:?}", begin.elapsed());
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
