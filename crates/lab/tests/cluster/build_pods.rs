//! What the pod of a build runs, with Debian's buildah and registry, as a user who may do nothing on the host. The pods of one build take
//! the same base, although its tag names another image when the second one begins (with the real controller); and what goes wrong in
//! a pod ends it with its cause in the last lines.
//!
//! Fakes: the kubelet and the Job controller, whose part this file plays (the script runs in a mount namespace with what the Job
//! mounts), the node's agent, a proxy that does what is wrong with a registry, and the bases, which hold the files that the script
//! looks for and no shell. Not here: an image that is built to its end (`vm/ostree/built`), and what is said of a cause (beside the
//! code of `build`).

use crate::image_builds::{Builder, NAMESPACE, POOL, imaged, os_config, runs};
use crate::product::with_controller;
use crate::real_registry::Registry;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{Api, ListParams};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::process::Command;

/// The files that the script looks for in a base.
const FILES: [&str; 4] = [
    "/usr/lib/modules/6/vmlinuz",
    "/usr/bin/ostree",
    "/usr/bin/jq",
    "/usr/lib/dracut/modules.d/30ignition/ignition",
];

/// In a mount namespace of its own: what is in the folder stands where the script looks for it, and there is a user `build`.
const POD: &str = r#"set -eu
dir=$1
mount -t tmpfs -o size="$HOME_SIZE" none /home
mkdir /home/build
cat /etc/passwd - > "$dir/passwd" <<< "build:x:4711:4711::/home/build:/bin/sh"
cat /etc/group - > "$dir/group" <<< "build:x:4711:"
echo build:100000:65536 > "$dir/map"
touch /etc/subuid /etc/subgid
mount --bind "$dir/passwd" /etc/passwd
mount --bind "$dir/group" /etc/group
mount --bind "$dir/map" /etc/subuid
mount --bind "$dir/map" /etc/subgid
mount --bind "$dir/etc/containers/registries.conf" /etc/containers/registries.conf
chmod 1777 "$dir/tmp"
mount --bind "$dir/tmp" /tmp
cd /
exec bash -c "$SCRIPT" 2>&1
"#;

/// A pod of a Job.
struct Pod {
    spec: Value,
    /// The ConfigMaps that there are.
    maps: BTreeMap<String, BTreeMap<String, String>>,
    /// Other values of its environment.
    env: Vec<(&'static str, String)>,
    /// The size of its folder, as `mount` takes it.
    room: &'static str,
}

impl Pod {
    fn of(job: &Value, maps: impl IntoIterator<Item = ConfigMap>) -> Self {
        let maps =
            maps.into_iter().map(|m| (m.metadata.name.unwrap_or_default(), m.data.unwrap_or_default()));
        let spec = job["spec"]["template"]["spec"].clone();
        Self { spec, maps: maps.collect(), env: vec![], room: "50%" }
    }

    /// Lays down what is mounted, as a kubelet does: ConfigMaps, a push secret, and folders.
    fn lay_down(&self, dir: &Path) {
        let volumes = self.spec["volumes"].as_array().unwrap();
        for mount in self.spec["containers"][0]["volumeMounts"].as_array().unwrap() {
            let volume = volumes.iter().find(|v| v["name"] == mount["name"]).unwrap();
            let path = dir.join(mount["mountPath"].as_str().unwrap().trim_start_matches('/'));
            let of_secret = volume["name"] == "push-secret";
            let files = match volume["configMap"]["name"].as_str() {
                Some(name) => self.maps.get(name).cloned().unwrap_or_default(),
                None if of_secret => [(".dockerconfigjson".to_owned(), "{\"auths\":{}}".to_owned())].into(),
                None => [].into(),
            };
            match mount["subPath"].as_str() {
                Some(key) => {
                    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
                    std::fs::write(&path, &files[key]).unwrap();
                }
                None => {
                    std::fs::create_dir_all(&path).unwrap();
                    files.iter().for_each(|(key, text)| std::fs::write(path.join(key), text).unwrap());
                }
            }
        }
    }

