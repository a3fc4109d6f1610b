//! Decides which certificate files the host should have, and brings the disk to that state. Each file is written
//! atomically, and only if it differs.
//!
//! Files of others are never removed. A registry's CA is removed only if the agent itself put it there.
//!
//! Sources: containers-certs.d(5),
//! <https://github.com/openshift/machine-config-operator/blob/HEAD/pkg/daemon/certificate_writer.go>.

use api::v1::ControllerConfigSpec;
use host::{Attributes, FsError, PathState, Root};
use std::collections::{BTreeMap, BTreeSet};

/// The CA with which the kubelet verifies clients.
const KUBELET_CA: &str = api::paths::KUBELET_CA;
/// The cloud provider's CA.
const CLOUD_CA: &str = api::paths::CLOUD_CA;
/// The pull secret of the cluster's own registry. The cluster merges it with the others.
const PULL_SECRET: &str = desired::paths::INTERNAL_PULL_SECRET;
/// The folder in which container runtimes look for the CAs of registries, by the registry's name
/// (containers-certs.d(5)).
const REGISTRIES: &str = api::paths::REGISTRY_CERTIFICATES;
/// The record of the registries whose CAs the agent put there.
const RECORD: &str = "/var/lib/machine-config-daemon/registry-cas.json";
/// Mode and owner of a new file with certificates. An existing file keeps its own.
const PUBLIC: Attributes = Attributes { mode: 0o644, uid: 0, gid: 0 };
/// Mode and owner of a new file with a secret.
const SECRET: Attributes = Attributes { mode: 0o600, uid: 0, gid: 0 };
/// The permission bits for other users.
const OTHERS: u32 = 0o007;
/// Mode and owner of a new folder.
const FOLDER: Attributes = Attributes { mode: 0o755, uid: 0, gid: 0 };

/// The files that the disk should have. No `Debug`, because one of the files is a secret.
#[derive(Clone, Default, PartialEq, Eq)]
pub(crate) struct CertificateFiles {
    files: Vec<(&'static str, Vec<u8>, Attributes)>,
    /// The registries' CAs by the name of their folder.
    registries: BTreeMap<String, Vec<u8>>,
    /// Names that cannot be folder names; for the log.
    pub(crate) refused: Vec<String>,
}

impl CertificateFiles {
    /// Takes them from the cluster's object. Files that are empty there stay as they are on the host.
    pub(crate) fn of(spec: &ControllerConfigSpec) -> Self {
        let secret = spec.internal_registry_pull_secret.as_ref();
        let cloud = spec.cloud_provider_ca_data.as_ref();
        let all = [
            (KUBELET_CA, Some(&spec.kube_api_server_serving_ca_data), PUBLIC),
            (CLOUD_CA, cloud, PUBLIC),
            (PULL_SECRET, secret, SECRET),
        ];
        let files = all.into_iter().filter_map(|(path, data, new)| {
            let data = data.map(|d| d.0.clone()).filter(|d| !d.is_empty())?;
            Some((path, with_newline(data), new))
        });
        let mut wanted = Self { files: files.collect(), ..Self::default() };
        let bundles = [&spec.image_registry_bundle_data, &spec.image_registry_bundle_user_data];
        // The user's bundles come last and override the others.
        for bundle in bundles.into_iter().flatten().flatten() {
            // These names are keys of a ConfigMap, which cannot contain the colon of a port: it is written as `..`.
            let name = bundle.file.replace("..", ":");
            if name.is_empty() || name.starts_with('.') || name.contains(['/', '\0', '\n']) {
                wanted.refused.push(bundle.file.clone());
            } else {
                wanted.registries.insert(name, bundle.data.0.clone());
            }
        }
        wanted
    }

    /// Writes the files that differ. Returns what was changed and what failed. A failure with one file does not stop
    /// the others.
    pub(crate) fn write(&self, root: &Root) -> (Vec<String>, Vec<FsError>) {
        let (mut changed, mut failed) = (Vec::new(), Vec::new());
        for (path, data, new) in &self.files {
            let written = match root.found(path) {
                // A file keeps its mode, but a secret must not stay accessible to other users.
                Ok(PathState::File { mode, .. }) if new.mode & OTHERS == 0 && mode & OTHERS != 0 => {
                    root.write_bytes(path, data, *new).map(|()| true)
                }
                _ => put(root, path, data, *new),
            };
            match written {
                Ok(true) => changed.push((*path).to_owned()),
                Ok(false) => {}
                Err(error) => failed.push(error),
            }
        }
        failed.extend(self.write_registries(root, &mut changed).err());
        (changed, failed)
    }

