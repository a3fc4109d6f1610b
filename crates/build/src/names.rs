//! The names, labels and annotations of a build's objects, as the reference has them.
//!
//! What it is not: the name of the build itself, which is a hash (`render::build_name`).
//!
//! Source: <https://github.com/openshift/machine-config-operator/blob/HEAD/pkg/controller/build/constants/constants.go>.

use crate::containerfile;
pub use api::formats::image_name::{is_digest, repository};
use api::v1::{MachineOSBuild, MachineOSConfig};
use std::collections::BTreeMap;

/// On every object of a build. Jobs are watched by it.
pub const LAYERING: &str = api::names::label::LAYERING;
/// On objects that go when the build has ended.
pub const EPHEMERAL: &str = api::names::label::EPHEMERAL_BUILD_OBJECT;
/// The pool that the image is for.
pub const POOL: &str = api::names::label::BUILD_POOL;
/// The MachineOSConfig that asked for the build.
pub const OS_CONFIG: &str = api::names::label::OS_CONFIG;
/// The MachineOSBuild.
pub const OS_BUILD: &str = api::names::label::OS_BUILD;
/// The rendered MachineConfig.
pub const RENDERED: &str = api::names::label::BUILD_OF;
/// On a MachineOSConfig: an image that was built elsewhere and is taken as the first one. On a MachineOSBuild, as a label
/// with the value `true`: the build stands for such an image.
pub const PRE_BUILT: &str = api::names::annotation::PRE_BUILT_IMAGE;
/// On a MachineOSConfig: build again, whatever there is.
pub const REBUILD: &str = api::names::annotation::REBUILD;
/// On a MachineOSBuild: the uid of its Job.
pub const JOB_UID: &str = api::names::annotation::JOB_UID;
/// On a MachineOSBuild: the Secret that its image is pushed with.
pub const PUSH_SECRET: &str = api::names::annotation::PUSH_SECRET;
/// On a MachineOSBuild: a hash of the MachineOSConfig's spec that it was made from. Ours alone: by it an image is reused for
/// a MachineConfig that needs no other one.
pub const BUILT_FROM: &str = api::names::own::OS_CONFIG_HASH;
/// On a MachineOSBuild: the image that it is to have without a Job, because that image fits. Ours alone.
pub const REUSES: &str = api::names::own::REUSES_IMAGE;
/// On a MachineOSBuild: it uses no layer of an earlier one. Ours alone.
pub const FRESH: &str = api::names::own::FRESH_LAYERS;
/// On a MachineOSBuild: the base image by its digest, if a pod found it behind a tag and failed after that. Ours alone.
pub const BUILT_ON: &str = api::names::own::BUILT_ON;
/// On a MachineOSConfig: where layers are kept. Ours alone.
pub const LAYER_CACHE: &str = api::names::own::LAYER_CACHE;
/// The value of [`LAYER_CACHE`] for nowhere.
pub const NO_CACHE: &str = "none";
/// On a MachineOSConfig: the Secret with the key that images are signed with. Ours alone.
pub const SIGNING_SECRET: &str = api::names::own::SIGNING_SECRET;

/// On a MachineOSConfig, and on each MachineOSBuild made for it meanwhile, because that may outlive it: what becomes of images that
/// nothing names any more. Ours alone.
pub const OLD_IMAGES: &str = api::names::own::OLD_IMAGES;
/// The value of [`OLD_IMAGES`] with which they stay in the registry.
pub const KEEP: &str = "keep";

/// The pull secret of base images if the MachineOSConfig names none.
pub const DEFAULT_PULL_SECRET: &str = "global-pull-secret-copy";

/// The Job of a build.
pub fn job(build: &str) -> String {
    format!("build-{build}")
}

/// The ConfigMap in which a builder of the reference reports the digest, under the key `digest`.
pub fn digest(build: &str) -> String {
    format!("digest-{build}")
}

