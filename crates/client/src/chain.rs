//! An error and its causes as one line.

use kube::runtime::watcher;
use std::error::Error;

/// An error and its causes in one line. For an answer of the API server its message and code are used, because the
/// library would print the whole object. A cause that its error already contains is left out.
pub fn chain(error: &(dyn Error + 'static)) -> String {
    api::formats::text::chain_with(error, replacement_text)
}

/// The same without what the API server says to a request that it refuses (403), but for the code. That has the name of who asked,
/// which a masker can take for a user and a password.
pub fn chain_without_refusal(error: &(dyn Error + 'static)) -> String {
    api::formats::text::chain_with(error, |error| refusal_text(error).or_else(|| replacement_text(error)))
}

/// The text to use for a refusal, and whether it includes its causes.
fn refusal_text(error: &(dyn Error + 'static)) -> Option<(String, bool)> {
    let answer = error.downcast_ref::<kube::Error>();
    let answer = answer.or_else(|| error.downcast_ref::<Box<kube::Error>>().map(AsRef::as_ref));
    let watch = error.downcast_ref::<watcher::Error>();
    let watch = watch.or_else(|| error.downcast_ref::<Box<watcher::Error>>().map(AsRef::as_ref));
    let code = match (answer, watch) {
        (Some(kube::Error::Api(status)), _) => status.code,
        (_, Some(watcher::Error::WatchError(status))) => status.code,
        _ => return None,
    };
    (code == 403).then(|| ("you may not do this (403 Forbidden)".to_owned(), true))
}

/// The text to use instead of the error's own, and whether that text includes its causes.
fn replacement_text(error: &(dyn Error + 'static)) -> Option<(String, bool)> {
    let answer = error.downcast_ref::<kube::Error>();
    let answer = answer.or_else(|| error.downcast_ref::<Box<kube::Error>>().map(AsRef::as_ref));
    // The parser's own message quotes what it could not read, which may be a secret.
    if let Some(kube::Error::SerdeError(json)) = answer {
        return Some((place("the answer does not match the kind's schema", json), true));
    }
    if let Some(json) = error.downcast_ref::<serde_json::Error>() {
        return Some((place("cannot be read", json), true));
    }
    if let Some(kube::Error::Api(status)) = answer {
        return Some((format!("{} ({} {})", status.message, status.code, status.reason), true));
    }
    let watch = error.downcast_ref::<watcher::Error>();
    match watch.or_else(|| error.downcast_ref::<Box<watcher::Error>>().map(AsRef::as_ref))? {
        watcher::Error::InitialListFailed(_) => Some(("list".to_owned(), false)),
        watcher::Error::WatchStartFailed(_) => Some(("start of the watch".to_owned(), false)),
        watcher::Error::WatchFailed(_) => Some(("watch".to_owned(), false)),
        watcher::Error::WatchError(status) => {
            Some((format!("watch: {} ({})", status.message, status.code), true))
        }
        watcher::Error::NoResourceVersion => None,
    }
}

fn place(what: &str, json: &serde_json::Error) -> String {
    format!("{what}: line {}, column {}", json.line(), json.column())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_response_that_cannot_be_decoded_is_reported_by_the_place_of_the_mistake() {
        let json = || serde_json::from_str::<Vec<bool>>("[\"hunter2\"]").unwrap_err();
        assert!(json().to_string().contains("hunter2"));
        let call = || kube::Error::SerdeError(json());
        assert_eq!(chain(&json()), "cannot be read: line 1, column 10");
        assert_eq!(chain(&call()), "the answer does not match the kind's schema: line 1, column 10");
        let list = watcher::Error::InitialListFailed(call());
        assert_eq!(chain(&list), "list: the answer does not match the kind's schema: line 1, column 10");
        let get = crate::CallError::Api { what: "get Node n".to_owned(), source: Box::new(call()) };
        assert_eq!(get.chain(), "get Node n: the answer does not match the kind's schema: line 1, column 10");
    }
    use kube::core::Status;

    #[test]
    fn an_error_of_the_api_server_is_reported_without_the_object() {
        let answer = || kube::Error::Api(Box::new(Status::failure("no", "Forbidden").with_code(403)));
        assert_eq!(chain(&answer()), "no (403 Forbidden)");
        assert_eq!(chain(&Box::new(answer())), "no (403 Forbidden)");
        let list = watcher::Error::InitialListFailed(answer());
        assert_eq!(chain(&list), "list: no (403 Forbidden)");
        assert_eq!(chain(&Box::new(list)), "list: no (403 Forbidden)");
        let gone = watcher::Error::WatchError(Box::new(Status::failure("too old", "Expired").with_code(410)));
        assert_eq!(chain(&gone), "watch: too old (410)");
        let broken = kube::Error::Service("connection refused".into());
        let text = chain(&watcher::Error::WatchFailed(broken));
        assert_eq!(text.matches("connection refused").count(), 1, "{text}");
    }
}
