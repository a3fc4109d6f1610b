//! Container images made by hand, since there is no registry: the pause program, and the product's program.
//!
//! The pause program does nothing until SIGTERM and then ends at once: it is the sandbox of every pod, and the pods of
//! tests. Not here: how an image is written (`archive`), and the images of a control plane (`kubeadm::images`).

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use sha2::{Digest, Sha256};

use crate::control_plane::programs::lock_file;
use crate::error::{Error, Result};
use crate::machine::archive::{self, Entry, Image};
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

/// An image of a program of this computer, with the libraries that it is linked to, as an archive in `folder`. In the
/// image the program is at `path`; `more` are files and folders of this computer and where they are in the image.
///
/// # Errors
/// The program, a library or one of the files cannot be read, or there is no `strip` and `ldd`.
async fn program_image(
    name: &str,
    program: &Path,
    path: &str,
    more: &[(PathBuf, &str)],
    folder: &Path,
) -> Result<PathBuf> {
    // What a debugger needs is most of the file.
    let stripped = folder.join("stripped");
    let (from, to) = (program.to_string_lossy(), stripped.to_string_lossy());
    run("strip", ["--strip-all", "-o", &to, &from], COMPILE_LIMIT).await?;
    let linked = run("ldd", [to.as_ref()], COMPILE_LIMIT).await?;
    let mut entries = vec![Entry::program(path, &stripped)];
    // `libc.so.6 => /lib/x/libc.so.6 (0x…)`, and the loader by its path alone.
    for word in linked.split_whitespace().filter(|word| word.starts_with('/')) {
        entries.push(Entry::program(word, Path::new(word)));
    }
    for (here, there) in more {
        entries.extend(Entry::tree(there, here)?);
    }
    let image = Image { name: name.to_owned(), entrypoint: path.to_owned(), entries };
    let archive = folder.join("image.tar");
    archive::write(&image, &archive)?;
    Ok(archive)
}

/// The product's image in the lab, as `deploy/Containerfile` makes it: the program and the templates, at these places.
pub const PRODUCT_IMAGE: &str = "lab.invalid/mco:1";
const PRODUCT_PROGRAM: &str = "/usr/bin/mco";
const PRODUCT_TEMPLATES: &str = "/usr/share/mco/templates";

/// The archive of [`PRODUCT_IMAGE`] in `folder`, made of the program and the folder of the templates.
///
/// # Errors
/// As [`program_image`].
pub async fn product_image(program: &Path, templates: &Path, folder: &Path) -> Result<PathBuf> {
    let more = [(templates.to_owned(), PRODUCT_TEMPLATES)];
    program_image(PRODUCT_IMAGE, program, PRODUCT_PROGRAM, &more, folder).await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_products_image_has_what_is_delivered_at_its_places() {
        let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy/Containerfile");
        let text = fs::read_to_string(file).unwrap();
        let copied: Vec<&str> = text
            .lines()
            .filter_map(|line| line.strip_prefix("COPY ")?.split_whitespace().last())
            .filter(|place| place.starts_with('/'))
            .collect();
        assert_eq!(copied, [PRODUCT_PROGRAM, PRODUCT_TEMPLATES]);
        assert!(text.contains(&format!("ENTRYPOINT [\"{PRODUCT_PROGRAM}\"]")), "{text}");
    }
}
