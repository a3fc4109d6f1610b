//! The identity that the agent uses towards the API server. By default it is the node's own: the kubelet's
//! credentials. The Node authorizer and the NodeRestriction admission plug-in then confine the agent to its own Node,
//! and no further credential has to be put on the hosts.
//!
//! Not here: the rights that nodes need beyond their own Node (`mco install` creates these).
//!
//! Source: <https://kubernetes.io/docs/reference/access-authn-authz/node/>.

use crate::error::DaemonError;
use client::spread;
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

/// The paths of kubelets' kubeconfigs: on OpenShift-like hosts, and on those of kubeadm, k3s, RKE2 and k0s.
/// Sources: <https://kubernetes.io/docs/reference/setup-tools/kubeadm/implementation-details/>,
/// <https://docs.k3s.io/cli/server>, <https://docs.rke2.io/reference/server_config>, <https://docs.k0sproject.io/stable/cli/k0s_worker/>
/// (the folders of data; the files' names are those that the distributions write there).
const KUBELETS: [&str; 5] = [
    "/var/lib/kubelet/kubeconfig",
    "/etc/kubernetes/kubelet.conf",
    "/var/lib/rancher/k3s/agent/kubelet.kubeconfig",
    "/var/lib/rancher/rke2/agent/kubelet.kubeconfig",
    "/var/lib/k0s/kubelet.conf",
];
/// The paths of the kubeconfigs with which kubelets request their credentials: on OpenShift-like hosts, and on those of kubeadm
/// and k0s. The agents of k3s and RKE2 have none.
const BOOTSTRAPS: [&str; 3] = [
    "/etc/kubernetes/kubeconfig",
    "/etc/kubernetes/bootstrap-kubelet.conf",
    "/var/lib/k0s/kubelet-bootstrap.conf",
];
/// The time limit for connecting to the API server.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// A connection is closed when nothing arrives on it for this long. Lists and the start of a watch have no other limit, and a
/// connection that died silently would keep them for ever. The server ends a watch well before: after 290 s, which is what
/// `kube`'s watcher asks for.
const SILENCE: Duration = Duration::from_secs(330);
/// How often to check whether the credentials were renewed. The kubelet renews them weeks before they expire.
const CHECK_PERIOD: Duration = Duration::from_secs(60);
/// The pause between checks for credentials: on a new machine the kubelet needs a while to get them.
const WAIT: Duration = Duration::from_secs(1);
/// After this many pauses the wait is logged again.
const SAY_EVERY: u32 = 60;

/// All kubeconfigs that must trust the API server: the kubelet's in the order of the search for an identity, those for its
/// first contact, and the one that the agent was given. Paths on the host.
pub(crate) fn kubeconfigs(given: Option<&Path>, root_mount: &Path) -> Vec<String> {
    let mut all: Vec<String> = KUBELETS.iter().chain(&BOOTSTRAPS).map(|p| (*p).to_owned()).collect();
    let given = given.and_then(|p| std::path::absolute(p).ok());
    // The agent may have named it by way of the folder where the host is mounted.
    let on_host = given.map(|p| match p.strip_prefix(root_mount) {
        Ok(rest) => Path::new("/").join(rest),
        Err(_) => p,
    });
    if let Some(path) = on_host.as_deref().and_then(Path::to_str)
        && !all.iter().any(|known| known == path)
    {
        all.push(path.to_owned());
    }
    all
}

/// A client, and the files that its credentials come from.
pub(crate) struct Identity {
    pub(crate) client: Client,
    /// What [`Identity::renewed`] checks.
    pub(crate) files: Vec<(PathBuf, Option<SystemTime>)>,
    /// Host and port of the API server. `None`: it is reached through a proxy.
    pub(crate) server: Option<(String, u16)>,
}

