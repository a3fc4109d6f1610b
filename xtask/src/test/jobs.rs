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

/// Those whose nodes are machines that boot: containers or virtual machines.
const MACHINES: [(&str, &str); 2] = [("lab", "node"), ("lab", "vm")];

/// Those with virtual machines. Without hardware virtualization (KVM) their processor is emulated, which is ten times slower.
const EMULATED: [(&str, &str); 1] = [("lab", "vm")];

/// Those that drive a browser, which has to be downloaded.
const BROWSERS: [(&str, &str); 1] = [("lab", "browser")];

/// Cluster tests that share one control plane and hence one process: package, program, and the prefix of their names.
const TOGETHER: [(&str, &str, &str); 3] =
    [("controller", "cluster", ""), ("lab", "control_plane", ""), ("lab", "cluster", "agents::")];

/// Tests that wait for minutes: for an API server that is unavailable, for a lease that expires, or until every API server
/// writes a new version. They run beside the others and occupy no lane.
const WAITING: [&str; 8] = [
    "a_rollout_survives_two_minutes_without_the_api_server",
    "a_rollout_survives_changes_of_leader",
    "late_patches_of_a_dead_leader_are_refused",
    "a_rollout_works_with_controller_clocks_a_minute_off",
    "a_node_that_cuts_itself_off_reboots_after_the_time_limit",
    "a_rollout_survives_the_loss_of_the_api_server_of_the_controller_and_of_a_node",
    "a_controller_resumes_after_its_network_dropped_all_packets",
    "objects_outlive_the_version_in_which_they_are_stored",
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

/// The time limit for a job.
const PATIENCE: Duration = Duration::from_mins(15);
/// The time limit for a job with virtual machines: a test that updates an OS goes through nine boots.
const PATIENCE_EMULATED: Duration = Duration::from_mins(25);

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

/// Whether anything of a program runs. If not, it is not built.
pub(super) fn runs(target: &Target, scope: Scope) -> bool {
    match scope {
        Scope::Unit => !is_one_of(target, &CLUSTER),
        Scope::Quick => !is_one_of(target, &MACHINES) && !is_one_of(target, &BROWSERS),
        Scope::All => true,
    }
}

/// Whether the name of a program, or of one of its tests, contains one of the words.
pub(super) fn names(target: &Target, words: &[String]) -> bool {
    let tests = || target.tests_in_source().unwrap_or_default();
    fits(&target.title(), words) || target.kind == Kind::Test && tests().iter().any(|test| fits(test, words))
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
            .find(|(package, name, _)| target.package == *package && target.name == *name)
            .map(|(_, _, prefix)| *prefix);
        if let Some(prefix) = group {
            let title = format!("{} {prefix}", target.title()).trim_end_matches([' ', ':']).to_owned();
            let filter = if prefix.is_empty() { vec![] } else { vec![prefix.to_owned()] };
            let inside: Vec<&String> = program.tests.iter().filter(|name| name.starts_with(prefix)).collect();
            if wanted(&title, &inside) {
                clusters.push(job(title, [filter, vec!["--show-output".to_owned()]].concat()));
            }
        }
        for name in program.tests.iter().filter(|name| group.is_none_or(|prefix| !name.starts_with(prefix))) {
            let title = format!("{} {name}", target.title());
            let job = job(title.clone(), vec!["--exact".to_owned(), name.clone(), "--nocapture".to_owned()]);
            if !fits(&title, only) {
                continue;
            }
            if !waiting.remove(function(name)) {
                clusters.push(job);
            } else if scope == Scope::All {
                plan.beside.push_back(job);
            } else {
                plan.left_out.push(title);
            }
        }
    }
    for target in not_built {
        let names = target.tests_in_source()?;
        for name in &names {
            waiting.remove(name.as_str());
        }
        plan.left_out.extend(names.into_iter().map(|name| format!("{} {name}", target.title())));
    }
    if !only.is_empty() {
        plan.left_out.clear();
        waiting.clear();
    }
    ensure!(
        waiting.is_empty(),
        "the list WAITING in xtask/src/test/jobs.rs names tests that do not exist: {waiting:?}; were they renamed?"
    );
    for list in [&mut quick, &mut clusters] {
        list.sort_by(|a, b| seconds(last, b).total_cmp(&seconds(last, a)));
    }
    plan.beside.make_contiguous().sort_by(|a, b| seconds(last, b).total_cmp(&seconds(last, a)));
    plan.jobs = quick.into_iter().chain(clusters).collect();
    Ok(plan)
}

/// The last duration of a job. A new job counts as a long one.
fn seconds(last: &BTreeMap<String, f64>, job: &Job) -> f64 {
    last.get(&job.title).copied().unwrap_or(f64::MAX)
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
        vec![
            program("lab", "faults", &faults),
            program("lab", "cluster", &["agents::a", "agents::b", "render::r"]),
            program("controller", "cluster", &["a", "b"]),
            program("host", "host", &["one"]),
            program("host", "drift", &["two"]),
            program("api", "empty", &[]),
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
        assert_eq!(titles(&plan.jobs), jobs);
        assert_eq!((plan.beside.len(), plan.left_out.len()), (WAITING.len(), 0));
        assert_eq!(plan.jobs[3].args, ["agents::", "--show-output"]);
        assert_eq!(plan.jobs[5].args, ["--exact", "render::r", "--nocapture"]);
    }

    #[test]
    fn what_is_left_out_is_named() {
        let quick = plan(&programs(), &[], Scope::Quick, &[], &BTreeMap::new()).unwrap();
        assert!(quick.beside.is_empty());
        assert_eq!(quick.left_out.len(), WAITING.len());
        assert!(quick.left_out.contains(&format!("lab faults m::{}", WAITING[0])), "{:?}", quick.left_out);

        for machines in ["node", "vm"] {
            let node = target("lab", machines, Kind::Test);
            assert!(runs(&node, Scope::All) && !runs(&node, Scope::Quick) && !runs(&node, Scope::Unit));
        }
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
    fn a_waiting_test_that_is_renamed_is_missed() {
        let mut programs = programs();
        programs[0].tests.remove(0);
        let error = plan(&programs, &[], Scope::All, &[], &BTreeMap::new()).unwrap_err();
        assert!(error.to_string().contains(WAITING[0]), "{error}");
    }
}
