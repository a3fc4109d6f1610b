//! The program as it is delivered: statically linked, so that it runs on any host and in an image without a base.
//!
//! Only the last step differs from `cargo build -p cli`: the flags apply to the program alone, so all libraries are
//! shared with any other build. The program is not stripped: `cargo xtask order` and profilers need the names of
//! functions.

use anyhow::{Context, bail};
use std::path::{Path, PathBuf};
use std::process::Command;

/// Sizes of pages, as powers of two: jemalloc is built for one, and ends at once on a kernel with larger ones. Kernels for aarch64
/// have 4, 16 or 64 KiB (Red Hat's have had 64), so it is built for the largest. Source: jemalloc's `--with-lg-page`.
const AARCH64_LG_PAGE: &str = "16";
/// Flags for rustc. The static C library is not position-independent (`crates/cli/build.rs` says why that is fine).
const FLAGS: [&str; 2] = ["-Ctarget-feature=+crt-static", "-Crelocation-model=static"];
/// The folder of a static build for tests. `lab::delivered_mco` looks here.
const FOR_TESTS: &str = "target/debug/static";

/// Builds it in release mode, for this computer's target or for another one.
///
/// # Errors
/// The build fails.
pub(crate) fn release(root: &Path, target: Option<&str>) -> anyhow::Result<PathBuf> {
    let mut args = vec!["--release", "--locked"];
    args.extend(target.into_iter().flat_map(|target| ["--target", target]));
    cargo(root, &args, target)?;
    let folder = target.map_or_else(|| root.join("target"), |target| root.join("target").join(target));
    Ok(folder.join("release/mco"))
}

/// The same build for this computer, but only with processor time that nobody else wants: the tests that run meanwhile
/// have time limits. A session of its own is needed for that, because Linux shares processor time between sessions first
/// (`sched(7)`, "The autogroup feature").
///
/// # Errors
/// The build fails.
pub(crate) fn release_in_background(root: &Path) -> anyhow::Result<()> {
    let script = "{ echo 19 > /proc/self/autogroup; } 2>/dev/null; exec nice -n 19 \"$@\"";
    let mut command = Command::new("setsid");
    command.args(["--wait", "sh", "-c", script, "sh", env!("CARGO")]);
    command
        .args(["rustc", "--quiet", "--package", "cli", "--bin", "mco", "--release", "--locked", "--"])
        .args(FLAGS);
    let status = command.current_dir(root).status().context("cannot run setsid")?;
    if !status.success() {
        bail!("the release build of mco ended with {status}");
    }
    Ok(())
}

/// Builds it with the profile of tests, into [`FOR_TESTS`].
///
/// # Errors
/// The build fails, or the program cannot be copied.
pub(crate) fn for_tests(root: &Path) -> anyhow::Result<PathBuf> {
    cargo(root, &[], None)?;
    let folder = root.join(FOR_TESTS);
    std::fs::create_dir_all(&folder).with_context(|| format!("cannot make {}", folder.display()))?;
    let (from, to) = (root.join("target/debug/mco"), folder.join("mco"));
    // A process may still run the last build, so the file is replaced by a rename.
    let part = folder.join("mco.part");
    std::fs::copy(&from, &part).with_context(|| format!("cannot copy {}", from.display()))?;
    std::fs::rename(&part, &to).with_context(|| format!("cannot write {}", to.display()))?;
    Ok(to)
}

fn cargo(root: &Path, args: &[&str], target: Option<&str>) -> anyhow::Result<()> {
    let mut command = Command::new(env!("CARGO"));
    command.args(["rustc", "--package", "cli", "--bin", "mco"]).args(args).arg("--").args(FLAGS);
    let architecture = target.map_or(std::env::consts::ARCH, |t| t.split('-').next().unwrap_or_default());
    if architecture == "aarch64" {
        command.env("JEMALLOC_SYS_WITH_LG_PAGE", AARCH64_LG_PAGE);
    }
    if target == Some("aarch64-unknown-linux-gnu") && std::env::consts::ARCH != "aarch64" {
        // The name in Debian's package gcc-aarch64-linux-gnu.
        command.env("CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_LINKER", "aarch64-linux-gnu-gcc");
    }
    let status = command.current_dir(root).status().context("cannot run cargo rustc")?;
    if !status.success() {
        let hint = target.map_or_else(String::new, |target| {
            format!("; it needs `rustup target add {target}`, and a C compiler for it (Debian: gcc-aarch64-linux-gnu)")
        });
        bail!("cargo rustc of mco ended with {status}{hint}");
    }
    Ok(())
}
