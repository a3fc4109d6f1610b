//! A fake CRI-O: a gRPC server on a Unix socket that answers the five calls as CRI-O does, with messages laid out by hand
//! after CRI's published definition. With it: what a round does on a node with CRI-O, and how calls break.
//!
//! It is not CRI-O: Debian has no package of it. containerd is tried for real, in the lab.

use super::crio::DROP_IN;
use super::images::{Images, Progress};
use super::plan::PinnedSet;
use super::report::{Failures, Outcome};
use super::wire::{Fields, Message};
use api::k8s::Node;
use h2::server::SendResponse;
use host::Root;
use http::{HeaderMap, Request, Response};
use serde_json::json;
use std::collections::{BTreeMap, BTreeSet};
use std::io::Cursor;
use std::path::Path;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::net::UnixListener;

type Buffer = Cursor<Vec<u8>>;

/// What the fake has, and what it was asked.
#[derive(Default)]
struct FakeCrio {
    /// The images that it has.
    images: Mutex<BTreeSet<String>>,
    /// How it refuses pulls: the image, the code and the words; and how often, before it pulls it after all.
    refuses: Mutex<BTreeMap<String, (u32, String, u32)>>,
    /// The pulls: image, user and password.
    pulls: Mutex<Vec<[String; 3]>>,
    /// The connection ends within a pull of this image.
    cuts: Mutex<Option<String>>,
    reloads: AtomicU32,
}

fn texts(message: &[u8]) -> BTreeMap<u32, String> {
    Fields::of(message).filter_map(|f| f.ok().map(|(field, value)| (field, value.text()))).collect()
}

fn inner(message: &[u8], field: u32) -> BTreeMap<u32, String> {
    let found = Fields::of(message).filter_map(Result::ok).find(|(f, _)| *f == field);
    found
        .map(|(_, value)| value.fields().filter_map(|f| f.ok().map(|(f, v)| (f, v.text()))).collect())
        .unwrap_or_default()
}

impl FakeCrio {
    /// The answer to one call. `None`: the connection ends.
    fn answer(&self, path: &str, asked: &[u8]) -> Option<Result<Vec<u8>, (u32, String)>> {
        let image = inner(asked, 1).remove(&1).unwrap_or_default();
        Some(Ok(match path {
            "/runtime.v1.RuntimeService/Version" => {
                assert_eq!(texts(asked)[&1], "v1");
                Message::default().text(1, "0.1.0").text(2, "cri-o").text(3, "1.33.1").text(4, "v1").finish()
            }
            "/runtime.v1.ImageService/ImageFsInfo" => {
                let id = Message::default().text(1, "/var/lib/containers/storage/overlay-images");
                Message::default().message(1, &Message::default().message(2, &id)).finish()
            }
            "/runtime.v1.ImageService/ImageStatus" => match self.images.lock().unwrap().contains(&image) {
                true => {
                    let mut found = Message::default().text(1, "id").text(3, &image).finish();
                    // pinned: true
                    found.extend([0x40, 1]);
                    framed_field(1, &found)
                }
                false => vec![],
            },
            "/runtime.v1.ImageService/PullImage" => {
                if self.cuts.lock().unwrap().take_if(|cut| *cut == image).is_some() {
                    return None;
                }
                let mut with = inner(asked, 2);
                let mut word = |field| with.remove(&field).unwrap_or_default();
                self.pulls.lock().unwrap().push([image.clone(), word(1), word(2)]);
                if let Some((code, why, times)) = self.refuses.lock().unwrap().get_mut(&image)
                    && *times > 0
                {
                    *times -= 1;
                    return Some(Err((*code, why.clone())));
                }
                self.images.lock().unwrap().insert(image.clone());
                Message::default().text(1, &image).finish()
            }
            other => return Some(Err((12, format!("unknown method {other}")))),
        }))
    }
}

fn framed_field(field: u8, bytes: &[u8]) -> Vec<u8> {
    let mut all = vec![field << 3 | 2, u8::try_from(bytes.len()).unwrap()];
    all.extend_from_slice(bytes);
    all
}

