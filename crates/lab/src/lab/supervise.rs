//! A lab that outlives the command that starts it: `lab up`, `lab down`.
//!
//! Flow: [`up`] starts a supervising process (the caller's own program with a hidden subcommand that calls
//! [`supervise`]), passes the [`Request`] in a file and prints the supervisor's progress lines until the lab is ready.
//! The supervisor holds the lab exactly as a test would, until SIGTERM or Ctrl-C. [`down`] sends SIGTERM and waits. The
//! next sweep removes what a killed supervisor has left.

use std::fs::{self, File};
use std::io::{Read, Seek, SeekFrom};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use kube::Client;
use rustix::process::Signal;

use crate::control_plane::client;
use crate::error::{Error, Result};
use crate::kubeadm::Kubeadm;
use crate::lab::Lab;
use crate::lab::spec::Request;
use crate::machine::handle::NodeHandle;
use crate::progress::Reporter;
use crate::system::command::find_on_path;
use crate::system::folder::{Folder, NodeKind, ProcessKey, Record, read_json, recorded, sweep, write_json};
use crate::system::paths::Environment;
use crate::system::process::{describe, tail};
use client::chain;

/// A cold start builds the control plane, which takes up to twenty minutes, or twice as long on a slow machine.
const UP_LIMIT: Duration = Duration::from_secs(45 * 60);
/// The time limit for taking down a lab of many nodes.
const DOWN_LIMIT: Duration = Duration::from_secs(60);
const POLL: Duration = Duration::from_millis(100);
/// The request, the log and the result of a supervisor are beside the data folders, in a folder named after its process
/// id.
const REQUEST: &str = "up";

/// A lab that runs in another process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Attached {
    folder: PathBuf,
    record: Record,
}

impl Attached {
    /// The administrator's kubeconfig.
    #[must_use]
    pub fn kubeconfig(&self) -> PathBuf {
        self.record.kubeconfig.clone().unwrap_or_else(|| self.folder.join("kubeconfig"))
    }

    /// The lab's data folder; logs are in `logs`.
    #[must_use]
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// A client with the administrator's rights.
    ///
    /// # Errors
    /// When the kubeconfig cannot be used.
    pub async fn client(&self) -> Result<Client> {
        client(&self.kubeconfig()).await
    }

    /// Every node.
    #[must_use]
    pub fn nodes(&self) -> Vec<NodeHandle> {
        let kind = self.record.kind.unwrap_or(NodeKind::Fake);
        self.record.nodes.iter().map(|name| NodeHandle::new(&self.folder, name, kind)).collect()
    }
}

/// The running labs that [`up`] started.
///
/// # Errors
/// When the data root cannot be listed.
pub fn running(environment: &Environment) -> Result<Vec<Attached>> {
    let labs = recorded(environment)?.into_iter();
    Ok(labs
        .filter(|(_, record)| record.detached && record.ready && record.owner.is_some_and(ProcessKey::alive))
        .map(|(folder, record)| Attached { folder, record })
        .collect())
}

/// Starts a lab in a process of its own and returns when it is ready. `supervisor` is the command that calls
/// [`supervise`]; the path of the request is added as its last argument.
///
/// # Errors
/// The supervisor cannot be started, or the lab does not come up; the error has the end of its log. After Ctrl-C or SIGTERM,
/// what was started is taken down.
pub async fn up(
    request: &Request,
    supervisor: &[String],
    environment: &Environment,
    progress: &Reporter,
) -> Result<Attached> {
    up_until(request, supervisor, environment, progress, asked_to_end()).await
}

