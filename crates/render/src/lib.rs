//! MachineConfigs and templates to one rendered MachineConfig a pool.
//!
//! What it is: pure functions. [`select`] picks a pool's MachineConfigs, [`plan`] checks, merges and names them and
//! says where everything comes from; the modules
//! `template` and `bootstrap` make MachineConfigs from templates and render whole sets of manifests.
//!
//! What it is not: the network, clocks, files. Who calls it writes the result.

pub mod bootstrap;
mod config;
mod error;
mod go_yaml;
mod lint;
mod settings;
mod size;
pub mod template;
mod tls;

pub use config::check::{Component, EXTENSIONS, KERNEL_TYPES, validate_machine_config};
pub use config::diff::diff;
pub use config::merge::{Merged, OsImages, merge, sort};
pub use config::name::name;
pub use config::provenance::{Origin, Provenance, ProvenanceError};
pub use config::streams::Stream;
pub use config::{history, provenance, streams};
pub use desired::Overrides;
pub use error::{Finding, Reason, RenderError};
pub use lint::{Lint, Severity, default_pools, lint, lint_with};
pub use settings::container_runtime::ContainerRuntimeError;
pub use settings::kubelet_config::KubeletConfigError;
pub use settings::registries::RegistriesError;
pub use settings::registries::mirrors::MirrorError;
pub use settings::registries::signatures::{Conflict, SignatureError};
pub use settings::{generated, kubelet};
pub use template::data::Data as TemplateData;
pub use template::{TemplateError, TemplateSet};
pub use tls::TlsProfile;

use api::k8s::{ObjectMeta, ObjectReference, OwnerReference, ResourceExt as _};
use api::names::{GROUP, MAX_RENDERED_BYTES, annotation};
use api::selector;
use api::v1::{ControllerConfig, MachineConfig, MachineConfigPool, MachineConfigSpec};
use config::blame::blamed;
use desired::rules::{Broken, Compared, at_install, broken};
use serde_json::Value;
use std::collections::BTreeMap;

/// The build that renders.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Versions {
    /// The version as people write it; the operator puts it on ControllerConfig.
    pub raw: String,
    /// The hash of the build; it stands on everything generated.
    pub hash: String,
}

impl Versions {
    /// What a build without version information says of itself.
    pub fn unknown() -> Self {
        Self { raw: "v0.0.0-was-not-built-properly".to_owned(), hash: "was-not-built-properly".to_owned() }
    }
}

/// How strict rendering is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Mode {
    /// In a cluster, with machines that follow: versions must agree, and what no host could apply is refused.
    #[default]
    Cluster,
    /// Before there is a cluster, as the reference implementation renders: what no host could apply is a warning.
    Bootstrap,
}

/// What a pool is rendered from.
#[derive(Debug, Clone, Copy)]
pub struct Inputs<'a> {
    /// The pool.
    pub pool: &'a MachineConfigPool,
    /// Its MachineConfigs, in any order; see [`select`].
    pub configs: &'a [&'a MachineConfig],
    /// Cluster facts.
    pub controller_config: &'a ControllerConfig,
    /// The rendered config that the pool is at, where it has one.
    pub current: Option<&'a MachineConfig>,
    /// The build that renders.
    pub versions: &'a Versions,
    /// The OS image stream that the pool follows, where there are streams; else the images are ControllerConfig's.
    pub stream: Option<&'a Stream>,
    /// Changes that are let pass although machines will not follow.
    pub overrides: Overrides,
    /// How strict.
    pub mode: Mode,
}

impl<'a> Inputs<'a> {
    /// Inputs for a cluster, without stream and overrides.
    pub fn new(
        pool: &'a MachineConfigPool,
        configs: &'a [&'a MachineConfig],
        controller_config: &'a ControllerConfig,
        versions: &'a Versions,
    ) -> Self {
        let (current, stream, overrides, mode) = (None, None, Overrides::default(), Mode::default());
        Self { pool, configs, controller_config, current, versions, stream, overrides, mode }
    }
}

/// What is to be written.
#[derive(Debug, Clone, PartialEq)]
pub struct RenderPlan {
    /// The rendered MachineConfig, whole: name, owner, annotations, spec.
    pub rendered: MachineConfig,
    /// What it was merged from, in merge order; for the pool's `configuration.source`.
    pub source: Vec<ObjectReference>,
    /// Where everything in it comes from.
    pub provenance: Provenance,
    /// What has no effect or will not work.
    pub warnings: Vec<Finding>,
}

