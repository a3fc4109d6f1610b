//! What a pool's rendering waits for: the ControllerConfig belongs to this version, and the MachineConfigs are up to date
//! with the templates and with the cluster's settings. Passes report what they reached; rendering asks.
//!
//! What it is not: the passes (nothing here holds a client or writes), or the gates of a RolloutPolicy (see `policies`).

use api::k8s::ResourceExt;
use api::names::CONTROLLER_CONFIG;
use api::names::annotation::{GENERATED_BY_CONTROLLER, GENERATED_BY_VERSION};
use api::names::own::RELEASED_VERSION;
use api::render_reason::RenderReason;
use api::v1::{ControllerConfig, MachineConfig, MachineConfigPool};
use client::merge_patch::difference;
use serde_json::json;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::time::Instant;

const WAIT_FOR_TEMPLATES: Prerequisite =
    Prerequisite::Wait("the MachineConfigs from templates are being written");
const WAIT_FOR_SETTINGS: Prerequisite =
    Prerequisite::Wait("the MachineConfigs from the cluster's settings are being written");

/// Whether one prerequisite lets a pool be rendered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Prerequisite {
    /// It does.
    Met,
    /// Something is still on its way; its arrival makes the pool dirty again.
    Wait(&'static str),
    /// It does not, for a reason that the pool's condition shows.
    Refuse {
        /// The condition's reason.
        reason: RenderReason,
        /// Its message.
        message: String,
    },
}

/// All prerequisites.
#[derive(Debug, Default)]
pub(crate) struct RenderPrerequisites {
    /// Which version the ControllerConfig belongs to.
    pub(crate) version: VersionPrerequisite,
    /// What the templates produce.
    pub(crate) templates: TemplatesPrerequisite,
    /// Whether what is generated from settings is up to date.
    pub(crate) settings: SettingsPrerequisite,
}

/// Which version the ControllerConfig belongs to: the history of its annotation `generated-by-version` in this term.
/// Only a controller of that version renders, so that the inputs of two versions never mix (see
/// `passes::templates`).
#[derive(Debug, Default)]
pub(crate) struct VersionPrerequisite(Mutex<ClaimHistory>);

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct ClaimHistory {
    /// How often we have taken it over, and when last.
    pub(crate) taken: Option<(u32, Instant)>,
    /// Why it is not ours now, for the pools' condition.
    pub(crate) why: Option<String>,
    /// Since when the operator has not released this version for rendering, as far as this term knows.
    pub(crate) held: Option<Instant>,
}

/// The version that the operator has released for rendering, if it is not this one. Its parts are still being rolled out.
pub(crate) fn released_for_another<'a>(config: &'a ControllerConfig, version: &str) -> Option<&'a str> {
    config.annotations().get(RELEASED_VERSION).map(String::as_str).filter(|released| *released != version)
}

/// The version in the annotation, if it is not this one.
pub(crate) fn generated_by_another<'a>(config: &'a ControllerConfig, version: &str) -> Option<&'a str> {
    config.annotations().get(GENERATED_BY_VERSION).map(String::as_str).filter(|found| *found != version)
}

impl VersionPrerequisite {
    pub(crate) fn claims(&self) -> ClaimHistory {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(crate) fn set(&self, past: ClaimHistory) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = past;
    }

    /// Forgets the history at the start of a term: whoever wrote before may be gone.
    pub(crate) fn forget(&self) {
        self.set(ClaimHistory::default());
    }

    /// Whether this version may render pools from this ControllerConfig.
    pub(crate) fn check(&self, config: &ControllerConfig, version: &str) -> Prerequisite {
        match (
            released_for_another(config, version).or(generated_by_another(config, version)),
            self.claims().why,
        ) {
            (None, None) => Prerequisite::Met,
            (Some(_), None) if released_for_another(config, version).is_some() => {
                Prerequisite::Wait("the operator is rolling out the other parts of this version")
            }
            (Some(_), None) => {
                Prerequisite::Wait("the controller is writing its version to the ControllerConfig")
            }
            (_, Some(message)) => Prerequisite::Refuse { reason: RenderReason::VersionSkew, message },
        }
    }
}

/// The result of the template pass in this term.
#[derive(Debug, Clone, Default)]
enum State {
    /// Nothing yet.
    #[default]
    Unknown,
    /// The templates cannot be rendered, and why.
    Failing(String),
    /// They produce these.
    Made(Arc<Made>),
}

/// What the templates produce from one ControllerConfig.
#[derive(Debug, Clone, Default)]
struct Made {
    /// The ControllerConfig's uid and generation.
    of: (Option<String>, Option<i64>),
    /// The MachineConfigs as they should be stored.
    wanted: Vec<MachineConfig>,
    /// By MachineConfig: why it cannot be written, in the API server's words.
    refused: BTreeMap<String, String>,
}

