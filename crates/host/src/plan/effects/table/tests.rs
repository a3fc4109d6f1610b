use super::*;
use crate::plan::effects::rows::Row;
use api::v1::MachineConfigSpec;
use serde_json::json;

fn config(files: &[(&str, &str)]) -> DesiredHost {
    let encode = |t: &str| t.bytes().map(|b| format!("%{b:02X}")).collect::<String>();
    let file = |(path, text): &(&str, &str)| json!({"path": path, "contents": {"source": format!("data:,{}", encode(text))}});
    let files: Vec<_> = files.iter().map(file).collect();
    let config = Some(json!({"ignition": {"version": "3.5.0"}, "storage": {"files": files}}));
    DesiredHost::parse(&MachineConfigSpec { config, ..MachineConfigSpec::default() }).unwrap()
}

/// A host that has every program and unit of the table; all units run.
fn everything() -> Facts {
    let units = [
        "chrony.service",
        "systemd-timesyncd.service",
        "systemd-journald.service",
        "systemd-logind.service",
        "systemd-resolved.service",
        NETWORKD,
        UDEVD,
        "ssh.service",
        "containerd.service",
        "crio.service",
        "kubelet.service",
    ];
    let all = || units.iter().map(|u| (*u).to_owned()).collect();
    let programs = PROGRAMS.iter().map(|p| (*p).to_owned()).collect();
    let effects = EffectFacts { programs, running: all(), ..EffectFacts::default() };
    Facts { unit_files: all(), effects: Some(effects), ..Facts::default() }
}

/// What a new file of this path takes, in words. `Err`: why its row does not apply; empty where there is no row.
fn taken(path: &str, text: &str, facts: &Facts) -> Result<(&'static str, String), String> {
    between(path, None, Some(text), facts)
}

fn between(
    path: &str,
    was: Option<&str>,
    is: Option<&str>,
    facts: &Facts,
) -> Result<(&'static str, String), String> {
    let of = |text: Option<&str>| config(&text.map(|t| (path, t)).into_iter().collect::<Vec<_>>());
    match of_file(path, &of(was), &of(is), facts, false) {
        None => Err(String::new()),
        Some(Err(not)) => Err(format!("{}: {}", not.row, not.why)),
        Some(Ok(RowApplied { row, way: TakesEffect::Userspace, .. })) => Ok((row, "userspace".to_owned())),
        Some(Ok(RowApplied { row, way: TakesEffect::AtEachUse, .. })) => Ok((row, String::new())),
        Some(Ok(RowApplied { row, way: TakesEffect::Effects(effects), .. })) => {
            Ok((row, effects.iter().map(|e| e.effect.to_string()).collect::<Vec<_>>().join("; ")))
        }
    }
}

#[test]
fn each_row_covers_its_files_and_says_how_they_take_effect() {
    let rows = [
        ("/etc/motd", "", "messages at login", ""),
        ("/etc/motd.d/a", "", "messages at login", ""),
        ("/etc/issue", "", "messages at login", ""),
        ("/etc/profile.d/a.sh", "", "shell profiles", ""),
        ("/etc/logrotate.d/a", "", "log rotation", ""),
        (
            "/etc/modules-load.d/a.conf",
            "# x\nbr_netfilter\n\noverlay",
            "kernel modules",
            "run /usr/sbin/modprobe -- br_netfilter; run /usr/sbin/modprobe -- overlay",
        ),
        (
            "/etc/tmpfiles.d/a.conf",
            "d /run/a",
            "temporary files",
            "run /usr/bin/systemd-tmpfiles --create /etc/tmpfiles.d/a.conf",
        ),
        (
            "/etc/sysusers.d/a.conf",
            "u a",
            "system users",
            "run /usr/bin/systemd-sysusers /etc/sysusers.d/a.conf",
        ),
        (
            "/etc/udev/rules.d/60-a.rules",
            "KERNEL==\"sda\"",
            "udev rules",
            "run /usr/bin/udevadm control --reload; run /usr/bin/udevadm trigger --type=devices --action=change; run /usr/bin/udevadm settle --timeout=30",
        ),
        ("/etc/chrony.conf", "", "chrony", "restart chrony.service"),
        ("/etc/chrony/sources.d/a.sources", "", "chrony", "restart chrony.service"),
        ("/etc/systemd/timesyncd.conf.d/a.conf", "", "timesyncd", "restart systemd-timesyncd.service"),
        ("/etc/systemd/journald.conf", "", "journald", "restart systemd-journald.service"),
        ("/etc/systemd/logind.conf.d/a.conf", "", "logind", "reload systemd-logind.service"),
        ("/etc/systemd/resolved.conf", "", "resolved", "restart systemd-resolved.service"),
        ("/etc/systemd/networkd.conf", "", "networkd", "restart systemd-networkd.service"),
        ("/etc/systemd/network/a.network", "", "networks of networkd", "run /usr/bin/networkctl reload"),
        (
            "/etc/systemd/network/a.network.d/b.conf",
            "",
            "networks of networkd",
            "run /usr/bin/networkctl reload",
        ),
        ("/etc/ssh/sshd_config.d/a.conf", "", "SSH server", "run /usr/sbin/sshd -t; reload ssh.service"),
        ("/etc/containerd/certs.d/x/hosts.toml", "", "registries of containerd", ""),
        ("/etc/containerd/conf.d/a.toml", "", "containerd", "restart containerd.service"),
        ("/etc/crio/crio.conf.d/10-a", "", "CRI-O", "restart crio.service"),
        ("/etc/kubernetes/kubelet.conf.d/a.conf", "", "kubelet", "restart kubelet.service"),
        ("/etc/systemd/system/kubelet.service.d/a.conf", "[Service]", "units", "restart kubelet.service"),
        ("/etc/environment", "", "all processes", "userspace"),
    ];
    for (path, text, row, words) in rows {
        assert_eq!(taken(path, text, &everything()), Ok((row, words.to_owned())), "{path}");
    }
    // Rows of the table that this list forgets.
    let covered = |row: &Row| rows.iter().any(|(path, ..)| row.files.iter().any(|f| f.covers(path)));
    for row in ROWS.iter().filter(|row| row.how != FileEffect::Parameters) {
        assert!(covered(row), "{}", row.name);
    }
}

