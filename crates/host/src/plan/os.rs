//! Plans the operating system part of a change. Input: what two configs want of the operating system, and the
//! deployment that the host will boot into. Output: the deployment that it should boot into instead. It also checks
//! whether a boot came up in the planned deployment. Pure.
//!
//! Only what a MachineConfig names is changed. Kernel arguments and extensions of the host itself stay, in their
//! order. Kernel arguments of the old config are removed, and those of the new one are added after all others, as the
//! reference implementation does it (`--delete-if-present` for each old one, `--append` for each new one).
//!
//! Not here: how a host carries this out (see `system::os`).

use std::collections::BTreeMap;
use std::fmt;

use desired::mask::argument;
use desired::{Irreconcilable, OsField, OsWanted, Scope, Wanted, arguments};
use serde::{Deserialize, Serialize};

use crate::plan::facts::Facts;
use crate::plan::os_before::GivenUp;
use crate::system::os::reference::same_image;
use crate::system::os::rpm_ostree::packages::is_within;
use crate::system::os::{Deployment, OsStatus, masked, without};

/// A change of the operating system.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct OsChange {
    /// What the host would boot into without the change.
    pub from: Deployment,
    /// What it should boot into.
    pub to: Deployment,
    /// What the config asks for. The booted state is compared with it.
    pub wanted: OsWanted,
    /// Kernel arguments of the old config that must be gone.
    pub gone: Vec<String>,
    /// The extensions image of the old config: an undo may have to install packages again.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub extensions_image_before: String,
}

/// The form for people: what differs, without secrets.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Shown<'c> {
    image: Option<(&'c str, &'c str)>,
    #[serde(serialize_with = "masked_list")]
    removed_arguments: Vec<String>,
    #[serde(serialize_with = "masked_list")]
    added_arguments: Vec<String>,
    kernel_type: Option<(&'c str, &'c str)>,
    removed_extensions: Vec<&'c str>,
    added_extensions: Vec<&'c str>,
}

#[expect(clippy::ptr_arg, reason = "what serde hands over")]
fn masked_list<S: serde::Serializer>(list: &Vec<String>, s: S) -> Result<S::Ok, S::Error> {
    masked(list, s)
}

impl OsChange {
    /// Plans the change. `now`: what the host will boot into. `own`: the arguments that configs set, if the host knows
    /// them; all others are its own and stay, even if the old config names them too. `before`: the image to go back to if the
    /// new config names none. `None`: nothing has to change.
    #[must_use]
    pub fn between(
        old: &OsWanted,
        new: &OsWanted,
        now: &Deployment,
        own: Option<&[String]>,
        before: Option<&str>,
    ) -> Option<Self> {
        let (mut had, mut has) = (arguments(&old.kernel_arguments), arguments(&new.kernel_arguments));
        if let Some(own) = own {
            let hosts = without(&had, own);
            had = without(&had, &hosts);
            has = without(&has, &hosts);
        }
        let mut kernel_arguments = without(&now.kernel_arguments, &had);
        kernel_arguments.extend(has.iter().cloned());
        // A host may name the same packages otherwise than the config does.
        let mut extensions = now.extensions.clone();
        extensions.retain(|e| !is_within(e, &old.extensions) || is_within(e, &new.extensions));
        let added = new.extensions.iter().filter(|e| !is_within(e, &now.extensions));
        extensions.extend(added.cloned());
        // A config that names no image keeps the host's image, unless the host goes back to an earlier one.
        let asked = if new.image.is_empty() { before.unwrap_or_default() } else { &new.image };
        let keeps = asked.is_empty() || same_image(asked, &now.image);
        let image = if keeps { now.image.clone() } else { asked.to_owned() };
        let to = Deployment { image, kernel_arguments, kernel_type: new.kernel_type.clone(), extensions };
        let gone = without(&had, &has);
        let extensions_image_before = old.extensions_image.clone();
        (to != *now).then(|| Self {
            from: now.clone(),
            to,
            wanted: new.clone(),
            gone,
            extensions_image_before,
        })
    }

