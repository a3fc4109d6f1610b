//! Tests of the linter.

use super::*;
use api::names::GROUP;

fn mk(name: &str, role: &str, spec: Value) -> (String, Value) {
    let meta = json!({"name": name, "labels": {label::ROLE: role}});
    let api = format!("{GROUP}/v1");
    (
        format!("{name}.yaml"),
        json!({"apiVersion": api, "kind": "MachineConfig", "metadata": meta, "spec": spec}),
    )
}

fn mk_files(name: &str, role: &str, files: Value) -> (String, Value) {
    let config = json!({"ignition": {"version": "3.4.0"}, "storage": {"files": files}});
    mk(name, role, json!({ "config": config }))
}

fn rules(manifests: &[(String, Value)]) -> Vec<(Severity, &'static str, String)> {
    lint(manifests).into_iter().map(|l| (l.severity, l.rule.word(), l.path)).collect()
}

#[test]
fn rules_are_words_of_which_no_two_are_alike() {
    let all = [
        Rule::Manifest,
        Rule::Duplicate,
        Rule::MachineConfig,
        Rule::Ignition,
        Rule::UnknownField,
        Rule::FileMode,
        Rule::FileContents,
        Rule::RemoteSource,
        Rule::SystemdUnit,
        Rule::KernelArgument,
        Rule::KernelType,
        Rule::Extension,
        Rule::OsImage,
        Rule::OsImageStream,
        Rule::Selector,
        Rule::NoPool,
        Rule::Contested,
        Rule::LastLogin,
        Rule::TooLarge,
        Rule::Version,
        Rule::Template,
        Rule::KubeletConfig,
        Rule::ContainerRuntimeConfig,
        Rule::Mirrors,
        Rule::NotRendered,
        Rule::PinnedImage,
    ];
    let words: BTreeSet<&str> = all.iter().map(|rule| rule.word()).collect();
    assert_eq!(words.len(), all.len());
    for (path, rule) in [
        ("storage.files[3].mode", Rule::FileMode),
        ("storage.files[3].contents.source", Rule::FileContents),
        ("storage.files[3].append[0].source", Rule::FileContents),
        ("storage.files[3].path", Rule::Ignition),
        ("storage.directories[0].mode", Rule::FileMode),
        ("systemd.units[0].dropins[1].name", Rule::SystemdUnit),
        ("ignition.version", Rule::Ignition),
        ("", Rule::Ignition),
    ] {
        assert_eq!(Rule::at(path), rule, "{path}");
    }
    assert_eq!(json!(Rule::OsImageStream), "os-image-stream");
}

#[test]
fn images_that_cannot_be_pinned_and_sets_of_no_pool_are_found() {
    let digest = "0".repeat(64);
    let app = format!("registry.example.com/app@sha256:{digest}");
    let set = |role: &str, images: Value| {
        let meta = json!({"name": "apps", "labels": {label::ROLE: role}});
        let api = format!("{GROUP}/v1");
        let spec = json!({ "pinnedImages": images });
        (
            "set.yaml".to_owned(),
            json!({"apiVersion": api, "kind": "PinnedImageSet", "metadata": meta, "spec": spec}),
        )
    };
    let pool = json!({"apiVersion": format!("{GROUP}/v1"), "kind": "MachineConfigPool", "metadata": {"name": "worker"},
        "spec": {"machineConfigSelector": {"matchLabels": {label::ROLE: "worker"}}}});
    let pool = ("pool.yaml".to_owned(), pool);
    // A pool that picks no MachineConfig is a finding of its own.
    let config =
        mk_files("50-a", "worker", json!([{"path": "/a", "mode": 420, "contents": {"source": "data:,a"}}]));
    assert_eq!(rules(&[set("worker", json!([{"name": app}])), pool.clone(), config.clone()]), []);
    let wrong = json!([{"name": app}, {"name": app}, {"name": "registry.example.com/app:1"}]);
    let found = rules(&[set("other", wrong), pool, config]);
    let found: Vec<_> =
        found.iter().map(|(severity, rule, path)| (*severity, *rule, path.as_str())).collect();
    let want = [
        (Severity::Error, "duplicate", "spec.pinnedImages[1]"),
        (Severity::Error, "pinned-image", "spec.pinnedImages[2].name"),
        (Severity::Warning, "no-pool", "metadata.labels"),
    ];
    assert_eq!(found, want);
    assert_eq!(
        rules(&[set("worker", json!([]))]),
        [(Severity::Error, "manifest", "spec.pinnedImages".to_owned())]
    );
}

