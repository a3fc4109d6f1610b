//! `mco image build` and `mco image inspect` on a computer without a cluster: the real buildah, the base of the lab's machines, and
//! Debian's registry. No machine is booted.
//!
//! Not here: what becomes of such an image on a machine (`built`): Containerfile and context are those of a Job.

use std::process::{Command, Output};
use std::sync::Arc;

use lab::{BuildRegistry, Environment, Fault, Folder, OstreeMachine, Reporter};
use serde_json::{Value, json};

use crate::product::program;
use crate::timed;

const POOL: &str = "imaged";
const CONTAINERFILE: &str = "FROM configs AS final\n\
    RUN dpkg --admindir=/usr/lib/sysimage/dpkg -i /usr/src/hello.deb && ostree container commit\n";

/// A computer with manifests, and a store of images of its own.
struct Laptop {
    registry: BuildRegistry,
    dir: tempfile::TempDir,
}

impl Laptop {
    fn path(&self, name: &str) -> String {
        self.dir.path().join(name).display().to_string()
    }

    /// The registry, without faults.
    fn host(&self) -> String {
        self.registry.proxies()[0].address().to_string()
    }

    fn write(&self, name: &str, text: &str) -> String {
        std::fs::write(self.dir.path().join(name), text).unwrap();
        self.path(name)
    }

    fn mco(&self, path: Option<&str>, args: &[&str]) -> Output {
        let mut command = Command::new(program());
        command.args(args).env("CONTAINERS_STORAGE_CONF", self.path("storage.conf"));
        command.env("BUILDAH_ISOLATION", "chroot").env("HOME", self.dir.path());
        if let Some(path) = path {
            command.env("PATH", path);
        }
        command.output().unwrap()
    }

    fn build(&self, more: &[&str]) -> Output {
        let manifests = self.path("manifests");
        let fixed = ["image", "build", "-f", &manifests, "--with", "buildah", "--insecure"];
        self.mco(None, &[&fixed, more].concat())
    }

    /// The command is refused with these words.
    fn refuses(&self, output: &Output, words: &[&str]) {
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success(), "{said}");
        words.iter().for_each(|word| assert!(said.contains(word), "not {word:?}: {said}"));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_image_is_built_and_looked_into_without_a_cluster() {
    if !lab::require_root() {
        return;
    }
    let progress = Reporter::stderr();
    let machine = OstreeMachine::ensure(&progress).await.unwrap();
    lab::ensure_test_packages(&progress).await.unwrap();
    let folder = Arc::new(Folder::create(&Environment::read()).unwrap());
    let here = std::net::Ipv4Addr::LOCALHOST.into();
    let registry = machine.build_registry(here, folder, &progress).await.unwrap();
    // Debian 12's buildah does not go on with a pull that was cut.
    registry.proxies()[0].set(Fault::None);
    let laptop = Laptop { registry, dir: tempfile::tempdir().unwrap() };
    let store = format!(
        "[storage]\ndriver = \"overlay\"\ngraphroot = \"{}\"\nrunroot = \"{}\"\n",
        laptop.path("store"),
        laptop.path("run")
    );
    laptop.write("storage.conf", &store);
    std::fs::create_dir(laptop.dir.path().join("manifests")).unwrap();
    let base = laptop.registry.base().replace(&laptop.registry.host(), &laptop.host());
    let config = json!({
        "apiVersion": "machineconfiguration.openshift.io/v1", "kind": "MachineConfig",
        "metadata": {"name": "50-imaged", "labels": {"machineconfiguration.openshift.io/role": POOL}},
        "spec": {"osImageURL": base, "config": {"ignition": {"version": "3.4.0"}, "storage": {"files": [
            {"path": "/etc/lab-file", "mode": 0o644, "contents": {"source": "data:,of%20the%20pool"}}]}}},
    });
    let image = format!("{}/team/os:laptop", laptop.host());
    let os_config = |text: &str| {
        json!({
            "apiVersion": "machineconfiguration.openshift.io/v1", "kind": "MachineOSConfig", "metadata": {"name": POOL},
            "spec": {
                "machineConfigPool": {"name": POOL}, "imageBuilder": {"imageBuilderType": "Job"},
                "renderedImagePushSecret": {"name": "push"}, "renderedImagePushSpec": image,
                "containerFile": [{"content": text}],
            },
        })
        .to_string()
    };
    laptop.write("manifests/config.json", &config.to_string());

    // What is wrong is said before anything is pulled.
    laptop.refuses(&laptop.build(&[]), &["MachineOSConfig", "--pool"]);
    laptop.refuses(&laptop.build(&["--pool", POOL]), &["--tag"]);
    laptop.refuses(&laptop.build(&["--pool", "other", "--tag", "x"]), &["other"]);
    laptop.write("manifests/os.json", &os_config("FROM configs AS final\nRAN true\n"));
    laptop.refuses(&laptop.build(&[]), &["line 2 of the Containerfile", "RAN"]);
    laptop.write("manifests/os.json", &os_config(CONTAINERFILE));
    let nowhere = laptop.mco(Some("/nowhere"), &["image", "build", "-f", &laptop.path("manifests")]);
    laptop.refuses(&nowhere, &["buildah is not on the PATH", "install the package"]);

    let failing = laptop.write("Failing", "FROM configs AS final\nRUN echo the cause && false\n");
    let failed = timed("a build that fails", async { laptop.build(&["--containerfile", &failing]) }).await;
    laptop.refuses(&failed, &["buildah build: exit status"]);
    let shown = [failed.stdout, failed.stderr].concat();
    assert!(String::from_utf8_lossy(&shown).contains("the cause"), "what buildah says is for people");

    let built =
        timed("a build, with the layers of before, and its push", async { laptop.build(&["--push"]) }).await;
    let said = String::from_utf8_lossy(&built.stderr);
    assert!(built.status.success(), "{said}");
    let out = String::from_utf8(built.stdout).unwrap();
    let by_digest = out.lines().last().unwrap();
    assert!(by_digest.starts_with(&image.replace(":laptop", "@sha256:")), "{out}");

    let looked = laptop.mco(None, &["image", "inspect", by_digest, "--insecure", "-o", "json"]);
    assert!(looked.status.success(), "{looked:?}");
    let facts: Value = serde_json::from_slice(&looked.stdout).unwrap();
    assert_eq!(facts["image"], by_digest);
    assert!(facts["bootableBy"].is_string(), "{facts}");
    assert_eq!(facts["labels"]["machineconfigpool"], POOL);
    assert_eq!(facts["labels"]["baseOSContainerImage"], base);
    let text = laptop.mco(None, &["image", "inspect", &image, "--insecure"]);
    assert!(String::from_utf8_lossy(&text.stdout).contains(by_digest), "{text:?}");
    let none = laptop.mco(None, &["image", "inspect", &image.replace("laptop", "none"), "--insecure"]);
    laptop.refuses(&none, &["team/os:none"]);

    // It was built; the registry takes it no more.
    laptop.registry.proxies()[0].set(Fault::Cut);
    laptop.refuses(&laptop.build(&["--push"]), &["buildah push: exit status"]);
}
