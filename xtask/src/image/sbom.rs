//! What the program contains, as a bill of materials in CycloneDX's JSON (specification 1.5): crates with versions,
//! licences, checksums and their dependencies, the C library, and the certificates.
//!
//! It is made from what cargo has resolved for the target, so it has no crates for other platforms and none that only
//! tests use. What it is not: a list of known vulnerabilities.

use anyhow::{Context, bail};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::Command;

/// Debian packages whose content is in the image: the static C library and the certificates.
const DEBIAN: [&str; 2] = ["libc6-dev", "ca-certificates"];

/// The bill of materials. `digest` is that of the image.
pub(crate) fn of(root: &Path, target: &str, digest: &str, revision: &str) -> anyhow::Result<Value> {
    let output = Command::new(env!("CARGO"))
        .args(["metadata", "--locked", "--format-version", "1", "--filter-platform", target])
        .current_dir(root)
        .output()
        .context("cannot run cargo metadata")?;
    if !output.status.success() {
        bail!("cargo metadata failed: {}", String::from_utf8_lossy(&output.stderr).trim());
    }
    let metadata = serde_json::from_slice(&output.stdout).context("cargo metadata is not JSON")?;
    let lock = std::fs::read_to_string(root.join("Cargo.lock")).context("cannot read Cargo.lock")?;
    let lock: toml::Table = lock.parse().context("Cargo.lock is not TOML")?;
    let mut bom = crates(&metadata, &checksums(&lock), digest, revision)?;
    let debian = DEBIAN.iter().filter_map(|package| debian(package));
    if let Some(components) = bom["components"].as_array_mut() {
        components.extend(debian);
    }
    Ok(bom)
}

/// The SHA-256 of each crate from a registry, by name and version.
fn checksums(lock: &toml::Table) -> BTreeMap<(String, String), String> {
    let packages = lock.get("package").and_then(toml::Value::as_array).into_iter().flatten();
    let text = |package: &toml::Value, key: &str| Some(package.get(key)?.as_str()?.to_owned());
    packages.filter_map(|p| Some(((text(p, "name")?, text(p, "version")?), text(p, "checksum")?))).collect()
}

fn crates(
    metadata: &Value,
    checksums: &BTreeMap<(String, String), String>,
    digest: &str,
    revision: &str,
) -> anyhow::Result<Value> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
    let packages: BTreeMap<String, Value> =
        list(&metadata["packages"]).into_iter().map(|p| (text(&p["id"]), p)).collect();
    let nodes: BTreeMap<String, Value> =
        list(&metadata["resolve"]["nodes"]).into_iter().map(|n| (text(&n["id"]), n)).collect();
    let root = packages.iter().find(|(_, p)| p["name"] == "cli").map(|(id, _)| id.clone());
    let root = root.context("cargo metadata has no package cli")?;
    // Only what becomes part of the program: no crates that only tests use, and none that run only at build time, such
    // as derive macros.
    let builds = |id: &String| {
        let targets = packages.get(id).map(|p| list(&p["targets"])).unwrap_or_default();
        targets.iter().any(|target| list(&target["kind"]).iter().any(|kind| kind == "proc-macro"))
    };
    let uses = |id: &str| -> Vec<String> {
        let deps = nodes.get(id).map(|node| list(&node["deps"])).unwrap_or_default();
        let normal = deps.into_iter().filter(|d| list(&d["dep_kinds"]).iter().any(|k| k["kind"].is_null()));
        normal.map(|d| text(&d["pkg"])).filter(|id| !builds(id)).collect()
    };
    let (mut found, mut queue) = (BTreeSet::from([root.clone()]), vec![root.clone()]);
    while let Some(id) = queue.pop() {
        queue.extend(uses(&id).into_iter().filter(|used| found.insert(used.clone())));
    }
    let reference = |id: &str| -> String {
        let package = &packages[id];
        format!("pkg:cargo/{}@{}", text(&package["name"]), text(&package["version"]))
    };
    let mut components = vec![];
    for id in found.iter().filter(|id| **id != root) {
        let package = packages.get(id).with_context(|| format!("cargo metadata does not describe {id}"))?;
        let (name, version) = (text(&package["name"]), text(&package["version"]));
        let mut component = json!({
            "type": "library", "bom-ref": reference(id), "name": name, "version": version, "purl": reference(id),
        });
        if let Some(license) = package["license"].as_str() {
            // Old crates separate licences with a slash. In SPDX that is `OR`.
            component["licenses"] = json!([{"expression": license.replace('/', " OR ")}]);
        }
        if let Some(checksum) = checksums.get(&(name, version)) {
            component["hashes"] = json!([{"alg": "SHA-256", "content": checksum}]);
        }
        components.push(component);
    }
    let dependencies: Vec<Value> = found
        .iter()
        .map(|id| {
            let on: BTreeSet<String> = uses(id).iter().map(|used| reference(used)).collect();
            json!({"ref": reference(id), "dependsOn": on})
        })
        .collect();
    let about = json!({
        "type": "container", "bom-ref": reference(&root), "name": "mco", "version": packages[&root]["version"],
        "licenses": [{"expression": "Apache-2.0"}],
        "properties": [
            {"name": "image:digest", "value": digest}, {"name": "source:revision", "value": revision},
        ],
    });
    Ok(json!({
        "bomFormat": "CycloneDX", "specVersion": "1.5", "version": 1,
        "metadata": {"component": about},
        "components": components, "dependencies": dependencies,
    }))
}

