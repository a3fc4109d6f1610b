//! `bench os --prefetch`: how long a node waits for an OS image of 500 MB, before and after it is drained: with the image
//! already on the node, because its pool prefetches it, and without.
//!
//! This program sends the bytes over the network, at the speed of a nearby registry. OSTree is the lab's fake, so the
//! figures leave out OSTree's own work on an image. It is the same in both cases.
//!
//! Not here: what an update costs the agent (see `os`).

use super::one_node::NODE;
use super::os_config::{IMAGES, LIMIT, LOOK, WAIT, apply};
use super::{Bench, Samples};
use anyhow::{Context, bail};
use api::k8s::{Node, ResourceExt};
use api::names::{annotation, own};
use api::v1::{MachineConfig, MachineConfigPool};
use kube::api::{Api, Patch, PatchParams};
use lab::{Lab, OSTREE_PULL};
use serde_json::json;
use std::time::{Duration, Instant};
use tokio::io::AsyncWriteExt;
use tokio::net::{TcpListener, TcpStream};

const IMAGE_BYTES: usize = 500_000_000;
/// The bytes of one piece; twenty pieces a second are sent, hence 50 MB per second.
const PIECE: usize = 1_000_000;
const PACE: Duration = Duration::from_millis(20);

/// The fake's pull: it downloads all the bytes, unless the node has them.
fn script(listener: &TcpListener) -> anyhow::Result<String> {
    let address = listener.local_addr()?;
    let (host, port) = (address.ip(), address.port());
    Ok(format!(
        "#!/bin/bash\nset -eu\nf=/var/lib/lab-ostree/layer-${{1##*:}}\n[ ! -e $f ] || exit 0\n\
         echo 'layers already present: 0; layers needed: 1 (500.0 MB)'\nexec 3<>/dev/tcp/{host}/{port}\n\
         cat <&3 >$f.part\n[ $(stat -c %s $f.part) = {IMAGE_BYTES} ]\nmv $f.part $f\n"
    ))
}

async fn send(mut to: TcpStream) -> std::io::Result<()> {
    let piece = vec![7_u8; PIECE];
    let mut pace = tokio::time::interval(PACE);
    for _ in 0..IMAGE_BYTES / PIECE {
        pace.tick().await;
        to.write_all(&piece).await?;
    }
    to.shutdown().await
}

/// Measures the waits, with prefetch and without.
pub(super) async fn waits(lab: &Lab, a: &Bench, samples: &mut Samples) -> anyhow::Result<()> {
    let bridge = lab.bridge().context("the machines have no network")?;
    let listener = TcpListener::bind((bridge.gateway(), 0)).await?;
    let write = format!(
        "mkdir -p /var/lib/lab-ostree; cat >{OSTREE_PULL} <<'END'\n{}END\nchmod 755 {OSTREE_PULL}",
        script(&listener)?
    );
    lab.node(0).run(["sh", "-c", &write]).await?;
    let serves = tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            tokio::spawn(send(stream));
        }
    });
    let done = runs(lab, a, samples).await;
    serves.abort();
    done
}

async fn runs(lab: &Lab, a: &Bench, samples: &mut Samples) -> anyhow::Result<()> {
    let configs: Api<MachineConfig> = Api::all(lab.client());
    let pools: Api<MachineConfigPool> = Api::all(lab.client());
    let nodes: Api<Node> = Api::all(lab.client());
    apply(&configs, "").await?;
    let mut current = WAIT.config(&nodes, "").await?;
    let mut image = IMAGES.iter().rev().cycle();
    for _ in 0..a.runs {
        for (how, wish) in [("fetched in its turn", json!(null)), ("fetched before", json!("1"))] {
            lab.node(0).run(["sh", "-c", "rm -f /var/lib/lab-ostree/layer-*"]).await?;
            let wish = json!({"metadata": {"annotations": {own::PREFETCH: wish}}});
            pools.patch("worker", &PatchParams::default(), &Patch::Merge(wish)).await?;
            apply(&configs, image.next().context("there is another image")?).await?;
            let [sent, drained, reboots] = phase_times(&nodes).await?;
            current = WAIT.config(&nodes, &current).await?;
            let ms = |from: Instant, to: Instant| (to - from).as_secs_f64() * 1000.0;
            samples.put(format!("{how}: from its turn to the end of the drain"), "ms", ms(sent, drained));
            samples.put(
                format!("{how}: from the end of the drain to the reboot"),
                "ms",
                ms(drained, reboots),
            );
        }
    }
    Ok(())
}

/// When the node's update is started, when the node is drained, and when it reboots.
async fn phase_times(nodes: &Api<Node>) -> anyhow::Result<[Instant; 3]> {
    let begun = Instant::now();
    let (mut sent, mut drained) = (None, None);
    while begun.elapsed() < LIMIT {
        let node = nodes.get(NODE).await?;
        let note = |key: &str| node.annotations().get(key).cloned().unwrap_or_default();
        let now = Instant::now();
        if note(annotation::DESIRED_CONFIG) != note(annotation::CURRENT_CONFIG) {
            sent.get_or_insert(now);
            let (asked, done) = (note(annotation::DESIRED_DRAIN), note(annotation::LAST_APPLIED_DRAIN));
            if asked.starts_with("drain-") && asked == done {
                drained.get_or_insert(now);
            }
        }
        if note(annotation::POST_CONFIG_ACTION) == annotation::REBOOTING {
            return Ok([sent.context("sent")?, drained.context("drained")?, now]);
        }
        tokio::time::sleep(LOOK).await;
    }
    bail!("the node does not reboot within {} s", LIMIT.as_secs())
}
