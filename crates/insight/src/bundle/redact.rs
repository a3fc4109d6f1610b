//! What leaves the cluster in a bug report: the shape of each object, and no content that could be a secret. Pure.
//!
//! Texts in a config are hidden unless their key is one that never holds contents ([`SHOWN`]): unknown keys are hidden.
//! Not even a hash of contents is shown, because a short secret can be guessed from it. In all other objects, single values and
//! lines that look like secrets are hidden, by the rules that the agent's reports follow.
//!
//! What it is not: logs and other texts (see `redact_text`).

use super::redact_text::without_ids;
use api::definition::Defined as _;
use api::names::GROUP;
use api::v1alpha1::RolloutPolicy;
use desired::mask::{argument, looks_secret};
use serde_json::{Map, Value};

/// Keys of a config whose text is shown: names, paths, modes and switches, no contents. Numbers and booleans are shown
/// anywhere.
const SHOWN: [&str; 20] = [
    "compression",
    "device",
    "extensions",
    "filesystem",
    "format",
    "group",
    "groups",
    "hard",
    "kernelType",
    "label",
    "level",
    "name",
    "osImageURL",
    "path",
    "primaryGroup",
    "shell",
    "target",
    "typeGuid",
    "version",
    "homeDir",
];
/// Domains of annotations that are shown, beside those of Kubernetes.
const OUR_DOMAINS: [&str; 2] = [GROUP, RolloutPolicy::DEFINITION.group];
/// Keys of names and ids of objects, which are no secrets however random they look.
const NAMES: [&str; 12] = [
    "apiVersion",
    "containerID",
    "generateName",
    "holderIdentity",
    "image",
    "imageID",
    "kind",
    "name",
    "namespace",
    "nodeName",
    "resourceVersion",
    "uid",
];
/// Longer texts of other objects are left out: certificates, embedded files.
const LONGEST: usize = 2048;
/// An object as it may be shown.
pub fn redacted(kind: &str, mut object: Value) -> Value {
    if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
        metadata.remove("managedFields");
        if let Some(notes) = metadata.get_mut("annotations").and_then(Value::as_object_mut) {
            for (key, value) in notes.iter_mut() {
                // Other annotations may hold the whole object as it was applied, with its contents.
                let domain = key.split('/').next().unwrap_or_default();
                let known = OUR_DOMAINS.contains(&domain)
                    || domain.ends_with("kubernetes.io") && domain != "kubectl.kubernetes.io";
                if !known {
                    hide(value);
                }
            }
        }
    }
    match kind {
        "Secret" => secret(&mut object),
        "MachineConfig" => {
            if let Some(spec) = object.get_mut("spec").and_then(Value::as_object_mut) {
                for (key, value) in spec.iter_mut() {
                    match key.as_str() {
                        "config" => config(value, ""),
                        "kernelArguments" => arguments(value),
                        _ => {}
                    }
                }
            }
        }
        "ControllerConfig" => {
            if let Some(spec) = object.get_mut("spec").and_then(Value::as_object_mut) {
                for key in ["internalRegistryPullSecret", "additionalTrustBundle", "rootCAData"] {
                    spec.get_mut(key).into_iter().for_each(hide);
                }
            }
        }
        // ConfigMaps of others may hold anything: keys only.
        "ConfigMap" => {
            for field in ["data", "binaryData"] {
                if let Some(data) = object.get_mut(field).and_then(Value::as_object_mut) {
                    data.values_mut().for_each(hide);
                }
            }
        }
        _ => {}
    }
    single(&mut object, "");
    object
}

/// A Secret: its type and its keys.
fn secret(object: &mut Value) {
    for field in ["data", "stringData"] {
        if let Some(data) = object.get_mut(field).and_then(Value::as_object_mut) {
            data.values_mut().for_each(hide);
        }
    }
    // Somebody may have noted a secret there.
    if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
        metadata.remove("annotations");
    }
}

/// A part of an Ignition config.
fn config(value: &mut Value, key: &str) {
    match value {
        Value::Object(fields) => fields.iter_mut().for_each(|(key, value)| config(value, key)),
        Value::Array(items) => items.iter_mut().for_each(|item| config(item, key)),
        Value::String(_) if !SHOWN.contains(&key) => hide(value),
        _ => {}
    }
}

/// Arguments of the kernel, each without its value if that looks like a secret.
fn arguments(value: &mut Value) {
    for item in value.as_array_mut().into_iter().flatten() {
        if let Value::String(text) = item {
            *text = argument(text).into_owned();
        }
    }
}

