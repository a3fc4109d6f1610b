//! What a machine needs before `kubeadm` can run in it: programs, images, containerd, the kubelet's unit, routes.
//!
//! Everything is a value ([`setup`]), which `machine::real_node` writes into the machine. The kubelet's unit and its
//! drop-in are as in the Kubernetes packages: until kubeadm has written the kubelet's settings, the kubelet fails and
//! is restarted.

use std::fmt::Write as _;
use std::net::IpAddr;
use std::path::{Path, PathBuf};

use crate::machine::node_file::NodeFile;
use crate::machine::real_kubelet::{self, KUBELET_UNIT, KubeletSetup, PREPARE_UNIT, pod_subnet, unit};

/// The path of the images' archives in the node.
const IMAGES: &str = "/usr/local/share/lab-images";
/// The unit that loads them once.
pub(crate) const IMAGES_UNIT: &str = "lab-images.service";
const ROUTES_UNIT: &str = "lab-routes.service";
/// The folder for kubeadm's configuration and output.
pub(crate) const FOLDER: &str = "/var/log/kubeadm";

/// The programs that are visible in a node.
#[derive(Debug, Clone)]
pub(crate) struct NodePrograms {
    pub(crate) kubeadm: PathBuf,
    pub(crate) kubelet: PathBuf,
    pub(crate) kubectl: PathBuf,
}

/// Everything for node number `index` of those with these names and addresses.
pub(crate) fn setup(
    nodes: &[(String, IpAddr)],
    index: usize,
    programs: &NodePrograms,
    images: &[&Path],
) -> KubeletSetup {
    let mut files = real_kubelet::containerd(index);
    files.extend([
        NodeFile::new("etc/hosts", 0o644, hosts(nodes)),
        unit(ROUTES_UNIT, routes(nodes, index)),
        unit(
            IMAGES_UNIT,
            format!(
                "[Unit]\nDescription=Images of the lab\nAfter=containerd.service\nRequires=containerd.service\n\
                 ConditionPathExists=!/var/lib/containerd/lab-images-loaded\n\n[Service]\nType=oneshot\n\
                 RemainAfterExit=yes\nExecStart=/bin/sh -ec 'for image in {IMAGES}/*.tar; do \
                 ctr -n k8s.io images import \"$image\"; done; touch /var/lib/containerd/lab-images-loaded'\n\n\
                 [Install]\nWantedBy=multi-user.target\n"
            ),
        ),
        unit(
            KUBELET_UNIT,
            format!(
                "[Unit]\nDescription=kubelet: The Kubernetes Node Agent\n\
                 Wants=network-online.target containerd.service\n\
                 After=network-online.target lab-network.service {ROUTES_UNIT} containerd.service {IMAGES_UNIT}\n\
                 Requires={PREPARE_UNIT}\nStartLimitIntervalSec=0\n\n[Service]\nExecStart=/usr/bin/kubelet\n\
                 Restart=always\nRestartSec=1\nKillMode=process\n\n[Install]\nWantedBy=multi-user.target\n"
            ),
        ),
        NodeFile::new(
            "etc/systemd/system/kubelet.service.d/10-kubeadm.conf",
            0o644,
            "[Service]\n\
             Environment=\"KUBELET_KUBECONFIG_ARGS=--bootstrap-kubeconfig=/etc/kubernetes/bootstrap-kubelet.conf \
             --kubeconfig=/etc/kubernetes/kubelet.conf\"\n\
             Environment=\"KUBELET_CONFIG_ARGS=--config=/var/lib/kubelet/config.yaml\"\n\
             EnvironmentFile=-/var/lib/kubelet/kubeadm-flags.env\nEnvironmentFile=-/etc/default/kubelet\n\
             ExecStart=\nExecStart=/usr/bin/kubelet $KUBELET_KUBECONFIG_ARGS $KUBELET_CONFIG_ARGS \
             $KUBELET_KUBEADM_ARGS $KUBELET_EXTRA_ARGS\n",
        ),
    ]);
    let mut binds = vec![
        (programs.kubeadm.clone(), PathBuf::from("/usr/bin/kubeadm")),
        (programs.kubelet.clone(), PathBuf::from("/usr/bin/kubelet")),
        (programs.kubectl.clone(), PathBuf::from("/usr/bin/kubectl")),
    ];
    binds.extend(images.iter().filter_map(|image| {
        let name = image.file_name()?;
        Some((image.to_path_buf(), Path::new(IMAGES).join(name)))
    }));
    KubeletSetup {
        files,
        binds,
        own_folders: vec!["/var/lib/containerd", "/var/lib/kubelet", "/var/lib/etcd"],
        enable: [PREPARE_UNIT, "containerd.service", ROUTES_UNIT, IMAGES_UNIT, KUBELET_UNIT]
            .map(str::to_owned)
            .to_vec(),
    }
}

/// `/etc/hosts` with every node by its name: there is no DNS.
fn hosts(nodes: &[(String, IpAddr)]) -> String {
    let mut text = "127.0.0.1 localhost\n".to_owned();
    for (name, address) in nodes {
        let _infallible = writeln!(text, "{address} {name}");
    }
    text
}

/// Routes to the pods of the other nodes.
fn routes(nodes: &[(String, IpAddr)], own: usize) -> String {
    let mut text = "[Unit]\nDescription=Routes to the pods of other lab nodes\nAfter=lab-network.service\n\
                    Requires=lab-network.service\n\n[Service]\nType=oneshot\nRemainAfterExit=yes\n\
                    ExecStart=/sbin/sysctl -qw net.ipv4.ip_forward=1\n"
        .to_owned();
    for (index, (_, address)) in nodes.iter().enumerate().filter(|(index, _)| *index != own) {
        let _infallible =
            writeln!(text, "ExecStart=/bin/ip route replace {} via {address}", pod_subnet(index));
    }
    text + "\n[Install]\nWantedBy=multi-user.target\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_knows_the_others_and_has_every_unit_that_it_enables() {
        let nodes: Vec<(String, IpAddr)> =
            (0..3).map(|n| (format!("n{n}"), IpAddr::from([10, 1, 1, 10 + n]))).collect();
        let programs = NodePrograms { kubeadm: "/a".into(), kubelet: "/b".into(), kubectl: "/c".into() };
        let setup = setup(&nodes, 1, &programs, &[Path::new("/cache/etcd-1.tar")]);
        let text = |path: &str| {
            let file = setup.files.iter().find(|file| file.path == path);
            file.map(|file| String::from_utf8(file.content.clone()).unwrap())
        };
        for unit in setup.enable.iter().filter(|unit| *unit != "containerd.service") {
            assert!(text(&format!("etc/systemd/system/{unit}")).is_some(), "{unit}");
        }
        assert_eq!(
            text("etc/hosts").unwrap(),
            "127.0.0.1 localhost\n10.1.1.10 n0\n10.1.1.11 n1\n10.1.1.12 n2\n"
        );
        let routes = text("etc/systemd/system/lab-routes.service").unwrap();
        assert!(
            routes.contains("10.244.0.0/24 via 10.1.1.10") && routes.contains("10.244.2.0/24 via 10.1.1.12")
        );
        assert!(!routes.contains("10.244.1.0/24"), "{routes}");
        let bound = setup.binds.last().unwrap();
        assert_eq!(bound.1, Path::new("/usr/local/share/lab-images/etcd-1.tar"));
    }
}
