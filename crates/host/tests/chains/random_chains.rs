//! Chains of random configs on a folder. After each step every path and unit is as its config says, a second plan has
//! nothing to do, and paths that a config no longer names are as the host had them. At the end, with no config at all,
//! the host is as it was at the start.
//!
//! The expectations are derived again here, independently of the code: from the facts, not from the plan. The chains
//! are the same each time. `MCO_CHAIN_FROM=N` runs others, and `MCO_CHAINS=N` runs more of them. For what the
//! reference implementation did, see `chains`.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;
use std::sync::Arc;

use crate::common::{BySpec as _, plan};
use crate::common::{is_root, mk_host, mk_host_tree, tree};
use crate::random::{Dice, Place, config, empty};
use api::v1::MachineConfigSpec;
use host::fault::NoFaults;
use host::{DisruptionPolicy, FakeOs, FakeSystemd, Host, Names, Root, Systemd};
use serde_json::{Value, json};

/// The default first chain. The chains from there on cover most of the past failures.
const FROM: usize = 88;
const CHAINS: usize = 20;
const STEPS: usize = 7;
/// Our own records, what stands in for other processes, and what user tools leave.
const SKIP: [&str; 6] = [
    "/run",
    "/var/svc.log",
    "/var/lib/machine-config-daemon",
    "/etc/machine-config-daemon",
    "/etc/.pwd.lock",
    "/etc/passwd-",
];

/// Contents, mode, owner and group.
type ExpectedFile = (Vec<u8>, u32, u32, u32);

/// What a config wants at each path; `None`: nothing may exist there.
fn wanted(config: &Value) -> BTreeMap<String, Option<ExpectedFile>> {
    let mut out = BTreeMap::new();
    for f in config["storage"]["files"].as_array().unwrap() {
        let source = f["contents"]["source"].as_str().unwrap_or("data:,");
        let bytes: &[u8] = match source {
            "data:,other" => b"other",
            "data:," => b"",
            _ => b"hello\n",
        };
        let id = |what: &str| match (&f[what]["id"], f[what]["name"].as_str()) {
            (Value::Number(n), _) => u32::try_from(n.as_u64().unwrap()).unwrap(),
            (_, Some("core")) => 1000,
            (_, Some("adm")) => 4,
            _ => 0,
        };
        let mode = u32::try_from(f["mode"].as_u64().unwrap_or(0o644)).unwrap();
        let path = f["path"].as_str().unwrap().to_owned();
        out.insert(path, Some((bytes.to_vec(), mode, id("user"), id("group"))));
    }
    for u in config["systemd"]["units"].as_array().unwrap() {
        let name = u["name"].as_str().unwrap();
        let plain = |t: &str| Some((t.as_bytes().to_vec(), 0o644, 0, 0));
        for d in u["dropins"].as_array().into_iter().flatten() {
            let path = format!("/etc/systemd/system/{name}.d/{}", d["name"].as_str().unwrap());
            out.insert(path, d["contents"].as_str().filter(|t| !t.is_empty()).and_then(plain));
        }
        let path = format!("/etc/systemd/system/{name}");
        match (u["mask"].as_bool(), u["contents"].as_str().filter(|t| !t.is_empty())) {
            (Some(true), _) => {}
            (_, Some(text)) => {
                out.insert(path, plain(text));
            }
            (Some(false), None) => {
                out.insert(path, None);
            }
            _ => {}
        }
    }
    out
}

