//! Packages that were only in the running system before a change that is undone, against the fake programs of the parent module: how they
//! are staged again, how the running system gets them, what is told if that fails, and when the record of it goes.

use super::apply_live::{APPLIED, APPLY, live};
use super::*;

const INSTALL: &str = "/usr/bin/rpm-ostree install --idempotent --allow-inactive usbguard";
/// The same with what is on the host.
const AGAIN: &str = "/usr/bin/rpm-ostree install --cache-only --idempotent --allow-inactive usbguard";

#[test]
fn what_was_only_in_the_running_system_is_staged_again_when_a_later_change_is_undone() {
    let mut rig = Rig::new();
    staged::begin(&rig.os.root, &[]).unwrap();
    rig.talk.says(ASKED, live(&["usbguard"], APPLIED));
    let before = rig.os.mark().unwrap();
    // Another package was staged and applied meanwhile.
    let second = |applied: &str| {
        live(&["usbguard", "vim"], applied)
            .replace("rhcos-b.0", "rhcos-e.0")
            .replace("\"checksum\": \"d\"", "\"checksum\": \"e\"")
    };
    let both = ", \"live-replaced\": \"e\"";
    rig.talk
        .says(ASKED, second(both))
        .says(&format!("{APPLY} --target=d --allow-replacement"), "")
        .says(ASKED, second(APPLIED));
    rig.os.undo_live(&before).unwrap();
    let dropped = || status(&[one("rhcos-a.0", true, false, "q.io/a:1", &[])], "null");
    rig.talk
        .says(ASKED, second(APPLIED))
        .says("/usr/bin/rpm-ostree cleanup --pending", "")
        .says(ASKED, dropped());
    rig.os.undo(&before).unwrap();
    rig.talk.says(ASKED, dropped());
    assert!(rig.os.runs(&before).unwrap());
    // Only when the network may be back.
    let again = || live(&["usbguard"], APPLIED).replace("rhcos-b.0", "rhcos-f.0");
    rig.talk.says(ASKED, dropped()).says(KARGS, HAS).says(AGAIN, "").says(ASKED, again());
    rig.os.stage_again(&before).unwrap();
    rig.talk.says(ASKED, again());
    rig.os.stage_again(&before).unwrap();
    // Without a network the machine is safe without it.
    rig.talk
        .says(ASKED, dropped())
        .says(KARGS, HAS)
        .fails(AGAIN, "exit status: 1: error: Packages not found: usbguard")
        .fails(INSTALL, "exit status: 1: error: no network")
        .says(ASKED, dropped());
    rig.os.stage_again(&before).unwrap();
    rig.talk.done();
}

#[test]
fn a_change_after_one_whose_packages_were_staged_again_is_undone_too() {
    let mut rig = Rig::new();
    staged::begin(&rig.os.root, &[]).unwrap();
    // The first extension is in the running system (d). Its packages were staged again, which made another commit (f).
    let again = |replaced: &str| {
        live(&["usbguard"], replaced)
            .replace("rhcos-b.0", "rhcos-f.0")
            .replace("\"checksum\": \"d\"", "\"checksum\": \"f\"")
    };
    staged::record(&rig.os.root, "rhcos-f.0", &[]).unwrap();
    rig.talk.says(ASKED, again(APPLIED));
    let before = rig.os.mark().unwrap();
    rig.talk.says(ASKED, idle());
    assert!(rig.os.runs(&before).unwrap(), "what ran before the change is what runs");
    // A third deployment replaces it, and is dropped.
    let third = status(
        &[
            one("rhcos-g.0", false, true, "q.io/a:2", &["usbguard"]),
            one("rhcos-a.0", true, false, "q.io/a:1", &[]),
        ],
        "null",
    );
    staged::record(&rig.os.root, "rhcos-g.0", &[]).unwrap();
    rig.talk.says(ASKED, third).says("/usr/bin/rpm-ostree cleanup --pending", "").says(ASKED, idle());
    rig.os.undo(&before).unwrap();
    rig.talk
        .says(ASKED, idle())
        .says(KARGS, HAS)
        .says(AGAIN, "")
        .says(ASKED, again(APPLIED).replace("rhcos-f.0", "rhcos-h.0"));
    rig.os.stage_again(&before).unwrap();
    // A second extension that was brought into the running system is taken out of it, and the first one stays there.
    let both = again(", \"live-replaced\": \"e\"");
    rig.talk
        .says(ASKED, both)
        .says(&format!("{APPLY} --target=d --allow-replacement"), "")
        .says(ASKED, again(APPLIED));
    rig.os.undo_live(&before).unwrap();
    // After a boot without them nothing of it is in the running system.
    staged::record(&rig.os.root, "rhcos-f.0", &[]).unwrap();
    rig.talk.says(ASKED, again(""));
    let bare = rig.os.mark().unwrap();
    rig.talk
        .says(ASKED, again(", \"live-replaced\": \"e\""))
        .says(&format!("{APPLY} --reset --allow-replacement"), "")
        .says(ASKED, again(", \"live-replaced\": \"c\""));
    rig.os.undo_live(&bare).unwrap();
    // What somebody else has staged is not the agent's to stage again.
    staged::record(&rig.os.root, "rhcos-x.0", &[]).unwrap();
    rig.talk.says(ASKED, again(""));
    assert!(!rig.os.mark().unwrap().0.contains("usbguard"));
    rig.talk.done();
}

