//! KubeletConfigs and ContainerRuntimeConfigs of a cluster: which pools each selects, what it makes for them, and its
//! finalizers.
//!
//! What it is not: what such an object may say (see `kubelet_config`, `container_runtime`), how its MachineConfigs are named
//! (see `names`), and which MachineConfigs nothing needs any more (see `stale`).

pub(super) mod names;

use super::{Facts, GeneratedError, Inputs, ObjectPlan, Plan, Removal};
use crate::version::Mode;
use api::k8s::{LabelSelector, OwnerReference, ResourceExt as _};
use api::names::{GROUP, annotation};
use api::v1::MachineConfig;
use names::{name, numbers, parse};
use serde_json::Value;
use std::collections::BTreeSet;
use std::fmt;

/// A kind of object that selects pools and makes a MachineConfig for each.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// Settings of kubelets.
    KubeletConfig,
    /// Settings of container runtimes.
    ContainerRuntimeConfig,
}

impl Kind {
    /// The kind's name in the API.
    pub fn name(self) -> &'static str {
        match self {
            Self::KubeletConfig => "KubeletConfig",
            Self::ContainerRuntimeConfig => "ContainerRuntimeConfig",
        }
    }

    /// The word in the names of its MachineConfigs.
    fn word(self) -> &'static str {
        match self {
            Self::KubeletConfig => "kubelet",
            Self::ContainerRuntimeConfig => "containerruntime",
        }
    }

    fn base_name(self, pool: &str) -> String {
        format!("99-{pool}-generated-{}", self.word())
    }

    /// Whether this controller, or an older one, set this finalizer. Such finalizers name MachineConfigs, in very old
    /// clusters by uid.
    fn owns_finalizer(self, finalizer: &str) -> bool {
        let uid = finalizer.len() == 36 && finalizer.split('-').count() == 5;
        (finalizer.starts_with("99-") && finalizer.contains(self.word())) || uid
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The part of an object that decides about its name and its pools.
struct Object<'a, T> {
    name: &'a str,
    uid: &'a str,
    created: &'a str,
    deleting: bool,
    finalizers: Vec<String>,
    /// Whether it has the annotation in the cluster.
    has_suffix: bool,
    /// The number in its names: the one in the annotation, or the one assigned here.
    suffix: Option<String>,
    read: Result<T, GeneratedError>,
    /// The pools that it selects, as indices into the list of facts.
    pools: Vec<usize>,
    /// Why its selector cannot be used.
    selector: Option<GeneratedError>,
}

pub(super) fn text<'a>(object: &'a Value, path: &str) -> &'a str {
    object.pointer(path).and_then(Value::as_str).unwrap_or_default()
}