/// The bill of materials of the image in which OS images are built: Debian's packages. `digest` is that of the image.
pub(crate) fn of_builder(packages: &[lab::DebianPackage], name: &str, digest: &str, revision: &str) -> Value {
    let component = |p: &lab::DebianPackage| {
        let purl = format!("pkg:deb/debian/{}@{}?arch={}", p.name, p.version, p.architecture);
        json!({"type": "library", "bom-ref": purl, "name": p.name, "version": p.version, "purl": purl})
    };
    json!({
        "bomFormat": "CycloneDX", "specVersion": "1.5", "version": 1,
        "metadata": {"component": {
            "type": "container", "bom-ref": name, "name": name,
            "properties": [
                {"name": "image:digest", "value": digest}, {"name": "source:revision", "value": revision},
            ],
        }},
        "components": packages.iter().map(component).collect::<Vec<_>>(),
    })
}

/// A Debian package that is installed on this computer; `None` if there is none.
fn debian(package: &str) -> Option<Value> {
    let output =
        Command::new("dpkg-query").args(["--show", "--showformat", "${Version}", package]).output().ok()?;
    let version =
        String::from_utf8(output.stdout).ok().filter(|v| output.status.success() && !v.is_empty())?;
    let purl = format!("pkg:deb/debian/{package}@{version}");
    Some(json!({"type": "library", "bom-ref": purl, "name": package, "version": version, "purl": purl}))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bill_of_the_builder_names_each_package_with_its_version() {
        let package = lab::DebianPackage {
            name: "buildah".to_owned(),
            version: "1.39.3+ds1-1".to_owned(),
            architecture: "amd64".to_owned(),
        };
        let bom = of_builder(&[package], "localhost/mco-builder:1", "sha256:1", "abc");
        assert_eq!(bom["components"][0]["purl"], "pkg:deb/debian/buildah@1.39.3+ds1-1?arch=amd64");
        assert_eq!(bom["metadata"]["component"]["properties"][0]["value"], "sha256:1");
    }

    #[test]
    fn the_bill_names_what_is_in_the_program_with_its_checksum_and_nothing_of_tests_or_builds() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
        let bom = of(root, "x86_64-unknown-linux-gnu", "sha256:1", "abc").unwrap();
        let components = bom["components"].as_array().unwrap();
        let named = |name: &str| components.iter().find(|c| c["name"] == name);
        for name in ["kube-client", "rustls", "aws-lc-sys", "tikv-jemalloc-sys", "minijinja"] {
            let component = named(name).unwrap_or_else(|| panic!("{name} is not named"));
            assert_eq!(component["hashes"][0]["content"].as_str().map(str::len), Some(64), "{component}");
            assert!(component["licenses"][0]["expression"].is_string(), "{component}");
        }
        for name in ["host", "render"] {
            assert!(named(name).is_some(), "{name} is ours");
        }
        for name in ["insta", "proptest", "cc", "serde_derive_internals", "windows-sys", "lab", "xtask"] {
            assert!(named(name).is_none(), "{name} is in no image");
        }
        let dependencies = bom["dependencies"].as_array().unwrap();
        assert_eq!(dependencies.iter().filter(|d| d["ref"] == "pkg:cargo/cli@0.1.0").count(), 1);
        // Every reference names a component of the list.
        let known: BTreeSet<&str> = components.iter().filter_map(|c| c["bom-ref"].as_str()).collect();
        for on in dependencies.iter().flat_map(|d| d["dependsOn"].as_array().unwrap()) {
            assert!(known.contains(on.as_str().unwrap()), "{on}");
        }
    }
}