/// As [`up`], but `end` interrupts the start.
///
/// # Errors
/// As [`up`].
pub async fn up_until(
    request: &Request,
    supervisor: &[String],
    environment: &Environment,
    progress: &Reporter,
    end: impl Future<Output = ()>,
) -> Result<Attached> {
    if let Request::Kubeadm(spec) = request {
        // Checked here too, because here the error is one line, not the end of the supervisor's log.
        spec.check()?;
    }
    sweep(environment)?;
    let [program, args @ ..] = supervisor else {
        return Err(Error::Options("no command for the supervising process".to_owned()));
    };
    let dir = environment.data.with_file_name(format!(
        "{}-{REQUEST}-{}",
        environment.data.file_name().unwrap_or_default().to_string_lossy(),
        std::process::id()
    ));
    make_private(&dir)?;
    let spec_path = dir.join("spec.json");
    let log_path = dir.join("supervisor.log");
    write_json(&spec_path, request)?;
    let log = File::create(&log_path).map_err(Error::io("create", &log_path))?;
    let both = log.try_clone().map_err(Error::io("open", &log_path))?;
    // setsid: the supervisor must survive the terminal of the command that started it. setsid forks when it already leads
    // a process group, and would then seem to have exited, so process_group is set only without it.
    let mut command = match find_on_path("setsid") {
        Some(setsid) => {
            let mut command = Command::new(setsid);
            command.arg(program);
            command
        }
        None => {
            let mut command = Command::new(program);
            command.process_group(0);
            command
        }
    };
    let mut child = command
        .args(args)
        .arg(&spec_path)
        .stdin(Stdio::null())
        .stdout(both)
        .stderr(log)
        .spawn()
        .map_err(|source| Error::Spawn { program: program.clone(), source })?;
    let mut end = std::pin::pin!(end);
    let start = Instant::now();
    let mut told = 0;
    let result_path = dir.join("result.json");
    let outcome = loop {
        told = tell(&log_path, told, progress);
        if let Some(folder) = read_json::<PathBuf>(&result_path)? {
            let record = read_json::<Record>(&folder.join("lab.json"))?.unwrap_or_default();
            break Ok(Attached { folder, record });
        }
        let ended = child.try_wait().ok().flatten();
        if let Some(status) = ended.filter(|status| !(status.success() && result_path.exists())) {
            break Err(Error::Died {
                program: "the lab's supervisor".to_owned(),
                status: describe(status),
                tail: tail(&log_path),
                log: log_path.clone(),
            });
        }
        if start.elapsed() > UP_LIMIT {
            take_back(&mut child, environment).await?;
            break Err(Error::Timeout {
                what: "the lab".to_owned(),
                waited: UP_LIMIT,
                detail: tail(&log_path),
            });
        }
        tokio::select! {
            () = tokio::time::sleep(POLL) => {}
            // The supervisor is in another session, so Ctrl-C does not reach it.
            () = &mut end => {
                progress.line("interrupted: taking down what was started");
                take_back(&mut child, environment).await?;
                break Err(Error::Interrupted);
            }
        }
    };
    if matches!(outcome, Ok(_) | Err(Error::Interrupted)) {
        // The supervisor keeps its log open, but the folder is no longer needed.
        let _gone = fs::remove_dir_all(&dir);
    }
    outcome
}

/// Ends a supervisor that is not ready yet, which takes down what it has started. What it leaves is swept.
async fn take_back(child: &mut Child, environment: &Environment) -> Result<()> {
    if let Some(supervisor) = i32::try_from(child.id()).ok().and_then(ProcessKey::of) {
        supervisor.signal(Signal::TERM);
    }
    let start = Instant::now();
    while child.try_wait().ok().flatten().is_none() {
        if start.elapsed() > DOWN_LIMIT {
            let _gone = child.kill();
            let _ended = child.wait();
            break;
        }
        tokio::time::sleep(POLL).await;
    }
    sweep(environment).map(drop)
}

/// Runs a lab in this process until SIGTERM or Ctrl-C. `spec_path` comes from [`up`]. Blocks.
///
/// # Errors
/// The lab does not come up.
pub fn supervise(spec_path: &Path, environment: &Environment) -> Result<()> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .map_err(Error::io("start the runtime for", spec_path))?;
    runtime.block_on(async {
        let request = read_json::<Request>(spec_path)?
            .ok_or_else(|| Error::Options(format!("{} is not there", spec_path.display())))?;
        let mut end = std::pin::pin!(asked_to_end());
        let progress = Reporter::stderr();
        let held = tokio::select! {
            held = Held::start(&request, environment, &progress) => held?,
            () = &mut end => return Ok(()),
        };
        held.folder().update(|record| record.detached = true)?;
        let result = spec_path.with_file_name("result.json");
        write_json(&result, &held.folder().path())?;
        end.await;
        held.stop().await;
        Ok(())
    })
}

