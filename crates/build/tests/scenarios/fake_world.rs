//! The small world in which plans are carried out: a fake of the API server and of the Job controller, on plain objects.

use api::k8s::Time;
use api::v1::{MachineConfig, MachineConfigPool, MachineOSBuild, MachineOSConfig};
use build::pushed::Pushed;
use build::{Base, Inputs, JobFacts, Report, State, Step, Wait, plan};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};

pub(crate) const DIGEST: &str = "sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";
pub(crate) const OTHER: &str = "sha256:1123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";

pub(crate) struct FakeWorld {
    pub(crate) pool: MachineConfigPool,
    pub(crate) config: Option<MachineOSConfig>,
    pub(crate) builds: BTreeMap<String, MachineOSBuild>,
    pub(crate) rendered: BTreeMap<String, Base>,
    pub(crate) jobs: BTreeMap<String, Value>,
    pub(crate) reports: BTreeMap<String, Report>,
    pub(crate) absent: Vec<String>,
    pub(crate) bases: BTreeMap<String, String>,
    pub(crate) why_not_started: BTreeMap<String, String>,
    pub(crate) in_use: Vec<String>,
    pub(crate) builder: Option<&'static str>,
    pub(crate) seconds: i64,
    /// The names of builds in the order in which they came: their hashes say nothing to a reader.
    pub(crate) names: Vec<String>,
    pub(crate) wait: Option<Wait>,
    /// What was pushed.
    pub(crate) list: BTreeMap<String, Pushed>,
}

pub(crate) fn read<T: serde::de::DeserializeOwned>(value: Value) -> T {
    serde_json::from_value(value).unwrap()
}

pub(crate) fn rendered(name: &str, arguments: &[&str]) -> MachineConfig {
    read(json!({
        "metadata": {"name": name, "annotations": {"machineconfiguration.openshift.io/release-image-version": "v1"}},
        "spec": {"osImageURL": "r.example.com/base@sha256:1", "kernelArguments": arguments},
    }))
}

impl FakeWorld {
    pub(crate) fn new() -> Self {
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
            why_not_started: BTreeMap::new(),
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
    pub(crate) fn render(&mut self, name: &str, arguments: &[&str]) {
        self.rendered.insert(name.to_owned(), Base::of(&rendered(name, arguments)));
        self.pool.spec.configuration.name = name.to_owned();
    }

    pub(crate) fn config(&mut self) -> &mut MachineOSConfig {
        self.config.as_mut().unwrap()
    }

    pub(crate) fn annotate(&mut self, key: &str, value: &str) {
        let notes = self.config().metadata.annotations.get_or_insert_default();
        notes.insert(format!("machineconfiguration.openshift.io/{key}"), value.to_owned());
    }

    /// Makes a plan, carries it out, and returns its lines.
    pub(crate) fn step(&mut self) -> Vec<String> {
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
            why_not_started: self.why_not_started.iter().map(|(n, w)| (n.as_str(), w.clone())).collect(),
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
            Step::UpdateOsConfig(point) => {
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
    pub(crate) fn settle(&mut self) -> Vec<String> {
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

    pub(crate) fn job(&mut self, status: Value) {
        let job = self.jobs.values_mut().next().unwrap();
        job["status"] = status;
    }

    /// The Job of the only build that runs ends well.
    pub(crate) fn succeed(&mut self, digest: &str) {
        self.job(json!({"succeeded": 1}));
        let name = self.jobs.keys().next().unwrap().clone();
        self.reports
            .insert(name, Report { digest: Some(digest.to_owned()), words: None, ..Report::default() });
    }

    pub(crate) fn states(&self) -> Vec<State> {
        self.names.iter().filter_map(|n| self.builds.get(n)).map(State::of).collect()
    }

    pub(crate) fn image(&self) -> Option<String> {
        self.config.as_ref()?.status.as_ref()?.current_image_pull_spec.clone()
    }
}

pub(crate) fn image(digest: &str) -> String {
    format!("r.example.com:5000/team/os@{digest}")
}