impl RenderPlan {
    /// The rendered MachineConfig's name.
    pub fn name(&self) -> &str {
        self.rendered.metadata.name.as_deref().unwrap_or_default()
    }
}

/// The MachineConfigs that a pool's selector picks, by name. An absent or empty selector picks none.
///
/// # Errors
/// A selector that cannot be evaluated.
pub fn select<'a>(
    pool: &MachineConfigPool,
    all: impl IntoIterator<Item = &'a MachineConfig>,
) -> Result<Vec<&'a MachineConfig>, RenderError> {
    let picks = |mc: &MachineConfig| {
        selector::matches(pool.spec.machine_config_selector.as_ref(), mc.metadata.labels.as_ref())
    };
    let mut picked = Vec::new();
    for mc in all {
        match picks(mc) {
            Ok(true) => picked.push(mc),
            Ok(false) => {}
            Err(e) => {
                let path = "spec.machineConfigSelector".to_owned();
                let finding = Finding { object: pool_object(pool), path, message: e.to_string() };
                return Err(RenderError::one(&pool.name_any(), Reason::Selector, finding));
            }
        }
    }
    picked.sort_by(|a, b| a.metadata.name.cmp(&b.metadata.name));
    Ok(picked)
}

fn pool_object(pool: &MachineConfigPool) -> String {
    format!("MachineConfigPool {}", pool.name_any())
}

/// Renders a pool's MachineConfigs into one.
///
/// # Errors
/// See [`Reason`]; every cause names its object and path.
pub fn plan(inputs: &Inputs<'_>) -> Result<RenderPlan, RenderError> {
    let Inputs { pool, configs, controller_config, versions, stream, mode, .. } = *inputs;
    let pool_name = pool.name_any();
    let fail = |reason, findings| RenderError { pool: pool_name.clone(), reason, findings };
    if configs.is_empty() {
        let message =
            "no MachineConfig has labels that this picks; label one, or correct the selector".to_owned();
        let finding =
            Finding { object: pool_object(pool), path: "spec.machineConfigSelector".to_owned(), message };
        return Err(fail(Reason::NoConfigs, vec![finding]));
    }
    if mode == Mode::Cluster {
        versions_agree(configs, controller_config, versions)
            .map_err(|f| fail(Reason::VersionSkew, vec![f]))?;
    }
    let (mut components, mut warnings) = read(configs, mode).map_err(|f| fail(Reason::Refused, f))?;
    sort(&mut components);
    let order: Vec<&MachineConfig> = components.iter().map(|c| c.machine_config).collect();
    let provenance = provenance::trace(&components);
    let base = base_images(controller_config, stream.map(|s| &s.images));
    let merged = merge(components, &base).map_err(|f| fail(Reason::Refused, vec![f]))?;
    let overridden = merged.spec.os_image_url != base.os;
    if overridden && pool.spec.os_image_stream.is_some() {
        let message = "a MachineConfig of this pool sets osImageURL; remove that or the stream".to_owned();
        let finding = Finding { object: pool_object(pool), path: "spec.osImageStream".to_owned(), message };
        return Err(fail(Reason::Refused, vec![finding]));
    }
    if overridden && !merged.spec.os_image_url.contains("sha256:") {
        let by = order.iter().rev().find(|mc| mc.spec.os_image_url == merged.spec.os_image_url);
        let name = by.map(|mc| mc.name_any()).unwrap_or_default();
        warnings.push(Finding::on(&name, "spec.osImageURL", "should name the image by digest (…@sha256:…)"));
    }
    // Whether another image has runc only a look into it could say.
    if let Some(stream) = stream.filter(|_| !overridden)
        && let Some(finding) = streams::missing_runtime(stream, &merged.config, &provenance)
    {
        return Err(fail(Reason::Refused, vec![finding]));
    }
    if mode == Mode::Cluster {
        let findings = mixed(&merged.config, &provenance);
        if !findings.is_empty() {
            return Err(fail(Reason::Refused, findings));
        }
    }
    // A merge of valid configs can be invalid: a mode without contents, a path under another config's link.
    if let Err(errors) = ignition::validate(&merged.config) {
        let findings: Vec<Finding> =
            errors.0.into_iter().map(|e| blame(&merged.config, &provenance, &e)).collect();
        if mode == Mode::Cluster || overridden {
            return Err(fail(Reason::Refused, findings));
        }
        warnings.extend(findings);
    }
    let name = config::name::name(&pool_name, &merged.spec);
    warnings.extend(follow(inputs, &name, &merged, &order).map_err(|(reason, f)| fail(reason, f))?);
    let mut rendered = rendered(pool, controller_config, versions, &name, merged.spec);
    if overridden {
        let annotations = rendered.metadata.annotations.get_or_insert_default();
        annotations.insert(annotation::OS_IMAGE_URL_OVERRIDDEN.to_owned(), "true".to_owned());
    }
    warnings.extend(fits(&rendered).map_err(|f| {
        let findings = std::iter::once(f).chain(largest(&order)).collect();
        fail(Reason::TooLarge, findings)
    })?);
    let source = order.iter().map(|mc| reference(mc.metadata.name.as_deref().unwrap_or_default())).collect();
    // Before there is a cluster the output is what the reference implementation's is.
    if mode == Mode::Cluster {
        keep(&mut rendered, &provenance);
    }
    Ok(RenderPlan { rendered, source, provenance, warnings })
}

