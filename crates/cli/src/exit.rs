//! Exit codes: part of the interface, for scripts and CI.

/// Done.
pub const OK: u8 = 0;
/// It failed; the message is on standard error.
pub const FAILED: u8 = 1;
/// The command line was wrong.
pub const USAGE: u8 = 2;
/// What was asked about is so, and the caller asked to be told by the exit code: `status` with a pool that is
/// degraded, `lint` with findings.
pub const FINDINGS: u8 = 3;
/// The time that the caller gave is over.
pub const TIMEOUT: u8 = 4;
