//! The name of an image in a registry: `HOST[:PORT]/REPOSITORY[:TAG][@DIGEST]`. Pure.
//!
//! What it is not: OSTree's words around such a name (`ostree-image-signed:` and so on; see `host`). Short names, which a host
//! completes by its own search registries, are refused: two hosts may complete them differently.
//!
//! Source: <https://github.com/distribution/reference>.

use std::fmt;

/// A digest: `sha256:` and 64 hexadecimal digits in lower case.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Digest(String);

impl Digest {
    /// Reads a digest. Other algorithms than SHA-256 are not known here.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        api::formats::image_name::is_digest(text).then(|| Self(text.to_owned()))
    }

    /// The digest of some bytes.
    #[must_use]
    pub fn of(bytes: &[u8]) -> Self {
        use sha2::Digest as _;
        Self::of_hash(sha2::Sha256::new_with_prefix(bytes))
    }

    /// The digest of what was hashed.
    pub(crate) fn of_hash(hash: sha2::Sha256) -> Self {
        use sha2::Digest as _;
        Self(format!("sha256:{}", api::formats::text::hex(&hash.finalize())))
    }

    /// As it is written.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Why a text is no reference.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} is not the name of an image in a registry: {why}")]
pub struct ReferenceError {
    /// What was read.
    pub text: String,
    /// What is wrong with it.
    pub why: &'static str,
}

/// The name of an image in a registry.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Reference {
    host: String,
    repository: String,
    tag: Option<String>,
    digest: Option<Digest>,
}

/// A tag's length (OCI distribution).
const LONGEST_TAG: usize = 128;
/// A name's length. Registries accept fewer.
const LONGEST_NAME: usize = 255;

impl Reference {
    /// Reads a reference. `docker://` may stand before it.
    ///
    /// # Errors
    /// No registry, or a part that registries do not accept.
    pub fn parse(text: &str) -> Result<Self, ReferenceError> {
        let bad = |why| ReferenceError { text: api::formats::text::cut(text, 300).into_owned(), why };
        let rest = text.strip_prefix("docker://").unwrap_or(text);
        let (rest, digest) = match rest.split_once('@') {
            Some((rest, digest)) => {
                let digest = Digest::parse(digest);
                (rest, Some(digest.ok_or_else(|| bad("what follows @ is not a sha256 digest"))?))
            }
            None => (rest, None),
        };
        let (host, path) =
            rest.split_once('/').ok_or_else(|| bad("there is no registry before the first /"))?;
        if !(host.contains(['.', ':']) || host == "localhost") {
            return Err(bad(
                "it does not begin with a registry; write HOST/NAME, for example quay.io/team/os:1",
            ));
        }
        if !is_host(host) {
            return Err(bad("its registry is not HOST or HOST:PORT"));
        }
        let (repository, tag) = match path.rsplit_once(':') {
            Some((repository, tag)) => (repository, Some(tag)),
            None => (path, None),
        };
        if repository.len() > LONGEST_NAME || !repository.split('/').all(is_component) {
            return Err(bad(
                "a part of its repository is empty, or has characters other than a-z, 0-9, . _ -",
            ));
        }
        if !tag.is_none_or(is_tag) {
            return Err(bad("its tag has characters other than letters, digits, . _ -"));
        }
        Ok(Self {
            host: host.to_owned(),
            repository: repository.to_owned(),
            tag: tag.map(str::to_owned),
            digest,
        })
    }

    /// The registry, with its port if it has one.
    #[must_use]
    pub fn host(&self) -> &str {
        &self.host
    }

    /// Registry and repository.
    #[must_use]
    pub fn name(&self) -> String {
        format!("{}/{}", self.host, self.repository)
    }

    /// Its digest. With one, tags do not count.
    #[must_use]
    pub fn digest(&self) -> Option<&Digest> {
        self.digest.as_ref()
    }

    /// The same image by this digest.
    #[must_use]
    pub fn at(&self, digest: Digest) -> Self {
        Self { tag: None, digest: Some(digest), ..self.clone() }
    }

    /// The same tag or digest of another repository. `None`: that name is none.
    pub(crate) fn named(&self, name: &str) -> Option<Self> {
        let other = Self::parse(name).ok().filter(|other| other.tag.is_none() && other.digest.is_none())?;
        Some(Self { tag: self.tag.clone(), digest: self.digest.clone(), ..other })
    }

    /// The repository as the registry's API calls it.
    pub(crate) fn repository(&self) -> String {
        // Images that docker.io keeps itself have no name before theirs.
        let own = self.host == "docker.io" && !self.repository.contains('/');
        if own { format!("library/{}", self.repository) } else { self.repository.clone() }
    }

