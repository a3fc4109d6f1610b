//! The back end against fake programs that replay conversations. No recording of the real program exists: the answers have
//! the form that rpm-ostree's sources give them. The fakes take the exact arguments and no others.
//!
//! Not here: packages in the running system (see `apply_live` and `restage`).

mod apply_live;
mod restage;

use super::*;
use crate::system::os::fake_programs::FakePrograms;

const ASKED: &str = "/usr/bin/rpm-ostree status --json";
const KARGS: &str = "/usr/bin/rpm-ostree kargs";
const HAS: &str = "root=UUID=1 $ignition_firstboot quiet ostree=/ostree/boot.1/rhcos/a/0\n";

fn one(id: &str, booted: bool, staged: bool, image: &str, packages: &[&str]) -> String {
    format!(
        "{{\"id\": \"{id}\", \"osname\": \"rhcos\", \"serial\": 0, \"checksum\": \"c\", \"booted\": {booted}, \"staged\": {staged}, \
         \"pinned\": false, \"container-image-reference\": \"ostree-unverified-registry:{image}\", \
         \"requested-packages\": {packages:?}, \"requested-base-removals\": []}}"
    )
}

fn status(deployments: &[String], transaction: &str) -> String {
    format!(
        "{{\"deployments\": [{}], \"transaction\": {transaction}, \"cached-update\": null, \"update-driver\": null}}",
        deployments.join(", ")
    )
}

fn idle() -> String {
    status(&[one("rhcos-a.0", true, false, "q.io/a:1", &[])], "null")
}

fn staged(image: &str, packages: &[&str]) -> String {
    let two =
        [one("rhcos-b.0", false, true, image, packages), one("rhcos-a.0", true, false, "q.io/a:1", &[])];
    status(&two, "null")
}

fn podman(command: &str) -> String {
    format!("/usr/bin/podman {command}")
}

struct Rig {
    _dir: tempfile::TempDir,
    os: RpmOstree,
    talk: FakePrograms,
}

impl Rig {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        for (path, text) in [
            ("proc/cmdline", "BOOT_IMAGE=(hd0)/v root=UUID=1 quiet ostree=/ostree/boot.1/rhcos/a/0 single\n"),
            ("etc/os-release", "ID=\"rhcos\"\n"),
        ] {
            let at = dir.path().join(path);
            std::fs::create_dir_all(at.parent().unwrap()).unwrap();
            std::fs::write(at, text).unwrap();
        }
        let talk = FakePrograms::default();
        let os = RpmOstree::new(Root::open(dir.path()).unwrap(), Box::new(talk.clone()));
        Self { _dir: dir, os, talk }
    }

    /// The files of a host that has podman.
    fn can_read_extensions_images(&self) {
        for (path, text) in
            [("usr/bin/podman", ""), ("var/lib/kubelet/config.json", "{}"), ("etc/yum.repos.d/a", "")]
        {
            let at = self._dir.path().join(path);
            std::fs::create_dir_all(at.parent().unwrap()).unwrap();
            std::fs::write(at, text).unwrap();
        }
        std::fs::create_dir_all(self._dir.path().join("run")).unwrap();
    }

    /// The packages of an extensions image that is on the host are copied out.
    fn opens(&self, image: &str) {
        self.talk
            .says(&podman("rm -f --ignore machine-config-extensions"), "")
            .says(
                &podman(&format!(
                    "create --net=none --annotation=org.openshift.machineconfigoperator.pivot=true --name \
                     machine-config-extensions {image} /usr/bin/true"
                )),
                "id\n",
            )
            .says(
                &podman("cp machine-config-extensions:/usr/share/rpm-ostree/extensions /run/mco-extensions"),
                "",
            )
            .says(&podman("rm -f machine-config-extensions"), "");
    }

    /// Whether the packages of an extensions image and the file that names them are there.
    fn left_of_extensions(&self) -> [bool; 2] {
        ["run/mco-extensions", "etc/yum.repos.d/coreos-extensions.repo"]
            .map(|path| self._dir.path().join(path).exists())
    }

    fn now(&mut self) -> Deployment {
        self.talk.says(ASKED, idle()).says(KARGS, HAS);
        self.os.status().unwrap().next().clone()
    }
}

