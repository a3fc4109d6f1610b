//! Which MachineConfigs the templates produce, and whether those of a pool are stored like that. A pool is not rendered
//! from a template's MachineConfig that somebody has just changed or deleted: its nodes would go to that config, and
//! then back.
//!
//! Flow: the template pass reports what the templates produce ([`TemplateGate::made`]) and which of it the API server
//! refuses; the render pass asks for one pool ([`TemplateGate::may`]).
//!
//! What it is not: the writes (see `passes::templates`), or what is generated from settings (see `gates::settings`).

use crate::flight::own_config::is_as;
use crate::gates::RenderGate;
use api::k8s::ResourceExt;
use api::names::{CONTROLLER_CONFIG, annotation, label};
use api::render_reason::RenderReason;
use api::v1::{ControllerConfig, MachineConfig, MachineConfigPool};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};

const WAIT: RenderGate = RenderGate::Wait("the MachineConfigs from templates are being written");

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

/// The gate; see the module's text.
#[derive(Debug, Default)]
pub(crate) struct TemplateGate(Mutex<State>);

fn id(config: &ControllerConfig) -> (Option<String>, Option<i64>) {
    (config.metadata.uid.clone(), config.metadata.generation)
}

impl TemplateGate {
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
    pub(crate) fn made(&self, config: &ControllerConfig, wanted: &[MachineConfig]) -> bool {
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
    pub(crate) fn makes(&self, name: &str) -> bool {
        matches!(self.get(), State::Made(made) if made.wanted.iter().any(|w| w.name_any() == name))
    }

    /// Whether this pool may be rendered from what is stored.
    pub(crate) fn check(
        &self,
        config: &ControllerConfig,
        pool: &MachineConfigPool,
        standing: &[&MachineConfig],
    ) -> RenderGate {
        match self.get() {
            State::Unknown => WAIT,
            State::Failing(why) => RenderGate::Refuse {
                reason: RenderReason::TemplatesFailing,
                message: format!("templates: {why}"),
            },
            State::Made(made) if made.of != id(config) => WAIT,
            State::Made(made) => made.check(pool, standing),
        }
    }
}

impl Made {
    fn check(&self, pool: &MachineConfigPool, standing: &[&MachineConfig]) -> RenderGate {
        let selector = pool.spec.machine_config_selector.as_ref();
        // A selector that cannot be evaluated is reported by the selection itself.
        let selects = |config: &MachineConfig| {
            api::selector::matches(selector, config.metadata.labels.as_ref()).unwrap_or(false)
        };
        let find = |name: Option<&String>| standing.iter().find(|c| c.metadata.name.as_ref() == name);
        let off = self.wanted.iter().filter(|wanted| {
            let have = find(wanted.metadata.name.as_ref());
            let concerned = selects(wanted) || have.is_some_and(|have| selects(have));
            concerned && !have.is_some_and(|have| is_as(have, wanted))
        });
        let leaving = leaving(&self.wanted, standing).into_iter().filter(|have| selects(have));
        let mut names = off.chain(leaving).map(ResourceExt::name_any).peekable();
        if names.peek().is_none() {
            return RenderGate::Open;
        }
        let refused = names.find_map(|name| self.refused.get(&name));
        refused.map_or(WAIT, |why| RenderGate::Refuse { reason: RenderReason::Refused, message: why.clone() })
    }
}

/// MachineConfigs that the templates no longer produce: owned by the ControllerConfig and marked as made by a
/// controller. If somebody removed the owner or the mark, the object is theirs and stays.
pub(crate) fn leaving<'a>(
    wanted: &[MachineConfig],
    standing: &[&'a MachineConfig],
) -> Vec<&'a MachineConfig> {
    let made = |config: &&MachineConfig| {
        let mark = config.annotations().get(annotation::GENERATED_BY_CONTROLLER);
        is_from_template(config) && mark.is_some_and(|mark| !mark.is_empty())
    };
    let wants = |config: &MachineConfig| wanted.iter().any(|w| w.metadata.name == config.metadata.name);
    standing.iter().copied().filter(made).filter(|config| !wants(config)).collect()
}

/// Of the MachineConfigs to delete, those of roles that have no template left at all. That is more likely a folder that
/// was not mounted, or is being copied, than somebody's intent; and all nodes of the role would lose their files.
pub(crate) fn emptied(wanted: &[MachineConfig], leaving: &[&MachineConfig]) -> Vec<String> {
    let role = |config: &MachineConfig| config.labels().get(label::ROLE).cloned();
    let kept: BTreeSet<_> = wanted.iter().map(role).collect();
    leaving.iter().filter(|config| !kept.contains(&role(config))).map(|config| config.name_any()).collect()
}

/// Whether the template pass made it: the ControllerConfig owns it.
pub(crate) fn is_from_template(object: &MachineConfig) -> bool {
    let mut owners = object.metadata.owner_references.iter().flatten();
    owners.any(|o| o.controller == Some(true) && o.kind == "ControllerConfig" && o.name == CONTROLLER_CONFIG)
}

#[cfg(test)]
mod tests {
    use super::*;
    use api::names::label;
    use serde_json::json;

    fn config(generation: i64) -> ControllerConfig {
        let mut config = ControllerConfig::new(CONTROLLER_CONFIG, api::v1::ControllerConfigSpec::default());
        config.metadata.generation = Some(generation);
        config
    }

    fn template(name: &str, role: &str) -> MachineConfig {
        serde_json::from_value(json!({
            "apiVersion": "machineconfiguration.openshift.io/v1", "kind": "MachineConfig",
            "metadata": {
                "name": name, "labels": {label::ROLE: role}, "annotations": {annotation::GENERATED_BY_CONTROLLER: "v1"},
                "ownerReferences": [{
                    "apiVersion": "v1", "kind": "ControllerConfig", "name": CONTROLLER_CONFIG, "uid": "c", "controller": true,
                }],
            },
            "spec": {"config": {"ignition": {"version": "3.5.0"}}},
        }))
        .unwrap()
    }

