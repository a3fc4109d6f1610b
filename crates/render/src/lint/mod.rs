//! Everything that can be said of manifests before they reach a cluster, each finding with object, JSON path, rule and
//! remedy. Pure.
//!
//! What it is not: new rules. Each one is that of `validate_machine_config`, `plan` or a generator; what is added here
//! are warnings for what is allowed and seldom meant.

use crate::config::check::Component;
use crate::config::provenance::{self, Kind};
use crate::error::{Finding, Reason};
use crate::settings::container_runtime::ContainerRuntimeConfig;
use crate::settings::kubelet_config::KubeletConfig;
use crate::settings::registries::mirrors::MirrorSets;
use crate::template::{self, Rendering, TemplateSet};
use crate::{
    Inputs, Mode, RenderPlan, Stream, TemplateData, TlsProfile, Versions, plan, select, sort, streams,
    validate_machine_config,
};
use api::k8s::ResourceExt as _;
use api::names::{ARBITER, CLUSTER, CORE_USER, GROUP, MASTER, WORKER, annotation, label};
use api::v1::{ControllerConfig, MachineConfig, MachineConfigPool};
use serde::Serialize;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};

/// How bad.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// The pool would not be rendered, or no host could apply it.
    Error,
    /// It has no effect, or another than it seems.
    Warning,
}

/// One finding.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Lint {
    /// How bad.
    pub severity: Severity,
    /// Kind and name.
    pub object: String,
    /// JSON path in the object; empty for the object as a whole.
    pub path: String,
    /// Which rule, as a word for filters.
    pub rule: &'static str,
    /// What is wrong.
    pub message: String,
    /// What to do.
    pub remedy: String,
}

/// Kinds of our group that are no input of rendering and no mistake.
const OTHER_KINDS: [&str; 5] =
    ["MachineConfigNode", "MachineOSConfig", "MachineOSBuild", "PinnedImageSet", "OSImageStream"];
/// Fields of a MachineConfig's spec.
const SPEC_FIELDS: [&str; 7] = [
    "baseOSExtensionsContainerImage",
    "config",
    "extensions",
    "fips",
    "kernelArguments",
    "kernelType",
    "osImageURL",
];

/// The pools that the roles of MachineConfigs ask for, where there are no manifests of pools: each picks its own role,
/// and a custom one also `worker`, as is the convention.
pub fn default_pools(configs: &[MachineConfig]) -> Vec<MachineConfigPool> {
    let roles: BTreeSet<&str> =
        configs.iter().filter_map(|c| c.labels().get(label::ROLE)).map(String::as_str).collect();
    let pool = |role: &str| {
        let picked = if matches!(role, MASTER | WORKER | ARBITER) { vec![role] } else { vec![WORKER, role] };
        let selector =
            json!({"matchExpressions": [{"key": label::ROLE, "operator": "In", "values": picked}]});
        let spec = serde_json::from_value(json!({ "machineConfigSelector": selector })).unwrap_or_default();
        MachineConfigPool::new(role, spec)
    };
    roles.into_iter().filter(|r| !r.is_empty()).map(pool).collect()
}

/// Checks manifests, each with the name of the file that it comes from. Errors come first, then by object.
pub fn lint(manifests: &[(String, Value)]) -> Vec<Lint> {
    lint_with(manifests, &TemplateSet::default())
}

