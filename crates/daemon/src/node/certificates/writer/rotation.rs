//! Rotations of the API server's CA: when it is read, how the kubeconfigs get it, and the restart of the kubelet that has to
//! read it.
//!
//! Not here: which certificates are new (see `kubeconfig_ca`), and the other certificates of the cluster (see `writer`).

use super::{TaskError, Writer, ask, blocking};
use crate::node::certificates::kubeconfig_files::take_over;
use crate::protocol::clock::Moment;
use crate::protocol::disturbing_backoff;
use api::ca_rotation;
use api::k8s::{ByteString, ConfigMap};
use api::names::NAMESPACE;
use client::{chain, jitter};
use host::paths::KUBELET_RESTART;
use host::{DbusSystemd, Systemd};
use kube::Api;
use kube::runtime::watcher;
use serde_json::Value;
use std::error::Error;
use std::io;

/// The units that are a kubelet and no API server: a restart of the others would take that away too.
const KUBELETS: [&str; 4] =
    ["kubelet.service", "k3s-agent.service", "rke2-agent.service", "k0sworker.service"];
/// The ConfigMap with the API server's CA, and the key in it.
const KUBECONFIG_DATA: (&str, &str) = ("kubeconfig-data", "ca-bundle.crt");

/// What the object says about the API server's CA.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct CaRotation {
    /// `service-ca-rotate`, as the Node reports it.
    pub(super) word: String,
    /// When the CA was last replaced. Empty: never, or an administrator replaces it.
    pub(super) at: String,
}

impl CaRotation {
    /// Whether the CA is being rotated.
    fn is_under_way(&self) -> bool {
        ca_rotation::parse(&self.word) == Some(true)
    }
}

/// A restart of the kubelet that failed.
pub(super) struct FailedRestart {
    tries: u32,
    /// When it is tried again.
    again: Moment,
    why: String,
}

/// Whether the API server's CA is to be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum CaRead {
    /// It was read since it was last replaced.
    Nothing,
    /// A rotation may have been missed. The CA need not exist.
    Read,
    /// It is being rotated, so it must exist.
    Rotation,
}

/// Compares what the object says with what it said when the CA was last read. Two rotations within an hour differ in their
/// times, even if the `false` between them was never seen here.
pub(super) fn due(ca_read_for: Option<&CaRotation>, now: &CaRotation, owed: bool) -> CaRead {
    let begins = |was: &CaRotation| now.is_under_way() && !was.is_under_way();
    match ca_read_for {
        // The operator leaves the time, so what is owed stays owed after the hour. An administrator takes back what he asked.
        _ if owed && (now.is_under_way() || !now.at.is_empty()) => CaRead::Rotation,
        _ if owed => CaRead::Read,
        None if now.is_under_way() => CaRead::Rotation,
        None => CaRead::Read,
        Some(was) if begins(was) || (now.at != was.at && !now.at.is_empty()) => CaRead::Rotation,
        Some(_) => CaRead::Nothing,
    }
}

impl Writer {
    /// Reads the API server's CA if that is due. The outer error: a rotation was not followed, and nothing may say that it
    /// was. The inner one: the look of a new process, which is repeated.
    pub(super) async fn follow(&mut self, rotate: &CaRotation) -> Result<Result<(), TaskError>, TaskError> {
        match due(self.ca_read_for.as_ref(), rotate, self.rotation_owed) {
            CaRead::Nothing => {}
            CaRead::Read => {
                if let Err(why) = self.rotate(false).await {
                    return Ok(Err(why));
                }
                self.rotation_owed = false;
            }
            CaRead::Rotation => {
                self.rotation_owed = true;
                self.rotate(true).await?;
                self.rotation_owed = false;
            }
        }
        self.ca_read_for = Some(rotate.clone());
        Ok(Ok(()))
    }

    /// Writes the API server's new CA to the kubeconfigs. `asked_for`: it is being rotated, so it must be there.
    async fn rotate(&mut self, asked_for: bool) -> Result<(), TaskError> {
        let (name, key) = KUBECONFIG_DATA;
        let api: Api<ConfigMap> = Api::namespaced(self.client.clone(), NAMESPACE);
        let found = ask(&format!("get ConfigMap {NAMESPACE}/{name}"), api.get_opt(name)).await;
        let found = found.map_err(TaskError::NoAnswer)?;
        let Some(map) = found else {
            if !asked_for {
                return Ok(());
            }
            return Err(TaskError::Failed(format!(
                "ConfigMap {NAMESPACE}/{name} does not exist, but the API server's CA is being rotated; \
                 create it with the new CA under {key}"
            )));
        };
        let Some(bundle) = bundle(&map, key) else {
            if !asked_for {
                return Ok(());
            }
            return Err(TaskError::Failed(format!(
                "ConfigMap {NAMESPACE}/{name} has no {key}; put the new CA there"
            )));
        };
        let (root, paths) = (self.place.root.clone(), self.place.kubeconfigs.clone());
        let taken = blocking(move || take_over(&root, &paths, &bundle)).await;
        // Also after a failure, and for an earlier process that ended before the restart.
        if self.must_restart_kubelet().map_err(TaskError::Failed)? {
            self.restart_kubelet_again().await.map_err(TaskError::Failed)?;
        }
        let taken = taken.map_err(TaskError::Failed)?;
        if asked_for && taken.found.is_empty() {
            return Err(TaskError::Failed(format!(
                "the API server's CA is being rotated, and this host has no kubeconfig at {}, so nothing was written; start \
                 the agent with --kubeconfig and the path of the kubelet's, or give the kubelet the new CA by hand and put a \
                 link at the first of these paths",
                self.place.kubeconfigs.join(", ")
            )));
        }
        for (path, file) in &taken.named {
            tracing::info!(%path, %file, "this kubeconfig names a file with the API server's CA, which its owner renews");
        }
        if taken.written.is_empty() {
            return Ok(());
        }
        tracing::info!(files = ?taken.written, at_once = taken.at_once, "the kubeconfig now has the API server's new CA");
        self.restart_owed |= !taken.at_once;
        Ok(())
    }

