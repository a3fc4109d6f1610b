//! What takes effect without a reboot: the effects of changed paths and units, each with how it is checked and undone.
//! Pure.
//!
//! Flow: [`table::of_file`] and [`units::of_unit`] say how one changed path or unit takes effect on a host with these
//! facts. [`crate::plan::disruption`] collects that for a whole change. If anything else of the change needs a reboot,
//! no effect is carried out: the boot brings all of them.
//!
//! Not here: when this table counts (only with [`api::v1alpha1::Reboots::WhenNeeded`], and only where no disruption
//! policy is for the path), nor how effects are carried out (see `transaction::effects`).

mod rows;
pub(crate) mod sysctl;
pub(crate) mod table;
pub(crate) mod units;

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize, Serializer};

pub use crate::system::systemd::UnitVerb;

/// One thing that is done on the host so that a changed file or unit takes effect. All of them can be repeated.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "effect", rename_all = "camelCase", rename_all_fields = "camelCase")]
pub enum Effect {
    /// Set a kernel parameter. Checked: it is read back.
    Parameter {
        /// Its path below `/proc/sys`.
        key: String,
        /// The value.
        value: String,
        /// The config says that a failure does not matter (`-` before the key, sysctl.d(5)).
        tolerated: bool,
        /// The value may not be shown: its file is not open to all, or holds secrets.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        private: bool,
    },
    /// Run a program of the host. Checked: its exit code.
    Program {
        /// Its path.
        program: String,
        /// Its arguments.
        args: Vec<String>,
    },
    /// Act on a unit. Checked: the job's result, and afterwards that the unit has not failed.
    Unit {
        /// The action.
        action: UnitVerb,
        /// The unit.
        unit: String,
    },
}

impl fmt::Display for Effect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Parameter { key, private: true, .. } => {
                write!(f, "set the kernel parameter {key} to a value that is not shown")
            }
            Self::Parameter { key, value, .. } => write!(f, "set the kernel parameter {key} to {value}"),
            Self::Program { program, args } if args.is_empty() => write!(f, "run {program}"),
            Self::Program { program, args } => write!(f, "run {program} {}", args.join(" ")),
            Self::Unit { action, unit } => write!(f, "{} {unit}", action.verb()),
        }
    }
}

impl Effect {
    /// The same effect, as a plan shows it.
    fn shown(&self) -> Self {
        match self {
            Self::Parameter { key, tolerated, private: true, .. } => Self::Parameter {
                key: key.clone(),
                value: String::new(),
                tolerated: *tolerated,
                private: true,
            },
            effect => effect.clone(),
        }
    }
}

fn shown<S: Serializer>(effect: &Effect, s: S) -> Result<S::Ok, S::Error> {
    effect.shown().serialize(s)
}

fn shown_if_any<S: Serializer>(effect: &Option<Effect>, s: S) -> Result<S::Ok, S::Error> {
    effect.as_ref().map(Effect::shown).serialize(s)
}

/// An effect of a change, with what undoes it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Planned {
    /// What is done.
    #[serde(flatten, serialize_with = "shown")]
    pub effect: Effect,
    /// What is done when the change is undone, after its files are restored. `None`: nothing.
    #[serde(skip_serializing_if = "Option::is_none", serialize_with = "shown_if_any")]
    pub undo: Option<Effect>,
    /// The paths and units that require it.
    pub because: Vec<String>,
}

impl Planned {
    /// An effect that is repeated when the change is undone: it then takes up the old contents.
    pub(crate) fn repeated_on_undo(effect: Effect) -> Self {
        Self { undo: Some(effect.clone()), effect, because: Vec::new() }
    }

    /// An effect with its counterpart.
    pub(crate) fn with(effect: Effect, undo: Option<Effect>) -> Self {
        Self { effect, undo, because: Vec::new() }
    }

    /// Whether it comes before files are changed: a unit is stopped as long as its own file says how.
    #[must_use]
    pub fn is_first(&self) -> bool {
        matches!(self.effect, Effect::Unit { action: UnitVerb::Stop, .. })
    }
}

/// Acts on a unit, and again in the same way when the change is undone.
pub(crate) fn on_unit(action: UnitVerb, unit: &str) -> Planned {
    Planned::repeated_on_undo(Effect::Unit { action, unit: unit.to_owned() })
}

/// Runs a program, and again when the change is undone.
pub(crate) fn run(program: &str, args: &[&str]) -> Planned {
    let args = args.iter().map(|a| (*a).to_owned()).collect();
    Planned::repeated_on_undo(Effect::Program { program: program.to_owned(), args })
}

/// How a change takes effect.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum TakesEffect {
    /// At each use, because it is read then: on every host, and nothing is done.
    AtEachUse,
    /// By these, in order. None: there is nothing to do on this host.
    Effects(Vec<Planned>),
    /// With a restart of userspace: a soft reboot will do.
    Userspace,
}

/// How one path or unit takes effect, by which row of the table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RowApplied {
    /// The row.
    pub(crate) row: &'static str,
    /// How.
    pub(crate) way: TakesEffect,
    /// What does not take effect before the next boot, and other things to know.
    pub(crate) notes: Vec<String>,
    /// The values of kernel parameters from before this agent set them, if that record changes.
    pub(crate) record: BTreeMap<String, Option<String>>,
}

impl RowApplied {
    pub(crate) fn by(row: &'static str, effects: Vec<Planned>) -> Self {
        Self { row, way: TakesEffect::Effects(effects), notes: Vec::new(), record: BTreeMap::new() }
    }

    /// Hides the values of kernel parameters.
    pub(crate) fn hidden(mut self) -> Self {
        if let TakesEffect::Effects(effects) = &mut self.way {
            for effect in effects.iter_mut().flat_map(|p| std::iter::once(&mut p.effect).chain(&mut p.undo)) {
                if let Effect::Parameter { private, .. } = effect {
                    *private = true;
                }
            }
        }
        self
    }

    pub(crate) fn note(mut self, note: String) -> Self {
        self.notes.push(note);
        self
    }
}

/// Why a row of the table does not apply: the change costs what it costs without the table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RowRefused {
    /// The row.
    pub(crate) row: &'static str,
    /// The reason.
    pub(crate) why: String,
}
