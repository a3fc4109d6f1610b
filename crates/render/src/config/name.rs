//! The name of a rendered MachineConfig: `rendered-POOL-HASH`, where the hash covers only the spec. Equal specs have
//! equal names, in every implementation. Also the name of an image build, which is a hash of the same form.
//!
//! What it is not: a digest for security. MD5 is used only for naming.
//!
//! Source: <https://github.com/openshift/machine-config-operator/blob/HEAD/pkg/controller/render/hash.go>.

use crate::go_yaml;
use api::v1::{MachineConfigSpec, MachineOSConfigSpec, PoolConfiguration};
use md5::{Digest as _, Md5};
use serde_json::{Value, json};

/// Hashed before the spec, as in all implementations.
const SALT: [u8; 80] = [
    16, 124, 206, 228, 139, 56, 175, 175, 79, 229, 134, 118, 157, 154, 211, 110, 25, 93, 47, 253, 172, 106,
    37, 7, 174, 13, 160, 185, 110, 17, 87, 52, 219, 131, 12, 206, 218, 141, 116, 135, 188, 181, 192, 151,
    233, 62, 126, 165, 64, 83, 179, 119, 15, 168, 208, 197, 146, 107, 58, 227, 133, 188, 238, 26, 33, 26,
    235, 202, 32, 173, 31, 234, 41, 144, 148, 79, 6, 206, 23, 22,
];

/// The rendered MachineConfig's name for a spec.
pub fn name(pool: &str, spec: &MachineConfigSpec) -> String {
    let mut hash = Md5::new().chain_update(SALT);
    canonical(spec, |piece| hash.update(piece));
    format!("rendered-{pool}-{}", api::formats::text::hex(&hash.finalize()))
}

/// The images that a build starts from, as a part of its name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BuildBase<'a> {
    /// `spec.osImageURL` of the rendered MachineConfig.
    pub os_image: &'a str,
    /// Its `spec.baseOSExtensionsContainerImage`.
    pub extensions_image: &'a str,
    /// Its annotation `release-image-version`; empty outside of OpenShift.
    pub release: &'a str,
}

/// The name of a MachineOSBuild: that of its MachineOSConfig, and a hash of everything that the image is built from.
pub fn build_name(
    os_config: &str,
    configuration: &PoolConfiguration,
    spec: &MachineOSConfigSpec,
    base: BuildBase<'_>,
) -> String {
    let mut hash = Md5::new().chain_update(SALT);
    build_text(configuration, spec, base).iter().for_each(|text| hash.update(text));
    format!("{os_config}-{}", api::formats::text::hex(&hash.finalize()))
}

/// The texts that a build's name is a hash of.
fn build_text(
    configuration: &PoolConfiguration,
    spec: &MachineOSConfigSpec,
    base: BuildBase<'_>,
) -> [String; 3] {
    let mut spec = json!(spec);
    // The field that Go writes for a list that is not there.
    if let Some(fields) = spec.as_object_mut() {
        fields.entry("containerFile").or_insert(Value::Null);
    }
    let base = json!({
        "BaseOSContainerImage": base.os_image,
        "BaseOSExtensionsContainerImage": base.extensions_image,
        "OSImageURL": "",
        "ReleaseVersion": base.release,
    });
    [json!(configuration), spec, base].map(|object| go_yaml::emit(&object))
}

/// A hash of a MachineOSConfig's spec, by which one knows later whether an image was built from the same spec.
pub fn os_config_hash(spec: &MachineOSConfigSpec) -> String {
    let hash = Md5::new().chain_update(SALT).chain_update(go_yaml::emit(&json!(spec)));
    api::formats::text::hex(&hash.finalize())
}

