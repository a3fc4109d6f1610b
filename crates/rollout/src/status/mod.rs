//! A pool's status: counts, conditions, and the events of their transitions.
//!
//! What it is not: the condition that rendering sets, which is copied unchanged. The texts of `Updated` and `Updating`
//! are part of the interface: scripts wait for them.
//!
//! Source: <https://github.com/openshift/machine-config-operator/blob/HEAD/pkg/controller/node/status.go>.

mod events;
pub(crate) mod pin;
mod texts;

use crate::event::EventPlan;
use crate::hold::Hold;
use crate::inputs::PoolInput;
use crate::node::Flags;
use crate::os_image::OsImageWait;
use crate::pinned_images::{self, PinFacts};
use crate::status::pin::pinned_config;
use crate::target::Target;
use crate::view::{NodeView, own};
use api::conditions::{self, Condition};
use api::events::ControllerEvent;
use api::formats::text::{MAX_ANSWER_CHARS, cut};
use api::k8s::Time;
use api::names::pool_condition::{
    CONFIG_PINNED, CONFIG_UNPROVED, DEGRADED, IMAGE_BUILD_DEGRADED, MEMBERSHIP_CONFLICT, NODE_DEGRADED,
    RENDER_DEGRADED, UPDATED, UPDATING,
};
use api::v1::{CertExpiry, ControllerCertificate, MachineConfigPool, MachineConfigPoolStatus, NamedRef};
use events::{event, events};
use texts::{
    build_cleared, degraded_nodes, layered_updating, quarantined_text, target_text, unanswered, unproved_text,
};

/// The bundle whose certificates a pool's status lists.
const API_SERVER_BUNDLE: &str = "KubeAPIServerServingCAData";
/// How many nodes a condition names. Messages are for people, and the pool is written whenever one changes.
const NAMED_NODES: usize = 10;

/// What a status is made from.
pub(crate) struct PoolFacts<'a> {
    pub(crate) input: &'a PoolInput<'a>,
    pub(crate) target: &'a Target,
    pub(crate) hold: Option<&'a Hold>,
    /// The pool's config did harm: nodes leave it, or have left it.
    pub(crate) rejected: Option<&'a Hold>,
    /// Whether the pool's config has proved itself.
    pub(crate) proof: ConfigProof<'a>,
    /// Waves of the pool's policy that select the same nodes, in words.
    pub(crate) overlap: Option<&'a str>,
    pub(crate) nodes: &'a [(&'a NodeView, Flags)],
    pub(crate) conflicts: &'a [String],
    pub(crate) certificates: &'a [ControllerCertificate],
    /// Nodes whose last patch has no answer although it should have one by now.
    pub(crate) overdue: &'a [&'a str],
    /// Other problems.
    pub(crate) troubles: &'a [&'a str],
    /// PinnedImageSets, and how far nodes are with them.
    pub(crate) pins: &'a PinFacts,
}

/// Whether a pool's config has proved itself under the pool's policy.
#[derive(Clone, Copy)]
pub(crate) enum ConfigProof<'a> {
    /// It has, or nobody asks for that.
    Given,
    /// It has not, under this policy.
    Missing(&'a str),
    /// The policy cannot be read, so it is as it was.
    Unknown,
}

