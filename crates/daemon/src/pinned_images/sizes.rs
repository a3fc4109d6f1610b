//! How much room missing images take, asked of their registries before the first one is pulled: with the kubelet's credentials, and
//! this host's mirrors and authorities.
//!
//! It is an estimate, and what is not known counts for nothing: a registry may be reached by the container runtime only. Then the
//! pull finds out, under the guard of `pull`.
//!
//! Not here: what follows from it (see `plan`).

use super::auth::{Keyring, PULL_SECRET};
use super::images::{Images, RoundError};
use super::plan::{Facts, Layer, PinnedSet, images, needed};
use super::runtime::{Kind, Runtime};
use api::k8s::Node;
use futures::StreamExt;
use registry::{ImageFacts, Limits, Proxies, Reference, Registry, Routes, Settings, Trust};
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

/// The host's mirrors, as CRI-O reads them.
const REGISTRIES_CONF: &str = api::paths::REGISTRIES_CONF;
/// The host's authorities, by distribution.
const AUTHORITIES: [&str; 2] = ["/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt"];
/// How many registries are asked at once.
const AT_ONCE: usize = 5;
/// How long all of them may take, and one image. Pulls wait for it.
const ALL: Duration = Duration::from_secs(30);
const ONE: Duration = Duration::from_secs(10);
/// How long a connection may take.
const CONNECT: Duration = Duration::from_secs(3);

impl Images {
    /// The bytes that the missing images of these sets take, as far as it is known.
    pub(super) async fn needed(
        &self,
        runtime: &Runtime,
        sets: &[PinnedSet],
        node: &Node,
        facts: &Facts,
    ) -> Result<u64, RoundError> {
        let missing: Vec<String> =
            images(sets).into_iter().filter(|image| !facts.present.contains_key(image)).collect();
        // Nobody compares it with anything, or nothing is pulled now.
        if missing.is_empty() || facts.space.is_none() || !facts.ready || facts.disk_pressure {
            return Ok(0);
        }
        let mut layers: BTreeMap<String, Layer> = BTreeMap::new();
        for facts in self.sizes(&missing, node).await {
            for layer in &facts.layers {
                if !layers.contains_key(&layer.digest) {
                    let fetched =
                        runtime.kind == Kind::Containerd && runtime.has_layer(&layer.digest).await?;
                    layers.insert(layer.digest.clone(), Layer { size: layer.size, fetched });
                }
            }
        }
        Ok(needed(layers.values()))
    }

    /// What registries say of these images, as far as they say it in time.
    async fn sizes(&self, missing: &[String], node: &Node) -> Vec<Arc<ImageFacts>> {
        let architecture = node.status.as_ref().and_then(|s| s.node_info.as_ref()).map(|i| &*i.architecture);
        let architecture = architecture.filter(|name| !name.is_empty());
        let settings = match self.registry_settings(missing) {
            Ok(settings) => settings,
            Err(why) => {
                tracing::debug!(%why, "sizes of images are not known");
                return vec![];
            }
        };
        let registry = Registry::new(settings);
        let mut looks = Vec::with_capacity(missing.len());
        for image in missing.iter().filter_map(|image| Reference::parse(image).ok()) {
            looks.push(look(&registry, image, architecture));
        }
        let mut looks = futures::stream::iter(looks).buffer_unordered(AT_ONCE);
        let mut found = vec![];
        let all = async {
            while let Some(one) = looks.next().await {
                found.extend(one);
            }
        };
        if tokio::time::timeout(ALL, all).await.is_err() {
            tracing::debug!("sizes of some images are not known in time");
        }
        found
    }

    fn registry_settings(&self, missing: &[String]) -> Result<Settings, String> {
        let text = |path: &str| self.root.text(path).map_err(|e| client::chain(&e));
        let limits = Limits { whole: ONE, connect: CONNECT, request: ONE, attempts: 1, ..Limits::default() };
        let credentials = Keyring::read(text(PULL_SECRET)?.as_deref())?.credentials();
        let mut routes = Routes::default();
        // As container runtimes ask it.
        for host in missing.iter().filter_map(|image| loopback(image)) {
            let plain = format!("[[registry]]\nlocation = \"{host}\"\ninsecure = true\n");
            routes.add(&plain).map_err(|e| e.to_string())?;
        }
        if let Some(conf) = text(REGISTRIES_CONF)? {
            routes.add(&conf).map_err(|e| format!("{REGISTRIES_CONF} {e}"))?;
        }
        let mut trust = Trust::default();
        for path in AUTHORITIES {
            // One file is a link to the other on some hosts; a certificate that is there twice is no harm.
            if let Ok(Some(bundle)) = text(path) {
                trust.add(None, bundle.as_bytes());
            }
        }
        let cache = self.seen.clone();
        let proxies = Proxies::of_environment();
        Ok(Settings { credentials, routes, trust, proxies, limits, cache, ..Settings::default() })
    }
}

/// One look. Not a closure over references: the compiler cannot tell that its future may go to another thread.
async fn look(registry: &Registry, image: Reference, architecture: Option<&str>) -> Option<Arc<ImageFacts>> {
    match Box::pin(registry.inspect(&image, architecture)).await {
        Ok(facts) => Some(facts),
        Err(why) => {
            tracing::debug!(%image, %why, "the size of an image is not known");
            None
        }
    }
}

/// The registry of an image, if it is on this host.
fn loopback(image: &str) -> Option<&str> {
    let host = image.split('/').next()?;
    let is_port = |port: &str| port.bytes().all(|b| b.is_ascii_digit());
    let name = host.rsplit_once(':').filter(|(_, port)| is_port(port)).map_or(host, |(name, _)| name);
    let address = name.trim_start_matches('[').trim_end_matches(']').parse::<IpAddr>();
    (name == "localhost" || address.is_ok_and(|a| a.is_loopback())).then_some(host)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_registry_of_this_host_is_asked_without_tls() {
        for (image, want) in [
            ("127.0.0.1:5000/a@sha256:1", Some("127.0.0.1:5000")),
            ("localhost/a@sha256:1", Some("localhost")),
            ("[::1]:5000/a@sha256:1", Some("[::1]:5000")),
            ("[::1]/a@sha256:1", Some("[::1]")),
            ("10.0.0.1:5000/a@sha256:1", None),
            ("127.example.com.evil/a@sha256:1", None),
            ("registry.example.com/127.0.0.1/a@sha256:1", None),
        ] {
            assert_eq!(loopback(image), want, "{image}");
        }
    }
}
