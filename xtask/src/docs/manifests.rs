//! Manifests in the book: each is an object of a known kind, fits the schema of its kind, and passes the rules of `mco lint`. So do the
//! bodies of `kubectl patch`.
//!
//! What it is not: the API server's verdict on patterns and CEL rules. Objects of other projects are known by their kind only.

use anyhow::{Context, bail};
use api::crds::Crd;
use api::definition::structural;
use k8s_openapi::api::{apps::v1 as apps, core::v1 as main, policy::v1 as policy, rbac::v1 as rbac};
use render::{Extent, Lint, lint_by_schema};
use serde_json::Value;
use std::collections::BTreeSet;

/// API version, kind, and what makes the schema.
type OfKubernetes = (&'static str, &'static str, fn() -> Value);

/// Kinds of Kubernetes that the book shows.
const KUBERNETES: [OfKubernetes; 9] = [
    ("v1", "Secret", structural::<main::Secret>),
    ("v1", "ConfigMap", structural::<main::ConfigMap>),
    ("v1", "Namespace", structural::<main::Namespace>),
    ("apps/v1", "DaemonSet", structural::<apps::DaemonSet>),
    ("policy/v1", "PodDisruptionBudget", structural::<policy::PodDisruptionBudget>),
    (RBAC, "ClusterRole", structural::<rbac::ClusterRole>),
    (RBAC, "ClusterRoleBinding", structural::<rbac::ClusterRoleBinding>),
    (RBAC, "Role", structural::<rbac::Role>),
    (RBAC, "RoleBinding", structural::<rbac::RoleBinding>),
];

const RBAC: &str = "rbac.authorization.k8s.io/v1";

/// Kinds of other projects that the book shows.
const OTHERS: [(&str, &str); 2] =
    [("monitoring.coreos.com/v1", "PodMonitor"), ("monitoring.coreos.com/v1", "PrometheusRule")];

pub(super) fn check(text: &str) -> anyhow::Result<usize> {
    let objects = api::formats::yaml::documents(text).context("not YAML")?;
    if objects.is_empty() {
        bail!("there is no object in it");
    }
    let known = api::crds::all()?;
    let mut findings = vec![];
    for object in &objects {
        let field = |name: &str| {
            let value = object.pointer(name).and_then(Value::as_str).filter(|v| !v.is_empty());
            value.with_context(|| format!("an object without {name}: show the whole manifest"))
        };
        let (version, kind) = (field("/apiVersion")?, field("/kind")?);
        let name = format!("{kind} {}", field("/metadata/name")?);
        let mut served = known.iter().filter(|crd| crd.kind() == kind).flat_map(|crd| {
            crd.versions().map(move |(version, schema)| (format!("{}/{version}", crd.group), schema))
        });
        if let Some((_, schema)) = served.find(|(api, _)| api == version) {
            findings.extend(lint_by_schema(&name, schema, object, Extent::Whole));
        } else if let Some((.., schema)) = KUBERNETES.iter().find(|(v, k, _)| (*v, *k) == (version, kind)) {
            findings.extend(lint_by_schema(&name, &schema(), object, Extent::Whole));
        } else if !OTHERS.contains(&(version, kind)) {
            bail!("no API serves {kind} in {version}");
        }
    }
    let count = objects.len();
    let named: Vec<(String, Value)> = objects.into_iter().map(|o| ("the book".to_owned(), o)).collect();
    findings.extend(render::lint(&named));
    refuse(&findings)?;
    Ok(count)
}

/// Checks the body of a `kubectl patch` of objects with this name of a kind, with these arguments after the verb.
///
/// # Errors
/// It is not JSON, or what it sets does not fit the kind.
pub(super) fn check_patch(crds: &[Crd], kind: &str, words: &[&str]) -> anyhow::Result<()> {
    let option = |names: [&str; 2]| {
        words.iter().enumerate().find_map(|(i, word)| {
            let (name, value) =
                word.split_once('=').map_or((*word, None), |(name, value)| (name, Some(value)));
            names.contains(&name).then(|| value.or_else(|| words.get(i + 1).copied())).flatten()
        })
    };
    let body = option(["-p", "--patch"]).context("kubectl patch: without -p, nothing says what to change")?;
    let body: Value = serde_json::from_str(body).context("kubectl patch: the body is not JSON")?;
    let Some(crd) = crds.iter().find(|crd| crd.is_called(kind)) else { return Ok(()) };
    // Without it, kubectl sends a strategic merge patch, which the API server refuses for such kinds.
    if option(["--type", "--type"]) != Some("merge") {
        bail!("kubectl patch: an object of this kind needs --type=merge");
    }
    let (_, schema) = crd.versions().next().with_context(|| format!("{kind}: no version is served"))?;
    refuse(&lint_by_schema(crd.kind(), schema, &body, Extent::Patch))
}

fn refuse(findings: &[Lint]) -> anyhow::Result<()> {
    // The linter compares most kinds with their schema, too.
    let all: BTreeSet<String> =
        findings.iter().map(|f| format!("[{}] {}: {}: {}", f.rule, f.object, f.path, f.message)).collect();
    if !all.is_empty() {
        bail!("mco lint: {}", Vec::from_iter(all).join("; "));
    }
    Ok(())
}