/// As [`lint`], beside the MachineConfigs that templates make: what goes over them, and what they make together. The
/// facts for the templates stand in the manifests' ControllerConfig.
pub fn lint_with(manifests: &[(String, Value)], templates: &TemplateSet) -> Vec<Lint> {
    let mut all = Vec::new();
    let read = read(manifests, &mut all);
    let mut bad = BTreeSet::new();
    for (mc, raw) in &read.configs {
        unknown_fields(&mut all, mc, raw);
        match validate_machine_config(mc) {
            Ok(component) => {
                let unusable = component.unusable();
                if !unusable.is_empty() {
                    bad.insert(mc.name_any());
                }
                all.extend(unusable.into_iter().map(|f| of(Severity::Error, f)));
                all.extend(component.warnings.iter().map(|f| of(Severity::Warning, f.clone())));
                all.extend(careless(&component));
            }
            Err(findings) => {
                bad.insert(mc.name_any());
                all.extend(findings.into_iter().map(|f| of(Severity::Error, f)));
                // What can be read of it is looked at all the same, so that one run tells all.
                let raw = mc.spec.config.as_ref().filter(|c| !c.is_null());
                if let Some(Ok(parsed)) = raw.map(ignition::parse_value) {
                    let component =
                        Component { machine_config: mc, config: Some(parsed.config), warnings: Vec::new() };
                    all.extend(component.unusable().into_iter().map(|f| of(Severity::Error, f)));
                    all.extend(careless(&component));
                }
            }
        }
    }
    let mut configs: Vec<MachineConfig> = read.configs.into_iter().map(|(mc, _)| mc).collect();
    let (own, mut picked) = (!read.pools.is_empty(), BTreeSet::new());
    let pools = if own { read.pools } else { default_pools(&configs) };
    let there: BTreeSet<String> = configs.iter().map(|mc| mc.name_any()).collect();
    let made = made_from(templates, read.controller_config.as_ref(), &mut all);
    // Those that were exported along are the same.
    configs.extend(made.into_iter().filter(|mc| !there.contains(&mc.name_any())));
    for pool in &pools {
        let worker = pools.iter().find(|p| p.name_any() == WORKER);
        // Manifests without the list of streams are no whole cluster.
        let stream = read
            .streams
            .as_ref()
            .map(|list| streams::stream(pool, worker, Some(list), &Versions::unknown(), Mode::Bootstrap));
        let stream = match stream.transpose() {
            Ok(stream) => stream.flatten(),
            Err(finding) => {
                all.push(of(Severity::Error, finding));
                None
            }
        };
        let facts = (read.controller_config.as_ref(), stream.as_ref());
        let Some(names) = lint_pool(&mut all, pool, &configs, &bad, facts) else { continue };
        picked.extend(names);
    }
    // Rendered ones that were exported along are results, and those from templates are nobody's mistake.
    let owned = |mc: &MachineConfig| {
        let mut owners = mc.metadata.owner_references.iter().flatten();
        owners.any(|o| matches!(o.kind.as_str(), "MachineConfigPool" | "ControllerConfig"))
    };
    for mc in configs.iter().filter(|mc| !picked.contains(&mc.name_any()) && !owned(mc)) {
        let message = if own {
            "no pool among the manifests picks it"
        } else {
            "has no role label, so no pool picks it"
        };
        let remedy = format!("set metadata.labels[{}] to the name of a pool", label::ROLE);
        let object = format!("MachineConfig {}", mc.name_any());
        let (severity, rule, path) = (Severity::Warning, "no-pool", "metadata.labels".to_owned());
        all.push(Lint { severity, object, path, rule, message: message.to_owned(), remedy });
    }
    all.sort_by(|a, b| {
        (a.severity, &a.object, &a.path, &a.message).cmp(&(b.severity, &b.object, &b.path, &b.message))
    });
    all.dedup();
    all
}

/// The MachineConfigs that templates make; a template that makes none is an error.
fn made_from(
    templates: &TemplateSet,
    controller_config: Option<&ControllerConfig>,
    all: &mut Vec<Lint>,
) -> Vec<MachineConfig> {
    if templates.is_empty() {
        return Vec::new();
    }
    let default = ControllerConfig::default();
    let tls = TlsProfile::from_api_server(None);
    let controller_config = controller_config.unwrap_or(&default);
    let data = TemplateData { controller_config, pull_secret: None, tls: &tls };
    let versions = Versions { raw: String::new(), hash: String::new() };
    match template::generate(&Rendering::new(templates, data), &versions) {
        Ok(made) => made,
        Err(e) => {
            let (object, path, rule) = (format!("template {}", e.path), String::new(), "template");
            let remedy = "correct the template, or the ControllerConfig's field that it names".to_owned();
            all.push(Lint { severity: Severity::Error, object, path, rule, message: e.message, remedy });
            Vec::new()
        }
    }
}

#[derive(Default)]
struct Read {
    configs: Vec<(MachineConfig, Value)>,
    pools: Vec<MachineConfigPool>,
    controller_config: Option<ControllerConfig>,
    streams: Option<Value>,
}

