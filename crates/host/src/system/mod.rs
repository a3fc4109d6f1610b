//! What a host has beside its files: systemd, the operating system, programs, users; each behind a trait or read from
//! texts.
//!
//! What it is not: what is to become of them (see `plan`).

pub(crate) mod dbus;
pub(crate) mod fake_os;
pub(crate) mod fake_systemd;
pub(crate) mod os;
pub(crate) mod programs;
pub(crate) mod systemd;
pub(crate) mod unit_file;
pub(crate) mod users;
