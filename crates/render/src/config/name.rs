//! The name of a rendered MachineConfig: `rendered-POOL-HASH`, where the hash covers only the spec. Equal specs have
//! equal names, in every implementation.
//!
//! What it is not: a digest for security. MD5 is used only for naming.

use crate::go_yaml;
use api::v1::MachineConfigSpec;
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
    use std::fmt::Write as _;
    let mut hash = Md5::new().chain_update(SALT);
    canonical(spec, |piece| hash.update(piece));
    hash.finalize().iter().fold(format!("rendered-{pool}-"), |mut name, b| {
        let _ = write!(name, "{b:02x}");
        name
    })
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
