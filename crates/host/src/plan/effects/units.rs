//! How a changed unit takes effect without a reboot: it is started, stopped or restarted, as a boot would leave it. Pure.
//!
//! A unit is left to the reboot if a boot would do more than start it now: units of early boot, units that others wait
//! for, units whose restart ends what runs on them.
//!
//! Not here: enabling and disabling (see `plan::units`), which every change does.
//!
//! Sources: systemctl(1), systemd.unit(5).

use desired::{DesiredHost, has_contents};
use ignition::Unit;

use super::{Effect, Planned, RowApplied, RowRefused, UnitVerb, on_unit};
use crate::paths;
use crate::plan::facts::{EffectFacts, Facts};
use crate::system::unit_file::{Install, template_of};

const ROW: &str = "units";
/// The kinds that can be started and stopped at any time.
const KINDS: [&str; 4] = [".service", ".timer", ".socket", ".path"];
/// What an `[Install]` section may name: a boot reaches these last, and nothing waits for them.
const LATE: [&str; 6] = [
    "multi-user.target",
    "default.target",
    "graphical.target",
    "timers.target",
    "sockets.target",
    "paths.target",
];
/// Units whose restart would cut off everything that depends on them, and the agent itself, which makes the change.
const NEVER: [&str; 9] = [
    "dbus.service",
    "dbus.socket",
    "dbus-broker.service",
    "NetworkManager.service",
    "machine-config-daemon.service",
    "machine-config-daemon-recover.service",
    "machine-config-daemon-emergency.service",
    "machine-config-daemon-firstboot.service",
    // It ends its containers with itself, unless its settings say otherwise.
    "docker.service",
];
/// Services of systemd whose restart ends nothing that runs on them.
const SAFE: [&str; 5] = [
    "systemd-journald.service",
    "systemd-logind.service",
    "systemd-networkd.service",
    "systemd-resolved.service",
    "systemd-timesyncd.service",
];

/// Why a unit of this name is left to a reboot.
fn by_name(name: &str) -> Option<String> {
    if !KINDS.iter().any(|k| name.ends_with(k)) {
        return Some("units of this kind take effect at boot".to_owned());
    }
    if template_of(name).is_some() {
        return Some("it is a template or an instance of one".to_owned());
    }
    if name.rsplit_once('.').is_some_and(|(stem, _)| stem.ends_with('-')) {
        return Some("its drop-ins also apply to other units whose names begin like it".to_owned());
    }
    if NEVER.contains(&name) {
        return Some("restarting it would stop what depends on it".to_owned());
    }
    if name.starts_with("systemd-") && !SAFE.contains(&name) {
        return Some("it is a part of systemd".to_owned());
    }
    None
}

/// Why a unit with this text is left to a reboot.
fn by_text(text: &str) -> Option<String> {
    let lines = || text.lines().map(str::trim).filter_map(|l| l.split_once('='));
    let values = |wanted: &'static str| {
        lines().filter(move |(k, _)| k.trim() == wanted).map(|(_, v)| v.trim().to_owned())
    };
    let is = |key, no: bool| {
        values(key).any(|v| matches!(v.as_str(), "no" | "false" | "off" | "0") == no && !v.is_empty())
    };
    if is("DefaultDependencies", true) {
        return Some("it is a unit of early boot (DefaultDependencies=no)".to_owned());
    }
    if is("RefuseManualStart", false) || is("RefuseManualStop", false) {
        return Some("it refuses to be started or stopped by hand".to_owned());
    }
    let before: Vec<String> =
        values("Before").flat_map(|v| v.split_whitespace().map(str::to_owned).collect::<Vec<_>>()).collect();
    if let Some(other) = before.iter().find(|b| !LATE.contains(&b.as_str()) && *b != "shutdown.target") {
        return Some(format!("it has to run before {other}, which may run already"));
    }
    let install = Install::parse(text);
    let other = install.links.iter().find(|(target, _)| !LATE.contains(&target.as_str()));
    other.map(|(target, _)| format!("it is part of {target}, which a boot reaches early or others wait for"))
}

/// The text of a unit by this config: its file, or the host's, and its drop-ins.
fn text(unit: &Unit, facts: Option<&EffectFacts>) -> String {
    let host = || facts.and_then(|f| f.unit_texts.get(&unit.name)).cloned().unwrap_or_default();
    let own = if has_contents(unit) { unit.contents.clone().unwrap_or_default() } else { host() };
    unit.dropins.iter().filter_map(|d| d.contents.clone()).fold(own, |all, more| all + "\n" + &more)
}

