//! The conditions of the settings object and of the ClusterOperator, and each pool in one sentence. Pure; the clock is an
//! argument.
//!
//! Words and reasons are the reference's where it has them. What it is not: writing them (see `report`).

use super::{Step, Stop, Stopped};
use crate::install::upgradeable::UPGRADEABLE;
use api::conditions::{StatusCondition as _, get, get_true, is_true};
use api::k8s::Time;
use api::names::annotation::REBUILD;
use api::names::pool_condition as pool;
use api::v1::MachineConfigPool;
use api::v1alpha1::{Condition, MachineConfigOperatorStatus, OperandVersion};
use std::collections::BTreeMap;

/// Complete and at work.
pub(crate) const AVAILABLE: &str = "Available";
/// Something is being rolled out.
pub(crate) const PROGRESSING: &str = "Progressing";
/// A step has failed.
pub(crate) const DEGRADED: &str = "Degraded";
/// Settings that a later version treats otherwise are in use.
pub(crate) const EVALUATION: &str = "EvaluationConditionsDetected";
/// The names of the entries in `status.versions`.
pub(crate) const OPERATOR: &str = "operator";
/// The image that was rolled out.
pub(crate) const OPERATOR_IMAGE: &str = "operator-image";
/// The release whose payload was rolled out, where there is one.
pub(crate) const RELEASE: &str = "release";
/// The build of a pool's image was interrupted; set on pools by others who build. Of our own builds [`Facts::interrupted`] says it.
const BUILD_INTERRUPTED: &str = "BuildInterrupted";
/// Image builds were interrupted.
pub(crate) const INTERRUPTED_BUILD: &str = "InterruptedBuild";
/// A pool is degraded.
pub(crate) const DEGRADED_POOL: &str = "DegradedPool";
/// Boot images are too old.
pub(crate) const BOOT_IMAGES: &str = "ClusterBootImageSkewError";
/// Objects are stored in a version that an upgrade drops.
pub(crate) const STORED_VERSIONS: &str = "StoredVersions";
/// Kubelets are too old or too new.
pub(crate) const KUBELET_SKEW: &str = "KubeletSkew";
/// Nobody has looked yet; the word is the reference's.
const NO_DATA: &str = "NoData";
/// How many pools have a sentence: the definition allows 256 entries, and `lastSyncError` is one.
const MAX_SENTENCES: usize = 255;
/// As it is meant to be.
const AS_EXPECTED: &str = "AsExpected";
/// Kubelets may be this many minor versions older than the API server, so that the next one still takes them.
/// Source: <https://kubernetes.io/releases/version-skew-policy/> (three, and one for the upgrade to come).
const KUBELET_BEHIND: u64 = 2;
/// How many kubelets a condition names.
const NAMED_KUBELETS: usize = 10;

/// What the status is computed from.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Facts<'a> {
    /// The version of this operator.
    pub(crate) version: &'a str,
    /// The image that the settings, or the payload, name.
    pub(crate) image: &'a str,
    /// The release of the payload. `None`: there is none.
    pub(crate) release: Option<&'a str>,
    /// The generation of the settings.
    pub(crate) generation: Option<i64>,
    /// Nothing is to be done.
    pub(crate) unmanaged: bool,
    /// Where the pass stopped, or what has failed; `None`: it came to its end.
    pub(crate) stopped: Option<&'a Stopped>,
    /// Every step has succeeded. What keeps nothing from being installed may be in `stopped` nevertheless: a watch that does not work,
    /// machines that wait, a CA that ends soon.
    pub(crate) complete: bool,
    /// A controller is at work. `None`: nobody has looked.
    pub(crate) controller: Option<bool>,
    /// All pools.
    pub(crate) pools: &'a [MachineConfigPool],
    /// The pools whose image builds were interrupted, each with the build.
    pub(crate) interrupted: &'a [String],
    /// The minor version of the API server and those of the kubelets, by node, as far as they are known.
    pub(crate) kubelets: Option<(u64, &'a [(String, u64)])>,
    /// Objects that may be stored in a version that an upgrade drops: a sentence for each definition.
    pub(crate) stored: &'a [String],
    /// Boot images that are too old for an upgrade.
    pub(crate) boot_images: Option<&'a str>,
    /// Which of the settings that [`evaluation`] looks for are in use.
    pub(crate) evaluation: &'a [&'static str],
    /// The reasons of Upgradeable that nobody has looked for.
    pub(crate) not_looked_for: &'a [&'static str],
}