    /// Restarts the kubelet, unless that has failed a short while ago: each try disturbs it.
    async fn restart_kubelet_again(&mut self) -> Result<(), String> {
        if let Some(failed) = self.restart_failed.as_ref().filter(|failed| failed.again > Moment::now()) {
            return Err(failed.why.clone());
        }
        let done = self.restart_kubelet().await;
        if let Err(why) = &done {
            let tries = self.restart_failed.as_ref().map_or(1, |failed| failed.tries.saturating_add(1));
            let again = Moment::now() + disturbing_backoff(tries, jitter());
            let why =
                format!("the kubelet must read the API server's new CA, and cannot be restarted: {why}");
            self.restart_failed = Some(FailedRestart { tries, again, why });
        }
        done
    }

    /// Whether the kubelet has to read a new CA now.
    pub(super) fn must_restart_kubelet(&self) -> Result<bool, String> {
        let found = self.place.root.found(KUBELET_RESTART).map_err(|e| chain(&e))?;
        Ok(!found.is_absent())
    }

    /// Called when the watch has failed. If the API server's certificate is not trusted, a kubelet that has not read the
    /// new CA does not trust it either.
    pub(super) async fn watch_failed(&mut self, error: &watcher::Error) {
        tracing::warn!(error = %chain(error), "watching ControllerConfig; trying again");
        let is_owed = self.restart_owed || self.must_restart_kubelet().unwrap_or_default();
        if is_owed && is_untrusted_certificate(error) {
            match self.restart_kubelet().await {
                Ok(()) => {}
                Err(why) => tracing::warn!(%why, "the kubelet must read the API server's new CA; restart it"),
            }
        }
    }

    pub(super) async fn restart_kubelet(&mut self) -> Result<(), String> {
        let mut systemd = DbusSystemd::new(tokio::runtime::Handle::current(), &self.place.root_mount);
        let known = blocking(move || {
            for unit in KUBELETS {
                if systemd.state(unit).map_err(|e| chain(&e))?.is_some() {
                    systemd.restart(unit).map_err(|e| chain(&e))?;
                    return Ok(Some(unit));
                }
            }
            Ok(None)
        })
        .await?;
        match known {
            Some(unit) => tracing::info!(%unit, "restarted: the kubelet has read the API server's new CA"),
            None => tracing::warn!(
                "this host has none of {}: restart the service that runs the kubelet, it must read the API server's new CA",
                KUBELETS.join(", ")
            ),
        }
        self.restart_owed = false;
        self.restart_failed = None;
        self.place.root.remove(KUBELET_RESTART).map_err(|e| chain(&e))
    }
}

/// Whether a request failed because the certificate of the API server is not trusted. That is this process' own finding:
/// what a server says about certificates (an alert, or the text of an answer) is about those that were presented to it.
pub(super) fn is_untrusted_certificate(error: &(dyn Error + 'static)) -> bool {
    let mut next = Some(error);
    while let Some(error) = next {
        if let Some(rustls::Error::InvalidCertificate(_)) = error.downcast_ref() {
            return true;
        }
        next = match error.downcast_ref::<io::Error>() {
            // `source` of an `io::Error` passes over the error that it was made from.
            Some(error) => error.get_ref().map(|inner| inner as &(dyn Error + 'static)),
            None => error.source(),
        };
    }
    false
}

/// The CA bundle in a ConfigMap: from binary data, from base64 text, or from plain text.
pub(super) fn bundle(map: &ConfigMap, key: &str) -> Option<Vec<u8>> {
    if let Some(bytes) = map.binary_data.as_ref().and_then(|d| d.get(key)) {
        return Some(bytes.0.clone());
    }
    let text = map.data.as_ref()?.get(key)?;
    let decoded = serde_json::from_value::<ByteString>(Value::String(text.trim().to_owned()));
    Some(decoded.map_or_else(|_| text.clone().into_bytes(), |b| b.0))
}
