//! The programs that make and run virtual machines: qemu 10, firmware, and what writes disks. They are Debian 13's, in a root
//! file system of their own: the qemu 7.2 of Debian 12 crashes Linux 6.12 when it emulates the processor.
//!
//! Other programs are in other roots. A program sees its own root, this computer's devices and network, the cache of virtual
//! machines as [`CACHE`], and one more folder as [`WORK`]. The mounts are in the program's own namespace, so they end with it.
//!
//! Not here: qemu's command line (`qemu`), and what is written to disks (`image`).

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::error::{Error, Result};
use crate::progress::Reporter;
use crate::system::cache::CacheStep;
use crate::system::command::{Output, output, run};
use crate::system::debian::bootstrap;
use crate::system::paths::Environment;
use crate::system::process::Spec;

/// The cache of virtual machines, as a program sees it.
pub(crate) const CACHE: &str = "/cache";
/// The working folder, as a program sees it.
pub(crate) const WORK: &str = "/work";

/// Enters the root. Arguments: the root, pairs of a folder and the path at which it is mounted, `--`, the command.
const ENTER: &str = r#"set -eu
root=$1
shift
mount --rbind /dev "$root/dev"
mount -t proc proc "$root/proc"
while [ "$1" != -- ]; do
    mkdir -p "$root$2"
    mount --bind "$1" "$root$2"
    shift 2
done
shift
exec chroot "$root" "$@"
"#;

/// A root file system with programs.
#[derive(Debug)]
pub(crate) struct Programs<'a> {
    /// Part of its name in the cache.
    pub(crate) name: &'a str,
    /// The Debian release.
    pub(crate) suite: &'a str,
    pub(crate) packages: &'a [&'a str],
}

/// qemu, firmware, and the programs that write disks.
const QEMU: Programs<'_> = Programs {
    name: "tools",
    suite: "trixie",
    packages: &["qemu-system-x86", "qemu-utils", "ovmf", "fdisk", "e2fsprogs", "dosfstools", "mtools"],
};

/// A root file system with programs, ready to use.
#[derive(Debug, Clone)]
pub(crate) struct Tools {
    root: PathBuf,
    cache: PathBuf,
}

impl Tools {
    /// Returns the root with qemu, and makes it if it is not in the cache.
    ///
    /// # Errors
    /// Not root, another processor than x86-64, or mmdebstrap fails.
    pub(crate) async fn ensure(environment: &Environment, progress: &Reporter) -> Result<Self> {
        if std::env::consts::ARCH != "x86_64" {
            return Err(Error::Options(format!(
                "virtual machines of the lab have x86-64 processors, this computer has {}",
                std::env::consts::ARCH
            )));
        }
        if !crate::system::packages::is_root() {
            return Err(Error::NeedsRoot { what: "a virtual machine" });
        }
        crate::system::packages::ensure_vm_packages(progress).await?;
        let cache = environment.cache.join("vm");
        Self { root: PathBuf::new(), cache }.with(&QEMU, progress).await
    }

    /// Returns another root with the same cache, and makes it if it does not exist.
    ///
    /// # Errors
    /// mmdebstrap fails.
    pub(crate) async fn with(&self, programs: &Programs<'_>, progress: &Reporter) -> Result<Self> {
        let Programs { name, suite, packages } = programs;
        let step = CacheStep {
            cache: &self.cache,
            name,
            recipe: &[suite, &packages.join(",")],
            telling: &format!("building a root with programs: {name} (Debian {suite}, mmdebstrap)"),
        };
        let root = step.get(progress, async |part| bootstrap(suite, packages, "true", part).await).await?;
        Ok(Self { root, cache: self.cache.clone() })
    }

    /// The root's folder.
    pub(crate) fn root(&self) -> &Path {
        &self.root
    }

    /// The folder that holds everything of virtual machines.
    pub(crate) fn cache(&self) -> &Path {
        &self.cache
    }

    /// The path of a file in the cache, as the programs see it.
    ///
    /// # Errors
    /// It is not in the cache.
    pub(crate) fn inside(&self, path: &Path) -> Result<String> {
        let below = path.strip_prefix(&self.cache).ok();
        below.map(|below| format!("{CACHE}/{}", below.display())).ok_or_else(|| {
            Error::Options(format!("{} is not below {}", path.display(), self.cache.display()))
        })
    }

    /// Copies a file out of the root.
    ///
    /// # Errors
    /// It is not there, or cannot be written.
    pub(crate) fn copy_out(&self, name: &str, to: &Path) -> Result<()> {
        let from = self.root.join(name);
        std::fs::copy(&from, to).map_err(Error::io("copy", &from))?;
        Ok(())
    }

    /// Runs a program to its end and returns what it printed.
    ///
    /// # Errors
    /// It fails or takes too long.
    pub(crate) async fn run<I: AsRef<OsStr>>(
        &self,
        work: &Path,
        command: impl IntoIterator<Item = I>,
        limit: Duration,
    ) -> Result<String> {
        self.run_with(work, &[], command, limit).await
    }

    /// As [`Tools::run`], with further folders of this computer, each with the path at which it is mounted.
    ///
    /// # Errors
    /// As [`Tools::run`].
    pub(crate) async fn run_with<I: AsRef<OsStr>>(
        &self,
        work: &Path,
        more: &[(&Path, &str)],
        command: impl IntoIterator<Item = I>,
        limit: Duration,
    ) -> Result<String> {
        run("unshare", self.command(work, more, command), limit).await
    }

    /// Runs a program to its end, whatever its exit code.
    ///
    /// # Errors
    /// It cannot be started, or takes too long; then it is killed.
    pub(crate) async fn output<I: AsRef<OsStr>>(
        &self,
        work: &Path,
        command: impl IntoIterator<Item = I>,
        limit: Duration,
    ) -> Result<Output> {
        output("unshare", self.command(work, &[], command), limit).await
    }

    /// The specification of a long-running program.
    pub(crate) fn spec<I: AsRef<OsStr>>(
        &self,
        name: &str,
        work: &Path,
        log: &Path,
        command: impl IntoIterator<Item = I>,
    ) -> Spec {
        Spec::new(name, "unshare", log).args(self.command(work, &[], command))
    }

    /// unshare, sh and chroot replace each other (exec), so the process id becomes the program's.
    fn command<I: AsRef<OsStr>>(
        &self,
        work: &Path,
        more: &[(&Path, &str)],
        command: impl IntoIterator<Item = I>,
    ) -> Vec<OsString> {
        let mut words: Vec<OsString> = ["--mount", "sh", "-c", ENTER, "sh"].map(OsString::from).into();
        words.push(self.root.clone().into());
        for (folder, seen) in [(self.cache.as_path(), CACHE), (work, WORK)].iter().chain(more) {
            words.extend([folder.as_os_str().to_owned(), OsString::from(seen)]);
        }
        words.push("--".into());
        words.extend(command.into_iter().map(|word| word.as_ref().to_owned()));
        words
    }
}
