//! The program without a cluster: exit codes, messages, and a closed pipe on standard output.

use clap::CommandFactory as _;
use std::process::{Command, Output, Stdio};

fn mco(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_mco")).args(args).env_remove("KUBECONFIG").output().unwrap()
}

#[test]
fn a_failure_has_its_exit_code_and_one_line_with_the_remedy() {
    let dir = tempfile::tempdir().unwrap();
    let nowhere = dir.path().join("away");
    let text = "apiVersion: v1\nkind: Config\ncurrent-context: c\n\
        clusters: [{name: c, cluster: {server: 'http://127.0.0.1:9'}}]\n\
        contexts: [{name: c, context: {cluster: c, user: u}}]\nusers: [{name: u, user: {}}]\n";
    std::fs::write(&nowhere, text).unwrap();
    let nowhere = nowhere.to_str().unwrap();
    let rows: [(&[&str], i32, &str); 5] = [
        (&["status", "--kubeconfig", "/no/such/file"], 1, "/no/such/file"),
        (&["status", "--kubeconfig", nowhere], 1, "mco: "),
        (&["status", "-w", "--kubeconfig", nowhere], 1, "mco: "),
        (&["controller", "start", "--templates", "/", "--kubeconfig", "/no/such/file"], 1, "/no/such/file"),
        (&["install", "-o", "yaml"], 2, "--dry-run"),
    ];
    for (args, code, want) in rows {
        let out = mco(args);
        let text = String::from_utf8_lossy(&out.stderr);
        assert_eq!(out.status.code(), Some(code), "{args:?}: {text}");
        assert!(text.contains(want), "{args:?}: {text}");
        assert!(text.matches("(os error").count() <= 1, "said twice: {text}");
        assert!(!text.contains("ERROR"), "the client library writes to the output: {text}");
    }
}

/// A kubeconfig of two contexts; the cluster of the second one does not exist.
const TWO: &str = "apiVersion: v1\nkind: Config\ncurrent-context: here\n\
    clusters: [{name: c, cluster: {server: 'http://127.0.0.1:9'}}]\n\
    contexts: [{name: here, context: {cluster: c, user: u}}, {name: odd, context: {cluster: gone, user: u}}]\n\
    users: [{name: u, user: {}}]\n";

