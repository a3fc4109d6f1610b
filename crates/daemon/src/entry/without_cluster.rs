//! One host without its cluster: shows what a config would change here (`daemon plan`), and applies one from a file or
//! a URL (`daemon start --once-from`).
//!
//! Not here: the agent. No Node is updated and nothing is drained.

use crate::error::DaemonError;
use crate::protocol::EMPTY_CONFIG;
use api::rendered::RenderedName;
use api::v1::{MachineConfig, MachineConfigSpec};
use client::chain;
use desired::{config_and_image, in_image, with_image};
use host::{Change, CurrentConfig, DisruptionPolicy, Host, HostPlan, Irreconcilable, Names, OsChoice};
use kube::{Client, Config};
use serde_json::Value;
use sha2::{Digest, Sha256};
use std::path::Path;
use std::time::Duration;

/// The prefix of the name for a config that is not a MachineConfig. The hash of its contents follows.
const ONCE: &str = "once-";
/// How many bytes of the hash are used.
const HASH_BYTES: usize = 6;
/// What can be done about packages that a config asks for.
const NO_PACKAGES: &str = "without a cluster nobody has allowed packages on this host: install them with the distribution's tools, \
    or remove them from the config";
/// The time limit for fetching a config, which has at most a few megabytes.
const FETCH_TIMEOUT: Duration = Duration::from_secs(120);

/// What `daemon start --once-from` did.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AppliedOnce {
    /// The config that the host is in.
    pub config: String,
    /// The machine must reboot for all of it to take effect.
    pub reboot: bool,
}

/// What `daemon plan` found.
#[derive(Debug)]
pub struct PlannedOnHost {
    /// What can change the operating system of this host, and why.
    pub os: OsChoice,
    /// The plan; or what cannot be applied here.
    pub plan: Result<HostPlan, Vec<Irreconcilable>>,
}

/// Plans the change from the config that the host is in to this one. Changes nothing.
///
/// # Errors
/// The host cannot be read.
pub fn plan_on_host(
    root_mount: &Path,
    config: &MachineConfig,
    policy: &DisruptionPolicy,
) -> Result<PlannedOnHost, DaemonError> {
    // The runtime's own thread talks to systemd while this thread waits.
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()
        .map_err(DaemonError::Runtime)?;
    let (mut host, os) = crate::entry::open_host::open(root_mount, runtime.handle().clone())?;
    let from = host.current_config().map_err(|error| look_error(&error))?.unwrap_or_else(no_config);
    // A host that runs its pool's image is asked about its config in that image.
    let image = config_and_image(&from.name).1;
    let state = with_image(config.metadata.name.as_deref().unwrap_or_default(), image);
    let to = MachineConfig::new(&state, in_image(config.spec.clone(), image));
    let mut plan = plan_between(&mut host, &from, &to, policy, None)?;
    if let Ok(plan) = &mut plan {
        host.note_image_size(plan).map_err(|error| look_error(&error))?;
    }
    Ok(PlannedOnHost { os, plan })
}

fn plan_between(
    host: &mut Host,
    from: &CurrentConfig,
    to: &MachineConfig,
    policy: &DisruptionPolicy,
    instead_of_packages: Option<&str>,
) -> Result<Result<HostPlan, Vec<Irreconcilable>>, DaemonError> {
    let desired = to.metadata.name.clone().unwrap_or_default();
    let names = Names { current: from.name.clone(), desired };
    let change = match Change::parse(&from.spec, &to.spec, names) {
        Ok(change) => change,
        Err(why) => return Ok(Err(why)),
    };
    let mut facts = host.inspect(&change).map_err(|error| look_error(&error))?;
    if let Some(how) = instead_of_packages {
        facts = facts.without_pool(how);
    }
    Ok(change.plan(policy, &facts))
}

fn look_error(error: &host::Error) -> DaemonError {
    DaemonError::HostUnreadable { why: chain(error) }
}

/// The state of a host to which no config was ever applied.
fn no_config() -> CurrentConfig {
    CurrentConfig { name: EMPTY_CONFIG.to_owned(), spec: MachineConfigSpec::default() }
}

/// Parses a MachineConfig or an Ignition config, as YAML or JSON.
///
/// # Errors
/// It is neither. The error text shows nothing of the contents.
pub fn read_config(from: &str, text: &str) -> Result<MachineConfig, DaemonError> {
    let fail = |why: &str| DaemonError::WithoutCluster { from: from.to_owned(), why: why.to_owned() };
    // The parser's message could quote a secret.
    let value: Value = api::formats::yaml::from_str(text).map_err(|_| fail("it is not YAML or JSON"))?;
    if value.get("kind").and_then(Value::as_str) == Some("MachineConfig") {
        return serde_json::from_value(value).map_err(|_| fail("it is not a valid MachineConfig"));
    }
    let version = value.pointer("/ignition/version").and_then(Value::as_str).unwrap_or_default();
    if version.is_empty() {
        return Err(fail("it is neither a MachineConfig nor an Ignition config with a version"));
    }
    let hash = Sha256::digest(text);
    let hex = api::formats::text::hex(hash.iter().take(HASH_BYTES));
    let spec = MachineConfigSpec { config: Some(value), ..MachineConfigSpec::default() };
    Ok(MachineConfig::new(&format!("{ONCE}{hex}"), spec))
}

