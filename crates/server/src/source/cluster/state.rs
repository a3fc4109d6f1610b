//! What the server knows of the cluster, and what each pool serves according to it. Pure: watch events go in; the configs
//! to fetch, and the sources of answers, come out.
//!
//! Guarantees: a pool keeps serving its last good config while its next one is missing, unreadable or invalid, as long as
//! the old one still exists in the cluster.

use crate::prepared::prepare::{Mode, Rendered, Source};
use crate::refusal::Refusal;
use crate::source::cluster::built_image::{InternalRegistry, layered_image};
use crate::source::cluster::kubeconfig::{Credentials, kubeconfig};
use crate::source::cluster::served_config::served_config;
use crate::watched_objects::WatchedObjects;
use api::images::image_builds::{OsBuild, OsConfig};
use api::names::CONTROLLER_CONFIG;
use api::v1::{ControllerConfig, MachineConfig, MachineConfigPool};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Fetched rendered configs by name, each with the version that was fetched.
pub(crate) type Fetched = BTreeMap<String, (String, Result<Arc<Rendered>, Unfetched>)>;

/// Why a rendered config cannot be served.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Unfetched {
    /// The API server did not return it. Another try may help.
    Unavailable(String),
    /// It is not valid. Only a new version of it can help.
    Invalid(String),
}

/// Checks a fetched config. Only the compressed text stays: parsed, the configs of all pools would take most of the memory.
pub(crate) fn checked(config: MachineConfig) -> Result<Arc<Rendered>, Unfetched> {
    let rendered = Rendered::new(config);
    rendered.ignition().map_err(Unfetched::Invalid)?;
    Ok(Arc::new(rendered))
}

/// All that the server knows of the cluster.
#[derive(Debug, Default)]
pub(crate) struct ClusterState {
    /// Pools, or why one cannot be read.
    pub(crate) pools: WatchedObjects<Result<MachineConfigPool, String>>,
    /// MachineConfigs: UID and resource version, which change with the object.
    pub(crate) configs: WatchedObjects<String>,
    /// ControllerConfigs, or why one cannot be read.
    pub(crate) settings: WatchedObjects<Result<ControllerConfig, String>>,
    /// The CA bundle of `kubeconfig-data`.
    pub(crate) bundles: WatchedObjects<Vec<u8>>,
    /// MachineOSConfigs, if the cluster has the kind.
    pub(crate) os_configs: WatchedObjects<OsConfig>,
    /// MachineOSBuilds, if the cluster has the kind.
    pub(crate) os_builds: WatchedObjects<OsBuild>,
    /// The cluster's own registry. `None`: not known, so no image is known to be outside of it.
    pub(crate) internal: Option<InternalRegistry>,
    /// The last good bootstrap token, or why there is none.
    pub(crate) credentials: Option<Result<Credentials, String>>,
    /// The last good config of each pool.
    good: BTreeMap<String, Arc<Rendered>>,
}

/// The sources of all pools, and the pools that keep their last good config.
#[derive(Debug, Default)]
pub(crate) struct Sources {
    pub(crate) pools: BTreeMap<String, Result<Source, Refusal>>,
    /// The reason by pool.
    pub(crate) held_back: BTreeMap<String, String>,
}

