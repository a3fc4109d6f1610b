//! The steps that make the host trust a config's certificate authorities, on hosts without a service for that. Pure.
//!
//! Not here: which program a host has for it (see `trust`).

use desired::DesiredPath;

use crate::disk::path_state::PathState;
use crate::paths;
use crate::plan::disruption::Disruption;
use crate::plan::step::{Replaces, Step};
use crate::plan::steps::{STALE, Steps};
use crate::system::systemd::ServiceAction;
use desired::UPDATE_CA_TRUST;

impl Steps<'_> {
    /// Links the config's certificate authorities into the folder that the host's trust program reads, if it reads
    /// another one. Removes links that are no longer needed.
    pub(crate) fn trust(&mut self) {
        let Some(tool) = &self.facts.trust_tool else { return };
        let both = self.old.paths.iter().chain(&self.new.paths).map(|(path, _)| path);
        let links: std::collections::BTreeMap<String, &String> =
            both.filter_map(|path| Some((tool.link(path)?, path))).collect();
        for (link, target) in links {
            let wanted = self.new.at(target).is_some_and(|w| *w != DesiredPath::Nothing);
            let ours = matches!(self.found(&link), PathState::Link { target: t, .. } if t == target);
            if self.new.at(&link).is_some() || self.old.at(&link).is_some() {
                continue;
            }
            if !ours && !self.found(&link).is_absent() {
                self.notes.push(format!(
                    "{link} exists and is not managed: it is not replaced by a link to {target}"
                ));
                continue;
            }
            if ours && !wanted {
                self.steps.push(Step::Remove { path: link, why: STALE });
            } else if wanted && !ours && self.reachable(&link) {
                let (target, replaces) = (target.clone(), Replaces::Nothing);
                self.steps.push(Step::Link { path: link, target, owner: (0, 0), replaces });
            }
        }
    }

    /// Runs the trust program if authorities change and no other part of the plan runs it. It is also run if the node
    /// reboots, because no service does it at boot on such a host. What Ignition wrote before the first boot counts as
    /// changed.
    pub(crate) fn run_trust_tool(&mut self, disruption: &Disruption) {
        let Some(tool) = &self.facts.trust_tool else { return };
        if self.facts.unit_files.contains(UPDATE_CA_TRUST) {
            return;
        }
        let touched = self.steps.iter().any(|s| s.paths().iter().any(|p| tool.reads(p)));
        let first = self.found(paths::CURRENT_CONFIG).is_absent()
            && self.new.paths.iter().any(|(path, want)| *want != DesiredPath::Nothing && tool.reads(path));
        let (action, unit) = (ServiceAction::Run, tool.program.clone());
        let runs = disruption.services.iter().any(|s| s.action == action && s.unit == unit);
        if (touched || first) && !runs {
            self.steps.push(Step::Service { action, unit });
        }
    }
}
