//! What the API server answered to a watch that failed.
//!
//! What it is not: what follows, such as another try (`kube` makes it), or the end of a watch whose kind is not installed.

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
}
