//! The packages for hosts: installed, started, upgraded and removed on machines that boot, Debian 12 and 13.
//!
//! Not here: the Helm chart and the kustomize base (`tests/serving/packages.rs`).

use crate::product::{Cluster, LIMIT, machine_config, one_file, repository, with_controller};
use lab::{Distribution, Kubelet, NodeHandle, PackageRecipe, RECOVER_UNIT};
use std::path::{Path, PathBuf};

const UNITS: [&str; 3] =
    ["machine-config-daemon-recover.service", "machine-config-daemon-firstboot.service", lab::DAEMON_UNIT];

/// The statically linked program: the packages bring no libraries.
fn delivered() -> Option<PathBuf> {
    let program = lab::delivered_mco();
    let missing = program.is_none().then(|| "`cargo xtask image --for-tests` has not run".to_owned());
    if lab::require(missing) { program } else { None }
}

fn recipe(program: &Path, version: &str) -> PackageRecipe {
    PackageRecipe {
        repository: repository(),
        program: program.to_owned(),
        version: version.to_owned(),
        epoch: 1_700_000_000,
        architecture: lab::architecture(std::env::consts::ARCH).to_owned(),
    }
}

async fn works_on(distribution: Distribution) {
    if !lab::require_root() {
        return;
    }
    let Some(program) = delivered() else { return };
    let Some(builder) = with_controller() else { return };
    let builder = builder.nodes(1).real().kubelet(Kubelet::Real).daemon(false).distribution(distribution);
    let cluster = Cluster::start(builder).await;
    let node = cluster.lab.node(0);
    let work = cluster.lab.folder().make("packages").unwrap();
    let put = |package: &Path, name: &str| {
        std::fs::copy(package, node.root_of_boot().unwrap().join("var").join(name)).unwrap();
    };
    put(&recipe(&program, "0.9.0").deb(&work).await.unwrap(), "old.deb");
    put(&recipe(&program, "1.0.0").deb(&work).await.unwrap(), "new.deb");
    // The kubeconfig's path with most kubelets.
    node.run(["cp", "/etc/kubernetes/kubelet.kubeconfig", "/var/lib/kubelet/kubeconfig"]).await.unwrap();

    // Installing the package starts nothing.
    node.run(["dpkg", "--install", "/var/old.deb"]).await.unwrap();
    assert!(state(&node, lab::DAEMON_UNIT).await.starts_with("inactive"), "installing has started the agent");
    assert!(node.run(["mco", "--version"]).await.unwrap().contains("mco"));
    node.run(["systemctl", "enable", "--now"].into_iter().chain(UNITS)).await.unwrap();
    cluster.create(machine_config("50-packaged", "worker", one_file("/etc/packaged", "yes"))).await;
    cluster.settled("worker", 1, &["50-packaged"], &[]).await;
    node.wait_ready(&cluster.client, LIMIT).await.unwrap();
    assert_eq!(node.read_file("/etc/packaged").await.unwrap(), "yes");

    // After an upgrade the new program runs.
    let before = main_pid(&node).await;
    node.run(["dpkg", "--install", "/var/new.deb"]).await.unwrap();
    assert!(state(&node, lab::DAEMON_UNIT).await.starts_with("active"));
    assert_ne!(main_pid(&node).await, before, "the agent still runs the old program");
    assert!(state(&node, RECOVER_UNIT).await.ends_with("enabled"), "an upgrade has switched a unit off");

    // Removing the package deletes its files, but not what the config has written.
    node.run(["dpkg", "--remove", "mco"]).await.unwrap();
    assert!(state(&node, lab::DAEMON_UNIT).await.starts_with("inactive"));
    assert_ne!(node.exec(["ls", "/usr/bin/mco"]).await.unwrap().code, 0);
    assert_eq!(node.read_file("/etc/packaged").await.unwrap(), "yes");

    // The rpm, installed by rpm itself. Debian's machines have no rpm, so this computer's is copied into them. Its database
    // does not know Debian's systemd, hence `--nodeps`.
    for version in ["0.9.0", "1.0.0"] {
        put(&recipe(&program, version).rpm(&work).await.unwrap(), &format!("{version}.rpm"));
    }
    let rpm = copy_rpm(&node);
    let rpm = |args: &'static [&'static str]| rpm.iter().map(String::as_str).chain(args.iter().copied());
    node.run(rpm(&["--nodeps", "--install", "/var/0.9.0.rpm"])).await.unwrap();
    assert!(state(&node, lab::DAEMON_UNIT).await.starts_with("inactive"), "installing has started the agent");
    node.run(["systemctl", "daemon-reload"]).await.unwrap();
    node.run(["systemctl", "enable", "--now"].into_iter().chain(UNITS)).await.unwrap();
    cluster.create(machine_config("51-packaged", "worker", one_file("/etc/packaged-by-rpm", "yes"))).await;
    cluster.settled("worker", 1, &["51-packaged"], &[]).await;
    let before = main_pid(&node).await;
    node.run(rpm(&["--nodeps", "--upgrade", "/var/1.0.0.rpm"])).await.unwrap();
    assert!(state(&node, lab::DAEMON_UNIT).await.starts_with("active"));
    assert_ne!(main_pid(&node).await, before, "the agent still runs the old program");
    assert!(state(&node, RECOVER_UNIT).await.ends_with("enabled"), "an upgrade has switched a unit off");
    node.run(rpm(&["--erase", "mco"])).await.unwrap();
    assert!(state(&node, lab::DAEMON_UNIT).await.starts_with("inactive"));
    assert_ne!(node.exec(["ls", "/usr/bin/mco"]).await.unwrap().code, 0);
    assert_eq!(node.read_file("/etc/packaged-by-rpm").await.unwrap(), "yes");
    cluster.no_panic();
    cluster.stop().await;
}