#[test]
fn an_invalid_kubeconfig_is_named_and_its_secrets_are_not_shown() {
    let dir = tempfile::tempdir().unwrap();
    let file = |name: &str, text: &str| {
        let path = dir.path().join(name);
        std::fs::write(&path, text).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let two = file("two", TWO);
    let half = file("half", "users:\n- name: u\n  user: {token: 'hunter2\n");
    let shape = file("shape", &TWO.replace("user: {}", "user: {token: [hunter2]}"));
    let scalar = file("scalar", &TWO.replace("user: {}", "user: hunter2"));
    let data = file("data", &TWO.replace("user: {}", "user: {client-key-data: 'hunter2?'}"));
    let other = file("other", "apiVersion: v1\nkind: Secret\nstringData: {password: hunter2}\n");
    let plugin = "user: {exec: {apiVersion: client.authentication.k8s.io/v1, interactiveMode: Never, \
        command: /bin/sh, args: ['-c', 'echo hunter2; exit 9']}}";
    let plugin = file("plugin", &TWO.replace("user: {}", plugin));
    let list = format!("{two}:{half}");
    let away = dir.path().join("away").to_str().unwrap().to_owned();
    // Columns: KUBECONFIG, arguments, and texts that the error contains.
    let rows: [(&str, &[&str], &[&str]); 12] = [
        (&half, &[], &[&half, "from KUBECONFIG", "is not YAML, line"]),
        ("", &["--kubeconfig", &half], &[&half, "is not YAML, line"]),
        (&shape, &[], &[&shape, "users[0].user.token: must be a string"]),
        (&scalar, &[], &[&scalar, "users[0].user: is required"]),
        (&data, &[], &[&data, "users[0].user.client-key-data: is not base64"]),
        (&other, &[], &[&other, "kind: must be Config"]),
        (&list, &[], &[&half, "is not YAML, line"]),
        (&away, &[], &[&away, "No such file"]),
        (&two, &["--context", "nope"], &[&two, "no context \"nope\"", "its contexts are: here, odd"]),
        (&two, &["--context", "odd"], &[&two, "names the cluster \"gone\""]),
        (&plugin, &[], &[&plugin, "exec", "exit status: 9", "run it by hand"]),
        ("", &["--context", "x"], &["no kubeconfig", "--kubeconfig"]),
    ];
    for command in [&["status"][..], &["controller", "start", "--templates", "/"], &["token", "list"]] {
        for (environment, args, wants) in &rows {
            let mut mco = Command::new(env!("CARGO_BIN_EXE_mco"));
            mco.args(command).args(*args).env("HOME", dir.path()).env_remove("KUBECONFIG");
            if !environment.is_empty() {
                mco.env("KUBECONFIG", environment);
            }
            let out = mco.output().unwrap();
            let text = String::from_utf8_lossy(&out.stderr);
            assert_eq!(out.status.code(), Some(1), "{command:?} {args:?} {environment}: {text}");
            for want in *wants {
                assert!(text.contains(want), "{command:?} {args:?} {environment}: {want:?} in {text}");
            }
            assert!(!text.contains("hunter2"), "a secret is shown: {text}");
            assert!(!text.contains("no cluster found"), "{text}");
        }
    }
    let agent = ["daemon", "start", "--root-mount", "/", "--metrics-url", "off", "--kubeconfig", &shape];
    let said = mco(&agent);
    let text = String::from_utf8_lossy(&said.stderr);
    assert!(text.contains("users[0].user.token: must be a string") && !text.contains("hunter2"), "{text}");
}

#[test]
fn an_invalid_manifest_is_reported_without_its_secrets() {
    let dir = tempfile::tempdir().unwrap();
    let config = |spec: &str| {
        format!(
            "apiVersion: machineconfiguration.openshift.io/v1\nkind: MachineConfig\nmetadata:\n  name: 50-x\n  labels: \
            {{machineconfiguration.openshift.io/role: worker}}\nspec:\n{spec}"
        )
    };
    let unit = "  config:\n    ignition: {version: 3.4.0}\n    systemd:\n      units:\n      - name: a.service\n        \
        contents: |\n          [Service]\n          Environment=SMTP_PASS=hunter2\n       ExecStart=/bin/x\n";
    let rows = [
        (config(unit), "line "),
        (config("  kernelArguments: nbd.password=hunter2\n"), "kernelArguments: expected a "),
        (config("  kernelArguments: ['nbd.password=hunter2 quiet']\n"), "50-x"),
        (config("  fips: hunter2\n"), "fips: expected a boolean"),
    ];
    for (i, (text, want)) in rows.iter().enumerate() {
        let path = dir.path().join(format!("{i}.yaml"));
        std::fs::write(&path, text).unwrap();
        let path = path.to_str().unwrap();
        for args in
            [&["lint", "-f", path][..], &["render", "-f", path], &["plan", "-f", path, "--from", path]]
        {
            let out = mco(args);
            let text = [out.stdout, out.stderr].concat();
            let text = String::from_utf8_lossy(&text);
            // A rendered config contains the text of its MachineConfigs.
            let made = args[0] == "render" && i == 2;
            assert!(made || !text.contains("hunter2"), "{args:?}: a secret is shown: {text}");
            if args[0] == "lint" || (args[0] == "render" && !made) {
                // The linter has the path and the finding on two lines.
                assert!(want.split(": ").all(|part| text.contains(part)), "{args:?}: {text}");
            }
        }
    }
}

#[test]
fn every_command_that_speaks_to_a_cluster_takes_a_context() {
    let dir = tempfile::tempdir().unwrap();
    let two = dir.path().join("two");
    std::fs::write(&two, TWO).unwrap();
    let two = two.to_str().unwrap();
    let mut asked = vec![];
    for (path, command) in leaves(&cli::args::Mco::command()) {
        let has = |id: &str| command.get_arguments().any(|a| a.get_id() == id);
        assert_eq!(has("kubeconfig"), has("context"), "{path:?} has only one of the two flags");
        if !has("context") {
            continue;
        }
        let args: Vec<String> = path
            .iter()
            .cloned()
            .chain(required(&command))
            .chain(more(&path).iter().map(|a| (*a).to_owned()))
            .chain(["--kubeconfig", two, "--context", "nope"].map(str::to_owned))
            .collect();
        let args: Vec<&str> = args.iter().map(String::as_str).collect();
        let out = mco(&args);
        let text = String::from_utf8_lossy(&out.stderr);
        assert!(out.status.code() == Some(1) && text.contains("nope"), "{args:?}: {text}");
        asked.push(path.join(" "));
    }
    for known in ["status", "history", "undo", "retry", "token create", "controller start"] {
        assert!(asked.iter().any(|path| path == known), "{known} is not among {asked:?}");
    }
}

/// Every command without subcommands, with the words that lead to it.
fn leaves(command: &clap::Command) -> Vec<(Vec<String>, clap::Command)> {
    let mut all = vec![];
    for sub in command.get_subcommands() {
        let name = sub.get_name().to_owned();
        match sub.has_subcommands() {
            false => all.push((vec![name], sub.clone())),
            true => all.extend(leaves(sub).into_iter().map(|(mut path, leaf)| {
                path.insert(0, name.clone());
                (path, leaf)
            })),
        }
    }
    all
}

/// A value for each required argument.
fn required(command: &clap::Command) -> Vec<String> {
    let value = |argument: &clap::Arg| {
        let name = argument.get_value_names().and_then(|names| names.first()).map(ToString::to_string);
        match name.unwrap_or_default().as_str() {
            "DIR" => "/",
            "URL" => "https://a",
            "FILE|DIR" | "FILE" => "-",
            _ => "worker",
        }
    };
    let needed = command.get_arguments().filter(|a| a.is_required_set());
    needed
        .flat_map(|a| match a.get_long() {
            Some(long) => vec![format!("--{long}"), value(a).to_owned()],
            None => vec![value(a).to_owned()],
        })
        .collect()
}

/// Further arguments without which a command fails before it asks the cluster.
fn more(path: &[String]) -> &'static [&'static str] {
    match path.iter().map(String::as_str).collect::<Vec<_>>().as_slice() {
        ["render"] => &["--diff"],
        ["operator", "start"] => &["--once"],
        ["daemon", "start"] => &["--root-mount", "/", "--metrics-url", "off"],
        ["token", "revoke"] => &["x"],
        _ => &[],
    }
}

