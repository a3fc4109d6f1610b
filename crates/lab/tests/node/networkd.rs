//! systemd-networkd on a machine of the lab. The machine's own network is a script, so networkd is unmasked and started here.
//! It waits for udev, which a container does not have, so the files that it waits for are written by hand.
//!
//! Not here: network files (see the tests).

use lab::NodeHandle;

/// `I:` is the time at which udev initialised an interface; without it, networkd waits for udev.
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
