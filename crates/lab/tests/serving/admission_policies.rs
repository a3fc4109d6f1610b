//! The admission policies that the operator installs: invalid objects are refused when they are written, with the remedy,
//! approvals are given in one's own name only, MachineOSConfigs name no Secret of the installation, and the controller creates no
//! other Jobs than image builds, and no spec of a MachineOSConfig. A migration of stored objects is let through.
//!
//! Not here: the policies' expressions one by one (unit tests of `operator::manifests::admission`).

use crate::installation::{installed, operator, says};
use crate::product::{Cluster, machine_config, one_file, pool, text};
use api::names::annotation::GENERATED_BY_CONTROLLER;
use serde_json::{Value, json};

const NAMESPACE: &str = "openshift-machine-config-operator";
const WORKER: &str = "machineconfiguration.openshift.io/role";

#[tokio::test(flavor = "multi_thread")]
async fn invalid_objects_are_refused_by_admission_policies() {
    let Some((cluster, dir, account)) = installed(&[]).await else { return };
    older_than_the_policies(&cluster).await;
    let running = operator(dir.path(), "operator", &account);
    says(&cluster, "Available", "True", &[]).await;
    // A cluster administrator who is not in system:masters, and is therefore subject to admission policies.
    let bound = ["create", "clusterrolebinding", "jane", "--clusterrole=cluster-admin", "--user=jane"];
    assert_eq!(cluster.kubectl(&bound).await.code, 0);

    let config = |name: &str, config: Value| {
        json!({"apiVersion": "machineconfiguration.openshift.io/v1", "kind": "MachineConfig",
            "metadata": {"name": name, "labels": {WORKER: "worker"}}, "spec": {"config": config}})
    };
    let with = |key: &str, value: Value| {
        let mut config = json!({"ignition": {"version": "3.5.0"}});
        config[key] = value;
        config
    };
    let files = |file: Value| with("storage", json!({"files": [{"path": "/etc/fine"}, file]}));
    let units = |name: &str| {
        with("systemd", json!({"units": [{"name": name, "enabled": false, "contents": "[Unit]\n"}]}))
    };
    let pool = |name: &str, selector: Value| {
        json!({"apiVersion": "machineconfiguration.openshift.io/v1", "kind": "MachineConfigPool",
            "metadata": {"name": name}, "spec": {"machineConfigSelector": selector, "nodeSelector": {"matchLabels": {"a": "b"}}}})
    };
    let os_config = |push: &str, more: Value| {
        let mut object = json!({
            "apiVersion": "machineconfiguration.openshift.io/v1", "kind": "MachineOSConfig", "metadata": {"name": "infra"},
            "spec": {
                "machineConfigPool": {"name": "infra"}, "imageBuilder": {"imageBuilderType": "Job"},
                "renderedImagePushSecret": {"name": push}, "renderedImagePushSpec": "r.example.com/os:latest",
            },
        });
        for key in ["metadata", "spec"] {
            let fields = more[key].as_object().cloned().unwrap_or_default();
            object[key].as_object_mut().unwrap().extend(fields);
        }
        object
    };
    let role = |values: Value, operator: &str| json!({"matchExpressions": [{"key": WORKER, "operator": operator, "values": values}]});
    let rows = [
        ("", config("fine", files(json!({"path": "/etc/also fine", "mode": 420})))),
        ("", config("fine-units", units("dev-disk-by\\x2did.swap"))),
        ("", config("nothing", json!({}))),
        (
            "spec.config.ignition.version \"9.9.9\"",
            config("version", json!({"ignition": {"version": "9.9.9"}})),
        ),
        ("has the path \"etc/motd\"", config("relative", files(json!({"path": "etc/motd"})))),
        ("has the path \"/etc/../motd\"", config("dots", files(json!({"path": "/etc/../motd"})))),
        ("has the path \"/etc/\"", config("slash", files(json!({"path": "/etc/"})))),
        (
            "spec.config.ignition.version \"3.6.0\"",
            config("newer", json!({"ignition": {"version": "3.6.0"}})),
        ),
        (
            "has the mode 1023; it must be between 0 and 0777",
            config("sticky", files(json!({"path": "/etc/motd", "mode": 1023}))),
        ),
        ("has the mode 77777", config("mode", files(json!({"path": "/etc/motd", "mode": 77777})))),
        ("has the name \"a/b.service\"", config("unit", units("a/b.service"))),
        ("has the name \"foo\"", config("type", units("foo"))),
        ("the controller makes it", config("rendered-worker-1", with("storage", json!({})))),
        ("", pool("infra", role(json!(["worker", "infra"]), "In"))),
        ("does not select the MachineConfigs of worker", pool("alone", role(json!(["alone"]), "In"))),
        ("cannot be read", pool("sideways", role(json!(["worker"]), "Sideways"))),
        (
            "the only one that counts is named cluster",
            json!({"apiVersion": "operator.openshift.io/v1", "kind": "MachineConfiguration", "metadata": {"name": "other"},
                "spec": {"managementState": "Managed"}}),
        ),
        ("", os_config("push", json!({}))),
        (
            "spec.renderedImagePushSecret.name is node-bootstrapper-token, a Secret of the installation",
            os_config("node-bootstrapper-token", json!({})),
        ),
        (
            "spec.renderedImagePushSecret.name is boot-token-1, a Secret of the installation",
            os_config("boot-token-1", json!({})),
        ),
        (
            "signing-secret is boot-token-1, a Secret of the installation",
            os_config(
                "push",
                json!({"metadata": {"annotations": {"machineconfig.dev/signing-secret": " boot-token-1 "}}}),
            ),
        ),
        (
            "spec.baseImagePullSecret.name is machine-config-operator-metrics-tls, a Secret of the installation",
            os_config(
                "push",
                json!({"spec": {"baseImagePullSecret": {"name": "machine-config-operator-metrics-tls"}}}),
            ),
        ),
        (
            "signing-secret is machine-config-server-ca, a Secret of the installation",
            os_config(
                "push",
                json!({"metadata": {"annotations": {"machineconfig.dev/signing-secret": "machine-config-server-ca"}}}),
            ),
        ),
        // Invalid settings of the operator.
        (
            "is each machine's own address",
            json!({"apiVersion": "machineconfig.dev/v1alpha1", "kind": "MachineConfigOperator", "metadata": {"name": "cluster"},
                "spec": {"image": "x", "apiServer": {"url": "https://127.0.0.1:6443"}}}),
        ),
        (
            "name it cluster",
            json!({"apiVersion": "machineconfig.dev/v1alpha1", "kind": "MachineConfigOperator", "metadata": {"name": "second"},
                "spec": {"image": "x"}}),
        ),
        (
            "a name without spaces",
            json!({"apiVersion": "machineconfig.dev/v1alpha1", "kind": "MachineConfigOperator", "metadata": {"name": "cluster"},
                "spec": {"image": "a b"}}),
        ),
        (
            "an IP address or a range",
            json!({"apiVersion": "machineconfig.dev/v1alpha1", "kind": "MachineConfigOperator", "metadata": {"name": "cluster"},
                "spec": {"image": "x", "configServer": {"proxyProtocolFrom": ["10.0.0.0/99"]}}}),
        ),
    ];
    for (why, object) in &rows {
        let said = cluster.put(&["apply", "--as=jane", "--dry-run=server"], object).await;
        let name = text(&object["metadata"]["name"]);
        if why.is_empty() {
            assert_eq!(said.code, 0, "{name}: {said:?}");
            continue;
        }
        assert!(
            said.code != 0 && said.err.contains(why) && said.err.contains(&name),
            "{name}: {why}: {said:?}"
        );
        // The policies have the same rules as lint, so lint refuses it too.
        if object["kind"] == "MachineConfig" && !name.starts_with("rendered-") {
            let file = cluster.lab.folder().join("linted.json");
            std::fs::write(&file, object.to_string()).unwrap();
            let lint =
                tokio::process::Command::new(::lab::built_mco().unwrap()).arg("lint").arg(&file).output();
            let lint = lint.await.unwrap();
            assert!(!lint.status.success(), "{name}: {}", String::from_utf8_lossy(&lint.stdout));
        }
    }
    // A large config stays within the policy's cost limit.
    let many: Vec<Value> =
        (0..2000).map(|i| json!({"path": format!("/etc/many/{i}"), "mode": 420})).collect();
    let said = cluster
        .put(&["create", "--as=jane"], &config("large", with("storage", json!({"files": many}))))
        .await;
    assert_eq!(said.code, 0, "{said:?}");
    a_migration_is_let_through(&cluster).await;
    configs_of_before(&cluster).await;
    own_approvals(&cluster).await;
    only_builds(&cluster).await;
    os_configs_of_before(&cluster).await;
    streams_are_kept(&cluster).await;
    running.stop().await;
    cluster.stop().await;
}

