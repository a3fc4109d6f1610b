//! The container runtime of this host: what is asked of it, and how it keeps an image from the kubelet's garbage collection.
//!
//! CRI ([`runtime.v1`](https://github.com/kubernetes/cri-api)) pulls and looks, with any runtime. It has no call that pins:
//!
//! - containerd: a label on the image in its own image service, by which its CRI part tells the kubelet that the image is pinned.
//!   A second label says that the pin is ours, so that pins of others (its sandbox image) stay.
//! - CRI-O: a list in its configuration, which the agent writes (see `sync`).
//!
//! Not here: which images (see `plan`), or how a call travels (see `grpc`).

use super::auth::message;
use super::grpc::{Channel, GrpcError};
use super::wire::{Fields, Malformed, Message};
use api::names::label;
use registry::Login;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The limit of a call that only looks or labels.
const CALL_LIMIT: Duration = Duration::from_secs(30);
/// The limit of one attempt to pull an image. What was fetched by then stays with the runtime, and the next attempt goes on
/// from there.
const PULL: Duration = Duration::from_mins(15);

/// containerd: the namespace of what the kubelet uses.
const NAMESPACE: (&str, &str) = ("containerd-namespace", "k8s.io");
/// containerd: the label by which its CRI part tells the kubelet that an image is pinned, and its value.
const PINNED: (&str, &str) = ("io.cri-containerd.pinned", "pinned");
/// containerd: the label of images that are pinned by this agent.
const OURS: (&str, &str) = (label::PINNED, "true");

/// The runtimes that can pin.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Containerd,
    CriO,
}

/// An image that the runtime has.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct RuntimeImage {
    /// Whether it tells the kubelet that the image is pinned.
    pub(super) pinned: bool,
}

