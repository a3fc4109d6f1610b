//! A process that ends at any instruction of a change of kernel arguments leaves the old boot configuration or the new one:
//! with boot loader entries, and with GRUB, whose program is a fake.
//!
//! Not here: the real GRUB (`crates/lab/tests/node/boot_loader.rs`), and power cuts of a machine.

use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use api::v1::MachineConfigSpec;
use host::fault::{Fault, Faults, Point};
use host::{
    BootLoader, FakeSystemd, Host, HostPlan, Options, Output, ProgramError, Programs, Recovery, Root,
};

use crate::common::{BySpec as _, is_root, mk_host_tree, plan, tree};
use crate::prepared::{SKIP, copy, names, policy};

/// Ends the process at the point with this number, and counts the points.
#[derive(Debug)]
struct Kill {
    at: usize,
    seen: AtomicUsize,
}

impl Faults for Kill {
    fn at(&self, _: Point<'_>) -> Result<(), Fault> {
        match self.seen.fetch_add(1, Ordering::Relaxed) >= self.at {
            true => Err(Fault::Killed),
            false => Ok(()),
        }
    }
}

/// A fake grub-mkconfig: one entry with the host's arguments and those of the drop-in.
#[derive(Clone, Debug)]
struct FakeGrub(PathBuf);

impl Programs for FakeGrub {
    fn run(&mut self, program: &str, args: &[&str], _: Duration) -> Result<Output, ProgramError> {
        assert_eq!((program, args.first()), ("/usr/sbin/grub-mkconfig", Some(&"-o")));
        let dropin = self.0.join("etc/default/grub.d/zz-machine-config.cfg");
        let own = std::fs::read_to_string(dropin).unwrap_or_default();
        let own = own.split_once("DEFAULT \"").or(own.split_once("_DEFAULT ")).map_or("", |(_, own)| own);
        let text = format!(
            "### BEGIN /etc/grub.d/10_linux ###\nmenuentry 'Debian' {{\n\tlinux /vmlinuz root=1 ro {}\n}}\n",
            own.trim_end().trim_end_matches('"')
        );
        std::fs::write(self.0.join(args[1].trim_start_matches('/')), text).unwrap();
        Ok(Output { text: String::new() })
    }
}

/// A boot partition that can be mounted read-only.
#[derive(Debug, Default)]
struct BootPartition(AtomicBool);

impl Faults for BootPartition {
    fn at(&self, point: Point<'_>) -> Result<(), Fault> {
        match self.0.load(Ordering::Relaxed) && point.before && point.on.starts_with("/efi/") {
            true => Err(Fault::Fail(ErrorKind::ReadOnlyFilesystem.into())),
            false => Ok(()),
        }
    }
}

const ID: &str = "0123456789abcdef0123456789abcdef";

fn put(at: &Path, path: &str, text: &str) {
    let path = at.join(path);
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::fs::write(path, text).unwrap();
}

fn with_entries(at: &Path) {
    put(at, "etc/machine-id", ID);
    put(at, "etc/kernel/cmdline", "root=1 ro\n");
    for version in ["6.1", "6.2"] {
        let text = format!("title x\nversion {version}\nmachine-id {ID}\noptions root=1 ro\nlinux /l\n");
        put(at, &format!("efi/loader/entries/{ID}-{version}.conf"), &text);
    }
}

/// systemd-boot counts boots.
fn with_counting(at: &Path) {
    with_entries(at);
    let features = "sys/firmware/efi/efivars/LoaderFeatures-4a67b082-0a4c-41cf-b6c7-440b29bb8c4f";
    put(at, features, "\u{6}\0\0\0\u{4}\0\0\0\0\0\0\0");
}

fn with_grub(at: &Path) {
    put(at, "boot/grub/grub.cfg", "menuentry 'Debian' {\n\tlinux /vmlinuz root=1 ro\n}\n");
    put(at, "usr/sbin/grub-mkconfig", "/etc/default/grub.d/*.cfg\n");
    put(at, "etc/default/grub", "GRUB_TIMEOUT=1\n");
}

fn mk_host(at: &Path, faults: Arc<dyn Faults>) -> Host {
    let root = Root::open_with(at, Options { sync: false, owners: true }, faults).unwrap();
    let os = BootLoader::new(root.clone(), Box::new(FakeGrub(at.to_owned())));
    Host::new(root.clone(), Box::new(FakeSystemd::new(&root)), Box::new(os))
}

fn counting(at: usize) -> Arc<Kill> {
    Arc::new(Kill { at, seen: AtomicUsize::new(0) })
}

/// Boots with these arguments.
fn boot(at: &Path, own: &str) {
    put(at, "proc/cmdline", &format!("BOOT_IMAGE=/vmlinuz root=1 ro {own}\n"));
    let _ = std::fs::remove_file(at.join("run/machine-config-daemon-boot"));
    FakeSystemd::new(&Root::open(at).unwrap()).complete_reboot().unwrap();
}

fn config(own: &str, text: &str) -> MachineConfigSpec {
    let file = serde_json::json!({
        "ignition": {"version": "3.4.0"},
        "storage": {"files": [{"path": "/etc/motd", "overwrite": true, "contents": {"source": format!("data:,{text}")}}]},
    });
    MachineConfigSpec {
        config: Some(file),
        kernel_arguments: Some(own.split(' ').map(str::to_owned).collect()),
        ..MachineConfigSpec::default()
    }
}

type Tree = BTreeMap<String, String>;