    /// Whether a boot came up as planned: everything that the config asks for is there, and everything that it gave up
    /// is gone. Anything else belongs to the host and is not compared.
    ///
    /// # Errors
    /// What differs, for people.
    pub fn came_up(&self, status: &OsStatus) -> Result<(), String> {
        let booted = &status.booted;
        let Self { from, to, wanted, gone, .. } = self;
        if !same_image(&to.image, &booted.image) {
            return Err(format!("it runs the image {:?} and not {:?}", booted.image, to.image));
        }
        if to.kernel_type != booted.kernel_type {
            return Err(format!("its kernel is {:?} and not {:?}", booted.kernel_type, to.kernel_type));
        }
        if let Some(missing) = wanted.extensions.iter().find(|e| !is_within(e, &booted.extensions)) {
            return Err(format!("the extension {missing} is missing"));
        }
        let extra = |e: &&String| is_within(e, &from.extensions) && !is_within(e, &to.extensions);
        if let Some(left) = booted.extensions.iter().find(extra) {
            return Err(format!("the extension {left} is still installed"));
        }
        let missing = without(&arguments(&wanted.kernel_arguments), &booted.kernel_arguments);
        if let Some(missing) = missing.first() {
            return Err(format!("the kernel argument {} is missing", argument(missing)));
        }
        let count = |list: &[String], a: &String| list.iter().filter(|b| *b == a).count();
        // A new image may bring one of them along.
        let may = |a: &String| count(&to.kernel_arguments, a) + count(&status.of_image, a);
        let left = |a: &&String| count(&booted.kernel_arguments, a) > may(a);
        match gone.iter().find(left) {
            Some(left) => Err(format!("the kernel argument {} is still set", argument(left))),
            None => Ok(()),
        }
    }

    pub(crate) fn shown(&self) -> Shown<'_> {
        let Self { from, to, .. } = self;
        Shown {
            image: (from.image != to.image).then_some((from.image.as_str(), to.image.as_str())),
            removed_arguments: without(&from.kernel_arguments, &to.kernel_arguments),
            added_arguments: without(&to.kernel_arguments, &from.kernel_arguments),
            kernel_type: (from.kernel_type != to.kernel_type)
                .then_some((from.kernel_type.as_str(), to.kernel_type.as_str())),
            removed_extensions: from
                .extensions
                .iter()
                .filter(|e| !to.extensions.contains(e))
                .map(String::as_str)
                .collect(),
            added_extensions: to
                .extensions
                .iter()
                .filter(|e| !from.extensions.contains(e))
                .map(String::as_str)
                .collect(),
        }
    }
}

/// The change of the operating system between two configs on a host with these facts. `None`: there is none.
pub(crate) fn planned(old: &Wanted, new: &Wanted, facts: &Facts) -> Option<OsChange> {
    let status = facts.os.as_ref()?;
    let (now, refused) = (status.next(), &facts.os_refused);
    let before = match GivenUp::of(old, new, facts) {
        GivenUp::Back(image) => Some(image),
        _ => None,
    };
    let (old, new) = (served(&old.os, refused, now), served(&new.os, refused, now));
    OsChange::between(&old, &new, now, facts.argument_rules.own.as_deref(), before.as_deref())
}

/// The new kernel arguments that would not reach the kernel as they are written.
pub(crate) fn refused_arguments(old: &OsWanted, new: &OsWanted, facts: &Facts) -> Vec<Irreconcilable> {
    let (rules, host) =
        (&facts.argument_rules, if facts.os_name.is_empty() { "this host" } else { &facts.os_name });
    let mut bad = Vec::new();
    let mut refuse = |why: String, remedy: &str| {
        bad.push(Irreconcilable {
            path: OsField::KernelArguments.path().to_owned(),
            why,
            remedy: remedy.to_owned(),
            scope: Scope::Config,
        });
    };
    let added = without(&arguments(&new.kernel_arguments), &arguments(&old.kernel_arguments));
    for one in &added {
        if let Some(why) = rules.syntax.refusal(one) {
            let why = format!("{:?} does not reach the kernel of {host} as it is: {why}", argument(one));
            refuse(why, "write the argument without it");
        }
    }
    if let Some(longest) = rules.longest
        && let Some(os) = facts.os.as_ref().filter(|_| !added.is_empty())
        && let Some(change) = OsChange::between(old, new, os.next(), rules.own.as_deref(), None)
    {
        let length = change.to.kernel_arguments.iter().map(|a| a.len() + 1).sum::<usize>();
        if length > longest {
            refuse(
                format!(
                    "the kernel's command line would have {length} bytes, and all after {longest} are lost"
                ),
                "set fewer or shorter arguments",
            );
        }
    }
    bad
}