fn stop(unit: &str) -> Planned {
    let effect = |action| Effect::Unit { action, unit: unit.to_owned() };
    Planned::with(effect(UnitVerb::Stop), Some(effect(UnitVerb::Start)))
}

fn start(unit: &str) -> Planned {
    let effect = |action| Effect::Unit { action, unit: unit.to_owned() };
    Planned::with(effect(UnitVerb::Start), Some(effect(UnitVerb::Stop)))
}

/// Whether a unit does not run and a boot would start it: it has failed, ended or was stopped.
fn starts_at_boot(unit: &str, facts: &Facts) -> bool {
    facts.effects.as_ref().is_some_and(|f| f.start_at_boot.contains(unit))
}

/// How a unit that differs between two configs takes effect. `drifted`: its files on the host differ from both.
pub(crate) fn of_unit(
    name: &str,
    (old, new): (&DesiredHost, &DesiredHost),
    drifted: bool,
    facts: &Facts,
) -> Result<RowApplied, RowRefused> {
    let refuse = |why: String| Err(RowRefused { row: ROW, why });
    let of = |config: &DesiredHost| config.config.systemd.units.iter().rfind(|u| u.name == name).cloned();
    let (was, is) = (of(old), of(new));
    let effects = facts.effects.as_ref();
    if let Some(why) = by_name(name) {
        return refuse(why);
    }
    for unit in [&was, &is].into_iter().flatten() {
        if let Some(why) = by_text(&text(unit, effects)) {
            return refuse(why);
        }
    }
    let runs = |unit: &str| effects.is_some_and(|f| f.running.contains(unit));
    // If no host was inspected, the units that the config enables are assumed to run.
    let running = match effects {
        Some(_) => runs(name),
        None => was.as_ref().is_some_and(|u| u.enabled == Some(true)),
    };
    // A socket is not opened while its service runs without it.
    if let Some(stem) = name.strip_suffix(".socket")
        && runs(&format!("{stem}.service"))
    {
        return refuse(format!("{stem}.service runs, and its socket cannot change meanwhile"));
    }
    let Some(unit) = is else {
        let uncovers = facts.vendor_units.contains(name)
            || !facts.found(&paths::original(&paths::unit(name))).is_absent();
        // Without a file of its own, the entry only enabled the host's unit, or added drop-ins to it.
        let ours = was.as_ref().is_some_and(has_contents);
        let changed = ours || was.as_ref().is_some_and(|u| !u.dropins.is_empty());
        if changed && !ours && starts_at_boot(name, facts) {
            return refuse("it does not run, and a boot would start it".to_owned());
        }
        return Ok(RowApplied::by(
            ROW,
            match running {
                _ if !changed => vec![],
                true if !ours || uncovers => vec![on_unit(UnitVerb::Restart, name)],
                true => vec![stop(name)],
                false => vec![],
            },
        ));
    };
    // A unit that was not enabled before either was started by something else, and keeps running.
    let was_off = was.as_ref().is_some_and(|u| u.enabled == Some(false));
    if unit.mask == Some(true) || (unit.enabled == Some(false) && !was_off) {
        return Ok(RowApplied::by(ROW, if running { vec![stop(name)] } else { vec![] }));
    }
    let files = |u: Option<&Unit>| u.map(|u| (u.contents.clone(), u.dropins.clone()));
    let same_files =
        !drifted && files(was.as_ref()).unwrap_or_default() == files(Some(&unit)).unwrap_or_default();
    let enabled = match unit.enabled {
        Some(enabled) => enabled,
        None => facts.unit_states.get(name).is_some_and(crate::system::systemd::UnitFileState::is_enabled),
    };
    // A unit without such a section is started by others, or not at all.
    let install = Install::parse(&text(&unit, effects));
    let is_wanted = enabled && !install.links.is_empty();
    if unit.enabled.is_none() && !enabled && !running && !install.is_empty() && was.as_ref() != Some(&unit) {
        return refuse(
            "the config does not say whether it is enabled, so a preset may let a boot start it".to_owned(),
        );
    }
    Ok(RowApplied::by(
        ROW,
        match (running, is_wanted) {
            (true, _) if same_files => vec![],
            (true, _) => vec![on_unit(UnitVerb::Restart, name)],
            (false, true) => vec![start(name)],
            (false, false) => vec![],
        },
    ))
}

