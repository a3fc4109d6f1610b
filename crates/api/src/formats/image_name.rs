//! Names of images, `HOST[:PORT]/REPOSITORY[:TAG][@DIGEST]`: what a digest is, whether a name has one, and the name without
//! it. Pure texts.
//!
//! What it is not: a full reading of a name, which `registry` does, or OSTree's words around one, which `host` reads.
//!
//! Sources: <https://github.com/distribution/reference>
//! and <https://github.com/opencontainers/image-spec/blob/main/descriptor.md#digests>.

/// Whether a text is a digest as this program knows them: `sha256:` and 64 hexadecimal digits in lower case. Registries accept
/// no upper case (OCI image specification, descriptors).
#[must_use]
pub fn is_digest(text: &str) -> bool {
    text.strip_prefix("sha256:").is_some_and(|hex| {
        hex.len() == 64 && hex.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b))
    })
}

/// Whether a name says by digest which image it means, so that it means the same one whenever it is pulled. Whether the digest
/// is one is for whoever pulls it to find out.
#[must_use]
pub fn is_by_digest(image: &str) -> bool {
    image.contains("@sha256:")
}

/// A name without its tag and digest. A colon before the last slash begins a port.
#[must_use]
pub fn repository(image: &str) -> &str {
    let image = image.split_once('@').map_or(image, |(name, _)| name);
    match image.rsplit_once(':') {
        Some((name, tag)) if !tag.contains('/') => name,
        _ => image,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_digest_is_sha256_in_lower_case_and_a_name_loses_its_tag_but_not_its_port() {
        let digest = format!("sha256:{}", "0a".repeat(32));
        assert!(is_digest(&digest));
        for wrong in
            ["", "sha256:", "sha256:0a", &digest.to_uppercase(), &digest.replace("0a", "0A"), &digest[7..]]
        {
            assert!(!is_digest(wrong), "{wrong}");
        }
        for (image, name, by_digest) in [
            ("q.io/team/os:1", "q.io/team/os", false),
            ("q.io:5000/os", "q.io:5000/os", false),
            ("q.io:5000/os:1", "q.io:5000/os", false),
            ("q.io/os@sha256:1", "q.io/os", true),
            ("q.io/os:1@sha256:1", "q.io/os", true),
            ("[::1]:5000/os:1", "[::1]:5000/os", false),
            ("os:1", "os", false),
            ("sha256:1", "sha256", false),
            ("", "", false),
        ] {
            assert_eq!((repository(image), is_by_digest(image)), (name, by_digest), "{image}");
        }
    }
}