/// What the templates produce, and whether the MachineConfigs of a pool are stored like that. A pool is not rendered
/// from a template's MachineConfig that somebody has just changed or deleted: its nodes would go to that config, and
/// then back. The template pass reports what the templates produce and which of it the API server refuses.
#[derive(Debug, Default)]
pub(crate) struct TemplatesPrerequisite(Mutex<State>);

fn id(config: &ControllerConfig) -> (Option<String>, Option<i64>) {
    (config.metadata.uid.clone(), config.metadata.generation)
}

impl TemplatesPrerequisite {
    fn set(&self, state: State) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = state;
    }

    fn get(&self) -> State {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Forgets the result: another leader may have had other templates.
    pub(crate) fn forget(&self) {
        self.set(State::Unknown);
    }

    /// Records that the templates cannot be rendered. Returns whether that is new.
    pub(crate) fn failing(&self, why: &str) -> bool {
        let known = matches!(self.get(), State::Failing(known) if known == why);
        self.set(State::Failing(why.to_owned()));
        !known
    }

    /// Records what the templates produce. Returns whether that differs from before.
    pub(crate) fn record_produced(&self, config: &ControllerConfig, wanted: &[MachineConfig]) -> bool {
        let refused = match self.get() {
            State::Made(made) if made.of == id(config) && made.wanted == wanted => return false,
            // A refusal is reported until it is known to be over.
            State::Made(made) => made.refused.clone(),
            State::Unknown | State::Failing(_) => BTreeMap::new(),
        };
        self.set(State::Made(Arc::new(Made { of: id(config), wanted: wanted.to_vec(), refused })));
        true
    }

    /// Records which of it cannot be written. Returns whether that differs from before.
    pub(crate) fn refused(&self, refused: BTreeMap<String, String>) -> bool {
        let State::Made(made) = self.get() else { return false };
        let new = made.refused != refused;
        if new {
            self.set(State::Made(Arc::new(Made { refused, ..Made::clone(&made) })));
        }
        new
    }

    /// Whether the templates produce a MachineConfig of this name.
    pub(crate) fn produces(&self, name: &str) -> bool {
        matches!(self.get(), State::Made(made) if made.wanted.iter().any(|w| w.name_any() == name))
    }

    /// Whether this pool may be rendered from what is stored.
    pub(crate) fn check(
        &self,
        config: &ControllerConfig,
        pool: &MachineConfigPool,
        standing: &[&MachineConfig],
    ) -> Prerequisite {
        match self.get() {
            State::Unknown => WAIT_FOR_TEMPLATES,
            State::Failing(why) => Prerequisite::Refuse {
                reason: RenderReason::TemplatesFailing,
                message: format!("templates: {why}"),
            },
            State::Made(made) if made.of != id(config) => WAIT_FOR_TEMPLATES,
            State::Made(made) => made.check(pool, standing),
        }
    }
}

impl Made {
    fn check(&self, pool: &MachineConfigPool, standing: &[&MachineConfig]) -> Prerequisite {
        let selector = pool.spec.machine_config_selector.as_ref();
        // A selector that cannot be evaluated is reported by the selection itself.
        let selects = |config: &MachineConfig| {
            api::formats::selector::matches(selector, config.metadata.labels.as_ref()).unwrap_or(false)
        };
        let find = |name: Option<&String>| standing.iter().find(|c| c.metadata.name.as_ref() == name);
        let off = self.wanted.iter().filter(|wanted| {
            let have = find(wanted.metadata.name.as_ref());
            let concerned = selects(wanted) || have.is_some_and(|have| selects(have));
            concerned && !have.is_some_and(|have| is_stored_as(have, wanted))
        });
        let leaving = no_longer_produced(&self.wanted, standing).into_iter().filter(|have| selects(have));
        let mut names = off.chain(leaving).map(ResourceExt::name_any).peekable();
        if names.peek().is_none() {
            return Prerequisite::Met;
        }
        let refused = names.find_map(|name| self.refused.get(&name));
        refused.map_or(WAIT_FOR_TEMPLATES, |why| Prerequisite::Refuse {
            reason: RenderReason::Refused,
            message: why.clone(),
        })
    }
}

/// Whether it is stored as it should be. `wanted` has its own digest, as it is to be stored.
pub(crate) fn is_stored_as(have: &MachineConfig, wanted: &MachineConfig) -> bool {
    let fixed = with_our_fields(have, wanted);
    // Equal values have equal JSON, and comparing the values takes a fraction of the time.
    fixed == *have || difference(&json!(have), &json!(fixed)).is_none()
}

/// The stored object with our fields restored. Labels and annotations of others stay.
pub(crate) fn with_our_fields(have: &MachineConfig, wanted: &MachineConfig) -> MachineConfig {
    let mut fixed = have.clone();
    fixed.spec = wanted.spec.clone();
    fixed.labels_mut().extend(wanted.labels().clone());
    fixed.annotations_mut().extend(wanted.annotations().clone());
    fixed.metadata.owner_references.clone_from(&wanted.metadata.owner_references);
    fixed
}

