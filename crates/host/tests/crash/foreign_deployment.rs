//! Another program or a person stages a deployment before, during and after a change of the operating system: the agent neither
//! replaces nor drops it, says so, and goes on when it is gone.
//!
//! Not here: how each back end knows its own deployments (see its tests).

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::common::{is_root, mk_host};
use crate::fault_points::{Injection, What};
use crate::prepared::{Prepared, boot, copy, mk_os, prepare, same, state, status_of};
use api::formats::text::chain;
use host::fault::{Fault, Faults, NoFaults, Point};
use host::{Deployment, Error, FakeOs, Recovery};

fn prepared() -> Prepared {
    prepare(&crate::config_pairs::os_pairs().remove(0))
}

/// What somebody else stages.
fn foreign(p: &Prepared) -> Deployment {
    Deployment { image: "somebody:1".to_owned(), ..p.base_os.booted.clone() }
}

/// Checks that an error says what is the matter and what to do.
fn is_told(error: &Error) {
    let text = chain(error);
    assert!(text.contains("somebody:1") && text.contains("not by a MachineConfig"), "{text}");
    assert!(text.contains("reboot into it, or drop it"), "{text}");
}

#[test]
fn a_deployment_that_somebody_staged_before_a_change_stays_and_nothing_changes() {
    if !is_root() {
        return;
    }
    let p = prepared();
    let (dir, os) = (copy(p.base.path()), mk_os(&p.base_os));
    os.stage_by_hand(&foreign(&p));
    let before = state(dir.path(), &os);
    let mut host = mk_host(dir.path(), &os, Arc::new(NoFaults));
    is_told(&host.fetch(&p.plan, &host::Pull::default()).unwrap_err());
    is_told(&host.apply(&p.plan).unwrap_err());
    same(&state(dir.path(), &os), &before, "refused");
    assert_eq!(status_of(&os).staged, Some(foreign(&p)));
    assert_eq!(host.recover().unwrap(), Recovery::Nothing);
    os.drop_by_hand();
    host.apply(&p.plan).unwrap();
    same(&state(dir.path(), &os), &p.new, "it is gone");
}

/// Somebody stages a deployment just before the agent does, once.
#[derive(Debug)]
struct StagedBefore {
    os: FakeOs,
    deployment: Deployment,
    is_done: AtomicBool,
}

impl Faults for StagedBefore {
    fn at(&self, point: Point<'_>) -> Result<(), Fault> {
        if point.call == "stage" && point.before && !self.is_done.swap(true, Ordering::Relaxed) {
            self.os.stage_by_hand(&self.deployment);
        }
        Ok(())
    }
}

#[test]
fn a_deployment_that_somebody_stages_during_a_change_holds_up_its_undo_until_it_is_gone() {
    if !is_root() {
        return;
    }
    let p = prepared();
    let (dir, os) = (copy(p.base.path()), mk_os(&p.base_os));
    let faults =
        Arc::new(StagedBefore { os: os.clone(), deployment: foreign(&p), is_done: AtomicBool::new(false) });
    let mut host = mk_host(dir.path(), &os, faults);
    let error = host.apply(&p.plan).unwrap_err();
    assert!(matches!(&error, Error::UndoIncomplete { .. }), "{error}");
    is_told(&error);
    for _ in 0..2 {
        is_told(&host.recover().unwrap_err());
        assert!(host.has_unfinished_change().unwrap(), "it is not given up");
        assert_eq!(status_of(&os).staged, Some(foreign(&p)));
    }
    os.drop_by_hand();
    let recovery = host.recover().unwrap();
    assert!(matches!(recovery, Recovery::Undone { .. }), "{recovery:?}");
    same(&state(dir.path(), &os), &p.old, "it is gone");
    assert_eq!(host.recover().unwrap(), Recovery::Nothing);
}

#[test]
fn a_recovery_whose_undo_is_refused_says_so_and_a_later_one_succeeds_wherever_the_process_ended() {
    if !is_root() {
        return;
    }
    let p = prepared();
    let (mut refused, mut waited) = (0, 0);
    for at in 0..p.points() {
        let about = format!("killed at {at}");
        let (dir, os) = (copy(p.base.path()), mk_os(&p.base_os));
        let error = mk_host(dir.path(), &os, Injection::at(at, What::Kill)).apply(&p.plan).unwrap_err();
        assert!(error.killed(), "{about}: {error}");
        os.stage_by_hand(&foreign(&p));
        let mut host = mk_host(dir.path(), &os, Arc::new(NoFaults));
        match host.recover() {
            Err(error) => {
                refused += 1;
                is_told(&error);
                assert_eq!(status_of(&os).staged, Some(foreign(&p)), "{about}");
                os.drop_by_hand();
                let recovery = host.recover().unwrap();
                assert!(matches!(recovery, Recovery::Undone { .. }), "{about}: {recovery:?}");
            }
            Ok(Recovery::AwaitsBoot { .. }) => {
                waited += 1;
                // The machine boots what somebody else staged. That is not what the config asks for.
                boot(dir.path(), &os);
                let recovery = host.recover().unwrap();
                assert!(matches!(recovery, Recovery::AwaitsReturn { .. }), "{about}: {recovery:?}");
                boot(dir.path(), &os);
                let recovery = host.recover().unwrap();
                assert!(matches!(recovery, Recovery::RolledBack { .. }), "{about}: {recovery:?}");
                assert_eq!(status_of(&os).booted, p.base_os.booted, "{about}");
            }
            Ok(Recovery::Nothing) => os.drop_by_hand(),
            Ok(other) => panic!("{about}: {other:?}"),
        }
        same(&(state(dir.path(), &os).0, p.old.1.clone()), &p.old, &about);
        assert_eq!(host.recover().unwrap(), Recovery::Nothing, "{about}");
    }
    assert!(refused > 10 && waited > 0, "{refused} were refused, {waited} waited for the boot");
}