/// Copies this computer's `rpm` with its libraries into the machine; returns the command that runs it there.
fn copy_rpm(node: &NodeHandle) -> Vec<String> {
    let to = node.root_of_boot().unwrap().join("opt/rpm");
    std::fs::create_dir_all(&to).unwrap();
    std::fs::copy("/usr/bin/rpm", to.join("rpm")).unwrap();
    let libraries = said(std::process::Command::new("ldd").arg("/usr/bin/rpm"));
    // Lines are like `libc.so.6 => /lib/x86_64-linux-gnu/libc.so.6 (0x…)`; for the loader there is only its path.
    let paths = libraries.split_whitespace().filter(|word| word.starts_with('/'));
    let mut loader = None;
    for path in paths.map(Path::new) {
        let name = path.file_name().unwrap();
        std::fs::copy(path, to.join(name)).unwrap();
        if name.to_string_lossy().starts_with("ld-") {
            loader = Some(format!("/opt/rpm/{}", name.display()));
        }
    }
    said(std::process::Command::new("cp").args(["-a", "/usr/lib/rpm"]).arg(to.join("config")));
    let loader = loader.expect("ldd names the loader");
    ["env", "RPM_CONFIGDIR=/opt/rpm/config", &loader, "--library-path", "/opt/rpm", "/opt/rpm/rpm"]
        .into_iter()
        .chain(["--dbpath", "/var/lib/rpm"])
        .map(str::to_owned)
        .collect()
}

/// Runs a program, which must succeed, and returns its output.
fn said(command: &mut std::process::Command) -> String {
    let output = command.output().unwrap();
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// The states that systemd reports, such as `active enabled`.
async fn state(node: &NodeHandle, unit: &str) -> String {
    let active = node.exec(["systemctl", "is-active", unit]).await.unwrap().stdout;
    let enabled = node.exec(["systemctl", "is-enabled", unit]).await.unwrap().stdout;
    format!("{} {}", active.trim(), enabled.trim())
}

async fn main_pid(node: &NodeHandle) -> String {
    node.run(["systemctl", "show", "--property", "MainPID", lab::DAEMON_UNIT]).await.unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn packages_work_on_debian_12() {
    works_on(Distribution::Bookworm).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn packages_work_on_debian_13() {
    works_on(Distribution::Trixie).await;
}

#[tokio::test]
async fn the_same_files_give_the_same_packages() {
    if !lab::require_root() {
        return;
    }
    lab::ensure_test_packages(&lab::Reporter::stderr()).await.unwrap();
    let mut made = vec![];
    for _ in 0..2 {
        let work = tempfile::tempdir().unwrap();
        let recipe = recipe(Path::new("/bin/true"), "1.0.0");
        let (deb, rpm) = (recipe.deb(work.path()).await.unwrap(), recipe.rpm(work.path()).await.unwrap());
        made.push([deb, rpm].map(|package| std::fs::read(package).unwrap()));
        // So that the modification times of the two builds differ: packages store whole seconds.
        tokio::time::sleep(std::time::Duration::from_millis(1100)).await;
    }
    assert!(made[0][0] == made[1][0], "the .deb differs");
    assert!(made[0][1] == made[1][1], "the .rpm differs");
}
