//! Compares the host with its config and names each difference. File contents are never part of it.

use desired::DEV_NULL;
use ignition::Owner;

use crate::baseline::{Baseline, Expected};
use crate::disk::path_state::PathState;
use crate::disk::root::split;
use crate::drift::difference::Drift;
use crate::error::Error;
use crate::host::Host;
use crate::inspect::unit_files;
use crate::paths;
use crate::plan::facts::{Facts, PathFacts};
use crate::system::users::Users;

impl Host {
    /// What the comparison with a baseline needs to know: the managed paths themselves, and the state of units.
    pub(crate) fn facts_to_compare(&mut self, baseline: &Baseline) -> Result<Facts, Error> {
        let root = self.root();
        let mut facts = Facts::with_users(root.options().owners, Users::read(root)?);
        for (path, expected) in &baseline.paths {
            facts.paths.insert(path.clone(), PathFacts::of(root.found(path)?, None));
            if let Expected::Link { target, hard: true, .. } = expected
                && split(target).is_ok()
                && root.same_file(path, target)
            {
                facts.same_files.insert(path.clone());
            }
        }
        facts.unit_files = unit_files(root)?;
        for unit in &baseline.units {
            if let Some(state) = self.systemd.state(&unit.name)? {
                facts.unit_states.insert(unit.name.clone(), state);
            }
        }
        Ok(facts)
    }
}

/// Every difference between a baseline and the host: paths in the config's order, then units.
pub(crate) fn drifts(config: &Baseline, facts: &Facts) -> Vec<Drift> {
    let mut out = Vec::new();
    for (path, want) in &config.paths {
        let found = facts.found(path);
        out.extend(path_drift(path, want, found, facts).err());
    }
    for u in &config.units {
        let state = facts.unit_states.get(&u.name);
        let mut is_not = |enabled| {
            let received = state.map_or_else(|| "not-found".to_owned(), |s| s.0.clone());
            out.push(Drift::Enablement { unit: u.name.clone(), enabled, received });
        };
        match u.enabled {
            // A unit that the host does not have was skipped when the config was applied.
            Some(true)
                if !u.masked
                    && (u.install.is_some() || facts.unit_files.contains(&u.name))
                    && state.is_none_or(|s| s.is_disabled() || s.is_masked()) =>
            {
                is_not(true);
            }
            Some(false) if state.is_some_and(crate::system::systemd::UnitFileState::is_enabled) => {
                is_not(false);
            }
            _ => {}
        }
    }
    out
}

