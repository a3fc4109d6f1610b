//! Boot tokens against a real API server: the operator creates certificates and user data, the real Ignition fetches
//! with them, and tokens are limited, used only once across two servers, and revoked.
//!
//! It needs the control plane's programs, Debian's `ignition` (root) and the program `mco` (`cargo build -p cli`).

mod token_server;

use crate::support::Answer;
use api::first_boot::boot_token::{ENTROPY, OLD_NAMESPACE, Record, Token};
use api::names::NAMESPACE;
use k8s_openapi::api::core::v1::{ConfigMap, Event, Secret};
use kube::api::{Api, Patch};
use lab::{ControlPlane, ControlPlaneOptions, Environment, Folder, Programs, Reporter};
use serde_json::{Value, json};
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::Arc;
use std::time::{Duration, Instant};
use token_server::{install, params, serve};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

/// The path in Debian's package.
const IGNITION: &str = "/usr/lib/dracut/modules.d/30ignition/ignition";
/// A change in the cluster takes effect within this time. One second is promised; a loaded machine may need longer.
const SOON: Duration = Duration::from_secs(30);
const HERE: Ipv4Addr = Ipv4Addr::LOCALHOST;
/// The address of a load balancer that speaks the PROXY protocol.
const BALANCER: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 9);
const THERE: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 2);

/// Runs `mco` as an administrator does.
struct Mco {
    program: PathBuf,
    kubeconfig: PathBuf,
}

impl Mco {
    fn run(&self, arguments: &[&str]) -> Output {
        let mut command = Command::new(&self.program);
        command.args(arguments).arg("--kubeconfig").arg(&self.kubeconfig).output().unwrap()
    }

    fn says(&self, arguments: &[&str]) -> String {
        let output = self.run(arguments);
        assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    }

    fn token(&self, arguments: &[&str]) -> String {
        self.says(&[&["token", "create", "worker"], arguments].concat()).trim().to_owned()
    }
}

/// Runs the real Ignition on a pointer config. Returns what it fetched, or its error.
fn ignition(dir: &Path, pointer: &str) -> Result<Value, String> {
    let own = tempfile::tempdir_in(dir).unwrap();
    std::fs::write(own.path().join("config.ign"), pointer).unwrap();
    let path = |name: &str| own.path().join(name).display().to_string();
    let output = Command::new(IGNITION)
        .current_dir(own.path())
        .args(["--platform=file", "--stage=fetch", "--log-to-stdout"])
        .arg(format!("--root={}", path("root")))
        .arg(format!("--config-cache={}", path("cache.json")))
        .arg(format!("--neednet={}", path("neednet")))
        .arg(format!("--state-file={}", path("state")))
        .output()
        .unwrap();
    match std::fs::read(path("cache.json")) {
        Ok(bytes) if output.status.success() => Ok(serde_json::from_slice(&bytes).unwrap()),
        _ => Err(String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned()),
    }
}

