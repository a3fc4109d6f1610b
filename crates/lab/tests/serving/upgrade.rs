//! An upgrade that is interrupted at each of its steps: the operator is killed while the first write of the step is in flight,
//! and again when that write is done and its answer is lost. The next operator continues, and the last one completes the
//! upgrade. Controller and agents run all the time, and no node goes out of service.
//!
//! A proxy between the operator and the API server observes the writes.
//!
//! Not here: installations that are refused (`installation_errors`), and two versions of agents and controllers together
//! (`tests/cluster/skew`).

use crate::installation::{installed, own_object, says, set, settings};
use crate::parts::Part;
use crate::product::controllers::Controller;
use crate::product::observer::Observer;
use crate::product::{Cluster, condition, is_done, machine_config, note, one_file, text};
use lab::{ApiProxy, Call, Verdict};
use serde_json::{Value, json};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

const NEW: &str = "registry.example.com/mco:2";
/// The annotation in which the operator records what it has written.
const WRITTEN: &str = "machineconfig.dev/written=of-the-version-before";
/// How long an operator may take until its next step.
const PATIENCE: Duration = Duration::from_secs(60);

/// A step, and the requests that only this step makes: verb, and words of their path.
type Row = (&'static str, &'static str, &'static [&'static str]);

/// All steps of `operator::sync`, in order.
const STEPS: [Row; 17] = [
    ("MachineConfigOperator", "PATCH", &["/apps/v1/", "/machine-config-operator"]),
    ("CustomResourceDefinitions", "PATCH", &["/customresourcedefinitions/"]),
    ("ControllerConfig", "PATCH", &["/controllerconfigs/machine-config-controller"]),
    ("MachineConfiguration", "PATCH", &["/machineconfigurations/cluster"]),
    ("MachineConfigPools", "POST", &["/machineconfigpools"]),
    ("Rights", "PATCH", &["/rbac.authorization.k8s.io/v1/", "/machine-config-"]),
    ("AdmissionPolicies", "PATCH", &["/validatingadmissionpolic"]),
    ("Certificates", "POST", &["/openshift-machine-config-operator/secrets"]),
    ("UserData", "POST", &["/openshift-machine-api/secrets"]),
    ("MachineConfigController", "PATCH", &["/deployments/machine-config-controller"]),
    ("MachineConfigServer", "PATCH", &["/daemonsets/machine-config-server"]),
    ("MachineConfigDaemon", "PATCH", &["/daemonsets/machine-config-daemon"]),
    // The step of the ControllerConfig has nothing left to write at this point.
    ("Release", "PATCH", &["/controllerconfigs/machine-config-controller"]),
    ("Prune", "DELETE", &["/services/of-the-version-before"]),
    ("Monitoring", "PATCH", &["/configmaps/mco-"]),
    ("MachineConfigDashboard", "PATCH", &["/deployments/machine-config-dashboard"]),
    // This step writes nothing; only the status after it shows that it was done.
    ("RequiredPools", "PATCH", &["/machineconfigoperators/cluster/status"]),
];

/// The step that makes this request. If two steps make the same request, it is the one that is waited for.
fn step_of(call: &Call<'_>, at: usize) -> Option<usize> {
    let fits =
        |(_, verb, words): &Row| call.method.as_str() == *verb && words.iter().all(|w| call.path.contains(w));
    // A status is written whenever a pass ends; it names the last step only when all steps before it are done.
    if STEPS.get(at).is_some_and(fits) {
        return Some(at);
    }
    STEPS.iter().position(fits)
}

/// What the proxy has seen from one operator.
#[derive(Debug, Default)]
struct Seen {
    /// The request at which it was stopped.
    caught: Option<String>,
    /// The furthest step that wrote something.
    furthest: usize,
}

/// Runs an operator until the step's first write, and kills it there. `verdict`: what happens to that write.
async fn cut(proxy: &ApiProxy, dir: &Path, account: &Path, at: usize, verdict: Verdict) {
    let seen = Arc::new(Mutex::new(Seen::default()));
    let into = Arc::clone(&seen);
    let last = STEPS.len() - 1;
    proxy.set(move |call| {
        let mut seen = into.lock().unwrap();
        // Requests that a process sends while it is being killed do not count.
        if seen.caught.is_some() {
            return Verdict::Swallow;
        }
        let Some(step) = step_of(call, at) else { return Verdict::Pass };
        if step == at {
            seen.caught = Some(format!("{} {}", call.method, call.path));
            return verdict;
        }
        if step < last {
            seen.furthest = seen.furthest.max(step);
        }
        Verdict::Pass
    });
    let image = format!("--image={NEW}");
    let args = ["operator", "start", "--leader-elect=false", "--metrics-listen=off", &image];
    let operator = Part::start(dir, "cut-off", account, &args);
    let (step, verb, _) = STEPS[at];
    let caught = tokio::time::timeout(PATIENCE, async {
        while seen.lock().unwrap().caught.is_none() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    });
    if caught.await.is_err() {
        panic!("no {verb} of step {step} within {PATIENCE:?}:\n{}", operator.log());
    }
    operator.kill().await;
    let furthest = seen.lock().unwrap().furthest;
    assert!(furthest <= at, "{} wrote something before {step}", STEPS[furthest].0);
}

