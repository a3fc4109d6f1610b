//! OSTree's merge of `/etc` at a change of deployment leaves behind what the old image held as the config wants it. The
//! change writes that again, whenever its process ends, and nothing that a person changed.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use crate::common::copy::copy_one;
use crate::common::{BySpec as _, is_root, mk_host, mk_host_tree, plan, tree};
use crate::config_pairs::{file, spec, unit};
use crate::fault_points::{Injection, What};
use crate::prepared::{Tree, boot, copy, names, policy};
use api::v1::MachineConfigSpec;
use host::fault::NoFaults;
use host::{Check, Drift, FakeOs, FakeSystemd, Host, OsBackend, Recovery, Systemd};

const REGISTRIES: &str = "/etc/containers/registries.conf";
const LAB: &str = "/etc/lab-file";
const UNIT: &str = "/etc/systemd/system/lab.service";
const LINK: &str = "/etc/systemd/system/multi-user.target.wants/lab.service";
const DROPIN: &str = "/etc/systemd/system/vendor.service.d/10-lab.conf";
/// An image of the pool's, and the one that the config names otherwise.
const POOLS: &str = "fake:pool";
const STOCK: &str = "fake:1";

/// A machine whose images have an `/etc` each.
struct Machine {
    at: tempfile::TempDir,
    os: FakeOs,
    images: BTreeMap<String, tempfile::TempDir>,
}

/// What a path holds: contents or target of a link, mode and owner, as OSTree compares them.
fn entries(top: &Path) -> Tree {
    tree(top, &["/"], &[])
}

fn put(from: &Path, to: &Path, path: &str) {
    let (from, to) = (from.join(&path[1..]), to.join(&path[1..]));
    if from.is_dir() && !from.is_symlink() {
        fs::create_dir_all(to).unwrap();
    } else {
        let _ = fs::remove_file(&to);
        fs::create_dir_all(to.parent().unwrap()).unwrap();
        copy_one(&from, &to);
    }
}

impl Machine {
    fn host(&self) -> Host {
        mk_host(self.at.path(), &self.os, Arc::new(NoFaults))
    }

    /// The same machine once more.
    fn twin(&self) -> Self {
        let os = FakeOs::new(self.os.clone().status().unwrap());
        os.keep_folders();
        let images = self.images.iter().map(|(name, dir)| (name.clone(), copy(dir.path()))).collect();
        Self { at: copy(self.at.path()), os, images }
    }

    /// An orderly shutdown, at which OSTree merges `/etc`, and the boot into the new deployment.
    fn boot(&self) {
        let at = self.at.path();
        let (etc, of_image) = (at.join("etc"), at.join("usr/etc"));
        let left = at.join(&self.os.folder()[1..]);
        boot(at, &self.os);
        let new = &self.images[&self.os.clone().status().unwrap().booted.image];
        let (base, changed) = (entries(&of_image), entries(&etc));
        let merged = copy(new.path());
        for path in base.keys().rev().filter(|path| !changed.contains_key(*path)) {
            let gone = merged.path().join(&path[1..]);
            let _ = fs::remove_file(&gone).or_else(|_| fs::remove_dir(&gone));
        }
        for (path, _) in changed.iter().filter(|(path, what)| base.get(*path) != Some(what)) {
            put(&etc, merged.path(), path);
        }
        fs::create_dir_all(&left).unwrap();
        let _ = fs::remove_dir_all(left.join("etc"));
        fs::rename(&etc, left.join("etc")).unwrap();
        fs::rename(copy(merged.path()).keep(), &etc).unwrap_or_else(|_| panic!("one file system"));
        fs::remove_dir_all(&of_image).unwrap();
        fs::rename(copy(new.path()).keep(), &of_image).unwrap();
    }

    /// Applies a config. `trial`: it has to be confirmed.
    fn apply(&self, old: &MachineConfigSpec, new: &MachineConfigSpec, to: [&str; 2], trial: bool) {
        let mut host = self.host();
        let facts = host.probe(old, new).unwrap();
        let mut plan = plan(old, new, &names(to[0], to[1]), &policy(), &facts).unwrap();
        if trial {
            plan.on_trial(Duration::from_secs(600), &[], String::new());
        }
        host.apply(&plan).unwrap();
    }

    fn text(&self, path: &str) -> Option<String> {
        fs::read_to_string(self.at.path().join(&path[1..])).ok()
    }
}

fn config(image: &str) -> MachineConfigSpec {
    let dropin = file(DROPIN, "%5BService%5D%0A");
    let files = [file(LAB, "lab"), file(REGISTRIES, "%23%20pool%0A"), dropin, file("/etc/kept", "kept")];
    MachineConfigSpec { os_image_url: image.to_owned(), ..spec(&files, &[unit("lab.service", true)], &[]) }
}

