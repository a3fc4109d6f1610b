//! What a real node needs so that a real kubelet with containerd runs in it: files, programs, units.
//!
//! Everything is a value ([`setup`]); `real_node` puts it into the node. The kubelet uses control groups directly
//! (cgroupfs): the node has a group of its own (`cgroup`), so kubelets of several nodes do not meet.
//!
//! Not here: how the Node is labelled and waited for (`builder`).

use std::path::{Path, PathBuf};

use crate::machine::image::PAUSE_IMAGE;
use crate::machine::layout::Places;
use crate::machine::node_file::NodeFile;

/// The kubelet's unit.
pub const KUBELET_UNIT: &str = "kubelet.service";
/// Makes control groups ready for containerd and the kubelet.
pub(crate) const PREPARE_UNIT: &str = "lab-kubelet-prepare.service";
const ARCHIVE: &str = "/usr/local/share/pause.tar";

/// What is added to a node.
#[derive(Debug, Clone)]
pub(crate) struct KubeletSetup {
    pub(crate) files: Vec<NodeFile>,
    /// Seen read-only: (here, there).
    pub(crate) binds: Vec<(PathBuf, PathBuf)>,
    /// Folders of the node that must not be on the node's overlay, since overlays do not stack.
    pub(crate) own_folders: Vec<&'static str>,
    pub(crate) enable: Vec<String>,
}

impl KubeletSetup {
    /// For a machine whose kubelet's unit and credentials come from elsewhere.
    pub(crate) fn without_unit(mut self, places: &Places) -> Self {
        let unit = format!("etc/systemd/system/{}", places.unit);
        let kubeconfig = places.kubeconfig.trim_start_matches('/');
        self.files.retain(|file| file.path != unit && file.path != kubeconfig);
        self.enable.retain(|unit| unit != places.unit);
        self
    }
}

/// Before the kubelet: control groups are writable, and those of the pods of the last boot are gone. In the old hierarchies
/// they belong to this computer and survive the node's reboot, and a kubelet looks three seconds at each of them before it
/// starts a pod. The kernel settings that a kubelet insists on look as it wants them. They belong to the whole computer, too:
/// a plain file over each of them keeps the kubelet from changing them.
const PREPARE: &str = r#"#!/bin/sh
set -eu
mount -o remount,bind,rw /sys/fs/cgroup
for group in /sys/fs/cgroup/*; do
    mountpoint -q "$group" && mount -o remount,bind,rw "$group" || true
done
for pods in /sys/fs/cgroup/kubepods /sys/fs/cgroup/*/kubepods; do
    [ ! -d "$pods" ] || find "$pods" -depth -type d -exec rmdir {} \; || true
done
mkdir -p /run/lab-sysctl
for setting in vm/overcommit_memory=1 vm/panic_on_oom=0 kernel/panic=10 kernel/panic_on_oops=1 \
    kernel/keys/root_maxkeys=1000000 kernel/keys/root_maxbytes=25000000; do
    name=${setting%=*}
    file=/run/lab-sysctl/$(echo "$name" | tr / .)
    [ -e "/proc/sys/$name" ] && [ ! -e "$file" ] || continue
    echo "${setting#*=}" > "$file"
    mount --bind "$file" "/proc/sys/$name"
done
"#;

/// One node, as its kubelet is told.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Kubelet<'a> {
    pub(crate) node: &'a str,
    pub(crate) address: &'a str,
    /// The node's number, which its pods' addresses have.
    pub(crate) index: usize,
    pub(crate) kubeconfig: &'a str,
    /// The cluster's CA, PEM.
    pub(crate) ca: &'a str,
}

/// Everything for one node. `program` and `archive` are files of this computer: the kubelet, and the image of its pods'
/// sandbox.
pub(crate) fn setup(kubelet: Kubelet<'_>, places: &Places, program: &Path, archive: &Path) -> KubeletSetup {
    let Kubelet { node, address, index, kubeconfig, ca } = kubelet;
    let Places { unit: own, program: inside, kubeconfig: credentials, ca: authority, settings, more } =
        places;
    let file = |path: &str, mode, text: &str| NodeFile::new(path.trim_start_matches('/'), mode, text);
    let mut files = containerd(index);
    files.extend([
        file(credentials, 0o600, kubeconfig),
        file(authority, 0o644, ca),
        file(settings, 0o644, &kubelet_config(authority)),
        unit(
            "lab-images.service",
            format!(
                "[Unit]\nDescription=Images of the lab\nAfter=containerd.service\nRequires=containerd.service\n\n\
                 [Service]\nType=oneshot\nRemainAfterExit=yes\n\
                 ExecStart=/usr/bin/ctr -n k8s.io images import {ARCHIVE}\n\n[Install]\nWantedBy=multi-user.target\n"
            ),
        ),
        unit(
            own,
            format!(
                "[Unit]\nDescription=kubelet\nAfter=lab-images.service lab-network.service containerd.service\n\
                 Requires=lab-kubelet-prepare.service lab-images.service\nWants=containerd.service\n\
                 StartLimitIntervalSec=0\n\n[Service]\n\
                 ExecStart={inside} --config={settings} --kubeconfig={credentials} \
                 --hostname-override={node} --node-ip={address} --v=1\nRestart=always\nRestartSec=1\n\
                 KillMode=process\n\n[Install]\nWantedBy=multi-user.target\n"
            ),
        ),
    ]);
    files.extend(more.iter().cloned());
    KubeletSetup {
        files,
        binds: vec![
            (program.to_owned(), PathBuf::from(inside)),
            (archive.to_owned(), PathBuf::from(ARCHIVE)),
        ],
        own_folders: vec!["/var/lib/containerd", "/var/lib/kubelet"],
        enable: [PREPARE_UNIT, "containerd.service", "lab-images.service", own].map(str::to_owned).to_vec(),
    }
}

