//! `mco bundle`: writes the archive for a bug report.
//!
//! What it is not: its contents and what is hidden in them (see [`insight::bundle()`]).

use crate::args::show::bundle::Bundle;
use crate::{connect, exit};
use anyhow::Context as _;
use flate2::Compression;
use flate2::write::GzEncoder;
use insight::BundleFile;
use k8s_openapi::jiff::Timestamp;
use std::io::{IsTerminal as _, Write};
use std::path::{Path, PathBuf};

pub(crate) async fn run(a: Bundle) -> anyhow::Result<u8> {
    let client = connect::connect(&a.cluster).await?;
    let now = Timestamp::now();
    let name = format!("mco-bundle-{}", now.strftime("%Y%m%d-%H%M%S"));
    let path = a.file.unwrap_or_else(|| PathBuf::from(format!("{name}.tar.gz")));
    let to_standard_output = path == Path::new("-");
    anyhow::ensure!(
        !(to_standard_output && std::io::stdout().is_terminal()),
        "an archive is not written to a terminal; name a file with -f"
    );
    // Checked before minutes of reading, not after them: whether the folder can be written, and no archive exists yet. An
    // interrupted run leaves nothing behind.
    let folder = path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let mut file = None;
    if !to_standard_output {
        anyhow::ensure!(!path.exists(), "{} exists already; give another name with -f", path.display());
        let made = tempfile::Builder::new().prefix(".mco-bundle-").tempfile_in(folder);
        file = Some(made.with_context(|| format!("cannot write into {}", folder.display()))?);
    }
    let shows = std::io::stderr().is_terminal();
    let mut told = 0;
    let files = insight::bundle(&client, env!("CARGO_PKG_VERSION"), |what| {
        if shows {
            eprint!("\r{:told$}\rreading: {what}", "");
            told = "reading: ".len() + what.len();
        }
    })
    .await;
    if shows {
        eprint!("\r{:told$}\r", "");
    }
    let archive = archive(&name, &files, now.as_second().unsigned_abs())?;
    match file {
        Some(mut file) => {
            file.write_all(&archive).with_context(|| format!("cannot write {}", path.display()))?;
            file.persist_noclobber(&path).with_context(|| format!("cannot write {}", path.display()))?;
        }
        None => std::io::stdout().lock().write_all(&archive).context("cannot write the archive")?,
    }
    let unread = files.iter().find(|f| f.path == "errors.txt").map_or(0, |f| f.text.lines().count());
    if unread > 0 {
        eprintln!("mco: {unread} things could not be read; errors.txt in the archive names them");
    }
    if !to_standard_output {
        crate::output::write(&format!("{}\n", path.display()))?;
    }
    Ok(exit::OK)
}

/// The files as a compressed tar, below one folder.
fn archive(folder: &str, files: &[BundleFile], time: u64) -> std::io::Result<Vec<u8>> {
    let mut tar = tar::Builder::new(GzEncoder::new(Vec::new(), Compression::default()));
    for file in files {
        let mut header = tar::Header::new_gnu();
        header.set_mode(0o600);
        header.set_mtime(time);
        header.set_size(file.text.len() as u64);
        tar.append_data(&mut header, format!("{folder}/{}", file.path), file.text.as_bytes())?;
    }
    tar.into_inner()?.finish()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read as _;

    #[test]
    fn the_archive_holds_each_file_below_one_folder() {
        let file = |path: &str, text: &str| BundleFile { path: path.to_owned(), text: text.to_owned() };
        let long = format!("logs/{}/a.log", "p".repeat(120));
        let made = archive("b", &[file("version.txt", "mco 1\n"), file(&long, "x")], 7).unwrap();
        let mut read = tar::Archive::new(flate2::read::GzDecoder::new(&made[..]));
        let found: Vec<(String, String)> = read
            .entries()
            .unwrap()
            .map(|entry| {
                let mut entry = entry.unwrap();
                let path = entry.path().unwrap().display().to_string();
                let mut text = String::new();
                entry.read_to_string(&mut text).unwrap();
                (path, text)
            })
            .collect();
        assert_eq!(found[0], ("b/version.txt".to_owned(), "mco 1\n".to_owned()));
        assert_eq!(found[1], (format!("b/{long}"), "x".to_owned()));
    }
}
