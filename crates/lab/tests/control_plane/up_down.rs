//! A lab that outlives the command that started it, and is stopped by another command.

use crate::common;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use k8s_openapi::api::core::v1::Node;
use kube::Api;
use lab::{Environment, Lab, Reporter, Request};

/// The other half of the test: this binary, started again as the supervisor. The last argument is the lab's spec.
#[test]
fn supervisor() {
    let spec = std::env::args().next_back().map(PathBuf::from).filter(|path| path.ends_with("spec.json"));
    if let Some(spec) = spec {
        lab::supervise(&spec, &Environment::read()).unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lab_that_is_up_stays_until_it_is_taken_down() {
    let dir = tempfile::tempdir().unwrap();
    let environment = Environment { data: dir.path().join("data"), ..Environment::read() };
    let request = Request::from(Lab::builder().nodes(2).scheduler(false).spec().clone());
    let program = std::env::current_exe().unwrap().to_string_lossy().into_owned();
    // The supervisor reads its environment like any program; `env` gives it this test's data root.
    let data = format!("MCO_LAB_DATA={}", environment.data.display());
    let supervisor =
        ["env", &data, &program, "--exact", "up_down::supervisor", "--nocapture"].map(str::to_owned);
    let lines = Arc::new(Mutex::new(Vec::new()));
    let heard = Arc::clone(&lines);
    let progress = Reporter::from_fn(move |line| heard.lock().unwrap().push(line.to_owned()));

    let attached = lab::up(&request, &supervisor, &environment, &progress).await.unwrap();
    assert!(lines.lock().unwrap().iter().any(|line| line.contains("control plane")));
    assert_eq!(lab::running(&environment).unwrap(), vec![attached.clone()]);
    let nodes: Api<Node> = Api::all(attached.client().await.unwrap());
    for node in attached.nodes() {
        assert!(nodes.get_opt(node.name()).await.unwrap().is_some());
    }

    assert_eq!(lab::down(&environment).await.unwrap(), 1);
    assert_eq!(lab::running(&environment).unwrap(), Vec::new());
    assert!(!attached.folder().exists());
    assert_eq!(common::users(attached.folder()), Vec::<String>::new());
    assert_eq!(lab::down(&environment).await.unwrap(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lab_that_does_not_come_up_says_why() {
    let dir = tempfile::tempdir().unwrap();
    let environment = Environment { data: dir.path().join("data"), ..Environment::read() };
    let supervisor = ["sh", "-c", "echo the disk is full >&2; exit 4"].map(str::to_owned);
    let request = Request::from(Lab::builder().spec().clone());
    let error = lab::up(&request, &supervisor, &environment, &Reporter::silent()).await.unwrap_err();
    let text = error.to_string();
    assert!(text.contains("exit status 4") && text.contains("the disk is full"), "{text}");
}

/// Ctrl-C while the cluster starts. The supervisor is in another session, so it has to be told.
#[tokio::test(flavor = "multi_thread")]
async fn an_interrupted_start_leaves_no_supervisor() {
    let dir = tempfile::tempdir().unwrap();
    let environment = Environment { data: dir.path().join("data"), ..Environment::read() };
    let (started, ended) = (dir.path().join("started"), dir.path().join("ended"));
    let script = format!(
        "trap 'echo > {}; exit 0' TERM; echo > {}; while :; do sleep 0.1; done",
        ended.display(),
        started.display()
    );
    let supervisor = ["sh", "-c", &script].map(str::to_owned);
    let request = Request::from(Lab::builder().spec().clone());
    let interrupt = async {
        while !started.exists() {
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        }
    };
    let quiet = Reporter::silent();
    let error = lab::up_until(&request, &supervisor, &environment, &quiet, interrupt).await.unwrap_err();
    assert!(error.to_string().starts_with("interrupted"), "{error}");
    assert!(ended.exists(), "it was told, and had ended before the command did");
    let left: Vec<_> = std::fs::read_dir(dir.path()).unwrap().map(|e| e.unwrap().file_name()).collect();
    assert!(!left.iter().any(|name| name.to_string_lossy().contains("-up-")), "{left:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cluster_of_kubeadm_that_cannot_be_is_refused_in_one_line() {
    let dir = tempfile::tempdir().unwrap();
    let environment = Environment { data: dir.path().join("data"), ..Environment::read() };
    let request = Request::from(lab::Kubeadm::builder().control_planes(2).spec().clone());
    let supervisor = ["false".to_owned()];
    let error = lab::up(&request, &supervisor, &environment, &Reporter::silent()).await.unwrap_err();
    assert_eq!(error.to_string(), "2 control-plane nodes: etcd wants an odd number of members, 1 or 3");
}
