//! A Kubernetes client from the usual places: `--kubeconfig`, `$KUBECONFIG`, `~/.kube/config`, the pod's own account.
//!
//! Errors name the kubeconfig and the place in it, never the value there: the library's own errors quote the file, and it
//! holds credentials. What it is not: the node agent's identity, which is the kubelet's (see `daemon`).

use crate::args::shared::Cluster;
use anyhow::{Context, anyhow, bail};
use kube::client::AuthError;
use kube::config::{KubeConfigOptions, Kubeconfig, KubeconfigError};
use std::path::{Path, PathBuf};

/// From the file given, else as `kubectl` finds it, else from the pod that this runs in.
pub(crate) async fn connect(cluster: &Cluster) -> anyhow::Result<kube::Client> {
    connect_with(cluster, |_| ()).await
}

/// The same, with the configuration adjusted by the caller, such as its timeouts.
pub(crate) async fn connect_with(
    cluster: &Cluster,
    tune: impl FnOnce(&mut kube::Config),
) -> anyhow::Result<kube::Client> {
    let (mut config, from) = resolve(cluster).await?;
    tune(&mut config);
    kube::Client::try_from(config).map_err(|e| anyhow!("{from}: {}", connection_error(&e)))
}

/// The same from a configuration that the caller has resolved already.
pub(crate) fn client(config: kube::Config) -> anyhow::Result<kube::Client> {
    kube::Client::try_from(config).map_err(|e| anyhow!("{}", connection_error(&e)))
}

/// The configuration alone; `None`: no kubeconfig was found, and the program does not run in a pod.
pub(crate) async fn config_if_any(cluster: &Cluster) -> anyhow::Result<Option<kube::Config>> {
    let said = cluster.context.is_some() || files(cluster, std::env::home_dir().as_deref()).is_some();
    if !said && kube::Config::incluster().is_err() {
        return Ok(None);
    }
    config(cluster).await.map(Some)
}

/// The configuration alone.
pub(crate) async fn config(cluster: &Cluster) -> anyhow::Result<kube::Config> {
    Ok(resolve(cluster).await?.0)
}

/// The configuration, and where it was found.
async fn resolve(cluster: &Cluster) -> anyhow::Result<(kube::Config, String)> {
    let files = files(cluster, std::env::home_dir().as_deref());
    let Some(files) = files else {
        if let Some(context) = &cluster.context {
            bail!(
                "there is no kubeconfig that could have the context {context:?}; pass --kubeconfig or set KUBECONFIG"
            );
        }
        let config = kube::Config::incluster().map_err(|_| {
            anyhow!("no cluster found: pass --kubeconfig, set KUBECONFIG, or run inside a pod")
        })?;
        return Ok((config, "the pod's service account".to_owned()));
    };
    let from = files.to_string();
    let kubeconfig = files.read()?;
    let context = choose(&kubeconfig, cluster.context.as_deref(), &from)?;
    let options = KubeConfigOptions { context: Some(context.clone()), ..KubeConfigOptions::default() };
    let named = ::client::names_proxy(&kubeconfig, Some(&context));
    let config = kube::Config::from_custom_kubeconfig(kubeconfig, &options).await;
    let mut config = config.map_err(|e| anyhow!("{from}: context {context:?}: {}", unusable(&e)))?;
    ::client::settle_proxy(&mut config, named);
    Ok((config, from))
}

/// The kubeconfigs in use, by where they were found.
#[derive(Debug, PartialEq, Eq)]
enum Files {
    /// `--kubeconfig`.
    Named(PathBuf),
    /// From `$KUBECONFIG`. They are merged; of two that set the same, the first counts, as for `kubectl`.
    Listed(Vec<PathBuf>),
    /// In the home folder.
    Home(PathBuf),
}

