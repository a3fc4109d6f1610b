//! Machines whose operating system is replaced as a whole: Debian 13 as an OSTree deployment, from container images in a
//! registry. GRUB boots them from the entries that OSTree writes.
//!
//! Flow: mmdebstrap makes a root file system → it becomes a tree in OSTree's layout → commits → images A, B and C → storage of
//! a registry. Image A is deployed into a system root, and that becomes a disk. The result of each step is cached. Debian has
//! no `ostree container`, so it is built from the crate `ostree-ext` (`lab/ostree-container`).
//!
//! Not here: what a test or the product does with such a machine.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use crate::control_plane::launch::{THIS_COMPUTER, free_port};
use crate::error::{Error, Result};
use crate::progress::Reporter;
use crate::system::cache::CacheStep;
use crate::system::command::run;
use crate::system::debian::bootstrap;
use crate::system::folder::Folder;
use crate::system::paths::{Environment, cargo_home, ostree_container};
use crate::system::process::Process;
use crate::vm::image::{DISK, DISK_LIMIT, MACHINE, PACKAGES, QUICK, VmImage, root_hook};
use crate::vm::qemu::{Bus, Firmware};
use crate::vm::ssh::Key;
use crate::vm::tools::{Programs, Tools, WORK};
use crate::vm::{grub, tools};

/// Building the crate and its 250 dependencies takes 3 minutes on two cores.
const BUILD_LIMIT: Duration = Duration::from_secs(40 * 60);
/// An initramfs and images of 140 MB, compressed, take 1 minute.
const IMAGES_LIMIT: Duration = Duration::from_secs(20 * 60);
const QUERY_LIMIT: Duration = Duration::from_secs(60);
/// How long a registry may take to listen.
const REGISTRY_LIMIT: Duration = Duration::from_secs(30);
const POLL: Duration = Duration::from_millis(100);

/// The packages that make images from OSTree commits, serve a registry, and build the crate. Their libraries are the machine's
/// versions.
const OSTREE: Programs<'_> = Programs {
    name: "tools-ostree",
    suite: "trixie",
    packages: &[
        "gcc",
        "libc6-dev",
        "make",
        "pkgconf",
        "libostree-dev",
        "libssl-dev",
        "libzstd-dev",
        "zlib1g-dev",
        "libglib2.0-dev",
        "ca-certificates",
        "ostree",
        "skopeo",
        "docker-registry",
    ],
};
/// The first version of GRUB that reads Boot Loader Specification entries (2.14).
const GRUB: Programs<'_> =
    Programs { name: "tools-grub", suite: "forky", packages: &["grub-pc-bin", "grub-common"] };

const SUITE: &str = "trixie";
/// Those that the machine has besides [`PACKAGES`].
const OWN_PACKAGES: [&str; 6] =
    ["ca-certificates", "linux-image-cloud-amd64", "dracut", "ostree", "ostree-boot", "skopeo"];
const ROOT: &str = include_str!("recipes/ostree-root.sh");
const TREE: &str = include_str!("recipes/ostree-tree.sh");
const IMAGES: &str = include_str!("recipes/ostree-images.sh");
const SYSROOT: &str = include_str!("recipes/ostree-sysroot.sh");
const GRUB_STAGES: &str = include_str!("recipes/ostree-grub.sh");
const DISK_RECIPE: &str = include_str!("recipes/ostree-disk.sh");

/// The image of an OSTree machine, and the registry's storage with its OS images.
#[derive(Debug, Clone)]
pub struct OstreeMachine {
    image: VmImage,
    ostree: Tools,
    images: PathBuf,
}

impl OstreeMachine {
    /// Makes what is not in the cache; all of it takes ten minutes.
    ///
    /// # Errors
    /// Not root, no mirror of Debian, no crates, or a step fails; the error has the end of its output.
    pub async fn ensure(progress: &Reporter) -> Result<Self> {
        let environment = Environment::read();
        let tools = Tools::ensure(&environment, progress).await?;
        let key = Key::ensure(tools.cache(), progress).await?;
        let ostree = tools.with(&OSTREE, progress).await?;
        let program = container_program(&ostree, progress).await?;
        let images = images(&ostree, &key, &program, progress).await?;
        let stages = stages(&tools, progress).await?;
        let names = [&images, &stages].map(|path| path.to_string_lossy().into_owned());
        let step = CacheStep {
            cache: tools.cache(),
            name: "disk-ostree",
            recipe: &[&names[0], &names[1], SYSROOT, DISK_RECIPE],
            telling: "deploying an OS image to a disk",
        };
        let disk = step
            .get(progress, async |part| {
                make(part)?;
                let program = ostree.inside(&program)?;
                let sysroot = format!("{WORK}/sysroot");
                let from = ostree.inside(&images)?;
                let command = ["sh", "-c", SYSROOT, "sh", &from, &sysroot, &program];
                ostree.run(part, command, DISK_LIMIT).await?;
                let disk = format!("{WORK}/{DISK}");
                tools.run(part, ["sh", "-c", DISK_RECIPE, "sh", &sysroot, &disk], DISK_LIMIT).await?;
                // OSTree sets the immutable attribute on deployments (chattr(1)).
                let remove =
                    ["sh", "-c", "chattr -R -i /work/sysroot; rm -rf /work/sysroot /work/sysroot.boot"];
                tools.run(part, remove, DISK_LIMIT).await?;
                grub::embed(&stages.join("boot.img"), &stages.join("core.img"), &part.join(DISK))
            })
            .await?;
        let (disk, firmware) = (disk.join(DISK), Firmware::Bios);
        let image = VmImage { disk, firmware, bus: Bus::Virtio, tools, key, carried: None };
        Ok(Self { image, ostree, images })
    }