/// Reads and checks all; every broken rule of every one is told.
fn read<'a>(
    configs: &[&'a MachineConfig],
    mode: Mode,
) -> Result<(Vec<Component<'a>>, Vec<Finding>), Vec<Finding>> {
    let (mut components, mut warnings, mut findings) = (Vec::new(), Vec::new(), Vec::new());
    for mc in configs {
        match validate_machine_config(mc) {
            Ok(mut component) => {
                let list = if mode == Mode::Cluster { &mut findings } else { &mut warnings };
                list.extend(component.unusable());
                warnings.append(&mut component.warnings);
                components.push(component);
            }
            Err(more) => findings.extend(more),
        }
    }
    if findings.is_empty() { Ok((components, warnings)) } else { Err(findings) }
}

/// Files whose contents, compression and hash come from several MachineConfigs and do not go together. By Ignition's
/// rules a hash survives when another MachineConfig replaces the contents without giving its own.
fn mixed(config: &ignition::Config, provenance: &Provenance) -> Vec<Finding> {
    let files = config.storage.files.iter().enumerate();
    let bad = files.filter_map(|(i, f)| Some((i, f.contents.check().err()?)));
    let finding = |(i, e): (usize, ignition::ResourceError)| {
        let message =
            format!("{e}; who replaces the contents gives compression and verification.hash along with them");
        let path = format!("storage.files[{i}].contents");
        blame(config, provenance, &ignition::ValidationError { path, message })
    };
    bad.map(finding).collect()
}

/// Turns a finding on the merged config into one on the MachineConfigs that made that part of it.
fn blame(config: &ignition::Config, provenance: &Provenance, e: &ignition::ValidationError) -> Finding {
    let index = |list: &str| -> Option<usize> { e.path.strip_prefix(list)?.split_once(']')?.0.parse().ok() };
    let name = index("storage.files[")
        .and_then(|i| config.storage.files.get(i).map(|f| f.path.as_str()))
        .or_else(|| config.storage.links.get(index("storage.links[")?).map(|l| l.path.as_str()))
        .or_else(|| config.storage.directories.get(index("storage.directories[")?).map(|d| d.path.as_str()))
        .or_else(|| config.systemd.units.get(index("systemd.units[")?).map(|u| u.name.as_str()))
        .unwrap_or_default();
    let mut who: Vec<&str> = provenance.of(name).map(|o| o.set_by.as_str()).collect();
    who.sort_unstable();
    who.dedup();
    let object = match who.as_slice() {
        [] => "the rendered MachineConfig".to_owned(),
        [one] => format!("MachineConfig {one}"),
        many => format!("MachineConfigs {}", many.join(", ")),
    };
    let about = if name.is_empty() { String::new() } else { format!("{name}: ") };
    Finding { object, path: format!("spec.config.{}", e.path), message: format!("{about}{}", e.message) }
}

