//! Which builds and Jobs are deleted, and which stay.
//!
//! Not here: the images in the registry (beside the code, in `pushed`).

use crate::fake_world::{DIGEST, FakeWorld, image};
use api::k8s::Time;
use build::State;

#[test]
fn builds_go_with_their_config() {
    let mut w = FakeWorld::new();
    w.settle();
    w.config = None;
    assert_eq!(w.step(), ["stop b1", "delete b1: its MachineOSConfig is gone"]);
    assert_eq!((w.builds.len(), w.jobs.len()), (0, 0));
}

#[test]
fn images_that_are_to_stay_do_so_after_their_config_too() {
    let keep = |w: &mut FakeWorld| {
        let notes = w.config().metadata.annotations.get_or_insert_default();
        notes.insert(build::names::OLD_IMAGES.to_owned(), build::names::KEEP.to_owned());
    };
    // Asked for after the image was pushed, before it, and before there was a build.
    let mut after = FakeWorld::new();
    after.settle();
    after.succeed(DIGEST);
    after.settle();
    assert!(after.list.values().any(|p| matches!(p.what, build::pushed::PushedContent::Image { .. })));
    keep(&mut after);
    assert_eq!(after.settle(), ["the image of b1 stays"]);
    let mut before = FakeWorld::new();
    before.settle();
    before.succeed(DIGEST);
    keep(&mut before);
    before.settle();
    let mut always = FakeWorld::new();
    keep(&mut always);
    assert!(!always.settle().contains(&"the image of b1 stays".to_owned()), "it was created so");
    always.succeed(DIGEST);
    always.settle();
    // Asked for, and deleted before the builds say so: it is still there, without a builder, while its deletion waits for something.
    let mut deleted = FakeWorld::new();
    deleted.settle();
    deleted.succeed(DIGEST);
    deleted.settle();
    keep(&mut deleted);
    deleted.config().metadata.deletion_timestamp =
        Some(Time(jiff::Timestamp::from_second(1_800_000_000).unwrap()));
    for mut w in [after, before, always, deleted] {
        w.settle();
        w.config = None;
        w.settle();
        assert_eq!(w.builds.len(), 0);
        let images = w.list.values().filter(|p| matches!(p.what, build::pushed::PushedContent::Image { .. }));
        assert_eq!(images.count(), 0);
    }
}

#[test]
fn builds_of_an_earlier_config_of_the_same_name_go_and_those_of_nobody_stay() {
    let mut w = FakeWorld::new();
    w.settle();
    w.config().metadata.uid = Some("config-2".to_owned());
    assert_eq!(w.step(), ["stop b1", "delete b1: its MachineOSConfig is gone"]);
    w.settle();
    assert_eq!(w.states(), [State::Prepared]);
    // Somebody's own: neither stopped nor deleted, with a MachineOSConfig or without.
    let mut foreign = w.builds.values().next().unwrap().clone();
    foreign.metadata.owner_references = None;
    foreign.metadata.name = Some("theirs".to_owned());
    w.builds.insert("theirs".to_owned(), foreign);
    assert_eq!(w.settle(), Vec::<String>::new());
    w.config = None;
    w.settle();
    assert_eq!(w.builds.keys().collect::<Vec<_>>(), ["theirs"]);
    // One of the wanted name is no build of ours.
    let mut w = FakeWorld::new();
    w.step();
    let build = w.builds.values_mut().next().unwrap();
    build.metadata.owner_references = None;
    let said = w.step();
    assert!(
        matches!(said.as_slice(), [one] if one.contains("was not made for this MachineOSConfig")),
        "{said:?}"
    );
}

#[test]
fn a_job_that_could_not_be_deleted_with_its_build_is_deleted_later() {
    let mut w = FakeWorld::new();
    w.settle();
    let job = w.jobs.clone();
    w.render("rendered-infra-2", &["nosmt"]);
    let steps = w.step();
    assert_eq!(steps[2..], ["b1 is Interrupted", "stop b1"]);
    // The request had failed.
    w.jobs.extend(job);
    let steps = w.step();
    assert!(steps.contains(&"stop b1".to_owned()), "{steps:?}");
}

#[test]
fn old_builds_go_by_number_and_age_but_none_that_a_node_runs_or_boots_next() {
    let mut w = FakeWorld::new();
    for i in 1..=9 {
        w.render(&format!("rendered-infra-{i}"), &[&format!("n={i}")]);
        w.settle();
        let digest = format!("sha256:{i}{}", &DIGEST["sha256:0".len()..]);
        if i == 1 {
            w.in_use.push(image(&digest));
        }
        w.succeed(&digest);
        w.settle();
    }
    // The one in force, the first one that a node still runs, and five more.
    assert_eq!(w.builds.len(), 7, "{:?}", w.names);
    assert!(w.builds.contains_key(&w.names[0]), "a node runs its image");
    assert!(!w.builds.contains_key(&w.names[1]));
    w.seconds += 31 * 24 * 3600;
    w.settle();
    assert_eq!(w.builds.len(), 2, "only what is in use");
}

#[test]
fn builds_that_share_the_image_in_force_are_pruned_as_others_are() {
    let mut w = FakeWorld::new();
    w.settle();
    w.succeed(DIGEST);
    w.settle();
    for i in 2..=20 {
        w.render(&format!("rendered-infra-{i}"), &[]);
        w.settle();
    }
    // The one in force, and five more.
    assert_eq!(w.builds.len(), 6, "{:?}", w.names);
    assert_eq!(w.image(), Some(image(DIGEST)));
    w.seconds += 31 * 24 * 3600;
    w.settle();
    assert_eq!(w.builds.len(), 1, "only what is in use");
    w.render("rendered-infra-21", &[]);
    assert!(w.settle().iter().all(|s| !s.starts_with("start ")), "the image is still known");
}

#[test]
fn a_job_of_an_earlier_build_of_the_same_name_makes_way() {
    let mut w = FakeWorld::new();
    w.settle();
    w.builds.values_mut().next().unwrap().metadata.uid = Some("another".to_owned());
    assert_eq!(w.step(), ["stop b1"]);
}