    /// Runs the container to its end. Returns its exit code and its log.
    async fn run(&self) -> (i32, String) {
        let dir = tempfile::tempdir().unwrap();
        self.lay_down(dir.path());
        let container = &self.spec["containers"][0];
        let env = container["env"].as_array().unwrap();
        let env = env.iter().filter_map(|e| Some((e["name"].as_str()?, e["value"].as_str()?)));
        let ended = Command::new("unshare")
            .args(["--mount", "bash", "-c", POD, "pod"])
            .arg(dir.path())
            .envs(env)
            .envs(self.env.iter().map(|(key, value)| (*key, value)))
            // A file of that name would be this computer's own.
            .env(
                "SCRIPT",
                container["command"][2].as_str().unwrap().replace("/dev/termination-log", "/tmp/message"),
            )
            .env("HOME_SIZE", self.room)
            .stdin(Stdio::null())
            .kill_on_drop(true)
            .output();
        let ended = tokio::time::timeout(Duration::from_secs(180), ended).await.unwrap().unwrap();
        let log = String::from_utf8(ended.stdout).unwrap();
        eprintln!("{:?}\n{}", ended.status, end(&log));
        assert!(ended.stderr.is_empty(), "{log}{}", String::from_utf8_lossy(&ended.stderr));
        let message = std::fs::read_to_string(dir.path().join("tmp/message")).unwrap_or_default();
        assert_eq!(message.starts_with("digest=sha256:"), ended.status.success(), "{message}");
        (ended.status.code().unwrap(), log)
    }
}

/// The last lines of a log, which a kubelet keeps.
fn end(log: &str) -> String {
    let lines: Vec<&str> = log.lines().collect();
    lines[lines.len().saturating_sub(10)..].join("\n")
}

#[tokio::test(flavor = "multi_thread")]
async fn a_retried_pod_takes_the_base_of_the_first_one() {
    let Some(builder) = with_controller() else { return };
    if !lab::require_root() {
        return;
    }
    lab::ensure_test_packages(&lab::Reporter::stderr()).await.unwrap();
    let registry = Registry::start(false).await;
    let push_base = |content: &str| {
        registry.push_files("base:1", &[("containers.bootc", "1")], &FILES.map(|path| (path, content)))
    };
    let one = push_base("one");
    let (cluster, agent) = imaged(builder, &one, registry.insecure()).await;
    // Nobody but the pods finds out what the tag names.
    let unseen = json!({"metadata": {"annotations": {"machineconfig.dev/os-images": "as-they-are"}}});
    cluster.patch("MachineConfigPool", POOL, unseen).await;
    let before = cluster.rendered(POOL).await;
    let tag = format!("{}/base:1", registry.name);
    cluster.patch("MachineConfig", "10-base", json!({"spec": {"osImageURL": tag}})).await;
    cluster
        .wait("the pool is rendered with the tag", async || {
            (cluster.rendered(POOL).await != before).then_some(())
        })
        .await;
    runs(&cluster, "").await;
    let jobs = Builder::new(&cluster);
    let with = json!({"metadata": {"annotations": {"machineconfig.dev/image-builder": "registry.lab.test:5000/buildah"}}});
    cluster.patch("ControllerConfig", "machine-config-controller", with).await;
    cluster.create(os_config(&format!("{}/team/os:latest", registry.name))).await;
    let build = jobs.started("").await;

    let maps: Api<ConfigMap> = Api::namespaced(cluster.client.clone(), NAMESPACE);
    let run = async |without: &str| {
        let all = maps.list(&ListParams::default()).await.unwrap().items;
        let mut pod = Pod::of(&jobs.job_of(&build).await, all);
        pod.maps.remove(without);
        let (code, log) = pod.run().await;
        assert_eq!(code, 1, "it has no shell, and another pod tries again");
        log
    };

    // The first pod finds out what the tag names, and fails later. The kubelet keeps the end of its log.
    let log = run("").await;
    assert!(log.contains(&format!("FROM {one} AS extract")), "{log}");
    jobs.fail_after(&build, &end(&log), 1).await;
    cluster
        .wait("the base is there for the next pod", async || {
            let map = maps.get_opt(&format!("base-{build}")).await.unwrap()?;
            (map.data?.get("image")? == &one).then_some(())
        })
        .await;
    cluster
        .wait("the build says what it is built on", async || {
            let object = cluster.get("MachineOSBuild", &build).await;
            (object["metadata"]["annotations"]["machineconfig.dev/built-on"] == json!(one)).then_some(())
        })
        .await;

    // The tag moves on before the second pod begins.
    let two = push_base("two");
    assert_ne!(one, two);
    let log = run("").await;
    assert!(log.contains(&format!("FROM {one} AS extract")) && !log.contains(&two), "{log}");
    assert!(log.trim_end().ends_with(&format!("built from {one}")), "{log}");
    // Without what the first one has left it would have taken the other one.
    let log = run(&format!("base-{build}")).await;
    assert!(log.contains(&format!("FROM {two} AS extract")) && !log.contains(&one), "{log}");
    agent.abort();
    cluster.no_panic();
    cluster.stop().await;
}

/// Answers nothing, ever.
async fn silent() -> (String, tokio::task::AbortHandle) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let name = listener.local_addr().unwrap().to_string();
    let task = tokio::spawn(async move {
        let mut all = vec![];
        while let Ok((stream, _)) = listener.accept().await {
            all.push(stream);
        }
    });
    (name, task.abort_handle())
}

