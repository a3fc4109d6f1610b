//! The history of a pool's rendered configs: what each one changed, which MachineConfig asked for it, and who wrote
//! that MachineConfig. Pure.
//!
//! Contents are never shown; names are. The writer of a MachineConfig comes from its `metadata.managedFields`: the
//! program and the time of its last write. Only the API server's audit log knows a person's name.
//!
//! What it is not: when which config was in force; the pool records that (see `rollout::past_configs`).

use crate::config::provenance::{Kind, Origin, Provenance};
use api::k8s::{ObjectMeta, ResourceExt as _, Time};
use api::names::annotation;
use api::v1::MachineConfig;
use serde::Serialize;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

/// A rendered config, and how it differs from the previous one.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Step {
    /// Its name.
    pub config: String,
    /// When it was rendered.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rendered: Option<Time>,
    /// What differs, by the MachineConfig that caused it; empty for the oldest config.
    pub changes: Vec<Change>,
    /// Why the differences cannot be determined.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unknown: Option<String>,
}

/// What one MachineConfig added, changed or removed.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Change {
    /// The MachineConfig; empty where no provenance is stored.
    pub machine_config: String,
    /// Paths, units, users, fields.
    pub things: Vec<Setting>,
    /// Who wrote it last; absent if it no longer exists.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub written: Option<FieldWrite>,
    /// The MachineConfig does not exist any more.
    pub deleted: bool,
    /// The MachineConfig was written again after this config was rendered, so the named writer may have changed
    /// something else.
    pub written_since: bool,
}

/// Something that a config sets.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Setting {
    /// What sort of thing.
    pub kind: Kind,
    /// Its name, as in the provenance. A kernel argument has no value here if that looks like a secret.
    pub name: String,
}

impl fmt::Display for Setting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = match self.kind {
            Kind::File => "file",
            Kind::Directory => "directory",
            Kind::Link => "link",
            Kind::Unit => "unit",
            Kind::Dropin => "drop-in",
            Kind::User | Kind::SshKey => "user",
            Kind::Group => "group",
            Kind::KernelArgument => "kernel argument",
            Kind::Extension => "extension",
            Kind::Scalar => "field",
            Kind::Section => "section",
        };
        write!(f, "{kind} {}", self.name)
    }
}

/// A write, as recorded in `managedFields`.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct FieldWrite {
    /// The field manager: `kubectl-client-side-apply`, `argocd-controller` and so on.
    pub by: String,
    /// When.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub at: Option<Time>,
    /// The GitOps tool or package manager that manages the object, according to its labels and annotations; the author
    /// of the change is then in that tool's source. For example `Argo CD application shop`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kept_by: Option<String>,
}

/// The tool that manages an object, by the marks that such tools set: Argo CD's tracking annotation and label
/// (argo-cd.readthedocs.io, "Resource Tracking"), the labels of Flux' Kustomizations and HelmReleases, Helm's release
/// annotations, and the label `app.kubernetes.io/managed-by`.
fn kept_by(metadata: &ObjectMeta) -> Option<String> {
    let label = |key: &str| metadata.labels.as_ref()?.get(key).cloned();
    let note = |key: &str| metadata.annotations.as_ref()?.get(key).cloned();
    let tracked = note("argocd.argoproj.io/tracking-id");
    let tracked = tracked.and_then(|id| id.split_once(':').map(|(app, _)| app.to_owned()));
    if let Some(app) = tracked.or_else(|| label("argocd.argoproj.io/instance")) {
        return Some(format!("Argo CD application {app}"));
    }
    for (kind, key) in
        [("Kustomization", "kustomize.toolkit.fluxcd.io"), ("HelmRelease", "helm.toolkit.fluxcd.io")]
    {
        if let Some(name) = label(&format!("{key}/name")) {
            let namespace = label(&format!("{key}/namespace")).map(|n| n + "/").unwrap_or_default();
            return Some(format!("Flux {kind} {namespace}{name}"));
        }
    }
    if let Some(release) = note("meta.helm.sh/release-name") {
        let namespace = note("meta.helm.sh/release-namespace").map(|n| n + "/").unwrap_or_default();
        return Some(format!("Helm release {namespace}{release}"));
    }
    label("app.kubernetes.io/managed-by")
}