impl ClusterState {
    /// What has not been read yet.
    pub(crate) fn missing(&self) -> Option<&'static str> {
        let seen = [
            (self.pools.ready(), "MachineConfigPools are not listed yet"),
            (self.configs.ready(), "MachineConfigs are not listed yet"),
            (self.settings.ready(), "the ControllerConfig is not read yet"),
            (self.bundles.ready(), "the ConfigMap kubeconfig-data is not read yet"),
        ];
        seen.into_iter().find(|(ready, _)| !ready).map(|(_, what)| what)
    }

    /// The rendered configs to serve, each with the version to fetch.
    pub(crate) fn wanted(&self) -> BTreeMap<&str, &str> {
        let names = self
            .pools
            .items
            .iter()
            .filter_map(|(n, p)| served_config(p.as_ref().ok()?, self.served_config_name(n)));
        names.filter_map(|name| Some((name, self.configs.get(name)?.as_str()))).collect()
    }

    /// Whether the cluster uses layered images.
    pub(crate) fn layering(&self) -> bool {
        !self.os_configs.items.is_empty()
    }

    /// Sets the credentials. A good token stays if the next one cannot be read. Returns whether they changed.
    pub(crate) fn set_credentials(&mut self, read: Result<Credentials, String>) -> bool {
        if read.is_err() && matches!(self.credentials, Some(Ok(_))) {
            return false;
        }
        let changed = self.credentials.as_ref() != Some(&read);
        self.credentials = Some(read);
        changed
    }

    /// What each pool serves, from what was fetched.
    pub(crate) fn sources(&mut self, apiserver_url: &str, fetched: &Fetched) -> Sources {
        let mut sources = Sources::default();
        let mut good = BTreeMap::new();
        for (name, pool) in &self.pools.items {
            let mut source = self.source(name, pool, apiserver_url, fetched);
            if let Err(refusal) = &source
                && let Some(last) = self.good.get(name).filter(|last| self.exists(last))
                && let Ok(standing) = self.with_config(name, Arc::clone(last), None, apiserver_url)
            {
                sources.held_back.insert(name.clone(), refusal.to_string());
                source = Ok(standing);
            }
            if let Ok(source) = &source {
                good.insert(name.clone(), Arc::clone(&source.rendered));
            }
            sources.pools.insert(name.clone(), source);
        }
        self.good = good;
        sources
    }

    /// The config that a pool serves now, if it still exists.
    fn served_config_name(&self, pool: &str) -> Option<&str> {
        Some(self.good.get(pool).filter(|r| self.exists(r))?.name())
    }

    fn exists(&self, rendered: &Rendered) -> bool {
        self.configs.get(rendered.name()).is_some()
    }

    fn source(
        &self,
        name: &str,
        pool: &Result<MachineConfigPool, String>,
        apiserver_url: &str,
        fetched: &Fetched,
    ) -> Result<Source, Refusal> {
        let not_yet = |why: String| Refusal::NotYet { pool: name.to_owned(), why };
        let broken = |why: String| Refusal::Broken { pool: name.to_owned(), why };
        let pool = pool.as_ref().map_err(|e| broken(format!("the MachineConfigPool cannot be read: {e}")))?;
        let config = served_config(pool, self.served_config_name(name)).ok_or_else(|| {
            not_yet(
                "its status names no rendered config; the controller sets it once it has rendered one"
                    .to_owned(),
            )
        })?;
        let Some(version) = self.configs.get(config) else {
            return Err(not_yet(format!("the MachineConfig {config} does not exist")));
        };
        let rendered = match fetched.get(config) {
            Some((v, Ok(rendered))) if v == version => Arc::clone(rendered),
            Some((v, Err(Unfetched::Unavailable(why)))) if v == version => {
                return Err(not_yet(format!("{config} could not be fetched: {why}")));
            }
            Some((v, Err(Unfetched::Invalid(why)))) if v == version => return Err(broken(why.clone())),
            _ => return Err(not_yet(format!("{config} is being fetched"))),
        };
        let updated = pool.status.as_ref().map_or(0, |s| s.updated_machine_count);
        let image = self.internal.as_ref().and_then(|internal| {
            let os_configs: Vec<&OsConfig> = self.os_configs.items.values().collect();
            let os_builds: Vec<&OsBuild> = self.os_builds.items.values().collect();
            layered_image(name, config, updated, &os_configs, &os_builds, internal)
        });
        self.with_config(name, rendered, image, apiserver_url)
    }

    fn with_config(
        &self,
        pool: &str,
        rendered: Arc<Rendered>,
        layered_image: Option<String>,
        apiserver_url: &str,
    ) -> Result<Source, Refusal> {
        let not_yet = |why: String| Refusal::NotYet { pool: pool.to_owned(), why };
        let settings = match self.settings.get(CONTROLLER_CONFIG) {
            Some(Ok(settings)) => settings,
            Some(Err(e)) => return Err(not_yet(format!("the ControllerConfig cannot be read: {e}"))),
            None => return Err(not_yet(format!("the ControllerConfig {CONTROLLER_CONFIG} does not exist"))),
        };
        let credentials = match &self.credentials {
            Some(Ok(credentials)) => credentials,
            Some(Err(why)) => return Err(not_yet(why.clone())),
            None => return Err(not_yet("the bootstrap token was not read yet".to_owned())),
        };
        let bundle = self.bundles.items.values().next().map(Vec::as_slice);
        let kubeconfig = kubeconfig(apiserver_url, credentials, bundle).map_err(not_yet)?;
        Ok(Source {
            pool: pool.to_owned(),
            rendered,
            mode: Mode::Cluster,
            kubelet_ca: settings.spec.kube_api_server_serving_ca_data.0.clone(),
            cloud_ca: settings.spec.cloud_provider_ca_data.as_ref().map(|c| c.0.clone()).unwrap_or_default(),
            kubeconfig,
            registry_certificates: Vec::new(),
            layered_image,
        })
    }
}

#[cfg(test)]
mod tests;
