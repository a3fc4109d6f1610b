//! Tests of `pods`: what pods need to start and to be reached, and no more.

use super::*;
use crate::manifests::replicas::{ReplicaOverride, controllers};
use api::topology::ControlPlaneTopology;

fn objects(require_token: bool) -> Vec<Value> {
    let (image, api_server_url) = ("registry.example.com/mco:1", "https://api:6443");
    let balancers = &["10.0.0.0/29".parse().unwrap()];
    let parts = Parts { image, api_server_url, require_token, balancers, controllers: 2, scaled: None };
    [controller(&parts), server(&parts), operator(image, 2)].concat()
}

#[test]
fn pods_run_as_nobody_in_particular_and_with_their_own_account() {
    for object in objects(false).iter().filter(|o| o["spec"].get("template").is_some()) {
        let pod = &object["spec"]["template"]["spec"];
        assert_eq!(pod["serviceAccountName"], object["metadata"]["name"]);
        assert_eq!(pod["securityContext"]["runAsNonRoot"], true);
        assert_eq!(pod["containers"][0]["image"], "registry.example.com/mco:1");
        assert_eq!(
            object["spec"]["selector"]["matchLabels"],
            object["spec"]["template"]["metadata"]["labels"]
        );
    }
}

#[test]
fn controllers_follow_the_topology_until_somebody_scales_them() {
    for topology in ControlPlaneTopology::ALL {
        let want = if topology == ControlPlaneTopology::SingleReplica { 1 } else { 2 };
        assert_eq!(controllers(Some(topology)), want, "{topology}");
    }
    assert_eq!(controllers(None), 2, "it is not known");
    let made =
        objects(false).into_iter().find(|o| o["metadata"]["name"] == CONTROLLER && o["kind"] == "Deployment");
    let made = made.unwrap();
    let with = |replicas: u32, record: Option<&str>| {
        let mut deployment = made.clone();
        deployment["spec"]["replicas"] = json!(replicas);
        deployment["metadata"]["annotations"] =
            record.map_or(Value::Null, |r| json!({ FOUND_OUT: json!({ REPLICAS: r }).to_string() }));
        deployment
    };
    // Columns: replicas, record, wanted number, whether nobody else has scaled it.
    let rows = [
        (2, Some("2"), 1, true),
        (1, Some("1"), 2, true),
        (1, Some("1"), 1, true),
        (2, None, 1, true),
        (1, None, 2, false),
        (0, Some("2"), 1, false),
        (3, Some("2"), 1, false),
    ];
    for (has, record, wanted, ours) in rows {
        let scaled = ReplicaOverride::of(&with(has, record));
        assert_eq!(scaled.is_none(), ours, "{has} {record:?}");
        let (image, api_server_url) = ("mco:2", "https://api:6443");
        let parts = Parts {
            image,
            api_server_url,
            require_token: true,
            balancers: &[],
            controllers: wanted,
            scaled: scaled.as_ref(),
        };
        let again = controller_pods(&parts);
        let want = if ours { wanted } else { has };
        assert_eq!(again["spec"]["replicas"], json!(want), "{has} {record:?} {wanted}");
        // After the next write, the Deployment still counts as scaled.
        assert_eq!(ReplicaOverride::of(&again), scaled);
    }
}

#[test]
fn an_operator_that_cannot_start_does_not_end_the_one_that_says_so() {
    let all = operator("mco:2", 2);
    let deployment = all.iter().find(|o| o["kind"] == "Deployment").unwrap();
    assert_eq!(deployment["spec"]["strategy"]["rollingUpdate"]["maxUnavailable"], 0);
    let container = &deployment["spec"]["template"]["spec"]["containers"][0];
    assert!(container["args"].to_string().contains("--image=mco:2"), "{container}");
    assert_eq!(container["readinessProbe"]["httpGet"]["path"], "/readyz");
}

#[test]
fn every_part_that_is_rolled_out_says_when_it_is_ready() {
    for object in objects(true).iter().filter(|o| o["spec"].get("template").is_some()) {
        let container = &object["spec"]["template"]["spec"]["containers"][0];
        for (probe, path) in [("livenessProbe", "/healthz"), ("readinessProbe", "/readyz")] {
            assert_eq!(container[probe]["httpGet"]["path"], path, "{container}");
        }
    }
}