/// The last write of an object.
pub fn last_write(metadata: &ObjectMeta) -> Option<FieldWrite> {
    let entries = metadata.managed_fields.iter().flatten().filter(|e| e.subresource.is_none());
    let last = entries.max_by(|a, b| a.time.cmp(&b.time))?;
    let by = last.manager.clone().unwrap_or_default();
    Some(FieldWrite { by, at: last.time.clone(), kept_by: kept_by(metadata) })
}

/// The steps between rendered configs, given oldest first. `sources` are the present MachineConfigs, by name.
pub fn steps(rendered: &[&MachineConfig], sources: &BTreeMap<&str, &ObjectMeta>) -> Vec<Step> {
    let mut before: Option<&MachineConfig> = None;
    let mut all = vec![];
    for config in rendered {
        all.push(step(before, config, sources));
        before = Some(config);
    }
    all
}

/// How one rendered config differs from another.
pub fn step(
    before: Option<&MachineConfig>,
    config: &MachineConfig,
    sources: &BTreeMap<&str, &ObjectMeta>,
) -> Step {
    let when = config.metadata.creation_timestamp.clone();
    let mut step = Step { config: config.name_any(), rendered: when, changes: vec![], unknown: None };
    let Some(before) = before else { return step };
    match differing(before, config) {
        Err(why) => step.unknown = Some(why),
        Ok(things) => {
            let (old, new) = (provenance(before), provenance(config));
            let mut by: BTreeMap<String, BTreeSet<Setting>> = BTreeMap::new();
            for thing in things {
                for author in authors(&thing, old.as_ref(), new.as_ref()) {
                    by.entry(author).or_default().insert(shown(&thing));
                }
            }
            step.changes =
                by.into_iter().map(|(name, things)| change(name, things, config, sources)).collect();
        }
    }
    step
}

/// Everything that a config sets, with its value.
fn things(config: &MachineConfig) -> Result<BTreeMap<Setting, Value>, String> {
    let mut all = BTreeMap::new();
    let mut put = |kind, name: &str, value: Value| {
        all.insert(Setting { kind, name: name.to_owned() }, value);
    };
    let spec = &config.spec;
    spec.kernel_arguments.iter().flatten().for_each(|a| put(Kind::KernelArgument, a, json!(true)));
    spec.extensions.iter().flatten().for_each(|e| put(Kind::Extension, e, json!(true)));
    for (name, value) in [
        ("fips", json!(spec.fips)),
        ("kernelType", json!(spec.kernel_type)),
        ("osImageURL", json!(spec.os_image_url)),
        ("baseOSExtensionsContainerImage", json!(spec.base_os_extensions_container_image)),
    ] {
        put(Kind::Scalar, name, value);
    }
    if desired::ignition_value(spec).is_none() {
        return Ok(all);
    }
    let parsed = desired::ignition_config(spec)
        .map_err(|e| format!("MachineConfig {}: spec.config: {e}", config.name_any()))?;
    let mut config = json!(parsed);
    let mut take = |path: &str| match config.pointer_mut(path).map(Value::take) {
        Some(Value::Array(list)) => list,
        _ => vec![],
    };
    let name_of = |value: &Value, field: &str| value[field].as_str().unwrap_or_default().to_owned();
    for (path, field, kind) in [
        ("/storage/files", "path", Kind::File),
        ("/storage/directories", "path", Kind::Directory),
        ("/storage/links", "path", Kind::Link),
        ("/passwd/users", "name", Kind::User),
        ("/passwd/groups", "name", Kind::Group),
    ] {
        for value in take(path) {
            put(kind, &name_of(&value, field), value);
        }
    }
    for mut unit in take("/systemd/units") {
        let name = name_of(&unit, "name");
        if let Some(Value::Array(dropins)) = unit.get_mut("dropins").map(Value::take) {
            for dropin in dropins {
                put(Kind::Dropin, &format!("{name}/{}", name_of(&dropin, "name")), dropin);
            }
        }
        put(Kind::Unit, &name, unit);
    }
    // The rest is rare and is not broken down.
    if let Some(fields) = config.as_object_mut() {
        fields.retain(|name, _| !["ignition", "systemd"].contains(&name.as_str()));
    }
    put(Kind::Section, "spec.config", config);
    Ok(all)
}

/// What differs between two configs.
fn differing(old: &MachineConfig, new: &MachineConfig) -> Result<BTreeSet<Setting>, String> {
    let (old, new) = (things(old)?, things(new)?);
    Ok(old.keys().chain(new.keys()).filter(|thing| old.get(thing) != new.get(thing)).cloned().collect())
}

