//! The back end against fake programs that replay conversations: the answers of bootc 1.6.0 and of OSTree are as recorded
//! on a Debian machine (`tests/conformance/os/`). The fakes take the exact arguments and no others.
//!
//! Not here: which images stay in the store (see `images`), nor what becomes of kernel arguments alone (see `arguments`).

mod arguments;
mod images;

use super::*;
use crate::paths::OSTREE_ORIGIN;
use crate::system::os::fake_programs::FakePrograms;

const BOOTED: &str = "beb8c16117bc3e9758a6d40a66c7a8802f93c9836a748ebcd5851f4a62dc03ed";
const STAGED: &str = "ea31a8e2c5b530a50b18df61ce79ff57deb4277e1dfff6f939c958815a33f9d4";
const BEFORE: &str = "77ed71b287759d8b5676ce037747bf17fe9c6a3c26448063b148a2a4f65f994c";
const MARK: &str = "ostree=/ostree/boot.0/debian/9c6c/0";
const ADMIN: &str = "/usr/bin/ostree admin status";
const BOOTC_STATUS: &str = "/usr/bin/bootc status --json";
const V3: &str = "registry.lab:5055/lab/os:v3";
/// Asks for the commit of that image.
const REV_PARSE: &str = "/usr/bin/ostree rev-parse --repo=/ostree/repo \
    ostree/container/image/docker_3A__2F__2F_registry_2E_lab_3A_5055/lab/os_3A_v3";

fn admin(staged: bool) -> String {
    let first = if staged {
        format!("  debian {STAGED}.0 (staged)\n    origin: <unknown origin type>\n")
    } else {
        String::new()
    };
    format!(
        "{first}* debian {BOOTED}.0\n    origin: <unknown origin type>\n  debian {BEFORE}.1 (rollback)\n    origin: \
         <unknown origin type>\n"
    )
}

/// The recorded answer of bootc in this state.
fn recorded(state: &str) -> String {
    let all: Vec<serde_json::Value> =
        serde_json::from_str(include_str!("../../../../../../tests/conformance/os/bootc-1.6.0.json"))
            .unwrap();
    let answer = all.iter().find(|r| r["state"] == state && r["stdout"].is_object()).unwrap();
    answer["stdout"].to_string()
}

fn bootc(staged: bool) -> String {
    recorded(if staged { "after that: v3 is staged" } else { "booted v4, rollback v5" })
}

struct Rig {
    dir: tempfile::TempDir,
    os: OstreeHost,
    talk: FakePrograms,
}

impl Rig {
    fn new(images: Images) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let talk = FakePrograms::default();
        let root = Root::open(dir.path()).unwrap();
        let os = OstreeHost::new(root, Box::new(talk.clone()), images);
        let rig = Self { dir, os, talk };
        let origin =
            |image: &str| format!("[origin]\ncontainer-image-reference=ostree-unverified-registry:{image}\n");
        let deploy = "ostree/deploy/debian/deploy";
        rig.put(&format!("{deploy}/{BOOTED}.0.origin"), &origin("registry.lab:5055/lab/os:latest"));
        rig.put(&format!("{deploy}/{STAGED}.0.origin"), &origin(V3));
        rig.put(
            &format!("{deploy}/{BOOTED}.0/usr/lib/bootc/kargs.d/10-lab.toml"),
            "kargs = [\"lab.karg=v4\"]\n",
        );
        rig.put(
            &format!("{deploy}/{STAGED}.0/usr/lib/bootc/kargs.d/10-lab.toml"),
            "kargs = [\"lab.karg=v3\"]\n",
        );
        rig.put(
            "proc/cmdline",
            &format!("BOOT_IMAGE=/v root=LABEL=root rw console=ttyS0 {MARK} lab.karg=v4 typed\n"),
        );
        rig.put(
            "boot/loader/entries/ostree-1.conf",
            "title old\noptions root=LABEL=root rw ostree=/ostree/boot.0/debian/9c6c/1\n",
        );
        rig.put(
            "boot/loader/entries/ostree-2.conf",
            &format!("title new\noptions root=LABEL=root rw console=ttyS0 {MARK} lab.karg=v4\n"),
        );
        rig
    }

    fn put(&self, path: &str, text: &str) {
        let at = self.dir.path().join(path);
        std::fs::create_dir_all(at.parent().unwrap()).unwrap();
        std::fs::write(at, text).unwrap();
    }

    /// Its next questions are answered so.
    fn asks(&self, times: usize, staged: bool) {
        for _ in 0..times {
            self.talk.says(ADMIN, admin(staged));
            if self.os.images == Images::Bootc {
                self.talk.says(BOOTC_STATUS, bootc(staged));
            }
        }
    }

    fn now(&mut self) -> Deployment {
        self.asks(1, false);
        self.os.status().unwrap().next().clone()
    }
}

