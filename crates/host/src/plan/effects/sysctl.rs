//! Kernel parameters: the files of sysctl.d(5), which of them counts, and what has to be set when one changes. Pure.
//!
//! Only parameters that a changed file names, now or before, are set: others may have been changed by the kubelet or by
//! hand since the boot.
//!
//! Not here: writing a parameter and reading it back (see `transaction::effects`).

use std::collections::BTreeMap;

use desired::{Want, Wanted};

use super::{Effect, NotTaken, Planned, Taken};
use crate::disk::root::split;
use crate::paths;
use crate::plan::facts::EffectFacts;

/// The folders, highest precedence first (sysctl.d(5)).
pub(crate) const FOLDERS: [&str; 5] =
    ["/etc/sysctl.d", "/run/sysctl.d", "/usr/local/lib/sysctl.d", "/usr/lib/sysctl.d", "/lib/sysctl.d"];
const ROW: &str = "kernel parameters";
/// What the kernel does not give back as it was written, or acts on when it is written.
const NOT_STATE: [&str; 6] = [
    "vm/drop_caches",
    "vm/compact_memory",
    "net/ipv4/route/flush",
    "net/ipv6/route/flush",
    "kernel/sysrq",
    "kernel/modules_disabled",
];

/// Beginnings of parameters that have no effect on what exists when they are set now: they count for interfaces that
/// come later, or are read when a program starts, or are those of the namespace of this process.
const AT_BOOT: [&str; 13] = [
    "kernel/sem",
    "kernel/shm",
    "kernel/msg",
    "kernel/hostname",
    "kernel/domainname",
    "fs/mqueue/",
    "net/ipv4/conf/default/",
    "net/ipv6/conf/default/",
    "net/ipv4/neigh/default/",
    "net/ipv6/neigh/default/",
    "net/core/default_qdisc",
    "vm/nr_hugepages",
    "vm/nr_overcommit_hugepages",
];
/// Beginnings of parameters that cannot be taken back: the kernel refuses another value, or they overwrite the values of
/// all interfaces.
const ONE_WAY: [&str; 7] = [
    "kernel/unprivileged_bpf_disabled",
    "kernel/kexec_load_",
    "kernel/yama/ptrace_scope",
    "kernel/perf_event_paranoid",
    "net/ipv4/ip_forward",
    "net/ipv4/conf/all/",
    "net/ipv6/conf/all/",
];

fn is_one_way(key: &str) -> bool {
    ONE_WAY.iter().any(|p| key.starts_with(p))
}

/// One line of such a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Setting {
    /// The path below `/proc/sys`.
    pub(crate) key: String,
    pub(crate) value: String,
    pub(crate) tolerated: bool,
}

/// The path of a key below `/proc/sys`: the first separator of a key, `.` or `/`, is its separator; the other one is
/// part of a name.
pub(crate) fn path_of(key: &str) -> String {
    let swap = |c| match c {
        '.' => '/',
        '/' => '.',
        c => c,
    };
    match key.find(['.', '/']).and_then(|i| key.get(i..=i)) {
        Some(".") => key.chars().map(swap).collect(),
        _ => key.to_owned(),
    }
}

/// The settings of a file.
///
/// # Errors
/// A line that cannot be followed here: patterns, and exceptions from them.
pub(crate) fn parse(text: &str) -> Result<Vec<Setting>, String> {
    lines(text).map(setting).collect()
}

fn lines(text: &str) -> impl Iterator<Item = &str> {
    text.lines().map(str::trim).filter(|l| !l.is_empty() && !l.starts_with(['#', ';']))
}

fn setting(line: &str) -> Result<Setting, String> {
    let Some((key, value)) = line.split_once('=') else {
        return Err(format!("the line {line:?} sets no value"));
    };
    let (key, tolerated) = match key.trim().strip_prefix('-') {
        Some(key) => (key.trim(), true),
        None => (key.trim(), false),
    };
    if key.is_empty() || key.contains(WILD) {
        return Err(format!("{key:?} is a pattern"));
    }
    let key = path_of(key);
    if key.split('/').any(|part| part.is_empty() || part == "..") {
        return Err(format!("{key:?} is not the name of a parameter"));
    }
    Ok(Setting { key, value: value.trim().to_owned(), tolerated })
}

/// What makes a key a pattern (glob(7)).
const WILD: [char; 4] = ['*', '?', '[', ']'];