fn state(at: &Path) -> Tree {
    let mut all = tree(at, &["/"], &[&SKIP[..], &["/proc"]].concat());
    // The agent's own record of the arguments is part of what boots next.
    let record = at.join("var/lib/machine-config-daemon/kernel-arguments.json");
    all.insert("record".to_owned(), std::fs::read_to_string(record).unwrap_or_default());
    all
}

/// Ends the process at a point of the change, then at one of the recovery, and recovers. Returns how many points the
/// recovery had.
fn kill(base: &Path, plan: &HostPlan, ends: (&Tree, &Tree), at: usize, again: Option<usize>) -> usize {
    let about = format!("killed at {at}, then at {again:?}");
    let dir = copy(base);
    let error = mk_host(dir.path(), counting(at)).apply(plan).unwrap_err();
    assert!(error.killed(), "{about}: {error}");
    if let Some(again) = again {
        let error = mk_host(dir.path(), counting(again)).recover().unwrap_err();
        assert!(error.killed(), "{about}: {error}");
    }
    let faults = counting(usize::MAX);
    let recovery = mk_host(dir.path(), faults.clone()).recover().unwrap_or_else(|e| panic!("{about}: {e}"));
    let now = state(dir.path());
    let want = match recovery {
        Recovery::AwaitsReturn { .. }
        | Recovery::AwaitsBoot { .. }
        | Recovery::OnTrial { .. }
        | Recovery::Finished { .. } => ends.1,
        Recovery::Undone { .. } | Recovery::RolledBack { .. } | Recovery::Nothing => ends.0,
    };
    assert_eq!(&now, want, "{about}: {recovery:?}");
    faults.seen.load(Ordering::Relaxed)
}

#[test]
fn a_kill_at_any_point_of_a_kernel_argument_change_leaves_the_old_state_or_the_new() {
    if !is_root() {
        return;
    }
    let mut kills = 0;
    for prepare in [with_entries, with_counting, with_grub] {
        let base = mk_host_tree();
        let at = base.path();
        prepare(at);
        boot(at, "");
        let (none, old, new) = (MachineConfigSpec::default(), config("a", "old"), config("b c=1", "new"));
        let mut host = mk_host(at, counting(usize::MAX));
        let facts = host.probe(&none, &old).unwrap();
        host.apply(&plan(&none, &old, &names("", "old"), &policy(), &facts).unwrap()).unwrap();
        boot(at, "a");
        assert_eq!(host.recover().unwrap(), Recovery::Finished { config: "old".to_owned() });
        let facts = host.probe(&old, &new).unwrap();
        let plan = plan(&old, &new, &names("old", "new"), &policy(), &facts).unwrap();
        let before = state(at);
        let end = copy(at);
        let faults = counting(usize::MAX);
        mk_host(end.path(), faults.clone()).apply(&plan).unwrap();
        let after = state(end.path());
        assert_ne!(before, after);
        let points = faults.seen.load(Ordering::Relaxed);
        for point in (0..points).step_by(3) {
            let passed = kill(at, &plan, (&before, &after), point, None);
            kills += 1;
            for again in (0..passed).skip(point % 23).step_by(23) {
                kill(at, &plan, (&before, &after), point, Some(again));
                kills += 1;
            }
        }
        // The machine boots with the old arguments: everything is undone, whenever the process ends meanwhile.
        boot(end.path(), "a");
        for point in (0..).step_by(11) {
            let dir = copy(end.path());
            let ended = mk_host(dir.path(), counting(point)).recover();
            if ended.is_ok() {
                break;
            }
            mk_host(dir.path(), counting(usize::MAX)).recover().unwrap();
            assert_eq!(state(dir.path()), before, "after the boot, killed at {point}");
            kills += 1;
        }
    }
    println!("{kills} kills");
    assert!(kills > 80, "{kills}");
}

#[test]
fn an_entry_that_stays_counted_on_a_read_only_boot_partition_is_told_and_ended_when_it_is_writable() {
    if !is_root() {
        return;
    }
    let base = mk_host_tree();
    let at = base.path();
    with_counting(at);
    boot(at, "");
    let (none, new) = (MachineConfigSpec::default(), config("a", "new"));
    let partition = Arc::new(BootPartition::default());
    let mut host = mk_host(at, partition.clone());
    let facts = host.probe(&none, &new).unwrap();
    host.apply(&plan(&none, &new, &names("", "new"), &policy(), &facts).unwrap()).unwrap();
    // systemd-boot uses a try, and the partition is mounted read-only after that.
    let entries = at.join("efi/loader/entries");
    for version in ["6.1", "6.2"] {
        let name = |end: &str| entries.join(format!("{ID}-{version}{end}.conf"));
        std::fs::rename(name("+2"), name("+1-1")).unwrap();
    }
    boot(at, "a");
    partition.0.store(true, Ordering::Relaxed);
    let finished = host.recover().unwrap();
    assert_eq!(finished, Recovery::Finished { config: "new".to_owned() }, "the update has proved to be good");
    host.reboot_done().unwrap();
    for _ in 0..2 {
        let told: Vec<String> = host.drifts(&new).unwrap().iter().map(ToString::to_string).collect();
        let text = told.join("\n");
        assert_eq!(told.len(), 1, "{text}");
        for said in ["spec.kernelArguments", "+1-1.conf", "still counts the boots", "read-only filesystem"] {
            assert!(text.to_lowercase().contains(&said.to_lowercase()), "{said}: {text}");
        }
    }
    partition.0.store(false, Ordering::Relaxed);
    assert_eq!(host.drifts(&new).unwrap(), []);
    let mut left: Vec<_> =
        std::fs::read_dir(&entries).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
    left.sort();
    assert_eq!(left, ["6.1", "6.2"].map(|version| format!("{ID}-{version}.conf")));
}
