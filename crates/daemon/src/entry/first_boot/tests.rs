//! Tests of first boots on a folder: the state that Ignition left, and the state after the first boot is completed.

use super::*;
use crate::node::machine::FIRSTBOOT_FILE;
use host::fault::NoFaults;
use host::{FakeOs, FakeSystemd, Options, OsBackend, Root, Unsupported};
use serde_json::{Value, json};
use tempfile::TempDir;

/// A machine as Ignition leaves it: the served config's files, and the three files of the server.
struct Machine {
    dir: TempDir,
    os: Option<FakeOs>,
}

const NAME: &str = "rendered-worker-1";

#[expect(clippy::needless_pass_by_value, reason = "reads better with json!")]
fn mk_config(extra: Value) -> Value {
    let mut spec = json!({
        "osImageURL": "",
        "config": {
            "ignition": {"version": "3.3.0"},
            "storage": {"files": [{"path": "/etc/motd", "contents": {"source": "data:,hello"}}]},
        },
    });
    for (key, value) in extra.as_object().unwrap() {
        spec[key] = value.clone();
    }
    json!({"apiVersion": "machineconfiguration.openshift.io/v1", "kind": "MachineConfig", "metadata": {"name": NAME}, "spec": spec})
}

impl Machine {
    fn new(extra: Value) -> Self {
        let machine = Self { dir: TempDir::new().unwrap(), os: None };
        let served = mk_config(extra);
        let mut encapsulated = served.clone();
        encapsulated["spec"]["config"] = json!({"ignition": {"version": "3.3.0"}});
        machine.put(SERVED_FILE, &served.to_string());
        machine.put(FIRSTBOOT_FILE, &encapsulated.to_string());
        machine.put("/etc/motd", "hello");
        machine.put(CMDLINE, "root=/dev/vda quiet nosmt\n");
        machine.put("/etc/os-release", "PRETTY_NAME=\"Debian GNU/Linux 12\"\n");
        machine
    }

    fn put(&self, path: &str, text: &str) {
        let path = self.dir.path().join(path.trim_start_matches('/'));
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }

    fn has(&self, path: &str) -> bool {
        self.dir.path().join(path.trim_start_matches('/')).exists()
    }

    fn host(&self) -> Host {
        let options = Options { sync: false, owners: false };
        let root = Root::open_with(self.dir.path(), options, std::sync::Arc::new(NoFaults)).unwrap();
        let systemd = Box::new(FakeSystemd::new(&root));
        let os: Box<dyn OsBackend> = match &self.os {
            Some(os) => Box::new(os.clone()),
            None => Box::new(Unsupported::default()),
        };
        Host::new(root, systemd, os)
    }

    fn complete_first_boot(&self) -> Result<FirstBoot, DaemonError> {
        complete_first_boot(&mut self.host(), FIRSTBOOT_FILE)
    }
}

fn done() -> FirstBoot {
    FirstBoot::Complete { config: NAME.to_owned() }
}

#[test]
fn a_first_boot_records_the_config_and_completes_once() {
    let machine = Machine::new(json!({}));
    assert_eq!(machine.complete_first_boot().unwrap(), done());
    let mut host = machine.host();
    let current = host.current_config().unwrap().unwrap();
    assert_eq!(current.name, NAME);
    // The whole config is recorded, not the empty one in the input.
    let baseline = host.baseline().unwrap().unwrap();
    assert!(host.drifts_from(&baseline).unwrap().is_empty());
    machine.put("/etc/motd", "changed");
    assert!(!host.drifts_from(&baseline).unwrap().is_empty());
    assert!(!machine.has(FIRSTBOOT_FILE) && machine.has(&format!("{FIRSTBOOT_FILE}.bak")));
    assert_eq!(machine.complete_first_boot().unwrap(), FirstBoot::Nothing);
    assert_eq!(std::fs::read_to_string(machine.dir.path().join("etc/motd")).unwrap(), "changed");
}

#[test]
fn what_ignition_wrote_differently_is_corrected() {
    let machine = Machine::new(json!({}));
    machine.put("/etc/motd", "half of it");
    assert_eq!(machine.complete_first_boot().unwrap(), done());
    assert_eq!(std::fs::read_to_string(machine.dir.path().join("etc/motd")).unwrap(), "hello");
}

