//! The CRDs as a user installs them: with plain `kubectl apply` or `mco install`, on a cluster that has none of ours.

use crate::product;
use crate::product::{Cluster, lab, machine_config, one_file};
use serde_json::{Value, json};

const GROUP: &str = "machineconfiguration.openshift.io";

#[tokio::test(flavor = "multi_thread")]
async fn install_works_on_an_empty_cluster_and_a_second_time() {
    let Some(builder) = lab() else { return };
    let cluster = Cluster::start(builder).await;

    // A dry run prints everything and changes nothing.
    let said = cluster.mco(&["install", "--dry-run"]).await;
    assert_eq!(said.code, 0, "{said:?}");
    for line in [
        "apply Namespace openshift-machine-config-operator",
        "apply CustomResourceDefinition machineconfigs.machineconfiguration.openshift.io",
        "create if missing: ControllerConfig machine-config-controller",
        "create if missing: MachineConfigPool worker",
    ] {
        assert!(said.out.contains(line), "{line}: {}", said.out);
    }
    let said = cluster.mco(&["install", "--dry-run", "-o", "json"]).await;
    let list: serde_json::Value = serde_json::from_str(&said.out).unwrap();
    let objects = list["items"].as_array().unwrap();
    assert!(objects.iter().any(|o| o["kind"] == "ControllerConfig"));
    assert_eq!(cluster.list("CustomResourceDefinition").await.len(), 0);

    // kubectl applies both folders unchanged, and then once more.
    let files = |folder: &str| {
        let entries = std::fs::read_dir(product::repository().join(folder)).unwrap().flatten();
        entries.filter(|e| e.path().extension().is_some_and(|x| x == "yaml")).count()
    };
    let (ours, theirs) = (files("deploy/crds"), files("deploy/crds/openshift"));
    assert!(ours > 10 && theirs > 10, "{ours} {theirs}");
    let first = cluster.kubectl(&["apply", "-R", "-f", "deploy/crds"]).await;
    assert_eq!(first.code, 0, "{first:?}");
    assert_eq!(first.out.matches(" created").count(), ours + theirs, "{}", first.out);
    let again = cluster.kubectl(&["apply", "-R", "-f", "deploy/crds"]).await;
    assert_eq!(again.code, 0, "{again:?}");
    assert_eq!(again.out.matches(" unchanged").count(), ours + theirs, "{}", again.out);
    // OpenShift's own schemas name formats that the API server does not check.
    let warnings: Vec<&str> = first.err.lines().filter(|l| !l.contains("unrecognized format")).collect();
    assert_eq!((warnings, again.err.as_str()), (vec![], ""));
    let said =
        cluster.kubectl(&["wait", "--for", "condition=Established", "--timeout=60s", "crd", "--all"]).await;
    assert_eq!(said.code, 0, "{said:?}");

    // Twice over existing CRDs.
    for _ in 0..2 {
        let said = cluster.mco(&["install", "--openshift-config-crds"]).await;
        assert_eq!(said.code, 0, "{said:?}");
    }
    // What a user changed stays: pools and settings are only created if they are missing.
    cluster.patch("MachineConfigPool", "worker", json!({"spec": {"maxUnavailable": "25%"}})).await;
    assert_eq!(cluster.mco(&["install"]).await.code, 0);
    assert_eq!(cluster.get("MachineConfigPool", "worker").await["spec"]["maxUnavailable"], "25%");

    columns(&cluster).await;
    unknown_fields(&cluster).await;
    refused_by_schema(&cluster).await;
    hosts_of_the_dashboard(&cluster).await;
    cluster.stop().await;
}

/// The objects in a file of YAML documents.
fn objects(path: &std::path::Path) -> Vec<Value> {
    api::formats::yaml::documents(&std::fs::read_to_string(path).unwrap()).unwrap()
}

/// An object as stored in the cluster, without the fields that the API server adds, and without `managedFields`.
async fn standing(cluster: &Cluster, wanted: &Value) -> Value {
    let kind = wanted["kind"].as_str().unwrap().to_lowercase();
    let name = wanted["metadata"]["name"].as_str().unwrap();
    let mut arguments = vec!["get", &kind, name, "-o", "json"];
    arguments.extend(wanted["metadata"]["namespace"].as_str().into_iter().flat_map(|n| ["-n", n]));
    let said = cluster.kubectl(&arguments).await;
    assert_eq!(said.code, 0, "{said:?}");
    let mut object: Value = serde_json::from_str(&said.out).unwrap();
    let fields = object.as_object_mut().unwrap();
    fields.remove("status");
    let metadata = fields["metadata"].as_object_mut().unwrap();
    metadata.retain(|key, _| {
        ["name", "namespace", "labels", "annotations", "generation"].contains(&key.as_str())
    });
    if let Some(notes) = metadata.get_mut("annotations").and_then(Value::as_object_mut) {
        notes.remove("kubectl.kubernetes.io/last-applied-configuration");
        if notes.is_empty() {
            metadata.remove("annotations");
        }
    }
    // Filled in by one of the cluster's own controllers.
    if kind == "secret" {
        fields.remove("data");
    }
    object
}

