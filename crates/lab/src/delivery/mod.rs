//! What is delivered, made from a built program: the container image, and ([`packages`]) the packages for hosts.
//!
//! `cargo xtask image` and the tests of pods both build it here. Flow: [`stage`](staging::stage) puts the image's files
//! into a folder, with modes that do not depend on the user who runs it → Debian's `buildah` makes an image from it
//! with `deploy/Containerfile` → an archive or a registry.
//!
//! Guarantees: the same program, templates, certificates and [`ImageRecipe`] give the same bytes: all times are
//! [`ImageRecipe::epoch`], all files belong to root, and they are in alphabetical order.
//!
//! The image in which OS images are built is made in `builder`.
//!
//! Not here: the build of the program. Images for the lab's own pods are written without buildah (`machine/image.rs`).

mod builder;
pub(crate) mod packages;
pub(crate) mod plugin;
mod staging;

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::error::{Error, Result};
use crate::system::command::{find_on_path, run};
pub use builder::{BUILDER_IMAGE, DebianPackage, builder_archive, builder_image};
use staging::stage;
pub use staging::{CERTIFICATES_IN_IMAGE, PROGRAM_IN_IMAGE, TEMPLATES_IN_IMAGE};

/// The time limit for copying some dozen megabytes on a slow disk, or for sending a layer to a slow registry.
const LIMIT: Duration = Duration::from_secs(600);

/// The inputs of an image.
#[derive(Debug, Clone)]
pub struct ImageRecipe {
    /// The folder with `deploy/Containerfile` and `templates`.
    pub repository: PathBuf,
    /// The program. If it is dynamically linked, its libraries are taken from this computer into the image.
    pub program: PathBuf,
    /// The image's name, such as `registry.example.com/mco:1.0`.
    pub name: String,
    /// The label `org.opencontainers.image.version`.
    pub version: String,
    /// The label `org.opencontainers.image.revision`.
    pub revision: String,
    /// The time of every file and of the image itself, in seconds since 1970 (`SOURCE_DATE_EPOCH`).
    pub epoch: u64,
    /// The image's architecture, as Go calls it: `amd64`, `arm64`.
    pub architecture: String,
}

/// An image in buildah's store, which is in the folder in which it was built.
#[derive(Debug)]
pub struct BuiltImage {
    folder: PathBuf,
    name: String,
    epoch: u64,
    /// The size of all files in bytes.
    size: u64,
    /// The size of the program in bytes.
    program: u64,
}

impl ImageRecipe {
    /// The recipe of tests: a program of this computer, and nothing that changes from commit to commit.
    #[must_use]
    pub fn for_tests(repository: &Path, program: &Path, name: &str) -> Self {
        Self {
            repository: repository.to_owned(),
            program: program.to_owned(),
            name: name.to_owned(),
            version: "0".to_owned(),
            revision: "test".to_owned(),
            epoch: 0,
            architecture: architecture(std::env::consts::ARCH).to_owned(),
        }
    }

    /// Builds the image. `folder` gets the staged files (`root`) and buildah's store, and must be on a file system that
    /// has room for four copies of the program.
    ///
    /// # Errors
    /// buildah or the Debian package `ca-certificates` is missing, a file cannot be read, or buildah fails.
    pub async fn build(&self, folder: &Path) -> Result<BuiltImage> {
        if find_on_path("buildah").is_none() {
            return Err(Error::Options(
                "buildah is not on the PATH, and it makes the image: run `apt-get install buildah` (Debian 12 or newer, \
                 Ubuntu 22.04 or newer)"
                    .to_owned(),
            ));
        }
        let root = folder.join("root");
        let staged = stage(self, &root).await?;
        let image = BuiltImage {
            folder: folder.to_owned(),
            name: self.name.clone(),
            epoch: self.epoch,
            size: staged.total,
            program: staged.program,
        };
        let file = self.repository.join("deploy/Containerfile").to_string_lossy().into_owned();
        let context = folder.to_string_lossy().into_owned();
        let (version, revision) =
            (format!("VERSION={}", self.version), format!("REVISION={}", self.revision));
        let epoch = self.epoch.to_string();
        let store = image.store();
        let mut args: Vec<&str> = store.iter().map(String::as_str).collect();
        // This works without user namespaces and where overlays cannot be nested, as in a CI container.
        args.extend([
            "build",
            "--isolation",
            "chroot",
            "--layers=false",
            "--identity-label=false",
            "--quiet",
        ]);
        args.extend(["--timestamp", &epoch, "--arch", &self.architecture, "--build-arg", "ROOT=root"]);
        args.extend(["--build-arg", &version, "--build-arg", &revision]);
        args.extend(["--tag", &self.name, "--file", &file, &context]);
        run("buildah", args, LIMIT).await?;
        Ok(image)
    }
}