/// Which files are used; `None`: there are none.
fn files(cluster: &Cluster, home: Option<&Path>) -> Option<Files> {
    if let Some(path) = &cluster.kubeconfig {
        return Some(Files::Named(path.clone()));
    }
    let listed = cluster.kubeconfig_list.iter().flat_map(std::env::split_paths);
    let listed: Vec<PathBuf> = listed.filter(|p| !p.as_os_str().is_empty()).collect();
    if !listed.is_empty() {
        return Some(Files::Listed(listed));
    }
    home.map(|home| home.join(".kube/config")).filter(|path| path.exists()).map(Files::Home)
}

impl std::fmt::Display for Files {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Named(path) | Self::Home(path) => write!(f, "the kubeconfig {}", path.display()),
            Self::Listed(paths) => {
                let paths: Vec<String> = paths.iter().map(|p| p.display().to_string()).collect();
                write!(f, "the kubeconfig {} (from KUBECONFIG)", paths.join(", "))
            }
        }
    }
}

impl Files {
    /// Reads and merges them.
    fn read(&self) -> anyhow::Result<Kubeconfig> {
        let paths = match self {
            Self::Named(path) | Self::Home(path) => std::slice::from_ref(path),
            Self::Listed(paths) => paths,
        };
        let mut all: Option<Kubeconfig> = None;
        for path in paths {
            // As `kubectl` does: files of a list that do not exist are skipped.
            if !path.exists() && (paths.len() > 1) {
                continue;
            }
            let one = read(path).with_context(|| match self {
                Self::Listed(_) => format!("cannot read the kubeconfig {} (from KUBECONFIG)", path.display()),
                _ => format!("cannot read the kubeconfig {}", path.display()),
            })?;
            all = Some(match all {
                None => one,
                Some(all) => all.merge(one).map_err(|e| {
                    anyhow!(
                        "the kubeconfig {} cannot be merged with those before it: {}",
                        path.display(),
                        unusable(&e)
                    )
                })?,
            });
        }
        all.ok_or_else(|| anyhow!("{self}: there is no such file"))
    }
}

fn read(path: &Path) -> anyhow::Result<Kubeconfig> {
    let text = std::fs::read_to_string(path)?;
    api::formats::kubeconfig::check(&text)?;
    // Read a second time: paths in it are relative to it.
    Kubeconfig::read_from(path).map_err(|e| anyhow!("{}", unusable(&e)))
}

/// The context in use. Its cluster and its user exist.
fn choose(kubeconfig: &Kubeconfig, wanted: Option<&str>, from: &str) -> anyhow::Result<String> {
    let contexts: Vec<&str> = kubeconfig.contexts.iter().map(|c| c.name.as_str()).collect();
    let there = if contexts.is_empty() { "none".to_owned() } else { contexts.join(", ") };
    let current = kubeconfig.current_context.as_deref().filter(|c| !c.is_empty());
    let Some(name) = wanted.or(current) else {
        bail!(
            "{from} has no current-context; pass --context, or run `kubectl config use-context`; its \
             contexts are: {there}"
        );
    };
    let Some(context) = kubeconfig.contexts.iter().find(|c| c.name == name) else {
        bail!("{from} has no context {name:?}; its contexts are: {there}");
    };
    let context = context.context.clone().unwrap_or_default();
    if !kubeconfig.clusters.iter().any(|c| c.name == context.cluster) {
        bail!("{from}: context {name:?} names the cluster {:?}, which does not exist in it", context.cluster);
    }
    let user = context.user.filter(|user| !user.is_empty());
    if let Some(user) = user.filter(|user| !kubeconfig.auth_infos.iter().any(|u| u.name == *user)) {
        bail!("{from}: context {name:?} names the user {user:?}, which does not exist in it");
    }
    Ok(name.to_owned())
}

