//! Everything that can happen in a state of the model: each is one step to another state.
//!
//! What it is not: what must be true of a plan or a state (see `checks`).

use super::model::Model;
use super::state::{Flight, Hours, Node, Sent, St, State};
use super::{BAD, CONFIGS, Fault};
use api::v1alpha1::PoolProgress;
use rollout::Change;

impl Model {
    pub(super) fn steps(&mut self, s: &State) -> Vec<State> {
        let back = self.plan(s).policy.is_some_and(|p| p.back);
        let mut out = vec![];
        let mut push = |change: &dyn Fn(&mut State)| {
            let mut t = s.clone();
            change(&mut t);
            out.push(t);
        };
        for i in 0..s.nodes.len() {
            let node = s.nodes[i];
            let next = match node.st {
                St::Done if node.des != node.cur => Node { st: St::Working, ..node },
                // It is called back before it has changed anything.
                St::Working if node.des == node.cur => Node { st: St::Done, ..node },
                St::Working if self.about.stuck == Some(i) && !s.freed => {
                    let gives_up = !back && self.fault != Some(Fault::WaitsForEver);
                    if node.quarantined != Some(node.des) && gives_up {
                        push(&|t| t.write(i, Node { quarantined: Some(node.des), ..node }));
                    }
                    continue;
                }
                St::Working => Node { st: St::Out, ..node },
                St::Out => Node { cur: node.des, st: St::Done, person: false, ..node },
                St::Done => continue,
            };
            push(&|t| t.write(i, next));
        }
        for k in 0..s.patches.len() {
            // It arrives, or is refused; or it is lost, and the controller finds that out.
            push(&|t| {
                let Flight { what, valid } = t.patches.remove(k);
                if valid {
                    t.arrives(what);
                }
            });
            push(&|t| {
                t.patches.remove(k);
            });
        }
        for k in 0..s.statuses.len() {
            push(&|t| {
                let Flight { what, valid } = t.statuses.remove(k);
                if valid {
                    t.progress = what;
                    t.statuses.iter_mut().for_each(|f| f.valid = false);
                }
            });
            push(&|t| drop(t.statuses.remove(k)));
        }
        // A crash. A status write may still arrive, and so may patches, if they can be late.
        if s.gate.is_some() || !s.patches.is_empty() {
            push(&|t| {
                t.gate = None;
                let patches = std::mem::take(&mut t.patches);
                if self.about.late {
                    t.late.extend(patches.into_iter().filter(|f| f.valid));
                    t.late.sort_by_key(|f| f.what);
                    t.late.dedup();
                    t.sealed = vec![false; t.nodes.len()];
                }
            });
        }
        for k in 0..s.late.len() {
            push(&|t| {
                let Flight { what, .. } = t.late.remove(k);
                t.arrives(what);
            });
            push(&|t| {
                t.late.remove(k);
            });
        }
        if self.about.stuck.is_some() && !s.freed && !self.about.for_good {
            push(&|t| t.freed = true);
        }
        if self.about.elsewhere && !s.approved && !self.about.edits {
            push(&|t| t.approved = true);
        }
        if s.target == BAD && self.about.edits {
            push(&|t| t.target = 2);
        }
        if self.about.calendar {
            for hours in Hours::ALL.into_iter().filter(|hours| *hours != s.hours) {
                push(&|t| t.hours = hours);
            }
        }
        for i in 0..s.nodes.len() {
            let node = s.nodes[i];
            if s.reboots == 0 || node.st != St::Done {
                continue;
            }
            push(&|t| {
                t.reboots -= 1;
                // What the agent takes along, it writes while the machine shuts down.
                let taken = node.mark.filter(|mark| node.cur == node.des && *mark != node.cur);
                if let Some(config) = taken {
                    self.may_take(s, i, config);
                }
                let (des, person) = (taken.unwrap_or(node.des), node.cur == node.des);
                t.write(i, Node { des, st: St::Out, person, ..node });
            });
        }
        let mut progress: PoolProgress = serde_json::from_str(&s.progress).unwrap();
        let later = if self.about.calendar { Hours::Shut.now() } else { Hours::Open.now() };
        if progress.soak_until.as_ref().is_some_and(|until| until.0 > later.0) {
            progress.soak_until = Some(later);
            let over = serde_json::to_string(&progress).unwrap();
            push(&|t| {
                t.progress.clone_from(&over);
                t.statuses.iter_mut().for_each(|f| f.valid = false);
            });
        }
        let plan = self.plan(s);
        let of_policy = plan.policy.clone();
        let checked = of_policy.as_ref().is_some_and(|p| !p.checks.is_empty());
        if checked {
            let harmed = s.nodes.iter().filter(|n| n.cur == BAD).count();
            let passes = !self.about.harms || harmed < self.about.shows_at.max(1);
            push(&|t| t.gate = Some((t.target, passes)));
        }
        let mut t = s.clone();
        let old = !checked || t.gate.is_some_and(|(of, _)| of != t.target);
        if old && self.fault != Some(Fault::KeepsOldResults) {
            t.gate = None;
        }
        let exposed = plan.nodes_with_late_patches();
        let open: Vec<usize> =
            (0..s.nodes.len()).filter(|i| !s.sealed[*i] && exposed.contains(&self.views[*i].name)).collect();
        if !open.is_empty() && self.fault != Some(Fault::SealsNothing) {
            // Before it sends nodes, it writes to all that a patch of an earlier leader could send in addition.
            for i in open {
                push(&|t| t.write(i, t.nodes[i]));
            }
            return out;
        }
        for patch in &plan.patches {
            let i = self.views.iter().position(|v| v.name == patch.node).unwrap();
            let number = |config: &str| CONFIGS.iter().position(|c| **c == *config).unwrap() as u8;
            let lifts = patch.quarantine == Change::Remove;
            let mark = match &patch.waiting {
                Change::Set(config) => Some(Some(number(config))),
                Change::Remove if self.fault != Some(Fault::LeavesMarks) => Some(None),
                _ => None,
            };
            let config = match &patch.desired_config {
                Change::Set(config) => number(config),
                _ if lifts || mark.is_some() => s.nodes[i].des,
                _ => continue,
            };
            if config != s.nodes[i].cur && config != s.nodes[i].des {
                self.is_allowed(s, i, config, &plan);
            }
            if let Some(Some(marked)) = mark {
                self.is_allowed_later(s, i, marked, &plan);
            }
            self.ends_what_is_under_way(s, i, config, &plan);
            // One that is sent again while it is on its way changes nothing.
            let flight = Flight { what: Sent { node: i, des: config, lifts, mark }, valid: true };
            if !t.patches.contains(&flight) {
                t.patches.push(flight);
            }
        }
        if let Some(next) = of_policy.map(|p| p.progress) {
            let text = serde_json::to_string(&next).unwrap();
            let forgets = self.fault == Some(Fault::Forgets) && !next.rejected.is_empty();
            // One at a time waits for its answer.
            if text != s.progress && t.statuses.is_empty() && !forgets {
                t.statuses.push(Flight { what: text, valid: true });
            }
        }
        t.patches.sort_by_key(|f| f.what);
        out.push(t);
        out
    }
}
