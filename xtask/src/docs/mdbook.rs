//! Builds the book with mdBook, in the version that is named here. The first use installs it from the registry of crates into the
//! lab's cache, as other programs that developers need are built there.
//!
//! What it is not: a check of the book's content, except that each page is there.

use super::book::Page;
use anyhow::{Context, bail};
use lab::Environment;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// The version that the book is built with.
const VERSION: &str = "0.5.4";

/// Where the book is built, from the repository's folder: `build-dir` in `docs/book.toml`.
const BUILT: &str = "target/book";

/// Builds the book into [`BUILT`], and checks that each page has become one.
///
/// # Errors
/// mdBook is not there and cannot be installed, or it fails, or a page is missing.
pub(super) fn build(root: &Path, pages: &[Page]) -> anyhow::Result<PathBuf> {
    let program = find_or_install(&Environment::read())?;
    let output = Command::new(&program)
        .arg("build")
        .arg(root.join("docs"))
        .output()
        .with_context(|| format!("cannot run {}", program.display()))?;
    if !output.status.success() {
        bail!("mdbook ended with {}: {}", output.status, String::from_utf8_lossy(&output.stderr).trim());
    }
    let built = root.join(BUILT);
    let missing = missing(root, &built, pages);
    if !missing.is_empty() {
        bail!("these pages are not in {BUILT}, or have no heading there:\n{}", missing.join("\n"));
    }
    Ok(built.join("index.html"))
}

/// The pages of the book that were not built.
fn missing(root: &Path, built: &Path, pages: &[Page]) -> Vec<String> {
    let docs = root.join("docs");
    let of_book = pages.iter().filter_map(|page| {
        let path = root.join(&page.path);
        Some(path.strip_prefix(&docs).ok()?.to_owned())
    });
    let is_built = |path: &PathBuf| {
        let text = std::fs::read_to_string(built.join(path).with_extension("html")).unwrap_or_default();
        // Each page of the site has a heading with the book's title, but only one from its text has a name.
        text.contains("<h1 id=")
    };
    of_book
        .filter(|path| !path.ends_with("SUMMARY.md") && !is_built(path))
        .map(|p| p.display().to_string())
        .collect()
}

/// The program: `mdbook` in `MCO_LAB_BIN`, or on the PATH in this version, or in the cache, where it is installed if it is missing.
fn find_or_install(environment: &Environment) -> anyhow::Result<PathBuf> {
    let folder = environment.cache.join(format!("mdbook-{VERSION}"));
    let cached = folder.join("bin/mdbook");
    let given = environment.programs.iter().map(|programs| programs.join("mdbook"));
    let candidates = given.chain([PathBuf::from("mdbook"), cached.clone()]);
    if let Some(program) = candidates.into_iter().find(|program| is_version(program)) {
        return Ok(program);
    }
    println!("== mdbook {VERSION} is installed into {} (minutes)", folder.display());
    // Quickly, because the book is small: 80 s on two processors, and then 2 s for the book.
    let status = Command::new(env!("CARGO"))
        .args(["install", "mdbook", "--version", VERSION, "--locked", "--debug"])
        .args(["--no-default-features", "--features", "search", "--root"])
        .arg(&folder)
        .env("CARGO_PROFILE_DEV_DEBUG", "0")
        .stdin(Stdio::null())
        .status();
    let remedy = || {
        format!(
            "mdbook {VERSION} is needed to build the book and could not be installed from the registry of crates. With a network, run \
             `cargo xtask docs` again; without one, put the program into a folder that MCO_LAB_BIN names, or only check the \
             book (`cargo xtask docs --check`)"
        )
    };
    let status = status.with_context(remedy)?;
    if !status.success() || !is_version(&cached) {
        bail!("{}: cargo install ended with {status}", remedy());
    }
    Ok(cached)
}

/// Whether the program runs and has this version.
fn is_version(program: &Path) -> bool {
    let said = Command::new(program).arg("--version").output();
    said.is_ok_and(|output| {
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        text.trim().ends_with(VERSION)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_that_was_not_built_is_named() {
        let root = std::env::temp_dir().join(format!("mco-xtask-book-{}", std::process::id()));
        let built = root.join(BUILT);
        std::fs::create_dir_all(built.join("sub")).unwrap();
        let pages = ["README.md", "docs/SUMMARY.md", "docs/a.md", "docs/sub/b.md", "docs/sub/c.md"];
        let pages = pages.map(|path| Page::parse(path.into(), "# A\n"));
        std::fs::write(built.join("a.html"), "<h1 id=\"a\">A</h1>").unwrap();
        std::fs::write(built.join("sub/b.html"), "").unwrap();
        assert_eq!(missing(&root, &built, &pages), ["sub/b.md", "sub/c.md"]);
        std::fs::remove_dir_all(&root).unwrap();
    }

    #[test]
    fn a_program_of_another_version_is_not_taken() {
        assert!(!is_version(Path::new("/nowhere/mdbook")));
        assert!(!is_version(Path::new("true")));
    }
}
