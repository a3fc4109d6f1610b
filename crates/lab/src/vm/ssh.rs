//! Runs commands in a virtual machine and copies files into it, over ssh with a key that the lab has made.
//!
//! The key is in the cache, because the images there contain it. It opens only machines of this lab, and these are reachable
//! only through a port on this computer's loopback.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::net::{Ipv4Addr, SocketAddr};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use tokio::io::AsyncReadExt;
use tokio::net::TcpStream;

use crate::error::{Error, Result};
use crate::progress::Reporter;
use crate::system::command::{Output, failed, output, run, show};
use crate::system::file_lock::lock_file;

const KEYGEN_LIMIT: Duration = Duration::from_secs(60);
/// An emulated processor takes seconds for the handshake when this computer is busy.
const CONNECT_SECONDS: u32 = 30;
/// How long one attempt waits for the server's first line.
const BANNER_LIMIT: Duration = Duration::from_secs(3);

/// The key pair for this computer's virtual machines.
#[derive(Debug, Clone)]
pub(crate) struct Key {
    private: PathBuf,
    /// The line for `authorized_keys`.
    pub(crate) public: String,
}

impl Key {
    /// Returns the key pair, and makes it if it does not exist.
    pub(crate) async fn ensure(cache: &Path, progress: &Reporter) -> Result<Self> {
        let folder = cache.join("key");
        fs::create_dir_all(&folder).map_err(Error::io("create", &folder))?;
        fs::set_permissions(&folder, fs::Permissions::from_mode(0o700))
            .map_err(Error::io("set the mode of", &folder))?;
        let _lock = lock_file(&folder.join("lock"), "making of a key for ssh", progress).await?;
        let (private, public) = (folder.join("id_ed25519"), folder.join("id_ed25519.pub"));
        if !public.is_file() {
            let half = fs::remove_file(&private);
            if let Err(error) = half
                && error.kind() != std::io::ErrorKind::NotFound
            {
                return Err(Error::io("remove", &private)(error));
            }
            let path = private.to_string_lossy();
            let args = ["-q", "-t", "ed25519", "-N", "", "-C", "lab", "-f", &path];
            run("ssh-keygen", args, KEYGEN_LIMIT).await?;
        }
        let public = fs::read_to_string(&public).map_err(Error::io("read", &public))?.trim().to_owned();
        Ok(Self { private, public })
    }
}

/// Access to one running machine.
#[derive(Debug, Clone)]
pub(crate) struct Ssh {
    pub(crate) machine: String,
    pub(crate) key: Key,
    pub(crate) port: u16,
    /// The socket of an ssh connection that all commands of one boot share: on an emulated processor, a handshake takes most of
    /// a second. `None`: each command opens its own connection.
    pub(crate) shared: Option<PathBuf>,
}

impl Ssh {
    /// Whether the machine's ssh server answers. qemu accepts connections at any time; only the server sends a line.
    pub(crate) async fn answers(&self) -> bool {
        let look = async {
            let mut stream = TcpStream::connect(SocketAddr::from((Ipv4Addr::LOCALHOST, self.port))).await?;
            let mut begin = [0; 4];
            stream.read_exact(&mut begin).await?;
            std::io::Result::Ok(&begin == b"SSH-")
        };
        tokio::time::timeout(BANNER_LIMIT, look).await.is_ok_and(|seen| seen.unwrap_or(false))
    }

    fn args(&self) -> Vec<String> {
        let key = self.key.private.to_string_lossy().into_owned();
        let timeout = format!("ConnectTimeout={CONNECT_SECONDS}");
        let options = [
            "BatchMode=yes",
            "IdentitiesOnly=yes",
            "StrictHostKeyChecking=no",
            "UserKnownHostsFile=/dev/null",
            "LogLevel=ERROR",
            // The default key exchange is safe against quantum computers, and takes an emulated processor twice as long.
            "KexAlgorithms=curve25519-sha256",
            // A machine that lost its power answers nothing; the connection ends after six intervals of five seconds without an
            // answer.
            "ServerAliveInterval=5",
            "ServerAliveCountMax=6",
            &timeout,
        ];
        let mut args = vec!["-F".to_owned(), "none".to_owned(), "-T".to_owned(), "-i".to_owned(), key];
        args.extend(options.iter().flat_map(|option| ["-o".to_owned(), (*option).to_owned()]));
        if let Some(socket) = &self.shared {
            // The process that holds the shared connection ends with the connection, so at the latest with the machine.
            let path = format!("ControlPath={}", socket.display());
            let options = ["ControlMaster=auto", "ControlPersist=yes", &path];
            args.extend(options.iter().flat_map(|option| ["-o".to_owned(), (*option).to_owned()]));
        }
        args.extend(["-p".to_owned(), self.port.to_string(), "root@127.0.0.1".to_owned(), "--".to_owned()]);
        args
    }