    /// The disk, with image A deployed.
    #[must_use]
    pub fn image(&self) -> &VmImage {
        &self.image
    }

    /// Starts the registry with the images `lab/os:a`, `lab/os:b` and `lab/os:c`. It is read-only.
    ///
    /// # Errors
    /// It does not start.
    pub async fn registry(&self, folder: Arc<Folder>) -> Result<Registry> {
        let storage = format!("{}/registry", self.ostree.inside(&self.images)?);
        let more = "  maintenance: {readonly: {enabled: true}}\n";
        let dir = folder.make("registry")?;
        let on_disk = self.images.join("registry");
        Registry::begin("registry", (&storage, on_disk), more, dir, &self.ostree, folder).await
    }

    /// The programs that make images, and the folder of the images, with `registry` and `oci`.
    pub(super) fn image_tools(&self) -> (&Tools, &Path) {
        (&self.ostree, &self.images)
    }
}

/// A registry of OS images on this computer's loopback. Dropping it stops it.
#[derive(Debug)]
pub struct Registry {
    name: &'static str,
    port: u16,
    dir: PathBuf,
    storage: PathBuf,
    tools: Tools,
    /// `None` while it is stopped.
    process: Option<Process>,
    folder: Arc<Folder>,
}

impl Registry {
    /// Starts a registry. `storage`: its storage as the programs see it, and the same folder on this computer. `more`: lines of
    /// its config below `storage`. `dir`: the folder for its config and log.
    pub(super) async fn begin(
        name: &'static str,
        (storage, on_disk): (&str, PathBuf),
        more: &str,
        dir: PathBuf,
        tools: &Tools,
        folder: Arc<Folder>,
    ) -> Result<Self> {
        let port = free_port(IpAddr::V4(Ipv4Addr::LOCALHOST))?;
        let config = dir.join(format!("{name}.yml"));
        let text = format!(
            "version: 0.1\nlog: {{level: info}}\nhttp: {{addr: \"127.0.0.1:{port}\"}}\nstorage:\n  \
             filesystem: {{rootdirectory: {storage}}}\n{more}"
        );
        std::fs::write(&config, text).map_err(Error::io("write", &config))?;
        let mut registry =
            Self { name, port, dir, storage: on_disk, tools: tools.clone(), process: None, folder };
        registry.start().await?;
        Ok(registry)
    }

    /// The address on which it listens.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        (Ipv4Addr::LOCALHOST, self.port).into()
    }

    /// The reference that machines use for an image: `a`, `b`, or `c`, whose kubelet cannot start.
    #[must_use]
    pub fn reference(&self, tag: &str) -> String {
        format!("{THIS_COMPUTER}:{}/lab/os:{tag}", self.port)
    }

    /// The same reference, by digest.
    ///
    /// # Errors
    /// It has no such image.
    pub fn reference_by_digest(&self, tag: &str) -> Result<String> {
        let tags = "docker/registry/v2/repositories/lab/os/_manifests/tags";
        let link = self.storage.join(tags).join(tag).join("current/link");
        let digest = std::fs::read_to_string(&link).map_err(Error::io("read", &link))?;
        Ok(format!("{THIS_COMPUTER}:{}/lab/os@{}", self.port, digest.trim()))
    }

    /// The file on this computer with the bytes of a digest.
    #[must_use]
    pub fn blob(&self, digest: &str) -> PathBuf {
        let sum = digest.trim_start_matches("sha256:");
        let first = sum.get(..2).unwrap_or_default();
        self.storage.join("docker/registry/v2/blobs/sha256").join(first).join(sum).join("data")
    }

    /// Its log, which lists the requests.
    #[must_use]
    pub fn log(&self) -> PathBuf {
        self.dir.join(format!("{}.log", self.name))
    }

    /// Stops it at once, with all connections.
    pub fn stop(&mut self) {
        self.process = None;
    }

    /// Starts it on the same port, and waits until it listens.
    ///
    /// # Errors
    /// It does not start.
    pub async fn start(&mut self) -> Result<()> {
        let command = ["docker-registry", "serve", &format!("{WORK}/{}.yml", self.name)];
        let spec = self.tools.spec("docker-registry", &self.dir, &self.log(), command);
        let process = Process::spawn(spec, self.folder.path())?;
        let listening = async {
            while tokio::net::TcpStream::connect((Ipv4Addr::LOCALHOST, self.port)).await.is_err() {
                process.check()?;
                tokio::time::sleep(POLL).await;
            }
            Ok(())
        };
        match tokio::time::timeout(REGISTRY_LIMIT, listening).await {
            Ok(done) => done?,
            Err(_) => {
                return Err(Error::Timeout {
                    what: "the registry of OS images".to_owned(),
                    waited: REGISTRY_LIMIT,
                    detail: crate::system::process::tail(&self.log()),
                });
            }
        }
        self.process = Some(process);
        Ok(())
    }
}

