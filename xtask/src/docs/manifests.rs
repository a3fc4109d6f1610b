//! Manifests in the book: each is an object of a known kind and passes the rules of `mco lint`.

use anyhow::{Context, bail};
use serde_json::Value;

/// Kinds of Kubernetes and of other projects that the book shows.
const OTHERS: [(&str, &str); 11] = [
    ("v1", "Secret"),
    ("v1", "ConfigMap"),
    ("v1", "Namespace"),
    ("apps/v1", "DaemonSet"),
    ("policy/v1", "PodDisruptionBudget"),
    ("rbac.authorization.k8s.io/v1", "ClusterRole"),
    ("rbac.authorization.k8s.io/v1", "ClusterRoleBinding"),
    ("rbac.authorization.k8s.io/v1", "Role"),
    ("rbac.authorization.k8s.io/v1", "RoleBinding"),
    ("monitoring.coreos.com/v1", "PodMonitor"),
    ("monitoring.coreos.com/v1", "PrometheusRule"),
];

pub(super) fn check(text: &str) -> anyhow::Result<usize> {
    let objects = api::yaml::documents(text).context("not YAML")?;
    if objects.is_empty() {
        bail!("there is no object in it");
    }
    let known = api::crds::all()?;
    for object in &objects {
        let field = |name: &str| {
            let value = object.pointer(name).and_then(Value::as_str).filter(|v| !v.is_empty());
            value.with_context(|| format!("an object without {name}: show the whole manifest"))
        };
        let (version, kind) = (field("/apiVersion")?, field("/kind")?);
        field("/metadata/name")?;
        let served = known.iter().any(|c| {
            let spec = &c.object["spec"];
            let versions = spec["versions"].as_array().into_iter().flatten();
            let mut apis = versions.filter_map(|v| Some(format!("{}/{}", c.group, v["name"].as_str()?)));
            spec["names"]["kind"] == kind && apis.any(|a| a == version)
        });
        if !served && !OTHERS.contains(&(version, kind)) {
            bail!("no API serves {kind} in {version}");
        }
    }
    let count = objects.len();
    let named: Vec<(String, Value)> = objects.into_iter().map(|o| ("the book".to_owned(), o)).collect();
    let findings = render::lint(&named);
    let all: Vec<String> =
        findings.iter().map(|f| format!("[{}] {}: {}: {}", f.rule, f.object, f.path, f.message)).collect();
    if !all.is_empty() {
        bail!("mco lint: {}", all.join("; "));
    }
    Ok(count)
}
