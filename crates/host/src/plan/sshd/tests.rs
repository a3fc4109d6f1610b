//! Tables of configurations of the SSH server, with what it does about the keys of the MachineConfig.

use super::key_file::{BEGIN, END};
use super::*;

const CORE: Login<'_> = Login { name: "core", home: "/home/core", group: Some("core") };
const CONFIG: &str = CONFIGS[0];
const DEBIAN: &str =
    "# stock\nInclude /etc/ssh/sshd_config.d/*.conf\n#AuthorizedKeysFile\t.ssh/authorized_keys\nUsePAM yes\n";

fn texts(all: &[(&str, &str)]) -> BTreeMap<String, String> {
    all.iter().map(|(p, t)| ((*p).to_owned(), (*t).to_owned())).collect()
}

#[test]
fn sshd_config_is_read_as_sshd_reads_it() {
    let dropin = |name: &str| format!("/etc/ssh/sshd_config.d/{name}");
    let ours = "AuthorizedKeysFile .ssh/authorized_keys .ssh/authorized_keys.d/ignition";
    let (ten, twenty) = (dropin("10.conf"), dropin("20.conf"));
    for (about, files, reads, dropins) in [
        ("stock Debian", vec![(CONFIG, DEBIAN)], false, true),
        ("nothing said", vec![(CONFIG, "")], false, false),
        ("said", vec![(CONFIG, ours)], true, false),
        ("said in a drop-in", vec![(CONFIG, DEBIAN), (&ten, ours)], true, true),
        (
            "the first counts",
            vec![(CONFIG, DEBIAN), (&ten, "AuthorizedKeysFile none"), (&twenty, ours)],
            false,
            true,
        ),
        (
            "with =, quotes and tokens",
            vec![(CONFIG, "authorizedkeysfile=\"%h/.ssh/authorized_keys.d/ignition\"")],
            true,
            false,
        ),
        (
            "absolute",
            vec![(CONFIG, "AuthorizedKeysFile /home/%u/.ssh/authorized_keys.d/ignition")],
            true,
            false,
        ),
        ("somewhere else", vec![(CONFIG, "AuthorizedKeysFile /etc/ssh/keys/%u")], false, false),
        (
            "a block for the user wins",
            vec![(CONFIG, &format!("AuthorizedKeysFile none\nMatch User core\n{ours}"))],
            true,
            false,
        ),
        ("a block for another", vec![(CONFIG, &format!("Match User bob,!core\n{ours}"))], false, false),
        (
            "a block for an address",
            vec![(CONFIG, &format!("Match User core Address 10.0.0.0/8\n{ours}"))],
            false,
            false,
        ),
        ("a block for all", vec![(CONFIG, &format!("Match all\n{ours}"))], true, false),
        (
            "a block ends with its file",
            vec![(CONFIG, &format!("{DEBIAN}{ours}")), (&ten, "Match User bob\nX11Forwarding no")],
            true,
            true,
        ),
        (
            "an include that does not apply",
            vec![(CONFIG, "Match User bob\nInclude sshd_config.d/*.conf"), (&ten, ours)],
            false,
            false,
        ),
        ("a relative include", vec![(CONFIG, "Include sshd_config.d/*.conf"), (&ten, ours)], true, true),
        ("no file of drop-ins", vec![(CONFIG, DEBIAN), (&dropin("10.conf.bak"), ours)], false, true),
        (
            "the helper of some distributions",
            vec![(
                CONFIG,
                "AuthorizedKeysCommand /usr/libexec/ssh-key-dir %u\nAuthorizedKeysFile .ssh/authorized_keys",
            )],
            true,
            false,
        ),
    ] {
        let sshd = Sshd::read(&texts(&files), &CORE, None).unwrap();
        assert_eq!((sshd.reads_ours(&CORE), sshd.dropins), (reads, dropins), "{about}: {sshd:?}");
        if sshd.dropins && !reads {
            // What we write makes the keys work, and leaves the other lines alone.
            let mut with: Vec<(&str, &str)> = files.clone();
            let text = sshd.dropin(&texts(&files), &CORE, None).unwrap();
            with.push((DROPIN, &text));
            let after = Sshd::read(&texts(&with), &CORE, None).unwrap();
            assert!(after.reads_ours(&CORE), "{about}: {after:?}");
            assert_eq!(after.reads(STOCK_FILE, &CORE), sshd.reads(STOCK_FILE, &CORE), "{about}");
            let bob = Login { name: "bob", home: "/home/bob", group: Some("bob") };
            assert_eq!(
                Sshd::read(&texts(&with), &bob, None),
                Sshd::read(&texts(&files), &bob, None),
                "{about}: others notice"
            );
        }
    }
    assert_eq!(Sshd::read(&texts(&[(&ten, ours)]), &CORE, None), None, "no server");
    let round = texts(&[(CONFIG, "Include /etc/ssh/sshd_config\n")]);
    assert!(Sshd::read(&round, &CORE, None).is_some(), "files that include each other");
}