/// The product's image in the lab.
pub const PRODUCT_IMAGE: &str = "lab.invalid/mco:1";

/// The archive of [`PRODUCT_IMAGE`] in `folder`, with this program and with these templates; nodes import it.
///
/// # Errors
/// As [`ImageRecipe::build`]. Root is needed, and buildah is installed if it is missing.
pub async fn product_image(program: &Path, templates: &Path, folder: &Path) -> Result<PathBuf> {
    if find_on_path("buildah").is_none() {
        crate::system::packages::ensure_test_packages(&crate::progress::Reporter::stderr()).await?;
    }
    let repository = templates.parent().unwrap_or(templates);
    let image = ImageRecipe::for_tests(repository, program, PRODUCT_IMAGE).build(folder).await?;
    let archive = folder.join("mco.docker.tar");
    image.save_docker(&archive).await?;
    Ok(archive)
}

/// Go's name of an architecture, which images use, from Rust's name.
#[must_use]
pub fn architecture(rust: &str) -> &str {
    match rust {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    }
}

impl BuiltImage {
    /// The size of all files in the image, in bytes.
    #[must_use]
    pub fn size(&self) -> u64 {
        self.size
    }

    /// The size of the program in the image, in bytes.
    #[must_use]
    pub fn program_size(&self) -> u64 {
        self.program
    }

    /// The arguments that tell buildah where the store is.
    fn store(&self) -> [String; 6] {
        let part = |name: &str| self.folder.join("store").join(name).to_string_lossy().into_owned();
        ["--root", &part("graph"), "--runroot", &part("run"), "--storage-driver", "vfs"].map(str::to_owned)
    }

    /// Copies the image to `to`, a name as in containers-transports(5). Returns the digest of its manifest there.
    async fn copy(&self, to: &str) -> Result<String> {
        let digest = self.folder.join("digest");
        let digest_text = digest.to_string_lossy().into_owned();
        let store = self.store();
        let mut args: Vec<&str> = store.iter().map(String::as_str).collect();
        args.extend(["push", "--quiet", "--digestfile", &digest_text, &self.name, to]);
        run("buildah", args, LIMIT).await?;
        let text = fs::read_to_string(&digest).map_err(Error::io("read", &digest))?;
        Ok(text.trim().to_owned())
    }

    /// Writes an OCI archive with a compressed layer: the same bytes as in a registry. Returns the digest of the
    /// manifest, by which a registry knows the image.
    ///
    /// # Errors
    /// buildah or tar fails, or the archive cannot be written.
    pub async fn save_oci(&self, archive: &Path) -> Result<String> {
        let layout = self.folder.join("oci");
        if layout.exists() {
            fs::remove_dir_all(&layout).map_err(Error::io("remove", &layout))?;
        }
        let digest = self.copy(&format!("oci:{}:{}", layout.display(), self.name)).await?;
        // tar packs it, because buildah's own archives contain the time at which they were written.
        let (from, to) = (layout.to_string_lossy(), archive.to_string_lossy());
        let time = format!("--mtime=@{}", self.epoch);
        let fixed = ["--sort=name", "--owner=0", "--group=0", "--numeric-owner", "--format=ustar"];
        let mode = "--mode=u=rwX,go=rX";
        let args = fixed.into_iter().chain([mode, &time, "-C", &from, "-cf", &to, "."]);
        run("tar", args, LIMIT).await?;
        Ok(digest)
    }

    /// Writes an archive in Docker's format, which `ctr images import` and `docker load` read together with the image's
    /// name.
    ///
    /// # Errors
    /// buildah fails, or the archive cannot be written.
    pub async fn save_docker(&self, archive: &Path) -> Result<()> {
        if archive.exists() {
            // buildah would add to an existing archive.
            fs::remove_file(archive).map_err(Error::io("remove", archive))?;
        }
        self.copy(&format!("docker-archive:{}:{}", archive.display(), self.name)).await.map(drop)
    }