/// Whether a line that cannot be followed, a pattern or an exception from one, may be about a parameter: what is before
/// and after its wildcards fits.
fn may_match(line: &str, key: &str) -> bool {
    let pattern = line.split_once('=').map_or(line, |(key, _)| key).trim();
    let pattern = path_of(pattern.strip_prefix('-').unwrap_or(pattern).trim());
    match (pattern.find(WILD), pattern.rfind(WILD)) {
        (Some(first), Some(last)) => {
            let start = pattern.get(..first).unwrap_or_default();
            let end = pattern.get(last + 1..).unwrap_or_default();
            key.starts_with(start) && key.ends_with(end)
        }
        _ => pattern == key,
    }
}

/// What a boot sets by some files.
#[derive(Default)]
struct InForce<'f> {
    settings: BTreeMap<String, Setting>,
    /// Lines that cannot be followed here.
    others: Vec<&'f str>,
}

/// What a boot sets by these files: of files with one name that of the highest folder, then in the order of names, the
/// last setting of a parameter counts.
fn in_force<'f>(files: impl Iterator<Item = (&'f str, &'f str)>) -> InForce<'f> {
    let mut named: BTreeMap<&str, (usize, &str)> = BTreeMap::new();
    for (path, text) in files {
        let Ok((dir, name)) = split(path) else { continue };
        let Some(rank) = FOLDERS.iter().position(|f| *f == dir) else { continue };
        if named.get(name).is_none_or(|(other, _)| rank < *other) {
            named.insert(name, (rank, text));
        }
    }
    let mut out = InForce::default();
    for line in named.values().flat_map(|(_, text)| lines(text)) {
        match setting(line) {
            Ok(s) => drop(out.settings.insert(s.key.clone(), s)),
            Err(_) => out.others.push(line),
        }
    }
    out
}

fn text_of<'w>(config: &'w Wanted, path: &str) -> Option<&'w str> {
    match config.at(path)? {
        Want::File { content, .. } => std::str::from_utf8(content.bytes()).ok(),
        _ => None,
    }
}

/// The parameters that one of these configs names in a file of `/etc/sysctl.d`.
pub(crate) fn keys(configs: &[&Wanted]) -> Vec<String> {
    let paths = configs.iter().flat_map(|c| c.paths.iter().map(move |(path, _)| (c, path)));
    let texts = paths.filter(|(_, p)| p.starts_with("/etc/sysctl.d/")).filter_map(|(c, p)| text_of(c, p));
    texts.flat_map(|t| parse(t).unwrap_or_default()).map(|s| s.key).collect()
}

/// Two texts of one value: the kernel separates words by tabs, and prints numbers in its own form.
pub(crate) fn same_value(a: &str, b: &str) -> bool {
    let number = |word: &str| match word.strip_prefix("0x") {
        Some(hex) => i128::from_str_radix(hex, 16).ok(),
        None => word.parse::<i128>().ok(),
    };
    let same = |(a, b): (&str, &str)| a == b || number(a).is_some_and(|a| number(b) == Some(a));
    let words = |text| str::split_whitespace(text);
    words(a).count() == words(b).count() && words(a).zip(words(b)).all(same)
}

