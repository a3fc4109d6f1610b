//! Tests of parsing: MachineConfigs without an Ignition config, and entries that are refused.

use super::*;
use serde_json::json;

fn spec(config: Value) -> MachineConfigSpec {
    MachineConfigSpec { config: Some(config), ..MachineConfigSpec::default() }
}

fn files(files: &Value) -> DesiredHost {
    let config = json!({"ignition": {"version": "3.4.0"}, "storage": {"files": files}});
    DesiredHost::parse(&spec(config)).unwrap()
}

#[test]
fn null_and_an_empty_object_are_no_ignition_config() {
    for none in [MachineConfigSpec::default(), spec(Value::Null), spec(json!({}))] {
        assert!(ignition_value(&none).is_none(), "{none:?}");
        assert_eq!(ignition_config(&none).unwrap(), ignition::empty());
        assert!(DesiredHost::parse(&none).unwrap().paths.iter().next().is_none());
    }
    // Without a version nobody knows what it means.
    let unversioned = spec(json!({"storage": {}}));
    assert!(ignition_value(&unversioned).is_some());
    assert!(matches!(ignition_config(&unversioned), Err(ParseError::NoVersion)));
}

#[test]
fn a_file_that_is_refused_counts_as_not_applied_and_no_other_does() {
    let good = json!({"source": "data:,x"});
    let host = files(&json!([
        {"path": "/etc/good", "contents": good},
        {"path": "/etc/mode", "mode": 0o4755, "contents": good},
        {"path": "/etc/unescaped", "contents": {"source": "data:,a b"}},
        {"path": "/etc/remote", "contents": {"source": "https://h/x"}},
        // The last entry of a path counts.
        {"path": "/etc/twice", "mode": 0o4755, "contents": good},
        {"path": "/etc/twice", "contents": good},
    ]));
    let refused: Vec<&str> = host.refused.iter().map(|bad| bad.path.as_str()).collect();
    let at = |i: usize, field: &str| format!("spec.config.storage.files[{i}]{field}");
    assert_eq!(refused, [at(1, ".mode"), at(2, ".contents.source"), at(3, ".contents"), at(4, ".mode")]);
    let applied = |host: &DesiredHost| -> Vec<String> {
        host.paths.iter().filter(|(_, want)| want.was_applied()).map(|(path, _)| path.clone()).collect()
    };
    assert_eq!(applied(&host), ["/etc/good", "/etc/twice"]);
    let host = host.as_applied();
    assert_eq!(host.paths.iter().count(), 2);
    assert_eq!(applied(&host), ["/etc/good", "/etc/twice"]);
}

#[test]
fn an_entry_is_the_same_wherever_it_stands_in_the_list() {
    let (a, b) = (
        json!({"path": "/etc/a", "contents": {"source": "data:,a"}}),
        json!({"path": "/etc/b", "contents": {"source": "data:,b"}}),
    );
    let (alone, second) = (files(&json!([b])), files(&json!([a, b])));
    assert_eq!(alone.at("/etc/b").unwrap(), second.at("/etc/b").unwrap());
}
