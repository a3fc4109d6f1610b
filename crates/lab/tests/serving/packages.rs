//! The Helm chart and the kustomize base: both are what `mco install` applies, and a real API server takes the chart. The
//! plugin of kubectl's.
//!
//! What it is not: packages of hosts (`tests/node/packages.rs`).

use crate::product::repository;
use lab::{ControlPlane, ControlPlaneOptions, Environment, Folder, Program, Programs, Reporter, sweep};
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;

const URL: &str = "https://10.0.0.10:6443";
const IMAGE: &str = "registry.example.com/team/mco:1.0";
const DNS: &str = "10.43.0.10";

/// Runs a program to its end; its output must be good.
fn said(command: &mut Command) -> String {
    let output = command.env_remove("KUBECONFIG").env("HOME", "/nonexistent").output().unwrap();
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {error}");
    String::from_utf8(output.stdout).unwrap()
}

/// Objects by kind, namespace and name, without what Helm alone knows of them.
fn by_name(documents: Vec<Value>) -> BTreeMap<String, Value> {
    let objects = documents.into_iter().flat_map(api::yaml::objects).filter(|o| !o.is_null());
    let named = objects.map(|mut object| {
        let metadata = &mut object["metadata"];
        let mut empty = false;
        if let Some(annotations) = metadata.get_mut("annotations").and_then(Value::as_object_mut) {
            annotations.remove("helm.sh/resource-policy");
            empty = annotations.is_empty();
        }
        if empty {
            metadata.as_object_mut().unwrap().remove("annotations");
        }
        let word = |path: &str| object.pointer(path).and_then(Value::as_str).unwrap_or_default();
        let name = [word("/kind"), word("/metadata/namespace"), word("/metadata/name")].join(" ");
        (name, object)
    });
    named.collect()
}

/// What `mco install` applies to a cluster in which nothing is installed.
fn installed(ca: &Path) -> BTreeMap<String, Value> {
    let mut mco = Command::new(lab::built_mco().unwrap());
    mco.args(["install", "--dry-run", "-o", "json", "--image", IMAGE, "--daemon-image", IMAGE]);
    mco.args(["--api-server-url", URL, "--cluster-dns-ip", DNS, "--api-server-ca"]).arg(ca);
    by_name(vec![serde_json::from_str(&said(&mut mco)).unwrap()])
}

/// Both have the same objects, and each is the same.
fn same(found: &BTreeMap<String, Value>, wanted: &BTreeMap<String, Value>) {
    assert_eq!(found.keys().collect::<Vec<_>>(), wanted.keys().collect::<Vec<_>>());
    for (name, object) in wanted {
        assert_eq!(&found[name], object, "{name}");
    }
    assert!(wanted.len() > 30, "{:?}", wanted.keys());
}

#[tokio::test(flavor = "multi_thread")]
async fn the_chart_and_the_base_are_what_is_installed() {
    let missing = lab::built_mco().is_none().then(|| "cargo build -p cli has not run".to_owned());
    if !lab::require(missing) {
        return;
    }
    let environment = Environment::read();
    sweep(&environment).unwrap();
    let folder = Arc::new(Folder::create(&environment).unwrap());
    let programs = Programs::new(&environment).unwrap();
    let progress = Reporter::stderr();
    let helm = programs.get(Program::Helm, &progress).await.unwrap();
    let kubectl = programs.get(Program::Kubectl, &progress).await.unwrap();
    let repository = repository();
    let ca = repository.join("examples/kustomize/ca.crt");
    let wanted = installed(&ca);

    let chart = repository.join("deploy/helm/mco");
    let values = [format!("image={IMAGE}"), format!("apiServerURL={URL}"), format!("clusterDNSIP={DNS}")];
    let with_values = |command: &mut Command| {
        for value in &values {
            command.args(["--set", value]);
        }
        command.arg("--set-file").arg(format!("apiServerCA={}", ca.display()));
    };
    let mut template = Command::new(&helm);
    template.args(["template", "mco", "--include-crds", "--kube-version", "1.36.0"]).arg(&chart);
    with_values(&mut template);
    same(&by_name(api::yaml::documents(&said(&mut template)).unwrap()), &wanted);

    let mut kustomize = Command::new(&kubectl);
    kustomize.arg("kustomize").arg(repository.join("examples/kustomize"));
    same(&by_name(api::yaml::documents(&said(&mut kustomize)).unwrap()), &wanted);

    // The program is a plugin of kubectl's, by its name alone.
    let plugins = tempfile::tempdir().unwrap();
    std::os::unix::fs::symlink(lab::built_mco().unwrap(), plugins.path().join("kubectl-mco")).unwrap();
    let help = said(Command::new(&kubectl).args(["mco", "status", "--help"]).env("PATH", plugins.path()));
    assert!(help.contains("Usage: kubectl mco status"), "{help}");

    // Without its values the chart says which one it misses.
    let nothing = Command::new(&helm)
        .args(["template", "mco", "--kube-version", "1.36.0"])
        .arg(&chart)
        .output()
        .unwrap();
    let error = String::from_utf8_lossy(&nothing.stderr).into_owned();
    assert!(!nothing.status.success() && error.contains("image: the image of all pods"), "{error}");

    let options =
        ControlPlaneOptions { scheduler: false, controller_manager: false, ..ControlPlaneOptions::default() };
    let plane = ControlPlane::start(folder, &programs, &options, &progress).await.unwrap();
    let mut install = Command::new(&helm);
    install.args(["install", "mco", "--namespace", "kube-system"]).arg(&chart);
    with_values(install.arg("--kubeconfig").arg(plane.kubeconfig()));
    let notes = said(&mut install);
    assert!(notes.contains("kubectl apply --server-side"), "{notes}");
    let mut get = Command::new(&kubectl);
    get.arg("--kubeconfig").arg(plane.kubeconfig());
    let made = said(get.args(["get", "machineconfigoperators,deployments", "-A", "-o", "name"]));
    for name in ["/cluster", "/machine-config-operator"] {
        assert!(made.contains(name), "{made}");
    }
    // What users own stays.
    let mut remove = Command::new(&helm);
    remove.args(["uninstall", "mco", "--namespace", "kube-system", "--kubeconfig"]).arg(plane.kubeconfig());
    said(&mut remove);
    let mut get = Command::new(&kubectl);
    get.arg("--kubeconfig").arg(plane.kubeconfig());
    let left = said(get.args(["get", "namespaces,deployments", "-A", "-o", "name"]));
    assert!(left.contains("/openshift-machine-api") && !left.contains("deployment"), "{left}");
    plane.stop().await;
}
