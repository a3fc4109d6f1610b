//! `cargo xtask order`: finds the functions of `mco` that are used in practice, so that the linker can place them side
//! by side.
//!
//! The program has sixty thousand functions. An agent uses some thousands of them, spread over 34 MiB. The kernel maps
//! sixteen pages around each page that is touched, so a process that runs 3 MiB of code holds 20 MiB. The list that is
//! made here goes to the linker (`crates/cli/build.rs`). It is not part of a build: an outdated list costs memory and
//! nothing else. Make it again after an update of the compiler or of libraries, because the mangled names depend on
//! both.
//!
//! How: every part of `mco` runs under `callgrind` through a typical day, on a machine that boots and in a real
//! cluster.

use crate::bench::node_state::Wait;
use crate::bench::tls::Clients;
use crate::bench::{base_manifests, bootstrap, many_files, server};
use anyhow::{Context, bail};
use api::k8s::Node;
use api::names::{label, state};
use api::v1::MachineConfig;
use clap::Args;
use kube::api::{Api, DeleteParams, PostParams};
use lab::{DAEMON_UNIT, Lab, NodeHandle, Reporter};
use serde_json::json;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::time::{Duration, Instant};

/// The list, with one mangled name per line.
const LIST: &str = "crates/cli/order/x86_64-unknown-linux-gnu.txt";
/// The tool of valgrind that is needed.
const TOOL: &str = "callgrind-amd64-linux";
const PARTS: [&str; 3] = [TOOL, "default.supp", "vgpreload_core-amd64-linux.so"];
/// The folder's path inside the machine.
const IN_MACHINE: &str = "/opt/mco-order";
/// The time limit for a wait: under callgrind everything takes fifty times as long.
const LIMIT: Duration = Duration::from_secs(400);
const POLL: Duration = Duration::from_millis(500);
/// How long the parts stay idle, so that their periodic work is recorded too.
const REST: Duration = Duration::from_secs(15);
const NODE: &str = "worker-0";
/// The number of files in the larger update.
const FILES: usize = 100;

/// `cargo xtask order`.
#[derive(Debug, Args)]
#[command(after_help = "Needs root, valgrind, and some minutes. Changes crates/cli/order/, to be committed.")]
pub(crate) struct Order {
    /// The folder with valgrind's tools, of 3.24 or newer (older ones do not know openat2)
    #[arg(long, value_name = "FOLDER", default_value = "/usr/libexec/valgrind")]
    valgrind: PathBuf,
    /// Use this release build of mco instead of building one
    #[arg(long, value_name = "FILE")]
    mco: Option<PathBuf>,
}

pub(crate) fn run(root: &Path, a: &Order) -> anyhow::Result<()> {
    if !lab::is_root() {
        bail!("it boots a machine: run it as root");
    }
    if !a.valgrind.join(TOOL).exists() {
        bail!("{} has no {TOOL}: install valgrind, or say where it is", a.valgrind.display());
    }
    let program = match &a.mco {
        Some(file) => file.clone(),
        None => crate::image::program::release(root, None)?,
    };
    let work = Work::create(root, &a.valgrind, &program)?;
    offline(root, &work)?;
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(in_cluster(root, &work))?;
    let mut traces = BTreeMap::<String, BTreeSet<String>>::new();
    for entry in fs::read_dir(work.out())? {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().into_owned();
        let part = name.split('.').next().unwrap_or_default().to_owned();
        traces.entry(part).or_default().extend(functions(&fs::read_to_string(entry.path())?));
    }
    for (part, functions) in &traces {
        println!("{part}: {} functions", functions.len());
    }
    let defined = defined(&work.program)?;
    let list = ordered(&traces, &defined);
    let file = root.join(LIST);
    file.parent().map_or(Ok(()), fs::create_dir_all)?;
    fs::write(&file, &list).with_context(|| format!("cannot write {LIST}"))?;
    println!("written: {LIST}, {} functions of {}", list.lines().count(), defined.len());
    Ok(())
}

/// The folder with the script that runs in the place of `mco`.
struct Work {
    dir: PathBuf,
    program: PathBuf,
}

impl Work {
    fn create(root: &Path, valgrind: &Path, mco: &Path) -> anyhow::Result<Self> {
        let dir = root.join("target/order");
        let _ = fs::remove_dir_all(&dir);
        fs::create_dir_all(dir.join("out"))?;
        for part in PARTS {
            fs::copy(valgrind.join(part), dir.join(part)).with_context(|| part.to_owned())?;
        }
        let program = dir.join("mco.real");
        fs::copy(mco, &program).with_context(|| format!("cannot copy {}", mco.display()))?;
        let work = Self { dir, program };
        fs::write(work.wrapper(), work.script())?;
        fs::set_permissions(work.wrapper(), fs::Permissions::from_mode(0o755))?;
        Ok(work)
    }

    /// The script that runs in the place of `mco`, on this computer and in the machine.
    fn wrapper(&self) -> PathBuf {
        self.dir.join("mco")
    }