/// Connects with the given kubeconfig, or with the kubelet's. Waits until it exists.
///
/// # Errors
/// It cannot be used.
pub(crate) async fn connect(
    kubeconfig: Option<&Path>,
    context: Option<&str>,
) -> Result<Identity, DaemonError> {
    let candidates: Vec<PathBuf> =
        kubeconfig.map_or_else(|| KUBELETS.map(PathBuf::from).to_vec(), |path| vec![path.to_owned()]);
    let mut waits = 0_u32;
    let path = loop {
        let named = kubeconfig.is_some();
        if let Some(found) = search(&candidates, named) {
            break found;
        }
        if waits.is_multiple_of(SAY_EVERY) {
            tracing::info!(?candidates, "waiting for the kubeconfig; --kubeconfig names another one");
        }
        waits = waits.saturating_add(1);
        tokio::time::sleep(WAIT).await;
    };
    let fail = |why: String| DaemonError::Client { why: format!("{}: {why}", path.display()) };
    // Read the file here: the library's own errors would quote it, and it holds credentials.
    let text = std::fs::read_to_string(path).map_err(|e| fail(e.to_string()))?;
    api::formats::kubeconfig::check(&text).map_err(|mistake| fail(mistake.to_string()))?;
    let kubeconfig = Kubeconfig::read_from(path).map_err(|_| fail("is not a kubeconfig".to_owned()))?;
    let mut files = vec![path.clone()];
    files.extend(named(&kubeconfig));
    let files = files.into_iter().map(|f| (f.clone(), stamp(&f))).collect();
    let options = KubeConfigOptions { context: context.map(str::to_owned), ..KubeConfigOptions::default() };
    let names_proxy = client::names_proxy(&kubeconfig, context);
    let mut config =
        Config::from_custom_kubeconfig(kubeconfig, &options).await.map_err(|e| fail(e.to_string()))?;
    client::settle_proxy(&mut config, names_proxy);
    config.connect_timeout = Some(CONNECT_TIMEOUT);
    config.read_timeout = Some(SILENCE);
    // The agent retries by itself, with the reason in its log and status.
    config.default_retry = false;
    let server = match config.proxy_url {
        None => address(&config.cluster_url),
        Some(_) => None,
    };
    let client = Client::try_from(config).map_err(|e| fail(e.to_string()))?;
    Ok(Identity { client, files, server })
}

impl Identity {
    /// Returns when a file of the credentials has changed.
    pub(crate) async fn renewed(files: Vec<(PathBuf, Option<SystemTime>)>) {
        loop {
            tokio::time::sleep(spread(CHECK_PERIOD)).await;
            if let Some(file) = changed(&files) {
                tracing::info!(file = %file.display(), "the credentials have changed");
                return;
            }
        }
    }
}

/// Host and port of a server's URL.
fn address(url: &http::Uri) -> Option<(String, u16)> {
    let port = url.port_u16().or_else(|| match url.scheme_str()? {
        "https" => Some(443),
        _ => Some(80),
    })?;
    let host = url.host()?.trim_start_matches('[').trim_end_matches(']');
    Some((host.to_owned(), port))
}

/// The first of these files that is there. `named`: an administrator has named it, so it is used whatever it holds.
fn search(candidates: &[PathBuf], named: bool) -> Option<&PathBuf> {
    candidates.iter().find(|p| p.exists() && (named || is_kubeconfig(p)))
}

/// Whether the file is a kubeconfig: some distributions have the kubelet's settings at this path.
fn is_kubeconfig(path: &Path) -> bool {
    Kubeconfig::read_from(path).is_ok_and(|k| !k.clusters.is_empty())
}

/// The files that hold a kubeconfig's credentials.
fn named(kubeconfig: &Kubeconfig) -> Vec<PathBuf> {
    let users = kubeconfig.auth_infos.iter().filter_map(|a| a.auth_info.as_ref());
    let of_users = users.flat_map(|a| [&a.client_certificate, &a.client_key, &a.token_file]);
    let clusters = kubeconfig.clusters.iter().filter_map(|c| c.cluster.as_ref());
    let of_clusters = clusters.map(|c| &c.certificate_authority);
    of_users.chain(of_clusters).flatten().map(PathBuf::from).collect()
}