#[test]
fn an_update_is_fetched_staged_read_back_and_undone() {
    let mut rig = Rig::new();
    let now = rig.now();
    assert_eq!(now.image, "q.io/a:1");
    // What was typed at the prompt is left out, and the variable of the boot loader stays.
    assert_eq!(now.kernel_arguments, ["root=UUID=1", "$ignition_firstboot", "quiet"]);
    let mut target = now;
    target.image = "q.io/a:2".to_owned();
    target.kernel_arguments.push("password=hush".to_owned());
    target.extensions.push("usbguard".to_owned());

    rig.talk
        .says(ASKED, idle())
        .says("/usr/bin/rpm-ostree rebase --download-only ostree-unverified-registry:q.io/a:2", "")
        .says("/usr/bin/rpm-ostree install --download-only --idempotent --allow-inactive usbguard", "");
    rig.os.fetch(&target, &Pull::default()).unwrap();
    rig.talk.says(ASKED, idle());
    let before = rig.os.mark().unwrap();

    let kargs = format!("{} password=hush\n", HAS.trim_end());
    let whole = || staged("q.io/a:2", &["usbguard"]);
    rig.talk
        .says(ASKED, idle())
        .says(ASKED, idle())
        .says(KARGS, HAS)
        .says("/usr/bin/rpm-ostree rebase ostree-unverified-registry:q.io/a:2", "Staging deployment...done\n")
        .says(ASKED, staged("q.io/a:2", &[]))
        .says("/usr/bin/rpm-ostree kargs --append=password=hush", "")
        .says(ASKED, staged("q.io/a:2", &[]))
        .says("/usr/bin/rpm-ostree install --idempotent --allow-inactive usbguard", "")
        .says(ASKED, whole())
        .says(ASKED, whole())
        .says(KARGS, kargs.clone());
    rig.os.stage(&target).unwrap();
    rig.talk.says(ASKED, whole()).says(KARGS, kargs.clone());
    assert_eq!(rig.os.status().unwrap().next(), &target);
    // A second time nothing is left to do.
    rig.talk.says(ASKED, whole()).says(ASKED, whole()).says(KARGS, kargs.clone());
    rig.talk.says(ASKED, whole()).says(KARGS, kargs);
    rig.os.stage(&target).unwrap();

    // What the agent staged itself is no obstacle, and is dropped by the undo.
    rig.talk.says(ASKED, whole());
    rig.os.fetch(&target, &Pull::default()).unwrap();
    rig.talk
        .says(ASKED, whole())
        .says("/usr/bin/rpm-ostree cleanup --pending", "Freed: 1 kB\n")
        .says(ASKED, idle());
    rig.os.undo(&before).unwrap();
    rig.talk.says(ASKED, idle());
    rig.os.undo(&before).unwrap();
    rig.talk.done();
}

#[test]
fn what_others_do_meanwhile_is_told_with_the_remedy_and_left_alone() {
    let mut rig = Rig::new();
    let target = Deployment { image: "q.io/a:2".to_owned(), ..rig.now() };
    let busy = status(&[one("rhcos-a.0", true, false, "q.io/a:1", &[])], "[\"upgrade\", \":1.9\", \"/org\"]");
    rig.talk.says(ASKED, busy);
    let why = rig.os.fetch(&target, &Pull::default()).unwrap_err().why;
    assert!(why.contains("(upgrade)") && why.contains("rpm-ostree cancel"), "{why}");

    rig.talk.says(ASKED, staged("q.io/mine", &[]));
    let why = rig.os.fetch(&target, &Pull::default()).unwrap_err().why;
    assert!(
        why.contains("rhcos-b.0 is staged, and not by a MachineConfig") && why.contains("cleanup"),
        "{why}"
    );

    // It began between the question and the command.
    rig.talk.says(ASKED, idle()).fails(
        "/usr/bin/rpm-ostree rebase --download-only ostree-unverified-registry:q.io/a:2",
        "exit status: 1: error: Transaction in progress: upgrade You can cancel the current transaction with `rpm-ostree cancel`",
    );
    let why = rig.os.fetch(&target, &Pull::default()).unwrap_err().why;
    assert!(why.contains("busy with another transaction"), "{why}");

    // A fetch that the agent ends would go on in rpm-ostree's daemon.
    let pull = Pull::default();
    pull.cancel();
    rig.talk
        .says(ASKED, idle())
        .fails(
            "/usr/bin/rpm-ostree rebase --download-only ostree-unverified-registry:q.io/a:2",
            "it was cancelled",
        )
        .says("/usr/bin/rpm-ostree cancel", "");
    assert!(rig.os.fetch(&target, &pull).unwrap_err().why.contains("it was cancelled"));
    rig.talk.done();
}