/// `ostree` where `/sysroot` can be written to.
fn writable(command: &str) -> String {
    in_writable(&format!("/usr/bin/ostree {command}"))
}

/// Any program where `/sysroot` can be written to.
fn in_writable(command: &str) -> String {
    format!("/usr/bin/unshare --mount /bin/sh -c {WRITABLE} sh {command}")
}

/// Asks bootc whether it has the commands for container images.
const BOOTC_HAS_THEM: &str = "/usr/bin/bootc internals ostree-container --help";

/// The configuration of an image of this architecture with a label.
fn configuration(label: &str) -> String {
    let architecture = match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    };
    format!(r#"{{"architecture":"{architecture}","os":"linux","config":{{"Labels":{{"{label}":"x"}}}}}}"#)
}

#[test]
fn ostree_alone_pulls_an_image_and_deploys_it_with_every_argument() {
    let mut rig = Rig::new(Images::Container);
    rig.put("usr/libexec/libostree/ext/ostree-container", "");
    let mut target = rig.now();
    target.image = V3.to_owned();
    target.kernel_arguments.push("nosmt".to_owned());
    rig.asks(1, false);
    let pulls = writable(&format!("container image pull /ostree/repo ostree-unverified-registry:{V3}"));
    let metadata =
        format!("/usr/bin/ostree container image metadata --repo /ostree/repo --config registry:{V3}");
    rig.talk.says(&pulls, "layers already present: 1; layers needed: 1 (139.3\u{a0}MB)\n");
    rig.talk.says(&metadata, configuration("ostree.bootable"));
    let pull = Pull::default();
    rig.os.fetch(&target, &pull).unwrap();
    assert_eq!(pull.progress().unwrap().total, 139_300_000);

    // What cannot boot here is refused before the drain; what cannot be asked is checked when it is staged.
    for (answer, why) in [(configuration("maintainer"), Some("no bootable OS")), (String::new(), None)] {
        rig.asks(1, false);
        rig.talk.says(&pulls, "");
        match why {
            Some(_) => rig.talk.says(&metadata, answer),
            None => rig.talk.fails(&metadata, "exit status: 1: error: unrecognized subcommand 'metadata'"),
        };
        let said = rig.os.fetch(&target, &Pull::default()).err().map(|e| e.why);
        assert_eq!(said.is_some(), why.is_some(), "{said:?}");
        assert!(said.unwrap_or_default().contains(why.unwrap_or_default()));
    }
    // As the real program said it on a full disk.
    rig.asks(1, false);
    rig.talk.fails(
        &pulls,
        "exit status: 1: Layer sha256:2d8d: Importing objects: Writing content object: min-free-space-percent '3%' would \
         be exceeded, at least 8.2 kB requested",
    );
    // No image is superseded that could make room.
    rig.talk.says(ADMIN, admin(false));
    let why = rig.os.fetch(&target, &Pull::default()).unwrap_err().why;
    assert!(
        why.starts_with("/usr/bin/ostree container image pull: ") && why.contains("df -h /sysroot"),
        "{why}"
    );
    // Through the cluster's proxy, whose password nobody is told.
    rig.put("etc/mco/proxy.env", "HTTPS_PROXY=http://u:hush@p:3128\n");
    rig.asks(1, false);
    rig.talk.fails(
        &format!("env HTTPS_PROXY=http://u:hush@p:3128 {pulls}"),
        "exit status: 1: proxy u:hush@p refused",
    );
    let why = rig.os.fetch(&target, &Pull::default()).unwrap_err().why;
    assert!(why.contains("refused") && !why.contains("hush"), "{why}");
    std::fs::remove_file(rig.dir.path().join("etc/mco/proxy.env")).unwrap();
    // What was pulled is staged without a question to the registry.
    rig.asks(2, false);
    rig.talk.says(REV_PARSE, format!("{STAGED}\n")).says(
        &format!(
            "/usr/bin/ostree admin deploy --stage --os=debian --origin-file={OSTREE_ORIGIN} --karg-none \
             --karg-append=root=LABEL=root --karg-append=rw --karg-append=console=ttyS0 --karg-append=lab.karg=v4 \
             --karg-append=nosmt {STAGED}"
        ),
        "",
    );
    rig.asks(2, true);
    rig.os.stage(&target).unwrap();
    // A second time nothing is left to do, and something else is.
    rig.asks(1, true);
    rig.os.stage(&target).unwrap();
    let (id, other) = (format!("debian-{STAGED}.0"), format!("debian-{BEFORE}.0"));
    let complete = |id: &str, target: &Deployment| staged::is_complete(&rig.os.root, id, target).unwrap();
    let v5 = Deployment { image: "registry.lab:5055/lab/os:v5".to_owned(), ..target.clone() };
    assert_eq!([complete(&id, &target), complete(&other, &target), complete(&id, &v5)], [true, false, false]);
    // Somebody drops it and stages one that OSTree gives the same id; another change begins.
    rig.put("run/ostree/staged-deployment", "another");
    assert!(!complete(&id, &target));
    std::fs::remove_file(rig.dir.path().join("run/ostree/staged-deployment")).unwrap();
    assert!(complete(&id, &target));
    staged::begin_change(&rig.os.root).unwrap();
    assert!(!complete(&id, &target) && staged::arguments(&rig.os.root, &id).unwrap().is_some());
    let origin = std::fs::read_to_string(rig.dir.path().join(OSTREE_ORIGIN.trim_start_matches('/'))).unwrap();
    assert_eq!(origin, format!("[origin]\ncontainer-image-reference=ostree-unverified-registry:{V3}\n"));
    rig.asks(1, true);
    assert_eq!(rig.os.status().unwrap().next(), &target);
    rig.talk.done();
}

