//! The table: which changed files take effect without a reboot, and how. Pure.
//!
//! A row that needs a program or a unit that the host lacks does not apply, and says so. A path without a row costs what
//! it costs without the table.
//!
//! Not here: units of a config (see `units`).
//!
//! Sources: tmpfiles.d(5), udev(7), systemd.network(5), sysctl.d(5).

use desired::mask::may_show;
use desired::{DesiredHost, DesiredPath};

use super::rows::{
    FileEffect, NETWORKCTL, NETWORKD, ROWS, RUNTIMES, SETTLE, SSHD, SSHD_SOCKETS, SSHD_UNITS, TMPFILES,
    UDEVADM, UDEVD,
};
pub(crate) use super::rows::{MODPROBE, PROGRAMS};
use super::{Effect, Planned, RowApplied, RowRefused, TakesEffect, UnitVerb, on_unit, run, sysctl, units};
use crate::disk::root::split;
use crate::paths;
use crate::plan::facts::{EffectFacts, Facts};

use UnitVerb::{Reload, Restart};

const AUTHORITIES: &str = "certificate authorities";
const DROPINS: &str = "units";

/// The unit of a drop-in that a config has as a plain file.
fn dropin(path: &str) -> Option<&str> {
    let (dir, name) = split(path).ok()?;
    let unit = dir.strip_prefix("/etc/systemd/system/")?.strip_suffix(".d")?;
    (name.ends_with(".conf") && unit.contains('.') && !unit.contains('/')).then_some(unit)
}

/// The folders whose files hide files of the same name in the folders of [`LOWER`], and what those are called there.
const HIDING: [(&str, &str); 4] = [
    ("/etc/tmpfiles.d", "tmpfiles.d"),
    ("/etc/sysusers.d", "sysusers.d"),
    ("/etc/modules-load.d", "modules-load.d"),
    ("/etc/udev/rules.d", "udev/rules.d"),
];
const LOWER: [&str; 4] = ["/run", "/usr/local/lib", "/usr/lib", "/lib"];

/// The files of the host that may count once a config's file at this path is removed: those with the same name in other
/// folders, and the saved original.
pub(crate) fn hidden_by(path: &str) -> Vec<String> {
    let Ok((dir, name)) = split(path) else { return vec![] };
    let Some((_, folder)) = HIDING.iter().find(|(d, _)| *d == dir) else { return vec![] };
    let lower = LOWER.iter().map(|l| format!("{l}/{folder}/{name}"));
    lower.chain([paths::original(path)]).collect()
}

/// The units whose state the rows for this path need to know.
pub(crate) fn asks_about(path: &str) -> Vec<String> {
    let own = |units: &[&str]| units.iter().map(|u| (*u).to_owned()).collect();
    if let Some(unit) = dropin(path) {
        return vec![unit.to_owned()];
    }
    let row = ROWS.iter().find(|row| row.files.iter().any(|f| f.covers(path)));
    match row.map(|row| row.how) {
        Some(FileEffect::Unit(_, units)) => own(units),
        Some(FileEffect::UdevRules) => own(&[UDEVD]),
        Some(FileEffect::Networks) => own(&[NETWORKD]),
        Some(FileEffect::Sshd) => own(&[SSHD_UNITS, SSHD_SOCKETS].concat()),
        None if path.contains("/anchors/") || path.starts_with("/usr/local/share/ca-certificates/") => {
            own(&RUNTIMES)
        }
        None | Some(_) => vec![],
    }
}

/// What the rows need of one host.
struct RowFacts<'a> {
    row: &'static str,
    path: &'a str,
    facts: &'a Facts,
    effects: Option<&'a EffectFacts>,
}

impl RowFacts<'_> {
    fn refuse<T>(&self, why: impl Into<String>) -> Result<T, RowRefused> {
        Err(RowRefused { row: self.row, why: why.into() })
    }

    fn runs(&self, unit: &str) -> bool {
        self.effects.is_some_and(|f| f.running.contains(unit))
    }

    /// Whether the kernel parameters of a config may be shown.
    fn shows_parameters(&self, config: &DesiredHost) -> bool {
        let mut files = config.paths.iter().filter(|(p, _)| p.starts_with("/etc/sysctl.d/"));
        files.all(|(path, want)| match want {
            DesiredPath::File { content, mode, .. } => {
                !self.facts.closed.contains(path) && may_show(path, *mode, content.bytes())
            }
            _ => true,
        })
    }

    /// The program, if the host has it.
    fn needs(&self, program: &'static str) -> Result<&'static str, RowRefused> {
        match self.effects {
            Some(f) if !f.programs.contains(program) => self.refuse(format!("this host has no {program}")),
            _ => Ok(program),
        }
    }

    fn needs_running(&self, unit: &str) -> Result<(), RowRefused> {
        match self.effects {
            Some(_) if !self.runs(unit) => self.refuse(format!("{unit} does not run on this host")),
            _ => Ok(()),
        }
    }

    /// A file that is removed, while the host has another one of its name, which a boot would then follow.
    fn uncovers(&self) -> bool {
        self.effects.is_some_and(|f| f.hiding.contains(self.path))
    }

    /// An action on the first of these units that the host has. One that does not run, and would not run after a boot,
    /// needs no action.
    fn unit(&self, action: UnitVerb, units: &[&str]) -> Result<Vec<Planned>, RowRefused> {
        let there = units.iter().find(|u| self.effects.is_none() || self.facts.unit_files.contains(**u));
        match there {
            Some(unit) if self.effects.is_none() || self.runs(unit) => Ok(vec![on_unit(action, unit)]),
            Some(unit) if self.effects.is_some_and(|f| f.start_at_boot.contains(*unit)) => {
                self.refuse(format!("{unit} does not run, and a boot would start it"))
            }
            Some(_) => Ok(vec![]),
            None => self.refuse(format!("this host has no {}", units.join(" or "))),
        }
    }
}

