//! Tests of `plan`: which objects follow from which settings.

use super::*;
use crate::settings::object::AgentPods;
use serde_json::json;

fn config(url: &str) -> ControllerConfig {
    let mut config = controller_config_values::unknown();
    config.spec.infra.as_mut().unwrap()["status"]["apiServerInternalURI"] = json!(url);
    config
}

fn wanted_of(agents: Option<&str>, require_token: bool) -> CheckedSettings {
    CheckedSettings {
        image: "mco:1".to_owned(),
        agents: agents.map(|image| AgentPods { image: image.to_owned(), kubeconfig: None }),
        require_token,
        pools: vec!["worker".to_owned()],
        ..CheckedSettings::default()
    }
}

#[test]
fn what_is_wanted_follows_the_settings_so_that_the_rest_can_be_pruned() {
    let config = config("https://api:6443");
    let keys_of = |w: &CheckedSettings, mutates: bool, config: &ControllerConfig| {
        let inputs = Inputs {
            wanted: w,
            config: Some(config),
            scaled: None,
            own_image: Some("mco:1"),
            log: None,
            prometheus: Prometheus::default(),
            mutates,
            push_secrets: &BTreeSet::new(),
            down: &BTreeMap::new(),
        };
        wanted(&inputs).unwrap().iter().map(ToString::to_string).collect::<Vec<_>>()
    };
    let keys = |w: &CheckedSettings| keys_of(w, true, &config);
    let full = keys(&wanted_of(Some("mco:1"), true));
    for name in [
        "Deployment machine-config-operator",
        "Deployment machine-config-controller",
        "DaemonSet machine-config-server",
        "DaemonSet machine-config-daemon",
        "ValidatingAdmissionPolicy mcn-guards",
        "MutatingAdmissionPolicy machine-config-joining-nodes",
        "Role openshift-machine-config-operator-boot-tokens/machine-config-server",
    ] {
        let name = name
            .replace("openshift-machine-config-operator-boot-tokens", api::first_boot::boot_token::NAMESPACE);
        assert!(full.contains(&name), "{name}: {full:?}");
    }
    let mut unique = full.clone();
    unique.sort();
    unique.dedup();
    assert_eq!(unique.len(), full.len(), "each object has one step");
    let less = keys(&wanted_of(None, false));
    let gone: Vec<&String> = full.iter().filter(|k| !less.contains(k)).collect();
    assert_eq!(
        gone.len(),
        5,
        "the agents' DaemonSet, the policy of joining nodes, the server's Role, and two bindings: {gone:?}"
    );
    // Without the kind, and on OpenShift, nodes get no taint when they register.
    let mut of_openshift = config.clone();
    of_openshift.spec.release_image = "quay.io/release:4".to_owned();
    for (mutates, config) in [(false, &config), (true, &of_openshift)] {
        let without = keys_of(&wanted_of(Some("mco:1"), true), mutates, config);
        let gone: Vec<&String> = full.iter().filter(|k| !without.contains(k)).collect();
        assert_eq!(
            gone,
            [
                "MutatingAdmissionPolicy machine-config-joining-nodes",
                "MutatingAdmissionPolicyBinding machine-config-joining-nodes-binding"
            ]
        );
    }
}

#[test]
fn the_dashboard_comes_and_goes_with_its_setting() {
    let config = config("https://api:6443");
    let of = |dashboard: Option<crate::settings::object::DashboardSettings>| {
        let wanted_now = CheckedSettings { dashboard, ..wanted_of(None, true) };
        let inputs = Inputs {
            wanted: &wanted_now,
            config: Some(&config),
            scaled: None,
            own_image: None,
            log: None,
            prometheus: Prometheus::default(),
            mutates: true,
            push_secrets: &BTreeSet::new(),
            down: &BTreeMap::new(),
        };
        let keys = wanted(&inputs).unwrap().iter().map(ToString::to_string).collect::<Vec<_>>();
        (
            keys,
            parts_with_certificates(&wanted_now).contains(&rights::DASHBOARD),
            parts_with_metrics(&wanted_now).contains(&rights::DASHBOARD),
        )
    };
    let (without, certificate, _) = of(None);
    assert!(!certificate && !without.iter().any(|key| key.contains("dashboard")), "{without:?}");
    let (with, certificate, metrics) = of(Some(Default::default()));
    assert!(certificate && !metrics);
    for key in
        ["Deployment", "Service", "NetworkPolicy", "ServiceAccount", "ClusterRole", "ClusterRoleBinding"]
    {
        assert!(with.contains(&format!("{key} machine-config-dashboard")), "{key}: {with:?}");
    }
}

