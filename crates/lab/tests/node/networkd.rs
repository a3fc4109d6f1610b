//! systemd's networkd on a machine of the lab, whose own network is a script: it is unmasked and started, and what it waits for
//! from udev is written by hand, because a container has no udev.
//!
//! Not here: files of networks (see the tests).

use lab::NodeHandle;

/// `I:` is when udev has seen an interface; without it networkd waits for udev.
const START: &str = "set -e
cd /etc/systemd/system
rm -f systemd-networkd.service systemd-networkd.socket
systemctl daemon-reload
mkdir -p /run/udev/data
for index in /sys/class/net/*/ifindex; do echo I:1 > /run/udev/data/n$(cat $index); done
systemctl start systemd-networkd
systemctl is-active systemd-networkd";

/// Starts networkd for all interfaces that the machine has now.
pub(crate) async fn start(node: &NodeHandle) {
    let said = node.run(["sh", "-c", START]).await.unwrap();
    assert_eq!(said.trim(), "active");
}