fn read(manifests: &[(String, Value)], all: &mut Vec<Lint>) -> Read {
    let mut read = Read::default();
    let mut seen: BTreeMap<(String, String), &str> = BTreeMap::new();
    let mut mirrors = Vec::new();
    for (origin, value) in manifests {
        let text = |p: &str| value.pointer(p).and_then(Value::as_str).unwrap_or_default().to_owned();
        let (group, kind, name) = (text("/apiVersion"), text("/kind"), text("/metadata/name"));
        let group = group.split('/').next().unwrap_or_default();
        let object = format!("{kind} {name}");
        let mut say = |severity, rule, path: &str, message: String, remedy: &str| {
            let (path, remedy) = (path.to_owned(), remedy.to_owned());
            all.push(Lint { severity, object: object.clone(), path, rule, message, remedy });
        };
        if kind.is_empty() || group.is_empty() {
            let message = format!("a document of {origin} has no apiVersion and kind");
            say(Severity::Error, "manifest", "", message, "write both, or take the document out");
            continue;
        }
        if name.is_empty() {
            say(
                Severity::Error,
                "manifest",
                "metadata.name",
                format!("has no name (in {origin})"),
                "give it one",
            );
        } else if let Some(first) = seen.insert((kind.clone(), name.clone()), origin) {
            let message = format!("stands in {first} and in {origin}");
            say(Severity::Error, "duplicate", "metadata.name", message, "keep one of them, or rename one");
        }
        let shape = "correct the field; the CRD has the types";
        match (group, kind.as_str()) {
            (GROUP, "MachineConfig") => match api::shape::read::<MachineConfig>(value) {
                Ok(mc) => read.configs.push((mc, value.clone())),
                Err(e) => say(Severity::Error, "manifest", "spec", e.to_string(), shape),
            },
            (GROUP, "MachineConfigPool") => match api::shape::read(value) {
                Ok(pool) => read.pools.push(pool),
                Err(e) => say(Severity::Error, "manifest", "spec", e.to_string(), shape),
            },
            (GROUP, "ControllerConfig") => match api::shape::read(value) {
                Ok(config) => read.controller_config = Some(config),
                Err(e) => say(Severity::Error, "manifest", "spec", e.to_string(), shape),
            },
            (GROUP, "OSImageStream") if name == CLUSTER => read.streams = Some(value.clone()),
            (GROUP, "KubeletConfig") => match KubeletConfig::read(value) {
                Err(e) => say(Severity::Error, "kubelet-config", "spec", e.to_string(), "correct the field"),
                Ok(config) => {
                    for field in config.unknown() {
                        let message =
                            format!("{field} is no field of a KubeletConfiguration that is known here");
                        let path = format!("spec.kubeletConfig.{field}");
                        say(
                            Severity::Warning,
                            "unknown-field",
                            &path,
                            message,
                            "correct its name, or take it out",
                        );
                    }
                }
            },
            (GROUP, "ContainerRuntimeConfig") => {
                if let Err(e) = ContainerRuntimeConfig::read(value) {
                    say(
                        Severity::Error,
                        "container-runtime-config",
                        "spec",
                        e.to_string(),
                        "correct the field",
                    );
                }
            }
            ("config.openshift.io", "ImageDigestMirrorSet" | "ImageTagMirrorSet")
            | ("operator.openshift.io", "ImageContentSourcePolicy") => {
                mirrors.push(value.clone());
                if let Err(e) = MirrorSets::read(std::slice::from_ref(value)) {
                    say(Severity::Error, "mirrors", "spec", e.to_string(), "correct the field");
                }
            }
            (GROUP, other) if !OTHER_KINDS.contains(&other) => {
                let message = format!("{other} is no kind of {GROUP}");
                say(
                    Severity::Error,
                    "manifest",
                    "kind",
                    message,
                    "use MachineConfig, MachineConfigPool or the like",
                );
            }
            _ => {}
        }
    }
    if mirrors.len() > 1
        && let Err(e) = MirrorSets::read(&mirrors)
    {
        let (severity, object, path) = (Severity::Error, "mirror sets together".to_owned(), String::new());
        let (message, remedy) = (e.to_string(), "correct one of them".to_owned());
        all.push(Lint { severity, object, path, rule: "mirrors", message, remedy });
    }
    read
}

fn unknown_fields(all: &mut Vec<Lint>, mc: &MachineConfig, raw: &Value) {
    let fields = raw.get("spec").and_then(Value::as_object).into_iter().flat_map(|o| o.keys());
    for field in fields.filter(|f| !SPEC_FIELDS.contains(&f.as_str())) {
        let near = similar::get_close_matches(field.as_str(), &SPEC_FIELDS, 1, 0.6);
        let remedy =
            near.first().map_or_else(|| "take it out".to_owned(), |n| format!("write {n}, or take it out"));
        let message = format!("{field} is no field of a MachineConfig and has no effect");
        let object = format!("MachineConfig {}", mc.name_any());
        let (severity, path) = (Severity::Warning, format!("spec.{field}"));
        all.push(Lint { severity, object, path, rule: "unknown-field", message, remedy });
    }
}

