//! Image builds from their first step to their last, each plan as text. A small world stands in for the API server and
//! for the Job controller: it carries plans out on plain objects.
//!
//! What it is not: a test of the requests (see the cluster tests of the lab).
#![allow(clippy::unwrap_used, clippy::panic, reason = "helpers of tests")]

use api::k8s::Time;
use api::v1::{MachineConfig, MachineConfigPool, MachineOSBuild, MachineOSConfig};
use build::pushed::Pushed;
use build::{Base, Inputs, JobFacts, Report, State, Step, Wait, plan};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};

const DIGEST: &str = "sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";
const OTHER: &str = "sha256:1123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";

struct World {
    pool: MachineConfigPool,
    config: Option<MachineOSConfig>,
    builds: BTreeMap<String, MachineOSBuild>,
    rendered: BTreeMap<String, Base>,
    jobs: BTreeMap<String, Value>,
    reports: BTreeMap<String, Report>,
    absent: Vec<String>,
    bases: BTreeMap<String, String>,
    held_up: BTreeMap<String, String>,
    in_use: Vec<String>,
    builder: Option<&'static str>,
    seconds: i64,
    /// The names of builds in the order in which they came: their hashes say nothing to a reader.
    names: Vec<String>,
    wait: Option<Wait>,
    /// What was pushed.
    list: BTreeMap<String, Pushed>,
}

fn read<T: serde::de::DeserializeOwned>(value: Value) -> T {
    serde_json::from_value(value).unwrap()
}

fn rendered(name: &str, arguments: &[&str]) -> MachineConfig {
    read(json!({
        "metadata": {"name": name, "annotations": {"machineconfiguration.openshift.io/release-image-version": "v1"}},
        "spec": {"osImageURL": "r.example.com/base@sha256:1", "kernelArguments": arguments},
    }))
}

impl World {
    fn new() -> Self {
        let mut world = Self {
            pool: read(json!({"metadata": {"name": "infra"}, "spec": {}})),
            config: Some(read(json!({
                "metadata": {"name": "infra", "uid": "config", "generation": 1},
                "spec": {
                    "machineConfigPool": {"name": "infra"},
                    "renderedImagePushSecret": {"name": "push"},
                    "renderedImagePushSpec": "r.example.com:5000/team/os:latest",
                    "containerFile": [{"content": "FROM configs AS final\nRUN true\n"}],
                },
            }))),
            builds: BTreeMap::new(),
            rendered: BTreeMap::new(),
            jobs: BTreeMap::new(),
            reports: BTreeMap::new(),
            absent: vec![],
            bases: BTreeMap::new(),
            held_up: BTreeMap::new(),
            in_use: vec![],
            builder: Some("buildah"),
            seconds: 1_800_000_000,
            names: vec![],
            wait: None,
            list: BTreeMap::new(),
        };
        world.render("rendered-infra-1", &[]);
        world
    }

    /// The pool is rendered anew.
    fn render(&mut self, name: &str, arguments: &[&str]) {
        self.rendered.insert(name.to_owned(), Base::of(&rendered(name, arguments)));
        self.pool.spec.configuration.name = name.to_owned();
    }

    fn config(&mut self) -> &mut MachineOSConfig {
        self.config.as_mut().unwrap()
    }

    fn annotate(&mut self, key: &str, value: &str) {
        let notes = self.config().metadata.annotations.get_or_insert_default();
        notes.insert(format!("machineconfiguration.openshift.io/{key}"), value.to_owned());
    }

    /// Makes a plan, carries it out, and returns its lines.
    fn step(&mut self) -> Vec<String> {
        self.seconds += 1;
        let now = Time(jiff::Timestamp::from_second(self.seconds).unwrap());
        let jobs: Vec<JobFacts> = self.jobs.values().map(JobFacts::new).collect();
        let inputs = Inputs {
            pool: &self.pool,
            config: self.config.as_ref(),
            builds: self.builds.values().collect(),
            rendered: self.rendered.iter().map(|(n, b)| (n.as_str(), b)).collect(),
            jobs: jobs.iter().collect(),
            reports: self.reports.iter().map(|(n, r)| (n.as_str(), r.clone())).collect(),
            absent: self.absent.iter().map(String::as_str).collect(),
            bases: self.bases.iter().map(|(n, b)| (n.as_str(), b.clone())).collect(),
            held_up: self.held_up.iter().map(|(n, w)| (n.as_str(), w.clone())).collect(),
            in_use: self.in_use.iter().map(String::as_str).collect::<BTreeSet<_>>(),
            builder: self.builder,
            now: &now,
        };
        let plan = plan(&inputs);
        let mut text = plan.to_string();
        self.wait.clone_from(&plan.wait);
        for step in plan.steps {
            self.carry_out(step, &now);
        }
        for (i, name) in self.names.iter().enumerate() {
            text = text.replace(name, &format!("b{}", i + 1));
        }
        text.lines().map(str::to_owned).collect()
    }