/// A machine in the stock image, and one that runs the pool's, which holds all files of the config but one. `first`: it had
/// the config before it had the image, so that the originals are those of the stock image.
fn in_pools_image(first: bool) -> Machine {
    let at = mk_host_tree();
    let stock = copy(&at.path().join("etc"));
    fs::create_dir_all(stock.path().join("containers")).unwrap();
    fs::write(stock.path().join("containers/registries.conf"), "# distribution\n").unwrap();
    fs::remove_dir_all(at.path().join("etc")).unwrap();
    for dir in ["etc", "usr/etc"] {
        fs::rename(copy(stock.path()).keep(), at.path().join(dir)).unwrap();
    }
    let os = FakeOs::default();
    os.keep_folders();
    let images = [(STOCK.to_owned(), copy(stock.path()))].into();
    let mut machine = Machine { at, os, images };
    // What a build writes into the image is what the config writes on a host.
    let nothing = MachineConfigSpec { os_image_url: STOCK.to_owned(), ..MachineConfigSpec::default() };
    let built = machine.twin();
    built.apply(&nothing, &config(STOCK), ["", "built"], false);
    let image = copy(stock.path());
    for path in [LAB, REGISTRIES, UNIT, LINK, DROPIN] {
        put(&built.at.path().join("etc"), image.path(), path.strip_prefix("/etc").unwrap());
    }
    machine.images.insert(POOLS.to_owned(), image);
    if first {
        machine.apply(&nothing, &config(STOCK), ["", "stock"], false);
        machine.boot_same();
        machine.apply(&config(STOCK), &config(POOLS), ["stock", "pool"], false);
    } else {
        machine.apply(
            &nothing,
            &MachineConfigSpec { os_image_url: POOLS.to_owned(), ..nothing.clone() },
            ["", "image"],
            false,
        );
        machine.boot();
        machine.host().recover().unwrap();
        machine.apply(
            &MachineConfigSpec { os_image_url: POOLS.to_owned(), ..nothing },
            &config(POOLS),
            ["image", "pool"],
            false,
        );
        machine.boot_same();
        return machine;
    }
    machine.boot();
    machine.host().recover().unwrap();
    machine.host().reboot_done().unwrap();
    assert_eq!(machine.host().drifts(&config(POOLS)).unwrap(), []);
    machine
}

impl Machine {
    fn boot_same(&self) {
        boot(self.at.path(), &self.os);
        self.host().recover().unwrap();
        self.host().reboot_done().unwrap();
    }
}

/// On the way back, before the boot.
fn on_the_way_back(first: bool, trial: bool) -> Machine {
    let machine = in_pools_image(first);
    machine.apply(&config(POOLS), &config(STOCK), ["pool", "back"], trial);
    machine
}

fn etc(machine: &Machine) -> Tree {
    let own = ["/etc/machine-config-daemon/orig", "/etc/machine-config-daemon/noorig"];
    tree(machine.at.path(), &["/etc"], &own)
}

fn ends(machine: &Machine, trial: bool, about: &str) {
    let recovery = machine.host().recover().unwrap();
    match trial {
        true => assert!(matches!(recovery, Recovery::OnTrial { .. }), "{about}: {recovery:?}"),
        false => {
            assert!(
                matches!(recovery, Recovery::Finished { .. } | Recovery::Nothing),
                "{about}: {recovery:?}"
            );
        }
    }
}

#[test]
fn what_the_merge_left_behind_is_written_again_whenever_the_process_ends() {
    if !is_root() {
        return;
    }
    for (first, trial) in [(true, true), (true, false), (false, true), (false, false)] {
        let before = on_the_way_back(first, trial);
        let want = etc(&before);
        before.boot();
        assert_eq!(before.text(LAB), None, "the merge leaves it behind");
        assert_eq!(before.text(REGISTRIES).as_deref(), Some("# distribution\n"));
        let counted = Injection::at(0, What::Nothing);
        mk_host(before.twin().at.path(), &before.os, counted.clone()).recover().unwrap();
        let points = counted.count();
        assert!(points > 40, "{points}");
        for at in 0..=points {
            let about = format!("config first {first}, trial {trial}, killed at {at} of {points}");
            let machine = before.twin();
            let done = mk_host(machine.at.path(), &machine.os, Injection::at(at, What::Kill)).recover();
            assert!(done.is_ok() || done.is_err_and(|e| e.killed()), "{about}");
            // Every third time the power fails, and every other time the recovery ends early too.
            let cut = at % 3 == 0;
            if cut {
                boot(machine.at.path(), &machine.os);
            }
            if at % 2 == 0 {
                let again = Injection::at(at * 7 % points, What::Kill);
                let _ = mk_host(machine.at.path(), &machine.os, again).recover();
            }
            ends(&machine, trial, &about);
            assert_eq!(machine.host().drifts(&config(STOCK)).unwrap(), [], "{about}");
            assert_eq!(etc(&machine), want, "{about}");
            let mut host = machine.host();
            let mut systemd = FakeSystemd::new(host.root());
            // A boot starts by itself what was written before it.
            let started = systemd.was_started("lab.service").unwrap();
            assert!(started || cut, "{about}: the boot would have started it");
            if trial {
                assert_eq!(host.confirm_trial().unwrap().as_deref(), Some("back"), "{about}");
            }
            assert_eq!(host.recover().unwrap(), Recovery::Nothing, "{about}");
            host.reboot_done().unwrap();
            // The stock image's own files are the originals.
            let nothing =
                MachineConfigSpec { os_image_url: STOCK.to_owned(), ..MachineConfigSpec::default() };
            machine.apply(&config(STOCK), &nothing, ["back", "gone"], false);
            assert_eq!(machine.text(REGISTRIES).as_deref(), Some("# distribution\n"), "{about}");
            for path in [LAB, UNIT, DROPIN] {
                assert_eq!(machine.text(path), None, "{about}: {path}");
            }
        }
        println!("{points} kills");
    }
}

