//! Packages of a host without an image: with the real apt and dpkg, in a folder with a repository of its own, and with the agent
//! killed between any two of their runs.
//!
//! Not here: real kernels, maintainer scripts, dnf (`system/os/ordinary/tests.rs`).

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use api::v1::MachineConfigSpec;
use host::fault::{Fault, Faults, NoFaults, Point};
use host::{
    DisruptionPolicy, Error, FakeSystemd, Host, HostPlan, Options, OrdinaryHost, Output, ProgramError,
    Programs, Pull, Recovery, Root,
};

use crate::common::{BySpec as _, is_root, mk_host_tree, plan, tree};
use crate::prepared::{copy, names};

const CACHE: &str = "/var/cache/machine-config-daemon";

/// Runs the real programs for the host in a folder, which holds dpkg's and apt's state.
#[derive(Clone, Debug)]
struct RealApt(PathBuf);

impl RealApt {
    fn write_conf(&self) -> PathBuf {
        let at = self.0.display();
        let conf = self.0.join("etc/apt.conf.test");
        let text = format!(
            "Dir \"{at}\";\nDir::State::status \"{at}/var/lib/dpkg/status\";\nDir::Bin::methods \"/usr/lib/apt/methods\";\n\
             APT::Sandbox::User \"root\";\nDPkg::Options {{\"--root={at}\"; \"--force-not-root\"; \"--force-unsafe-io\";}};\n"
        );
        fs::write(&conf, text).unwrap();
        conf
    }

    fn start(
        &self,
        program: &str,
        args: &[&str],
        environment: &[(String, String)],
    ) -> (bool, String, String) {
        let inside = format!("{}{CACHE}", self.0.display());
        let mut words: Vec<String> =
            args.iter().map(|a| a.replace(CACHE, &inside).replace("Timeout=60", "Timeout=1")).collect();
        if program.contains("dpkg") {
            words.insert(0, format!("--root={}", self.0.display()));
        }
        let mut command = Command::new(program);
        command
            .args(&words)
            .env_clear()
            .env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin")
            .env("LC_ALL", "C.UTF-8");
        command.env("APT_CONFIG", self.write_conf()).stdin(Stdio::null());
        command.envs(environment.iter().map(|(name, value)| (name, value)));
        let done = command.output().unwrap();
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        (done.status.success(), text(&done.stdout), text(&done.stderr))
    }
}

impl Programs for RealApt {
    fn run(&mut self, program: &str, args: &[&str], limit: Duration) -> Result<Output, ProgramError> {
        self.fetch(program, args, limit, &[], &Pull::default())
    }

    fn fetch(
        &mut self,
        program: &str,
        args: &[&str],
        _: Duration,
        environment: &[(String, String)],
        _: &Pull,
    ) -> Result<Output, ProgramError> {
        match self.start(program, args, environment) {
            (true, text, _) => Ok(Output { text }),
            (false, _, why) => Err(ProgramError { program: program.to_owned(), why }),
        }
    }
}

/// Counts the runs of programs, and ends the process after one of them.
#[derive(Debug)]
struct KillAfterRun {
    at: usize,
    seen: AtomicUsize,
}

impl KillAfterRun {
    fn new(at: usize) -> Arc<Self> {
        Arc::new(Self { at, seen: AtomicUsize::new(0) })
    }

    fn count(&self) -> usize {
        self.seen.load(Ordering::Relaxed)
    }
}

impl Faults for KillAfterRun {
    fn at(&self, point: Point<'_>) -> Result<(), Fault> {
        let seen = match point {
            Point { call: "run", before: false, .. } => self.seen.fetch_add(1, Ordering::Relaxed),
            _ => self.seen.load(Ordering::Relaxed).wrapping_sub(1),
        };
        // Once it has ended, nothing more happens.
        if seen != usize::MAX && seen >= self.at { Err(Fault::Killed) } else { Ok(()) }
    }
}

fn put(at: &Path, path: &str, text: &str) {
    let path = at.join(path);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, text).unwrap();
}

fn done(command: &mut Command) -> String {
    let done = command.output().unwrap();
    assert!(done.status.success(), "{command:?}: {}", String::from_utf8_lossy(&done.stderr));
    String::from_utf8_lossy(&done.stdout).into_owned()
}