#[test]
fn our_block_in_sshd_config_leaves_the_other_lines_alone() {
    let theirs = "# mine\nssh-ed25519 AAAA me\n";
    let with = with_block(theirs, "", "ssh-ed25519 BBBB ours\n");
    assert_eq!(with, format!("{theirs}{BEGIN}\nssh-ed25519 BBBB ours\n{END}\n"));
    let other = with_block(&with, "", "ssh-ed25519 CCCC other\n");
    assert!(other.contains("CCCC") && !other.contains("BBBB") && other.starts_with(theirs), "{other}");
    assert_eq!(with_block(&other, "", ""), theirs);
    assert_eq!(with_block("no newline", "", "k\n"), format!("no newline\n{BEGIN}\nk\n{END}\n"));
    assert_eq!(with_block("", "", ""), "");
}

#[test]
fn an_administrators_match_block_that_may_apply_is_not_overridden() {
    for (about, block, stock) in [
        ("an address", "Match User core Address *,!10.0.0.0/8\nAuthorizedKeysFile none", false),
        ("a group", "Match Group admins\nAuthorizedKeysFile /etc/ssh/keys/%u", false),
        ("a group but for another", "Match Group *,!admins\nAuthorizedKeysFile none", false),
        (
            "the stock file in any case",
            "Match Address 10.0.0.0/8\nAuthorizedKeysFile %h/.ssh/authorized_keys",
            true,
        ),
    ] {
        let all = texts(&[(CONFIG, &format!("{DEBIAN}{block}\n"))]);
        let sshd = Sshd::read(&all, &CORE, None).unwrap();
        assert_eq!(sshd.dropin(&all, &CORE, None), None, "{about}: {sshd:?}");
        assert_eq!(sshd.perhaps.as_deref(), Some(CONFIG), "{about}");
        assert_eq!((sshd.reads_ours(&CORE), sshd.reads(STOCK_FILE, &CORE)), (false, stock), "{about}");
    }
    for (about, block) in [
        ("another user's", "Match Address 10.0.0.0/8 User bob\nAuthorizedKeysFile none"),
        ("one that says nothing of keys", "Match Address 10.0.0.0/8\nX11Forwarding no"),
        ("no user at all", "Match invalid-user\nAuthorizedKeysFile none"),
        ("all but its own group", "Match Group *,!core\nAuthorizedKeysFile none"),
        ("after one that applies", "Match all\nAuthorizedKeysFile a\nMatch Group x\nAuthorizedKeysFile b"),
    ] {
        let all = texts(&[(CONFIG, &format!("{DEBIAN}{block}\n"))]);
        let sshd = Sshd::read(&all, &CORE, None).unwrap();
        assert!(sshd.dropin(&all, &CORE, None).is_some(), "{about}: {sshd:?}");
    }
    // A block that is read before our drop-in.
    let first = "Include first.conf\nInclude sshd_config.d/*.conf\n";
    let block = "Match User core\nAuthorizedKeysFile none\n";
    let all = texts(&[(CONFIG, first), ("/etc/ssh/first.conf", block)]);
    assert_eq!(Sshd::read(&all, &CORE, None).unwrap().dropin(&all, &CORE, None), None);
}

#[test]
fn the_distributions_configuration_counts_where_the_administrator_has_none() {
    let [etc, usr] = CONFIGS;
    let sshd = Sshd::read(&texts(&[(usr, DEBIAN)]), &CORE, None).unwrap();
    assert!(sshd.dropins && sshd.main == usr, "{sshd:?}");
    let sshd = Sshd::read(&texts(&[(etc, ""), (usr, DEBIAN)]), &CORE, None).unwrap();
    assert!(!sshd.dropins && sshd.main == etc, "{sshd:?}");
}

#[test]
fn a_block_without_an_end_marker_removes_no_other_lines() {
    for (about, text, left) in [
        ("no end", format!("a\n{BEGIN}\nk1\nk2\ntheirs\nk1\n"), "a\ntheirs\nk1\n"),
        ("no end, no newline", format!("{BEGIN}\nk1"), ""),
        ("another block follows", format!("{BEGIN}\nk1\nb\n{BEGIN}\nk2\n{END}\nc\n"), "b\nc\n"),
        ("an end alone", format!("a\n{END}\nb\n"), "a\n# END keys of the MachineConfig\nb\n"),
    ] {
        assert_eq!(with_block(&text, "k1\nk2\n", ""), left, "{about}");
    }
}
