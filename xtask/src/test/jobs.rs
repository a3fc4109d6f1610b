//! Which test programs run, and how they are divided into jobs: a pure function.
//!
//! A test that needs a cluster is a job of its own: its failure is printed at once, its time is listed, and two such
//! tests can run side by side even if they are in one program. All other tests are quick, and each program is one job.

use super::Scope;
use super::programs::{Kind, Program, Target};
use anyhow::ensure;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::path::PathBuf;
use std::time::Duration;

/// Test programs that need a control plane or a machine: package and name.
const CLUSTER: [(&str, &str); 9] = [
    ("controller", "cluster"),
    ("lab", "control_plane"),
    ("lab", "cluster"),
    ("lab", "serving"),
    ("lab", "faults"),
    ("lab", "node"),
    ("lab", "vm"),
    ("lab", "browser"),
    ("xtask", "demo"),
];

/// Those with virtual machines. Without hardware virtualization (KVM) their processor is emulated, which is ten times slower.
const EMULATED: [(&str, &str); 1] = [("lab", "vm")];

/// Those that drive a browser, which has to be downloaded.
const BROWSERS: [(&str, &str); 1] = [("lab", "browser")];

/// Tests with clusters made by kubeadm, whose control planes are machines that boot, too: package, program, and the prefix of
/// their names.
const KUBEADM: (&str, &str, &str) = ("lab", "node", "kubeadm::");

/// Cluster tests that share one control plane and hence one process: package, program, the prefix of their names, and how many of
/// them run at once. They mostly wait, but those of `control_plane` start control planes of their own.
const TOGETHER: [(&str, &str, &str, u32); 3] =
    [("controller", "cluster", "", 6), ("lab", "control_plane", "", 2), ("lab", "cluster", "agents::", 6)];

/// Tests that wait for minutes: for an API server that is unavailable, for a lease or a trial that expires, for agents that have half a
/// minute to answer, or until every API server writes a new version. They run beside the others and occupy no lane.
const WAITING: [&str; 14] = [
    "a_rollout_survives_two_minutes_without_the_api_server",
    "a_rollout_survives_changes_of_leader",
    "late_patches_of_a_dead_leader_are_refused",
    "a_rollout_works_with_controller_clocks_a_minute_off",
    "a_node_that_cuts_itself_off_reboots_after_the_time_limit",
    "a_rollout_survives_the_loss_of_the_api_server_of_the_controller_and_of_a_node",
    "a_controller_resumes_after_its_network_dropped_all_packets",
    "objects_outlive_the_version_in_which_they_are_stored",
    "problems_of_an_installation_are_reported_with_remedy_and_resolve_by_themselves",
    "drift_is_reported_at_once_and_a_power_cut_is_recovered_before_the_kubelet_starts",
    "a_change_that_cuts_its_node_off_is_undone_by_the_node_and_reported",
    "hosts_keep_their_files_but_nothing_that_would_undo_them_later",
    "settings_that_a_real_kubelet_refuses_are_undone",
    "rollouts_obey_the_settings_of_their_pool",
];

/// The tests that take longest, in seconds on two cores without KVM. They count until a run has measured this computer: the first
/// run on it, such as CI's, would otherwise end with a wait for them.
const LONGEST: [(&str, f64); 8] = [
    ("an_image_that_is_built_in_the_cluster_is_booted", 770.0),
    ("a_change_rolls_through_three_control_planes_and_three_workers_under_load", 580.0),
    ("an_image_boots_or_does_not_as_a_whole_wherever_the_power_is_cut", 500.0),
    ("the_guide_installs_from_an_image_and_rolls_through_worker_and_master", 300.0),
    ("an_image_is_refused_without_room_and_a_pull_and_a_staging_that_are_cut_change_nothing", 230.0),
    ("an_image_whose_kubelet_cannot_start_goes_back_by_itself_without_an_api_server", 215.0),
    ("grub_boots_with_the_arguments_of_machine_configs_after_those_of_the_host", 190.0),
    ("systemd_boot_boots_with_the_arguments_of_machine_configs_after_those_of_the_host", 120.0),
];

/// One run of a test program.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Job {
    /// The name to print, and the key of its last duration.
    pub(super) title: String,
    pub(super) executable: PathBuf,
    pub(super) folder: PathBuf,
    /// The arguments for libtest.
    pub(super) args: Vec<String>,
    /// The time limit: every wait inside a test ends long before.
    pub(super) patience: Duration,
    /// Whether it waits for clusters or machines while other jobs run. If such a job fails, it runs once more, alone.
    pub(super) again: bool,
}