    fn carry_out(&mut self, step: Step, now: &Time) {
        match step {
            Step::Create(build) => {
                let mut build = *build;
                let name = build.metadata.name.clone().unwrap();
                build.metadata.uid = Some(format!("uid-{}-{name}", self.seconds));
                build.metadata.creation_timestamp = Some(now.clone());
                self.names.retain(|n| *n != name);
                self.names.push(name.clone());
                assert!(self.builds.insert(name, build).is_none(), "created twice");
            }
            Step::Start(name) => {
                let build = &self.builds[&name];
                let job = json!({
                    "metadata": {
                        "name": format!("build-{name}"), "uid": format!("job-{}", self.seconds),
                        "ownerReferences": [{"controller": true, "uid": build.metadata.uid}],
                    },
                });
                assert!(self.jobs.insert(name, job).is_none(), "started twice");
            }
            Step::Adopt { build, uid } => {
                let notes = self.builds.get_mut(&build).unwrap().metadata.annotations.get_or_insert_default();
                notes.insert(build::names::JOB_UID.to_owned(), uid);
            }
            Step::Status { build, status, .. } => {
                let build = self.builds.get_mut(&build).unwrap();
                assert!(!build::is_ended(build), "what has ended stays");
                build.status = Some(*status);
            }
            Step::Base { build, image } => {
                let notes = self.builds.get_mut(&build).unwrap().metadata.annotations.get_or_insert_default();
                assert!(notes.insert(build::names::BUILT_ON.to_owned(), image).is_none(), "found out twice");
            }
            Step::Remember(pushed) => {
                self.list.insert(pushed.key(), *pushed);
            }
            Step::Keep { build, key } => {
                key.map(|key| self.list.remove(&key));
                let notes = self.builds.get_mut(&build).unwrap().metadata.annotations.get_or_insert_default();
                let (key, value) = (build::names::OLD_IMAGES.to_owned(), build::names::KEEP.to_owned());
                assert!(notes.insert(key, value).is_none(), "it stays already");
            }
            Step::Stop(build) => {
                self.jobs.remove(&build);
            }
            Step::Delete { build, .. } => {
                let gone = self.builds.remove(&build).unwrap();
                let image = gone.status.as_ref().and_then(|s| s.digested_image_push_spec.as_deref());
                let pushed = image.and_then(|image| Pushed::image(&gone, image));
                assert!(
                    pushed.is_none_or(|p| self.list.contains_key(&p.key())),
                    "{build}'s image is forgotten"
                );
            }
            Step::Point(point) => {
                let config = self.config.as_mut().unwrap();
                let notes = config.metadata.annotations.get_or_insert_default();
                notes.retain(|key, _| !point.clear.contains(&key.as_str()));
                notes.insert(api::names::annotation::CURRENT_BUILD.to_owned(), point.build);
                if point.status.is_some() {
                    config.status = point.status;
                }
            }
        }
    }

    /// Steps until there is nothing to do.
    fn settle(&mut self) -> Vec<String> {
        let mut all = vec![];
        for _ in 0..20 {
            let before = all.len();
            all.extend(
                self.step().into_iter().filter(|l| !l.starts_with("waits") && !l.starts_with("ImageBuild")),
            );
            if all.len() == before {
                return all;
            }
        }
        panic!("the plan never comes to rest: {all:#?}");
    }

    fn job(&mut self, status: Value) {
        let job = self.jobs.values_mut().next().unwrap();
        job["status"] = status;
    }

    /// The Job of the only build that runs ends well.
    fn succeed(&mut self, digest: &str) {
        self.job(json!({"succeeded": 1}));
        let name = self.jobs.keys().next().unwrap().clone();
        self.reports
            .insert(name, Report { digest: Some(digest.to_owned()), words: None, ..Report::default() });
    }

    fn states(&self) -> Vec<State> {
        self.names.iter().filter_map(|n| self.builds.get(n)).map(State::of).collect()
    }

    fn image(&self) -> Option<String> {
        self.config.as_ref()?.status.as_ref()?.current_image_pull_spec.clone()
    }
}

fn image(digest: &str) -> String {
    format!("r.example.com:5000/team/os@{digest}")
}

