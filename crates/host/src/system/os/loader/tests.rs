//! The back end on folders that look like hosts, with a fake for GRUB's program. The real one runs in
//! `tests/boot_loader`.

mod boot_counting;

use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use super::*;
use crate::disk::root::Options;
use crate::system::programs::{Output, ProgramError};

/// A fake grub-mkconfig: writes a configuration from what the settings set, as the real one does. Its shell is
/// this process: it knows assignments of `GRUB_CMDLINE_LINUX_DEFAULT` only.
#[derive(Clone, Debug)]
struct FakeGrub {
    root: Root,
    /// How often it ran.
    runs: Arc<Mutex<usize>>,
    /// It fails, having written half.
    fails: Arc<Mutex<bool>>,
}

impl Programs for FakeGrub {
    fn run(&mut self, program: &str, args: &[&str], _: Duration) -> Result<Output, ProgramError> {
        assert_eq!((program, args), ("/usr/sbin/grub-mkconfig", &["-o", GENERATED_GRUB][..]));
        *self.runs.lock().unwrap() += 1;
        let mut value = String::new();
        let mut paths = vec!["/etc/default/grub".to_owned()];
        let dropins = self.root.list("/etc/default/grub.d").unwrap();
        paths.extend(dropins.into_iter().map(|n| format!("/etc/default/grub.d/{n}")));
        for path in paths {
            for line in self.root.text(&path).unwrap().unwrap_or_default().lines() {
                if let Some(set) = line.strip_prefix("GRUB_CMDLINE_LINUX_DEFAULT=") {
                    value = set.trim_matches('"').replace("$GRUB_CMDLINE_LINUX_DEFAULT", &value);
                }
            }
        }
        let half = "### BEGIN /etc/grub.d/10_linux ###\n";
        let whole = format!(
            "{half}set default=\"0\"\nmenuentry 'Debian' --id 'simple' {{\n\tlinux /vmlinuz root=UUID=1 ro  {value}\n}}\n\
             menuentry 'Debian (recovery mode)' --id 'x-recovery-y' {{\n\tlinux /vmlinuz root=UUID=1 ro single\n}}\n"
        );
        let fails = *self.fails.lock().unwrap();
        let text = if fails { half } else { &whole };
        self.root.write_bytes(GENERATED_GRUB, text.as_bytes(), PRIVATE).unwrap();
        match fails {
            false => Ok(Output { text: String::new() }),
            true => Err(ProgramError {
                program: program.to_owned(),
                why: "exit status: 1: no such disk".to_owned(),
            }),
        }
    }
}

struct Rig {
    dir: tempfile::TempDir,
    os: BootLoader,
    grub: FakeGrub,
}

fn words(text: &str) -> Vec<String> {
    arguments(&[text.to_owned()])
}

impl Rig {
    fn new(files: &[(&str, &str)]) -> Self {
        let dir = tempfile::tempdir().unwrap();
        for (path, text) in files {
            write(dir.path(), path, text);
        }
        let owners = rustix::process::geteuid().is_root();
        let root =
            Root::open_with(dir.path(), Options { sync: false, owners }, Arc::new(crate::fault::NoFaults))
                .unwrap();
        let grub = FakeGrub { root: root.clone(), runs: Arc::default(), fails: Arc::default() };
        let os = BootLoader::new(root, Box::new(grub.clone()));
        Self { dir, os, grub }
    }

    fn text(&self, path: &str) -> String {
        std::fs::read_to_string(self.dir.path().join(path.trim_start_matches('/'))).unwrap_or_default()
    }

    fn next(&mut self) -> String {
        self.os.status().unwrap().next().kernel_arguments.join(" ")
    }

    /// Stages these own arguments after the host's.
    fn stage(&mut self, own: &str) -> Result<(), OsError> {
        let target = self.target(own);
        self.os.stage(&target)
    }

    /// What has these own arguments after the host's.
    fn target(&mut self, own: &str) -> Deployment {
        let had = self.os.argument_rules().unwrap().own.unwrap();
        let mut target = self.os.status().unwrap().next().clone();
        target.kernel_arguments = without(&target.kernel_arguments, &had);
        target.kernel_arguments.extend(words(own));
        target
    }
}