/// What a config wants, without the parts that the host's back end cannot change. A plan that would change one of these
/// is refused. If the old and the new config agree in one, such as an image that a host without images was never in, the
/// host keeps what it has.
pub(crate) fn served(wanted: &OsWanted, refused: &BTreeMap<OsField, String>, now: &Deployment) -> OsWanted {
    let OsWanted { image, kernel_arguments, kernel_type, extensions, extensions_image } = wanted.clone();
    let can = |field| !refused.contains_key(&field);
    OsWanted {
        image: if can(OsField::Image) { image } else { String::new() },
        kernel_arguments: if can(OsField::KernelArguments) { kernel_arguments } else { Vec::new() },
        kernel_type: if can(OsField::KernelType) { kernel_type } else { now.kernel_type.clone() },
        extensions: if can(OsField::Extensions) { extensions } else { Vec::new() },
        extensions_image,
    }
}

impl fmt::Display for OsChange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shown = self.shown();
        let mut parts = Vec::new();
        if let Some((from, to)) = shown.image {
            parts.push(format!("image {from:?} -> {to:?}"));
        }
        let arguments = |sign: char, list: &[String]| -> Vec<String> {
            list.iter().map(|a| format!("{sign}{}", argument(a))).collect()
        };
        let mut kernel = arguments('-', &shown.removed_arguments);
        kernel.extend(arguments('+', &shown.added_arguments));
        if !kernel.is_empty() {
            parts.push(format!("kernel arguments {}", kernel.join(" ")));
        } else if self.from.kernel_arguments != self.to.kernel_arguments {
            parts.push("kernel arguments in another order".to_owned());
        }
        if let Some((from, to)) = shown.kernel_type {
            parts.push(format!("kernel type {from:?} -> {to:?}"));
        }
        let mut extensions: Vec<String> = shown.removed_extensions.iter().map(|e| format!("-{e}")).collect();
        extensions.extend(shown.added_extensions.iter().map(|e| format!("+{e}")));
        if !extensions.is_empty() {
            parts.push(format!("extensions {}", extensions.join(" ")));
        }
        f.write_str(&parts.join(", "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::system::os::{ArgumentRules, ArgumentSyntax};

    fn words(text: &str) -> Vec<String> {
        text.split_whitespace().map(str::to_owned).collect()
    }

    /// `image | kernel arguments | kernel type | extensions`, of a config.
    fn wanted(text: &str) -> OsWanted {
        let Deployment { image, kernel_arguments, kernel_type, extensions } = deployment(text);
        OsWanted { image, kernel_arguments, kernel_type, extensions, ..OsWanted::default() }
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
            assert_eq!(change.came_up(&status(&change.to)), Ok(()), "{about}");
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
        let config = |text: &str| served(&wanted(text), &refused, &now);
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
        assert_eq!(change.came_up(&status), Ok(()), "what it cannot have is not missed after the boot");
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
            assert_eq!(change.came_up(&status), Ok(()), "{about}");
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
            ("i1 | ro a | | usbguard", "it runs the image \"i1\" and not \"i2\""),
            ("i2 | ro token=hush | | ipsec", "its kernel is \"default\" and not \"realtime\""),
            ("i2 | ro token=hush | realtime", "the extension ipsec is missing"),
            ("i2 | ro token=hush | realtime | ipsec usbguard", "the extension usbguard is still installed"),
            ("i2 | ro | realtime | ipsec", "the kernel argument "),
            ("i2 | ro a token=hush | realtime | ipsec", "the kernel argument a is still set"),
        ] {
            let status = OsStatus { booted: deployment(booted), ..OsStatus::default() };
            let said = change.came_up(&status).err().unwrap_or_default();
            assert!(said.starts_with(why) && said.is_empty() == why.is_empty(), "{booted}: {said}");
            assert!(!said.contains("hush"), "{said}");
        }
        assert!(!change.to_string().contains("hush"), "{change}");
        // The new image brings along what the config gave up.
        let booted = deployment("i2 | ro a token=hush | realtime | ipsec");
        let status = OsStatus { booted, of_image: words("a"), ..OsStatus::default() };
        assert_eq!(change.came_up(&status), Ok(()));
    }
}
