//! Puts the image's files into a folder.
//!
//! Not here: the image itself (see the module above).

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::ImageRecipe;
use crate::error::{Error, Result};
use crate::system::command::run;

/// The program's path in the image.
pub const PROGRAM_IN_IMAGE: &str = "usr/bin/mco";
/// The path of the templates in the image.
pub const TEMPLATES_IN_IMAGE: &str = "usr/share/mco/templates";
/// The path of public CA certificates in the image: the one that TLS libraries try first.
pub const CERTIFICATES_IN_IMAGE: &str = "etc/ssl/certs/ca-certificates.crt";
/// The path of the certificates in Debian's package `ca-certificates`. This computer's own bundle is not used: an
/// administrator may have added certificates that only this computer should trust.
const CERTIFICATES: &str = "/usr/share/ca-certificates/mozilla";
/// The time limit for `strip`, which reads a program of some hundred megabytes.
const LIMIT: Duration = Duration::from_secs(300);

/// The sizes of the files, in bytes.
#[derive(Debug, Clone, Copy)]
pub(super) struct Staged {
    /// The size of all files.
    pub(super) total: u64,
    /// The size of the program, without symbols.
    pub(super) program: u64,
}

/// Puts the files into `root`, which is created anew.
///
/// # Errors
/// A file cannot be read or written, `ca-certificates` is not installed, or the program cannot be stripped.
pub(super) async fn stage(recipe: &ImageRecipe, root: &Path) -> Result<Staged> {
    if root.exists() {
        fs::remove_dir_all(root).map_err(Error::io("remove", root))?;
    }
    folder(root)?;
    let program = root.join(PROGRAM_IN_IMAGE);
    parent(root, &program)?;
    // Function names are only for `cargo xtask order` and for profilers, and they are a fifth of the file.
    let (from, to) = (recipe.program.to_string_lossy(), program.to_string_lossy());
    run(strip(&recipe.architecture), ["--strip-all", "-o", &to, &from], LIMIT).await?;
    mode(&program, 0o755)?;
    for library in libraries(&recipe.program).await? {
        put(root, &library, &read(&library)?, 0o755)?;
    }
    put(root, Path::new(CERTIFICATES_IN_IMAGE), &certificates(Path::new(CERTIFICATES))?, 0o644)?;
    let templates = recipe.repository.join("templates");
    for file in files(&templates)? {
        let relative = file.strip_prefix(&templates).unwrap_or(&file);
        put(root, &Path::new(TEMPLATES_IN_IMAGE).join(relative), &read(&file)?, 0o644)?;
    }
    let license = read(&recipe.repository.join("LICENSE"))?;
    put(root, Path::new("usr/share/licenses/mco/LICENSE"), &license, 0o644)?;
    let size = |path: &Path| fs::metadata(path).map(|about| about.len()).map_err(Error::io("read", path));
    let total = files(root)?.iter().map(|path| size(path)).sum::<Result<u64>>()?;
    Ok(Staged { total, program: size(&program)? })
}

/// The name of `strip`: binutils for another architecture have that architecture as a prefix.
pub(super) fn strip(architecture: &str) -> &'static str {
    let here = super::architecture(std::env::consts::ARCH);
    match architecture {
        same if same == here => "strip",
        "arm64" => "aarch64-linux-gnu-strip",
        "amd64" => "x86_64-linux-gnu-strip",
        _ => "strip",
    }
}

/// The libraries, including the loader, that a program of this computer is linked to; none for a static program or one
/// for another architecture.
async fn libraries(program: &Path) -> Result<Vec<PathBuf>> {
    let program = program.to_string_lossy();
    let headers = run("readelf", ["--program-headers", "--wide", &program], LIMIT).await?;
    if !headers.lines().any(|line| line.trim_start().starts_with("INTERP")) {
        return Ok(vec![]);
    }
    let linked = run("ldd", [program.as_ref()], LIMIT).await?;
    // Lines are like `libc.so.6 => /lib/x/libc.so.6 (0x…)`; for the loader there is only its path.
    Ok(linked.split_whitespace().filter(|word| word.starts_with('/')).map(PathBuf::from).collect())
}

/// All certificates of a folder in one text, ordered by name.
fn certificates(from: &Path) -> Result<Vec<u8>> {
    let found = if from.is_dir() { files(from)? } else { vec![] };
    if found.is_empty() {
        return Err(Error::Options(format!(
            "{} has no certificates, and the image needs those of public authorities: run `apt-get install \
             ca-certificates`",
            from.display()
        )));
    }
    let mut all = vec![];
    for file in found.iter().filter(|path| path.extension().is_some_and(|e| e == "crt")) {
        all.extend(read(file)?);
        if all.last() != Some(&b'\n') {
            all.push(b'\n');
        }
    }
    Ok(all)
}

pub(super) fn read(path: &Path) -> Result<Vec<u8>> {
    fs::read(path).map_err(Error::io("read", path))
}

/// Writes a file below `root`, and creates its parent folders.
pub(super) fn put(root: &Path, path: &Path, content: &[u8], permissions: u32) -> Result<()> {
    let path = root.join(path.strip_prefix("/").unwrap_or(path));
    parent(root, &path)?;
    fs::write(&path, content).map_err(Error::io("write", &path))?;
    mode(&path, permissions)
}

/// Creates the parent folders of a path, from `root` down.
fn parent(root: &Path, path: &Path) -> Result<()> {
    let below = path.parent().and_then(|parent| parent.strip_prefix(root).ok()).unwrap_or(Path::new(""));
    let mut at = root.to_owned();
    for part in below {
        at.push(part);
        folder(&at)?;
    }
    Ok(())
}

/// Creates a folder with a mode that does not depend on the umask.
pub(super) fn folder(path: &Path) -> Result<()> {
    if !path.is_dir() {
        fs::create_dir_all(path).map_err(Error::io("create", path))?;
    }
    mode(path, 0o755)
}

fn mode(path: &Path, mode: u32) -> Result<()> {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).map_err(Error::io("set the mode of", path))
}

/// All files below a folder, ordered by path. Links are followed.
pub(super) fn files(folder: &Path) -> Result<Vec<PathBuf>> {
    let mut found = vec![];
    for entry in fs::read_dir(folder).map_err(Error::io("read", folder))? {
        let path = entry.map_err(Error::io("read", folder))?.path();
        if path.is_dir() {
            found.extend(files(&path)?);
        } else {
            found.push(path);
        }
    }
    found.sort();
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn certificates_are_in_the_order_of_their_names_and_missing_ones_are_an_error_with_its_remedy() {
        let dir = tempfile::tempdir().unwrap();
        for (name, text) in [("b.crt", "second\n"), ("a.crt", "first"), ("README", "none")] {
            fs::write(dir.path().join(name), text).unwrap();
        }
        assert_eq!(certificates(dir.path()).unwrap(), b"first\nsecond\n");
        let error = certificates(&dir.path().join("none")).unwrap_err().to_string();
        assert!(error.contains("apt-get install ca-certificates"), "{error}");
    }
}