fn write(root: &Path, path: &str, text: &str) {
    let path = root.join(path.trim_start_matches('/'));
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::fs::write(path, text).unwrap();
}

const GRUB: [(&str, &str); 5] = [
    ("/boot/grub/grub.cfg", "menuentry 'Debian' {\n\tlinux /vmlinuz root=UUID=1 ro  quiet\n}\n"),
    ("/usr/sbin/grub-mkconfig", "for x in ${sysconfdir}/default/grub.d/*.cfg ; do\n"),
    ("/usr/sbin/update-grub", "#!/bin/sh\nset -e\nexec grub-mkconfig -o /boot/grub/grub.cfg \"$@\"\n"),
    ("/etc/default/grub", "GRUB_CMDLINE_LINUX_DEFAULT=\"quiet\"\n"),
    ("/proc/cmdline", "BOOT_IMAGE=/vmlinuz root=UUID=1 ro quiet\n"),
];

#[test]
fn grub_gets_own_arguments_after_those_of_the_host_and_gives_them_back() {
    let mut rig = Rig::new(&GRUB);
    assert_eq!(BootLoader::detect(&rig.os.root), Ok("GRUB"));
    assert_eq!(rig.next(), "root=UUID=1 ro quiet");
    assert_eq!(rig.os.status().unwrap().staged, None, "what runs is what boots");
    let before = rig.os.mark().unwrap();
    rig.stage("a b=1").unwrap();
    assert_eq!(rig.next(), "root=UUID=1 ro quiet a b=1");
    assert_eq!(rig.os.argument_rules().unwrap().own, Some(words("a b=1")));
    let (staged, runs) = (rig.os.status().unwrap().next().clone(), *rig.grub.runs.lock().unwrap());
    rig.os.stage(&staged).unwrap();
    assert_eq!(*rig.grub.runs.lock().unwrap(), runs, "a second time nothing is left to do");
    assert_eq!(rig.text("/etc/default/grub"), GRUB[3].1, "the host's own settings stay");
    assert!(!rig.text("/boot/grub/grub.cfg").contains("single a"), "a recovery entry stays as it is");
    // A hand-edited file of the host in between counts at the next change.
    write(rig.dir.path(), "/etc/default/grub", "GRUB_CMDLINE_LINUX_DEFAULT=\"console=ttyS0\"\n");
    rig.stage("b=2").unwrap();
    assert_eq!(rig.next(), "root=UUID=1 ro console=ttyS0 b=2");
    rig.stage("").unwrap();
    assert_eq!(rig.next(), "root=UUID=1 ro console=ttyS0");
    assert!(!rig.dir.path().join("etc/default/grub.d/zz-machine-config.cfg").exists());
    assert!(!rig.dir.path().join(GENERATED_GRUB.trim_start_matches('/')).exists());
    assert_ne!(rig.os.mark().unwrap(), before);
}

#[test]
fn undo_puts_back_what_was_written_and_generates_only_if_it_must() {
    for crash_after_settings in [false, true] {
        let mut rig = Rig::new(&GRUB);
        rig.stage("a").unwrap();
        let before = rig.os.mark().unwrap();
        let runs = || *rig.grub.runs.lock().unwrap();
        assert_eq!(runs(), 1);
        match crash_after_settings {
            true => write(
                rig.dir.path(),
                "/etc/default/grub.d/zz-machine-config.cfg",
                &grub::settings(&words("b")),
            ),
            false => rig.stage("b").unwrap(),
        }
        assert_ne!(rig.os.mark().unwrap(), before);
        rig.os.undo(&before).unwrap();
        assert_eq!(rig.os.mark().unwrap(), before);
        assert_eq!(rig.next(), "root=UUID=1 ro quiet a");
        assert_eq!(*rig.grub.runs.lock().unwrap(), if crash_after_settings { 1 } else { 3 });
        rig.os.undo(&before).unwrap();
    }
}

