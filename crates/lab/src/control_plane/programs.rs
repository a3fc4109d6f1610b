//! Finds the control plane's programs: `MCO_LAB_BIN`, then the cache, then a build with `go`.
//!
//! Guarantees: a program in the cache is complete (built under another name, then renamed) and has the version that the
//! repository's go.mod pins (the folder's name is a hash of go.mod, go.sum and the link flags); two runs never build at
//! the same time (a file lock in the cache).
//!
//! Not here: what the programs are started with.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};

use sha2::{Digest, Sha256};

use crate::error::{Error, FullLog, Result};
use crate::progress::Reporter;
use crate::system::command::{find_on_path, is_executable, last_lines};
use crate::system::file_lock::lock_file;
use crate::system::paths::{Environment, go_modules};
use crate::system::process::describe;

/// The Kubernetes version that go.mod pins; the programs report it.
pub const KUBERNETES_VERSION: &str = "v1.36.3";
/// A cold build of the largest program took 4 minutes on 2 cores; a slower machine gets ten times as long.
const BUILD_LIMIT: Duration = Duration::from_secs(40 * 60);
/// How often a build reports that it is still running.
const STILL_EVERY: Duration = Duration::from_secs(15);

/// One program of the control plane or of a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Program {
    /// The store.
    Etcd,
    /// The API server.
    ApiServer,
    /// The controllers: garbage collection, service accounts, PodDisruptionBudget status.
    ControllerManager,
    /// The scheduler.
    Scheduler,
    /// The node agent, for `Kubelet::Real`.
    Kubelet,
    /// The command line, for people and the demo.
    Kubectl,
    /// Creates clusters as administrators do, see [`crate::Kubeadm`].
    Kubeadm,
    /// Runs in clusters that `kubeadm` created, for Services.
    KubeProxy,
    /// Renders and installs the Helm chart in a test.
    Helm,
    /// Installs the kubectl plugin in a test.
    Krew,
}

impl Program {
    /// All of them, in the order in which they are built: a plain lab needs the first ones.
    pub const ALL: [Self; 8] = [
        Self::Etcd,
        Self::ApiServer,
        Self::ControllerManager,
        Self::Scheduler,
        Self::Kubectl,
        Self::Kubelet,
        Self::Kubeadm,
        Self::KubeProxy,
    ];

    /// The file's name.
    #[must_use]
    pub fn file(self) -> &'static str {
        match self {
            Self::Etcd => "etcd",
            Self::ApiServer => "kube-apiserver",
            Self::ControllerManager => "kube-controller-manager",
            Self::Scheduler => "kube-scheduler",
            Self::Kubelet => "kubelet",
            Self::Kubectl => "kubectl",
            Self::Kubeadm => "kubeadm",
            Self::KubeProxy => "kube-proxy",
            Self::Helm => "helm",
            Self::Krew => "krew",
        }
    }

    fn module(self) -> &'static str {
        match self {
            Self::Etcd => "etcd",
            Self::Helm => "helm",
            Self::Krew => "krew",
            _ => "kube",
        }
    }

    fn package(self) -> String {
        match self {
            Self::Etcd => "go.etcd.io/etcd/server/v3".to_owned(),
            Self::Helm => "helm.sh/helm/v3/cmd/helm".to_owned(),
            Self::Krew => "sigs.k8s.io/krew/cmd/krew".to_owned(),
            other => format!("k8s.io/kubernetes/cmd/{}", other.file()),
        }
    }
}

/// Link flags: no debug data, and the version, without which `kubectl version` and the OpenAPI download fail.
fn link_flags() -> String {
    const PACKAGE: &str = "k8s.io/component-base/version";
    let numbers = KUBERNETES_VERSION.trim_start_matches('v').split('.').collect::<Vec<_>>();
    let values = [
        ("gitVersion", KUBERNETES_VERSION),
        ("gitMajor", numbers.first().copied().unwrap_or_default()),
        ("gitMinor", numbers.get(1).copied().unwrap_or_default()),
        ("gitCommit", "0000000000000000000000000000000000000000"),
        ("gitTreeState", "clean"),
        ("buildDate", "2026-07-15T00:00:00Z"),
    ];
    let mut flags = "-s -w".to_owned();
    for (name, value) in values {
        flags.push_str(&format!(" -X {PACKAGE}.{name}={value}"));
    }
    flags
}

