//! Writes container images as archives that `ctr images import` reads: a manifest, a config and one layer.
//!
//! Flow: an [`Image`] lists what is in the layer → [`write`] streams it into a file, block by block, and computes its
//! digest on the way. Programs of a hundred megabytes are never held in memory.
//!
//! Not here: which images there are (`image`, `kubeadm::images`). There is no registry, so nothing is compressed.
//!
//! Sources: the tar format "ustar" of POSIX.1-2001 (pax, "ustar Interchange Format"), and the Docker Image Specification
//! v1.2 for the three files of the archive.

use std::fs::{self, File};
use std::io::{BufWriter, Read, Write};
use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};

use crate::error::{Error, Result};

/// Everything in a tar archive is padded to this many bytes.
const BLOCK: u64 = 512;
/// The end of a tar archive: two empty blocks.
const END: u64 = 2 * BLOCK;
/// The longest name, and the longest target of a link.
const LONGEST: usize = 100;
/// How many bytes of a file are copied at a time.
const CHUNK: usize = 1 << 20;

/// One image with one layer.
#[derive(Debug, Clone)]
pub(crate) struct Image {
    /// The name with its tag.
    pub(crate) name: String,
    /// The program that the container starts, as an absolute path in the image.
    pub(crate) entrypoint: String,
    /// The content of the layer. Parent folders need no entry.
    pub(crate) entries: Vec<Entry>,
}

/// A file, folder or link in a layer. It belongs to root.
#[derive(Debug, Clone)]
pub(crate) struct Entry {
    /// Its path, without the first slash.
    pub(crate) path: String,
    /// Its permissions.
    pub(crate) mode: u32,
    pub(crate) content: Content,
}

/// The content of an entry.
#[derive(Debug, Clone)]
pub(crate) enum Content {
    /// These bytes.
    Bytes(Vec<u8>),
    /// The bytes of a file of this computer. Links are followed.
    Host(PathBuf),
    /// A symbolic link to this target.
    Link(String),
    /// A folder.
    Folder,
}

impl Entry {
    /// An executable file with the content of a program of this computer.
    pub(crate) fn program(path: &str, host: &Path) -> Self {
        Self::new(path, 0o755, Content::Host(host.to_owned()))
    }

    /// A symbolic link.
    pub(crate) fn link(path: &str, target: &str) -> Self {
        Self::new(path, 0o777, Content::Link(target.to_owned()))
    }

    pub(crate) fn new(path: &str, mode: u32, content: Content) -> Self {
        Self { path: path.trim_start_matches('/').to_owned(), mode, content }
    }

    fn size(&self) -> Result<u64> {
        match &self.content {
            Content::Bytes(bytes) => Ok(bytes.len() as u64),
            Content::Host(path) => {
                fs::metadata(path).map(|data| data.len()).map_err(Error::io("look at", path))
            }
            Content::Link(_) | Content::Folder => Ok(0),
        }
    }
}

/// Writes the image's archive to `to`, whole or not at all. Blocks.
///
/// # Errors
/// A file cannot be read or written, a name is too long for the format, or a file changes its size in the meantime.
pub(crate) fn write(image: &Image, to: &Path) -> Result<()> {
    let part = to.with_extension("part");
    let written = write_part(image, &part);
    if written.is_err() {
        let _absent = fs::remove_file(&part);
        return written;
    }
    fs::rename(&part, to).map_err(Error::io("move into place", to))
}