/// The status, if it differs from the present one, and the events.
pub(crate) fn of(facts: &PoolFacts<'_>, now: &Time) -> (Option<MachineConfigPoolStatus>, Vec<EventPlan>) {
    let PoolFacts {
        input,
        target,
        hold,
        rejected,
        proof,
        overlap,
        nodes,
        conflicts,
        certificates,
        overdue,
        troubles,
        pins,
    } = facts;
    let pool = input.pool;
    let old = pool.status.clone().unwrap_or_default();
    let old_conditions = old.conditions.clone().unwrap_or_default();
    let count = |pick: fn(&Flags) -> bool| {
        i32::try_from(nodes.iter().filter(|(_, f)| pick(f)).count()).unwrap_or(i32::MAX)
    };
    let mut new = old.clone();
    new.observed_generation = pool.metadata.generation.unwrap_or_default();
    new.machine_count = count(|_| true);
    new.updated_machine_count = count(|f| f.updated);
    new.ready_machine_count = count(|f| f.updated && f.ready);
    new.unavailable_machine_count = count(|f| f.unavailable);
    new.degraded_machine_count = count(|f| f.degraded);
    new.pool_synchronizers_status = pinned_images::counted(
        pool,
        nodes.iter().map(|(node, _)| &*node.name),
        (new.ready_machine_count, new.unavailable_machine_count),
        pins,
    );
    let expirys: Vec<_> =
        certificates.iter().filter(|c| c.bundle_file == API_SERVER_BUNDLE).map(expiry).collect();
    if !expirys.is_empty() || new.cert_expirys.is_some() {
        new.cert_expirys = Some(expirys);
    }
    let rendered = !pool.spec.configuration.name.is_empty();
    let all_updated = rendered
        && new.updated_machine_count == new.machine_count
        && new.ready_machine_count == new.machine_count
        && new.unavailable_machine_count == 0
        && rejected.is_none()
        && !input.layering.building();
    // New machines get this config, so it must have proved itself.
    if all_updated && !matches!(proof, ConfigProof::Missing(_)) {
        new.configuration = pool.spec.configuration.clone();
    }
    let mut list = old_conditions.clone();
    let mut set = |type_: &str, status, reason: &str, message: String| {
        conditions::set(&mut list, Condition::new(type_, status, reason, message), now)
    };
    let line = target_text(pool, target);
    let paused = pool.spec.paused;
    if all_updated {
        set(UPDATED, true, "", format!("All nodes are updated with {line}"));
    } else {
        set(UPDATED, false, "", String::new());
    }
    let (mut updating, mut message) = match (all_updated, paused) {
        _ if !rendered => (false, Hold::NothingRendered.to_string()),
        (true, _) => (false, String::new()),
        (false, true) => (false, format!("Pool is paused; will not update to {line}")),
        (false, false) => (true, format!("All nodes are updating to {line}")),
    };
    if let Some((status, text)) = layered_updating(input, &old_conditions, all_updated).filter(|_| rendered) {
        (updating, message) = (status, text);
    }
    // Also in a pool with an image of its own: what its build says does not say this.
    if let Some(hold @ (Hold::MaxUnavailable(_) | Hold::PrefetchLimit(_) | Hold::ConfigMissing(_))) = hold
        && !all_updated
    {
        message = format!("{message}; held: {}", cut(&hold.to_string(), MAX_ANSWER_CHARS));
    }
    let mut add = |text: &str| {
        if !message.is_empty() {
            message.push_str("; ");
        }
        message.push_str(text);
    };
    // Also if all nodes are updated: a taint or a label of one of them may still be wrong.
    if let Some(hold) = hold.or(*rejected)
        && hold.is_told()
    {
        add(&format!("held: {}", cut(&hold.to_string(), MAX_ANSWER_CHARS)));
    }
    if let Some(text) = overlap.filter(|_| !all_updated) {
        add(&cut(text, MAX_ANSWER_CHARS));
    }
    if let Some(text) = quarantined_text(nodes) {
        add(&text);
    }
    if let Some(text) = unanswered(overdue) {
        add(&text);
    }
    troubles.iter().take(NAMED_NODES).for_each(|text| add(&cut(text, MAX_ANSWER_CHARS)));
    set(UPDATING, updating, "", message);
    match (pinned_config(pool), conditions::get(&old_conditions, CONFIG_PINNED)) {
        (Some(config), _) => set(CONFIG_PINNED, true, "Pinned", pinned_text(pool, config)),
        (None, Some(_)) => set(CONFIG_PINNED, false, "", String::new()),
        (None, None) => false,
    };
    match (proof, conditions::get(&old_conditions, CONFIG_UNPROVED)) {
        (ConfigProof::Missing(policy), _) => {
            let text = unproved_text(&pool.spec.configuration.name, policy, &new.configuration.name);
            set(CONFIG_UNPROVED, true, "RolloutPolicy", text)
        }
        (ConfigProof::Given, Some(_)) => set(CONFIG_UNPROVED, false, "", String::new()),
        (ConfigProof::Given, None) | (ConfigProof::Unknown, _) => false,
    };
    let degraded_text = degraded_nodes(nodes);
    let node_degraded = new.degraded_machine_count > 0;
    if node_degraded {
        let reason = format!("{} nodes are reporting degraded status on sync", new.degraded_machine_count);
        set(NODE_DEGRADED, true, &reason, degraded_text.clone());
    } else {
        set(NODE_DEGRADED, false, "", String::new());
    }
    let build_was = conditions::is_true(&old_conditions, IMAGE_BUILD_DEGRADED);
    let mut build_degraded = build_was;
    if let Some((reason, message)) = build_cleared(input, build_was) {
        set(IMAGE_BUILD_DEGRADED, false, reason, message.to_owned());
        build_degraded = false;
    }
    let render = conditions::get_true(&old_conditions, RENDER_DEGRADED);
    let rejected = rejected.map(|r| cut(&r.to_string(), MAX_ANSWER_CHARS).into_owned());
    let message = match (node_degraded, build_degraded, render) {
        _ if rejected.is_some() => rejected.clone().unwrap_or_default(),
        (true, ..) => degraded_text,
        (false, true, _) => "The OS image build of this pool failed; see ImageBuildDegraded".to_owned(),
        (false, false, Some(render)) => render.message.clone(),
        (false, false, None) => String::new(),
    };
    let degraded = node_degraded || build_degraded || render.is_some() || rejected.is_some();
    set(DEGRADED, degraded, "", message);
    set_conflict(&mut list, conflicts, now);
    new.os_image_stream =
        input.stream.filter(|_| all_updated && !degraded).map(|s| NamedRef { name: s.to_owned() });
    let events = events(input.name(), &old, &old_conditions, &new, &list, &line);
    if list != old_conditions {
        new.conditions = Some(list);
    }
    ((new != old).then_some(new), events)
}

