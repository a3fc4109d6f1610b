//! The fault proxy in front of a real API server.

use std::net::{IpAddr, Ipv4Addr};
use std::time::{Duration, Instant};

use k8s_openapi::api::core::v1::Namespace;
use kube::Api;
use lab::{Fault, FaultProxy};

#[tokio::test]
async fn the_fault_proxy_delays_partitions_and_cuts_connections() {
    let plane = lab::shared().await.unwrap();
    let proxy = FaultProxy::start(IpAddr::V4(Ipv4Addr::LOCALHOST), plane.server()).await.unwrap();
    let config = plane.identity_via("behind-the-proxy", &["system:masters"], &proxy.url()).unwrap();
    let api: Api<Namespace> = Api::all(lab::client(&config).await.unwrap());
    let timed = async |limit: Duration| {
        let start = Instant::now();
        let got = tokio::time::timeout(limit, api.get("default")).await;
        (start.elapsed(), got)
    };
    let limit = Duration::from_secs(10);
    assert!(timed(limit).await.1.unwrap().is_ok());

    proxy.set(Fault::Delay(Duration::from_millis(300)));
    let (took, got) = timed(limit).await;
    assert!(got.unwrap().is_ok() && took >= Duration::from_millis(600), "{took:?}");

    proxy.set(Fault::Blackhole);
    assert!(timed(Duration::from_millis(700)).await.1.is_err(), "a partition answers nothing");

    proxy.set(Fault::Cut);
    assert!(timed(limit).await.1.unwrap().is_err());

    proxy.set(Fault::None);
    assert!(timed(limit).await.1.unwrap().is_ok());

    proxy.cut_once();
    tokio::time::sleep(Duration::from_millis(100)).await;
    assert!(timed(limit).await.1.unwrap().is_ok());
}
