//! The back end on a host of dnf. The fake takes the exact commands and no others; they and the answers are those of dnf
//! 4.14 and rpm 4.18, tried in a folder. The real apt is in `tests/crash/packages.rs`.

use std::path::PathBuf;
use std::time::Duration;

use super::*;
use crate::system::os::fake_programs::FakePrograms;
use crate::system::programs::{Output, ProgramError};

/// Replays, and makes the files that a download makes.
#[derive(Clone, Debug)]
struct FakeDnf {
    talk: FakePrograms,
    at: PathBuf,
    files: Vec<&'static str>,
}

impl Programs for FakeDnf {
    fn run(&mut self, program: &str, args: &[&str], limit: Duration) -> Result<Output, ProgramError> {
        let done = self.talk.run(program, args, limit)?;
        if let Some(to) = args.iter().find_map(|a| a.strip_prefix("--destdir=/")) {
            self.files.iter().for_each(|f| std::fs::write(self.at.join(to).join(f), "").unwrap());
        }
        Ok(done)
    }
}

const ARCHIVES: &str = "/var/cache/machine-config-daemon/packages";
const DNF: &str = "/usr/bin/dnf -q -y --setopt=install_weak_deps=False --setopt=exit_on_lock=True";
const FORMAT: &str = "%{NAME}\\t%{EPOCHNUM}:%{VERSION}-%{RELEASE}\\t%{ARCH}\\t%{SIZE}\\n";
const BASE: &str = "base\t0:1-1\tnoarch\t10\n";

struct Rig {
    dir: tempfile::TempDir,
    talk: FakePrograms,
    files: Vec<&'static str>,
}

impl Rig {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        for (path, text) in [
            ("usr/bin/dnf", ""),
            ("etc/os-release", "ID=\"rocky\"\nNAME=Rocky\n"),
            ("proc/cmdline", "root=1 ro\n"),
            ("proc/sys/kernel/osrelease", "5.14.0-427.el9.x86_64\n"),
            ("boot/vmlinuz-5.14.0-427.el9.x86_64", "kernel"),
        ] {
            let at = dir.path().join(path);
            std::fs::create_dir_all(at.parent().unwrap()).unwrap();
            std::fs::write(at, text).unwrap();
        }
        Self { dir, talk: FakePrograms::default(), files: Vec::new() }
    }

    /// As a new process.
    fn os(&self) -> OrdinaryHost {
        let options = crate::disk::root::Options { sync: false, owners: false };
        let faults = std::sync::Arc::new(crate::fault::NoFaults);
        let root = Root::open_with(self.dir.path(), options, faults).unwrap();
        let dnf =
            FakeDnf { talk: self.talk.clone(), at: self.dir.path().to_owned(), files: self.files.clone() };
        OrdinaryHost::new(root, Box::new(dnf.clone()), Box::new(dnf))
    }

    fn has(&self, packages: &str) -> &Self {
        self.talk.says(&format!("/usr/bin/rpm -qa --queryformat {FORMAT}"), format!("{BASE}{packages}"));
        self
    }

    fn runs(&self, release: &str) {
        std::fs::write(self.dir.path().join("proc/sys/kernel/osrelease"), release).unwrap();
    }
}

fn target(kernel_type: &str, extensions: &[&str]) -> Deployment {
    Deployment {
        kernel_arguments: ["root=1", "ro"].map(str::to_owned).to_vec(),
        kernel_type: kernel_type.to_owned(),
        extensions: extensions.iter().map(|e| (*e).to_owned()).collect(),
        ..Deployment::default()
    }
}

#[test]
fn an_extension_of_dnf_is_downloaded_installed_undone_and_given_up() {
    let mut rig = Rig::new();
    rig.files = vec!["lib-1-1.noarch.rpm", "tool-1-1.noarch.rpm"];
    let (to, both) = (target("default", &["tool"]), "lib\t0:1-1\tnoarch\t20\ntool\t0:1-1\tnoarch\t30\n");
    let next = |name: &str| format!("{ARCHIVES}/next/{name}-1-1.noarch.rpm");
    rig.has("");
    rig.talk
        .says(&format!("{DNF} install --downloadonly --destdir={ARCHIVES}/next tool"), "")
        .says(&format!("/usr/bin/rpm -qp --queryformat {FORMAT} {} {}", next("lib"), next("tool")), both);
    rig.has("");
    rig.os().fetch(&to, &Pull::default()).unwrap();

    // Another process applies it. Nothing is downloaded again.
    rig.has("");
    let mut os = rig.os();
    os.fetch(&to, &Pull::default()).unwrap();
    let before = os.mark().unwrap();
    let kept = |name: &str| format!("{ARCHIVES}/{name}-1-1.noarch.rpm");
    rig.talk
        .says(&format!("{DNF} -C --disablerepo=* install {} {}", kept("lib"), kept("tool")), "")
        .says(&format!("{DNF} -C mark remove lib"), "");
    rig.has(both);
    os.stage(&to).unwrap();
    rig.has(both);
    let status = rig.os().status().unwrap();
    assert_eq!((status.booted, status.staged), (to.clone(), None));
    // A second time nothing is left to do; and nothing is begun without what was fetched.
    os.stage(&to).unwrap();
    let why = os.stage(&target("default", &["other"])).unwrap_err().why;
    assert!(why.contains("did not fetch"), "{why}");

    // Undone by another process: what came goes, and a second undo finds nothing to do.
    rig.has(both);
    rig.talk.says("/usr/bin/rpm -e --test --allmatches lib tool", "").says(
        &format!(
            "{DNF} -C --disablerepo=* --setopt=clean_requirements_on_remove=False \
             --setopt=protect_running_kernel=False remove lib tool"
        ),
        "",
    );
    rig.os().undo(&before).unwrap();
    rig.has("");
    rig.os().undo(&before).unwrap();
    assert_eq!(rig.os().status().unwrap().booted.extensions, Vec::<String>::new());
    rig.talk.done();
}

