//! What to do about a build that failed, from the last lines of its Job: the words of buildah, of registries and of kernels.
//!
//! What it is not: the cause. The lines themselves stand before it. Which trouble a registry's words tell of is in
//! `api::images::registry_trouble`, for builds and hosts alike.

use crate::report::NOT_SIGNED;
use api::images::registry_trouble::RegistryTrouble;

/// Words of a log in lower case that are not a registry's, and what to do if one of them is there. The first row that fits counts, so
/// what names the cause stands before what may only follow from it.
const ROWS: [(&[&str], Remedy); 6] = [
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
            "correct the key and its passphrase (cosign.key, cosign.password), or give renderedImagePushSecret the right to \
             write signatures",
        ),
    ),
    (
        // What the script itself prints when the registry does not have what was pushed.
        &["does not give it back", "has another image under"],
        Remedy::same(
            "the registry, or a proxy in front of it, does not have what was pushed to it: do not use it until it is repaired",
        ),
    ),
    (
        &["no space left on device", "disk quota exceeded", "err:28"],
        Remedy {
            push: "free space in the storage of the registry",
            build: "the node's disk is full: in the kubelet's folder a build needs three times the size of the image",
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
];

/// What commands of a `RUN` print about the end of a text, a file or a download. A cut connection to a registry is reported in
/// similar words.
const OF_COMMANDS: [&str; 4] =
    ["unexpected eof while looking for", "unexpected end of file", "stream error", "early eof"];

/// Words that say that a registry returned other contents, for lines that `RegistryTrouble` does not recognise.
const DIFFERS: [&str; 3] = ["does not match", "did not match", "doesn't match"];
/// What to do then.
const OTHER_CONTENTS: Remedy = Remedy::same(
    "the registry, or a proxy in front of it, returns other bytes than it was sent: do not use it until it is repaired",
);

/// What to do about a trouble with the registry. `None`: nothing more than the lines themselves say.
fn of_registry(trouble: RegistryTrouble) -> Option<Remedy> {
    Some(match trouble {
        RegistryTrouble::Certificate => Remedy::same(
            "add the authority of this registry to the cluster's additionalTrustBundle, or to those of its registries",
        ),
        RegistryTrouble::NoTls => Remedy::same(
            "mark a registry without TLS as insecure in /etc/containers/registries.conf of the pool",
        ),
        RegistryTrouble::Credentials => Remedy {
            push: "renderedImagePushSecret may not write to that repository: correct its credentials, or their rights",
            build: "baseImagePullSecret may not read from that repository: correct its credentials, or their rights",
        },
        RegistryTrouble::OtherContents => OTHER_CONTENTS,
        RegistryTrouble::NoSuchImage => Remedy::same(
            "there is no such image: correct osImageURL, or the image that a FROM of the Containerfile names",
        ),
        RegistryTrouble::TooManyRequests | RegistryTrouble::Cut | RegistryTrouble::Unreachable => {
            Remedy::same(
                "check the registry's name, whether it runs, and the network and proxy on the way to it",
            )
        }
        RegistryTrouble::Architecture | RegistryTrouble::Policy | RegistryTrouble::PolicyAcceptsAny => {
            return None;
        }
    })
}

#[derive(Debug, Clone, Copy)]
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
    let says = |known: &[&str]| known.iter().any(|word| words.contains(word));
    // A shell that ends in the middle of a text is no connection that was cut.
    let of_registrys = OF_COMMANDS.iter().fold(words.clone(), |words, of| words.replace(of, ""));
    let remedy = match (ROWS.iter().find(|(known, _)| says(known)), RegistryTrouble::of(&of_registrys)) {
        (Some((_, remedy)), _) => *remedy,
        (None, Some(trouble)) => of_registry(trouble)?,
        (None, None) => Some(OTHER_CONTENTS).filter(|_| says(&DIFFERS))?,
    };
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
            // A file of the build, not a repository.
            (built("/bin/sh: /usr/bin/x: Permission denied"), None),
            (built("/bin/sh: -c: line 2: syntax error: unexpected end of file"), None),
            (built("sh: line 1: unexpected EOF while looking for matching `\"'"), None),
            (built("PermissionError: [Errno 13] Permission denied: '/usr/x'"), None),
            (built("Error: copying layer: unexpected EOF"), Some("network and proxy")),
            (
                pushed(
                    "reading manifest sha256:ab in r/os: manifest unknown | the registry took the image, and does not give it \
                     back by its digest sha256:ab",
                ),
                Some("does not have what was pushed"),
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
