//! Tests of the part of a plan that is about the operating system.

use super::*;
use crate::system::os::{ArgumentRules, ArgumentSyntax};

fn words(text: &str) -> Vec<String> {
    text.split_whitespace().map(str::to_owned).collect()
}

/// `image | kernel arguments | kernel type | extensions`, of a config.
fn wanted(text: &str) -> DesiredOs {
    let Deployment { image, kernel_arguments, kernel_type, extensions } = deployment(text);
    DesiredOs { image, kernel_arguments, kernel_type, extensions, ..DesiredOs::default() }
}

fn deployment(text: &str) -> Deployment {
    let parts: Vec<&str> = text.split('|').map(str::trim).collect();
    let part = |i: usize| parts.get(i).copied().unwrap_or_default();
    let kernel_type = if part(2).is_empty() { "default" } else { part(2) };
    Deployment {
        image: part(0).to_owned(),
        kernel_arguments: words(part(1)),
        kernel_type: kernel_type.to_owned(),
        extensions: words(part(3)),
    }
}

#[test]
fn only_what_the_configs_say_is_touched() {
    for (about, old, new, now, to, shown) in [
        ("nothing", "", "", "i1 | ro", "", ""),
        ("an image", "", "i2", "i1 | ro", "i2 | ro", "image \"i1\" -> \"i2\""),
        ("an image that is there", "i1", "i2", "i2 | ro", "", ""),
        ("an image is given up", "i2", "", "i2 | ro", "", ""),
        ("arguments come", "", "| a b=1", "i | ro x", "i | ro x a b=1", "kernel arguments +a +b=1"),
        ("arguments go", "| a b", "| b", "i | ro a x b", "i | ro x b", "kernel arguments -a"),
        ("one that the host has too", "| ro", "", "i | ro x ro", "i | ro x", "kernel arguments -ro"),
        ("one that is gone already", "| a", "| b", "i | ro", "i | ro b", "kernel arguments +b"),
        ("twice", "| a", "| a a", "i | a ro", "i | ro a a", "kernel arguments +a"),
        (
            "another order",
            "| a=1 b a=2",
            "| a=2 b a=1",
            "i | ro a=1 b a=2",
            "i | ro a=2 b a=1",
            "kernel arguments in another order",
        ),
        (
            "a kernel",
            "",
            "| | realtime",
            "i | ro",
            "i | ro | realtime",
            "kernel type \"default\" -> \"realtime\"",
        ),
        (
            "a kernel is given up",
            "| | realtime",
            "",
            "i | | realtime",
            "i",
            "kernel type \"realtime\" -> \"default\"",
        ),
        (
            "extensions",
            "| | | usbguard ipsec",
            "| | | ipsec kerberos",
            "i | | | mine usbguard ipsec",
            "i | | | mine ipsec kerberos",
            "extensions -usbguard +kerberos",
        ),
        ("packages of an extension", "", "| | | krb5-workstation libkadm5", "i | | | kerberos", "", ""),
        (
            "and they go",
            "| | | krb5-workstation libkadm5",
            "",
            "i | | | kerberos mine",
            "i | | | mine",
            "extensions -kerberos",
        ),
        (
            "all together",
            "i1 | a | | usbguard",
            "i2 | b | realtime | ipsec",
            "i1 | ro a | | usbguard mine",
            "i2 | ro b | realtime | mine ipsec",
            "image \"i1\" -> \"i2\", kernel arguments -a +b, kernel type \"default\" -> \"realtime\", extensions -usbguard +ipsec",
        ),
    ] {
        let (old, new, now) = (wanted(old), wanted(new), deployment(now));
        let change = OsChange::between(&old, &new, &now, None, None);
        let got = change.as_ref().map(|c| c.to.clone());
        assert_eq!(got, Some(deployment(to)).filter(|_| !to.is_empty()), "{about}");
        let Some(change) = change else { continue };
        assert_eq!(change.to_string(), shown, "{about}");
        let status = |booted: &Deployment| OsStatus { booted: booted.clone(), ..OsStatus::default() };
        assert_eq!(change.check_boot(&status(&change.to)), Ok(()), "{about}");
        // The change back ends where it began, except for the order of the host's entries and ours.
        let back = OsChange::between(&new, &old, &change.to, None, None);
        let sorted = |d: &Deployment| {
            let mut d = d.clone();
            d.kernel_arguments.sort();
            d.extensions.sort();
            d
        };
        if !["one that is gone already", "an image", "twice", "and they go"].contains(&about)
            && old.image.is_empty() == new.image.is_empty()
        {
            assert_eq!(sorted(&back.unwrap().to), sorted(&now), "{about}");
        }
    }
}

