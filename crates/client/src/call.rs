//! One request: a timeout, and an error that names what was tried on which object.
//!
//! What it is not: a retry. The error says what kind of failure it is; the caller decides what follows.

use kube::core::Status;
use std::future::Future;
use std::time::Duration;

/// The timeout of a request. It is five times what a loaded API server needs for its slowest
/// write, and short enough that one lost connection does not delay a node's drain for minutes.
pub const REQUEST_TIMEOUT: Duration = Duration::from_secs(30);

/// A request that failed. Its text names what was tried; [`CallError::chain`] adds the cause.
#[derive(Debug, thiserror::Error)]
pub enum CallError {
    /// The API server answered with an error, or could not be reached.
    #[error("{what}")]
    Api {
        /// What was tried, with the object's kind and name.
        what: String,
        /// Why it failed.
        source: Box<kube::Error>,
    },
    /// No answer.
    #[error("{what}: no answer within {} s", after.as_secs())]
    Timeout {
        /// What was tried, with the object's kind and name.
        what: String,
        /// How long an answer was waited for.
        after: Duration,
    },
    /// An answer that does not fit its kind.
    #[error("{what}: {why}; does its CustomResourceDefinition have another version?")]
    Malformed {
        /// What was tried, with the object's kind and name.
        what: String,
        /// The field and what is wrong with it, without its value (see [`crate::decode`]).
        why: String,
    },
}

impl CallError {
    /// The API server's answer; `None` if it did not answer.
    pub fn status(&self) -> Option<&Status> {
        match self {
            Self::Api { source, .. } => match source.as_ref() {
                kube::Error::Api(status) => Some(status),
                _ => None,
            },
            Self::Timeout { .. } | Self::Malformed { .. } => None,
        }
    }

    /// Whether the answer cannot be decoded; the next one cannot either.
    pub fn is_malformed(&self) -> bool {
        matches!(self, Self::Malformed { .. })
    }

    /// The HTTP status of the API server's answer; `None` if it did not answer.
    pub fn code(&self) -> Option<u16> {
        self.status().map(|status| status.code)
    }

    /// Whether the API server itself answered with this code. An admission webhook that denies a request chooses the code as it
    /// likes, and its 409 is no conflict.
    fn is_own_answer(&self, code: u16) -> bool {
        self.code() == Some(code) && !self.by_admission()
    }

    /// 409: the object changed since it was read, or it exists already. Decide again. A patch that named another object's
    /// `metadata.uid` counts (see [`Self::is_other_object`]).
    pub fn is_conflict(&self) -> bool {
        self.is_own_answer(409) || self.is_other_object()
    }

    /// The object of this name is not the one that the patch was made for: it was deleted and created again since. The patch named
    /// the `metadata.uid` of the earlier one. The API server refuses to change a UID: the code is that of an invalid object (422),
    /// and the cause names the field.
    pub fn is_other_object(&self) -> bool {
        let causes = self.status().and_then(|status| status.details.as_ref()).map(|details| &details.causes);
        self.is_own_answer(422)
            && causes.is_some_and(|all| all.iter().any(|cause| cause.field == "metadata.uid"))
    }

    /// 404: the object, its namespace or its kind does not exist.
    pub fn is_not_found(&self) -> bool {
        self.is_own_answer(404)
    }

    /// 403: not allowed, by permissions or by an admission policy.
    pub fn is_forbidden(&self) -> bool {
        self.code() == Some(403)
    }

    /// 403 of the API server itself: a right is missing. Or it has just started: it refuses everything until it knows who may what,
    /// for some seconds (see [`crate::retry::on_outage_or_start`]).
    pub fn may_be_starting(&self) -> bool {
        self.is_own_answer(403)
    }

    /// 404 or 403. For an optional kind, both can mean that it is not installed: if permissions are checked before paths,
    /// somebody who may not read a kind is refused whether it exists or not.
    pub fn is_absent_or_forbidden(&self) -> bool {
        self.is_not_found() || self.is_forbidden()
    }

    /// 422: the object is not valid, a `test` of a JSON patch no longer holds, or the object is another one (see
    /// [`Self::is_other_object`]).
    pub fn is_invalid(&self) -> bool {
        self.code() == Some(422)
    }