/// What one MachineConfig may say and seldom means.
fn careless(component: &Component<'_>) -> Vec<Lint> {
    let mut all = Vec::new();
    let mut say = |rule, path: String, message: String, remedy: &str| {
        let object = format!("MachineConfig {}", component.name());
        all.push(Lint {
            severity: Severity::Warning,
            object,
            path,
            rule,
            message,
            remedy: remedy.to_owned(),
        });
    };
    let owner = component.machine_config.metadata.owner_references.is_some();
    for (i, f) in component.config.iter().flat_map(|c| &c.storage.files).enumerate() {
        let at = format!("spec.config.storage.files[{i}]");
        if f.mode.is_none() && !owner && f.contents.source.is_some() {
            let message = format!("{} has no mode; it becomes 0644", f.path);
            say("file-mode", format!("{at}.mode"), message, "write the mode, for example 0644");
        }
        if f.mode.is_some_and(|m| m & 0o002 != 0) {
            let message = format!("every user of the host may write {}", f.path);
            say("file-mode", format!("{at}.mode"), message, "take the last write bit away, for example 0644");
        }
        // 644 where 0644 was meant: the owner could not read it.
        if let Some(mode) = f.mode.filter(|m| m & 0o400 == 0) {
            let message =
                format!("mode {mode:#o} ({mode} decimal) of {} does not let its owner read it", f.path);
            say(
                "file-mode",
                format!("{at}.mode"),
                message,
                "write octal with a leading zero in YAML, decimal in JSON",
            );
        }
    }
    for (i, a) in component.machine_config.spec.kernel_arguments.iter().flatten().enumerate() {
        if a.split_whitespace().count() != 1 && !a.contains('"') {
            let message = format!("{:?} is not one argument", desired::mask::argument(a));
            say(
                "kernel-argument",
                format!("spec.kernelArguments[{i}]"),
                message,
                "write one list entry for each",
            );
        }
    }
    all
}

/// Checks what the MachineConfigs of a pool make together; returns the names of those that it picks.
fn lint_pool(
    all: &mut Vec<Lint>,
    pool: &MachineConfigPool,
    configs: &[MachineConfig],
    bad: &BTreeSet<String>,
    (controller_config, stream): (Option<&ControllerConfig>, Option<&Stream>),
) -> Option<Vec<String>> {
    let picked = match select(pool, configs) {
        Ok(picked) => picked,
        Err(e) => {
            all.extend(e.findings.into_iter().map(|f| of(Severity::Error, f)));
            return None;
        }
    };
    let names: Vec<String> = picked.iter().map(|mc| mc.name_any()).collect();
    let good: Vec<&MachineConfig> = picked.into_iter().filter(|mc| !bad.contains(&mc.name_any())).collect();
    let mut components: Vec<Component<'_>> =
        good.iter().filter_map(|mc| validate_machine_config(mc).ok()).collect();
    sort(&mut components);
    contested(all, pool, &components);
    if good.is_empty() {
        if names.is_empty() {
            let finding = Finding {
                object: format!("MachineConfigPool {}", pool.name_any()),
                path: "spec.machineConfigSelector".to_owned(),
                message: "picks none of these MachineConfigs; label one, or correct the selector".to_owned(),
            };
            all.push(of(Severity::Warning, finding));
        }
        return Some(names);
    }
    // Versions of what was exported from a cluster agree with themselves.
    let note = |annotations: Option<&BTreeMap<String, String>>, key: &str| {
        annotations.and_then(|a| a.get(key)).cloned().unwrap_or_default()
    };
    let default = ControllerConfig::default();
    let controller_config = controller_config.unwrap_or(&default);
    let raw = note(controller_config.metadata.annotations.as_ref(), annotation::GENERATED_BY_VERSION);
    let hash =
        good.iter().map(|c| note(c.metadata.annotations.as_ref(), annotation::GENERATED_BY_CONTROLLER));
    let versions = Versions { raw, hash: hash.max().unwrap_or_default() };
    let inputs =
        Inputs { stream, mode: Mode::Cluster, ..Inputs::new(pool, &good, controller_config, &versions) };
    match plan(&inputs) {
        Ok(plan) => {
            all.extend(nobody_logs_in(pool, &plan, &components));
            all.extend(plan.warnings.into_iter().map(|f| of(Severity::Warning, f)));
        }
        Err(e) if e.reason == Reason::VersionSkew => {}
        Err(e) => all.extend(e.findings.into_iter().map(|f| of(Severity::Error, f))),
    }
    Some(names)
}

