//! What a real node needs so that a real kubelet with containerd can run in it: files, programs, units.
//!
//! Everything is a value ([`setup`]), which `real_node` writes into the node. The kubelet manages control groups
//! directly (cgroupfs): each node has a group of its own (`cgroup`), so kubelets of several nodes do not interfere.
//!
//! Not here: labelling the Node and waiting for it (`lab`).

use std::path::{Path, PathBuf};

use crate::machine::image::PAUSE_IMAGE;
use crate::machine::layout::Places;
use crate::machine::node_file::NodeFile;

/// The kubelet's unit.
pub const KUBELET_UNIT: &str = "kubelet.service";
/// The unit that prepares control groups for containerd and the kubelet.
pub(crate) const PREPARE_UNIT: &str = "lab-kubelet-prepare.service";
const ARCHIVE: &str = "/usr/local/share/pause.tar";
/// The environment variable that limits Go's runtime to one processor. Source: <https://pkg.go.dev/runtime#hdr-Environment_Variables>.
pub(crate) const ONE_PROCESSOR: (&str, &str) = ("GOMAXPROCS", "1");

/// The files, programs and units that are added to a node.
#[derive(Debug, Clone)]
pub(crate) struct KubeletSetup {
    pub(crate) files: Vec<NodeFile>,
    /// Files that appear read-only in the node: (here, there).
    pub(crate) binds: Vec<(PathBuf, PathBuf)>,
    /// Folders of the node that must not be on its overlay, because overlays cannot be nested.
    pub(crate) own_folders: Vec<&'static str>,
    pub(crate) enable: Vec<String>,
}

impl KubeletSetup {
    /// Drops the unit and the credentials, for a machine that brings its own.
    pub(crate) fn without_unit(mut self, places: &Places) -> Self {
        let unit = format!("etc/systemd/system/{}", places.unit);
        let kubeconfig = places.kubeconfig.trim_start_matches('/');
        self.files.retain(|file| file.path != unit && file.path != kubeconfig);
        self.enable.retain(|unit| unit != places.unit);
        self
    }
}

/// Runs before the kubelet. It makes control groups writable and removes those of the last boot's pods: control groups
/// of version 1 belong to this computer and survive the node's reboot, and the kubelet would spend three seconds on
/// each of them before it starts a pod. The kubelet also insists on some kernel settings, which belong to the whole
/// computer too: a plain file with the wanted value is mounted over each of them, so that the kubelet finds it and does
/// not change the real setting.
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

/// The parameters of a node's kubelet.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Kubelet<'a> {
    pub(crate) node: &'a str,
    pub(crate) address: &'a str,
    /// The node's number, which determines its pods' addresses.
    pub(crate) index: usize,
    pub(crate) kubeconfig: &'a str,
    /// The cluster's CA, PEM.
    pub(crate) ca: &'a str,
}

/// The setup of one node. `program` and `archive` are files of this computer: the kubelet, and the image of its pods'
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

/// What any kubelet on a node of the lab needs in addition: containerd with a pod network, and control groups. All nodes share this
/// computer's processors, so Go's runtime of the kubelet and of containerd gets one.
pub(crate) fn containerd(index: usize) -> Vec<NodeFile> {
    vec![
        NodeFile::new(
            "etc/systemd/system.conf.d/20-go.conf",
            0o644,
            format!("[Manager]\nDefaultEnvironment={}={}\n", ONE_PROCESSOR.0, ONE_PROCESSOR.1),
        ),
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

/// A unit file of the node.
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
        // A node that has rebooted should be seen at once: the default of 10 s would be most of a test's time.
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

/// The subnet of the pods of node number `index`.
pub(crate) fn pod_subnet(index: usize) -> String {
    format!("10.244.{}.0/24", index % 250)
}

/// The pods of a node are on a bridge in the node. They reach each other and the node, and pods of other nodes if there
/// are routes to these.
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
