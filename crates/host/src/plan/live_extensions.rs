//! Whether a change of the operating system takes effect in the running system, so that it needs no reboot. Pure.
//!
//! Only extensions that come can: rpm-ostree adds their packages to the running `/usr` (`apply-live`). Whether they really only
//! add files, and replace or remove none, is known only to the host when it tries. If it refuses, the change is undone, the
//! refusal is recorded, and the config is planned again with a reboot.
//!
//! Not here: the try, and its undo (see `transaction::live_extensions`).

use desired::{DisruptionPolicy, OsField};

use crate::paths::LIVE_REFUSED;
use crate::plan::facts::Facts;
use crate::plan::os::OsChange;

/// How extensions that come take effect.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Live {
    /// With a reboot, as every other change of the operating system.
    No,
    /// At once, if nothing else of the change needs a reboot. The extensions.
    Yes(Vec<String>),
    /// The host has refused it for this config: why, for people.
    Refused(String),
}

impl Live {
    /// What is possible for this change on its way to a config.
    pub(crate) fn of(
        change: Option<&OsChange>,
        policy: &DisruptionPolicy,
        facts: &Facts,
        config: &str,
    ) -> Self {
        let Some(added) = change.and_then(only_added).filter(|_| policy.live_extensions && facts.os_live)
        else {
            return Self::No;
        };
        match facts.live_refused.as_ref().filter(|refused| refused.config == config) {
            None => Self::Yes(added),
            Some(refused) => Self::Refused(format!(
                "{}: it could not be applied to the running system ({}), so the machine reboots for it; remove {LIVE_REFUSED} \
                 to have that tried again",
                OsField::Extensions.path(),
                refused.why
            )),
        }
    }
}

/// The extensions of a change that does nothing but add some.
fn only_added(change: &OsChange) -> Option<Vec<String>> {
    let OsChange { from, to, .. } = change;
    let same = (&from.image, &from.kernel_arguments, &from.kernel_type)
        == (&to.image, &to.kernel_arguments, &to.kernel_type);
    let stay = from.extensions.iter().all(|e| to.extensions.contains(e));
    let added: Vec<String> = to.extensions.iter().filter(|e| !from.extensions.contains(e)).cloned().collect();
    (same && stay && !added.is_empty()).then_some(added)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::LiveRefusal;
    use crate::system::os::Deployment;
    use desired::DesiredOs;

    fn words(text: &str) -> Vec<String> {
        text.split_whitespace().map(str::to_owned).collect()
    }

    /// `image | kernel arguments | kernel type | extensions`.
    fn deployment(text: &str) -> Deployment {
        let parts: Vec<&str> = text.split('|').map(str::trim).collect();
        Deployment {
            image: parts[0].to_owned(),
            kernel_arguments: words(parts[1]),
            kernel_type: parts[2].to_owned(),
            extensions: words(parts[3]),
        }
    }

    #[test]
    fn only_extensions_that_come_and_nothing_else_take_effect_at_once_where_it_is_allowed() {
        let now = "i | ro | default | vim";
        for (about, to, allowed, can, refused, want) in [
            ("one comes", "i | ro | default | vim usbguard", true, true, "", Live::Yes(words("usbguard"))),
            ("two come", "i | ro | default | vim a b", true, true, "older", Live::Yes(words("a b"))),
            ("not allowed", "i | ro | default | vim usbguard", false, true, "", Live::No),
            ("the host cannot", "i | ro | default | vim usbguard", true, false, "", Live::No),
            ("one goes", "i | ro | default |", true, true, "", Live::No),
            ("one comes and one goes", "i | ro | default | usbguard", true, true, "", Live::No),
            ("an image", "j | ro | default | vim usbguard", true, true, "", Live::No),
            ("arguments", "i | ro a | default | vim usbguard", true, true, "", Live::No),
            ("a kernel", "i | ro | realtime | vim usbguard", true, true, "", Live::No),
        ] {
            let change = OsChange {
                from: deployment(now),
                to: deployment(to),
                wanted: DesiredOs::default(),
                gone: Vec::new(),
                extensions_image_before: String::new(),
            };
            let policy = DisruptionPolicy { live_extensions: allowed, ..DisruptionPolicy::default() };
            let live_refused = (!refused.is_empty())
                .then(|| LiveRefusal { config: refused.to_owned(), why: "it replaces glibc".to_owned() });
            let facts = Facts { os_live: can, live_refused, ..Facts::default() };
            assert_eq!(Live::of(Some(&change), &policy, &facts, "new"), want, "{about}");
            assert_eq!(Live::of(None, &policy, &facts, "new"), Live::No);
            if let (Live::Yes(_), "older") = (&want, refused) {
                let Live::Refused(why) = Live::of(Some(&change), &policy, &facts, "older") else {
                    panic!("it was refused for this config")
                };
                assert!(why.contains("replaces glibc") && why.contains(LIVE_REFUSED), "{why}");
            }
        }
    }
}