    /// As [`CertificateFiles::write`], with the fingerprints of what it left. Somebody may change a file between its writing and its
    /// fingerprint, which would pass for ours then. So the contents are compared once more afterwards.
    pub(crate) fn write_and_note(&self, root: &Root) -> (Vec<String>, Vec<FsError>, Vec<u64>) {
        let (mut changed, _) = self.write(root);
        let left = self.fingerprints(root);
        let (again, failed) = self.write(root);
        changed.extend(again);
        changed.sort();
        changed.dedup();
        (changed, failed, left)
    }

    /// The fingerprints of these files. They show whether somebody has touched one, without reading it.
    pub(crate) fn fingerprints(&self, root: &Root) -> Vec<u64> {
        let registries = self.registries.keys().map(|name| format!("{REGISTRIES}/{name}/ca.crt"));
        let files = self.files.iter().map(|(path, ..)| (*path).to_owned());
        files.chain(registries).map(|path| root.fingerprint(&path)).collect()
    }

    fn write_registries(&self, root: &Root, changed: &mut Vec<String>) -> Result<(), FsError> {
        let text = root.text(RECORD)?.unwrap_or_default();
        let ours: BTreeSet<String> = serde_json::from_str(&text).unwrap_or_default();
        if !matches!(root.found(REGISTRIES)?, PathState::Dir { .. }) {
            if !self.registries.is_empty() {
                tracing::info!("{REGISTRIES} does not exist, so no registry's CA is written");
            }
            return Ok(());
        }
        let wanted: BTreeSet<String> = self.registries.keys().cloned().collect();
        // Written before the first CA, so that a crash leaves no CA that is missing in the record.
        let all: BTreeSet<String> = ours.union(&wanted).cloned().collect();
        record(root, &ours, &all)?;
        for name in ours.difference(&wanted) {
            let path = format!("{REGISTRIES}/{name}/ca.crt");
            root.remove(&path)?;
            // Others may keep a client key in the same folder.
            if root.list(&format!("{REGISTRIES}/{name}")).is_ok_and(|left| left.is_empty()) {
                root.remove_empty_dir(&format!("{REGISTRIES}/{name}"))?;
            }
            changed.push(path);
        }
        for (name, data) in &self.registries {
            let folder = format!("{REGISTRIES}/{name}");
            if root.found(&folder)?.is_absent() {
                root.make_dir(&folder, FOLDER)?;
            }
            let path = format!("{folder}/ca.crt");
            if put(root, &path, data, PUBLIC)? {
                changed.push(path);
            }
        }
        record(root, &all, &wanted)
    }
}

fn record(root: &Root, before: &BTreeSet<String>, after: &BTreeSet<String>) -> Result<(), FsError> {
    if before == after {
        return Ok(());
    }
    let text = serde_json::json!(after).to_string();
    root.make_parents(RECORD)?;
    root.write_bytes(RECORD, text.as_bytes(), SECRET)
}

/// Writes a file if it differs. An existing file keeps its mode and owner.
pub(super) fn put(root: &Root, path: &str, data: &[u8], new: Attributes) -> Result<bool, FsError> {
    let attributes = match root.found(path)? {
        PathState::File { mode, uid, gid, .. } => {
            if root.read_if_there(path)?.as_deref() == Some(data) {
                return Ok(false);
            }
            Attributes { mode, uid, gid }
        }
        _ => new,
    };
    root.make_parents(path)?;
    root.write_bytes(path, data, attributes)?;
    Ok(true)
}

fn with_newline(mut data: Vec<u8>) -> Vec<u8> {
    if data.last() != Some(&b'\n') {
        data.push(b'\n');
    }
    data
}

#[cfg(test)]
mod tests {
    use super::*;
    use api::k8s::ByteString;
    use api::v1::ImageRegistryBundle;
    use std::os::unix::fs::PermissionsExt;
    use tempfile::TempDir;

    fn mk() -> (TempDir, Root) {
        let dir = TempDir::new().unwrap();
        let options = host::Options { sync: false, owners: false };
        let root = Root::open_with(dir.path(), options, std::sync::Arc::new(host::fault::NoFaults)).unwrap();
        (dir, root)
    }

