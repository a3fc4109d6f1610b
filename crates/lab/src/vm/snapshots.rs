//! Snapshots of a running virtual machine: its whole state (memory, processors, disk), from which it can continue more than once.
//!
//! The snapshots are in the machine's own layer (`savevm` of qemu's monitor).

use std::path::Path;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::UnixStream;

use crate::error::{Error, Result};
use crate::vm::qemu::{Bus, Firmware, MONITOR};
use crate::vm::{Disk, VirtualMachine};

/// The time limit for writing half a gigabyte of memory, which takes seconds.
const SAVE_LIMIT: Duration = Duration::from_secs(120);

impl VirtualMachine {
    /// Saves the running machine's state under a name: memory, processors and disk. The machine keeps running.
    ///
    /// # Errors
    /// The machine is off, its disk or its firmware's variables cannot be part of a snapshot, or qemu fails.
    pub async fn save_snapshot(&self, name: &str) -> Result<()> {
        let spec = &self.spec;
        if spec.firmware == Firmware::Uefi || spec.bus == Bus::Nvme || matches!(spec.disk, Disk::Itself(_)) {
            return Err(Error::Options(format!(
                "machine {} has a disk of which qemu can make no snapshots",
                self.name
            )));
        }
        self.running()?;
        let (socket, line) = (self.dir.join(MONITOR), format!("savevm {name}"));
        let asked = monitor_command(&socket, &line);
        let failed = |detail: String| Error::Timeout {
            what: format!("the snapshot {name} of machine {}", self.name),
            waited: SAVE_LIMIT,
            detail,
        };
        match tokio::time::timeout(SAVE_LIMIT, asked).await {
            Ok(Ok(said)) if said.is_empty() => Ok(()),
            Ok(Ok(said)) => Err(failed(said)),
            Ok(Err(error)) => Err(failed(error.to_string())),
            Err(_) => Err(failed("qemu does not answer".to_owned())),
        }
    }

    /// Cuts the power, and lets the machine continue from a snapshot.
    ///
    /// # Errors
    /// There is no such snapshot, or qemu does not start.
    pub async fn restore_snapshot(&self, name: &str) -> Result<()> {
        if self.running().is_ok() {
            self.power_cut().await?;
        }
        self.start_qemu(None, Some(name)).await?;
        self.wait_booted(None).await.map(drop)
    }
}

/// Runs a command in qemu's monitor and returns its output, which is empty on success.
async fn monitor_command(socket: &Path, line: &str) -> std::io::Result<String> {
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