fn make(folder: &Path) -> Result<()> {
    std::fs::create_dir(folder).map_err(Error::io("create", folder))
}

/// The program `ostree-container`, built with this computer's Rust and the machine's libraries.
async fn container_program(ostree: &Tools, progress: &Reporter) -> Result<PathBuf> {
    let source = ostree_container();
    let read = |name: &str| {
        let path = source.join(name);
        std::fs::read_to_string(&path).map_err(Error::io("read", &path))
    };
    let parts = [read("Cargo.toml")?, read("Cargo.lock")?, read("src/main.rs")?];
    let root = ostree.root().to_string_lossy();
    let step = CacheStep {
        cache: ostree.cache(),
        name: "ostree-container",
        recipe: &[&parts[0], &parts[1], &parts[2], &root],
        telling: "building ostree-container from crates",
    };
    let built = step
        .get(progress, async |part| {
            make(part)?;
            let manifest = source.join("Cargo.toml");
            run("cargo", ["fetch", "--locked", "--manifest-path", &manifest.to_string_lossy()], BUILD_LIMIT)
                .await?;
            let toolchain = run("rustc", ["--print", "sysroot"], QUERY_LIMIT).await?;
            let home = cargo_home();
            let binds: [(&Path, &str); 3] =
                [(Path::new(toolchain.trim()), "/rust"), (&home, "/cargo"), (&source, "/source")];
            let script = "PATH=/rust/bin:/usr/bin:/bin HOME=/root CARGO_HOME=/cargo CARGO_TARGET_DIR=/work/target \
                cargo build --manifest-path /source/Cargo.toml --release --locked --offline && \
                mv /work/target/release/ostree-container /work && rm -rf /work/target";
            ostree.run_with(part, &binds, ["sh", "-c", script], BUILD_LIMIT).await.map(drop)
        })
        .await?;
    Ok(built.join("ostree-container"))
}

/// The storage of a registry with the images, and A as a folder in OCI's layout.
async fn images(ostree: &Tools, key: &Key, program: &Path, progress: &Reporter) -> Result<PathBuf> {
    let packages = [&PACKAGES[..], &OWN_PACKAGES].concat();
    let package_list = packages.join(",");
    let step = CacheStep {
        cache: ostree.cache(),
        name: "root-ostree",
        recipe: &[SUITE, &package_list, MACHINE, ROOT, &key.public],
        telling: "building the root of the OSTree machine (Debian 13, mmdebstrap)",
    };
    let root = step
        .get(progress, async |part| bootstrap(SUITE, &packages, &root_hook(key, ROOT), part).await)
        .await?;
    let names = [root.to_string_lossy(), program.to_string_lossy()];
    let step = CacheStep {
        cache: ostree.cache(),
        name: "ostree-images",
        recipe: &[&names[0], &names[1], TREE, QUICK, IMAGES],
        telling: "making two OS images",
    };
    step.get(progress, async |part| {
        make(part)?;
        let (root, program) = (ostree.inside(&root)?, ostree.inside(program)?);
        let tree = format!("{WORK}/tree");
        let command = ["sh", "-c", TREE, "sh", &root, &tree, &program];
        ostree.run(part, command, IMAGES_LIMIT).await?;
        ostree.run(part, ["sh", "-c", QUICK, "sh", &format!("{tree}/usr")], IMAGES_LIMIT).await?;
        let port = free_port(IpAddr::V4(Ipv4Addr::LOCALHOST))?.to_string();
        let command = ["sh", "-c", IMAGES, "sh", &tree, WORK, &port];
        ostree.run(part, command, IMAGES_LIMIT).await?;
        let tree = part.join("tree");
        std::fs::remove_dir_all(&tree).map_err(Error::io("remove", &tree))
    })
    .await
}

/// Makes GRUB's two stages.
async fn stages(tools: &Tools, progress: &Reporter) -> Result<PathBuf> {
    let programs = tools.with(&GRUB, progress).await?;
    let root = programs.root().to_string_lossy();
    let step = CacheStep {
        cache: tools.cache(),
        name: "grub-stages",
        recipe: &[&root, GRUB_STAGES],
        telling: "making GRUB's stages",
    };
    step.get(progress, async |part| {
        make(part)?;
        let command = ["sh", "-c", GRUB_STAGES, "sh", tools::WORK];
        programs.run(part, command, DISK_LIMIT).await.map(drop)
    })
    .await
}