/// A pool whose MachineConfigs speak of core and let nobody in: the last password of several is empty or locked, and there
/// is no key. What a change takes away is told where the pool's config before it is known (see [`plan`]).
fn nobody_logs_in(pool: &MachineConfigPool, plan: &RenderPlan, components: &[Component<'_>]) -> Option<Lint> {
    let config = ignition::parse_value(plan.rendered.spec.config.as_ref()?).ok()?.config;
    let has_core = config.passwd.users.iter().any(|u| u.name == CORE_USER);
    if !has_core || desired::lets_core_in(&config) {
        return None;
    }
    let of_core = || plan.provenance.of(CORE_USER).filter(|o| o.kind == Kind::User);
    let origin = of_core().find(|o| o.field == "passwordHash").or_else(|| of_core().next())?;
    let before = match origin.lost.as_slice() {
        [] => String::new(),
        lost => format!(", in place of what {} says", lost.join(", ")),
    };
    let component = components.iter().find(|c| c.name() == origin.set_by);
    let at = component.and_then(|c| place(c.config.as_ref()?, Kind::User, CORE_USER));
    Some(Lint {
        severity: Severity::Warning,
        object: format!("MachineConfig {}", origin.set_by),
        path: at.map_or_else(|| "spec.config.passwd".to_owned(), |at| format!("spec.config.{at}")),
        rule: "last-login",
        message: format!(
            "in pool {} nobody can log in as core: it has no SSH key, and its password is empty or locked{before}",
            pool.name_any()
        ),
        remedy: "give core an SSH key, or a password hash made with mkpasswd".to_owned(),
    })
}

/// One warning for each thing that several MachineConfigs set, whatever its parts.
fn contested(all: &mut Vec<Lint>, pool: &MachineConfigPool, components: &[Component<'_>]) {
    type Thing<'a> = (Kind, &'a str, &'a str, &'a [String]);
    let provenance = provenance::trace(components);
    let mut things: BTreeMap<Thing<'_>, Vec<&str>> = BTreeMap::new();
    // Two that give the same key agree.
    for o in provenance.contested().filter(|o| o.kind != Kind::SshKey) {
        things.entry((o.kind, &o.name, &o.set_by, &o.lost)).or_default().push(&o.field);
    }
    for ((kind, name, set_by, lost), fields) in things {
        let config = components.iter().find(|c| c.name() == set_by).and_then(|c| c.config.as_ref());
        let path = match (config.and_then(|c| place(c, kind, name)), kind) {
            (Some(at), _) => format!("spec.config.{at}"),
            (None, Kind::Scalar) => format!("spec.{name}"),
            (None, _) => "spec.config".to_owned(),
        };
        let what = if fields == [""] { name.to_owned() } else { format!("{} of {name}", fields.join(", ")) };
        let losers = lost.join(", ");
        all.push(Lint {
            severity: Severity::Warning,
            object: format!("MachineConfig {set_by}"),
            path,
            rule: "contested",
            message: format!(
                "in pool {} it sets {what}, and so does {losers}, without effect",
                pool.name_any()
            ),
            remedy: format!("say it in one place: take it out of {losers}, or out of {set_by}"),
        });
    }
}

fn place(c: &ignition::Config, kind: Kind, name: &str) -> Option<String> {
    let (list, index) = match kind {
        Kind::File => ("storage.files", c.storage.files.iter().position(|f| f.path == name)),
        Kind::Link => ("storage.links", c.storage.links.iter().position(|f| f.path == name)),
        Kind::Directory => ("storage.directories", c.storage.directories.iter().position(|f| f.path == name)),
        Kind::Unit => ("systemd.units", c.systemd.units.iter().position(|u| u.name == name)),
        Kind::User => ("passwd.users", c.passwd.users.iter().position(|u| u.name == name)),
        _ => return None,
    };
    Some(format!("{list}[{}]", index?))
}

/// A finding of the renderer: its text ends with the remedy after a semicolon.
fn of(severity: Severity, finding: Finding) -> Lint {
    let Finding { object, path, message } = finding;
    let rule = rule(&object, &path, &message);
    let (message, remedy) = match message.rsplit_once("; ") {
        Some((message, remedy)) => (message.to_owned(), remedy.to_owned()),
        None => (message, default_remedy(rule).to_owned()),
    };
    Lint { severity, object, path, rule, message, remedy }
}

fn rule(object: &str, path: &str, message: &str) -> &'static str {
    let rules = [
        (path.contains("osImageStream") || object.starts_with("OSImageStream"), "os-image-stream"),
        (object.starts_with("MachineConfigPool"), "selector"),
        (message.contains(" bytes of at most "), "too-large"),
        (path.starts_with("spec.kernelType"), "kernel-type"),
        (path.starts_with("spec.extensions"), "extension"),
        (path.starts_with("spec.osImageURL"), "os-image"),
        (path.ends_with(".mode"), "file-mode"),
        (message.contains("does not know this field") || message.contains("is read as"), "unknown-field"),
        (path.contains("systemd.units"), "systemd-unit"),
        (message.contains("cannot be fetched here"), "remote-source"),
        (path.contains(".contents") || path.contains(".append"), "file-contents"),
        (path.starts_with("spec.config"), "ignition"),
    ];
    rules.into_iter().find(|(applies, _)| *applies).map_or("machine-config", |(_, rule)| rule)
}

