//! A cluster with OpenShift's objects: the ControllerConfig is made from them field by field, follows their changes, and keeps
//! what a person wrote into it. The API server is real and has OpenShift's CRDs; the operator is the real program, with its
//! pod's service account and permissions.
//!
//! Not here: each platform and network (a table in `operator::facts::openshift`), and what agents do with the ControllerConfig
//! (`tests/node/services.rs`).

use crate::installation::{IMAGE, operator, own_object, says};
use crate::parts::speak_as;
use crate::product::{Cluster, lab};
use k8s_openapi::ByteString;
use serde_json::{Value, json};

const CONFIG: &str = "machine-config-controller";

async fn status(cluster: &Cluster, kind: &str, name: &str, status: Value) {
    let patch = json!({ "status": status }).to_string();
    let args = ["patch", kind, name, "--type=merge", "-p", &patch];
    // Not all of these kinds have a status subresource.
    let said = match cluster.kubectl(&[&args[..], &["--subresource=status"]].concat()).await {
        said if said.err.contains("NotFound") => cluster.kubectl(&args).await,
        said => said,
    };
    assert_eq!(said.code, 0, "{said:?}");
}

async fn patch(cluster: &Cluster, kind: &str, name: &str, patch: Value) {
    let patch = patch.to_string();
    let said = cluster.kubectl(&["patch", kind, name, "--type=merge", "-p", &patch]).await;
    assert_eq!(said.code, 0, "{said:?}");
}

async fn map(cluster: &Cluster, namespace: &str, name: &str, data: Value) {
    let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"namespace": namespace, "name": name}, "data": data});
    cluster.must_put(&["apply"], &map).await;
}

pub(crate) fn certificate(name: &str) -> String {
    let key = rcgen::KeyPair::generate().unwrap();
    let mut params = rcgen::CertificateParams::default();
    params.distinguished_name.push(rcgen::DnType::CommonName, name);
    params.self_signed(&key).unwrap().pem()
}

fn bytes(text: &str) -> Value {
    json!(ByteString(text.as_bytes().to_vec()))
}

/// Waits until a field of the ControllerConfig has this value.
async fn field(cluster: &Cluster, path: &str, want: &Value) {
    let what = format!("ControllerConfig {path} is {want}");
    cluster
        .wait(&what, async || {
            let config = cluster.get("ControllerConfig", CONFIG).await;
            (config.pointer(path).unwrap_or(&Value::Null) == want).then_some(())
        })
        .await;
}

/// The objects that describe a cluster of three control-plane nodes.
async fn objects(cluster: &Cluster, [client, server, user]: [&str; 3]) {
    for name in ["openshift-config", "openshift-config-managed", "openshift-kube-apiserver-operator"] {
        let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}});
        cluster.must_put(&["create"], &namespace).await;
    }
    for (kind, spec, of_status) in [
        (
            "Infrastructure",
            json!({"cloudConfig": {"name": ""}, "platformSpec": {"type": "BareMetal", "baremetal": {}}}),
            json!({
                "infrastructureName": "lab-1", "etcdDiscoveryDomain": "", "apiServerURL": "https://api.lab.test:6443",
                "apiServerInternalURI": "https://api-int.lab.test:6443", "controlPlaneTopology": "SingleReplica",
                "infrastructureTopology": "SingleReplica", "platform": "BareMetal",
                "platformStatus": {"type": "BareMetal", "baremetal": {"apiServerInternalIP": "10.0.0.5",
                    "apiServerInternalIPs": ["10.0.0.5"]}},
            }),
        ),
        (
            "Network",
            json!({"serviceNetwork": ["172.30.0.0/16", "fd02::/112"], "networkType": "OVNKubernetes"}),
            json!({"networkType": "OVNKubernetes", "serviceNetwork": ["172.30.0.0/16", "fd02::/112"]}),
        ),
        ("DNS", json!({"baseDomain": "lab.test"}), json!({})),
        (
            "Proxy",
            json!({"httpsProxy": "http://asked:3128", "trustedCA": {"name": "user-ca-bundle"}}),
            json!({"httpsProxy": "http://proxy:3128", "noProxy": ".cluster.local,.svc"}),
        ),
        ("Image", json!({"additionalTrustedCA": {"name": "registry-cas"}}), json!({})),
    ] {
        let object = json!({"apiVersion": "config.openshift.io/v1", "kind": kind, "metadata": {"name": "cluster"}, "spec": spec});
        cluster.must_put(&["create"], &object).await;
        status(cluster, &format!("{}.config.openshift.io", kind.to_lowercase()), "cluster", of_status).await;
    }
    let (config, managed) = ("openshift-config", "openshift-config-managed");
    map(cluster, config, "user-ca-bundle", json!({"ca-bundle.crt": user})).await;
    map(cluster, config, "registry-cas", json!({"quay.lab.test..5000": "theirs"})).await;
    map(cluster, managed, "image-registry-ca", json!({"registry.svc..5000": "own"})).await;
    map(cluster, managed, "kube-apiserver-client-ca", json!({"ca-bundle.crt": client})).await;
    map(cluster, managed, "kube-apiserver-server-ca", json!({"ca-bundle.crt": server})).await;
    map(cluster, "kube-system", "bootstrap", json!({"status": "complete"})).await;
    images(cluster, "4.22.1", "r/mco").await;
    os_images(cluster, "4.22.1", "r/os").await;
}