/// The places where programs are looked for and built.
#[derive(Debug, Clone)]
pub struct Programs {
    ready: Option<PathBuf>,
    cache: PathBuf,
    /// Helm and krew have folders of their own, so that an update of one does not rebuild the control plane's programs.
    helm: PathBuf,
    krew: PathBuf,
    modules: PathBuf,
}

impl Programs {
    /// The programs of this environment.
    ///
    /// # Errors
    /// When the repository's Go modules cannot be read.
    pub fn new(environment: &Environment) -> Result<Self> {
        let modules = go_modules();
        let key = |of: &[&str]| version_key(&modules, of);
        Ok(Self {
            ready: environment.programs.clone(),
            cache: environment.cache.join("control-plane").join(key(&["kube", "etcd"])?),
            helm: environment.cache.join("helm").join(key(&["helm"])?),
            krew: environment.cache.join("krew").join(key(&["krew"])?),
            modules,
        })
    }

    /// The cache folder of this version.
    #[must_use]
    pub fn cache(&self) -> &Path {
        &self.cache
    }

    fn folder(&self, program: Program) -> &Path {
        match program {
            Program::Helm => &self.helm,
            Program::Krew => &self.krew,
            _ => &self.cache,
        }
    }

    /// The program's path, if it exists already.
    #[must_use]
    pub fn find(&self, program: Program) -> Option<PathBuf> {
        self.ready
            .as_deref()
            .into_iter()
            .chain([self.folder(program)])
            .map(|folder| folder.join(program.file()))
            .find(|path| is_executable(path))
    }

    /// The path of a program that must exist already (see [`Programs::ensure`]).
    ///
    /// # Errors
    /// [`Error::NoGo`] if it does not.
    pub(super) fn existing(&self, program: Program) -> Result<PathBuf> {
        self.find(program).ok_or_else(|| self.missing(program))
    }

    fn missing(&self, program: Program) -> Error {
        Error::NoGo { program: program.file(), cache: self.folder(program).to_owned() }
    }

    /// The program's path; builds the program if it does not exist yet.
    ///
    /// # Errors
    /// No `go`, no cache folder, or the build fails.
    pub async fn get(&self, program: Program, progress: &Reporter) -> Result<PathBuf> {
        if let Some(path) = self.find(program) {
            return Ok(path);
        }
        let Some(go) = find_on_path("go") else {
            return Err(self.missing(program));
        };
        let folder = self.folder(program);
        fs::create_dir_all(folder).map_err(Error::io("create the cache folder", folder))?;
        let _lock =
            lock_file(&folder.join("lock"), &format!("build of {}", program.file()), progress).await?;
        // Another run may have built it while this one waited for the lock.
        if let Some(path) = self.find(program) {
            return Ok(path);
        }
        self.build(&go, program, progress).await
    }

    /// Takes the lock of this version's cache folder, for code that makes something from the programs there.
    ///
    /// # Errors
    /// The folder or the lock cannot be made.
    pub(crate) async fn lock(&self, what: &str, progress: &Reporter) -> Result<File> {
        fs::create_dir_all(&self.cache).map_err(Error::io("create the cache folder", &self.cache))?;
        lock_file(&self.cache.join("lock"), what, progress).await
    }

    /// Makes sure that all these programs exist.
    ///
    /// # Errors
    /// As [`Programs::get`].
    pub async fn ensure(&self, programs: &[Program], progress: &Reporter) -> Result<()> {
        for program in programs {
            self.get(*program, progress).await?;
        }
        Ok(())
    }