/// Applies a config from a file or an `http(s)` URL to this host, once, without a cluster. Starts the reboot that it
/// needs, unless told not to.
///
/// # Errors
/// The config cannot be fetched or parsed, the host belongs to a cluster, or the config cannot be applied. Then
/// nothing is changed.
pub async fn apply_once(
    root_mount: &Path,
    from: &str,
    skip_reboot: bool,
) -> Result<AppliedOnce, DaemonError> {
    let text = match from.starts_with("http://") || from.starts_with("https://") {
        true => fetch(from).await?,
        false => tokio::fs::read_to_string(from)
            .await
            .map_err(|e| DaemonError::WithoutCluster { from: from.to_owned(), why: e.to_string() })?,
    };
    let config = read_config(from, &text)?;
    let (mut host, _) = crate::entry::open_host::open(root_mount, tokio::runtime::Handle::current())?;
    let from = from.to_owned();
    let done =
        tokio::task::spawn_blocking(move || apply_config(&mut host, &from, &config, skip_reboot)).await;
    done.map_err(|e| DaemonError::HostUnreadable { why: format!("the work ended abnormally: {e}") })?
}

fn apply_config(
    host: &mut Host,
    from: &str,
    to: &MachineConfig,
    skip_reboot: bool,
) -> Result<AppliedOnce, DaemonError> {
    let fail = |why: String| DaemonError::WithoutCluster { from: from.to_owned(), why };
    let plan = plan_once(host, from, to)?;
    // Nobody else does it on a host without an agent.
    match host.tidy_os() {
        Ok(gone) if gone.is_empty() => {}
        Ok(gone) => {
            tracing::info!(images = %gone.join(", "), "removed OS images that nothing needs any more");
        }
        Err(error) => {
            tracing::warn!(error = %chain(&error), "OS images that nothing needs any more stay on the host");
        }
    }
    let config = to.metadata.name.clone().unwrap_or_default();
    tracing::info!(%config, disruption = %plan.disruption, steps = plan.steps.len(), "applying once");
    host.apply(&plan).map_err(|e| fail(chain(&e)))?;
    let reboot = plan.disruption.needs_reboot();
    if reboot && !skip_reboot {
        host.reboot(&format!("config {config} from {from}")).map_err(|e| fail(chain(&e)))?;
    }
    Ok(AppliedOnce { config, reboot })
}