#[test]
fn colours_are_off_where_the_environment_says_so() {
    // The program gets a terminal (script(1)): without one there are no colours anyway.
    let run = |set: &str| {
        let line = format!("{set} {} operator start --once --kubeconfig {{}}", env!("CARGO_BIN_EXE_mco"));
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("k");
        std::fs::write(&file, TWO).unwrap();
        let line = line.replace("{}", file.to_str().unwrap()) + " --log trace";
        Command::new("script").args(["-qec", &line, "/dev/null"]).env_remove("NO_COLOR").output()
    };
    let Ok(coloured) = run("") else {
        eprintln!("skipped: there is no `script` (package bsdutils) to make a terminal with");
        return;
    };
    let escape = |out: &Output| out.stdout.contains(&0x1b);
    let text = String::from_utf8_lossy(&coloured.stdout);
    assert!(escape(&coloured), "the log of a terminal is coloured: {text}");
    for set in ["NO_COLOR=1", "NO_COLOR=yes", "NO_COLOR=0"] {
        let plain = run(set).unwrap();
        assert!(!escape(&plain), "{set}: {}", String::from_utf8_lossy(&plain.stdout));
        assert!(!plain.stdout.is_empty());
    }
    assert!(escape(&run("NO_COLOR=").unwrap()), "an empty value counts as not set");
}

#[test]
fn a_closed_pipe_is_no_error() {
    for args in [&["completion", "bash"][..], &["install", "--dry-run", "-o", "yaml"], &["--help"]] {
        let mut child = Command::new(env!("CARGO_BIN_EXE_mco"))
            .args(args)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        drop(child.stdout.take());
        let out = child.wait_with_output().unwrap();
        let text = String::from_utf8_lossy(&out.stderr);
        assert!(out.status.success() && text.is_empty(), "{args:?} ended with {}: {text}", out.status);
    }
}