    async fn build(&self, go: &Path, program: Program, progress: &Reporter) -> Result<PathBuf> {
        let module = self.modules.join(program.module());
        let download = progress.begin(format!("downloading the Go modules for {}", program.file()));
        run_go(go, &module, &["mod", "download"], || download.still()).await?;
        download.done();
        let step = progress.begin(format!("building {} (minutes when nothing is cached)", program.file()));
        let target = self.folder(program).join(program.file());
        let part = self.folder(program).join(format!("{}.part-{}", program.file(), std::process::id()));
        let flags = match program {
            Program::Etcd | Program::Helm | Program::Krew => "-s -w".to_owned(),
            _ => link_flags(),
        };
        let part_text = part.to_string_lossy().into_owned();
        let package = program.package();
        let built = run_go(
            go,
            &module,
            &["build", "-trimpath", "-buildvcs=false", "-ldflags", &flags, "-o", &part_text, &package],
            || step.still(),
        )
        .await;
        if let Err(error) = built {
            let _absent = fs::remove_file(&part);
            return Err(error);
        }
        fs::rename(&part, &target).map_err(Error::io("move into the cache", &target))?;
        step.done();
        Ok(target)
    }
}

async fn run_go(go: &Path, module: &Path, args: &[&str], still: impl Fn()) -> Result<()> {
    let mut command = tokio::process::Command::new(go);
    command
        .args(args)
        .current_dir(module)
        .env("CGO_ENABLED", "0")
        .env("GOWORK", "off")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true);
    let child = command.spawn().map_err(|source| Error::Spawn { program: "go".to_owned(), source })?;
    let mut finished = std::pin::pin!(child.wait_with_output());
    let start = Instant::now();
    let output = loop {
        tokio::select! {
            output = &mut finished => break output,
            () = tokio::time::sleep(STILL_EVERY) => still(),
        }
        if start.elapsed() > BUILD_LIMIT {
            return Err(Error::Timeout {
                what: format!("`go {}` in {}", args.join(" "), module.display()),
                waited: BUILD_LIMIT,
                detail: "it was still running".to_owned(),
            });
        }
    };
    let output = output.map_err(|source| Error::Spawn { program: "go".to_owned(), source })?;
    if output.status.success() {
        return Ok(());
    }
    Err(Error::Command {
        command: format!("go {} in {}", args.first().copied().unwrap_or_default(), module.display()),
        status: describe(output.status),
        tail: last_lines(&String::from_utf8_lossy(&output.stderr)),
        whole: FullLog::default(),
    })
}

/// A name for this version of the programs: it changes with go.mod, go.sum and the link flags.
fn version_key(modules: &Path, of: &[&str]) -> Result<String> {
    let mut hash = Sha256::new();
    for module in of {
        for file in ["go.mod", "go.sum"] {
            let path = modules.join(module).join(file);
            hash.update(fs::read(&path).map_err(Error::io("read", &path))?);
            hash.update([0]);
        }
    }
    hash.update(link_flags());
    let hex: String = hash.finalize().iter().take(8).map(|byte| format!("{byte:02x}")).collect();
    Ok(format!("{KUBERNETES_VERSION}-{hex}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn environment(ready: Option<PathBuf>, cache: &Path) -> Environment {
        Environment { programs: ready, cache: cache.to_owned(), data: cache.to_owned(), ci: false }
    }

    fn put(folder: &Path, name: &str, mode: u32) {
        use std::os::unix::fs::PermissionsExt;
        fs::create_dir_all(folder).unwrap();
        fs::write(folder.join(name), "x").unwrap();
        fs::set_permissions(folder.join(name), fs::Permissions::from_mode(mode)).unwrap();
    }

    #[test]
    fn the_given_folder_comes_before_the_cache_and_only_executables_count() {
        let dir = tempfile::tempdir().unwrap();
        let ready = dir.path().join("ready");
        let programs = Programs::new(&environment(Some(ready.clone()), dir.path())).unwrap();
        assert_eq!(programs.find(Program::Etcd), None);
        put(programs.cache(), "etcd", 0o755);
        assert_eq!(programs.find(Program::Etcd), Some(programs.cache().join("etcd")));
        put(&ready, "etcd", 0o644);
        assert_eq!(programs.find(Program::Etcd), Some(programs.cache().join("etcd")));
        put(&ready, "etcd", 0o755);
        assert_eq!(programs.find(Program::Etcd), Some(ready.join("etcd")));
    }

    #[test]
    fn the_pinned_version_is_the_one_that_the_programs_report() {
        let text = fs::read_to_string(go_modules().join("kube/go.mod")).unwrap();
        assert!(text.contains(&format!("k8s.io/kubernetes {KUBERNETES_VERSION}")));
    }
}
