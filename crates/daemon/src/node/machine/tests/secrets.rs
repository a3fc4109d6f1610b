//! Tests that no text of the agent contains a value from a MachineConfig or from a file of the host, whatever is wrong
//! with it. Errors become reasons and events, and all of them appear in the log.
//!
//! Not here: the masking of differences (`desired::mask`), which has its own tests.

use super::super::*;
use crate::protocol::EMPTY_CONFIG;
use api::v1::MachineConfigSpec;
use host::fault::NoFaults;
use host::{FakeSystemd, Options, Unsupported};
use serde_json::{Value, json};
use std::path::Path;
use std::sync::Arc;

/// A text that is part of every bad value.
const MARKER: &str = "hunter2";

fn machine(dir: &Path) -> Machine {
    std::fs::create_dir_all(dir.join("etc/systemd/system")).unwrap();
    let root = Root::open_with(dir, Options { sync: false, owners: false }, Arc::new(NoFaults)).unwrap();
    let systemd = FakeSystemd::new(&root);
    Machine::new(Host::new(root, Box::new(systemd), Box::new(Unsupported::default())))
}

fn mk_config(name: &str, config: &Value) -> MachineConfig {
    let spec = MachineConfigSpec { config: Some(config.clone()), ..MachineConfigSpec::default() };
    MachineConfig::new(name, spec)
}

/// Everything that is logged during `work`, at every level.
fn logged<T>(work: impl FnOnce() -> T) -> (T, String) {
    #[derive(Clone, Default)]
    struct Lines(Arc<Mutex<Vec<u8>>>);
    impl std::io::Write for Lines {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0.lock().unwrap().extend_from_slice(bytes);
            Ok(bytes.len())
        }
        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }
    let lines = Lines::default();
    let writer = lines.clone();
    let subscriber = tracing_subscriber::fmt()
        .with_max_level(tracing::Level::TRACE)
        .with_writer(move || writer.clone())
        .finish();
    let done = tracing::subscriber::with_default(subscriber, work);
    let text = String::from_utf8(lines.0.lock().unwrap().clone()).unwrap();
    (done, text)
}

#[test]
fn a_config_that_cannot_be_applied_is_not_quoted() {
    let file = |contents: Value| json!({"storage": {"files": [{"path": "/etc/a", "mode": 384, "contents": contents}]}});
    let unit = |text: &str| json!({"systemd": {"units": [{"name": "a.service", "contents": text}]}});
    let core = |user: Value| json!({"passwd": {"users": [user]}});
    let twice = |value: &str| json!([value, value]);
    let bad = [
        file(json!({"source": "hunter2"})),
        file(json!({"source": "hunter2:x"})),
        file(json!({"source": "https://hunter2@example.com/hunter2"})),
        file(json!({"source": "data:hunter2"})),
        file(json!({"source": "data:,hunter2%zz"})),
        file(json!({"source": "data:,hunter2 hunter2"})),
        file(json!({"source": "data:;base64,hunter2!"})),
        file(json!({"source": "data:;base64,aHVudGVyMg==", "compression": "gzip"})),
        file(json!({"source": "data:,x", "compression": "hunter2"})),
        file(json!({"source": "data:,x", "verification": {"hash": "hunter2"}})),
        file(json!({"source": "data:,x", "verification": {"hash": "sha512-hunter2"}})),
        file(json!({"source": {"hunter2": "hunter2"}})),
        json!({"storage": {"files": "hunter2"}}),
        json!({"storage": {"files": [{"path": "/etc/a", "mode": "hunter2"}]}}),
        json!({"storage": {"files": [{"path": "/etc/a", "append": [{"source": "data:,hunter2"}]}]}}),
        unit("[Service]\nhunter2\n"),
        unit("[hunter2\n"),
        core(json!({"name": "core", "passwordHash": "hunter2:x"})),
        core(json!({"name": "core", "passwordHash": {"hunter2": 1}})),
        core(json!({"name": "core", "sshAuthorizedKeys": twice("environment=\"P=hunter2\" ssh-rsa A")})),
        core(json!({"name": "core", "passwordHash": "x", "gecos": "hunter2"})),
        core(json!({"name": "other", "passwordHash": "hunter2"})),
        json!({"kernelArguments": {"shouldExist": twice("p=hunter2")}}),
        json!({"ignition": {"version": "3.4.0", "config": {"merge": [{"source": "data:,hunter2"}, {"source": "data:,hunter2"}]}}}),
        json!({"ignition": {"version": "hunter2"}}),
        json!({"ignition": {"version": "3.4.0-hunter2", "config": "hunter2"}}),
        json!({"ignition": {"version": "9.9.9-hunter2"}}),
        json!({"ignition": {"version": {"hunter2": "hunter2"}}}),
    ];
    for mut config in bad {
        if config.get("ignition").is_none() {
            config["ignition"] = json!({"version": "3.4.0"});
        }
        assert!(config.to_string().contains(MARKER) || config.to_string().contains("aHVudGVyMg"));
        let dir = tempfile::tempdir().unwrap();
        let machine = machine(dir.path());
        let (empty, to) = (mk_config(EMPTY_CONFIG, &json!({})), mk_config("bad", &config));
        let (answer, log) = logged(|| machine.prepare(&empty, &to, &DisruptionPolicy::default()));
        let error = answer.err().unwrap_or_else(|| panic!("{config} is not bad"));
        let text = format!("{error:?} {error} {log}");
        assert!(!text.contains(MARKER), "{config}: {text}");
    }
}