fn write_part(image: &Image, to: &Path) -> Result<()> {
    let file = File::create(to).map_err(Error::io("create", to))?;
    let mut out = Output { file: BufWriter::with_capacity(CHUNK, file), path: to, digest: None };
    let mut size = END;
    for entry in &image.entries {
        size += BLOCK + entry.size()?.next_multiple_of(BLOCK);
    }
    out.put(&header("layer.tar", 0o644, size, &Kind::File)?)?;
    out.digest = Some(Sha256::new());
    for entry in &image.entries {
        out.entry(entry)?;
    }
    out.pad(END)?;
    let layer = out.digest.take().map(|digest| hex(&digest.finalize())).unwrap_or_default();
    let config = serde_json::json!({
        "architecture": architecture(), "os": "linux",
        "config": {
            "Entrypoint": [image.entrypoint],
            "Env": ["PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"],
        },
        "rootfs": {"type": "layers", "diff_ids": [format!("sha256:{layer}")]},
    })
    .to_string();
    let config_name = format!("{}.json", hex(&Sha256::digest(&config)));
    let manifest = serde_json::json!([
        {"Config": config_name, "RepoTags": [image.name], "Layers": ["layer.tar"]}
    ])
    .to_string();
    for (name, text) in [(config_name.as_str(), config), ("manifest.json", manifest)] {
        out.entry(&Entry::new(name, 0o644, Content::Bytes(text.into_bytes())))?;
    }
    out.pad(END)?;
    out.file.flush().map_err(Error::io("write", to))
}

/// The architecture of this computer, as images name it.
fn architecture() -> &'static str {
    match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The archive that is being written, and the digest of its layer.
struct Output<'a> {
    file: BufWriter<File>,
    path: &'a Path,
    digest: Option<Sha256>,
}

impl Output<'_> {
    fn put(&mut self, bytes: &[u8]) -> Result<()> {
        if let Some(digest) = &mut self.digest {
            digest.update(bytes);
        }
        self.file.write_all(bytes).map_err(Error::io("write", self.path))
    }

    fn pad(&mut self, bytes: u64) -> Result<()> {
        let zeros = vec![0; usize::try_from(bytes).unwrap_or_default()];
        self.put(&zeros)
    }

    fn entry(&mut self, entry: &Entry) -> Result<()> {
        let size = entry.size()?;
        let kind = match &entry.content {
            Content::Bytes(_) | Content::Host(_) => Kind::File,
            Content::Link(target) => Kind::Link(target),
            Content::Folder => Kind::Folder,
        };
        self.put(&header(&entry.path, entry.mode, size, &kind)?)?;
        match &entry.content {
            Content::Bytes(bytes) => self.put(bytes)?,
            Content::Host(path) => self.copy(path, size)?,
            Content::Link(_) | Content::Folder => {}
        }
        self.pad(size.next_multiple_of(BLOCK) - size)
    }

    fn copy(&mut self, path: &Path, size: u64) -> Result<()> {
        let mut file = File::open(path).map_err(Error::io("open", path))?;
        let mut chunk = vec![0; CHUNK];
        let mut copied = 0;
        loop {
            let read = file.read(&mut chunk).map_err(Error::io("read", path))?;
            if read == 0 {
                break;
            }
            copied += read as u64;
            if copied > size {
                break;
            }
            self.put(&chunk[..read])?;
        }
        if copied == size {
            return Ok(());
        }
        Err(Error::Options(format!("{} changed while an image was made from it: try again", path.display())))
    }
}

enum Kind<'a> {
    File,
    Link(&'a str),
    Folder,
}

