//! A control group for each node, in every hierarchy, so that the systemds and kubelets of several nodes never share a
//! group.
//!
//! Not here: limits. A node may use everything that this computer has.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crate::error::{Error, Result};

/// A node's group in every hierarchy. Dropping it removes the groups, which must be empty by then.
#[derive(Debug)]
pub(crate) struct NodeGroup {
    dirs: Vec<PathBuf>,
}

impl NodeGroup {
    /// Creates the groups below those of this process.
    pub(crate) fn create(name: &str) -> Result<Self> {
        let read = |path: &str| fs::read_to_string(path).map_err(Error::io("read", path));
        let parents = own_groups(&read("/proc/self/cgroup")?, &read("/proc/self/mountinfo")?);
        let mut group = Self { dirs: Vec::new() };
        for parent in parents {
            let dir = parent.join(name);
            match fs::create_dir(&dir) {
                Ok(()) => {}
                Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {}
                Err(error) => {
                    tracing::debug!(dir = %dir.display(), %error, "no control group here");
                    continue;
                }
            }
            // A cpuset without CPUs accepts no process.
            for file in ["cpuset.cpus", "cpuset.mems"] {
                if let Ok(value) = fs::read_to_string(parent.join(file)) {
                    let _v2_inherits = fs::write(dir.join(file), value);
                }
            }
            group.dirs.push(dir);
        }
        Ok(group)
    }

    /// The files to which a process writes its id to join the groups.
    pub(crate) fn entries(&self) -> impl Iterator<Item = PathBuf> {
        self.dirs.iter().map(|dir| dir.join("cgroup.procs"))
    }

    /// The groups' folders, for the lab's record.
    pub(crate) fn dirs(&self) -> &[PathBuf] {
        &self.dirs
    }
}

impl Drop for NodeGroup {
    fn drop(&mut self) {
        for dir in &self.dirs {
            remove(dir);
        }
    }
}

/// How long the last process of a group may take to leave it.
const LAST_TASK: Duration = Duration::from_secs(10);

/// Removes a group and all groups below it, from the leaves up.
pub(crate) fn remove(dir: &Path) {
    if let Ok(entries) = fs::read_dir(dir) {
        for entry in entries.flatten() {
            if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                remove(&entry.path());
            }
        }
    }
    let end = Instant::now() + LAST_TASK;
    while let Err(error) = fs::remove_dir(dir) {
        // A process that has exited may still be releasing its mounts.
        if error.kind() == std::io::ErrorKind::ResourceBusy && Instant::now() < end {
            std::thread::sleep(Duration::from_millis(20));
            continue;
        }
        if error.kind() != std::io::ErrorKind::NotFound {
            tracing::debug!(dir = %dir.display(), %error, "control group not removed");
        }
        break;
    }
}

/// The folders of the groups that this process is in, one for each mounted hierarchy.
fn own_groups(cgroup: &str, mountinfo: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for line in cgroup.lines() {
        let mut fields = line.splitn(3, ':');
        let (Some(number), Some(controllers), Some(path)) = (fields.next(), fields.next(), fields.next())
        else {
            continue;
        };
        for mount in mountinfo.lines() {
            let Some((place, kind)) = mount.split_once(" - ") else { continue };
            let place: Vec<&str> = place.split(' ').collect();
            let mut kind = kind.split(' ');
            let (kind, options) = (kind.next().unwrap_or_default(), kind.nth(1).unwrap_or_default());
            let matches = if number == "0" {
                kind == "cgroup2"
            } else {
                kind == "cgroup"
                    && controllers.split(',').all(|name| options.split(',').any(|option| option == name))
            };
            let (Some(root), Some(point), true) = (place.get(3), place.get(4), matches) else { continue };
            let below = path.strip_prefix(root.trim_end_matches('/')).unwrap_or(path);
            found.push(Path::new(point).join(below.trim_start_matches('/')));
            break;
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_are_found_in_old_new_and_mixed_hierarchies() {
        let old = "32 25 0:28 / /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct\n\
                   33 25 0:29 / /sys/fs/cgroup/systemd rw - cgroup cgroup rw,xattr,name=systemd\n\
                   34 25 0:30 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw";
        let cases = [
            ("4:cpu,cpuacct:/a", old, vec!["/sys/fs/cgroup/cpu,cpuacct/a"]),
            ("1:name=systemd:/", old, vec!["/sys/fs/cgroup/systemd"]),
            ("0::/", old, vec!["/sys/fs/cgroup/unified"]),
            (
                "0::/user.slice/x.scope",
                "30 1 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw",
                vec!["/sys/fs/cgroup/user.slice/x.scope"],
            ),
            (
                "0::/box/me",
                "30 1 0:26 /box /sys/fs/cgroup rw - cgroup2 cgroup2 rw",
                vec!["/sys/fs/cgroup/me"],
            ),
            ("7:pids:/x", old, vec![]),
        ];
        for (cgroup, mountinfo, want) in cases {
            let got = own_groups(cgroup, mountinfo);
            assert_eq!(got, want.iter().map(PathBuf::from).collect::<Vec<_>>(), "{cgroup}");
        }
    }
}
