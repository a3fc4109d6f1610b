//! What a host ran before a config first named an OS image for it, and the way back there when no config names one any more.
//! Pure.
//!
//! ```text
//! no image ─► an image: the origin of what runs is recorded (OS_BEFORE)
//! an image ─► no image: the plan goes to the recorded image, and forgets the record
//! ```
//!
//! The record is one file that a step of the plan writes or removes, so the journal undoes it with the rest of the change.
//!
//! Not here: what else changes in the operating system (see `plan::os`), nor the image that a Node names besides its config
//! (see `desired::lacks_image_to_return_to`).

use desired::{DesiredHost, Irreconcilable, OsField, Scope};

use crate::paths::OS_BEFORE;
use crate::plan::facts::Facts;
use crate::system::os::origin::{OsOrigin, RecordedOs};
use crate::system::os::reference::same_image;

/// What happens to the image of a host whose new config names no image.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum ImageGivenUp {
    /// The old config named none either, or the new one names one.
    No,
    /// The host keeps the image that it runs.
    Keeps,
    /// The host already runs the image that it would go back to.
    Runs,
    /// It goes back to this image.
    Back(String),
    /// No host was inspected: each host goes back to its own image, or keeps the present one if it has no record.
    Unknown,
    /// It cannot go back.
    Refused(Irreconcilable),
}

impl ImageGivenUp {
    /// What the change between these configs means for a host with these facts.
    pub(crate) fn of(old: &DesiredHost, new: &DesiredHost, facts: &Facts) -> Self {
        if old.os.image.is_empty() || !new.os.image.is_empty() {
            return Self::No;
        }
        let Some(os) = &facts.os else {
            // Facts of a host always have its effects.
            return if facts.effects.is_none() { Self::Unknown } else { Self::Keeps };
        };
        if facts.os_refused.contains_key(&OsField::Image) {
            return Self::Keeps;
        }
        let now = &os.next().image;
        match &facts.os_before {
            RecordedOs::Nothing => Self::Keeps,
            RecordedOs::Ran(before) if facts.os_origin.as_ref().is_some_and(|now| now.is_same(before)) => {
                Self::Runs
            }
            RecordedOs::Ran(OsOrigin::Image { reference, .. }) if same_image(reference, now) => Self::Runs,
            RecordedOs::Ran(OsOrigin::Image { reference, .. }) => Self::Back(reference.clone()),
            // It was brought back by hand.
            RecordedOs::Ran(OsOrigin::Other { .. }) if now.is_empty() => Self::Runs,
            RecordedOs::Ran(OsOrigin::Other { origin, commit }) => refused(
                format!(
                    "no config names an image any more, and before MachineConfigs named one this machine ran {origin:?} \
                     (commit {commit}), which is no container image"
                ),
                format!(
                    "name the image to run in a MachineConfig; or bring the machine back by hand (rpm-ostree rebase {origin}, \
                     or ostree admin deploy) and reboot it; or remove {OS_BEFORE} on it to keep the image that it runs"
                ),
            ),
            RecordedOs::Damaged(why) => refused(
                format!(
                    "no config names an image any more, and the record of the image that this machine ran before cannot be \
                     read ({why})"
                ),
                format!(
                    "name the image to run in a MachineConfig, or remove {OS_BEFORE} on the machine to keep the one that it runs"
                ),
            ),
        }
    }

    /// What people are told in the plan.
    pub(crate) fn note(&self) -> Option<String> {
        let field = OsField::Image.path();
        let told = match self {
            Self::No | Self::Unknown | Self::Refused(_) => return None,
            Self::Keeps => {
                "the host keeps the image that it runs, because it has no record of another one before it"
                    .to_owned()
            }
            Self::Runs => {
                "the host runs the image that it ran before MachineConfigs named one, and keeps it".to_owned()
            }
            Self::Back(image) => {
                format!(
                    "the host goes back to the image that it ran before MachineConfigs named one: {image}"
                )
            }
        };
        Some(format!("{field} is not set any more: {told}"))
    }
}