    fn bytes(text: &str) -> ByteString {
        ByteString(text.as_bytes().to_vec())
    }

    fn bundles(all: &[(&str, &str)]) -> Option<Vec<ImageRegistryBundle>> {
        let one =
            |(file, data): &(&str, &str)| ImageRegistryBundle { file: (*file).into(), data: bytes(data) };
        Some(all.iter().map(one).collect())
    }

    fn mk_spec() -> ControllerConfigSpec {
        ControllerConfigSpec {
            kube_api_server_serving_ca_data: bytes("KUBELET CA"),
            cloud_provider_ca_data: Some(bytes("CLOUD CA\n")),
            internal_registry_pull_secret: Some(bytes("{\"auths\":{}}")),
            image_registry_bundle_data: bundles(&[("image-registry.svc..5000", "A"), ("both", "cluster")]),
            image_registry_bundle_user_data: bundles(&[("both", "user"), ("../../etc", "evil")]),
            ..ControllerConfigSpec::default()
        }
    }

    #[test]
    fn certificates_are_written_once_keep_their_modes_and_image_registry_user_data_wins() {
        let (dir, root) = mk();
        let read = |path: &str| std::fs::read_to_string(dir.path().join(path)).unwrap();
        let mode =
            |path: &str| std::fs::metadata(dir.path().join(path)).unwrap().permissions().mode() & 0o777;
        std::fs::create_dir_all(dir.path().join("etc/docker/certs.d/mine")).unwrap();
        std::fs::create_dir_all(dir.path().join("etc/kubernetes")).unwrap();
        std::fs::write(dir.path().join("etc/kubernetes/kubelet-ca.crt"), "old").unwrap();
        let kept = std::fs::Permissions::from_mode(0o640);
        std::fs::set_permissions(dir.path().join("etc/kubernetes/kubelet-ca.crt"), kept).unwrap();

        let wanted = CertificateFiles::of(&mk_spec());
        assert_eq!(wanted.refused, ["../../etc"]);
        assert_eq!(wanted.write(&root).0.len(), 5);
        assert_eq!(read("etc/kubernetes/kubelet-ca.crt"), "KUBELET CA\n");
        assert_eq!(mode("etc/kubernetes/kubelet-ca.crt"), 0o640);
        assert_eq!(read(CLOUD_CA.trim_start_matches('/')), "CLOUD CA\n");
        assert_eq!(mode(CLOUD_CA.trim_start_matches('/')), 0o644);
        assert_eq!(mode(PULL_SECRET.trim_start_matches('/')), 0o600);
        assert_eq!(read("etc/docker/certs.d/image-registry.svc:5000/ca.crt"), "A");
        assert_eq!(read("etc/docker/certs.d/both/ca.crt"), "user");
        assert!(wanted.write(&root).0.is_empty(), "nothing differs");

        // A CA that is removed in the cluster is removed here. A file that somebody else put there stays.
        let less = ControllerConfigSpec { image_registry_bundle_user_data: None, ..mk_spec() };
        let less =
            ControllerConfigSpec { image_registry_bundle_data: bundles(&[("both", "cluster")]), ..less };
        assert_eq!(CertificateFiles::of(&less).write(&root).0.len(), 2);
        assert_eq!(read("etc/docker/certs.d/both/ca.crt"), "cluster");
        assert!(!dir.path().join("etc/docker/certs.d/image-registry.svc:5000").exists());
        assert!(dir.path().join("etc/docker/certs.d/mine").exists());
    }