#[test]
fn what_a_person_changed_before_or_after_the_boot_is_told_and_not_written() {
    if !is_root() {
        return;
    }
    let machine = on_the_way_back(true, true);
    let at = |path: &str| machine.at.path().join(&path[1..]);
    // Before the boot: one is removed, one is changed, and one is what the stock image has.
    fs::remove_file(at(LAB)).unwrap();
    fs::write(at(DROPIN), "mine").unwrap();
    fs::write(at(REGISTRIES), "# distribution\n").unwrap();
    machine.boot();
    ends(&machine, true, "drift");
    let told: Vec<String> = machine.host().drifts(&config(STOCK)).unwrap().iter().map(Drift::path).collect();
    assert_eq!(told.iter().map(String::as_str).collect::<Vec<_>>(), [LAB, REGISTRIES, DROPIN]);
    assert!(at(UNIT).exists() && at(LINK).is_symlink(), "what nobody changed is written");
    // After it.
    fs::remove_file(at(UNIT)).unwrap();
    fs::remove_file(at("/etc/kept")).unwrap();
    ends(&machine, true, "later");
    assert!(!at(UNIT).exists() && !at("/etc/kept").exists());
}

#[test]
fn a_machine_whose_old_deployment_is_gone_tells_what_is_missing() {
    if !is_root() {
        return;
    }
    let machine = on_the_way_back(true, true);
    machine.boot();
    fs::remove_dir_all(machine.at.path().join("ostree")).unwrap();
    ends(&machine, true, "gone");
    assert!(!machine.host().drifts(&config(STOCK)).unwrap().is_empty());
    assert_eq!(machine.text(LAB), None);
}

#[test]
fn a_call_that_fails_keeps_no_trial_from_its_end_and_the_next_start_writes_the_rest() {
    if !is_root() {
        return;
    }
    let before = on_the_way_back(true, true);
    let want = etc(&before);
    before.boot();
    for at in (0..90).step_by(3) {
        let machine = before.twin();
        let fails = Injection::at(at, What::Fail(std::io::ErrorKind::StorageFull));
        let _ = mk_host(machine.at.path(), &machine.os, fails).recover();
        ends(&machine, true, &format!("call {at} fails"));
        assert_eq!(etc(&machine), want, "call {at} fails");
    }
}

#[test]
fn a_trial_that_fails_after_it_gives_the_pools_image_its_files_back() {
    if !is_root() {
        return;
    }
    let machine = on_the_way_back(true, true);
    let (at, left) = (machine.at.path(), machine.os.folder());
    machine.boot();
    ends(&machine, true, "on trial");
    let recovery = machine.host().fail_trial(Check::Api, "no answer").unwrap();
    assert!(matches!(recovery, Recovery::AwaitsReturn { .. }), "{recovery:?}");
    // The old deployment has its own `/etc`, as it was at shutdown. Nothing is merged.
    boot(at, &machine.os);
    fs::remove_dir_all(at.join("etc")).unwrap();
    fs::rename(at.join(&left[1..]).join("etc"), at.join("etc")).unwrap();
    let recovery = machine.host().recover().unwrap();
    assert!(matches!(recovery, Recovery::RolledBack { .. }), "{recovery:?}");
    assert_eq!(machine.host().current_config().unwrap().unwrap().name, "pool");
    assert_eq!(machine.host().drifts(&config(POOLS)).unwrap(), []);
    assert!(!at.join("var/lib/machine-config-daemon/journal/merge.json").exists());
}

#[test]
fn the_record_of_the_config_comes_along_if_the_old_image_holds_it_too() {
    if !is_root() {
        return;
    }
    let machine = on_the_way_back(true, true);
    let record = host::paths::CURRENT_CONFIG;
    put(machine.at.path(), &machine.at.path().join("usr"), record);
    machine.boot();
    assert_eq!(machine.text(record), None);
    ends(&machine, true, "record");
    assert_eq!(machine.host().current_config().unwrap().unwrap().name, "back");
    assert_eq!(machine.host().drifts(&config(STOCK)).unwrap(), []);
}