/// Why a removed file is left to the boot.
const UNCOVERED: &str = "the host has another file of this name, which counts once this one is removed";

/// Whether `systemd-tmpfiles --create` skips a line: those with `!`, and those that remove something.
fn is_of_boot(line: &str) -> bool {
    let kind = line.split_whitespace().next().unwrap_or_default();
    kind.contains('!') || kind.starts_with(['r', 'R', 'D'])
}

/// Whether a udev rule does not act on events of change, or only on others.
fn is_of_other_events(line: &str) -> bool {
    line.split(',').any(|part| {
        let Some(rest) = part.trim_start().strip_prefix("ACTION").map(str::trim_start) else { return false };
        (rest.starts_with("==") && !rest.contains("change"))
            || (rest.starts_with("!=") && rest.contains("change"))
    })
}

/// What a path has in a config, as text. `Err`: something that rows do not read.
fn content<'w>(config: &'w DesiredHost, path: &str) -> Result<Option<&'w str>, String> {
    match config.at(path) {
        None | Some(DesiredPath::Nothing) => Ok(None),
        Some(DesiredPath::File { content, .. }) => {
            std::str::from_utf8(content.bytes()).map(Some).map_err(|_| "it is not UTF-8".to_owned())
        }
        Some(DesiredPath::Dir { .. } | DesiredPath::Link { .. } | DesiredPath::Mask) => {
            Err("it is not a file".to_owned())
        }
    }
}

/// The lines of a file without comments.
fn lines(text: &str) -> impl Iterator<Item = &str> {
    text.lines().map(str::trim).filter(|l| !l.is_empty() && !l.starts_with(['#', ';']))
}

/// How a changed path takes effect. `None`: the table has no row for it.
pub(crate) fn of_file(
    path: &str,
    old: &DesiredHost,
    new: &DesiredHost,
    facts: &Facts,
    modules: bool,
) -> Option<Result<RowApplied, RowRefused>> {
    let effects = facts.effects.as_ref();
    let is_authority = match &facts.trust_tool {
        Some(tool) => tool.reads(path),
        None => split(path).is_ok_and(|(dir, _)| dir == "/etc/pki/ca-trust/source/anchors"),
    };
    let row = ROWS.iter().find(|row| row.files.iter().any(|f| f.covers(path)));
    let (name, how) = match (row, is_authority, dropin(path)) {
        (Some(row), _, _) => (row.name, row.how),
        (None, true, _) => (AUTHORITIES, FileEffect::Authorities),
        (None, false, Some(unit)) => return Some(of_dropin(path, unit, old, new, facts)),
        (None, false, None) => return None,
    };
    let row_facts = RowFacts { row: name, path, facts, effects };
    let (was, is) = match (content(old, path), content(new, path)) {
        (Ok(was), Ok(is)) => (was, is),
        // A link or a folder is taken up only where nothing reads the contents for the effect.
        _ if how == FileEffect::AtEachUse => (None, None),
        (Err(why), _) | (_, Err(why)) => return Some(row_facts.refuse(why)),
    };
    Some(by_row(&row_facts, how, (was, is), (old, new), modules))
}