#[test]
fn a_program_that_fails_or_loses_arguments_changes_nothing_that_boots() {
    let mut rig = Rig::new(&GRUB);
    let before = rig.os.mark().unwrap();
    *rig.grub.fails.lock().unwrap() = true;
    let error = rig.stage("a").unwrap_err().to_string();
    assert!(error.contains("no such disk") && error.contains("by hand"), "{error}");
    assert_eq!(rig.text("/boot/grub/grub.cfg"), GRUB[0].1);
    // The undo does not need the program.
    rig.os.undo(&before).unwrap();
    assert_eq!(rig.os.mark().unwrap(), before);
    *rig.grub.fails.lock().unwrap() = false;
    write(rig.dir.path(), "/etc/default/grub.d/zzz.cfg", "GRUB_CMDLINE_LINUX_DEFAULT=\"mine\"\n");
    let error = rig.stage("token=hush").unwrap_err().to_string();
    assert!(error.contains("does not contain the kernel argument") && !error.contains("hush"), "{error}");
    assert_eq!(rig.text("/boot/grub/grub.cfg"), GRUB[0].1);
}

#[test]
fn without_a_folder_of_dropins_the_settings_get_a_block() {
    let mut files = GRUB;
    files[1].1 = "test -f /etc/default/grub && . /etc/default/grub\n";
    let mut rig = Rig::new(&files);
    rig.stage("a").unwrap();
    assert!(rig.text("/etc/default/grub").starts_with(GRUB[3].1), "{}", rig.text("/etc/default/grub"));
    assert_eq!(rig.next(), "root=UUID=1 ro quiet a");
    rig.stage("").unwrap();
    assert_eq!(rig.text("/etc/default/grub"), GRUB[3].1);
}

const ID: &str = "0123456789abcdef0123456789abcdef";
const OLD: &str = "title Debian\nversion 6.1\nmachine-id 0123456789abcdef0123456789abcdef\n\
    options root=UUID=1 ro quiet systemd.machine_id=0123456789abcdef0123456789abcdef\nlinux /l/6.1/linux\n";

fn entry(version: &str) -> (String, String) {
    (format!("/efi/loader/entries/{ID}-{version}.conf"), OLD.replace("6.1", version))
}

#[test]
fn entries_of_this_host_and_of_later_kernels_get_them() {
    let (one, two) = (entry("6.1"), entry("6.2"));
    let other = "title Other\nmachine-id ffff\nlinux /o/linux\noptions root=/dev/sdb1\n";
    let rescue = format!("/efi/loader/entries/{ID}-0-rescue.conf");
    let mut rig = Rig::new(&[
        ("/etc/machine-id", &format!("{ID}\n")),
        ("/proc/sys/kernel/osrelease", "6.1\n"),
        ("/proc/cmdline", &format!("initrd=\\l\\initrd root=UUID=1 ro quiet systemd.machine_id={ID}\n")),
        ("/etc/kernel/cmdline", "root=UUID=1 ro\nquiet\n"),
        (&one.0, &one.1),
        (&two.0, &two.1),
        ("/efi/loader/entries/other.conf", other),
        (&rescue, &one.1),
    ]);
    assert_eq!(BootLoader::detect(&rig.os.root), Ok("systemd-boot"));
    let host = format!("root=UUID=1 ro quiet systemd.machine_id={ID}");
    assert_eq!(rig.next(), host);
    assert_eq!(rig.os.status().unwrap().staged, None);
    let before = rig.os.mark().unwrap();
    rig.stage("a quiet").unwrap();
    assert_eq!(rig.next(), format!("{host} a quiet"));
    for path in [&one.0, &two.0] {
        assert!(rig.text(path).contains(" a quiet\nlinux"), "{}", rig.text(path));
    }
    assert_eq!(rig.text("/etc/kernel/cmdline"), "root=UUID=1 ro\nquiet a quiet\n");
    assert_eq!(
        (rig.text("/efi/loader/entries/other.conf").as_str(), rig.text(&rescue)),
        (other, one.1.clone())
    );
    // A kernel that is installed meanwhile takes the command line as it is then, and is cleaned by the undo.
    let three = entry("6.3");
    write(rig.dir.path(), &three.0, &three.1.replace("quiet", "quiet a quiet"));
    std::fs::remove_file(rig.dir.path().join(two.0.trim_start_matches('/'))).unwrap();
    rig.os.undo(&before).unwrap();
    assert_eq!(rig.text(&one.0), one.1);
    assert_eq!(rig.text(&three.0), three.1);
    assert_eq!(rig.text(&two.0), "", "a kernel that was removed stays away");
    assert_eq!(rig.text("/etc/kernel/cmdline"), "root=UUID=1 ro\nquiet\n");
    assert_eq!(rig.os.argument_rules().unwrap().own, Some(Vec::new()));
}

