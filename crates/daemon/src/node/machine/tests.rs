//! Tests of the protocol's steps on a host in a folder.

mod secrets;

use super::*;
use api::v1::MachineConfigSpec;
use serde_json::json;

#[test]
fn an_image_is_fetched_by_its_own_step_and_staged_by_the_apply() {
    let dir = tempfile::TempDir::new().unwrap();
    std::fs::create_dir_all(dir.path().join("etc/systemd/system")).unwrap();
    let options = host::Options { sync: false, owners: false };
    let root = Root::open_with(dir.path(), options, std::sync::Arc::new(host::fault::NoFaults)).unwrap();
    let systemd = Box::new(host::FakeSystemd::new(&root));
    let os = host::FakeOs::default();
    let machine = Machine::new(Host::new(root, systemd, Box::new(os.clone())));
    let image = "registry.example.com/os@sha256:1";
    let spec = MachineConfigSpec { os_image_url: image.to_owned(), ..MachineConfigSpec::default() };
    let (from, to) =
        (MachineConfig::new(EMPTY_CONFIG, MachineConfigSpec::default()), MachineConfig::new("one", spec));
    let (cost, work) = machine.prepare(&from, &to, &DisruptionPolicy::default()).unwrap();
    assert!(cost.reboot && work.needs_fetch());
    assert_eq!(os.fetches(), 0, "planning changes nothing and does not wait");
    machine.fetch(&work, &host::Pull::default()).unwrap();
    machine.fetch(&work, &host::Pull::default()).unwrap();
    let staged = |os: &host::FakeOs| host::OsBackend::status(&mut os.clone()).unwrap().staged;
    assert_eq!((os.fetches(), staged(&os)), (1, None));
    machine.apply(work, &Default::default(), &Default::default()).unwrap();
    assert_eq!((os.fetches(), staged(&os).unwrap().image.as_str()), (1, image));
}

#[test]
fn fields_that_the_back_end_supports_are_changed_and_others_are_refused_with_the_reason() {
    let dir = tempfile::TempDir::new().unwrap();
    std::fs::create_dir_all(dir.path().join("etc/systemd/system")).unwrap();
    let options = host::Options { sync: false, owners: false };
    let root = Root::open_with(dir.path(), options, std::sync::Arc::new(host::fault::NoFaults)).unwrap();
    let systemd = Box::new(host::FakeSystemd::new(&root));
    let booted = host::Deployment { kernel_type: "default".to_owned(), ..host::Deployment::default() };
    let status = host::OsStatus { booted, ..host::OsStatus::default() };
    let os = host::FakeOs::with_kernel_arguments_only(status);
    let machine = Machine::new(Host::new(root, systemd, Box::new(os)));
    assert!(!machine.facts().unwrap().takes_images);
    let from = MachineConfig::new(EMPTY_CONFIG, MachineConfigSpec::default());
    let arguments = Some(vec!["nosmt".to_owned()]);
    let spec = MachineConfigSpec { kernel_arguments: arguments, ..MachineConfigSpec::default() };
    let policy = DisruptionPolicy::default();
    let to = MachineConfig::new("one", spec.clone());
    let (cost, work) = machine.prepare(&from, &to, &policy).unwrap();
    assert!(cost.reboot && work.plan.to_string().contains("+nosmt"), "{}", work.plan);
    let spec = MachineConfigSpec { os_image_url: "registry.example.com/os:1".to_owned(), ..spec };
    let refused = machine.prepare(&from, &MachineConfig::new("two", spec), &policy).unwrap_err();
    assert_eq!(refused.kind, FailureKind::Unreconcilable);
    assert!(
        refused.text.contains("spec.osImageURL") && refused.text.contains("this fake cannot"),
        "{refused}"
    );
    assert!(!refused.text.contains("spec.kernelArguments"), "{refused}");
}