fn by_row(
    row_facts: &RowFacts<'_>,
    how: FileEffect,
    (was, is): (Option<&str>, Option<&str>),
    (old, new): (&DesiredHost, &DesiredHost),
    modules: bool,
) -> Result<RowApplied, RowRefused> {
    let path = row_facts.path;
    let by = |effects| RowApplied::by(row_facts.row, effects);
    match how {
        FileEffect::AtEachUse => Ok(RowApplied { way: TakesEffect::AtEachUse, ..by(vec![]) }),
        FileEffect::Unit(action, units) => row_facts.unit(action, units).map(by),
        FileEffect::Parameters => {
            let taken = sysctl::of_file(path, old, new, row_facts.effects, modules);
            match [old, new].into_iter().all(|config| row_facts.shows_parameters(config)) {
                true => taken,
                false => taken.map(RowApplied::hidden).or_else(|_| {
                    row_facts.refuse(
                        "it takes effect only at boot; the reason is hidden because the file may be secret",
                    )
                }),
            }
        }
        FileEffect::Modules if is.is_none() && row_facts.uncovers() => row_facts.refuse(UNCOVERED),
        FileEffect::Modules => {
            let named = |text: Option<&str>| {
                lines(text.unwrap_or_default()).map(str::to_owned).collect::<Vec<String>>()
            };
            let (had, has) = (named(was), named(is));
            let load = |m: &String| {
                let args = vec!["--".to_owned(), m.clone()];
                Planned::with(Effect::Program { program: MODPROBE.to_owned(), args }, None)
            };
            if !has.is_empty() {
                row_facts.needs(MODPROBE)?;
            }
            let taken = by(has.iter().filter(|m| !had.contains(m)).map(load).collect());
            let gone: Vec<&str> = had.iter().filter(|m| !has.contains(m)).map(String::as_str).collect();
            Ok(match gone.is_empty() {
                true => taken,
                false => taken.note(format!("{path}: {} stays loaded until the next boot", gone.join(", "))),
            })
        }
        FileEffect::Reads(program, args) if is.is_some() => {
            if let Some(line) = is.into_iter().flat_map(lines).find(|l| program == TMPFILES && is_of_boot(l))
            {
                let what = line.split_whitespace().next().unwrap_or_default();
                return row_facts.refuse(format!("lines of type {what} take effect at boot"));
            }
            let args: Vec<&str> = args.iter().copied().chain([path]).collect();
            let effect = run(row_facts.needs(program)?, &args);
            // The program cannot read a file that the undo removes.
            Ok(by(vec![Planned { undo: effect.undo.filter(|_| was.is_some()), ..effect }]))
        }
        FileEffect::Reads(..) if row_facts.uncovers() => row_facts.refuse(UNCOVERED),
        FileEffect::Reads(..) => Ok(by(vec![]).note(format!("{path}: its effects stay"))),
        FileEffect::UdevRules => {
            let names = |l: &str| l.split(',').any(|p| p.trim_start().starts_with("NAME"));
            if [was, is].into_iter().flatten().flat_map(lines).any(names) {
                return row_facts
                    .refuse("it names network interfaces, and udev does that only when they appear");
            }
            if [was, is].into_iter().flatten().flat_map(lines).any(is_of_other_events) {
                return row_facts.refuse("it has rules for events other than change");
            }
            let has = |line: &str| lines(is.unwrap_or_default()).any(|l| l == line);
            if was.into_iter().flat_map(lines).any(|line| !has(line))
                || (is.is_none() && row_facts.uncovers())
            {
                return row_facts.refuse(
                    "settings that a removed or changed rule made on devices stay until the next boot",
                );
            }
            let udevadm = row_facts.needs(UDEVADM)?;
            row_facts.needs_running(UDEVD)?;
            Ok(by(vec![
                run(udevadm, &["control", "--reload"]),
                run(udevadm, &["trigger", "--type=devices", "--action=change"]),
                run(udevadm, &["settle", SETTLE]),
            ]))
        }
        FileEffect::Networks => {
            let kind = path.trim_end_matches(".conf").trim_end_matches(".d");
            if !kind.ends_with(".network") && !split(path).is_ok_and(|(dir, _)| dir.ends_with(".network.d")) {
                return row_facts.refuse(
                    "networkd reloads .network files while it runs; other files take effect at boot",
                );
            }
            row_facts.needs_running(NETWORKD)?;
            Ok(by(vec![run(row_facts.needs(NETWORKCTL)?, &["reload"])]))
        }
        FileEffect::Sshd => {
            let test = Planned { undo: None, ..run(row_facts.needs(SSHD)?, &["-t"]) };
            let by_socket = SSHD_SOCKETS.iter().any(|s| row_facts.runs(s))
                && !SSHD_UNITS.iter().any(|u| row_facts.runs(u));
            let reload = if by_socket { vec![] } else { row_facts.unit(Reload, &SSHD_UNITS)? };
            Ok(by(std::iter::once(test).chain(reload).collect()))
        }
        FileEffect::Authorities => {
            if row_facts.effects.is_some() && row_facts.facts.trust_tool.is_none() {
                return row_facts.refuse("this host has no program that updates its trust store");
            }
            // The program itself is run for each change of authorities, with and without this table.
            let runtimes = RUNTIMES.iter().filter(|u| row_facts.runs(u)).map(|u| on_unit(Restart, u));
            Ok(by(runtimes.collect()))
        }
        FileEffect::Userspace => Ok(RowApplied { way: TakesEffect::Userspace, ..by(vec![]) }),
    }
}

fn of_dropin(
    path: &str,
    unit: &str,
    old: &DesiredHost,
    new: &DesiredHost,
    facts: &Facts,
) -> Result<RowApplied, RowRefused> {
    let refuse = |why: String| RowRefused { row: DROPINS, why };
    let was = content(old, path).map_err(refuse)?.unwrap_or_default();
    let is = content(new, path).map_err(refuse)?.unwrap_or_default();
    units::of_dropin(unit, [was, is], facts).map(|effects| RowApplied::by(DROPINS, effects)).map_err(refuse)
}

#[cfg(test)]
mod tests;
