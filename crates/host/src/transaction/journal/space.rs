//! Whether the disk has space for a change: for what it writes, and for the old contents that its journal keeps.

use std::collections::BTreeSet;

use crate::disk::root::Root;
use crate::error::Error;
use crate::paths::JOURNAL_DIR;
use crate::plan::HostPlan;
use crate::plan::step::Step;

/// Space per path for the journal's own text and for partly filled blocks.
const SLACK: u64 = 8 * 1024;

/// Refuses a change for which there is not enough space.
pub(crate) fn space(root: &Root, plan: &HostPlan) -> Result<(), Error> {
    // For each file system: its device, the free and the needed bytes, and the first path that needs them.
    let mut need: Vec<(u64, u64, u64, String)> = Vec::new();
    let mut add = |path: &str, bytes: u64| -> Result<(), Error> {
        let (dev, free) = root.space(path)?;
        match need.iter_mut().find(|n| n.0 == dev) {
            Some(n) => n.2 = n.2.saturating_add(bytes),
            None => need.push((dev, free, bytes, path.to_owned())),
        }
        Ok(())
    };
    let kept: BTreeSet<&str> = plan.steps.iter().flat_map(Step::paths).collect();
    for path in kept {
        let len = root.len(path)?;
        if len > 0 {
            add(JOURNAL_DIR, len.saturating_add(SLACK))?;
        }
    }
    for step in &plan.steps {
        let (path, bytes) = match step {
            Step::Write { path, content, .. } => (path, content.bytes().len() as u64),
            // A saved original takes space in addition to the file that replaces it.
            Step::Copy { from, to, .. } => (to, root.len(from)?),
            _ => continue,
        };
        add(path, bytes.saturating_add(SLACK))?;
    }
    match need.iter().find(|(_, free, bytes, _)| bytes > free) {
        Some((_, free, need, path)) => Err(Error::NoSpace { path: path.clone(), need: *need, free: *free }),
        None => Ok(()),
    }
}