    /// Where the registry's API is served.
    pub(crate) fn server(&self) -> &str {
        if self.host == "docker.io" { "registry-1.docker.io" } else { &self.host }
    }

    /// What a registry is asked for: the digest, or the tag (`latest` where there is none).
    pub(crate) fn wanted(&self) -> &str {
        match (&self.digest, &self.tag) {
            (Some(digest), _) => digest.as_str(),
            (None, Some(tag)) => tag,
            (None, None) => "latest",
        }
    }
}

impl fmt::Display for Reference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.host, self.repository)?;
        match (&self.digest, &self.tag) {
            (Some(digest), _) => write!(f, "@{digest}"),
            (None, Some(tag)) => write!(f, ":{tag}"),
            (None, None) => Ok(()),
        }
    }
}

/// `HOST`, `HOST:PORT`, `[IPv6]` or `[IPv6]:PORT`. Nothing else may become the authority of a URL.
fn is_host(text: &str) -> bool {
    let (name, port) = match text.strip_prefix('[').map(|rest| rest.split_once(']')) {
        Some(Some((address, rest))) => {
            let address = address.parse::<std::net::Ipv6Addr>().is_ok();
            return address && (rest.is_empty() || rest.strip_prefix(':').is_some_and(is_port));
        }
        Some(None) => return false,
        None => text.split_once(':').map_or((text, None), |(name, port)| (name, Some(port))),
    };
    let fits = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'-' | b'_');
    !name.is_empty() && name.bytes().all(fits) && port.is_none_or(is_port)
}

fn is_port(text: &str) -> bool {
    text.bytes().all(|b| b.is_ascii_digit()) && text.parse::<u16>().is_ok_and(|port| port > 0)
}

fn is_component(text: &str) -> bool {
    let word = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit();
    let ends = |b: Option<u8>| b.is_some_and(word);
    ends(text.bytes().next())
        && ends(text.bytes().last())
        && text.bytes().all(|b| word(b) || matches!(b, b'.' | b'_' | b'-'))
        && !text.contains("..")
}

pub(crate) fn is_tag(text: &str) -> bool {
    let word = |b: u8| b.is_ascii_alphanumeric() || b == b'_';
    (1..=LONGEST_TAG).contains(&text.len())
        && text.bytes().next().is_some_and(word)
        && text.bytes().all(|b| word(b) || matches!(b, b'.' | b'-'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reference_is_read_and_written() {
        let digest = format!("sha256:{}", "0a".repeat(32));
        let at = |name: &str| format!("{name}@{digest}");
        for (text, host, name, wanted, written) in [
            ("q.io/a/b:1", "q.io", "q.io/a/b", "1", "q.io/a/b:1"),
            ("docker://q.io/a", "q.io", "q.io/a", "latest", "q.io/a"),
            ("q.io:5000/a", "q.io:5000", "q.io:5000/a", "latest", "q.io:5000/a"),
            ("localhost/a:1", "localhost", "localhost/a", "1", "localhost/a:1"),
            ("[::1]:5000/a:1", "[::1]:5000", "[::1]:5000/a", "1", "[::1]:5000/a:1"),
            (&at("q.io/a:1"), "q.io", "q.io/a", &digest, &at("q.io/a")),
        ] {
            let read = Reference::parse(text).unwrap();
            assert_eq!((read.host(), read.name().as_str(), read.wanted()), (host, name, wanted));
            assert_eq!(read.to_string(), written);
        }
    }

    #[test]
    fn what_could_lead_elsewhere_is_refused() {
        for text in [
            "",
            "os",
            "team/os:1",
            "q.io/",
            "q.io//a",
            "q.io/../v2/x",
            "q.io/a..b",
            "q.io/A",
            "q.io/a?x=1",
            "q.io/a#b",
            "q.io/a:",
            "q.io/a:b/c:",
            "q.io/a:x y",
            "user@q.io/a",
            "user:pass@q.io/a",
            "q.io:port/a",
            "q.io:0/a",
            "q.io:70000/a",
            "[::1/a",
            "[x]/a",
            "q.io/a@sha256:12",
            "q.io/a@md5:12",
            "https://q.io/a",
            "oci:/a.b/c",
            "ostree-image-signed:docker://q.io/a",
        ] {
            assert!(Reference::parse(text).is_err(), "{text}");
        }
        let short = Reference::parse("team/os:1").unwrap_err().to_string();
        assert!(short.contains("\"team/os:1\"") && short.contains("HOST/NAME"), "{short}");
    }

    #[test]
    fn a_digest_is_that_of_the_bytes() {
        let empty = "sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
        assert_eq!(Digest::of(b"").as_str(), empty);
        assert_eq!(Digest::parse(empty), Some(Digest::of(b"")));
        assert_eq!(Digest::parse(&empty.to_uppercase()), None);
    }
}