fn default_remedy(rule: &str) -> &'static str {
    match rule {
        "systemd-unit" => "correct the unit; `systemd-analyze verify` says more",
        "file-contents" => {
            "put the content into a data: URL whose compression and hash are those of the bytes"
        }
        "file-mode" => "write a mode up to 0777",
        "os-image" => "name the image by its digest",
        "unknown-field" => "take the field out",
        _ => "correct or remove the field",
    }
}

#[cfg(test)]
#[allow(clippy::needless_pass_by_value, reason = "helpers of tests")]
mod tests {
    use super::*;

    fn mk(name: &str, role: &str, spec: Value) -> (String, Value) {
        let meta = json!({"name": name, "labels": {label::ROLE: role}});
        let api = format!("{GROUP}/v1");
        (
            format!("{name}.yaml"),
            json!({"apiVersion": api, "kind": "MachineConfig", "metadata": meta, "spec": spec}),
        )
    }

    fn mk_files(name: &str, role: &str, files: Value) -> (String, Value) {
        let config = json!({"ignition": {"version": "3.4.0"}, "storage": {"files": files}});
        mk(name, role, json!({ "config": config }))
    }

    fn rules(manifests: &[(String, Value)]) -> Vec<(Severity, &'static str, String)> {
        lint(manifests).into_iter().map(|l| (l.severity, l.rule, l.path)).collect()
    }

    #[test]
    fn sound_manifests_have_no_findings() {
        let file = json!([{"path": "/a", "mode": 420, "contents": {"source": "data:,a"}}]);
        assert_eq!(lint(&[mk_files("50-a", "worker", file)]), []);
    }

    #[test]
    fn a_pool_that_follows_no_listed_stream_is_told_where_streams_are_listed() {
        let pool = json!({"apiVersion": format!("{GROUP}/v1"), "kind": "MachineConfigPool", "metadata": {"name": "worker"},
            "spec": {"osImageStream": {"name": "x"}, "machineConfigSelector": {"matchLabels": {label::ROLE: "worker"}}}});
        let list = json!({"apiVersion": format!("{GROUP}/v1"), "kind": "OSImageStream", "metadata": {"name": "cluster"},
            "status": {"defaultStream": "y", "availableStreams": [{"name": "y", "osImage": "i@sha256:1"}]}});
        let one =
            || vec![mk("50-a", "worker", json!({"kernelArguments": ["a"]})), ("p".to_owned(), pool.clone())];
        assert_eq!(rules(&one()), [], "no list, no rule");
        let mut all = one();
        all.push(("s".to_owned(), list));
        assert_eq!(rules(&all), [(Severity::Error, "os-image-stream", "spec.osImageStream.name".to_owned())]);
    }

