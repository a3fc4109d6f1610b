//! The units that go on with a trial at boot: the agent installs them where a host does not have them, because without them
//! nothing undoes a change that keeps the agent itself from running.
//!
//! Not here: what they do (see `entry::start::recover` and `entry::trial`), nor when (see `Machine::apply`).
//!
//! Sources: systemd.unit(5), systemd.service(5).

use std::path::Path;

/// The program that the units start.
pub(crate) const PROGRAM: &str = "/usr/local/bin/mco";
/// The units, as packages bring them.
const UNITS: [(&str, &str); 2] = [
    (
        "machine-config-daemon-recover.service",
        include_str!("../../../../deploy/systemd/machine-config-daemon-recover.service"),
    ),
    (
        "machine-config-daemon-emergency.service",
        include_str!("../../../../deploy/systemd/machine-config-daemon-emergency.service"),
    ),
];

/// The units with their texts. They start the program from where this process runs it, if it is there after a boot.
pub(crate) fn boot_units() -> Vec<(&'static str, String)> {
    let own = std::env::current_exe().ok().and_then(|path| path.to_str().map(str::to_owned));
    let lasts = |path: &str| path.starts_with("/usr/") && Path::new(path).exists();
    let program = own.filter(|path| lasts(path)).unwrap_or_else(|| PROGRAM.to_owned());
    UNITS.iter().map(|(unit, text)| (*unit, text.replace(PROGRAM, &program))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_units_start_a_program_that_is_there_after_a_boot() {
        for (unit, text) in boot_units() {
            assert!(text.contains("ExecStart=/usr/local/bin/mco daemon "), "{unit}: {text}");
            assert!(text.contains("[Install]\nWantedBy="), "{unit}: {text}");
        }
    }
}