#[test]
fn an_argument_that_was_removed_at_the_prompt_once_is_still_the_deployments() {
    let mut rig = Rig::new();
    std::fs::write(rig._dir.path().join("proc/cmdline"), "quiet ostree=/ostree/boot.1/rhcos/a/0\n").unwrap();
    rig.talk.says(ASKED, idle()).says(KARGS, HAS);
    let status = rig.os.status().unwrap();
    assert_eq!(status.next().kernel_arguments, ["root=UUID=1", "$ignition_firstboot", "quiet"]);
    assert_eq!(status.booted.kernel_arguments, ["$ignition_firstboot", "quiet"]);
    rig.talk.done();
}

#[test]
fn a_transaction_that_outlives_the_agent_is_waited_for_and_its_result_is_ours() {
    let mut rig = Rig::new();
    let target = Deployment { image: "q.io/a:2".to_owned(), ..rig.now() };
    rig.talk.says(ASKED, idle());
    let before = rig.os.mark().unwrap();
    // The agent is killed while the command runs.
    rig.talk
        .says(ASKED, idle())
        .says(ASKED, idle())
        .says(KARGS, HAS)
        .fails("/usr/bin/rpm-ostree rebase ostree-unverified-registry:q.io/a:2", "it was killed");
    rig.os.stage(&target).unwrap_err();
    let busy = status(&[one("rhcos-a.0", true, false, "q.io/a:1", &[])], "[\"rebase\", \":1.9\", \"/org\"]");
    rig.talk.says(ASKED, busy.clone()).says(ASKED, busy);
    let why = rig.os.mark().unwrap_err().why;
    assert!(why.contains("(rebase)") && why.contains("wait"), "{why}");
    let why = rig.os.undo(&before).unwrap_err().why;
    assert!(why.contains("(rebase)") && why.contains("wait"), "{why}");
    // It has staged now.
    let whole = || staged("q.io/a:2", &[]);
    rig.talk.says(ASKED, whole());
    assert_ne!(rig.os.mark().unwrap(), before);
    rig.talk.says(ASKED, whole()).says("/usr/bin/rpm-ostree cleanup --pending", "").says(ASKED, idle());
    rig.os.undo(&before).unwrap();
    // What is staged after that is not.
    rig.talk.says(ASKED, whole());
    let why = rig.os.undo(&before).unwrap_err().why;
    assert!(why.contains("not by a MachineConfig") && why.contains("cleanup --pending"), "{why}");
    rig.talk.done();
}

#[test]
fn a_new_deployment_that_has_booted_is_rolled_back() {
    let mut rig = Rig::new();
    rig.talk.says(ASKED, idle());
    let before = rig.os.mark().unwrap();
    let (a, b) = ("rhcos-a.0", "rhcos-b.0");
    let booted =
        || status(&[one(b, true, false, "q.io/a:2", &[]), one(a, false, false, "q.io/a:1", &[])], "null");
    let queued =
        || status(&[one(a, false, false, "q.io/a:1", &[]), one(b, true, false, "q.io/a:2", &[])], "null");
    rig.talk.says(ASKED, booted()).says("/usr/bin/rpm-ostree rollback", "").says(ASKED, queued());
    rig.os.undo(&before).unwrap();
    rig.talk.says(ASKED, queued());
    assert!(!rig.os.runs(&before).unwrap());
    rig.talk.says(ASKED, queued());
    rig.os.undo(&before).unwrap();
    rig.talk.says(ASKED, idle());
    assert!(rig.os.runs(&before).unwrap());
    // It is gone.
    rig.talk.says(ASKED, status(&[one(b, true, false, "q.io/a:2", &[])], "null"));
    let why = rig.os.undo(&before).unwrap_err().why;
    assert!(why.contains("rhcos-a.0") && why.contains("journal"), "{why}");
    rig.talk.done();
}

