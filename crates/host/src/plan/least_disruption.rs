//! Whether a change may pass a window or a freeze of a RolloutPolicy: the least disruption that it costs any host of a pool,
//! and whether it is about certificates only. Pure.
//!
//! What it is not: the window (see `rollout::policy`), or what one machine shows.

use std::collections::BTreeMap;

use api::v1alpha1::MaxDisruption;
use desired::{DesiredHost, DesiredPath, DisruptionPolicy};

use crate::plan::disruption::{Disruption, Rule};
use crate::plan::preview::{Severity, preview};

/// What a window or a freeze asks about a change.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LeastDisruption {
    /// The least `maxDisruption` that lets it pass; `None`: it reboots a host, may do so on one that the table's row does
    /// not fit, or cannot be applied to a running one.
    pub least: Option<MaxDisruption>,
    /// Every file that changes holds certificates, and nothing else changes.
    pub certificates: bool,
}

/// Looks at a change from one config to another.
#[must_use]
pub fn least_disruption(old: &DesiredHost, new: &DesiredHost, policy: &DisruptionPolicy) -> LeastDisruption {
    let preview = preview(old, new, policy);
    let least = match preview.as_ref().map(Disruption::severity) {
        // Only a host can tell whether it would reboot after all.
        _ if preview.as_ref().is_ok_and(depends_on_the_host) => None,
        Ok(Severity::None) => Some(MaxDisruption::None),
        Ok(Severity::Reload) => Some(MaxDisruption::Reload),
        Ok(Severity::Restart) => Some(MaxDisruption::Restart),
        Ok(Severity::Drain) => Some(MaxDisruption::Drain),
        Ok(Severity::Reboot) | Err(_) => None,
    };
    LeastDisruption { least, certificates: preview.is_ok() && of_certificates(old, new) }
}

/// Whether a row of the table decided: its cost differs on hosts that lack a program, a unit or a recorded value.
fn depends_on_the_host(disruption: &Disruption) -> bool {
    disruption.decided.iter().any(|d| matches!(d.rule, Rule::Table { at_each_use: false, .. }))
}

fn of_certificates(old: &DesiredHost, new: &DesiredHost) -> bool {
    let rest = |wanted: &DesiredHost| {
        let mut config = wanted.config.clone();
        config.storage.files.clear();
        config
    };
    if old.os != new.os || old.fips != new.fips || rest(old) != rest(new) {
        return false;
    }
    let by_path = |wanted: &'_ DesiredHost| -> BTreeMap<String, DesiredPath> {
        wanted.paths.iter().map(|(path, want)| (path.clone(), want.clone())).collect()
    };
    let (before, after) = (by_path(old), by_path(new));
    let all_paths = before.keys().chain(after.keys());
    let differ = |path: &&String| before.get(*path) != after.get(*path);
    let mut differing = all_paths.filter(differ).peekable();
    differing.peek().is_some()
        && differing
            .all(|path| [before.get(path), after.get(path)].into_iter().flatten().all(holds_certificates))
}

/// A file with certificates, blank lines and comments, and nothing else.
fn holds_certificates(want: &DesiredPath) -> bool {
    let DesiredPath::File { content, .. } = want else { return false };
    std::str::from_utf8(content.bytes()).is_ok_and(api::formats::pem::is_only_certificates)
}

#[cfg(test)]
mod tests {
    use super::*;
    use api::v1alpha1::Reboots;
    use serde_json::{Value, json};

    const CERTIFICATE: &str = "-----BEGIN%20CERTIFICATE-----%0Aeg==%0A-----END%20CERTIFICATE-----%0A";

    fn wanted(files: &[(&str, &str)], more: &Value) -> DesiredHost {
        let file = |(path, text): &(&str, &str)| json!({"path": path, "mode": 420, "overwrite": true, "contents": {"source": format!("data:,{text}")}});
        let files: Vec<Value> = files.iter().map(file).collect();
        let mut spec = json!({"config": {"ignition": {"version": "3.4.0"}, "storage": {"files": files}}});
        for (key, value) in more.as_object().unwrap() {
            spec[key] = value.clone();
        }
        DesiredHost::parse(&serde_json::from_value(spec).unwrap()).unwrap()
    }

