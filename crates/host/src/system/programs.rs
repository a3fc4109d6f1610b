//! The only code in this crate that runs a program of the host and reads its output: with a time limit, no input, a
//! small environment, and a limit on the output.
//!
//! Not here: services, and programs that change the host as part of a plan. systemd runs those (see `systemd`).

use std::fmt;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::OFlags;
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, Signal};

use crate::system::fetcher;
use crate::system::pull::Pull;

/// The `PATH` that programs get.
const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
/// The bytes that are kept of each of the two outputs. The rest is read and dropped.
pub(crate) const MOST_OUTPUT: usize = 256 * 1024;
/// How long to wait for a killed program. One that hangs in the kernel may never end.
const AFTER_KILL: Duration = Duration::from_secs(1);
/// How often a program that fetches looks whether it was cancelled.
const LISTEN: Duration = Duration::from_millis(250);
/// How often the bytes of a program that does not say how far it is are counted.
const COUNT: Duration = Duration::from_secs(2);
/// How many characters of the end of its output an error shows.
const LAST_WORDS: usize = 400;

/// The output of a program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Output {
    /// Standard output, at most 256 KiB of it. Bytes that are not UTF-8 are replaced.
    pub text: String,
}

/// A program could not be run, or failed.
#[derive(Debug, thiserror::Error)]
#[error("{program} failed: {why}")]
pub struct ProgramError {
    /// Its path.
    pub program: String,
    /// What happened, with the end of its standard error.
    pub why: String,
}

/// Runs programs of the host.
pub trait Programs: Send + fmt::Debug {
    /// Runs a program and waits for its end.
    ///
    /// # Errors
    /// It does not exist, does not end within the limit (then it is killed with all that it started), or ends with a
    /// code other than 0.
    fn run(&mut self, program: &str, args: &[&str], limit: Duration) -> Result<Output, ProgramError>;
    /// Runs a program that fetches, with more variables in its environment. `pull` gets the output while the program runs,
    /// and can stop it. The default implementation runs it like any other program, and passes the output on at the end.
    ///
    /// # Errors
    /// As [`Programs::run`], and when the fetch is cancelled.
    fn fetch(
        &mut self,
        program: &str,
        args: &[&str],
        limit: Duration,
        _environment: &[(String, String)],
        pull: &Pull,
    ) -> Result<Output, ProgramError> {
        self.run(program, args, limit).inspect(|output| pull.take_output(output.text.as_bytes()))
    }
}

/// Runs programs of the host whose root folder is this process's own: for agents that run on the host, or that changed
/// their root to the host's.
#[derive(Clone, Copy, Debug, Default)]
pub struct HostPrograms;

impl Programs for HostPrograms {
    fn run(&mut self, program: &str, args: &[&str], limit: Duration) -> Result<Output, ProgramError> {
        started(&Start { program, args, limit, environment: &[], pull: None })
    }

    fn fetch(
        &mut self,
        program: &str,
        args: &[&str],
        limit: Duration,
        environment: &[(String, String)],
        pull: &Pull,
    ) -> Result<Output, ProgramError> {
        started(&Start { program, args, limit, environment, pull: Some(pull) })
    }
}

/// One start of a program.
struct Start<'a> {
    program: &'a str,
    args: &'a [&'a str],
    limit: Duration,
    /// In addition to [`PATH`] and the language. It may hold secrets, so it is not logged.
    environment: &'a [(String, String)],
    pull: Option<&'a Pull>,
}

fn started(start: &Start<'_>) -> Result<Output, ProgramError> {
    // A kernel argument may hold a password.
    let shown: Vec<_> = start.args.iter().map(|a| desired::mask::argument(a)).collect();
    tracing::debug!(program = %start.program, args = ?shown, "running");
    run(start).map_err(|why| ProgramError { program: start.program.to_owned(), why })
}

/// How waiting for a program ended.
enum WaitOutcome {
    /// The program has ended: both outputs.
    Ended(Vec<u8>, Vec<u8>),
    OverLimit,
    Cancelled,
}

fn run(start: &Start<'_>) -> Result<Output, String> {
    let deadline = Instant::now() + start.limit;
    let mut child = Command::new(start.program)
        .args(start.args)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .env_clear()
        .envs([("PATH", PATH), ("LC_ALL", "C.UTF-8")])
        .envs(start.environment.iter().map(|(name, value)| (name, value)))
        .current_dir("/")
        .process_group(0)
        .spawn()
        .map_err(|e| e.to_string())?;
    let waited = wait(&mut child, deadline, start.pull);
    if !matches!(waited, Ok(WaitOutcome::Ended(..))) {
        kill(&mut child);
    }
    let (out, err) = match waited {
        Ok(WaitOutcome::Ended(out, err)) => (out, err),
        Ok(WaitOutcome::OverLimit) => {
            return Err(format!("it did not end within {} s and was killed", start.limit.as_secs()));
        }
        Ok(WaitOutcome::Cancelled) => return Err("it was cancelled".to_owned()),
        Err(e) => return Err(format!("waiting for its end failed: {e}")),
    };
    let status = child.wait().map_err(|e| e.to_string())?;
    if !status.success() {
        return Err(format!("{status}: {}", last_lines(&err)));
    }
    Ok(Output { text: String::from_utf8_lossy(&out).into_owned() })
}

