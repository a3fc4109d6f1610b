//! What `rpm-ostree status --json` says. Pure: text in, value out. Every field that is used must be there and of its
//! type; all others are left out.
//!
//! Not here: kernel arguments, which it does not say.
//!
//! Source: <https://coreos.github.io/rpm-ostree/administrator-handbook/> (`rpm-ostree status --json`).

use serde::Deserialize;

use super::packages::{KERNEL, extensions, is_kernel, kernel_type};
use crate::system::os::Deployment;
use crate::system::os::extensions::in_an_extension;
use crate::system::os::origin::OsOrigin;
use crate::system::os::reference::Reference;

/// The answer.
#[derive(Debug, Deserialize)]
pub(super) struct Status {
    /// The deployments in the order in which they would boot: the first is the next boot's.
    pub(super) deployments: Vec<RpmDeployment>,
    /// The transaction that runs now: what it does, who asked for it, and its address.
    transaction: Option<(String, String, String)>,
}

/// A deployment.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) struct RpmDeployment {
    /// State root, checksum and serial number.
    pub(super) id: String,
    pub(super) booted: bool,
    /// Where its image comes from. `None`: it was made from an OSTree branch.
    pub(super) container_image_reference: Option<String>,
    /// The digest of that image's manifest.
    #[serde(default)]
    pub(super) container_image_reference_digest: Option<String>,
    /// Where a deployment of an OSTree branch comes from.
    #[serde(default)]
    pub(super) origin: Option<String>,
    /// The commit that it was made of, with packages that were added.
    #[serde(default)]
    pub(super) checksum: String,
    /// The commit below those packages, if there are any.
    #[serde(default)]
    pub(super) base_checksum: Option<String>,
    /// The commit that was brought into the running system, of a booted deployment.
    #[serde(default)]
    pub(super) live_replaced: Option<String>,
    /// The commit that is being brought there, or was when that was interrupted.
    #[serde(default)]
    pub(super) live_inprogress: Option<String>,
    /// Address and description, of hosts that were moved to images by other means.
    pub(super) custom_origin: Option<(String, String)>,
    /// Packages that were asked for in addition to the image's.
    pub(super) requested_packages: Vec<String>,
    /// Packages of the image that were asked to be left out.
    pub(super) requested_base_removals: Vec<String>,
    /// Packages that were installed from files.
    #[serde(default)]
    pub(super) requested_local_packages: Vec<String>,
    /// The same, over files of the image.
    #[serde(default)]
    pub(super) requested_local_fileoverride_packages: Vec<String>,
    /// Packages of the image that files replace.
    #[serde(default)]
    pub(super) requested_base_local_replacements: Vec<String>,
    /// Packages of the image that packages of other repositories replace, by repository.
    #[serde(default)]
    pub(super) requested_base_remote_replacements: Vec<(String, Vec<String>)>,
}

/// The address of such a host begins with it.
const PIVOT: &str = "pivot://";

impl Status {
    /// Reads the answer.
    ///
    /// # Errors
    /// The text is not of the known form; or no deployment is booted.
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        let status: Self = serde_json::from_str(text)
            .map_err(|e| format!("the output of rpm-ostree status --json has an unknown format: {e}"))?;
        match status.deployments.iter().filter(|d| d.booted).count() {
            1 => Ok(status),
            n => Err(format!("rpm-ostree status --json says that {n} deployments are booted, and not one")),
        }
    }

    /// What is running as a transaction.
    pub(super) fn busy(&self) -> Option<&str> {
        self.transaction.as_ref().map(|(what, _, _)| what.as_str())
    }

    pub(super) fn booted(&self) -> Option<&RpmDeployment> {
        self.deployments.iter().find(|d| d.booted)
    }

    /// What the next boot comes up in.
    pub(super) fn next(&self) -> Option<&RpmDeployment> {
        self.deployments.first()
    }

    /// What the next boot comes up in, if it is not what runs.
    pub(super) fn pending(&self) -> Option<&RpmDeployment> {
        self.next().filter(|d| !d.booted)
    }

    /// What the next boot comes up in, if all of it is in the running system already.
    pub(super) fn live(&self) -> Option<&RpmDeployment> {
        let booted = self.booted()?;
        self.pending().filter(|pending| booted.has_live(&pending.checksum))
    }

    /// The deployment after the booted one.
    pub(super) fn previous(&self) -> Option<&RpmDeployment> {
        self.deployments.iter().skip_while(|d| !d.booted).nth(1)
    }
}

