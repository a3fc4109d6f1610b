//! Carries out effects: sets kernel parameters, runs programs, acts on units, and checks each.
//!
//! Not here: which effects a change has (see `plan::effects`).

use std::io::{self, Write as _};
use std::time::Duration;

use rustix::fs::OFlags;

use crate::error::Error;
use crate::fault::{Fault, Point};
use crate::host::Host;
use crate::paths;
use crate::plan::effects::sysctl::same_value;
use crate::plan::effects::{Effect, UnitVerb};
use crate::system::systemd::SystemdError;
use crate::transaction::recover::ServiceUndo;

/// The time limit of a program. `udevadm settle` has one of its own below it.
const PROGRAM: Duration = Duration::from_secs(120);

impl Host {
    /// Carries out one effect and checks it. Units are checked together at the end, by [`Host::check_units`].
    ///
    /// # Errors
    /// It fails, or the check does. `because`: the paths that require it.
    pub(crate) fn effect(&mut self, effect: &Effect, because: &[String]) -> Result<(), Error> {
        let fail = |why: String, remedy: String| Error::Effect {
            paths: because.join(", "),
            effect: effect.to_string(),
            why,
            remedy,
        };
        match effect {
            Effect::Parameter { key, value, tolerated, private } => match self
                .set_parameter(key, value, *private)
            {
                Err(e) if !e.killed() && *tolerated => {
                    tracing::warn!(%key, error = %api::formats::text::chain(&e), "a kernel parameter that may fail");
                    Ok(())
                }
                Err(e) if !e.killed() => {
                    let remedy = "correct the value in the MachineConfig; a key with - before it may fail";
                    Err(fail(api::formats::text::chain(&e), remedy.to_owned()))
                }
                done => done,
            },
            Effect::Program { program, args } => self.run_program(program, args).map_err(|e| match e {
                Error::Systemd(e) if !e.killed => {
                    let remedy = format!(
                        "correct the contents in the MachineConfig, or run {program} on the host to see more"
                    );
                    fail(e.why, remedy)
                }
                e => e,
            }),
            Effect::Unit { action, unit } => Ok(self.systemd(action.verb(), unit, |s| s.act(*action, unit))?),
        }
    }

    /// Checks the units that effects acted on.
    ///
    /// # Errors
    /// One of them has failed.
    pub(crate) fn check_units<'e>(&mut self, effects: impl Iterator<Item = &'e Effect>) -> Result<(), Error> {
        let acted = effects.filter_map(|e| match e {
            Effect::Unit { action: UnitVerb::Start | UnitVerb::Restart | UnitVerb::Reload, unit } => {
                Some(unit.clone())
            }
            _ => None,
        });
        let units: Vec<String> = acted.collect();
        if units.is_empty() {
            return Ok(());
        }
        Ok(self.systemd("check", &units.join(" "), |s| s.check(&units))?)
    }

    /// Repeats an effect with the old contents, or reverts it. A failure is logged: the files are restored, and the
    /// next boot brings the rest. `marked`: effects may have been carried out by the change.
    pub(crate) fn undo_effect(
        &mut self,
        effect: &Effect,
        services: ServiceUndo,
        marked: bool,
    ) -> Result<(), Error> {
        if services != ServiceUndo::LaterBoot && !marked {
            return Ok(());
        }
        let done = match (effect, services) {
            (Effect::Unit { .. }, ServiceUndo::InProcess) => self.effect(effect, &[]),
            (Effect::Unit { action, unit }, _) => {
                // Services that started in this boot were started with the contents from before the undo.
                let started = services == ServiceUndo::SameBoot
                    || *action == UnitVerb::Start
                    || self.systemd.was_started(unit)?;
                match started {
                    true => {
                        self.systemd(action.verb(), unit, |s| s.queue_act(*action, unit)).map_err(Error::from)
                    }
                    false => Ok(()),
                }
            }
            (Effect::Parameter { .. } | Effect::Program { .. }, _) => self.effect(effect, &[]),
        };
        match done {
            Err(e) if !e.killed() => {
                tracing::warn!(%effect, error = %api::formats::text::chain(&e), "undoing an effect; continuing");
                Ok(())
            }
            done => done,
        }
    }

    /// Sets a kernel parameter and reads it back. `private`: no error may name values.
    fn set_parameter(&self, key: &str, value: &str, private: bool) -> Result<(), Error> {
        let path = format!("{}/{key}", paths::PARAMETERS);
        self.root.call("set", &path, || {
            let file = self.root.openat(&path, OFlags::WRONLY | OFlags::TRUNC, 0)?;
            // The kernel takes a value by one write.
            std::fs::File::from(file).write_all(format!("{value}\n").as_bytes())
        })?;
        let now = self.root.text(&path)?.unwrap_or_default();
        if same_value(&now, value) {
            return Ok(());
        }
        let why = match private {
            true => "the kernel has another value afterwards".to_owned(),
            false => format!("the kernel has {:?} afterwards", now.trim()),
        };
        Err(crate::disk::fs_error::FsError::new("set", &path, io::Error::other(why)).into())
    }

    fn run_program(&mut self, program: &str, args: &[String]) -> Result<(), Error> {
        let on = || format!("{program} {}", args.join(" "));
        let call = "run";
        let fault = |host: &Self, before| {
            host.root.faults().at(Point { call, on: program, before }).map_err(|f| match f {
                Fault::Killed => SystemdError {
                    killed: true,
                    ..SystemdError::new(call, program, "killed by a fault point")
                },
                Fault::Fail(e) => SystemdError::new(call, program, e),
            })
        };
        fault(self, true)?;
        let Some(programs) = &mut self.programs else {
            return Err(SystemdError::new(call, on(), "programs of this host cannot be run from here").into());
        };
        let args: Vec<&str> = args.iter().map(String::as_str).collect();
        programs.run(program, &args, PROGRAM).map_err(|e| SystemdError::new(call, on(), e))?;
        Ok(fault(self, false)?)
    }
}
