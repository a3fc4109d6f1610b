//! Every way in which the lab fails, each naming the step, the path or program, and the remedy.
//!
//! Not here: errors of the product. The lab sees only a program's exit status and the tail of its log.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The lab's result.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// What went wrong while a lab was set up, run or taken down.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A file system operation.
    #[error("cannot {step} {path}")]
    Io {
        /// What was tried, as a verb ("write", "create").
        step: &'static str,
        /// The file or folder.
        path: PathBuf,
        /// The system's error.
        #[source]
        source: io::Error,
    },
    /// A program could not be started at all.
    #[error("cannot start {program}: is it installed and executable?")]
    Spawn {
        /// The program's name or path.
        program: String,
        /// The system's error.
        #[source]
        source: io::Error,
    },
    /// A helper command ended with an error.
    #[error("`{command}` failed ({status}): {tail}")]
    Command {
        /// The command line. A script in it is shown by its first line.
        command: String,
        /// Its exit status in words.
        status: String,
        /// The end of what it printed.
        tail: String,
        /// The command with whole scripts, and all that it printed. It is written to a log.
        whole: FullLog,
    },
    /// A step that makes something for the cache.
    #[error("{step} failed; the failed command and all that it printed are in {log}")]
    Step {
        /// What was made, in words.
        step: String,
        /// The log. The step's next failure overwrites it.
        log: PathBuf,
        /// What failed.
        #[source]
        source: Box<Self>,
    },
    /// A command in a node ended with an error.
    #[error("`{command}` failed on node {node} ({status}); the end of its log {log}:\n{tail}")]
    OnNode {
        /// The command line.
        command: String,
        /// The node.
        node: String,
        /// Its exit status in words.
        status: String,
        /// Its whole log, on this computer.
        log: PathBuf,
        /// The last lines of the log.
        tail: String,
    },
    /// A long-running program of the lab ended by itself.
    #[error("{program} ended by itself ({status}); the end of its log {log}:\n{tail}")]
    Died {
        /// Which program.
        program: String,
        /// Its exit status in words.
        status: String,
        /// Its whole log.
        log: PathBuf,
        /// The last lines of the log.
        tail: String,
    },
    /// The kernel of a virtual machine stopped for good.
    #[error("the kernel of machine {machine} panicked; the end of its serial log {log}:\n{tail}")]
    Panicked {
        /// The machine.
        machine: String,
        /// Its whole serial log.
        log: PathBuf,
        /// The last lines of the log.
        tail: String,
    },
    /// Somebody ended the command before the lab was up.
    #[error("interrupted; what was started is taken down")]
    Interrupted,
    /// Something did not become ready in time.
    #[error("{what} was not ready after {} s: {detail}", waited.as_secs())]
    Timeout {
        /// What was waited for.
        what: String,
        /// For how long.
        waited: Duration,
        /// The last state that was seen.
        detail: String,
    },
    /// A program is missing and there is no compiler to build it with.
    #[error(
        "{program} is not in MCO_LAB_BIN or the cache ({cache}), and `go` is not on the PATH to build it: \
         install Go 1.26 or newer, or set MCO_LAB_BIN to a folder that holds the program"
    )]
    NoGo {
        /// The name of the missing program.
        program: &'static str,
        /// Where it was looked for.
        cache: PathBuf,
    },
    /// Real nodes need root.
    #[error("{what} needs root: run it as root, or use simulated nodes (`.simulated()`, `--simulated`)")]
    NeedsRoot {
        /// What was asked for.
        what: &'static str,
    },
    /// Debian packages are missing and may not be installed by this user.
    #[error("missing Debian packages: run `apt-get install {}` as root", packages.join(" "))]
    MissingPackages {
        /// The packages to install.
        packages: Vec<String>,
    },
    /// A certificate could not be made.
    #[error("cannot make the certificate for {subject}")]
    Certificate {
        /// The certificate's subject.
        subject: String,
        /// The library's error.
        #[source]
        source: rcgen::Error,
    },
    /// A request to the API server failed.
    #[error("cannot {step}")]
    Kube {
        /// What was tried, with the object's name.
        step: String,
        /// The client's error.
        #[source]
        source: Box<kube::Error>,
    },
    /// The kubeconfig could not be read back.
    #[error("cannot use the kubeconfig {path}")]
    Kubeconfig {
        /// The file.
        path: PathBuf,
        /// The library's error.
        #[source]
        source: kube::config::KubeconfigError,
    },
    /// A record in a data folder cannot be parsed.
    #[error("{path} is not a record of the lab (remove the folder if it is left over)")]
    Record {
        /// The file.
        path: PathBuf,
        /// The parser's error.
        #[source]
        source: serde_json::Error,
    },
    /// The browser failed, or its page did not become what was awaited.
    #[error("the browser: {0}")]
    Browser(String),
    /// Options that contradict each other or the machine.
    #[error("{0}")]
    Options(String),
}

/// The text for a log, carried by an error until a step writes it. `Debug` shows only its length, because a failing test prints
/// its error by `Debug`.
#[derive(Default, Clone, PartialEq, Eq)]
pub struct FullLog(pub(crate) String);

impl std::fmt::Debug for FullLog {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "({} bytes)", self.0.len())
    }
}

impl Error {
    /// An adapter for `map_err` on file operations.
    pub(crate) fn io(step: &'static str, path: impl AsRef<Path>) -> impl FnOnce(io::Error) -> Self {
        let path = path.as_ref().to_owned();
        move |source| Self::Io { step, path, source }
    }

    /// An adapter for `map_err` on API requests.
    pub(crate) fn kube(step: impl Into<String>) -> impl FnOnce(kube::Error) -> Self {
        let step = step.into();
        move |source| Self::Kube { step, source: Box::new(source) }
    }
}
