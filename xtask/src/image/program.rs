//! The program as it is delivered: statically linked, so that it runs on any host and in an image without a base.
//!
//! Only the last step differs from `cargo build -p cli`: the flags apply to the program alone, so all libraries are
//! shared with any other build. The program is not stripped: `cargo xtask order` and profilers need the names of
//! functions.

use anyhow::{Context, bail};
use std::path::{Path, PathBuf};
use std::process::{Child, Command};

/// The largest page size of kernels, as a power of two. jemalloc is built for one size, and aborts on a kernel with larger
/// pages. Kernels for aarch64 have pages of 4, 16 or 64 KiB (Red Hat's had 64), so it is built for the largest. Source:
/// jemalloc's `--with-lg-page`.
const AARCH64_LG_PAGE: &str = "16";
/// Flags for rustc. The static C library is not position-independent; `crates/cli/build.rs` says why that is fine.
const FLAGS: [&str; 2] = ["-Ctarget-feature=+crt-static", "-Crelocation-model=static"];
/// An additional flag in release mode: equal sequences of instructions become one function, which saves 1.5 MB.
const OUTLINED: &str = "-Cllvm-args=-enable-machine-outliner=always";
/// A release build, without the features of libraries that tests ask for (`crates/cli/Cargo.toml`).
const RELEASE: [&str; 3] = ["--release", "--locked", "--no-default-features"];
/// Symbols are half of the program, and tests do without them: every node of a test loads an image with the program, and copies
/// and hashes it when its agent starts.
const WITHOUT_NAMES: &str = "-Cstrip=symbols";
/// The other target that the program can be built for.
const AARCH64: &str = "aarch64-unknown-linux-gnu";
/// This computer's target.
const HERE: &str = if cfg!(target_arch = "aarch64") { AARCH64 } else { "x86_64-unknown-linux-gnu" };
/// The linker for [`AARCH64`], as Debian's package gcc-aarch64-linux-gnu names it.
const LINKER: &str = "aarch64-linux-gnu-gcc";
/// The folder of a static build for tests. `lab::delivered_mco` looks here.
const FOR_TESTS: &str = "target/debug/static";

/// Builds it in release mode, for this computer's target or for another one.
///
/// # Errors
/// The build fails.
pub(crate) fn release(root: &Path, target: Option<&str>) -> anyhow::Result<PathBuf> {
    let mut args = RELEASE.to_vec();
    args.extend(target.into_iter().flat_map(|target| ["--target", target]));
    cargo(root, &args, &[FLAGS[0], FLAGS[1], OUTLINED], target)?;
    let folder = target.map_or_else(|| root.join("target"), |target| root.join("target").join(target));
    Ok(folder.join("release/mco"))
}

/// The niceness of a release build beside tests.
const NICENESS: u8 = 2;

/// The same build for this computer, with a share of the processors' time and what nobody else wants: the tests that run
/// meanwhile have time limits, but with little, it would begin to link when they have ended, for minutes on one processor. It needs
/// a session of its own: Linux shares processor time between sessions first (`sched(7)`, "The autogroup feature"), and machines of
/// the lab count as such, too. A niceness of [`NICENESS`] has two thirds of the weight of 0.
///
/// `started` gets the leader of its process group, and what it returns is kept until the build has ended.
///
/// # Errors
/// The build fails.
pub(crate) fn release_in_background<T>(root: &Path, started: impl FnOnce(&Child) -> T) -> anyhow::Result<()> {
    let script =
        format!("{{ echo {NICENESS} > /proc/self/autogroup; }} 2>/dev/null; exec nice -n {NICENESS} \"$@\"");
    let mut command = Command::new("setsid");
    command.args(["--wait", "sh", "-c", &script, "sh", env!("CARGO")]);
    command
        .args(["rustc", "--quiet", "--package", "cli", "--bin", "mco"])
        .args(RELEASE)
        .arg("--")
        .args(FLAGS)
        .arg(OUTLINED);
    let mut child = command.current_dir(root).spawn().context("cannot run setsid")?;
    let _kept = started(&child);
    let status = child.wait().context("cannot wait for the release build of mco")?;
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
    cargo(root, &[], &[FLAGS[0], FLAGS[1], WITHOUT_NAMES], None)?;
    let folder = root.join(FOR_TESTS);
    std::fs::create_dir_all(&folder).with_context(|| format!("cannot make {}", folder.display()))?;
    let (from, to) = (root.join("target/debug/mco"), folder.join("mco"));
    // A process may still run the last build, so the file is replaced by a rename.
    let part = folder.join("mco.part");
    std::fs::copy(&from, &part).with_context(|| format!("cannot copy {}", from.display()))?;
    std::fs::rename(&part, &to).with_context(|| format!("cannot write {}", to.display()))?;
    Ok(to)
}

