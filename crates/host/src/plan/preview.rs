//! Estimates what a change costs the hosts of a pool without inspecting any of them: for review before it is applied.
//! Pure.
//!
//! [`crate::plan`] knows the machine; this does not. What only a machine can show (a link in the way, a unit that is
//! not installed, an owner that does not exist) is not seen here.

use desired::{DEFAULT_KERNEL, DesiredHost, Irreconcilable, OsField, Scope, irreconcilable};
use serde::{Deserialize, Serialize};

use crate::plan::disruption::{Changes, Disruption, disruption};
use crate::plan::effects::{Effect, Planned, UnitVerb};
use crate::plan::facts::Facts;
use crate::system::systemd::ServiceAction;
use desired::{DEFAULT_SERVICES, DisruptionPolicy, PolicyAction};

/// How much a change disturbs a node, from nothing to a reboot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// Nothing is disturbed.
    None,
    /// systemd reloads its units, or a service reloads its configuration.
    Reload,
    /// A service is restarted.
    Restart,
    /// The node is drained.
    Drain,
    /// The node reboots.
    Reboot,
}

impl Disruption {
    /// The most disruptive part of a change.
    #[must_use]
    pub fn severity(&self) -> Severity {
        let acts =
            |e: &Planned| matches!(&e.effect, Effect::Unit { action, .. } if *action != UnitVerb::Reload);
        let restarts =
            self.services.iter().any(|s| s.action >= ServiceAction::Restart) || self.effects.iter().any(acts);
        if self.needs_reboot() {
            Severity::Reboot
        } else if self.needs_drain() {
            Severity::Drain
        } else if restarts {
            Severity::Restart
        } else if self.is_none() {
            Severity::None
        } else {
            Severity::Reload
        }
    }
}

/// What people should know before one config replaces another, on any host.
#[must_use]
pub fn warnings(old: &DesiredHost, new: &DesiredHost, policy: &DisruptionPolicy) -> Vec<String> {
    let mut out = Vec::new();
    if desired::removes_last_login(&old.config, &new.config) {
        out.push(
            "core loses its keys and password: on hosts where no other user has any, nobody can log in"
                .to_owned(),
        );
    }
    let kernel = old.os.kernel_type != new.os.kernel_type && new.os.kernel_type != DEFAULT_KERNEL;
    let extensions = new.os.extensions.iter().any(|e| !old.os.extensions.contains(e));
    let asked = [(OsField::Extensions, extensions), (OsField::KernelType, kernel)];
    for (field, _) in asked.into_iter().filter(|(_, asked)| *asked && !policy.host_packages) {
        out.push(format!(
            "{}: hosts without an image (apt, dnf) refuse it, unless the pool allows packages with the annotation {}: {}",
            field.path(),
            api::names::annotation::HOST_PACKAGES,
            desired::HOST_PACKAGES_ALLOWED
        ));
    }
    let stay = old.os.extensions.iter().all(|e| new.os.extensions.contains(e));
    if policy.live_extensions && extensions && stay {
        out.push(format!(
            "{}: hosts of rpm-ostree apply it without a drain and a reboot, if it only adds packages and nothing else of the \
             change needs them ({}: {})",
            OsField::Extensions.path(),
            api::names::annotation::LIVE_EXTENSIONS,
            desired::LIVE_EXTENSIONS_ALLOWED
        ));
    }
    if !old.os.image.is_empty() && new.os.image.is_empty() {
        out.push(format!(
            "{}: no image is named any more, so each machine goes back to the one that it ran before MachineConfigs named \
             one; a machine without a record of it keeps what it runs, and does not reboot for it",
            OsField::Image.path()
        ));
    }
    out
}

/// The cost of a change from one config to another on a host that has every service that the policies name.
///
/// # Errors
/// Every difference that no running host can apply, each with its remedy.
pub fn preview(
    old: &DesiredHost,
    new: &DesiredHost,
    policy: &DisruptionPolicy,
) -> Result<Disruption, Vec<Irreconcilable>> {
    if !new.refused.is_empty() {
        return Err(new.refused.clone());
    }
    let mut facts = Facts::default();
    let actions =
        policy.files.iter().flat_map(|p| &p.actions).chain(policy.units.iter().flat_map(|p| &p.actions));
    facts.unit_files = actions
        .chain(&policy.sshkey.actions)
        .filter_map(|action| match action {
            PolicyAction::Reload { reload } => Some(reload.service_name.clone()),
            PolicyAction::Restart { restart } => Some(restart.service_name.clone()),
            _ => None,
        })
        .chain(DEFAULT_SERVICES.map(str::to_owned))
        .collect();
    let mut bad = irreconcilable(old, new, policy.overrides);
    let changes = Changes::between(old, new);
    let disruption = disruption(&changes, old, new, policy, &facts, &mut vec![], &mut bad);
    bad.retain(|b| b.scope == Scope::Config);
    if bad.is_empty() { Ok(disruption) } else { Err(bad) }
}