    /// 429: refused for now, by a disruption budget or by an overloaded API server.
    pub fn is_too_many_requests(&self) -> bool {
        self.code() == Some(429)
    }

    /// Whether the server understood the request and will refuse it every time, because of its content or its sender.
    /// Only a change of the object, of permissions or of an admission policy ends that. A webhook may deny with any
    /// code.
    pub fn is_refused(&self) -> bool {
        !self.is_policy_not_ready()
            && !self.is_other_object()
            && (self.by_admission() || self.code().is_some_and(Self::is_refusal))
    }

    /// Whether the API server cannot apply an admission policy yet, and refuses everything that the policy is for. One that has
    /// just started does so until it has found the kind of the policy's parameters. The code is that of an invalid object (422),
    /// and the answer has no field for it, only a sentence of Kubernetes' `apiserver`: `… is forbidden: ValidatingAdmissionPolicy
    /// 'P' denied request: failed to configure policy: …`.
    pub fn is_policy_not_ready(&self) -> bool {
        self.status().is_some_and(policy_not_ready)
    }

    /// Whether an admission webhook or an admission policy denied the request. The answer has no field for that, only the
    /// sentences of Kubernetes' `apiserver`: `admission webhook "W" denied the request: …`, in newer versions after `… is
    /// forbidden: ` or `Internal error occurred: `, and `… is forbidden: ValidatingAdmissionPolicy 'P' with binding 'B' denied
    /// request: …`. Source: <https://github.com/kubernetes/kubernetes/blob/master/staging/src/k8s.io/apiserver/pkg/admission/plugin/webhook/errors/statuserror.go>.
    pub fn by_admission(&self) -> bool {
        self.status().is_some_and(denied)
    }

    /// Whether an answer with this code refuses the request every time; see [`Self::is_refused`].
    pub(crate) fn is_refusal(code: u16) -> bool {
        matches!(code, 400 | 403 | 405 | 413 | 415 | 422)
    }

    /// Whether the server refused the request (4xx) and will probably refuse it again soon: anything but a conflict, a
    /// timeout (408) or an overloaded server (429). Wider than [`Self::is_refused`]: a missing object and invalid
    /// credentials count too.
    pub fn is_client_error(&self) -> bool {
        !self.is_policy_not_ready()
            && !self.is_other_object()
            && self.code().is_some_and(|code| (400..500).contains(&code) && ![408, 409, 429].contains(&code))
    }

    /// Whether it is unknown if the request took effect: no answer, a broken connection, or a server that gave up
    /// half-way. A denial is an answer, whatever its code.
    pub fn is_unanswered(&self) -> bool {
        !self.is_malformed() && self.code().is_none_or(|code| code >= 500) && !self.by_admission()
    }

    /// Whether the API server serves nobody at the moment: it is unreachable, starting, overloaded, or has an internal error. An
    /// admission webhook that cannot be reached counts, and one that denies the request does not.
    pub fn is_outage(&self) -> bool {
        self.is_unanswered() || self.status().is_some_and(serves_nobody)
    }

    /// 5xx: the server answered with an error of its own. For example, an admission webhook is down or the database is
    /// slow.
    pub fn is_server_fault(&self) -> bool {
        self.is_unanswered() && self.code().is_some()
    }

    /// The error and its causes in one line, for logs, conditions and reasons.
    pub fn chain(&self) -> String {
        crate::chain(self)
    }
}

/// See [`CallError::is_policy_not_ready`].
fn policy_not_ready(status: &Status) -> bool {
    let policy = status.message.split_once("AdmissionPolicy '");
    policy.is_some_and(|(_, rest)| rest.contains("' denied request: failed to configure policy: "))
}

/// See [`CallError::by_admission`].
fn denied(status: &Status) -> bool {
    let said = status.message.as_str();
    let after = |text| said.split_once(text).map(|(_, rest)| rest);
    let by_webhook = [Some(said), after(" is forbidden: "), after("Internal error occurred: ")]
        .into_iter()
        .flatten()
        .any(|said| said.starts_with("admission webhook ") && said.contains(" denied the request"));
    let by_policy = said
        .split_once("ValidatingAdmissionPolicy '")
        .is_some_and(|(_, rest)| rest.contains("' with binding '") && rest.contains("' denied request"));
    by_webhook || by_policy
}

