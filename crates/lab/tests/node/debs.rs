//! Debian packages on a machine that runs: downloaded by this computer's apt, installed by the machine's dpkg.
//!
//! Not here: packages that every node has (the lab's base root).

use crate::product::Cluster;
use lab::NodeHandle;
use std::path::Path;
use std::process::Output;

/// Downloads the packages that the node lacks, according to its own package database, into `folder`. apt reads a copy of the
/// database: it would resolve a path into the node against this computer's root.
async fn download(root: &Path, folder: &Path, packages: &[&str]) -> Output {
    let installed = folder.join("status");
    std::fs::copy(root.join("var/lib/dpkg/status"), &installed).unwrap();
    tokio::process::Command::new("apt-get")
        .args(["install", "-y", "-q", "--download-only", "--no-install-recommends", "-o"])
        .arg(format!("Dir::State::status={}", installed.display()))
        .arg("-o")
        .arg(format!("Dir::Cache::archives={}", folder.display()))
        .args(packages)
        .output()
        .await
        .unwrap()
}

/// Installs packages on a node. `false`: they cannot be downloaded, and the test is skipped with a message.
pub(crate) async fn install(cluster: &Cluster, node: &NodeHandle, packages: &[&str]) -> bool {
    let root = node.root_of_boot().unwrap();
    let debs = cluster.lab.folder().make("debs").unwrap();
    let apt = download(&root, &debs, packages).await;
    let said = format!("{}{}", String::from_utf8_lossy(&apt.stdout), String::from_utf8_lossy(&apt.stderr));
    let missing = (!apt.status.success()).then(|| format!("{} cannot be had: {said}", packages.join(", ")));
    if !lab::require(missing) {
        return false;
    }
    std::fs::create_dir_all(root.join("var/debs")).unwrap();
    for deb in std::fs::read_dir(&debs).unwrap().map(|e| e.unwrap().path()) {
        if deb.extension().is_some_and(|e| e == "deb") {
            std::fs::copy(&deb, root.join("var/debs").join(deb.file_name().unwrap())).unwrap();
        }
    }
    node.run(["sh", "-c", "DEBIAN_FRONTEND=noninteractive dpkg -i /var/debs/*.deb"]).await.unwrap();
    true
}