const FIRST: &str = "--api-server-url=https://first.example.com:6443";
const IMAGE: &str = "--image=registry.example.com/mco:1";

#[tokio::test(flavor = "multi_thread")]
async fn kubectl_applies_the_installs_output_and_new_options_win() {
    let Some(builder) = lab() else { return };
    let cluster = Cluster::start(builder).await;
    let folder = cluster.lab.folder().join("manifests");
    let folder_text = folder.display().to_string();
    let dry = async |more: &[&str]| {
        let said =
            cluster.mco(&[&["install", "--dry-run", "--output-dir", &folder_text], more].concat()).await;
        assert_eq!(said.code, 0, "{said:?}");
        said.out
    };
    // Applies the files as they are, with the printed commands.
    let commands = dry(&[FIRST]).await;
    let (crds, rest) = (folder.join("00-crds.yaml"), folder.join("10-mco.yaml"));
    for command in commands.lines() {
        let arguments: Vec<&str> = command.strip_prefix("kubectl ").unwrap().split(' ').collect();
        let said = cluster.kubectl(&arguments).await;
        // OpenShift's own schemas name formats that the API server does not check; and it considers the older of the
        // two labels obsolete.
        let expected =
            |l: &&str| l.contains("unrecognized format") || l.contains("node-role.kubernetes.io/master");
        let warnings: Vec<&str> = said.err.lines().filter(|l| !expected(l)).collect();
        assert_eq!((said.code, warnings), (0, vec![]), "{command}: {said:?}");
    }
    let all = [objects(&crds), objects(&rest)].concat();
    assert!(all.iter().any(|o| o["kind"] == "ControllerConfig"));
    let mut applied = vec![];
    for object in &all {
        applied.push(standing(&cluster, object).await);
    }
    // Installing now changes nothing: the objects stay the same, including their generation.
    let said = cluster.mco(&["install", FIRST]).await;
    assert_eq!(said.code, 0, "{said:?}");
    assert!(!said.out.contains("MachineConfigPool") && !said.out.contains("update"), "{}", said.out);
    for (object, before) in all.iter().zip(&applied) {
        assert_eq!(standing(&cluster, object).await, *before);
    }
    // The dry run now prints just these objects; and applying the first files once more changes nothing.
    let (first_crds, first_rest) = (folder.join("first-crds.yaml"), folder.join("first-mco.yaml"));
    std::fs::rename(&crds, &first_crds).unwrap();
    std::fs::rename(&rest, &first_rest).unwrap();
    dry(&[FIRST]).await;
    assert!(
        !objects(&rest).iter().any(|o| o["kind"] == "ControllerConfig" || o["kind"] == "MachineConfigPool")
    );
    for file in [&first_crds, &first_rest] {
        let said = cluster.kubectl(&["apply", "-f", &file.display().to_string()]).await;
        assert_eq!(said.code, 0, "{said:?}");
    }
    for (object, before) in all.iter().zip(&applied) {
        assert_eq!(standing(&cluster, object).await, *before);
    }
    said_wins(&cluster).await;
    with_settings(&cluster, &folder).await;
    cluster.stop().await;
}

/// With an image, kubectl applies the operator and its settings. An installation after that changes none of them.
async fn with_settings(cluster: &Cluster, folder: &std::path::Path) {
    let text = folder.display().to_string();
    let said = cluster.mco(&["install", IMAGE, FIRST, "--dry-run", "--output-dir", &text]).await;
    assert_eq!(said.code, 0, "{said:?}");
    for command in said.out.lines() {
        let arguments: Vec<&str> = command.strip_prefix("kubectl ").unwrap().split(' ').collect();
        let said = cluster.kubectl(&arguments).await;
        assert_eq!(said.code, 0, "{command}: {said:?}");
    }
    let generation = async || {
        let settings = cluster.get("MachineConfigOperator", "cluster").await;
        let deployment = [
            "-n",
            "openshift-machine-config-operator",
            "get",
            "deployment",
            "machine-config-operator",
            "-o",
            "json",
        ];
        let deployment: Value = serde_json::from_str(&cluster.kubectl(&deployment).await.out).unwrap();
        assert_eq!(settings["spec"]["apiServer"]["url"], "https://first.example.com:6443");
        (settings["metadata"]["generation"].clone(), deployment["metadata"]["generation"].clone())
    };
    let before = generation().await;
    let said = cluster.mco(&["install", IMAGE, FIRST, "--no-wait"]).await;
    assert_eq!(said.code, 0, "{said:?}");
    assert_eq!(generation().await, before);
}

