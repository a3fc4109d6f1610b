//! The kubelet's kubeconfigs on the host: which of them lack the API server's CA, and writing it to them.
//!
//! Not here: which certificates are new (see `kubeconfig_ca`), and when they are written (see `writer`).

use super::files::put;
use super::kubeconfig_ca::{ca_of, rotation, with_ca};
use client::chain;
use host::paths::KUBELET_RESTART;
use host::{Attributes, PathState, Root};
use serde_json::Value;

/// Mode and owner of a new kubeconfig, which holds a token, and of the mark beside it.
const SECRET: Attributes = Attributes { mode: 0o600, uid: 0, gid: 0 };
/// How many links in a row are followed to a kubeconfig.
const LINKS: u32 = 8;

/// The result of [`take_over`].
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct TakeOver {
    /// The kubeconfigs that exist.
    pub(super) found: Vec<String>,
    /// Those that name a file with the CA, each with that file.
    pub(super) named: Vec<(String, String)>,
    /// Those that were written.
    pub(super) written: Vec<String>,
    /// Whether the kubelet must read it now.
    pub(super) at_once: bool,
}

/// Writes the CA to the kubeconfigs that lack a part of it. If the kubelet must read it now, [`KUBELET_RESTART`] exists from then on,
/// also where a later kubeconfig cannot be written.
pub(super) fn take_over(root: &Root, paths: &[String], bundle: &[u8]) -> Result<TakeOver, String> {
    let read = |path: &str| -> Result<Option<Value>, String> {
        let text = root.text(path).map_err(|e| chain(&e))?;
        // Do not show the parser's message: it could quote a token.
        text.map(|t| {
            api::formats::yaml::from_str(&t).map_err(|_| format!("{path} is not a kubeconfig; repair it"))
        })
        .transpose()
    };
    let was_marked = !root.found(KUBELET_RESTART).map_err(|e| chain(&e))?.is_absent();
    let mut taken = TakeOver::default();
    for path in paths {
        let path = &behind_links(root, path)?;
        if taken.found.contains(path) {
            continue;
        }
        let Some(kubeconfig) = read(path)? else { continue };
        // Some distributions have the kubelet's settings at such a path.
        let Some(cluster) = kubeconfig.pointer("/clusters/0/cluster") else { continue };
        taken.found.push(path.clone());
        if ca_of(&kubeconfig).is_empty() {
            if let Some(file) = cluster["certificate-authority"].as_str() {
                taken.named.push((path.clone(), file.to_owned()));
            }
            continue;
        }
        let Some(rotation) = rotation(bundle, &kubeconfig) else { continue };
        let Some(new) = with_ca(kubeconfig, &rotation.ca) else { continue };
        let text = api::formats::yaml::to_string(&new).map_err(|_| format!("{path} cannot be rewritten"))?;
        tracing::info!(path, certificates = ?rotation.new, "new signers of the API server");
        if rotation.at_once {
            // First: this process may end before the restart, and the next one finds the kubeconfig as it should be.
            put(root, KUBELET_RESTART, b"", SECRET).map_err(|e| chain(&e))?;
        }
        match put(root, path, text.as_bytes(), SECRET) {
            Ok(true) => {
                taken.written.push(path.clone());
                taken.at_once |= rotation.at_once;
            }
            Ok(false) => {}
            Err(error) => {
                if !was_marked && !taken.at_once {
                    // There is nothing new for the kubelet to read.
                    root.remove(KUBELET_RESTART).map_err(|e| chain(&e))?;
                }
                return Err(chain(&error));
            }
        }
    }
    Ok(taken)
}

