//! Entries whose boots the boot loader counts.

use super::*;

const FEATURES: &str = "/sys/firmware/efi/efivars/LoaderFeatures-4a67b082-0a4c-41cf-b6c7-440b29bb8c4f";

const DEFAULT: &str = "/sys/firmware/efi/efivars/LoaderEntryDefault-4a67b082-0a4c-41cf-b6c7-440b29bb8c4f";

/// Attributes, and the bit of boot counting.
const COUNTS: &str = "\u{6}\0\0\0\u{4}\0\0\0\0\0\0\0";

/// A host of systemd-boot that counts boots, and more files.
fn counting(more: &[(&str, &str)]) -> (Rig, String) {
    let (path, text) = entry("6.1");
    let files = [
        ("/etc/machine-id", ID),
        ("/proc/cmdline", "root=UUID=1 ro quiet systemd.machine_id=0123456789abcdef0123456789abcdef"),
        ("/proc/sys/kernel/osrelease", "6.1"),
        (FEATURES, COUNTS),
        (&path, &text),
    ];
    (Rig::new(&[&files[..], more].concat()), path.trim_end_matches(".conf").to_owned())
}

impl Rig {
    /// The files of entries, by what their names have beside the stem.
    fn entries(&self, stem: &str) -> Vec<String> {
        let name = stem.rsplit('/').next().unwrap();
        let all = self.os.root.list("/efi/loader/entries").unwrap();
        all.iter().filter_map(|file| file.strip_prefix(name).map(str::to_owned)).collect()
    }

    /// systemd-boot tries the entry.
    fn tries(&self, stem: &str, from: &str, to: &str) {
        let at = |end: &str| self.dir.path().join(format!("{stem}{end}").trim_start_matches('/'));
        std::fs::rename(at(from), at(to)).unwrap();
    }
}

#[test]
fn a_changed_entry_is_tried_and_the_one_of_before_waits_beside_it_until_the_change_is_kept() {
    let (mut rig, stem) = counting(&[]);
    let host = rig.next();
    rig.stage("a").unwrap();
    assert_eq!(rig.entries(&stem), ["+2.conf", "~before.conf"]);
    assert_eq!(rig.next(), format!("{host} a"));
    rig.tries(&stem, "+2.conf", "+1-1.conf");
    assert_eq!(rig.next(), format!("{host} a"));
    assert_eq!(rig.os.fell_back(), None);
    rig.os.discard_undo_data().unwrap();
    assert_eq!(rig.entries(&stem), [".conf"]);
    rig.os.discard_undo_data().unwrap();
    // systemd-bless-boot was quicker, and the arguments stay the same.
    rig.stage("b").unwrap();
    rig.tries(&stem, "+2.conf", ".conf");
    rig.os.discard_undo_data().unwrap();
    assert_eq!((rig.entries(&stem), rig.next()), (vec![".conf".to_owned()], format!("{host} b")));
    rig.stage("b").unwrap();
    assert_eq!(rig.entries(&stem), [".conf"], "nothing changed, so there is nothing to try");
}

#[test]
fn an_entry_that_cannot_be_kept_is_named_with_the_reason_as_long_as_its_boots_are_counted() {
    let (mut rig, stem) = counting(&[]);
    assert!(!rig.os.has_undo_data().unwrap());
    rig.stage("a").unwrap();
    rig.tries(&stem, "+2.conf", "+1-1.conf");
    assert!(rig.os.has_undo_data().unwrap());
    // The boot loader is not one that can be changed any more.
    let marks = rig.dir.path().join("run/systemd/container");
    std::fs::create_dir_all(marks.parent().unwrap()).unwrap();
    std::fs::write(&marks, "").unwrap();
    let why = rig.os.discard_undo_data().unwrap_err().why;
    assert!(why.contains(&format!("{stem}+1-1.conf")) && why.contains("is a container"), "{why}");
    // systemd has blessed it: it boots in any case.
    rig.tries(&stem, "+1-1.conf", ".conf");
    rig.os.discard_undo_data().unwrap();
    assert!(rig.os.has_undo_data().unwrap(), "the one of before is still in the menu");
    std::fs::remove_file(&marks).unwrap();
    rig.os.discard_undo_data().unwrap();
    assert!(!rig.os.has_undo_data().unwrap());
}

#[test]
fn an_entry_that_came_up_in_no_try_is_told_of_and_every_state_of_it_is_undone() {
    for (about, happens) in [
        ("no try yet", &["+2.conf"][..]),
        ("one try", &["+2.conf", "+1-1.conf"]),
        ("no try left", &["+2.conf", "+1-1.conf", "+0-2.conf"]),
        ("blessed, and taken back later", &["+2.conf", "+1-1.conf", ".conf"]),
    ] {
        let (mut rig, stem) = counting(&[]);
        let host = rig.next();
        let text = rig.text(&format!("{stem}.conf"));
        let before = rig.os.mark().unwrap();
        rig.stage("init=/none").unwrap();
        for step in happens.windows(2) {
            rig.tries(&stem, step[0], step[1]);
        }
        let said = rig.os.fell_back();
        if about == "no try left" {
            assert_eq!(rig.next(), host, "the entry of before boots");
            assert!(said.unwrap().contains("+0-2.conf did not boot in any of its tries"));
        } else {
            assert_eq!((said, rig.next()), (None, format!("{host} init=/none")), "{about}");
        }
        rig.os.undo(&before).unwrap();
        assert_eq!(rig.entries(&stem), [".conf"], "{about}");
        assert_eq!((rig.text(&format!("{stem}.conf")), rig.os.mark().unwrap()), (text, before), "{about}");
    }
    // The power goes between the two steps of a change.
    let (mut rig, stem) = counting(&[]);
    let before = rig.os.mark().unwrap();
    rig.tries(&stem, ".conf", "~before.conf");
    rig.os.undo(&before).unwrap();
    assert_eq!((rig.entries(&stem), rig.os.mark().unwrap()), (vec![".conf".to_owned()], before));
}

#[test]
fn boots_are_not_counted_where_nobody_counts_them_or_one_entry_is_booted_in_any_case() {
    let fixed = format!("default {ID}-6.1.conf\ntimeout 0\n");
    let pattern = format!("default {ID}-*\n");
    for (about, more, counted) in [
        ("it counts", vec![], true),
        ("an older one", vec![(FEATURES, "\u{6}\0\0\0\u{3}\0\0\0\0\0\0\0")], false),
        ("bootctl set-default", vec![(DEFAULT, "x")], false),
        ("one entry in its settings", vec![("/efi/loader/loader.conf", fixed.as_str())], false),
        ("several in its settings", vec![("/efi/loader/loader.conf", pattern.as_str())], true),
    ] {
        let (mut rig, stem) = counting(&more);
        rig.stage("a").unwrap();
        let want = if counted { &["+2.conf", "~before.conf"][..] } else { &[".conf"] };
        assert_eq!(rig.entries(&stem), want, "{about}");
    }
}