fn refused(why: String, remedy: String) -> ImageGivenUp {
    ImageGivenUp::Refused(Irreconcilable {
        path: OsField::Image.path().to_owned(),
        why,
        remedy,
        scope: Scope::Machine,
    })
}

/// Whether a change needs to know what the running deployment was made from: a config names the first image, or none does any
/// more. `unknown`: what the host had is not known from configs, because another program set it up.
pub(crate) fn asks_for_origin(
    old: &DesiredHost,
    new: &DesiredHost,
    recorded: &RecordedOs,
    unknown: bool,
) -> bool {
    let (had, has) = (!old.os.image.is_empty(), !new.os.image.is_empty());
    match recorded {
        RecordedOs::Nothing => has && (!had || unknown),
        RecordedOs::Ran(_) => had && !has,
        RecordedOs::Damaged(_) => false,
    }
}

/// The image to record as the one to go back to: a config names an image for the first time, and there is no record yet. A
/// host that another program has set up (`unknown`) and that already runs the config's image has no earlier image.
pub(crate) fn to_record<'f>(
    old: &DesiredHost,
    new: &DesiredHost,
    facts: &'f Facts,
    unknown: bool,
) -> Option<&'f OsOrigin> {
    let none = facts.os_before == RecordedOs::Nothing && !facts.os_refused.contains_key(&OsField::Image);
    let asked = none && asks_for_origin(old, new, &facts.os_before, unknown);
    let runs_it = |origin: &OsOrigin| {
        let by_digest =
            matches!(origin, OsOrigin::Image { reference, .. } if same_image(reference, &new.os.image));
        unknown && (by_digest || same_image(&old.os.image, &new.os.image))
    };
    facts.os_origin.as_ref().filter(|origin| asked && !runs_it(origin))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::facts::EffectFacts;
    use crate::system::os::{Deployment, OsStatus};

    fn config(image: &str) -> DesiredHost {
        let spec = serde_json::json!({"osImageURL": image, "config": {"ignition": {"version": "3.4.0"}}});
        DesiredHost::parse(&serde_json::from_value(spec).unwrap()).unwrap()
    }

    fn image(reference: &str) -> OsOrigin {
        OsOrigin::Image { reference: reference.to_owned(), named: String::new() }
    }

    fn branch() -> OsOrigin {
        OsOrigin::Other { origin: "fedora:fedora/x86_64/stable".to_owned(), commit: "ab12".to_owned() }
    }

    /// A host that runs this image.
    fn facts(runs: &str, recorded: RecordedOs, origin: Option<OsOrigin>) -> Facts {
        let booted = Deployment { image: runs.to_owned(), ..Deployment::default() };
        Facts {
            os: Some(OsStatus { booted, ..OsStatus::default() }),
            effects: Some(EffectFacts::default()),
            os_before: recorded,
            os_origin: origin,
            ..Facts::default()
        }
    }

    #[test]
    fn an_image_that_is_given_up_brings_back_the_one_that_ran_before_it() {
        let stock = "ostree-unverified-registry:q.io/stock@sha256:1";
        let ran = |origin: OsOrigin| RecordedOs::Ran(origin);
        for (about, old, new, facts, want) in [
            ("none is given up", "", "", facts("q.io/stock:1", RecordedOs::Nothing, None), ImageGivenUp::No),
            ("another one", "a", "b", facts("a", ran(image(stock)), None), ImageGivenUp::No),
            ("no record", "a", "", facts("a", RecordedOs::Nothing, None), ImageGivenUp::Keeps),
            (
                "back",
                "a",
                "",
                facts("a", ran(image(stock)), Some(image("a"))),
                ImageGivenUp::Back(stock.to_owned()),
            ),
            (
                "the same by name",
                "a",
                "",
                facts("q.io/stock@sha256:1", ran(image(stock)), None),
                ImageGivenUp::Runs,
            ),
            // The config named by its tag what the host ran already.
            (
                "the same by digest",
                "q.io/stock:1",
                "",
                facts("q.io/stock:1", ran(image(stock)), Some(image(stock))),
                ImageGivenUp::Runs,
            ),
            ("by hand", "a", "", facts("", ran(branch()), None), ImageGivenUp::Runs),
            ("no host was looked at", "a", "", Facts::default(), ImageGivenUp::Unknown),
            (
                "an ordinary host",
                "a",
                "",
                Facts { os: None, ..facts("", RecordedOs::Nothing, None) },
                ImageGivenUp::Keeps,
            ),
        ] {
            let got = ImageGivenUp::of(&config(old), &config(new), &facts);
            assert_eq!(got, want, "{about}");
            let told = got.note().unwrap_or_default();
            assert_eq!(told.contains(stock), matches!(got, ImageGivenUp::Back(_)), "{about}: {told}");
        }
    }

    #[test]
    fn what_cannot_be_gone_back_to_is_refused_with_what_can_be_done() {
        for (recorded, said) in [
            (RecordedOs::Ran(branch()), "fedora:fedora/x86_64/stable"),
            (RecordedOs::read(Some("{")), "cannot be read"),
        ] {
            let got = ImageGivenUp::of(&config("a"), &config(""), &facts("a", recorded, Some(image("a"))));
            let ImageGivenUp::Refused(why) = got else { panic!("{got:?}") };
            let text = why.to_string();
            assert!(text.contains(said) && text.contains(OS_BEFORE), "{text}");
            assert!(text.contains("spec.osImageURL"), "{text}");
        }
    }

    #[test]
    fn the_first_image_of_a_config_is_what_makes_the_record_and_no_later_one() {
        let origin = || Some(image("q.io/stock@sha256:1"));
        let recorded = || RecordedOs::Ran(image("q.io/older@sha256:2"));
        for (about, old, new, unknown, facts, want) in [
            ("the first", "", "a", false, facts("q.io/stock", RecordedOs::Nothing, origin()), true),
            ("none", "", "", false, facts("q.io/stock", RecordedOs::Nothing, origin()), false),
            ("a later one", "a", "b", false, facts("a", RecordedOs::Nothing, origin()), false),
            ("there is a record", "", "a", false, facts("q.io/stock", recorded(), origin()), false),
            (
                "a first boot",
                "q.io/stock",
                "a",
                true,
                facts("q.io/stock", RecordedOs::Nothing, origin()),
                true,
            ),
            ("a first boot in the image", "a", "a", true, facts("a", RecordedOs::Nothing, origin()), false),
            (
                "a first boot in the image, which is named by its digest",
                "q.io/stock:1",
                "q.io/stock@sha256:1",
                true,
                facts("q.io/stock:1", RecordedOs::Nothing, origin()),
                false,
            ),
            ("not known", "", "a", false, facts("q.io/stock", RecordedOs::Nothing, None), false),
        ] {
            let (old, new) = (config(old), config(new));
            assert_eq!(to_record(&old, &new, &facts, unknown).is_some(), want, "{about}");
        }
        let mut refused = facts("", RecordedOs::Nothing, origin());
        refused.os_refused.insert(OsField::Image, "no".to_owned());
        assert_eq!(to_record(&config(""), &config("a"), &refused, false), None);
    }

    #[test]
    fn the_record_is_read_as_it_was_written() {
        for origin in [image("ostree-image-signed:registry:q.io/a@sha256:1"), branch()] {
            let text = serde_json::to_string(&origin).unwrap();
            assert_eq!(RecordedOs::read(Some(&text)), RecordedOs::Ran(origin), "{text}");
        }
        assert_eq!(RecordedOs::read(None), RecordedOs::Nothing);
        for bad in ["", "{}", "{\"from\":\"image\"}", "{\"from\":\"tape\"}"] {
            assert!(matches!(RecordedOs::read(Some(bad)), RecordedOs::Damaged(_)), "{bad}");
        }
    }
}
