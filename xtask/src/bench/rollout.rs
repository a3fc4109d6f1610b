//! wip
pub(super) fn run(_root: &std::path::Path, _a: &super::Bench) -> anyhow::Result<super::Outcome> {
    anyhow::bail!("wip")
}