async fn reply(request: Request<h2::RecvStream>, mut respond: SendResponse<Buffer>, crio: &FakeCrio) -> bool {
    let (head, mut body) = request.into_parts();
    assert_eq!(head.headers["content-type"], "application/grpc");
    let mut asked = vec![];
    while let Some(part) = body.data().await {
        asked.extend_from_slice(&part.unwrap());
    }
    let ok = Response::builder().header("content-type", "application/grpc").body(()).unwrap();
    match crio.answer(head.uri.path(), &asked[5..]) {
        None => return false,
        Some(Ok(message)) => {
            let mut stream = respond.send_response(ok, false).unwrap();
            let mut framed = vec![0];
            framed.extend(u32::try_from(message.len()).unwrap().to_be_bytes());
            framed.extend(message);
            stream.send_data(Cursor::new(framed), false).unwrap();
            stream
                .send_trailers(HeaderMap::from_iter([("grpc-status".parse().unwrap(), "0".parse().unwrap())]))
                .unwrap();
        }
        Some(Err((code, why))) => {
            // A refusal has no message, and its status is in the head.
            let (mut head, ()) = ok.into_parts();
            head.headers.insert("grpc-status", code.to_string().parse().unwrap());
            head.headers.insert("grpc-message", why.parse().unwrap());
            respond.send_response(Response::from_parts(head, ()), true).unwrap();
        }
    }
    true
}

/// Serves until the test ends.
fn serve(root: &Path, crio: Arc<FakeCrio>) {
    let folder = root.join("run/crio");
    std::fs::create_dir_all(&folder).unwrap();
    let listener = UnixListener::bind(folder.join("crio.sock")).unwrap();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let crio = crio.clone();
            tokio::spawn(async move {
                let mut connection = h2::server::Builder::new().handshake::<_, Buffer>(stream).await.unwrap();
                while let Some(Ok((request, respond))) = connection.accept().await {
                    if !reply(request, respond, &crio).await {
                        return;
                    }
                }
            });
        }
    });
}

fn sets(images: &[&str]) -> Vec<PinnedSet> {
    let images = images.iter().map(|i| (*i).to_owned()).collect();
    vec![PinnedSet { name: "apps".to_owned(), generation: 1, images }]
}

fn node(ready: &str) -> Node {
    serde_json::from_value(json!({"metadata": {"name": "n"}, "status": {
        "conditions": [{"type": "Ready", "status": ready}],
        "nodeInfo": {"containerRuntimeVersion": "cri-o://1.33.1", "architecture": "", "bootID": "", "kernelVersion": "",
            "kubeProxyVersion": "", "kubeletVersion": "", "machineID": "", "operatingSystem": "", "osImage": "", "systemUUID": ""},
    }}))
    .unwrap()
}

fn host(dir: &Path, crio: &Arc<FakeCrio>) -> Images {
    let root = Root::open(dir).unwrap();
    let count = crio.clone();
    let reload = Arc::new(move || {
        count.reloads.fetch_add(1, Ordering::Relaxed);
        Ok(())
    });
    let between = client::Backoff { first: Duration::from_millis(1), last: Duration::from_millis(1) };
    Images { root, root_mount: dir.to_owned(), reload, between, seen: registry::Cache::default() }
}

const A: &str = "registry.example.com/a@sha256:1";
const B: &str = "registry.example.com/team/b@sha256:2";