/// The form of a thing that is shown: a kernel argument may hold a password. Applied only after the comparison.
fn shown(thing: &Setting) -> Setting {
    let name = match thing.kind {
        Kind::KernelArgument => desired::mask::argument(&thing.name).into_owned(),
        _ => thing.name.clone(),
    };
    Setting { kind: thing.kind, name }
}

fn change(
    name: String,
    things: BTreeSet<Setting>,
    config: &MachineConfig,
    sources: &BTreeMap<&str, &ObjectMeta>,
) -> Change {
    let there = sources.get(name.as_str());
    let written = there.and_then(|metadata| last_write(metadata));
    let rendered = config.metadata.creation_timestamp.as_ref();
    let later = written.as_ref().and_then(|w| w.at.as_ref()).zip(rendered).is_some_and(|(at, r)| at > r);
    Change {
        deleted: !name.is_empty() && there.is_none(),
        written_since: later,
        machine_config: name,
        things: things.into_iter().collect(),
        written,
    }
}

fn provenance(config: &MachineConfig) -> Option<Provenance> {
    Provenance::unpack(config.annotations().get(annotation::PROVENANCE)?).ok()
}

/// The MachineConfigs behind a difference: those that set the thing now and did not before, or the reverse; else those
/// that set it now.
fn authors(thing: &Setting, old: Option<&Provenance>, new: Option<&Provenance>) -> BTreeSet<String> {
    let about = |o: &&Origin| {
        let key = o.kind == Kind::SshKey && thing.kind == Kind::User;
        let of_user = || o.name.strip_prefix(&thing.name).is_some_and(|rest| rest.starts_with('/'));
        o.kind == thing.kind && o.name == thing.name || key && of_user()
    };
    let of = |p: Option<&Provenance>| -> BTreeSet<(String, String, String)> {
        let all = p.map(|p| p.0.as_slice()).unwrap_or_default();
        all.iter().filter(about).map(|o| (o.name.clone(), o.field.clone(), o.set_by.clone())).collect()
    };
    let (was, is) = (of(old), of(new));
    let moved: BTreeSet<String> = was.symmetric_difference(&is).map(|(.., by)| by.clone()).collect();
    if !moved.is_empty() {
        return moved;
    }
    let same: BTreeSet<String> = is.into_iter().map(|(.., by)| by).collect();
    if same.is_empty() { BTreeSet::from([String::new()]) } else { same }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Component, provenance, validate_machine_config};
    use serde_json::json;

    fn source(name: &str, content: &str, karg: Option<&str>, manager: &str, at: &str) -> MachineConfig {
        let managed = json!([{"manager": manager, "operation": "Update", "time": at, "fieldsV1": {}},
                             {"manager": "older", "operation": "Update", "time": "2020-01-01T00:00:00Z", "fieldsV1": {}}]);
        serde_json::from_value(json!({
            "metadata": {"name": name, "managedFields": managed},
            "spec": {"kernelArguments": karg.into_iter().collect::<Vec<_>>(), "config": {"ignition": {"version": "3.4.0"},
                "storage": {"files": [{"path": format!("/etc/{name}"), "mode": 420, "contents": {"source": format!("data:,{content}")}}]}}},
        }))
        .unwrap()
    }

    /// Rendered configs as the controller makes them, as far as this module reads them.
    fn rendered(name: &str, at: &str, sources: &[&MachineConfig]) -> MachineConfig {
        let components: Vec<Component<'_>> =
            sources.iter().map(|s| validate_machine_config(s).unwrap()).collect();
        let packed = provenance::trace(&components).pack().unwrap();
        let files: Vec<Value> = sources
            .iter()
            .flat_map(|s| s.spec.config.as_ref().unwrap()["storage"]["files"].as_array().unwrap().clone())
            .collect();
        let kargs: Vec<String> =
            sources.iter().flat_map(|s| s.spec.kernel_arguments.clone().unwrap_or_default()).collect();
        serde_json::from_value(json!({
            "metadata": {"name": name, "creationTimestamp": at, "annotations": {annotation::PROVENANCE: packed}},
            "spec": {"kernelArguments": kargs, "config": {"ignition": {"version": "3.4.0"}, "storage": {"files": files}}},
        }))
        .unwrap()
    }

    #[test]
    fn what_keeps_an_object_is_said_by_the_marks_of_gitops_tools() {
        let argo = json!({"annotations": {"argocd.argoproj.io/tracking-id":
            "shop:machineconfiguration.openshift.io/MachineConfig:/50-motd"}});
        for (metadata, want) in [
            (json!({}), None),
            (json!({"labels": {"machineconfiguration.openshift.io/role": "worker"}}), None),
            (argo, Some("Argo CD application shop")),
            (json!({"labels": {"argocd.argoproj.io/instance": "shop"}}), Some("Argo CD application shop")),
            (
                json!({"labels": {"kustomize.toolkit.fluxcd.io/name": "nodes",
                    "kustomize.toolkit.fluxcd.io/namespace": "flux-system"}}),
                Some("Flux Kustomization flux-system/nodes"),
            ),
            (json!({"labels": {"helm.toolkit.fluxcd.io/name": "n"}}), Some("Flux HelmRelease n")),
            (
                json!({"labels": {"app.kubernetes.io/managed-by": "Helm"},
                    "annotations": {"meta.helm.sh/release-name": "nodes"}}),
                Some("Helm release nodes"),
            ),
            (json!({"labels": {"app.kubernetes.io/managed-by": "terraform"}}), Some("terraform")),
        ] {
            let metadata: ObjectMeta = serde_json::from_value(metadata).unwrap();
            assert_eq!(kept_by(&metadata).as_deref(), want);
        }
    }

    #[test]
    fn each_step_says_which_machine_config_changed_what_and_who_wrote_it_last() {
        let a1 = source("50-a", "one", None, "kubectl-edit", "2026-01-01T00:00:00Z");
        let a2 = source("50-a", "two", None, "argocd", "2026-01-02T00:00:00Z");
        let b = source("60-b", "secret-content", Some("quiet"), "helm", "2026-01-09T00:00:00Z");
        let r1 = rendered("r1", "2026-01-01T00:00:05Z", &[&a1]);
        let r2 = rendered("r2", "2026-01-02T00:00:05Z", &[&a2]);
        let r3 = rendered("r3", "2026-01-03T00:00:05Z", &[&a2, &b]);
        let now: BTreeMap<&str, &ObjectMeta> = [("50-a", &a2.metadata), ("60-b", &b.metadata)].into();
        let steps = steps(&[&r1, &r2, &r3, &r2], &now);
        type Row = (String, Vec<String>, String, bool);
        let told: Vec<Vec<Row>> = steps
            .iter()
            .map(|s| {
                let row = |c: &Change| {
                    let by = c.written.as_ref().map(|w| w.by.clone()).unwrap_or_default();
                    (
                        c.machine_config.clone(),
                        c.things.iter().map(ToString::to_string).collect(),
                        by,
                        c.written_since,
                    )
                };
                s.changes.iter().map(row).collect()
            })
            .collect();
        let text = |t: &str| t.to_owned();
        let both = || vec![text("file /etc/60-b"), text("kernel argument quiet")];
        assert_eq!(told[0], []);
        assert_eq!(told[1], [(text("50-a"), vec![text("file /etc/50-a")], text("argocd"), false)]);
        assert_eq!(told[2], [(text("60-b"), both(), text("helm"), true)]);
        assert_eq!(told[3], [(text("60-b"), both(), text("helm"), true)], "taken away again");
        assert!(!json!(steps).to_string().contains("secret-content"));
        let gone = self::step(Some(&r2), &r3, &BTreeMap::new());
        assert!(gone.changes[0].deleted && gone.changes[0].written.is_none());
        let secret = source("70-c", "x", Some("nbd.password=hunter2"), "helm", "2026-01-09T00:00:00Z");
        let other = source("70-c", "x", Some("nbd.password=hunter22"), "helm", "2026-01-09T00:00:00Z");
        let [r4, r5] = [("r4", &secret), ("r5", &other)]
            .map(|(name, c)| rendered(name, "2026-01-04T00:00:05Z", &[&a2, c]));
        for (from, to) in [(&r2, &r4), (&r4, &r5), (&r5, &r2)] {
            let step = self::step(Some(from), to, &now);
            let told = json!(step).to_string() + &format!("{step:?}");
            assert!(told.contains("kernelArgument") && told.contains("70-c"), "{told}");
            assert!(!told.contains("hunter2"), "{told}");
        }
        let mut bare = r3;
        bare.metadata.annotations = None;
        let unknown = self::step(Some(&bare), &bare, &now);
        assert_eq!(unknown.changes, []);
    }
}