    fn pool(name: &str, roles: &[&str]) -> MachineConfigPool {
        serde_json::from_value(json!({
            "metadata": {"name": name},
            "spec": {"machineConfigSelector": {"matchExpressions": [
                {"key": label::ROLE, "operator": "In", "values": roles},
            ]}},
        }))
        .unwrap()
    }

    #[test]
    fn a_pool_is_rendered_only_from_templates_machine_configs_that_are_as_the_templates_say() {
        let wanted = vec![template("00-master", "master"), template("00-worker", "worker")];
        let (workers, infra) = (pool("worker", &["worker"]), pool("infra", &["worker", "infra"]));
        let masters = pool("master", &["master"]);
        let mut theirs = template("00-worker", "worker");
        theirs.labels_mut().insert("theirs".to_owned(), "x".to_owned());
        theirs.annotations_mut().insert("theirs".to_owned(), "x".to_owned());
        theirs.metadata.resource_version = Some("7".to_owned());
        let edit = |change: fn(&mut MachineConfig)| {
            let mut config = template("00-worker", "worker");
            change(&mut config);
            vec![template("00-master", "master"), config]
        };
        let gone = vec![template("00-master", "master")];
        let mut own = template("50-own", "worker");
        own.metadata.owner_references = None;
        let rows: [(&str, Vec<MachineConfig>, bool); 11] = [
            ("as they say", wanted.clone(), true),
            ("labels and annotations of others", vec![template("00-master", "master"), theirs], true),
            ("one of somebody's own", [wanted.clone(), vec![own]].concat(), true),
            ("deleted", gone, false),
            (
                "another config",
                edit(|c| c.spec.config = Some(json!({"ignition": {"version": "3.4.0"}}))),
                false,
            ),
            ("a kernel argument", edit(|c| c.spec.kernel_arguments = Some(vec!["quiet".to_owned()])), false),
            ("an image", edit(|c| c.spec.os_image_url = "i".to_owned()), false),
            (
                "another role",
                edit(|c| drop(c.labels_mut().insert(label::ROLE.to_owned(), "x".to_owned()))),
                false,
            ),
            ("without its mark", edit(|c| c.annotations_mut().clear()), false),
            ("without its owner", edit(|c| c.metadata.owner_references = None), false),
            (
                "of a folder that is gone",
                [wanted.clone(), vec![template("02-worker", "worker")]].concat(),
                false,
            ),
        ];
        for (about, standing, fine) in rows {
            let standing: Vec<&MachineConfig> = standing.iter().collect();
            let all = TemplateGate::default();
            assert_eq!(all.check(&config(1), &workers, &standing), WAIT, "{about}: nothing is known");
            assert!(all.made(&config(1), &wanted) && !all.made(&config(1), &wanted));
            for pool in [&workers, &infra] {
                let want = if fine { RenderGate::Open } else { WAIT };
                assert_eq!(all.check(&config(1), pool, &standing), want, "{about}");
            }
            assert_eq!(all.check(&config(1), &masters, &standing), RenderGate::Open, "{about}: another pool");
            assert_eq!(all.check(&config(2), &masters, &standing), WAIT, "{about}: another ControllerConfig");
            let names = ["00-worker", "02-worker"].map(|n| (n.to_owned(), "no".to_owned()));
            assert!(all.refused(names.clone().into()) && !all.refused(names.into()));
            let want = if fine {
                RenderGate::Open
            } else {
                RenderGate::Refuse { reason: RenderReason::Refused, message: "no".to_owned() }
            };
            assert_eq!(all.check(&config(1), &workers, &standing), want, "{about}");
            assert_eq!(all.check(&config(1), &masters, &standing), RenderGate::Open, "{about}: another pool");
            assert!(all.failing("why") && !all.failing("why"));
            assert_eq!(
                all.check(&config(1), &masters, &standing),
                RenderGate::Refuse {
                    reason: RenderReason::TemplatesFailing,
                    message: "templates: why".to_owned()
                }
            );
            all.forget();
            assert_eq!(all.check(&config(1), &masters, &standing), WAIT);
        }
    }

    #[test]
    fn only_what_the_templates_have_made_and_make_no_more_is_to_go() {
        let wanted = [template("00-worker", "worker")];
        let mut own = template("50-own", "worker");
        own.metadata.owner_references = None;
        let mut taken = template("51-taken", "worker");
        taken.annotations_mut().clear();
        let mut kubelet = template("99-worker-generated-kubelet", "worker");
        kubelet
            .metadata
            .owner_references
            .iter_mut()
            .flatten()
            .for_each(|o| o.kind = "KubeletConfig".to_owned());
        let mut old = template("01-worker-old", "worker");
        old.annotations_mut().insert(annotation::GENERATED_BY_CONTROLLER.to_owned(), "v0".to_owned());
        let standing = [&wanted[0], &own, &taken, &kubelet, &old];
        let going = leaving(&wanted, &standing);
        let names: Vec<_> = going.iter().map(|c| c.name_any()).collect();
        assert_eq!(names, ["01-worker-old"]);
        // One of several may go. The last ones of a role stay until somebody confirms it.
        assert!(emptied(&wanted, &going).is_empty());
        let masters = [template("00-master", "master"), template("01-master-kubelet", "master")];
        let all = [&wanted[0], &masters[0], &masters[1]];
        assert_eq!(emptied(&wanted, &all), ["00-master", "01-master-kubelet"]);
        assert_eq!(emptied(&[], &all).len(), 3);
    }
}