/// What the supervisor holds.
enum Held {
    Lab(Box<Lab>),
    Kubeadm(Box<Kubeadm>),
}

impl Held {
    async fn start(request: &Request, environment: &Environment, progress: &Reporter) -> Result<Self> {
        match request {
            Request::Lab(spec) => {
                Lab::from_spec(spec, environment, progress).await.map(|lab| Self::Lab(Box::new(lab)))
            }
            Request::Kubeadm(spec) => Kubeadm::from_spec(spec, environment, progress)
                .await
                .map(|cluster| Self::Kubeadm(Box::new(cluster))),
        }
    }

    fn folder(&self) -> &Folder {
        match self {
            Self::Lab(lab) => lab.folder(),
            Self::Kubeadm(cluster) => cluster.folder(),
        }
    }

    async fn stop(self) {
        match self {
            Self::Lab(lab) => lab.stop().await,
            Self::Kubeadm(cluster) => cluster.stop().await,
        }
    }
}

async fn asked_to_end() {
    use tokio::signal::unix::{SignalKind, signal};
    let signals = (signal(SignalKind::terminate()), signal(SignalKind::interrupt()));
    match signals {
        (Ok(mut terminate), Ok(mut interrupt)) => {
            tokio::select! { _ = terminate.recv() => {}, _ = interrupt.recv() => {} }
        }
        (Err(error), _) | (_, Err(error)) => {
            // Without signal handlers only SIGKILL and a sweep end the lab. That is better than a lab that ends at
            // once.
            tracing::error!(%error, "signals cannot be received");
            std::future::pending::<()>().await;
        }
    }
}

/// Stops every lab that [`up`] started and removes what dead labs have left. Returns how many were stopped.
///
/// # Errors
/// A lab does not end, or the data root cannot be listed.
pub async fn down(environment: &Environment) -> Result<usize> {
    let labs = recorded(environment)?;
    let owners: Vec<ProcessKey> = labs
        .iter()
        .filter(|(_, record)| record.detached)
        .filter_map(|(_, record)| record.owner)
        .filter(|owner| owner.alive())
        .collect();
    for owner in &owners {
        owner.signal(Signal::TERM);
    }
    let start = Instant::now();
    while owners.iter().any(|owner| owner.alive()) {
        if start.elapsed() > DOWN_LIMIT {
            tracing::warn!("a supervisor does not end: killing it");
            owners.iter().for_each(|owner| owner.signal(Signal::KILL));
            tokio::time::sleep(Duration::from_secs(1)).await;
            break;
        }
        tokio::time::sleep(POLL).await;
    }
    let environment = environment.clone();
    let swept = tokio::task::spawn_blocking(move || sweep(&environment)).await;
    match swept {
        Ok(swept) => swept.map(|_| owners.len()),
        Err(error) => Err(Error::Options(format!("the sweep failed: {}", chain(&error)))),
    }
}

fn make_private(dir: &Path) -> Result<()> {
    use std::os::unix::fs::DirBuilderExt;
    let _old = fs::remove_dir_all(dir);
    fs::DirBuilder::new().mode(0o700).create(dir).map_err(Error::io("create", dir))
}

/// Prints the complete new lines of the log. Returns the position after the last of them.
fn tell(log: &Path, from: u64, progress: &Reporter) -> u64 {
    let read = || -> std::io::Result<Vec<u8>> {
        let mut file = File::open(log)?;
        file.seek(SeekFrom::Start(from))?;
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes)?;
        Ok(bytes)
    };
    let Ok(bytes) = read() else { return from };
    let Some(end) = bytes.iter().rposition(|byte| *byte == b'\n') else { return from };
    for line in String::from_utf8_lossy(&bytes[..end]).lines() {
        progress.line(line);
    }
    from + u64::try_from(end + 1).unwrap_or(0)
}