/// Every single text of an object.
fn single(value: &mut Value, key: &str) {
    match value {
        Value::Object(fields) => {
            if is_environment(fields) {
                fields.get_mut("value").into_iter().for_each(hide);
            }
            fields.iter_mut().for_each(|(key, value)| single(value, key));
        }
        Value::Array(items) => {
            let mut names_next = false;
            for item in items {
                let names = item
                    .as_str()
                    .is_some_and(|t| t.starts_with('-') && looks_secret(&format!("{t}=x1Y2z3W4")));
                if names_next && item.is_string() {
                    hide(item);
                }
                single(item, key);
                names_next = names;
            }
        }
        // As a whole: the secret, and the words that show that it is one, may be on different lines.
        Value::String(text) => {
            let judged = without_ids(text);
            let suspect = || looks_secret(&format!("{key}={judged}")) || looks_secret(&judged);
            if text.len() > LONGEST || !NAMES.contains(&key) && suspect() {
                hide(value);
            }
        }
        _ => {}
    }
}

/// `{name, value}`: a variable of a container's environment, or a header.
fn is_environment(fields: &Map<String, Value>) -> bool {
    fields.len() == 2 && fields.contains_key("name") && fields.get("value").is_some_and(Value::is_string)
}

/// Hides a value; its length stays, as an empty one is a common mistake.
fn hide(value: &mut Value) {
    let length = match &*value {
        Value::String(text) => text.len(),
        other => other.to_string().len(),
    };
    if length > 0 {
        *value = Value::String(format!("<hidden, {length} bytes>"));
    }
}

#[cfg(test)]
mod tests {
    use super::super::redact_text::{HIDDEN, redacted_lines};
    use super::*;
    use serde_json::json;

    const SECRET: &str = "hunter2-s3cr3t-Zx81Qp0";

    #[test]
    fn no_object_in_the_bundle_shows_a_secret() {
        let url = format!("https://user:{SECRET}@registry.example.com");
        let applied =
            json!({"kubectl.kubernetes.io/last-applied-configuration": format!("{{\"a\":\"{SECRET}\"}}")});
        for (kind, object) in [
            (
                "MachineConfig",
                json!({
                    "metadata": {"name": "50-a", "annotations": applied, "managedFields": [{"manager": SECRET}]},
                    "spec": {
                        "config": {
                            "ignition": {"version": "3.4.0", "config": {"merge": [{"source": url, "httpHeaders": [{"name": "Authorization", "value": SECRET}]}]}},
                            "passwd": {"users": [{"name": "core", "passwordHash": SECRET, "sshAuthorizedKeys": [SECRET]}]},
                            "storage": {
                                "files": [{"path": "/etc/a", "mode": 420, "contents": {"source": format!("data:,{SECRET}"), "verification": {"hash": format!("sha512-{SECRET}")}}}],
                                "luks": [{"name": "root", "keyFile": {"source": SECRET}, "clevis": {"custom": {"config": SECRET}}}],
                            },
                            "systemd": {"units": [{"name": "a.service", "contents": format!("[Service]\nEnvironment=A={SECRET}"), "dropins": [{"name": "a.conf", "contents": SECRET}]}]},
                            "unknown": {"new": [SECRET]},
                        },
                        "kernelArguments": [format!("rd.luks.key={SECRET}"), "quiet"],
                    },
                }),
            ),
            (
                "Secret",
                json!({"metadata": {"name": "a", "annotations": {"note": SECRET}}, "type": "Opaque", "data": {"a": SECRET}}),
            ),
            ("ConfigMap", json!({"metadata": {"name": "a"}, "data": {"a": format!("anything {SECRET}")}})),
            (
                "ControllerConfig",
                json!({"spec": {"internalRegistryPullSecret": SECRET, "proxy": {"httpProxy": url}}}),
            ),
            (
                "Pod",
                json!({"spec": {"containers": [{"env": [{"name": "A", "value": SECRET}], "args": [format!("--password={SECRET}")]}]}}),
            ),
            (
                "KubeletConfig",
                json!({"spec": {"kubeletConfig": {"staticPodURLHeader": {"Authorization": [format!("Bearer {SECRET}")]}}}}),
            ),
            (
                "Node",
                json!({"metadata": {"annotations": {"machineconfiguration.openshift.io/reason": format!("password: {SECRET}")}}}),
            ),
        ] {
            let shown = redacted(kind, object).to_string();
            assert!(!shown.contains(SECRET), "{kind}: {shown}");
        }
        let log = format!("one\npassword={SECRET}\nthree");
        assert_eq!(redacted_lines(&log), "one\n<hidden>\nthree");
        // Another line shows that this is a secret.
        for text in [
            "password: |\n  hunter2\n".to_owned(),
            "tokens: [\n  hunter2]".to_owned(),
            "mysql --password \\\n  hunter2".to_owned(),
            "-----BEGIN PRIVATE KEY-----\nhunter2==\n-----END PRIVATE KEY-----\nafter".to_owned(),
        ] {
            let object = redacted("MachineOSConfig", json!({"spec": {"containerFile": [{"content": text}]}}));
            assert!(!object.to_string().contains("hunter2"), "{object}");
            assert!(!redacted_lines(&text).contains("hunter2"), "{}", redacted_lines(&text));
        }
        let pod = json!({"spec": {"containers": [{"args": ["--token", "hunter2", "--verbose"]}]}});
        let shown = redacted("Pod", pod).to_string();
        assert!(!shown.contains("hunter2") && shown.contains("--verbose"), "{shown}");
        let noted =
            json!({"metadata": {"annotations": {"kapp.k14s.io/original": "{\"source\":\"data:,hunter2\"}"}}});
        assert!(!redacted("MachineConfig", noted).to_string().contains("hunter2"));
    }