/// Checks that the host is as the config says.
fn check(at: &Path, host: &Host, config: &Value, about: &str) {
    for (path, want) in wanted(config) {
        let here = at.join(path.trim_start_matches('/'));
        match want {
            None => assert!(!here.exists(), "{about}: {path} should not exist"),
            Some((bytes, mode, uid, gid)) => {
                let m = fs::symlink_metadata(&here).unwrap_or_else(|e| panic!("{about}: {path}: {e}"));
                assert!(m.is_file(), "{about}: {path} is no file");
                let got = (fs::read(&here).unwrap(), m.permissions().mode() & 0o7777, m.uid(), m.gid());
                assert_eq!(got, (bytes, mode, uid, gid), "{about}: {path}");
            }
        }
    }
    let mut systemd = FakeSystemd::new(host.root());
    for u in config["systemd"]["units"].as_array().unwrap() {
        let name = u["name"].as_str().unwrap();
        let state = systemd.state(name).unwrap();
        if u["mask"] == json!(true) {
            let link = at.join("etc/systemd/system").join(name);
            assert_eq!(fs::read_link(&link).unwrap(), Path::new("/dev/null"), "{about}: {name}");
        } else if let Some(state) = state {
            // An instance of a template without a file of its own is not enabled, as with the reference.
            let dirs = ["etc/systemd/system", "usr/lib/systemd/system"];
            let file = dirs.iter().any(|d| at.join(d).join(name).exists());
            if u["enabled"] == json!(true) && file {
                assert!(!state.is_disabled() && !state.is_masked(), "{about}: {name} is {state:?}");
            } else if u["enabled"] == json!(false) {
                assert!(!state.is_enabled(), "{about}: {name} is {state:?}");
            }
        }
    }
    if at.join("home/core").exists()
        && let Some(user) = config["passwd"]["users"].as_array().unwrap().first()
    {
        let keys: String = user["sshAuthorizedKeys"]
            .as_array()
            .unwrap()
            .iter()
            .map(|k| format!("{}\n", k.as_str().unwrap()))
            .collect();
        let path = at.join("home/core/.ssh/authorized_keys.d/ignition");
        assert_eq!(fs::read_to_string(path).unwrap(), keys, "{about}");
        let shadow = fs::read_to_string(at.join("etc/shadow")).unwrap();
        let hash = user["passwordHash"].as_str().unwrap_or("*");
        assert!(shadow.contains(&format!("\ncore:{hash}:")), "{about}: {shadow}");
    }
}

/// Links that enable a unit whose file is gone.
fn dangling(at: &Path) -> Vec<String> {
    let all = tree(at, &["/etc/systemd/system"], &[]);
    let links = all.iter().filter_map(|(path, what)| Some((path, what.strip_prefix("link ")?)));
    // systemd finds a unit by the link's name, wherever its file is.
    let dirs = ["etc/systemd/system", "usr/lib/systemd/system"];
    let found = |target: &str| {
        let name = target.rsplit('/').next().unwrap_or_default();
        dirs.iter().any(|d| at.join(d).join(name).exists())
    };
    let gone = links.filter(|(_, target)| *target != "/dev/null" && !found(target));
    gone.map(|(path, target)| format!("{path} to {target}")).collect()
}

/// The tree without what may differ at the end: enablement follows presets, empty folders and the keys folder stay, and
/// the password of a user that is no longer managed is locked.
fn lasting(at: &Path) -> BTreeMap<String, String> {
    let mut out = tree(at, &["/"], &SKIP);
    out.retain(|path, what| {
        let enablement = path.contains(".wants/") || path.contains(".requires/");
        let link = what.starts_with("link ") && path.starts_with("/etc/systemd/system/");
        let user = path.starts_with("/home/core/.ssh") || path.starts_with("/etc/shadow");
        !(what.starts_with("dir ") || enablement || link || user)
    });
    out
}

#[expect(clippy::disallowed_methods, reason = "a test has no arguments of its own")]
fn told(name: &str) -> Option<String> {
    std::env::var(name).ok()
}

fn number(name: &str, otherwise: usize) -> usize {
    told(name).map_or(otherwise, |n| n.parse().unwrap())
}