#[test]
fn a_crash_between_two_entries_is_undone() {
    let (one, two) = (entry("6.1"), entry("6.2"));
    let mut rig = Rig::new(&[
        ("/etc/machine-id", ID),
        ("/proc/cmdline", "ro"),
        ("/proc/sys/kernel/osrelease", "6.1"),
        (&one.0, &one.1),
        (&two.0, &two.1),
    ]);
    rig.stage("a").unwrap();
    let before = rig.os.mark().unwrap();
    let texts = (rig.text(&one.0), rig.text(&two.0));
    rig.stage("b").unwrap();
    // The crash came before the second entry was written.
    write(rig.dir.path(), &two.0, &texts.1);
    rig.os.undo(&before).unwrap();
    assert_eq!((rig.text(&one.0), rig.text(&two.0)), texts);
    assert_eq!(rig.os.mark().unwrap(), before);
}

#[test]
fn a_raspberry_pi_has_one_line() {
    let pi = [
        ("/proc/device-tree/model", "Raspberry Pi 4 Model B Rev 1.4\0"),
        ("/boot/firmware/config.txt", "[all]\narm_64bit=1\n"),
        ("/boot/firmware/cmdline.txt", "console=tty1 root=PARTUUID=1 rootwait\n"),
        ("/proc/cmdline", "coherent_pool=1M console=tty1 root=PARTUUID=1 rootwait\n"),
    ];
    let mut rig = Rig::new(&pi);
    assert_eq!(BootLoader::detect(&rig.os.root), Ok("Raspberry Pi firmware"));
    rig.stage("cgroup_enable=memory dyndbg=\"file a +p\"").unwrap();
    let want = "console=tty1 root=PARTUUID=1 rootwait cgroup_enable=memory dyndbg=\"file a +p\"\n";
    assert_eq!(rig.text("/boot/firmware/cmdline.txt"), want);
    rig.stage("").unwrap();
    assert_eq!(rig.text("/boot/firmware/cmdline.txt"), pi[2].1);
    write(rig.dir.path(), "/boot/firmware/config.txt", "os_prefix=current/\n");
    let why = BootLoader::detect(&rig.os.root).unwrap_err();
    assert!(why.contains("os_prefix=current/"), "{why}");
}

/// A variable of the firmware with this text.
fn variable(text: &str) -> String {
    let units = text.encode_utf16().chain([0]).flat_map(u16::to_le_bytes);
    String::from_utf8([6, 0, 0, 0].into_iter().chain(units).collect()).unwrap()
}