/// The first installation detects the values; the second one is given them.
async fn said_wins(cluster: &Cluster) {
    const CONFIG: &str = "machine-config-controller";
    cluster.delete("ControllerConfig", CONFIG).await;
    assert_eq!(cluster.mco(&["install"]).await.code, 0);
    let guessed = cluster.get("ControllerConfig", CONFIG).await;
    let status = |config: &Value, field: &str| config["spec"]["infra"]["status"][field].clone();
    assert_eq!(guessed["spec"]["clusterDNSIP"], "10.96.0.10");
    assert_eq!(
        status(&guessed, "apiServerURL"),
        Value::Null,
        "the kubeconfig names this computer's own address"
    );
    let ca = cluster.lab.folder().join("other-ca.crt");
    let pem = "-----BEGIN CERTIFICATE-----\nb3RoZXI=\n-----END CERTIFICATE-----\n";
    std::fs::write(&ca, pem).unwrap();
    let ca = format!("--api-server-ca={}", ca.display());
    let second =
        ["install", "--api-server-url=https://second.example.com:6443", "--cluster-dns-ip=10.43.0.10", &ca];
    let said = cluster.mco(&second).await;
    assert!(said.code == 0 && said.out.contains("update ControllerConfig"), "{said:?}");
    let check = async || {
        let config = cluster.get("ControllerConfig", CONFIG).await;
        for field in ["apiServerURL", "apiServerInternalURI"] {
            assert_eq!(status(&config, field), "https://second.example.com:6443");
        }
        assert_eq!(config["spec"]["clusterDNSIP"], "10.43.0.10");
        let want = serde_json::to_value(api::k8s::ByteString(pem.as_bytes().to_vec())).unwrap();
        assert_eq!(
            (&config["spec"]["rootCAData"], &config["spec"]["kubeAPIServerServingCAData"]),
            (&want, &want)
        );
    };
    check().await;
    // Given values stay when later installations do not give any.
    let said = cluster.mco(&["install"]).await;
    assert!(said.code == 0 && !said.out.contains("update ControllerConfig"), "{said:?}");
    check().await;
    // Machines cannot use the loopback address of this computer.
    let said = cluster.mco(&["install", "--api-server-url=https://127.0.0.1:6443"]).await;
    assert!(said.code == 1 && said.err.contains("loopback address"), "{said:?}");
    let own = json!({"spec": {"infra": {"status": {"apiServerInternalURI": "https://localhost:6443"}}}});
    cluster.patch("ControllerConfig", CONFIG, own).await;
    let said = cluster.mco(&["pointer", "worker"]).await;
    assert!(said.code == 1 && said.err.contains("localhost is a loopback address"), "{said:?}");
    let said = cluster.mco(&["operator", "start", "--once"]).await;
    assert!(said.code != 0 && said.err.contains("machines would ask themselves"), "{said:?}");
}

/// The short names and printer columns.
async fn columns(cluster: &Cluster) {
    cluster.create(machine_config("50-columns", "none", one_file("/etc/columns", "x"))).await;
    let said = cluster.kubectl(&["get", "mcp,mc"]).await;
    assert_eq!(said.code, 0, "{said:?}");
    let header = |first: &str, n: usize| {
        let lines: Vec<Vec<&str>> = said.out.lines().map(|l| l.split_whitespace().collect()).collect();
        let at = lines.iter().filter(|l| l.first() == Some(&first)).nth(n).unwrap();
        at.join(" ")
    };
    assert_eq!(
        header("NAME", 0),
        "NAME CONFIG UPDATED UPDATING DEGRADED MACHINECOUNT READYMACHINECOUNT UPDATEDMACHINECOUNT DEGRADEDMACHINECOUNT AGE"
    );
    assert_eq!(header("NAME", 1), "NAME GENERATEDBYCONTROLLER IGNITIONVERSION AGE");
    let row = said.out.lines().find(|l| l.contains("50-columns")).unwrap();
    assert!(row.contains("3.4.0"), "{row}");
}

