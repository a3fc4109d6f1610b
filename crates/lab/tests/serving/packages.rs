//! The Helm chart and the kustomize base: both contain what `mco install` applies, and a real API server accepts the
//! chart. Also the kubectl plugin.
//!
//! Not here: packages for hosts (`tests/node/packages.rs`).

use crate::product::repository;
use lab::{
    ControlPlane, ControlPlaneOptions, Environment, Folder, PackageRecipe, Program, Programs, Reporter, sweep,
};
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;

const URL: &str = "https://10.0.0.10:6443";
const IMAGE: &str = "registry.example.com/team/mco:1.0";
const DNS: &str = "10.43.0.10";
/// The key of the settings, see [`by_name`].
const SETTINGS: &str = "MachineConfigOperator  cluster";

/// Runs a program to its end, which must succeed, and returns its output.
fn said(command: &mut Command) -> String {
    let output = command.env_remove("KUBECONFIG").env("HOME", "/nonexistent").output().unwrap();
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {error}");
    String::from_utf8(output.stdout).unwrap()
}

/// Objects by kind, namespace and name, without the annotation that only Helm uses.
fn by_name(documents: Vec<Value>) -> BTreeMap<String, Value> {
    let objects = documents.into_iter().flat_map(api::formats::yaml::objects).filter(|o| !o.is_null());
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

/// What `mco install` applies to a cluster in which nothing is installed. `ca`: the CA of the API server, with an address of the DNS
/// service; `None`: the operator finds both.
fn installed(ca: Option<&Path>, more: &[&str]) -> BTreeMap<String, Value> {
    let mut mco = Command::new(lab::built_mco().unwrap());
    mco.args(["install", "--dry-run", "-o", "json", "--image", IMAGE, "--daemon-image", IMAGE]);
    mco.args(["--api-server-url", URL]);
    if let Some(ca) = ca {
        mco.args(["--cluster-dns-ip", DNS, "--api-server-ca"]).arg(ca);
    }
    by_name(vec![serde_json::from_str(&said(mco.args(more))).unwrap()])
}

/// Checks that both have the same objects with the same content.
fn same(found: &BTreeMap<String, Value>, wanted: &BTreeMap<String, Value>) {
    assert_eq!(found.keys().collect::<Vec<_>>(), wanted.keys().collect::<Vec<_>>());
    for (name, object) in wanted {
        assert_eq!(&found[name], object, "{name}");
    }
    assert!(wanted.len() > 30, "{:?}", wanted.keys());
}

#[tokio::test(flavor = "multi_thread")]
async fn the_helm_chart_and_the_kustomize_base_match_the_install() {
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
    let (wanted, found) = (installed(Some(&ca), &[]), installed(None, &[]));

    let chart = repository.join("deploy/helm/mco");
    let with_required = |command: &mut Command| {
        for value in [format!("image={IMAGE}"), format!("apiServerURL={URL}")] {
            command.args(["--set", &value]);
        }
    };
    let with_values = |command: &mut Command| {
        with_required(command);
        command.args(["--set", &format!("clusterDNSIP={DNS}")]);
        command.arg("--set-file").arg(format!("apiServerCA={}", ca.display()));
    };
    let mut template = Command::new(&helm);
    template.args(["template", "mco", "--include-crds", "--kube-version", "1.36.0"]).arg(&chart);
    with_required(&mut template);
    same(&by_name(api::formats::yaml::documents(&said(&mut template)).unwrap()), &found);
    let mut template = Command::new(&helm);
    template.args(["template", "mco", "--include-crds", "--kube-version", "1.36.0"]).arg(&chart);
    with_values(&mut template);
    same(&by_name(api::formats::yaml::documents(&said(&mut template)).unwrap()), &wanted);

    // With every other value, compared with the flags of the same meaning.
    let mut open = installed(
        Some(&ca),
        &["--open", "--proxy-protocol-from=10.0.0.4/31", "--proxy-protocol-from=10.0.1.7"],
    );
    let settings = open.get_mut(SETTINGS).unwrap();
    settings["spec"]["monitoring"] = serde_json::json!({"prometheus": "Never", "dashboards": "ConfigMaps"});
    template.args([
        "--set",
        "configServer.access=Everybody,monitoring.prometheus=Never,monitoring.dashboards=ConfigMaps",
    ]);
    template.args(["--set", "configServer.proxyProtocolFrom={10.0.0.4/31,10.0.1.7/32}"]);
    same(&by_name(api::formats::yaml::documents(&said(&mut template)).unwrap()), &open);

    let mut kustomize = Command::new(&kubectl);
    kustomize.arg("kustomize").arg(repository.join("examples/kustomize"));
    same(&by_name(api::formats::yaml::documents(&said(&mut kustomize)).unwrap()), &found);

    assert_eq!(
        wanted[SETTINGS]["spec"].get("imageFrom"),
        None,
        "an upgrade of the chart leaves the administrator's value"
    );

    // The program is a kubectl plugin if it has the plugin's name.
    let plugins = tempfile::tempdir().unwrap();
    std::os::unix::fs::symlink(lab::built_mco().unwrap(), plugins.path().join("kubectl-mco")).unwrap();
    let help = said(Command::new(&kubectl).args(["mco", "status", "--help"]).env("PATH", plugins.path()));
    assert!(help.contains("Usage: kubectl mco status"), "{help}");

    // Without values, the chart names the first one that is missing.
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
    // Where OpenShift's namespaces exist, the operator gets its permissions in them.
    let namespaces = ["openshift-config", "openshift-config-managed", "openshift-kube-apiserver-operator"];
    for namespace in namespaces {
        let mut create = Command::new(&kubectl);
        said(create.arg("--kubeconfig").arg(plane.kubeconfig()).args(["create", "namespace", namespace]));
    }
    let kubeconfig = plane.kubeconfig().display().to_string();
    let mut of_openshift = installed(Some(&ca), &["--kubeconfig", &kubeconfig]);
    assert_eq!(of_openshift.len(), wanted.len() + 8);
    let mut template = Command::new(&helm);
    template.args(["template", "mco", "--include-crds", "--kube-version", "1.36.0"]).arg(&chart);
    with_values(&mut template);
    template.args(["--set", &format!("openshiftNamespaces={{{}}}", namespaces.join(","))]);
    same(&by_name(api::formats::yaml::documents(&said(&mut template)).unwrap()), &of_openshift);
    let overlay = tempfile::tempdir_in(repository.join("target")).unwrap();
    let components = namespaces.map(|name| format!("../../deploy/kustomize/namespaces/{name}"));
    let text = serde_json::json!({"apiVersion": "kustomize.config.k8s.io/v1beta1", "kind": "Kustomization",
        "resources": ["../../examples/kustomize"], "components": components});
    std::fs::write(overlay.path().join("kustomization.yaml"), text.to_string()).unwrap();
    let mut kustomize = Command::new(&kubectl);
    kustomize.arg("kustomize").arg(overlay.path());
    // The example leaves the CA and the address of the DNS service to the operator.
    of_openshift.insert(SETTINGS.to_owned(), found[SETTINGS].clone());
    same(&by_name(api::formats::yaml::documents(&said(&mut kustomize)).unwrap()), &of_openshift);

    let mut install = Command::new(&helm);
    install.args(["install", "mco", "--namespace", "kube-system"]).arg(&chart);
    with_required(install.arg("--kubeconfig").arg(plane.kubeconfig()));
    let notes = said(&mut install);
    assert!(notes.contains("kubectl apply --server-side"), "{notes}");
    let mut get = Command::new(&kubectl);
    get.arg("--kubeconfig").arg(plane.kubeconfig());
    let made = said(get.args(["get", "machineconfigoperators,deployments", "-A", "-o", "name"]));
    for name in ["/cluster", "/machine-config-operator"] {
        assert!(made.contains(name), "{made}");
    }
    let mut get = Command::new(&kubectl);
    get.arg("--kubeconfig").arg(plane.kubeconfig());
    let settings = said(get.args(["get", "machineconfigoperator", "cluster", "-o", "json"]));
    let spec = serde_json::from_str::<Value>(&settings).unwrap()["spec"].take();
    assert_eq!(spec["apiServer"], serde_json::json!({"url": URL}), "the operator finds the CA");
    assert_eq!(spec.get("clusterDNSIP"), None, "and the address of the DNS service");
    // Removing the release keeps the settings for the parts that continue to run. After `mco uninstall` the settings' kind is
    // gone, and the release can still be removed.
    let mut remove = Command::new(&helm);
    remove.args(["uninstall", "mco", "--namespace", "kube-system", "--kubeconfig"]).arg(plane.kubeconfig());
    said(&mut remove);
    let mut get = Command::new(&kubectl);
    get.arg("--kubeconfig").arg(plane.kubeconfig());
    assert!(said(get.args(["get", "machineconfigoperators", "-o", "name"])).contains("/cluster"));
    said(&mut install);
    let mut kind = Command::new(&kubectl);
    kind.arg("--kubeconfig").arg(plane.kubeconfig());
    said(kind.args(["delete", "crd", "machineconfigoperators.machineconfig.dev"]));
    // Objects that belong to users are kept.
    let mut remove = Command::new(&helm);
    remove.args(["uninstall", "mco", "--namespace", "kube-system", "--kubeconfig"]).arg(plane.kubeconfig());
    said(&mut remove);
    let mut get = Command::new(&kubectl);
    get.arg("--kubeconfig").arg(plane.kubeconfig());
    let left = said(get.args(["get", "namespaces,deployments", "-A", "-o", "name"]));
    assert!(left.contains("/openshift-machine-api") && !left.contains("deployment"), "{left}");
    plane.stop().await;
}

/// krew itself reads the manifest, compares the archive's digest and installs the plugin; kubectl finds it there.
#[tokio::test(flavor = "multi_thread")]
async fn krew_installs_the_plugin_and_kubectl_finds_it() {
    let environment = Environment::read();
    let programs = Programs::new(&environment).unwrap();
    let progress = Reporter::stderr();
    let krew = programs.get(Program::Krew, &progress).await.unwrap();
    let kubectl = programs.get(Program::Kubectl, &progress).await.unwrap();
    let work = tempfile::tempdir().unwrap();
    // A fake for the program, which prints its own name and arguments.
    let program = work.path().join("mco");
    std::fs::write(&program, "#!/bin/sh\necho \"${0##*/} $*\"\n").unwrap();
    std::fs::set_permissions(&program, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    let recipe = PackageRecipe {
        repository: repository(),
        program: program.clone(),
        version: "1.2.3".to_owned(),
        epoch: 0,
        architecture: lab::architecture(std::env::consts::ARCH).to_owned(),
    };
    let archive = recipe.plugin(&program, work.path()).await.unwrap();
    assert_eq!(archive, recipe.plugin(&program, work.path()).await.unwrap(), "the same bytes twice");
    let manifest = work.path().join("mco.yaml");
    let root = work.path().join("krew");
    let install = |value: &Value| {
        std::fs::write(&manifest, api::formats::yaml::to_string(value).unwrap()).unwrap();
        let mut install = Command::new(&krew);
        install.arg("install").arg(format!("--manifest={}", manifest.display()));
        install.arg(format!("--archive={}", archive.path.display())).env("KREW_ROOT", &root);
        install
    };
    let good = recipe.krew_manifest("https://releases.example.com/mco.tar.gz", &archive);
    let mut other = good.clone();
    other["spec"]["platforms"][0]["sha256"] = Value::from("0".repeat(64));
    let refused = install(&other).env("HOME", "/nonexistent").output().unwrap();
    assert!(!refused.status.success(), "an archive with another digest is installed");
    said(&mut install(&good));
    let called = said(
        Command::new(&kubectl)
            .args(["mco", "status"])
            .env("PATH", format!("{}:/bin", root.join("bin").display())),
    );
    assert_eq!(called.trim(), "kubectl-mco status");
}