/// A repository with small packages.
fn mk_repository() -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    let mut index = String::new();
    for (name, version, fields) in [
        ("base", "1", ""),
        ("base", "2", ""),
        ("lib", "1:1.0-1", ""),
        ("tool", "1", "Depends: lib\n"),
        ("other", "1", "Depends: lib\n"),
        ("needs-new-base", "1", "Depends: base (>= 2)\n"),
        ("against-base", "1", "Conflicts: base\n"),
        ("byhand", "1", "Depends: tool\n"),
    ] {
        let control = format!(
            "Package: {name}\nVersion: {version}\nArchitecture: all\nInstalled-Size: 8\nMaintainer: a <a@b>\n{fields}Description: a test\n"
        );
        let from = dir.path().join("build");
        put(&from, "DEBIAN/control", &control);
        put(&from, &format!("usr/share/{name}"), version);
        let file = format!("{name}_{}.deb", version.replace(':', "_"));
        let path = dir.path().join(&file);
        done(Command::new("dpkg-deb").args(["--root-owner-group", "--build"]).arg(&from).arg(&path));
        let sum = done(Command::new("sha256sum").arg(&path));
        let (sum, size) = (sum.split(' ').next().unwrap().to_owned(), fs::metadata(&path).unwrap().len());
        index.push_str(&control);
        index.push_str(&format!("Filename: ./{file}\nSize: {size}\nSHA256: {sum}\n\n"));
        fs::remove_dir_all(&from).unwrap();
    }
    put(dir.path(), "Packages", &index);
    dir
}

/// A host with one package of its own.
fn mk_apt_host(repository: &Path) -> tempfile::TempDir {
    let base = mk_host_tree();
    let at = base.path();
    for dir in [
        "var/lib/dpkg/updates",
        "var/lib/dpkg/info",
        "var/lib/apt/lists/partial",
        "var/log/apt",
        "etc/apt/apt.conf.d",
        "etc/apt/preferences.d",
        "proc",
    ] {
        fs::create_dir_all(at.join(dir)).unwrap();
    }
    put(at, "var/lib/dpkg/status", "");
    put(at, "usr/bin/apt-get", "");
    put(at, "proc/cmdline", "root=1 ro\n");
    put(at, "etc/apt/sources.list", &format!("deb [trusted=yes] copy:{} ./\n", repository.display()));
    let apt = RealApt(at.to_owned());
    let package = repository.join("base_1.deb");
    let (fine, _, why) = apt.start("/usr/bin/dpkg", &["--install", package.to_str().unwrap()], &[]);
    assert!(fine, "{why}");
    boot(at);
    base
}

fn boot(at: &Path) {
    let _ = fs::remove_file(at.join("run/machine-config-daemon-boot"));
    FakeSystemd::new(&Root::open(at).unwrap()).complete_reboot().unwrap();
}

fn mk_host(at: &Path, faults: Arc<dyn Faults>) -> Host {
    let root = Root::open_with(at, Options { sync: false, owners: true }, faults).unwrap();
    let apt = RealApt(at.to_owned());
    let os = OrdinaryHost::new(root.clone(), Box::new(apt.clone()), Box::new(apt));
    Host::new(root.clone(), Box::new(FakeSystemd::new(&root)), Box::new(os))
}

fn config(extensions: &str) -> MachineConfigSpec {
    let text = format!("data:,{}", extensions.replace(' ', "-"));
    let file = serde_json::json!({
        "ignition": {"version": "3.4.0"},
        "storage": {"files": [{"path": "/etc/motd", "overwrite": true, "contents": {"source": text}}]},
    });
    MachineConfigSpec {
        config: Some(file),
        extensions: Some(extensions.split_whitespace().map(str::to_owned).collect()),
        ..MachineConfigSpec::default()
    }
}

fn allowed() -> DisruptionPolicy {
    DisruptionPolicy { host_packages: true, ..DisruptionPolicy::default() }
}

fn planned(at: &Path, (old, old_name): (&MachineConfigSpec, &str), new: &MachineConfigSpec) -> HostPlan {
    let facts = mk_host(at, Arc::new(NoFaults)).probe(old, new).unwrap();
    plan(old, new, &names(old_name, "new"), &allowed(), &facts).unwrap()
}

/// The packages of a host with their versions and states, and which of them nobody asked for.
fn packages(at: &Path) -> String {
    let apt = RealApt(at.to_owned());
    let format = "-f=${Package}=${Version}/${db:Status-Abbrev} ";
    let (_, text, _) = apt.start("/usr/bin/dpkg-query", &["-W", format], &[]);
    let (_, automatic, _) = apt.start("/usr/bin/apt-mark", &["showauto"], &[]);
    format!("{} auto: {}", text.trim_end(), automatic.trim()).replace("  ", " ")
}

