//! Turns templates into MachineConfigs: which files of a template folder apply on this platform, in which order, and
//! which MachineConfigs they make. Pure: a template set is a map of relative paths to texts.
//!
//! What it is not: what a template can refer to (see `data`).
//!
//! Layers: those of the platform (see `platform`), then those that the ControllerConfig's annotation
//! `machineconfiguration.openshift.io/template-layers` names.
//!
//! Layout: `ROLE/NAME/LAYER/{files,units,extensions}/FILE` and `common/LAYER/{files,units,extensions}/FILE`. The
//! MachineConfig `NAME` gets the role's label. The first name of each role also takes what is in `common`.
//!
//! Source: <https://github.com/openshift/machine-config-operator/blob/HEAD/docs/MachineConfigController.md> (the layout of the folder).

pub(crate) mod data;
mod functions;
mod platform;

use crate::template::data::Data;
use crate::template::platform::Platform;
use crate::version::Versions;
use api::k8s::OwnerReference;
use api::names::{ARBITER, CONTROLLER_CONFIG, GROUP, WORKER, annotation, label};
use api::topology::ControlPlaneTopology;
use api::v1::{MachineConfig, MachineConfigSpec};
use ignition::Config;
use serde_json::{Map, Value, json};
use std::cell::OnceCell;
use std::collections::{BTreeMap, BTreeSet};

/// Templates by their place in the folder.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TemplateSet {
    files: BTreeMap<Place, String>,
}

/// The place of a template, ordered as MachineConfigs are made.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Place {
    /// A role, or `common`.
    role: String,
    /// The MachineConfig; empty in `common`.
    name: String,
    layer: String,
    section: Section,
    file: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Section {
    Files,
    Units,
    Extensions,
}

/// The role whose templates apply to every role.
const COMMON: &str = "common";

/// A template that cannot be turned into a MachineConfig.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("template {path}: {message}")]
pub struct TemplateError {
    /// The template's relative path.
    pub path: String,
    /// What is wrong.
    pub message: String,
}

impl Place {
    fn read(path: &str) -> Option<Self> {
        let parts: Vec<&str> = path.split('/').filter(|p| !p.is_empty() && *p != ".").collect();
        let (role, name, layer, section, file) = match parts.as_slice() {
            [COMMON, layer, section, file] => (COMMON, "", layer, section, file),
            [role, name, layer, section, file] if *role != COMMON => (*role, *name, layer, section, file),
            _ => return None,
        };
        let section = match *section {
            "files" => Section::Files,
            "units" => Section::Units,
            "extensions" => Section::Extensions,
            _ => return None,
        };
        let [role, name, layer, file] = [role, name, layer, file].map(str::to_owned);
        Some(Self { role, name, layer, section, file })
    }

    fn path(&self) -> String {
        let section = match self.section {
            Section::Files => "files",
            Section::Units => "units",
            Section::Extensions => "extensions",
        };
        let parts = [self.role.as_str(), &self.name, &self.layer, section, &self.file];
        parts.into_iter().filter(|p| !p.is_empty()).collect::<Vec<_>>().join("/")
    }
}

impl TemplateSet {
    /// A set from relative paths and texts. Files that are not in the place of a template are left out.
    pub fn from_map(files: impl IntoIterator<Item = (String, String)>) -> Self {
        let places = files.into_iter().filter_map(|(path, text)| Some((Place::read(&path)?, text)));
        Self { files: places.collect() }
    }

    /// Whether there is no template at all.
    pub fn is_empty(&self) -> bool {
        self.files.is_empty()
    }

    /// The roles that have templates of their own.
    fn roles(&self) -> BTreeSet<&str> {
        self.files.keys().map(|p| p.role.as_str()).filter(|r| *r != COMMON).collect()
    }

    /// The layers that have templates.
    fn layers(&self) -> BTreeSet<&str> {
        self.files.keys().map(|p| p.layer.as_str()).collect()
    }

    /// The names of a role's MachineConfigs.
    fn names(&self, role: &str) -> BTreeSet<&str> {
        self.files.keys().filter(|p| p.role == role).map(|p| p.name.as_str()).collect()
    }

    /// The template in force for each file name: later layers override earlier ones, and an empty file removes the
    /// file.
    fn collect(&self, role: &str, name: &str, layers: &[String]) -> BTreeMap<(Section, String), &Place> {
        let mut chosen = BTreeMap::new();
        let first = self.names(role).first().copied() == Some(name);
        let common = layers.iter().filter(|_| first).map(|l| (COMMON, "", l));
        for (role, name, layer) in common.chain(layers.iter().map(|l| (role, name, l))) {
            for (place, text) in &self.files {
                if (place.role.as_str(), place.name.as_str(), &place.layer) != (role, name, layer) {
                    continue;
                }
                let key = (place.section, place.file.clone());
                if text.is_empty() {
                    chosen.remove(&key);
                } else {
                    chosen.insert(key, place);
                }
            }
        }
        chosen
    }
}