#[test]
fn an_image_that_is_named_by_its_digest_and_on_the_host_is_not_pulled_again_unless_it_is_verified() {
    let mut rig = Rig::new(Images::Container);
    rig.put("usr/libexec/libostree/ext/ostree-container", "");
    let digest = format!("registry.lab:5055/lab/os@sha256:{BEFORE}");
    let stored = format!(
        "ostree/container/image/docker_3A__2F__2F_registry_2E_lab_3A_5055/lab/os_40_sha256_3A_{BEFORE}"
    );
    let held = format!("/usr/bin/ostree rev-parse --repo=/ostree/repo {stored}");
    let metadata =
        format!("/usr/bin/ostree container image metadata --repo /ostree/repo --config registry:{digest}");
    let mut target = rig.now();
    target.image = digest.clone();
    rig.asks(1, false);
    rig.talk.says(&held, format!("{STAGED}\n")).says(&metadata, configuration("ostree.bootable"));
    rig.os.fetch(&target, &Pull::default()).unwrap();
    // It is checked all the same.
    rig.asks(1, false);
    rig.talk.says(&held, format!("{STAGED}\n")).says(&metadata, configuration("maintainer"));
    assert!(rig.os.fetch(&target, &Pull::default()).is_err());
    let pull = |reference: &str| writable(&format!("container image pull /ostree/repo {reference}:{digest}"));
    // It is not there; and one whose signature the registry has.
    rig.asks(1, false);
    rig.talk
        .fails(&held, "error: Refspec not found")
        .fails(&REV_PARSE.replace("os_3A_v3", "os_3A_latest"), "error: Refspec not found");
    rig.talk.fails(
        &pull("ostree-unverified-registry"),
        "exit status: 1: reading manifest: unauthorized: authentication required",
    );
    let why = rig.os.fetch(&target, &Pull::default()).unwrap_err().why;
    assert!(why.contains("pull secret") && why.contains("spec.osImageURL"), "{why}");
    target.image = format!("ostree-image-signed:docker://{digest}");
    rig.asks(1, false);
    rig.talk
        .says(&pull("ostree-image-signed:registry"), "")
        .says(&metadata, configuration("ostree.bootable"));
    rig.os.fetch(&target, &Pull::default()).unwrap();
    rig.talk.done();
}

