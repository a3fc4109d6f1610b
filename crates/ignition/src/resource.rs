//! The bytes behind a [`Resource`]: data URL, gzip, hash. Only contents in the config itself can be read here; remote
//! sources are a distinct error, because this crate has no network.
//!
//! Source: <https://coreos.github.io/ignition/configuration-v3_5/>.

use crate::data_url::{self, DataUrlError};
use crate::model::Resource;
use sha2::{Digest as _, Sha256, Sha512};
use std::io::Read as _;

/// The most bytes that gzip may unpack to. A rendered config is at most 1.5 MiB; this limits the cost of a hostile one.
pub const MAX_UNPACKED: usize = 64 * 1024 * 1024;

/// Schemes of the sources that Ignition fetches.
pub(crate) const REMOTE: [&str; 6] = ["http", "https", "tftp", "s3", "arn", "gs"];

/// Why the bytes of a resource are not available.
#[derive(Debug, thiserror::Error)]
pub enum ResourceError {
    /// The source is a data URL that cannot be decoded.
    #[error("source: {0}")]
    DataUrl(#[from] DataUrlError),
    /// The source is remote.
    #[error("source: {scheme}: sources cannot be fetched here; put the content into a data: URL")]
    Remote {
        /// The URL's scheme, one of those that Ignition knows.
        scheme: &'static str,
    },
    /// The source is not a URL that Ignition knows. It may be the content itself, and is not quoted.
    #[error("source: it is not a data: URL; put the content into one")]
    NoUrl,
    /// A compression other than none and gzip.
    #[error("compression: it is unknown; use gzip or none")]
    Compression,
    /// Not gzip.
    #[error("the content is marked as gzip but does not unpack: {0}")]
    Gzip(std::io::Error),
    /// gzip that unpacks to too many bytes.
    #[error("the content unpacks to more than {MAX_UNPACKED} bytes")]
    TooLarge,
    /// A hash of an unknown form.
    #[error("verification.hash: {0}")]
    HashForm(&'static str),
    /// The bytes have another hash.
    #[error("verification.hash: the content has another hash, {actual}")]
    HashMismatch {
        /// The hash of the bytes.
        actual: String,
    },
}

impl Resource {
    /// The bytes: decoded, unpacked and checked against their hash. Without a source there are no bytes.
    ///
    /// # Errors
    /// A remote source, a broken data URL, gzip that is broken or unpacks to too much, or a wrong hash.
    pub fn decode(&self) -> Result<Vec<u8>, ResourceError> {
        let Some(source) = self.source.as_deref().filter(|s| !s.is_empty()) else { return Ok(Vec::new()) };
        if !data_url::is_data_url(source) {
            let known = REMOTE.into_iter().find(|s| source.split(':').next() == Some(s));
            return Err(known.map_or(ResourceError::NoUrl, |scheme| ResourceError::Remote { scheme }));
        }
        let packed = data_url::decode(source)?;
        let bytes = match self.compression.as_deref() {
            None | Some("") => packed,
            Some("gzip") => gunzip(&packed)?,
            Some(_) => return Err(ResourceError::Compression),
        };
        self.verify(&bytes)?;
        Ok(bytes)
    }

    /// Like [`Resource::decode`], but only checks whether it is possible.
    ///
    /// # Errors
    /// As [`Resource::decode`].
    pub fn check(&self) -> Result<(), ResourceError> {
        let packed = !matches!(self.compression.as_deref(), None | Some(""));
        match self.source.as_deref().filter(|s| data_url::is_data_url(s)) {
            Some(source) if !packed && self.verification.hash.is_none() => Ok(data_url::check(source)?),
            _ => self.decode().map(|_| ()),
        }
    }

    /// Checks bytes against the hash, if there is one.
    fn verify(&self, bytes: &[u8]) -> Result<(), ResourceError> {
        let Some(hash) = self.verification.hash.as_deref() else { return Ok(()) };
        let (function, want) = hash_parts(hash).map_err(ResourceError::HashForm)?;
        let actual = match function {
            HashFunction::Sha256 => format!("sha256-{}", hex(&Sha256::digest(bytes))),
            HashFunction::Sha512 => format!("sha512-{}", hex(&Sha512::digest(bytes))),
        };
        let same = actual.split_once('-').is_some_and(|(_, sum)| sum.eq_ignore_ascii_case(want));
        if same { Ok(()) } else { Err(ResourceError::HashMismatch { actual }) }
    }
}

/// The hash functions of the spec.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum HashFunction {
    /// SHA-256 (since 3.2; read in all versions).
    Sha256,
    /// SHA-512.
    Sha512,
}

/// Splits `FUNCTION-SUM` and checks its form.
pub(crate) fn hash_parts(hash: &str) -> Result<(HashFunction, &str), &'static str> {
    let (name, sum) = hash.split_once('-').ok_or("must be sha512-HEX or sha256-HEX")?;
    let (function, digits) = match name {
        "sha512" => (HashFunction::Sha512, 128),
        "sha256" => (HashFunction::Sha256, 64),
        _ => return Err("the function must be sha512 or sha256"),
    };
    if sum.len() != digits {
        return Err("the sum has the wrong length for its function");
    }
    if !sum.bytes().all(|b| b.is_ascii_hexdigit()) {
        return Err("the sum is not hexadecimal");
    }
    Ok((function, sum))
}