/// The block before a file. Numbers are in octal digits; for the checksum, its own field counts as blanks.
fn header(name: &str, mode: u32, size: u64, kind: &Kind<'_>) -> Result<Vec<u8>> {
    let mut header = vec![0_u8; usize::try_from(BLOCK).unwrap_or_default()];
    let (flag, target) = match kind {
        Kind::File => ("0", ""),
        Kind::Link(target) => ("2", *target),
        Kind::Folder => ("5", ""),
    };
    for text in [name, target] {
        if text.len() > LONGEST {
            return Err(Error::Options(format!(
                "{text} does not fit into an image: its name has {} bytes, the format takes {LONGEST}",
                text.len()
            )));
        }
    }
    let mut put = |at: usize, text: &str| header[at..at + text.len()].copy_from_slice(text.as_bytes());
    put(0, name);
    put(100, &format!("{mode:07o}"));
    put(108, "0000000");
    put(116, "0000000");
    put(124, &format!("{size:011o}"));
    put(136, "00000000000");
    put(148, "        ");
    put(156, flag);
    put(157, target);
    put(257, "ustar\u{0}00");
    let sum: u32 = header.iter().map(|byte| u32::from(*byte)).sum();
    header[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
    Ok(header)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    fn tar(args: &[&str], archive: &Path) -> String {
        let done = Command::new("tar").args(args).arg(archive).output().unwrap();
        assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
        String::from_utf8_lossy(&done.stdout).into_owned()
    }

    #[test]
    fn the_archive_is_one_that_tar_reads() {
        let dir = tempfile::tempdir().unwrap();
        let host = dir.path().join("tree/deep");
        fs::create_dir_all(&host).unwrap();
        fs::write(host.join("a"), vec![b'a'; 3 * CHUNK + 1]).unwrap();
        fs::write(host.join("b"), "").unwrap();
        let mut entries = vec![
            Entry::new("/usr/bin/x", 0o755, Content::Bytes(b"program".to_vec())),
            Entry::new("tmp", 0o1777, Content::Folder),
            Entry::link("usr/bin/y", "x"),
        ];
        entries.extend(
            ["a", "b"].map(|name| {
                Entry::new(&format!("/share/deep/{name}"), 0o644, Content::Host(host.join(name)))
            }),
        );
        let image =
            Image { name: "lab.invalid/x:1".to_owned(), entrypoint: "/usr/bin/x".to_owned(), entries };
        let archive = dir.path().join("image.tar");
        write(&image, &archive).unwrap();

        tar(&["-C", &dir.path().to_string_lossy(), "-xf"], &archive);
        let layer = dir.path().join("layer.tar");
        let manifest: serde_json::Value =
            serde_json::from_slice(&fs::read(dir.path().join("manifest.json")).unwrap()).unwrap();
        assert_eq!(manifest[0]["RepoTags"][0], "lab.invalid/x:1");
        let config = dir.path().join(manifest[0]["Config"].as_str().unwrap());
        let config: serde_json::Value = serde_json::from_slice(&fs::read(config).unwrap()).unwrap();
        assert_eq!(config["config"]["Entrypoint"][0], "/usr/bin/x");
        let digest = format!("sha256:{}", hex(&Sha256::digest(fs::read(&layer).unwrap())));
        assert_eq!(config["rootfs"]["diff_ids"][0], digest.as_str());

        let listed = tar(&["-tvf"], &layer);
        let lines: Vec<(&str, &str)> = listed
            .lines()
            .map(|line| (line.split(' ').next().unwrap(), line.split_once(":").unwrap().1[3..].trim()))
            .collect();
        let want = [
            ("-rwxr-xr-x", "usr/bin/x"),
            ("drwxrwxrwt", "tmp"),
            ("lrwxrwxrwx", "usr/bin/y -> x"),
            ("-rw-r--r--", "share/deep/a"),
            ("-rw-r--r--", "share/deep/b"),
        ];
        assert_eq!(lines, want);
        let out = dir.path().join("out");
        fs::create_dir(&out).unwrap();
        tar(&["-C", &out.to_string_lossy(), "-xf"], &layer);
        assert_eq!(fs::read(out.join("share/deep/a")).unwrap(), fs::read(host.join("a")).unwrap());
        assert_eq!(fs::read(out.join("usr/bin/y")).unwrap(), b"program");
    }

    #[test]
    fn what_the_format_cannot_hold_is_refused_and_leaves_no_file() {
        let dir = tempfile::tempdir().unwrap();
        let entries = vec![Entry::new(&"x".repeat(LONGEST + 1), 0o644, Content::Bytes(vec![]))];
        let image = Image { name: "x".to_owned(), entrypoint: "/x".to_owned(), entries };
        let archive = dir.path().join("image.tar");
        let error = write(&image, &archive).unwrap_err().to_string();
        assert!(error.contains("101 bytes"), "{error}");
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
    }
}
