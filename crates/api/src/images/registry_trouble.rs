//! What programs say when a registry gives or takes no image: which trouble that is. buildah, skopeo, bootc and rpm-ostree
//! speak containers/image's words (<https://github.com/containers/image>). Pure.
//!
//! What it is not: what to do about it, which depends on who pulls or pushes (see `build` and `host`). Nothing is decided by
//! these words: they only choose the advice that stands beside them.

/// A trouble with a registry.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum RegistryTrouble {
    /// There is an image, but none for this architecture.
    Architecture,
    /// The registry answers no more requests for now.
    TooManyRequests,
    /// It asks for other credentials, or these may not do that.
    Credentials,
    /// A policy rejects the image.
    Policy,
    /// A policy would accept any image where one is to be verified.
    PolicyAcceptsAny,
    /// It is asked by TLS and has none.
    NoTls,
    /// Its certificate is not trusted.
    Certificate,
    /// It has no such image.
    NoSuchImage,
    /// It sent something else than it was asked for.
    OtherContents,
    /// The connection was cut.
    Cut,
    /// It cannot be reached, or does not answer.
    Unreachable,
}

use RegistryTrouble as T;

/// Words in lower case, of which each means this. The first row that fits counts: a refused login may also say 404.
const WORDS: [(T, &[&str]); 11] = [
    (T::Architecture, &["no image found in manifest list", "no image found in image index"]),
    (T::TooManyRequests, &["toomanyrequests", "too many requests"]),
    (
        T::Credentials,
        &[
            "unauthorized",
            "authentication required",
            // "denied: permission_denied: write_package", and so on.
            "denied:",
            "access denied",
            "access to the resource is denied",
            "insufficient_scope",
            "forbidden",
            "invalid username/password",
        ],
    ),
    (
        T::Policy,
        &["source image rejected", "signature was required", "rejected by policy", "invalid signature"],
    ),
    (T::PolicyAcceptsAny, &["specifies a default of `insecureacceptanything`"]),
    (T::NoTls, &["http response to https client"]),
    (
        T::Certificate,
        &[
            "x509:",
            "certificate verify failed",
            "certificate signed by unknown authority",
            "certificate is not trusted",
        ],
    ),
    (
        T::NoSuchImage,
        &[
            "manifest unknown",
            "name unknown",
            "name_unknown",
            "manifest_unknown",
            "404 (not found)",
            "repository not found",
            "repository name not known",
            "not found: manifest",
        ],
    ),
    (
        T::OtherContents,
        &[
            "digest did not match",
            "digest mismatch",
            "does not match provided manifest digest",
            "corrupted blob",
            "invalid checksum",
        ],
    ),
    (T::Cut, &["unexpected eof", "connection reset", "unexpected end of file", "stream error", "early eof"]),
    (
        T::Unreachable,
        &[
            "connection refused",
            "no such host",
            "name resolution",
            "i/o timeout",
            "no route to host",
            "network is unreachable",
            "handshake timeout",
            "deadline exceeded",
            "server misbehaving",
            "500 (internal",
            "502 (bad",
            "503 (service",
            "504 (gateway",
            "internal server error",
            "bad gateway",
            "service unavailable",
            "gateway timeout",
        ],
    ),
];

impl RegistryTrouble {
    /// The trouble that these words tell of, in upper or lower case. `None`: no known one.
    #[must_use]
    pub fn of(words: &str) -> Option<Self> {
        // A file or a program that is denied is no registry's: "exec: \"/x\": permission denied: unknown".
        let words = words.to_lowercase().replace("permission denied", "");
        WORDS
            .iter()
            .find(|(_, known)| known.iter().any(|word| words.contains(word)))
            .map(|(trouble, _)| *trouble)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_of_programs_lead_to_their_trouble() {
        for (said, want) in [
            (
                "no image found in manifest list for architecture \"amd64\", variant \"\", OS \"linux\"",
                Some(T::Architecture),
            ),
            ("toomanyrequests: You have reached your pull rate limit", Some(T::TooManyRequests)),
            ("reading manifest b in r.lab/os: unauthorized: authentication required", Some(T::Credentials)),
            (
                "reading manifest b in q.io/os: denied: requested access to the resource is denied",
                Some(T::Credentials),
            ),
            (
                "initializing source docker://r.example.com/base: denied: access forbidden",
                Some(T::Credentials),
            ),
            ("writing blob: denied: permission_denied: write_package", Some(T::Credentials)),
            ("unexpected HTTP status: 403 (Forbidden)", Some(T::Credentials)),
            // A refused login may also say 404.
            ("unauthorized, 404 (Not Found)", Some(T::Credentials)),
            ("Running image docker://r.lab/os:b is rejected by policy.", Some(T::Policy)),
            ("Source image rejected: A signature was required, but no signature exists", Some(T::Policy)),
            (
                "containers-policy.json specifies a default of `insecureAcceptAnything`; refusing usage",
                Some(T::PolicyAcceptsAny),
            ),
            ("http: server gave HTTP response to HTTPS client", Some(T::NoTls)),
            (
                "tls: failed to verify certificate: x509: certificate signed by unknown authority",
                Some(T::Certificate),
            ),
            ("reading manifest b in r.lab/os: manifest unknown", Some(T::NoSuchImage)),
            ("Manifest does not match provided manifest digest sha256:ab", Some(T::OtherContents)),
            ("Digest did not match, expected sha256:ab, got sha256:cd", Some(T::OtherContents)),
            (
                "failed to invoke method FinishPipe: corrupted blob, expecting sha256:88bd",
                Some(T::OtherContents),
            ),
            ("error: Importing: Parsing layer blob sha256:ab: unexpected EOF", Some(T::Cut)),
            ("read tcp 10.0.2.15:40212->10.0.2.2:5055: read: connection reset by peer", Some(T::Cut)),
            (
                "Get \"https://r.lab/v2/\": dial tcp 10.0.2.2:5055: connect: connection refused",
                Some(T::Unreachable),
            ),
            ("received unexpected HTTP status: 503 Service Unavailable", Some(T::Unreachable)),
            ("error: opening repo: No such file or directory", None),
            ("/usr/bin/x: Permission denied", None),
            ("PermissionError: [Errno 13] Permission denied: '/usr/x'", None),
            ("exec: \"/x\": permission denied: unknown", None),
        ] {
            assert_eq!(RegistryTrouble::of(said), want, "{said}");
        }
    }
}
