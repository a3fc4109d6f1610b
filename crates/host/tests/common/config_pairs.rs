//! Pairs of configs that together use everything that a plan can do.
#![allow(unreachable_pub, dead_code, reason = "a module of a test")]

use api::v1::MachineConfigSpec;
use serde_json::{Value, json};

/// A pair: its name, the config in effect, the config to reach.
pub struct Pair {
    /// A name for messages.
    pub about: &'static str,
    /// The config in effect.
    pub old: MachineConfigSpec,
    /// The config to reach.
    pub new: MachineConfigSpec,
    /// Whether the setting `reboots` is `WhenNeeded`, so that changes take effect without a reboot where they can.
    pub when_needed: bool,
    /// Whether extensions may take effect in the running system.
    pub live: bool,
}

const ENABLED: &str = "[Service]\nExecStart=/bin/true\n[Install]\nWantedBy=multi-user.target\n";
const KEY: &str = "ssh-ed25519 AAAA one";

pub fn file(path: &str, text: &str) -> Value {
    json!({"path": path, "contents": {"source": format!("data:,{text}")}})
}

pub fn spec(files: &[Value], units: &[Value], users: &[Value]) -> MachineConfigSpec {
    MachineConfigSpec {
        config: Some(json!({
            "ignition": {"version": "3.5.0"},
            "storage": {"files": files},
            "systemd": {"units": units},
            "passwd": {"users": users},
        })),
        ..MachineConfigSpec::default()
    }
}

fn files(files: &[Value]) -> MachineConfigSpec {
    spec(files, &[], &[])
}

fn storage(storage: &Value) -> MachineConfigSpec {
    let config = json!({"ignition": {"version": "3.5.0"}, "storage": storage});
    MachineConfigSpec { config: Some(config), ..MachineConfigSpec::default() }
}

fn units(units: &[Value]) -> MachineConfigSpec {
    spec(&[], units, &[])
}

fn users(users: &[Value]) -> MachineConfigSpec {
    spec(&[], &[], users)
}

pub fn unit(name: &str, enabled: bool) -> Value {
    json!({"name": name, "contents": ENABLED, "enabled": enabled})
}

fn core(keys: &[&str], hash: Option<&str>) -> Value {
    let mut user = json!({"name": "core", "sshAuthorizedKeys": keys});
    if let Some(hash) = hash {
        user["passwordHash"] = json!(hash);
    }
    user
}

fn pair(about: &'static str, old: MachineConfigSpec, new: MachineConfigSpec) -> Pair {
    Pair { about, old, new, when_needed: false, live: false }
}

