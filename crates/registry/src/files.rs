//! Single files of an image, read out of its layers: the highest layer that has the file, or has removed it, counts.
//!
//! A layer is read while it arrives, so nothing of it is kept; it is read to its end, because its digest is known only then.
//! Layers that are packed with zstd are refused.
//!
//! What it is not: a pull. Files of more than [`LONGEST`] bytes, links and folders are not read.
//!
//! Source: <https://github.com/opencontainers/image-spec/blob/main/layer.md>.

use crate::documents::Descriptor;
use crate::inspect::failed;
use crate::reference::{Digest, Reference};
use crate::requests::error::{RegistryError, RequestFailure};
use crate::requests::registry::Registry;
use crate::requests::routes::Endpoint;
use crate::requests::transport::next;
use flate2::read::MultiGzDecoder;
use sha2::Digest as _;
use std::io::{BufRead, BufReader, Read};
use std::time::Duration;
use tokio::sync::mpsc;

/// Bytes of a file.
const LONGEST: u64 = 16 << 20;
/// Pieces of a layer between the network and what unpacks it.
const PIECES: usize = 16;
/// How long one file may take: layers have hundreds of megabytes.
const WHOLE: Duration = Duration::from_secs(300);

/// What a layer says of a file.
#[derive(Debug, PartialEq, Eq)]
enum InLayer {
    Is(Vec<u8>),
    Removed,
    Unsaid,
}

impl Registry {
    /// A file of an image, by its path, for an architecture (see [`Registry::inspect`]).
    ///
    /// # Errors
    /// See [`RegistryError`].
    pub async fn file(
        &self,
        image: &Reference,
        architecture: Option<&str>,
        path: &str,
    ) -> Result<Vec<u8>, RegistryError> {
        let read = Box::pin(self.read(image, architecture, path));
        let late = || Err(failed(image, image.server(), RequestFailure::Silent { after: WHOLE }));
        tokio::time::timeout(WHOLE, read).await.unwrap_or_else(|_| late())
    }

    async fn read(
        &self,
        image: &Reference,
        architecture: Option<&str>,
        path: &str,
    ) -> Result<Vec<u8>, RegistryError> {
        let none = || RegistryError::NoFile { image: image.to_string(), path: path.to_owned() };
        let found = self.document(image).await?;
        let one = self.image(image, found, architecture).await?;
        let mut left = self.settings.limits.layers;
        for layer in one.layers.iter().rev() {
            left = left.checked_sub(layer.size).ok_or_else(|| {
                failed(
                    image,
                    image.server(),
                    RequestFailure::TooLarge {
                        most: usize::try_from(self.settings.limits.layers).unwrap_or(usize::MAX),
                    },
                )
            })?;
            let at = image.at(layer.digest.clone());
            let mut tries = self.tries(&at)?;
            let said = loop {
                match self.in_layer(&tries.place()?, layer, path).await {
                    Ok(said) => break said,
                    Err(why) => tries.after(why).await,
                }
            };
            match said {
                InLayer::Is(bytes) => return Ok(bytes),
                InLayer::Removed => return Err(none()),
                InLayer::Unsaid => {}
            }
        }
        Err(none())
    }

    async fn in_layer(
        &self,
        place: &Endpoint,
        layer: &Descriptor,
        path: &str,
    ) -> Result<InLayer, RequestFailure> {
        let limits = &self.settings.limits;
        if layer.media_type.ends_with("zstd") {
            return Err(RequestFailure::Unreadable("a layer is packed with zstd".to_owned()));
        }
        let answer = self.get(place, &format!("blobs/{}", layer.digest), "*/*").await?;
        let (send, receive) = mpsc::channel(PIECES);
        let (path, most) = (path.trim_start_matches('/').to_owned(), limits.layers);
        let unpack = tokio::task::spawn_blocking(move || {
            search(Pieces { receive, piece: vec![], at: 0 }, &path, most)
        });
        let (mut body, mut hash, mut size) = (answer.into_body(), sha2::Sha256::new(), 0_u64);
        while let Some(bytes) = next(&mut body, limits).await? {
            size = size.saturating_add(bytes.len() as u64);
            if size > layer.size {
                return Err(RequestFailure::Lies(format!(
                    "layer {} is longer than it should be",
                    layer.digest
                )));
            }
            hash.update(&bytes);
            // Who unpacks may have found what it searched: the rest is only hashed.
            let _ = send.send(bytes).await;
        }
        drop(send);
        if Digest::of_hash(hash) != layer.digest {
            return Err(RequestFailure::Lies(format!(
                "layer {} has other bytes than its digest says",
                layer.digest
            )));
        }
        let found = unpack.await.map_err(|e| RequestFailure::Unreadable(e.to_string()))?;
        found.map_err(|e| RequestFailure::Unreadable(format!("layer {}: {e}", layer.digest)))
    }
}

