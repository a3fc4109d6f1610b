//! `cargo xtask image`: makes the container image from a release build, as an archive or in a registry, with its bill
//! of materials.
//!
//! Flow: [`program`] builds the program with its C library in it → `lab::ImageRecipe` makes the image (as for the tests) →
//! sizes are compared with their limits → archives, registry → [`sbom`].
//!
//! What it is not: a release. It signs nothing.

pub(crate) mod program;
mod sbom;

use anyhow::{Context, bail};
use clap::Args;
use lab::{BuiltImage, ImageRecipe, Reporter};
use std::path::{Path, PathBuf};
use std::process::Command;

/// The largest program that may be delivered, in bytes: it is written to every host, and each node downloads it
/// (docs/development.md, "Size of the program").
const PROGRAM_LIMIT: u64 = 25 * 1024 * 1024;
/// The largest image that may be delivered, in bytes of its files.
const IMAGE_LIMIT: u64 = 30 * 1024 * 1024;
/// The folder of all output.
const FOLDER: &str = "target/image";

/// `cargo xtask image`.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  cargo xtask image                                             into target/image/mco.oci.tar\n  cargo xtask image --push registry.example.com/mco:1.0         and into a registry (buildah login)\n  cargo xtask image --builder --push registry.example.com/mco-builder:1.0   what OS images are built in\n  cargo xtask image --output docker-archive:/tmp/mco.tar        for ctr images import, docker load"
)]
pub(crate) struct Image {
    /// The image's name in archives
    #[arg(long, value_name = "NAME", default_value = NAME)]
    name: String,
    /// Push the image to a registry under this name; repeat it for several
    #[arg(long, value_name = "REFERENCE")]
    push: Vec<String>,
    /// Write an archive: `oci-archive:FILE` or `docker-archive:FILE`; repeat it for several
    #[arg(long, value_name = "FORM:FILE", value_parser = output)]
    output: Vec<Output>,
    /// The target as Rust names it, for example aarch64-unknown-linux-gnu [default: this computer's]
    #[arg(long, value_name = "TRIPLE")]
    target: Option<String>,
    /// The modification time of everything in the image, in seconds since 1970 [default: that of the last commit]
    #[arg(long, env = "SOURCE_DATE_EPOCH", value_name = "SECONDS")]
    epoch: Option<u64>,
    /// Put this program into the image instead of building one
    #[arg(long, value_name = "FILE", conflicts_with = "target")]
    program: Option<PathBuf>,
    /// Only build the program, as tests use it: without optimisation, into target/debug/static/
    #[arg(long, conflicts_with_all = ["program", "target", "push", "output"])]
    for_tests: bool,
    /// Build the image that OS images are built in, from Debian's packages, instead of the product's; needs root
    #[arg(long, conflicts_with_all = ["program", "target", "for_tests"])]
    builder: bool,
    /// Make the builder's image twice, and fail if the two differ in a byte
    #[arg(long, requires = "builder")]
    twice: bool,
}

/// The name in archives if none is given.
const NAME: &str = concat!("localhost/mco:", env!("CARGO_PKG_VERSION"));
/// The same for the builder's image, and its folder.
const BUILDER_NAME: &str = concat!("localhost/mco-builder:", env!("CARGO_PKG_VERSION"));
const BUILDER_FOLDER: &str = "target/image-builder";

/// The format and path of an archive.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Output {
    Oci(PathBuf),
    Docker(PathBuf),
}

fn output(text: &str) -> Result<Output, String> {
    match text.split_once(':') {
        Some(("oci-archive", file)) if !file.is_empty() => Ok(Output::Oci(file.into())),
        Some(("docker-archive", file)) if !file.is_empty() => Ok(Output::Docker(file.into())),
        _ => Err("an archive is oci-archive:FILE or docker-archive:FILE".to_owned()),
    }
}

