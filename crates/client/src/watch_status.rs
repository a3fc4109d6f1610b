//! What the API server answered to a watch that failed, and what kind of failure that is. The classes are those of
//! [`crate::CallError`].
//!
//! What it is not: what follows, such as another try (see [`crate::watch`]), or the end of a watch whose kind is not installed.
//!
//! Source: <https://kubernetes.io/docs/reference/using-api/api-concepts/#efficient-detection-of-changes>.

use crate::call::serves_nobody;
use kube::core::Status;
use kube::runtime::watcher;

/// The API server's answer to a list or a watch; `None`: it did not answer, or the answer could not be read. The answer comes in
/// place of a list or of the beginning of a watch, or as an event in its middle.
pub fn watch_status(error: &watcher::Error) -> Option<&Status> {
    match error {
        watcher::Error::WatchError(status) => Some(status),
        watcher::Error::InitialListFailed(kube::Error::Api(status))
        | watcher::Error::WatchStartFailed(kube::Error::Api(status))
        | watcher::Error::WatchFailed(kube::Error::Api(status)) => Some(status),
        watcher::Error::InitialListFailed(_)
        | watcher::Error::WatchStartFailed(_)
        | watcher::Error::WatchFailed(_)
        | watcher::Error::NoResourceVersion => None,
    }
}

/// The HTTP status of that answer.
pub fn watch_code(error: &watcher::Error) -> Option<u16> {
    watch_status(error).map(|status| status.code)
}

/// Whether the API server serves nobody at the moment: it is unreachable, starting, overloaded, or has an internal error. The next try
/// may succeed although nobody changes anything. An answer that cannot be decoded is no outage: the next one cannot be decoded either.
pub fn watch_is_outage(error: &watcher::Error) -> bool {
    match (watch_status(error), error) {
        (Some(status), _) => serves_nobody(status),
        (
            None,
            watcher::Error::InitialListFailed(error)
            | watcher::Error::WatchStartFailed(error)
            | watcher::Error::WatchFailed(error),
        ) => {
            matches!(error, kube::Error::Service(_) | kube::Error::HyperError(_) | kube::Error::ReadEvents(_))
        }
        (None, watcher::Error::WatchError(_) | watcher::Error::NoResourceVersion) => false,
    }
}

/// Whether the version that a list or a watch should continue from is too old (410). The watcher lists again then.
pub fn watch_is_expired(error: &watcher::Error) -> bool {
    watch_code(error) == Some(410)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_answer_is_found_wherever_it_came() {
        let status = || Box::new(Status::failure("no", "Reason").with_code(410));
        let answer = || kube::Error::Api(status());
        for (error, want) in [
            (watcher::Error::InitialListFailed(answer()), Some(410)),
            (watcher::Error::WatchStartFailed(answer()), Some(410)),
            (watcher::Error::WatchFailed(answer()), Some(410)),
            (watcher::Error::WatchError(status()), Some(410)),
            (watcher::Error::WatchFailed(kube::Error::Service("refused".into())), None),
            (watcher::Error::NoResourceVersion, None),
        ] {
            assert_eq!(watch_code(&error), want, "{error:?}");
        }
    }
    #[test]
    fn each_error_of_a_watch_has_its_class() {
        let not_ready = "pools \"p\" is forbidden: ValidatingAdmissionPolicy 'p' denied request: failed to configure policy: x";
        let answer = |code: u16, said: &str| Box::new(Status::failure(said, "Reason").with_code(code));
        // Columns: the answer's code and message; whether it is an outage, and whether the version is too old.
        for (code, said, outage, expired) in [
            (401, "who", false, false),
            (403, "no", false, false),
            (404, "no such kind", false, false),
            (410, "too old", false, true),
            (422, "invalid", false, false),
            (422, not_ready, true, false),
            (429, "later", true, false),
            (500, "fault", true, false),
            (503, "starting", true, false),
        ] {
            for error in [
                watcher::Error::InitialListFailed(kube::Error::Api(answer(code, said))),
                watcher::Error::WatchStartFailed(kube::Error::Api(answer(code, said))),
                watcher::Error::WatchFailed(kube::Error::Api(answer(code, said))),
                watcher::Error::WatchError(answer(code, said)),
            ] {
                let classes = (watch_is_outage(&error), watch_is_expired(&error));
                assert_eq!(classes, (outage, expired), "{error:?}");
            }
        }
        let json = serde_json::from_str::<bool>("x").unwrap_err();
        let broken = || kube::Error::Service("connection refused".into());
        for (error, outage) in [
            (watcher::Error::InitialListFailed(broken()), true),
            (watcher::Error::WatchStartFailed(broken()), true),
            (
                watcher::Error::WatchFailed(kube::Error::ReadEvents(std::io::ErrorKind::BrokenPipe.into())),
                true,
            ),
            (watcher::Error::InitialListFailed(kube::Error::SerdeError(json)), false),
            (watcher::Error::NoResourceVersion, false),
        ] {
            assert_eq!((watch_is_outage(&error), watch_is_expired(&error)), (outage, false), "{error:?}");
        }
    }
}