/// How a changed drop-in of a unit takes effect, if a config has it as a plain file.
pub(crate) fn of_dropin(unit: &str, texts: [&str; 2], facts: &Facts) -> Result<Vec<Planned>, String> {
    let effects = facts.effects.as_ref();
    let host = effects.and_then(|f| f.unit_texts.get(unit)).map(String::as_str);
    if let Some(why) = by_name(unit).or_else(|| texts.into_iter().chain(host).find_map(by_text)) {
        return Err(why);
    }
    let runs = effects.is_some_and(|f| f.running.contains(unit));
    if starts_at_boot(unit, facts) {
        return Err("it does not run, and a boot would start it".to_owned());
    }
    Ok(if runs || effects.is_none() { vec![on_unit(UnitVerb::Restart, unit)] } else { vec![] })
}

#[cfg(test)]
mod tests {
    use super::*;
    use api::v1::MachineConfigSpec;
    use serde_json::{Value, json};

    const PLAIN: &str = "[Service]\nExecStart=/bin/true\n[Install]\nWantedBy=multi-user.target\n";

    fn config(units: &[Value]) -> DesiredHost {
        let config = Some(json!({"ignition": {"version": "3.5.0"}, "systemd": {"units": units}}));
        DesiredHost::parse(&MachineConfigSpec { config, ..MachineConfigSpec::default() }).unwrap()
    }

    fn unit(contents: &str, enabled: bool) -> Value {
        json!({"name": "x.service", "contents": contents, "enabled": enabled})
    }

    fn planned(old: &[Value], new: &[Value], running: bool) -> Result<String, String> {
        let running = running.then(|| "x.service".to_owned()).into_iter().collect();
        planned_with(old, new, EffectFacts { running, ..EffectFacts::default() })
    }

    fn planned_with(old: &[Value], new: &[Value], effects: EffectFacts) -> Result<String, String> {
        let facts = Facts { effects: Some(effects), ..Facts::default() };
        match of_unit("x.service", (&config(old), &config(new)), false, &facts) {
            Ok(taken) => {
                let super::super::TakesEffect::Effects(effects) = taken.way else { panic!() };
                let one = |p: &Planned| {
                    format!("{}|{}", p.effect, p.undo.as_ref().map(ToString::to_string).unwrap_or_default())
                };
                Ok(effects.iter().map(one).collect::<Vec<_>>().join(","))
            }
            Err(not) => Err(not.why),
        }
    }

    #[test]
    fn a_unit_ends_as_a_boot_would_leave_it_and_its_undo_takes_it_back() {
        let on = unit(PLAIN, true);
        let other = unit(&PLAIN.replace("true", "false"), true);
        let off = unit(PLAIN, false);
        let masked = json!({"name": "x.service", "mask": true});
        let rows: [(&[Value], &[Value], bool, &str); 10] = [
            (&[], std::slice::from_ref(&on), false, "start x.service|stop x.service"),
            (&[], std::slice::from_ref(&off), false, ""),
            (
                std::slice::from_ref(&on),
                std::slice::from_ref(&other),
                true,
                "restart x.service|restart x.service",
            ),
            // One that had ended runs once more, as at boot.
            (
                std::slice::from_ref(&on),
                std::slice::from_ref(&other),
                false,
                "start x.service|stop x.service",
            ),
            (std::slice::from_ref(&off), std::slice::from_ref(&on), false, "start x.service|stop x.service"),
            (std::slice::from_ref(&off), std::slice::from_ref(&on), true, ""),
            (std::slice::from_ref(&on), std::slice::from_ref(&off), true, "stop x.service|start x.service"),
            (std::slice::from_ref(&on), &[], true, "stop x.service|start x.service"),
            (std::slice::from_ref(&on), &[], false, ""),
            (
                std::slice::from_ref(&on),
                std::slice::from_ref(&masked),
                true,
                "stop x.service|start x.service",
            ),
        ];
        for (old, new, running, want) in rows {
            assert_eq!(
                planned(old, new, running).as_deref(),
                Ok(want),
                "{old:?} -> {new:?}, runs: {running}"
            );
        }
    }