pub(crate) fn run(root: &Path, a: &Image) -> anyhow::Result<()> {
    if a.for_tests {
        return program::for_tests(root).map(|path| println!("{}", shown(root, &path)));
    }
    let progress = Reporter::stderr();
    if a.builder {
        return crate::demo::runtime()?.block_on(make_builder(root, a, &progress));
    }
    let target = a.target.clone().unwrap_or_else(|| format!("{}-unknown-linux-gnu", std::env::consts::ARCH));
    let program = match &a.program {
        Some(program) => program.clone(),
        None => {
            let step = progress.begin("building mco in release (some minutes when nothing is cached)");
            let built = program::release(root, a.target.as_deref())?;
            step.done();
            built
        }
    };
    let revision = revision(root);
    let recipe = ImageRecipe {
        repository: root.to_owned(),
        program,
        name: a.name.clone(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        revision: revision.clone(),
        epoch: a.epoch.or_else(|| committed(root)).unwrap_or_default(),
        architecture: lab::architecture(target.split('-').next().unwrap_or_default()).to_owned(),
    };
    let digest = crate::demo::runtime()?.block_on(make(root, a, &recipe, &progress))?;
    let bom = root.join(FOLDER).join("mco.cdx.json");
    let text = serde_json::to_string_pretty(&sbom::of(root, &target, &digest, &revision)?)? + "\n";
    std::fs::write(&bom, text).with_context(|| format!("cannot write {}", bom.display()))?;
    println!("bill of materials: {}", shown(root, &bom));
    Ok(())
}

/// What CI checks: the release build makes an image within the limits, a second build makes the identical image, and
/// its program starts on a root file system that holds nothing else.
pub(crate) fn check(root: &Path) -> anyhow::Result<()> {
    let runtime = crate::demo::runtime()?;
    runtime.block_on(lab::ensure_test_packages(&Reporter::stderr()))?;
    let image = Image {
        name: "localhost/mco:check".to_owned(),
        push: vec![],
        output: vec![],
        target: None,
        epoch: None,
        program: Some(program::release(root, None)?),
        for_tests: false,
        builder: false,
        twice: false,
    };
    run(root, &image)?;
    let archive = root.join(FOLDER).join("mco.oci.tar");
    let read = || std::fs::read(&archive).with_context(|| format!("cannot read {}", archive.display()));
    let first = read()?;
    run(root, &image)?;
    if read()? != first {
        bail!("{} differs when it is built again from the same program", shown(root, &archive));
    }
    let output = Command::new("chroot")
        .arg(root.join(FOLDER).join("root"))
        .args(["/usr/bin/mco", "--version"])
        .output()
        .context("cannot run chroot")?;
    if !output.status.success() {
        bail!("the image's program does not start: {}", String::from_utf8_lossy(&output.stderr).trim());
    }
    Ok(())
}

/// Builds the image and writes it to archives and registries as told; returns its digest.
async fn make(root: &Path, a: &Image, recipe: &ImageRecipe, progress: &Reporter) -> anyhow::Result<String> {
    let folder = root.join(FOLDER);
    // Remove buildah's store of the last run, and its archives, which are outdated.
    empty(&folder)?;
    let step = progress.begin(format!("making the image {}", recipe.name));
    let image = recipe.build(&folder).await?;
    step.done();
    println!("program: {}", size(image.program_size(), PROGRAM_LIMIT));
    println!("image: {}", size(image.size(), IMAGE_LIMIT));
    within_limits(&image)?;
    let digest = deliver(root, a, &image, &folder.join("mco.oci.tar"), progress).await?;
    // The archives hold the same, so the intermediate copies can go.
    for part in ["store", "oci"] {
        let part = folder.join(part);
        std::fs::remove_dir_all(&part).with_context(|| format!("cannot remove {}", part.display()))?;
    }
    Ok(digest)
}

/// The image in which OS images are built.
async fn make_builder(root: &Path, a: &Image, progress: &Reporter) -> anyhow::Result<()> {
    let folder = root.join(BUILDER_FOLDER);
    let name = if a.name == NAME { BUILDER_NAME } else { &a.name };
    let epoch = a.epoch.or_else(|| committed(root)).unwrap_or_default();
    let archive = folder.join("builder.oci.tar");
    let first = if a.twice {
        empty(&folder)?;
        let (image, _) = lab::builder_image(name, epoch, &folder, progress).await?;
        Some(image.save_oci(&archive).await?)
    } else {
        None
    };
    empty(&folder)?;
    let (image, packages) = lab::builder_image(name, epoch, &folder, progress).await?;
    println!("image: {} bytes, {} packages", image.size(), packages.len());
    let digest = deliver(root, a, &image, &archive, progress).await?;
    if let Some(first) = first.filter(|first| *first != digest) {
        bail!("the image differs when it is built again: {first}, then {digest}");
    }
    let bom = folder.join("builder.cdx.json");
    let text = serde_json::to_string_pretty(&sbom::of_builder(&packages, name, &digest, &revision(root)))?;
    std::fs::write(&bom, text + "\n").with_context(|| format!("cannot write {}", bom.display()))?;
    println!("bill of materials: {}", shown(root, &bom));
    Ok(())
}

fn empty(folder: &Path) -> anyhow::Result<()> {
    if folder.exists() {
        std::fs::remove_dir_all(folder).with_context(|| format!("cannot empty {}", folder.display()))?;
    }
    std::fs::create_dir_all(folder).with_context(|| format!("cannot make {}", folder.display()))
}

/// Writes an image to archives and registries as told; returns its digest.
async fn deliver(
    root: &Path,
    a: &Image,
    image: &BuiltImage,
    archive: &Path,
    progress: &Reporter,
) -> anyhow::Result<String> {
    let digest = image.save_oci(archive).await?;
    println!("archive: {}", shown(root, archive));
    for output in &a.output {
        let file = match output {
            Output::Oci(file) => {
                std::fs::copy(archive, file).with_context(|| format!("cannot write {}", file.display()))?;
                file
            }
            Output::Docker(file) => {
                image.save_docker(file).await?;
                file
            }
        };
        println!("archive: {}", file.display());
    }
    for reference in &a.push {
        let step = progress.begin(format!("sending it to {reference}"));
        let there = image.push(reference).await?;
        step.done();
        println!("pushed: {reference}@{there}");
    }
    println!("digest: {digest}");
    Ok(digest)
}

/// Refuses an image above the limits, before it is sent anywhere.
fn within_limits(image: &BuiltImage) -> anyhow::Result<()> {
    let parts = [("program", image.program_size(), PROGRAM_LIMIT), ("image", image.size(), IMAGE_LIMIT)];
    for (what, bytes, limit) in parts {
        if bytes > limit {
            bail!(
                "the {what} has {}: see what has grown by `nm --size-sort --print-size target/release/mco`, \
                 docs/development.md says what was done about it",
                size(bytes, limit)
            );
        }
    }
    Ok(())
}

fn size(bytes: u64, limit: u64) -> String {
    const MIB: f64 = 1024.0 * 1024.0;
    let [has, most] = [bytes, limit].map(|n| n as f64 / MIB);
    format!("{bytes} bytes ({has:.1} MiB; at most {most:.1})")
}

pub(crate) fn shown(root: &Path, path: &Path) -> String {
    path.strip_prefix(root).unwrap_or(path).display().to_string()
}

/// The commit, and whether the tree has changes that are not committed.
fn revision(root: &Path) -> String {
    let Some(commit) = git(root, &["rev-parse", "HEAD"]) else { return "unknown".to_owned() };
    match git(root, &["status", "--porcelain", "--untracked-files=no"]) {
        Some(changes) if changes.is_empty() => commit,
        _ => format!("{commit}-changed"),
    }
}

/// The time of the last commit. `None` outside of a repository.
pub(crate) fn committed(root: &Path) -> Option<u64> {
    git(root, &["log", "-1", "--format=%ct"])?.parse().ok()
}

fn git(root: &Path, args: &[&str]) -> Option<String> {
    let output = Command::new("git").args(args).current_dir(root).output().ok()?;
    output.status.success().then(|| String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn archives_are_named_with_their_form() {
        assert_eq!(output("oci-archive:/a/b.tar"), Ok(Output::Oci("/a/b.tar".into())));
        assert_eq!(output("docker-archive:x"), Ok(Output::Docker("x".into())));
        for wrong in ["b.tar", "oci-archive:", "oci:/a"] {
            assert!(output(wrong).is_err(), "{wrong}");
        }
    }
}