#[test]
fn sound_manifests_have_no_findings() {
    let file = json!([{"path": "/a", "mode": 420, "contents": {"source": "data:,a"}}]);
    assert_eq!(lint(&[mk_files("50-a", "worker", file)]), []);
}

#[test]
fn a_pool_that_follows_no_listed_stream_is_told_where_streams_are_listed() {
    let pool = json!({"apiVersion": format!("{GROUP}/v1"), "kind": "MachineConfigPool", "metadata": {"name": "worker"},
        "spec": {"osImageStream": {"name": "x"}, "machineConfigSelector": {"matchLabels": {label::ROLE: "worker"}}}});
    let image = format!("registry.example.com/os@sha256:{}", "1".repeat(64));
    let list = json!({"apiVersion": format!("{GROUP}/v1"), "kind": "OSImageStream", "metadata": {"name": "cluster"},
        "spec": {"defaultStream": "y"}, "status": {"defaultStream": "y", "availableStreams": [{"name": "y", "osImage": image}]}});
    let one =
        || vec![mk("50-a", "worker", json!({"kernelArguments": ["a"]})), ("p".to_owned(), pool.clone())];
    assert_eq!(rules(&one()), [], "no list, no rule");
    let mut all = one();
    all.push(("s".to_owned(), list));
    assert_eq!(rules(&all), [(Severity::Error, "os-image-stream", "spec.osImageStream.name".to_owned())]);
}

#[test]
fn every_broken_rule_of_every_object_is_told_at_once_with_its_place() {
    use Severity::{Error, Warning};
    let file = |file: Value| mk_files("50-a", "worker", json!([file]));
    let unit = |unit: Value| {
        mk(
            "50-a",
            "worker",
            json!({"config": {"ignition": {"version": "3.4.0"}, "systemd": {"units": [unit]}}}),
        )
    };
    let at = |rest: &str| format!("spec.config.{rest}");
    let rows = [
        (
            mk("a", "worker", json!({"kernelType": "fast"})),
            Error,
            "kernel-type",
            "spec.kernelType".to_owned(),
        ),
        (
            mk("a", "worker", json!({"extensions": ["usbguard", "--reboot"]})),
            Error,
            "extension",
            "spec.extensions[1]".to_owned(),
        ),
        (
            mk("a", "worker", json!({"extensions": ["vim"]})),
            Warning,
            "extension",
            "spec.extensions[0]".to_owned(),
        ),
        (
            mk("a", "worker", json!({"kernelArgs": []})),
            Warning,
            "unknown-field",
            "spec.kernelArgs".to_owned(),
        ),
        (mk("a", "worker", json!({"fips": "yes"})), Error, "manifest", "spec.fips".to_owned()),
        (
            mk("a", "worker", json!({"kernelArguments": ["a b"]})),
            Warning,
            "kernel-argument",
            "spec.kernelArguments[0]".to_owned(),
        ),
        (
            file(json!({"path": "/a", "mode": 420, "contents": {"source": "https://h/x"}})),
            Error,
            "remote-source",
            at("storage.files[0].contents"),
        ),
        (
            file(json!({"path": "/a", "mode": 2541, "contents": {"source": "data:,"}})),
            Error,
            "file-mode",
            at("storage.files[0].mode"),
        ),
        (
            file(json!({"path": "/a", "mode": 438, "contents": {"source": "data:,"}})),
            Warning,
            "file-mode",
            at("storage.files[0].mode"),
        ),
        (
            unit(json!({"name": "a", "contents": "[Unit]"})),
            Error,
            "systemd-unit",
            at("systemd.units[0].name"),
        ),
        (
            unit(json!({"name": "a.service", "enabled": true, "contents": "[Unit]\n"})),
            Warning,
            "systemd-unit",
            at("systemd.units[0].enabled"),
        ),
        (mk("a", "", json!({"fips": true})), Warning, "no-pool", "metadata.labels".to_owned()),
    ];
    for (manifest, severity, rule, path) in rows {
        let found = rules(std::slice::from_ref(&manifest));
        assert!(found.contains(&(severity, rule, path.clone())), "{manifest:?}: {path} {found:?}");
    }
    let several = mk_files(
        "50-a",
        "worker",
        json!([{"path": "a"}, {"path": "/b", "contents": {"source": "https://h"}}]),
    );
    let found = rules(&[several, mk("51-b", "worker", json!({"kernelType": "fast"}))]);
    assert_eq!(found.iter().filter(|(s, _, _)| *s == Error).count(), 3, "{found:?}");
}

