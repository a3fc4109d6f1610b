//! What the page may ask for, and what it is answered.

use super::*;

#[test]
fn an_action_names_what_it_is_about_and_is_not_done_unless_it_is_confirmed() {
    let wanted = |text: &str| serde_json::from_str::<ActionRequest>(text).map(|w| (w.action, w.confirm)).ok();
    let pool = || "w".to_owned();
    for (text, want) in [
        (r#"{"action": "pause", "pool": "w"}"#, Some((Action::Pause { pool: pool() }, false))),
        (
            r#"{"action": "release", "pool": "w", "confirm": true}"#,
            Some((Action::Release { pool: pool() }, true)),
        ),
        (r#"{"action": "undo", "pool": "w"}"#, Some((Action::Undo { pool: pool(), to: None }, false))),
        (r#"{"action": "retry", "pool": "w"}"#, None),
        (r#"{"action": "delete", "pool": "w"}"#, None),
        (r#"{"pool": "w"}"#, None),
        (r#"{"action": "pause", "pool": ["w"]}"#, None),
        (r#"{"action": "pause", "pool": "w", "confirm": "yes"}"#, None),
    ] {
        assert_eq!(wanted(text), want, "{text}");
    }
}

#[test]
fn what_is_pasted_is_read_or_refused_in_words() {
    assert_eq!(read(b"kind: A\n---\nkind: List\nitems: [{kind: B}]\n").unwrap().len(), 2);
    for (text, says) in [
        (&b"\xff\xfe"[..], "not text"),
        (b"a: [b", "not YAML"),
        (b"", "no manifest"),
        (b"- 1\n- 2\n", "no manifest"),
        (b"kind: [A]", "no manifest"),
    ] {
        let why = read(text).unwrap_err();
        assert!(why.contains(says), "{why}");
    }
}

#[test]
fn a_plan_masks_what_it_shows_and_says_what_it_cannot_do() {
    let group = "machineconfiguration.openshift.io";
    let pool = json!({"apiVersion": format!("{group}/v1"), "kind": "MachineConfigPool", "metadata": {"name": "worker"},
        "spec": {"machineConfigSelector": {"matchLabels": {format!("{group}/role"): "worker"}},
            "nodeSelector": {"matchLabels": {"node-role.kubernetes.io/worker": ""}}}});
    let config = json!({"apiVersion": format!("{group}/v1"), "kind": "MachineConfig",
        "metadata": {"name": "50-a", "labels": {format!("{group}/role"): "worker"}},
        "spec": {"config": {"ignition": {"version": "3.4.0"}, "storage": {"files": [
            {"path": "/etc/plain", "mode": 420, "contents": {"source": "data:,visible%0A"}},
            {"path": "/etc/app.conf", "mode": 420, "contents": {"source": "data:,password%3Dhunter2secret%0A"}}]}}}});
    let objects = |all: Vec<Value>| -> Objects { all.into_iter().map(|v| ("x".to_owned(), v)).collect() };
    let unknown = api::v1::ControllerConfig::new("x", Default::default());
    let text = plan(&objects(vec![config]), &objects(vec![pool.clone()]), &unknown).unwrap();
    assert!(text.contains("pool worker: ") && text.contains("+visible"), "{text}");
    assert!(text.contains("/etc/app.conf") && !text.contains("hunter2"), "{text}");
    let kubelet =
        json!({"apiVersion": format!("{group}/v1"), "kind": "KubeletConfig", "metadata": {"name": "k"}});
    let why = plan(&objects(vec![kubelet]), &objects(vec![pool]), &unknown).unwrap_err();
    assert!(why.contains("KubeletConfig") && why.contains("--templates"), "{why}");
}