    #[test]
    fn only_files_of_certificates_pass_a_freeze_and_a_limit_lets_pass_what_costs_no_more() {
        let none = json!({});
        let plain = wanted(&[], &none);
        let second = format!("{CERTIFICATE}%23%20two%0A{CERTIFICATE}");
        let ca = "/etc/pki/ca-trust/source/anchors/a.crt";
        let rows = [
            ("a new one", wanted(&[(ca, CERTIFICATE)], &none), true),
            ("two of them", wanted(&[(ca, &second)], &none), true),
            ("nothing", wanted(&[], &none), false),
            ("a key beside it", wanted(&[(ca, &format!("{CERTIFICATE}key"))], &none), false),
            ("cut off", wanted(&[(ca, "-----BEGIN%20CERTIFICATE-----%0Aeg==")], &none), false),
            ("another file, too", wanted(&[(ca, CERTIFICATE), ("/etc/motd", "x")], &none), false),
            ("an argument, too", wanted(&[(ca, CERTIFICATE)], &json!({"kernelArguments": ["quiet"]})), false),
        ];
        for (about, new, want) in rows {
            let got = least_disruption(&plain, &new, &DisruptionPolicy::default());
            assert_eq!(got.certificates, want, "{about}");
            // It goes as it came.
            assert_eq!(
                least_disruption(&new, &plain, &DisruptionPolicy::default()).certificates,
                want,
                "{about}, undone"
            );
        }
        // The other file stands elsewhere in the list, and is the same.
        let motd = ("/etc/motd", "x");
        let (old, new) = (wanted(&[motd], &none), wanted(&[(ca, CERTIFICATE), motd], &none));
        assert!(least_disruption(&old, &new, &DisruptionPolicy::default()).certificates);
        let costs = |files: &[(&str, &str)]| {
            least_disruption(&plain, &wanted(files, &none), &DisruptionPolicy::default()).least
        };
        assert_eq!(costs(&[]), Some(MaxDisruption::None));
        assert_eq!(costs(&[("/etc/containers/policy.json", "x")]), Some(MaxDisruption::Reload));
        assert_eq!(costs(&[("/etc/kubernetes/credential-providers/a", "x")]), Some(MaxDisruption::Restart));
        assert_eq!(costs(&[("/etc/fstab", "x")]), None);
    }

    #[test]
    fn what_only_a_host_can_tell_counts_as_a_reboot() {
        let none = json!({});
        let policy = DisruptionPolicy { reboots: Reboots::WhenNeeded, ..DisruptionPolicy::default() };
        let plain = wanted(&[], &none);
        let crio = "/etc/systemd/system/crio.service.d/a.conf";
        let sysctl = "/etc/sysctl.d/a.conf";
        let certs = "/etc/containerd/certs.d/a/hosts.toml";
        let rows = [
            (&[(sysctl, "vm.swappiness%20%3D%2010%0A")][..], None),
            (&[(crio, "%5BService%5D%0ANice%3D1%0A")], None),
            (&[("/etc/chrony.conf", "x")], None),
            (&[("/etc/motd", "x"), (crio, "%5BService%5D%0ANice%3D1%0A")], None),
            (&[("/etc/motd", "x")], Some(MaxDisruption::None)),
            (&[("/etc/profile.d/a.sh", "x"), ("/etc/logrotate.d/a", "x")], Some(MaxDisruption::None)),
            (&[(certs, "x")], Some(MaxDisruption::None)),
        ];
        for (files, want) in rows {
            let new = wanted(files, &none);
            assert_eq!(least_disruption(&plain, &new, &policy).least, want, "{files:?}");
            assert_eq!(least_disruption(&new, &plain, &policy).least, want, "{files:?}, removed");
        }
    }
}