/// The ConfigMap with the Containerfile.
pub fn containerfile(build: &str) -> String {
    format!("containerfile-{build}")
}

/// The ConfigMap with the rendered MachineConfig.
pub fn machine_config(build: &str) -> String {
    format!("mc-{build}")
}

/// The ConfigMap with the cluster's own certificate authorities.
pub fn trust_bundle(build: &str) -> String {
    format!("additionaltrustbundle-{build}")
}

/// The ConfigMap with the certificate authorities of registries.
pub fn registry_authorities(build: &str) -> String {
    format!("registry-cas-{build}")
}

/// The ConfigMap with `/etc/containers/policy.json`.
pub fn policy(build: &str) -> String {
    format!("etc-policy-{build}")
}

/// The ConfigMap with `/etc/containers/registries.conf`.
pub fn registries(build: &str) -> String {
    format!("etc-registries-{build}")
}

/// The ConfigMap with the base image by its digest, once a pod has failed that found it behind a tag.
pub fn base(build: &str) -> String {
    format!("base-{build}")
}

/// All ConfigMaps that a build may have.
pub fn config_maps(build: &str) -> [String; 8] {
    [
        base(build),
        containerfile(build),
        machine_config(build),
        trust_bundle(build),
        registry_authorities(build),
        policy(build),
        registries(build),
        digest(build),
    ]
}

/// The labels of a MachineOSBuild.
pub fn build_labels(pool: &str, os_config: &str, rendered: &str) -> BTreeMap<String, String> {
    let pairs = [(POOL, pool), (OS_CONFIG, os_config), (RENDERED, rendered)];
    pairs.into_iter().map(|(key, value)| (key.to_owned(), value.to_owned())).collect()
}

/// The labels of a Job, of its pods and of its ConfigMaps.
pub fn object_labels(pool: &str, build: &MachineOSBuild) -> BTreeMap<String, String> {
    let name = build.metadata.name.as_deref().unwrap_or_default();
    let mut all = build_labels(pool, &build.spec.machine_os_config.name, &build.spec.machine_config.name);
    for (key, value) in [(LAYERING, ""), (EPHEMERAL, ""), (OS_BUILD, name)] {
        all.insert(key.to_owned(), value.to_owned());
    }
    all
}

/// The place that a build pushes to: that of the MachineOSConfig, with the build's name as its tag.
pub fn push_spec(config: &MachineOSConfig, build: &str) -> String {
    format!("{}:{build}", repository(&config.spec.rendered_image_push_spec))
}

/// The repository in which layers are kept; `None`: in none. Without the annotation a Containerfile with stages keeps none: layers
/// of a stage that is not in the image, with sources and logins perhaps, would lie where nodes pull.
pub fn layer_cache(config: &MachineOSConfig) -> Option<&str> {
    let asked = config.metadata.annotations.as_ref().and_then(|a| a.get(LAYER_CACHE)).map(|v| v.trim());
    match asked.filter(|v| !v.is_empty()) {
        Some(NO_CACHE) => None,
        Some(other) => Some(repository(other)),
        None if has_stages(config) => None,
        None => Some(repository(&config.spec.rendered_image_push_spec)).filter(|r| !r.is_empty()),
    }
}

/// Whether a Containerfile of it has more than one stage.
fn has_stages(config: &MachineOSConfig) -> bool {
    let mut all = config.spec.container_file.iter().flatten();
    all.any(|file| containerfile::stages(&file.content) > 1)
}

/// The Secret with the key that images are signed with.
pub fn signing_secret(config: &MachineOSConfig) -> Option<&str> {
    let name = config.metadata.annotations.as_ref()?.get(SIGNING_SECRET)?.trim();
    (!name.is_empty()).then_some(name)
}

/// Whether annotations ask that what was pushed stays in the registry.
pub fn keeps_old_images(notes: Option<&BTreeMap<String, String>>) -> bool {
    notes.and_then(|a| a.get(OLD_IMAGES)).is_some_and(|v| v.trim() == KEEP)
}