    #[test]
    fn a_unit_of_the_hosts_own_or_of_others_is_not_stopped_by_an_entry_that_did_not_bring_it() {
        let dropin =
            |value: &str| json!({"name": "x.service", "dropins": [{"name": "a.conf", "contents": value}]});
        let (one, two) = (dropin("[Service]\nNice=1\n"), dropin("[Service]\nNice=2\n"));
        let switch = |enabled| json!({"name": "x.service", "enabled": enabled});
        let off = |word: &str| unit(&PLAIN.replace("true", word), false);
        let none: &[Value] = &[];
        let restart = "restart x.service|restart x.service";
        for (old, new, running, want) in [
            (std::slice::from_ref(&one), none, true, restart),
            (std::slice::from_ref(&one), none, false, ""),
            (std::slice::from_ref(&one), &[two][..], true, restart),
            (&[switch(true)], none, true, ""),
            (none, &[switch(false)], true, "stop x.service|start x.service"),
            // Something else started it.
            (&[off("true")], &[off("false")], true, restart),
            (&[off("true")], &[off("false")], false, ""),
        ] {
            let mut effects = EffectFacts::default();
            effects.running.extend(running.then(|| "x.service".to_owned()));
            effects.unit_texts.insert("x.service".to_owned(), PLAIN.to_owned());
            let got = planned_with(old, new, effects);
            assert_eq!(got.as_deref(), Ok(want), "{old:?} -> {new:?}, runs: {running}");
        }
    }

    #[test]
    fn one_that_does_not_run_and_that_a_boot_would_start_is_left_to_the_boot() {
        let dropin =
            json!({"name": "x.service", "dropins": [{"name": "a.conf", "contents": "[Service]\nNice=1\n"}]});
        let mut effects = EffectFacts::default();
        effects.start_at_boot.insert("x.service".to_owned());
        let why = planned_with(&[dropin], &[], effects.clone()).unwrap_err();
        assert!(why.contains("a boot would start it"), "{why}");
        let facts = Facts { effects: Some(effects), ..Facts::default() };
        let why = of_dropin("x.service", ["", "[Service]\n"], &facts).unwrap_err();
        assert!(why.contains("a boot would start it"), "{why}");
        // Presets decide what the config leaves open.
        let open = json!({"name": "x.service", "contents": PLAIN});
        let why = planned(&[], std::slice::from_ref(&open), false).unwrap_err();
        assert!(why.contains("preset"), "{why}");
        assert_eq!(
            planned(std::slice::from_ref(&open), std::slice::from_ref(&open), false).as_deref(),
            Ok("")
        );
    }

    #[test]
    fn what_a_boot_does_more_for_is_left_to_the_reboot() {
        for (text, word) in [
            ("[Unit]\nDefaultDependencies=no\n", "early boot"),
            ("[Unit]\nBefore=network-pre.target kubelet.service\n", "before network-pre.target"),
            ("[Unit]\nRefuseManualStart=yes\n", "refuses"),
            ("[Install]\nWantedBy=sysinit.target\n", "sysinit.target"),
            ("[Install]\nRequiredBy=kubelet.service\n", "kubelet.service"),
        ] {
            let why = planned(&[], &[unit(text, true)], false).unwrap_err();
            assert!(why.contains(word), "{text}: {why}");
        }
        for (name, word) in [
            ("a.mount", "kind"),
            ("a@.service", "template"),
            ("a@b.service", "template"),
            ("dbus.service", "depends"),
            ("machine-config-daemon.service", "depends"),
            ("systemd-udevd.service", "part of systemd"),
            ("foo-.service", "names begin like it"),
        ] {
            let units = [json!({"name": name, "contents": PLAIN, "enabled": true})];
            let not = of_unit(name, (&config(&[]), &config(&units)), false, &Facts::default()).unwrap_err();
            assert!(not.why.contains(word), "{name}: {not:?}");
        }
    }

    #[test]
    fn a_unit_of_the_hosts_own_is_judged_by_the_hosts_text() {
        let units = [json!({"name": "x.service", "enabled": true})];
        let mut effects = EffectFacts::default();
        effects.unit_texts.insert("x.service".to_owned(), "[Install]\nWantedBy=local-fs.target\n".to_owned());
        let mut facts = Facts { effects: Some(effects.clone()), ..Facts::default() };
        assert!(of_unit("x.service", (&config(&[]), &config(&units)), false, &facts).is_err());
        effects.unit_texts.insert("x.service".to_owned(), PLAIN.to_owned());
        facts.effects = Some(effects);
        let taken = of_unit("x.service", (&config(&[]), &config(&units)), false, &facts).unwrap();
        assert_eq!(taken.way, super::super::TakesEffect::Effects(vec![start("x.service")]));
    }
}
