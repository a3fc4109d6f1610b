//! What is done in a virtual machine that runs: commands, and files that are read, written and copied.
//!
//! Not here: its power and its boots (see the module above).

use std::ffi::OsStr;
use std::path::Path;
use std::time::Duration;

use super::{COPY_LIMIT, EXEC_LIMIT, VirtualMachine, boot_id, qemu};
use crate::error::{Error, Result};
use crate::system::command::Output;

impl VirtualMachine {
    /// Runs a command in the machine; the exit code is in the output.
    ///
    /// # Errors
    /// The machine has no power, or the command takes more than two minutes.
    pub async fn exec<I: AsRef<OsStr>>(&self, command: impl IntoIterator<Item = I>) -> Result<Output> {
        self.exec_within(command, EXEC_LIMIT).await
    }

    /// As [`VirtualMachine::exec`] with another time limit.
    ///
    /// # Errors
    /// As [`VirtualMachine::exec`].
    pub async fn exec_within<I: AsRef<OsStr>>(
        &self,
        command: impl IntoIterator<Item = I>,
        limit: Duration,
    ) -> Result<Output> {
        self.running()?.ssh.exec(command, limit).await
    }

    /// As [`VirtualMachine::exec`], but fails if the command does; returns its output.
    ///
    /// # Errors
    /// As [`VirtualMachine::exec`], and when the exit code is not 0.
    pub async fn run<I: AsRef<OsStr>>(&self, command: impl IntoIterator<Item = I>) -> Result<String> {
        self.run_within(command, EXEC_LIMIT).await
    }

    /// As [`VirtualMachine::run`] with another time limit.
    ///
    /// # Errors
    /// As [`VirtualMachine::run`].
    pub async fn run_within<I: AsRef<OsStr>>(
        &self,
        command: impl IntoIterator<Item = I>,
        limit: Duration,
    ) -> Result<String> {
        self.running()?.ssh.run(command, limit).await
    }

    /// Copies a file of this computer into the machine, whole or not at all, with this mode.
    ///
    /// # Errors
    /// The machine has no power, or no space.
    pub async fn copy_in(&self, file: &Path, to: &str, mode: u32) -> Result<()> {
        self.running()?.ssh.put(file, to, mode, COPY_LIMIT).await
    }

    /// Copies the program from the machine's second disk (see [`VmImage::with_program`]) into its file system, whole or not at all.
    ///
    /// # Errors
    /// It has no second disk, is off, or has no space.
    pub async fn unload(&self, to: &str, mode: u32) -> Result<()> {
        const UNLOAD: &str = r#"head -c "$1" "$2" > "$3.part" && chmod "$4" "$3.part" && sync "$3.part" &&
            mv "$3.part" "$3" && sync "${3%/*}/""#;
        let none = || Error::Options(format!("machine {} carries no program", self.name));
        let size = self.carries.ok_or_else(none)?.to_string();
        let mode = format!("{mode:o}");
        let words = ["sh", "-c", UNLOAD, "sh", &size, qemu::CARRIED_INSIDE, to, &mode];
        self.run_within(words, COPY_LIMIT).await.map(drop)
    }

    /// Writes a file in the machine.
    ///
    /// # Errors
    /// As [`VirtualMachine::copy_in`].
    pub async fn write(&self, path: &str, content: &str) -> Result<()> {
        let file = self.dir.join("for-the-machine");
        std::fs::write(&file, content).map_err(Error::io("write", &file))?;
        self.copy_in(&file, path, 0o644).await
    }

    /// The text of a file in the machine.
    ///
    /// # Errors
    /// There is no such file, or the machine has no power.
    pub async fn read_file(&self, path: &str) -> Result<String> {
        self.run(["cat", "--", path]).await
    }

    /// The id of the running boot.
    ///
    /// # Errors
    /// As [`VirtualMachine::run`].
    pub async fn boot_id(&self) -> Result<String> {
        boot_id(&self.running()?.ssh).await
    }

    /// The running kernel's arguments, in order.
    ///
    /// # Errors
    /// As [`VirtualMachine::run`].
    pub async fn kernel_arguments(&self) -> Result<Vec<String>> {
        Ok(self.read_file("/proc/cmdline").await?.split_whitespace().map(str::to_owned).collect())
    }
}