/// The API server's field validation: unknown fields are refused by kubectl's default, or dropped with a warning;
/// `spec.config` is free-form.
async fn unknown_fields(cluster: &Cluster) {
    let mut object = machine_config("50-unknown", "none", one_file("/etc/unknown", "x"));
    object["spec"]["kernelArgs"] = json!(["quiet"]);
    object["spec"]["config"]["ignition"]["proxies"] = json!("kept");
    let file = cluster.lab.folder().join("unknown.json");
    std::fs::write(&file, object.to_string()).unwrap();
    let file = file.to_string_lossy();
    let said = cluster.kubectl(&["apply", "-f", &file]).await;
    assert_ne!(said.code, 0, "{said:?}");
    assert!(said.err.contains("unknown field \"spec.kernelArgs\""), "{}", said.err);
    let said = cluster.kubectl(&["apply", "--validate=warn", "-f", &file]).await;
    assert_eq!(said.code, 0, "{said:?}");
    assert!(said.err.contains("Warning: unknown field \"spec.kernelArgs\""), "{}", said.err);
    let stored = cluster.get("MachineConfig", "50-unknown").await;
    assert_eq!(stored["spec"].get("kernelArgs"), None);
    assert_eq!(stored["spec"]["config"]["ignition"]["proxies"], "kept");
}

async fn refused_by_schema(cluster: &Cluster) {
    let api_version = format!("{GROUP}/v1");
    let pool = |name: &str, spec: serde_json::Value| json!({"apiVersion": api_version, "kind": "MachineConfigPool", "metadata": {"name": name}, "spec": spec});
    let node = |name: &str, of: &str| {
        json!({
            "apiVersion": api_version, "kind": "MachineConfigNode", "metadata": {"name": name},
            "spec": {"node": {"name": of}, "pool": {"name": "worker"}, "configVersion": {"desired": "not-yet-set"}},
        })
    };
    let policy = |actions: serde_json::Value| {
        json!({
            "apiVersion": "operator.openshift.io/v1", "kind": "MachineConfiguration", "metadata": {"name": "cluster"},
            "spec": {"managementState": "Managed", "nodeDisruptionPolicy": {"files": [{"path": "/etc/a", "actions": actions}]}},
        })
    };
    let mut bad_arguments = machine_config("50-refused", "worker", one_file("/etc/x", "x"));
    bad_arguments["spec"]["kernelArguments"] = json!("quiet");
    let cases = [
        (policy(json!([{"type": "Reboot"}, {"type": "Drain"}])), "cannot be combined"),
        (policy(json!([{"type": "Reload"}])), "reload.serviceName"),
        (policy(json!([{"type": "None", "restart": {"serviceName": "a.service"}}])), "restart.serviceName"),
        (
            json!({"apiVersion": api_version, "kind": "OSImageStream", "metadata": {"name": "mine"}, "spec": {"defaultStream": "a"}}),
            "name it cluster",
        ),
        (node("worker-0", "worker-1"), "worker-0"),
        (bad_arguments, "spec.kernelArguments"),
        (machine_config("50-refused", "worker", json!(["a", "list"])), "spec.config"),
        (pool("refused", json!({"paused": "yes"})), "spec.paused"),
        (pool("refused", json!({"nodeSelector": {"matchExpressions": [{"key": "a"}]}})), "operator"),
    ];
    for (object, word) in cases {
        let kind = object["kind"].as_str().unwrap().to_owned();
        let parsed = serde_json::from_value(object.clone()).unwrap();
        let answer = cluster.api(&kind).create(&kube::api::PostParams::default(), &parsed).await;
        let Err(kube::Error::Api(status)) = answer else { panic!("{object} was accepted: {answer:?}") };
        assert_eq!(status.code, 422, "{status:?}");
        assert!(status.message.contains(word), "{word}: {}", status.message);
    }
    cluster.create(node("worker-0", "worker-0")).await;
    cluster
        .create(policy(
            json!([{"type": "Drain"}, {"type": "Reload", "reload": {"serviceName": "a.service"}}]),
        ))
        .await;
}

/// The CEL rule takes the hosts that the operator and the dashboard take, and no others.
async fn hosts_of_the_dashboard(cluster: &Cluster) {
    let dry = kube::api::PostParams { dry_run: true, ..Default::default() };
    let settings = cluster.api("MachineConfigOperator");
    let mut rows = 0;
    for line in include_str!("../../../api/tests/hosts.txt").lines().filter(|line| !line.starts_with('#')) {
        let (word, host) = line.split_once(' ').unwrap();
        let object = json!({
            "apiVersion": "machineconfig.dev/v1alpha1", "kind": "MachineConfigOperator", "metadata": {"name": "cluster"},
            "spec": {"image": "x", "dashboard": {"hosts": [host]}},
        });
        match settings.create(&dry, &serde_json::from_value(object).unwrap()).await {
            Ok(_) => assert_eq!(word, "yes", "{host} was taken"),
            Err(kube::Error::Api(status)) => {
                let told = status.code == 422 && status.message.contains("each entry is a name");
                assert!(word == "no" && told, "{host}: {status:?}");
            }
            Err(error) => panic!("{host}: {error}"),
        }
        assert_eq!(api::formats::network::is_host(host), word == "yes", "{host}");
        rows += 1;
    }
    assert!(rows > 30, "{rows}");
}
