//! Parts of the product that a test runs as plain processes, each with its pod's service account.
//!
//! Not here: what they do (the tests), and the controller (`product::controllers`).

use crate::product::{Cluster, tail};
use crate::support::PATIENCE;
use k8s_openapi::api::authentication::v1::{TokenRequest, TokenRequestSpec};
use k8s_openapi::api::core::v1::ServiceAccount;
use kube::Api;
use kube::api::PostParams;
use serde_json::json;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use tokio::process::{Child, Command};

const NAMESPACE: &str = "openshift-machine-config-operator";

/// A kubeconfig for a service account, with a token as its pods have it.
pub(crate) async fn speak_as(cluster: &Cluster, dir: &Path, name: &str) -> PathBuf {
    let accounts: Api<ServiceAccount> = Api::namespaced(cluster.client.clone(), NAMESPACE);
    let spec = Some(TokenRequestSpec::default());
    let request = TokenRequest { spec, ..TokenRequest::default() };
    let made = accounts.create_token_request(name, &PostParams::default(), &request).await.unwrap();
    let plane = cluster.lab.control_plane();
    let ca = dir.join("api-ca.crt");
    std::fs::write(&ca, plane.ca()).unwrap();
    let kubeconfig = json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "pod",
        "clusters": [{"name": "lab", "cluster": {
            "server": format!("https://{}", plane.server()), "certificate-authority": ca,
        }}],
        "users": [{"name": name, "user": {"token": made.status.unwrap().token}}],
        "contexts": [{"name": "pod", "context": {"cluster": "lab", "user": name}}],
    });
    let path = dir.join(format!("{name}.kubeconfig"));
    std::fs::write(&path, kubeconfig.to_string()).unwrap();
    path
}

/// A part of the product that runs until the test ends.
pub(crate) struct Part {
    child: Child,
    log: PathBuf,
}

impl Part {
    pub(crate) fn start(dir: &Path, name: &str, kubeconfig: &Path, args: &[&str]) -> Self {
        let log = dir.join(format!("{name}.log"));
        let child = Command::new(lab::built_mco().unwrap())
            .args(args)
            .arg("--kubeconfig")
            .arg(kubeconfig)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::from(std::fs::File::create(&log).unwrap()))
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        Self { child, log }
    }

    /// Its log so far.
    pub(crate) fn log(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap()
    }

    /// Kills it, as a power cut does.
    pub(crate) async fn kill(mut self) {
        self.child.kill().await.unwrap();
    }

    /// Stops it as a kubelet stops a pod. Returns its log.
    pub(crate) async fn stop(mut self) -> String {
        let log = std::fs::read_to_string(&self.log).unwrap();
        assert!(self.child.try_wait().unwrap().is_none(), "it has ended by itself\n{}", tail(&self.log));
        let pid = self.child.id().unwrap().to_string();
        assert!(Command::new("kill").args(["-TERM", &pid]).status().await.unwrap().success());
        let ended = tokio::time::timeout(PATIENCE, self.child.wait()).await.unwrap().unwrap();
        assert!(ended.success(), "{ended}\n{}", tail(&self.log));
        assert!(!log.contains("panicked at"), "{log}");
        log
    }
}

/// An address that is free now.
pub(crate) fn free_address() -> SocketAddr {
    std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap().local_addr().unwrap()
}