impl RpmDeployment {
    /// How many packages were added, removed or replaced by hand.
    pub(super) fn unsupported(&self) -> usize {
        // Another kernel goes in place of the image's: both are what spec.kernelType asks for.
        let swapped = self.requested_packages.iter().any(|p| is_kernel(p));
        let of_kernel = |p: &&String| is_kernel(p) || (swapped && KERNEL.contains(&p.as_str()));
        let all = self.requested_packages.iter().chain(&self.requested_base_removals);
        let named = all.filter(|p| !in_an_extension(p) && !of_kernel(p)).count();
        let remote = self.requested_base_remote_replacements.iter().map(|(_, packages)| packages.len());
        named
            + remote.sum::<usize>()
            + self.requested_local_packages.len()
            + self.requested_local_fileoverride_packages.len()
            + self.requested_base_local_replacements.len()
    }

    /// Where its image comes from.
    pub(super) fn reference(&self) -> Option<Reference> {
        Reference::parse(self.container_image_reference.as_deref()?)
    }

    /// Whether this commit was brought into the running system, as a whole.
    pub(super) fn has_live(&self, commit: &str) -> bool {
        !commit.is_empty() && self.live_inprogress.is_none() && self.live_replaced.as_deref() == Some(commit)
    }

    /// Whether the running system is this deployment and nothing more. After a reset rpm-ostree names the deployment's own commit.
    pub(super) fn is_bare(&self) -> bool {
        self.live_inprogress.is_none()
            && self.live_replaced.as_ref().is_none_or(|commit| *commit == self.checksum)
    }

    /// What it was made from.
    pub(super) fn made_from(&self) -> OsOrigin {
        if let Some(reference) = self.reference() {
            return OsOrigin::of_image(&reference, self.container_image_reference_digest.as_deref());
        }
        match self.deployment(Vec::new()).image {
            image if image.is_empty() => OsOrigin::Other {
                origin: self.origin.clone().unwrap_or_default(),
                commit: self.base_checksum.clone().unwrap_or_else(|| self.checksum.clone()),
            },
            reference => OsOrigin::Image { reference, named: String::new() },
        }
    }