#[test]
fn hosts_that_are_not_understood_are_refused_with_the_reason() {
    let info = "/sys/firmware/efi/efivars/LoaderInfo-4a67b082-0a4c-41cf-b6c7-440b29bb8c4f";
    let chosen = "/sys/firmware/efi/efivars/LoaderEntrySelected-4a67b082-0a4c-41cf-b6c7-440b29bb8c4f";
    let mut own_update = GRUB.to_vec();
    own_update[2].1 = "#!/bin/sh\nproxmox-boot-tool refresh\n";
    let mut no_program = GRUB.to_vec();
    no_program.remove(1);
    let (boot, uki) = (variable("systemd-boot 252.1"), variable("debian-6.1.efi"));
    for (about, files, want) in [
        ("nothing", vec![], "no boot loader was found"),
        (
            "a container",
            [&GRUB[..], &[("/run/systemd/container", "systemd-nspawn")]].concat(),
            "is a container",
        ),
        ("OSTree", [&GRUB[..], &[("/run/ostree-booted", "")]].concat(), "OSTree manages"),
        ("another update-grub", own_update, "is not the distribution's own"),
        ("no grub-mkconfig", no_program, "grub-mkconfig) does not"),
        ("a UKI", vec![(info, boot.as_str()), (chosen, uki.as_str())], "unified kernel image debian-6.1.efi"),
        (
            "a UKI by its file",
            vec![("/efi/EFI/Linux/a.efi", "")],
            "unified kernel image /efi/EFI/Linux/a.efi",
        ),
        (
            "entries of none",
            [&GRUB[1..], &[("/boot/grub2/grub.cfg", "insmod blscfg\nblscfg\n")]].concat(),
            "there are none of this host",
        ),
    ] {
        let why = BootLoader::detect(&Rig::new(&files).os.root).unwrap_err();
        assert!(why.contains(want), "{about}: {why}");
    }
}

#[test]
fn fedora_has_grub_read_entries() {
    let path = format!("/boot/loader/entries/{ID}-6.1.conf");
    let text = "title F\nversion 6.1\nlinux /vmlinuz\noptions root=UUID=1 ro $tuned_params\n";
    let mut rig = Rig::new(&[
        ("/etc/machine-id", ID),
        ("/proc/cmdline", "BOOT_IMAGE=(hd0)/vmlinuz root=UUID=1 ro tuned.non_isolcpus=1"),
        ("/boot/grub2/grub.cfg", "insmod blscfg\nblscfg\n"),
        (&path, text),
    ]);
    assert_eq!(BootLoader::detect(&rig.os.root), Ok("GRUB with boot loader entries"));
    assert_eq!(rig.os.argument_rules().unwrap().syntax, ArgumentSyntax::Grub);
    assert_eq!(rig.os.status().unwrap().staged, None, "a variable of GRUB is no difference");
    // What cannot be written is found before the node is drained.
    let now = rig.os.status().unwrap().booted;
    rig.os.fetch(&now, &Pull::default()).unwrap();
    write(rig.dir.path(), "/etc/kernel/mine", "root=UUID=1 ro\n");
    std::os::unix::fs::symlink("mine", rig.dir.path().join("etc/kernel/cmdline")).unwrap();
    let why = rig.os.fetch(&now, &Pull::default()).unwrap_err().why;
    assert!(why.contains("/etc/kernel/cmdline is not a regular file"), "{why}");
    std::fs::remove_file(rig.dir.path().join("etc/kernel/cmdline")).unwrap();
    for (own, want) in [("a", text.replace("params", "params a")), ("", text.to_owned())] {
        rig.os.mark().unwrap();
        let target = rig.target(own);
        for _ in 0..2 {
            // A second time changes nothing, although GRUB's variable cannot be compared with what runs.
            rig.os.stage(&target).unwrap();
            assert_eq!(rig.text(&path), want, "{own}");
        }
    }
}

#[test]
fn kernels_are_copied_to_the_partition_that_systemd_boot_reads() {
    let entry = |folder: &str| format!("{folder}/loader/entries/{ID}-6.1.conf");
    for folder in ["/efi", "/boot", "/boot/efi"] {
        let rig = Rig::new(&[("/etc/machine-id", ID), (&entry(folder), OLD)]);
        assert_eq!(rig.os.kernels_beside_boot().as_deref(), Some(folder));
    }
    assert_eq!(Rig::new(&GRUB).os.kernels_beside_boot(), None);
    let by_grub = Rig::new(&[
        ("/etc/machine-id", ID),
        ("/boot/grub2/grub.cfg", "insmod blscfg\nblscfg\n"),
        (&entry("/boot"), OLD),
    ]);
    assert_eq!(by_grub.os.kernels_beside_boot(), None);
}