/// Whether an answer says that the API server serves nobody at the moment; see [`CallError::is_outage`].
pub(crate) fn serves_nobody(status: &Status) -> bool {
    !denied(status) && (status.code == 429 || status.code >= 500) || policy_not_ready(status)
}

/// Runs one request under [`REQUEST_TIMEOUT`]. `what` returns what is being tried, with the object's kind and name; it
/// is called only if the request fails.
///
/// # Errors
/// The API server's answer, a connection that failed, or no answer in time.
pub async fn call<T>(
    what: impl FnOnce() -> String,
    request: impl Future<Output = kube::Result<T>>,
) -> Result<T, CallError> {
    call_within(REQUEST_TIMEOUT, what, request).await
}

/// The same with the caller's own time limit.
///
/// # Errors
/// As [`call`].
pub async fn call_within<T>(
    limit: Duration,
    what: impl FnOnce() -> String,
    request: impl Future<Output = kube::Result<T>>,
) -> Result<T, CallError> {
    match tokio::time::timeout(limit, request).await {
        Ok(Ok(value)) => Ok(value),
        Ok(Err(source)) => Err(CallError::Api { what: what(), source: Box::new(source) }),
        Err(_) => Err(CallError::Timeout { what: what(), after: limit }),
    }
}

/// The same as [`call`] for an object that may be missing. `None`: the object, or its kind, does not exist.
///
/// # Errors
/// As [`call`], but for 404.
pub async fn call_optional<T>(
    what: impl FnOnce() -> String,
    request: impl Future<Output = kube::Result<T>>,
) -> Result<Option<T>, CallError> {
    if_found(call(what, request).await)
}