/// KubeletConfigs that say something about swap; the words are the reference's.
const FAIL_SWAP_ON: &str = "failswapon: KubeletConfig setting is currently unsupported by OpenShift";
/// The default container runtime that is on its way out; the words are the reference's.
const RUNC: &str = "runc: transition to default crun";

/// The settings in use that a later version treats otherwise, sorted: of all KubeletConfigs and ContainerRuntimeConfigs.
pub(crate) fn evaluation(objects: &[serde_json::Value]) -> Vec<&'static str> {
    let any = |path: &str, fits: fn(&serde_json::Value) -> bool| {
        objects.iter().filter_map(|o| o.pointer(path)).any(fits)
    };
    let mut found = vec![];
    if any("/spec/kubeletConfig/failSwapOn", |v| !v.is_null()) {
        found.push(FAIL_SWAP_ON);
    }
    if any("/spec/containerRuntimeConfig/defaultRuntime", |v| v == "runc") {
        found.push(RUNC);
    }
    found
}

/// The status after a pass. What the pass did not check stays as in `before`; a condition whose status stays the same keeps its
/// transition time.
pub(crate) fn after(
    before: &MachineConfigOperatorStatus,
    facts: &Facts<'_>,
    now: &Time,
) -> MachineConfigOperatorStatus {
    let version = facts.version;
    let version_of = |name: &str| before.versions.iter().find(|v| v.name == name).map(|v| v.version.as_str());
    let same = version_of(OPERATOR) == Some(version)
        && version_of(OPERATOR_IMAGE) == Some(facts.image)
        // A pass that has stopped early has not looked for a release: that is no news of one.
        && (version_of(RELEASE) == facts.release || facts.release.is_none() && facts.stopped.is_some());
    let was = |kind: &str| is_true(&before.conditions, kind);
    // Pools move on their own: the installation does not wait for them, nor for the dashboard. A failure of a step that no
    // other one needs is reported when all steps after it are done.
    let is_read = facts.stopped.is_none_or(|s| s.step != Step::Read);
    let earlier = |kind: &str| get(&before.conditions, kind);
    let parts_done = facts.stopped.is_none_or(|s| match s.stop {
        Stop::Waiting(_) => matches!(s.step, Step::RequiredPools | Step::MachineConfigDashboard),
        Stop::Failed(_) => s.step == Step::RequiredPools || !s.step.is_needed(),
    });
    let mut status = before.clone();
    status.observed_generation = facts.generation;
    status.observed_by = version.to_owned();
    if facts.complete && !facts.unmanaged {
        status.versions = vec![entry(OPERATOR, version), entry(OPERATOR_IMAGE, facts.image)];
        status.versions.extend(facts.release.map(|release| entry(RELEASE, release)));
    }
    let same = same || (facts.complete && !facts.unmanaged);
    let of = |name: &str| status.versions.iter().find(|v| v.name == name).map(|v| v.version.as_str());
    let deployed = in_words(of(OPERATOR).unwrap_or(version), of(RELEASE));
    let version = in_words(version, facts.release);

    // Once everything was rolled out, only the controller tells whether it works.
    let is_deployed = was(AVAILABLE) || !before.versions.is_empty();
    let available = match (facts.controller, earlier(AVAILABLE)) {
        _ if !(parts_done && !facts.unmanaged || is_deployed) => {
            (false, "Installing".to_owned(), format!("{version} is being installed"))
        }
        (None, Some(old)) if !old.is_true() => (false, old.reason.clone(), old.message.clone()),
        (Some(false), _) => (
            false,
            "ControllerNotRunning".to_owned(),
            "no pod of Deployment machine-config-controller is available: pools do not move; see kubectl -n \
             openshift-machine-config-operator get pods"
                .to_owned(),
        ),
        _ => (true, AS_EXPECTED.to_owned(), format!("Cluster has deployed {deployed}")),
    };
    let progressing = match facts.stopped.map(|s| (s.step, &s.stop)) {
        _ if facts.unmanaged => (
            false,
            "Unmanaged".to_owned(),
            "spec.managementState is Unmanaged: nothing is changed".to_owned(),
        ),
        None => (false, AS_EXPECTED.to_owned(), format!("Cluster version is {version}")),
        Some((step, _)) if same && (step == Step::RequiredPools || !step.is_of_installation()) => {
            (false, AS_EXPECTED.to_owned(), format!("Cluster version is {version}"))
        }
        // It is reported when everything else is done, but for the pools.
        Some((step, _)) if !step.is_of_installation() => (
            true,
            Step::RequiredPools.to_string(),
            format!("Working towards {version}: the required pools are being updated"),
        ),
        Some((step, Stop::Waiting(what))) => {
            (true, step.to_string(), format!("Working towards {version}: {what}"))
        }
        Some((step, Stop::Failed(_))) if same => {
            (false, step.failed(), format!("Error while reconciling {version}"))
        }
        Some((step, Stop::Failed(_))) => (true, step.failed(), format!("Unable to apply {version}")),
    };
    let degraded = match facts.stopped.map(|s| (s.step, &s.stop)) {
        // Nothing of the version is missing.
        Some((step, Stop::Failed(why))) if !step.is_of_installation() => (true, step.failed(), why.clone()),
        Some((step, Stop::Failed(why))) => {
            let begin = if same {
                format!("Failed to resync {version} because: ")
            } else {
                format!("Unable to apply {version}: ")
            };
            (true, step.failed(), begin + why)
        }
        _ => (false, AS_EXPECTED.to_owned(), String::new()),
    };
    let upgradeable = match (upgradeable(facts), earlier(UPGRADEABLE)) {
        (Some((reason, why)), _) => ("False", reason.to_owned(), why),
        (None, _) if facts.not_looked_for.is_empty() => ("True", AS_EXPECTED.to_owned(), String::new()),
        // What nobody has looked for again is as it was.
        (None, Some(old)) if old.is_true() && !facts.unmanaged => {
            ("True", old.reason.clone(), old.message.clone())
        }
        (None, Some(old)) if !facts.unmanaged && facts.not_looked_for.contains(&old.reason.as_str()) => {
            ("False", old.reason.clone(), old.message.clone())
        }
        (None, _) => {
            let what = facts.not_looked_for.join(", ");
            // For as long as somebody likes: what was so before it says nothing.
            let why = if facts.unmanaged {
                format!("the installation is Unmanaged, so {what} is not checked")
            } else {
                format!("{what} could not be checked yet")
            };
            ("Unknown", NO_DATA.to_owned(), why)
        }
    };
    let evaluation = match facts.evaluation {
        [] => (false, AS_EXPECTED.to_owned(), String::new()),
        found => {
            let words: Vec<&str> = found.iter().filter_map(|f| f.split(':').next()).collect();
            (true, words.join("::"), found.join("::"))
        }
    };
    let of = |(yes, reason, message)| (if yes { "True" } else { "False" }, reason, message);
    for (kind, (status_word, reason, message)) in [
        (AVAILABLE, of(available)),
        (PROGRESSING, of(progressing)),
        (DEGRADED, of(degraded)),
        (UPGRADEABLE, upgradeable),
        (EVALUATION, of(evaluation)),
    ] {
        if kind == EVALUATION && !is_read {
            continue;
        }
        let old = get(&status.conditions, kind);
        let since = old.filter(|c| c.status == status_word).map_or(now, |c| &c.last_transition_time).clone();
        let new = Condition {
            type_: kind.to_owned(),
            status: status_word.to_owned(),
            observed_generation: facts.generation,
            last_transition_time: since,
            reason,
            message: api::formats::text::cut(&message, 8000).into_owned(),
        };
        match status.conditions.iter_mut().find(|c| c.type_ == kind) {
            Some(there) => *there = new,
            None => status.conditions.push(new),
        }
    }
    // One more than fits the definition would keep the whole status from being written.
    let pools = facts.pools.iter().take(MAX_SENTENCES);
    if is_read {
        status.extension = pools.map(|p| (name(p).to_owned(), sentence(p))).collect();
    }
    if let Some(Stopped { stop: Stop::Failed(why), .. }) = facts.stopped {
        status.extension.insert("lastSyncError".to_owned(), api::formats::text::cut(why, 8000).into_owned());
    }
    status
}