#[test]
fn two_that_set_one_thing_are_one_warning_that_names_both() {
    let file = json!([{"path": "/a", "mode": 420, "contents": {"source": "data:,a"}}]);
    let found = lint(&[mk_files("50-a", "worker", file.clone()), mk_files("60-b", "worker", file)]);
    assert_eq!(found.len(), 1, "{found:?}");
    assert_eq!((found[0].rule, found[0].object.as_str()), (Rule::Contested, "MachineConfig 60-b"));
    assert!(found[0].message.contains("contents, mode of /a") && found[0].message.contains("50-a"));
}

#[test]
fn what_goes_over_a_template_is_told_and_a_broken_template_is_an_error() {
    let set = |text: &str| {
        let path = "worker/00-worker/_base/files/a.yaml".to_owned();
        TemplateSet::from_map([(path, text.to_owned())])
    };
    let file = json!([{"path": "/a", "mode": 420, "contents": {"source": "data:,a"}}]);
    let mine = [mk_files("50-a", "worker", file)];
    let good = set("path: /a\nmode: 0644\ncontents: {inline: hello}\n");
    let found = lint_with(&mine, &good);
    assert_eq!(found.len(), 1, "{found:?}");
    assert_eq!((found[0].rule, found[0].object.as_str()), (Rule::Contested, "MachineConfig 50-a"));
    assert!(found[0].message.contains("00-worker"), "{found:?}");
    let found = lint_with(&mine, &set("path: {{ nothing }}\n"));
    assert_eq!((found[0].severity, found[0].rule), (Severity::Error, Rule::Template), "{found:?}");
    assert!(found[0].object.contains("worker/00-worker/_base/files/a.yaml"), "{found:?}");
}

#[test]
fn a_merge_that_no_host_can_be_in_is_an_error_of_the_pool() {
    let all = [
        mk("50-a", "worker", json!({"kernelType": "realtime"})),
        mk("51-b", "worker", json!({"extensions": ["kernel-devel"]})),
    ];
    assert_eq!(rules(&all), [(Severity::Error, "extension", "spec.extensions[0]".to_owned())]);
}

#[test]
fn what_no_running_machine_can_do_is_an_error() {
    let config = |sections: Value| {
        let mut config = sections;
        config["ignition"] = json!({"version": "3.4.0"});
        rules(&[mk("50-a", "worker", json!({ "config": config }))])
    };
    let error = |path: &str| vec![(Severity::Error, format!("spec.config.{path}"))];
    let file = |path: &str| json!({"storage": {"files": [{"path": path, "mode": 420, "contents": {"source": "data:,x"}}]}});
    for (sections, path) in [
        (
            json!({"systemd": {"units": [{"name": "a.service", "mask": true, "enabled": true}]}}),
            "systemd.units[0]",
        ),
        (file("/var/lib/machine-config-daemon/x"), "storage.files[0].path"),
        (json!({"passwd": {"users": [{"name": "bob", "sshAuthorizedKeys": ["k"]}]}}), "passwd.users[0]"),
        (
            json!({"storage": {"files": [{"path": "/a", "mode": 420, "contents": {"source": "data:,two words"}}]}}),
            "storage.files[0].contents.source",
        ),
    ] {
        let told: Vec<_> = config(sections).into_iter().map(|(severity, _, path)| (severity, path)).collect();
        assert_eq!(told, error(path));
    }
}

