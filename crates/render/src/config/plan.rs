//! Plans a pool's rendered config: selects its MachineConfigs, checks, merges and names them. Pure.
//!
//! What it is not: the rules of each step (see `check`, `merge`, `name`), or the resulting object (see `object`).

use crate::config::blame::{blame, mismatched_hashes};
use crate::config::check::{Checked, Component, validate_machine_config};
use crate::config::inputs::Inputs;
use crate::config::merge::{OsImages, merge, sort};
use crate::config::name::name;
use crate::config::object::{fits, largest, reference, rendered, store_provenance};
use crate::config::provenance::{self, Provenance};
use crate::config::reconcilable::reconcilable;
use crate::config::streams;
use crate::error::{Finding, Reason, RenderError, Rule};
use crate::version::{Mode, Versions};
use api::formats::selector;
use api::k8s::{ObjectMeta, ObjectReference, ResourceExt as _};
use api::names::annotation;
use api::v1::{ControllerConfig, MachineConfig, MachineConfigPool};

/// The objects to write.
#[derive(Debug, Clone, PartialEq)]
pub struct RenderPlan {
    /// The complete rendered MachineConfig: name, owner, annotations, spec.
    pub rendered: MachineConfig,
    /// The Ignition config in it, parsed.
    pub config: ignition::Config,
    /// The MachineConfigs that it was merged from, in merge order; for the pool's `configuration.source`.
    pub source: Vec<ObjectReference>,
    /// The origin of everything in it.
    pub provenance: Provenance,
    /// Things that have no effect or will not work.
    pub warnings: Vec<Finding>,
}

impl RenderPlan {
    /// The rendered MachineConfig's name.
    pub fn name(&self) -> &str {
        self.rendered.metadata.name.as_deref().unwrap_or_default()
    }
}

/// The MachineConfigs that a pool's selector selects, by name. An absent or empty selector selects none.
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
                let finding = Finding::on_pool(
                    Rule::Selector,
                    &pool.name_any(),
                    "spec.machineConfigSelector",
                    e.to_string(),
                );
                return Err(RenderError::one(&pool.name_any(), Reason::Selector, finding));
            }
        }
    }
    picked.sort_by(|a, b| a.metadata.name.cmp(&b.metadata.name));
    Ok(picked)
}

/// Renders a pool's MachineConfigs into one.
///
/// ```
/// use api::v1::{ControllerConfig, ControllerConfigSpec, MachineConfig, MachineConfigPool};
/// use render::{Inputs, Versions};
///
/// let pool: MachineConfigPool = api::formats::yaml::from_str(
///     "{metadata: {name: worker}, spec: {machineConfigSelector: {matchLabels: {role: worker}}}}",
/// )?;
/// let motd = |name: &str, text: &str| -> Result<MachineConfig, api::formats::yaml::YamlError> {
///     api::formats::yaml::from_str(&format!(
///         "metadata: {{name: {name}, labels: {{role: worker}}}}
/// spec:
///   config:
///     ignition: {{version: 3.4.0}}
///     storage:
///       files: [{{path: /etc/motd, mode: 0644, contents: {{source: 'data:,{text}'}}}}]"
///     ))
/// };
/// let all = [motd("50-hello", "hello")?, motd("60-welcome", "welcome")?];
///
/// let picked = render::select(&pool, &all)?;
/// let config = ControllerConfig::new("machine-config-controller", ControllerConfigSpec::default());
/// let versions = Versions::unknown();
/// let plan = render::plan(&Inputs::new(&pool, &picked, &config, &versions))?;
///
/// // The name follows from the content.
/// assert!(plan.name().starts_with("rendered-worker-"));
/// // Of two that set the same file the later name wins, and the plan says so.
/// let origin = plan.provenance.contested().next().ok_or("two set the file")?;
/// assert_eq!((origin.name.as_str(), origin.set_by.as_str()), ("/etc/motd", "60-welcome"));
///
/// // What cannot be rendered is refused with every object, path and remedy.
/// let refused = render::plan(&Inputs::new(&pool, &[], &config, &versions)).unwrap_err();
/// assert_eq!(refused.reason, render::Reason::NoConfigs);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
/// See [`Reason`]; every cause names its object and path.
pub fn plan(inputs: &Inputs<'_>) -> Result<RenderPlan, RenderError> {
    let checked = || inputs.configs.iter().map(|mc| validate_machine_config(mc));
    // Merging moves the parsed configs. A copy would cost every rendering, and only a refusal has a use for it.
    plan_checked(inputs, checked(), &|| checked().filter_map(Result::ok).collect())
}