    #[test]
    fn every_broken_rule_of_every_object_is_told_at_once_with_its_place() {
        use Severity::{Error, Warning};
        let file = |file: Value| mk_files("50-a", "worker", json!([file]));
        let unit = |unit: Value| {
            mk(
                "50-a",
                "worker",
                json!({"config": {"ignition": {"version": "3.4.0"}, "systemd": {"units": [unit]}}}),
            )
        };
        let at = |rest: &str| format!("spec.config.{rest}");
        let rows = [
            (
                mk("a", "worker", json!({"kernelType": "fast"})),
                Error,
                "kernel-type",
                "spec.kernelType".to_owned(),
            ),
            (
                mk("a", "worker", json!({"extensions": ["x"]})),
                Error,
                "extension",
                "spec.extensions[0]".to_owned(),
            ),
            (
                mk("a", "worker", json!({"kernelArgs": []})),
                Warning,
                "unknown-field",
                "spec.kernelArgs".to_owned(),
            ),
            (mk("a", "worker", json!({"fips": "yes"})), Error, "manifest", "spec".to_owned()),
            (
                mk("a", "worker", json!({"kernelArguments": ["a b"]})),
                Warning,
                "kernel-argument",
                "spec.kernelArguments[0]".to_owned(),
            ),
            (
                file(json!({"path": "/a", "mode": 420, "contents": {"source": "https://h/x"}})),
                Error,
                "remote-source",
                at("storage.files[0].contents"),
            ),
            (
                file(json!({"path": "/a", "mode": 2541, "contents": {"source": "data:,"}})),
                Error,
                "file-mode",
                at("storage.files[0].mode"),
            ),
            (
                file(json!({"path": "/a", "mode": 438, "contents": {"source": "data:,"}})),
                Warning,
                "file-mode",
                at("storage.files[0].mode"),
            ),
            (
                unit(json!({"name": "a", "contents": "[Unit]"})),
                Error,
                "systemd-unit",
                at("systemd.units[0].name"),
            ),
            (
                unit(json!({"name": "a.service", "enabled": true, "contents": "[Unit]\n"})),
                Warning,
                "systemd-unit",
                at("systemd.units[0].enabled"),
            ),
            (mk("a", "", json!({"fips": true})), Warning, "no-pool", "metadata.labels".to_owned()),
        ];
        for (manifest, severity, rule, path) in rows {
            let found = rules(std::slice::from_ref(&manifest));
            assert!(found.contains(&(severity, rule, path.clone())), "{manifest:?}: {path} {found:?}");
        }
        let several = mk_files(
            "50-a",
            "worker",
            json!([{"path": "a"}, {"path": "/b", "contents": {"source": "https://h"}}]),
        );
        let found = rules(&[several, mk("51-b", "worker", json!({"kernelType": "fast"}))]);
        assert_eq!(found.iter().filter(|(s, _, _)| *s == Error).count(), 3, "{found:?}");
    }

    #[test]
    fn two_that_set_one_thing_are_one_warning_that_names_both() {
        let file = json!([{"path": "/a", "mode": 420, "contents": {"source": "data:,a"}}]);
        let found = lint(&[mk_files("50-a", "worker", file.clone()), mk_files("60-b", "worker", file)]);
        assert_eq!(found.len(), 1, "{found:?}");
        assert_eq!((found[0].rule, found[0].object.as_str()), ("contested", "MachineConfig 60-b"));
        assert!(found[0].message.contains("contents, mode of /a") && found[0].message.contains("50-a"));
    }

    #[test]
    fn what_goes_over_a_template_is_told_and_a_broken_template_is_an_error() {
        let set = |text: &str| {
            let path = "worker/00-worker/_base/files/a.yaml".to_owned();
            TemplateSet::from_map([(path, text.to_owned())])
        };
        let file = json!([{"path": "/a", "mode": 420, "contents": {"source": "data:,a"}}]);
        let mine = [mk_files("50-a", "worker", file)];
        let good = set("path: /a\nmode: 0644\ncontents: {inline: hello}\n");
        let found = lint_with(&mine, &good);
        assert_eq!(found.len(), 1, "{found:?}");
        assert_eq!((found[0].rule, found[0].object.as_str()), ("contested", "MachineConfig 50-a"));
        assert!(found[0].message.contains("00-worker"), "{found:?}");
        let found = lint_with(&mine, &set("path: {{ nothing }}\n"));
        assert_eq!((found[0].severity, found[0].rule), (Severity::Error, "template"), "{found:?}");
        assert!(found[0].object.contains("worker/00-worker/_base/files/a.yaml"), "{found:?}");
    }

    #[test]
    fn a_merge_that_no_host_can_be_in_is_an_error_of_the_pool() {
        let all = [
            mk("50-a", "worker", json!({"kernelType": "realtime"})),
            mk("51-b", "worker", json!({"extensions": ["kernel-devel"]})),
        ];
        assert_eq!(rules(&all), [(Severity::Error, "extension", "spec.extensions[0]".to_owned())]);
    }