#[test]
fn random_chains_of_configs_apply_forwards_and_backwards() {
    if !is_root() {
        return;
    }
    let (from, chains) = (number("MCO_CHAIN_FROM", FROM), number("MCO_CHAINS", CHAINS));
    let (mut done, mut refused) = (0, BTreeSet::new());
    for chain in 0..chains {
        let mut dice = Dice(from.wrapping_add(chain.wrapping_mul(7919)));
        let dir = mk_host_tree();
        let start = lasting(dir.path());
        let mut masked = BTreeSet::new();
        let mut host = mk_host(dir.path(), &FakeOs::default(), Arc::new(NoFaults));
        let mut at = MachineConfigSpec { config: Some(empty()), ..MachineConfigSpec::default() };
        let mut go = |to: MachineConfigSpec, about: String| {
            let names = Names { current: "old".to_owned(), desired: "new".to_owned() };
            let facts = host.probe(&at, &to).unwrap();
            let before = tree(dir.path(), &["/"], &SKIP);
            match plan(&at, &to, &names, &DisruptionPolicy::default(), &facts) {
                Err(bad) => {
                    assert_eq!(tree(dir.path(), &["/"], &SKIP), before, "{about}");
                    return Err(bad.iter().map(|b| b.why.clone()).collect::<Vec<_>>());
                }
                Ok(plan) => {
                    host.apply(&plan).unwrap_or_else(|e| {
                        panic!(
                            "{about}: {e}: {:?}\n{plan}\n{:#}",
                            std::error::Error::source(&e).map(ToString::to_string),
                            to.config.as_ref().unwrap()
                        )
                    });
                }
            }
            check(dir.path(), &host, to.config.as_ref().unwrap(), &about);
            assert_eq!(host.drifts(&to).unwrap(), [], "{about}");
            // systemd leaves the links of a masked unit alone. If the next config removes the host's own file, they
            // wait for it.
            for u in to.config.as_ref().unwrap()["systemd"]["units"].as_array().unwrap() {
                let name = u["name"].as_str().unwrap();
                if u["mask"] == json!(true) && start.contains_key(&format!("/etc/systemd/system/{name}")) {
                    masked.insert(format!("/{name} to "));
                }
            }
            let left = dangling(dir.path()).into_iter().filter(|l| !masked.iter().any(|m| l.contains(m)));
            assert_eq!(left.collect::<Vec<_>>(), Vec::<String>::new(), "{about}");
            let facts = host.probe(&to, &to).unwrap();
            let again = plan(&to, &to, &names, &DisruptionPolicy::default(), &facts).unwrap();
            assert!(again.is_empty(), "{about}: a second plan has something to do:\n{again}");
            // Paths that neither config names are not touched, and those that the new one no longer names are as
            // before.
            let gone: Vec<String> = wanted(at.config.as_ref().unwrap())
                .into_keys()
                .filter(|p| !wanted(to.config.as_ref().unwrap()).contains_key(p))
                .collect();
            let now = lasting(dir.path());
            for path in gone {
                let units = to.config.as_ref().unwrap()["systemd"]["units"].as_array().unwrap();
                let masked = units.iter().any(|u| {
                    u["mask"] == json!(true)
                        && path == format!("/etc/systemd/system/{}", u["name"].as_str().unwrap())
                });
                // A unit that stays in the config without its contents keeps the file that it had, as with the reference.
                let kept = units
                    .iter()
                    .any(|u| path == format!("/etc/systemd/system/{}", u["name"].as_str().unwrap()));
                assert!(
                    masked || kept || now.get(&path) == start.get(&path),
                    "{about}: {path}: {:?}, at the start {:?}",
                    now.get(&path),
                    start.get(&path)
                );
            }
            at = to;
            Ok(())
        };
        for step in 0..STEPS {
            let to = config(&mut dice, Place::Folder);
            match go(to, format!("chain {chain} step {step}")) {
                Ok(()) => done += 1,
                Err(why) => refused.extend(why),
            }
        }
        let none = MachineConfigSpec { config: Some(empty()), ..MachineConfigSpec::default() };
        go(none, format!("chain {chain} back")).unwrap();
        let end = lasting(dir.path());
        assert_eq!(end, start, "chain {chain}: the host is not as at the start");
    }
    println!("{done} steps; refused for: {refused:?}");
    assert!(done > chains * STEPS / 3, "only {done} steps were not refused");
}