/// The time limit for a job. The longest takes ten minutes, and 13 on a slow computer beside the release build.
const PATIENCE: Duration = Duration::from_mins(25);
/// The time limit for a job with virtual machines: a test that updates an OS goes through nine boots, for 21 minutes on a slow
/// computer.
const PATIENCE_EMULATED: Duration = Duration::from_mins(45);

/// Which tests run, and which do not.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Plan {
    /// The jobs in the order in which they are started as lanes become free.
    pub(super) jobs: VecDeque<Job>,
    /// The jobs that run beside those and occupy no lane.
    pub(super) beside: VecDeque<Job>,
    /// Tests that do not run, by name.
    pub(super) left_out: Vec<String>,
}

fn is_one_of(target: &Target, list: &[(&str, &str)]) -> bool {
    target.kind == Kind::Test && list.contains(&(target.package.as_str(), target.name.as_str()))
}

fn is_kubeadm(target: &Target, test: &str) -> bool {
    let (package, name, prefix) = KUBEADM;
    is_one_of(target, &[(package, name)]) && test.starts_with(prefix)
}

/// Whether anything of a program runs. If not, it is not built.
pub(super) fn runs(target: &Target, scope: Scope) -> bool {
    match scope {
        Scope::Unit => !is_one_of(target, &CLUSTER),
        Scope::Quick => !is_one_of(target, &EMULATED) && !is_one_of(target, &BROWSERS),
        Scope::All => true,
    }
}

/// Whether the name of a program, or of a module or test of a test program, contains one of the words.
pub(super) fn names(target: &Target, words: &[String]) -> bool {
    let inside = || [target.modules_in_source(), target.tests_in_source()].into_iter().flatten().flatten();
    // With a path, such as `lost_objects::`, the last part that has a name decides; the plan compares the whole.
    let last =
        |word: &String| word.split("::").filter(|part| !part.is_empty()).last().unwrap_or(word).to_owned();
    let names: Vec<String> = words.iter().map(last).collect();
    fits(&target.title(), words) || target.kind == Kind::Test && inside().any(|name| fits(&name, &names))
}

fn fits(title: &str, words: &[String]) -> bool {
    words.is_empty() || words.iter().any(|word| title.contains(word.as_str()))
}

/// The name of a test's function, without its module.
fn function(name: &str) -> &str {
    name.rsplit("::").next().unwrap_or(name)
}

/// Plans the built programs, and lists the tests of those that are not built. `last` has the seconds that jobs took
/// last time: the longest begin first, so that the run does not end with a wait for one of them. With words in `only`,
/// only jobs with one of them in their title run, and nothing counts as left out.
pub(super) fn plan(
    programs: &[Program],
    not_built: &[Target],
    scope: Scope,
    only: &[String],
    last: &BTreeMap<String, f64>,
) -> anyhow::Result<Plan> {
    let (mut quick, mut clusters, mut plan) = (vec![], vec![], Plan::default());
    let mut waiting: BTreeSet<&str> = WAITING.into();
    let mut longest: BTreeSet<&str> = LONGEST.iter().map(|(name, _)| *name).collect();
    for program in programs.iter().filter(|p| !p.tests.is_empty()) {
        let target = &program.target;
        let job = |title: String, args: Vec<String>| Job {
            title,
            executable: program.executable.clone(),
            folder: target.folder.clone(),
            args,
            patience: if is_one_of(target, &EMULATED) { PATIENCE_EMULATED } else { PATIENCE },
            again: is_one_of(target, &CLUSTER),
        };
        // Tests that share a process run together or not at all.
        let wanted =
            |title: &str, tests: &[&String]| fits(title, only) || tests.iter().any(|test| fits(test, only));
        if !is_one_of(target, &CLUSTER) {
            if !wanted(&target.title(), &program.tests.iter().collect::<Vec<_>>()) {
                continue;
            }
            quick.push(job(target.title(), vec!["--show-output".to_owned()]));
            continue;
        }
        let group = TOGETHER
            .iter()
            .find(|(package, name, ..)| target.package == *package && target.name == *name)
            .map(|(_, _, prefix, at_once)| (*prefix, *at_once));
        if let Some((prefix, at_once)) = group {
            let title = format!("{} {prefix}", target.title()).trim_end_matches([' ', ':']).to_owned();
            let filter = if prefix.is_empty() { vec![] } else { vec![prefix.to_owned()] };
            let inside: Vec<&String> = program.tests.iter().filter(|name| name.starts_with(prefix)).collect();
            if wanted(&title, &inside) {
                let args = ["--show-output".to_owned(), format!("--test-threads={at_once}")];
                clusters.push(job(title, [filter, args.into()].concat()));
            }
        }
        for name in
            program.tests.iter().filter(|name| group.is_none_or(|(prefix, _)| !name.starts_with(prefix)))
        {
            let title = format!("{} {name}", target.title());
            let job = job(title.clone(), vec!["--exact".to_owned(), name.clone(), "--nocapture".to_owned()]);
            longest.remove(function(name));
            if !fits(&title, only) {
                continue;
            }
            if scope == Scope::Quick && is_kubeadm(target, name) {
                plan.left_out.push(title);
            } else if waiting.remove(function(name)) {
                plan.beside.push_back(job);
            } else {
                clusters.push(job);
            }
        }
    }
    for target in not_built {
        let names = target.tests_in_source()?;
        for name in &names {
            waiting.remove(name.as_str());
            longest.remove(name.as_str());
        }
        plan.left_out.extend(names.into_iter().map(|name| format!("{} {name}", target.title())));
    }
    if !only.is_empty() {
        plan.left_out.clear();
        waiting.clear();
        longest.clear();
    }
    for (list, missing) in [("WAITING", waiting), ("LONGEST", longest)] {
        ensure!(
            missing.is_empty(),
            "the list {list} in xtask/src/test/jobs.rs names tests that do not exist: {missing:?}; were they renamed?"
        );
    }
    for list in [&mut quick, &mut clusters] {
        list.sort_by(|a, b| seconds(last, b).total_cmp(&seconds(last, a)));
    }
    plan.beside.make_contiguous().sort_by(|a, b| seconds(last, b).total_cmp(&seconds(last, a)));
    plan.jobs = quick.into_iter().chain(clusters).collect();
    Ok(plan)
}