#[cfg(test)]
#[expect(clippy::needless_pass_by_value, reason = "a call is easier to read without `&` before each `json!`")]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn wanted(config: Value, more: Value) -> DesiredHost {
        let mut spec = json!({"config": config});
        spec["config"]["ignition"] = json!({"version": "3.4.0"});
        for (key, value) in more.as_object().unwrap() {
            spec[key] = value.clone();
        }
        DesiredHost::parse(&serde_json::from_value(spec).unwrap()).unwrap()
    }

    fn file(path: &str, text: &str) -> Value {
        json!({"storage": {"files": [{"path": path, "mode": 420, "contents": {"source": format!("data:,{text}")}}]}})
    }

    #[test]
    fn packages_that_hosts_without_an_image_refuse_are_told_once_they_are_asked_for() {
        let (none, vim) = (wanted(json!({}), json!({})), wanted(json!({}), json!({"extensions": ["vim"]})));
        let policy = DisruptionPolicy::default();
        let told = warnings(&none, &vim, &policy);
        assert!(told.len() == 1 && told[0].contains("machineconfig.dev/host-packages: Install"), "{told:?}");
        assert_eq!(warnings(&vim, &none, &policy), Vec::<String>::new());
        assert_eq!(warnings(&vim, &vim, &policy), Vec::<String>::new());
        let allowed = DisruptionPolicy { host_packages: true, ..policy };
        assert_eq!(warnings(&none, &vim, &allowed), Vec::<String>::new());
        // A host that refuses reboots after all, so it counts as that.
        let live = DisruptionPolicy { live_extensions: true, ..allowed };
        let told = warnings(&none, &vim, &live);
        assert!(told.len() == 1 && told[0].contains("without a drain and a reboot"), "{told:?}");
        assert_eq!(preview(&none, &vim, &live).unwrap().severity(), Severity::Reboot);
        assert_eq!(warnings(&vim, &none, &live), Vec::<String>::new());
    }

    #[test]
    fn an_image_that_is_given_up_counts_as_a_reboot_and_is_told() {
        let (none, image) =
            (wanted(json!({}), json!({})), wanted(json!({}), json!({"osImageURL": "q.io/os"})));
        let policy = DisruptionPolicy::default();
        let told = warnings(&image, &none, &policy);
        assert!(told.len() == 1 && told[0].contains("goes back to the one that it ran before"), "{told:?}");
        assert_eq!(warnings(&none, &image, &policy), Vec::<String>::new());
        assert_eq!(preview(&image, &none, &policy).unwrap().severity(), Severity::Reboot);
    }

    #[test]
    fn each_kind_of_change_has_its_severity_and_the_path_that_asks_for_it() {
        let plain = || wanted(json!({}), json!({}));
        let rows = [
            (plain(), Severity::None, ""),
            (wanted(file("/etc/motd", "x"), json!({})), Severity::Reboot, "/etc/motd"),
            (
                wanted(json!({}), json!({"kernelArguments": ["quiet"]})),
                Severity::Reboot,
                "spec.kernelArguments",
            ),
            (wanted(file("/etc/containers/policy.json", "x"), json!({})), Severity::Reload, "crio.service"),
            (wanted(file("/etc/nmstate/openshift/a", "x"), json!({})), Severity::None, ""),
            (
                wanted(file("/etc/kubernetes/credential-providers/a", "x"), json!({})),
                Severity::Restart,
                "kubelet",
            ),
        ];
        for (desired, severity, word) in rows {
            let got = preview(&plain(), &desired, &DisruptionPolicy::default()).unwrap();
            assert_eq!(got.severity(), severity, "{got}");
            assert!(got.to_string().contains(word), "{got}");
        }
        assert!(Severity::Reload < Severity::Restart && Severity::Drain < Severity::Reboot);
        let disks = wanted(json!({"storage": {"disks": [{"device": "/dev/sda"}]}}), json!({}));
        let refused = preview(&plain(), &disks, &DisruptionPolicy::default()).unwrap_err();
        assert!(refused[0].path.contains("disks"), "{refused:?}");
    }
}
