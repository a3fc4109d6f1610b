//! A kind whose stored version changes: objects are rewritten before their old stored version leaves the CRD, whether the
//! operator updates the CRD or somebody applies it with kubectl. On a real API server, with CRDs of two versions.
//!
//! Not here: each path from one CRD to another, and the wait before objects are rewritten (unit tests of
//! `operator::stored_versions`).

use crate::installation::{IMAGE, URL, installed, operator, says};
use crate::product::Cluster;
use serde_json::{Value, json};
use std::time::Duration;

const CRD: &str = "rolloutpolicies.machineconfig.dev";
const OLD: &str = "v1alpha0";
const NEW: &str = "v1alpha1";
/// Objects are rewritten a minute after the CRD was changed.
const PATIENCE: Duration = Duration::from_mins(4);

async fn stored(cluster: &Cluster) -> Value {
    cluster.get("CustomResourceDefinition", CRD).await["status"]["storedVersions"].clone()
}

async fn until(what: &str, look: impl AsyncFn() -> bool) {
    let found = tokio::time::timeout(PATIENCE, async {
        while !look().await {
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
    });
    assert!(found.await.is_ok(), "{what}");
}

/// The installed CRD with the older version added, as somebody would apply it. `storage`: the version in which objects are
/// stored.
async fn with_both(cluster: &Cluster, storage: &str) -> Value {
    let mut definition = cluster.get("CustomResourceDefinition", CRD).await;
    let [mut new, mut old] =
        [definition["spec"]["versions"][0].clone(), definition["spec"]["versions"][0].clone()];
    for (version, name) in [(&mut new, NEW), (&mut old, OLD)] {
        version["name"] = json!(name);
        version["storage"] = json!(name == storage);
    }
    definition["spec"]["versions"] = json!([new, old]);
    for key in ["managedFields", "resourceVersion", "uid", "creationTimestamp", "generation"] {
        definition["metadata"].as_object_mut().unwrap().remove(key);
    }
    definition.as_object_mut().unwrap().remove("status");
    definition
}

/// The installation as an earlier version would have left it: objects are stored in an older version.
async fn as_before(cluster: &Cluster) {
    let mut definition = with_both(cluster, OLD).await;
    definition["metadata"]["annotations"] = json!({"machineconfig.dev/version": "v0.0.1"});
    // Created anew, so that it has never stored anything in today's version.
    cluster.delete("CustomResourceDefinition", CRD).await;
    until("the definition is gone", async || cluster.get("CustomResourceDefinition", CRD).await.is_null())
        .await;
    cluster.must_put(&["create"], &definition).await;
    let crd = format!("crd/{CRD}");
    let said = cluster.kubectl(&["wait", "--for=condition=Established", &crd, "--timeout=30s"]).await;
    assert_eq!(said.code, 0, "{said:?}");
    for name in ["first", "second", "third"] {
        let policy = json!({"apiVersion": format!("machineconfig.dev/{OLD}"), "kind": "RolloutPolicy",
            "metadata": {"name": name}, "spec": {"pools": {"names": [name]}, "waves": [{"name": "rest"}]}});
        cluster.must_put(&["create"], &policy).await;
    }
    assert_eq!(stored(cluster).await, json!([OLD]));
}

/// Refuses every change of one RolloutPolicy.
async fn refuse_one(cluster: &Cluster) {
    let policy = json!({"apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicy",
        "metadata": {"name": "theirs"}, "spec": {"failurePolicy": "Fail",
            "matchConstraints": {"resourceRules": [{"apiGroups": ["machineconfig.dev"], "apiVersions": ["*"],
                "operations": ["UPDATE"], "resources": ["rolloutpolicies"]}]},
            "validations": [{"expression": "object.metadata.name != 'second'", "message": "not this one"}]}});
    cluster.must_put(&["create"], &policy).await;
    let binding = json!({"apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicyBinding",
        "metadata": {"name": "theirs"}, "spec": {"policyName": "theirs", "validationActions": ["Deny"]}});
    cluster.must_put(&["create"], &binding).await;
    until("the policy is in force", async || {
        cluster.kubectl(&["annotate", "rolloutpolicy", "second", "--overwrite", "x=y"]).await.code != 0
    })
    .await;
}

/// The API server cannot decode an object that is still stored in a version that has left the definition.
async fn all_can_be_read(cluster: &Cluster) {
    let said = cluster.kubectl(&["get", "rolloutpolicies", "-o", "name"]).await;
    assert!(said.code == 0 && said.out.lines().count() == 3, "{said:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn objects_outlive_the_version_in_which_they_are_stored() {
    let Some((cluster, dir, account)) = installed(&[]).await else { return };
    as_before(&cluster).await;
    refuse_one(&cluster).await;
    // `mco install` leaves changes of the stored version to the operator.
    let said = cluster.mco(&["install", IMAGE, URL, "--no-wait"]).await;
    assert_eq!(said.code, 0, "{said:?}");
    let versions = async || {
        let definition = cluster.get("CustomResourceDefinition", CRD).await;
        let versions = definition["spec"]["versions"].as_array().unwrap().clone();
        versions.into_iter().map(|v| (v["name"].clone(), v["storage"] == true)).collect::<Vec<_>>()
    };
    assert_eq!(versions().await, [(json!(NEW), true), (json!(OLD), false)]);

    // One of the objects cannot be written: the older version stays, and the condition names the object.
    let running = operator(dir.path(), "operator", &account);
    let waits = ["CustomResourceDefinitions", CRD, "when every API server writes v1alpha1"];
    says(&cluster, "Progressing", "True", &waits).await;
    says(&cluster, "Upgradeable", "False", &["StoredVersions", CRD, OLD]).await;
    let words = ["CustomResourceDefinitionsFailed", "rewrite RolloutPolicy second", "not this one"];
    says(&cluster, "Degraded", "True", &words).await;
    assert_eq!(stored(&cluster).await, json!([OLD, NEW]));
    // Nothing refuses it any more.
    let gone = cluster.kubectl(&["delete", "validatingadmissionpolicybinding", "theirs"]).await;
    assert_eq!(gone.code, 0, "{gone:?}");
    says(&cluster, "Available", "True", &[]).await;
    says(&cluster, "Degraded", "False", &[]).await;
    says(&cluster, "Upgradeable", "True", &[]).await;
    assert_eq!(stored(&cluster).await, json!([NEW]));
    assert_eq!(versions().await, [(json!(NEW), true)]);
    all_can_be_read(&cluster).await;

    // Somebody applies the CRDs with kubectl or a chart: the operator rewrites objects all the same.
    let apply = ["apply", "--server-side", "--force-conflicts", "--field-manager=theirs"];
    cluster.must_put(&apply, &with_both(&cluster, OLD).await).await;
    let annotate = async |value: &str| {
        let note = format!("x={value}");
        cluster.kubectl(&["annotate", "rolloutpolicies", "--all", "--overwrite", &note]).await.code == 0
    };
    until("an object is stored in the older version", async || {
        annotate("1").await && stored(&cluster).await == json!([NEW, OLD])
    })
    .await;
    // The API server takes a moment to write the other version.
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert!(annotate("2").await);
    cluster.must_put(&apply, &with_both(&cluster, NEW).await).await;
    says(&cluster, "Upgradeable", "False", &["StoredVersions", CRD, OLD]).await;
    until("all objects are stored in today's version", async || stored(&cluster).await == json!([NEW])).await;
    says(&cluster, "Upgradeable", "True", &[]).await;
    let mut only = with_both(&cluster, NEW).await;
    only["spec"]["versions"].as_array_mut().unwrap().pop();
    cluster.must_put(&apply, &only).await;
    tokio::time::sleep(Duration::from_secs(2)).await;
    all_can_be_read(&cluster).await;
    let log = running.stop().await;
    // The operator has every right that it needs for this.
    let refused = log.lines().find(|line| line.contains("forbidden") && !line.contains("not this one"));
    assert_eq!(refused, None);
    cluster.stop().await;
}