impl Hold {
    /// Whether `Updating` reports this hold, whatever else it says.
    fn is_told(&self) -> bool {
        match self {
            Self::Refused(_)
            | Self::Frozen { .. }
            | Self::OutsideWindow { .. }
            | Self::Gate { .. }
            | Self::Approval { .. }
            | Self::Policy(_)
            | Self::NodeFailed { .. }
            | Self::Rejected { .. }
            | Self::EmptyWave { .. }
            | Self::RejectedElsewhere { .. }
            | Self::Prefetch { .. }
            | Self::OsImage(OsImageWait::Unknown { .. } | OsImageWait::Refused { .. })
            | Self::Soak { .. } => true,
            // It lasts for one request.
            Self::Recording { .. }
            | Self::SelectsAll
            | Self::NothingRendered
            | Self::ConfigMissing(_)
            | Self::Deleting
            | Self::Paused
            | Self::Image(_)
            | Self::OsImage(OsImageWait::Looking { .. })
            | Self::MaxUnavailable(_)
            | Self::PrefetchLimit(_)
            | Self::Masters(_)
            | Self::Arbiter(_)
            | Self::NoMasterPool
            | Self::Selector { .. } => false,
        }
    }
}

/// The text about a pin, the same wherever it is shown.
pub fn pinned_text(pool: &MachineConfigPool, config: &str) -> String {
    let name = pool.metadata.name.as_deref().unwrap_or_default();
    format!(
        "the pool is pinned to MachineConfig {config}; changes of its MachineConfigs are rendered but not \
         rolled out until \
         `mco undo {name} --release`, or until the annotation {} is removed",
        own::PINNED
    )
}

/// Sets only the membership condition, for a pool whose nodes cannot be known; if that is a mistake in the pool,
/// `Degraded` too.
pub(crate) fn conflict_only(
    pool: &MachineConfigPool,
    reason: ControllerEvent,
    why: &str,
    now: &Time,
) -> (Option<MachineConfigPoolStatus>, Vec<EventPlan>) {
    let mut new = pool.status.clone().unwrap_or_default();
    let mut list = new.conditions.take().unwrap_or_default();
    let why = cut(why, MAX_ANSWER_CHARS);
    let told = set_conflict(&mut list, &[why.clone().into_owned()], now);
    // Whoever waits for `Updated` must not see it while the pool's nodes are not known.
    let mut mistake = |type_: &str, status, message: &str| {
        reason == ControllerEvent::MembershipConflict
            && conditions::set(&mut list, Condition::new(type_, status, "", message), now)
    };
    let degraded =
        mistake(DEGRADED, true, &why) | mistake(UPDATED, false, "") | mistake(UPDATING, false, &why);
    if !told && !degraded {
        return (None, vec![]);
    }
    new.conditions = Some(list);
    new.observed_generation = pool.metadata.generation.unwrap_or_default();
    let name = pool.metadata.name.as_deref().unwrap_or_default();
    let events = told.then(|| event(name, reason, why.into_owned()));
    (Some(new), events.into_iter().collect())
}

fn set_conflict(list: &mut Vec<Condition>, conflicts: &[String], now: &Time) -> bool {
    if conflicts.is_empty() && !conditions::is_true(list, MEMBERSHIP_CONFLICT) {
        return false;
    }
    let message = api::formats::text::statements(conflicts, NAMED_NODES);
    conditions::set(list, Condition::new(MEMBERSHIP_CONFLICT, !conflicts.is_empty(), "", message), now)
}

fn expiry(c: &ControllerCertificate) -> CertExpiry {
    CertExpiry { bundle: c.bundle_file.clone(), subject: c.subject.clone(), expiry: c.not_after.clone() }
}