#[test]
fn no_finding_quotes_a_value() {
    let of = |kind: &str, spec: Value| {
        let api = format!("{GROUP}/v1");
        (
            "x".to_owned(),
            json!({"apiVersion": api, "kind": kind, "metadata": {"name": "worker"}, "spec": spec}),
        )
    };
    let rows = [
        mk("50-a", "worker", json!({"kernelArguments": "p=hunter2"})),
        mk("50-a", "worker", json!({"kernelArguments": ["nbd.password=hunter2 quiet"]})),
        mk("50-a", "worker", json!({"config": "hunter2"})),
        mk("50-a", "worker", json!({"config": {"ignition": {"version": "hunter2"}}})),
        mk_files("50-a", "worker", json!([{"path": "/a", "mode": "hunter2"}])),
        mk_files(
            "50-a",
            "worker",
            json!([{"path": "/a", "mode": 420, "contents": {"source": "data:,hunter2 x"}}]),
        ),
        of("MachineConfigPool", json!({"maxUnavailable": ["hunter2"]})),
        of("ControllerConfig", json!({"images": "hunter2"})),
        of("KubeletConfig", json!({"kubeletConfig": {"maxPods": "hunter2"}})),
        of("KubeletConfig", json!({"machineConfigPoolSelector": "hunter2"})),
        of("ContainerRuntimeConfig", json!({"containerRuntimeConfig": {"pidsLimit": "hunter2"}})),
        of("ContainerRuntimeConfig", json!({"machineConfigPoolSelector": "hunter2"})),
    ];
    for row in rows {
        let found = lint(std::slice::from_ref(&row));
        assert!(
            found.iter().any(|l| l.severity == Severity::Error || l.rule == Rule::KernelArgument),
            "{row:?}: {found:?}"
        );
        assert!(!format!("{found:?}").contains("hunter2"), "{found:?}");
    }
}

#[test]
fn a_pool_in_which_nobody_can_log_in_is_told() {
    let users = |name: &str, core: Value| {
        let mut core = core;
        core["name"] = json!("core");
        let config = json!({"ignition": {"version": "3.4.0"}, "passwd": {"users": [core]}});
        mk(name, "worker", json!({ "config": config }))
    };
    let open = users("50-a", json!({"passwordHash": "$6$a$b"}));
    let locked = users("60-b", json!({"passwordHash": "!"}));
    let key = users("70-c", json!({"sshAuthorizedKeys": ["ssh-ed25519 A"]}));
    let told = |all: &[(String, Value)]| -> Vec<Lint> {
        lint(all).into_iter().filter(|l| l.rule == Rule::LastLogin).collect()
    };
    for sound in [vec![open.clone()], vec![open.clone(), locked.clone(), key.clone()], vec![key]] {
        assert_eq!(told(&sound), [], "{sound:?}");
    }
    for (all, before) in [(vec![locked.clone()], None), (vec![open, locked], Some("50-a"))] {
        let found = told(&all);
        assert_eq!(found.len(), 1, "{found:?}");
        assert_eq!(
            (found[0].object.as_str(), found[0].path.as_str()),
            ("MachineConfig 60-b", "spec.config.passwd.users[0]")
        );
        assert!(before.is_none_or(|b| found[0].message.ends_with(&format!("what {b} says"))), "{found:?}");
        assert!(!format!("{found:?}").contains("$6$"), "{found:?}");
    }
}

#[test]
fn duplicates_and_strange_documents_are_told() {
    let one = mk("50-a", "worker", json!({"fips": true}));
    let found = rules(&[one.clone(), one, ("x.yaml".to_owned(), json!({"a": 1}))]);
    assert_eq!(found.iter().map(|(_, rule, _)| *rule).collect::<Vec<_>>(), ["manifest", "duplicate"]);
}