    /// Sends it to a registry; returns the digest of the manifest there. The credentials are those that `buildah login`
    /// or `docker login` has stored.
    ///
    /// # Errors
    /// The registry refuses, or does not answer.
    pub async fn push(&self, reference: &str) -> Result<String> {
        self.copy(&format!("docker://{reference}")).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_context_lets_through_is_the_staged_folder_alone() {
        let repository = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let read = |name: &str| fs::read_to_string(repository.join(name)).unwrap();
        let containerfile = read("deploy/Containerfile");
        let root = containerfile.lines().find_map(|line| line.strip_prefix("ARG ROOT=")).unwrap().to_owned();
        let ignore = read(".dockerignore");
        let lines: Vec<&str> = ignore.lines().filter(|line| !line.starts_with('#')).collect();
        assert_eq!(lines, ["*", &format!("!{root}")]);
        assert!(containerfile.contains(&format!("ENTRYPOINT [\"/{PROGRAM_IN_IMAGE}\"]")), "{containerfile}");
    }

    /// Debian's registry, by HTTPS with a certificate that buildah finds where administrators put such.
    struct Registry {
        child: std::process::Child,
        name: String,
        trusted: PathBuf,
    }

    impl Drop for Registry {
        fn drop(&mut self) {
            let _gone = fs::remove_dir_all(&self.trusted);
            let _ended = self.child.kill();
            let _reaped = self.child.wait();
        }
    }

    /// The password `open-sesame` of the user `lab` (bcrypt), as htpasswd writes it.
    const PASSWORDS: &str = "lab:$2y$05$abcdefghijklmnopqrstuutXu9KzOt.1yBoZUeFWoT/914/JfszCO\n";

    /// Starts a registry; a `closed` one asks for a password.
    async fn registry(dir: &Path, closed: bool) -> Registry {
        let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let made = rcgen::generate_simple_self_signed(["127.0.0.1".to_owned()]).unwrap();
        fs::write(dir.join("tls.crt"), made.cert.pem()).unwrap();
        fs::write(dir.join("tls.key"), made.signing_key.serialize_pem()).unwrap();
        let at = dir.display();
        let config = format!(
            "version: 0.1\nlog: {{level: error}}\nstorage: {{filesystem: {{rootdirectory: '{at}/data'}}}}\n\
             http: {{addr: '127.0.0.1:{port}', tls: {{certificate: '{at}/tls.crt', key: '{at}/tls.key'}}}}\n"
        );
        fs::write(dir.join("passwords"), PASSWORDS).unwrap();
        let closed = format!("auth: {{htpasswd: {{realm: lab, path: '{at}/passwords'}}}}\n")
            .repeat(usize::from(closed));
        fs::write(dir.join("config.yml"), config + &closed).unwrap();
        let name = format!("127.0.0.1:{port}");
        let trusted = Path::new("/etc/containers/certs.d").join(&name);
        fs::create_dir_all(&trusted).unwrap();
        fs::copy(dir.join("tls.crt"), trusted.join("ca.crt")).unwrap();
        let mut command = std::process::Command::new("docker-registry");
        command.arg("serve").arg(dir.join("config.yml")).stderr(fs::File::create(dir.join("log")).unwrap());
        let registry = Registry { child: command.spawn().unwrap(), name, trusted };
        for _ in 0..200 {
            if tokio::net::TcpStream::connect(("127.0.0.1", port)).await.is_ok() {
                return registry;
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        panic!("the registry does not listen: {}", fs::read_to_string(dir.join("log")).unwrap());
    }

    #[tokio::test]
    async fn an_image_is_sent_to_a_registry_and_comes_back_by_its_digest() {
        if !crate::testing::require_root() {
            return;
        }
        crate::system::packages::ensure_test_packages(&crate::progress::Reporter::stderr()).await.unwrap();
        let dir = tempfile::tempdir().unwrap();
        let registry = registry(dir.path(), false).await;
        let repository = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let recipe = ImageRecipe::for_tests(&repository, Path::new("/bin/true"), "lab.invalid/mco:1");
        let folder = dir.path().join("image");
        fs::create_dir_all(&folder).unwrap();
        let image = recipe.build(&folder).await.unwrap();
        let digest = image.push(&format!("{}/team/mco:1.0", registry.name)).await.unwrap();
        assert_eq!(digest, image.save_oci(&folder.join("oci.tar")).await.unwrap(), "as the archive's");
        let copy = format!("docker://{}/team/mco@{digest}", registry.name);
        let mut store: Vec<String> = image.store().to_vec();
        store.extend(["pull".to_owned(), "--quiet".to_owned(), copy]);
        run("buildah", store, LIMIT).await.unwrap();
        let refused = image.push(&format!("{}/team/mco:1.0", "127.0.0.1:1")).await.unwrap_err().to_string();
        assert!(refused.contains("127.0.0.1:1"), "{refused}");
    }

    #[tokio::test]
    async fn an_image_is_looked_into_at_a_registry_that_asks_for_a_password() {
        use ::registry::{Reference, RegistryError, RequestFailure, Settings};
        if !crate::testing::require_root() {
            return;
        }
        crate::system::packages::ensure_test_packages(&crate::progress::Reporter::stderr()).await.unwrap();
        let dir = tempfile::tempdir().unwrap();
        let repository = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let recipe = ImageRecipe::for_tests(&repository, Path::new("/bin/true"), "lab.invalid/mco:1");
        let folder = dir.path().join("image");
        fs::create_dir_all(&folder).unwrap();
        let image = recipe.build(&folder).await.unwrap();
        let open = registry(dir.path(), false).await;
        let digest = image.push(&format!("{}/team/mco:1.0", open.name)).await.unwrap();
        drop(open);
        let closed = registry(dir.path(), true).await;
        let at = Reference::parse(&format!("{}/team/mco:1.0", closed.name)).unwrap();
        let settings = |login: Option<&str>| {
            let mut settings = Settings::default();
            settings.trust.add(Some(&closed.name), &fs::read(dir.path().join("tls.crt")).unwrap());
            if let Some(login) = login {
                use base64::Engine as _;
                let login = base64::engine::general_purpose::STANDARD.encode(login);
                let file = format!("{{\"auths\": {{\"{}\": {{\"auth\": \"{login}\"}}}}}}", closed.name);
                settings.credentials.add(file.as_bytes()).unwrap();
            }
            settings
        };
        let look = ::registry::Registry::new(settings(Some("lab:open-sesame")));
        let facts = look.inspect(&at, None).await.unwrap();
        assert_eq!(facts.image, format!("{}/team/mco@{digest}", closed.name));
        assert_eq!(facts.bootable_by, None);
        let program = look.file(&at, None, &format!("/{PROGRAM_IN_IMAGE}")).await.unwrap();
        assert!(program == fs::read("/bin/true").unwrap(), "the program has {} other bytes", program.len());
        for (login, sent) in [(None, false), (Some("lab:wrong"), true)] {
            match ::registry::Registry::new(settings(login)).inspect(&at, None).await {
                Err(RegistryError::Failed { tried, .. }) => {
                    assert_eq!(tried[0].1, RequestFailure::Denied { sent });
                }
                other => panic!("{other:?}"),
            }
        }
        let missing = Reference::parse(&format!("{}/team/mco:2.0", closed.name)).unwrap();
        let why = look.inspect(&missing, None).await.unwrap_err();
        assert!(why.to_string().contains("does not have the image") && !why.is_temporary(), "{why}");
    }

    #[tokio::test]
    async fn the_same_files_give_the_same_image_whenever_and_wherever_it_is_built() {
        if !crate::testing::require_root() {
            return;
        }
        crate::system::packages::ensure_test_packages(&crate::progress::Reporter::stderr()).await.unwrap();
        let repository = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        // This program is dynamically linked.
        let recipe = ImageRecipe::for_tests(&repository, Path::new("/bin/true"), "lab.invalid/mco:1");
        let mut made = vec![];
        for umask in [0o022, 0o077] {
            let dir = tempfile::tempdir().unwrap();
            let before = rustix::process::umask(rustix::fs::Mode::from_raw_mode(umask));
            let image = recipe.build(dir.path()).await.unwrap();
            let (oci, docker) = (dir.path().join("oci.tar"), dir.path().join("docker.tar"));
            let digest = image.save_oci(&oci).await.unwrap();
            image.save_docker(&docker).await.unwrap();
            rustix::process::umask(before);
            assert!(digest.starts_with("sha256:"), "{digest}");
            // So that the modification times of the two builds differ: images store whole seconds.
            tokio::time::sleep(Duration::from_millis(1100)).await;
            made.push((digest, fs::read(oci).unwrap(), fs::read(docker).unwrap(), image.size()));
        }
        let (one, two) = (&made[0], &made[1]);
        assert_eq!((&one.0, one.3), (&two.0, two.3));
        assert!(one.1 == two.1 && one.2 == two.2, "the archives differ");
        // With another program it is another image.
        let other = ImageRecipe { program: PathBuf::from("/bin/false"), ..recipe };
        let dir = tempfile::tempdir().unwrap();
        let digest =
            other.build(dir.path()).await.unwrap().save_oci(&dir.path().join("a.tar")).await.unwrap();
        assert_ne!(digest, one.0);
    }
}