    fn out(&self) -> PathBuf {
        self.dir.join("out")
    }

    /// After a reboot, a process may have the id of one before it, so the name of a trace contains the time too.
    fn script(&self) -> String {
        let here = self.dir.display();
        format!(
            "#!/bin/sh\nd={here}\n[ -x \"$d/{TOOL}\" ] || d={IN_MACHINE}\nmkdir -p \"$d/out\"\n\
             VALGRIND_LAUNCHER=\"$d/mco\" VALGRIND_LIB=\"$d\" exec \"$d/{TOOL}\" --tool=callgrind --quiet \
             --demangle=no --callgrind-out-file=\"$d/out/$1-$2.%p.$(date +%s%N)\" \"$d/mco.real\" \"$@\"\n"
        )
    }
}

/// Runs the commands that need no cluster.
fn offline(root: &Path, work: &Work) -> anyhow::Result<()> {
    let (manifests, out) = (work.dir.join("manifests"), work.dir.join("rendered"));
    fs::create_dir_all(&manifests)?;
    fs::create_dir_all(&out)?;
    base_manifests(root, &manifests)?;
    let status = bootstrap(root, &work.wrapper(), &manifests, &out).status()?;
    if !status.success() {
        bail!("mco controller bootstrap failed");
    }
    Ok(())
}

async fn in_cluster(root: &Path, work: &Work) -> anyhow::Result<()> {
    let mut builder = Lab::builder()
        .nodes(1)
        .real()
        .controller(true)
        .controller_manager(false)
        .scheduler(false)
        .mco_binary(work.wrapper())
        .templates(root.join("templates"))
        .progress(Reporter::stderr());
    for part in PARTS.into_iter().chain(["mco.real"]) {
        let content = fs::read(work.dir.join(part))?;
        builder = builder.node_file(&format!("{IN_MACHINE}/{part}"), 0o755, content);
    }
    let lab = builder.start().await?;
    let done = day(work, &lab).await;
    lab.stop().await;
    done
}

/// A typical day of a node, a controller and a server.
async fn day(work: &Work, lab: &Lab) -> anyhow::Result<()> {
    let nodes: Api<Node> = Api::all(lab.client());
    let configs: Api<MachineConfig> = Api::all(lab.client());
    let wait = Wait { node: NODE, limit: LIMIT, pause: POLL };
    let mut config = wait.config(&nodes, "").await?;
    tokio::time::sleep(REST).await;
    for (what, path) in
        [("files", "/etc/nmstate/openshift/order.yaml"), ("a file that needs a reboot", "/etc/order.conf")]
    {
        println!("an update of {what} …");
        configs.create(&PostParams::default(), &machine_config(path)?).await?;
        config = wait.config(&nodes, &config).await?;
    }
    println!("a file that somebody else changes …");
    let node = lab.node(0);
    node.run(["/bin/sh", "-c", "cp -p /etc/order.conf /root/kept && echo other >> /etc/order.conf"]).await?;
    wait.state(&nodes, state::DEGRADED).await?;
    node.run(["/bin/sh", "-c", "cat /root/kept > /etc/order.conf"]).await?;
    wait.state(&nodes, state::DONE).await?;
    println!("back again …");
    configs.delete("50-order-conf", &DeleteParams::default()).await?;
    wait.config(&nodes, &config).await?;
    serve(work, lab).await?;
    tokio::time::sleep(REST).await;
    node.run(["systemctl", "stop", DAEMON_UNIT]).await?;
    fetch(&node, work).await?;
    if let Some(pid) = lab.controller_pid().and_then(rustix::process::Pid::from_raw) {
        rustix::process::kill_process(pid, rustix::process::Signal::TERM)?;
        ended(pid).await?;
    }
    Ok(())
}

fn machine_config(path: &str) -> anyhow::Result<MachineConfig> {
    let name = path.rsplit(['/', '.']).next().unwrap_or_default();
    let unit = json!({"name": format!("order-{name}.service"), "enabled": true,
        "contents": "[Service]\nType=oneshot\nExecStart=/bin/true\n[Install]\nWantedBy=multi-user.target\n"});
    let mut files = vec![json!({"path": path, "mode": 420, "contents": {"source": "data:,order"}})];
    // An update of many files takes other code paths than one of a single file.
    let many = if name == "yaml" { FILES } else { 0 };
    files.extend(many_files(many));
    Ok(serde_json::from_value(json!({
        "apiVersion": "machineconfiguration.openshift.io/v1",
        "kind": "MachineConfig",
        "metadata": {"name": format!("50-order-{name}"), "labels": {label::ROLE: "worker"}},
        "spec": {"config": {
            "ignition": {"version": "3.4.0"},
            "storage": {"files": files},
            "systemd": {"units": if name == "conf" { json!([unit]) } else { json!([]) }},
        }},
    }))?)
}

/// The pause between two checks; an error after [`LIMIT`].
async fn pause(start: Instant, what: impl FnOnce() -> String) -> anyhow::Result<()> {
    if start.elapsed() > LIMIT {
        bail!("{} after {} s", what(), LIMIT.as_secs());
    }
    tokio::time::sleep(POLL).await;
    Ok(())
}

