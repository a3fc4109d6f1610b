//! What to do when an image cannot be pulled to this host. Pure.
//!
//! Not here: which trouble the words of a program tell of (see `api::images::registry_trouble`), want of room (see `repository_space`), nor
//! what an image that was pulled lacks (see `image_check`).

use api::images::registry_trouble::RegistryTrouble;

/// What to do about a pull that failed with these words. `None`: nothing is known about them.
pub(super) fn remedy(said: &str) -> Option<&'static str> {
    Some(match RegistryTrouble::of(said)? {
        RegistryTrouble::Architecture => {
            "the image does not exist for this machine's architecture: build it for several, or name another one in \
             spec.osImageURL"
        }
        RegistryTrouble::TooManyRequests => {
            "the registry accepts no more requests for now: log in with a pull secret, or mirror the image"
        }
        RegistryTrouble::Credentials => {
            "the registry asks for other credentials: add them to the cluster's pull secret (/run/ostree/auth.json on this host, \
             unless it has its own /etc/ostree/auth.json), and check the name in spec.osImageURL"
        }
        RegistryTrouble::Policy => {
            "/etc/containers/policy.json rejects the image: sign the image, or correct the policy"
        }
        RegistryTrouble::PolicyAcceptsAny => {
            "the image must be verified, but /etc/containers/policy.json accepts any image: set its default to reject, and \
             add there who signs this image"
        }
        RegistryTrouble::Certificate | RegistryTrouble::NoTls => {
            "the registry's certificate is not trusted here: add its authority to the cluster's (ConfigMap of additional trusted \
             CAs) or to /etc/containers/certs.d"
        }
        RegistryTrouble::NoSuchImage => "the registry has no such image: correct spec.osImageURL, or push it",
        RegistryTrouble::OtherContents => {
            "the registry sent something other than requested, and nothing of it is used: push the image again, or use \
             another mirror"
        }
        RegistryTrouble::Cut => {
            "the connection was interrupted: the layers that have arrived stay, and the next try continues from there"
        }
        RegistryTrouble::Unreachable => {
            "the registry cannot be reached from this machine, or does not answer: check the name, the network and the proxy \
             (/etc/mco/proxy.env); it is tried again"
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_trouble_has_its_remedy() {
        for (said, want) in [
            ("reading manifest b in r.lab/os: unauthorized: authentication required", "credentials"),
            (
                "reading manifest b in q.io/os: denied: requested access to the resource is denied",
                "credentials",
            ),
            ("reading manifest b in r.lab/os: manifest unknown", "no such image"),
            (
                "pinging container registry r.lab: Get \"https://r.lab/v2/\": dial tcp 10.0.2.2:5055: connect: connection refused",
                "cannot be reached",
            ),
            (
                "Get \"https://r.lab/v2/\": dial tcp: lookup r.lab on 10.0.2.3:53: no such host",
                "cannot be reached",
            ),
            ("received unexpected HTTP status: 503 Service Unavailable", "cannot be reached"),
            ("error: Importing: Parsing layer blob sha256:ab: unexpected EOF", "was interrupted"),
            ("read tcp 10.0.2.15:40212->10.0.2.2:5055: read: connection reset by peer", "was interrupted"),
            ("Manifest does not match provided manifest digest sha256:ab", "something other"),
            ("Digest did not match, expected sha256:ab, got sha256:cd", "something other"),
            ("failed to invoke method FinishPipe: corrupted blob, expecting sha256:88bd", "something other"),
            ("Running image docker://r.lab/os:b is rejected by policy.", "sign the image"),
            (
                "containers-policy.json specifies a default of `insecureAcceptAnything`; refusing usage",
                "set its default to reject",
            ),
            ("Source image rejected: A signature was required, but no signature exists", "policy.json"),
            ("tls: failed to verify certificate: x509: certificate signed by unknown authority", "authority"),
            ("http: server gave HTTP response to HTTPS client", "not trusted"),
            (
                "no image found in manifest list for architecture \"amd64\", variant \"\", OS \"linux\"",
                "architecture",
            ),
            ("toomanyrequests: You have reached your pull rate limit", "no more requests"),
        ] {
            assert!(remedy(said).is_some_and(|remedy| remedy.contains(want)), "{said}: {:?}", remedy(said));
        }
        assert_eq!(remedy("error: opening repo: No such file or directory"), None);
    }
}