#[test]
fn a_machine_that_has_left_the_deployment_of_before_goes_back_there_first_and_stays() {
    let mut rig = Rig::new();
    staged::begin(&rig.os.root, &[]).unwrap();
    // An extension was applied to the running system of a, and staged in b. Then the machine booted c.
    rig.talk.says(ASKED, live(&["usbguard"], APPLIED));
    let before = rig.os.mark().unwrap();
    let record = rig._dir.path().join("run/machine-config-daemon-staged");
    std::fs::remove_file(&record).unwrap();
    let a = |booted| one("rhcos-a.0", booted, false, "q.io/a:1", &[]);
    let c = |booted| one("rhcos-c.0", booted, false, "q.io/a:2", &["usbguard"]);
    let again = |booted| one("rhcos-f.0", booted, !booted, "q.io/a:1", &["usbguard"]);
    let all = |deployments: &[String]| status(deployments, "null");
    rig.talk
        .says(ASKED, all(&[c(true), a(false)]))
        .says("/usr/bin/rpm-ostree rollback", "")
        .says(ASKED, all(&[a(false), c(true)]));
    rig.os.undo(&before).unwrap();
    rig.talk.says(ASKED, all(&[a(false), c(true)]));
    assert!(!rig.os.runs(&before).unwrap(), "the boot is still to come");
    rig.talk.says(ASKED, all(&[a(false), c(true)]));
    rig.os.undo(&before).unwrap();
    rig.talk.says(ASKED, all(&[a(false), c(true)]));
    rig.os.stage_again(&before).unwrap();
    // There the packages are staged again, once.
    rig.talk.says(ASKED, all(&[a(true), c(false)]));
    rig.os.undo(&before).unwrap();
    rig.talk
        .says(ASKED, all(&[a(true), c(false)]))
        .says(KARGS, HAS)
        .says(AGAIN, "")
        .says(ASKED, all(&[again(false), a(true), c(false)]));
    rig.os.stage_again(&before).unwrap();
    for _ in 0..2 {
        rig.talk.says(ASKED, all(&[again(false), a(true), c(false)]));
        rig.os.undo(&before).unwrap();
        rig.talk.says(ASKED, all(&[again(false), a(true), c(false)]));
        rig.os.stage_again(&before).unwrap();
        rig.talk.says(ASKED, all(&[again(false), a(true), c(false)]));
        assert!(rig.os.runs(&before).unwrap());
    }
    // It may boot before the undo has ended: it is as good as the one that it stands for.
    std::fs::remove_file(&record).unwrap();
    rig.talk.says(ASKED, all(&[again(true), a(false), c(false)]));
    assert!(rig.os.runs(&before).unwrap());
    rig.talk.says(ASKED, all(&[again(true), a(false), c(false)]));
    rig.os.undo(&before).unwrap();
    // For another change it is not.
    let other = UndoToken { id: "rhcos-z.0".to_owned(), ..UndoToken::read(&before, "rpm-ostree").unwrap() };
    rig.talk.says(ASKED, all(&[again(true), a(false), c(false)]));
    assert!(!rig.os.runs(&other.token().unwrap()).unwrap());
    rig.talk.done();
}

/// What becomes of a host: `a` ran with an extension live (d) that was staged in b; then a change is undone.
struct Undone {
    rig: Rig,
    before: Token,
}

impl Undone {
    fn new() -> Self {
        let mut rig = Rig::new();
        staged::begin(&rig.os.root, &[]).unwrap();
        rig.talk.says(ASKED, live(&["usbguard"], APPLIED));
        let before = rig.os.mark().unwrap();
        Self { rig, before }
    }

    /// The deployment of a that runs, with nothing staged.
    fn alone(live: &str) -> String {
        let a = one("rhcos-a.0", true, false, "q.io/a:1", &[]);
        status(&[a.replace("\"pinned\": false", &format!("\"pinned\": false{live}"))], "null")
    }

    /// The packages are staged again in f, which is another commit than the one that was live.
    fn again(live_replaced: &str) -> String {
        live(&["usbguard"], live_replaced)
            .replace("rhcos-b.0", "rhcos-f.0")
            .replace("\"checksum\": \"d\"", "\"checksum\": \"f\"")
    }

