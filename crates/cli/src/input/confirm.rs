//! A question that is answered with yes or no.

use std::io::{BufRead as _, IsTerminal as _, Write as _};

/// Asks for a confirmation; `None`: standard input is no terminal.
///
/// # Errors
/// The terminal cannot be written or read.
pub(crate) fn confirm(question: &str) -> std::io::Result<Option<bool>> {
    if !std::io::stdin().is_terminal() {
        return Ok(None);
    }
    eprint!("{question} [y/N] ");
    std::io::stderr().flush()?;
    let mut answer = String::new();
    std::io::stdin().lock().read_line(&mut answer)?;
    Ok(Some(matches!(answer.trim(), "y" | "Y" | "yes")))
}