/// Copies the traces out of the machine.
async fn fetch(node: &NodeHandle, work: &Work) -> anyhow::Result<()> {
    let out = format!("{IN_MACHINE}/out");
    for name in node.run(["ls", &out]).await?.lines() {
        let trace = node.run(["cat", &format!("{out}/{name}")]).await?;
        fs::write(work.out().join(format!("{name}.node")), trace)?;
    }
    Ok(())
}

/// Starts a server and sends it the requests that machines send.
async fn serve(work: &Work, lab: &Lab) -> anyhow::Result<()> {
    println!("a server …");
    let pair = rcgen::generate_simple_self_signed(["localhost".to_owned()])?;
    fs::write(work.dir.join("key"), pair.signing_key.serialize_pem())?;
    fs::write(work.dir.join("cert"), pair.cert.pem())?;
    let (mut command, port) = server::start(&work.wrapper(), &work.dir, lab.kubeconfig())?;
    let mut server = Server(command.spawn()?);
    let clients = Clients::new(pair.cert.der())?;
    let start = Instant::now();
    while let Err(error) = clients.get(port, "/config/worker").await {
        pause(start, || format!("the server does not answer: {error:#}")).await?;
    }
    for path in ["/config/worker", "/config/master", "/healthz", "/config/none"] {
        // The last request is refused, as it should be.
        let _ = clients.get(port, path).await;
    }
    clients.storm(port, Duration::from_secs(3)).await?;
    rustix::process::kill_process(
        rustix::process::Pid::from_child(&server.0),
        rustix::process::Signal::TERM,
    )?;
    server.0.wait()?;
    Ok(())
}

struct Server(Child);

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

async fn ended(pid: rustix::process::Pid) -> anyhow::Result<()> {
    let start = Instant::now();
    while fs::read_to_string(format!("/proc/{}/stat", pid.as_raw_nonzero()))
        .is_ok_and(|stat| !stat.contains(") Z "))
    {
        pause(start, || "the controller does not end".to_owned()).await?;
    }
    Ok(())
}

/// The functions that a trace names. In callgrind's format a line is `fn=(number) name`, where later lines leave the
/// name out.
fn functions(trace: &str) -> BTreeSet<String> {
    trace
        .lines()
        .filter_map(|line| line.strip_prefix("fn=(").or_else(|| line.strip_prefix("cfn=(")))
        .filter_map(|rest| rest.split_once(") "))
        // callgrind marks recursion levels as name'2.
        .map(|(_, name)| name.split('\'').next().unwrap_or(name).to_owned())
        .collect()
}

/// The program's own functions, in the order of their addresses.
fn defined(program: &Path) -> anyhow::Result<Vec<String>> {
    let output = Command::new("nm")
        .args(["--numeric-sort", "--defined-only"])
        .arg(program)
        .output()
        .context("cannot run nm")?;
    let text = String::from_utf8(output.stdout)?;
    Ok(text
        .lines()
        .filter_map(|line| {
            let mut words = line.split_whitespace().skip(1);
            let kind = words.next()?;
            let name = words.next()?;
            kind.eq_ignore_ascii_case("t").then(|| name.to_owned())
        })
        .collect())
}

/// The order of the list: functions that the same parts use are together, and those that most parts use come first;
/// otherwise the order of the program is kept.
fn ordered(traces: &BTreeMap<String, BTreeSet<String>>, defined: &[String]) -> String {
    let mut groups = BTreeMap::<(std::cmp::Reverse<usize>, Vec<&str>), Vec<&str>>::new();
    for function in defined {
        let parts: Vec<&str> =
            traces.iter().filter(|(_, all)| all.contains(function)).map(|(part, _)| part.as_str()).collect();
        if !parts.is_empty() {
            groups.entry((std::cmp::Reverse(parts.len()), parts)).or_default().push(function);
        }
    }
    groups.values().flatten().fold(String::new(), |mut list, function| {
        // Writing into a String cannot fail.
        let _ = writeln!(list, "{function}");
        list
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_trace_names_each_function_once_and_numbers_it() {
        let trace =
            "fl=(1) a.rs\nfn=(2) main\n1 2\ncfn=(3) inner\ncalls=1 1\n1 5\nfn=(3)\n1 1\nfn=(4) deep'2\n";
        assert_eq!(functions(trace).into_iter().collect::<Vec<_>>(), ["deep", "inner", "main"]);
    }

    #[test]
    fn what_more_parts_run_stands_before_what_fewer_do() {
        let set = |names: &[&str]| names.iter().map(|n| (*n).to_owned()).collect();
        let traces = BTreeMap::from([
            ("agent".to_owned(), set(&["b", "c", "libc"])),
            ("controller".to_owned(), set(&["a", "c"])),
        ]);
        let defined: Vec<String> = ["a", "b", "c", "d"].map(str::to_owned).to_vec();
        assert_eq!(ordered(&traces, &defined), "c\nb\na\n");
    }
}