    /// Runs a command in the machine; the exit code is in the output. 255 may be ssh's own code, with the reason on standard
    /// error.
    pub(crate) async fn exec<I: AsRef<OsStr>>(
        &self,
        command: impl IntoIterator<Item = I>,
        limit: Duration,
    ) -> Result<Output> {
        let mut args = self.args();
        args.push(line(command));
        output("ssh", args, limit).await
    }

    /// As [`Ssh::exec`], but fails if the command does.
    pub(crate) async fn run<I: AsRef<OsStr>>(
        &self,
        command: impl IntoIterator<Item = I>,
        limit: Duration,
    ) -> Result<String> {
        let words: Vec<OsString> = command.into_iter().map(|word| word.as_ref().to_owned()).collect();
        let line = line(&words);
        let mut args = self.args();
        args.push(line.clone());
        let done = output("ssh", args, limit).await?;
        let (program, rest) =
            words.split_first().map_or(("".into(), &[][..]), |(p, r)| (p.to_string_lossy(), r));
        self.judge(&show(&program, rest), &line, done)
    }

    /// Copies a file of this computer into the machine, whole or not at all, and syncs it to the machine's disk.
    pub(crate) async fn put(&self, file: &Path, to: &str, mode: u32, limit: Duration) -> Result<()> {
        // The folder is synced too: only then is the rename on the disk.
        const RECEIVE: &str = r#"cat > "$1.part" && chmod "$2" "$1.part" && sync "$1.part" &&
            mv "$1.part" "$1" && sync "${1%/*}/""#;
        let receive = line(["sh", "-c", RECEIVE, "sh", to, &format!("{mode:o}")]);
        let mut args = vec![
            "-c".to_owned(),
            r#"file=$1; shift; exec "$@" < "$file""#.to_owned(),
            "sh".to_owned(),
            file.to_string_lossy().into_owned(),
            "ssh".to_owned(),
        ];
        args.extend(self.args());
        args.push(receive);
        let done = output("sh", args, limit).await?;
        let command = format!("copy {} to {to}", file.display());
        self.judge(&command, &command, done).map(drop)
    }

    /// Returns the command's output, or its failure: `shown` names the command in the message, `whole` in a log.
    fn judge(&self, shown: &str, whole: &str, done: Output) -> Result<String> {
        if done.code == 0 {
            return Ok(done.stdout);
        }
        Err(failed(format!("{shown} (in {})", self.machine), whole, &done))
    }
}

/// Quotes these words as one line for the machine's shell.
fn line<I: AsRef<OsStr>>(words: impl IntoIterator<Item = I>) -> String {
    let quoted =
        words.into_iter().map(|word| format!("'{}'", word.as_ref().to_string_lossy().replace('\'', r"'\''")));
    quoted.collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_shell_gives_back_the_words() {
        let words = ["plain", "two words", "it's", "$HOME `id` \\ \"x\"", "", "new\nline"];
        let script = format!("for word in {}; do printf '%s|' \"$word\"; done", line(words));
        let done = std::process::Command::new("sh").args(["-c", &script]).output().unwrap();
        assert_eq!(String::from_utf8(done.stdout).unwrap(), words.map(|word| format!("{word}|")).concat());
    }

    #[tokio::test]
    async fn a_port_that_is_open_and_silent_is_no_machine_that_is_ready() {
        let silent = std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let key = Key { private: PathBuf::new(), public: String::new() };
        let ssh =
            Ssh { machine: "m".to_owned(), key, port: silent.local_addr().unwrap().port(), shared: None };
        assert!(!ssh.answers().await);
        std::thread::spawn(move || {
            for stream in silent.incoming().flatten() {
                let _closed = std::io::Write::write_all(&mut { stream }, b"SSH-2.0-x\r\n");
            }
        });
        while !ssh.answers().await {}
    }
}
