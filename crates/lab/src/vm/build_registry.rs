//! A registry for OS images that are built in a cluster: builds push to it, and machines and later builds pull from it.
//!
//! Two registry programs serve the same storage: machines read from one, and the pods of builds push to the other with a
//! password. In front of each is a proxy that cuts every connection after some megabytes, as bad networks do.
//!
//! Both have the same name: [`crate::VirtualMachine`]s reach this computer by the address of qemu's user network, and the lab's
//! nodes redirect traffic for that address to the second proxy ([`BuildRegistry::let_in`]).
//!
//! It also has an image that nobody has signed, and a key to sign others with.
//!
//! Not here: the images of the machines themselves (`ostree`).

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use crate::control_plane::launch::THIS_COMPUTER;
use crate::error::{Error, Result};
use crate::machine::handle::NodeHandle;
use crate::progress::Reporter;
use crate::proxy::fault_proxy::{Fault, FaultProxy};
use crate::system::cache::CacheStep;
use crate::system::command::run;
use crate::system::folder::Folder;
use crate::vm::ostree::{OstreeMachine, Registry};
use crate::vm::tools::{Programs, WORK};

/// The packages that the base image of builds has in addition to image A, and the script that composes it.
const BASE: Programs<'_> =
    Programs { name: "tools-image-mode", suite: "trixie", packages: &["jq", "ignition", "ca-certificates"] };
const COMPOSE: &str = include_str!("recipes/ostree-base.sh");
/// The time limit for copying and hashing 140 MB.
const COMPOSE_LIMIT: Duration = Duration::from_secs(600);
/// The user name and the password for pushes.
const CREDENTIALS: [&str; 2] = ["builder", "lab"];
/// The same credentials in the registry's file (bcrypt).
const HTPASSWD: &str = "builder:$2b$04$BmhAG0YlrLSVM0f6SzcxJ.4l2GKlAaba9HsswyTs4ox5nHwT5QAti\n";
/// An image that nobody has signed, in the repository that builds push to.
const UNSIGNED: &str = "team/os:unsigned";
/// The bytes after which connections are cut: those of builds, and those of machines, which pull less.
const CUTS: [u64; 2] = [20_000_000, 5_000_000];

/// The registry of builds. Dropping it stops it.
#[derive(Debug)]
pub struct BuildRegistry {
    of_machines: FaultProxy,
    of_builds: FaultProxy,
    base: String,
    key: SigningKey,
    _open: Registry,
    _locked: Registry,
}

/// A key of sigstore that images are signed with.
#[derive(Debug, Clone)]
pub struct SigningKey {
    /// The private key, encrypted.
    pub private: String,
    /// What it is encrypted with.
    pub passphrase: &'static str,
    /// The public key.
    pub public: String,
}

/// Odd enough to be found wherever it should not be.
const PASSPHRASE: &str = "lab-passphrase-7c1f";

impl OstreeMachine {
    /// Starts a registry that accepts pushes and already holds the base image of builds. `bridge`: this computer's address on
    /// the lab's bridge.
    ///
    /// # Errors
    /// No mirror of Debian, or a program does not start.
    pub async fn build_registry(
        &self,
        bridge: IpAddr,
        folder: Arc<Folder>,
        progress: &Reporter,
    ) -> Result<BuildRegistry> {
        let (tools, images) = self.image_tools();
        let oci = self.build_base(progress).await?;
        let dir = folder.make("build-registry")?;
        let data = dir.join("data");
        // The registry replaces files and never changes them in place, so hard links are as good as copies.
        let from = images.join("registry");
        let copy = ["-al", &from.to_string_lossy(), &data.to_string_lossy()].map(str::to_owned);
        if run("cp", &copy, COMPOSE_LIMIT).await.is_err() {
            let copy = ["-a", &from.to_string_lossy(), &data.to_string_lossy()].map(str::to_owned);
            run("cp", &copy, COMPOSE_LIMIT).await?;
        }
        let write = |name: &str, text: &str| {
            let path = dir.join(name);
            std::fs::write(&path, text).map_err(Error::io("write", &path))
        };
        write("htpasswd", HTPASSWD)?;
        let storage = format!("{WORK}/data");
        let locked = format!("auth: {{htpasswd: {{realm: lab, path: {WORK}/htpasswd}}}}\n");
        let open = Registry::begin(
            "open",
            (&storage, dir.join("data")),
            "",
            dir.clone(),
            tools,
            Arc::clone(&folder),
        )
        .await?;
        let locked = Registry::begin(
            "locked",
            (&storage, dir.join("data")),
            &locked,
            dir.clone(),
            tools,
            Arc::clone(&folder),
        )
        .await?;
        let to = format!("docker://{}/lab/os:base", open.address());
        let from = format!("oci:{}/oci:base", tools.inside(&oci)?);
        let push = ["skopeo", "copy", "--quiet", "--insecure-policy", "--dest-tls-verify=false", &from, &to];
        tools.run(&dir, push, COMPOSE_LIMIT).await?;
        let unsigned = format!("docker://{}/{UNSIGNED}", open.address());
        let tls = ["--src-tls-verify=false", "--dest-tls-verify=false"];
        let copy = ["skopeo", "copy", "--quiet", "--insecure-policy", tls[0], tls[1], &to, &unsigned];
        tools.run(&dir, copy, COMPOSE_LIMIT).await?;
        write("passphrase", PASSPHRASE)?;
        let [prefix, file] = ["signing", "passphrase"].map(|name| format!("{WORK}/{name}"));
        let make =
            ["skopeo", "generate-sigstore-key", "--output-prefix", &prefix, "--passphrase-file", &file];
        tools.run(&dir, make, COMPOSE_LIMIT).await?;
        let read = |name: &str| {
            let path = dir.join(name);
            std::fs::read_to_string(&path).map_err(Error::io("read", &path))
        };
        let key = SigningKey {
            private: read("signing.private")?,
            passphrase: PASSPHRASE,
            public: read("signing.pub")?,
        };
        let of_machines = FaultProxy::start(Ipv4Addr::LOCALHOST.into(), open.address()).await?;
        let of_builds = FaultProxy::start(bridge, locked.address()).await?;
        of_builds.set(Fault::CutAfter(CUTS[0]));
        of_machines.set(Fault::CutAfter(CUTS[1]));
        let base = digest(&oci)?;
        Ok(BuildRegistry { of_machines, of_builds, base, key, _open: open, _locked: locked })
    }

