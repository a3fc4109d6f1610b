//! `mco server bootstrap`, the server before there is a cluster. Configs come from a directory that the bootstrap
//! controller writes.
//!
//! Layout below the base directory: `machine-pools/POOL.yaml`, `machine-configs/NAME.yaml`,
//! `controller-config/machine-config-controller.yaml`, `api-server/api-server.yaml`. The directory is checked every
//! second. While a file is missing, machines are told to try again.
//!
//! What it is not: a file watch. There are only a handful of files.
//!
//! Source: <https://github.com/openshift/machine-config-operator/blob/HEAD/pkg/server/bootstrap_server.go>.

use crate::answer::respond::Shared;
use crate::error::ServerError;
use crate::listen::TlsProfile;
use crate::listen::{ListenOptions, Listeners};
use crate::prepared::cache::{Freshness, PreparedConfigs, Update};
use crate::prepared::prepare::{Mode, Rendered, Source};
use crate::refusal::Refusal;
use api::names::{ARBITER, CONTROLLER_CONFIG, MASTER};
use api::v1::{ControllerConfig, MachineConfig, MachineConfigPool};
use serde::de::DeserializeOwned;
use serde_json::Value;
use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};
use tokio_util::sync::CancellationToken;

/// The pools of the machines of a first control plane.
const POOLS: [&str; 2] = [MASTER, ARBITER];
/// How often the directory is checked.
const LOOK: Duration = Duration::from_secs(1);
/// The largest file that is read. A rendered config is at most 1.5 MiB of JSON; YAML is longer.
const MAX_FILE: u64 = 16 << 20;

/// The options of `mco server bootstrap`; the fields are its flags.
#[derive(Debug, Clone)]
pub struct BootstrapOptions {
    /// Ports, certificate, TLS.
    pub listen: ListenOptions,
    /// `--server-basedir`.
    pub server_basedir: PathBuf,
    /// `--bootstrap-kubeconfig`: handed to machines unchanged.
    pub bootstrap_kubeconfig: PathBuf,
    /// `--bootstrap-certs`: each is `REGISTRY=FILE`, with the file below the base directory.
    pub bootstrap_certs: Vec<String>,
}

impl Default for BootstrapOptions {
    fn default() -> Self {
        Self {
            listen: ListenOptions::default(),
            server_basedir: "/etc/mcs/bootstrap".into(),
            bootstrap_kubeconfig: "/etc/kubernetes/kubeconfig".into(),
            bootstrap_certs: Vec::new(),
        }
    }
}

/// Serves from a directory until `shutdown`, and then until running answers are finished.
///
/// # Errors
/// A kubeconfig, certificate or option that cannot be used; a port that is taken. Errors in the directory go to the log
/// and into answers.
pub async fn bootstrap(options: BootstrapOptions, shutdown: CancellationToken) -> Result<(), ServerError> {
    BootstrapServer::open(options).await?.run(shutdown).await;
    Ok(())
}

/// A bootstrap server whose ports are open.
#[derive(Debug)]
pub struct BootstrapServer {
    listeners: Listeners,
    shared: Arc<Shared>,
    folder: Folder,
    /// The TLS profile of the flags, used if the new cluster names none.
    profile: TlsProfile,
}

impl BootstrapServer {
    /// Checks the options, opens the ports and reads the directory once.
    ///
    /// # Errors
    /// As [`bootstrap`].
    pub async fn open(options: BootstrapOptions) -> Result<Self, ServerError> {
        let BootstrapOptions { mut listen, server_basedir, bootstrap_kubeconfig, bootstrap_certs } = options;
        let folder = Folder {
            certs: bootstrap_certs.iter().map(|c| registry_certificate(c)).collect::<Result<_, _>>()?,
            base: server_basedir,
            kubeconfig: bootstrap_kubeconfig,
        };
        read_file(&folder.kubeconfig)
            .map_err(|source| ServerError::Read { path: folder.kubeconfig.clone(), source })?;
        let profile = listen.tls.clone();
        if let Ok(Some(named)) = folder.tls_profile() {
            listen.tls = named;
        }
        let shared = Arc::new(Shared {
            configs: PreparedConfigs::default(),
            metrics: listen.metrics.clone(),
            boot_tokens: None,
        });
        let listeners = Listeners::open(&listen)?;
        let server = Self { listeners, shared, folder, profile };
        server.folder.publish(&server.shared).await;
        let payload = listen.payload_version;
        tracing::info!(base = %server.folder.base.display(), payload, "serving from a directory");
        Ok(server)
    }

    /// Where HTTPS is served.
    ///
    /// # Errors
    /// An address that the system does not tell.
    pub fn secure_addr(&self) -> io::Result<SocketAddr> {
        self.listeners.secure_addr()
    }