fn base_images(controller_config: &ControllerConfig, stream: Option<&OsImages>) -> OsImages {
    let spec = &controller_config.spec;
    stream.cloned().unwrap_or_else(|| OsImages {
        os: spec.base_os_container_image.clone(),
        extensions: spec.base_os_extensions_container_image.clone().unwrap_or_default(),
    })
}

/// In the middle of an upgrade, inputs of two versions would mix; wait until they agree.
fn versions_agree(
    configs: &[&MachineConfig],
    controller_config: &ControllerConfig,
    versions: &Versions,
) -> Result<(), Finding> {
    let annotation_of =
        |meta: &ObjectMeta, key: &str| meta.annotations.as_ref().and_then(|a| a.get(key).cloned());
    // Absent where no operator stands: there is nothing to disagree with.
    let by = annotation_of(&controller_config.metadata, annotation::GENERATED_BY_VERSION);
    if let Some(by) = by.filter(|by| *by != versions.raw) {
        return Err(Finding {
            object: format!("ControllerConfig {}", controller_config.name_any()),
            path: format!("metadata.annotations[{}]", annotation::GENERATED_BY_VERSION),
            message: format!(
                "is {by:?}, this controller is {:?}; waiting for the operator to update it",
                versions.raw
            ),
        });
    }
    for mc in configs {
        let by = annotation_of(&mc.metadata, annotation::GENERATED_BY_CONTROLLER).unwrap_or_default();
        if !by.is_empty() && by != versions.hash {
            let path = format!("metadata.annotations[{}]", annotation::GENERATED_BY_CONTROLLER);
            let message = format!(
                "is {by:?}, this controller is {:?}; waiting for it to be generated anew; if nothing makes it any more, \
                 delete it, or take the annotation away to keep it as your own",
                versions.hash
            );
            return Err(Finding::on(&mc.name_any(), path, message));
        }
    }
    Ok(())
}

fn rendered(
    pool: &MachineConfigPool,
    controller_config: &ControllerConfig,
    versions: &Versions,
    name: &str,
    spec: MachineConfigSpec,
) -> MachineConfig {
    let release = controller_config.metadata.annotations.as_ref();
    let release = release.and_then(|a| a.get(annotation::RELEASE_IMAGE_VERSION)).cloned().unwrap_or_default();
    let annotations = BTreeMap::from([
        (annotation::GENERATED_BY_CONTROLLER.to_owned(), versions.hash.clone()),
        (annotation::RELEASE_IMAGE_VERSION.to_owned(), release),
    ]);
    let pool_name = pool.name_any();
    let mut mc = MachineConfig::new(name, spec);
    mc.metadata.annotations = Some(annotations);
    mc.metadata.owner_references = Some(vec![OwnerReference {
        api_version: format!("{GROUP}/v1"),
        kind: "MachineConfigPool".to_owned(),
        name: pool_name,
        uid: pool.metadata.uid.clone().unwrap_or_default(),
        controller: Some(true),
        block_owner_deletion: Some(true),
    }]);
    mc
}

/// Stores the provenance on the object, where both fit; a config is never refused for it.
fn keep(rendered: &mut MachineConfig, provenance: &Provenance) {
    let Some(packed) = provenance.pack() else { return };
    let annotations = rendered.metadata.annotations.get_or_insert_default();
    annotations.insert(annotation::PROVENANCE.to_owned(), packed);
    if size::of(rendered) > MAX_RENDERED_BYTES
        && let Some(annotations) = &mut rendered.metadata.annotations
    {
        annotations.remove(annotation::PROVENANCE);
    }
}

/// A reference to a MachineConfig as pools carry it.
pub fn reference(machine_config: &str) -> ObjectReference {
    ObjectReference {
        api_version: Some(format!("{GROUP}/v1")),
        kind: Some("MachineConfig".to_owned()),
        name: Some(machine_config.to_owned()),
        ..ObjectReference::default()
    }
}