/// A pool names an existing stream, and the OSImageStream cannot be deleted.
async fn streams_are_kept(cluster: &Cluster) {
    cluster
        .create(json!({"apiVersion": "machineconfiguration.openshift.io/v1", "kind": "OSImageStream",
            "metadata": {"name": "cluster"}, "spec": {"defaultStream": "nine"}}))
        .await;
    let image = format!("r.example.com/os@sha256:{}", "a".repeat(64));
    let status = json!({"status": {"defaultStream": "nine",
        "availableStreams": [{"name": "nine", "osImage": image, "osExtensionsImage": image}]}});
    let params = kube::api::PatchParams::default();
    let patch = kube::api::Patch::Merge(status);
    cluster.api("OSImageStream").patch_status("cluster", &params, &patch).await.unwrap();
    let pool = |stream: &str| {
        json!({"apiVersion": "machineconfiguration.openshift.io/v1", "kind": "MachineConfigPool",
            "metadata": {"name": "streamed"}, "spec": {"osImageStream": {"name": stream},
            "machineConfigSelector": {"matchExpressions": [{"key": WORKER, "operator": "In", "values": ["worker", "streamed"]}]},
            "nodeSelector": {"matchLabels": {"a": "b"}}}})
    };
    let tried =
        async |stream: &str| cluster.put(&["apply", "--as=jane", "--dry-run=server"], &pool(stream)).await;
    // The API server sees a new OSImageStream after a moment, and allows every pool until then.
    cluster
        .wait("a stream that there is not is refused", async || {
            let said = tried("eleven").await;
            (said.code != 0).then_some(said)
        })
        .await;
    let said = tried("eleven").await;
    let words =
        "MachineConfigPool streamed: spec.osImageStream.name eleven is not a stream of OSImageStream cluster";
    assert!(said.err.contains(words), "{said:?}");
    let said = tried("nine").await;
    assert_eq!(said.code, 0, "{said:?}");
    let said = cluster.kubectl(&["delete", "osimagestream", "cluster", "--as=jane"]).await;
    assert!(said.code != 0 && said.err.contains("cannot be deleted; change its spec instead"), "{said:?}");
}

