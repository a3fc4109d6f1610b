//! Tables for the plan of an installation, and for what is read from an earlier one.

use super::existing::{balancers, pull_secret, requires_token};
use super::plan::pool_object;
use super::*;
use crate::objects::resource;
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

fn url(url: &str) -> ControllerConfigValues {
    ControllerConfigValues { api_server_url: Some(url.to_owned()), ..ControllerConfigValues::default() }
}

fn settings_of(options: &Options) -> Value {
    let steps = plan(options).unwrap();
    steps.into_iter().map(|s| s.object).find(|o| o["kind"] == "MachineConfigOperator").unwrap()
}

#[test]
fn with_an_image_the_operator_and_its_settings_are_installed_and_the_rest_is_the_operators() {
    let none = plan(&Options::default()).unwrap();
    assert!(
        !none.iter().any(|s| s.object["kind"] == "Deployment" || s.object["kind"] == "MachineConfigOperator")
    );
    let with = Options { image: Some("mco:1".to_owned()), pools: None, ..Options::default() };
    let own = Options { given: url("https://127.0.0.1:6443"), ..with.clone() };
    assert!(matches!(plan(&own), Err(InstallError::Settings(ControllerConfigValuesError::Loopback { .. }))));
    let steps = plan(&with).unwrap();
    for step in &steps {
        assert!(resource(&step.object).is_some(), "{step}");
    }
    let lines = lines(&with);
    assert!(lines.contains(&"apply Deployment machine-config-operator".to_owned()), "{lines:?}");
    for other in [
        "DaemonSet",
        "ControllerConfig ",
        "MachineConfigPool ",
        "machine-config-controller",
        "machine-config-server",
    ] {
        let found = |l: &&String| l.contains(other) && !l.contains("CustomResourceDefinition");
        assert_eq!(lines.iter().find(found), None);
    }
    assert_eq!(
        lines.last().unwrap(),
        "apply MachineConfigOperator cluster",
        "last: what it says needs all of the others"
    );
}

#[test]
fn what_is_said_stays_in_the_settings_and_what_is_found_out_follows_the_cluster() {
    let with = |detected: &str, given: &str, there: Option<&Value>| {
        let settings = there.map(|v| serde_json::from_value(v.clone()).unwrap());
        let some = |u: &str| if u.is_empty() { ControllerConfigValues::default() } else { url(u) };
        let image = Some("mco:1".to_owned());
        settings_of(&Options {
            image,
            settings,
            detected: some(detected),
            given: some(given),
            pools: None,
            ..Options::default()
        })
    };
    let at = |o: &Value| o["spec"]["apiServer"]["url"].as_str().unwrap_or_default().to_owned();
    let first = with("https://a:6443", "", None);
    assert_eq!(
        (at(&first).as_str(), &first["spec"]["pools"]),
        ("https://a:6443", &json!(["master", "worker"]))
    );
    assert_eq!(at(&with("https://b:6443", "", Some(&first))), "https://b:6443");
    assert_eq!(at(&with("", "", Some(&first))), "https://a:6443", "what is not found out now stays");
    let said = with("https://b:6443", "https://c:6443", Some(&first));
    assert_eq!(at(&said), "https://c:6443");
    assert_eq!(at(&with("https://b:6443", "", Some(&said))), "https://c:6443");
    assert_eq!(
        at(&with("https://127.0.0.1:6443", "", None)),
        "",
        "this computer's own address is no machine's"
    );
    // A user's edits of the object stay.
    let mut edited = first;
    edited["spec"]["apiServer"]["url"] = json!("https://mine:6443");
    edited["spec"]["managementState"] = json!("Unmanaged");
    let then = with("https://b:6443", "", Some(&edited));
    assert_eq!(
        (at(&then).as_str(), &then["spec"]["managementState"]),
        ("https://mine:6443", &json!("Unmanaged"))
    );
    edited["spec"]["imageFrom"] = json!("ReleasePayload");
    assert_eq!(with("", "", Some(&edited))["spec"]["imageFrom"], "ReleasePayload");
    for field in ["imageFrom", "managementState"] {
        assert_eq!(with("", "", None)["spec"].get(field), None, "the administrator's value is not put back");
    }
    // New settings have agents as pods; those that are there keep what they say.
    assert_eq!(with("", "", None)["spec"]["agents"], json!({"runAs": "Pods"}));
    let of_hosts = settings_of(&Options {
        image: Some("mco:1".to_owned()),
        agents_of_hosts: true,
        ..Options::default()
    });
    assert_eq!(of_hosts["spec"]["agents"], json!({"runAs": "HostServices"}));
    assert_eq!(with("", "", Some(&of_hosts))["spec"]["agents"], json!({"runAs": "HostServices"}));
    // If the agents use the same image, the object names no image for them.
    for (image, own) in [("mco:1", Value::Null), ("other:1", json!("other:1"))] {
        let agents = settings_of(&Options {
            image: Some("mco:1".to_owned()),
            daemon_image: Some(image.to_owned()),
            ..Options::default()
        });
        assert_eq!(
            (&agents["spec"]["agents"]["runAs"], &agents["spec"]["agents"]["image"]),
            (&json!("Pods"), &own)
        );
    }
}