    #[test]
    fn why_a_pool_is_held_is_not_hidden() {
        use rollout::Hold;
        use rollout::policy::{ChangeAsked, GateState, UnknownCost};
        let (shop, why) = (|| "shop".into(), || "two of three are gone".to_owned());
        let gate = |state| Hold::Gate { gate: shop(), state };
        let time = || api::k8s::Time("2026-01-01T00:00:00Z".parse().unwrap());
        let config = || std::sync::Arc::<str>::from("rendered-worker-00000000000000000000000000000001");
        let change = || ChangeAsked { from: config(), to: config() };
        let unknown = || UnknownCost { change: change(), why: Some("machineconfig a: no answer".into()) };
        for hold in [
            Hold::Paused,
            Hold::NothingRendered,
            Hold::ConfigMissing(config()),
            Hold::Frozen { until: Some(time()), reason: "year-end".to_owned(), unknown: None },
            Hold::OutsideWindow { opens: Some(time()), unknown: None },
            Hold::OutsideWindow { opens: None, unknown: Some(unknown()) },
            gate(GateState::Passed),
            gate(GateState::Failing(why())),
            gate(GateState::Failed(why())),
            gate(GateState::Unknown(why())),
            Hold::Approval { wave: shop(), wrong: None },
            Hold::Approval { wave: shop(), wrong: Some("rest".to_owned()) },
            Hold::Recording { policy: shop() },
            Hold::NodeFailed { node: shop(), why: why(), policy: shop() },
            Hold::Rejected { config: config(), reason: why(), policy: shop(), back_to: Some(config()) },
            Hold::RejectedElsewhere {
                wave: Some(shop()),
                pool: shop(),
                config: config(),
                shared: vec![shop()],
            },
            Hold::EmptyWave { wave: shop() },
            Hold::Soak { wave: shop(), until: time() },
            Hold::Prefetch { left: 2, of: 3, at_once: 1 },
            Hold::PrefetchLimit("many".to_owned()),
        ] {
            let said = hold.to_string();
            assert_eq!(redacted_lines(&said), said, "{hold:?}");
        }
    }

    #[test]
    fn redaction_keeps_what_a_report_needs() {
        let shown = redacted(
            "MachineConfig",
            json!({
                "metadata": {"name": "50-a", "annotations": {"machineconfiguration.openshift.io/generated-by-version": "abc"}},
                "spec": {
                    "config": {"storage": {"files": [{"path": "/etc/a", "mode": 420, "contents": {"source": "data:,abc"}}]}},
                    "kernelArguments": ["quiet", "console=ttyS0"], "osImageURL": "registry.example.com/os:1",
                },
            }),
        );
        let file = &shown["spec"]["config"]["storage"]["files"][0];
        assert_eq!((&file["path"], &file["mode"]), (&json!("/etc/a"), &json!(420)));
        assert_eq!(file["contents"]["source"], "<hidden, 9 bytes>");
        assert_eq!(shown["spec"]["kernelArguments"], json!(["quiet", "console=ttyS0"]));
        assert_eq!(shown["spec"]["osImageURL"], "registry.example.com/os:1");
        let message = "All nodes are updated with MachineConfig rendered-worker-09391e685c8156b307840ece8e224768: no space \
                       left on /etc/a; boot 0c7f4f3e-3a55-4c58-9a43-5d9f0e6f2b11, image r/os@sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
        let pool = json!({"status": {"conditions": [{"type": "NodeDegraded", "status": "True", "message": message}]}});
        assert_eq!(redacted("MachineConfigPool", pool.clone()), pool);
        let hash = "09391e685c8156b307840ece8e224768";
        for plain in [
            format!("desiredDrain drain-rendered-worker-{hash}"),
            format!("lastAppliedDrain: uncordon-rendered-worker-{hash}"),
            "node i-0a1b2c3d4e5f67890 is being drained".to_owned(),
            "node i-0a1b2c3d4e5f67890.eu-west-1.compute.internal: drain".to_owned(),
        ] {
            assert_eq!(redacted_lines(&plain), plain);
        }
        for secret in [format!("i-0a1b2c3d4e5f67890.password={SECRET}"), format!("drain-password={SECRET}")] {
            assert_eq!(redacted_lines(&secret), HIDDEN, "{secret}");
        }
        let secret = redacted(
            "Secret",
            json!({"type": "kubernetes.io/tls", "data": {"tls.crt": "abcd", "tls.key": ""}}),
        );
        assert_eq!(
            secret,
            json!({"type": "kubernetes.io/tls", "data": {"tls.crt": "<hidden, 4 bytes>", "tls.key": ""}})
        );
    }
}
