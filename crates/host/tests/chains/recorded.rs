//! Replays the recorded chains of `tests/conformance/host` on a folder with the fake systemd. What the reference agent
//! did on machines that really booted, our plan and apply must do too. `check_host.py` does the same on a real node,
//! and counts the same differences, with two exceptions. `/etc/shadow` and `/etc/passwd-` hold other users here, so
//! only their mode and owner are compared. The operating system is an in-memory one that can do everything (for a host
//! that cannot, see `a_host_without_an_os_back_end_refuses_what_it_cannot_do`).

use std::sync::Arc;

use crate::chain::{Machine, chains};
use crate::common::{BySpec as _, plan};
use crate::common::{is_root, mk_host, mk_host_tree};
use api::v1::MachineConfigSpec;
use host::fault::NoFaults;
use host::{DisruptionPolicy, FakeOs, FakeSystemd, Host, Names, RebootStatus, Recovery, Root, Unsupported};

#[test]
fn every_recorded_step_ends_as_the_reference_ended() {
    if !is_root() {
        return;
    }
    let (mut total, mut bad) = (0, Vec::new());
    for chain in chains() {
        let dir = mk_host_tree();
        let os = FakeOs::default();
        let host = mk_host(dir.path(), &os, Arc::new(NoFaults));
        let mut systemd = FakeSystemd::new(host.root());
        let mut reboot = |host: &mut Host| {
            host.reboot("test").unwrap();
            assert_eq!(systemd.reboot_requested().unwrap().as_deref(), Some("test"));
            systemd.complete_reboot().unwrap();
            os.boot();
            assert!(matches!(host.recover(), Ok(Recovery::Nothing | Recovery::Finished { .. })));
            assert!(matches!(host.reboot_status(), Ok(RebootStatus::Rebooted(_))));
        };
        let (steps, differs) = Machine::new(dir.path(), host, &[]).lead(&chain, &mut reboot);
        total += steps;
        bad.extend(differs);
    }
    println!("{total} steps");
    assert!(total > 100, "only {total} steps found");
    assert!(bad.is_empty(), "{} differences:\n{}", bad.len(), bad.join("\n"));
}

#[test]
fn a_host_without_an_os_back_end_refuses_what_it_cannot_do() {
    let dir = mk_host_tree();
    let root = Root::open(dir.path()).unwrap();
    let mut host =
        Host::new(root.clone(), Box::new(FakeSystemd::new(&root)), Box::new(Unsupported::default()));
    let old = MachineConfigSpec::default();
    for (field, new) in [
        ("spec.osImageURL", MachineConfigSpec { os_image_url: "x".to_owned(), ..old.clone() }),
        (
            "spec.kernelArguments",
            MachineConfigSpec { kernel_arguments: Some(vec!["quiet".to_owned()]), ..old.clone() },
        ),
        ("spec.kernelType", MachineConfigSpec { kernel_type: "realtime".to_owned(), ..old.clone() }),
        (
            "spec.extensions",
            MachineConfigSpec { extensions: Some(vec!["usbguard".to_owned()]), ..old.clone() },
        ),
    ] {
        let facts = host.probe(&old, &new).unwrap();
        let bad = plan(&old, &new, &Names::default(), &DisruptionPolicy::default(), &facts).unwrap_err();
        let texts: Vec<_> = bad.iter().map(ToString::to_string).collect();
        assert_eq!(bad.len(), 1, "{texts:?}");
        assert!(texts[0].contains(field) && texts[0].contains("Debian GNU/Linux 12"), "{texts:?}");
    }
}