#[test]
fn what_the_table_does_not_have_keeps_its_cost() {
    for path in [
        "/etc/motd2",
        "/etc/sysctl.conf",
        "/etc/sysctl.d/a",
        "/etc/sysctl.d/a/b.conf",
        "/etc/kubernetes/kubelet.conf",
        "/etc/containers/storage.conf",
        "/etc/containerd/config.toml",
        "/etc/systemd/system/a.service",
        "/etc/systemd/system/a.service.wants/b.service",
        "/etc/hostname",
        "/usr/local/bin/a",
        "/boot/loader.conf",
    ] {
        assert_eq!(taken(path, "", &everything()), Err(String::new()), "{path}");
    }
}

#[test]
fn a_row_that_needs_what_the_host_lacks_does_not_apply_and_says_so() {
    let nothing = Facts { effects: Some(EffectFacts::default()), ..Facts::default() };
    for (path, text, word) in [
        ("/etc/modules-load.d/a.conf", "x", "no /usr/sbin/modprobe"),
        ("/etc/tmpfiles.d/a.conf", "", "no /usr/bin/systemd-tmpfiles"),
        ("/etc/sysusers.d/a.conf", "", "no /usr/bin/systemd-sysusers"),
        ("/etc/udev/rules.d/a.rules", "", "no /usr/bin/udevadm"),
        ("/etc/chrony.conf", "", "no chrony.service or chronyd.service"),
        ("/etc/systemd/network/a.network", "", "systemd-networkd.service does not run"),
        ("/etc/ssh/sshd_config", "", "no /usr/sbin/sshd"),
        ("/etc/crio/crio.conf.d/a", "", "no crio.service"),
        ("/etc/pki/ca-trust/source/anchors/a.crt", "", "no program that updates"),
    ] {
        let why = taken(path, text, &nothing).unwrap_err();
        assert!(why.contains(word), "{path}: {why}");
    }
    // One that is there and does not run takes up its file when it starts.
    let mut asleep = everything();
    asleep.effects.as_mut().unwrap().running.clear();
    assert_eq!(taken("/etc/chrony.conf", "", &asleep), Ok(("chrony", String::new())));
    assert!(taken("/etc/udev/rules.d/a.rules", "", &asleep).unwrap_err().contains("does not run"));
}

#[test]
fn what_only_a_boot_does_is_left_to_it() {
    for (path, text, word) in [
        ("/etc/udev/rules.d/a.rules", "ATTR{address}==\"00:11\", NAME=\"lan0\"", "names network interfaces"),
        ("/etc/systemd/network/a.link", "", "at boot"),
        ("/etc/systemd/network/a.netdev", "", "at boot"),
        ("/etc/systemd/system/systemd-udevd.service.d/a.conf", "", "part of systemd"),
        ("/etc/systemd/system/getty@.service.d/a.conf", "", "template"),
        ("/etc/systemd/system/foo-.service.d/a.conf", "", "names begin like it"),
        ("/etc/tmpfiles.d/a.conf", "d /a\nd! /b", "lines of type d!"),
        ("/etc/tmpfiles.d/a.conf", "R /a", "lines of type R"),
        ("/etc/tmpfiles.d/a.conf", "D /a", "lines of type D"),
        ("/etc/udev/rules.d/a.rules", "KERNEL==\"sda\", ACTION==\"add\", MODE=\"0660\"", "other than change"),
        ("/etc/udev/rules.d/a.rules", "ACTION!=\"change\", MODE=\"0660\"", "other than change"),
    ] {
        let why = taken(path, text, &everything()).unwrap_err();
        assert!(why.contains(word), "{path}: {why}");
    }
}