/// The file that a path leads to: writing to the path itself would put a file in the place of an administrator's link.
fn behind_links(root: &Root, path: &str) -> Result<String, String> {
    let mut path = path.to_owned();
    for _ in 0..LINKS {
        let PathState::Link { target, .. } = root.found(&path).map_err(|e| chain(&e))? else {
            return Ok(path);
        };
        let folder = path.rsplit_once('/').map_or("", |(folder, _)| folder);
        path = if target.starts_with('/') { target } else { format!("{folder}/{target}") };
    }
    Err(format!("{path} is behind more than {LINKS} links; name the file itself with --kubeconfig"))
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use api::k8s::ByteString;
    use std::path::Path;

    pub(in crate::node::certificates) fn mk_pem(name: &str) -> String {
        let key = rcgen::KeyPair::generate().unwrap();
        let mut params = rcgen::CertificateParams::default();
        params.distinguished_name.push(rcgen::DnType::CommonName, name);
        params.self_signed(&key).unwrap().pem()
    }

    pub(in crate::node::certificates) fn mk_root(dir: &Path) -> Root {
        let options = host::Options { sync: false, owners: false };
        Root::open_with(dir, options, std::sync::Arc::new(host::fault::NoFaults)).unwrap()
    }

    pub(in crate::node::certificates) fn mk_kubeconfig(ca: &str) -> String {
        let data = serde_json::json!(ByteString(ca.as_bytes().to_vec()));
        format!(
            "clusters:\n- name: local\n  cluster:\n    server: https://api\n    certificate-authority-data: {}\n",
            data.as_str().unwrap()
        )
    }

    pub(in crate::node::certificates) fn write(dir: &Path, path: &str, text: &str) {
        let file = dir.join(path.trim_start_matches('/'));
        std::fs::create_dir_all(file.parent().unwrap()).unwrap();
        std::fs::write(file, text).unwrap();
    }

    /// The kubeconfigs of a host whose agent was given `given`.
    pub(in crate::node::certificates) fn paths(given: Option<&str>) -> Vec<String> {
        crate::cluster::credentials::kubeconfigs(given.map(Path::new), Path::new("/"))
    }

    #[test]
    fn embedded_cas_are_replaced_in_all_kubeconfigs_and_referenced_ca_files_are_left_alone() {
        let dir = tempfile::tempdir().unwrap();
        let root = mk_root(dir.path());
        let (old, new) = (mk_pem("old"), mk_pem("service-signer"));
        let bundle = |pem: &str| format!("{old}{pem}").into_bytes();
        let k3s = "/var/lib/rancher/k3s/agent/kubelet.kubeconfig";
        let paths = paths(None);
        assert_eq!(take_over(&root, &paths, &bundle(&new)).unwrap(), TakeOver::default(), "an empty host");
        for path in &paths {
            write(dir.path(), path, &mk_kubeconfig(&old));
        }
        let taken = take_over(&root, &paths, &bundle(&new)).unwrap();
        let all = TakeOver { found: paths.clone(), named: vec![], written: paths.clone(), at_once: true };
        assert_eq!(taken, all);
        assert!(taken.written.iter().any(|p| p == "/etc/kubernetes/kubelet.conf"), "kubeadm's");
        assert!(
            taken.written.iter().any(|p| p == "/etc/kubernetes/bootstrap-kubelet.conf"),
            "kubeadm's first"
        );
        let again = take_over(&root, &paths, &bundle(&new)).unwrap();
        assert_eq!(again, TakeOver { found: paths.clone(), ..TakeOver::default() });

        // On k3s the kubeconfig names a CA file, and an administrator has put a link to the kubeconfig.
        let named = "clusters: [{name: c, cluster: {server: 'https://api', certificate-authority: /ca}}]";
        write(dir.path(), k3s, named);
        let link = dir.path().join("var/lib/kubelet/kubeconfig");
        std::fs::remove_file(&link).unwrap();
        std::os::unix::fs::symlink(k3s, &link).unwrap();
        let taken = take_over(&root, &paths, &bundle(&mk_pem("third"))).unwrap();
        assert_eq!(taken.named, [(k3s.to_owned(), "/ca".to_owned())], "once");
        assert_eq!(taken.written.len(), paths.len() - 2, "all but k3s's and the link to it");
        assert_eq!(std::fs::read_to_string(dir.path().join(&k3s[1..])).unwrap(), named);
        // A link stays a link.
        write(dir.path(), k3s, &mk_kubeconfig(&old));
        let taken = take_over(&root, &paths, &bundle(&mk_pem("fourth"))).unwrap();
        assert!(taken.written.iter().any(|p| p == k3s) && link.is_symlink(), "{taken:?}");

        // The kubelet's settings at a kubeconfig's path.
        write(dir.path(), "/etc/kubernetes/kubelet.conf", "kind: KubeletConfiguration\n");
        let taken = take_over(&root, &paths, &bundle(&new)).unwrap();
        assert!(!taken.found.iter().any(|p| p == "/etc/kubernetes/kubelet.conf"), "{taken:?}");
        write(dir.path(), "/etc/kubernetes/kubeconfig", "token: [hush");
        let why = take_over(&root, &paths, &bundle(&new)).unwrap_err();
        assert!(why.contains("/etc/kubernetes/kubeconfig") && !why.contains("hush"), "{why}");
    }

    #[test]
    fn a_kubeconfig_that_cannot_be_read_hides_no_restart_that_another_one_needs() {
        let dir = tempfile::tempdir().unwrap();
        let root = mk_root(dir.path());
        let old = mk_pem("old");
        let both = ["/etc/kubernetes/kubelet.conf".to_owned(), "/etc/kubernetes/kubeconfig".to_owned()];
        write(dir.path(), &both[0], &mk_kubeconfig(&old));
        write(dir.path(), &both[1], "token: [hush");
        let is_marked = || !root.found(KUBELET_RESTART).unwrap().is_absent();
        let can_wait = format!("{old}{}", mk_pem("kube-apiserver-lb-signer"));
        take_over(&root, &both, can_wait.as_bytes()).unwrap_err();
        assert!(!is_marked(), "this signer can wait");
        let bundle = format!("{old}{}", mk_pem("service-signer"));
        take_over(&root, &both, bundle.as_bytes()).unwrap_err();
        assert!(is_marked());
    }

    /// A file that may not be changed, as `chattr +i` makes one.
    #[derive(Debug)]
    struct Immutable;

    impl host::fault::Faults for Immutable {
        fn at(&self, p: host::fault::Point<'_>) -> Result<(), host::fault::Fault> {
            match p.before && p.on.contains("kubelet.conf") && p.call != "read" {
                true => Err(host::fault::Fault::Fail(std::io::ErrorKind::PermissionDenied.into())),
                false => Ok(()),
            }
        }
    }

    #[test]
    fn a_kubeconfig_that_cannot_be_written_restarts_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let options = host::Options { sync: false, owners: false };
        let root = Root::open_with(dir.path(), options, std::sync::Arc::new(Immutable)).unwrap();
        let old = mk_pem("old");
        let path = "/etc/kubernetes/kubelet.conf".to_owned();
        write(dir.path(), &path, &mk_kubeconfig(&old));
        let bundle = format!("{old}{}", mk_pem("service-signer"));
        take_over(&root, &[path], bundle.as_bytes()).unwrap_err();
        assert!(root.found(KUBELET_RESTART).unwrap().is_absent());
    }
}