/// Rendering does not read these kinds, so nothing but their schemas says what is wrong.
#[test]
fn objects_of_every_kind_of_ours_are_compared_with_their_schema() {
    let object = |api: &str, kind: &str, spec: Value| {
        let object = json!({"apiVersion": api, "kind": kind, "metadata": {"name": "cluster"}, "spec": spec});
        ("x.yaml".to_owned(), object)
    };
    let (ours, mcd, operator) =
        ("machineconfiguration.openshift.io/v1", "machineconfig.dev/v1alpha1", "operator.openshift.io/v1");
    let policy =
        |waves: Value| object(mcd, "RolloutPolicy", json!({"pools": {"names": ["worker"]}, "waves": waves}));
    let (warning, error) = (Severity::Warning, Severity::Error);
    for (manifest, want) in [
        (policy(json!([{"name": "first", "maxUnavailable": "20%"}])), None),
        (
            policy(json!([{"name": "first", "maxUnavailabel": "20%"}])),
            Some((warning, "unknown-field", "spec.waves[0].maxUnavailabel")),
        ),
        (policy(json!([{"name": 5}])), Some((error, "manifest", "spec.waves[0].name"))),
        (policy(json!([{}])), Some((error, "manifest", "spec.waves[0].name"))),
        (
            object(mcd, "MachineConfigOperator", json!({"reboots": "Sometimes"})),
            Some((error, "manifest", "spec.reboots")),
        ),
        (
            object(operator, "MachineConfiguration", json!({"nodeDisruptionPolicy": {"file": []}})),
            Some((warning, "unknown-field", "spec.nodeDisruptionPolicy.file")),
        ),
        (
            object(ours, "OSImageStream", json!({"defaultStraem": "a"})),
            Some((error, "manifest", "spec.defaultStream")),
        ),
        (object(ours, "KubeletConfig", json!({"logLevel": 11})), Some((error, "manifest", "spec.logLevel"))),
        (
            object("config.openshift.io/v1", "ImageTagMirrorSet", json!({"imageTagMirror": []})),
            Some((warning, "unknown-field", "spec.imageTagMirror")),
        ),
        (object(ours, "MachineOSConfig", json!({})), Some((error, "manifest", "spec.machineConfigPool"))),
        (object(ours, "MachineConfigPol", json!({})), Some((error, "manifest", "kind"))),
        (object(mcd, "RolloutPolcy", json!({})), Some((error, "manifest", "kind"))),
        (object("machineconfig.dev/v1", "RolloutPolicy", json!({})), Some((error, "manifest", "apiVersion"))),
        // The schemas of others are those of the cluster, not ours.
        (object("config.openshift.io/v1", "Infrastructure", json!({"new": 1})), None),
        (object("config.openshift.io/v1", "OAuth", json!({})), None),
    ] {
        let found = rules(std::slice::from_ref(&manifest));
        match want {
            None => assert_eq!(found, [], "{manifest:?}"),
            Some((severity, rule, path)) => {
                assert!(found.contains(&(severity, rule, path.to_owned())), "{manifest:?}: {found:?}");
            }
        }
    }
    let found = lint(&[object(mcd, "RolloutPolcy", json!({}))]);
    assert_eq!(found[0].remedy, "write RolloutPolicy");
    let found = lint(&[object("machineconfig.dev/v1", "RolloutPolicy", json!({}))]);
    assert_eq!(found[0].remedy, "write machineconfig.dev/v1alpha1");
    // What is wrong in the metadata hides nothing that is wrong in the settings.
    let (_, mut wrong) = object(ours, "KubeletConfig", json!({"kubeletConfig": {"failSwapOn": true}}));
    wrong["metadata"]["labels"] = json!({"team": 1});
    let found = rules(&[("x.yaml".to_owned(), wrong)]);
    assert_eq!(
        found,
        [
            (error, "manifest", "metadata.labels.team".to_owned()),
            (error, "kubelet-config", "spec".to_owned())
        ]
    );
    // A field that both the schema and the renderer refuse is one finding.
    assert_eq!(rules(&[object(ours, "KubeletConfig", json!({"logLevel": 11}))]).len(), 1);
}

#[test]
fn names_that_the_api_server_refuses_are_errors() {
    for name in ["../a", "50_a", "A", "a."] {
        let found = rules(&[mk_files(name, "worker", json!([]))]);
        assert!(
            found.contains(&(Severity::Error, "manifest", "metadata.name".to_owned())),
            "{name}: {found:?}"
        );
    }
}