#[test]
fn bootc_switches_and_the_arguments_of_the_image_change_with_it() {
    let mut rig = Rig::new(Images::Bootc);
    let mut target = rig.now();
    target.image = V3.to_owned();
    target.kernel_arguments.push("nosmt".to_owned());
    // An old bootc fetches when it stages.
    rig.asks(1, false);
    rig.talk.fails(BOOTC_HAS_THEM, "exit status: 2: error: unrecognized subcommand 'ostree-container'");
    rig.os.fetch(&target, &Pull::default()).unwrap();
    rig.asks(2, false);
    rig.talk.says(
        &format!("/usr/bin/bootc switch {V3}"),
        "layers already present: 1; layers needed: 1 (529 bytes)\n",
    );
    rig.asks(1, true);
    rig.talk.says(
        &format!(
            "/usr/bin/ostree admin deploy --stage --os=debian \
             --origin-file=/ostree/deploy/debian/deploy/{STAGED}.0.origin --karg-none --karg-append=root=LABEL=root \
             --karg-append=rw --karg-append=console=ttyS0 --karg-append=lab.karg=v3 --karg-append=nosmt {STAGED}"
        ),
        "",
    );
    rig.asks(1, true);
    rig.os.stage(&target).unwrap();
    rig.asks(1, true);
    let staged = rig.os.status().unwrap().next().clone();
    assert_eq!(staged.image, V3);
    assert_eq!(staged.kernel_arguments.join(" "), "root=LABEL=root rw console=ttyS0 lab.karg=v3 nosmt");
    // The target has the arguments of the old image; nevertheless it is known to be staged.
    rig.asks(1, true);
    rig.os.stage(&target).unwrap();
    rig.talk.done();
}

#[test]
fn bootc_without_ostree_container_pulls_by_its_own_copy_of_it_before_the_drain() {
    let mut rig = Rig::new(Images::Bootc);
    let target = Deployment { image: V3.to_owned(), ..rig.now() };
    let by_bootc = "/usr/bin/bootc internals ostree-container image";
    let metadata = format!("{by_bootc} metadata --repo /ostree/repo --config registry:{V3}");
    // An answer that does not come is not one of an old bootc.
    rig.asks(1, false);
    rig.talk.fails(BOOTC_HAS_THEM, "it took longer than 60 s");
    assert!(rig.os.fetch(&target, &Pull::default()).unwrap_err().why.contains("longer than 60 s"));
    // It is asked once.
    rig.asks(1, false);
    rig.talk.says(BOOTC_HAS_THEM, "Usage: bootc internals ostree-container [ARGS]...\n");
    let pulls = in_writable(&format!("{by_bootc} pull /ostree/repo ostree-unverified-registry:{V3}"));
    rig.talk.says(&pulls, "").says(&metadata, configuration("containers.bootc"));
    rig.os.fetch(&target, &Pull::default()).unwrap();
    rig.asks(1, false);
    rig.talk.says(&pulls, "").says(&metadata, configuration("maintainer"));
    assert!(rig.os.fetch(&target, &Pull::default()).unwrap_err().why.contains("no bootable OS"));
    rig.talk.done();
}

