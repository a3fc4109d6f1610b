//! The differences between two rendered MachineConfigs, in a form for people: decoded contents, units, kernel arguments
//! and single values, as unified diffs. Pure. What may be secret is shown only on request; otherwise only the fact that
//! it differs.
//!
//! What it is not: what a host does about a difference (see `host::plan`), or what is secret (see `desired::mask`).

mod items;
mod unified;

use api::v1::MachineConfig;
use desired::mask::{self, MaskReason, Secrets};
use ignition::Config;
use items::{Item, PartContents, items};

/// Why the contents of two versions are not shown.
fn why_hidden(old: Option<&Item>, new: Option<&Item>) -> Option<MaskReason> {
    let part = |item: Option<&Item>, i: usize| item.and_then(|item| item.contents.get(i)).cloned();
    let most = [old, new].into_iter().flatten().map(|i| i.contents.len()).max().unwrap_or_default();
    (0..most).find_map(|i| {
        let (old, new) = (part(old, i), part(new, i));
        mask::hidden(old.as_ref().map(PartContents::side), new.as_ref().map(PartContents::side))
    })
}

/// A MachineConfig that is compared, and the Ignition config in it as the caller has parsed it; empty where it has none.
#[derive(Debug, Clone, Copy)]
pub struct DiffSide<'a> {
    /// The object.
    pub object: &'a MachineConfig,
    /// The config in it.
    pub config: &'a Config,
}