#[test]
fn what_dnf_cannot_do_without_doubt_is_refused_with_its_words() {
    let mut rig = Rig::new();
    rig.files = vec!["base-2-1.noarch.rpm"];
    let (to, ask) =
        (target("default", &["up"]), format!("{DNF} install --downloadonly --destdir={ARCHIVES}/next up"));
    let why = |rig: &Rig| rig.os().fetch(&to, &Pull::default()).unwrap_err().why;
    rig.has("");
    rig.talk.fails(&ask, "exit status: 1: Error: Unable to find a match: up");
    let said = why(&rig);
    assert!(said.contains("does not exist for dnf") && said.contains("match: up"), "{said}");
    rig.has("");
    rig.talk.fails(&ask, "exit status: 200: Failed to obtain the transaction lock (logged in as: root).");
    assert!(why(&rig).contains("another program is changing packages"));
    rig.has("");
    rig.talk.says(&ask, "").says(
        &format!("/usr/bin/rpm -qp --queryformat {FORMAT} {ARCHIVES}/next/base-2-1.noarch.rpm"),
        "base\t0:2-1\tnoarch\t1\n",
    );
    rig.has("");
    assert!(why(&rig).contains("would also upgrade [base 0:2-1]"));
    rig.talk.done();
    // dnf5 has other commands.
    std::fs::remove_file(rig.dir.path().join("usr/bin/dnf")).unwrap();
    std::os::unix::fs::symlink("dnf5", rig.dir.path().join("usr/bin/dnf")).unwrap();
    assert!(rig.os().refuses(OsField::Extensions).unwrap().contains("dnf5"));
}

#[test]
fn a_kernel_is_a_package_and_the_machine_is_back_only_when_the_old_one_runs() {
    let mut rig = Rig::new();
    rig.files = vec!["kernel-rt-5-1.x86_64.rpm"];
    let (to, package) = (target("realtime", &[]), "kernel-rt\t0:5-1\tx86_64\t30\n");
    rig.has("");
    rig.talk.says(&format!("{DNF} install --downloadonly --destdir={ARCHIVES}/next kernel-rt"), "").says(
        &format!("/usr/bin/rpm -qp --queryformat {FORMAT} {ARCHIVES}/next/kernel-rt-5-1.x86_64.rpm"),
        package,
    );
    rig.has("");
    for (path, text) in [("usr/sbin/grubby", ""), ("boot/vmlinuz-5.14.0-9.el9.x86_64+rt", "")] {
        std::fs::create_dir_all(rig.dir.path().join(path).parent().unwrap()).unwrap();
        std::fs::write(rig.dir.path().join(path), text).unwrap();
    }
    std::fs::write(rig.dir.path().join("boot/vmlinuz-5.14.0-427.rt14.el9.x86_64+rt"), "").unwrap();
    let mut os = rig.os();
    os.fetch(&to, &Pull::default()).unwrap();
    let old = "/boot/vmlinuz-5.14.0-427.el9.x86_64";
    rig.talk.says("/usr/sbin/grubby --default-kernel", format!("{old}\n"));
    let before = os.mark().unwrap();
    rig.talk.says(&format!("{DNF} -C --disablerepo=* install {ARCHIVES}/kernel-rt-5-1.x86_64.rpm"), "");
    rig.has(package);
    rig.talk.says("/usr/sbin/grubby --set-default=/boot/vmlinuz-5.14.0-427.rt14.el9.x86_64+rt", "");
    os.stage(&to).unwrap();
    // Staged: it runs after the boot.
    let status = rig.os().status().unwrap();
    assert_eq!((status.booted.kernel_type.as_str(), status.next()), ("default", &to));
    rig.runs("5.14.0-427.rt14.el9.x86_64+rt");
    assert_eq!(rig.os().status().unwrap().booted, to);
    assert!(!rig.os().runs(&before).unwrap(), "a boot into the old kernel is still to come");
    rig.runs("5.14.0-427.el9.x86_64");
    assert!(rig.os().runs(&before).unwrap());

    // The way back.
    rig.has(package);
    rig.talk.says("/usr/bin/rpm -e --test --allmatches kernel-rt", "").says(
        &format!(
            "{DNF} -C --disablerepo=* --setopt=clean_requirements_on_remove=False \
             --setopt=protect_running_kernel=False remove kernel-rt"
        ),
        "",
    );
    rig.talk.says(&format!("/usr/sbin/grubby --set-default={old}"), "");
    rig.os().undo(&before).unwrap();
    assert_eq!(rig.os().status().unwrap().next().kernel_type, "default");

    // What a config names and the host never got is not missed.
    let wanted = DesiredOs { extensions: vec!["vim".to_owned()], ..DesiredOs::default() };
    assert_eq!(rig.os().managed(&wanted).unwrap().extensions, Vec::<String>::new());
    rig.talk.done();
    assert!(
        Manager::Dnf.kernel(&rig.os().root, "64k-pages").is_ok() == (std::env::consts::ARCH == "aarch64")
    );
}

#[test]
fn a_token_of_a_version_without_packages_is_the_boot_loaders() {
    let mut rig = Rig::new();
    let token = Token("{\"files\":{},\"generated\":null,\"own\":[]}".to_owned());
    assert!(rig.os().runs(&token).unwrap());
    assert_eq!(read(&token).unwrap().loader, Some(token));
    assert!(read(&Token("{\"packages\":1}".to_owned())).is_err());
    rig.files.clear();
}