/// What a change can leave behind: packages, files of the config, and the record.
fn state(at: &Path) -> (String, Vec<(String, String)>) {
    let skip = [
        "/run",
        "/var/svc.log",
        "/var/lib",
        "/var/cache",
        "/var/log",
        "/proc",
        "/etc/.pwd.lock",
        "/etc/apt.conf.test",
    ];
    let mut files: Vec<_> = tree(at, &["/"], &skip).into_iter().collect();
    let record = at.join("var/lib/machine-config-daemon/packages.json");
    files.push(("record".to_owned(), fs::read_to_string(record).unwrap_or_default()));
    (packages(at), files)
}

#[test]
fn packages_come_are_kept_and_go_again_and_what_is_the_hosts_own_stays() {
    if !is_root() || !Path::new("/usr/bin/apt-get").exists() {
        return;
    }
    let repository = mk_repository();
    let base = mk_apt_host(repository.path());
    let at = base.path();
    let (none, old, new) = (config(""), config("base tool"), config("other"));
    let before = state(at);

    // Without consent it is refused, with the way to give it.
    let facts = mk_host(at, Arc::new(NoFaults)).probe(&none, &old).unwrap();
    let refused = plan(&none, &old, &names("none", "new"), &DisruptionPolicy::default(), &facts).unwrap_err();
    assert!(refused[0].to_string().contains("machineconfig.dev/host-packages: Install"), "{refused:?}");

    // What cannot be done is said before anything changes.
    for (extension, says) in [
        ("nowhere", "Unable to locate package nowhere"),
        ("needs-new-base", "would also upgrade [base 2] and remove []"),
        ("against-base", "and remove [base]"),
        ("-y", "is no name of a package"),
    ] {
        let plan = planned(at, (&none, "none"), &config(extension));
        let error = mk_host(at, Arc::new(NoFaults)).fetch(&plan, &Pull::default()).unwrap_err().to_string();
        assert!(error.contains(says), "{extension}: {error}");
    }
    assert_eq!(state(at), before);

    // The archives are there before the drain: the repository may be away afterwards.
    let first = planned(at, (&none, "none"), &old);
    assert!(first.disruption.needs_reboot(), "{first}");
    mk_host(at, Arc::new(NoFaults)).fetch(&first, &Pull::default()).unwrap();
    assert_eq!(packages(at), before.0);
    let away = repository.path().with_extension("away");
    fs::rename(repository.path(), &away).unwrap();
    mk_host(at, Arc::new(NoFaults)).apply(&first).unwrap();
    fs::rename(&away, repository.path()).unwrap();
    assert_eq!(packages(at), "base=1/ii lib=1:1.0-1/ii tool=1/ii auto: lib");
    boot(at);
    let mut host = mk_host(at, Arc::new(NoFaults));
    assert_eq!(host.recover().unwrap(), Recovery::Finished { config: "new".to_owned() });

    let facts = host.probe(&old, &none).unwrap();
    assert_eq!(facts.os.unwrap().booted.extensions, ["base", "tool"]);

    // Another extension that needs the same library: that one stays.
    let second = planned(at, (&old, "old"), &new);
    mk_host(at, Arc::new(NoFaults)).apply(&second).unwrap();
    boot(at);
    mk_host(at, Arc::new(NoFaults)).recover().unwrap();
    assert!(packages(at).starts_with("base=1/ii lib=1:1.0-1/ii other=1/ii "), "{}", packages(at));

    // Given up without consent, too. The host's own package was named by a config, and is still there.
    let facts = mk_host(at, Arc::new(NoFaults)).probe(&new, &none).unwrap();
    let last = plan(&new, &none, &names("new", "none"), &DisruptionPolicy::default(), &facts).unwrap();
    mk_host(at, Arc::new(NoFaults)).apply(&last).unwrap();
    boot(at);
    mk_host(at, Arc::new(NoFaults)).recover().unwrap();
    assert!(packages(at).starts_with("base=1/ii auto:"), "{}", packages(at));
}