#[test]
fn a_new_deployment_that_has_booted_gives_way_and_what_others_staged_is_not_dropped() {
    let mut rig = Rig::new(Images::Container);
    rig.asks(1, false);
    let before = rig.os.mark().unwrap();
    let why = {
        rig.asks(1, true);
        rig.os.undo(&before).unwrap_err().why
    };
    assert!(why.contains("not by a MachineConfig") && why.contains("undeploy 0"), "{why}");
    let booted = format!("* debian {STAGED}.0\n  debian {BEFORE}.1\n  debian {BOOTED}.0 (rollback)\n");
    let queued = format!("  debian {BOOTED}.0 (pending)\n* debian {STAGED}.0\n  debian {BEFORE}.1\n");
    rig.talk.says(ADMIN, &*booted).says(ADMIN, &*booted);
    rig.talk.says("/usr/bin/ostree admin set-default 2", "").says(ADMIN, &*queued);
    rig.os.undo(&before).unwrap();
    rig.talk.says(ADMIN, &*queued).says(ADMIN, &*queued);
    assert!(!rig.os.runs(&before).unwrap());
    rig.os.undo(&before).unwrap();
    rig.talk.done();
}

/// As recorded: podman answered nonsense, so bootc failed, but had staged the image by then.
#[test]
fn a_switch_that_staged_and_then_failed_is_a_failure_and_is_undone() {
    let mut rig = Rig::new(Images::Bootc);
    let target = Deployment { image: V3.to_owned(), ..rig.now() };
    rig.asks(1, false);
    let before = rig.os.mark().unwrap();
    rig.asks(2, false);
    rig.talk.fails(
        &format!("/usr/bin/bootc switch {V3}"),
        "exit status: 1: error: Switching: Staging: Pruning: Listing images: EOF while parsing a value",
    );
    let why = rig.os.stage(&target).unwrap_err().why;
    assert!(why.contains("/usr/bin/bootc switch") && why.contains("Listing images"), "{why}");
    rig.asks(1, true);
    rig.talk.says("/usr/bin/ostree admin undeploy 0", "");
    rig.asks(1, false);
    rig.os.undo(&before).unwrap();
    rig.talk.done();
}