#[test]
fn what_a_removed_file_uncovers_or_a_removed_rule_has_set_is_left_to_the_boot() {
    let mut host = everything();
    let rule = "ACTION==\"add|change\", KERNEL==\"sda\", MODE=\"0660\"";
    let udev = "/etc/udev/rules.d/a.rules";
    assert!(taken(udev, rule, &host).is_ok());
    assert!(between(udev, Some(rule), Some(&format!("{rule}\nKERNEL==\"sdb\"")), &host).is_ok());
    for is in [None, Some("KERNEL==\"sdb\"")] {
        assert!(between(udev, Some(rule), is, &host).unwrap_err().contains("removed or changed rule"));
    }
    for path in ["/etc/tmpfiles.d/a.conf", "/etc/sysusers.d/a.conf", "/etc/modules-load.d/a.conf"] {
        assert!(between(path, Some("x"), None, &host).is_ok(), "{path}");
        host.effects.as_mut().unwrap().hiding.insert(path.to_owned());
        assert!(between(path, Some("x"), None, &host).unwrap_err().contains("another file of this name"));
    }
    assert!(hidden_by("/etc/tmpfiles.d/a.conf").contains(&"/usr/lib/tmpfiles.d/a.conf".to_owned()));
    assert!(hidden_by(udev).contains(&"/usr/lib/udev/rules.d/a.rules".to_owned()));
    assert!(hidden_by("/etc/motd").is_empty());
}

#[test]
fn a_unit_that_has_failed_is_left_to_the_boot_and_a_socket_needs_no_reload() {
    let mut host = everything();
    let effects = host.effects.as_mut().unwrap();
    for unit in ["chrony.service", "ssh.service"] {
        effects.running.remove(unit);
    }
    effects.start_at_boot.extend(["chrony.service", "ssh.service"].map(str::to_owned));
    for path in ["/etc/chrony.conf", "/etc/ssh/sshd_config"] {
        assert!(taken(path, "", &host).unwrap_err().contains("a boot would start it"), "{path}");
    }
    host.effects.as_mut().unwrap().running.insert("ssh.socket".to_owned());
    assert_eq!(
        taken("/etc/ssh/sshd_config", "", &host),
        Ok(("SSH server", "run /usr/sbin/sshd -t".to_owned()))
    );
}

#[test]
fn the_value_of_a_parameter_is_not_shown_where_its_file_may_not_be() {
    let path = "/etc/sysctl.d/a.conf";
    let mut host = everything();
    host.effects.as_mut().unwrap().parameters.insert("a/b".to_owned(), Some("31337".to_owned()));
    let mk = |mode: u32, text: &str| {
        let source = format!("data:,{text}");
        let file = json!({"path": path, "mode": mode, "contents": {"source": source}});
        let config = Some(json!({"ignition": {"version": "3.5.0"}, "storage": {"files": [file]}}));
        DesiredHost::parse(&MachineConfigSpec { config, ..MachineConfigSpec::default() }).unwrap()
    };
    let told = |mode, text| match of_file(path, &config(&[]), &mk(mode, text), &host, false).unwrap() {
        Ok(RowApplied { way: TakesEffect::Effects(effects), .. }) => {
            format!("{} {}", effects[0].effect, serde_json::to_string(&effects[0]).unwrap())
        }
        other => format!("{other:?}"),
    };
    let shown = told(0o644, "a.b=4711");
    assert!(shown.contains("4711") && shown.contains("31337"), "{shown}");
    let hidden = told(0o600, "a.b=4711");
    assert!(hidden.contains("a/b") && !hidden.contains("4711") && !hidden.contains("31337"), "{hidden}");
    let refused = told(0o600, "4711");
    assert!(!refused.contains("4711"), "{refused}");
}

#[test]
fn what_a_removed_file_brought_stays_where_nothing_can_take_it_back() {
    let all = everything();
    let gone = |path, was| between(path, Some(was), None, &all).unwrap().1;
    assert_eq!(gone("/etc/modules-load.d/a.conf", "x"), "");
    assert_eq!(gone("/etc/tmpfiles.d/a.conf", "d /a"), "");
    assert_eq!(gone("/etc/chrony.conf", "x"), "restart chrony.service");
    let more = between("/etc/modules-load.d/a.conf", Some("a\nb"), Some("b\nc"), &all).unwrap().1;
    assert_eq!(more, "run /usr/sbin/modprobe -- c");
    let of = |text: &[(&str, &str)]| config(text);
    let path = "/etc/modules-load.d/a.conf";
    let taken = of_file(path, &of(&[(path, "a")]), &of(&[]), &all, false).unwrap().unwrap();
    assert_eq!(taken.notes, ["/etc/modules-load.d/a.conf: a stays loaded until the next boot"]);
}