#[test]
fn success_that_is_none_is_an_error_and_no_secret_is_told() {
    let mut rig = Rig::new();
    let mut target = rig.now();
    target.kernel_arguments.push("password=hush".to_owned());
    let ask = |rig: &Rig| {
        rig.talk.says(ASKED, idle()).says(ASKED, idle()).says(KARGS, HAS);
    };
    ask(&rig);
    rig.talk
        .says("/usr/bin/rpm-ostree kargs --append=password=hush", "")
        .says(ASKED, idle())
        .says(ASKED, idle())
        .says(KARGS, HAS);
    let why = rig.os.stage(&target).unwrap_err().why;
    assert!(why.contains("reported success") && !why.contains("hush"), "{why}");
    ask(&rig);
    rig.talk.fails(
        "/usr/bin/rpm-ostree kargs --append=password=hush",
        "exit status: 1: error: bad password=hush",
    );
    let why = rig.os.stage(&target).unwrap_err().why;
    assert!(why.contains("bad") && !why.contains("hush"), "{why}");
    let strange = idle().replace("requested-packages", "packages");
    rig.talk.says(ASKED, strange);
    assert!(rig.os.status().unwrap_err().why.contains("unknown format"));
    rig.talk.done();
}

#[test]
fn other_kernels_are_refused_where_no_package_has_them() {
    let mut rig = Rig::new();
    assert_eq!(rig.os.refuses(OsField::KernelType), None);
    std::fs::write(rig._dir.path().join("etc/os-release"), "NAME=Fedora\nID=fedora\n").unwrap();
    assert!(rig.os.refuses(OsField::KernelType).unwrap().contains("fedora has no other kernels"));
    for field in [OsField::Image, OsField::KernelArguments, OsField::Extensions] {
        assert_eq!(rig.os.refuses(field), None);
    }
    if std::env::consts::ARCH != "aarch64" {
        let target = Deployment { kernel_type: "64k-pages".to_owned(), ..rig.now() };
        rig.talk.says(ASKED, idle());
        assert!(rig.os.fetch(&target, &Pull::default()).unwrap_err().why.contains("arm64"));
    }
}

#[test]
fn an_extensions_image_that_has_another_kernel_is_pulled_before_the_drain() {
    let mut rig = Rig::new();
    let target = Deployment { kernel_type: "realtime".to_owned(), ..rig.now() };
    let image = "q.io/extensions@sha256:1";
    rig.os.use_extensions(image);
    rig.can_read_extensions_images();
    rig.talk
        .says(ASKED, idle())
        .fails(&podman(&format!("image exists {image}")), "exit status: 1: it printed nothing")
        .says(&podman(&format!("pull -q --authfile /var/lib/kubelet/config.json {image}")), "");
    rig.os.fetch(&target, &Pull::default()).unwrap();
    rig.talk.says(ASKED, idle()).says(&podman(&format!("image exists {image}")), "");
    rig.os.fetch(&target, &Pull::default()).unwrap();
    // Without such an image the host's repositories are asked when it is staged.
    rig.os.use_extensions("");
    rig.talk.says(ASKED, idle());
    rig.os.fetch(&target, &Pull::default()).unwrap();
    rig.talk.done();
}