/// Reads both outputs until the program has ended, its time is over, or its fetch is cancelled.
fn wait(child: &mut Child, deadline: Instant, pull: Option<&Pull>) -> io::Result<WaitOutcome> {
    let ended = rustix::process::pidfd_open(Pid::from_child(child), PidfdFlags::empty())?;
    let mut out = Pipe::new(child.stdout.take().map(OwnedFd::from))?;
    let mut err = Pipe::new(child.stderr.take().map(OwnedFd::from))?;
    let mut counted = Instant::now();
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Ok(WaitOutcome::OverLimit);
        }
        if pull.is_some_and(Pull::is_cancelled) {
            return Ok(WaitOutcome::Cancelled);
        }
        if let Some(pull) = pull.filter(|pull| pull.wants_count() && counted.elapsed() >= COUNT) {
            counted = Instant::now();
            // It is the first of its process group.
            fetcher::passed_on(child.id()).into_iter().for_each(|bytes| pull.count(bytes));
        }
        let left = if pull.is_some() { left.min(LISTEN) } else { left };
        let left = Timespec {
            tv_sec: i64::try_from(left.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: i64::from(left.subsec_nanos()),
        };
        let mut fds = vec![PollFd::new(&ended, PollFlags::IN)];
        fds.extend(
            [&out, &err].into_iter().filter_map(|p| p.fd.as_ref()).map(|fd| PollFd::new(fd, PollFlags::IN)),
        );
        match poll(&mut fds, Some(&left)) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(e) => return Err(e.into()),
        }
        let over = fds.first().is_some_and(|f| !f.revents().is_empty());
        drop(fds);
        // Read what the program wrote before its end. Do not wait for the pipes to close: a child that it left behind
        // may hold them open.
        out.read(|new| pull.into_iter().for_each(|pull| pull.take_output(new)))?;
        err.read(|_| {})?;
        if over {
            return Ok(WaitOutcome::Ended(out.bytes, err.bytes));
        }
    }
}

/// The read end of one output's pipe.
struct Pipe {
    fd: Option<OwnedFd>,
    bytes: Vec<u8>,
}

impl Pipe {
    fn new(fd: Option<OwnedFd>) -> io::Result<Self> {
        if let Some(fd) = &fd {
            rustix::fs::fcntl_setfl(fd, OFlags::NONBLOCK)?;
        }
        Ok(Self { fd, bytes: Vec::new() })
    }

    /// Reads all that is available, and shows it to `hears`.
    fn read(&mut self, hears: impl Fn(&[u8])) -> io::Result<()> {
        let mut buffer = [0; 8 * 1024];
        while let Some(fd) = &self.fd {
            match rustix::io::read(fd, &mut buffer) {
                Ok(0) => self.fd = None,
                Ok(n) => {
                    hears(buffer.get(..n).unwrap_or_default());
                    let room = MOST_OUTPUT.saturating_sub(self.bytes.len()).min(n);
                    self.bytes.extend_from_slice(buffer.get(..room).unwrap_or_default());
                }
                Err(Errno::AGAIN) => break,
                Err(Errno::INTR) => {}
                Err(e) => return Err(e.into()),
            }
        }
        Ok(())
    }
}

/// Kills a program and all that it started. One that cannot end is abandoned.
fn kill(child: &mut Child) {
    let pid = Pid::from_child(child);
    if let Err(error) = rustix::process::kill_process_group(pid, Signal::KILL) {
        tracing::debug!(%error, "a program that is to be killed");
    }
    let ended = rustix::process::pidfd_open(pid, PidfdFlags::empty()).ok().is_some_and(|fd| {
        let mut fds = [PollFd::new(&fd, PollFlags::IN)];
        let most = Timespec { tv_sec: i64::try_from(AFTER_KILL.as_secs()).unwrap_or(1), tv_nsec: 0 };
        matches!(poll(&mut fds, Some(&most)), Ok(n) if n > 0)
    });
    if ended {
        let _ = child.wait();
    } else {
        tracing::warn!(pid = child.id(), "a program was killed and does not end: it hangs in the kernel");
    }
}