/// How a changed file of `/etc/sysctl.d` takes effect. `modules`: the change loads kernel modules, which may bring
/// parameters that do not exist yet.
pub(crate) fn of_file(
    path: &str,
    old: &Wanted,
    new: &Wanted,
    facts: Option<&EffectFacts>,
    modules: bool,
) -> Result<Taken, NotTaken> {
    let refuse = |why: String| Err(NotTaken { row: ROW, why });
    let (was, is) = (text_of(old, path).unwrap_or_default(), text_of(new, path).unwrap_or_default());
    let mut named: Vec<String> = Vec::new();
    for text in [was, is] {
        match parse(text) {
            Ok(settings) => named.extend(settings.into_iter().map(|s| s.key)),
            Err(why) => return refuse(why),
        }
    }
    named.sort();
    named.dedup();
    if let Some(key) = named.iter().find(|key| NOT_STATE.contains(&key.as_str())) {
        return refuse(format!("{key} cannot be set back"));
    }
    if let Some(key) = named.iter().find(|key| AT_BOOT.iter().any(|p| key.starts_with(p))) {
        return refuse(format!("{key} takes full effect only at boot"));
    }
    let Some(facts) = facts else {
        // No host was looked at: what it has now is not known.
        if let Some(key) = named.iter().find(|key| is_one_way(key)) {
            return refuse(one_way(key));
        }
        let settings = parse(is).unwrap_or_default().into_iter();
        let set = settings.map(|s| set(&s, None, path));
        let mut taken = Taken::by(ROW, set.collect());
        if named.len() > parse(is).unwrap_or_default().len() {
            taken = taken.note(format!(
                "{path}: a parameter that is no longer set is set back on nodes that recorded its value; others reboot"
            ));
        }
        return Ok(taken);
    };
    let files = |config: &Wanted, other: &Wanted| {
        let mut files = facts.sysctl_files.clone();
        for (path, _) in other.paths.iter().filter(|(p, _)| p.starts_with("/etc/sysctl.d/")) {
            if config.at(path).is_none()
                && let Some(original) = files.get(&paths::original(path)).cloned()
            {
                files.insert(path.clone(), original);
            } else if config.at(path).is_none() {
                files.remove(path);
            }
        }
        for (path, _) in config.paths.iter().filter(|(p, _)| p.starts_with("/etc/sysctl.d/")) {
            files.insert(path.clone(), text_of(config, path).unwrap_or_default().to_owned());
        }
        files
    };
    let (before, after) = (files(old, new), files(new, old));
    let (before, after) = (
        in_force(before.iter().map(|(p, t)| (p.as_str(), t.as_str()))),
        in_force(after.iter().map(|(p, t)| (p.as_str(), t.as_str()))),
    );
    for key in &named {
        if let Some(line) = before.others.iter().chain(&after.others).find(|line| may_match(line, key)) {
            let pattern = line.split_once('=').map_or(*line, |(key, _)| key).trim();
            return refuse(format!("{key} may also be set by {pattern:?} in another file of this host"));
        }
    }
    let (before, after) = (before.settings, after.settings);
    let mut effects = Vec::new();
    let mut record = BTreeMap::new();
    for key in named {
        let now = facts.parameters.get(&key);
        match after.get(&key) {
            Some(s) if s.tolerated && now.is_none() => {}
            Some(s) => match now {
                None if modules => effects.push(set(s, None, path)),
                None => return refuse(format!("the kernel has no parameter {key} now")),
                Some(None) => {
                    return refuse(format!("{key} cannot be read, so setting it cannot be checked"));
                }
                Some(Some(now)) if same_value(now, &s.value) => {}
                Some(Some(_)) if is_one_way(&key) => return refuse(one_way(&key)),
                Some(Some(now)) => {
                    if !before.contains_key(&key) && !facts.parameters_before.contains_key(&key) {
                        record.insert(key.clone(), Some(now.clone()));
                    }
                    effects.push(set(s, Some(now), path));
                }
            },
            None => match (facts.parameters_before.get(&key), now) {
                (_, None) => {}
                (Some(_), Some(_)) if is_one_way(&key) => return refuse(one_way(&key)),
                (Some(value), Some(now)) => {
                    let back = Setting { key: key.clone(), value: value.clone(), tolerated: false };
                    effects.push(set(&back, now.as_deref(), path));
                    record.insert(key.clone(), None);
                }
                (None, Some(_)) => {
                    return refuse(format!(
                        "{key} is no longer set, and its value from before was not recorded on this host"
                    ));
                }
            },
        }
    }
    Ok(Taken { record, ..Taken::by(ROW, effects) })
}

fn one_way(key: &str) -> String {
    format!("{key} cannot be set back once it is set")
}

