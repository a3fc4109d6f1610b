//! The images of the pods that `kubeadm` creates, made from the lab's own programs: there is no registry.
//!
//! They are in the cache folder of the programs, under its lock. An image's file name contains a key made from the
//! sizes and times of its sources, so a rebuilt program gets a new image.
//!
//! Not here: how an image is written (`machine::archive`), and how a node gets it (`node`).

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use sha2::{Digest, Sha256};

use crate::control_plane::programs::{KUBERNETES_VERSION, Program, Programs};
use crate::error::{Error, Result};
use crate::machine::archive::{self, Content, Entry, Image};
use crate::progress::Reporter;
use crate::system::command::run;

/// The registry in the images' names. `.invalid` never exists.
pub(crate) const REPOSITORY: &str = "lab.invalid";
/// The tag of etcd's image. kubeadm gets it as a setting, and chooses etcd's flags by it.
pub(crate) const ETCD_TAG: &str = "3.6.8-0";
/// The time limit for finding libraries, which reads a few files.
const LOOK_LIMIT: Duration = Duration::from_secs(60);

/// The program behind `iptables` and the other names that kube-proxy starts.
const IPTABLES: &str = "usr/sbin/xtables-nft-multi";
const NAMES: [&str; 6] =
    ["iptables", "iptables-save", "iptables-restore", "ip6tables", "ip6tables-save", "ip6tables-restore"];

/// The archives that a node loads.
#[derive(Debug, Clone)]
pub(crate) struct Images {
    /// API server, controller manager, scheduler and etcd: for control-plane nodes.
    pub(crate) control_plane: Vec<PathBuf>,
    /// For every node.
    pub(crate) every_node: Vec<PathBuf>,
}

/// Finds or makes the images. `base` is the root file system from which kube-proxy's `iptables` is taken.
///
/// # Errors
/// A program is missing and cannot be built, or an image cannot be written.
pub(crate) async fn ensure(programs: &Programs, base: &Path, progress: &Reporter) -> Result<Images> {
    let folder = programs.cache().join("images");
    let mut control_plane = vec![];
    for program in [Program::ApiServer, Program::ControllerManager, Program::Scheduler, Program::Etcd] {
        let path = programs.get(program, progress).await?;
        let place = format!("/usr/local/bin/{}", program.file());
        let tag = if program == Program::Etcd { ETCD_TAG } else { KUBERNETES_VERSION };
        let entries = vec![Entry::new("tmp", 0o1777, Content::Folder), Entry::program(&place, &path)];
        let name = format!("{REPOSITORY}/{}:{tag}", program.file());
        let image = Image { name, entrypoint: place, entries };
        control_plane.push(one(programs, &folder, program, image, progress).await?);
    }
    let proxy = kube_proxy(programs, base, progress).await?;
    let every_node = vec![one(programs, &folder, Program::KubeProxy, proxy, progress).await?];
    Ok(Images { control_plane, every_node })
}

async fn one(
    programs: &Programs,
    folder: &Path,
    program: Program,
    image: Image,
    progress: &Reporter,
) -> Result<PathBuf> {
    let path = folder.join(format!("{}-{}.tar", program.file(), key(&image)?));
    if path.is_file() {
        return Ok(path);
    }
    let _lock = programs.lock(&format!("the image of {}", program.file()), progress).await?;
    if path.is_file() {
        return Ok(path);
    }
    let step = progress.begin(format!("making the image of {}", program.file()));
    fs::create_dir_all(folder).map_err(Error::io("create the cache folder", folder))?;
    let to = path.clone();
    match tokio::task::spawn_blocking(move || archive::write(&image, &to)).await {
        Ok(written) => written?,
        Err(error) => return Err(Error::Options(format!("the image could not be made: {error}"))),
    }
    step.done();
    Ok(path)
}

/// A name for the sources of an image.
fn key(image: &Image) -> Result<String> {
    let mut hash = Sha256::new();
    hash.update(&image.name);
    for entry in &image.entries {
        hash.update(&entry.path);
        if let Content::Host(path) = &entry.content {
            let data = fs::metadata(path).map_err(Error::io("look at", path))?;
            hash.update(format!("{path:?} {} {} {}", data.len(), data.mtime(), data.mtime_nsec()));
        }
    }
    Ok(hash.finalize().iter().take(6).map(|byte| format!("{byte:02x}")).collect())
}

/// kube-proxy with `iptables`, its libraries and its extensions from the nodes' root file system, which is the same
/// Debian everywhere.
async fn kube_proxy(programs: &Programs, base: &Path, progress: &Reporter) -> Result<Image> {
    /// Prints each library of the program and of its extensions (`statistic`, with which kube-proxy balances, needs an
    /// additional one): its name, and the file to which it resolves. Links in that root file system are absolute.
    const LIBRARIES: &str = r#"set -eu
{ ldd "/$1" /usr/lib/*/xtables/*.so | grep -v ':$' | grep -o '/[^ ]*'; ls /usr/lib/*/xtables/*.so; } | sort -u |
    while read -r name; do echo "$name $(readlink -f "$name")"; done
"#;
    let path = programs.get(Program::KubeProxy, progress).await?;
    let root = base.to_string_lossy();
    let listed =
        run("chroot", [root.as_ref(), "/bin/sh", "-c", LIBRARIES, "sh", IPTABLES], LOOK_LIMIT).await?;
    let mut entries = vec![
        Entry::new("tmp", 0o1777, Content::Folder),
        Entry::program("usr/local/bin/kube-proxy", &path),
        Entry::program(IPTABLES, &base.join(IPTABLES)),
    ];
    for (name, file) in listed.lines().filter_map(|line| line.split_once(' ')) {
        entries.push(Entry::program(name, &base.join(file.trim_start_matches('/'))));
    }
    entries.extend(NAMES.map(|name| Entry::link(&format!("usr/sbin/{name}"), "xtables-nft-multi")));
    Ok(Image {
        name: format!("{REPOSITORY}/kube-proxy:{KUBERNETES_VERSION}"),
        entrypoint: "/usr/local/bin/kube-proxy".to_owned(),
        entries,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tag_of_etcds_image_is_the_version_that_is_built() {
        let path = crate::system::paths::go_modules().join("etcd/go.mod");
        let text = fs::read_to_string(path).unwrap();
        let version = ETCD_TAG.split('-').next().unwrap();
        assert!(text.contains(&format!("go.etcd.io/etcd/server/v3 v{version}")), "{ETCD_TAG}");
    }
}