/// As [`plan`], with the pool's MachineConfigs checked already, in any order. `components` returns them once more, to find
/// out which of them ask for what is refused.
pub(crate) fn plan_checked<'a>(
    inputs: &Inputs<'_>,
    checked: impl Iterator<Item = Checked<'a>>,
    components: &dyn Fn() -> Vec<Component<'a>>,
) -> Result<RenderPlan, RenderError> {
    let Inputs { pool, configs, controller_config, versions, stream, mode, .. } = *inputs;
    let pool_name = pool.name_any();
    let fail = |reason, findings| RenderError { pool: pool_name.clone(), reason, findings };
    if configs.is_empty() {
        let message = "no MachineConfig has labels that this selects";
        let finding = Finding::on_pool(Rule::Selector, &pool_name, "spec.machineConfigSelector", message)
            .with_remedy("label one, or correct the selector");
        return Err(fail(Reason::NoConfigs, vec![finding]));
    }
    if mode == Mode::Cluster {
        versions_agree(configs, controller_config, versions)
            .map_err(|f| fail(Reason::VersionSkew, vec![f]))?;
    }
    let (mut moved, mut warnings) = collect(checked, mode).map_err(|f| fail(Reason::Refused, f))?;
    sort(&mut moved);
    let order: Vec<&MachineConfig> = moved.iter().map(|c| c.machine_config).collect();
    let provenance = provenance::trace(&moved);
    let base = base_images(controller_config, stream.map(|s| &s.images));
    let merged = merge(moved, &base).map_err(|f| fail(Reason::Refused, vec![f]))?;
    let overridden = merged.spec.os_image_url != base.os;
    if overridden && pool.spec.os_image_stream.is_some() {
        let message = "a MachineConfig of this pool sets osImageURL";
        let finding = Finding::on_pool(Rule::OsImageStream, &pool_name, "spec.osImageStream", message)
            .with_remedy("remove that or the stream");
        return Err(fail(Reason::Refused, vec![finding]));
    }
    if overridden && !api::formats::image_name::is_by_digest(&merged.spec.os_image_url) {
        let by = order.iter().rev().find(|mc| mc.spec.os_image_url == merged.spec.os_image_url);
        let name = by.map(|mc| mc.name_any()).unwrap_or_default();
        warnings.push(Finding::on(
            Rule::OsImage,
            &name,
            "spec.osImageURL",
            "should name the image by digest (…@sha256:…)",
        ));
    }
    // For any other image, only a look into it could show whether it has runc.
    if let Some(stream) = stream.filter(|_| !overridden)
        && let Some(finding) = streams::missing_runtime(stream, &merged.config, &provenance)
    {
        return Err(fail(Reason::Refused, vec![finding]));
    }
    if mode == Mode::Cluster {
        let findings = mismatched_hashes(&merged.config, &provenance);
        if !findings.is_empty() {
            return Err(fail(Reason::Refused, findings));
        }
    }
    // A merge of valid configs can be invalid: for example a mode without contents, or a path below another config's
    // link.
    if let Err(errors) = ignition::validate(&merged.config) {
        let findings: Vec<Finding> =
            errors.0.into_iter().map(|e| blame(&merged.config, &provenance, &e)).collect();
        if mode == Mode::Cluster || overridden {
            return Err(fail(Reason::Refused, findings));
        }
        warnings.extend(findings);
    }
    let name = name(&pool_name, &merged.spec);
    let followed = reconcilable(inputs, &name, &merged, components);
    warnings.extend(followed.map_err(|(reason, f)| fail(reason, f))?);
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
    // Before there is a cluster, the output must be what the reference implementation writes.
    if mode == Mode::Cluster {
        store_provenance(&mut rendered, &provenance);
    }
    Ok(RenderPlan { rendered, config: merged.config, source, provenance, warnings })
}

/// All of them with their warnings, or every rule that one of them breaks.
fn collect<'a>(
    checked: impl Iterator<Item = Checked<'a>>,
    mode: Mode,
) -> Result<(Vec<Component<'a>>, Vec<Finding>), Vec<Finding>> {
    let (mut components, mut warnings, mut findings) = (Vec::new(), Vec::new(), Vec::new());
    for one in checked {
        match one {
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

fn base_images(controller_config: &ControllerConfig, stream: Option<&OsImages>) -> OsImages {
    let spec = &controller_config.spec;
    stream.cloned().unwrap_or_else(|| OsImages {
        os: spec.base_os_container_image.clone(),
        extensions: spec.base_os_extensions_container_image.clone().unwrap_or_default(),
    })
}

/// In the middle of an upgrade, inputs of two versions would mix. Rendering waits until they agree.
fn versions_agree(
    configs: &[&MachineConfig],
    controller_config: &ControllerConfig,
    versions: &Versions,
) -> Result<(), Finding> {
    let annotation_of =
        |meta: &ObjectMeta, key: &str| meta.annotations.as_ref().and_then(|a| a.get(key).cloned());
    // The annotation is absent if there is no operator; then nothing can disagree.
    let by = annotation_of(&controller_config.metadata, annotation::GENERATED_BY_VERSION);
    if let Some(by) = by.filter(|by| *by != versions.raw) {
        let message = format!("is {by:?}, this controller is {:?}", versions.raw);
        let object = format!("ControllerConfig {}", controller_config.name_any());
        let path = format!("metadata.annotations[{}]", annotation::GENERATED_BY_VERSION);
        let finding = Finding::new(Rule::Version, object, path, message);
        return Err(finding.with_remedy("waiting for the operator to update it"));
    }
    for mc in configs {
        let by = annotation_of(&mc.metadata, annotation::GENERATED_BY_CONTROLLER).unwrap_or_default();
        if !by.is_empty() && by != versions.hash {
            let path = format!("metadata.annotations[{}]", annotation::GENERATED_BY_CONTROLLER);
            let message = format!(
                "is {by:?}, this controller is {:?}; waiting for it to be generated again",
                versions.hash
            );
            return Err(Finding::on(Rule::Version, &mc.name_any(), path, message).with_remedy(
                "if nothing generates it any more, delete it, or remove the annotation to keep it as your own",
            ));
        }
    }
    Ok(())
}