/// What any kubelet on a node of the lab needs beside itself: containerd with a pods' network, and control groups.
pub(crate) fn containerd(index: usize) -> Vec<NodeFile> {
    vec![
        NodeFile::new("etc/containerd/config.toml", 0o644, containerd_config()),
        NodeFile::new("etc/cni/net.d/10-lab.conflist", 0o644, cni_config(index)),
        NodeFile::new("etc/crictl.yaml", 0o644, "runtime-endpoint: unix:///run/containerd/containerd.sock\n"),
        NodeFile::new("etc/resolv.conf", 0o644, "# no DNS in the lab\n"),
        NodeFile::new("usr/local/sbin/lab-kubelet-prepare", 0o755, PREPARE),
        unit(
            PREPARE_UNIT,
            "[Unit]\nDescription=Control groups for the kubelet\nBefore=containerd.service\n\n[Service]\n\
             Type=oneshot\nRemainAfterExit=yes\nExecStart=/usr/local/sbin/lab-kubelet-prepare\n\n\
             [Install]\nWantedBy=multi-user.target\n"
                .to_owned(),
        ),
    ]
}

/// A unit of the node.
pub(crate) fn unit(name: &str, text: String) -> NodeFile {
    NodeFile::new(&format!("etc/systemd/system/{name}"), 0o644, text)
}

fn kubelet_config(ca: &str) -> String {
    let config = serde_json::json!({
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "authentication": {
            "anonymous": {"enabled": false},
            "webhook": {"enabled": false},
            "x509": {"clientCAFile": ca},
        },
        "authorization": {"mode": "AlwaysAllow"},
        "containerRuntimeEndpoint": "unix:///run/containerd/containerd.sock",
        "cgroupDriver": "cgroupfs",
        "failCgroupV1": false,
        "failSwapOn": false,
        "enforceNodeAllocatable": [],
        "evictionHard": {},
        "localStorageCapacityIsolation": false,
        // A node that is back should be seen at once: the default of 10 s would be most of a test's time.
        "nodeStatusUpdateFrequency": "2s",
        "registerNode": true,
    });
    format!("{config:#}\n")
}

fn containerd_config() -> String {
    format!(
        r#"version = 2
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "{PAUSE_IMAGE}"
  restrict_oom_score_adj = true
  disable_apparmor = true
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "/usr/lib/cni"
    conf_dir = "/etc/cni/net.d"
  [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
    runtime_type = "io.containerd.runc.v2"
    [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
      NoNewKeyring = true
"#
    )
}

/// The addresses of the pods of node number `index`.
pub(crate) fn pod_subnet(index: usize) -> String {
    format!("10.244.{}.0/24", index % 250)
}

/// Pods of one node on a bridge inside it. They reach each other and the node; pods of other nodes where these have routes.
fn cni_config(index: usize) -> String {
    let config = serde_json::json!({
        "cniVersion": "0.4.0",
        "name": "lab",
        "plugins": [{
            "type": "bridge", "bridge": "cni0", "isGateway": true, "ipMasq": false,
            "ipam": {
                "type": "host-local", "ranges": [[{"subnet": pod_subnet(index)}]],
                "routes": [{"dst": "0.0.0.0/0"}],
            },
        }],
    });
    format!("{config:#}\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::layout::Layout;

    #[test]
    fn every_unit_that_is_enabled_is_in_the_node() {
        for layout in [Layout::Plain, Layout::K3s] {
            let kubelet = Kubelet { node: "n", address: "10.0.0.2", index: 3, kubeconfig: "", ca: "" };
            let places = layout.places(true);
            let setup = setup(kubelet, &places, Path::new("/k"), Path::new("/a"));
            for unit in setup.enable.iter().filter(|unit| *unit != "containerd.service") {
                let path = format!("etc/systemd/system/{unit}");
                assert!(setup.files.iter().any(|file| file.path == path), "{unit}");
            }
            let bare = setup.without_unit(&places);
            assert!(!bare.enable.iter().any(|unit| unit == places.unit), "{bare:?}");
            assert!(!bare.files.iter().any(|file| file.path.contains("kubelet.kubeconfig")), "{bare:?}");
        }
    }
}