    /// Makes the base image, as a folder with `oci`.
    pub(super) async fn build_base(&self, progress: &Reporter) -> Result<PathBuf> {
        let (tools, images) = self.image_tools();
        let composer = tools.with(&BASE, progress).await?;
        let names = [images, composer.root()].map(|path| path.to_string_lossy().into_owned());
        let step = CacheStep {
            cache: tools.cache(),
            name: "ostree-base",
            recipe: &[&names[0], &names[1], COMPOSE],
            telling: "making the base of OS images that are built",
        };
        step.get(progress, async |part| {
            std::fs::create_dir(part).map_err(Error::io("create", part))?;
            let from = format!("{}/oci", composer.inside(images)?);
            let command = ["bash", "-c", COMPOSE, "bash", &from, WORK];
            composer.run(part, command, COMPOSE_LIMIT).await.map(drop)
        })
        .await
    }
}

impl BuildRegistry {
    /// `HOST:PORT`, for machines and, after [`BuildRegistry::let_in`], for the pods of a node.
    #[must_use]
    pub fn host(&self) -> String {
        format!("{THIS_COMPUTER}:{}", self.of_machines.address().port())
    }

    /// The reference of the base image, by digest.
    #[must_use]
    pub fn base(&self) -> String {
        format!("{}/lab/os@{}", self.host(), self.base)
    }

    /// An image that nobody has signed, in the repository [`BuildRegistry::repository`].
    #[must_use]
    pub fn unsigned(&self) -> String {
        format!("{}/{UNSIGNED}", self.host())
    }

    /// The repository for builds.
    #[must_use]
    pub fn repository(&self) -> String {
        let name = UNSIGNED.rsplit_once(':').map_or(UNSIGNED, |(name, _)| name);
        format!("{}/{name}", self.host())
    }

    /// The key for images.
    #[must_use]
    pub fn key(&self) -> &SigningKey {
        &self.key
    }

    /// The user name and the password for pushes.
    #[must_use]
    pub fn credentials(&self) -> [&'static str; 2] {
        CREDENTIALS
    }

    /// The proxies: of machines, and of builds.
    #[must_use]
    pub fn proxies(&self) -> [&FaultProxy; 2] {
        [&self.of_machines, &self.of_builds]
    }

    /// Lets the pods of a node reach the registry under the name that machines use for it.
    ///
    /// # Errors
    /// The node is down, or has no iptables.
    pub async fn let_in(&self, node: &NodeHandle) -> Result<()> {
        let port = self.of_machines.address().port().to_string();
        let to: SocketAddr = self.of_builds.address();
        let script = format!(
            "iptables -t nat -A PREROUTING -d {THIS_COMPUTER} -p tcp --dport {port} -j DNAT --to-destination {to} && \
             iptables -t nat -A POSTROUTING -d {} -p tcp --dport {} -j MASQUERADE",
            to.ip(),
            to.port()
        );
        node.run(["sh", "-c", &script]).await.map(drop)
    }
}

/// The digest of the only image in a folder of OCI's layout.
fn digest(folder: &Path) -> Result<String> {
    let path = folder.join("oci/index.json");
    let text = std::fs::read_to_string(&path).map_err(Error::io("read", &path))?;
    let index: serde_json::Value = serde_json::from_str(&text).unwrap_or_default();
    let digest = index["manifests"][0]["digest"].as_str().map(str::to_owned);
    digest.ok_or_else(|| Error::Options(format!("{} names no image", path.display())))
}