/// A set of templates, and what they are rendered with. Each role is rendered once, when it is first needed, however
/// many pools use it.
pub struct Rendering<'a> {
    set: &'a TemplateSet,
    data: Data<'a>,
    engine: OnceCell<(minijinja::Environment<'static>, minijinja::Value)>,
    roles: BTreeMap<String, OnceCell<Result<Vec<RenderedTemplate>, TemplateError>>>,
}

/// What one folder of templates makes: a MachineConfig without its role label.
#[derive(Debug)]
pub(crate) struct RenderedTemplate {
    /// The MachineConfig's name.
    name: String,
    /// Its files and units.
    pub(crate) config: Config,
    /// Its extensions.
    extensions: Vec<String>,
}

#[cfg(test)]
impl RenderedTemplate {
    /// The content of a MachineConfig, as if a template had made it.
    pub(crate) fn of(mc: &MachineConfig) -> Self {
        let config = ignition::parse_value(mc.spec.config.as_ref().unwrap()).unwrap().config;
        Self { name: mc.metadata.name.clone().unwrap_or_default(), config, extensions: Vec::new() }
    }
}

impl std::fmt::Debug for Rendering<'_> {
    /// Leaves out the engine, which knows the pull secret.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { set, data, engine: _, roles } = self;
        let roles: Vec<&String> = roles.iter().filter(|(_, r)| r.get().is_some()).map(|(r, _)| r).collect();
        let templates = set.files.len();
        f.debug_struct("Rendering")
            .field("templates", &templates)
            .field("data", data)
            .field("done", &roles)
            .finish()
    }
}

impl<'a> Rendering<'a> {
    /// Creates a rendering; nothing is rendered yet.
    pub fn new(set: &'a TemplateSet, data: Data<'a>) -> Self {
        let roles = set.roles().into_iter().chain([WORKER]);
        let roles = roles.map(|role| (role.to_owned(), OnceCell::new())).collect();
        Self { set, data, engine: OnceCell::new(), roles }
    }

    /// What the templates are rendered with.
    pub fn data(&self) -> &Data<'a> {
        &self.data
    }

    /// What the templates make for a role. A role without templates of its own uses those of `worker`.
    pub(crate) fn role(&self, role: &str) -> Result<&[RenderedTemplate], TemplateError> {
        let Some((folder, cell)) =
            self.roles.get_key_value(role).or_else(|| self.roles.get_key_value(WORKER))
        else {
            return Ok(&[]);
        };
        cell.get_or_init(|| self.render(folder)).as_deref().map_err(Clone::clone)
    }

    fn render(&self, folder: &str) -> Result<Vec<RenderedTemplate>, TemplateError> {
        let Self { set, data, .. } = self;
        let (environment, context) =
            self.engine.get_or_init(|| (data::environment(data), data::context(data)));
        let layers = layers(set, data)?;
        let part = |name: &str| {
            let (config, extensions) = machine_config(set, folder, name, &layers, environment, context)?;
            Ok(RenderedTemplate { name: name.to_owned(), config, extensions })
        };
        set.names(folder).into_iter().map(part).collect()
    }
}

/// The MachineConfigs of all roles, by name.
///
/// # Errors
/// A template that does not render, or does not make a valid file or unit.
pub fn generate(templates: &Rendering<'_>, versions: &Versions) -> Result<Vec<MachineConfig>, TemplateError> {
    let mut all = Vec::new();
    let topology = templates.data.controller_config.spec.topology();
    for role in templates.set.roles() {
        if role != ARBITER || topology == Some(ControlPlaneTopology::HighlyAvailableArbiter) {
            all.extend(generate_role(templates, versions, role)?);
        }
    }
    all.sort_by(|a, b| a.metadata.name.cmp(&b.metadata.name));
    Ok(all)
}

/// The MachineConfigs of one role. A role without templates of its own uses those of `worker`, under its own label.
///
/// # Errors
/// As [`generate`].
pub fn generate_role(
    templates: &Rendering<'_>,
    versions: &Versions,
    role: &str,
) -> Result<Vec<MachineConfig>, TemplateError> {
    let machine_config = |part: &RenderedTemplate| {
        let spec = MachineConfigSpec {
            config: Some(part.config.to_value().map_err(|e| error(&part.name, e))?),
            extensions: Some(part.extensions.clone()).filter(|e| !e.is_empty()),
            ..MachineConfigSpec::default()
        };
        Ok(labelled(&part.name, role, spec, &templates.data, versions))
    };
    templates.role(role)?.iter().map(machine_config).collect()
}

