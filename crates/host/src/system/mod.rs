//! The parts of a host other than its files: systemd, the operating system, programs, users. Each is behind a trait or
//! parsed from text.
//!
//! Not here: what should be changed (see `plan`).

pub(crate) mod dbus;
pub(crate) mod fake_os;
pub(crate) mod fake_systemd;
mod fetcher;
pub(crate) mod os;
pub(crate) mod os_choice;
pub(crate) mod os_release;
mod own_socket;
pub(crate) mod programs;
pub(crate) mod pull;
pub(crate) mod systemd;
pub(crate) mod unit_file;
pub(crate) mod users;
