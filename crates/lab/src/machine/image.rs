//! The container image of the pause program, written without a registry.
//!
//! The pause program does nothing until SIGTERM and then exits at once: it is the sandbox of every pod, and the
//! container of test pods. Not here: how an image is written (`archive`), the images of a control plane
//! (`kubeadm::images`), and the product's image (`delivery`).

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use sha2::{Digest, Sha256};

use crate::error::{Error, Result};
use crate::machine::archive::{self, Entry, Image};
use crate::progress::Reporter;
use crate::system::command::{find_on_path, run};
use crate::system::file_lock::lock_file;
use crate::system::paths::Environment;

/// The image's name in every node. `.invalid` never exists as a registry.
pub const PAUSE_IMAGE: &str = "lab.invalid/pause:1";
/// The time limit for compiling, if the compiler first has to be read from a slow disk.
const COMPILE_LIMIT: Duration = Duration::from_secs(300);

/// As PID 1 it gets only signals that it handles, and a container that ignores SIGTERM delays a node's shutdown.
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

/// The archive's path in the cache; writes the archive if it does not exist.
///
/// # Errors
/// There is neither a C nor a Go compiler, or it fails.
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
    let image = Image {
        name: PAUSE_IMAGE.to_owned(),
        entrypoint: "/pause".to_owned(),
        entries: vec![Entry::program("pause", &program)],
    };
    archive::write(&image, &archive)?;
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