/// As [`diff_parsed`], of objects that nobody else parses.
///
/// # Errors
/// A config that cannot be read; the text names the MachineConfig.
pub fn diff(
    old: Option<&MachineConfig>,
    new: Option<&MachineConfig>,
    secrets: Secrets,
) -> Result<String, String> {
    let (old, new) = (old.map(parsed).transpose()?, new.map(parsed).transpose()?);
    fn side<'a>(one: &'a Option<(&'a MachineConfig, Config)>) -> Option<DiffSide<'a>> {
        one.as_ref().map(|(object, config)| DiffSide { object, config })
    }
    Ok(diff_parsed(side(&old), side(&new), secrets))
}

fn parsed(object: &MachineConfig) -> Result<(&MachineConfig, Config), String> {
    let config = desired::ignition_config(&object.spec).map_err(|e| {
        let name = object.metadata.name.as_deref().unwrap_or_default();
        format!("MachineConfig {name}: spec.config: {e}")
    })?;
    Ok((object, config))
}

/// The differences, in the order scalars, arguments, files, units, users; empty when there are none.
#[must_use]
pub fn diff_parsed(old: Option<DiffSide<'_>>, new: Option<DiffSide<'_>>, secrets: Secrets) -> String {
    let (old, new) = (items(old, secrets), items(new, secrets));
    let keys: std::collections::BTreeSet<_> = old.keys().chain(new.keys()).collect();
    let mut out = String::new();
    for key in keys {
        let (a, b) = (old.get(key), new.get(key));
        if a == b {
            continue;
        }
        let name = &key.1;
        let header = |item: Option<&Item>| if item.is_some() { name.clone() } else { "(none)".to_owned() };
        let why = if secrets == Secrets::Show { None } else { why_hidden(a, b) };
        let text = |item: Option<&Item>, other: Option<&Item>, when: &str| {
            item.map(|i| i.text(why, other, when)).unwrap_or_default()
        };
        let (before, after) = (text(a, b, "before"), text(b, a, "after"));
        if before == after {
            out += &format!("--- {}\n+++ {}\n", header(a), header(b));
            continue;
        }
        out += &format!("--- {}\n+++ {}\n{}", header(a), header(b), unified::diff(&before, &after));
    }
    out
}

#[cfg(test)]
#[expect(clippy::needless_pass_by_value, reason = "helpers of tests")]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn mk(spec: Value) -> MachineConfig {
        serde_json::from_value(json!({"metadata": {"name": "rendered-worker-1"}, "spec": spec})).unwrap()
    }

    fn mk_config(sections: Value) -> MachineConfig {
        let mut config = sections;
        config["ignition"]["version"] = json!("3.4.0");
        mk(json!({ "config": config }))
    }

    fn mk_file(path: &str, text: &str) -> MachineConfig {
        let source = ignition::data_url::encode(text.as_bytes());
        mk_config(
            json!({"storage": {"files": [{"path": path, "mode": 420, "contents": {"source": source}}]}}),
        )
    }

    #[test]
    fn equal_configs_have_no_differences_and_changes_are_shown_decoded() {
        let (a, b) = (mk_file("/etc/motd", "one\ntwo\n"), mk_file("/etc/motd", "one\n2\n"));
        assert_eq!(diff(Some(&a), Some(&a), Secrets::Hide).unwrap(), "");
        assert_eq!(
            diff(Some(&a), Some(&b), Secrets::Hide).unwrap(),
            "--- file /etc/motd\n+++ file /etc/motd\n@@ -1,3 +1,3 @@\n mode: 0644\n one\n-two\n+2\n"
        );
    }

    #[test]
    fn secrets_are_said_to_differ_and_never_shown() {
        let user =
            |hash: &str| mk_config(json!({"passwd": {"users": [{"name": "core", "passwordHash": hash}]}}));
        let pull = |auth: &str| mk_file("/var/lib/kubelet/config.json", &format!("{{\"auths\":\"{auth}\"}}"));
        let key = |k: &str| mk_file("/etc/k", &format!("-----BEGIN PRIVATE KEY-----\n{k}\n"));
        for (a, b) in [
            (user("SECRET-A"), user("SECRET-B")),
            (pull("SECRET-A"), pull("SECRET-B")),
            (key("SECRET-A"), key("SECRET-B")),
        ] {
            let text = diff(Some(&a), Some(&b), Secrets::Hide).unwrap();
            assert!(text.contains("+(hidden value, after)"), "{text}");
            assert!(!text.contains("SECRET"), "{text}");
            let added = diff(None, Some(&b), Secrets::Hide).unwrap();
            assert!(!added.is_empty() && !added.contains("SECRET"), "{added}");
        }
    }

    /// A secret in every place that holds text. Each pair is compared in both directions: secrets are added and removed.
    #[test]
    fn no_place_and_no_state_shows_a_secret() {
        const SECRET: &str = "hunter2";
        let line = format!("one\nSMTP_PASS={SECRET}\n");
        let file = |path: &str, mode: u32, text: &str| {
            let source = ignition::data_url::encode(text.as_bytes());
            mk_config(json!({"storage": {
                "directories": [{"path": "/etc/closed", "mode": 0o700}],
                "files": [{"path": path, "mode": mode, "contents": {"source": source}}]}}))
        };
        let unit =
            |text: &str| mk_config(json!({"systemd": {"units": [{"name": "a.service", "contents": text}]}}));
        let dropin = |text: &str| {
            mk_config(
                json!({"systemd": {"units": [{"name": "a.service", "dropins": [{"name": "x.conf", "contents": text}]}]}}),
            )
        };
        // Nothing in the text looks like a secret; the name of the unit or drop-in reveals it.
        let named = |unit: &str, dropin: &str| {
            let text = format!("[Unit]\nDescription={SECRET}\n");
            mk_config(
                json!({"systemd": {"units": [{"name": unit, "dropins": [{"name": dropin, "contents": text}]}]}}),
            )
        };
        let unit_text = format!("[Service]\nEnvironment=\"SMTP_PASS={SECRET}\"\n");
        let pairs = [
            (file("/etc/app.conf", 0o644, &line), file("/etc/app.conf", 0o644, "one\n")),
            (file("/etc/app.conf", 0o644, &line), file("/etc/app.conf", 0o644, "")),
            (file("/etc/app.conf", 0o644, "one\n"), file("/etc/app.conf", 0o644, &line)),
            (file("/etc/app.conf", 0o600, "hunter2"), file("/etc/app.conf", 0o644, "hunter2 too")),
            (file("/etc/closed/app.conf", 0o644, "hunter2"), file("/etc/closed/app.conf", 0o644, "x")),
            (file("/etc/ssl/private/app", 0o644, "hunter2"), file("/etc/ssl/private/app", 0o644, "x")),
            (unit(&unit_text), unit("[Service]\n")),
            (unit(&unit_text), unit("")),
            (dropin(&unit_text), dropin("[Service]\n")),
            (named("fetch-token.service", "x.conf"), named("fetch-token.service", "y.conf")),
            (named("a.service", "secret.conf"), mk_config(json!({}))),
            (
                mk(json!({"kernelArguments": ["nbd.password=hunter2"]})),
                mk(json!({"kernelArguments": ["nbd.password=hunter2x"]})),
            ),
            (
                mk_config(
                    json!({"passwd": {"users": [{"name": "core", "sshAuthorizedKeys": ["environment=\"X=hunter2\" ssh-ed25519 AAAA me"]}]}}),
                ),
                mk_config(json!({"passwd": {"users": [{"name": "core", "sshAuthorizedKeys": ["hunter2"]}]}})),
            ),
        ];
        for (a, b) in &pairs {
            for (old, new) in [(Some(a), Some(b)), (Some(b), Some(a))] {
                let masked = diff(old, new, Secrets::Hide).unwrap();
                assert!(!masked.is_empty() && !masked.contains(SECRET), "{masked}");
                let shown = diff(old, new, Secrets::Show).unwrap();
                assert!(shown.contains(SECRET), "{shown}");
            }
        }
        // Removed contents stay hidden whatever they look like: no file holds them any more.
        let words = file("/etc/app.conf", 0o644, SECRET);
        let emptied = diff(Some(&words), Some(&file("/etc/app.conf", 0o644, "")), Secrets::Hide).unwrap();
        assert!(emptied.contains("emptied") && !emptied.contains(SECRET), "{emptied}");
        for (a, _) in &pairs[..4] {
            for (old, new) in [(Some(a), None), (None, Some(a))] {
                let masked = diff(old, new, Secrets::Hide).unwrap();
                assert!(!masked.is_empty() && !masked.contains(SECRET), "{masked}");
            }
        }
    }

    #[test]
    fn whatever_a_field_says_its_change_is_seen() {
        let rows = [
            (json!({"kernelArguments": ["quiet"]}), "+quiet"),
            (json!({"kernelType": "realtime"}), "+realtime"),
            (json!({"fips": true}), "+true"),
            (json!({"extensions": ["usbguard"]}), "+usbguard"),
            (json!({"osImageURL": "os@sha256:1"}), "+os@sha256:1"),
        ];
        for (spec, want) in rows {
            let text = diff(Some(&mk(json!({}))), Some(&mk(spec)), Secrets::Hide).unwrap();
            assert!(text.contains(want), "{text}");
        }
        let sections = [
            json!({"systemd": {"units": [{"name": "a.service", "enabled": true}]}}),
            json!({"systemd": {"units": [{"name": "a.service", "dropins": [{"name": "x.conf", "contents": "[Unit]\n"}]}]}}),
            json!({"passwd": {"users": [{"name": "core", "sshAuthorizedKeys": ["k"]}]}}),
            json!({"passwd": {"groups": [{"name": "g"}]}}),
            json!({"storage": {"directories": [{"path": "/d"}]}}),
            json!({"storage": {"links": [{"path": "/l", "target": "/t"}]}}),
            json!({"storage": {"files": [{"path": "/f", "contents": {"source": "https://h/x"}}]}}),
            json!({"storage": {"disks": [{"device": "/dev/a", "wipeTable": true}]}}),
        ];
        for section in sections {
            let text =
                diff(Some(&mk_config(json!({}))), Some(&mk_config(section.clone())), Secrets::Hide).unwrap();
            assert!(!text.is_empty(), "{section}");
        }
    }
}