/// Nobody can approve a wave in another person's name. Naming nobody, or removing an approval, is allowed.
async fn own_approvals(cluster: &Cluster) {
    let tried = async |notes: &[&str]| {
        let all =
            [&["annotate", "--as=jane", "--overwrite", "--dry-run=server", "mcp", "worker"], notes].concat();
        cluster.kubectl(&all).await
    };
    let what = "machineconfig.dev/approve=rendered-worker-1/canary";
    for by in ["machineconfig.dev/approved-by=jane", "machineconfig.dev/approved-by-"] {
        let said = tried(&[what, by]).await;
        assert_eq!(said.code, 0, "{said:?}");
    }
    let said = tried(&[what, "machineconfig.dev/approved-by=paul"]).await;
    let words = "the annotation machineconfig.dev/approved-by says paul, and this is sent by jane";
    assert!(said.code != 0 && said.err.contains(words), "{said:?}");
}

/// The controller may create Jobs only for image builds: with its account, nobody gets at the installation's secrets.
async fn only_builds(cluster: &Cluster) {
    let controller = format!("--as=system:serviceaccount:{NAMESPACE}:machine-config-controller");
    let build = json!({"metadata": {"name": "infra-0", "uid": "5d2c1f1e-0000-4000-8000-000000000000"}, "spec": {
        "machineConfig": {"name": "rendered-infra-1"}, "machineOSConfig": {"name": "infra"},
        "renderedImagePushSpec": "r.example.com/os:infra-0"}});
    let build: api::v1::MachineOSBuild = serde_json::from_value(build).unwrap();
    let config = json!({"metadata": {"name": "infra", "annotations": {"machineconfig.dev/signing-secret": "os-signing"}},
        "spec": {"renderedImagePushSecret": {"name": "push"}}});
    let config: api::v1::MachineOSConfig = serde_json::from_value(config).unwrap();
    let rendered = json!({"metadata": {"name": "rendered-infra-1"},
        "spec": {"osImageURL": "r.example.com/base@sha256:1", "config": {"ignition": {"version": "3.5.0"}}}});
    let rendered: api::v1::MachineConfig = serde_json::from_value(rendered).unwrap();
    let now = api::k8s::Time(jiff::Timestamp::UNIX_EPOCH);
    let inputs = build::objects::Inputs {
        pool: "infra",
        build: &build,
        config: &config,
        rendered: &rendered,
        cluster: None,
        builder: "r.example.com/buildah:1",
        now: &now,
    };
    let mut job = build::objects::of(inputs).unwrap().job;
    job["metadata"]["namespace"] = json!(NAMESPACE);
    let create = ["create", &controller, "--dry-run=server"];
    let said = cluster.put(&create, &job).await;
    assert_eq!(said.code, 0, "a real build: {said:?}");
    let with = |path: &str, value: Value| {
        let mut other = job.clone();
        let (parent, key) = path.rsplit_once('/').unwrap();
        let parent = other.pointer_mut(&format!("/spec/template/spec{parent}")).unwrap();
        match parent {
            Value::Array(list) => list.push(value),
            parent => parent[key] = value,
        }
        other
    };
    let secret = |name: &str| json!({"name": "x", "secret": {"secretName": name}});
    let usual =
        with("/containers/0/securityContext", json!({"capabilities": {"add": ["SETFCAP"], "drop": ["ALL"]}}));
    let said = cluster.put(&create, &usual).await;
    assert_eq!(said.code, 0, "what every container has: {said:?}");
    for (why, job) in [
        ("a build has no rights", with("/serviceAccountName", json!("machine-config-operator"))),
        ("a build has no rights", with("/automountServiceAccountToken", json!(true))),
        ("nothing of its host", with("/hostPID", json!(true))),
        ("nothing of its host", with("/containers/0/securityContext", json!({"privileged": true}))),
        (
            "no capabilities but the usual ones",
            with("/containers/0/securityContext", json!({"capabilities": {"add": ["CHOWN", "SYS_ADMIN"]}})),
        ),
        (
            "nothing of its host",
            with(
                "/initContainers",
                json!([{"name": "i", "image": "i", "securityContext": {"privileged": true}}]),
            ),
        ),
        ("volumes of ConfigMaps", with("/volumes/-", json!({"name": "x", "hostPath": {"path": "/"}}))),
        (
            "volumes of ConfigMaps",
            with(
                "/volumes/-",
                json!({"name": "x", "projected": {"sources": [{"secret": {"name": "push"}}]}}),
            ),
        ),
        ("none of the Secrets", with("/volumes/-", secret("machine-config-server-ca"))),
        ("none of the Secrets", with("/volumes/-", secret("node-bootstrapper-token"))),
        ("none of the Secrets", with("/volumes/-", secret("machine-config-operator-metrics-tls"))),
        (
            "none of the Secrets",
            with(
                "/containers/0/env/-",
                json!({"name": "X", "valueFrom": {"secretKeyRef": {"name": "push", "key": "k"}}}),
            ),
        ),
        ("none of the Secrets", with("/containers/0/envFrom", json!([{"secretRef": {"name": "push"}}]))),
    ] {
        let said = cluster.put(&create, &job).await;
        assert!(
            said.code != 0 && said.err.contains(why) && said.err.contains("build-infra-0"),
            "{why}: {said:?}"
        );
        // The policy does not apply to Jobs of others.
        let said = cluster.put(&["create", "--as=jane", "--dry-run=server"], &job).await;
        assert_eq!(said.code, 0, "{why}: {said:?}");
    }
}