/// How one path differs from what must be there.
pub(crate) fn path_drift(path: &str, want: &Expected, found: &PathState, facts: &Facts) -> Result<(), Drift> {
    let path = path.to_owned();
    match want {
        Expected::Mask => match found {
            PathState::Link { target, .. } if target == DEV_NULL => Ok(()),
            _ => {
                let unit = path.rsplit('/').next().unwrap_or_default().to_owned();
                Err(Drift::NotMasked { unit, path })
            }
        },
        Expected::Dir { mode: want, user, group, .. } => match found {
            PathState::Absent | PathState::NoParentFolder { .. } => Err(Drift::Missing { path }),
            PathState::Dir { mode, .. } if want.is_some_and(|w| w != *mode) => {
                let expected = want.unwrap_or_default();
                Err(Drift::Mode { path, expected, received: format!("{mode:04o}") })
            }
            PathState::Dir { uid, gid, .. } => {
                let asked = |o: &Owner| o.id.is_some() || o.name.as_deref().is_some_and(|n| !n.is_empty());
                let user = asked(user).then(|| user_id(user, facts)).flatten().unwrap_or(*uid);
                let group = asked(group).then(|| group_id(group, facts)).flatten().unwrap_or(*gid);
                if !facts.owners || (user, group) == (*uid, *gid) {
                    return Ok(());
                }
                let (expected, received) = (format!("{user}:{group}"), format!("{uid}:{gid}"));
                Err(Drift::Owner { path, expected, received })
            }
            other => Err(Drift::Kind { path, expected: "a folder".to_owned(), received: kind(other) }),
        },
        Expected::Link { target, hard: true, .. } => match found {
            PathState::Absent | PathState::NoParentFolder { .. } => Err(Drift::Missing { path }),
            _ if facts.same_files.contains(&path) => Ok(()),
            PathState::File { .. } => {
                let expected = format!("another name of {target}");
                Err(Drift::Kind { path, expected, received: "a file of its own".to_owned() })
            }
            other => {
                let expected = format!("another name of {target}");
                Err(Drift::Kind { path, expected, received: kind(other) })
            }
        },
        Expected::Link { target, user, group, .. } => match found {
            PathState::Absent | PathState::NoParentFolder { .. } => Err(Drift::Missing { path }),
            PathState::Link { target: now, uid, gid } if now == target => {
                match (user_id(user, facts), group_id(group, facts)) {
                    (Some(u), Some(g)) if facts.owners && (u, g) != (*uid, *gid) => {
                        let (expected, received) = (format!("{u}:{g}"), format!("{uid}:{gid}"));
                        Err(Drift::Owner { path, expected, received })
                    }
                    _ => Ok(()),
                }
            }
            other => {
                Err(Drift::Kind { path, expected: format!("a link to {target}"), received: kind(other) })
            }
        },
        Expected::Nothing => match found {
            PathState::File { len, .. } if *len > 0 && path.ends_with(".conf") => {
                Err(Drift::Content { path })
            }
            // systemd reads the target of a link.
            PathState::Link { target, .. } if target != DEV_NULL && path.ends_with(".conf") => {
                Err(Drift::Content { path })
            }
            _ => Ok(()),
        },
        Expected::File { .. } if paths::NOT_VALIDATED.contains(&path.as_str()) => Ok(()),
        Expected::File { len: expected_len, sha256: expected_sum, mode: expected, user, group } => {
            match found {
                PathState::Absent | PathState::NoParentFolder { .. } => Err(Drift::Missing { path }),
                PathState::File { mode, .. } if mode != expected => {
                    Err(Drift::Mode { path, expected: *expected, received: format!("{mode:04o}") })
                }
                PathState::File { len, sha256, .. } if len != expected_len || sha256 != expected_sum => {
                    Err(Drift::Content { path })
                }
                PathState::File { uid, gid, .. } => match (user_id(user, facts), group_id(group, facts)) {
                    (Some(u), Some(g)) if facts.owners && (u, g) != (*uid, *gid) => Err(Drift::Owner {
                        path,
                        expected: format!("{u}:{g}"),
                        received: format!("{uid}:{gid}"),
                    }),
                    _ => Ok(()),
                },
                PathState::Link { .. } => Err(not_a_file(path, *expected, "a link")),
                PathState::Dir { .. } => Err(not_a_file(path, *expected, "a folder")),
                PathState::Other => Err(not_a_file(path, *expected, "neither file, link nor folder")),
            }
        }
    }
}

fn not_a_file(path: String, expected: u32, received: &str) -> Drift {
    Drift::Mode { path, expected, received: received.to_owned() }
}

fn kind(found: &PathState) -> String {
    match found {
        PathState::Absent | PathState::NoParentFolder { .. } => "not there".to_owned(),
        PathState::File { .. } => "a file".to_owned(),
        PathState::Link { target, .. } => format!("a link to {target}"),
        PathState::Dir { .. } => "a folder".to_owned(),
        PathState::Other => "neither file, link nor folder".to_owned(),
    }
}

fn user_id(user: &Owner, facts: &Facts) -> Option<u32> {
    id(user, |n| facts.users.users.get(n).map(|u| u.uid))
}

fn group_id(group: &Owner, facts: &Facts) -> Option<u32> {
    id(group, |n| facts.users.groups.get(n).copied())
}

/// The id of an owner, if the host knows it.
fn id(owner: &Owner, by_name: impl Fn(&str) -> Option<u32>) -> Option<u32> {
    match (owner.id, owner.name.as_deref()) {
        (Some(id), _) => u32::try_from(id).ok(),
        (None, Some(name)) if !name.is_empty() => by_name(name),
        _ => Some(0),
    }
}
