//! The image in which OS images are built: Debian's buildah with what it needs, and a user who builds without root.
//!
//! Flow: a root by mmdebstrap → an archive with one time for all files → an image of one layer.
//!
//! Guarantees: owners and modes are Debian's. Not here: what runs in it (`build::objects`), or how the image of the product is made
//! (see the folder's `mod.rs`).

use std::fs;
use std::path::Path;

use crate::delivery::{BuiltImage, LIMIT};
use crate::error::{Error, Result};
use crate::progress::Reporter;
use crate::system::debian::bootstrap;
use crate::system::process::{find_on_path, run};

const SUITE: &str = "bookworm";
/// `uidmap` and the user below let buildah map users without root; `procps` is for people who look at a pod that hangs.
const PACKAGES: [&str; 5] = ["bash", "buildah", "ca-certificates", "procps", "uidmap"];
/// The user, with ids of his own below him. Lists of packages are of no use without a mirror, and change every hour.
const CUSTOMIZE: &str = "chroot \"$1\" useradd --uid 1000 --create-home build && \
     echo build:100000:65536 >\"$1/etc/subuid\" && echo build:100000:65536 >\"$1/etc/subgid\" && \
     rm -rf \"$1\"/var/lib/apt/lists/* \"$1\"/var/cache/* \"$1\"/var/log/*";
const CONTAINERFILE: &str = "FROM scratch\n\
     ADD root.tar /\n\
     ENV HOME=/home/build BUILDAH_ISOLATION=chroot STORAGE_DRIVER=vfs\n\
     CMD [\"/bin/bash\"]\n";

/// Makes the image. `folder` gets the root (`root`), its archive and buildah's store: 1 GB. `epoch`: the time of all files.
///
/// # Errors
/// Not root, no mirror of Debian, or buildah fails.
pub async fn builder_image(name: &str, epoch: u64, folder: &Path, progress: &Reporter) -> Result<BuiltImage> {
    if find_on_path("buildah").is_none() || find_on_path("mmdebstrap").is_none() {
        crate::system::packages::install_packages(&["buildah", "mmdebstrap"].map(str::to_owned), progress)
            .await?;
    }
    let (root, archive) = (folder.join("root"), folder.join("root.tar"));
    let step = progress.begin("making the root of the builder's image from Debian's packages");
    bootstrap(SUITE, &PACKAGES, CUSTOMIZE, &root).await?;
    let text = |path: &Path| path.to_string_lossy().into_owned();
    let (from, to, time) = (text(&root), text(&archive), format!("--mtime=@{epoch}"));
    let fixed = ["--sort=name", "--numeric-owner", "--format=pax", "--pax-option=delete=atime,delete=ctime"];
    run("tar", fixed.into_iter().chain(["--xattrs", &time, "-C", &from, "-cf", &to, "."]), LIMIT).await?;
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
    Ok(image)
}
