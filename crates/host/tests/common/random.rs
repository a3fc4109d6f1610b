//! Random configs, the same on every run.
#![allow(unreachable_pub, reason = "a module of tests")]
#![allow(clippy::unwrap_used, reason = "helpers of tests")]

use api::v1::MachineConfigSpec;
use serde_json::{Value, json};

/// The linear congruential generator of Numerical Recipes: good enough for choices, and the same on every run.
pub struct Dice(pub usize);

impl Dice {
    /// A number below this one.
    pub fn below(&mut self, n: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % n
    }

    fn one<T: Clone>(&mut self, of: &[T]) -> T {
        of[self.below(of.len())].clone()
    }

    fn often(&mut self, percent: usize) -> bool {
        self.below(100) < percent
    }
}

fn file(dice: &mut Dice, path: &str) -> Value {
    // "hello\n" plain, escaped, in base64 and packed: the same bytes.
    let contents = dice.one(&[
        json!({"source": "data:,hello%0A"}),
        json!({"source": "data:;base64,aGVsbG8K"}),
        json!({"source": "data:;base64,H4sIAAAAAAACA8tIzcnJ5wIAIDA6NgYAAAA=", "compression": "gzip"}),
        json!({"source": "data:,"}),
        json!({"source": "data:,other"}),
        json!({}),
    ]);
    let mut out = json!({"path": path, "contents": contents});
    if dice.often(50) {
        out["mode"] = json!(dice.one(&[0o600, 0o640, 0o755, 0o777, 0o400]));
    }
    if dice.often(40) {
        out["user"] =
            dice.one(&[json!({"name": "core"}), json!({"id": 1000}), json!({"id": 12345}), json!({})]);
        out["group"] = dice.one(&[json!({"name": "adm"}), json!({"id": 0}), json!({})]);
    }
    if dice.often(30) {
        out["overwrite"] = json!(dice.often(50));
    }
    out
}

const INSTALL: [&str; 4] = [
    "[Install]\nWantedBy=multi-user.target\n",
    "[Install]\nRequiredBy=new.target\nAlias=ALIAS\n",
    "[Install]\nWantedBy=multi-user.target a.target\n",
    "",
];

fn unit(dice: &mut Dice, name: &str) -> Value {
    let mut out = json!({"name": name});
    let ours = name.starts_with("new");
    if ours && dice.often(85) || dice.often(25) {
        let mut text = format!("[Service]\nExecStart=/bin/true {}\n{}", dice.below(3), dice.one(&INSTALL));
        if name == "new@.service" && !text.ends_with("]\n") && dice.often(80) {
            text = text.replace("[Install]\n", "[Install]\nDefaultInstance=one\n");
        }
        // Only a service can have such a name.
        let alias = if name.ends_with(".service") && !name.contains('@') {
            format!("Alias=also-{name}\n")
        } else {
            String::new()
        };
        out["contents"] = json!(text.replace("Alias=ALIAS\n", &alias));
    } else if dice.often(10) {
        out["contents"] = json!("");
    }
    match dice.below(10) {
        0 => out["mask"] = json!(true),
        1 => out["mask"] = json!(false),
        _ => {}
    }
    match dice.below(3) {
        0 if out["mask"] != json!(true) => out["enabled"] = json!(true),
        1 => out["enabled"] = json!(false),
        _ => {}
    }
    if dice.often(40) {
        let mut dropins = Vec::new();
        for n in ["10-a.conf", "20-b.conf"] {
            match dice.below(6) {
                0 => dropins.push(json!({"name": n, "contents": ""})),
                1 => dropins.push(json!({"name": n})),
                2 => {}
                i => dropins.push(json!({"name": n, "contents": format!("[Service]\nNice={i}\n")})),
            }
        }
        out["dropins"] = json!(dropins);
    }
    out
}

/// Where a chain is run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    /// A folder, whose units nothing uses.
    Folder,
    /// A machine that has to boot after each step, and has no unit that this crate's tests made up.
    Machine,
}

/// A random config.
pub fn config(dice: &mut Dice, place: Place) -> MachineConfigSpec {
    let paths = [
        "/etc/issue.net",
        "/etc/host.conf",
        "/etc/debian_version",
        "/etc/app/a",
        "/etc/app/deep/er/b",
        "/opt/x/y",
        "/usr/local/bin/tool",
        "/usr/lib/systemd/system/vendor.service",
        "/etc/systemd/system/crio.service.d/05-file.conf",
    ];
    let names = [
        "new.service",
        "new@.service",
        "new@two.service",
        "new.timer",
        "crio.service",
        "chronyd.service",
        "vendor.service",
        "getty@.service",
        "getty@tty1.service",
        "systemd-journald.service",
        "nowhere.service",
    ];
    let here = |name: &str| {
        place == Place::Folder || !name.ends_with("vendor.service") && name != "systemd-journald.service"
    };
    let chosen: Vec<&str> = paths.into_iter().filter(|p| dice.often(35) && here(p)).collect();
    let files: Vec<Value> = chosen.iter().map(|p| file(dice, p)).collect();
    let chosen: Vec<&str> = names.into_iter().filter(|n| dice.often(35) && here(n)).collect();
    let units: Vec<Value> = chosen.iter().map(|n| unit(dice, n)).collect();
    let users: Vec<Value> = match dice.below(4) {
        0 => vec![json!({"name": "core", "sshAuthorizedKeys": ["ssh-ed25519 AAAA one"]})],
        1 => vec![json!({"name": "core", "passwordHash": "$6$a", "sshAuthorizedKeys": ["k1", "k2"]})],
        _ => vec![],
    };
    let config = json!({
        "ignition": {"version": "3.5.0"},
        "storage": {"files": files},
        "systemd": {"units": units},
        "passwd": {"users": users},
    });
    MachineConfigSpec { config: Some(config), ..MachineConfigSpec::default() }
}

/// A config that asks for nothing.
pub fn empty() -> Value {
    json!({
        "ignition": {"version": "3.5.0"},
        "storage": {"files": []},
        "systemd": {"units": []},
        "passwd": {"users": []},
    })
}