/// Makes all objects look as the previous version left them, so that each step of the upgrade has to write.
async fn as_of_the_version_before(cluster: &Cluster) {
    let kept = "machineconfig.dev/kept-by=machine-config-operator";
    let all = [
        "clusterroles,clusterrolebindings,validatingadmissionpolicies,validatingadmissionpolicybindings",
        "serviceaccounts,roles,rolebindings,deployments,daemonsets,services,poddisruptionbudgets,networkpolicies",
    ];
    for (kinds, namespaced) in all.iter().zip([false, true]) {
        let place: &[&str] = if namespaced { &["-A"] } else { &[] };
        let said = cluster
            .kubectl(&[&["annotate", "--overwrite", kinds, "-l", kept, WRITTEN], place].concat())
            .await;
        assert_eq!(said.code, 0, "{said:?}");
    }
    for crd in cluster.list("CustomResourceDefinition").await {
        let notes = json!({"machineconfig.dev/written": "of-the-version-before", "machineconfig.dev/version": "v0.0.1"});
        let name = text(&crd["metadata"]["name"]);
        cluster.patch("CustomResourceDefinition", &name, json!({"metadata": {"annotations": notes}})).await;
    }
    cluster.delete("MachineConfiguration", "cluster").await;
    let notes = json!({"machineconfig.dev/released-version": "v0.0.1",
        "machineconfiguration.openshift.io/generated-by-version": "v0.0.1"});
    let notes = json!({"metadata": {"annotations": notes}});
    cluster.patch("ControllerConfig", "machine-config-controller", notes).await;
    // A certificate and user data that must be made again, and an object that the new version no longer needs.
    for (namespace, name) in [
        ("openshift-machine-config-operator", "machine-config-server-tls"),
        ("openshift-machine-api", "worker-user-data-managed"),
    ] {
        let said = cluster.kubectl(&["-n", namespace, "delete", "secret", name]).await;
        assert_eq!(said.code, 0, "{said:?}");
    }
    let service = json!({"apiVersion": "v1", "kind": "Service", "metadata": {
        "name": "of-the-version-before", "namespace": "openshift-machine-config-operator",
        "labels": {"machineconfig.dev/kept-by": "machine-config-operator"}}, "spec": {"ports": [{"port": 1}]}});
    let file = cluster.lab.folder().join("service.json");
    std::fs::write(&file, service.to_string()).unwrap();
    let file = file.display().to_string();
    let apply = ["apply", "--server-side", "--field-manager=machine-config-operator", "-f", &file];
    let said = cluster.kubectl(&apply).await;
    assert_eq!(said.code, 0, "{said:?}");
}

/// The state of each node that an upgrade of the operator must not change.
async fn fleet(cluster: &Cluster) -> Vec<String> {
    let mut nodes: Vec<String> = cluster
        .list("Node")
        .await
        .iter()
        .map(|n| {
            let configs = [note(n, "currentConfig"), note(n, "desiredConfig"), note(n, "state")];
            let marked = n["spec"]["taints"].to_string().contains("UpdateInProgress");
            format!("{} {configs:?} {} {marked}", n["metadata"]["name"], n["spec"]["unschedulable"])
        })
        .collect();
    nodes.sort();
    nodes
}

