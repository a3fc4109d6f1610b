//! Kernel arguments with the real GRUB of Debian 12: its own program generates what the machine would boot with, in a
//! root file system of its own.
//!
//! Not here: a machine that boots with it. The boot is simulated by the text of `/proc/cmdline`.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use api::v1::MachineConfigSpec;
use host::{
    BootLoader, Change, DisruptionPolicy, FakeSystemd, Host, HostPrograms, Names, Output, ProgramError,
    Programs, Recovery, Root,
};
use lab::Distribution;

const PACKAGES: [&str; 2] = ["grub2-common", "grub-pc-bin"];
const KERNELS: [&str; 2] = ["6.1.0-1-amd64", "6.1.0-2-amd64"];

/// Runs programs in a root folder that has the computer's devices, as `chroot` on a real host.
#[derive(Clone, Debug)]
struct Inside(PathBuf);

impl Programs for Inside {
    fn run(&mut self, program: &str, args: &[&str], limit: Duration) -> Result<Output, ProgramError> {
        let script = "mount --make-rprivate / && mount --rbind /dev \"$0/dev\" && mount -t proc proc \"$0/proc\" && \
            exec chroot \"$0\" \"$@\"";
        let root = self.0.to_string_lossy();
        let mut all = vec!["-m", "sh", "-c", script, &root, program];
        all.extend(args);
        HostPrograms.run("unshare", &all, limit)
    }
}

struct Machine {
    root: PathBuf,
    host: Host,
    config: MachineConfigSpec,
    _dir: tempfile::TempDir,
}

impl Machine {
    async fn new() -> Self {
        let progress = lab::Reporter::stderr();
        let base = lab::package_root(Distribution::Bookworm, &PACKAGES, &progress).await.unwrap();
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().join("root");
        let copied = Command::new("cp").arg("-a").arg(&base).arg(&root).status().unwrap();
        assert!(copied.success());
        for kernel in KERNELS {
            for file in ["vmlinuz", "initrd.img"] {
                std::fs::write(root.join(format!("boot/{file}-{kernel}")), "not really").unwrap();
            }
        }
        std::fs::create_dir_all(root.join("boot/grub")).unwrap();
        std::fs::create_dir_all(root.join("etc/default/grub.d")).unwrap();
        std::fs::copy(root.join("usr/share/grub/default/grub"), root.join("etc/default/grub")).unwrap();
        Inside(root.clone()).run("/usr/sbin/update-grub", &[], Duration::from_secs(120)).unwrap();
        let at = Root::open(&root).unwrap();
        let os = Box::new(BootLoader::new(at.clone(), Box::new(Inside(root.clone()))));
        let host = Host::new(at.clone(), Box::new(FakeSystemd::new(&at)), os);
        let mut machine = Self { root, host, config: MachineConfigSpec::default(), _dir: dir };
        machine.boot();
        machine
    }

    fn cfg(&self) -> String {
        std::fs::read_to_string(self.root.join("boot/grub/grub.cfg")).unwrap()
    }

    /// The arguments of each entry that boots a kernel, without the path of the kernel, `root=` and `ro`.
    fn entries(&self) -> Vec<String> {
        let cfg = self.cfg();
        let lines = cfg.lines().filter_map(|l| l.trim().strip_prefix("linux\t"));
        lines.map(|l| l.split_whitespace().skip(3).collect::<Vec<_>>().join(" ")).collect()
    }

    /// Boots what GRUB's first entry says.
    fn boot(&mut self) {
        let cfg = self.cfg();
        let line = cfg.lines().find_map(|l| l.trim().strip_prefix("linux\t")).unwrap();
        self.boot_with(line);
    }

    fn boot_with(&mut self, line: &str) {
        std::fs::write(self.root.join("proc/cmdline"), format!("BOOT_IMAGE={line}\n")).unwrap();
        let _ = std::fs::remove_file(self.root.join("run/machine-config-daemon-boot"));
        FakeSystemd::new(self.host.root()).complete_reboot().unwrap();
    }