/// The last duration of a job. Without one, that of [`LONGEST`] counts; a job that is new on this computer counts as a long one.
fn seconds(last: &BTreeMap<String, f64>, job: &Job) -> f64 {
    let title = job.title.rsplit([' ', ':']).next().unwrap_or_default();
    let usual = || LONGEST.iter().find(|(name, _)| *name == title).map(|(_, seconds)| *seconds);
    let unknown = if last.is_empty() { 0.0 } else { f64::MAX };
    last.get(&job.title).copied().or_else(usual).unwrap_or(unknown)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn target(package: &str, name: &str, kind: Kind) -> Target {
        let source = "/nowhere.rs".into();
        Target { package: package.to_owned(), name: name.to_owned(), kind, source, folder: "/".into() }
    }

    fn program(package: &str, name: &str, tests: &[&str]) -> Program {
        let kind = if package == name { Kind::Library } else { Kind::Test };
        let tests = tests.iter().map(|t| (*t).to_owned()).collect();
        Program { target: target(package, name, kind), executable: "/x".into(), tests }
    }

    fn titles(jobs: &VecDeque<Job>) -> Vec<&str> {
        jobs.iter().map(|job| job.title.as_str()).collect()
    }

    fn programs() -> Vec<Program> {
        let waiting: Vec<String> = WAITING.iter().map(|name| format!("m::{name}")).collect();
        let faults: Vec<&str> = waiting.iter().map(String::as_str).chain(["m::short"]).collect();
        let longest: Vec<String> = LONGEST.iter().rev().map(|(name, _)| format!("v::{name}")).collect();
        let longest: Vec<&str> = longest.iter().map(String::as_str).collect();
        vec![
            program("lab", "faults", &faults),
            program("lab", "cluster", &["agents::a", "agents::b", "render::r"]),
            program("controller", "cluster", &["a", "b"]),
            program("host", "host", &["one"]),
            program("host", "drift", &["two"]),
            program("api", "empty", &[]),
            program("lab", "vm", &longest),
        ]
    }

    #[test]
    fn everything_runs_once_the_quick_first_and_the_longest_before_the_others() {
        let last = [
            ("lab cluster render::r", 5.0),
            ("lab cluster agents", 50.0),
            ("lab faults m::short", 9.0),
            ("host", 1.0),
            ("host drift", 3.0),
            ("controller cluster", 90.0),
        ];
        let last = last.map(|(title, s)| (title.to_owned(), s)).into();
        let plan = plan(&programs(), &[], Scope::All, &[], &last).unwrap();
        let jobs = [
            "host drift",
            "host",
            "controller cluster",
            "lab cluster agents",
            "lab faults m::short",
            "lab cluster render::r",
        ];
        let is_long = |job: &&Job| job.title.starts_with("lab vm v::");
        let others: VecDeque<Job> = plan.jobs.iter().filter(|job| !is_long(job)).cloned().collect();
        assert_eq!(titles(&others), jobs);
        assert_eq!((plan.beside.len(), plan.left_out.len()), (WAITING.len(), 0));
        assert_eq!(others[3].args, ["agents::", "--show-output", "--test-threads=6"]);
        assert_eq!(others[5].args, ["--exact", "render::r", "--nocapture"]);
    }

    #[test]
    fn the_longest_begin_first_also_where_nothing_was_measured() {
        let first = |last: &[(&str, f64)]| {
            let last = last.iter().map(|(title, seconds)| ((*title).to_owned(), *seconds)).collect();
            let plan = plan(&programs(), &[], Scope::All, &[], &last).unwrap();
            plan.jobs.iter().skip(2).map(|job| job.title.clone()).collect::<Vec<_>>()
        };
        let longest = LONGEST.map(|(name, _)| format!("lab vm v::{name}"));
        assert_eq!(first(&[])[..LONGEST.len()], longest, "as listed");
        let measured = [("controller cluster", 90.0), (&*longest[7], 900.0)];
        let jobs = first(&measured);
        let at = |title: &str| jobs.iter().position(|job| job == title);
        assert!(at("lab cluster agents") < at(&longest[7]), "new on this computer: {jobs:?}");
        assert!(at(&longest[7]) < at(&longest[0]), "what was measured counts: {jobs:?}");
        assert!(at(&longest[6]) < at("controller cluster"), "{jobs:?}");
    }

    #[test]
    fn what_is_left_out_is_named() {
        let mut programs = programs();
        programs.push(program("lab", "node", &["kubeadm::three::k", "reboots::r"]));
        let planned = |scope| plan(&programs, &[], scope, &[], &BTreeMap::new()).unwrap();
        let (quick, all) = (planned(Scope::Quick), planned(Scope::All));
        assert_eq!(quick.left_out, ["lab node kubeadm::three::k"]);
        assert!(titles(&quick.jobs).contains(&"lab node reboots::r"), "{quick:?}");
        assert_eq!(quick.beside.len(), WAITING.len());
        assert_eq!((all.jobs.len(), all.left_out.len()), (quick.jobs.len() + 1, 0));

        for slow in ["browser", "vm"] {
            let slow = target("lab", slow, Kind::Test);
            assert!(runs(&slow, Scope::All) && !runs(&slow, Scope::Quick) && !runs(&slow, Scope::Unit));
        }
        let node = target("lab", "node", Kind::Test);
        assert!(runs(&node, Scope::Quick) && !runs(&node, Scope::Unit));
        assert!(runs(&target("lab", "lab", Kind::Library), Scope::Unit));
        assert!(!runs(&target("controller", "cluster", Kind::Test), Scope::Unit));
    }

    #[test]
    fn a_word_chooses_programs_and_tests() {
        let only =
            |word: &str| plan(&programs(), &[], Scope::All, &[word.to_owned()], &BTreeMap::new()).unwrap();
        let short = only("m::short");
        assert_eq!(titles(&short.jobs), ["lab faults m::short"]);
        assert!(short.beside.is_empty());
        assert_eq!(titles(&only("agents::b").jobs), ["lab cluster agents"]);
        assert_eq!(titles(&only("controller").jobs), ["controller cluster"]);
        let waits = only(WAITING[0]);
        assert_eq!(waits.beside.len(), 1);
        assert!(waits.left_out.is_empty());
    }

    #[test]
    fn a_listed_test_that_is_renamed_is_missed() {
        let mut programs = programs();
        programs[0].tests.remove(0);
        let error = plan(&programs, &[], Scope::All, &[], &BTreeMap::new()).unwrap_err();
        assert!(error.to_string().contains(WAITING[0]), "{error}");
        programs.retain(|program| program.target.name != "vm" && program.target.name != "faults");
        programs.push(program("lab", "faults", &WAITING));
        let error = plan(&programs, &[], Scope::All, &[], &BTreeMap::new()).unwrap_err();
        assert!(error.to_string().contains("LONGEST") && error.to_string().contains(LONGEST[0].0), "{error}");
    }
}