fn set(s: &Setting, now: Option<&str>, path: &str) -> Planned {
    let effect = |value: &str, tolerated| Effect::Parameter {
        key: s.key.clone(),
        value: value.to_owned(),
        tolerated,
        private: false,
    };
    let undo = now.map(|now| effect(now, true));
    Planned { because: vec![path.to_owned()], ..Planned::with(effect(&s.value, s.tolerated), undo) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use api::v1::MachineConfigSpec;
    use serde_json::json;

    const PATH: &str = "/etc/sysctl.d/50-x.conf";

    fn config(files: &[(&str, &str)]) -> Wanted {
        let encode = |t: &str| t.bytes().map(|b| format!("%{b:02X}")).collect::<String>();
        let file = |(path, text): &(&str, &str)| json!({"path": path, "contents": {"source": format!("data:,{}", encode(text))}});
        let files: Vec<_> = files.iter().map(file).collect();
        let config = Some(json!({"ignition": {"version": "3.5.0"}, "storage": {"files": files}}));
        Wanted::parse(&MachineConfigSpec { config, ..MachineConfigSpec::default() }).unwrap()
    }

    fn facts(parameters: &[(&str, &str)]) -> EffectFacts {
        let value = |(k, v): &(&str, &str)| ((*k).to_owned(), Some((*v).to_owned()));
        EffectFacts { parameters: parameters.iter().map(value).collect(), ..EffectFacts::default() }
    }

    fn words(taken: &Taken) -> Vec<String> {
        let super::super::Way::Effects(effects) = &taken.way else { panic!("{taken:?}") };
        effects.iter().map(|e| e.effect.to_string()).collect()
    }

    #[test]
    fn keys_have_two_forms_and_values_are_compared_as_the_kernel_prints_them() {
        for (key, path) in [
            ("net.ipv4.ip_forward", "net/ipv4/ip_forward"),
            ("net/ipv4/conf/eth0.1/forwarding", "net/ipv4/conf/eth0.1/forwarding"),
            ("net.ipv4.conf.eth0/1.forwarding", "net/ipv4/conf/eth0.1/forwarding"),
        ] {
            assert_eq!(path_of(key), path);
        }
        for (a, b, same) in [
            ("4096 87380 6291456", "4096\t87380\t6291456\n", true),
            ("0x10", "16", true),
            ("1", "1\n", true),
            ("1", "0", false),
            ("1 2", "1", false),
            ("core", "core.%p", false),
        ] {
            assert_eq!(same_value(a, b), same, "{a:?} {b:?}");
        }
    }

    #[test]
    fn only_what_differs_from_the_kernels_value_is_set_and_the_undo_has_that_value() {
        let (old, new) =
            (config(&[]), config(&[(PATH, "# x\nvm.swappiness = 10\nkernel.pid_max=4194304\n")]));
        let facts = facts(&[("vm/swappiness", "60"), ("kernel/pid_max", "4194304")]);
        let taken = of_file(PATH, &old, &new, Some(&facts), false).unwrap();
        assert_eq!(words(&taken), ["set the kernel parameter vm/swappiness to 10"]);
        assert_eq!(taken.record, BTreeMap::from([("vm/swappiness".to_owned(), Some("60".to_owned()))]));
        let super::super::Way::Effects(effects) = taken.way else { panic!() };
        let undo = effects[0].undo.as_ref().unwrap().to_string();
        assert_eq!(undo, "set the kernel parameter vm/swappiness to 60");
        // The file is removed: the recorded value comes back, and the record goes.
        let mut later = facts;
        later.parameters.insert("vm/swappiness".to_owned(), Some("10".to_owned()));
        later.parameters.remove("kernel/pid_max");
        later.parameters_before.insert("vm/swappiness".to_owned(), "60".to_owned());
        let back = of_file(PATH, &new, &old, Some(&later), false).unwrap();
        assert_eq!(words(&back), ["set the kernel parameter vm/swappiness to 60"]);
        assert_eq!(back.record, BTreeMap::from([("vm/swappiness".to_owned(), None)]));
        // It was set by a boot, before any agent recorded a value.
        later.parameters_before.clear();
        let why = of_file(PATH, &new, &old, Some(&later), false).unwrap_err().why;
        assert!(why.contains("vm/swappiness") && why.contains("not recorded"), "{why}");
    }

    #[test]
    fn a_file_that_counts_for_less_changes_nothing_and_one_that_comes_back_counts_again() {
        let new = config(&[(PATH, "vm.swappiness=10")]);
        let mut facts = facts(&[("vm/swappiness", "30")]);
        facts.sysctl_files.insert("/usr/lib/sysctl.d/99-z.conf".to_owned(), "vm.swappiness=30".to_owned());
        let taken = of_file(PATH, &config(&[]), &new, Some(&facts), false).unwrap();
        assert_eq!(words(&taken), Vec::<String>::new());
        // With the same name the file of /etc hides the distribution's.
        let over = "/etc/sysctl.d/99-z.conf";
        let taken =
            of_file(over, &config(&[]), &config(&[(over, "vm.swappiness=1")]), Some(&facts), false).unwrap();
        assert_eq!(words(&taken), ["set the kernel parameter vm/swappiness to 1"]);
        assert_eq!(taken.record, BTreeMap::new(), "the distribution's file says what to set back");
        facts.sysctl_files.insert(over.to_owned(), "vm.swappiness=1".to_owned());
        facts.parameters.insert("vm/swappiness".to_owned(), Some("1".to_owned()));
        let taken =
            of_file(over, &config(&[(over, "vm.swappiness=1")]), &config(&[]), Some(&facts), false).unwrap();
        assert_eq!(words(&taken), ["set the kernel parameter vm/swappiness to 30"]);
    }

    #[test]
    fn a_parameter_that_cannot_be_taken_back_costs_nothing_where_it_has_its_value_and_a_boot_where_it_goes() {
        let new = config(&[(PATH, "kernel.yama.ptrace_scope=3")]);
        let mut host = facts(&[("kernel/yama/ptrace_scope", "3")]);
        let taken = of_file(PATH, &config(&[]), &new, Some(&host), false).unwrap();
        assert_eq!(words(&taken), Vec::<String>::new());
        host.parameters_before.insert("kernel/yama/ptrace_scope".to_owned(), "1".to_owned());
        let why = of_file(PATH, &new, &config(&[]), Some(&host), false).unwrap_err().why;
        assert!(why.contains("once it is set"), "{why}");
        let why = of_file(PATH, &config(&[]), &new, None, false).unwrap_err().why;
        assert!(why.contains("once it is set"), "{why}");
    }

    #[test]
    fn a_file_of_the_host_with_a_pattern_counts_by_its_other_lines() {
        let text = "-net.ipv4.conf.all.x\nnet.ipv4.conf.*.rp_filter = 2\nnet.ipv4.tcp_ecn = 1\n";
        let mut host = facts(&[("net/ipv4/tcp_ecn", "1"), ("net/ipv4/conf/eth0/rp_filter", "0")]);
        host.sysctl_files.insert("/usr/lib/sysctl.d/50-default.conf".to_owned(), text.to_owned());
        let early = "/etc/sysctl.d/10-a.conf";
        let of = |text| of_file(early, &config(&[]), &config(&[(early, text)]), Some(&host), false);
        assert_eq!(words(&of("net.ipv4.tcp_ecn=0").unwrap()), Vec::<String>::new(), "the later file wins");
        let why = of("net.ipv4.conf.eth0.rp_filter=1").unwrap_err().why;
        assert!(why.contains("net.ipv4.conf.*.rp_filter"), "{why}");
        for (line, key, fits) in [
            ("-net.ipv4.conf.all.x", "net/ipv4/conf/all/x", true),
            ("-net.ipv4.conf.all.x", "net/ipv4/conf/all/y", false),
            ("net.ipv4.conf.*.x = 1", "net/ipv4/conf/eth0/y", false),
            ("-net/ipv4/conf/eth[0-9]/x = 1", "net/ipv4/conf/eth0/x", true),
        ] {
            assert_eq!(may_match(line, key), fits, "{line} {key}");
        }
    }

    #[test]
    fn what_cannot_be_followed_or_set_back_costs_a_reboot() {
        let host = facts(&[
            ("vm/drop_caches", "0"),
            ("vm/swappiness", "60"),
            ("net/ipv4/ip_forward", "0"),
            ("net/ipv6/conf/all/forwarding", "0"),
            ("kernel/kexec_load_disabled", "0"),
        ]);
        for (text, word) in [
            ("net.ipv4.conf.*.rp_filter=1", "pattern"),
            ("-net.ipv4.conf.all.rp_filter", "sets no value"),
            ("vm.drop_caches=1", "cannot be set back"),
            ("kernel.sem=250 32000 100 128", "only at boot"),
            ("kernel.shmmax=1", "only at boot"),
            ("kernel.msgmax=1", "only at boot"),
            ("fs.mqueue.msg_max=1", "only at boot"),
            ("net.ipv4.conf.default.rp_filter=1", "only at boot"),
            ("net.ipv6.neigh.default.gc_thresh1=1", "only at boot"),
            ("net.core.default_qdisc=fq", "only at boot"),
            ("vm.nr_hugepages=1", "only at boot"),
            ("net.ipv4.ip_forward=1", "once it is set"),
            ("net.ipv6.conf.all.forwarding=1", "once it is set"),
            ("kernel.kexec_load_disabled=1", "once it is set"),
            ("net.bridge.bridge-nf-call-iptables=1", "no parameter"),
            ("../x=1", "not the name"),
        ] {
            let why =
                of_file(PATH, &config(&[]), &config(&[(PATH, text)]), Some(&host), false).unwrap_err().why;
            assert!(why.contains(word), "{text}: {why}");
        }
        let modules = of_file(PATH, &config(&[]), &config(&[(PATH, "net.bridge.x=1")]), Some(&host), true);
        assert_eq!(words(&modules.unwrap()), ["set the kernel parameter net/bridge/x to 1"]);
        let tolerated = of_file(PATH, &config(&[]), &config(&[(PATH, "-net.none=1")]), Some(&host), false);
        assert_eq!(words(&tolerated.unwrap()), Vec::<String>::new());
    }
}
