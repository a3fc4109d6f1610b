//! Chosen moments in the life of a virtual machine: what it writes to its serial port, power cuts at that point, and its whole
//! state (memory, processors, disk) kept, to continue from it more than once.
//!
//! Not here: the machine's life between them (`vm`).

use std::path::Path;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::UnixStream;

use crate::error::{Error, Result};
use crate::system::process::tail;
use crate::vm::qemu::{Bus, Firmware, MONITOR};
use crate::vm::{Disk, VirtualMachine};

/// Between two looks at the serial log.
const LOOK: Duration = Duration::from_millis(10);
/// Half a gigabyte of memory is written in seconds.
const KEEP_LIMIT: Duration = Duration::from_secs(120);

/// A point in a machine's serial log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SerialMark(usize);

impl VirtualMachine {
    /// The end of the serial log now.
    ///
    /// # Errors
    /// It cannot be read.
    pub fn serial_mark(&self) -> Result<SerialMark> {
        Ok(SerialMark(self.serial_bytes()?.len()))
    }

    fn serial_bytes(&self) -> Result<Vec<u8>> {
        let path = self.serial();
        std::fs::read(&path).map_err(Error::io("read", &path))
    }

    /// What the machine has written to its serial port since a mark, without the terminal's commands.
    ///
    /// # Errors
    /// The log cannot be read.
    pub fn serial_since(&self, mark: SerialMark) -> Result<String> {
        let bytes = self.serial_bytes()?;
        Ok(plain(&String::from_utf8_lossy(bytes.get(mark.0..).unwrap_or_default())))
    }

    /// Waits until the machine has written these words to its serial port since a mark.
    ///
    /// # Errors
    /// It does not in the time that a boot may take.
    pub async fn says(&self, mark: SerialMark, words: &str) -> Result<()> {
        let start = Instant::now();
        while start.elapsed() < self.spec.boot_limit {
            if self.serial_since(mark)?.contains(words) {
                return Ok(());
            }
            tokio::time::sleep(LOOK).await;
        }
        Err(Error::Timeout {
            what: format!("{words:?} on the serial port of machine {}", self.name),
            waited: start.elapsed(),
            detail: tail(&self.serial()),
        })
    }

    /// Takes the power away at the moment at which the machine has written these words to its serial port since a mark.
    ///
    /// # Errors
    /// As [`VirtualMachine::says`].
    pub async fn power_cut_at(&self, mark: SerialMark, words: &str) -> Result<()> {
        self.says(mark, words).await?;
        self.power_cut().await
    }

    /// Gives the power back, and takes it away in the boot, at the moment at which the machine has written these words to its
    /// serial port.
    ///
    /// # Errors
    /// As [`VirtualMachine::says`].
    pub async fn power_cut_in_boot(&self, words: &str) -> Result<()> {
        let mark = self.serial_mark()?;
        self.switch_on().await?;
        self.power_cut_at(mark, words).await
    }

    /// Keeps the running machine's state under a name: memory, processors and disk. The machine goes on.
    ///
    /// # Errors
    /// It has no power or a disk that cannot keep states, or qemu fails.
    pub async fn keep(&self, name: &str) -> Result<()> {
        let spec = &self.spec;
        if spec.firmware == Firmware::Uefi || spec.bus == Bus::Nvme || matches!(spec.disk, Disk::Itself(_)) {
            return Err(Error::Options(format!("machine {} has a disk that keeps no states", self.name)));
        }
        self.running()?;
        let (socket, line) = (self.dir.join(MONITOR), format!("savevm {name}"));
        let asked = command(&socket, &line);
        let failed = |detail: String| Error::Timeout {
            what: format!("the state {name} of machine {}", self.name),
            waited: KEEP_LIMIT,
            detail,
        };
        match tokio::time::timeout(KEEP_LIMIT, asked).await {
            Ok(Ok(said)) if said.is_empty() => Ok(()),
            Ok(Ok(said)) => Err(failed(said)),
            Ok(Err(error)) => Err(failed(error.to_string())),
            Err(_) => Err(failed("qemu does not answer".to_owned())),
        }
    }

    /// Takes the power away, and has the machine continue from a state that was kept.
    ///
    /// # Errors
    /// There is no such state, or qemu does not start.
    pub async fn back_to(&self, name: &str) -> Result<()> {
        if self.running().is_ok() {
            self.power_cut().await?;
        }
        self.start_qemu(None, Some(name)).await?;
        self.wait_booted(None).await.map(drop)
    }
}

/// Runs a command of qemu's monitor, and returns what it says: nothing if it succeeds.
async fn command(socket: &Path, line: &str) -> std::io::Result<String> {
    let (read, mut write) = UnixStream::connect(socket).await?.into_split();
    let mut lines = BufReader::new(read).lines();
    for request in [
        json!({"execute": "qmp_capabilities"}),
        json!({"execute": "human-monitor-command", "arguments": {"command-line": line}}),
    ] {
        write.write_all(format!("{request}\n").as_bytes()).await?;
    }
    let mut answers = 0;
    while let Some(line) = lines.next_line().await? {
        let said: Value = serde_json::from_str(&line)?;
        if let Some(error) = said.get("error") {
            return Ok(error.to_string());
        }
        if let Some(answer) = said.get("return") {
            answers += 1;
            if answers == 2 {
                return Ok(answer.as_str().unwrap_or_default().trim().to_owned());
            }
        }
    }
    Err(std::io::ErrorKind::UnexpectedEof.into())
}

/// A text without the commands that colour it (`ESC [ … letter`).
fn plain(text: &str) -> String {
    let mut out = String::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once("\u{1b}[") {
        out.push_str(before);
        let end = after.find(|c: char| c.is_ascii_alphabetic()).map_or(after.len(), |at| at + 1);
        rest = after.get(end..).unwrap_or_default();
    }
    out.push_str(rest);
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_found_through_colours() {
        let text = "[\u{1b}[0;32m  OK  \u{1b}[0m] Stopped \u{1b}[0;1;39ma.service\u{1b}[0m - It.";
        assert_eq!(plain(text), "[  OK  ] Stopped a.service - It.");
        assert_eq!(plain("cut \u{1b}[0;3"), "cut ");
    }
}