/// Plans a config for a host that belongs to no cluster.
pub(crate) fn plan_once(host: &mut Host, from: &str, to: &MachineConfig) -> Result<HostPlan, DaemonError> {
    let fail = |why: String| DaemonError::WithoutCluster { from: from.to_owned(), why };
    host.recover().map_err(DaemonError::Recover)?;
    let current = host.current_config().map_err(|error| look_error(&error))?;
    if let Some(current) =
        current.as_ref().filter(|c| RenderedName::parse(config_and_image(&c.name).0).is_some())
    {
        return Err(fail(format!(
            "this host is in config {}, which its cluster manages; change it there, or take the host out of \
             the cluster and remove {}",
            current.name,
            host::paths::CURRENT_CONFIG
        )));
    }
    let current = current.unwrap_or_else(no_config);
    // A person who asks for a config that was tried and undone asks for another try.
    host.forget_trial_failure().map_err(|error| look_error(&error))?;
    plan_between(host, &current, to, &DisruptionPolicy::default(), Some(NO_PACKAGES))?
        .map_err(|why| fail(why.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ")))
}

/// Fetches a text, with the API client's HTTP stack.
async fn fetch(url: &str) -> Result<String, DaemonError> {
    let fail = |why: String| DaemonError::WithoutCluster { from: url.to_owned(), why };
    let uri: http::Uri = url.parse().map_err(|e: http::uri::InvalidUri| fail(e.to_string()))?;
    let path = uri.path_and_query().map_or("/", |p| p.as_str()).to_owned();
    let mut parts = uri.into_parts();
    parts.path_and_query = Some(http::uri::PathAndQuery::from_static("/"));
    let server = http::Uri::from_parts(parts).map_err(|e| fail(e.to_string()))?;
    let mut config = Config::new(server);
    config.connect_timeout = Some(FETCH_TIMEOUT);
    config.read_timeout = Some(FETCH_TIMEOUT);
    config.default_retry = false;
    let client = Client::try_from(config).map_err(|e| fail(chain(&e)))?;
    let request = http::Request::get(path).body(Vec::new()).map_err(|e| fail(e.to_string()))?;
    match tokio::time::timeout(FETCH_TIMEOUT, client.request_text(request)).await {
        Ok(text) => text.map_err(|e| fail(chain(&e))),
        Err(_) => Err(fail(format!("no answer within {} s", FETCH_TIMEOUT.as_secs()))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use host::{FakeSystemd, Root, Unsupported};
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    fn mk_host(dir: &Path) -> Host {
        let options = host::Options { sync: false, owners: false };
        let root = Root::open_with(dir, options, std::sync::Arc::new(host::fault::NoFaults)).unwrap();
        let systemd = Box::new(FakeSystemd::new(&root));
        Host::new(root, systemd, Box::new(Unsupported::default()))
    }

    fn ignition(path: &str) -> String {
        format!(
            "{{\"ignition\": {{\"version\": \"3.4.0\"}}, \"storage\": {{\"files\": [{{\"path\": \"{path}\", \"contents\": {{\"source\": \"data:,x\"}}}}]}}}}"
        )
    }

    #[test]
    fn a_config_is_applied_without_a_cluster_and_replaced_by_the_next_one() {
        let dir = tempfile::tempdir().unwrap();
        let mut host = mk_host(dir.path());
        let one = read_config("f", &ignition("/etc/one")).unwrap();
        let done = apply_config(&mut host, "f", &one, true).unwrap();
        assert!(done.reboot && done.config.starts_with(ONCE), "{done:?}");
        assert!(dir.path().join("etc/one").exists());
        let two = read_config("f", &ignition("/etc/two")).unwrap();
        apply_config(&mut host, "f", &two, true).unwrap();
        assert!(dir.path().join("etc/two").exists() && !dir.path().join("etc/one").exists());
        // Applying the same config again changes nothing.
        assert!(!apply_config(&mut host, "f", &two, true).unwrap().reboot);
    }

    #[test]
    fn a_host_that_belongs_to_a_cluster_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let mut host = mk_host(dir.path());
        let mut config = read_config("f", &ignition("/etc/one")).unwrap();
        config.metadata.name = Some("rendered-worker-1".to_owned());
        apply_config(&mut host, "f", &config, true).unwrap();
        let other = read_config("f", &ignition("/etc/two")).unwrap();
        let why = apply_config(&mut host, "f", &other, true).unwrap_err().to_string();
        assert!(why.contains("rendered-worker-1") && why.contains(host::paths::CURRENT_CONFIG), "{why}");
        assert!(!dir.path().join("etc/two").exists());
    }

    #[test]
    fn a_file_that_is_no_config_is_refused_and_not_quoted() {
        for text in [
            "hush: [",
            "{\"ignition\": {}, \"x\": \"hush\"}",
            "kind: Secret",
            "kind: MachineConfig\nspec: hush",
        ] {
            let why = read_config("/tmp/f", text).unwrap_err().to_string();
            assert!(why.contains("/tmp/f") && !why.contains("hush"), "{why}");
        }
        let named = read_config("f", "kind: MachineConfig\nmetadata: {name: mine}\nspec: {}").unwrap();
        assert_eq!(named.metadata.name.as_deref(), Some("mine"));
    }

    #[test]
    fn packages_are_refused_with_what_can_be_done_without_a_cluster() {
        let dir = tempfile::tempdir().unwrap();
        let options = host::Options { sync: false, owners: false };
        for file in ["usr/bin/apt-get", "proc/cmdline"] {
            let path = dir.path().join(file);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, "").unwrap();
        }
        let root = Root::open_with(dir.path(), options, std::sync::Arc::new(host::fault::NoFaults)).unwrap();
        let (os, _) = host::choose_os(&root, &|| Some(Box::new(host::HostPrograms)));
        let mut host = Host::new(root.clone(), Box::new(FakeSystemd::new(&root)), os);
        let to = read_config("f", "kind: MachineConfig\nmetadata: {name: mine}\nspec: {extensions: [vim]}")
            .unwrap();
        let why = apply_config(&mut host, "f", &to, true).unwrap_err().to_string();
        assert!(why.contains("spec.extensions") && why.contains("with the distribution's tools"), "{why}");
        assert!(!why.contains("annotation"), "{why}");
    }

    #[tokio::test]
    async fn a_config_is_fetched_by_its_whole_url() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/a/b.ign?x=1", listener.local_addr().unwrap());
        let server = tokio::spawn(async move {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut buffer = [0; 4096];
            let n = stream.read(&mut buffer).await.unwrap();
            let answer = "HTTP/1.1 200 OK\r\ncontent-length: 2\r\nconnection: close\r\n\r\nhi";
            stream.write_all(answer.as_bytes()).await.unwrap();
            String::from_utf8_lossy(&buffer[..n]).into_owned()
        });
        assert_eq!(fetch(&url).await.unwrap(), "hi");
        assert!(server.await.unwrap().starts_with("GET /a/b.ign?x=1 HTTP/1.1\r\n"));
    }
}
