//! The program as it is delivered, statically linked: on a root file system that holds nothing else, and on hosts with
//! another C library, it finds names in /etc/hosts and by DNS.
//!
//! Not here: what the program does with them (all other tests).

use crate::product::repository;
use lab::{Distribution, delivered_mco};
use std::net::UdpSocket;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

/// The address of the test's name server: resolvers only ask port 53, and no other service uses this address.
const NAME_SERVER: &str = "127.77.0.53:53";

/// Resolves every name that begins with `by-dns` to the IPv4 address 127.0.0.1, and answers "no such name" for all
/// others.
struct NameServer(Arc<AtomicBool>, Option<JoinHandle<()>>);

impl NameServer {
    fn start() -> Self {
        let socket = UdpSocket::bind(NAME_SERVER).unwrap();
        socket.set_read_timeout(Some(Duration::from_millis(100))).unwrap();
        let stop = Arc::new(AtomicBool::new(false));
        let seen = stop.clone();
        let task = std::thread::spawn(move || {
            let mut buffer = [0; 512];
            while !seen.load(Ordering::Relaxed) {
                let Ok((length, from)) = socket.recv_from(&mut buffer) else { continue };
                socket.send_to(&answer(&buffer[..length]), from).unwrap();
            }
        });
        Self(stop, Some(task))
    }
}

impl Drop for NameServer {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
        if let Some(task) = self.1.take() {
            task.join().unwrap();
        }
    }
}

/// A message as in RFC 1035, 4.1: header, question, answers.
fn answer(question: &[u8]) -> Vec<u8> {
    let end = 12 + question[12..].iter().position(|byte| *byte == 0).unwrap() + 5;
    let (known, is_a) = (question[13..].starts_with(b"by-dns"), question[end - 4..end - 2] == [0, 1]);
    let answers = u8::from(known && is_a);
    let mut out = question[..2].to_vec();
    // A response with "recursion available"; code 3 is "no such name".
    out.extend([0x81, if known { 0x80 } else { 0x83 }, 0, 1, 0, answers, 0, 0, 0, 0]);
    out.extend(&question[12..end]);
    if answers == 1 {
        out.extend([0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 60, 0, 4, 127, 0, 0, 1]);
    }
    out
}

/// Looks up names on a root file system: the program and a few files over `base`, or over nothing. Returns what the
/// program reports for each name. No server listens, so "connection refused" means that the name was found.
fn look_up(base: Option<&Path>, nsswitch: Option<&str>) -> Vec<String> {
    let work = tempfile::tempdir().unwrap();
    let (upper, empty) = (work.path().join("upper"), work.path().join("empty"));
    std::fs::create_dir_all(upper.join("etc")).unwrap();
    std::fs::create_dir_all(&empty).unwrap();
    for folder in ["work", "root"] {
        std::fs::create_dir(work.path().join(folder)).unwrap();
    }
    std::fs::copy(delivered_mco().unwrap(), upper.join("mco")).unwrap();
    std::fs::copy(repository().join("examples/kustomize/ca.crt"), upper.join("ca.crt")).unwrap();
    std::fs::write(upper.join("etc/hosts"), "127.0.0.1 in-files.example\n").unwrap();
    let address = NAME_SERVER.split(':').next().unwrap();
    std::fs::write(upper.join("etc/resolv.conf"), format!("nameserver {address}\noptions timeout:1\n"))
        .unwrap();
    if let Some(nsswitch) = nsswitch {
        std::fs::write(upper.join("etc/nsswitch.conf"), nsswitch).unwrap();
    }
    let names = ["in-files.example", "by-dns.example", "nowhere.example"];
    let said = names.map(|name| {
        let kubeconfig = format!(
            "apiVersion: v1\nkind: Config\ncurrent-context: c\nclusters: [{{name: c, cluster: {{server: 'https://{name}:1', certificate-authority: /ca.crt}}}}]\n\
             contexts: [{{name: c, context: {{cluster: c, user: u}}}}]\nusers: [{{name: u, user: {{}}}}]\n"
        );
        std::fs::write(upper.join("kubeconfig"), kubeconfig).unwrap();
        // The mounts disappear with the shell's mount namespace.
        let script = "set -e; mount -t overlay overlay -o lowerdir=$1,upperdir=$2/upper,workdir=$2/work $2/root; \
                      exec chroot $2/root /mco status --kubeconfig /kubeconfig";
        let output = Command::new("unshare")
            .args(["--mount", "sh", "-c", script, "sh"])
            .arg(base.unwrap_or(&empty))
            .arg(work.path())
            .output()
            .unwrap();
        format!("{}: {}", output.status, String::from_utf8_lossy(&output.stderr).trim())
    });
    said.to_vec()
}

#[tokio::test(flavor = "multi_thread")]
async fn host_names_resolve_without_and_beside_another_c_library() {
    if !lab::require_root() {
        return;
    }
    let missing = delivered_mco().is_none().then(|| "`cargo xtask image --for-tests` has not run".to_owned());
    if !lab::require(missing) {
        return;
    }
    let _server = NameServer::start();
    let progress = lab::Reporter::stderr();
    let mut hosts = vec![("nothing".to_owned(), None, None)];
    for distribution in [Distribution::Bookworm, Distribution::Trixie] {
        let base = lab::base_root(distribution, &progress).await.unwrap();
        // These modules belong to the other C library and must not be loaded.
        let modules = "passwd: hesiod files\nhosts: hesiod resolve [!UNAVAIL=return] files dns\n";
        for nsswitch in [None, Some(modules)] {
            hosts.push((format!("{distribution:?} {nsswitch:?}"), Some(base.clone()), nsswitch));
        }
    }
    for (host, base, nsswitch) in hosts {
        let said = look_up(base.as_deref(), nsswitch);
        for found in &said[..2] {
            assert!(found.starts_with("exit status") && found.contains("refused"), "{host}: {found}");
        }
        let unknown = &said[2];
        assert!(unknown.starts_with("exit status") && unknown.contains("lookup"), "{host}: {unknown}");
    }
}