/// The answer, or `None` for 404: the object, or its kind, does not exist. An object that is to be deleted is gone then.
///
/// # Errors
/// Every other error.
pub fn if_found<T>(answer: Result<T, CallError>) -> Result<Option<T>, CallError> {
    match answer {
        Ok(found) => Ok(Some(found)),
        Err(error) if error.is_not_found() => Ok(None),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answered(code: u16, message: &str) -> CallError {
        let status = Status::failure(message, "Reason").with_code(code);
        CallError::Api {
            what: "patch Node n".to_owned(),
            source: Box::new(kube::Error::Api(Box::new(status))),
        }
    }

    /// The classes that an error belongs to, in the order of the methods.
    fn classes(error: &CallError) -> Vec<&'static str> {
        let all = [
            ("conflict", error.is_conflict()),
            ("not found", error.is_not_found()),
            ("forbidden", error.is_forbidden()),
            ("may be starting", error.may_be_starting()),
            ("invalid", error.is_invalid()),
            ("too many", error.is_too_many_requests()),
            ("refused", error.is_refused()),
            ("client", error.is_client_error()),
            ("unanswered", error.is_unanswered()),
            ("server", error.is_server_fault()),
            ("outage", error.is_outage()),
        ];
        all.into_iter().filter(|(_, is)| *is).map(|(name, _)| name).collect()
    }

    #[test]
    fn each_error_of_the_api_server_has_its_class() {
        let hook = "admission webhook \"policy.example.com\" denied the request: not today";
        let hook_by_object = "nodes \"n\" is forbidden: admission webhook \"policy.example.com\" denied the request: not today";
        let hook_internal =
            "Internal error occurred: admission webhook \"policy.example.com\" denied the request: not today";
        let policy = "nodes \"n\" is forbidden: ValidatingAdmissionPolicy 'p' with binding 'b' denied request: not today";
        let not_ready = "pools \"p\" is forbidden: ValidatingAdmissionPolicy 'p' denied request: failed to configure policy: \
                         failed to find resource referenced by paramKind: 'example.com/v1, Kind=Settings'";
        for (said, by) in
            [(hook, true), (policy, true), ("nodes \"n\" is forbidden: ValidatingAdmissionPolicy", false)]
        {
            assert_eq!(answered(403, said).by_admission(), by, "{said}");
        }
        assert!(!answered(500, "failed calling webhook: the admission webhook is away").by_admission());
        for (code, message, want) in [
            (400, "bad", &["refused", "client"][..]),
            (401, "who", &["client"]),
            (403, "no", &["forbidden", "may be starting", "refused", "client"]),
            (404, "gone", &["not found", "client"]),
            (405, "no such verb", &["refused", "client"]),
            (408, "slow", &[]),
            (409, "changed", &["conflict"]),
            (410, "expired", &["client"]),
            (413, "large", &["refused", "client"]),
            (415, "form", &["refused", "client"]),
            (422, "invalid", &["invalid", "refused", "client"]),
            (429, "later", &["too many", "outage"]),
            (500, "fault", &["unanswered", "server", "outage"]),
            (503, "down", &["unanswered", "server", "outage"]),
            // A webhook chooses the code itself.
            (404, hook, &["refused", "client"]),
            (409, hook, &["refused"]),
            (429, hook, &["too many", "refused"]),
            (500, hook, &["refused"]),
            (503, hook, &["refused"]),
            (403, hook, &["forbidden", "refused", "client"]),
            // As newer API servers say it.
            (403, hook_by_object, &["forbidden", "refused", "client"]),
            (409, hook_by_object, &["refused"]),
            (500, hook_internal, &["refused"]),
            // One that cannot be reached denies nothing.
            (500, "failed calling webhook \"policy.example.com\": no", &["unanswered", "server", "outage"]),
            (403, policy, &["forbidden", "refused", "client"]),
            (401, policy, &["refused", "client"]),
            (422, not_ready, &["invalid", "outage"]),
            // A message that only quotes a webhook's denial is not one.
            (409, "as the admission webhook said, denied the request", &["conflict"]),
        ] {
            assert_eq!(classes(&answered(code, message)), want, "{code} {message}");
        }
        // As an API server answers a patch that names the UID of a Node that was deleted and created again. A webhook may answer with
        // the same cause.
        let immutable = "Node \"n\" is invalid: metadata.uid: Invalid value: \"b\": field is immutable";
        for (message, want) in
            [(immutable, &["conflict", "invalid"][..]), (hook, &["invalid", "refused", "client"])]
        {
            let mut status = Status::failure(message, "Invalid").with_code(422);
            let details = serde_json::json!({"causes": [{"field": "metadata.uid"}]});
            status.details = Some(serde_json::from_value(details).unwrap());
            let error = kube::Error::Api(Box::new(status));
            let error = CallError::Api { what: "patch Node n".to_owned(), source: Box::new(error) };
            assert_eq!(classes(&error), want, "{message}");
        }
        let timeout = CallError::Timeout { what: "get Node n".to_owned(), after: Duration::from_secs(7) };
        let broken = kube::Error::Service("connection refused".into());
        let broken = CallError::Api { what: "get Node n".to_owned(), source: Box::new(broken) };
        for error in [timeout, broken] {
            assert_eq!(classes(&error), ["unanswered", "outage"], "{error:?}");
            assert!(error.status().is_none());
        }
    }

    #[test]
    fn the_error_names_the_request_and_the_servers_message_once() {
        let error = answered(403, "nodes \"n\" is forbidden");
        assert_eq!(error.chain(), "patch Node n: nodes \"n\" is forbidden (403 Reason)");
        let timeout = CallError::Timeout { what: "get Node n".to_owned(), after: Duration::from_secs(7) };
        assert_eq!(timeout.chain(), "get Node n: no answer within 7 s");
    }

    #[tokio::test(flavor = "current_thread")]
    async fn a_request_that_hangs_times_out_and_the_error_names_the_timeout() {
        let limit = Duration::from_millis(20);
        let never = std::future::pending::<kube::Result<()>>();
        let error = call_within(limit, || "list Nodes".to_owned(), never).await.unwrap_err();
        assert!(
            matches!(&error, CallError::Timeout { what, after } if what == "list Nodes" && *after == limit)
        );
        let malformed = CallError::Malformed { what: "get Node n".to_owned(), why: "spec.a: no".to_owned() };
        assert_eq!((classes(&malformed), malformed.is_malformed()), (vec![], true));
        let done = call(|| unreachable!("nothing failed"), async { Ok(1) }).await;
        assert_eq!(done.unwrap(), 1);
    }
}