#[test]
fn an_extension_that_another_one_needs_is_given_up_and_goes_with_that_one() {
    if !is_root() || !Path::new("/usr/bin/apt-get").exists() {
        return;
    }
    let repository = mk_repository();
    let base = mk_apt_host(repository.path());
    let at = base.path();
    let (none, both, one) = (config(""), config("tool byhand"), config("byhand"));
    for (old, new, want) in [
        ((&none, "none"), &both, "base=1/ii byhand=1/ii lib=1:1.0-1/ii tool=1/ii "),
        ((&both, "both"), &one, "base=1/ii byhand=1/ii lib=1:1.0-1/ii tool=1/ii "),
        ((&one, "one"), &none, "base=1/ii auto:"),
    ] {
        let plan = planned(at, old, new);
        mk_host(at, Arc::new(NoFaults)).apply(&plan).unwrap();
        boot(at);
        mk_host(at, Arc::new(NoFaults)).recover().unwrap();
        assert!(packages(at).starts_with(want), "{}", packages(at));
    }
}

#[test]
fn an_agent_that_is_killed_between_any_two_programs_leaves_the_old_packages_or_the_new() {
    if !is_root() || !Path::new("/usr/bin/apt-get").exists() {
        return;
    }
    let repository = mk_repository();
    let base = mk_apt_host(repository.path());
    let (none, old, new) = (config(""), config("tool"), config("other"));
    let first = planned(base.path(), (&none, "none"), &old);
    mk_host(base.path(), Arc::new(NoFaults)).apply(&first).unwrap();
    boot(base.path());
    mk_host(base.path(), Arc::new(NoFaults)).recover().unwrap();
    let plan = planned(base.path(), (&old, "old"), &new);
    // As after the drain.
    mk_host(base.path(), Arc::new(NoFaults)).fetch(&plan, &Pull::default()).unwrap();
    let before = state(base.path());

    let end = copy(base.path());
    let counting = KillAfterRun::new(usize::MAX - 1);
    mk_host(end.path(), counting.clone()).apply(&plan).unwrap();
    let (after, runs) = (state(end.path()), counting.count());
    assert_ne!(before, after);
    assert!(runs > 4, "{runs}");
    let ends = |recovery: &Recovery| match recovery {
        Recovery::AwaitsBoot { .. } | Recovery::Finished { .. } | Recovery::OnTrial { .. } => &after,
        _ => &before,
    };
    for at in 0..runs {
        let dir = copy(base.path());
        let error = mk_host(dir.path(), KillAfterRun::new(at)).apply(&plan).unwrap_err();
        assert!(error.killed(), "{at}: {error}");
        // dpkg itself is cut, where it would be at work.
        if at % 2 == 1 {
            put(dir.path(), "var/lib/dpkg/updates/0001", "");
            let killed = mk_host(dir.path(), KillAfterRun::new(1)).recover();
            assert!(killed.is_ok() || killed.is_err_and(|e| e.killed()), "{at}");
        }
        let recovery =
            mk_host(dir.path(), Arc::new(NoFaults)).recover().unwrap_or_else(|e| panic!("{at}: {e}"));
        assert_eq!(&state(dir.path()), ends(&recovery), "killed after run {at}: {recovery:?}");
    }

    // A package that is half there: dpkg was killed before it configured it.
    let dir = copy(base.path());
    let error = mk_host(dir.path(), KillAfterRun::new(2)).apply(&plan).unwrap_err();
    assert!(error.killed() && packages(dir.path()).contains("other=1/ii"), "{error}");
    let other = repository.path().join("other_1.deb");
    let apt = RealApt(dir.path().to_owned());
    assert!(apt.start("/usr/bin/dpkg", &["--unpack", other.to_str().unwrap()], &[]).0);
    assert!(packages(dir.path()).contains("other=1/iU"), "{}", packages(dir.path()));
    put(dir.path(), "var/lib/dpkg/updates/0001", "");
    let recovery = mk_host(dir.path(), Arc::new(NoFaults)).recover().unwrap();
    assert_eq!(&state(dir.path()), &before, "half a package: {recovery:?}");

    // Another program holds dpkg's lock.
    let dir = copy(base.path());
    let path = dir.path().join("var/lib/dpkg/lock-frontend");
    let lock = fs::File::options().write(true).create(true).truncate(false).open(path).unwrap();
    rustix::fs::fcntl_lock(&lock, rustix::fs::FlockOperation::LockExclusive).unwrap();
    let failed = mk_host(dir.path(), Arc::new(NoFaults)).apply(&plan);
    drop(lock);
    let error = failed.unwrap_err();
    assert!(matches!(&error, Error::Undone { .. } | Error::UndoIncomplete { .. }), "{error}");
    let text = format!("{error:?}");
    assert!(text.contains("another program is changing packages"), "{text}");
    mk_host(dir.path(), Arc::new(NoFaults)).recover().unwrap();
    assert_eq!(state(dir.path()), before);
}