/// What is wrong with a registry.
#[derive(Clone, Copy)]
enum Wrong {
    /// It gives another manifest than was asked for by its digest.
    Lies,
    /// It lets nobody write.
    Refuses,
}

impl Wrong {
    /// The answer to a request of which this is the head. `None`: that of the real registry.
    fn answer(self, head: &str) -> Option<(u16, &'static str)> {
        let (lie, upload) = ("GET /v2/team/os/manifests/sha256:", "POST /v2/team/os/blobs/uploads/");
        match self {
            Self::Lies if head.starts_with(lie) => Some((200, "{\"schemaVersion\": 2}")),
            Self::Refuses if head.starts_with(upload) => Some((
                403,
                "{\"errors\": [{\"code\": \"DENIED\", \"message\": \"requested access to the resource is denied\"}]}",
            )),
            _ => None,
        }
    }
}

/// Stands before a registry, and does what is wrong with it. Each connection has one request.
async fn wrong(registry: &str, what: Wrong) -> (String, tokio::task::AbortHandle) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let (name, registry) = (listener.local_addr().unwrap().to_string(), registry.to_owned());
    let serve = async move |mut client: TcpStream| -> std::io::Result<()> {
        let (mut read, mut part) = (vec![], [0; 4096]);
        let end = loop {
            let count = client.read(&mut part).await?;
            read.extend_from_slice(&part[..count]);
            match read.windows(4).position(|w| w == b"\r\n\r\n") {
                Some(end) => break end,
                // TLS begins with this byte.
                None if count == 0 || read[0] == 0x16 => return Ok(()),
                None => {}
            }
        };
        let head = String::from_utf8_lossy(&read[..end]).into_owned();
        if let Some((code, body)) = what.answer(&head) {
            let kind = "application/vnd.oci.image.manifest.v1+json";
            let length = body.len();
            let answer = format!(
                "HTTP/1.1 {code} x\r\nConnection: close\r\nContent-Type: {kind}\r\nContent-Length: {length}\r\n\r\n{body}"
            );
            return client.write_all(answer.as_bytes()).await;
        }
        let mut server = TcpStream::connect(&registry).await?;
        server.write_all(format!("{head}\r\nConnection: close").as_bytes()).await?;
        server.write_all(&read[end..]).await?;
        tokio::io::copy_bidirectional(&mut client, &mut server).await.map(drop)
    };
    let task = tokio::spawn(async move {
        while let Ok((client, _)) = listener.accept().await {
            let serve = serve.clone();
            tokio::spawn(async move { serve(client).await });
        }
    });
    (name, task.abort_handle())
}

