//! The serial port of a virtual machine: what the machine has written there since a mark, waiting for words, power cuts at the
//! moment at which they appear, and kernels that stopped for good.
//!
//! Not here: how a machine is started and stopped (`vm`).

use std::time::{Duration, Instant};

use crate::error::{Error, Result};
use crate::system::command::end_of;
use crate::system::process::tail;
use crate::vm::VirtualMachine;

/// The pause between two checks of the serial log.
const LOOK: Duration = Duration::from_millis(10);

/// The pause between two checks whether the machine restarts, which takes seconds.
const LOOK_FOR_RESTART: Duration = Duration::from_millis(250);
/// What Linux writes before it restarts the machine, and when it will do so after a panic. Source: `kernel_restart` in the kernel's
/// `kernel/reboot.c`, and `vpanic` in `kernel/panic.c`.
const RESTARTS: [&str; 2] = ["reboot: Restarting system", "Rebooting in "];
/// The last lines of the log in the error of a kernel that stopped: the reason, the registers and the functions.
const PANIC_LINES: usize = 60;
/// The words of Linux's last line after a panic. It writes them only if it will not reboot by itself (`panic=0`, the default).
/// Source: `vpanic` in the kernel's `kernel/panic.c`.
const STOPPED: &str = "---[ end Kernel panic - not syncing";

/// A point in a machine's serial log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SerialMark(usize);

impl VirtualMachine {
    /// Marks the current end of the serial log.
    ///
    /// # Errors
    /// The log cannot be read.
    pub fn serial_mark(&self) -> Result<SerialMark> {
        Ok(SerialMark(self.serial_bytes()?.len()))
    }

    fn serial_bytes(&self) -> Result<Vec<u8>> {
        let path = self.serial();
        std::fs::read(&path).map_err(Error::io("read", &path))
    }

    /// What the machine has written to its serial port since a mark, without the escape sequences for terminals.
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
    /// It does not within the time limit for a boot, or its kernel stopped for good.
    pub async fn wait_serial(&self, mark: SerialMark, words: &str) -> Result<()> {
        let start = Instant::now();
        while start.elapsed() < self.spec.boot_limit {
            if self.has_written(mark, &[words])? {
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

    /// Waits until the kernel says that it restarts the machine. There is no time limit.
    pub(super) async fn wait_restart(&self, mark: SerialMark) -> Result<()> {
        while !self.has_written(mark, &RESTARTS)? {
            tokio::time::sleep(LOOK_FOR_RESTART).await;
        }
        Ok(())
    }

    /// Whether the machine has written one of these texts since a mark. Fails if its kernel stopped for good before.
    fn has_written(&self, mark: SerialMark, texts: &[&str]) -> Result<bool> {
        let since = self.serial_since(mark)?;
        if texts.iter().any(|text| since.contains(text)) {
            return Ok(true);
        }
        self.check_kernel(&since)?;
        Ok(false)
    }

    /// Fails if the machine's kernel stopped for good: nobody need wait for it any longer.
    fn check_kernel(&self, log: &str) -> Result<()> {
        match stopped(log) {
            true => Err(Error::Panicked {
                machine: self.name.clone(),
                log: self.serial(),
                tail: end_of(log, PANIC_LINES),
            }),
            false => Ok(()),
        }
    }

    /// As [`VirtualMachine::check_kernel`], from the end of the serial log.
    pub(super) fn check_running_kernel(&self) -> Result<()> {
        match stopped(&tail(&self.serial())) {
            true => self.check_kernel(&plain(&String::from_utf8_lossy(&self.serial_bytes()?))),
            false => Ok(()),
        }
    }

    /// Cuts the power as soon as the machine has written these words to its serial port since a mark.
    ///
    /// # Errors
    /// As [`VirtualMachine::wait_serial`].
    pub async fn power_cut_at(&self, mark: SerialMark, words: &str) -> Result<()> {
        self.wait_serial(mark, words).await?;
        self.power_cut().await
    }

    /// Switches the machine on, and cuts the power as soon as the boot has written these words to the serial port.
    ///
    /// # Errors
    /// As [`VirtualMachine::wait_serial`].
    pub async fn power_cut_in_boot(&self, words: &str) -> Result<()> {
        let mark = self.serial_mark()?;
        self.switch_on().await?;
        self.power_cut_at(mark, words).await
    }
}

/// Whether the log's last line is that of a kernel that stopped for good. After a power cut, the next boot writes more.
fn stopped(log: &str) -> bool {
    log.trim_end().lines().next_back().is_some_and(|line| line.contains(STOPPED))
}

/// The text without the escape sequences that colour it (`ESC [ … letter`).
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

    #[test]
    fn only_a_kernel_that_stopped_for_good_is_given_up() {
        let panic = "[    7.1] Kernel panic - not syncing: Fatal exception in interrupt\n";
        let end = "[    8.4] ---[ end Kernel panic - not syncing: Fatal exception in interrupt ]---\r\n";
        assert!(stopped(&format!("{panic}{end}")));
        // With `panic=1`, it says where it panicked, and reboots.
        assert!(!stopped(&format!("{panic}[    7.2] Rebooting in 1 seconds..\n")));
        // The power was cut, and the next boot has begun.
        assert!(!stopped(&format!("{panic}{end}[    0.0] Linux version 6.12\n")));
        assert!(!stopped(""));
    }
}