    /// In the words of all back ends.
    pub(super) fn deployment(&self, kernel_arguments: Vec<String>) -> Deployment {
        let pivot = self.custom_origin.as_ref().and_then(|(at, _)| at.strip_prefix(PIVOT));
        let image = self.reference().map(|r| r.image).or(pivot.map(str::to_owned));
        Deployment {
            image: image.unwrap_or_default(),
            kernel_arguments,
            kernel_type: kernel_type(&self.requested_packages).to_owned(),
            extensions: extensions(&self.requested_packages),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    pub(crate) fn one(extra: &str) -> String {
        format!(
            "{{\"deployments\": [{{\"id\": \"rhcos-a.0\", \"booted\": true, \"staged\": false, \"requested-packages\": [], \
             \"requested-base-removals\": [], \"osname\": \"rhcos\"{extra}}}], \"transaction\": null}}"
        )
    }

    #[test]
    fn the_image_is_that_of_the_reference_or_of_the_older_way() {
        let image = |extra: &str| {
            let status = Status::parse(&one(extra)).unwrap();
            status.booted().unwrap().deployment(Vec::new()).image
        };
        assert_eq!(
            image(", \"container-image-reference\": \"ostree-unverified-registry:q.io/a@sha256:1\""),
            "q.io/a@sha256:1"
        );
        assert_eq!(
            image(", \"container-image-reference\": \"ostree-image-signed:docker://q.io/a:1\""),
            "q.io/a:1"
        );
        assert_eq!(image(", \"custom-origin\": [\"pivot://q.io/a\", \"Managed\"]"), "q.io/a");
        assert_eq!(image(", \"origin\": \"fedora:fedora/x86_64/coreos/stable\""), "");
    }

    #[test]
    fn a_deployment_is_of_an_image_by_its_digest_or_of_a_branch_that_is_none() {
        let digest = format!("sha256:{}", "cd".repeat(32));
        let image =
            |reference: &str| OsOrigin::Image { reference: reference.to_owned(), named: String::new() };
        for (extra, want) in [
            (
                format!(
                    ", \"container-image-reference\": \"ostree-image-signed:docker://q.io/a:1\", \
                     \"container-image-reference-digest\": \"{digest}\""
                ),
                OsOrigin::Image {
                    reference: format!("ostree-image-signed:registry:q.io/a@{digest}"),
                    named: "ostree-image-signed:registry:q.io/a:1".to_owned(),
                },
            ),
            (
                ", \"container-image-reference\": \"ostree-unverified-registry:q.io/a:1\"".to_owned(),
                image("ostree-unverified-registry:q.io/a:1"),
            ),
            (", \"custom-origin\": [\"pivot://q.io/a@sha256:1\", \"Managed\"]".to_owned(), image("q.io/a@sha256:1")),
            (
                ", \"origin\": \"fedora:fedora/x86_64/coreos/stable\", \"checksum\": \"ab\", \"base-checksum\": \"cd\"".to_owned(),
                OsOrigin::Other { origin: "fedora:fedora/x86_64/coreos/stable".to_owned(), commit: "cd".to_owned() },
            ),
        ] {
            assert_eq!(Status::parse(&one(&extra)).unwrap().booted().unwrap().made_from(), want, "{extra}");
        }
    }

    #[test]
    fn what_was_layered_by_hand_is_counted() {
        let text = one(", \"requested-local-packages\": [\"x-1.rpm\"]")
            .replace(
                "\"requested-packages\": []",
                "\"requested-packages\": [\"usbguard\", \"vim\", \"tmux\"]",
            )
            .replace("\"requested-base-removals\": []", "\"requested-base-removals\": [\"firefox\"]");
        assert_eq!(Status::parse(&text).unwrap().booted().unwrap().unsupported(), 4);
        let remote = one(", \"requested-base-remote-replacements\": [[\"repo=fedora\", [\"a\", \"b\"]]]");
        assert_eq!(Status::parse(&remote).unwrap().booted().unwrap().unsupported(), 2);
        // A kernel of spec.kernelType is nobody's own.
        let kernel = one("")
            .replace("\"requested-packages\": []", "\"requested-packages\": [\"kernel-rt-core\"]")
            .replace(
                "\"requested-base-removals\": []",
                "\"requested-base-removals\": [\"kernel\", \"kernel-core\"]",
            );
        assert_eq!(Status::parse(&kernel).unwrap().booted().unwrap().unsupported(), 0);
    }

    #[test]
    fn anything_of_another_form_is_refused() {
        let fine = one("");
        assert!(Status::parse(&fine).is_ok());
        for (from, to) in [
            ("\"booted\": true", "\"booted\": \"yes\""),
            ("\"booted\": true", "\"booted\": false"),
            ("\"requested-packages\": [], ", ""),
            ("\"requested-packages\": []", "\"requested-packages\": {}"),
            ("\"transaction\": null", "\"transaction\": 5"),
            ("\"deployments\"", "\"deployment\""),
            ("{", ""),
        ] {
            let text = fine.replacen(from, to, 1);
            assert_ne!(text, fine);
            assert!(Status::parse(&text).is_err(), "{text}");
        }
        let busy = fine.replace("null", "[\"upgrade\", \":1.9\", \"/x\"]");
        assert_eq!(Status::parse(&busy).unwrap().busy(), Some("upgrade"));
    }
}