/// The pod of a build with this base and this place to push to; `registries` are talked to without TLS.
fn pod(base: &str, push_spec: &str, registries: &[&str]) -> Pod {
    let read = |value: Value| serde_json::from_value(value).unwrap();
    let conf: String = registries
        .iter()
        .map(|name| format!("[[registry]]\nlocation = \"{name}\"\ninsecure = true\n"))
        .collect();
    let conf = conf.replace('\n', "%0A").replace('"', "%22").replace(' ', "%20");
    let rendered: api::v1::MachineConfig = serde_json::from_value(json!({
        "metadata": {"name": "rendered-infra-1"},
        "spec": {"osImageURL": base, "config": {"ignition": {"version": "3.5.0"}, "storage": {"files": [
            {"path": "/etc/containers/registries.conf", "contents": {"source": format!("data:,{conf}")}}]}}},
    }))
    .unwrap();
    let build: api::v1::MachineOSBuild = serde_json::from_value(json!({
        "metadata": {"name": "infra-0", "uid": "u"},
        "spec": {"machineConfig": {"name": "rendered-infra-1"}, "machineOSConfig": {"name": "infra"},
            "renderedImagePushSpec": push_spec},
    }))
    .unwrap();
    let mut config: api::v1::MachineOSConfig = read(os_config(push_spec));
    config.metadata.annotations =
        Some([("machineconfig.dev/layer-cache".to_owned(), "none".to_owned())].into());
    let inputs = build::objects::Inputs {
        pool: "infra",
        build: &build,
        config: &config,
        rendered: &rendered,
        cluster: None,
        builder: "r.example.com/buildah:1",
        now: &api::k8s::Time(jiff::Timestamp::now()),
    };
    let made = build::objects::of(inputs).unwrap();
    let mut pod = Pod::of(&made.job, made.config_maps);
    // Without a command, which would need a shell in the base.
    let text = format!("FROM {base} AS configs\nLABEL a=b\n");
    pod.maps.get_mut("containerfile-infra-0").unwrap().insert("Containerfile".to_owned(), text);
    pod
}

#[tokio::test(flavor = "multi_thread")]
async fn what_goes_wrong_in_a_pod_ends_it_with_its_cause() {
    if !lab::require_root() {
        return;
    }
    lab::ensure_test_packages(&lab::Reporter::stderr()).await.unwrap();
    let registry = Registry::start(false).await;
    let (mute, task) = silent().await;
    let large = "0123456789abcdef".repeat(1 << 19);
    let base = registry.push_files("base:1", &[], &FILES.map(|path| (path, "x")));
    let big = registry.push_files("base:2", &[], &FILES.map(|path| (path, large.as_str())));
    let no_os = registry.push("base:3", &[], ("/etc/os-release", "x"));
    let all = [registry.name.as_str(), &mute, "127.0.0.1:1"];
    let place = format!("{}/team/os:infra-0", registry.name);

    // First what works: what follows is for its own cause.
    let (code, log) = pod(&base, &place, &all).run().await;
    assert!(code == 0 && registry.has(&place).await, "{log}");

    // A registry that does not answer, until the build's time is over. No other pod tries it.
    let mut late = pod(&format!("{mute}/base:1"), &place, &all);
    let end = (jiff::Timestamp::now().as_second() + 6).to_string();
    late.env = vec![("LIMIT_SECONDS", "6".to_owned()), ("END_SECONDS", end)];
    let (code, log) = late.run().await;
    assert!(code == 65 && log.contains("buildah pull did not end within"), "{log}");

    // A node without room.
    let mut full = pod(&big, &place, &all);
    full.room = "12m";
    let (code, log) = full.run().await;
    assert!(code == 1 && log.contains("no space left on device"), "{log}");

    // A registry that is not there when it is pushed to.
    let away = "127.0.0.1:1/team/os:infra-0";
    let (code, log) = pod(&base, away, &all).run().await;
    let said = format!("the image could not be pushed to {away}");
    assert!(code == 1 && log.contains("connection refused") && log.trim_end().ends_with(&said), "{log}");

    // A registry that lies, or refuses.
    for (what, words) in
        [(Wrong::Lies, "does not give it back by its digest sha256:"), (Wrong::Refuses, "denied")]
    {
        let (name, task) = wrong(&registry.name, what).await;
        let (code, log) =
            pod(&base, &format!("{name}/team/os:infra-0"), &[&name, &registry.name]).run().await;
        let last = log.lines().last().unwrap_or_default();
        assert!(
            code == 1 && log.contains(words) && last.starts_with("the image could not be pushed to"),
            "{words}: {log}"
        );
        task.abort();
    }

    // A base that no node can boot. No other pod tries it.
    let (code, log) = pod(&no_os, &place, &all).run().await;
    assert!(code == 64 && log.contains("is no OS image that a node can boot: it has no"), "{log}");
    task.abort();
}
