//! How builds begin, follow each other and come into force, and what they are not begun for.
//!
//! Not here: builds that fail (`failures`), and what goes (`removal`).

use crate::fake_world::{DIGEST, FakeWorld, OTHER, image, read};
use build::{Base, State};
use serde_json::json;

#[test]
fn a_build_goes_from_its_config_to_an_image_in_force() {
    let mut w = FakeWorld::new();
    assert_eq!(w.step(), ["create b1", "in force: b1"]);
    let name = w.names[0].clone();
    assert_eq!(w.builds[&name].spec.rendered_image_push_spec, format!("r.example.com:5000/team/os:{name}"));
    let place = "r.example.com:5000/team/os";
    let pushed = [
        format!("remember layers in {place}"),
        format!("remember an image that may have the tag {place}:b1"),
    ];
    assert_eq!(
        w.step(),
        [&pushed[..], &["start b1".to_owned()]].concat(),
        "on the list before there is a pod"
    );
    assert_eq!(w.step(), ["b1 is Prepared", "record job job-1800000002 of b1"]);
    assert_eq!(w.step(), Vec::<String>::new(), "nothing happens while the Job waits");
    w.job(json!({"active": 1}));
    assert_eq!(w.step(), ["b1 is Building"]);
    w.job(json!({"active": 0}));
    assert_eq!(w.step(), Vec::<String>::new(), "a build does not go back");
    w.job(json!({"succeeded": 1}));
    assert_eq!(w.step(), ["waits: the state of the pods of MachineOSBuild b1 is not known yet"]);
    w.succeed(DIGEST);
    assert_eq!(w.step(), [format!("remember image {}", image(DIGEST)), "b1 is Succeeded".to_owned()]);
    assert_eq!(w.step(), [format!("in force: b1, image {}", image(DIGEST)), "stop b1".to_owned()]);
    assert_eq!(w.step(), Vec::<String>::new());
    assert_eq!(w.image(), Some(image(DIGEST)));
}

#[test]
fn a_newer_config_interrupts_a_build_and_the_older_one_goes_when_the_newer_has_ended() {
    let mut w = FakeWorld::new();
    w.settle();
    w.render("rendered-infra-2", &["nosmt"]);
    let steps = w.step();
    assert!(steps[0].starts_with("create ") && steps[1].starts_with("in force: "), "{steps:?}");
    assert_eq!(steps[2..], ["b1 is Interrupted", "stop b1"]);
    w.settle();
    assert_eq!(w.states(), [State::Interrupted, State::Prepared]);
    w.succeed(DIGEST);
    assert!(w.settle().contains(&"delete b1: a newer build has ended".to_owned()));
    assert_eq!(w.states(), [State::Succeeded]);
    assert_eq!(w.jobs.len(), 0);
}

#[test]
fn a_config_that_is_wanted_again_is_built_again() {
    let mut w = FakeWorld::new();
    w.settle();
    w.render("rendered-infra-2", &["nosmt"]);
    w.settle();
    w.render("rendered-infra-1", &[]);
    w.settle();
    // The first one's name came back, and the second one is the interrupted one now.
    assert_eq!(w.states(), [State::Interrupted, State::Prepared]);
}

#[test]
fn a_change_of_files_needs_no_new_image_and_one_of_kernel_arguments_does() {
    let mut w = FakeWorld::new();
    w.settle();
    w.succeed(DIGEST);
    w.settle();
    w.render("rendered-infra-2", &[]);
    let steps = w.settle();
    assert_eq!(steps.len(), 4, "{steps:?}");
    assert!(steps[0].ends_with(&format!("for image {}", image(DIGEST))), "{steps:?}");
    assert_eq!((w.states(), w.jobs.len()), (vec![State::Succeeded; 2], 0));
    w.render("rendered-infra-3", &["nosmt"]);
    assert!(w.settle().iter().any(|s| s.starts_with("start ")));
    assert_eq!(w.image(), Some(image(DIGEST)), "the old image is in force until there is a new one");
}

#[test]
fn a_changed_containerfile_is_built_even_if_the_rendered_config_changes_at_the_same_time() {
    let mut w = FakeWorld::new();
    w.settle();
    w.succeed(DIGEST);
    w.settle();
    w.config().spec.container_file = None;
    w.render("rendered-infra-2", &[]);
    assert!(w.settle().iter().any(|s| s.starts_with("start ")));
    w.succeed(OTHER);
    w.settle();
    assert_eq!(w.image(), Some(image(OTHER)));
}

#[test]
fn a_tag_that_a_pod_has_looked_up_is_one_image_for_the_pods_after_it() {
    let mut w = FakeWorld::new();
    w.settle();
    let name = w.names[0].clone();
    w.job(json!({"active": 1, "failed": 1}));
    w.settle();
    w.bases.insert(name.clone(), image(DIGEST));
    assert_eq!(w.step(), [format!("b1 is built from {}", image(DIGEST))]);
    w.bases.insert(name, image(OTHER));
    assert_eq!(w.step(), Vec::<String>::new(), "what the tag names later does not count");
}

#[test]
fn a_rebuild_of_what_succeeded_does_not_take_its_old_image() {
    let mut w = FakeWorld::new();
    w.settle();
    w.succeed(DIGEST);
    w.settle();
    let is_fresh = |w: &FakeWorld| {
        let build = w.builds.values().next().unwrap();
        build.metadata.annotations.as_ref().unwrap().contains_key(build::names::FRESH)
    };
    assert!(!is_fresh(&w), "it may use layers of before");
    w.annotate("rebuild", "");
    assert!(w.settle().contains(&"start b1".to_owned()));
    assert!(is_fresh(&w), "people ask for newer packages");
}

