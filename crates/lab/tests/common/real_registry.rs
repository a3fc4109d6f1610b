//! A real registry for images that tests make: Debian's docker-registry, which the controller asks, and buildah, which pushes.
//!
//! Not here: the registries of virtual machines (`lab::vm`).
#![allow(dead_code, reason = "helpers; each test binary uses a part")]

use base64::Engine as _;
use serde_json::{Value, json};
use std::process::{Child, Command};
use std::time::Duration;

/// The label of a stream.
const CLASS: &str = "io.openshift.os.streamclass";

/// Debian's registry without TLS, and a store of buildah's to push from. Dropping it ends the registry.
pub(crate) struct Registry {
    child: Child,
    /// `HOST:PORT`.
    pub(crate) name: String,
    dir: tempfile::TempDir,
}

impl Drop for Registry {
    fn drop(&mut self) {
        let _ended = self.child.kill();
        let _reaped = self.child.wait();
    }
}

impl Registry {
    /// Starts it. `deletes`: whether it deletes images, which it does not by default.
    pub(crate) async fn start(deletes: bool) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let at = dir.path().display();
        let config = format!(
            "version: 0.1\nlog: {{level: error}}\nstorage: {{filesystem: {{rootdirectory: '{at}/data'}}, delete: {{enabled: {deletes}}}}}\n\
             http: {{addr: '127.0.0.1:{port}'}}\n"
        );
        std::fs::write(dir.path().join("config.yml"), config).unwrap();
        let log = std::fs::File::create(dir.path().join("log")).unwrap();
        let mut command = Command::new("docker-registry");
        let child = command
            .arg("serve")
            .arg(dir.path().join("config.yml"))
            .stdout(std::process::Stdio::null())
            .stderr(log)
            .spawn()
            .unwrap();
        for _ in 0..200 {
            if tokio::net::TcpStream::connect(("127.0.0.1", port)).await.is_ok() {
                break;
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        Self { child, name: format!("127.0.0.1:{port}"), dir }
    }

    fn buildah(&self, args: &[&str]) {
        let path = |name: &str| self.dir.path().join(name).display().to_string();
        let output = Command::new("buildah")
            .args(["--root", &path("store"), "--runroot", &path("run"), "--storage-driver", "vfs"])
            .args(args)
            .output()
            .unwrap();
        assert!(output.status.success(), "{args:?}: {}", String::from_utf8_lossy(&output.stderr));
    }

    /// Pushes an image with these labels and one file. Returns it by its digest.
    pub(crate) fn push(&self, name: &str, labels: &[(&str, &str)], file: (&str, &str)) -> String {
        self.push_files(name, labels, &[file])
    }

    /// The same with more files: path and content.
    pub(crate) fn push_files(&self, name: &str, labels: &[(&str, &str)], files: &[(&str, &str)]) -> String {
        let context = tempfile::tempdir().unwrap();
        let at = |name: &str| context.path().join(name).display().to_string();
        let mut text = "FROM scratch\n".to_owned();
        for (i, (path, content)) in files.iter().enumerate() {
            std::fs::write(context.path().join(format!("file{i}")), content).unwrap();
            text += &format!("ADD file{i} {path}\n");
        }
        text.extend(labels.iter().map(|(key, value)| format!("LABEL {key}={value}\n")));
        std::fs::write(context.path().join("Containerfile"), text).unwrap();
        let image = format!("{}/{name}", self.name);
        self.buildah(&["build", "--quiet", "--tag", &image, "--file", &at("Containerfile"), &at("")]);
        self.buildah(&["push", "--quiet", "--tls-verify=false", "--digestfile", &at("digest"), &image]);
        let digest = std::fs::read_to_string(context.path().join("digest")).unwrap();
        format!("{}@{}", image.rsplit_once(':').unwrap().0, digest.trim())
    }

    /// An OS image and its image of extensions.
    pub(crate) fn pair(&self, stream: &str, content: &str) -> [String; 2] {
        let name = |what: &str| format!("lab/{what}:{stream}");
        let os = [(CLASS, stream), ("containers.bootc", "1")];
        let extensions = [(CLASS, stream), ("io.openshift.os.extensions", "true")];
        [
            self.push(&name("os"), &os, ("/usr/lib/content", content)),
            self.push(&name("ext"), &extensions, ("/usr/lib/content", content)),
        ]
    }

    /// A config with which nodes, and the controller, talk to it without TLS.
    pub(crate) fn insecure(&self) -> Value {
        let conf = format!("[[registry]]\nlocation = \"{}\"\ninsecure = true\n", self.name);
        let data = base64::engine::general_purpose::STANDARD.encode(conf);
        json!({"ignition": {"version": "3.4.0"}, "storage": {"files": [{
            "path": "/etc/containers/registries.conf", "overwrite": true,
            "contents": {"source": format!("data:;base64,{data}")},
        }]}})
    }

    /// Whether it has an image.
    pub(crate) async fn has(&self, image: &str) -> bool {
        let settings = registry::Settings { insecure: true, ..registry::Settings::default() };
        let image = registry::Reference::parse(image).unwrap();
        registry::Registry::new(settings).digest_at_source(&image).await.unwrap().is_some()
    }
}