#[test]
fn an_address_that_was_found_out_does_not_change_silently() {
    let none = ControllerConfigValues::default();
    let (a, b) = (url("https://a:6443"), url("https://b:6443"));
    let steps = plan(&Options { detected: a.clone(), ..Options::default() }).unwrap();
    let config = steps.iter().find(|s| s.object["kind"] == "ControllerConfig").unwrap().object.clone();
    let with =
        |detected: &ControllerConfigValues, given: &ControllerConfigValues, there: Option<&Value>| Options {
            image: Some("mco:1".to_owned()),
            settings: there.map(|there| serde_json::from_value(there.clone()).unwrap()),
            controller_config: Some(config.clone()),
            detected: detected.clone(),
            given: given.clone(),
            pools: None,
            ..Options::default()
        };
    let first = settings_of(&with(&a, &none, None));
    let mut edited = first.clone();
    edited["spec"]["apiServer"]["url"] = json!("https://mine:6443");
    // Columns: what is found out, what is said, what is there; whether the address changes by itself.
    for (detected, given, there, moved) in [
        (&a, &none, None, false),
        (&a, &none, Some(&first), false),
        (&b, &none, Some(&first), true),
        (&b, &b, Some(&first), false),
        (&none, &none, Some(&first), false),
        (&b, &none, Some(&edited), false),
    ] {
        let options = with(detected, given, there);
        let found = moved_api_server(&options, &plan(&options).unwrap());
        let want = moved.then(|| ["https://a:6443".to_owned(), "https://b:6443".to_owned()]);
        assert_eq!(found, want, "{detected:?} {given:?} {there:?}");
    }
    // The cluster names its own address, or nobody has used one yet.
    let mut own = config.clone();
    own["spec"]["infra"]["status"]["apiServerInternalURI"] = json!("https://own:6443");
    for controller_config in [Some(own), None] {
        let options = Options { controller_config, ..with(&b, &none, Some(&first)) };
        assert_eq!(moved_api_server(&options, &plan(&options).unwrap()), None);
    }
}

#[test]
fn of_what_is_there_only_what_is_said_changes() {
    let first = plan(&Options { detected: url("https://a:6443"), ..Options::default() }).unwrap();
    let mut there = first.iter().find(|s| s.object["kind"] == "ControllerConfig").unwrap().object.clone();
    there["metadata"]["resourceVersion"] = json!("7");
    there["metadata"]["uid"] = json!("u");
    there["spec"]["newer"] = json!("field");
    there["spec"]["images"] = json!({"mine": "i"});
    let existing_pools = vec!["master".to_owned(), "worker".to_owned()];
    let again = Options { controller_config: Some(there), existing_pools, ..Options::default() };
    let kinds = |o: &Options| lines(o).into_iter().filter(|l| !l.starts_with("apply")).collect::<Vec<_>>();
    assert_eq!(kinds(&again), Vec::<String>::new(), "nothing of the user's changes");
    let written = &again.controller_config.as_ref().unwrap()["spec"];
    assert!(written.as_object().unwrap().values().all(|v| !v.is_null()), "kubectl leaves out what is null");
    assert!(written.get("rootCAData").is_none(), "nobody knows it");
    let said = Options { given: url("https://b:6443"), ..again };
    assert_eq!(kinds(&said), ["update ControllerConfig machine-config-controller"]);
    let steps = plan(&said).unwrap();
    let step = steps.iter().find(|s| s.object["kind"] == "ControllerConfig").unwrap();
    let WriteMode::Update(patch) = &step.how else { panic!("{step:?}") };
    let urls = json!({"apiServerInternalURI": "https://b:6443", "apiServerURL": "https://b:6443"});
    assert_eq!(patch["spec"], json!({"infra": {"status": urls}}));
    assert_eq!(patch["metadata"]["resourceVersion"], "7");
    let object = &step.object;
    assert_eq!((&object["spec"]["newer"], &object["spec"]["images"]["mine"]), (&json!("field"), &json!("i")));
    assert!(object["metadata"].get("resourceVersion").is_none() && object["metadata"].get("uid").is_none());
}

#[test]
fn a_config_that_does_not_fit_its_kind_is_named_and_not_quoted() {
    let name = json!({"name": names::CONTROLLER_CONFIG});
    let there = json!({"metadata": name, "spec": {"images": {"mine": ["hunter2"]}}});
    let error = plan(&Options { controller_config: Some(there), ..Options::default() }).unwrap_err();
    assert!(matches!(error, InstallError::Unreadable { .. }), "{error:?}");
    assert_eq!(
        client::chain(&error),
        "ControllerConfig machine-config-controller cannot be read: spec.images.mine: expected a string, found a list; \
         correct it with kubectl edit controllerconfig machine-config-controller"
    );
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
fn what_an_earlier_installation_says_is_read() {
    let set = |args: Value| json!({"spec": {"template": {"spec": {"containers": [{"args": args}]}}}});
    let nets: Vec<IpNet> = ["10.0.0.4/31", "fd00::/64"].map(|n| n.parse().unwrap()).into();
    let full = set(json!([
        "--require-token",
        "--proxy-protocol-from=10.0.0.4/31",
        "--proxy-protocol-from=fd00::/64"
    ]));
    assert!(requires_token(&full));
    assert_eq!(balancers(&full), nets);
    assert!(!requires_token(&json!({})) && balancers(&json!({})).is_empty());
    let named = |secret: Value| pull_secret(&json!({"spec": {"pullSecret": secret}}));
    let at = |namespace: &str| Some((namespace.to_owned(), "p".to_owned()));
    assert_eq!(named(json!({"name": "p", "namespace": "n"})), at("n"));
    assert_eq!(named(json!({"name": "p"})), at("openshift-config"));
    assert_eq!(named(Value::Null), None);
}