/// All of them.
pub fn pairs() -> Vec<Pair> {
    let none = MachineConfigSpec::default;
    let big = |name: &str, text: &str, n: usize| -> Vec<Value> {
        (0..n).map(|i| file(&format!("/etc/many/{name}{i}"), text)).collect()
    };
    let mut out = vec![
        pair(
            "two files in a new folder",
            none(),
            files(&[file("/etc/app/a", "1"), file("/etc/app/deep/b", "2")]),
        ),
        pair("contents change", files(&[file("/etc/app/a", "1")]), files(&[file("/etc/app/a", "22")])),
        pair(
            "mode and owner change",
            files(&[file("/etc/app/a", "1")]),
            files(&[json!({"path": "/etc/app/a", "mode": 384, "user": {"name": "core"}, "group": {"id": 4},
                "contents": {"source": "data:,1"}})]),
        ),
        pair("files go", files(&[file("/etc/app/a", "1"), file("/opt/x/y", "2")]), none()),
        pair(
            "over files of the host",
            none(),
            files(&[file("/etc/issue.net", "o"), file("/etc/host.conf", "h")]),
        ),
        pair(
            "the host's own files are restored",
            files(&[file("/etc/issue.net", "o"), file("/etc/host.conf", "h")]),
            none(),
        ),
        pair(
            "one removed, one added, one changed",
            files(&[file("/etc/a", "1"), file("/etc/host.conf", "2")]),
            files(&[file("/etc/a", "3"), file("/srv/new/folder/c", "4")]),
        ),
        pair("a unit, enabled", none(), units(&[unit("one.service", true)])),
        pair(
            "its [Install] changes",
            units(&[unit("one.service", true)]),
            units(&[json!({"name": "one.service", "enabled": true,
                "contents": ENABLED.replace("multi-user", "graphical")})]),
        ),
        pair("disabled", units(&[unit("one.service", true)]), units(&[unit("one.service", false)])),
        pair(
            "masked",
            units(&[unit("one.service", true)]),
            units(&[
                json!({"name": "one.service", "mask": true}),
                json!({"name": "getty@.service", "mask": true}),
            ]),
        ),
        pair(
            "unmasked",
            units(&[
                json!({"name": "one.service", "mask": true}),
                json!({"name": "getty@.service", "mask": true}),
            ]),
            units(&[unit("one.service", true)]),
        ),
        pair(
            "drop-ins",
            units(&[
                json!({"name": "vendor.service", "dropins": [{"name": "10-a.conf", "contents": "[Service]\nNice=1\n"}]}),
            ]),
            units(&[json!({"name": "vendor.service", "enabled": false, "dropins": [
                {"name": "10-a.conf", "contents": ""}, {"name": "20-b.conf", "contents": "[Service]\nNice=2\n"}]})]),
        ),
        pair(
            "units go",
            units(&[unit("one.service", true), json!({"name": "vendor.service", "enabled": false})]),
            none(),
        ),
        pair(
            "an override of the host's own unit",
            none(),
            units(&[unit("vendor.service", true), unit("chronyd.service", false)]),
        ),
        pair(
            "the override goes",
            units(&[unit("vendor.service", true), unit("chronyd.service", false)]),
            none(),
        ),
        pair("keys and a password", none(), users(&[core(&[KEY], Some("$6$a$b"))])),
        pair(
            "other keys, no password",
            users(&[core(&[KEY], Some("$6$a$b"))]),
            users(&[core(&[KEY, "k2"], None)]),
        ),
        pair("the user goes", users(&[core(&[KEY], Some("$6$a$b"))]), none()),
        pair(
            "services are told",
            files(&[file("/etc/chrony.conf", "1")]),
            files(&[file("/etc/chrony.conf", "2"), file("/etc/two.conf", "2")]),
        ),
        pair(
            "folders and links are added",
            none(),
            storage(&json!({
                "directories": [
                    {"path": "/srv/d", "mode": 0o1770, "user": {"name": "core"}}, {"path": "/srv/d/e"},
                    {"path": "/opt", "mode": 0o700, "group": {"id": 4}}, {"path": "/etc/issue.net", "overwrite": true},
                ],
                "files": [file("/srv/d/f", "1")],
                "links": [
                    {"path": "/srv/l", "target": "d/f"}, {"path": "/etc/host.conf", "target": "/srv/x"},
                    {"path": "/srv/h", "target": "/srv/d/f", "hard": true},
                ],
            })),
        ),
        pair(
            "folders and links change",
            storage(&json!({
                "directories": [{"path": "/srv/d", "mode": 0o700}, {"path": "/srv/gone"}, {"path": "/opt", "mode": 0o711}],
                "files": [file("/srv/d/f", "1")],
                "links": [{"path": "/srv/l", "target": "one"}, {"path": "/srv/h", "target": "/srv/d/f", "hard": true}],
            })),
            storage(&json!({
                "directories": [{"path": "/srv/d", "mode": 0o755}, {"path": "/srv/l"}],
                "files": [file("/srv/d/f", "2")],
                "links": [{"path": "/srv/h", "target": "/srv/d/f", "hard": true}],
            })),
        ),
        pair(
            "folders and links are removed",
            storage(&json!({
                "directories": [
                    {"path": "/srv/d", "mode": 0o700}, {"path": "/srv/d/e"}, {"path": "/opt", "mode": 0o711},
                    {"path": "/etc/issue.net", "overwrite": true},
                ],
                "files": [file("/srv/d/e/f", "1")],
                "links": [{"path": "/etc/host.conf", "target": "one"}, {"path": "/srv/h", "target": "/etc/debian_version", "hard": true}],
            })),
            none(),
        ),
        pair("many files", files(&big("f", "old", 12)), files(&big("f", "new", 8))),
    ];
    let everything_old = spec(
        &[file("/etc/app/a", "1"), file("/etc/issue.net", "mine"), file("/etc/gone", "x")],
        &[unit("one.service", true), unit("two.service", false)],
        &[core(&[KEY], None)],
    );
    let mut everything_new = spec(
        &[file("/etc/app/a", "2"), file("/etc/host.conf", "mine"), file("/var/opt/new", "x")],
        &[json!({"name": "one.service", "mask": true}), unit("three.timer", true)],
        &[core(&["other"], Some("$6$c$d"))],
    );
    everything_new.kernel_arguments = Some(vec!["quiet".to_owned()]);
    out.push(pair("everything at once", everything_old, everything_new));
    out
}