#[test]
fn kernel_arguments_of_the_running_boot_are_accepted_and_others_are_refused_by_name() {
    let machine = Machine::new(json!({"kernelArguments": ["quiet nosmt", "root=/dev/vda"]}));
    assert_eq!(machine.complete_first_boot().unwrap(), done());

    let machine = Machine::new(json!({"kernelArguments": ["quiet", "hugepages=4"]}));
    let why = machine.complete_first_boot().unwrap_err().to_string();
    for word in ["kernelArguments", "Debian GNU/Linux 12", NAME] {
        assert!(why.contains(word), "no {word} in {why}");
    }
    // The input file stays, so the next start retries; the machine has not changed.
    assert!(machine.has(FIRSTBOOT_FILE) && machine.host().current_config().unwrap().is_none());
}

#[test]
fn kernel_arguments_are_set_by_the_back_end_with_one_reboot() {
    let mut machine = Machine::new(json!({"kernelArguments": ["nosmt", "hugepages=4"]}));
    let mut os = FakeOs::default();
    machine.os = Some(os.clone());
    assert_eq!(machine.complete_first_boot().unwrap(), FirstBoot::Rebooting { config: NAME.to_owned() });
    let kernel_arguments = os.status().unwrap().next().kernel_arguments.clone();
    assert_eq!(kernel_arguments, ["ro", "nosmt", "hugepages=4"]);
    assert!(matches!(machine.host().reboot_status().unwrap(), RebootStatus::Owed(_)));
    assert!(!machine.has(FIRSTBOOT_FILE));
    // A crash before the input was renamed: the second try finds everything done, and the reboot is still to come.
    std::fs::rename(
        machine.dir.path().join("etc/ignition-machine-config-encapsulated.json.bak"),
        machine.dir.path().join("etc/ignition-machine-config-encapsulated.json"),
    )
    .unwrap();
    assert_eq!(machine.complete_first_boot().unwrap(), FirstBoot::Rebooting { config: NAME.to_owned() });
}

#[test]
fn the_image_of_the_config_or_of_the_pool_is_booted_before_the_kubelet_starts() {
    let digest = format!("registry.lab/os@sha256:{}", "ab".repeat(32));
    for (of_config, of_pool, wants) in [
        ("fake:2", "", "fake:2"),
        ("", digest.as_str(), digest.as_str()),
        ("fake:2", &digest, &digest),
        ("fake:1", "", ""),
    ] {
        let mut machine = Machine::new(json!({"osImageURL": of_config}));
        let mut os = FakeOs::default();
        machine.os = Some(os.clone());
        if !of_pool.is_empty() {
            machine.put(ANNOTATIONS_FILE, &json!({annotation::CURRENT_IMAGE: of_pool}).to_string());
        }
        let config = with_image(NAME, of_pool);
        if wants.is_empty() {
            // The machine was installed from it.
            assert_eq!(machine.complete_first_boot().unwrap(), done());
            assert_eq!(os.status().unwrap().staged, None);
            continue;
        }
        assert_eq!(machine.complete_first_boot().unwrap(), FirstBoot::Rebooting { config: config.clone() });
        assert_eq!(os.status().unwrap().next().image, wants);
        os.boot();
        FakeSystemd::new(machine.host().root()).complete_reboot().unwrap();
        let mut host = machine.host();
        assert_eq!(host.recover().unwrap(), host::Recovery::Finished { config });
        assert_eq!(os.status().unwrap().booted.image, wants, "{of_config} {of_pool}");
        assert!(!machine.has(FIRSTBOOT_FILE), "it is done once");
    }
}

#[test]
fn an_input_that_cannot_be_parsed_is_not_quoted() {
    let machine = Machine::new(json!({}));
    machine.put(FIRSTBOOT_FILE, "{\"metadata\": {\"name\": \"x\"}, \"spec\": \"hush\"}");
    let why = machine.complete_first_boot().unwrap_err().to_string();
    assert!(why.contains(FIRSTBOOT_FILE) && !why.contains("hush"), "{why}");
    // Another config than the one that was served.
    let mut other = mk_config(json!({}));
    other["metadata"]["name"] = "rendered-worker-2".into();
    machine.put(FIRSTBOOT_FILE, &other.to_string());
    let why = machine.complete_first_boot().unwrap_err().to_string();
    assert!(why.contains(SERVED_FILE) && why.contains("rendered-worker-2"), "{why}");
}

#[test]
fn an_argument_with_spaces_that_the_machine_was_booted_with_counts_as_set() {
    let has = desired::arguments(&["ro dyndbg=\"file a.c +p\" a b".to_owned()]);
    let wanted = ["dyndbg=\"file a.c +p\"", "a b", "b c"].map(str::to_owned);
    assert_eq!(present(&wanted, &has), ["dyndbg=\"file a.c +p\"", "a b"]);
}
