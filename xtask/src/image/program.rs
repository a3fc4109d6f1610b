//! The program as it is delivered: linked with its C library, so that it runs on any host and in an image without a base.
//!
//! Only the last step differs from `cargo build -p cli`: the flags are for the program alone, and all libraries are those
//! of any other build. What it is not: stripped. `cargo xtask order` and profiles need the names of functions.

use anyhow::{Context, bail};
use std::path::{Path, PathBuf};
use std::process::Command;

/// For rustc. The static C library has no code that can stand anywhere (`crates/cli/build.rs` says why it need not).
const FLAGS: [&str; 2] = ["-Ctarget-feature=+crt-static", "-Crelocation-model=static"];
/// Where a static build for tests stands, below the profile's folder. `lab::delivered_mco` looks here.
const FOR_TESTS: &str = "target/debug/static";

/// Builds it in release, for this computer's target or for another one.
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

/// Builds it as tests do, and puts it beside theirs.
///
/// # Errors
/// The build fails, or the program cannot be copied.
pub(crate) fn for_tests(root: &Path) -> anyhow::Result<PathBuf> {
    cargo(root, &[], None)?;
    let folder = root.join(FOR_TESTS);
    std::fs::create_dir_all(&folder).with_context(|| format!("cannot make {}", folder.display()))?;
    let (from, to) = (root.join("target/debug/mco"), folder.join("mco"));
    // A process may still run the one before.
    let part = folder.join("mco.part");
    std::fs::copy(&from, &part).with_context(|| format!("cannot copy {}", from.display()))?;
    std::fs::rename(&part, &to).with_context(|| format!("cannot write {}", to.display()))?;
    Ok(to)
}

fn cargo(root: &Path, args: &[&str], target: Option<&str>) -> anyhow::Result<()> {
    let mut command = Command::new(env!("CARGO"));
    command.args(["rustc", "--package", "cli", "--bin", "mco"]).args(args).arg("--").args(FLAGS);
    if target == Some("aarch64-unknown-linux-gnu") && std::env::consts::ARCH != "aarch64" {
        // Debian's name, from gcc-aarch64-linux-gnu.
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