/// The end of a program's output, in one line.
fn last_lines(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(bytes);
    let words = text.split_whitespace().collect::<Vec<_>>().join(" ");
    let from = words.char_indices().rev().nth(LAST_WORDS.saturating_sub(1)).map_or(0, |(i, _)| i);
    let end = words.get(from..).unwrap_or_default();
    if end.is_empty() { "it printed nothing".to_owned() } else { end.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LONG: Duration = Duration::from_secs(60);

    fn sh(script: &str, limit: Duration) -> Result<Output, ProgramError> {
        HostPrograms.run("/bin/sh", &["-c", script], limit)
    }

    #[test]
    fn a_program_is_heard_and_its_failure_tells_its_last_words() {
        assert_eq!(sh("echo one; echo two >&2", LONG).unwrap().text, "one\n");
        let error = sh("echo lost; echo no such thing >&2; exit 3", LONG).unwrap_err().to_string();
        assert!(
            error.contains("/bin/sh") && error.contains("no such thing") && error.contains('3'),
            "{error}"
        );
        let error = HostPrograms.run("/nowhere/x", &[], LONG).unwrap_err().to_string();
        assert!(error.contains("/nowhere/x"), "{error}");
        // Output that is larger than a pipe's buffer is read to its end, and only a part of it is kept.
        let all = sh("head -c 1000000 /dev/zero | tr '\\0' x", LONG).unwrap().text;
        assert_eq!(all.len(), MOST_OUTPUT);
        // The environment is not inherited.
        assert_eq!(sh("echo $HOME-$PATH", LONG).unwrap().text, format!("-{PATH}\n"));
    }

    #[test]
    fn a_program_that_does_not_end_is_killed_with_all_that_it_started() {
        let dir = tempfile::tempdir().unwrap();
        let child = dir.path().join("pid");
        let began = Instant::now();
        let script = format!("sleep 300 & echo $! > {}; wait", child.display());
        let error = sh(&script, Duration::from_secs(2)).unwrap_err().to_string();
        assert!(error.contains("did not end within 2 s"), "{error}");
        assert!(began.elapsed() < Duration::from_secs(30));
        let pid = std::fs::read_to_string(&child).unwrap();
        let ended = || {
            let stat = std::fs::read_to_string(format!("/proc/{}/stat", pid.trim())).unwrap_or_default();
            stat.is_empty() || stat.contains(") Z ")
        };
        while !ended() {
            assert!(began.elapsed() < Duration::from_secs(30), "its child process still runs");
            std::thread::yield_now();
        }
    }

    #[test]
    fn a_fetch_is_heard_while_it_runs_and_a_cancelled_one_is_killed_with_all_that_it_started() {
        let dir = tempfile::tempdir().unwrap();
        let child = dir.path().join("pid");
        let pull = Pull::default();
        let script = format!(
            "echo 'layers needed: 1 (5.0 MB)'; sleep 300 & echo $! $WHERE > {0}.new; mv {0}.new {0}; wait",
            child.display()
        );
        let (theirs, environment) = (pull.clone(), [("WHERE".to_owned(), "here".to_owned())]);
        let running = std::thread::spawn(move || {
            HostPrograms.fetch("/bin/sh", &["-c", &script], LONG, &environment, &theirs)
        });
        let began = Instant::now();
        while pull.progress().is_none() || !child.exists() {
            assert!(began.elapsed() < LONG, "nothing was heard");
            std::thread::yield_now();
        }
        pull.cancel();
        let error = running.join().unwrap().unwrap_err().to_string();
        assert!(error.contains("it was cancelled") && began.elapsed() < LONG, "{error}");
        let text = std::fs::read_to_string(&child).unwrap();
        let (pid, place) = text.trim().split_once(' ').unwrap();
        assert_eq!(place, "here");
        let ended = || {
            let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
            stat.is_empty() || stat.contains(") Z ")
        };
        while !ended() {
            assert!(began.elapsed() < LONG, "what it started still runs");
            std::thread::yield_now();
        }
        assert_eq!(pull.progress().unwrap().total, 5_000_000);
    }

    #[test]
    fn what_another_program_fetches_for_it_is_counted() {
        let dir = tempfile::tempdir().unwrap();
        let skopeo = dir.path().join("skopeo");
        std::fs::copy("/bin/dd", &skopeo).unwrap();
        let pull = Pull::default();
        // The first count is that of what came before the layers.
        let script = format!(
            "exec 3>&1; (head -c 1000 /dev/zero; sleep 1; echo 'layers needed: 1 (5.0 MB)' >&3; sleep 4; \
             head -c 3000000 /dev/zero; sleep 300) | {} bs=64k > /dev/null",
            skopeo.display()
        );
        let theirs = pull.clone();
        let running =
            std::thread::spawn(move || HostPrograms.fetch("/bin/sh", &["-c", &script], LONG, &[], &theirs));
        let began = Instant::now();
        while pull.progress().and_then(|p| p.done) != Some(3_000_000) {
            assert!(began.elapsed() < LONG, "{:?}", pull.progress());
            std::thread::sleep(Duration::from_millis(50));
        }
        let told = pull.progress().unwrap().to_string();
        assert!(told.starts_with("3.0 MB of 5.0 MB, ") && told.contains("/s, "), "{told}");
        pull.cancel();
        running.join().unwrap().unwrap_err();
    }

    #[test]
    fn one_that_leaves_another_behind_is_not_waited_for() {
        let began = Instant::now();
        assert_eq!(sh("sleep 20 & echo yes", LONG).unwrap().text, "yes\n");
        assert!(began.elapsed() < Duration::from_secs(15));
    }
}
