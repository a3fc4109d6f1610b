//! Short commands with a time limit: their output, and errors that show what they said.
//!
//! Not here: programs that keep running (see `process`).

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use crate::error::{Error, FullLog, Result};

/// The folders for administration programs, which an ordinary user's PATH leaves out.
const SYSTEM_FOLDERS: &str = "/usr/local/sbin:/usr/sbin:/sbin:/usr/local/bin:/usr/bin:/bin:/usr/local/go/bin";

/// The program's path, if it is installed.
pub(crate) fn find_on_path(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path)
        .chain(std::env::split_paths(SYSTEM_FOLDERS))
        .map(|folder| folder.join(program))
        .find(|candidate| is_executable(candidate))
}

/// Whether the path is an executable file.
pub(crate) fn is_executable(path: &Path) -> bool {
    use std::os::unix::fs::PermissionsExt;
    std::fs::metadata(path).is_ok_and(|data| data.is_file() && data.permissions().mode() & 0o111 != 0)
}

/// At most the last 30 lines: they fit under an error message without hiding it.
pub(crate) fn last_lines(text: &str) -> String {
    const LINES: usize = 30;
    end_of(text, LINES)
}

/// The last `count` lines, or all if there are fewer.
pub(crate) fn end_of(text: &str, count: usize) -> String {
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(count)..].join("\n")
}

/// The result of a command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Output {
    /// The exit code; -1 if a signal killed it.
    pub code: i32,
    /// Standard output.
    pub stdout: String,
    /// Standard error.
    pub stderr: String,
}

/// Runs a short command to its end and returns its output, whatever its exit code.
pub(crate) async fn output<I: AsRef<OsStr>>(
    program: &str,
    args: impl IntoIterator<Item = I>,
    limit: Duration,
) -> Result<Output> {
    let path = find_on_path(program).unwrap_or_else(|| PathBuf::from(program));
    let args: Vec<OsString> = args.into_iter().map(|arg| arg.as_ref().to_owned()).collect();
    let shown = show(program, &args);
    tracing::trace!(command = %shown, "run");
    let mut command = tokio::process::Command::new(path);
    command.args(&args).stdin(Stdio::null()).kill_on_drop(true).process_group(0);
    let done = tokio::time::timeout(limit, command.output()).await.map_err(|_| Error::Timeout {
        what: format!("`{shown}`"),
        waited: limit,
        detail: "it was still running".to_owned(),
    })?;
    let done = done.map_err(|source| Error::Spawn { program: program.to_owned(), source })?;
    Ok(Output {
        code: done.status.code().unwrap_or(-1),
        stdout: String::from_utf8_lossy(&done.stdout).into_owned(),
        stderr: String::from_utf8_lossy(&done.stderr).into_owned(),
    })
}

/// Runs a short command, and fails if the command does.
pub(crate) async fn run<I: AsRef<OsStr>>(
    program: &str,
    args: impl IntoIterator<Item = I>,
    limit: Duration,
) -> Result<String> {
    let args: Vec<OsString> = args.into_iter().map(|arg| arg.as_ref().to_owned()).collect();
    let done = output(program, &args, limit).await?;
    if done.code == 0 {
        return Ok(done.stdout);
    }
    let words: Vec<_> = args.iter().map(|arg| arg.to_string_lossy()).collect();
    Err(failed(show(program, &args), &format!("{program} {}", words.join(" ")), &done))
}

/// The error of a failed command. `shown` is short enough for a message; `whole` is the full command.
pub(crate) fn failed(shown: String, whole: &str, done: &Output) -> Error {
    let said = if done.stderr.trim().is_empty() { &done.stdout } else { &done.stderr };
    let status = format!("exit status {}", done.code);
    let Output { stdout, stderr, .. } = done;
    let log = format!("{whole}\n\n{status}\n\nstandard output:\n{stdout}\nstandard error:\n{stderr}\n");
    Error::Command { command: shown, tail: last_lines(said), status, whole: FullLog(log) }
}

/// As [`run`], for drop guards and sweeps without an async runtime; `None` on failure.
pub(crate) fn run_blocking(program: &str, args: &[&str]) -> Option<String> {
    let path = find_on_path(program)?;
    let output = Command::new(path).args(args).stdin(Stdio::null()).output().ok()?;
    output.status.success().then(|| String::from_utf8_lossy(&output.stdout).into_owned())
}

/// A command line for messages. An argument of several lines is a script, and is shown by its first line, a comment that says
/// what it does.
pub(crate) fn show(program: &str, args: &[OsString]) -> String {
    let mut text = program.to_owned();
    for arg in args {
        let arg = arg.to_string_lossy();
        text.push(' ');
        match arg.trim().split_once('\n') {
            Some((first, _)) => text.push_str(&format!("<{} …>", first.trim_start_matches(['#', ' ']))),
            None => text.push_str(&arg),
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_script_that_fails_is_named_by_its_first_line_and_the_log_has_all_of_it() {
        let script = "# Makes a disk.\nset -eu\nfor i in $(seq 99); do echo line $i >&2; done\nexit 7";
        let error = run("sh", ["-c", script], Duration::from_secs(60)).await.unwrap_err();
        let text = error.to_string();
        assert!(text.starts_with("`sh -c <Makes a disk. …>` failed (exit status 7)"), "{text}");
        assert!(text.ends_with("line 99") && !text.contains("line 1\n"), "{text}");
        assert!(!format!("{error:?}").contains("line 1\\n"), "{error:?}");
        let Error::Command { whole: FullLog(log), .. } = error else { panic!("{error}") };
        assert!(log.contains(script) && log.contains("line 1\n"), "{log}");
    }

    #[tokio::test]
    async fn a_missing_program_is_an_error_that_names_it() {
        let error = run("no-such-program", ["x"], Duration::from_secs(1)).await.unwrap_err();
        assert!(error.to_string().contains("no-such-program"), "{error}");
    }
}