/// The text that is hashed, in pieces.
fn canonical(spec: &MachineConfigSpec, sink: impl FnMut(&str)) {
    let MachineConfigSpec {
        os_image_url,
        base_os_extensions_container_image,
        config,
        kernel_arguments,
        extensions,
        fips,
        kernel_type,
    } = spec;
    let fields = [
        ("baseOSExtensionsContainerImage", &json!(base_os_extensions_container_image)),
        ("config", config.as_ref().unwrap_or(&Value::Null)),
        ("extensions", &json!(extensions)),
        ("fips", &json!(fips)),
        ("kernelArguments", &json!(kernel_arguments)),
        ("kernelType", &json!(kernel_type)),
        ("osImageURL", &json!(os_image_url)),
    ];
    go_yaml::emit_fields(&fields, sink);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn canonical(spec: &MachineConfigSpec) -> String {
        let mut text = String::new();
        super::canonical(spec, |piece| text.push_str(piece));
        text
    }

    fn hash(spec: &MachineConfigSpec) -> String {
        name("p", spec).trim_start_matches("rendered-p-").to_owned()
    }

    fn strings(all: &[&str]) -> Option<Vec<String>> {
        Some(all.iter().map(|s| (*s).to_owned()).collect())
    }

    fn bare() -> Option<Value> {
        Some(json!({"ignition": {"version": "3.5.0"}}))
    }

    #[test]
    fn a_builds_name_covers_its_inputs_as_go_writes_them() {
        let configuration: PoolConfiguration = serde_json::from_value(json!({
            "name": "rendered-infra-1",
            "source": [{"apiVersion": "machineconfiguration.openshift.io/v1", "kind": "MachineConfig", "name": "00-worker"}],
        }))
        .unwrap();
        let mut spec: MachineOSConfigSpec = serde_json::from_value(json!({
            "machineConfigPool": {"name": "infra"}, "imageBuilder": {"imageBuilderType": "Job"},
            "renderedImagePushSecret": {"name": "push"}, "renderedImagePushSpec": "r.example.com/os:latest",
            "containerFile": [{"containerfileArch": "NoArch", "content": "FROM configs AS final\nRUN true\n"}],
        }))
        .unwrap();
        let base =
            BuildBase { os_image: "r.example.com/base@sha256:1", extensions_image: "", release: "4.20.0" };
        assert_eq!(
            build_text(&configuration, &spec, base),
            [
                "name: rendered-infra-1\nsource:\n- apiVersion: machineconfiguration.openshift.io/v1\n  \
                 kind: MachineConfig\n  name: 00-worker\n",
                "containerFile:\n- containerfileArch: NoArch\n  content: |\n    FROM configs AS final\n    RUN true\n\
                 imageBuilder:\n  imageBuilderType: Job\nmachineConfigPool:\n  name: infra\n\
                 renderedImagePushSecret:\n  name: push\nrenderedImagePushSpec: r.example.com/os:latest\n",
                "BaseOSContainerImage: r.example.com/base@sha256:1\nBaseOSExtensionsContainerImage: \"\"\n\
                 OSImageURL: \"\"\nReleaseVersion: 4.20.0\n",
            ]
        );
        let named = |spec: &_| build_name("infra", &configuration, spec, base);
        let with = named(&spec);
        assert!(with.strip_prefix("infra-").is_some_and(|hash| hash.len() == 32), "{with}");
        // Go writes a list that is not there as null, and one that is empty as an empty list.
        spec.container_file = None;
        assert!(build_text(&configuration, &spec, base)[1].starts_with("containerFile: null\n"));
        let without = named(&spec);
        spec.container_file = Some(vec![]);
        assert!(build_text(&configuration, &spec, base)[1].starts_with("containerFile: []\n"));
        assert!(with != without && without != named(&spec));
    }

    #[test]
    fn vector_1_bare_config() {
        let spec = MachineConfigSpec {
            config: bare(),
            kernel_arguments: Some(vec![]),
            extensions: Some(vec![]),
            kernel_type: "default".to_owned(),
            ..MachineConfigSpec::default()
        };
        assert_eq!(
            canonical(&spec),
            "baseOSExtensionsContainerImage: \"\"\nconfig:\n  ignition:\n    version: 3.5.0\nextensions: []\n\
             fips: false\nkernelArguments: []\nkernelType: default\nosImageURL: \"\"\n"
        );
        assert_eq!(hash(&spec), "6da92b29d98fcd722bbf117520c22ee4");
    }

    #[test]
    fn vector_2_long_lines_and_literal_blocks() {
        let config = json!({"ignition":{"version":"3.5.0"},
            "passwd":{"users":[{"name":"core","sshAuthorizedKeys":["ssh-rsa AAAA a@b","1234"]}]},
            "storage":{"files":[
                {"overwrite":true,"path":"/etc/a.conf","contents":{"compression":"","source":"data:,hello%20world%0A"},"mode":420},
                {"overwrite":true,"path":"/etc/b","contents":{"compression":"gzip","source":"data:;base64,H4sIAAAAAAAA/w=="},"mode":384}]},
            "systemd":{"units":[
                {"contents":"[Unit]\nDescription=x\n[Service]\nExecStart=/bin/true\n","enabled":true,"name":"x.service"},
                {"contents":"[Unit]\n\nDescription=no newline at end","name":"y.service","dropins":[
                    {"contents":"[Service]\nEnvironment=\"A=1\"\t# tab\n","name":"10-a.conf"},
                    {"contents":"  lead\n","name":"20-b.conf"},
                    {"contents":"trail \n\n","name":"30-c.conf"}]}]}});
        let spec = MachineConfigSpec {
            os_image_url: format!("quay.io/ocp/os@sha256:{}", "ab".repeat(32)),
            base_os_extensions_container_image: format!("quay.io/ocp/ext@sha256:{}", "cd".repeat(32)),
            config: Some(config),
            extensions: strings(&["usbguard"]),
            fips: true,
            kernel_type: "realtime".to_owned(),
            kernel_arguments: strings(&[
                "nosmt",
                "key=value with a long text that goes far beyond the eighty column limit of the yaml line writer, yes",
                "on",
                "0x10",
                "a: b",
                "2001-01-01",
            ]),
        };
        assert_eq!(canonical(&spec).len(), 1370, "{}", canonical(&spec));
        assert_eq!(hash(&spec), "61b36b04b5e8de0835d860d1e65e36bf");
    }

    #[test]
    fn vector_3_nothing_at_all() {
        assert_eq!(hash(&MachineConfigSpec::default()), "3c4b955ca6c2518e160dc03b6e7c0ed7");
    }

    #[test]
    fn vector_4_strings_that_need_care() {
        let arguments = [
            "héllo",
            "emoji 😀",
            "- dash",
            "#hash",
            "it's",
            "tab\there",
            "'quoted: x",
            "",
            "~",
            "1:30",
            "trailing ",
            "=",
            "<<",
            "null",
            "12e3",
            "0o14",
            "1_000",
            ".5",
            "Yes",
            "\"x\"",
            "x #y",
            "x:y",
            "--- a",
        ];
        let spec = MachineConfigSpec {
            config: bare(),
            kernel_type: "64k-pages".to_owned(),
            kernel_arguments: strings(&arguments),
            ..MachineConfigSpec::default()
        };
        assert_eq!(canonical(&spec).len(), 373, "{}", canonical(&spec));
        assert_eq!(hash(&spec), "dd7ba1059bef9f263ee8d30dba61cf37");
    }
}
