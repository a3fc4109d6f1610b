//! KubeletConfigs and ContainerRuntimeConfigs of a cluster: which pools each selects, the names of its MachineConfigs,
//! and its finalizers.
//!
//! What it is not: what such an object may say (see `kubelet_config`, `container_runtime`), and which MachineConfigs nothing
//! needs any more (see `stale`).
//!
//! Names: the first object for a pool makes `99-POOL-generated-kubelet`, later ones `…-1`, `…-2` and so on up to 9. An
//! annotation of the object holds the number, so that it never changes; a later MachineConfig wins over an earlier one.

use super::{Facts, GeneratedError, Inputs, ObjectPlan, Plan, Removal};
use crate::version::Mode;
use api::k8s::{LabelSelector, OwnerReference, ResourceExt as _};
use api::names::{GROUP, annotation};
use api::v1::MachineConfig;
use serde_json::Value;
use std::collections::BTreeSet;
use std::fmt;

/// The largest number of a name.
const MAX_NUMBER: u32 = 9;

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
                Some(v) => api::shape::read(v).map(Some).map_err(|e| bad(e.to_string())),
            };
        let pools = selector.and_then(|selector| {
            let mut pools = Vec::new();
            for (i, of) in facts.iter().enumerate() {
                let labels = of.pool.metadata.labels.as_ref();
                if api::selector::matches(selector.as_ref(), labels).map_err(|e| bad(e.to_string()))? {
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
    let (leaving, mut live): (Vec<_>, Vec<_>) = all.into_iter().partition(|o| o.deleting);
    for object in &leaving {
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
    let numbers = numbers(inputs, facts, kind, &mut live);
    for (object, number) in live.iter().zip(numbers) {
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
            keep(inputs, config, plan);
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
                    keep(inputs, config, plan);
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
fn keep(inputs: &Inputs<'_>, config: &MachineConfig, plan: &mut Plan) {
    plan.kept.insert(config.name_any());
    if config.annotations().get(annotation::GENERATED_BY_CONTROLLER) != Some(&inputs.versions.hash) {
        let mut config = config.clone();
        let annotations = config.annotations_mut();
        annotations.insert(annotation::GENERATED_BY_CONTROLLER.to_owned(), inputs.versions.hash.clone());
        plan.wanted.push(config);
    }
}

fn name(kind: Kind, pool: &str, suffix: &str) -> String {
    let base = kind.base_name(pool);
    if suffix.is_empty() { base } else { format!("{base}-{suffix}") }
}

/// Assigns each object its number, older ones first; an error for those that cannot have one.
fn numbers<T>(
    inputs: &Inputs<'_>,
    facts: &[Facts<'_>],
    kind: Kind,
    live: &mut [Object<'_, T>],
) -> Vec<Result<(), GeneratedError>> {
    let mut results = Vec::new();
    for i in 0..live.len() {
        let result = match inputs.mode {
            Mode::Bootstrap => alone(facts, kind, live, i).map(|()| Some(String::new())),
            Mode::Cluster => number(inputs, facts, kind, live, i),
        };
        let result = result.and_then(|suffix| {
            if let Some(object) = live.get_mut(i) {
                object.suffix = suffix;
            }
            if inputs.mode == Mode::Cluster { is_free(facts, kind, live, i) } else { Ok(()) }
        });
        results.push(result);
    }
    results
}

/// Before there is a cluster, it is unknown which object was first.
fn alone<T>(facts: &[Facts<'_>], kind: Kind, live: &[Object<'_, T>], i: usize) -> Result<(), GeneratedError> {
    for pool in live.get(i).into_iter().flat_map(|o| &o.pools) {
        let of_pool: Vec<&str> = live.iter().filter(|o| o.pools.contains(pool)).map(|o| o.name).collect();
        if of_pool.len() > 1 {
            let pool = facts.get(*pool).map(|f| f.pool.name_any()).unwrap_or_default();
            return Err(GeneratedError::Several { pool, kind, names: of_pool.join(", ") });
        }
    }
    Ok(())
}

fn number<T>(
    inputs: &Inputs<'_>,
    facts: &[Facts<'_>],
    kind: Kind,
    live: &[Object<'_, T>],
    i: usize,
) -> Result<Option<String>, GeneratedError> {
    let Some(object) = live.get(i) else { return Ok(None) };
    let bad = |message: String| GeneratedError::Number { kind, name: object.name.to_owned(), message };
    if object.suffix.is_some() {
        return Ok(object.suffix.clone());
    }
    let Some(first) = object.pools.first() else { return Ok(None) };
    let beside: Vec<&Object<'_, T>> = live
        .iter()
        .enumerate()
        .filter(|(j, o)| *j != i && o.pools.iter().any(|p| object.pools.contains(p)))
        .map(|(_, o)| o)
        .collect();
    if beside.is_empty() {
        return Ok(Some(String::new()));
    }
    // An object from before the annotation existed: its finalizers show what it has made.
    let base = kind.base_name(&facts.get(*first).map(|f| f.pool.name_any()).unwrap_or_default());
    if beside.iter().any(|o| o.created > object.created) {
        let stands = |f: &&String| inputs.existing.iter().any(|c| c.metadata.name.as_ref() == Some(*f));
        let mut known: Vec<u32> = Vec::new();
        for finalizer in object.finalizers.iter().filter(stands) {
            match finalizer.strip_prefix(base.as_str()) {
                Some("") => known.push(0),
                Some(rest) => known.extend(rest.strip_prefix('-').and_then(|n| n.parse::<u32>().ok())),
                None => {}
            }
        }
        if let Some(largest) = known.into_iter().max() {
            return Ok(Some(if largest == 0 { String::new() } else { largest.to_string() }));
        }
    }
    let mut largest = None;
    for suffix in beside.iter().filter_map(|o| o.suffix.as_deref()) {
        let number = match suffix {
            "" => 0,
            digits => digits.parse::<u32>().map_err(|_| {
                bad(format!(
                    "the annotation {} of another {kind} for this pool is {digits:?}, not a number; correct it",
                    annotation::MC_NAME_SUFFIX
                ))
            })?,
        };
        largest = largest.max(Some(number));
    }
    match largest {
        None => Ok(Some(String::new())),
        Some(MAX_NUMBER..) => Err(bad(format!(
            "max number ({}) of {kind}s for one pool reached; put settings together, and delete some",
            MAX_NUMBER + 1
        ))),
        Some(n) => Ok(Some((n + 1).to_string())),
    }
}

/// Two objects with the same name would overwrite each other for ever, so the later one is refused.
fn is_free<T>(
    facts: &[Facts<'_>],
    kind: Kind,
    live: &[Object<'_, T>],
    i: usize,
) -> Result<(), GeneratedError> {
    let (Some(object), Some(before)) = (live.get(i), live.get(..i)) else { return Ok(()) };
    for other in before.iter().filter(|o| o.suffix == object.suffix) {
        let Some(pool) = object.pools.iter().find(|p| other.pools.contains(p)) else { continue };
        let pool = facts.get(*pool).map(|f| f.pool.name_any()).unwrap_or_default();
        let name = name(kind, &pool, object.suffix.as_deref().unwrap_or_default());
        let message = format!(
            "MachineConfig {name} is already generated from {kind} {}; remove the annotation {} from this \
             one, and it gets a \
             number of its own",
            other.name,
            annotation::MC_NAME_SUFFIX
        );
        return Err(GeneratedError::Number { kind, name: object.name.to_owned(), message });
    }
    Ok(())
}

/// What a generated MachineConfig is made from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// The templates, Node `cluster` and FeatureGate `cluster`.
    Settings,
    /// An object of this kind, over the former.
    Object(Kind),
    /// Image `cluster`, mirror sets and signature policies.
    Registries,
}

/// What the MachineConfig with this name is generated from, judged by its name alone, so that one whose marks somebody
/// removed is known as well. `None`: it is not a generated one.
pub fn source_of(name: &str) -> Option<Origin> {
    let (order, _, word) = parse(name)?;
    Some(match (order, word) {
        (_, "registries") => Origin::Registries,
        (_, "containerruntime") => Origin::Object(Kind::ContainerRuntimeConfig),
        ("99", _) => Origin::Object(Kind::KubeletConfig),
        _ => Origin::Settings,
    })
}

/// The parts of a generated MachineConfig's name: `97`, `98` or `99`, the pool, and the subject.
pub(super) fn parse(name: &str) -> Option<(&str, String, &str)> {
    let (left, right) = name.rsplit_once("-generated-")?;
    let (order, pool) = left.split_once('-')?;
    let (word, number) = right.split_once('-').map_or((right, None), |(word, number)| (word, Some(number)));
    let numbered = number.is_none_or(|n| n.parse::<u32>().is_ok());
    let known = matches!(
        (order, word, number),
        ("97" | "98", "kubelet", None)
            | ("99", "kubelet" | "containerruntime", _)
            | ("99", "registries", None)
    );
    (known && numbered).then(|| (order, pool.to_owned(), word))
}