#[test]
fn packages_of_an_extensions_image_are_a_repository_only_while_they_are_needed() {
    let mut rig = Rig::new();
    let now = rig.now();
    let target = Deployment { extensions: vec!["usbguard".to_owned()], ..now };
    let image = "q.io/extensions@sha256:1";
    rig.os.use_extensions(image);
    let fetch = "/usr/bin/rpm-ostree install --download-only --idempotent --allow-inactive usbguard";
    rig.talk.says(ASKED, idle());
    let why = rig.os.fetch(&target, &Pull::default()).unwrap_err().why;
    assert!(why.contains("/usr/bin/podman") && why.contains("baseOSExtensionsContainerImage"), "{why}");

    rig.can_read_extensions_images();
    rig.talk
        .says(ASKED, idle())
        .fails(&podman(&format!("image exists {image}")), "exit status: 1: it printed nothing")
        .says(&podman(&format!("pull -q --authfile /var/lib/kubelet/config.json {image}")), "");
    rig.opens(image);
    rig.talk.says(fetch, "");
    rig.os.fetch(&target, &Pull::default()).unwrap();
    assert_eq!(rig.left_of_extensions(), [false, false]);

    // A command that fails leaves nothing behind either.
    let whole = || staged("q.io/a:1", &["usbguard"]);
    rig.talk
        .says(ASKED, idle())
        .says(ASKED, idle())
        .says(KARGS, HAS)
        .says(&podman(&format!("image exists {image}")), "");
    rig.opens(image);
    let install = "/usr/bin/rpm-ostree install --idempotent --allow-inactive usbguard";
    rig.talk.fails(install, "exit status: 1: error: Packages not found: usbguard");
    assert!(rig.os.stage(&target).unwrap_err().why.contains("Packages not found"));
    assert_eq!(rig.left_of_extensions(), [false, false]);
    rig.talk
        .says(ASKED, idle())
        .says(ASKED, idle())
        .says(KARGS, HAS)
        .says(&podman(&format!("image exists {image}")), "");
    rig.opens(image);
    rig.talk.says(install, "").says(ASKED, whole()).says(ASKED, whole()).says(KARGS, HAS);
    rig.os.stage(&target).unwrap();
    rig.talk.done();
}

#[test]
fn a_program_that_updates_the_host_by_itself_is_named_with_the_remedy() {
    let mut rig = Rig::new();
    let target = Deployment { image: "q.io/a:2".to_owned(), ..rig.now() };
    rig.talk.says(ASKED, idle()).fails(
        "/usr/bin/rpm-ostree rebase --download-only ostree-unverified-registry:q.io/a:2",
        "exit status: 1: error: Updates and deployments are driven by Zincati (zincati.service) See Zincati's documentation",
    );
    let why = rig.os.fetch(&target, &Pull::default()).unwrap_err().why;
    assert!(why.contains("systemctl disable --now zincati.service"), "{why}");
    rig.talk.done();
}

#[test]
fn a_plan_is_told_how_large_another_image_is_and_packages_that_cannot_be_fetched_are_told_with_the_remedy() {
    let mut rig = Rig::new();
    let now = rig.now();
    rig.talk.says(ASKED, idle());
    assert_eq!(rig.os.image_size(&now).unwrap(), None);
    std::fs::create_dir_all(rig._dir.path().join("usr/bin")).unwrap();
    std::fs::write(rig._dir.path().join("usr/bin/skopeo"), "").unwrap();
    let target = Deployment { image: "q.io/a:2".to_owned(), ..now.clone() };
    rig.talk
        .says(ASKED, idle())
        .says("/usr/bin/skopeo inspect --no-tags docker://q.io/a:2", r#"{"LayersData":[{"Size":7}]}"#);
    assert_eq!(rig.os.image_size(&target).unwrap(), Some(7));
    let target = Deployment { extensions: vec!["usbgard".to_owned()], ..now };
    rig.talk.says(ASKED, idle()).fails(
        "/usr/bin/rpm-ostree install --download-only --idempotent --allow-inactive usbgard",
        "exit status: 1: error: Packages not found: usbgard",
    );
    let why = rig.os.fetch(&target, &Pull::default()).unwrap_err().why;
    assert!(why.contains("not found: usbgard; check spec.extensions"), "{why}");
    rig.talk.done();
}