/// Two objects that are older than the policies, which would refuse both.
async fn older_than_the_policies(cluster: &Cluster) {
    let mut rendered = machine_config("rendered-worker-2", "worker", one_file("etc/relative", "b"));
    rendered["metadata"]["annotations"] = json!({GENERATED_BY_CONTROLLER: "of-the-version-before"});
    cluster.create(rendered).await;
    let mode = json!({"ignition": {"version": "3.6.0"}, "storage": {"files": [{"path": "/etc/older", "mode": 1023}]}});
    cluster.create(machine_config("older", "nobody", mode)).await;
    let mut alone = pool("older");
    alone["spec"]["machineConfigSelector"] = json!({"matchLabels": {WORKER: "older"}});
    cluster.create(alone).await;
    cluster
        .create(json!({
            "apiVersion": "machineconfiguration.openshift.io/v1", "kind": "MachineOSConfig", "metadata": {"name": "older"},
            "spec": {
                "machineConfigPool": {"name": "older"}, "imageBuilder": {"imageBuilderType": "Job"},
                "renderedImagePushSecret": {"name": "node-bootstrapper-token"}, "renderedImagePushSpec": "r.example.com/os:latest",
            },
        }))
        .await;
}

/// A MachineConfig that is older than a rule can be changed elsewhere, and deleted in the foreground, but not in its contents.
async fn configs_of_before(cluster: &Cluster) {
    let patch = async |patch: Value| {
        let patch = patch.to_string();
        cluster.kubectl(&["patch", "machineconfig", "older", "--type=merge", "-p", &patch, "--as=jane"]).await
    };
    let finalizers = |all: Value| json!({"metadata": {"annotations": {"mine": "yes"}, "finalizers": all}});
    let said = patch(finalizers(json!(["example.com/last"]))).await;
    assert_eq!(said.code, 0, "{said:?}");
    let said = patch(json!({"spec": {"kernelArguments": ["quiet"]}})).await;
    assert!(said.code != 0 && said.err.contains("\"3.6.0\" is not one that agents read"), "{said:?}");
    let said = cluster.kubectl(&["delete", "machineconfig", "older", "--as=jane", "--wait=false"]).await;
    assert_eq!(said.code, 0, "{said:?}");
    let said = patch(finalizers(json!([]))).await;
    assert_eq!(said.code, 0, "{said:?}");
    let said = cluster.kubectl(&["get", "machineconfig", "older", "--as=jane"]).await;
    assert!(said.code != 0 && said.err.contains("not found"), "{said:?}");
}

