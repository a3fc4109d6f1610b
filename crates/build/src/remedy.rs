//! What to do about a build that failed, from the last lines of its Job: the words of buildah, of registries and of kernels.
//!
//! What it is not: the cause. The lines themselves stand before it.

use crate::report::NOT_SIGNED;

/// Words of a log in lower case, and what to do if one of them is there. The first row that fits counts, so what names the cause
/// stands before what may only follow from it.
const ROWS: [(&[&str], Remedy); 11] = [
    (
        &["failed pushing cache to"],
        Remedy::same(
            "the registry does not accept the layers of builds in that repository: correct its rights, or set the annotation \
             machineconfig.dev/layer-cache of the MachineOSConfig to another repository or to none",
        ),
    ),
    (
        &[NOT_SIGNED],
        Remedy::same(
            "correct key and passphrase (cosign.key, cosign.password), or let renderedImagePushSecret write signatures",
        ),
    ),
    (
        &["no space left on device", "disk quota exceeded", "err:28"],
        Remedy {
            push: "make room in the storage of the registry",
            build: "the node's disk is full: a build needs three times the size of the image in its folder of the kubelet",
        },
    ),
    (
        &["ephemeral-storage", "ephemeral local storage", "evicted"],
        Remedy::same(
            "the node has too little space for pods: a build needs three times the size of the image",
        ),
    ),
    (
        &["oomkilled"],
        Remedy::same("the build took more memory than the node or a LimitRange of the namespace gives it"),
    ),
    (
        &["x509:", "certificate signed by unknown authority", "certificate is not trusted"],
        Remedy::same(
            "add the authority of this registry to the cluster's additionalTrustBundle, or to those of its registries",
        ),
    ),
    (
        &["server gave http response to https client"],
        Remedy::same(
            "a registry without TLS has to be named as insecure in /etc/containers/registries.conf of the pool",
        ),
    ),
    (
        &["unauthorized", "authentication required", "denied", "insufficient_scope", "forbidden"],
        Remedy {
            push: "renderedImagePushSecret may not write to that repository: correct its credentials, or their rights",
            build: "baseImagePullSecret may not read from that repository: correct its credentials, or their rights",
        },
    ),
    (
        &[
            "digest mismatch",
            "does not match",
            "did not match",
            "doesn't match",
            "has another image under",
            "does not give it back",
        ],
        Remedy::same(
            "the registry, or a proxy in front of it, returns other bytes than it was sent: do not use it until it is \
             repaired",
        ),
    ),
    (
        &["manifest unknown", "name unknown", "repository name not known", "not found: manifest"],
        Remedy::same(
            "there is no such image: correct osImageURL, or the image that a FROM of the Containerfile names",
        ),
    ),
    (
        &[
            "no such host",
            "connection refused",
            "connection reset",
            "i/o timeout",
            "tls handshake timeout",
            "network is unreachable",
            "toomanyrequests",
            "500 internal server error",
            "502 bad gateway",
            "503 service unavailable",
        ],
        Remedy::same(
            "check the registry's name, whether it runs, and the network and proxy on the way to it",
        ),
    ),
];

#[derive(Debug)]
struct Remedy {
    /// If the image could not be pushed.
    push: &'static str,
    /// If it could not be built.
    build: &'static str,
}

impl Remedy {
    const fn same(text: &'static str) -> Self {
        Self { push: text, build: text }
    }
}

/// What to do, if one of the known causes is in these lines. `is_push`: the image was built, and could not be pushed.
pub(crate) fn of(words: &str, is_push: bool) -> Option<&'static str> {
    let words = words.to_lowercase();
    let (_, remedy) = ROWS.iter().find(|(causes, _)| causes.iter().any(|cause| words.contains(cause)))?;
    Some(if is_push { remedy.push } else { remedy.build })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_words_of_programs_lead_to_what_helps() {
        let pushed = |text: &str| (text.to_owned(), true);
        let built = |text: &str| (text.to_owned(), false);
        for ((words, is_push), want) in [
            (
                pushed(
                    "Error: writing blob: uploading layer: blob upload unknown to registry: no space left on device",
                ),
                Some("storage of the registry"),
            ),
            (built("writing file /usr/bin/x: no space left on device"), Some("the node's disk is full")),
            (
                built("Evicted: The node was low on resource: ephemeral-storage."),
                Some("too little space for pods"),
            ),
            (pushed("unauthorized: authentication required"), Some("renderedImagePushSecret")),
            (
                built("initializing source docker://r.example.com/base: denied: access forbidden"),
                Some("baseImagePullSecret"),
            ),
            (
                pushed("tls: failed to verify certificate: x509: certificate signed by unknown authority"),
                Some("additionalTrustBundle"),
            ),
            (
                built("Error: failed pushing cache to {...}: denied: requested access | exit status 125"),
                Some("layer-cache"),
            ),
            (
                built(&format!("decrypt: encrypted: decryption failed | {NOT_SIGNED} ns/os-signing")),
                Some("cosign.key"),
            ),
            (pushed("dial tcp 192.0.2.1:5000: connect: connection refused"), Some("network and proxy")),
            (built("building at STEP \"RUN false\": exit status 1"), None),
        ] {
            let got = of(&words, is_push);
            assert!(
                got.is_some() == want.is_some() && got.unwrap_or_default().contains(want.unwrap_or_default()),
                "{words}: {got:?}"
            );
        }
    }
}
