//! A container image made by hand, since there is no registry: one static program in one layer, as an archive that
//! `ctr images import` reads.
//!
//! The program does nothing until SIGTERM and then ends at once: it is the sandbox of every pod, and the pods of tests.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use sha2::{Digest, Sha256};

use crate::control_plane::programs::lock_file;
use crate::error::{Error, Result};
use crate::progress::Reporter;
use crate::system::paths::Environment;
use crate::system::process::{find_on_path, run};

/// The image's name in every node. `.invalid` is never a registry.
pub const PAUSE_IMAGE: &str = "lab.invalid/pause:1";
/// A compiler that has to be read from a slow disk first.
const COMPILE_LIMIT: Duration = Duration::from_secs(300);

/// A container that ignores SIGTERM holds a node's shutdown up. PID 1 gets only signals that it handles.
const C_SOURCE: &str = r#"
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>
static void end(int signal) { (void)signal; _exit(0); }
static void reap(int signal) { (void)signal; while (waitpid(-1, 0, WNOHANG) > 0) {} }
int main(void) {
    signal(SIGTERM, end);
    signal(SIGINT, end);
    signal(SIGCHLD, reap);
    for (;;) pause();
}
"#;
const GO_SOURCE: &str = r#"package main

import (
	"os"
	"os/signal"
	"syscall"
)

func main() {
	end := make(chan os.Signal, 1)
	signal.Notify(end, syscall.SIGTERM, syscall.SIGINT)
	<-end
}
"#;

/// The archive's path in the cache; makes it when it is not there.
///
/// # Errors
/// No C and no Go compiler, or it fails.
pub(crate) async fn pause_archive(environment: &Environment, progress: &Reporter) -> Result<PathBuf> {
    let folder = environment.cache.join("pause");
    let key: String = Sha256::digest([C_SOURCE, GO_SOURCE].concat())
        .iter()
        .take(6)
        .map(|byte| format!("{byte:02x}"))
        .collect();
    let archive = folder.join(format!("pause-{key}.tar"));
    if archive.is_file() {
        return Ok(archive);
    }
    fs::create_dir_all(&folder).map_err(Error::io("create the cache folder", &folder))?;
    let _lock = lock_file(&folder.join("lock"), "build of the pause image", progress).await?;
    if archive.is_file() {
        return Ok(archive);
    }
    let step = progress.begin("building the pause image");
    let program = compile(&folder).await?;
    let bytes = fs::read(&program).map_err(Error::io("read", &program))?;
    let part = archive.with_extension("part");
    fs::write(&part, image_archive(PAUSE_IMAGE, "pause", &bytes)).map_err(Error::io("write", &part))?;
    fs::rename(&part, &archive).map_err(Error::io("move into the cache", &archive))?;
    step.done();
    Ok(archive)
}

async fn compile(folder: &Path) -> Result<PathBuf> {
    let program = folder.join("pause");
    let put = |name: &str, source: &str| -> Result<PathBuf> {
        let path = folder.join(name);
        fs::write(&path, source).map_err(Error::io("write", &path))?;
        Ok(path)
    };
    let target = program.to_string_lossy().into_owned();
    for compiler in ["cc", "gcc", "clang", "musl-gcc"] {
        if find_on_path(compiler).is_none() {
            continue;
        }
        let source = put("pause.c", C_SOURCE)?.to_string_lossy().into_owned();
        match run(compiler, ["-Os", "-static", "-s", "-o", &target, &source], COMPILE_LIMIT).await {
            Ok(_) => return Ok(program),
            Err(error) => {
                tracing::debug!(compiler, error = %client::chain(&error), "no static program");
            }
        }
    }
    if find_on_path("go").is_none() {
        return Err(Error::Options(
            "a real kubelet needs a pause image, and there is no C compiler with a static libc and no Go to build \
             it: install gcc and libc6-dev, or Go"
                .to_owned(),
        ));
    }
    let source = put("pause.go", GO_SOURCE)?.to_string_lossy().into_owned();
    run(
        "env",
        ["CGO_ENABLED=0", "GOFLAGS=", "go", "build", "-ldflags=-s -w", "-o", &target, &source],
        COMPILE_LIMIT,
    )
    .await?;
    Ok(program)
}