impl<'a, T> Object<'a, T> {
    fn new(
        kind: Kind,
        object: &'a Value,
        facts: &[Facts<'_>],
        read: impl Fn(&'a Value) -> Result<T, GeneratedError>,
    ) -> Self {
        let name = text(object, "/metadata/name");
        let finalizers = object.pointer("/metadata/finalizers").and_then(Value::as_array);
        let suffix = object
            .pointer("/metadata/annotations")
            .and_then(|a| a.get(annotation::MC_NAME_SUFFIX)?.as_str())
            .map(str::to_owned);
        let bad = |message: String| GeneratedError::Selector { kind, name: name.to_owned(), message };
        let selector: Result<Option<LabelSelector>, _> =
            match object.pointer("/spec/machineConfigPoolSelector") {
                None | Some(Value::Null) => Ok(None),
                Some(v) => api::formats::shape::read(v).map(Some).map_err(|e| bad(e.to_string())),
            };
        let pools = selector.and_then(|selector| {
            let mut pools = Vec::new();
            for (i, of) in facts.iter().enumerate() {
                let labels = of.pool.metadata.labels.as_ref();
                if api::formats::selector::matches(selector.as_ref(), labels)
                    .map_err(|e| bad(e.to_string()))?
                {
                    pools.push(i);
                }
            }
            Ok(pools)
        });
        let (pools, selector) = match pools {
            Ok(pools) => (pools, None),
            Err(e) => (Vec::new(), Some(e)),
        };
        Self {
            name,
            uid: text(object, "/metadata/uid"),
            created: text(object, "/metadata/creationTimestamp"),
            deleting: object.pointer("/metadata/deletionTimestamp").is_some_and(|t| !t.is_null()),
            finalizers: finalizers
                .into_iter()
                .flatten()
                .filter_map(Value::as_str)
                .map(str::to_owned)
                .collect(),
            has_suffix: suffix.is_some(),
            suffix,
            read: read(object),
            pools,
            selector,
        }
    }

    fn owns(&self, kind: Kind, config: &MachineConfig) -> bool {
        owner(config).is_some_and(|o| o.kind == kind.name() && o.uid == self.uid)
    }

    /// The finalizers that it should have, if they differ from the present ones.
    fn finalizers(&self, kind: Kind, makes: &BTreeSet<String>) -> Option<Vec<String>> {
        let others = self.finalizers.iter().filter(|f| !kind.owns_finalizer(f));
        let wanted: Vec<String> = others.chain(makes).cloned().collect();
        let set = |all: &[String]| all.iter().cloned().collect::<BTreeSet<_>>();
        (set(&wanted) != set(&self.finalizers)).then_some(wanted)
    }
}

pub(super) fn owner(config: &MachineConfig) -> Option<&OwnerReference> {
    config.metadata.owner_references.iter().flatten().find(|o| o.controller == Some(true))
}

/// Plans all objects of one kind: `make` returns what an object makes for a pool.
pub(super) fn plan<'a, T>(
    inputs: &Inputs<'_>,
    facts: &[Facts<'_>],
    kind: Kind,
    objects: &[&'a Value],
    read: impl Fn(&'a Value) -> Result<T, GeneratedError>,
    make: impl Fn(&T, &Facts<'_>) -> Result<MachineConfig, GeneratedError>,
    plan: &mut Plan,
) {
    let mut all: Vec<Object<'_, T>> = objects.iter().map(|o| Object::new(kind, o, facts, &read)).collect();
    all.sort_by(|a, b| (a.created, a.name).cmp(&(b.created, b.name)));
    let (deleting, mut active): (Vec<_>, Vec<_>) = all.into_iter().partition(|o| o.deleting);
    for object in &deleting {
        let why = format!("{kind} {} is being deleted", object.name);
        for config in &inputs.existing {
            let name = config.name_any();
            let named = object.finalizers.contains(&name) && owner(config).is_none();
            if object.owns(kind, config) || named {
                plan.gone.push(Removal { name, why: why.clone() });
            }
        }
        plan.objects.push(ObjectPlan {
            kind,
            name: object.name.to_owned(),
            deleting: true,
            suffix: None,
            finalizers: object.finalizers(kind, &BTreeSet::new()),
            verdict: None,
        });
    }
    let numbers = numbers(inputs, facts, kind, &mut active);
    for (object, number) in active.iter().zip(numbers) {
        let one = one(inputs, facts, kind, object, &number, &make, plan);
        plan.objects.push(one);
    }
}

/// Plans one object that is not being deleted.
fn one<T>(
    inputs: &Inputs<'_>,
    facts: &[Facts<'_>],
    kind: Kind,
    object: &Object<'_, T>,
    number: &Result<(), GeneratedError>,
    make: &impl Fn(&T, &Facts<'_>) -> Result<MachineConfig, GeneratedError>,
    plan: &mut Plan,
) -> ObjectPlan {
    let owned: Vec<&MachineConfig> =
        inputs.existing.iter().copied().filter(|c| object.owns(kind, c)).collect();
    let general = match (&object.selector, &object.read, number) {
        (Some(e), _, _) => Some(e.clone()),
        (None, Err(e), _) | (None, Ok(_), Err(e)) => Some(e.clone()),
        (None, Ok(_), Ok(())) if object.pools.is_empty() => {
            Some(GeneratedError::NoPool { kind, name: object.name.to_owned() })
        }
        (None, Ok(_), Ok(())) => None,
    };
    let (mut makes, mut verdict) = (BTreeSet::new(), general.clone().map_or(Ok(()), Err));
    // If its selector cannot be evaluated, its pools are those that it has made something for.
    if let Some(e) = &object.selector {
        for config in &owned {
            makes.insert(config.name_any());
            if let Some((_, pool, ..)) = parse(&config.name_any()) {
                plan.refuse(&pool, e.clone());
            }
            retain_generated(inputs, config, plan);
        }
    }
    for of in object.pools.iter().filter_map(|i| facts.get(*i)) {
        let pool = of.pool.name_any();
        let made = match (&general, &of.broken, &object.read) {
            (Some(e), _, _) | (None, Some(e), _) => Err(e.clone()),
            (None, None, Ok(read)) => make(read, of),
            (None, None, Err(e)) => Err(e.clone()),
        };
        match made {
            Ok(mut config) => {
                let name = name(kind, &pool, object.suffix.as_deref().unwrap_or_default());
                makes.insert(name.clone());
                config.metadata.name = Some(name);
                if inputs.mode == Mode::Cluster {
                    config.metadata.owner_references = Some(vec![OwnerReference {
                        api_version: format!("{GROUP}/v1"),
                        kind: kind.name().to_owned(),
                        name: object.name.to_owned(),
                        uid: object.uid.to_owned(),
                        controller: Some(true),
                        block_owner_deletion: Some(true),
                    }]);
                }
                plan.wanted.push(config);
            }
            Err(e) => {
                for config in owned.iter().filter(|c| parse(&c.name_any()).is_some_and(|p| p.1 == pool)) {
                    makes.insert(config.name_any());
                    retain_generated(inputs, config, plan);
                }
                plan.refuse(&pool, e.clone());
                verdict = verdict.and(Err(e));
            }
        }
    }
    for config in owned.iter().map(|c| c.name_any()).filter(|n| !makes.contains(n)) {
        let why = format!("{kind} {} does not generate it any more", object.name);
        plan.gone.push(Removal { name: config, why });
    }
    let suffix = object.suffix.clone().filter(|_| !object.has_suffix);
    let finalizers = object.finalizers(kind, &makes);
    ObjectPlan {
        kind,
        name: object.name.to_owned(),
        deleting: false,
        suffix,
        finalizers,
        verdict: Some(verdict),
    }
}

/// What was made before stays. If another version of this program made it, it is now marked with this version.
fn retain_generated(inputs: &Inputs<'_>, config: &MachineConfig, plan: &mut Plan) {
    plan.kept.insert(config.name_any());
    if config.annotations().get(annotation::GENERATED_BY_CONTROLLER) != Some(&inputs.versions.hash) {
        let mut config = config.clone();
        let annotations = config.annotations_mut();
        annotations.insert(annotation::GENERATED_BY_CONTROLLER.to_owned(), inputs.versions.hash.clone());
        plan.wanted.push(config);
    }
}
