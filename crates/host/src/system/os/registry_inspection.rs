//! A look at an image in its registry: how large it is, for plans; and its configuration, so that one which can be no OS of this host
//! is refused before its gigabytes are pulled: another architecture, no bootable OS, a kubelet that the API server does not allow.
//!
//! Only what the configuration says is judged. A registry that does not answer, or a host without skopeo, is left to the pull and to
//! the check after it (see `image_check`): nothing is verified here.

use std::time::Duration;

use serde::Deserialize;

use crate::disk::root::Root;
use crate::system::os::reference::Reference;
use crate::system::os::{OsError, credentials, image_check, proxy};
use crate::system::programs::Programs;
use crate::system::pull::Pull;

const SKOPEO: &str = "/usr/bin/skopeo";
const ASK: Duration = Duration::from_secs(60);

/// Looks, and judges.
///
/// # Errors
/// The image can be no OS of this host.
pub(super) fn check_before_pull(
    root: &Root,
    programs: &mut dyn Programs,
    image: &Reference,
    pull: &Pull,
) -> Result<(), OsError> {
    match inspect(root, programs, image, "--config")? {
        Some(text) => image_check::check(&text, std::env::consts::ARCH, pull.cluster())
            .map_err(|why| OsError::new(format!("the image {} is not pulled: {why}", image.image))),
        None => Ok(()),
    }
}

/// The bytes of the image's layers, as they are pulled. `None`: that cannot be asked, or is not answered.
///
/// # Errors
/// The host's own files cannot be read.
pub(super) fn size(
    root: &Root,
    programs: &mut dyn Programs,
    image: &Reference,
) -> Result<Option<u64>, OsError> {
    let Some(text) = inspect(root, programs, image, "--no-tags")? else { return Ok(None) };
    let read: Option<Inspected> = serde_json::from_str(&text).ok();
    Ok(read.map(|read| read.layers_data.iter().fold(0, |sum: u64, layer| sum.saturating_add(layer.size))))
}

/// What `skopeo inspect` says of an image. Older versions do not say how large its layers are.
#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Inspected {
    layers_data: Vec<Layer>,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Layer {
    size: u64,
}

/// What skopeo says of an image. `None`: there is no skopeo, the image is in no registry, or that does not answer.
fn inspect(
    root: &Root,
    programs: &mut dyn Programs,
    image: &Reference,
    option: &str,
) -> Result<Option<String>, OsError> {
    if image.transport() != "registry" || root.found(SKOPEO)?.is_absent() {
        return Ok(None);
    }
    let place = format!("docker://{}", image.image);
    let mut args = vec!["inspect", option];
    if let Some(file) = credentials::file(root)? {
        args.extend(["--authfile", file]);
    }
    args.push(&place);
    let environment = proxy::environment(root)?;
    // Not with the `Pull` of the coming pull: that would take this output for the progress of the pull.
    let looked = programs.fetch(SKOPEO, &args, ASK, &environment, &Pull::default());
    let looked = looked.map(|output| output.text).inspect_err(|error| {
        let why = proxy::hidden(&error.why, &environment);
        tracing::info!(%why, image = %image.image, "the image cannot be inspected before it is pulled");
    });
    Ok(looked.ok())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::system::os::fake_programs::FakePrograms;
    use crate::system::pull::KubernetesVersion;

    #[test]
    fn an_image_that_can_be_no_os_of_this_host_is_refused_before_it_is_pulled() {
        let dir = tempfile::tempdir().unwrap();
        let root = Root::open(dir.path()).unwrap();
        let put = |path: &str, text: &str| {
            let at = dir.path().join(path);
            std::fs::create_dir_all(at.parent().unwrap()).unwrap();
            std::fs::write(at, text).unwrap();
        };
        let image = Reference::parse("ostree-image-signed:docker://q.io/os@sha256:ab").unwrap();
        let pull = Pull::for_cluster(KubernetesVersion::parse("v1.36.3"));
        let mut talk = FakePrograms::default();
        // Without skopeo nothing is asked.
        check_before_pull(&root, &mut talk, &image, &pull).unwrap();
        put("usr/bin/skopeo", "");
        put("var/lib/kubelet/config.json", "{}");
        let asked = "/usr/bin/skopeo inspect --config --authfile /var/lib/kubelet/config.json docker://q.io/os@sha256:ab";
        let (own, other) = match std::env::consts::ARCH {
            "x86_64" => ("amd64", "arm64"),
            "aarch64" => ("arm64", "amd64"),
            own => (own, "amd64"),
        };
        let says = |architecture: &str, labels: &str| {
            format!(
                r#"{{"architecture":"{architecture}","os":"linux","config":{{"Labels":{{{labels}}}}},"rootfs":{{"type":"layers","diff_ids":[]}}}}"#
            )
        };
        let kubelet = |version: &str| {
            format!(r#""ostree.bootable":"true","machineconfig.dev/kubelet-version":"{version}""#)
        };
        for (answer, why) in [
            (says(own, &kubelet("v1.36.0")), None),
            (says(own, &kubelet("v1.30.0")), Some("its kubelet is 1.30")),
            (says(own, r#""maintainer":"me""#), Some("no bootable OS")),
            (says(other, &kubelet("v1.36.0")), Some("is built for linux")),
        ] {
            talk.says(asked, answer.clone());
            let said = check_before_pull(&root, &mut talk, &image, &pull).map_err(|e| e.why);
            match why {
                None => assert_eq!(said, Ok(()), "{answer}"),
                Some(why) => {
                    let said = said.unwrap_err();
                    assert!(said.contains(why) && said.contains("is not pulled"), "{said}");
                }
            }
        }
        // What the registry does not say is found by the pull.
        talk.fails(asked, "exit status: 1: pinging container registry q.io: connection refused");
        check_before_pull(&root, &mut talk, &image, &pull).unwrap();
        let sizes = "/usr/bin/skopeo inspect --no-tags --authfile /var/lib/kubelet/config.json docker://q.io/os@sha256:ab";
        for (answer, want) in [
            (
                r#"{"Name":"q.io/os","LayersData":[{"Size":1000,"Digest":"a"},{"Size":234,"Digest":"b"}]}"#,
                Some(1234),
            ),
            // Of a version that does not say it.
            (r#"{"Name":"q.io/os","Layers":["a"]}"#, None),
            ("what?", None),
        ] {
            talk.says(sizes, answer);
            assert_eq!(size(&root, &mut talk, &image).unwrap(), want, "{answer}");
        }
        talk.fails(sizes, "exit status: 1: unauthorized");
        assert_eq!(size(&root, &mut talk, &image).unwrap(), None);
        let local = Reference::parse("ostree-unverified-image:containers-storage:q.io/os").unwrap();
        check_before_pull(&root, &mut talk, &local, &pull).unwrap();
        assert_eq!(size(&root, &mut talk, &local).unwrap(), None);
        talk.done();
    }
}
