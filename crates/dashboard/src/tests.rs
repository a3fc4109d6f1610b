//! The dashboard as a whole: how it starts and ends. What it answers is in the files of the folder `tests`, one for each theme.

mod answers;
mod cluster;
mod policies;
pub(crate) mod site;

use super::*;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

#[tokio::test]
async fn no_proxy_is_everybody() {
    for (net, may) in [("10.0.0.7/32", true), ("0.0.0.0/0", false), ("::/0", false)] {
        let network = Network {
            listen: SocketAddr::from(([127, 0, 0, 1], 0)),
            certificate: None,
            hosts: vec![],
            proxies: vec![net.parse().unwrap()],
        };
        let listening = ClusterDashboard::listen(network).await;
        assert_eq!(listening.is_ok(), may, "{net}");
        let refused = listening.err().map(|error| error.to_string());
        assert!(refused.is_none_or(|why| why.contains(net) && why.contains("own address")), "{net}");
    }
}

#[tokio::test]
async fn a_request_that_is_never_complete_does_not_keep_the_program_from_its_end() {
    let page = Dashboard::listen(SocketAddr::from(([127, 0, 0, 1], 0))).await.unwrap();
    let address = page.address;
    let cluster = Cluster {
        client: fake_cluster::no_cluster(),
        name: "c".to_owned(),
        controller_config: ControllerConfig::new("x", Default::default()),
    };
    let stop = CancellationToken::new();
    let served = tokio::spawn(page.serve(cluster, stop.clone()));
    let mut half = TcpStream::connect(address).await.unwrap();
    half.write_all(b"GET / HTTP/1.1\r\nHos").await.unwrap();
    // The connections are accepted in their order: with this answer, the first one is there.
    let mut whole = TcpStream::connect(address).await.unwrap();
    let request = format!("GET / HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n");
    whole.write_all(request.as_bytes()).await.unwrap();
    let mut answer = String::new();
    whole.read_to_string(&mut answer).await.unwrap();
    assert!(answer.starts_with("HTTP/1.1 401"), "{answer}");
    stop.cancel();
    let ended = tokio::time::timeout(Duration::from_secs(5), served).await;
    ended.expect("it ends").unwrap().unwrap();
    drop(half);
}