#[test]
fn a_file_created_during_the_drain_is_kept_as_the_original() {
    let dir = tempfile::TempDir::new().unwrap();
    std::fs::create_dir(dir.path().join("etc")).unwrap();
    let options = host::Options { sync: false, owners: false };
    let root = Root::open_with(dir.path(), options, std::sync::Arc::new(host::fault::NoFaults)).unwrap();
    let systemd = Box::new(host::FakeSystemd::new(&root));
    let machine = Machine::new(Host::new(root, systemd, Box::new(host::Unsupported::default())));
    let config = |name: &str, files: serde_json::Value| {
        let config = Some(json!({"ignition": {"version": "3.5.0"}, "storage": {"files": files}}));
        MachineConfig::new(name, MachineConfigSpec { config, ..MachineConfigSpec::default() })
    };
    let from = config(EMPTY_CONFIG, json!([]));
    let to = config("one", json!([{"path": "/etc/app.conf", "contents": {"source": "data:,ours"}}]));
    let (cost, work) = machine.prepare(&from, &to, &DisruptionPolicy::default()).unwrap();
    assert_eq!(cost, Cost { drain: true, reboot: true });
    assert!(!format!("{work:?}").contains("ours"), "{work:?}");
    let read = |path: &str| std::fs::read_to_string(dir.path().join(path)).unwrap();
    std::fs::write(dir.path().join("etc/app.conf"), "the host's").unwrap();
    machine.apply(work, &Default::default(), &Default::default()).unwrap();
    assert_eq!(read("etc/app.conf"), "ours");
    assert_eq!(read("etc/machine-config-daemon/orig/etc/app.conf.mcdorig"), "the host's");
}

#[test]
fn a_host_goes_to_its_pools_image_and_to_another_one_and_back_to_that_of_its_config() {
    let dir = tempfile::TempDir::new().unwrap();
    std::fs::create_dir_all(dir.path().join("etc/systemd/system")).unwrap();
    std::fs::create_dir_all(dir.path().join("run")).unwrap();
    let options = host::Options { sync: false, owners: false };
    let root = Root::open_with(dir.path(), options, std::sync::Arc::new(host::fault::NoFaults)).unwrap();
    let os = host::FakeOs::default();
    let machine =
        Machine::new(Host::new(root.clone(), Box::new(host::FakeSystemd::new(&root)), Box::new(os.clone())));
    let config = |name: &str, image: &str, text: &str| {
        let file =
            serde_json::json!({"path": "/etc/app.conf", "contents": {"source": format!("data:,{text}")}});
        let spec = MachineConfigSpec {
            os_image_url: image.to_owned(),
            kernel_arguments: Some(vec!["nosmt".to_owned()]),
            extensions: Some(vec!["usbguard".to_owned()]),
            config: Some(serde_json::json!({"ignition": {"version": "3.5.0"}, "storage": {"files": [file]}})),
            ..MachineConfigSpec::default()
        };
        MachineConfig::new(name, spec)
    };
    let (one, two) = (config("one", "fake:1", "1"), config("two", "fake:1", "2"));
    let state = |config: &MachineConfig, image: &str| {
        let name = config.metadata.name.clone().unwrap_or_default();
        crate::agent::update::in_state(config.clone(), &desired::with_image(&name, image))
    };
    let record = dir.path().join("etc/machine-config-daemon/currentimage");
    let mut at = MachineConfig::new(EMPTY_CONFIG, MachineConfigSpec::default());
    for (config, image, text, extensions) in [
        (&one, "", "1", &["usbguard"][..]),
        (&one, "fake:a", "1", &[]),
        (&one, "fake:b", "1", &[]),
        (&two, "fake:b", "2", &[]),
        (&two, "", "2", &["usbguard"]),
    ] {
        let to = state(config, image);
        let name = to.metadata.name.clone().unwrap_or_default();
        let (cost, work) = machine.prepare(&at, &to, &DisruptionPolicy::default()).unwrap();
        assert!(cost.reboot, "{name}");
        machine.fetch(&work, &Pull::default()).unwrap();
        machine.apply(work, &Default::default(), &Default::default()).unwrap();
        host::FakeSystemd::new(&root).complete_reboot().unwrap();
        let _ = std::fs::remove_file(dir.path().join("run/machine-config-daemon-boot"));
        os.boot();
        assert!(!machine.recover().unwrap());
        // A change of files alone is not on trial.
        let tried = machine.confirm_trial().unwrap();
        assert!(tried.is_none_or(|config| config == name), "{name}");
        machine.host().reboot_done().unwrap();
        let booted = host::OsBackend::status(&mut os.clone()).unwrap().booted;
        assert_eq!(booted.image, if image.is_empty() { "fake:1" } else { image });
        // What the image has in itself is not installed in addition.
        assert_eq!(booted.extensions, extensions, "{name}");
        assert_eq!(booted.kernel_arguments, ["ro", "nosmt"]);
        assert_eq!(std::fs::read_to_string(dir.path().join("etc/app.conf")).unwrap(), text);
        assert_eq!(machine.facts().unwrap().current.as_deref(), Some(&*name));
        assert_eq!(std::fs::read_to_string(&record).ok().as_deref(), Some(image).filter(|i| !i.is_empty()));
        assert!(machine.check(None).unwrap().is_none(), "{name}: it has drifted");
        at = machine.current().unwrap().unwrap();
        assert_eq!(at.metadata.name.as_deref(), Some(&*name));
    }
    // The record of another implementation has the config as its object has it, and the image beside it.
    let text = serde_json::json!({"metadata": {"name": "one"}, "spec": one.spec});
    std::fs::write(dir.path().join("etc/machine-config-daemon/currentconfig"), text.to_string()).unwrap();
    std::fs::write(&record, "fake:a\n").unwrap();
    let read = machine.current().unwrap().unwrap();
    assert_eq!(
        (read.metadata.name.as_deref(), read.spec.os_image_url.as_str()),
        (Some("one+fake:a"), "fake:a")
    );
    // A config that names no image is no way back.
    let nowhere = config("three", "", "3");
    let refused = machine.prepare(&read, &nowhere, &DisruptionPolicy::default()).unwrap_err();
    assert_eq!(refused.kind, FailureKind::Unreconcilable);
    assert!(refused.text.contains("fake:a") && refused.text.contains("spec.osImageURL"), "{refused}");
}