fn has_secret(config: &Value) -> bool {
    config["storage"]["files"].as_array().is_some_and(|f| f.iter().any(|f| f["path"] == "/etc/secret"))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn boot_tokens_are_limited_used_up_and_revoked() {
    let program = lab::built_mco();
    if !lab::require(program.is_none().then(|| "the mco program is not built: cargo build -p cli".to_owned()))
    {
        return;
    }
    let missing =
        (!Path::new(IGNITION).exists()).then(|| "Debian's package ignition is not installed".to_owned());
    if !lab::require(missing) {
        return;
    }
    let environment = Environment::read();
    let folder = Arc::new(Folder::create(&environment).unwrap());
    let options = ControlPlaneOptions { controller_manager: false, scheduler: false, ..Default::default() };
    let programs = Programs::new(&environment).unwrap();
    let plane = ControlPlane::start(folder, &programs, &options, &Reporter::stderr()).await.unwrap();
    let kube = plane.client().await.unwrap();
    let mco = Mco { program: program.unwrap(), kubeconfig: plane.kubeconfig().to_owned() };
    install(&kube).await;

    // The operator creates certificates first, and user data without tokens; a second run finds nothing to do.
    let done = mco.says(&["operator", "start", "--once"]);
    for part in
        ["CA machine-config-server-ca", "certificate machine-config-server-tls", "worker-user-data-managed"]
    {
        assert!(done.contains(part), "{done}");
    }
    assert_eq!(mco.says(&["operator", "start", "--once"]), "");
    assert!(!mco.says(&["pointer", "worker"]).contains("Authorization"));
    let done = mco.says(&["operator", "start", "--once", "--require-token"]);
    assert!(done.contains("worker-user-data-managed") && done.contains("infra-user-data-managed"), "{done}");
    assert_eq!(mco.says(&["operator", "start", "--once", "--require-token"]), "");

    // The server starts with the operator's certificate.
    let dir = tempfile::tempdir().unwrap();
    let secrets: Api<Secret> = Api::namespaced(kube.clone(), NAMESPACE);
    let tls = secrets.get("machine-config-server-tls").await.unwrap().data.unwrap();
    let bundle =
        Api::<ConfigMap>::namespaced(kube.clone(), NAMESPACE).get("machine-config-server-ca").await.unwrap();
    std::fs::write(dir.path().join("tls.crt"), &tls["tls.crt"].0).unwrap();
    std::fs::write(dir.path().join("tls.key"), &tls["tls.key"].0).unwrap();
    std::fs::write(dir.path().join("ca.crt"), &bundle.data.unwrap()["ca-bundle.crt"]).unwrap();
    std::fs::write(dir.path().join("token"), "bootstrap").unwrap();
    let one = serve(plane.kubeconfig(), dir.path()).await;
    let two = serve(plane.kubeconfig(), dir.path()).await;
    one.tells("worker", None, (401, "NoToken")).await;
    two.tells("worker", None, (401, "NoToken")).await;

    // The real Ignition with the pool's own token; without one it is refused and gives up at once.
    let port = one.addr.port().to_string();
    let pointer = |more: &[&str]| {
        let arguments = [&["pointer", "worker", "--ignition-version", "3.3", "--port", &port], more].concat();
        let text = mco.says(&arguments);
        assert!(text.contains("https://api.lab.test:"), "{text}");
        text.replace("https://api.lab.test:", "https://localhost:")
    };
    let own = pointer(&[]);
    assert!(has_secret(&ignition(dir.path(), &own).unwrap()));
    let mut bare: Value = serde_json::from_str(&own).unwrap();
    bare["ignition"]["config"]["merge"][0].as_object_mut().unwrap().remove("httpHeaders").unwrap();
    let said = ignition(dir.path(), &bare.to_string()).unwrap_err();
    assert!(said.contains("401") || said.contains("Unauthorized"), "{said}");

    // A single-use token: Ignition uses it and may come back, but nobody else can use it.
    let single = mco.token(&["--single-use", "--ttl", "1h", "--node", "worker-7"]);
    one.tells("infra", Some(&single), (403, "TokenForAnotherPool")).await;
    two.tells("infra", Some(&single), (403, "TokenForAnotherPool")).await;
    let (status, _) = one.ask(HERE, "HEAD", "worker", Some(&single)).await;
    assert_eq!(status, 200, "a look-up does not use the token");
    let with = pointer(&["--token", &single]);
    assert!(has_secret(&ignition(dir.path(), &with).unwrap()));
    assert!(has_secret(&ignition(dir.path(), &with).unwrap()), "the same machine may ask again for a while");
    assert_eq!(one.told(THERE, "worker", Some(&single)).await, (403, "TokenUsed".to_owned()));
    let listed = mco.says(&["token", "list", "worker"]);
    assert!(
        listed.contains("worker-7") && listed.contains("in use") && listed.contains("127.0.0.1"),
        "{listed}"
    );
    assert!(!listed.contains(single.split_once('.').unwrap().1));

    // Two machines, two servers, one token, at the same moment: one of them gets the config.
    for round in 0..10 {
        let raced = mco.token(&["--single-use"]);
        one.tells("infra", Some(&raced), (403, "TokenForAnotherPool")).await;
        two.tells("infra", Some(&raced), (403, "TokenForAnotherPool")).await;
        let (a, b) =
            tokio::join!(one.told(HERE, "worker", Some(&raced)), two.told(THERE, "worker", Some(&raced)),);
        let mut both = [a, b];
        both.sort();
        assert_eq!(both, [(200, String::new()), (403, "TokenUsed".to_owned())], "round {round}");
    }

    // Behind a load balancer each machine keeps its identity: the first one has used the token, and all others are
    // refused.
    let behind = mco.token(&["--single-use"]);
    one.tells("infra", Some(&behind), (403, "TokenForAnotherPool")).await;
    two.tells("infra", Some(&behind), (403, "TokenForAnotherPool")).await;
    assert_eq!(one.through(17, "worker", &behind).await.0, 200);
    assert_eq!(one.through(17, "worker", &behind).await.0, 200, "the same machine may ask again");
    assert_eq!(two.through(18, "worker", &behind).await, (403, "TokenUsed".to_owned()));
    assert!(mco.says(&["token", "list", "worker"]).contains("10.0.0.17"));

    // A token of the previous version, beside the CA's key: it is moved once, and keeps its limits.
    let old = Token::new(&[7; ENTROPY]);
    let mut secret = Record { single_use: true, ..Record::new(&old, "worker") }.to_secret();
    secret.metadata.namespace = Some(OLD_NAMESPACE.to_owned());
    secrets.create(&Default::default(), &secret).await.unwrap();
    let old = old.reveal();
    assert_eq!(one.told(HERE, "worker", Some(&old)).await, (401, "TokenUnknown".to_owned()));
    assert!(
        mco.says(&["token", "list"]).contains("070707070707"),
        "the server accepts it before it is moved"
    );
    let done = mco.says(&["operator", "start", "--once", "--require-token"]);
    assert!(done.contains("boot-token-070707070707") && done.contains("moved here"), "{done}");
    assert_eq!(mco.says(&["operator", "start", "--once", "--require-token"]), "");
    one.tells("worker", Some(&old), (200, "")).await;
    assert_eq!(mco.says(&["token", "list"]).matches("070707070707").count(), 1);
    mco.says(&["token", "revoke", &old]);
    assert_eq!(
        mco.says(&["operator", "start", "--once", "--require-token"]),
        "",
        "the old Secret is not created again"
    );
    one.tells("worker", Some(&old), (401, "TokenUnknown")).await;

    // A pointer config of an installer gets the pool's token, or an event says why it cannot.
    let provider: Api<Secret> = Api::namespaced(kube.clone(), api::first_boot::user_data::NAMESPACE);
    let managed = provider.get("worker-user-data-managed").await.unwrap().data.unwrap();
    let managed: Value = serde_json::from_slice(&managed["userData"].0).unwrap();
    for (version, gets) in [("3.0.0", false), ("3.1.0", true)] {
        let mut theirs = managed.clone();
        theirs["ignition"]["version"] = json!(version);
        theirs["ignition"]["config"]["merge"][0].as_object_mut().unwrap().remove("httpHeaders").unwrap();
        let secret = json!({
            "apiVersion": "v1", "kind": "Secret", "metadata": {"name": "worker-user-data"},
            "stringData": {"userData": theirs.to_string()},
        });
        provider.patch("worker-user-data", &params(), &Patch::Apply(&secret)).await.unwrap();
        mco.says(&["operator", "start", "--once", "--require-token"]);
        let now = provider.get("worker-user-data").await.unwrap().data.unwrap();
        let now: Value = serde_json::from_slice(&now["userData"].0).unwrap();
        let header = |config: &Value| config["ignition"]["config"]["merge"][0]["httpHeaders"].clone();
        assert_eq!(header(&now) == header(&managed), gets, "{version}");
    }
    let events: Api<Event> = Api::namespaced(kube.clone(), api::first_boot::user_data::NAMESPACE);
    let told: Vec<_> = events.list(&Default::default()).await.unwrap().items.into_iter().collect();
    let about = |e: &&Event| e.involved_object.name.as_deref() == Some("worker-user-data");
    let told: Vec<_> = told.iter().filter(about).map(|e| e.message.clone().unwrap()).collect();
    assert!(told.len() == 1 && told[0].contains("no boot token") && told[0].contains("3.1.0"), "{told:?}");

    // The limits: expiry, address, grace, encryption.
    let brief = mco.token(&["--ttl", "1s"]);
    one.tells("worker", Some(&brief), (403, "TokenExpired")).await;
    let bound = mco.token(&["--address", "127.0.0.2/32"]);
    one.tells("worker", Some(&bound), (403, "TokenForAnotherAddress")).await;
    assert_eq!(one.told(THERE, "worker", Some(&bound)).await.0, 200);
    let hasty = mco.token(&["--single-use", "--grace", "1s"]);
    one.tells("infra", Some(&hasty), (403, "TokenForAnotherPool")).await;
    assert_eq!(one.told(HERE, "worker", Some(&hasty)).await.0, 200);
    one.tells("worker", Some(&hasty), (403, "TokenUsed")).await;
    let mut plain = tokio::net::TcpStream::connect((HERE, one.plain)).await.unwrap();
    plain.write_all(b"GET /config/worker HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").await.unwrap();
    let mut all = vec![];
    plain.read_to_end(&mut all).await.unwrap();
    assert_eq!(Answer::read(&all).unwrap().status, 403);

    // Revocation: within a moment the token is refused, and spent tokens can be removed.
    let open = mco.token(&[]);
    one.tells("worker", Some(&open), (200, "")).await;
    mco.says(&["token", "revoke", &open]);
    let begun = Instant::now();
    one.tells("worker", Some(&open), (401, "TokenUnknown")).await;
    assert!(begun.elapsed() < SOON, "a revoked token is refused at once");
    let swept = mco.says(&["token", "revoke", "--spent"]);
    assert!(
        swept.contains(brief.split_once('.').unwrap().0) && swept.contains(hasty.split_once('.').unwrap().0)
    );
    assert!(!mco.run(&["token", "revoke", "000000000000"]).status.success());
    assert!(!mco.run(&["token", "create", "nosuch"]).status.success());

    // The API server is unreachable: reusable tokens are checked against the last known state; a single-use token
    // cannot be marked as used, so its machine is told to try again.
    let (many, once) = (mco.token(&[]), mco.token(&["--single-use"]));
    for token in [&many, &once] {
        one.tells("infra", Some(token), (403, "TokenForAnotherPool")).await;
    }
    plane.stop_api_server().await;
    assert_eq!(one.told(HERE, "worker", Some(&many)).await.0, 200);
    assert_eq!(one.told(HERE, "worker", Some(&once)).await, (503, "TokenUnchecked".to_owned()));
    plane.start_api_server().await.unwrap();
    one.tells("worker", Some(&once), (200, "")).await;

    // The CA is deleted: everything is created again, and user data follows with the same token.
    secrets.delete("machine-config-server-ca", &Default::default()).await.unwrap();
    let done = mco.says(&["operator", "start", "--once", "--require-token"]);
    assert!(
        done.contains("CA machine-config-server-ca") && done.contains("worker-user-data-managed"),
        "{done}"
    );
    let config = |text: &str| serde_json::from_str::<Value>(text).unwrap()["ignition"]["config"].clone();
    assert_eq!(config(&pointer(&[])), config(&own));

    for server in [one, two] {
        server.stop.cancel();
        server.task.await.unwrap();
    }
    plane.stop().await;
}
