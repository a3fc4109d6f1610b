//! The quorum of two masters and an arbiter.
//!
//! What it is not: whether one control-plane node may go while another one is out (see `node::control_plane`).

use super::Eval;
use crate::hold::Hold;
use crate::node::Flags;
use api::names::{ARBITER, MASTER};

/// Two masters and an arbiter form one quorum. The arbiter moves when all masters are done, or when they stay where
/// they are and are available. Masters do not move while the arbiter is unavailable. A broken arbiter, which keeps the
/// masters where they are, goes first: it is in service, and so are they.
pub(super) fn hold_control_plane(evals: &mut [Eval<'_>]) {
    let at = |evals: &[Eval<'_>], name: &str| evals.iter().position(|e| e.input.name() == name);
    let Some(arbiter) = at(evals, ARBITER) else { return };
    let Some(master) = at(evals, MASTER) else {
        if let Some(eval) = evals.get_mut(arbiter).filter(|e| e.hold.is_none()) {
            (eval.hold, eval.tends) = (Some(Hold::NoMasterPool), false);
        }
        return;
    };
    let out = |f: &Flags| f.unavailable || f.maybe_sent;
    let all_out =
        |e: &Eval<'_>| e.nodes.iter().filter(|(_, f)| out(f)).map(|(n, _)| n.name.clone()).collect();
    let arbiters_out: Vec<_> = evals.get(arbiter).map(all_out).unwrap_or_default();
    let broken = |e: &Eval<'_>| e.nodes.iter().all(|(_, f)| f.broken || !out(f));
    let first = !arbiters_out.is_empty() && evals.get(arbiter).is_some_and(broken);
    let Some(eval) = evals.get_mut(master) else { return };
    let held = eval.hold.is_some();
    let away = eval.nodes.iter().filter(|(_, f)| out(f) && !(first && f.broken));
    let mut busy: Vec<_> = away.map(|(n, _)| n.name.clone()).collect();
    if !held {
        if !first {
            busy.extend(eval.candidates().map(|(n, _)| n.name.clone()));
        }
        if !arbiters_out.is_empty() {
            eval.hold = Some(Hold::Arbiter(arbiters_out));
        }
    }
    busy.sort_unstable();
    busy.dedup();
    if let Some(eval) = evals.get_mut(arbiter).filter(|e| e.hold.is_none() && !busy.is_empty()) {
        (eval.hold, eval.tends) = (Some(Hold::Masters(busy)), !held);
    }
}