/// Can machines follow: those in the pool's present config, or where it has none, any machine? Before there is a cluster,
/// and where only machines that are installed with the config will have all of it, the answer is a warning.
fn follow(
    inputs: &Inputs<'_>,
    name: &str,
    merged: &Merged,
    order: &[&MachineConfig],
) -> Result<Vec<Finding>, (Reason, Vec<Finding>)> {
    let new = Compared { config: &merged.config, fips: merged.spec.fips };
    let other = inputs.current.filter(|c| c.metadata.name.as_deref() != Some(name));
    let config = match other.and_then(|c| c.spec.config.as_ref()).filter(|c| !c.is_null()) {
        None => ignition::empty(),
        Some(raw) => {
            let unreadable = |e| {
                let name = other.map(|c| c.name_any()).unwrap_or_default();
                Finding::on(&name, "spec.config", format!("the present config: {e}"))
            };
            ignition::parse_value(raw).map_err(|e| (Reason::Irreconcilable, vec![unreadable(e)]))?.config
        }
    };
    let old = match (inputs.current, other) {
        (None, _) => None,
        (Some(_), Some(other)) => Some(Compared { config: &config, fips: other.spec.fips }),
        // The pool is at this very config.
        (Some(_), None) => Some(new),
    };
    // Merging has used the configs up; they are read again only to say which of them asks for it.
    let blamed = |rules: &[Broken<'_>]| {
        let components: Vec<_> = order.iter().filter_map(|mc| validate_machine_config(mc).ok()).collect();
        blamed(rules, new, &components)
    };
    let broken = broken(old, new, inputs.overrides);
    match (inputs.current, inputs.mode) {
        _ if broken.is_empty() => {}
        (None, Mode::Cluster) => return Err((Reason::Refused, blamed(&broken))),
        (Some(_), _) if other.is_some() => return Err((Reason::Irreconcilable, blamed(&broken))),
        // Before there is a cluster; or nothing is asked of the machines that they have not been asked for already.
        _ => return Ok(blamed(&broken)),
    }
    let warned = at_install(new);
    let quiet = old.is_some() || inputs.mode == Mode::Bootstrap || warned.is_empty();
    let mut warnings = if quiet { Vec::new() } else { blamed(&warned) };
    if old.is_some_and(|old| desired::shuts_core_out(old.config, new.config)) {
        warnings.push(Finding {
            object: pool_object(inputs.pool),
            path: "spec.config.passwd.users".to_owned(),
            message: "the last SSH key and password of the user core go: on nodes where no other user has one, nobody \
                      can log in; keep a key in one of this pool's MachineConfigs"
                .to_owned(),
        });
    }
    Ok(warnings)
}

/// The files that take the most of what is too large.
fn largest(order: &[&MachineConfig]) -> Vec<Finding> {
    const SHOWN: usize = 3;
    let files = order.iter().flat_map(|mc| {
        let files = mc.spec.config.as_ref().and_then(|c| c.pointer("/storage/files")?.as_array());
        files.into_iter().flatten().enumerate().map(|(i, f)| {
            let text = |at: &str| f.pointer(at).and_then(Value::as_str).unwrap_or_default();
            (text("/contents/source").len(), mc.name_any(), i, text("/path"))
        })
    });
    let mut files: Vec<_> = files.collect();
    files.sort_by(|a, b| b.cmp(a));
    let finding = |(size, name, i, path): (usize, String, usize, &str)| {
        let message = format!(
            "{path} takes {size} bytes of at most {MAX_RENDERED_BYTES} for all; make it smaller, pack it \
             (compression: gzip), or leave it to a container image"
        );
        Finding::on(&name, format!("spec.config.storage.files[{i}].contents"), message)
    };
    // A small file is not the cause.
    files.into_iter().take(SHOWN).filter(|f| f.0 > MAX_RENDERED_BYTES / 20).map(finding).collect()
}

/// Does the object fit into the store? A warning when it soon will not.
fn fits(rendered: &MachineConfig) -> Result<Option<Finding>, Finding> {
    let object = || "the rendered MachineConfig".to_owned();
    let size = size::of(rendered);
    let message = format!(
        "{size} bytes of at most {MAX_RENDERED_BYTES}; make files smaller, pack them (compression: gzip), or leave \
         large ones to a container image"
    );
    let finding = Finding { object: object(), path: String::new(), message };
    match size {
        n if n > MAX_RENDERED_BYTES => Err(finding),
        n if n > MAX_RENDERED_BYTES / 5 * 4 => Ok(Some(finding)),
        _ => Ok(None),
    }
}
