//! Tables for the plan of an installation, and for what is read from an earlier one.

use super::apply::resource;
use super::existing::{asks, balancers, pull_secret};
use super::plan::pool_object;
use super::*;
use api::names::label;
use kube::ResourceExt as _;
use serde_json::json;

fn lines(options: &Options) -> Vec<String> {
    plan(options).unwrap().iter().map(ToString::to_string).collect()
}

#[test]
fn kinds_come_before_their_objects_and_the_users_objects_are_only_created() {
    let lines = lines(&Options::default());
    let namespace = format!("apply Namespace {}", names::NAMESPACE);
    let at = lines.iter().position(|l| *l == namespace).unwrap();
    assert!(lines[..at].iter().all(|l| l.starts_with("apply CustomResourceDefinition ")), "{lines:?}");
    assert!(!lines[at..].iter().any(|l| l.contains("CustomResourceDefinition")), "{lines:?}");
    assert!(lines.contains(&format!("apply CustomResourceDefinition machineconfigs.{}", names::GROUP)));
    assert_eq!(
        lines[at + 1..at + 4],
        [
            "create if missing: ControllerConfig machine-config-controller",
            "create if missing: MachineConfigPool master",
            "create if missing: MachineConfigPool worker",
        ]
    );
    assert!(!lines.iter().any(|l| l.contains("config.openshift.io")), "only ours by default");
}

fn url(url: &str) -> Settings {
    Settings { api_server_url: Some(url.to_owned()), ..Settings::default() }
}

#[test]
fn the_parts_are_pods_where_an_image_is_given_and_every_object_can_be_applied() {
    let none = plan(&Options::default()).unwrap();
    assert!(!none.iter().any(|s| s.object["kind"] == "Deployment"));
    let with = Options { image: Some("mco:1".to_owned()), ..Options::default() };
    assert!(matches!(plan(&with), Err(InstallError::NoUrl)));
    let own = Options { found: url("https://127.0.0.1:6443"), ..with.clone() };
    assert!(
        matches!(plan(&own), Err(InstallError::NoUrl)),
        "a kubeconfig's loopback address is no machine's"
    );
    let own = Options { said: url("https://127.0.0.1:6443"), ..with.clone() };
    assert!(matches!(plan(&own), Err(InstallError::Settings(SettingsError::Loopback { .. }))));
    let with = Options { said: url("https://api:6443"), ..with };
    let steps = plan(&with).unwrap();
    for step in &steps {
        assert!(resource(&step.object).is_some(), "{step}");
    }
    let lines = lines(&with);
    for part in ["Deployment machine-config-controller", "DaemonSet machine-config-server"] {
        assert!(lines.contains(&format!("apply {part}")), "{part}");
    }
    let server = steps.iter().find(|s| s.object["kind"] == "DaemonSet").unwrap();
    assert!(server.object.to_string().contains("--apiserver-url=https://api:6443"));
}

#[test]
fn of_what_is_there_only_what_is_said_changes() {
    let first = plan(&Options { found: url("https://a:6443"), ..Options::default() }).unwrap();
    let mut there = first.iter().find(|s| s.object["kind"] == "ControllerConfig").unwrap().object.clone();
    there["metadata"]["resourceVersion"] = json!("7");
    there["metadata"]["uid"] = json!("u");
    there["spec"]["newer"] = json!("field");
    there["spec"]["images"] = json!({"mine": "i"});
    let pools_there = vec!["master".to_owned(), "worker".to_owned()];
    let again = Options { controller_config: Some(there), pools_there, ..Options::default() };
    let kinds = |o: &Options| lines(o).into_iter().filter(|l| !l.starts_with("apply")).collect::<Vec<_>>();
    assert_eq!(kinds(&again), Vec::<String>::new(), "nothing of the user's changes");
    let written = &again.controller_config.as_ref().unwrap()["spec"];
    assert!(written.as_object().unwrap().values().all(|v| !v.is_null()), "kubectl leaves out what is null");
    assert!(written.get("rootCAData").is_none(), "nobody knows it");
    let image = Some("mco:1".to_owned());
    let said = Options { said: url("https://b:6443"), image, ..again };
    assert_eq!(kinds(&said), ["update ControllerConfig machine-config-controller"]);
    let steps = plan(&said).unwrap();
    let step = steps.iter().find(|s| s.object["kind"] == "ControllerConfig").unwrap();
    let How::Update(patch) = &step.how else { panic!("{step:?}") };
    let urls = json!({"apiServerInternalURI": "https://b:6443", "apiServerURL": "https://b:6443"});
    assert_eq!(patch["spec"], json!({"infra": {"status": urls}}));
    assert_eq!(patch["metadata"]["resourceVersion"], "7");
    let object = &step.object;
    assert_eq!((&object["spec"]["newer"], &object["spec"]["images"]["mine"]), (&json!("field"), &json!("i")));
    assert!(object["metadata"].get("resourceVersion").is_none() && object["metadata"].get("uid").is_none());
    // The server's pods get the address that is in effect, even if it was set earlier.
    let server = steps.iter().find(|s| s.object["kind"] == "DaemonSet").unwrap();
    assert!(server.object.to_string().contains("--apiserver-url=https://b:6443"));
}

#[test]
fn built_in_pools_select_by_role() {
    let worker = serde_json::to_value(pool("worker")).unwrap();
    assert_eq!(worker["spec"]["machineConfigSelector"]["matchLabels"][label::ROLE], "worker");
    assert_eq!(worker["spec"]["nodeSelector"]["matchLabels"]["node-role.kubernetes.io/worker"], "");
    assert!(worker["metadata"]["labels"].get(label::REQUIRED_FOR_UPGRADE).is_none());
    assert_eq!(pool("master").labels()[label::REQUIRED_FOR_UPGRADE], "");
    let written = pool_object("worker").unwrap();
    let fields: Vec<&String> = written["spec"].as_object().unwrap().keys().collect();
    assert_eq!(fields, ["machineConfigSelector", "nodeSelector"], "the rest is for others to write");
}

#[test]
fn a_new_installation_asks_for_tokens_and_one_that_is_there_is_read() {
    assert!(Options::default().require_token);
    let with = |require_token| Options {
        image: Some("mco:1".to_owned()),
        said: url("https://api:6443"),
        require_token,
        ..Options::default()
    };
    for require in [true, false] {
        let steps = plan(&with(require)).unwrap();
        let server = steps.iter().find(|s| s.object["kind"] == "DaemonSet").unwrap();
        assert_eq!(asks(&server.object), require);
        assert_eq!(balancers(&server.object), []);
    }
    let nets: Vec<IpNet> = ["10.0.0.4/31", "fd00::/64"].map(|n| n.parse().unwrap()).into();
    let steps = plan(&Options { balancers: nets.clone(), ..with(true) }).unwrap();
    let server = steps.iter().find(|s| s.object["kind"] == "DaemonSet").unwrap();
    assert_eq!(balancers(&server.object), nets);
    assert!(!asks(&json!({})) && balancers(&json!({})).is_empty());
    let named = |secret: Value| pull_secret(&json!({"spec": {"pullSecret": secret}}));
    let at = |namespace: &str| Some((namespace.to_owned(), "p".to_owned()));
    assert_eq!(named(json!({"name": "p", "namespace": "n"})), at("n"));
    assert_eq!(named(json!({"name": "p"})), at("openshift-config"));
    assert_eq!(named(Value::Null), None);
}