#[test]
fn each_pod_starts_without_the_certificate_of_its_metrics_and_finds_it_later() {
    let with_pods = objects(true).into_iter().filter(|o| o["spec"].get("template").is_some());
    for object in with_pods.chain([crate::manifests::agents::daemon_set(&Default::default(), None)]) {
        let name = object["metadata"]["name"].as_str().unwrap();
        let pod = &object["spec"]["template"]["spec"];
        let volumes = pod["volumes"].as_array().unwrap();
        let volume = volumes.iter().find(|v| v["name"] == "metrics-certificate").unwrap();
        assert_eq!(volume["secret"], json!({"secretName": format!("{name}-metrics-tls"), "optional": true}));
        let container = &pod["containers"][0];
        let mounts = container["volumeMounts"].as_array().unwrap();
        let mount = mounts.iter().find(|m| m["name"] == "metrics-certificate").unwrap();
        let folder = mount["mountPath"].as_str().unwrap();
        for flag in [format!("--metrics-cert={folder}/tls.crt"), format!("--metrics-key={folder}/tls.key")] {
            assert_eq!(
                container["args"].as_array().unwrap().iter().filter(|a| **a == flag).count(),
                1,
                "{name}"
            );
        }
    }
}

#[test]
fn the_dashboard_is_told_its_names_and_whose_word_counts() {
    let proxies = vec!["10.0.0.7/32".parse().unwrap()];
    let all = dashboard(
        "mco:1",
        &DashboardSettings {
            hosts: vec!["mco.example.com".to_owned()],
            proxies,
            connections_from: vec!["10.0.0.9/8".parse().unwrap()],
        },
    );
    let kinds: Vec<&str> = all.iter().map(|o| o["kind"].as_str().unwrap()).collect();
    assert_eq!(kinds, ["NetworkPolicy", "Deployment", "Service"], "closed before there is anything to reach");
    let container = &all[1]["spec"]["template"]["spec"]["containers"][0];
    let args = container["args"].to_string();
    for arg in [
        "--in-cluster",
        "--host=mco.example.com",
        "--trusted-proxy=10.0.0.7/32",
        "--cert=/etc/ssl/metrics/tls.crt",
    ] {
        assert!(args.contains(arg), "{arg}: {args}");
    }
    assert_eq!(container["securityContext"]["readOnlyRootFilesystem"], true);
    let resources = json!({"requests": {"cpu": "20m", "memory": "50Mi"}, "limits": {"memory": "1Gi"}});
    assert_eq!(container["resources"], resources, "it takes no control-plane node's memory");
    let port = json!(PAGE);
    assert_eq!(
        all[0]["spec"]["ingress"],
        json!([{"ports": [{"protocol": "TCP", "port": PAGE}], "from": [{"ipBlock": {"cidr": "10.0.0.0/8"}}]}])
    );
    let open = dashboard("mco:1", &DashboardSettings::default());
    assert_eq!(open[0]["spec"]["ingress"][0].get("from"), None, "nobody is named");
    assert_eq!(
        (&container["ports"][0]["containerPort"], &all[2]["spec"]["ports"][0]["targetPort"]),
        (&port, &port)
    );
}

#[test]
fn pods_find_the_control_plane_of_kubeadm_and_k3s() {
    for object in objects(false).iter().filter(|o| o["spec"].get("template").is_some()) {
        let pod = &object["spec"]["template"]["spec"];
        assert_eq!(pod["nodeSelector"], json!({"kubernetes.io/os": "linux"}), "no role with a value");
        let terms = &pod["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"];
        for (term, key) in terms.as_array().unwrap().iter().zip(["control-plane", "master"]) {
            let want = json!([{"key": format!("node-role.kubernetes.io/{key}"), "operator": "Exists"}]);
            assert_eq!(term["matchExpressions"], want);
        }
        assert_eq!(terms.as_array().unwrap().len(), 2);
    }
}

#[test]
fn tokens_are_asked_for_by_the_server_where_the_settings_say_so() {
    for (require, parts) in [(false, 0), (true, 1)] {
        let asking = objects(require).iter().filter(|o| o.to_string().contains("--require-token")).count();
        assert_eq!(asking, parts);
    }
}

#[test]
fn plain_http_is_open_only_where_the_references_behaviour_is_asked_for() {
    for (require, open) in [(true, false), (false, true)] {
        let text = serde_json::to_string(&objects(require)).unwrap();
        assert_eq!(text.contains("22624"), open, "{text}");
    }
}

#[test]
fn balancers_are_told_to_the_server_and_pods_are_reached_for_metrics_alone() {
    let objects = objects(true);
    let server = objects.iter().find(|o| o["kind"] == "DaemonSet").unwrap();
    assert!(server.to_string().contains("--proxy-protocol-from=10.0.0.0/29"), "{server}");
    let of =
        |name: &str| objects.iter().find(|o| o["kind"] == "NetworkPolicy" && o["metadata"]["name"] == name);
    for (name, port) in [(OPERATOR, METRICS), (CONTROLLER, METRICS)] {
        assert_eq!(
            of(name).unwrap()["spec"]["ingress"],
            json!([{"ports": [{"protocol": "TCP", "port": port}]}])
        );
    }
    assert!(of(SERVER).is_none(), "it would not hold for a pod with its host's network");
}