/// What this computer lacks to build for a target: the standard library of the pinned toolchain, or a linker. `libraries`: the
/// folder of that library, if the compiler knows the target. `linker`: whether there is one on the PATH.
fn lacks(target: &str, libraries: Option<&Path>, linker: bool) -> Vec<String> {
    let holds_std = |folder: &Path| {
        let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
        entries.map(|entry| entry.file_name()).any(|name| name.to_string_lossy().starts_with("libstd-"))
    };
    let mut lacks = vec![];
    if !libraries.is_some_and(holds_std) {
        lacks.push(format!(
            "Rust's standard library for {target}: run `rustup target add {target}`. It comes from Rust's own releases only; no \
             package registry has it"
        ));
    }
    if !linker {
        lacks.push(format!("the linker {LINKER}: install Debian's gcc-aarch64-linux-gnu"));
    }
    lacks
}

/// Reports at once what is missing. Otherwise hundreds of libraries would fail to build one after the other.
fn can_build(root: &Path, target: &str) -> anyhow::Result<()> {
    if target == HERE {
        return Ok(());
    }
    if target != AARCH64 {
        bail!("--target {target}: on this computer the program can be built for {HERE} and {AARCH64}");
    }
    let asked = Command::new("rustc")
        .args(["--print", "target-libdir", "--target", target])
        .current_dir(root)
        .output();
    let libraries = asked
        .ok()
        .filter(|o| o.status.success())
        .map(|o| String::from_utf8_lossy(&o.stdout).trim().to_owned());
    let linker = Command::new(LINKER).arg("--version").output().is_ok_and(|o| o.status.success());
    let lacks = lacks(target, libraries.as_deref().map(Path::new), linker);
    if !lacks.is_empty() {
        bail!("cannot build for {target} on this computer, which lacks:\n- {}", lacks.join("\n- "));
    }
    Ok(())
}

fn cargo(root: &Path, args: &[&str], flags: &[&str], target: Option<&str>) -> anyhow::Result<()> {
    if let Some(target) = target {
        can_build(root, target)?;
    }
    let mut command = Command::new(env!("CARGO"));
    command.args(["rustc", "--package", "cli", "--bin", "mco"]).args(args).arg("--").args(flags);
    let architecture = target.map_or(std::env::consts::ARCH, |t| t.split('-').next().unwrap_or_default());
    if architecture == "aarch64" {
        command.env("JEMALLOC_SYS_WITH_LG_PAGE", AARCH64_LG_PAGE);
    }
    if target == Some(AARCH64) && HERE != AARCH64 {
        command.env("CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_LINKER", LINKER);
    }
    let status = command.current_dir(root).status().context("cannot run cargo rustc")?;
    if !status.success() {
        bail!("cargo rustc of mco ended with {status}");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_build_for_another_architecture_lacks_is_said_before_it_begins() {
        let dir = std::env::temp_dir().join(format!("mco-xtask-target-{}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        for (libraries, linker, words) in [
            (None, true, &["rustup target add aarch64-unknown-linux-gnu"][..]),
            (Some(dir.as_path()), false, &["rustup target add", "gcc-aarch64-linux-gnu"]),
        ] {
            let lacks = lacks(AARCH64, libraries, linker);
            assert_eq!(lacks.len(), words.len(), "{lacks:?}");
            assert!(lacks.iter().zip(words).all(|(lack, word)| lack.contains(word)), "{lacks:?}");
        }
        std::fs::write(dir.join("libstd-0123.rlib"), "").unwrap();
        assert!(lacks(AARCH64, Some(dir.as_path()), true).is_empty());
        let error = can_build(Path::new("."), "riscv64gc-unknown-linux-gnu").unwrap_err().to_string();
        assert!(error.contains("riscv64gc-unknown-linux-gnu") && error.contains(AARCH64), "{error}");
        assert!(can_build(Path::new("."), HERE).is_ok());
        std::fs::remove_dir_all(&dir).unwrap();
    }
}