/// The bytes of a layer as they arrive.
struct Pieces {
    receive: mpsc::Receiver<Vec<u8>>,
    piece: Vec<u8>,
    at: usize,
}

impl Read for Pieces {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        while self.at >= self.piece.len() {
            match self.receive.blocking_recv() {
                Some(piece) => (self.piece, self.at) = (piece, 0),
                None => return Ok(0),
            }
        }
        let rest = self.piece.get(self.at..).unwrap_or_default();
        let count = rest.len().min(buffer.len());
        if let (Some(to), Some(from)) = (buffer.get_mut(..count), rest.get(..count)) {
            to.copy_from_slice(from);
        }
        self.at += count;
        Ok(count)
    }
}

/// Searches a layer, packed with gzip or not, for a file or the mark that it, or a folder of it, was removed.
fn search(layer: impl Read, path: &str, most: u64) -> std::io::Result<InLayer> {
    let mut layer = BufReader::new(layer);
    let packed = layer.fill_buf()?.starts_with(&[0x1f, 0x8b]);
    if packed {
        search_tar(MultiGzDecoder::new(layer).take(most), path)
    } else {
        search_tar(layer.take(most), path)
    }
}

fn search_tar(tar: impl Read, path: &str) -> std::io::Result<InLayer> {
    let marks = marks(path);
    let (mut archive, mut found) = (tar::Archive::new(tar), InLayer::Unsaid);
    for entry in archive.entries()? {
        let mut entry = entry?;
        let name = entry.path()?.to_string_lossy().into_owned();
        let name = name.trim_start_matches("./").trim_start_matches('/');
        if name == path && entry.header().entry_type().is_file() {
            if entry.size() > LONGEST {
                return Err(std::io::Error::other(format!("{path} has more than {LONGEST} bytes")));
            }
            let mut bytes = vec![];
            entry.read_to_end(&mut bytes)?;
            return Ok(InLayer::Is(bytes));
        }
        // A mark hides what lower layers have. This one may still have the file.
        if marks.iter().any(|mark| mark == name) {
            found = InLayer::Removed;
        }
    }
    Ok(found)
}

/// The names by which a layer says that a path is gone (OCI image specification, "Whiteouts").
fn marks(path: &str) -> Vec<String> {
    let ends = path.match_indices('/').map(|(at, _)| at).chain([path.len()]);
    let mut all = vec![".wh..wh..opq".to_owned()];
    for part in ends.filter_map(|end| path.get(..end)) {
        let (folder, name) =
            part.rsplit_once('/').map_or((String::new(), part), |(f, n)| (format!("{f}/"), n));
        all.push(format!("{folder}.wh.{name}"));
        if part != path {
            all.push(format!("{part}/.wh..wh..opq"));
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tar(files: &[(&str, &str)]) -> Vec<u8> {
        let mut builder = tar::Builder::new(vec![]);
        for (name, text) in files {
            let mut header = tar::Header::new_gnu();
            header.set_size(text.len() as u64);
            header.set_mode(0o644);
            builder.append_data(&mut header, name, text.as_bytes()).unwrap();
        }
        builder.into_inner().unwrap()
    }

    #[test]
    fn a_layer_has_a_file_or_has_removed_it_or_says_nothing() {
        let is = |text: &str| InLayer::Is(text.as_bytes().to_vec());
        for (files, want) in [
            (vec![("a/b", "x")], is("x")),
            (vec![("./a/b", "x")], is("x")),
            (vec![("a/c", "x")], InLayer::Unsaid),
            (vec![("a/.wh.b", "")], InLayer::Removed),
            (vec![(".wh.a", "")], InLayer::Removed),
            (vec![("a/.wh..wh..opq", "")], InLayer::Removed),
            (vec![("a/.wh..wh..opq", ""), ("a/b", "new")], is("new")),
            (vec![("a/.wh.bb", "")], InLayer::Unsaid),
        ] {
            let bytes = tar(&files);
            assert_eq!(search(bytes.as_slice(), "a/b", 1 << 20).unwrap(), want, "{files:?}");
            let mut packed = flate2::read::GzEncoder::new(bytes.as_slice(), flate2::Compression::fast());
            let mut gz = vec![];
            packed.read_to_end(&mut gz).unwrap();
            assert_eq!(search(gz.as_slice(), "a/b", 1 << 20).unwrap(), want, "{files:?}");
        }
    }

    #[test]
    fn a_bomb_is_not_unpacked_without_end() {
        let bytes = tar(&[("x", &"0".repeat(100_000)), ("a/b", "x")]);
        assert!(search(bytes.as_slice(), "a/b", 50_000).is_err());
    }
}