#[test]
fn extensions_that_the_host_does_not_apply_live_are_taken_with_a_reboot_and_say_why() {
    let dir = tempfile::TempDir::new().unwrap();
    std::fs::create_dir_all(dir.path().join("etc/systemd/system")).unwrap();
    let options = host::Options { sync: false, owners: false };
    let root = Root::open_with(dir.path(), options, std::sync::Arc::new(host::fault::NoFaults)).unwrap();
    let mut os = host::FakeOs::default();
    os.allow_live();
    os.refuse_live("packages would be changed: 2");
    let machine =
        Machine::new(Host::new(root.clone(), Box::new(host::FakeSystemd::new(&root)), Box::new(os.clone())));
    let extensions = Some(vec!["usbguard".to_owned()]);
    let to = MachineConfig::new("one", MachineConfigSpec { extensions, ..MachineConfigSpec::default() });
    let from = MachineConfig::new(EMPTY_CONFIG, MachineConfigSpec::default());
    let policy = DisruptionPolicy { live_extensions: true, ..DisruptionPolicy::default() };
    let (cost, work) = machine.prepare(&from, &to, &policy).unwrap();
    assert_eq!((cost, work.needs_fetch(), work.not_live()), (Cost::default(), true, String::new()));
    machine.fetch(&work, &Pull::default()).unwrap();
    let refused = machine.apply(work, &Default::default(), &Default::default()).unwrap_err();
    assert_eq!(refused.kind, FailureKind::Transient, "nothing is wrong with the node: {refused}");
    assert!(refused.text.contains("packages would be changed: 2"), "{refused}");
    let (cost, work) = machine.prepare(&from, &to, &policy).unwrap();
    assert_eq!(cost, Cost { drain: true, reboot: true });
    assert!(work.not_live().contains("packages would be changed: 2"), "{}", work.not_live());
    assert!(work.warnings().iter().any(|note| note.text == work.not_live()));
    machine.apply(work, &Default::default(), &Default::default()).unwrap();
    let staged = host::OsBackend::status(&mut os).unwrap().staged.unwrap();
    assert_eq!(staged.extensions, ["usbguard"]);
}
