//! An administrator's command that is killed in the middle: at each kind of write, once before the write arrives, and once when
//! it is done and its answer is lost. The next run continues.
//!
//! Not here: the check that the last run completes and leaves nothing undone (`removal`), and a killed operator (`upgrade`).

use crate::parts::Part;
use crate::product::Cluster;
use lab::{ApiProxy, Call, Verdict};
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// A step of a command, and the request that identifies it: verb, and words of its path.
pub(crate) type Row = (&'static str, &'static str, &'static [&'static str]);

/// The steps of `mco uninstall`, in order.
pub(crate) const REMOVAL: [Row; 13] = [
    ("the operator goes", "DELETE", &["/deployments/machine-config-operator"]),
    ("the taint of nodes that register", "DELETE", &["/mutatingadmissionpolicybindings/"]),
    ("pools are paused", "PATCH", &["/machineconfigpools/"]),
    ("agents are asked to leave", "PATCH", &["/api/v1/nodes/"]),
    ("the agents go", "DELETE", &["/daemonsets/machine-config-daemon"]),
    ("the controller goes", "DELETE", &["/deployments/machine-config-controller"]),
    ("what refuses changes", "DELETE", &["/validatingadmissionpolic"]),
    ("rights", "DELETE", &["/rbac.authorization.k8s.io/"]),
    ("finalizers", "PATCH", &["/kubeletconfigs/"]),
    ("user data", "DELETE", &["/openshift-machine-api/secrets/"]),
    ("definitions", "DELETE", &["/customresourcedefinitions/"]),
    ("annotations of a Node", "PATCH", &["/api/v1/nodes/"]),
    ("a namespace", "DELETE", &["/api/v1/namespaces/machine-config-boot-tokens"]),
];

/// The steps of `mco install`, in order.
pub(crate) const INSTALLATION: [Row; 5] = [
    ("definitions", "PATCH", &["/customresourcedefinitions/"]),
    ("the namespace", "PATCH", &["/api/v1/namespaces/openshift-machine-config-operator"]),
    ("rights", "PATCH", &["/rbac.authorization.k8s.io/"]),
    ("the operator", "PATCH", &["/deployments/machine-config-operator"]),
    ("the settings", "PATCH", &["/machineconfigoperators/cluster"]),
];

/// How long a command may take until one of its writes. It waits half a minute for agents.
const PATIENCE: Duration = Duration::from_secs(100);

/// Runs the command twice for each row, and kills it there.
pub(crate) async fn at_each_write(cluster: &Cluster, dir: &Path, args: &[&str], rows: &[Row]) {
    let plane = cluster.lab.control_plane();
    let proxy = ApiProxy::start(plane).await.unwrap();
    let administrator = proxy.kubeconfig(plane, "administrator").unwrap();
    for (what, verb, words) in rows {
        for verdict in [Verdict::Swallow, Verdict::LoseAnswer] {
            let caught = Arc::new(Mutex::new(false));
            let into = Arc::clone(&caught);
            let (verb, words) = (*verb, *words);
            proxy.set(move |call: &Call<'_>| {
                let mut caught = into.lock().unwrap();
                // Requests that a process sends while it is being killed do not count.
                if *caught {
                    return Verdict::Swallow;
                }
                if call.method.as_str() == verb && words.iter().all(|word| call.path.contains(word)) {
                    *caught = true;
                    return verdict;
                }
                Verdict::Pass
            });
            let command = Part::start(dir, "cut-off", &administrator, args);
            let seen = tokio::time::timeout(PATIENCE, async {
                while !*caught.lock().unwrap() {
                    tokio::time::sleep(Duration::from_millis(5)).await;
                }
            });
            if seen.await.is_err() {
                panic!(
                    "mco {args:?} has ended without this, or not come to it within {PATIENCE:?}: {what}\n{}",
                    command.log()
                );
            }
            command.kill().await;
        }
    }
}
