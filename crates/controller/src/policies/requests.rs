//! The requests of one check of a gate: to the API server, to Prometheus, or to any HTTP server.
//!
//! What it is not: what an answer means (see `rollout::policy::gates`), a timeout of the whole check (see `checks`), or the Jobs of
//! a gate (see `jobs`). A token is read for each check and goes into no text. The client of a gate's own server is made once for each gate.

use crate::cache::trimmed::TrimmedNode;
use crate::policies::check_subject::CheckSubject;
use crate::shared::Shared;
use api::formats::text::{cut, names};
use api::k8s::{LabelSelector, ResourceExt, Secret};
use api::names::NAMESPACE;
use api::v1alpha1::{SecretKey, WorkloadKind};
use client::{Pages, call, chain};
use http_body_util::{BodyExt, Limited};
use kube::api::{ApiResource, DynamicObject, ListParams};
use kube::core::{GroupVersionKind, Selector};
use kube::{Api, Client};
use rollout::policy::Gate;
use rollout::policy::gates::{
    Check, MAX_BROKEN, Reading, of_http, of_nodes, of_prometheus, of_workload, why_worse,
};
use serde_json::json;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// Workloads in one page of a list: they are decoded whole.
const PAGE: u32 = 100;
/// The longest answer that is read: a vector of ten thousand values.
const LONGEST_ANSWER: usize = 1 << 20;
/// Characters of an error in a gate's message.
pub(super) const WORDS: usize = 300;
/// Connections are made within this time or not at all.
const CONNECT: Duration = Duration::from_secs(5);

/// The workloads that a gate's first check of a change found; empty: there was none yet. It outlives the gate's task, which ends
/// where the gate has nothing to say.
pub(super) type FirstWorkloads = Arc<Mutex<BTreeSet<String>>>;

/// What a gate keeps from check to check.
#[derive(Default)]
pub(super) struct GateClient {
    /// The client of the server that it asks. To make one reads the trusted certificates, which is too much for each second.
    client: Option<Client>,
    /// The workloads that were there when it was first checked.
    first: FirstWorkloads,
}

/// Runs one check.
pub(super) async fn check(
    shared: &Shared,
    asker: &mut GateClient,
    gate: &Gate,
    about: &CheckSubject,
) -> Reading {
    let result = match &gate.check {
        Check::NodeCondition { type_, status } => nodes(shared, type_, status, &about.nodes).await,
        Check::Workloads { kinds, namespaces, selector } => {
            let first = &asker.first;
            workloads(shared, (first, gate, about), kinds, namespaces.as_deref(), selector).await
        }
        Check::Prometheus { url, query, operator, bound, token } => {
            let query = registry::encoded(query);
            let url = format!("{url}/api/v1/query?query={query}");
            get(shared, asker, &url, token.as_ref(), true, gate.timeout)
                .await
                .map(|(status, body)| of_prometheus(status, &body, *operator, *bound))
        }
        Check::Http { url, status, token } => get(shared, asker, url, token.as_ref(), false, gate.timeout)
            .await
            .map(|(code, _)| of_http(code, *status)),
        // They are not one question (see `jobs`).
        Check::Job { .. } => {
            Err("a gate with a Job cannot be checked by a request; this is a bug, please report it"
                .to_owned())
        }
    };
    result.unwrap_or_else(|why| Reading::NoAnswer(cut(&why, WORDS).into_owned()))
}

async fn nodes(shared: &Shared, type_: &str, wanted: &str, of: &[Arc<str>]) -> Result<Reading, String> {
    let api = Api::<TrimmedNode>::all(shared.client.clone());
    let mut statuses: BTreeMap<String, String> = BTreeMap::new();
    let mut pages = Pages::of(ListParams::default());
    while let Some(params) = pages.next() {
        let page = call(|| "list nodes".to_owned(), api.list(&params)).await;
        for TrimmedNode(node) in pages.take(page).map_err(|e| e.chain())? {
            let conditions = node.status.as_ref().and_then(|s| s.conditions.as_deref()).unwrap_or_default();
            let status = conditions.iter().find(|c| c.type_ == type_).map(|c| c.status.clone());
            statuses.insert(node.name_any(), status.unwrap_or_default());
        }
    }
    Ok(of_nodes(wanted, of, &statuses))
}

