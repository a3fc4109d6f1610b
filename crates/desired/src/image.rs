//! The image that a Node names besides its config (the annotation `desiredImage`): the pool's own image, built from the
//! config and its base image. A host is then in a config *with* an image, which is a state of its own: the same config with
//! another image is another state. All who compare states of a host use one text for it, `CONFIG+IMAGE`.
//!
//! What it is not: the annotations (see `daemon`), or how a host gets to an image (see `host`).

use api::images::os_image::OsImage;
use api::v1::{MachineConfig, MachineConfigSpec};

use crate::finding::{Irreconcilable, Scope};
use crate::os::OsField;

/// The separator of config and image. Neither names of objects nor images contain it.
const SEPARATOR: char = '+';

/// The name of the state: the config's own name if it has no image.
#[must_use]
pub fn with_image(config: &str, image: &str) -> String {
    if config.is_empty() || image.is_empty() {
        return config.to_owned();
    }
    format!("{config}{SEPARATOR}{image}")
}

/// The config and the image of a state. An empty image: the config has none besides its own.
#[must_use]
pub fn config_and_image(state: &str) -> (&str, &str) {
    state.split_once(SEPARATOR).unwrap_or((state, ""))
}

/// The config of a host that runs this image: kernel and extensions of the config are part of the image, so nothing is
/// installed in addition. Kernel arguments, files and units are set as without it. A second call changes nothing.
#[must_use]
pub fn in_image(spec: MachineConfigSpec, image: &str) -> MachineConfigSpec {
    if image.is_empty() {
        return spec;
    }
    MachineConfigSpec {
        os_image_url: image.to_owned(),
        base_os_extensions_container_image: String::new(),
        kernel_type: String::new(),
        extensions: None,
        ..spec
    }
}

/// The config with its image by the digest that the controller has found for its tag, so that all nodes of a pool get the same
/// image. A config without a known digest stays as it is. A second call changes nothing.
#[must_use]
pub fn by_digest(mut config: MachineConfig) -> MachineConfig {
    let found = OsImage::read(config.metadata.annotations.as_ref(), &config.spec.os_image_url);
    if let Some(image) = found.as_ref().and_then(OsImage::by_digest) {
        image.clone_into(&mut config.spec.os_image_url);
    }
    config
}

/// Why a host cannot leave its pool's image: its config names no image to go back to. Without this rule the host would stay
/// in the image and report that it does not.
#[must_use]
pub fn lacks_image_to_return_to(from: &str, to: &str, spec: &MachineConfigSpec) -> Option<Irreconcilable> {
    let ((_, had), (config, has)) = (config_and_image(from), config_and_image(to));
    (!had.is_empty() && has.is_empty() && spec.os_image_url.is_empty()).then(|| Irreconcilable {
        path: OsField::Image.path().to_owned(),
        why: format!(
            "this machine runs its pool's image {had}, and config {config} names no image to go back to"
        ),
        remedy: "set spec.osImageURL in a MachineConfig of the pool to the image that the machine should run"
            .to_owned(),
        scope: Scope::Config,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_config_with_an_image_is_another_state_and_splits_again() {
        for (config, image, state) in [
            ("rendered-worker-1", "", "rendered-worker-1"),
            ("rendered-worker-1", "q.io:5000/os@sha256:a", "rendered-worker-1+q.io:5000/os@sha256:a"),
            ("", "q.io/os", ""),
        ] {
            assert_eq!(with_image(config, image), state);
            let image = if config.is_empty() { "" } else { image };
            assert_eq!(config_and_image(state), (config, image));
        }
    }

    #[test]
    fn an_image_brings_kernel_and_extensions_and_leaves_the_rest() {
        let spec = MachineConfigSpec {
            os_image_url: "q.io/base".to_owned(),
            kernel_arguments: Some(vec!["nosmt".to_owned()]),
            kernel_type: "realtime".to_owned(),
            extensions: Some(vec!["usbguard".to_owned()]),
            base_os_extensions_container_image: "q.io/extensions".to_owned(),
            fips: true,
            ..MachineConfigSpec::default()
        };
        let inside = in_image(spec.clone(), "q.io/os@sha256:a");
        let want = MachineConfigSpec {
            os_image_url: "q.io/os@sha256:a".to_owned(),
            kernel_arguments: Some(vec!["nosmt".to_owned()]),
            fips: true,
            ..MachineConfigSpec::default()
        };
        assert_eq!(inside, want);
        assert_eq!(in_image(inside.clone(), "q.io/os@sha256:a"), inside);
        assert_eq!(in_image(spec.clone(), ""), spec);
    }

    #[test]
    fn a_tag_that_was_resolved_is_taken_by_its_digest() {
        let image = format!("q.io/os@sha256:{}", "0a".repeat(32));
        let found = OsImage { of: "q.io/os:1".to_owned(), image: image.clone(), ..OsImage::default() };
        let config = |url: &str| -> MachineConfig {
            let notes = serde_json::json!({api::names::own::OS_IMAGE: found.text()});
            serde_json::from_value(serde_json::json!({"metadata": {"annotations": notes},
                "spec": {"osImageURL": url, "config": {"ignition": {"version": "3.4.0"}}}}))
            .unwrap()
        };
        let taken = by_digest(config("q.io/os:1"));
        assert_eq!(taken.spec.os_image_url, image);
        assert_eq!(by_digest(taken).spec.os_image_url, image);
        assert_eq!(by_digest(config("q.io/os:2")).spec.os_image_url, "q.io/os:2");
    }

    #[test]
    fn nobody_leaves_an_image_for_a_config_that_names_none() {
        let none = MachineConfigSpec::default();
        let some = MachineConfigSpec { os_image_url: "q.io/base".to_owned(), ..none.clone() };
        let why = lacks_image_to_return_to("a+q.io/os", "b", &none).unwrap().to_string();
        assert!(why.contains("q.io/os") && why.contains("spec.osImageURL"), "{why}");
        assert_eq!(lacks_image_to_return_to("a+q.io/os", "b", &some), None);
        assert_eq!(lacks_image_to_return_to("a+q.io/os", "a+q.io/os:2", &none), None);
        assert_eq!(lacks_image_to_return_to("a", "b", &none), None);
    }
}