fn entry(name: &str, version: &str) -> OperandVersion {
    OperandVersion { name: name.to_owned(), version: version.to_owned() }
}

fn name(pool: &MachineConfigPool) -> &str {
    pool.metadata.name.as_deref().unwrap_or_default()
}

/// A version, and the release that it came with.
fn in_words(version: &str, release: Option<&str>) -> String {
    match release {
        None => version.to_owned(),
        Some(release) => format!("{version}, release {release}"),
    }
}

/// Why no upgrade should begin now, as reason and message. `None`: one may.
fn upgradeable(facts: &Facts<'_>) -> Option<(&'static str, String)> {
    let with = |condition: &str| -> Vec<&str> {
        let has = |p: &&MachineConfigPool| {
            let status = p.status.as_ref();
            status.and_then(|s| s.conditions.as_deref()).is_some_and(|c| is_true(c, condition))
        };
        facts.pools.iter().filter(has).map(name).collect()
    };
    let mut interrupted = with(BUILD_INTERRUPTED);
    interrupted.extend(facts.interrupted.iter().map(String::as_str));
    if !interrupted.is_empty() {
        let pools = interrupted.join(", ");
        return Some((
            INTERRUPTED_BUILD,
            format!(
                "image builds of these pools were interrupted: {pools}; have them built again (annotation {REBUILD} on the \
                 MachineOSConfig) and let that finish first"
            ),
        ));
    }
    let degraded = with(pool::DEGRADED);
    if !degraded.is_empty() {
        let pools = degraded.join(", ");
        return Some((DEGRADED_POOL, format!("these pools are degraded: {pools}; mco status says why")));
    }
    if let Some(why) = facts.boot_images {
        return Some((BOOT_IMAGES, why.to_owned()));
    }
    if !facts.stored.is_empty() {
        return Some((STORED_VERSIONS, facts.stored.join("; ")));
    }
    let (server, kubelets) = facts.kubelets?;
    let off = |minor: u64| minor > server || server - minor > KUBELET_BEHIND;
    let list: Vec<String> = kubelets
        .iter()
        .filter(|(_, minor)| off(*minor))
        .map(|(node, minor)| format!("{node} (1.{minor})"))
        .collect();
    (!list.is_empty()).then(|| {
        let shown = api::formats::text::names(&list, NAMED_KUBELETS);
        let why = format!(
            "the API server is 1.{server}; these kubelets are newer than it, or would be too old for its next version: \
             {shown}; bring them to 1.{server} first"
        );
        (KUBELET_SKEW, why)
    })
}

