//! Small configs and plans on a folder, for tests of failures.
#![allow(unreachable_pub, dead_code, reason = "a module of tests; each uses a part of it")]
#![allow(clippy::unwrap_used, reason = "helpers of tests")]

use std::path::Path;
use std::sync::Arc;

use crate::common::{BySpec as _, plan};
use api::v1::MachineConfigSpec;
use host::fault::NoFaults;
use host::{DisruptionPolicy, FakeOs, Host, HostPlan, Irreconcilable, Names};
use serde_json::{Value, json};

use crate::common::mk_host;

pub const SKIP: [&str; 4] = ["/run", "/var/svc.log", "/var/lib/machine-config-daemon", "/etc/.pwd.lock"];

pub fn files(files: &[Value]) -> MachineConfigSpec {
    MachineConfigSpec {
        config: Some(json!({"ignition": {"version": "3.5.0"}, "storage": {"files": files}})),
        ..MachineConfigSpec::default()
    }
}

pub fn file(path: &str) -> Value {
    json!({"path": path, "contents": {"source": "data:,secret"}})
}

pub fn mk(at: &Path) -> Host {
    mk_host(at, &FakeOs::default(), Arc::new(NoFaults))
}

pub fn planned(
    host: &mut Host,
    new: &MachineConfigSpec,
    policy: &DisruptionPolicy,
) -> Result<HostPlan, Vec<Irreconcilable>> {
    let old = MachineConfigSpec::default();
    let facts = host.probe(&old, new).unwrap();
    let names = Names { current: "old".to_owned(), desired: "new".to_owned() };
    plan(&old, new, &names, policy, &facts)
}

/// Leaves an interrupted change with its journal.
pub fn interrupted(at: &Path) {
    #[derive(Debug)]
    struct KillAtCommit;
    impl host::fault::Faults for KillAtCommit {
        fn at(&self, p: host::fault::Point<'_>) -> Result<(), host::fault::Fault> {
            if p.call == "rename" { Err(host::fault::Fault::Killed) } else { Ok(()) }
        }
    }
    let mut host = mk_host(at, &FakeOs::default(), Arc::new(KillAtCommit));
    let new = files(&[file("/etc/issue.net"), file("/etc/x")]);
    let plan = planned(&mut host, &new, &DisruptionPolicy::default()).unwrap();
    assert!(host.apply(&plan).unwrap_err().killed());
}

/// Does something at the first call of a kind on a path.
pub struct Meanwhile<F> {
    call: &'static str,
    on: &'static str,
    then: std::sync::Mutex<Option<F>>,
}

impl<F> std::fmt::Debug for Meanwhile<F> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.on)
    }
}

impl<F: FnOnce() + Send> host::fault::Faults for Meanwhile<F> {
    fn at(&self, p: host::fault::Point<'_>) -> Result<(), host::fault::Fault> {
        if p.before
            && p.call == self.call
            && p.on == self.on
            && let Some(then) = self.then.lock().unwrap().take()
        {
            then();
        }
        Ok(())
    }
}

pub fn meanwhile<F: FnOnce() + Send + 'static>(
    call: &'static str,
    on: &'static str,
    then: F,
) -> Arc<dyn host::fault::Faults> {
    Arc::new(Meanwhile { call, on, then: std::sync::Mutex::new(Some(then)) })
}

pub fn core(keys: &[&str], hash: Option<&str>) -> MachineConfigSpec {
    let mut user = json!({"name": "core", "sshAuthorizedKeys": keys});
    if let Some(hash) = hash {
        user["passwordHash"] = json!(hash);
    }
    MachineConfigSpec {
        config: Some(json!({"ignition": {"version": "3.5.0"}, "passwd": {"users": [user]}})),
        ..MachineConfigSpec::default()
    }
}