#[test]
fn what_the_machine_was_made_from_is_told_by_digest_and_what_no_registry_has_is_not_pulled_again() {
    let latest = "ostree-unverified-registry:registry.lab:5055/lab/os:latest";
    let image = |reference: &str| {
        let named = if reference == latest { "" } else { latest };
        Some(crate::OsOrigin::Image { reference: reference.to_owned(), named: named.to_owned() })
    };
    let mut rig = Rig::new(Images::Bootc);
    rig.asks(1, false);
    let digest = "sha256:2cc298260e3b73a73c0e3e4cc46e7ff14354fbfa246d42593cbb2b2262e9cb11";
    let by_digest = format!("ostree-unverified-registry:registry.lab:5055/lab/os@{digest}");
    assert_eq!(rig.os.origin().unwrap(), image(&by_digest));
    rig.talk.done();

    let mut rig = Rig::new(Images::Container);
    rig.put("usr/libexec/libostree/ext/ostree-container", "");
    let show = format!(
        "/usr/bin/ostree show --repo=/ostree/repo --print-metadata-key=ostree.manifest-digest {BOOTED}"
    );
    rig.asks(1, false);
    rig.talk.says(&show, format!("'{digest}'\n"));
    assert_eq!(rig.os.origin().unwrap(), image(&by_digest));
    rig.asks(1, false);
    rig.talk.fails(&show, "error: No such metadata key");
    assert_eq!(rig.os.origin().unwrap(), image("ostree-unverified-registry:registry.lab:5055/lab/os:latest"));
    let target = Deployment { image: "ostree-unverified-image:oci:/var/os:a".to_owned(), ..rig.now() };
    rig.asks(1, false);
    rig.talk
        .says(
            "/usr/bin/ostree rev-parse --repo=/ostree/repo ostree/container/image/oci_3A__2F_var/os_3A_a",
            format!("{BEFORE}\n"),
        )
        .says(
            "/usr/bin/ostree container image metadata --repo /ostree/repo --config oci:/var/os:a",
            configuration("ostree.bootable"),
        );
    rig.os.fetch(&target, &Pull::default()).unwrap();
    // By the digest it is the image that was replaced, which has another name.
    let target = Deployment { image: by_digest, ..target };
    rig.put(
        "var/lib/machine-config-daemon/os-images.json",
        &serde_json::json!({"known": ["registry:q.io/lab/os:1", "registry:registry.lab:5055/lab/os:v2",
            "registry:registry.lab:5055/lab/os:latest"], "fetched": ""})
        .to_string(),
    );
    let stored = |escaped: &str| {
        format!("ostree/container/image/docker_3A__2F__2F_registry_2E_lab_3A_5055/lab/os{escaped}")
    };
    let asks = |escaped: &str| format!("/usr/bin/ostree rev-parse --repo=/ostree/repo {}", stored(escaped));
    let alias = stored(&format!("_40_sha256_3A_{}", digest.trim_start_matches("sha256:")));
    rig.put(
        &format!("ostree/deploy/debian/deploy/{BOOTED}.0.origin"),
        &format!("[origin]\ncontainer-image-reference=ostree-unverified-registry:{V3}\n"),
    );
    rig.asks(1, false);
    rig.talk
        .fails(&format!("/usr/bin/ostree rev-parse --repo=/ostree/repo {alias}"), "error: Refspec not found")
        .fails(&asks("_3A_v2"), "error: Refspec not found")
        .says(&asks("_3A_latest"), format!("{BEFORE}\n"))
        .says(&show.replace(BOOTED, BEFORE), format!("'{digest}'\n"))
        .says(&writable(&format!("refs --repo=/ostree/repo --create {alias} {BEFORE}")), "")
        .says(
            &format!(
                "/usr/bin/ostree container image metadata --repo /ostree/repo --config \
                 registry:registry.lab:5055/lab/os@{digest}"
            ),
            configuration("ostree.bootable"),
        );
    rig.os.fetch(&target, &Pull::default()).unwrap();
    // One that was made from a branch.
    rig.put(&format!("ostree/deploy/debian/deploy/{BOOTED}.0.origin"), "[origin]\nrefspec=debian:x\n");
    rig.asks(1, false);
    let branch = crate::OsOrigin::Other { origin: "debian:x".to_owned(), commit: BOOTED.to_owned() };
    assert_eq!(rig.os.origin().unwrap(), Some(branch));
    rig.talk.done();
}

#[test]
fn what_others_staged_or_queued_is_left_alone() {
    let mut rig = Rig::new(Images::Bootc);
    let target = Deployment { image: V3.to_owned(), ..rig.now() };
    rig.asks(1, true);
    let why = rig.os.fetch(&target, &Pull::default()).unwrap_err().why;
    assert!(why.contains("is staged, and not by a MachineConfig") && why.contains("undeploy 0"), "{why}");
    // A rollback that was queued by hand.
    let text = format!("  debian {BEFORE}.1 (pending)\n* debian {BOOTED}.0\n");
    rig.talk.says(ADMIN, text).says(BOOTC_STATUS, recorded("rollback queued"));
    let why = rig.os.fetch(&target, &Pull::default()).unwrap_err().why;
    assert!(why.contains(BEFORE), "{why}");
    // Both programs must agree.
    rig.talk.says(ADMIN, admin(true)).says(BOOTC_STATUS, bootc(false));
    assert!(rig.os.fetch(&target, &Pull::default()).unwrap_err().why.contains("differ on what boots next"));
    rig.talk.done();
}

#[test]
fn what_a_host_of_ostree_cannot_have_is_refused() {
    let refused = |images: Images| {
        let rig = Rig::new(images);
        OsField::ALL.into_iter().filter(|f| rig.os.refuses(*f).is_some()).collect::<Vec<_>>()
    };
    assert_eq!(refused(Images::Bootc), [OsField::KernelType, OsField::Extensions]);
    assert_eq!(refused(Images::Container), [OsField::KernelType, OsField::Extensions]);
    assert_eq!(refused(Images::None), [OsField::Image, OsField::KernelType, OsField::Extensions]);
}