#[test]
fn a_build_goes_from_its_config_to_an_image_in_force() {
    let mut w = World::new();
    assert_eq!(w.step(), ["create b1", "in force: b1"]);
    let name = w.names[0].clone();
    assert_eq!(w.builds[&name].spec.rendered_image_push_spec, format!("r.example.com:5000/team/os:{name}"));
    let place = "r.example.com:5000/team/os";
    let pushed =
        [format!("remember layers in {place}"), format!("remember what may be under the tag {place}:b1")];
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
    let mut w = World::new();
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
    let mut w = World::new();
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
    let mut w = World::new();
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
    let mut w = World::new();
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
fn a_failed_build_degrades_its_pool_and_a_rebuild_is_asked_for_by_annotation() {
    let mut w = World::new();
    w.settle();
    let name = w.names[0].clone();
    w.job(json!({"failed": 3}));
    w.settle();
    assert_eq!(w.states(), [State::Building], "the Job tries again");
    w.job(json!({"failed": 4}));
    w.reports.insert(
        name,
        Report { digest: None, words: Some("error: no space".to_owned()), ..Report::default() },
    );
    assert_eq!(w.step(), ["b1 is Failed"]);
    let said = w.step();
    assert!(
        said[0].starts_with(
            "ImageBuildDegraded: Failed to build OS image for pool infra (MachineOSBuild: b1): Failed: Build Failed: 4 \
             attempts failed; the Job's last lines: error: no space. Correct the MachineOSConfig, or set its annotation"
        ),
        "{said:?}"
    );
    assert!(said[1].starts_with("waits: MachineOSBuild b1 failed; correct its cause"), "{said:?}");
    assert_eq!(w.jobs.len(), 1, "the Job stays for people to look at");
    w.annotate("rebuild", "");
    assert_eq!(w.step(), ["stop b1", "delete b1: a rebuild was asked for"]);
    w.settle();
    assert_eq!(w.states(), [State::Prepared]);
    assert!(!w.config().metadata.annotations.as_ref().unwrap().contains_key(build::names::REBUILD));
}

#[test]
fn a_tag_that_a_pod_has_looked_up_is_one_image_for_the_pods_after_it() {
    let mut w = World::new();
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
    let mut w = World::new();
    w.settle();
    w.succeed(DIGEST);
    w.settle();
    let is_fresh = |w: &World| {
        let build = w.builds.values().next().unwrap();
        build.metadata.annotations.as_ref().unwrap().contains_key(build::names::FRESH)
    };
    assert!(!is_fresh(&w), "it may use layers of before");
    w.annotate("rebuild", "");
    assert!(w.settle().contains(&"start b1".to_owned()));
    assert!(is_fresh(&w), "people ask for newer packages");
}

#[test]
fn a_job_without_an_end_or_without_a_digest_is_a_failure_with_its_cause() {
    for (status, report, want) in [
        (
            json!({"active": 1, "conditions": [{"type": "Failed", "status": "True", "reason": "DeadlineExceeded"}]}),
            Report::default(),
            "it did not end within 120 minutes; look for a registry or a command that hangs",
        ),
        (
            json!({"failed": 1, "conditions": [{"type": "Failed", "status": "True", "reason": "PodFailurePolicy"}]}),
            Report { digest: None, words: Some("Secret push is not there".to_owned()), ..Report::default() },
            "another try would end the same way; the Job's last lines: Secret push is not there",
        ),
        (
            json!({"failed": 4}),
            Report {
                digest: None,
                words: Some(
                    "denied: forbidden | the image could not be pushed to r.example.com/os:t".to_owned(),
                ),
                not_pushed: true,
                ..Report::default()
            },
            "Remedy: renderedImagePushSecret may not write to that repository",
        ),
        (json!({"succeeded": 1}), Report::default(), "left no digest"),
        (
            json!({"succeeded": 1}),
            Report { digest: Some("latest".to_owned()), words: None, ..Report::default() },
            "which is not a digest",
        ),
    ] {
        let mut w = World::new();
        w.settle();
        w.job(status);
        let name = w.names[0].clone();
        w.reports.insert(name, report);
        assert_eq!(w.step(), ["b1 is Failed"]);
        let said = w.step().join("\n");
        assert!(said.contains(want), "{said}");
    }
}

#[test]
fn a_deleted_job_interrupts_its_build_until_somebody_asks_for_another() {
    let mut w = World::new();
    w.settle();
    let jobs = std::mem::take(&mut w.jobs);
    assert_eq!(
        w.step(),
        ["waits: whether MachineOSBuild b1 has a Job is not known yet"],
        "a cache may lack it"
    );
    w.jobs = jobs;
    assert_eq!(w.step(), Vec::<String>::new());
    w.jobs.clear();
    w.absent.clone_from(&w.names);
    assert_eq!(w.step(), ["b1 is Interrupted"]);
    assert!(
        matches!(w.step().as_slice(), [one] if one.starts_with("waits: the Job of MachineOSBuild b1 was deleted"))
    );
    w.annotate("rebuild", "");
    w.settle();
    assert_eq!(w.states(), [State::Prepared]);
}

#[test]
fn an_image_from_elsewhere_is_taken_over_once() {
    let mut w = World::new();
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
    let mut w = World::new();
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
    let mut w = World::new();
    w.annotate("pre-built-image", "nonsense");
    w.settle();
    w.config().metadata.annotations = None;
    assert!(w.settle().contains(&"start b1".to_owned()));
}

#[test]
fn builds_go_with_their_config() {
    let mut w = World::new();
    w.settle();
    w.config = None;
    assert_eq!(w.step(), ["stop b1", "delete b1: its MachineOSConfig is gone"]);
    assert_eq!((w.builds.len(), w.jobs.len()), (0, 0));
}

#[test]
fn images_that_are_to_stay_do_so_after_their_config_too() {
    let keep = |w: &mut World| {
        let notes = w.config().metadata.annotations.get_or_insert_default();
        notes.insert(build::names::OLD_IMAGES.to_owned(), build::names::KEEP.to_owned());
    };
    // Asked for after the image was pushed, before it, and before there was a build.
    let mut after = World::new();
    after.settle();
    after.succeed(DIGEST);
    after.settle();
    assert!(after.list.values().any(|p| matches!(p.what, build::pushed::PushedContent::Image { .. })));
    keep(&mut after);
    assert_eq!(after.settle(), ["the image of b1 stays"]);
    let mut before = World::new();
    before.settle();
    before.succeed(DIGEST);
    keep(&mut before);
    before.settle();
    let mut always = World::new();
    keep(&mut always);
    assert!(!always.settle().contains(&"the image of b1 stays".to_owned()), "it was created so");
    always.succeed(DIGEST);
    always.settle();
    // Asked for, and deleted before the builds say so: it is still there, without a builder, while its deletion waits for something.
    let mut deleted = World::new();
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
    let mut w = World::new();
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
    let mut w = World::new();
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
    let mut w = World::new();
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
fn a_pod_that_does_not_start_is_told() {
    let mut w = World::new();
    w.settle();
    w.held_up.insert(w.names[0].clone(), "Unschedulable: 0/3 nodes are available".to_owned());
    let said = "waits: the pod of MachineOSBuild b1 does not start: Unschedulable: 0/3 nodes are available";
    assert_eq!(w.step(), [said]);
    assert!(w.wait.as_ref().unwrap().needs_somebody());
    w.job(json!({"active": 1}));
    w.held_up.clear();
    assert_eq!(w.step(), ["b1 is Building"]);
}

#[test]
fn the_spec_that_was_seen_is_told_before_there_is_an_image() {
    let mut w = World::new();
    w.settle();
    let observed = |w: &World| w.config.as_ref().unwrap().status.as_ref().unwrap().observed_generation;
    assert_eq!((observed(&w), w.image()), (Some(1), None));
    w.config().metadata.generation = Some(2);
    w.settle();
    assert_eq!(observed(&w), Some(2));
}

#[test]
fn without_a_builder_nothing_is_touched() {
    let mut w = World::new();
    w.settle();
    w.builder = None;
    w.render("rendered-infra-2", &["nosmt"]);
    let said = w.step();
    assert!(matches!(said.as_slice(), [one] if one.contains("machineconfig.dev/image-builder")), "{said:?}");
    assert_eq!(w.states(), [State::Prepared]);
}

#[test]
fn old_builds_go_by_number_and_age_but_none_that_a_node_runs_or_boots_next() {
    let mut w = World::new();
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
    let mut w = World::new();
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
fn a_pool_that_cannot_be_rendered_starts_no_build_and_stops_none() {
    let mut w = World::new();
    w.settle();
    w.pool = read(json!({
        "metadata": {"name": "infra"}, "spec": {"configuration": {"name": "rendered-infra-2"}},
        "status": {"conditions": [{"type": "RenderDegraded", "status": "True"}]},
    }));
    w.rendered.insert("rendered-infra-2".to_owned(), Base::default());
    assert_eq!(w.step(), ["waits: the pool cannot be rendered; see RenderDegraded"]);
    assert_eq!(w.states(), [State::Prepared]);
}

#[test]
fn a_job_of_an_earlier_build_of_the_same_name_makes_way() {
    let mut w = World::new();
    w.settle();
    w.builds.values_mut().next().unwrap().metadata.uid = Some("another".to_owned());
    assert_eq!(w.step(), ["stop b1"]);
}

#[test]
fn a_pods_words_about_a_missing_secret_reach_the_reader() {
    let rest = "is not there, or has neither .dockerconfigjson nor .dockercfg; create it, then set the annotation \
                machineconfiguration.openshift.io/rebuild on the MachineOSConfig";
    for what in ["cannot push", "cannot pull the base image"] {
        let words = format!("{what}: openshift-machine-config-operator/registry-push {rest}");
        assert_eq!(build::last_words(&words), words);
    }
    let push = "Error: writing blob: initiating layer upload to /v2/team/os/blobs/uploads/ in registry.example.com: unauthorized";
    assert_eq!(build::last_words(push), push);
}
