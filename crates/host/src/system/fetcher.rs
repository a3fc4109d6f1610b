//! How many bytes a program that fetches has got so far, where it does not say so itself: `ostree container` prints the size of
//! what is missing and then nothing until the end. It fetches through `skopeo`, which writes all that arrives into a pipe, and
//! the kernel counts what a process writes (proc_pid_io(5)).
//!
//! Not here: what is made of it (see `pull`).

use std::fs;
use std::path::Path;

/// The program that fetches for others.
const FETCHER: &str = "skopeo";

/// The name and the process group of a process, from its `stat` (proc_pid_stat(5)). The name may have brackets and spaces.
fn name_and_group(stat: &str) -> Option<(&str, u32)> {
    let (name, rest) = stat.split_once('(')?.1.rsplit_once(')')?;
    // State, parent, group.
    Some((name, rest.split_whitespace().nth(2)?.parse().ok()?))
}

/// The bytes that a process has written, from its `io`.
fn written(io: &str) -> Option<u64> {
    io.lines().find_map(|line| line.strip_prefix("wchar:"))?.trim().parse().ok()
}

/// The bytes that the fetchers of this process group have passed on. `None`: there is no such process, or the kernel does
/// not report it. Reads `/proc` of this process, which is the host's wherever an agent can start the host's programs.
pub(crate) fn passed_on(group: u32) -> Option<u64> {
    let mut all = None;
    for entry in fs::read_dir("/proc").ok()?.flatten() {
        let is_process =
            entry.file_name().to_str().is_some_and(|name| name.bytes().all(|b| b.is_ascii_digit()));
        // A process may end meanwhile.
        let read = |file: &str| fs::read_to_string(Path::new(&entry.path()).join(file)).unwrap_or_default();
        if is_process && name_and_group(&read("stat")) == Some((FETCHER, group)) {
            all = written(&read("io")).map(|more| all.unwrap_or(0) + more).or(all);
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_is_read_from_its_own_words() {
        for (stat, want) in [
            ("12 (skopeo) S 1 7 7 0 -1 4194560", Some(("skopeo", 7))),
            ("12 (a) b (c) R 1 8 7", Some(("a) b (c", 8))),
            ("12 (skopeo) S 1", None),
            ("", None),
        ] {
            assert_eq!(name_and_group(stat), want, "{stat}");
        }
        assert_eq!(written("rchar: 5\nwchar: 123\nsyscr: 1\n"), Some(123));
        assert_eq!(written("rchar: 5\n"), None);
    }
}
