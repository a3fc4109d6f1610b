//! The serial port of a virtual machine: what the machine has written there since a mark, waiting for words, and power cuts at
//! the moment at which they appear.
//!
//! Not here: how a machine is started and stopped (`vm`).

use std::time::{Duration, Instant};

use crate::error::{Error, Result};
use crate::system::process::tail;
use crate::vm::VirtualMachine;

/// The pause between two checks of the serial log.
const LOOK: Duration = Duration::from_millis(10);

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
    /// It does not within the time limit for a boot.
    pub async fn wait_serial(&self, mark: SerialMark, words: &str) -> Result<()> {
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
}
