//! What a person may see and do through the dashboard in the cluster. The dashboard asks the API server with its own account;
//! each request that is made for a person is preceded by the question whether that person may make it (SubjectAccessReview),
//! so that nobody does more than with `kubectl`, and nobody sees more, but for what is masked: see
//! [`WITH_SECRETS`](crate::access::required_right::WITH_SECRETS).
//!
//! [`Rights::client_of`] gives the client for a person. It is the only one that handlers get, so no request can be made for
//! somebody without that question.
//!
//! What it is not: who somebody is (see `authentication`).
//!
//! Source: <https://kubernetes.io/docs/reference/access-authn-authz/authorization/>.

use crate::access::authentication::Person;
use crate::access::required_right::Right;
use api::definition::Defined as _;
use api::v1alpha1::RolloutPolicy;
use client::CallError;
use http::{Request, Response, StatusCode};
use kube::Client;
use kube::client::Body;
use serde_json::{Value, json};
use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::time::Instant;

/// How long a permission is remembered: every change of the page asks for the same ones.
const ALLOWED_FOR: Duration = Duration::from_secs(30);
/// How long a refusal is remembered: who gets a right looks again soon.
const REFUSED_FOR: Duration = Duration::from_secs(5);
/// How many answers are remembered: some dozens for each person.
const REMEMBERED: usize = 10_000;

/// The lists that the fleet is made from. Who may not list all of these gets nothing at all.
pub(crate) const FLEET: [(&str, &str); 5] = [
    ("", "nodes"),
    (api::names::GROUP, "machineconfigpools"),
    (api::names::GROUP, "machineconfigs"),
    (api::names::GROUP, "machineconfignodes"),
    (RolloutPolicy::DEFINITION.group, RolloutPolicy::DEFINITION.plural),
];

type Remembered = HashMap<(Arc<Person>, Right), (bool, Instant)>;

/// Asks the API server, and remembers its answers for a short time.
pub(crate) struct Rights {
    /// With the dashboard's own account.
    client: Client,
    remembered: Mutex<Remembered>,
}

impl fmt::Debug for Rights {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Rights").finish_non_exhaustive()
    }
}

impl Rights {
    pub(crate) fn new(client: Client) -> Self {
        Self { client, remembered: Mutex::default() }
    }

    /// Whether a person may have an answer of this on the page.
    async fn may_see(&self, person: &Arc<Person>, right: &Right) -> Result<bool, CallError> {
        if let Some(masked) = right.masked()
            && self.has(person, masked).await?
        {
            return Ok(true);
        }
        self.has(person, right.clone()).await
    }

    /// Whether a person has a right.
    async fn has(&self, person: &Arc<Person>, right: Right) -> Result<bool, CallError> {
        let key = (Arc::clone(person), right);
        let known = self.lock().get(&key).filter(|(_, until)| *until > Instant::now()).map(|(may, _)| *may);
        if let Some(may) = known {
            return Ok(may);
        }
        let may = listen::has_right(&self.client, key.1.spec(person)).await?;
        let mut remembered = self.lock();
        if remembered.len() >= REMEMBERED {
            remembered.retain(|_, (_, until)| *until > Instant::now());
        }
        if remembered.len() < REMEMBERED {
            let time = if may { ALLOWED_FOR } else { REFUSED_FOR };
            remembered.insert(key, (may, Instant::now() + time));
        }
        Ok(may)
    }

    /// Whether a person may have a list of these on the page.
    pub(crate) async fn may_list(
        &self,
        person: &Arc<Person>,
        group: &str,
        resource: &str,
    ) -> Result<bool, CallError> {
        self.may_see(person, &Right::list(group, resource)).await
    }

    /// What a person lacks to look at the fleet; `None`: nothing.
    pub(crate) async fn lacks(&self, person: &Arc<Person>) -> Result<Option<Right>, CallError> {
        for (group, resource) in FLEET {
            let right = Right::list(group, resource);
            if !self.may_see(person, &right).await? {
                return Ok(Some(right));
            }
        }
        Ok(None)
    }

    /// A client that makes only such requests as this person may make. Others are answered with 403, as by the API server.
    pub(crate) fn client_of(self: &Arc<Self>, person: Arc<Person>) -> Client {
        let rights = Arc::clone(self);
        let send = move |request: Request<Body>| {
            let (rights, person) = (Arc::clone(&rights), Arc::clone(&person));
            async move { rights.send(&person, request).await }
        };
        Client::new(tower::service_fn(send), "default")
    }

