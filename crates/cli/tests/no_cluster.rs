//! The program where there is no cluster: exit codes, messages, and readers that go away.
#![allow(clippy::unwrap_used)] // A test that cannot go on ends.

use std::process::{Command, Output, Stdio};

fn mco(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_mco")).args(args).env_remove("KUBECONFIG").output().unwrap()
}

#[test]
fn what_went_wrong_is_told_by_the_exit_code_and_in_one_line_that_names_the_remedy() {
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
        assert!(!text.contains("ERROR"), "the client library speaks beside us: {text}");
    }
}

#[test]
fn a_reader_that_goes_away_is_no_fault() {
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
