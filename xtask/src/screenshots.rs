//! `cargo xtask screenshots`: the pictures of the dashboard under `docs/screenshots`, each view in light and dark. This command
//! runs the browser test that takes them of a simulated fleet, and copies them.
//!
//! What it is not: a comparison. Fonts differ between machines, so no test looks at a picture's pixels.

use crate::demo::build_mco;
use anyhow::{Context, bail};
use std::path::Path;
use std::process::Command;

/// The test that takes them.
const TEST: &str = "views::nothing_serious_keeps_people_from_using_any_view_dark_or_light";
/// The limit for all pictures together, in bytes: everybody who clones the repository downloads them.
const MOST: u64 = 9 << 18;

pub(crate) fn run(root: &Path) -> anyhow::Result<()> {
    build_mco(root)?;
    let status = Command::new(env!("CARGO"))
        .args(["test", "-p", "lab", "--test", "browser", "--", "--exact", TEST])
        .env("CI", "true")
        .current_dir(root)
        .status()?;
    if !status.success() {
        bail!("the test that takes the pictures ended with {status}");
    }
    // The folder that cargo gives to the tests of this package (`CARGO_TARGET_TMPDIR`).
    let made = root.join("target/tmp/screenshots");
    let kept = root.join("docs/screenshots");
    std::fs::create_dir_all(&kept)?;
    let mut size = 0;
    for entry in std::fs::read_dir(&made).with_context(|| format!("no pictures in {}", made.display()))? {
        let entry = entry?;
        size += std::fs::copy(entry.path(), kept.join(entry.file_name()))?;
    }
    println!("docs/screenshots: {} KB", size >> 10);
    if size > MOST {
        bail!(
            "the pictures have {size} bytes, more than {MOST}: make the window in crates/lab/tests/browser smaller"
        );
    }
    Ok(())
}
