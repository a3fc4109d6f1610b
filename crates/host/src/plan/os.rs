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
use desired::{DesiredHost, DesiredOs, Irreconcilable, OsField, Scope, arguments};
use serde::{Deserialize, Serialize};

use crate::plan::facts::Facts;
use crate::plan::os_before::ImageGivenUp;
use crate::system::os::extensions::is_within;
use crate::system::os::reference::same_image;
use crate::system::os::{Deployment, OsStatus, differs, masked, without};

/// A change of the operating system.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct OsChange {
    /// What the host would boot into without the change.
    pub from: Deployment,
    /// What it should boot into.
    pub to: Deployment,
    /// What the config asks for. The booted state is compared with it.
    pub wanted: DesiredOs,
    /// Kernel arguments of the old config that must be gone.
    pub gone: Vec<String>,
    /// The extensions image of the old config: an undo may have to install packages again.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub extensions_image_before: String,
}

/// The form for people: what differs, without secrets.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ShownChange<'c> {
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
        old: &DesiredOs,
        new: &DesiredOs,
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
    pub fn check_boot(&self, status: &OsStatus) -> Result<(), String> {
        let booted = &status.booted;
        let Self { from, to, wanted, gone, .. } = self;
        let asked = Deployment {
            image: to.image.clone(),
            kernel_type: to.kernel_type.clone(),
            extensions: wanted.extensions.clone(),
            kernel_arguments: arguments(&wanted.kernel_arguments),
        };
        // Without an image that was asked for, the host is to have none.
        if asked.image.is_empty() && !booted.image.is_empty() {
            return Err(format!("its image is {:?} and not {:?}", booted.image, asked.image));
        }
        if let Some(why) = differs(booted, &asked) {
            return Err(why);
        }
        let extra = |e: &&String| is_within(e, &from.extensions) && !is_within(e, &to.extensions);
        if let Some(left) = booted.extensions.iter().find(extra) {
            return Err(format!("the extension {left} is still installed"));
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

    pub(crate) fn shown(&self) -> ShownChange<'_> {
        let Self { from, to, .. } = self;
        ShownChange {
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
pub(crate) fn planned(old: &DesiredHost, new: &DesiredHost, facts: &Facts) -> Option<OsChange> {
    let status = facts.os.as_ref()?;
    let (now, refused) = (status.next(), &facts.os_refused);
    let before = match ImageGivenUp::of(old, new, facts) {
        ImageGivenUp::Back(image) => Some(image),
        _ => None,
    };
    let (old, new) = (supported(&old.os, refused, now), supported(&new.os, refused, now));
    OsChange::between(&old, &new, now, facts.argument_rules.own.as_deref(), before.as_deref())
}

/// The new kernel arguments that would not reach the kernel as they are written.
pub(crate) fn refused_arguments(old: &DesiredOs, new: &DesiredOs, facts: &Facts) -> Vec<Irreconcilable> {
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
pub(crate) fn supported(
    wanted: &DesiredOs,
    refused: &BTreeMap<OsField, String>,
    now: &Deployment,
) -> DesiredOs {
    let DesiredOs { image, kernel_arguments, kernel_type, extensions, extensions_image } = wanted.clone();
    let can = |field| !refused.contains_key(&field);
    DesiredOs {
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
mod tests;