/// Why a kubeconfig cannot be used. The text of parser errors is left out: it quotes what was read.
fn unusable(error: &KubeconfigError) -> String {
    match error {
        KubeconfigError::Parse(_) => "is not a valid kubeconfig".to_owned(),
        KubeconfigError::ReadConfig(source, _) => source.to_string(),
        KubeconfigError::ParseClusterUrl(_) => "the cluster's server is not a URL".to_owned(),
        KubeconfigError::ParseProxyUrl(_) => "the cluster's proxy-url is not a URL".to_owned(),
        KubeconfigError::ParseCertificates(_) => "the certificate authority is not PEM".to_owned(),
        other => other.to_string(),
    }
}

/// Why there is no client. The output of a credential plugin is left out: it may hold a token.
fn connection_error(error: &kube::Error) -> String {
    let kube::Error::Auth(auth) = error else { return error.to_string() };
    match auth {
        // Its command line, too, may hold secrets.
        AuthError::AuthExecRun { cmd: _, out } => {
            format!("the user's credential plugin (exec) failed, {}; run it by hand to see why", out.status)
        }
        AuthError::AuthExecParse(_) | AuthError::AuthExecSerialize(_) | AuthError::AuthExec(_) => {
            "the credential plugin did not answer with an ExecCredential; run it by hand to see why"
                .to_owned()
        }
        AuthError::ParseTokenKey(_) => "the user's auth-provider holds no usable token".to_owned(),
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cluster(file: Option<&str>, list: Option<&str>) -> Cluster {
        Cluster { kubeconfig: file.map(Into::into), context: None, kubeconfig_list: list.map(Into::into) }
    }

    #[test]
    fn a_flag_goes_before_the_environment_and_that_before_the_home_folder() {
        let home = tempfile::tempdir().unwrap();
        std::fs::create_dir(home.path().join(".kube")).unwrap();
        let file = home.path().join(".kube/config");
        std::fs::write(&file, "").unwrap();
        let path = |p: &str| PathBuf::from(p);
        for (cluster, home, want) in [
            (cluster(Some("/f"), Some("/e")), Some(home.path()), Some(Files::Named(path("/f")))),
            (
                cluster(None, Some("/a::/b")),
                Some(home.path()),
                Some(Files::Listed(vec![path("/a"), path("/b")])),
            ),
            (cluster(None, Some(":")), Some(home.path()), Some(Files::Home(file))),
            (cluster(None, Some("")), None, None),
            (cluster(None, None), Some(Path::new("/nowhere")), None),
        ] {
            assert_eq!(files(&cluster, home), want, "{cluster:?}");
        }
    }

    #[test]
    fn the_first_file_that_says_something_counts_and_missing_ones_are_passed_over() {
        let dir = tempfile::tempdir().unwrap();
        let text = |context: &str| {
            format!(
                "current-context: {context}\nclusters: [{{name: c, cluster: {{server: 'https://{context}'}}}}]\n\
                 contexts: [{{name: {context}, context: {{cluster: c, user: ''}}}}]\n"
            )
        };
        let (a, b, away) = (dir.path().join("a"), dir.path().join("b"), dir.path().join("away"));
        std::fs::write(&a, text("one")).unwrap();
        std::fs::write(&b, text("two")).unwrap();
        let all = Files::Listed(vec![away.clone(), a, b.clone()]).read().unwrap();
        assert_eq!(choose(&all, None, "f").unwrap(), "one");
        assert_eq!(choose(&all, Some("two"), "f").unwrap(), "two");
        let error = choose(&all, Some("three"), "f").unwrap_err().to_string();
        assert_eq!(error, "f has no context \"three\"; its contexts are: one, two");
        let error = Files::Listed(vec![away.clone(), away]).read().unwrap_err().to_string();
        assert!(error.contains("away") && error.contains("no such file"), "{error}");
        std::fs::write(&b, "contexts: [{name: x, context: {cluster: gone, user: u}}]\n").unwrap();
        let one = Files::Listed(vec![b]).read().unwrap();
        assert!(choose(&one, None, "f").unwrap_err().to_string().contains("no current-context"));
        assert!(choose(&one, Some("x"), "f").unwrap_err().to_string().contains("\"gone\""));
    }
}