/// Whether a build stands for an image from elsewhere.
pub(crate) fn is_pre_built(build: &MachineOSBuild) -> bool {
    build.metadata.labels.as_ref().is_some_and(|l| l.get(PRE_BUILT).is_some_and(|v| v == "true"))
}

/// An image by its digest.
pub fn by_digest(push_spec: &str, digest: &str) -> String {
    format!("{}@{digest}", repository(push_spec))
}

/// The most characters of an image by its digest.
const MAX_IMAGE: usize = 447;

/// Whether a text is an image by its digest, as the API server asks for it: the digest has to be one, and the text no longer than a
/// field takes. [`api::formats::image_name::is_by_digest`] asks only whether a name has one.
pub fn has_valid_digest(image: &str) -> bool {
    let parts = image.split_once('@');
    image.len() <= MAX_IMAGE && parts.is_some_and(|(name, digest)| !name.is_empty() && is_digest(digest))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_digest_takes_the_place_of_a_tag_and_ports_stay() {
        for (image, want) in [
            ("registry.example.com/org/repo:latest", "registry.example.com/org/repo"),
            ("registry.example.com:5000/repo", "registry.example.com:5000/repo"),
            ("127.0.0.1:5000/os:v1", "127.0.0.1:5000/os"),
            ("r.example.com/os@sha256:00", "r.example.com/os"),
        ] {
            assert_eq!(repository(image), want, "{image}");
        }
        let digest = format!("sha256:{}", "0a".repeat(32));
        assert!(is_digest(&digest) && !is_digest("sha256:00") && !is_digest(&digest.to_uppercase()));
        assert_eq!(by_digest("r.example.com/o:t", &digest), format!("r.example.com/o@{digest}"));
        assert!(has_valid_digest(&format!("r.example.com/o@{digest}")));
        for wrong in ["r.example.com/o:t", "", &digest, &format!("@{digest}"), &format!("a@b@{digest}")] {
            assert!(!has_valid_digest(wrong), "{wrong}");
        }
        assert!(!has_valid_digest(&format!("{}@{digest}", "a".repeat(400))));
    }

    #[test]
    fn layers_are_kept_beside_the_image_unless_somebody_says_otherwise() {
        for (annotation, want) in [
            (None, Some("r.example.com:5000/team/os")),
            (Some(" "), Some("r.example.com:5000/team/os")),
            (Some("none"), None),
            (Some("r.example.com/layers"), Some("r.example.com/layers")),
            (Some("r.example.com/layers:latest"), Some("r.example.com/layers")),
        ] {
            let config: MachineOSConfig = serde_json::from_value(serde_json::json!({
                "metadata": {"name": "a", "annotations": {LAYER_CACHE: annotation.unwrap_or_default()}},
                "spec": {"renderedImagePushSpec": "r.example.com:5000/team/os:latest"},
            }))
            .unwrap();
            assert_eq!(layer_cache(&config), want, "{annotation:?}");
            assert_eq!(signing_secret(&config), None);
        }
        for (text, annotation, want) in [
            ("FROM configs AS final\nRUN true\n", "", Some("r.example.com/os")),
            ("FROM builder AS b\nRUN make\n from configs AS final\nCOPY --from=b /x /x\n", "", None),
            ("FROM configs AS final\nCOPY <<END /etc/x\nFROM here\nEND\n", "", Some("r.example.com/os")),
            (
                "FROM builder AS b\nFROM configs AS final\n",
                "r.example.com/layers",
                Some("r.example.com/layers"),
            ),
        ] {
            let config: MachineOSConfig = serde_json::from_value(serde_json::json!({
                "metadata": {"name": "a", "annotations": {LAYER_CACHE: annotation}},
                "spec": {"renderedImagePushSpec": "r.example.com/os:latest", "containerFile": [{"content": text}]},
            }))
            .unwrap();
            assert_eq!(layer_cache(&config), want, "{text}");
        }
    }
}