#[test]
fn an_image_from_elsewhere_is_taken_over_once() {
    let mut w = FakeWorld::new();
    let from = format!("elsewhere.example.com/os@{DIGEST}");
    w.annotate("pre-built-image", &from);
    let steps = w.settle();
    assert_eq!(steps.len(), 4, "{steps:?}");
    assert!(steps[3].ends_with("without machineconfiguration.openshift.io/pre-built-image"), "{steps:?}");
    assert_eq!((w.image(), w.jobs.len()), (Some(from), 0));
    let config = w.config();
    let seeded = config.status.as_ref().unwrap().conditions.as_ref().unwrap();
    assert_eq!((seeded[0].type_.as_str(), seeded[0].reason.as_str()), ("Seeded", "PreBuiltImageSeeded"));
    let build = w.builds.values().next().unwrap();
    assert_eq!(build.metadata.labels.as_ref().unwrap()[build::names::PRE_BUILT], "true");
}

#[test]
fn an_image_from_elsewhere_that_is_mistyped_is_named_and_can_be_corrected() {
    let mut w = FakeWorld::new();
    w.annotate("pre-built-image", "elsewhere.example.com/os:latest");
    let said = w.step();
    assert!(
        matches!(said.as_slice(), [one] if one.contains("\"elsewhere.example.com/os:latest\", which does not name an image")),
        "{said:?}"
    );
    assert_eq!(w.builds.len(), 0);
    let from = format!("elsewhere.example.com/os@{DIGEST}");
    w.annotate("pre-built-image", &from);
    w.step();
    // A build that an earlier version made of a mistyped one goes.
    let build = w.builds.values_mut().next().unwrap();
    let notes = build.metadata.annotations.as_mut().unwrap();
    notes.insert(build::names::REUSES.to_owned(), "elsewhere.example.com/os:latest".to_owned());
    assert_eq!(w.step(), ["delete b1: its image was corrected"]);
    w.settle();
    assert_eq!(w.image(), Some(from));
    // Without the annotation an image is built.
    let mut w = FakeWorld::new();
    w.annotate("pre-built-image", "nonsense");
    w.settle();
    w.config().metadata.annotations = None;
    assert!(w.settle().contains(&"start b1".to_owned()));
}

#[test]
fn an_image_from_elsewhere_takes_the_place_of_a_first_build_that_has_ended_without_one() {
    let failed = |w: &mut FakeWorld| {
        w.job(json!({"failed": 4}));
        let name = w.names[0].clone();
        w.reports.insert(name, build::Report::default());
    };
    let interrupted = |w: &mut FakeWorld| {
        w.jobs.clear();
        w.absent.clone_from(&w.names);
    };
    type Case<'c> = (&'c dyn Fn(&mut FakeWorld), State, &'c [&'c str]);
    let cases: [Case<'_>; 2] = [
        (&failed, State::Failed, &["stop b1", "delete b1: an image from elsewhere takes its place"]),
        (&interrupted, State::Interrupted, &["delete b1: an image from elsewhere takes its place"]),
    ];
    for (ends, state, steps) in cases {
        let mut w = FakeWorld::new();
        w.settle();
        ends(&mut w);
        w.settle();
        assert_eq!(w.states(), [state]);
        w.annotate("pre-built-image", "nonsense");
        let said = w.step().join("\n");
        assert!(said.contains("\"nonsense\", which does not name an image"), "{said}");
        let from = format!("elsewhere.example.com/os@{DIGEST}");
        w.annotate("pre-built-image", &from);
        assert_eq!(w.step(), steps);
        w.settle();
        assert_eq!((w.states(), w.image(), w.jobs.len()), (vec![State::Succeeded], Some(from), 0));
        let notes = w.config().metadata.annotations.clone().unwrap();
        assert!(!notes.contains_key(build::names::PRE_BUILT), "{notes:?}");
    }
    // When there is an image, it is not asked for any more.
    let mut w = FakeWorld::new();
    w.settle();
    w.succeed(DIGEST);
    w.settle();
    w.annotate("pre-built-image", &format!("elsewhere.example.com/os@{OTHER}"));
    w.settle();
    w.render("rendered-infra-2", &["nosmt"]);
    assert!(w.settle().iter().any(|s| s.starts_with("start ")));
    assert_eq!(w.image(), Some(image(DIGEST)));
}

#[test]
fn the_spec_that_was_seen_is_told_before_there_is_an_image() {
    let mut w = FakeWorld::new();
    w.settle();
    let observed = |w: &FakeWorld| w.config.as_ref().unwrap().status.as_ref().unwrap().observed_generation;
    assert_eq!((observed(&w), w.image()), (Some(1), None));
    w.config().metadata.generation = Some(2);
    w.settle();
    assert_eq!(observed(&w), Some(2));
}

#[test]
fn without_a_builder_nothing_is_touched() {
    let mut w = FakeWorld::new();
    w.settle();
    w.builder = None;
    w.render("rendered-infra-2", &["nosmt"]);
    let said = w.step();
    assert!(matches!(said.as_slice(), [one] if one.contains("machineconfig.dev/image-builder")), "{said:?}");
    assert_eq!(w.states(), [State::Prepared]);
}

#[test]
fn a_pool_that_cannot_be_rendered_starts_no_build_and_stops_none() {
    let mut w = FakeWorld::new();
    w.settle();
    w.pool = read(json!({
        "metadata": {"name": "infra"}, "spec": {"configuration": {"name": "rendered-infra-2"}},
        "status": {"conditions": [{"type": "RenderDegraded", "status": "True"}]},
    }));
    w.rendered.insert("rendered-infra-2".to_owned(), Base::default());
    assert_eq!(w.step(), ["waits: the pool cannot be rendered; see RenderDegraded"]);
    assert_eq!(w.states(), [State::Prepared]);
}