#[test]
fn prometheus_and_grafana_get_what_the_settings_and_the_clusters_kinds_say() {
    let config = config("https://api:6443");
    let crd = |name: &str| json!({"metadata": {"name": format!("{name}.monitoring.coreos.com")}});
    let both = Prometheus::of(&[crd("servicemonitors"), crd("prometheusrules"), crd("podmonitors")]);
    assert_eq!(both, Prometheus { monitors: true, rules: true });
    assert_eq!(Prometheus::of(&[crd("probes")]), Prometheus::default());
    let kinds = |on: (bool, bool), agents: Option<&str>, prometheus: Prometheus| {
        let w = CheckedSettings { prometheus: on.0, dashboards: on.1, ..wanted_of(agents, true) };
        let inputs = Inputs {
            wanted: &w,
            config: Some(&config),
            scaled: None,
            own_image: None,
            log: None,
            prometheus,
            mutates: false,
            push_secrets: &BTreeSet::new(),
            down: &BTreeMap::new(),
        };
        let made = monitoring(&inputs).unwrap();
        let count = |kind: &str| made.iter().filter(|o| o["kind"] == kind).count();
        [
            count("ServiceMonitor"),
            count("PrometheusRule"),
            count("Service"),
            count("Secret"),
            count("ConfigMap"),
        ]
    };
    assert_eq!(kinds((true, false), Some("mco:1"), both), [4, 1, 1, 1, 0]);
    assert_eq!(kinds((true, false), None, both), [3, 1, 0, 1, 0], "agents of hosts are in no Service");
    assert_eq!(kinds((true, false), None, Prometheus::default()), [0; 5]);
    assert_eq!(
        kinds((true, false), None, Prometheus { rules: true, ..Prometheus::default() }),
        [0, 1, 0, 0, 0]
    );
    assert_eq!(kinds((false, true), Some("mco:1"), both), [0, 0, 0, 0, 4]);
    let names: Vec<String> = monitoring::config_maps().iter().map(|o| Key::of(o).name).collect();
    assert_eq!(names, monitoring::CONFIG_MAPS, "the operator's rights name them");
    for part in monitoring::service_monitors().iter().filter(|o| o["kind"] == "ServiceMonitor") {
        let tls = &part["spec"]["endpoints"][0]["tlsConfig"];
        assert!(
            tls.get("insecureSkipVerify").is_none() && tls["ca"]["configMap"]["name"].is_string(),
            "{tls}"
        );
    }
}

#[test]
fn without_an_address_of_the_api_server_nothing_is_pruned_and_the_remedy_is_named() {
    let (none, w) = (config("https://127.0.0.1:6443"), wanted_of(None, true));
    let inputs = Inputs {
        wanted: &w,
        config: Some(&none),
        scaled: None,
        own_image: None,
        log: None,
        prometheus: Prometheus::default(),
        mutates: true,
        push_secrets: &BTreeSet::new(),
        down: &BTreeMap::new(),
    };
    let why = wanted(&inputs).unwrap_err();
    assert!(why.contains("set spec.apiServer.url of MachineConfigOperator cluster"), "{why}");
}

#[test]
fn a_node_that_is_down_takes_no_other_nodes_turn_and_restarts_no_pod() {
    let (config, w) = (config("https://api:6443"), wanted_of(Some("mco:1"), true));
    let pod: api::k8s::Pod = serde_json::from_value(json!({
        "metadata": {"name": "p", "deletionTimestamp": "2026-07-01T11:58:00Z"}, "spec": {"nodeName": "c"}}))
    .unwrap();
    let of = |down: &BTreeMap<Key, DownNodes>| {
        let inputs = Inputs {
            wanted: &w,
            config: Some(&config),
            scaled: None,
            own_image: None,
            log: None,
            prometheus: Prometheus::default(),
            mutates: true,
            push_secrets: &BTreeSet::new(),
            down,
        };
        let objects = [server(&inputs).unwrap(), agents(&inputs).unwrap()].concat();
        objects.into_iter().filter(|object| object["kind"] == "DaemonSet").collect::<Vec<_>>()
    };
    let usual = of(&BTreeMap::new());
    let status = json!({"desiredNumberScheduled": 25, "updatedNumberScheduled": 1});
    let now = "2026-07-01T12:00:00Z".parse().unwrap();
    let down = DownNodes::of(&json!({ "status": status }), &[pod], &BTreeMap::new(), now);
    let all = usual.iter().map(|set| (Key::of(set), down.clone())).collect();
    let path = "/spec/updateStrategy/rollingUpdate/maxUnavailable";
    let budgets = |sets: &[Value]| sets.iter().map(|set| set.pointer(path).cloned()).collect::<Vec<_>>();
    assert_eq!(budgets(&usual), [Some(json!(1)), Some(json!("10%"))]);
    let more = of(&all);
    assert_eq!(budgets(&more), [Some(json!(2)), Some(json!(4))], "a tenth of 25 is 3");
    for (usual, more) in usual.iter().zip(&more) {
        assert_eq!(usual["spec"]["template"], more["spec"]["template"]);
    }
}