#[tokio::test(flavor = "multi_thread")]
async fn an_upgrade_killed_at_any_step_is_completed_by_the_next_operator() {
    let Some((cluster, dir, _)) = installed(&[]).await else { return };
    let plane = cluster.lab.control_plane();
    let proxy = ApiProxy::start(plane).await.unwrap();
    let account = proxy.kubeconfig(plane, "operator").unwrap();
    let old = [
        "operator",
        "start",
        "--leader-elect=false",
        "--image=registry.example.com/mco:1",
        "--metrics-listen=off",
    ];
    let operator = Part::start(dir.path(), "before", &account, &old);
    let controller = Controller::alone(&cluster, plane.kubeconfig());
    set(&cluster, json!({"agents": {"runAs": "Pods"}})).await;
    says(&cluster, "Progressing", "False", &["Cluster version is"]).await;
    cluster
        .wait("the nodes are in their config", async || {
            cluster
                .list("Node")
                .await
                .iter()
                .all(|n| is_done(n) && note(n, "currentConfig").starts_with("rendered-"))
                .then_some(())
        })
        .await;
    operator.stop().await;
    as_of_the_version_before(&cluster).await;
    // The upgrade adds a pool, which needs something to render.
    cluster.create(machine_config("50-infra", "infra", one_file("/etc/infra", "yes"))).await;
    let before = fleet(&cluster).await;
    let observer = Observer::start(&cluster, "worker", 0).await;
    set(
        &cluster,
        json!({"image": NEW, "pools": ["master", "worker", "infra"], "apiServer": {"url": "https://api2.lab.test:6443"},
            "monitoring": {"dashboards": "ConfigMaps"}, "dashboard": {"run": "InCluster", "hosts": ["mco.example.com"]}}),
    )
    .await;

    observer
        .guard(async {
            for (at, (step, ..)) in STEPS.iter().enumerate() {
                // First the write does not arrive, then its answer is lost.
                for verdict in [Verdict::Swallow, Verdict::LoseAnswer] {
                    cut(&proxy, dir.path(), &account, at, verdict).await;
                    let controllers = own_object(&cluster, "deployment", "machine-config-controller").await;
                    let at_work = controllers["status"]["availableReplicas"].as_i64();
                    assert!(
                        at_work >= Some(1),
                        "{step}, {verdict:?}: no controller is left: {controllers:#}"
                    );
                    let settings = settings(&cluster).await;
                    assert!(condition(&settings, "Available").is_some(), "{step}, {verdict:?}: {settings:#}");
                }
            }
            // This run is not interrupted.
            let passes = Arc::new(AtomicBool::new(false));
            let into = Arc::clone(&passes);
            proxy.set(move |call| {
                into.fetch_or(call.path.ends_with("/clusterroles"), Ordering::Relaxed);
                Verdict::Pass
            });
            let image = format!("--image={NEW}");
            let args = ["operator", "start", "--leader-elect=false", "--metrics-listen=off", &image];
            let operator = Part::start(dir.path(), "after", &account, &args);
            cluster
                .wait("the last operator makes a pass", async || passes.load(Ordering::Relaxed).then_some(()))
                .await;
            says(&cluster, "Progressing", "False", &["Cluster version is"]).await;
            says(&cluster, "Degraded", "False", &[]).await;
            operator.stop().await;
        })
        .await;

    let versions = settings(&cluster).await["status"]["versions"].to_string();
    assert!(versions.contains(NEW), "{versions}");
    assert!(own_object(&cluster, "service", "of-the-version-before").await.is_null());
    assert!(!cluster.get("MachineConfigPool", "infra").await.is_null());
    let left = [
        "get",
        "clusterroles,validatingadmissionpolicies,crds,deployments,daemonsets,services,roles",
        "-A",
        "-o",
        "json",
    ];
    let left: Value = serde_json::from_str(&cluster.kubectl(&left).await.out).unwrap();
    for object in left["items"].as_array().unwrap() {
        let written = &object["metadata"]["annotations"]["machineconfig.dev/written"];
        assert_ne!(
            written, "of-the-version-before",
            "{} {} is unfinished",
            object["kind"], object["metadata"]["name"]
        );
    }
    // Nothing is left to do for another run.
    let writes = Arc::new(Mutex::new(vec![]));
    let into = Arc::clone(&writes);
    proxy.set(move |call| {
        // A SelfSubjectAccessReview changes nothing.
        if call.is_write() && !call.path.contains("accessreviews") {
            into.lock().unwrap().push(format!("{} {}", call.method, call.path));
        }
        Verdict::Pass
    });
    let image = format!("--image={NEW}");
    let once = tokio::process::Command::new(::lab::built_mco().unwrap())
        .args(["operator", "start", "--once", &image, "--kubeconfig"])
        .arg(&account)
        .output()
        .await
        .unwrap();
    assert!(once.status.success(), "{}", String::from_utf8_lossy(&once.stderr));
    assert_eq!(*writes.lock().unwrap(), Vec::<String>::new(), "a further run still changes something");
    assert_eq!(fleet(&cluster).await, before, "the nodes are unchanged");
    controller.stop().await;
    cluster.stop().await;
}