#[test]
fn a_file_of_the_host_that_cannot_be_read_is_not_quoted() {
    const JOURNAL: &str = "/var/lib/machine-config-daemon/journal/begin.json";
    type HostCall = fn(&Machine) -> Result<(), MachineError>;
    let facts: HostCall = |m| m.facts().map(drop);
    let recover: HostCall = |m| m.recover().map(drop);
    let annotations: HostCall = |m| m.first_annotations().map(drop);
    let current: HostCall = |m| m.current().map(drop);
    let served: HostCall = |m| m.served("x").map(drop);
    let texts =
        ["\"hunter2\"", "hunter2", "{\"hunter2\"", "[\"hunter2\"]", "{\"a\": {\"hunter2\": \"hunter2\"}}"];
    let typed = [
        "{\"metadata\": {\"name\": \"x\"}, \"spec\": {\"fips\": \"hunter2\"}}",
        "{\"metadata\": {\"name\": \"x\"}, \"spec\": {\"kernelArguments\": \"hunter2\"}}",
        "{\"metadata\": {\"name\": [\"hunter2\"]}}",
        "{\"format\": \"hunter2\", \"sha256\": \"hunter2\", \"journal\": [\"hunter2\"]}",
        "{\"config\": [\"hunter2\"], \"bootId\": \"hunter2\"}",
    ];
    let cases: [(&str, HostCall, bool); 5] = [
        (host::paths::REBOOT_PENDING, facts, true),
        (JOURNAL, recover, true),
        (ANNOTATIONS_FILE, annotations, true),
        (host::paths::CURRENT_CONFIG, current, true),
        (SERVED_FILE, served, false),
    ];
    for (path, work, fails) in cases {
        for text in texts.iter().chain(&typed) {
            let dir = tempfile::tempdir().unwrap();
            let at = dir.path().join(path.trim_start_matches('/'));
            std::fs::create_dir_all(at.parent().unwrap()).unwrap();
            std::fs::write(&at, text).unwrap();
            let (answer, log) = logged(|| work(&machine(dir.path())));
            let told = format!("{answer:?} {log}");
            assert!(!told.contains(MARKER), "{path}, {text}: {told}");
            assert!(
                told.contains(path) || !fails,
                "{path}, {text}: the report does not name the file: {told}"
            );
            assert!(answer.is_err() || !fails, "{path}, {text}: {told}");
        }
    }
}

#[test]
fn drift_reports_do_not_quote_private_files() {
    let files = json!([
        {"path": "/etc/secret", "mode": 384, "contents": {"source": "data:,hunter2"}},
        {"path": "/etc/app.conf", "contents": {"source": "data:,password=hunter2%0Aa=1%0A"}},
    ]);
    let units = json!([{"name": "a.service", "contents": "[Service]\nEnvironment=TOKEN=hunter2\nExecStart=/bin/true\n"}]);
    let config =
        json!({"ignition": {"version": "3.4.0"}, "storage": {"files": files}, "systemd": {"units": units}});
    let (empty, one) = (mk_config(EMPTY_CONFIG, &json!({})), mk_config("one", &config));
    for (path, text) in [
        ("etc/secret", "other"),
        ("etc/app.conf", "a=1\n"),
        ("etc/app.conf", "password=hunter2-and-more\na=1\n"),
        ("etc/systemd/system/a.service", "[Service]\nEnvironment=TOKEN=other\n"),
    ] {
        let dir = tempfile::tempdir().unwrap();
        let machine = machine(dir.path());
        let ((), log) = logged(|| {
            let (_, work) = machine.prepare(&empty, &one, &DisruptionPolicy::default()).unwrap();
            assert!(!format!("{work:?}").contains(MARKER), "{work:?}");
            machine.apply(work, &Default::default(), &Default::default()).unwrap();
        });
        assert!(!log.contains(MARKER), "{log}");
        std::fs::write(dir.path().join(path), text).unwrap();
        let (found, log) = logged(|| machine.check(None));
        let told = format!("{:?} {log}", found.unwrap_err());
        assert!(told.contains(path) && !told.contains(MARKER), "{told}");
    }
}