    /// Serves until `shutdown`, and then until running answers are finished.
    pub async fn run(self, shutdown: CancellationToken) {
        let Self { listeners, shared, folder, profile } = self;
        let tls = listeners.tls();
        let follow = async {
            let mut seen = folder.stamps();
            loop {
                tokio::select! {
                    () = shutdown.cancelled() => return,
                    () = tokio::time::sleep(LOOK) => {}
                }
                let now = folder.stamps();
                if now != seen {
                    seen = now;
                    folder.publish(&shared).await;
                    match folder.tls_profile() {
                        Ok(named) => tls.set_profile(named.unwrap_or_else(|| profile.clone())),
                        Err(why) => tracing::error!("the TLS profile stays as it is: {why}"),
                    }
                }
                shared.metrics.source_up.set(1);
            }
        };
        tokio::join!(
            // There is no cluster yet that could say who may read metrics.
            listeners.serve(Arc::clone(&shared), ::listen::Access::refuse_everyone(), shutdown.clone()),
            follow
        );
    }
}

/// `REGISTRY=FILE`.
fn registry_certificate(text: &str) -> Result<(String, String), ServerError> {
    let parts: Vec<&str> = text.split('=').collect();
    let bad = |why: &str| ServerError::Option { option: "bootstrap-certs", why: format!("{text:?}: {why}") };
    match parts.as_slice() {
        [registry, file] if !registry.is_empty() && !file.is_empty() => {
            if registry.split('/').any(|part| matches!(part, "" | "." | "..")) {
                return Err(bad(
                    "the registry becomes a directory's name; it cannot have empty or dotted parts",
                ));
            }
            Ok(((*registry).to_owned(), (*file).to_owned()))
        }
        _ => Err(bad("must be REGISTRY=FILE")),
    }
}

/// The directory, and the other inputs of answers.
#[derive(Debug, Clone)]
struct Folder {
    base: PathBuf,
    kubeconfig: PathBuf,
    certs: Vec<(String, String)>,
}

/// A file's identity and times: they change when the file changes.
type Stamp = (SystemTime, u64);

impl Folder {
    /// All files that answers are made of, with their identities and times.
    fn stamps(&self) -> BTreeMap<PathBuf, Stamp> {
        let folders = ["machine-pools", "machine-configs", "controller-config", "api-server"];
        let listed = folders.iter().filter_map(|f| std::fs::read_dir(self.base.join(f)).ok());
        let listed = listed.flatten().filter_map(|entry| Some(entry.ok()?.path()));
        let single = self.certs.iter().map(|(_, file)| self.base.join(file)).chain([self.kubeconfig.clone()]);
        listed
            .chain(single)
            .filter_map(|path| {
                let metadata = std::fs::metadata(&path).ok()?;
                Some((path, (metadata.modified().ok()?, metadata.len())))
            })
            .collect()
    }

    async fn publish(&self, shared: &Shared) {
        let this = self.clone();
        let read = move || POOLS.map(|pool| (pool.to_owned(), this.source(pool)));
        match tokio::task::spawn_blocking(read).await {
            Ok(pools) => {
                for (pool, source) in &pools {
                    if let Err(refusal) = source {
                        tracing::warn!(pool, "{refusal}");
                    }
                }
                let freshness = Freshness::Current;
                let update = Update { pools: pools.into(), freshness, bootstrap: true, ..Update::default() };
                shared.configs.publish(update, SystemTime::now()).await;
                shared.metrics.update_pools(&shared.configs.now());
            }
            Err(error) => tracing::error!("the directory was not read: {error}"),
        }
    }

    /// What a pool serves, or why nothing.
    fn source(&self, pool: &str) -> Result<Source, Refusal> {
        let broken = |why: String| Refusal::Broken { pool: pool.to_owned(), why };
        let missing =
            |path: String| Refusal::NotYet { pool: pool.to_owned(), why: format!("{path} does not exist") };
        let path = format!("machine-pools/{pool}.yaml");
        let found: MachineConfigPool = self.object(&path).map_err(broken)?.ok_or_else(|| missing(path))?;
        let name = found.status.unwrap_or_default().configuration.name;
        if name.is_empty() || name.contains('/') || name.starts_with('.') {
            let why = "its status.configuration.name names no rendered config".to_owned();
            return Err(Refusal::NotYet { pool: pool.to_owned(), why });
        }
        let path = format!("machine-configs/{name}.yaml");
        let machine_config: MachineConfig =
            self.object(&path).map_err(broken)?.ok_or_else(|| missing(path))?;
        let path = format!("controller-config/{CONTROLLER_CONFIG}.yaml");
        let config: ControllerConfig = self.object(&path).map_err(broken)?.ok_or_else(|| missing(path))?;
        let read = |path: PathBuf| {
            read_file(&path).map_err(|e| broken(format!("cannot read {}: {e}", path.display())))
        };
        let certificate =
            |(registry, file): &(String, String)| Ok((registry.clone(), read(self.base.join(file))?));
        Ok(Source {
            pool: pool.to_owned(),
            rendered: Arc::new(Rendered::new(machine_config)),
            mode: Mode::Bootstrap,
            kubelet_ca: config.spec.kube_api_server_serving_ca_data.0,
            cloud_ca: config.spec.cloud_provider_ca_data.map(|c| c.0).unwrap_or_default(),
            kubeconfig: read(self.kubeconfig.clone())?,
            registry_certificates: self.certs.iter().map(certificate).collect::<Result<_, _>>()?,
            layered_image: None,
        })
    }

