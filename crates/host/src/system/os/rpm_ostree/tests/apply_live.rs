//! Packages in the running system, against the fake programs of the parent module.

use super::*;

/// What is staged has the packages, and the running system has `live` (a commit) or nothing more than the deployment.
pub(super) fn live(packages: &[&str], live: &str) -> String {
    let pending = one("rhcos-b.0", false, true, "q.io/a:1", packages)
        .replace("\"checksum\": \"c\"", "\"checksum\": \"d\"");
    let booted = one("rhcos-a.0", true, false, "q.io/a:1", &[]);
    let booted = booted.replace("\"pinned\": false", &format!("\"pinned\": false{live}"));
    status(&[pending, booted], "null")
}

pub(super) const APPLIED: &str = ", \"live-replaced\": \"d\"";
pub(super) const APPLY: &str = "/usr/bin/rpm-ostree apply-live";

#[test]
fn packages_are_brought_into_the_running_system_checked_there_and_taken_back() {
    let mut rig = Rig::new();
    rig.talk.says(ASKED, idle());
    let before = rig.os.mark().unwrap();
    staged::begin(&rig.os.root, &[]).unwrap();
    rig.talk
        .says(ASKED, live(&["usbguard"], ""))
        .says(APPLY, "Added:\n  usbguard-1.0\nSuccessfully updated running filesystem tree\n")
        .says(ASKED, live(&["usbguard"], APPLIED));
    rig.os.apply_live().unwrap();
    // It counts as booted: nothing is left for the next boot.
    rig.talk.says(ASKED, live(&["usbguard"], APPLIED)).says(KARGS, HAS);
    let status = rig.os.status().unwrap();
    assert_eq!((status.booted.extensions, status.staged), (vec!["usbguard".to_owned()], None));
    rig.talk.says(ASKED, live(&["usbguard"], APPLIED));
    assert!(rig.os.runs(&before).unwrap());
    // The undo: out of the running system, then out of the next boot.
    rig.talk
        .says(ASKED, live(&["usbguard"], APPLIED))
        .says(&format!("{APPLY} --reset --allow-replacement"), "Removed:\n  usbguard-1.0\n")
        .says(ASKED, live(&["usbguard"], ", \"live-replaced\": \"c\""));
    rig.os.undo_live(&before).unwrap();
    rig.talk.says(ASKED, live(&["usbguard"], ", \"live-replaced\": \"c\""));
    rig.os.undo_live(&before).unwrap();
    rig.talk
        .says(ASKED, live(&["usbguard"], ", \"live-replaced\": \"c\""))
        .says("/usr/bin/rpm-ostree cleanup --pending", "")
        .says(ASKED, idle());
    rig.os.undo(&before).unwrap();
    rig.talk.done();
}

#[test]
fn a_refusal_or_a_success_that_is_none_is_an_error_and_an_interrupted_try_is_ended_first() {
    let mut rig = Rig::new();
    rig.talk.says(ASKED, idle());
    let before = rig.os.mark().unwrap();
    rig.talk.says(ASKED, idle());
    assert!(rig.os.apply_live().unwrap_err().why.contains("nothing is staged"));
    staged::begin(&rig.os.root, &[]).unwrap();
    let refuses = "exit status: 1: error: packages would be changed: 2, allow replacement to override";
    rig.talk.says(ASKED, live(&["usbguard"], "")).fails(APPLY, refuses);
    let why = rig.os.apply_live().unwrap_err().why;
    assert!(why.contains("rpm-ostree apply-live") && why.contains("packages would be changed: 2"), "{why}");
    // Nothing of it is there.
    rig.talk.says(ASKED, live(&["usbguard"], ""));
    rig.os.undo_live(&before).unwrap();
    for nothing in [
        "",
        ", \"live-inprogress\": \"d\"",
        ", \"live-replaced\": \"d\", \"live-inprogress\": \"d\"",
        ", \"live-replaced\": \"e\"",
    ] {
        rig.talk
            .says(ASKED, live(&["usbguard"], ""))
            .says(APPLY, "Successfully updated running filesystem tree\n")
            .says(ASKED, live(&["usbguard"], nothing));
        let why = rig.os.apply_live().unwrap_err().why;
        assert!(why.contains("live-replaced"), "{nothing}: {why}");
    }
    rig.talk
        .says(ASKED, live(&["usbguard"], ", \"live-inprogress\": \"d\""))
        .says(&format!("{APPLY} --target=d --allow-replacement"), "")
        .says(&format!("{APPLY} --reset --allow-replacement"), "")
        .says(ASKED, live(&["usbguard"], ", \"live-replaced\": \"c\""));
    rig.os.undo_live(&before).unwrap();
    rig.talk
        .says(ASKED, live(&["usbguard"], APPLIED))
        .says(&format!("{APPLY} --reset --allow-replacement"), "")
        .says(ASKED, live(&["usbguard"], APPLIED));
    assert!(rig.os.undo_live(&before).unwrap_err().why.contains("reboot it"));
    rig.talk.done();
}