    async fn send(
        &self,
        person: &Arc<Person>,
        request: Request<Body>,
    ) -> Result<Response<Body>, kube::Error> {
        let Some(right) = Right::of(request.method(), request.uri()) else {
            return Ok(answer(
                StatusCode::FORBIDDEN,
                &failure(403, "Forbidden", crate::response::INVALID_NAME),
            ));
        };
        if right.asks_who_i_am() {
            return Ok(answer(StatusCode::CREATED, &me(person)));
        }
        match self.may_see(person, &right).await {
            Ok(true) => {
                let answered = self.client.send(request).await;
                if right.changes() {
                    log_change(person, &right, &answered);
                }
                answered
            }
            Ok(false) => {
                // Without the person's name, which can look like a user and a password.
                let why = format!("you may not {right}");
                Ok(answer(StatusCode::FORBIDDEN, &failure(403, "Forbidden", &why)))
            }
            Err(error) => {
                let why = format!("whether you may {right} is not known: {}", client::chain(&error));
                Ok(answer(StatusCode::SERVICE_UNAVAILABLE, &failure(503, "ServiceUnavailable", &why)))
            }
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Remembered> {
        self.remembered.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The API server's audit log has the dashboard's account for a change; this says who wanted it, and what came of it.
fn log_change(person: &Person, right: &Right, answered: &Result<Response<Body>, kube::Error>) {
    let user = &person.name;
    match answered {
        Ok(answer) if answer.status().is_success() => {
            tracing::info!(%user, status = answer.status().as_u16(), "{right}: done for a viewer of the dashboard");
        }
        Ok(answer) => {
            tracing::warn!(%user, status = answer.status().as_u16(), "{right}: not done for a viewer of the dashboard");
        }
        Err(error) => tracing::warn!(
            %user,
            "{right}: whether it was done for a viewer of the dashboard is not known: {}",
            api::formats::text::chain(error)
        ),
    }
}

/// A SelfSubjectReview: an approval is recorded with the person's name, not with that of the dashboard's account.
fn me(person: &Person) -> Value {
    json!({"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview", "metadata": {},
        "status": {"userInfo": {"username": person.name, "groups": person.groups}}})
}

fn failure(code: u16, reason: &str, why: &str) -> Value {
    json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "reason": reason, "code": code, "message": why})
}

fn answer(status: StatusCode, value: &Value) -> Response<Body> {
    let mut response = Response::new(Body::from(value.to_string().into_bytes()));
    *response.status_mut() = status;
    response
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    /// What is logged.
    #[derive(Clone, Default)]
    struct Log(Arc<Mutex<Vec<u8>>>);

    impl Write for Log {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0.lock().unwrap().write(bytes)
        }
        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    /// The log of a change that the API server answers with this status; `None`: it does not answer.
    async fn logged(status: Option<u16>) -> String {
        let answer = move |request: Request<Body>| async move {
            let review = request.uri().path().ends_with("/subjectaccessreviews");
            match status {
                _ if review => {
                    let allowed = json!({"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview",
                        "metadata": {}, "spec": {}, "status": {"allowed": true}});
                    Ok(answer(StatusCode::CREATED, &allowed))
                }
                Some(status) => Ok(answer(StatusCode::from_u16(status).unwrap(), &json!({}))),
                None => Err(std::io::Error::other("nobody is there")),
            }
        };
        let log = Log::default();
        let writer = log.clone();
        let subscriber =
            tracing_subscriber::fmt().with_ansi(false).with_writer(move || writer.clone()).finish();
        let _set = tracing::subscriber::set_default(subscriber);
        let rights = Rights::new(Client::new(tower::service_fn(answer), "default"));
        let person = Arc::new(Person { name: "jane".to_owned(), ..Person::default() });
        let patch = Request::patch("/api/v1/nodes/n1").body(Body::empty()).unwrap();
        let _ = rights.send(&person, patch).await;
        let bytes = log.0.lock().unwrap().clone();
        String::from_utf8(bytes).unwrap()
    }

    #[tokio::test]
    async fn the_log_says_that_a_change_is_done_when_it_is_done() {
        for (status, says) in [
            (Some(200), "patch nodes n1: done for"),
            (Some(409), "patch nodes n1: not done for"),
            (Some(500), "patch nodes n1: not done for"),
            (None, "patch nodes n1: whether it was done"),
        ] {
            let log = logged(status).await;
            let lines: Vec<&str> = log.lines().filter(|line| line.contains("patch nodes n1")).collect();
            assert!(
                matches!(lines[..], [line] if line.contains(says) && line.contains("jane")),
                "{status:?}: {log}"
            );
            let shown = status.is_none_or(|status| log.contains(&format!("status={status}")));
            assert!(shown, "{status:?}: {log}");
        }
    }
}
