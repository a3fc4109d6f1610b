//! `mco render` and `mco lint` as a user runs them, compared with golden output. `INSTA_UPDATE=always cargo test -p
//! cli` accepts the current output.

use std::process::Command;

/// Exit code, then standard output, then standard error; run in the folder of the manifests.
fn mco(arguments: &[&str]) -> String {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/commands/render");
    let out = Command::new(env!("CARGO_BIN_EXE_mco"))
        .args(arguments)
        .args(["--log", "off"])
        .env_remove("KUBECONFIG")
        .current_dir(folder)
        .output()
        .unwrap();
    let (stdout, stderr) = (String::from_utf8(out.stdout).unwrap(), String::from_utf8(out.stderr).unwrap());
    format!("exit {}\n{stdout}{stderr}", out.status.code().unwrap())
}

#[test]
fn lint_prints_every_error_and_exits_with_3() {
    insta::assert_snapshot!(mco(&["lint", "-f", "bad.yaml"]));
}

#[test]
fn lint_lets_warnings_pass_unless_strict() {
    insta::assert_snapshot!(mco(&["lint", "-f", "good.yaml", "-o", "json"]));
    assert!(mco(&["lint", "-f", "good.yaml", "--strict"]).starts_with("exit 3\n"));
    assert!(mco(&["lint", "-f", "one.yaml", "--strict"]).starts_with("exit 0\n"));
}

#[test]
fn lint_reports_what_overrides_the_templates() {
    let templates = concat!(env!("CARGO_MANIFEST_DIR"), "/../../templates");
    assert!(mco(&["lint", "-f", "one.yaml", "--templates", templates]).starts_with("exit 0\n"));
    let over = mco(&["lint", "-f", "over.yaml", "--templates", templates, "--strict"]);
    assert!(over.starts_with("exit 3\n") && over.contains("warning[contested]"), "{over}");
    assert!(
        mco(&["lint", "-f", "over.yaml", "--strict"]).starts_with("exit 0\n"),
        "the manifest is valid by itself"
    );
}

#[test]
fn render_prints_the_rendered_config_of_each_pool() {
    insta::assert_snapshot!(mco(&["render", "-f", "good.yaml"]));
}

#[test]
fn a_diff_shows_decoded_contents_and_sets_the_exit_code() {
    insta::assert_snapshot!(mco(&["render", "-f", "good.yaml", "--diff-with", "one.yaml", "--exit-code"]));
    assert_eq!(mco(&["render", "-f", "good.yaml", "--diff-with", "good.yaml", "--exit-code"]), "exit 0\n");
}

#[test]
fn errors_name_the_object_the_file_or_the_known_values() {
    for (arguments, want) in [
        (&["render", "-f", "bad.yaml"][..], "MachineConfig 50-a: spec.kernelType"),
        (&["render", "-f", "good.yaml", "--pool", "nope"], "their pools are: infra, worker"),
        (&["render", "-f", "missing.yaml"], "missing.yaml"),
        (&["render", "-f", "good.yaml", "--exit-code"], "add --diff or --diff-with"),
        (&["explain", "worker", "--kubeconfig", "missing"], "cannot read the kubeconfig missing"),
    ] {
        let said = mco(arguments);
        assert!(said.starts_with("exit 1\n") && said.contains(want), "{arguments:?}: {said}");
    }
}

#[test]
fn one_pool_renders_the_same_alone_and_when_others_are_broken() {
    let file = tempfile::NamedTempFile::with_suffix(".yaml").unwrap();
    let path = file.path().to_str().unwrap();
    let infra = |worker: &str, more: &[&str]| {
        let text = include_str!("render/streams.yaml").replace("WORKER", worker);
        std::fs::write(path, text).unwrap();
        mco(&[&["render", "-f", path][..], more].concat())
    };
    let worker = |picks: &str, stream: &str| {
        format!("machineConfigSelector: {{matchLabels: {{{picks}}}}}\n  osImageStream: {{name: {stream}}}")
    };
    let sound = worker("machineconfiguration.openshift.io/role: worker", "rhel-10");
    let alone = infra(&sound, &["--pool", "infra"]);
    assert!(alone.starts_with("exit 0\n") && alone.contains("quay.io/os/10@sha256:"), "{alone}");
    let name = alone.lines().find(|line| line.trim_start().starts_with("name: rendered-infra-")).unwrap();
    let all = infra(&sound, &[]);
    assert!(all.contains("name: rendered-worker-") && all.contains(name), "{name} in {all}");
    // The broken pool fails when all are rendered, but not when only another pool is asked for.
    for broken in [worker("none: has-this", "rhel-10"), format!("{sound}\n  paused: perhaps")] {
        let both = infra(&broken, &[]);
        assert!(both.starts_with("exit 1\n"), "{both}");
        assert_eq!(infra(&broken, &["--pool", "infra"]), alone);
    }
    // A stream that does not exist is inherited by infra, so infra fails too.
    let unknown = infra(&worker("none: has-this", "rhel-11"), &["--pool", "infra"]);
    assert!(unknown.starts_with("exit 1\n") && unknown.contains("rhel-11"), "{unknown}");
}
