//! The image in which OS images are built: Debian's buildah with what it needs, and a user who builds without root.
//!
//! Flow: mmdebstrap makes a root file system → it becomes an archive in which all files have the same time → buildah makes an
//! image of one layer from it.
//!
//! Guarantees: owners, modes and capabilities of files are Debian's, except for the two programs that map user ids. The same
//! packages give the same bytes. Not here: what runs in the image (`build::objects`), and how the product's image is made
//! (`mod.rs` of this folder).

use std::fs;
use std::path::{Path, PathBuf};

use crate::delivery::{BuiltImage, LIMIT};
use crate::error::{Error, Result};
use crate::progress::Reporter;
use crate::system::cache::CacheStep;
use crate::system::command::{find_on_path, run};
use crate::system::debian::bootstrap_as_of;
use crate::system::paths::Environment;

/// The first release whose buildah resumes an interrupted pull, and uses overlay without root.
const SUITE: &str = "trixie";
/// `uidmap` and the user below let buildah map user ids without root. buildah requires `netavark`, although no build here has a
/// network of its own. `jq` joins credentials, for layers that are kept in a registry. `skopeo` signs. `procps` is for people who
/// inspect a pod that hangs.
const PACKAGES: [&str; 9] =
    ["bash", "buildah", "ca-certificates", "jq", "libcap2-bin", "netavark", "procps", "skopeo", "uidmap"];
/// Creates the user with its own subordinate ids, and removes package lists: they are useless without a mirror, and change
/// every hour.
///
/// A process without CAP_SYS_ADMIN may map the ids of a user namespace only if it owns the namespace, and no container has
/// CAP_SYS_ADMIN (user_namespaces(7)). With Debian's set-user-ID bit, `newuidmap` would run as root and not be the owner. With
/// a file capability instead, it stays the user.
const CUSTOMIZE: &str = "set -eu; chroot \"$1\" useradd --uid 1000 --create-home build; \
     echo build:100000:65536 >\"$1/etc/subuid\"; echo build:100000:65536 >\"$1/etc/subgid\"; \
     chroot \"$1\" chmod u-s,g-s /usr/bin/newuidmap /usr/bin/newgidmap; \
     chroot \"$1\" setcap cap_setuid=ep /usr/bin/newuidmap; chroot \"$1\" setcap cap_setgid=ep /usr/bin/newgidmap; \
     rm -rf \"$1\"/etc/subuid- \"$1\"/etc/subgid- \"$1\"/var/lib/apt/lists/* \"$1\"/var/cache/* \"$1\"/var/log/*";
const CONTAINERFILE: &str = "FROM scratch\n\
     ADD root.tar /\n\
     ENV HOME=/home/build BUILDAH_ISOLATION=chroot\n\
     CMD [\"/bin/bash\"]\n";
/// dpkg-query's format: one package per line.
const QUERY: &str = "--showformat=${Package} ${Version} ${Architecture}\\n";

/// The image's name in the nodes of a lab. `.invalid` never exists as a registry.
pub const BUILDER_IMAGE: &str = "lab.invalid/mco-builder:1";

/// A Debian package in an image.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DebianPackage {
    /// Its name.
    pub name: String,
    /// Its version.
    pub version: String,
    /// The architecture, as Debian calls it.
    pub architecture: String,
}

/// Makes the image, and returns it with the list of its packages. `folder` gets the root file system (`root`), its archive and
/// buildah's store: 1 GB. `epoch` is the time of all files, in seconds since 1970.
///
/// # Errors
/// Not root, no mirror of Debian, or buildah fails.
pub async fn builder_image(
    name: &str,
    epoch: u64,
    folder: &Path,
    progress: &Reporter,
) -> Result<(BuiltImage, Vec<DebianPackage>)> {
    if find_on_path("buildah").is_none() || find_on_path("mmdebstrap").is_none() {
        crate::system::packages::install_packages(&["buildah", "mmdebstrap"].map(str::to_owned), progress)
            .await?;
    }
    let (root, archive) = (folder.join("root"), folder.join("root.tar"));
    let step = progress.begin("making the root of the builder's image from Debian's packages");
    bootstrap_as_of(Some(epoch), SUITE, &PACKAGES, CUSTOMIZE, &root).await?;
    let text = |path: &Path| path.to_string_lossy().into_owned();
    let (from, to, time) = (text(&root), text(&archive), format!("--mtime=@{epoch}"));
    let fixed = ["--sort=name", "--numeric-owner", "--format=pax", "--pax-option=delete=atime,delete=ctime"];
    run("tar", fixed.into_iter().chain(["--xattrs", &time, "-C", &from, "-cf", &to, "."]), LIMIT).await?;
    let database = format!("--admindir={}", root.join("var/lib/dpkg").display());
    let list = run("dpkg-query", [&database, "--show", QUERY], LIMIT).await?;
    step.done();
    let size = fs::metadata(&archive).map_err(Error::io("read", &archive))?.len();
    let image = BuiltImage { folder: folder.to_owned(), name: name.to_owned(), epoch, size, program: 0 };
    let file = folder.join("Containerfile");
    fs::write(&file, CONTAINERFILE).map_err(Error::io("write", &file))?;
    let (file, context, epoch) = (text(&file), text(folder), epoch.to_string());
    let store = image.store();
    let mut args: Vec<&str> = store.iter().map(String::as_str).collect();
    args.extend(["build", "--isolation", "chroot", "--layers=false", "--identity-label=false", "--quiet"]);
    args.extend(["--timestamp", &epoch, "--tag", name, "--file", &file, &context]);
    run("buildah", args, LIMIT).await?;
    Ok((image, packages(&list)))
}

fn packages(list: &str) -> Vec<DebianPackage> {
    let line = |line: &str| {
        let mut words = line.split_whitespace().map(str::to_owned);
        Some(DebianPackage { name: words.next()?, version: words.next()?, architecture: words.next()? })
    };
    list.lines().filter_map(line).collect()
}

/// The image for nodes of a lab, as an archive in Docker's format; made once and kept in the cache.
///
/// # Errors
/// As [`builder_image`].
pub async fn builder_archive(progress: &Reporter) -> Result<PathBuf> {
    let cache = Environment::read().cache.join("builder");
    let packages = PACKAGES.join(",");
    let step = CacheStep {
        cache: &cache,
        name: "builder-image",
        recipe: &[SUITE, &packages, CUSTOMIZE, CONTAINERFILE, BUILDER_IMAGE],
        telling: "making the image that builds OS images",
    };
    let made = step
        .get(progress, async |part| {
            let work = part.with_extension("work");
            for folder in [part, &work] {
                fs::create_dir_all(folder).map_err(Error::io("create", folder))?;
            }
            let (image, _) = builder_image(BUILDER_IMAGE, 0, &work, progress).await?;
            image.save_docker(&part.join(ARCHIVE)).await?;
            fs::remove_dir_all(&work).map_err(Error::io("remove", &work))
        })
        .await?;
    Ok(made.join(ARCHIVE))
}

/// The archive's name in the cache.
const ARCHIVE: &str = "builder.tar";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packages_are_read_from_the_words_of_dpkg() {
        let list = packages("bash 5.2.37-2+b10 amd64\nca-certificates 20250419 all\n\n");
        assert_eq!(list.len(), 2);
        assert_eq!(list[1].architecture, "all");
    }
}