async fn workloads(
    shared: &Shared,
    (first, gate, about): (&FirstWorkloads, &Gate, &CheckSubject),
    kinds: &[WorkloadKind],
    namespaces: Option<&[String]>,
    selector: &LabelSelector,
) -> Result<Reading, String> {
    let selector: Selector = selector.clone().try_into().map_err(|e| format!("its selector: {e}"))?;
    let (mut broken, mut there) = (vec![], BTreeSet::new());
    for kind in kinds {
        let resource = ApiResource::from_gvk(&GroupVersionKind::gvk("apps", "v1", &format!("{kind:?}")));
        let apis: Vec<Api<DynamicObject>> = match namespaces {
            Some(all) => all
                .iter()
                .map(|namespace| Api::namespaced_with(shared.client.clone(), namespace, &resource))
                .collect(),
            None => vec![Api::all_with(shared.client.clone(), &resource)],
        };
        for api in apis {
            let mut pages = Pages::of(ListParams::default().labels_from(&selector).limit(PAGE));
            while let Some(params) = pages.next() {
                let what = || format!("list {kind:?} objects");
                let page = pages.take(call(what, api.list(&params)).await).map_err(|e| e.chain())?;
                let name = |o: &DynamicObject| {
                    format!("{kind:?} {}/{}", o.namespace().unwrap_or_default(), o.name_any())
                };
                there.extend(page.iter().map(name));
                broken.extend(page.iter().filter_map(|o| of_workload(*kind, about.away, &json!(o))));
            }
        }
    }
    broken.sort_unstable();
    let mut first = first.lock().unwrap_or_else(PoisonError::into_inner);
    if first.is_empty() {
        // An earlier leader has seen them.
        first.extend(about.workloads.iter().cloned());
    }
    // What is broken now, and was not before, is an answer whatever else is gone.
    if why_worse(&gate.check, about.baseline.as_deref(), &broken).is_some() {
        return Ok(Reading::Broken(broken));
    }
    let gone = names(first.iter().filter(|name| !there.contains(*name)), 1);
    if !gone.is_empty() {
        return Err(format!(
            "{gone} existed when the rollout began and disappeared since; create it again, or edit the policy if \
             it was removed on purpose"
        ));
    }
    if there.is_empty() {
        return Err("its selector picks no workload; correct it, or the namespaces".to_owned());
    }
    if first.is_empty() {
        *first = there;
    }
    Ok(Reading::Broken(broken))
}

async fn token(shared: &Shared, at: &SecretKey) -> Result<String, String> {
    let api = Api::<Secret>::namespaced(shared.client.clone(), NAMESPACE);
    let SecretKey { name, key } = at;
    let secret = call(|| format!("secret {NAMESPACE}/{name}"), api.get(name)).await.map_err(|e| {
        format!("{}; the controller's service account needs the right to get this Secret", e.chain())
    })?;
    let value = secret.data.as_ref().and_then(|d| d.get(key));
    let value = value.ok_or_else(|| format!("Secret {NAMESPACE}/{name} has no key {key}"))?;
    let text =
        std::str::from_utf8(&value.0).ok().map(str::trim).filter(|t| t.chars().all(|c| c.is_ascii_graphic()));
    text.map(str::to_owned)
        .ok_or_else(|| format!("key {key} of Secret {NAMESPACE}/{name} is no bearer token"))
}

impl GateClient {
    pub(super) fn new(first: FirstWorkloads) -> Self {
        Self { first, ..Self::default() }
    }

    /// The workloads that were there when the change began, in order, as many as are stored.
    pub(super) fn workloads(&self) -> Vec<String> {
        let first = self.first.lock().unwrap_or_else(PoisonError::into_inner);
        first.iter().take(MAX_BROKEN).cloned().collect()
    }

    /// The client of the server that `base` names. A gate asks one server only.
    fn client(&mut self, base: http::Uri, limit: Duration) -> Result<Client, String> {
        if let Some(client) = &self.client {
            return Ok(client.clone());
        }
        let mut config = kube::Config::new(base);
        config.default_retry = false;
        (config.connect_timeout, config.read_timeout, config.write_timeout) =
            (Some(CONNECT.min(limit)), Some(limit), Some(limit));
        let client = Client::try_from(config).map_err(|e| chain(&e))?;
        Ok(self.client.insert(client).clone())
    }
}

/// A GET request: the status, and the body if it is wanted. Each request has a connection of its own, like that of a new
/// user: a Service may choose another pod for it, and a server that accepts no more connections is noticed.
async fn get(
    shared: &Shared,
    asker: &mut GateClient,
    url: &str,
    secret: Option<&SecretKey>,
    body: bool,
    limit: Duration,
) -> Result<(u16, String), String> {
    let uri: http::Uri = url.parse().map_err(|e| format!("its url: {e}"))?;
    let (Some(scheme), Some(authority)) = (uri.scheme(), uri.authority()) else {
        return Err("its url has no host".to_owned());
    };
    let at = || format!("GET {scheme}://{authority}{}", uri.path());
    let base =
        http::Uri::builder().scheme(scheme.clone()).authority(authority.clone()).path_and_query("/").build();
    let base = base.map_err(|e| format!("its url: {e}"))?;
    let client = asker.client(base, limit).map_err(|e| format!("{}: {e}", at()))?;
    let path = uri.path_and_query().map_or("/", http::uri::PathAndQuery::as_str);
    let mut request = http::Request::get(path).header(http::header::CONNECTION, "close");
    if let Some(secret) = secret {
        request =
            request.header(http::header::AUTHORIZATION, format!("Bearer {}", token(shared, secret).await?));
    }
    let request = request.body(kube::client::Body::empty()).map_err(|e| format!("{}: {e}", at()))?;
    let answer = client.send(request).await.map_err(|e| format!("{}: {}", at(), chain(&e)))?;
    let status = answer.status().as_u16();
    if !body {
        return Ok((status, String::new()));
    }
    let bytes = Limited::new(answer.into_body(), LONGEST_ANSWER).collect().await;
    let bytes = bytes.map_err(|e| format!("{}: the answer cannot be read: {e}", at()))?.to_bytes();
    Ok((status, String::from_utf8_lossy(&bytes).into_owned()))
}