/// A pool in one sentence, as the reference says it.
fn sentence(p: &MachineConfigPool) -> String {
    let status = p.status.clone().unwrap_or_default();
    let conditions = status.conditions.as_deref().unwrap_or_default();
    let because = |kind: &str, what: &str| {
        let condition = get_true(conditions, kind)?;
        Some(format!(
            "pool is degraded because {what} with \"{}\": \"{}\"",
            condition.reason, condition.message
        ))
    };
    let words = because(pool::RENDER_DEGRADED, "rendering fails")
        .or_else(|| because(pool::NODE_DEGRADED, "nodes fail"))
        .or_else(|| {
            is_true(conditions, pool::UPDATED).then(|| {
                format!(
                    "all {} nodes are at latest configuration {}",
                    status.machine_count, status.configuration.name
                )
            })
        })
        .or_else(|| {
            is_true(conditions, pool::UPDATING).then(|| {
                format!(
                    "{} (ready {}) out of {} nodes are updating to latest configuration {}",
                    status.updated_machine_count,
                    status.ready_machine_count,
                    status.machine_count,
                    p.spec.configuration.name
                )
            })
        })
        .or_else(|| because(pool::PINNED_IMAGE_SETS_DEGRADED, "pinned image sets failed"));
    api::formats::text::cut(&words.unwrap_or_else(|| "<unknown>".to_owned()), 8000).into_owned()
}

/// The extension of the ClusterOperator: the same sentences.
pub(crate) fn extension(status: &MachineConfigOperatorStatus) -> &BTreeMap<String, String> {
    &status.extension
}

/// The minor version of Kubernetes in `1.36`, `v1.36.2` and the like.
pub(crate) fn minor(version: &str) -> Option<u64> {
    version
        .trim_start_matches('v')
        .split('.')
        .nth(1)?
        .chars()
        .take_while(char::is_ascii_digit)
        .collect::<String>()
        .parse()
        .ok()
}

#[cfg(test)]
mod tests;