    /// Applies a config with these arguments, up to the reboot.
    fn apply(&mut self, name: &str, arguments: &[&str]) -> Result<(), String> {
        let to = MachineConfigSpec {
            kernel_arguments: Some(arguments.iter().map(|a| (*a).to_owned()).collect()),
            ..MachineConfigSpec::default()
        };
        let names = Names { current: String::new(), desired: name.to_owned() };
        let change = Change::parse(&self.config, &to, names).unwrap();
        let facts = self.host.inspect(&change).map_err(|e| e.to_string())?;
        let plan = change.plan(&DisruptionPolicy::default(), &facts);
        let plan = plan.map_err(|bad| bad.iter().map(ToString::to_string).collect::<String>())?;
        assert!(self.host.apply(&plan).map_err(|e| e.to_string())?.reboot);
        self.config = to;
        Ok(())
    }

    fn edit(&self, path: &str, from: &str, to: &str) {
        let path: &Path = &self.root.join(path);
        let text = std::fs::read_to_string(path).unwrap();
        assert!(text.contains(from), "{text}");
        std::fs::write(path, text.replace(from, to)).unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn debians_grub_boots_with_the_arguments_of_a_config_and_without_them_again() {
    if !lab::require_root() {
        return;
    }
    let mut machine = Machine::new().await;
    let before = machine.cfg();
    let like = |m: &Machine, want: &str| {
        let got = m.entries();
        assert!(got.len() > KERNELS.len() * 2, "{got:?}");
        for entry in got {
            let wanted = entry.starts_with("single") || entry.starts_with(want);
            assert!(wanted, "{entry:?} is not {want:?}");
            assert!(!entry.starts_with("single") || !entry.contains("nosmt"), "{entry}");
        }
    };
    like(&machine, "quiet");
    machine.apply("one", &["nosmt hugepages=2", "a=1,2"]).unwrap();
    like(&machine, "quiet nosmt hugepages=2 a=1,2");
    machine.boot();
    assert_eq!(machine.host.recover().unwrap(), Recovery::Finished { config: "one".to_owned() });

    // An administrator edits the host's own settings and does not generate anything.
    machine.edit("etc/default/grub", "\"quiet\"", "\"console=ttyS0\"");
    machine.apply("two", &["nosmt=force"]).unwrap();
    like(&machine, "console=ttyS0 nosmt=force");
    machine.boot();
    assert_eq!(machine.host.recover().unwrap(), Recovery::Finished { config: "two".to_owned() });

    // A boot that does not have them: everything is undone, and the config is not tried again.
    machine.apply("three", &["never"]).unwrap();
    machine.boot_with("/boot/vmlinuz root=/dev/vda ro console=ttyS0 nosmt=force");
    let undone = machine.host.recover().unwrap();
    assert!(matches!(&undone, Recovery::RolledBack { why, .. } if why.contains("never")), "{undone:?}");
    like(&machine, "console=ttyS0 nosmt=force");
    machine.config =
        MachineConfigSpec { kernel_arguments: Some(vec!["nosmt=force".to_owned()]), ..Default::default() };

    machine.apply("four", &[]).unwrap();
    machine.edit("etc/default/grub", "\"console=ttyS0\"", "\"quiet\"");
    assert_eq!(machine.cfg().replace("ro  console=ttyS0", "ro  quiet"), before);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_grub_that_fails_or_would_split_an_argument_leaves_what_boots_as_it_is() {
    if !lab::require_root() {
        return;
    }
    let mut machine = Machine::new().await;
    let before = machine.cfg();
    let why = machine.apply("split", &["dyndbg=\"file ec.c +p\""]).unwrap_err();
    assert!(why.contains("spec.kernelArguments") && why.contains("does not reach the kernel"), "{why}");
    machine.edit("etc/default/grub", "GRUB_DEFAULT=0", "GRUB_DEFAULT=0\nfalse || exit 7");
    let why = machine.apply("fails", &["a"]).unwrap_err();
    assert!(why.contains("every change was undone"), "{why}");
    assert_eq!(machine.cfg(), before);
    assert!(!machine.root.join("etc/default/grub.d/zz-machine-config.cfg").exists());
    // What the generated text would be is checked before it is put in place.
    machine.edit("etc/default/grub", "false || exit 7", "");
    std::fs::write(machine.root.join("etc/default/grub.d/zzz.cfg"), "GRUB_CMDLINE_LINUX_DEFAULT=mine\n")
        .unwrap();
    machine.apply("lost", &["a"]).unwrap_err();
    assert_eq!(machine.cfg(), before);
}
