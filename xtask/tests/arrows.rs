//! The dependencies between the crates, as docs/architecture.md lists them: these tests fail when a crate depends on a crate
//! that it must not know, and when the page has another list. It reads `cargo metadata`, so it checks declared dependencies.

use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::process::Command;

/// Each of our crates, and which of our crates it may depend on.
const ARROWS: [(&str, &[&str]); 21] = [
    ("ignition", &[]),
    ("api", &[]),
    ("client", &["api"]),
    ("listen", &["client"]),
    ("registry", &["api", "client"]),
    ("desired", &["api", "ignition"]),
    ("render", &["api", "ignition", "desired"]),
    ("rollout", &["api"]),
    ("build", &["api", "ignition", "desired", "render"]),
    ("host", &["api", "ignition", "desired"]),
    ("lookups", &["api", "client", "desired", "host", "rollout"]),
    (
        "controller",
        &[
            "api", "build", "client", "listen", "lookups", "registry", "ignition", "desired", "render",
            "rollout",
        ],
    ),
    ("daemon", &["api", "client", "listen", "registry", "ignition", "desired", "host", "rollout"]),
    ("server", &["api", "client", "listen", "ignition", "desired", "render"]),
    ("operator", &["api", "client", "listen", "ignition", "desired", "rollout"]),
    ("insight", &["api", "client", "desired", "host", "lookups", "render", "rollout"]),
    ("actions", &["api", "client", "desired", "insight", "render", "rollout"]),
    ("dashboard", &["actions", "api", "client", "listen", "desired", "insight", "render", "rollout"]),
    (
        "cli",
        &[
            "api",
            "build",
            "client",
            "listen",
            "registry",
            "ignition",
            "desired",
            "render",
            "rollout",
            "host",
            "controller",
            "daemon",
            "server",
            "operator",
            "insight",
            "actions",
            "dashboard",
        ],
    ),
    ("lab", &["api", "client", "daemon", "host"]),
    ("xtask", &["api", "cli", "controller", "daemon", "insight", "lab", "operator", "render", "server"]),
];

/// Crates that may depend on a Kubernetes client.
const CLIENTS: [&str; 14] = [
    "actions",
    "dashboard",
    "insight",
    "lookups",
    "client",
    "listen",
    // Only for its HTTP and TLS: a second stack would add a megabyte to the program.
    "registry",
    "controller",
    "daemon",
    "server",
    "operator",
    "cli",
    "lab",
    "xtask",
];
/// Libraries that a pure crate must not depend on: API clients, async runtimes, HTTP, D-Bus, system calls.
const IMPURE: [&str; 7] = ["tokio", "kube", "axum", "hyper", "reqwest", "zbus", "rustix"];
/// The pure crates. `api` may depend on `kube` (for its derive macro and resource traits), without the client feature.
const PURE: [&str; 6] = ["ignition", "api", "desired", "render", "rollout", "build"];

/// Each package's name and its declared dependencies. The tests below name every crate, so an empty list would fail
/// them.
fn packages() -> std::io::Result<BTreeMap<String, Vec<Value>>> {
    let output = Command::new(env!("CARGO"))
        .args(["metadata", "--no-deps", "--format-version", "1"])
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .output()?;
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let metadata: Value = serde_json::from_slice(&output.stdout).unwrap_or_default();
    let list = metadata["packages"].as_array().cloned().unwrap_or_default();
    let text = |v: &Value| v.as_str().unwrap_or_default().to_owned();
    Ok(list
        .iter()
        .map(|p| (text(&p["name"]), p["dependencies"].as_array().cloned().unwrap_or_default()))
        .collect())
}

/// Dependencies that become part of the crate. Tests may use more.
fn normal(dependencies: &[Value]) -> impl Iterator<Item = &Value> {
    dependencies.iter().filter(|d| d["kind"].is_null() || d["kind"] == "build")
}

#[test]
fn every_arrow_points_down() {
    let packages = packages().unwrap();
    let ours: BTreeSet<&str> = packages.keys().map(String::as_str).collect();
    let known: BTreeSet<&str> = ARROWS.iter().map(|(name, _)| *name).collect();
    assert_eq!(ours, known, "a crate was added or removed: draw its arrows here and in docs/architecture.md");
    for (name, allowed) in ARROWS {
        for dependency in normal(&packages[name]) {
            let target = dependency["name"].as_str().unwrap();
            assert!(
                !known.contains(target) || allowed.contains(&target),
                "{name} → {target}: this arrow is not in the design; {name} may know {allowed:?}"
            );
        }
    }
}

#[test]
fn the_page_on_the_architecture_lists_these_arrows() {
    let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/architecture.md");
    let page = std::fs::read_to_string(page).unwrap();
    let (_, after) = page.split_once("A crate may depend on these:\n\n```text\n").unwrap();
    let (list, _) = after.split_once("```").unwrap();
    let line = |(name, allowed): (&str, &[&str])| match allowed {
        [] => format!("{name}\n"),
        some => format!("{name} → {}\n", some.join(", ")),
    };
    let want: String = ARROWS.into_iter().map(line).collect();
    assert_eq!(list, want, "docs/architecture.md has to list:\n{want}");
}

#[test]
fn only_the_outer_rooms_name_a_kubernetes_client() {
    for (name, dependencies) in packages().unwrap() {
        for dependency in normal(&dependencies).filter(|d| d["name"] == "kube") {
            let features: Vec<&str> =
                dependency["features"].as_array().unwrap().iter().filter_map(Value::as_str).collect();
            let client = features.iter().any(|f| ["client", "runtime"].contains(f));
            assert!(!client || CLIENTS.contains(&name.as_str()), "{name} names kube with {features:?}");
        }
    }
}

#[test]
fn pure_crates_stay_pure() {
    let packages = packages().unwrap();
    for name in PURE {
        for dependency in normal(&packages[name]) {
            let target = dependency["name"].as_str().unwrap();
            let excused = name == "api" && target == "kube";
            assert!(!IMPURE.contains(&target) || excused, "{name} is pure and must not name {target}");
        }
    }
}

#[test]
fn every_crate_takes_the_workspaces_lints() {
    let root = concat!(env!("CARGO_MANIFEST_DIR"), "/..");
    for (name, _) in ARROWS {
        let folder = if name == "xtask" { "xtask".to_owned() } else { format!("crates/{name}") };
        let manifest = std::fs::read_to_string(format!("{root}/{folder}/Cargo.toml")).unwrap();
        assert!(manifest.contains("[lints]\nworkspace = true"), "{folder}/Cargo.toml has lints of its own");
    }
}