fn hex(bytes: &[u8]) -> String {
    use std::fmt::Write as _;
    bytes.iter().fold(String::with_capacity(bytes.len() * 2), |mut s, b| {
        let _ = write!(s, "{b:02x}");
        s
    })
}

/// Unpacks gzip, up to [`MAX_UNPACKED`].
///
/// # Errors
/// Bytes that are not gzip, or that unpack to more.
pub fn gunzip(packed: &[u8]) -> Result<Vec<u8>, ResourceError> {
    let limit = u64::try_from(MAX_UNPACKED).unwrap_or(u64::MAX).saturating_add(1);
    let mut bytes = Vec::new();
    flate2::read::MultiGzDecoder::new(packed)
        .take(limit)
        .read_to_end(&mut bytes)
        .map_err(ResourceError::Gzip)?;
    if bytes.len() > MAX_UNPACKED { Err(ResourceError::TooLarge) } else { Ok(bytes) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::Verification;
    use std::io::Write as _;

    fn gzip(bytes: &[u8]) -> Vec<u8> {
        let mut w = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
        w.write_all(bytes).unwrap();
        w.finish().unwrap()
    }

    fn mk(source: &str, compression: Option<&str>, hash: Option<&str>) -> Resource {
        Resource {
            source: Some(source.to_owned()),
            compression: compression.map(str::to_owned),
            verification: Verification { hash: hash.map(str::to_owned) },
            ..Resource::default()
        }
    }

    #[test]
    fn plain_gzip_and_absent_sources_decode() {
        assert_eq!(Resource::default().decode().unwrap(), b"");
        assert_eq!(mk("data:,x", Some(""), None).decode().unwrap(), b"x");
        let packed = data_url::encode_base64("", &gzip(b"hello"));
        assert_eq!(mk(&packed, Some("gzip"), None).decode().unwrap(), b"hello");
    }

    #[test]
    fn a_remote_source_is_its_own_error() {
        let e = mk("https://example.com/x", None, None).decode().unwrap_err();
        assert!(matches!(&e, ResourceError::Remote { scheme: "https" }), "{e}");
    }

    #[test]
    fn gzip_that_is_not_or_that_never_ends_is_refused() {
        assert!(matches!(mk("data:,plain", Some("gzip"), None).decode(), Err(ResourceError::Gzip(_))));
        assert!(matches!(mk("data:,x", Some("xz"), None).decode(), Err(ResourceError::Compression)));
        let bomb = data_url::encode_base64("", &gzip(&vec![0; MAX_UNPACKED + 1]));
        assert!(matches!(mk(&bomb, Some("gzip"), None).decode(), Err(ResourceError::TooLarge)));
    }

    #[test]
    fn a_hash_must_be_that_of_the_unpacked_bytes() {
        let right = format!("sha256-{}", hex(&Sha256::digest(b"x")));
        assert_eq!(mk("data:,x", None, Some(&right)).decode().unwrap(), b"x");
        let wrong = format!("sha512-{}", "0".repeat(128));
        assert!(matches!(
            mk("data:,x", None, Some(&wrong)).decode(),
            Err(ResourceError::HashMismatch { .. })
        ));
        assert!(matches!(mk("data:,x", None, Some("md5-00")).decode(), Err(ResourceError::HashForm(_))));
    }
}
