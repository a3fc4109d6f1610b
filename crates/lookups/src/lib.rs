//! What a rollout plan asks to have looked up in the cluster: what drains of nodes would wait for ([`inspect_drains`]), and what
//! changes cost a node ([`read_costs`]). The controller, `mco status` and `mco plan` look up the same things here, so their plans agree.
//!
//! What it is not: the choice of what is looked up (see `rollout::plan`), how long an answer counts, or what follows from it.

mod costs;
mod drains;

pub use costs::{ConfigSlots, CostError, CostKey, CostStream, change_cost, read_costs};
pub use drains::inspect_drains;

#[cfg(test)]
mod tests;