    #[test]
    fn an_edited_certificate_file_is_restored_and_a_private_one_is_not_world_readable() {
        let (dir, root) = mk();
        std::fs::create_dir_all(dir.path().join("etc/docker/certs.d")).unwrap();
        let wanted = CertificateFiles::of(&mk_spec());
        wanted.write(&root);
        let at = |path: &str| dir.path().join(path.trim_start_matches('/'));
        let both = "/etc/docker/certs.d/both/ca.crt";
        let harm: [(&str, &dyn Fn()); 5] = [
            (KUBELET_CA, &|| std::fs::remove_file(at(KUBELET_CA)).unwrap()),
            (CLOUD_CA, &|| std::fs::write(at(CLOUD_CA), "other").unwrap()),
            (PULL_SECRET, &|| std::fs::remove_dir_all(at("/etc/mco")).unwrap()),
            (PULL_SECRET, &|| {
                std::fs::set_permissions(at(PULL_SECRET), std::fs::Permissions::from_mode(0o644)).unwrap();
            }),
            (both, &|| std::fs::rename(at(both), at("/etc/moved")).unwrap()),
        ];
        let good = [KUBELET_CA, CLOUD_CA, PULL_SECRET, both].map(|p| std::fs::read(at(p)).unwrap());
        for (path, harm) in harm {
            let before = wanted.fingerprints(&root);
            assert_eq!(wanted.fingerprints(&root), before, "{path}");
            harm();
            assert_ne!(wanted.fingerprints(&root), before, "{path}");
            let (changed, failed) = wanted.write(&root);
            assert_eq!((changed, failed.len()), (vec![path.to_owned()], 0));
            let now = [KUBELET_CA, CLOUD_CA, PULL_SECRET, both].map(|p| std::fs::read(at(p)).unwrap());
            assert_eq!(now, good, "{path}");
        }
        let mode = std::fs::metadata(at(PULL_SECRET)).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
    }

    /// Somebody who changes a file right after it was written, once.
    #[derive(Debug)]
    struct Meddler {
        file: std::path::PathBuf,
        is_done: std::sync::atomic::AtomicBool,
    }

    impl host::fault::Faults for Meddler {
        fn at(&self, point: host::fault::Point<'_>) -> Result<(), host::fault::Fault> {
            let is_written =
                !point.before && std::fs::read(&self.file).is_ok_and(|data| data == b"KUBELET CA\n");
            if is_written && !self.is_done.swap(true, std::sync::atomic::Ordering::Relaxed) {
                std::fs::write(&self.file, "OTHER").unwrap();
            }
            Ok(())
        }
    }

    #[test]
    fn a_change_right_after_the_write_does_not_pass_for_ours() {
        let dir = TempDir::new().unwrap();
        let file = dir.path().join(KUBELET_CA.trim_start_matches('/'));
        let options = host::Options { sync: false, owners: false };
        let meddler = std::sync::Arc::new(Meddler { file: file.clone(), is_done: false.into() });
        let root = Root::open_with(dir.path(), options, meddler.clone()).unwrap();
        let all = CertificateFiles::of(&mk_spec());
        let (_, failed, left) = all.write_and_note(&root);
        assert!(
            failed.is_empty() && meddler.is_done.load(std::sync::atomic::Ordering::Relaxed),
            "{failed:?}"
        );
        let is_ours = std::fs::read(&file).unwrap() == b"KUBELET CA\n";
        assert!(is_ours || all.fingerprints(&root) != left, "the next look would not see it");
        assert!(is_ours);
    }

    #[test]
    fn files_that_the_cluster_does_not_define_are_left_alone() {
        let (dir, root) = mk();
        std::fs::create_dir_all(dir.path().join("etc/kubernetes")).unwrap();
        std::fs::write(dir.path().join("etc/kubernetes/kubelet-ca.crt"), "the host's").unwrap();
        assert!(CertificateFiles::of(&ControllerConfigSpec::default()).write(&root).0.is_empty());
        let left = std::fs::read_to_string(dir.path().join("etc/kubernetes/kubelet-ca.crt")).unwrap();
        assert_eq!(left, "the host's");
        // Without registries no folder is made.
        let wanted = CertificateFiles::of(&mk_spec());
        assert!(wanted.write(&root).0.iter().all(|p| !p.contains("certs.d")));
        assert!(!dir.path().join("etc/docker").exists());
    }

    #[test]
    fn a_file_that_cannot_be_written_is_named_and_does_not_block_the_others() {
        let (dir, root) = mk();
        std::fs::create_dir_all(dir.path().join("etc/kubernetes/kubelet-ca.crt")).unwrap();
        let (changed, failed) = CertificateFiles::of(&mk_spec()).write(&root);
        let failed: Vec<String> = failed.iter().map(ToString::to_string).collect();
        assert!(failed.len() == 1 && failed[0].contains(KUBELET_CA), "{failed:?}");
        assert!(failed[0].contains("move it away"), "no remedy: {failed:?}");
        assert_eq!(changed, [CLOUD_CA, PULL_SECRET]);
    }
}