    #[test]
    fn what_no_running_machine_can_do_is_an_error() {
        let config = |sections: Value| {
            let mut config = sections;
            config["ignition"] = json!({"version": "3.4.0"});
            rules(&[mk("50-a", "worker", json!({ "config": config }))])
        };
        let error = |path: &str| vec![(Severity::Error, format!("spec.config.{path}"))];
        let file = |path: &str| json!({"storage": {"files": [{"path": path, "mode": 420, "contents": {"source": "data:,x"}}]}});
        for (sections, path) in [
            (
                json!({"systemd": {"units": [{"name": "a.service", "mask": true, "enabled": true}]}}),
                "systemd.units[0]",
            ),
            (file("/var/lib/machine-config-daemon/x"), "storage.files[0].path"),
            (json!({"passwd": {"users": [{"name": "bob", "sshAuthorizedKeys": ["k"]}]}}), "passwd.users[0]"),
            (
                json!({"storage": {"files": [{"path": "/a", "mode": 420, "contents": {"source": "data:,two words"}}]}}),
                "storage.files[0].contents.source",
            ),
        ] {
            let told: Vec<_> =
                config(sections).into_iter().map(|(severity, _, path)| (severity, path)).collect();
            assert_eq!(told, error(path));
        }
    }

    #[test]
    fn no_finding_quotes_a_value() {
        let of = |kind: &str, spec: Value| {
            let api = format!("{GROUP}/v1");
            (
                "x".to_owned(),
                json!({"apiVersion": api, "kind": kind, "metadata": {"name": "worker"}, "spec": spec}),
            )
        };
        let rows = [
            mk("50-a", "worker", json!({"kernelArguments": "p=hunter2"})),
            mk("50-a", "worker", json!({"kernelArguments": ["nbd.password=hunter2 quiet"]})),
            mk("50-a", "worker", json!({"config": "hunter2"})),
            mk("50-a", "worker", json!({"config": {"ignition": {"version": "hunter2"}}})),
            mk_files("50-a", "worker", json!([{"path": "/a", "mode": "hunter2"}])),
            mk_files(
                "50-a",
                "worker",
                json!([{"path": "/a", "mode": 420, "contents": {"source": "data:,hunter2 x"}}]),
            ),
            of("MachineConfigPool", json!({"maxUnavailable": ["hunter2"]})),
            of("ControllerConfig", json!({"images": "hunter2"})),
            of("KubeletConfig", json!({"kubeletConfig": {"maxPods": "hunter2"}})),
            of("KubeletConfig", json!({"machineConfigPoolSelector": "hunter2"})),
            of("ContainerRuntimeConfig", json!({"containerRuntimeConfig": {"pidsLimit": "hunter2"}})),
            of("ContainerRuntimeConfig", json!({"machineConfigPoolSelector": "hunter2"})),
        ];
        for row in rows {
            let found = lint(std::slice::from_ref(&row));
            assert!(
                found.iter().any(|l| l.severity == Severity::Error || l.rule == "kernel-argument"),
                "{row:?}: {found:?}"
            );
            assert!(!format!("{found:?}").contains("hunter2"), "{found:?}");
        }
    }

    #[test]
    fn a_pool_in_which_nobody_can_log_in_is_told() {
        let users = |name: &str, core: Value| {
            let mut core = core;
            core["name"] = json!("core");
            let config = json!({"ignition": {"version": "3.4.0"}, "passwd": {"users": [core]}});
            mk(name, "worker", json!({ "config": config }))
        };
        let open = users("50-a", json!({"passwordHash": "$6$a$b"}));
        let locked = users("60-b", json!({"passwordHash": "!"}));
        let key = users("70-c", json!({"sshAuthorizedKeys": ["ssh-ed25519 A"]}));
        let told = |all: &[(String, Value)]| -> Vec<Lint> {
            lint(all).into_iter().filter(|l| l.rule == "last-login").collect()
        };
        for sound in [vec![open.clone()], vec![open.clone(), locked.clone(), key.clone()], vec![key]] {
            assert_eq!(told(&sound), [], "{sound:?}");
        }
        for (all, before) in [(vec![locked.clone()], None), (vec![open, locked], Some("50-a"))] {
            let found = told(&all);
            assert_eq!(found.len(), 1, "{found:?}");
            assert_eq!(
                (found[0].object.as_str(), found[0].path.as_str()),
                ("MachineConfig 60-b", "spec.config.passwd.users[0]")
            );
            assert!(
                before.is_none_or(|b| found[0].message.ends_with(&format!("what {b} says"))),
                "{found:?}"
            );
            assert!(!format!("{found:?}").contains("$6$"), "{found:?}");
        }
    }

    #[test]
    fn duplicates_and_strange_documents_are_told() {
        let one = mk("50-a", "worker", json!({"fips": true}));
        let found = rules(&[one.clone(), one, ("x.yaml".to_owned(), json!({"a": 1}))]);
        assert_eq!(found.iter().map(|(_, rule, _)| *rule).collect::<Vec<_>>(), ["manifest", "duplicate"]);
    }
}
