//! Tests of `follow`: new lists, watches that fail, and failures that pass.

use super::*;
use crate::status::watch_errors::TRIED;

#[test]
fn objects_missing_from_a_complete_new_list_are_dropped() {
    let pool = |name: &str| MachineConfigPool::new(name, Default::default());
    let mut kind = Kind::new();
    let mut steps: Vec<(Event<MachineConfigPool>, &[&str])> = vec![
        (Event::Init, &[]),
        (Event::InitApply(pool("a")), &[]),
        (Event::InitApply(pool("b")), &[]),
        (Event::InitDone, &["a", "b"]),
        (Event::Apply(pool("c")), &["a", "b", "c"]),
        (Event::Delete(pool("a")), &["b", "c"]),
        (Event::Init, &["b", "c"]),
        (Event::InitApply(pool("c")), &["b", "c"]),
        (Event::InitDone, &["c"]),
    ];
    for (n, (event, want)) in steps.drain(..).enumerate() {
        kind.take(event, |_| ());
        assert_eq!(kind.known.keys().collect::<Vec<_>>(), want, "step {n}");
    }
}

#[test]
fn the_trouble_of_one_watch_lasts_until_that_watch_is_answered() {
    let now = Instant::now();
    let mut troubles = Troubles::default();
    assert_eq!(troubles.text(now), None);
    troubles.note(1, "Nodes", "403 Forbidden".to_owned(), now);
    troubles.over(2);
    assert_eq!(troubles.text(now).as_deref(), Some("Nodes: 403 Forbidden"), "another one is answered");
    troubles.note(2, "MachineConfigPools", "refused".to_owned(), now);
    troubles.note(1, "Nodes", "refused".to_owned(), now);
    assert_eq!(troubles.text(now).as_deref(), Some("MachineConfigPools, Nodes: refused"));
    troubles.over(2);
    assert_eq!(troubles.text(now).as_deref(), Some("Nodes: refused"));
    // Nothing changes that the watch could tell, but it would have failed again by then.
    assert!(troubles.text(now + TRIED - Duration::from_secs(1)).is_some());
    assert_eq!(troubles.text(now + TRIED), None);
    troubles.over(1);
    assert_eq!(troubles.text(now), None);
}

#[test]
fn an_api_server_that_is_away_or_busy_is_asked_again_and_one_that_refuses_is_not() {
    let answer =
        |code| kube::Error::Api(Box::new(kube::core::Status::failure("no", "Reason").with_code(code)));
    let list = |error| refused(kube::runtime::watcher::Error::InitialListFailed(error));
    let broken = || kube::Error::Service("connection refused".into());
    let json = serde_json::from_str::<bool>("x").unwrap_err();
    let rows = [
        (FollowError::Late, true),
        (list(broken()), true),
        (refused(kube::runtime::watcher::Error::WatchStartFailed(broken())), true),
        (list(answer(503)), true),
        (list(answer(429)), true),
        (list(answer(401)), false),
        (list(answer(403)), false),
        // The kinds are not installed.
        (list(answer(404)), false),
        (list(kube::Error::SerdeError(json)), false),
        (FollowError::Ended, false),
    ];
    for (error, transient) in rows {
        assert_eq!(error.is_transient(), transient, "{error:?}");
    }
}