/// A MachineOSConfig that is older than the policy, with a Secret of the installation: it can be changed elsewhere and deleted. The
/// controller writes its annotations, but not its spec.
async fn os_configs_of_before(cluster: &Cluster) {
    let controller = format!("system:serviceaccount:{NAMESPACE}:machine-config-controller");
    let patch = async |who: &str, patch: Value| {
        let (who, patch) = (format!("--as={who}"), patch.to_string());
        cluster.kubectl(&["patch", "machineosconfig", "older", "--type=merge", "-p", &patch, &who]).await
    };
    let note = json!({"metadata": {"annotations": {"mine": "yes"}}});
    let secret = |name: &str| json!({"spec": {"renderedImagePushSecret": {"name": name}}});
    for who in [controller.as_str(), "jane"] {
        let said = patch(who, note.clone()).await;
        assert_eq!(said.code, 0, "{who}: {said:?}");
    }
    for name in ["somebodys", "node-bootstrapper-token-2", "boot-token-1"] {
        let said = patch(&controller, secret(name)).await;
        assert!(said.code != 0, "{name}: {said:?}");
        assert!(name == "boot-token-1" || said.err.contains("the controller may not create it"), "{said:?}");
    }
    let said = patch("jane", secret("boot-token-1")).await;
    assert!(said.code != 0 && said.err.contains("is boot-token-1, a Secret of the installation"), "{said:?}");
    // As at the end of a deletion in the foreground: the last finalizer goes by an update.
    let finalizers = |all: Value| json!({"metadata": {"finalizers": all}});
    let said = patch("jane", finalizers(json!(["example.com/last"]))).await;
    assert_eq!(said.code, 0, "{said:?}");
    let said = cluster.kubectl(&["delete", "machineosconfig", "older", "--as=jane", "--wait=false"]).await;
    assert_eq!(said.code, 0, "{said:?}");
    let said = patch("jane", finalizers(json!([]))).await;
    assert_eq!(said.code, 0, "{said:?}");
    let said = cluster.kubectl(&["get", "machineosconfig", "older", "--as=jane"]).await;
    assert!(said.code != 0 && said.err.contains("not found"), "{said:?}");
}

/// A migration to another stored version writes each object unchanged, including rendered configs and objects that would be
/// refused today. This is allowed for everybody. A changed object is refused, even from the operator. Of the two policies for
/// MachineConfigs, one refuses.
async fn a_migration_is_let_through(cluster: &Cluster) {
    let operator = format!("system:serviceaccount:{NAMESPACE}:machine-config-operator");
    let patch = async |who: &str, kind: &str, name: &str, patch: &Value| {
        let (who, patch) = (format!("--as={who}"), patch.to_string());
        cluster.kubectl(&["patch", kind, name, "--type=merge", "-p", &patch, &who]).await
    };
    let note = json!({"metadata": {"annotations": {"mine": "yes"}}});
    for (kind, name, why) in [
        ("machineconfig", "rendered-worker-2", "the controller makes it"),
        ("machineconfigpool", "older", "does not select the MachineConfigs of worker"),
    ] {
        for who in [operator.as_str(), "jane"] {
            let said = patch(who, kind, name, &json!({})).await;
            assert_eq!(said.code, 0, "{who}: {said:?}");
            let said = patch(who, kind, name, &note).await;
            assert!(said.code != 0 && said.err.contains(why), "{who}: {said:?}");
            assert!(!said.err.contains("etc/relative"), "{who}: {said:?}");
        }
    }
}