#[tokio::test]
async fn images_are_pulled_with_the_nodes_credentials_and_listed_for_crio() {
    let dir = tempfile::tempdir().unwrap();
    let crio = Arc::new(FakeCrio::default());
    serve(dir.path(), crio.clone());
    let images = host(dir.path(), &crio);
    let secret = r#"{"auths": {"registry.example.com/team": {"auth": "dGVhbTpw"}}}"#;
    images.root.make_parents("/var/lib/kubelet/config.json").unwrap();
    std::fs::write(dir.path().join("var/lib/kubelet/config.json"), secret).unwrap();
    let progress = Progress::default();
    // A node that is not Ready waits, and is not failed.
    let waits = images.round(&sets(&[A, B]), &node("False"), &progress).await;
    assert!(matches!(&waits, Outcome::Working { done: 0, all: 2, waits: Some(_) }), "{waits:?}");
    let done = images.round(&sets(&[A, B]), &node("True"), &progress).await;
    assert_eq!(done, Outcome::Done { remark: None });
    let mut pulls = crio.pulls.lock().unwrap().clone();
    pulls.sort();
    assert_eq!(pulls, [[A, "", ""], [B, "team", "p"]].map(|row| row.map(str::to_owned)));
    let text = || std::fs::read_to_string(dir.path().join(&DROP_IN[1..])).ok();
    let table: toml::Table = text().unwrap().parse().unwrap();
    assert_eq!(table["crio"]["image"]["pinned_images"].as_array().unwrap().len(), 2);
    assert_eq!(crio.reloads.load(Ordering::Relaxed), 1);
    // Another look changes nothing; a set that goes takes its images off the list, and the last one the file.
    for (now, reloads, lines) in [(&[A, B][..], 1, true), (&[A], 2, true), (&[], 3, false), (&[], 3, false)] {
        let done = images.round(&sets(now), &node("True"), &progress).await;
        assert_eq!(done, Outcome::Done { remark: None });
        assert_eq!((crio.reloads.load(Ordering::Relaxed), text().is_some()), (reloads, lines), "{now:?}");
    }
    assert_eq!(crio.pulls.lock().unwrap().len(), 2, "nothing is pulled twice");
}

#[tokio::test]
async fn one_image_that_cannot_be_pulled_does_not_keep_the_others() {
    let dir = tempfile::tempdir().unwrap();
    let crio = Arc::new(FakeCrio::default());
    serve(dir.path(), crio.clone());
    let images = host(dir.path(), &crio);
    let refuse = |image: &str, why: &str, times| {
        crio.refuses.lock().unwrap().insert(image.to_owned(), (2, why.to_owned(), times));
    };
    refuse(A, "reading manifest: name unknown", 99);
    refuse(B, "connection reset by peer", 2);
    let progress = Progress::default();
    let outcome = images.round(&sets(&[A, B]), &node("True"), &progress).await;
    let failed = [(A.to_owned(), "reading manifest: name unknown".to_owned())].into();
    assert_eq!(outcome, Outcome::Failed(Failures::Images(failed)));
    let tries =
        |image: &str| crio.pulls.lock().unwrap().iter().filter(|[pulled, ..]| pulled == image).count();
    assert_eq!((tries(A), tries(B)), (4, 3), "each is tried four times");
    // A full disk ends the round at once.
    crio.pulls.lock().unwrap().clear();
    refuse(A, "write /var/lib/containers/x: no space left on device", 99);
    let outcome = images.round(&sets(&[A, B]), &node("True"), &progress).await;
    let Outcome::Failed(Failures::All { missing, why }) = outcome else { panic!("{outcome:?}") };
    assert!(missing == [A] && why.contains("no space left"), "{missing:?} {why}");
    assert_eq!(tries(A), 1);
}

#[tokio::test]
async fn a_runtime_that_goes_away_is_told_from_an_image_that_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let crio = Arc::new(FakeCrio::default());
    let images = host(dir.path(), &crio);
    let progress = Progress::default();
    let outcome = images.round(&sets(&[A]), &node("True"), &progress).await;
    let Outcome::Failed(Failures::All { why, .. }) = outcome else { panic!("{outcome:?}") };
    assert!(why.contains("no container runtime listens at") && why.contains("crio.sock"), "{why}");
    serve(dir.path(), crio.clone());
    *crio.cuts.lock().unwrap() = Some(A.to_owned());
    let outcome = images.round(&sets(&[A]), &node("True"), &progress).await;
    assert!(matches!(&outcome, Outcome::Lost(_)), "{outcome:?}");
    // The next round has a connection of its own.
    let outcome = images.round(&sets(&[A]), &node("True"), &progress).await;
    assert_eq!(outcome, Outcome::Done { remark: None });
}
