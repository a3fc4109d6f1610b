//! The names of generated MachineConfigs: the number of each object that makes them, and what a name says.
//!
//! The first object for a pool makes `99-POOL-generated-kubelet`, later ones `…-1`, `…-2` and so on up to 9. An
//! annotation of the object holds the number, so that it never changes; a later MachineConfig wins over an earlier one.
//!
//! What it is not: what the objects make (see `objects`).
//!
//! Source: <https://github.com/openshift/machine-config-operator/blob/HEAD/docs/KubeletConfigDesign.md>.

use super::{Kind, Object};
use crate::settings::generated::{Facts, GeneratedError, Inputs};
use crate::version::Mode;
use api::k8s::ResourceExt as _;
use api::names::annotation;

/// The largest number of a name.
const MAX_NUMBER: u32 = 9;

/// The name of the MachineConfig that an object makes for a pool.
pub(super) fn name(kind: Kind, pool: &str, suffix: &str) -> String {
    let base = kind.base_name(pool);
    if suffix.is_empty() { base } else { format!("{base}-{suffix}") }
}

/// Assigns each object its number, older ones first; an error for those that cannot have one.
pub(super) fn numbers<T>(
    inputs: &Inputs<'_>,
    facts: &[Facts<'_>],
    kind: Kind,
    active: &mut [Object<'_, T>],
) -> Vec<Result<(), GeneratedError>> {
    let mut results = Vec::new();
    for i in 0..active.len() {
        let result = match inputs.mode {
            Mode::Bootstrap => alone(facts, kind, active, i).map(|()| Some(String::new())),
            Mode::Cluster => number(inputs, facts, kind, active, i),
        };
        let result = result.and_then(|suffix| {
            if let Some(object) = active.get_mut(i) {
                object.suffix = suffix;
            }
            if inputs.mode == Mode::Cluster { is_free(facts, kind, active, i) } else { Ok(()) }
        });
        results.push(result);
    }
    results
}

/// Before there is a cluster, it is unknown which object was first.
fn alone<T>(
    facts: &[Facts<'_>],
    kind: Kind,
    active: &[Object<'_, T>],
    i: usize,
) -> Result<(), GeneratedError> {
    for pool in active.get(i).into_iter().flat_map(|o| &o.pools) {
        let of_pool: Vec<&str> = active.iter().filter(|o| o.pools.contains(pool)).map(|o| o.name).collect();
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
    active: &[Object<'_, T>],
    i: usize,
) -> Result<Option<String>, GeneratedError> {
    let Some(object) = active.get(i) else { return Ok(None) };
    let bad = |message: String| GeneratedError::Number { kind, name: object.name.to_owned(), message };
    if object.suffix.is_some() {
        return Ok(object.suffix.clone());
    }
    let Some(first) = object.pools.first() else { return Ok(None) };
    let beside: Vec<&Object<'_, T>> = active
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
    active: &[Object<'_, T>],
    i: usize,
) -> Result<(), GeneratedError> {
    let (Some(object), Some(before)) = (active.get(i), active.get(..i)) else { return Ok(()) };
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
pub(in crate::settings::generated) fn parse(name: &str) -> Option<(&str, String, &str)> {
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