    /// The object in a file. `None`: there is no such file.
    fn object<T: DeserializeOwned>(&self, path: &str) -> Result<Option<T>, String> {
        let bytes = match read_file(&self.base.join(path)) {
            Ok(bytes) => bytes,
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(e) => return Err(format!("cannot read {path}: {e}")),
        };
        let text = String::from_utf8(bytes).map_err(|_| format!("{path} is not UTF-8"))?;
        // The error's own text quotes lines of the file, which may hold secrets.
        api::formats::yaml::from_str(&text).map(Some).map_err(|e| {
            let line = place(&e.to_string()).unwrap_or_default();
            format!("{path} does not match the schema of its kind{line}")
        })
    }

    /// The TLS profile of the new cluster, if it names one.
    fn tls_profile(&self) -> Result<Option<TlsProfile>, String> {
        let server: Option<Value> = self.object("api-server/api-server.yaml")?;
        Ok(server.and_then(|s| tls_profile(s.pointer("/spec/tlsSecurityProfile")?)))
    }
}

/// The part `, line N column M` of an error's text.
fn place(text: &str) -> Option<String> {
    let number = |word: &str| {
        let after = text.split_once(word)?.1;
        let digits: String =
            after.chars().skip_while(|c| *c == ' ').take_while(char::is_ascii_digit).collect();
        (!digits.is_empty()).then_some(digits)
    };
    Some(format!(
        ", line {}{}",
        number("line")?,
        number("column").map(|c| format!(" column {c}")).unwrap_or_default()
    ))
}

/// Converts a `tlsSecurityProfile`. Old is raised to what we offer; a log line says so when TLS is set up.
fn tls_profile(profile: &Value) -> Option<TlsProfile> {
    let version = |v: &str| TlsProfile { min_version: v.to_owned(), cipher_suites: Vec::new() };
    match profile.get("type").and_then(Value::as_str)? {
        "Modern" => Some(version("VersionTLS13")),
        "Old" => Some(version("VersionTLS10")),
        "Custom" => {
            let custom = profile.get("custom")?;
            let ciphers = custom.get("ciphers").and_then(Value::as_array).into_iter().flatten();
            Some(TlsProfile {
                min_version: custom
                    .get("minTLSVersion")
                    .and_then(Value::as_str)
                    .unwrap_or_default()
                    .to_owned(),
                cipher_suites: ciphers.filter_map(Value::as_str).map(str::to_owned).collect(),
            })
        }
        _ => Some(version("VersionTLS12")),
    }
}

fn read_file(path: &Path) -> io::Result<Vec<u8>> {
    if std::fs::metadata(path)?.len() > MAX_FILE {
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, format!("larger than {MAX_FILE} bytes")));
    }
    std::fs::read(path)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn certificates_are_named_by_registry_and_file() {
        let ok = registry_certificate("foo=bar.crt").unwrap();
        assert_eq!(ok, ("foo".to_owned(), "bar.crt".to_owned()));
        for bad in ["foo", "foo=", "=bar", "a=b=c", "", "../x=y"] {
            registry_certificate(bad).unwrap_err();
        }
    }

    #[test]
    fn tls_profiles_of_the_api_server() {
        let rows = [
            (json!({"type": "Modern"}), Some(("VersionTLS13", 0))),
            (json!({"type": "Intermediate"}), Some(("VersionTLS12", 0))),
            (json!({"type": "Old"}), Some(("VersionTLS10", 0))),
            (
                json!({"type": "Custom", "custom": {"ciphers": ["a", "b"], "minTLSVersion": "VersionTLS12"}}),
                Some(("VersionTLS12", 2)),
            ),
            (json!({}), None),
        ];
        for (profile, want) in rows {
            let got = tls_profile(&profile);
            assert_eq!(
                got.as_ref().map(|p| (p.min_version.as_str(), p.cipher_suites.len())),
                want,
                "{profile}"
            );
        }
    }

    #[test]
    fn a_broken_file_is_named_without_its_content() {
        let dir = tempfile::tempdir().unwrap();
        let pools = dir.path().join("machine-pools");
        std::fs::create_dir(&pools).unwrap();
        let folder = Folder { base: dir.path().to_owned(), kubeconfig: "/nope".into(), certs: Vec::new() };
        assert!(matches!(folder.source("master"), Err(Refusal::NotYet { .. })));
        std::fs::write(pools.join("master.yaml"), "metadata: {name: master}\nspec: [hunter2]\n").unwrap();
        let told = folder.source("master").unwrap_err().to_string();
        assert!(told.contains("machine-pools/master.yaml"), "{told}");
        assert!(!told.contains("hunter2"), "{told}");
        std::fs::write(pools.join("master.yaml"), "status: {configuration: {name: ../../etc/x}}\n").unwrap();
        assert!(matches!(folder.source("master"), Err(Refusal::NotYet { .. })));
    }
}