/// An image of a program of this computer, with the libraries that it is linked to, as an archive in `folder`. In the
/// image the program is at `path`.
///
/// # Errors
/// The program or a library cannot be read, or there is no `strip` and `ldd`.
pub async fn program_image(name: &str, program: &Path, path: &str, folder: &Path) -> Result<PathBuf> {
    // What a debugger needs is most of the file.
    let stripped = folder.join("stripped");
    let (from, to) = (program.to_string_lossy(), stripped.to_string_lossy());
    run("strip", ["--strip-all", "-o", &to, &from], COMPILE_LIMIT).await?;
    let linked = run("ldd", [to.as_ref()], COMPILE_LIMIT).await?;
    let read = |path: &Path| fs::read(path).map_err(Error::io("read", path));
    let mut files = vec![(path.trim_start_matches('/').to_owned(), read(&stripped)?)];
    // `libc.so.6 => /lib/x/libc.so.6 (0x…)`, and the loader by its path alone.
    for word in linked.split_whitespace().filter(|word| word.starts_with('/')) {
        files.push((word.trim_start_matches('/').to_owned(), read(Path::new(word))?));
    }
    let files: Vec<(&str, u32, &[u8])> =
        files.iter().map(|(path, bytes)| (path.as_str(), 0o755, bytes.as_slice())).collect();
    let archive = folder.join("image.tar");
    fs::write(&archive, archive_of(name, path, &files)).map_err(Error::io("write", &archive))?;
    Ok(archive)
}

/// The image as an archive with a manifest, a config and one layer that holds the program at the root.
fn image_archive(name: &str, program: &str, bytes: &[u8]) -> Vec<u8> {
    archive_of(name, &format!("/{program}"), &[(program, 0o755, bytes)])
}

fn archive_of(name: &str, entrypoint: &str, files: &[(&str, u32, &[u8])]) -> Vec<u8> {
    let layer = tar(files);
    let hex =
        |bytes: &[u8]| -> String { Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect() };
    let architecture = match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    };
    let config = serde_json::json!({
        "architecture": architecture, "os": "linux",
        "config": {"Entrypoint": [entrypoint]},
        "rootfs": {"type": "layers", "diff_ids": [format!("sha256:{}", hex(&layer))]},
    })
    .to_string();
    let config_name = format!("{}.json", hex(config.as_bytes()));
    let manifest =
        serde_json::json!([{"Config": config_name, "RepoTags": [name], "Layers": ["layer.tar"]}]).to_string();
    tar(&[
        (&config_name, 0o644, config.as_bytes()),
        ("layer.tar", 0o644, &layer),
        ("manifest.json", 0o644, manifest.as_bytes()),
    ])
}

/// A tar archive (ustar) of plain files that belong to root. Names must fit in 100 bytes.
fn tar(files: &[(&str, u32, &[u8])]) -> Vec<u8> {
    const BLOCK: usize = 512;
    let mut out = Vec::new();
    for (name, mode, content) in files {
        let mut header = [0_u8; BLOCK];
        let mut put = |at: usize, text: &str| header[at..at + text.len()].copy_from_slice(text.as_bytes());
        put(0, name);
        put(100, &format!("{mode:07o}"));
        put(108, "0000000");
        put(116, "0000000");
        put(124, &format!("{:011o}", content.len()));
        put(136, "00000000000");
        put(148, "        ");
        put(156, "0");
        put(257, "ustar\u{0}00");
        let sum: u32 = header.iter().map(|byte| u32::from(*byte)).sum();
        header[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
        out.extend_from_slice(&header);
        out.extend_from_slice(content);
        out.resize(out.len().next_multiple_of(BLOCK), 0);
    }
    out.resize(out.len() + 2 * BLOCK, 0);
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    #[test]
    fn the_archive_is_one_that_tar_reads() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("image.tar");
        fs::write(&path, image_archive("lab.invalid/x:1", "x", b"program")).unwrap();
        assert!(
            Command::new("tar").arg("-xf").arg(&path).arg("-C").arg(dir.path()).status().unwrap().success()
        );
        let layer =
            Command::new("tar").arg("-xOf").arg(dir.path().join("layer.tar")).arg("x").output().unwrap();
        assert_eq!(layer.stdout, b"program");
        let manifest: serde_json::Value =
            serde_json::from_slice(&fs::read(dir.path().join("manifest.json")).unwrap()).unwrap();
        assert_eq!(manifest[0]["RepoTags"][0], "lab.invalid/x:1");
    }
}
