//! Exit codes: part of the interface, for scripts and CI.

/// Done.
pub const OK: u8 = 0;
/// It failed; the message is on standard error.
pub const FAILED: u8 = 1;
/// The command line was wrong.
pub const USAGE: u8 = 2;
/// It worked, and found something that the exit code reports: `lint` with findings, `render --exit-code` with a difference,
/// `status` with a pool that is degraded or cannot get to its config, `plan` with a change that costs too much, an `undo`
/// that no host can apply.
pub const FINDINGS: u8 = 3;
/// The caller's time limit ended first.
pub const TIMEOUT: u8 = 4;