    /// They are staged again from what is on the host.
    fn stage_again(&mut self, live: &str) {
        self.rig
            .talk
            .says(ASKED, Self::alone(live))
            .says(KARGS, HAS)
            .says(AGAIN, "")
            .says(ASKED, Self::again(live));
        self.rig.os.stage_again(&self.before).unwrap();
    }

    /// They are not, for want of a network.
    fn fail_to(&mut self) {
        self.rig
            .talk
            .says(ASKED, Self::alone(APPLIED))
            .says(KARGS, HAS)
            .fails(AGAIN, "exit status: 1: error: Packages not found: usbguard")
            .fails(INSTALL, "exit status: 1: error: cannot download repodata of rhel-9")
            .says(ASKED, Self::alone(APPLIED));
        self.rig.os.stage_again(&self.before).unwrap();
    }

    fn record(&self) -> Option<String> {
        std::fs::read_to_string(self.rig._dir.path().join(RESTAGED_PACKAGES.trim_start_matches('/'))).ok()
    }
}

#[test]
fn packages_of_an_extensions_image_are_staged_again_from_it() {
    let Undone { mut rig, before } = Undone::new();
    let image = "q.io/extensions@sha256:1";
    rig.can_read_extensions_images();
    rig.os.use_extensions(image);
    rig.talk
        .says(ASKED, Undone::alone(APPLIED))
        .says(KARGS, HAS)
        .says(&podman(&format!("image exists {image}")), "");
    rig.opens(image);
    rig.talk.says(INSTALL, "").says(ASKED, Undone::again(APPLIED));
    rig.os.stage_again(&before).unwrap();
    assert_eq!(rig.left_of_extensions(), [false, false]);
    rig.talk.says(ASKED, Undone::again(APPLIED));
    rig.os.stage_again(&before).unwrap();
    rig.talk.done();
    // It cannot be had any more: that is told, and what somebody else stages then is not ours.
    let Undone { mut rig, before } = Undone::new();
    rig.can_read_extensions_images();
    rig.os.use_extensions(image);
    rig.talk
        .says(ASKED, Undone::alone(APPLIED))
        .says(KARGS, HAS)
        .fails(&podman(&format!("image exists {image}")), "exit status: 1: it printed nothing")
        .fails(
            &podman(&format!("pull -q --authfile /var/lib/kubelet/config.json {image}")),
            "exit status: 125: manifest unknown",
        )
        .says(ASKED, Undone::alone(APPLIED));
    rig.os.stage_again(&before).unwrap();
    rig.talk.says(ASKED, Undone::alone(APPLIED));
    let told = rig.os.not_brought_back().unwrap().unwrap();
    assert!(told.contains("manifest unknown") && told.contains("baseOSExtensionsContainerImage"), "{told}");
    assert_eq!(staged::arguments(&rig.os.root, "rhcos-x.0").unwrap(), None);
    rig.talk.done();
}

#[test]
fn packages_that_cannot_be_staged_again_are_told_with_the_remedy_as_long_as_they_are_missing() {
    let mut undone = Undone::new();
    assert!(!undone.rig.os.has_undo_data().unwrap());
    undone.fail_to();
    // What somebody stages now is not the agent's.
    assert_eq!(staged::arguments(&undone.rig.os.root, "rhcos-x.0").unwrap(), None);
    // It is told also when a person has made another deployment without them.
    let by_hand = || Undone::alone(APPLIED).replace("rhcos-a.0", "rhcos-x.0");
    for now in [Undone::alone(APPLIED), by_hand(), Undone::alone(APPLIED)] {
        undone.rig.talk.says(ASKED, now);
        let told = undone.rig.os.not_brought_back().unwrap().unwrap();
        for said in [
            "usbguard",
            "cannot download repodata of rhel-9; check spec.extensions",
            "; correct the cause. Then the next OS update installs them.",
            "run `touch /run/machine-config-daemon-force` on it: the config is applied again, with a reboot",
        ] {
            assert!(told.contains(said), "{said}: {told}");
        }
        // No comparison with the config asks rpm-ostree for it.
        assert!(!undone.rig.os.has_undo_data().unwrap());
    }
    // No boot brings them.
    assert!(undone.rig.os.bring_back_live(&undone.before, true).unwrap());
    // The next update of the OS brings them. The record goes when that is kept.
    undone.rig.talk.says(ASKED, staged("q.io/a:2", &["usbguard"]));
    assert_eq!(undone.rig.os.not_brought_back().unwrap(), None);
    undone.rig.os.discard_undo_data().unwrap();
    assert_eq!((undone.record(), undone.rig.os.not_brought_back().unwrap()), (None, None));
    undone.rig.os.discard_undo_data().unwrap();
    // Success that is none.
    undone
        .rig
        .talk
        .says(ASKED, Undone::alone(APPLIED))
        .says(KARGS, HAS)
        .says(AGAIN, "")
        .says(ASKED, Undone::alone(APPLIED));
    undone.rig.os.stage_again(&undone.before).unwrap();
    undone.rig.talk.says(ASKED, Undone::alone(APPLIED));
    assert!(undone.rig.os.not_brought_back().unwrap().unwrap().contains("reported success"));
    undone.rig.talk.done();
}