const HERE: &str = "openshift-machine-config-operator";

async fn images(cluster: &Cluster, release: &str, operator: &str) {
    let images = json!({"releaseVersion": release, "machineConfigOperator": operator, "infraImage": "r/pod",
        "keepalivedImage": "r/ka", "corednsImage": "r/dns", "haproxyImage": "r/ha", "baremetalRuntimeCfgImage": "r/cfg",
        "kubeRbacProxy": "r/rbac", "dockerRegistryImage": "r/reg"});
    map(cluster, HERE, "machine-config-operator-images", json!({"images.json": images.to_string()})).await;
}

async fn os_images(cluster: &Cluster, release: &str, os: &str) {
    let os = json!({"releaseVersion": release, "baseOSContainerImage": os, "baseOSExtensionsContainerImage": "r/ext",
        "osImageURL": "r/legacy"});
    map(cluster, HERE, "machine-config-osimageurl", os).await;
}

/// The next release: its images arrive in two ConfigMaps, one after the other, and reach the ControllerConfig together, in the
/// write that allows a controller of this version to render.
async fn releases(cluster: &Cluster) {
    const RELEASE: &str = "/metadata/annotations/machineconfiguration.openshift.io~1release-image-version";
    const RELEASED: &str = "/metadata/annotations/machineconfig.dev~1released-version";
    let ours = cluster.get("ControllerConfig", CONFIG).await.pointer(RELEASED).unwrap().clone();
    // The state that an operator of the previous version leaves: its controller renders.
    let before = json!({"metadata": {"annotations": {"machineconfig.dev/released-version": "v0.0.1"}}});
    images(cluster, "4.22.2", "r/mco").await;
    says(
        cluster,
        "Progressing",
        "True",
        &["Release", "is of release 4.22.2 and machine-config-osimageurl of 4.22.1"],
    )
    .await;
    patch(cluster, "controllerconfig", CONFIG, before).await;
    tokio::time::sleep(std::time::Duration::from_secs(3)).await;
    let config = cluster.get("ControllerConfig", CONFIG).await;
    assert_eq!(
        (&config["spec"]["baseOSContainerImage"], config.pointer(RELEASE)),
        (&json!("r/os"), Some(&json!("4.22.1")))
    );
    assert_eq!(
        config.pointer(RELEASED),
        Some(&json!("v0.0.1")),
        "the new controller waits for the whole of the release"
    );
    os_images(cluster, "4.22.2", "r/os@2").await;
    field(cluster, RELEASED, &ours).await;
    let config = cluster.get("ControllerConfig", CONFIG).await;
    assert_eq!(
        (&config["spec"]["baseOSContainerImage"], config.pointer(RELEASE)),
        (&json!("r/os@2"), Some(&json!("4.22.2")))
    );
    let versions = cluster.get("MachineConfigOperator", "cluster").await["status"]["versions"].to_string();
    assert!(!versions.contains("4.22.2"), "no pool is in it: {versions}");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_controller_config_is_what_openshifts_objects_say() {
    let Some(builder) = lab() else { return };
    let cluster = Cluster::start(builder.nodes(2).simulated().scheduler(true).controller_manager(true)).await;
    let role = json!({"metadata": {"labels": {"node-role.kubernetes.io/control-plane": ""}}});
    cluster.patch("Node", "worker-0", role).await;
    // The first run installs the CRDs; the second one gives the operator its permissions in OpenShift's namespaces.
    let said = cluster.mco(&["install", IMAGE, "--no-wait", "--openshift-config-crds"]).await;
    assert_eq!(said.code, 0, "{said:?}");
    let (client, server, user) = (certificate("client-1"), certificate("server-1"), certificate("user"));
    objects(&cluster, [&client, &server, &user]).await;
    let said = cluster.mco(&["install", IMAGE, "--no-wait", "--openshift-config-crds"]).await;
    assert_eq!(said.code, 0, "{said:?}");
    let dir = tempfile::tempdir().unwrap();
    let account = speak_as(&cluster, dir.path(), "machine-config-operator").await;
    let running = operator(dir.path(), "operator", &account);

    field(&cluster, "/spec/clusterDNSIP", &json!("172.30.0.10")).await;
    says(&cluster, "Available", "True", &[]).await;
    let config = cluster.get("ControllerConfig", CONFIG).await;
    let mut spec = config["spec"].clone();
    for kind in ["infra", "dns"] {
        let metadata = spec[kind]["metadata"].as_object_mut().unwrap();
        assert!(
            metadata.remove("uid").is_some() && metadata.remove("creationTimestamp").is_some(),
            "{config:#}"
        );
        assert_eq!(json!(metadata), json!({"name": "cluster"}));
    }
    // The operator makes the config server's own CA.
    let own =
        own_object(&cluster, "configmap", "machine-config-server-ca").await["data"]["ca-bundle.crt"].clone();
    assert_eq!(
        spec,
        json!({
            "clusterDNSIP": "172.30.0.10", "ipFamilies": "DualStack", "platform": "baremetal",
            "networkType": "OVNKubernetes", "cloudProviderConfig": "", "releaseImage": "",
            "infra": {
                "apiVersion": "config.openshift.io/v1", "kind": "Infrastructure", "metadata": {"name": "cluster"},
                "spec": spec["infra"]["spec"], "status": spec["infra"]["status"],
            },
            "dns": {
                "apiVersion": "config.openshift.io/v1", "kind": "DNS", "metadata": {"name": "cluster"},
                "spec": spec["dns"]["spec"], "status": {},
            },
            "proxy": {"httpsProxy": "http://proxy:3128", "noProxy": ".cluster.local,.svc"},
            "pullSecret": {"namespace": "openshift-config", "name": "pull-secret"},
            "kubeAPIServerServingCAData": bytes(&client), "rootCAData": bytes(own.as_str().unwrap()),
            "additionalTrustBundle": bytes(&user),
            "imageRegistryBundleData": [{"file": "registry.svc..5000", "data": bytes("own")}],
            "imageRegistryBundleUserData": [{"file": "quay.lab.test..5000", "data": bytes("theirs")}],
            "images": {"machineConfigOperator": "r/mco", "apiServerWatcherKey": "r/mco", "infraImageKey": "r/pod",
                "keepalivedImage": "r/ka", "corednsImage": "r/dns", "haproxyImage": "r/ha",
                "baremetalRuntimeCfgImage": "r/cfg", "kubeRbacProxyImage": "r/rbac", "dockerRegistryImage": "r/reg"},
            "baseOSContainerImage": "r/os", "baseOSExtensionsContainerImage": "r/ext", "osImageURL": "r/legacy",
        })
    );
    let said = cluster
        .kubectl(&["get", "infrastructures.config.openshift.io,dnses.config.openshift.io", "-o", "json"])
        .await;
    let theirs: Value = serde_json::from_str(&said.out).unwrap();
    for object in theirs["items"].as_array().unwrap() {
        let kind = if object["kind"] == "DNS" { "dns" } else { "infra" };
        assert_eq!(
            (&spec[kind]["spec"], &spec[kind]["status"]),
            (&object["spec"], &object["status"]),
            "{kind}"
        );
    }
    assert_eq!(
        config["metadata"]["annotations"]["machineconfiguration.openshift.io/release-image-version"],
        "4.22.1"
    );

    // Without changes, nothing is written.
    let version = config["metadata"]["resourceVersion"].clone();
    patch(&cluster, "machineconfigoperator", "cluster", json!({"metadata": {"annotations": {"x": "y"}}}))
        .await;
    tokio::time::sleep(std::time::Duration::from_secs(3)).await;
    let then = cluster.get("ControllerConfig", CONFIG).await["metadata"]["resourceVersion"].clone();
    assert_eq!(then, version);

    follows(&cluster).await;
    releases(&cluster).await;
    rotates(&cluster, &client).await;

    // A value that a person set stays, whatever the cluster says; the others follow.
    patch(&cluster, "controllerconfig", CONFIG, json!({"spec": {"networkType": "Calico"}})).await;
    let network = json!({"networkType": "Other", "serviceNetwork": ["172.31.0.0/16"]});
    patch(&cluster, "network.config.openshift.io", "cluster", json!({"spec": network})).await;
    status(&cluster, "network.config.openshift.io", "cluster", json!({"networkType": "Other"})).await;
    field(&cluster, "/spec/clusterDNSIP", &json!("172.31.0.10")).await;
    field(&cluster, "/spec/networkType", &json!("Calico")).await;
    // Contradicting objects are reported, and the ControllerConfig stays as it is.
    patch(&cluster, "network.config.openshift.io", "cluster", json!({"spec": {"serviceNetwork": []}})).await;
    says(&cluster, "Degraded", "True", &["ControllerConfigFailed", "spec.serviceNetwork is empty"]).await;
    let log = running.stop().await;
    assert!(!log.contains("forbidden"), "{log}");
    cluster.stop().await;
}

/// One control-plane node, then three, then two with an arbiter; then an Infrastructure with the cluster's release.
async fn follows(cluster: &Cluster) {
    let infrastructure = "infrastructure.config.openshift.io";
    let replicas = async |want: i64| {
        cluster
            .wait(&format!("{want} controllers"), async || {
                let deployment = own_object(cluster, "deployment", "machine-config-controller").await;
                (deployment["spec"]["replicas"] == want).then_some(())
            })
            .await;
    };
    replicas(1).await;
    status(cluster, infrastructure, "cluster", json!({"controlPlaneTopology": "HighlyAvailable"})).await;
    field(cluster, "/spec/infra/status/controlPlaneTopology", &json!("HighlyAvailable")).await;
    replicas(2).await;
    assert!(cluster.get("MachineConfigPool", "arbiter").await.is_null());
    status(cluster, infrastructure, "cluster", json!({"controlPlaneTopology": "HighlyAvailableArbiter"}))
        .await;
    cluster
        .wait("the arbiter's pool is there", async || {
            let pool = cluster.get("MachineConfigPool", "arbiter").await;
            let label = "operator.machineconfiguration.openshift.io/required-for-upgrade";
            pool["metadata"]["labels"].get(label).map(|_| ())
        })
        .await;
    let version = json!({"apiVersion": "config.openshift.io/v1", "kind": "ClusterVersion", "metadata": {"name": "version"},
        "spec": {"clusterID": "5a6b1b6e-0000-4000-8000-000000000000"}});
    cluster.must_put(&["create"], &version).await;
    let desired = json!({"desired": {"version": "4.22.1", "image": "r/release"}, "observedGeneration": 1,
        "versionHash": "x", "availableUpdates": []});
    status(cluster, "clusterversion", "version", desired).await;
    field(cluster, "/spec/releaseImage", &json!("r/release")).await;
}

/// New CAs arrive, and agents are told to update the CA in their kubeconfigs.
async fn rotates(cluster: &Cluster, client: &str) {
    const ROTATE: &str = "/metadata/annotations/machineconfiguration.openshift.io~1service-ca-rotate";
    let managed = "openshift-config-managed";
    field(cluster, ROTATE, &json!("false")).await;
    let both = format!("{client}{}", certificate("client-2"));
    map(cluster, managed, "kube-apiserver-client-ca", json!({"ca-bundle.crt": both})).await;
    field(cluster, "/spec/kubeAPIServerServingCAData", &bytes(&both)).await;
    field(cluster, ROTATE, &json!("false")).await;
    let server = certificate("server-2");
    map(cluster, managed, "kube-apiserver-server-ca", json!({"ca-bundle.crt": server})).await;
    field(cluster, ROTATE, &json!("true")).await;
    let data = own_object(cluster, "configmap", "kubeconfig-data").await;
    assert_eq!(data["binaryData"]["ca-bundle.crt"], bytes(&server));
    // The next rotation follows at once: agents see `false` in between.
    let third = certificate("server-3");
    map(cluster, managed, "kube-apiserver-server-ca", json!({"ca-bundle.crt": third})).await;
    cluster
        .wait("the third CA is there", async || {
            let data = own_object(cluster, "configmap", "kubeconfig-data").await;
            (data["binaryData"]["ca-bundle.crt"] == bytes(&third)).then_some(())
        })
        .await;
    field(cluster, ROTATE, &json!("true")).await;
}