/// Why something cannot be done with the runtime.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum RuntimeError {
    /// No socket is there.
    #[error(
        "no container runtime listens at {0}; start containerd or CRI-O, or name its socket in containerRuntimeEndpoint of the \
         kubelet's configuration"
    )]
    NoSocket(String),
    /// It cannot pin images.
    #[error("the container runtime {0} cannot pin images; containerd and CRI-O can")]
    Kind(String),
    /// A call failed.
    #[error(transparent)]
    Call(#[from] GrpcError),
    /// An answer is no message.
    #[error(transparent)]
    Malformed(#[from] Malformed),
}

impl RuntimeError {
    /// The connection is broken: another call would fail as well.
    pub(super) fn is_lost(&self) -> bool {
        matches!(self, Self::Call(GrpcError::Connection(_)))
    }

    /// There is no room left, so that nothing else can be pulled either.
    pub(super) fn is_no_space(&self) -> bool {
        matches!(self, Self::Call(GrpcError::Refused { message, .. }) if message.contains("no space left on device"))
    }
}

/// A connection to the runtime.
#[derive(Debug)]
pub(super) struct Runtime {
    channel: Channel,
    /// Which one it is.
    pub(super) kind: Kind,
    /// Its name and version.
    pub(super) version: String,
}

impl Runtime {
    /// Connects to the first of these sockets that is there.
    pub(super) async fn connect(sockets: &[PathBuf]) -> Result<Self, RuntimeError> {
        let Some(socket) = sockets.iter().find(|path| path.exists()) else {
            let all: Vec<_> = sockets.iter().map(|path| path.display().to_string()).collect();
            return Err(RuntimeError::NoSocket(all.join(" or ")));
        };
        Self::at(socket).await
    }

    async fn at(socket: &Path) -> Result<Self, RuntimeError> {
        let channel = Channel::connect(socket).await?;
        let asked = Message::default().text(1, "v1").finish();
        let answer = channel.call("/runtime.v1.RuntimeService/Version", &[], asked, CALL_LIMIT).await?;
        let (mut name, mut version) = (String::new(), String::new());
        for field in Fields::of(&answer) {
            match field? {
                (2, value) => name = value.text(),
                (3, value) => version = value.text(),
                _ => {}
            }
        }
        let version = format!("{name} {version}").trim().to_owned();
        let kind = match name.as_str() {
            "containerd" => Kind::Containerd,
            "cri-o" => Kind::CriO,
            _ => return Err(RuntimeError::Kind(version)),
        };
        Ok(Self { channel, kind, version })
    }

    /// The image, if the runtime has it.
    pub(super) async fn held(&self, image: &str) -> Result<Option<RuntimeImage>, RuntimeError> {
        let asked = Message::default().message(1, &Message::default().text(1, image)).finish();
        let answer =
            self.channel.call("/runtime.v1.ImageService/ImageStatus", &[], asked, CALL_LIMIT).await?;
        for field in Fields::of(&answer) {
            let (1, image) = field? else { continue };
            let mut held = RuntimeImage::default();
            for field in image.fields() {
                if let (8, value) = field? {
                    held.pinned = value == super::wire::Value::Number(1);
                }
            }
            return Ok(Some(held));
        }
        Ok(None)
    }

    /// Pulls the image. Dropping the call ends the pull.
    pub(super) async fn pull(&self, image: &str, with: Option<&Login>) -> Result<(), RuntimeError> {
        let mut asked = Message::default().message(1, &Message::default().text(1, image));
        if let Some(with) = with {
            asked = asked.message(2, &message(with));
        }
        let answer =
            self.channel.call("/runtime.v1.ImageService/PullImage", &[], asked.finish(), PULL).await?;
        let mut named = false;
        for field in Fields::of(&answer) {
            named |= matches!(field?, (1, value) if !value.text().is_empty());
        }
        match named {
            true => Ok(()),
            false => Err(GrpcError::Answer("it names no image".to_owned()).into()),
        }
    }

    /// The folder where images are kept, as the runtime says.
    pub(super) async fn images_folder(&self) -> Result<Option<String>, RuntimeError> {
        let answer =
            self.channel.call("/runtime.v1.ImageService/ImageFsInfo", &[], vec![], CALL_LIMIT).await?;
        for field in Fields::of(&answer) {
            let (1, usage) = field? else { continue };
            for field in usage.fields() {
                let (2, id) = field? else { continue };
                for field in id.fields() {
                    if let (1, folder) = field? {
                        return Ok(Some(folder.text()).filter(|f| f.starts_with('/')));
                    }
                }
            }
        }
        Ok(None)
    }

    /// containerd: whether it has fetched a layer, of whichever image.
    pub(super) async fn has_layer(&self, digest: &str) -> Result<bool, RuntimeError> {
        let asked = Message::default().text(1, digest).finish();
        let path = "/containerd.services.content.v1.Content/Info";
        match self.channel.call(path, &[NAMESPACE], asked, CALL_LIMIT).await {
            Ok(_) => Ok(true),
            Err(error @ GrpcError::Connection(_)) => Err(error.into()),
            Err(_) => Ok(false),
        }
    }

    /// containerd: pins an image, or takes our pin from it.
    pub(super) async fn label(&self, image: &str, pinned: bool) -> Result<(), RuntimeError> {
        let mut labelled = Message::default().text(1, &stored_name(image));
        let mut mask = Message::default();
        for (key, value) in [PINNED, OURS] {
            // An empty value removes a label.
            labelled = labelled.entry(2, key, if pinned { value } else { "" });
            mask = mask.text(1, &format!("labels.{key}"));
        }
        let asked = Message::default().message(1, &labelled).message(2, &mask).finish();
        let path = "/containerd.services.images.v1.Images/Update";
        match self.channel.call(path, &[NAMESPACE], asked, CALL_LIMIT).await {
            // It was removed meanwhile, and its labels with it.
            Err(error) if error.is_not_found() && !pinned => Ok(()),
            answer => answer.map(drop).map_err(Into::into),
        }
    }

    /// containerd: the images that are pinned by this agent.
    pub(super) async fn ours(&self) -> Result<Vec<String>, RuntimeError> {
        let (key, value) = OURS;
        let asked = Message::default().text(1, &format!("labels.\"{key}\"=={value}")).finish();
        let path = "/containerd.services.images.v1.Images/List";
        let answer = self.channel.call(path, &[NAMESPACE], asked, CALL_LIMIT).await?;
        let mut all = vec![];
        for field in Fields::of(&answer) {
            let (1, image) = field? else { continue };
            for field in image.fields() {
                if let (1, name) = field? {
                    all.push(name.text());
                    break;
                }
            }
        }
        Ok(all)
    }
}

/// The name under which containerd keeps an image: Docker's own images have a folder that users leave out.
pub(super) fn stored_name(image: &str) -> String {
    match ["docker.io/", "index.docker.io/"].iter().find_map(|host| image.strip_prefix(host)) {
        Some(rest) if !rest.contains('/') => format!("docker.io/library/{rest}"),
        Some(rest) => format!("docker.io/{rest}"),
        None => image.to_owned(),
    }
}

/// The sockets to try, best first, below the host's root folder. `annotation`: what kubeadm notes on the Node. `settings`: the
/// kubelet's configurations. `runtime`: `status.nodeInfo.containerRuntimeVersion` of the Node.
pub(super) fn sockets(
    root: &Path,
    annotation: Option<&str>,
    settings: &[String],
    runtime: &str,
) -> Vec<PathBuf> {
    let named = settings.iter().filter_map(|text| {
        let settings: serde_json::Value = api::formats::yaml::from_str(text).ok()?;
        settings.get("containerRuntimeEndpoint")?.as_str().map(str::to_owned)
    });
    let usual: &[&str] = match runtime.split(':').next() {
        Some("cri-o") => &["/run/crio/crio.sock"],
        _ => &[
            "/run/containerd/containerd.sock",
            "/run/k3s/containerd/containerd.sock",
            "/run/k0s/containerd.sock",
            "/run/crio/crio.sock",
        ],
    };
    let all = named.chain(annotation.map(str::to_owned)).chain(usual.iter().map(|path| (*path).to_owned()));
    let mut sockets: Vec<PathBuf> = vec![];
    for path in all {
        let path = path.strip_prefix("unix://").unwrap_or(&path);
        // /var/run is a link to /run, which would leave the host's root folder.
        let path = path.strip_prefix("/var").filter(|rest| rest.starts_with("/run/")).unwrap_or(path);
        let Some(relative) = path.strip_prefix('/') else { continue };
        let socket = root.join(relative);
        if !sockets.contains(&socket) {
            sockets.push(socket);
        }
    }
    sockets
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kubelets_own_socket_comes_first() {
        let root = Path::new("/rootfs");
        let settings =
            ["containerRuntimeEndpoint: unix:///var/run/crio/crio.sock".to_owned(), "a: b".to_owned()];
        let found = sockets(root, Some("unix:///run/other.sock"), &settings, "cri-o://1.33.1");
        assert_eq!(found, ["/rootfs/run/crio/crio.sock", "/rootfs/run/other.sock"].map(PathBuf::from));
        let found = sockets(
            Path::new("/"),
            Some("/run/k3s/containerd/containerd.sock"),
            &["- not a map".to_owned()],
            "",
        );
        assert_eq!(found[0], Path::new("/run/k3s/containerd/containerd.sock"));
        assert_eq!(found.len(), 4, "{found:?}");
        // A socket that is none of this host's files is not tried.
        assert!(sockets(root, Some("tcp://10.0.0.1:7000"), &[], "cri-o://1").len() == 1);
    }

    #[test]
    fn a_full_disk_is_told_from_other_failures() {
        let refused =
            |message: &str| RuntimeError::from(GrpcError::Refused { code: 2, message: message.to_owned() });
        assert!(refused("write /var/x: no space left on device: unknown").is_no_space());
        assert!(!refused("not found").is_no_space());
    }

    #[test]
    fn dockers_own_images_are_kept_under_their_whole_name() {
        for (image, want) in [
            ("docker.io/busybox@sha256:1", "docker.io/library/busybox@sha256:1"),
            ("docker.io/team/app@sha256:1", "docker.io/team/app@sha256:1"),
            ("registry.example.com/app@sha256:1", "registry.example.com/app@sha256:1"),
        ] {
            assert_eq!(stored_name(image), want);
        }
    }
}