/// The first of the files that has changed.
fn changed(files: &[(PathBuf, Option<SystemTime>)]) -> Option<&Path> {
    files.iter().find(|(file, then)| stamp(file) != *then).map(|(file, _)| file.as_path())
}

/// The modification time of a path's file. Links are followed, so a link that points to another file is a change.
fn stamp(path: &Path) -> Option<SystemTime> {
    std::fs::metadata(path).and_then(|m| m.modified()).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_credential_files_of_a_kubeconfig_are_listed() {
        let yaml = "apiVersion: v1\nkind: Config\nclusters: [{name: c, cluster: {server: 'https://a', certificate-authority: /ca}}]\nusers: [{name: u, user: {client-certificate: /pem, client-key: /pem}}]\n";
        let kubeconfig = Kubeconfig::from_yaml(yaml).unwrap();
        assert_eq!(named(&kubeconfig), ["/pem", "/pem", "/ca"].map(PathBuf::from));
    }

    #[test]
    fn the_api_servers_ca_is_written_to_every_kubeconfig_that_is_searched_and_to_the_one_that_was_named() {
        let all = kubeconfigs(None, Path::new("/"));
        assert!(KUBELETS.iter().chain(&BOOTSTRAPS).all(|path| all.iter().any(|p| p == path)), "{all:?}");
        let own = "/etc/mco/agent.kubeconfig";
        let last = |given: &str, mount: &str| kubeconfigs(Some(Path::new(given)), Path::new(mount)).pop();
        assert_eq!(last(own, "/").as_deref(), Some(own));
        assert_eq!(last(&format!("/rootfs{own}"), "/rootfs").as_deref(), Some(own));
        assert_eq!(kubeconfigs(Some(Path::new(KUBELETS[1])), Path::new("/")), all, "no file twice");
    }

    #[test]
    fn a_kubelets_config_file_is_not_mistaken_for_its_kubeconfig() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("kubelet.conf");
        let settings = "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n";
        for (text, is) in [(settings, false), ("clusters: [{name: c}]", true), ("{", false)] {
            std::fs::write(&file, text).unwrap();
            assert_eq!(is_kubeconfig(&file), is, "{text}");
        }
    }

    #[test]
    fn the_kubelets_kubeconfig_is_found_where_each_distribution_has_it() {
        for path in [
            "/var/lib/kubelet/kubeconfig",
            "/etc/kubernetes/kubelet.conf",
            "/var/lib/rancher/k3s/agent/kubelet.kubeconfig",
            "/var/lib/rancher/rke2/agent/kubelet.kubeconfig",
            "/var/lib/k0s/kubelet.conf",
        ] {
            let dir = tempfile::tempdir().unwrap();
            let at = |path: &str| dir.path().join(path.trim_start_matches('/'));
            let candidates: Vec<PathBuf> = KUBELETS.iter().map(|path| at(path)).collect();
            assert_eq!(search(&candidates, false), None);
            std::fs::create_dir_all(at(path).parent().unwrap()).unwrap();
            std::fs::write(at(path), "clusters: [{name: c}]").unwrap();
            assert_eq!(search(&candidates, false), Some(&at(path)));
        }
    }

    #[test]
    fn a_renewed_certificate_is_noticed() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("current.pem");
        std::fs::write(&file, "one").unwrap();
        let files = vec![(file.clone(), stamp(&file))];
        assert_eq!(changed(&files), None);
        // As the kubelet does: write another file, then switch the link.
        let new = dir.path().join("new.pem");
        std::fs::write(&new, "two").unwrap();
        let then = SystemTime::now() + Duration::from_secs(5);
        std::fs::File::options().write(true).open(&new).unwrap().set_modified(then).unwrap();
        std::fs::rename(&new, &file).unwrap();
        assert_eq!(changed(&files), Some(file.as_path()));
    }
}