#[test]
fn the_record_of_what_was_staged_again_goes_when_no_undo_can_need_it() {
    let mut undone = Undone::new();
    undone.stage_again(APPLIED);
    assert!(undone.rig.os.has_undo_data().unwrap());
    let record = undone.record().unwrap();
    assert!(record.contains("rhcos-f.0") && record.contains("rhcos-b.0"), "{record}");
    // A later change is kept, or nothing is under way any more.
    undone.rig.os.discard_undo_data().unwrap();
    assert_eq!((undone.record(), undone.rig.os.has_undo_data().unwrap()), (None, false));
    // One that is damaged, too.
    undone.rig.os.root.write_bytes(RESTAGED_PACKAGES, b"{", crate::disk::attributes::PRIVATE).unwrap();
    assert!(undone.rig.os.has_undo_data().unwrap());
    undone.rig.os.discard_undo_data().unwrap();
    assert_eq!(undone.record(), None);
    undone.rig.talk.done();
}

#[test]
fn what_was_staged_again_replaces_what_is_in_the_running_system_if_that_is_allowed() {
    let in_the_running_system = ", \"live-replaced\": \"f\"";
    let mut undone = Undone::new();
    // Nothing was lost: no question is asked.
    assert!(undone.rig.os.bring_back_live(&undone.before, true).unwrap());
    undone.stage_again(APPLIED);
    undone
        .rig
        .talk
        .says(ASKED, Undone::again(APPLIED))
        .says(ASKED, Undone::again(APPLIED))
        .says(APPLY, "No changes.\n")
        .says(ASKED, Undone::again(in_the_running_system));
    assert!(undone.rig.os.bring_back_live(&undone.before, true).unwrap());
    undone.rig.talk.says(ASKED, Undone::again(in_the_running_system));
    assert!(undone.rig.os.bring_back_live(&undone.before, true).unwrap(), "once");
    // The process ended before the journal did: what is there already is not taken out.
    undone.rig.talk.says(ASKED, Undone::again(in_the_running_system));
    undone.rig.os.undo_live(&undone.before).unwrap();
    // It counts as booted.
    undone.rig.talk.says(ASKED, Undone::again(in_the_running_system)).says(KARGS, HAS);
    let now = undone.rig.os.status().unwrap();
    assert_eq!((now.booted.extensions, now.staged), (vec!["usbguard".to_owned()], None));
    undone.rig.talk.done();

    // Not allowed, or refused: it is there after a boot.
    let mut undone = Undone::new();
    undone.stage_again(APPLIED);
    undone.rig.talk.says(ASKED, Undone::again(APPLIED));
    assert!(!undone.rig.os.bring_back_live(&undone.before, false).unwrap());
    undone
        .rig
        .talk
        .says(ASKED, Undone::again(APPLIED))
        .says(ASKED, Undone::again(APPLIED))
        .fails(APPLY, "exit status: 1: error: packages would be changed: 1, allow replacement to override");
    let why = undone.rig.os.bring_back_live(&undone.before, true).unwrap_err().why;
    assert!(why.contains("packages would be changed: 1"), "{why}");
    undone.rig.talk.done();

    // In a later boot the services of the packages did not start: a boot is needed in any case, and that is all.
    let mut undone = Undone::new();
    undone.stage_again("");
    undone.rig.talk.says(ASKED, Undone::again(""));
    assert!(!undone.rig.os.bring_back_live(&undone.before, true).unwrap());
    let booted = one("rhcos-f.0", true, false, "q.io/a:1", &["usbguard"]);
    undone.rig.talk.says(ASKED, status(&[booted, one("rhcos-a.0", false, false, "q.io/a:1", &[])], "null"));
    assert!(undone.rig.os.bring_back_live(&undone.before, true).unwrap());
    undone.rig.talk.done();

    // It was only staged before.
    let mut rig = Rig::new();
    staged::begin(&rig.os.root, &[]).unwrap();
    rig.talk.says(ASKED, live(&["usbguard"], ""));
    let before = rig.os.mark().unwrap();
    let mut undone = Undone { rig, before };
    undone.stage_again("");
    assert!(undone.rig.os.bring_back_live(&undone.before, true).unwrap());
    undone.rig.talk.done();
}