/// MachineConfigs that the templates no longer produce: owned by the ControllerConfig and marked as made by a
/// controller. If somebody removed the owner or the mark, the object is theirs and stays.
pub(crate) fn no_longer_produced<'a>(
    wanted: &[MachineConfig],
    standing: &[&'a MachineConfig],
) -> Vec<&'a MachineConfig> {
    let made = |config: &&MachineConfig| {
        let mark = config.annotations().get(GENERATED_BY_CONTROLLER);
        is_from_template(config) && mark.is_some_and(|mark| !mark.is_empty())
    };
    let wants = |config: &MachineConfig| wanted.iter().any(|w| w.metadata.name == config.metadata.name);
    standing.iter().copied().filter(made).filter(|config| !wants(config)).collect()
}

/// Whether the template pass made it: the ControllerConfig owns it.
pub(crate) fn is_from_template(object: &MachineConfig) -> bool {
    let mut owners = object.metadata.owner_references.iter().flatten();
    owners.any(|o| o.controller == Some(true) && o.kind == "ControllerConfig" && o.name == CONTROLLER_CONFIG)
}

/// How long rendering waits for settings that keep changing. After that it renders from what is stored, because
/// somebody may be overwriting the generated MachineConfigs again and again.
const PATIENCE: Duration = Duration::from_secs(30);

/// How far the stored MachineConfigs are up to date with the cluster's settings, so that no pool is rendered from half
/// of them. The pass that generates them (`passes::generated`) settles it.
#[derive(Debug)]
pub(crate) struct SettingsPrerequisite {
    /// Counts changes of settings.
    changes: AtomicU64,
    /// The count of changes that the stored MachineConfigs were made from.
    settled: AtomicU64,
    /// Why a pool cannot have the settings that select it.
    refused: Mutex<BTreeMap<String, String>>,
    /// Since when they are out of date, if they were up to date before.
    behind: Mutex<Option<Instant>>,
    /// When this term began.
    started: Mutex<Instant>,
}

impl Default for SettingsPrerequisite {
    fn default() -> Self {
        // Nothing is settled before the first pass.
        let (changes, settled) = (AtomicU64::new(1), AtomicU64::new(0));
        let (refused, behind) = (Mutex::default(), Mutex::default());
        Self { changes, settled, refused, behind, started: Mutex::new(Instant::now()) }
    }
}

impl SettingsPrerequisite {
    /// A term begins. Another leader may have written since, so results and refusals of earlier terms no longer count.
    pub(crate) fn begin(&self) {
        // This comes first: nothing is settled any more, whatever else is reset below.
        self.settled.store(0, Ordering::Release);
        self.refused.lock().unwrap_or_else(PoisonError::into_inner).clear();
        *self.behind.lock().unwrap_or_else(PoisonError::into_inner) = None;
        *self.started.lock().unwrap_or_else(PoisonError::into_inner) = Instant::now();
    }

    pub(crate) fn age(&self) -> Duration {
        self.started.lock().unwrap_or_else(PoisonError::into_inner).elapsed()
    }

    /// Settings have changed: what is stored is out of date until a pass settles it.
    pub(crate) fn mark_outdated(&self) {
        self.behind.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert_with(Instant::now);
        self.changes.fetch_add(1, Ordering::AcqRel);
    }

    pub(crate) fn count(&self) -> u64 {
        self.changes.load(Ordering::Acquire)
    }

    /// Records that the stored MachineConfigs match the settings as they were at `count`, except for what is refused.
    pub(crate) fn settle(&self, count: u64, refused: BTreeMap<String, String>) {
        *self.refused.lock().unwrap_or_else(PoisonError::into_inner) = refused;
        let mut behind = self.behind.lock().unwrap_or_else(PoisonError::into_inner);
        self.settled.store(count, Ordering::Release);
        if count == self.count() {
            *behind = None;
        }
    }

    /// Whether this pool may be rendered now.
    pub(crate) fn check(&self, pool: &str) -> Prerequisite {
        let settled = self.settled.load(Ordering::Acquire);
        if settled != self.count() {
            let behind = *self.behind.lock().unwrap_or_else(PoisonError::into_inner);
            if settled == 0 || behind.is_none_or(|since| since.elapsed() < PATIENCE) {
                return WAIT_FOR_SETTINGS;
            }
        }
        let refused = self.refused.lock().unwrap_or_else(PoisonError::into_inner);
        refused.get(pool).map_or(Prerequisite::Met, |why| Prerequisite::Refuse {
            reason: RenderReason::SettingsRefused,
            message: why.clone(),
        })
    }
}

#[cfg(test)]
mod tests;