/// The layers in force: those of the platform, then those that the administrator chose.
fn layers(set: &TemplateSet, data: &Data<'_>) -> Result<Vec<String>, TemplateError> {
    let mut layers = Platform::of(&data.controller_config.spec).layers();
    for layer in data::chosen_layers(data.controller_config) {
        let known = set.layers();
        if !known.contains(layer.as_str()) {
            let known: Vec<&str> = known.into_iter().collect();
            let message = format!(
                "ControllerConfig {CONTROLLER_CONFIG}: metadata.annotations[{}]: no template is in a folder \
                 {layer:?}; the folders are {}",
                annotation::TEMPLATE_LAYERS,
                known.join(", ")
            );
            return Err(error("layers", message));
        }
        if !layers.contains(&layer) {
            layers.push(layer);
        }
    }
    Ok(layers)
}

fn labelled(
    name: &str,
    role: &str,
    spec: MachineConfigSpec,
    data: &Data<'_>,
    versions: &Versions,
) -> MachineConfig {
    let mut mc = MachineConfig::new(name, spec);
    mc.metadata.labels = Some(BTreeMap::from([(label::ROLE.to_owned(), role.to_owned())]));
    mc.metadata.annotations =
        Some(BTreeMap::from([(annotation::GENERATED_BY_CONTROLLER.to_owned(), versions.hash.clone())]));
    mc.metadata.owner_references = Some(vec![OwnerReference {
        api_version: format!("{GROUP}/v1"),
        kind: "ControllerConfig".to_owned(),
        name: data.controller_config.metadata.name.clone().unwrap_or_else(|| CONTROLLER_CONFIG.to_owned()),
        uid: data.controller_config.metadata.uid.clone().unwrap_or_default(),
        controller: Some(true),
        block_owner_deletion: Some(true),
    }]);
    mc
}

fn error(path: impl Into<String>, e: impl std::fmt::Display) -> TemplateError {
    TemplateError { path: path.into(), message: e.to_string() }
}

fn machine_config(
    set: &TemplateSet,
    role: &str,
    name: &str,
    layers: &[String],
    environment: &minijinja::Environment<'_>,
    context: &minijinja::Value,
) -> Result<(Config, Vec<String>), TemplateError> {
    let mut config = ignition::empty();
    let mut extensions = Vec::new();
    for ((section, file), place) in set.collect(role, name, layers) {
        let path = place.path();
        let source = set.files.get(place).map(String::as_str).unwrap_or_default();
        // The error chain contains the template's line. The context is left out, because it holds the pull secret.
        let text = environment
            .render_named_str(&path, source, context.clone())
            .map_err(|e| error(&path, data::describe(&e)))?;
        if text.trim().is_empty() {
            continue;
        }
        if section == Section::Extensions {
            extensions.push(file);
            continue;
        }
        let fragment: Map<String, Value> =
            api::formats::yaml::from_str(&text).map_err(|e| error(&path, e))?;
        let part = match section {
            Section::Files => json!({"storage": {"files": [self::file(&path, fragment)?]}}),
            Section::Units | Section::Extensions => json!({"systemd": {"units": [fragment]}}),
        };
        config = ignition::merge(config, read(&path, part)?);
    }
    Ok((config, extensions))
}

/// A file's fragment, with its inline text turned into a source.
fn file(path: &str, mut fragment: Map<String, Value>) -> Result<Value, TemplateError> {
    let resources = |v: &mut Value| match v {
        Value::Array(all) => all.iter_mut().try_for_each(|r| inline(path, r)),
        one => inline(path, one),
    };
    for key in ["contents", "append"] {
        fragment.get_mut(key).map(resources).transpose()?;
    }
    fragment.insert("overwrite".to_owned(), Value::Bool(true));
    Ok(Value::Object(fragment))
}

fn inline(path: &str, resource: &mut Value) -> Result<(), TemplateError> {
    let Some(map) = resource.as_object_mut() else { return Ok(()) };
    let Some(text) = map.remove("inline") else { return Ok(()) };
    let Value::String(text) = text else { return Err(error(path, "contents.inline: must be a string")) };
    if map.contains_key("source") {
        return Err(error(path, "contents: give inline or source, not both"));
    }
    map.insert("source".to_owned(), Value::String(ignition::data_url::encode(text.as_bytes())));
    Ok(())
}

/// Parses a fragment strictly: in templates an unknown field is a mistake.
fn read(path: &str, mut part: Value) -> Result<Config, TemplateError> {
    if let Some(map) = part.as_object_mut() {
        map.insert("ignition".to_owned(), json!({"version": "3.0.0"}));
    }
    let parsed = ignition::parse_value(&part).map_err(|e| error(path, e))?;
    if let Some(warning) = parsed.warnings.first() {
        return Err(error(path, warning));
    }
    ignition::validate(&parsed.config).map_err(|e| error(path, e))?;
    Ok(parsed.config)
}