#[test]
fn a_host_whose_back_end_changes_only_kernel_arguments_keeps_everything_else() {
    let why = || "only arguments".to_owned();
    let refused: BTreeMap<OsField, String> =
        OsField::ALL.into_iter().filter(|f| *f != OsField::KernelArguments).map(|f| (f, why())).collect();
    let now = deployment(" | ro a");
    let config = |text: &str| supported(&wanted(text), &refused, &now);
    // Both configs name an image, a kernel and an extension that this host never had.
    let change = OsChange::between(
        &config("i1 | a | realtime | usbguard"),
        &config("i1 | b | realtime | usbguard"),
        &now,
        None,
        None,
    )
    .unwrap();
    assert_eq!(change.to, deployment(" | ro b"));
    let status = OsStatus { booted: change.to.clone(), ..OsStatus::default() };
    assert_eq!(change.check_boot(&status), Ok(()), "what it cannot have is not missed after the boot");
}

#[test]
fn what_the_host_had_itself_stays_where_that_is_known() {
    for (about, old, new, now, own, to) in [
        ("the host's own stays", "| quiet a", "| b", " | ro quiet a", "a", " | ro quiet b"),
        ("and is not set twice", "| quiet", "| quiet a", " | ro quiet", "", " | ro quiet a"),
        ("both have it", "| quiet", "", " | ro quiet quiet", "quiet", " | ro quiet"),
        ("nothing is a config's", "| quiet", "", " | ro quiet", "", ""),
    ] {
        let change = OsChange::between(
            &wanted(old),
            &wanted(new),
            &deployment(now),
            Some(words(own).as_slice()),
            None,
        );
        let want = Some(deployment(to)).filter(|_| !to.is_empty());
        assert_eq!(change.as_ref().map(|c| c.to.clone()), want, "{about}");
        let Some(change) = change else { continue };
        let status = OsStatus { booted: change.to.clone(), ..OsStatus::default() };
        assert_eq!(change.check_boot(&status), Ok(()), "{about}");
    }
}

#[test]
fn arguments_that_the_boot_loader_would_change_or_cut_are_refused_and_old_ones_are_not() {
    let facts = |longest| Facts {
        os: Some(OsStatus { booted: deployment(" | ro"), ..OsStatus::default() }),
        argument_rules: ArgumentRules { syntax: ArgumentSyntax::Grub, longest, own: Some(Vec::new()) },
        ..Facts::default()
    };
    for (old, new, longest, want) in [
        ("", "| a b=1", 100, ""),
        ("", "| a;b", 100, "holds ';'"),
        ("", "| password=$x", 100, "holds '$'"),
        ("| a;b", "| a;b c", 100, ""),
        ("", "| 1234567890", 14, ""),
        ("", "| 1234567890", 13, "would have 14 bytes"),
    ] {
        let bad = refused_arguments(&wanted(old), &wanted(new), &facts(Some(longest)));
        let text: String = bad.iter().map(ToString::to_string).collect();
        assert_eq!(bad.len(), usize::from(!want.is_empty()), "{new}: {text}");
        assert!(text.contains(want) && !text.contains("$x"), "{new}: {text}");
    }
}

#[test]
fn a_boot_into_anything_else_is_told_with_what_differs() {
    let now = deployment("i1 | ro a | | usbguard");
    let change = OsChange::between(
        &wanted("i1 | a | | usbguard"),
        &wanted("i2 | token=hush | realtime | ipsec"),
        &now,
        None,
        None,
    )
    .unwrap();
    for (booted, why) in [
        ("i2 | ro token=hush | realtime | ipsec", ""),
        ("i2 | other ro token=hush | realtime | ipsec mine", ""),
        ("i1 | ro a | | usbguard", "its image is \"i1\" and not \"i2\""),
        ("i2 | ro token=hush | | ipsec", "its kernel is \"default\" and not \"realtime\""),
        ("i2 | ro token=hush | realtime", "the extension ipsec is missing"),
        ("i2 | ro token=hush | realtime | ipsec usbguard", "the extension usbguard is still installed"),
        ("i2 | ro | realtime | ipsec", "the kernel argument "),
        ("i2 | ro a token=hush | realtime | ipsec", "the kernel argument a is still set"),
    ] {
        let status = OsStatus { booted: deployment(booted), ..OsStatus::default() };
        let said = change.check_boot(&status).err().unwrap_or_default();
        assert!(said.starts_with(why) && said.is_empty() == why.is_empty(), "{booted}: {said}");
        assert!(!said.contains("hush"), "{said}");
    }
    assert!(!change.to_string().contains("hush"), "{change}");
    // The new image brings along what the config gave up.
    let booted = deployment("i2 | ro a token=hush | realtime | ipsec");
    let status = OsStatus { booted, of_image: words("a"), ..OsStatus::default() };
    assert_eq!(change.check_boot(&status), Ok(()));
}
