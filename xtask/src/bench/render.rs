//! `bench render`: `mco controller bootstrap` with sixty MachineConfigs, and with a pool of five hundred that are 1 MiB
//! in all; then the controller in a cluster, see [`super::render_cluster`].

use super::{Bench, Figure, Outcome, peak, wall};
use rustix::fs::{IFlags, ioctl_getflags, ioctl_setflags};
use std::fmt::Write;
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

/// A folder in memory (tmpfs).
const MEMORY: &str = "/dev/shm";

/// Asks ext4 to place new files in this folder away from others, as `chattr +T` does (chattr(1)). On a file system without a
/// journal, the kernel checks for each new file all nearby inodes that were freed in the last minutes. After a build this takes
/// up to four fifths of the time, which is not a cost of our program.
fn apart(folder: &Path) -> std::io::Result<()> {
    let folder = fs::File::open(folder)?;
    // Other file systems have no such flag, and no such cost.
    if let Ok(flags) = ioctl_getflags(&folder) {
        let _ = ioctl_setflags(&folder, flags | IFlags::TOPDIR);
    }
    Ok(())
}

pub(super) fn run(root: &Path, a: &Bench) -> anyhow::Result<Outcome> {
    let mut figures = vec![];
    let disk = root.join("target/bench");
    let cases = [("60 MachineConfigs", 60, 2_000), ("500 MachineConfigs, 1 MiB of contents", 500, 2_097)];
    for ((label, count, bytes), place) in
        cases.iter().flat_map(|case| [(case, &*disk), (case, Path::new(MEMORY))])
    {
        let label = if place == disk { (*label).to_owned() } else { format!("{label}, files in memory") };
        let (count, bytes) = (*count, *bytes);
        let work = place.join("render-input");
        let _ = fs::remove_dir_all(&work);
        let manifests = work.join("in");
        fs::create_dir_all(&work)?;
        apart(&work)?;
        fs::create_dir(&manifests)?;
        base_manifests(root, &manifests)?;
        for i in 0..count {
            fs::write(manifests.join(format!("m{i:03}.yaml")), machine_config(i, bytes)?)?;
        }
        let (mut walls, mut peaks) = (vec![], vec![]);
        for run in 0..a.runs {
            let command = |out: &str| -> anyhow::Result<Command> {
                let out = work.join(format!("{out}{run}"));
                fs::create_dir_all(&out)?;
                let mut command = bootstrap(root, &root.join("target/release/mco"), &manifests, &out);
                command.stdout(Stdio::null());
                Ok(command)
            };
            walls.push(wall(&mut command("timed")?)?);
            peaks.push(peak(&mut command("watched")?)?);
        }
        figures.push(Figure::new(format!("{label}: wall"), "ms", walls));
        figures.push(Figure::new(format!("{label}: peak memory"), "MiB", peaks));
        fs::remove_dir_all(&work)?;
    }
    println!("in a cluster …");
    figures.extend(super::render_cluster::run(root)?);
    Ok(Outcome { versions: vec![("Kubernetes".to_owned(), lab::KUBERNETES_VERSION.to_owned())], figures })
}

/// Copies the manifests that every recorded case starts from.
pub(crate) fn base_manifests(root: &Path, to: &Path) -> anyhow::Result<()> {
    for entry in fs::read_dir(root.join("tests/conformance/common/base"))? {
        let entry = entry?;
        fs::copy(entry.path(), to.join(entry.file_name()))?;
    }
    Ok(())
}

/// `mco controller bootstrap` with the recorded cases' templates and pull secret.
pub(crate) fn bootstrap(root: &Path, program: &Path, manifests: &Path, out: &Path) -> Command {
    let common = root.join("tests/conformance/common");
    let mut command = Command::new(program);
    command
        .args(["controller", "bootstrap", "--log", "error", "--manifest-dir"])
        .arg(manifests)
        .arg("--dest-dir")
        .arg(out)
        .arg("--pull-secret")
        .arg(common.join("pull-secret"))
        .arg("--templates")
        .arg(common.join("templates"));
    command
}

fn machine_config(i: usize, bytes: usize) -> anyhow::Result<String> {
    let mut text = String::new();
    write!(
        text,
        "apiVersion: machineconfiguration.openshift.io/v1\nkind: MachineConfig\nmetadata:\n  name: 50-bench-{i:03}\n  \
         labels:\n    machineconfiguration.openshift.io/role: worker\nspec:\n  config:\n    ignition: {{version: 3.4.0}}\n    \
         storage:\n      files:\n      - path: /etc/bench/{i:03}\n        mode: 420\n        contents:\n          source: \
         \"data:,{}\"\n",
        "x".repeat(bytes)
    )?;
    Ok(text)
}
