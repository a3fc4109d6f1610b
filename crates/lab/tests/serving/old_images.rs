//! Old images are deleted after a plain installation, with nothing but the rights that the operator gives: the controller, with its
//! own account, may read the push secrets that MachineOSConfigs name, for as long as it needs them, and no other Secret. The registry
//! is Debian's, with deletion.
//!
//! Fakes: nobody builds; images are pushed and put on the list as the controller does it for builds. Not here: which images go
//! (`cluster/old_images`), and the refusal of MachineOSConfigs that name Secrets of the installation itself (`admission_policies`).

use crate::installation::{installed, operator, own_object};
use crate::parts::speak_as;
use crate::product::controllers::Controller;
use crate::product::{Cluster, machine_config};
use crate::real_registry::Registry;
use build::pushed::{LIST, Pushed, PushedContent};
use serde_json::{Value, json};

const NAMESPACE: &str = "openshift-machine-config-operator";
const ROLE: &str = "machine-config-controller-push-secrets";

/// The rules of the Role. `None`: there is no such Role.
async fn rules(cluster: &Cluster) -> Option<Value> {
    let role = own_object(cluster, "role", ROLE).await;
    (!role.is_null()).then(|| if role["rules"].is_null() { json!([]) } else { role["rules"].clone() })
}

async fn waits_for(cluster: &Cluster, names: &[&str]) {
    let want = match names {
        [] => json!([]),
        names => {
            json!([{"apiGroups": [""], "resources": ["secrets"], "resourceNames": names, "verbs": ["get"]}])
        }
    };
    cluster
        .wait(&format!("the controller may read {names:?}"), async || {
            (rules(cluster).await? == want).then_some(())
        })
        .await;
}

fn os_config(registry: &str, secret: &str) -> Value {
    json!({
        "apiVersion": "machineconfiguration.openshift.io/v1", "kind": "MachineOSConfig", "metadata": {"name": "worker"},
        "spec": {
            "machineConfigPool": {"name": "worker"}, "imageBuilder": {"imageBuilderType": "Job"},
            "renderedImagePushSecret": {"name": secret}, "renderedImagePushSpec": format!("{registry}/team/os:latest"),
        },
    })
}

/// Pushes an image, and puts it on the list as one of a build that is gone.
async fn left_over(cluster: &Cluster, registry: &Registry, build: &str) -> String {
    let image = registry.push(&format!("team/os:{build}"), &[], ("/usr/lib/build", build));
    let pushed = Pushed {
        what: PushedContent::Image { name: image.clone(), tag: format!("{}/team/os:{build}", registry.name) },
        secret: "push".to_owned(),
        os_config: "worker".to_owned(),
        pool: "worker".to_owned(),
        kept: None,
    };
    let patch = json!({"data": {pushed.key(): pushed.text()}}).to_string();
    let said =
        cluster.kubectl(&["-n", NAMESPACE, "patch", "configmap", LIST, "--type=merge", "-p", &patch]).await;
    if said.code != 0 {
        let map = json!({
            "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": LIST, "namespace": NAMESPACE},
            "data": {pushed.key(): pushed.text()},
        });
        let said = cluster.put(&["create"], &map).await;
        assert_eq!(said.code, 0, "{said:?}");
    }
    image
}

#[tokio::test(flavor = "multi_thread")]
async fn a_plain_installation_deletes_old_images_and_reads_no_other_secret() {
    if !lab::require_root() {
        return;
    }
    let Some((cluster, dir, account)) = installed(&["--agents-of-hosts"]).await else { return };
    lab::ensure_test_packages(&lab::Reporter::stderr()).await.unwrap();
    let registry = Registry::start(true).await;
    let operator = operator(dir.path(), "operator", &account);
    waits_for(&cluster, &[]).await;
    let account = speak_as(&cluster, dir.path(), "machine-config-controller").await;
    let controller = Controller::with(&cluster, "mco-controller-as-pod", &account, &[], &[]);
    cluster.create(machine_config("60-registry", "worker", registry.insecure())).await;
    cluster.settled("worker", 1, &["60-registry"], &[]).await;
    let controller_may = async |resource: &str| {
        let who = format!("--as=system:serviceaccount:{NAMESPACE}:machine-config-controller");
        let said = cluster.kubectl(&["-n", NAMESPACE, "auth", "can-i", "get", resource, &who]).await;
        said.out.trim() == "yes"
    };
    for name in ["push", "another"] {
        let secret = json!({
            "apiVersion": "v1", "kind": "Secret", "metadata": {"name": name, "namespace": NAMESPACE},
            "type": "kubernetes.io/dockerconfigjson", "stringData": {".dockerconfigjson": "{\"auths\":{}}"},
        });
        assert_eq!(cluster.put(&["create"], &secret).await.code, 0);
    }
    assert!(!controller_may("secrets/push").await);

    // A MachineOSConfig names the Secret: the operator gives the right to read it, and nobody else does anything.
    cluster.create(os_config(&registry.name, "push")).await;
    waits_for(&cluster, &["push"]).await;
    assert!(controller_may("secrets/push").await);
    for other in
        ["secrets", "secrets/another", "secrets/machine-config-server-ca", "secrets/node-bootstrapper-token"]
    {
        assert!(!controller_may(other).await, "{other}");
    }
    let one = left_over(&cluster, &registry, "b1").await;
    let mark = async |text: &str| {
        cluster
            .patch("MachineOSConfig", "worker", json!({"metadata": {"annotations": {"looked-at": text}}}))
            .await;
    };
    mark("1").await;
    cluster.wait("the old image is deleted", async || (!registry.has(&one).await).then_some(())).await;
    cluster.told("worker", "OldImageDeleted", &[&one]).await;

    // Somebody deletes the Role.
    assert_eq!(cluster.kubectl(&["-n", NAMESPACE, "delete", "role", ROLE]).await.code, 0);
    waits_for(&cluster, &["push"]).await;
    // Somebody gives more.
    let more = json!([{"op": "add", "path": "/rules/0/resourceNames/-", "value": "another"}]).to_string();
    let said = cluster.kubectl(&["-n", NAMESPACE, "patch", "role", ROLE, "--type=json", "-p", &more]).await;
    assert_eq!(said.code, 0, "{said:?}");
    waits_for(&cluster, &["push"]).await;

    // The next Secret is given, too, and the one before stays while an image waits for it. The MachineOSConfig may go meanwhile.
    let two = left_over(&cluster, &registry, "b2").await;
    let named = json!({"spec": {"renderedImagePushSpec": format!("{}/team/os:b2", registry.name)}});
    cluster.patch("MachineOSConfig", "worker", named).await;
    cluster
        .patch("MachineOSConfig", "worker", json!({"spec": {"renderedImagePushSecret": {"name": "another"}}}))
        .await;
    waits_for(&cluster, &["another", "push"]).await;
    assert!(registry.has(&two).await, "the MachineOSConfig names its tag");
    cluster.delete("MachineOSConfig", "worker").await;
    cluster.wait("the second image is deleted", async || (!registry.has(&two).await).then_some(())).await;
    // Nothing needs a right any more.
    waits_for(&cluster, &[]).await;
    assert!(!controller_may("secrets/push").await && !controller_may("secrets").await);

    let logs = [operator.stop().await, controller.log()];
    controller.stop().await;
    for log in logs {
        assert!(!log.contains("forbidden"), "{log}");
    }
    cluster.stop().await;
}