/// Changes that stage another operating system in addition to changing files.
pub fn os_pairs() -> Vec<Pair> {
    let with = |mut spec: MachineConfigSpec, image: &str, arguments: &[&str]| {
        spec.os_image_url = image.to_owned();
        spec.kernel_arguments = Some(arguments.iter().map(|a| (*a).to_owned()).collect());
        spec
    };
    let old = spec(
        &[file("/etc/app/a", "1"), file("/etc/issue.net", "mine"), file("/etc/gone", "x")],
        &[unit("one.service", true)],
        &[core(&[KEY], None)],
    );
    let new = spec(
        &[file("/etc/app/a", "2"), file("/var/opt/new", "x")],
        &[unit("one.service", false), unit("two.service", true)],
        &[],
    );
    vec![
        pair(
            "an image and files",
            with(old.clone(), "", &[]),
            with(new.clone(), "fake:2", &["quiet", "a=1 b"]),
        ),
        pair(
            "kernel arguments go",
            with(old.clone(), "fake:2", &["quiet", "nosmt"]),
            with(new.clone(), "fake:2", &["nosmt"]),
        ),
        pair("the first image is given up", with(old, "fake:2", &["quiet"]), with(new, "", &["quiet"])),
    ]
}

/// Pairs whose changes take effect without a reboot.
pub fn effect_pairs() -> Vec<Pair> {
    let sysctl = |value: &str| file("/etc/sysctl.d/50-x.conf", &format!("vm.swappiness%3D{value}"));
    let changed =
        |name: &str| json!({"name": name, "contents": format!("{ENABLED}# changed\n"), "enabled": true});
    let all = [
        pair(
            "kernel parameters and units take effect",
            spec(&[sysctl("10")], &[unit("gone.service", true), unit("stays.service", true)], &[]),
            spec(
                &[sysctl("20"), file("/etc/motd", "hello")],
                &[changed("stays.service"), unit("new.service", true)],
                &[],
            ),
        ),
        pair(
            "a parameter and a drop-in go",
            spec(
                &[sysctl("10"), file("/etc/systemd/system/kubelet.service.d/10-x.conf", "%5BService%5D%0A")],
                &[],
                &[],
            ),
            files(&[file("/etc/motd", "hello")]),
        ),
    ];
    all.into_iter().map(|pair| Pair { when_needed: true, ..pair }).collect()
}

/// A change whose extension takes effect in the running system, together with a file and a unit.
pub fn live_pair() -> Pair {
    let sysctl = |value: &str| file("/etc/sysctl.d/50-x.conf", &format!("vm.swappiness%3D{value}"));
    let with = |extensions: &[&str], spec: MachineConfigSpec| MachineConfigSpec {
        extensions: Some(extensions.iter().map(|e| (*e).to_owned()).collect()),
        ..spec
    };
    let old = with(&["sysstat"], spec(&[sysctl("10")], &[unit("gone.service", true)], &[]));
    let new = with(&["sysstat", "usbguard"], spec(&[sysctl("20")], &[unit("new.service", true)], &[]));
    Pair { when_needed: true, live: true, ..pair("an extension is applied live", old, new) }
}
