//! Tests of kernel parameters, on configs and facts.

use super::language::path_of;
use super::*;
use api::v1::MachineConfigSpec;
use serde_json::json;

const PATH: &str = "/etc/sysctl.d/50-x.conf";

fn config(files: &[(&str, &str)]) -> DesiredHost {
    let encode = |t: &str| t.bytes().map(|b| format!("%{b:02X}")).collect::<String>();
    let file = |(path, text): &(&str, &str)| json!({"path": path, "contents": {"source": format!("data:,{}", encode(text))}});
    let files: Vec<_> = files.iter().map(file).collect();
    let config = Some(json!({"ignition": {"version": "3.5.0"}, "storage": {"files": files}}));
    DesiredHost::parse(&MachineConfigSpec { config, ..MachineConfigSpec::default() }).unwrap()
}

fn facts(parameters: &[(&str, &str)]) -> EffectFacts {
    let value = |(k, v): &(&str, &str)| ((*k).to_owned(), Some((*v).to_owned()));
    EffectFacts { parameters: parameters.iter().map(value).collect(), ..EffectFacts::default() }
}

fn words(taken: &RowApplied) -> Vec<String> {
    let crate::plan::effects::TakesEffect::Effects(effects) = &taken.way else { panic!("{taken:?}") };
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
    let (old, new) = (config(&[]), config(&[(PATH, "# x\nvm.swappiness = 10\nkernel.pid_max=4194304\n")]));
    let facts = facts(&[("vm/swappiness", "60"), ("kernel/pid_max", "4194304")]);
    let taken = of_file(PATH, &old, &new, Some(&facts), false).unwrap();
    assert_eq!(words(&taken), ["set the kernel parameter vm/swappiness to 10"]);
    assert_eq!(taken.record, BTreeMap::from([("vm/swappiness".to_owned(), Some("60".to_owned()))]));
    let crate::plan::effects::TakesEffect::Effects(effects) = taken.way else { panic!() };
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
        let why = of_file(PATH, &config(&[]), &config(&[(PATH, text)]), Some(&host), false).unwrap_err().why;
        assert!(why.contains(word), "{text}: {why}");
    }
    let modules = of_file(PATH, &config(&[]), &config(&[(PATH, "net.bridge.x=1")]), Some(&host), true);
    assert_eq!(words(&modules.unwrap()), ["set the kernel parameter net/bridge/x to 1"]);
    let tolerated = of_file(PATH, &config(&[]), &config(&[(PATH, "-net.none=1")]), Some(&host), false);
    assert_eq!(words(&tolerated.unwrap()), Vec::<String>::new());
}
