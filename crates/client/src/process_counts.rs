//! Counts of a process's own work, for people who cannot reach its metrics: requests and their failures, passes, the length
//! of the queues, memory. The leader writes them on its Lease whenever it renews that, so they need no write of their own.
//!
//! What it is not: metrics. Those have more, are stored by Prometheus, and exist for processes that do not lead, too.

use crate::call::CallError;
use api::names::own;
use k8s_openapi::jiff::Timestamp;
use kube::core::ObjectMeta;
use kube::{Client, Error};
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// What a process has counted since it began.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ProcessCounts {
    /// The holder of the Lease that counted these; figures of an earlier holder are recognised by it.
    pub holder: String,
    /// When it began to count.
    pub since: Timestamp,
    /// Requests to the API server. A watch counts as one.
    pub requests: u64,
    /// Requests that it refused and will refuse again: see [`CallError::is_refused`].
    pub refused: u64,
    /// Requests without an answer, or answered with an internal error of the API server or with "too many requests".
    pub unanswered: u64,
    /// Passes.
    pub passes: u64,
    /// Passes that failed and are repeated.
    pub failed: u64,
    /// Keys that wait for a pass now.
    pub waiting: u64,
    /// Memory in use, in bytes; absent if the system does not report it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory: Option<u64>,
}

impl ProcessCounts {
    /// The figures of a process with these requests. The caller adds its passes.
    pub fn of(requests: &Requests) -> Self {
        let count = |of: &AtomicU64| of.load(Ordering::Relaxed);
        Self {
            since: requests.since,
            requests: count(&requests.sent),
            refused: count(&requests.refused),
            unanswered: count(&requests.unanswered),
            memory: memory(),
            ..Self::default()
        }
    }

    /// The figures on a Lease. `None`: there are none, or they are those of another holder.
    pub fn read(lease: &ObjectMeta, holder: &str) -> Option<Self> {
        let text = lease.annotations.as_ref()?.get(own::PROCESS_COUNTS)?;
        serde_json::from_str::<Self>(text).ok().filter(|counts| counts.holder == holder)
    }
}

/// Counts the requests of a process.
#[derive(Debug)]
pub struct Requests {
    since: Timestamp,
    sent: AtomicU64,
    refused: AtomicU64,
    unanswered: AtomicU64,
}

impl Requests {
    fn note(&self, answered: Result<u16, ()>) {
        let add = |to: &AtomicU64| to.fetch_add(1, Ordering::Relaxed);
        add(&self.sent);
        match answered {
            Ok(code) if CallError::is_refusal(code) => add(&self.refused),
            Ok(429 | 500..) | Err(()) => add(&self.unanswered),
            Ok(_) => 0,
        };
    }
}

/// A request in progress. If its caller stops waiting, because its time is over, it counts as unanswered.
struct UnderWay {
    counts: Arc<Requests>,
    answered: Result<u16, ()>,
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        self.counts.note(self.answered);
    }
}

/// The same client, with its requests counted.
#[must_use]
pub fn counted(client: Client) -> (Client, Arc<Requests>) {
    let requests = Arc::new(Requests {
        since: Timestamp::now(),
        sent: AtomicU64::default(),
        refused: AtomicU64::default(),
        unanswered: AtomicU64::default(),
    });
    let counts = Arc::clone(&requests);
    let namespace = client.default_namespace().to_owned();
    let send = move |request| {
        let (client, counts) = (client.clone(), Arc::clone(&counts));
        async move {
            let mut under_way = UnderWay { counts, answered: Err(()) };
            let answered = client.send(request).await;
            under_way.answered =
                answered.as_ref().map(|answer| answer.status().as_u16()).map_err(|_: &Error| ());
            answered
        }
    };
    (Client::new(tower::service_fn(send), namespace), requests)
}

/// The memory that this process has now, in bytes.
fn memory() -> Option<u64> {
    resident(&std::fs::read_to_string("/proc/self/status").ok()?)
}

/// `VmRSS` of proc(5), which is in kilobytes.
fn resident(status: &str) -> Option<u64> {
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()?.checked_mul(1024)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    #[tokio::test]
    async fn each_request_is_counted_with_what_became_of_it() {
        let serve = tower::service_fn(|request: http::Request<kube::client::Body>| async move {
            let code: u16 = request.uri().path().trim_start_matches('/').parse().unwrap();
            if code == 0 {
                return Err(std::io::Error::from(std::io::ErrorKind::ConnectionReset));
            }
            Ok(http::Response::builder().status(code).body(kube::client::Body::empty()).unwrap())
        });
        let (client, requests) = counted(Client::new(serve, "ours"));
        assert_eq!(client.default_namespace(), "ours");
        for code in [200, 201, 404, 409, 403, 422, 429, 500, 503, 0] {
            let request = http::Request::get(format!("/{code}")).body(kube::client::Body::empty()).unwrap();
            let _ = client.send(request).await;
        }
        let counts = ProcessCounts::of(&requests);
        assert_eq!((counts.requests, counts.refused, counts.unanswered), (10, 2, 4));

        // Nobody waits for the answer any more.
        let never = tower::service_fn(|_: http::Request<kube::client::Body>| {
            std::future::pending::<Result<http::Response<kube::client::Body>, std::io::Error>>()
        });
        let (client, requests) = counted(Client::new(never, "ours"));
        let request = http::Request::get("/").body(kube::client::Body::empty()).unwrap();
        let late = tokio::time::timeout(std::time::Duration::from_millis(50), client.send(request)).await;
        assert!(late.is_err());
        let counts = ProcessCounts::of(&requests);
        assert_eq!((counts.requests, counts.unanswered), (1, 1));
    }

    #[test]
    fn what_an_earlier_holder_left_is_nobodys() {
        let counts = ProcessCounts { holder: "a".to_owned(), passes: 7, ..ProcessCounts::default() };
        let text = serde_json::to_string(&counts).unwrap();
        let lease = |text: &str| ObjectMeta {
            annotations: Some(BTreeMap::from([(own::PROCESS_COUNTS.to_owned(), text.to_owned())])),
            ..ObjectMeta::default()
        };
        assert_eq!(ProcessCounts::read(&lease(&text), "a"), Some(counts));
        assert_eq!(ProcessCounts::read(&lease(&text), "b"), None);
        assert_eq!(ProcessCounts::read(&lease("no figures"), "a"), None);
        assert_eq!(ProcessCounts::read(&ObjectMeta::default(), ""), None);
        // A later version may count more, an earlier one less.
        let other = ProcessCounts::read(&lease("{\"holder\":\"a\",\"more\":1}"), "a").unwrap();
        assert_eq!((other.passes, other.memory), (0, None));
    }

    #[test]
    fn memory_is_read_as_the_kernel_writes_it() {
        assert_eq!(resident("Name:\tmco\nVmRSS:\t   15360 kB\nThreads:\t3\n"), Some(15_728_640));
        assert_eq!(resident("Name:\tmco\n"), None);
        assert!(memory().is_some_and(|bytes| bytes > 1 << 20));
    }
}