/// Rare among random configs: systemd could not disable the instance as long as its template was masked.
#[test]
fn an_instance_stays_disabled_when_its_template_is_unmasked() {
    let dir = mk_host_tree();
    let mut host = mk_host(dir.path(), &FakeOs::default(), Arc::new(NoFaults));
    let spec = |units: Value| {
        let mut config = empty();
        config["systemd"]["units"] = units;
        MachineConfigSpec { config: Some(config), ..MachineConfigSpec::default() }
    };
    let off = json!({"name": "getty@tty1.service", "enabled": false});
    let masked = spec(json!([{"name": "getty@.service", "mask": true}, off]));
    let mut at = spec(json!([]));
    for to in [masked, spec(json!([off]))] {
        let facts = host.probe(&at, &to).unwrap();
        let plan = plan(&at, &to, &Names::default(), &DisruptionPolicy::default(), &facts).unwrap();
        host.apply(&plan).unwrap();
        assert_eq!(host.drifts(&to).unwrap(), [], "{plan}");
        at = to;
    }
}

/// systemd removes an instance's mask together with its template's links, whoever created it.
#[test]
fn an_administrators_mask_of_an_instance_outlives_its_template_being_disabled() {
    let dir = mk_host_tree();
    let mask = dir.path().join("etc/systemd/system/getty@tty7.service");
    std::os::unix::fs::symlink("/dev/null", &mask).unwrap();
    let mut host = mk_host(dir.path(), &FakeOs::default(), Arc::new(NoFaults));
    let none = MachineConfigSpec { config: Some(empty()), ..MachineConfigSpec::default() };
    let mut config = empty();
    config["systemd"]["units"] = json!([{"name": "getty@.service", "enabled": false}]);
    let off = MachineConfigSpec { config: Some(config), ..MachineConfigSpec::default() };
    let facts = host.probe(&none, &off).unwrap();
    let plan = plan(&none, &off, &Names::default(), &DisruptionPolicy::default(), &facts).unwrap();
    host.apply(&plan).unwrap();
    assert_eq!(fs::read_link(&mask).unwrap(), Path::new("/dev/null"), "{plan}");
}

/// Applies a random chain to a folder and writes the result in the form of the recorded ones. `check_host.py` then
/// applies the same chain to a machine that boots, with a real systemd.
#[test]
#[ignore = "for: cargo xtask conformance host --random SEED"]
fn a_random_chain_is_recorded_as_a_case() {
    let Some(file) = told("MCO_CHAIN_FILE").filter(|_| is_root()) else { return };
    let (from, steps) = (number("MCO_CHAIN_FROM", FROM), number("MCO_CHAIN_STEPS", STEPS));
    let mut dice = Dice(from);
    let dir = mk_host_tree();
    // Like the machines: their users, and no console.
    if let Some(root) = told("MCO_CHAIN_ROOT") {
        for name in ["etc/passwd", "etc/group", "etc/shadow"] {
            let text = fs::read(Path::new(&root).join(name)).unwrap();
            fs::write(dir.path().join(name), text).unwrap();
        }
    }
    fs::remove_dir_all(dir.path().join("etc/systemd/system/getty.target.wants")).unwrap();
    // Makes the stubs report their calls, as those of the machines do.
    fs::write(dir.path().join("var/svc.log"), "").unwrap();
    let mut machine = crate::chain::Machine::new(
        dir.path(),
        mk_host(dir.path(), &FakeOs::default(), Arc::new(NoFaults)),
        &[],
    );
    let root = Root::open(dir.path()).unwrap();
    let mut reboot = |_: &mut Host| FakeSystemd::new(&root).complete_reboot().unwrap();
    let written: Vec<Value> = (0..steps)
        .map(|i| {
            let spec = config(&mut dice, Place::Machine);
            let got = machine.step(&format!("rendered-worker-{i:02}"), &spec, &mut reboot);
            // Debian's systemd says `/lib` where others say `/usr/lib`; it is the same folder.
            let expect = got.recorded().to_string().replace("link /usr/lib/systemd/", "link /lib/systemd/");
            let expect: Value = serde_json::from_str(&expect).unwrap();
            json!({"about": format!("random {i}"), "spec": spec, "expect": expect})
        })
        .collect();
    let chain = json!({"id": format!("random-{from}"), "about": "random", "strict": true, "steps": written});
    fs::write(file, serde_json::to_string_pretty(&chain).unwrap()).unwrap();
}
