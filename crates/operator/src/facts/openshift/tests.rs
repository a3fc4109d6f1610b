//! What each platform, topology and network becomes in the ControllerConfig.

use super::*;
use api::k8s::ByteString;
use api::names::NAMESPACE;

fn certificate(name: &str) -> String {
    let key = rcgen::KeyPair::generate().unwrap();
    let mut params = rcgen::CertificateParams::default();
    params.distinguished_name.push(rcgen::DnType::CommonName, name);
    params.self_signed(&key).unwrap().pem().replace("\r\n", "\n")
}

fn infrastructure(platform: &str, topology: &str) -> Value {
    json!({
        "apiVersion": "config.openshift.io/v1", "kind": "Infrastructure",
        "metadata": {"name": "cluster", "uid": "u", "resourceVersion": "9", "generation": 1, "managedFields": []},
        "spec": {"cloudConfig": {"name": ""}, "platformSpec": {"type": platform}},
        "status": {
            "infrastructureName": "lab-1", "etcdDiscoveryDomain": "etcd.example.com",
            "apiServerURL": "https://api.example.com:6443", "apiServerInternalURI": "https://api-int.example.com:6443",
            "controlPlaneTopology": topology, "infrastructureTopology": "HighlyAvailable",
            "platform": platform, "platformStatus": {"type": platform},
        },
    })
}

fn network(services: &[&str]) -> Value {
    json!({"spec": {"serviceNetwork": services, "networkType": "OVNKubernetes"}, "status": {}})
}

fn facts(platform: &str) -> OpenShift {
    OpenShift {
        infrastructure: infrastructure(platform, "HighlyAvailable"),
        network: Some(network(&["172.30.0.0/16"])),
        namespaces: NAMESPACES.to_vec(),
        ..OpenShift::default()
    }
}

fn with(mut facts: OpenShift, place: (&str, &str), entries: &[(&str, &str)]) -> OpenShift {
    let entries = entries.iter().map(|(key, value)| ((*key).to_owned(), value.as_bytes().to_vec())).collect();
    facts.maps.insert((place.0.to_owned(), place.1.to_owned()), entries);
    facts
}

fn spec(facts: &OpenShift) -> Map<String, Value> {
    facts.wanted(&ControllerConfigValues::default(), &ControllerConfigValues::default()).unwrap().spec
}

fn refused(facts: &OpenShift) -> String {
    facts.wanted(&ControllerConfigValues::default(), &ControllerConfigValues::default()).unwrap_err()
}

fn pem(value: &Value) -> String {
    let bytes: ByteString = serde_json::from_value(value.clone()).unwrap();
    String::from_utf8(bytes.0).unwrap()
}

#[test]
fn each_topology_and_platform_is_taken_over_as_it_is() {
    for topology in ["HighlyAvailable", "SingleReplica", "HighlyAvailableArbiter", "DualReplica", "External"]
    {
        let mut facts = facts("BareMetal");
        facts.infrastructure = infrastructure("BareMetal", topology);
        let spec = spec(&facts);
        assert_eq!(spec["infra"]["status"]["controlPlaneTopology"], topology);
        assert_eq!(
            spec["infra"]["metadata"],
            json!({"name": "cluster", "uid": "u"}),
            "what changes with every write of anybody is left out"
        );
        assert_eq!(
            (&spec["platform"], &spec["etcdDiscoveryDomain"]),
            (&json!("baremetal"), &json!("etcd.example.com"))
        );
        assert_eq!(spec["pullSecret"], json!({"namespace": "openshift-config", "name": "pull-secret"}));
    }
    // Only the older field, and none at all.
    for (old, want, word) in [(Some("AWS"), "AWS", "aws"), (None, "None", "none")] {
        let mut facts = facts("AWS");
        facts.infrastructure["status"] = json!({ "platform": old });
        facts.infrastructure.as_object_mut().unwrap().remove("apiVersion");
        let spec = spec(&facts);
        assert_eq!(spec["infra"]["status"]["platformStatus"], json!({"type": want}));
        assert_eq!(
            (&spec["platform"], &spec["infra"]["apiVersion"]),
            (&json!(word), &json!("config.openshift.io/v1"))
        );
    }
}

#[test]
fn addresses_and_families_come_from_the_network() {
    for (nets, ip, families) in [
        (&["192.168.2.0/20"][..], "192.168.0.10", "IPv4"),
        (&["2001:db8::/32"], "2001:db8::a", "IPv6"),
        (&["172.30.0.0/16", "fd02::/112"], "172.30.0.10", "DualStack"),
        (&["fd02::/112", "172.30.0.0/16"], "fd02::a", "DualStackIPv6Primary"),
    ] {
        let spec = spec(&OpenShift { network: Some(network(nets)), ..facts("None") });
        assert_eq!((&spec["clusterDNSIP"], &spec["ipFamilies"]), (&json!(ip), &json!(families)));
    }
    for (nets, why) in [
        (&[][..], "spec.serviceNetwork is empty"),
        (&["192.168.1.254/32"], "is too small"),
        (&["nonsense"], "\"nonsense\" is not a range"),
    ] {
        let said = refused(&OpenShift { network: Some(network(nets)), ..facts("None") });
        assert!(said.starts_with("Network cluster: ") && said.contains(why), "{said}");
    }
    for (status, plugin, migration) in [
        (json!({}), "OVNKubernetes", Value::Null),
        (json!({"networkType": "Calico"}), "Calico", Value::Null),
        (
            json!({"networkType": "Calico", "migration": {"networkType": "Cilium", "mtu": {"machine": {"to": 9000}}}}),
            "Cilium",
            json!({"mtuMigration": {"machine": {"to": 9000}}}),
        ),
    ] {
        let mut facts = facts("None");
        facts.network.as_mut().unwrap()["status"] = status;
        let spec = spec(&facts);
        assert_eq!((&spec["networkType"], &spec["network"]), (&json!(plugin), &migration));
    }
}

#[test]
fn the_settings_come_before_the_cluster_and_what_it_leaves_open_is_filled() {
    let said = ControllerConfigValues {
        api_server_url: Some("https://said:6443".to_owned()),
        cluster_dns_ip: Some("10.0.0.1".to_owned()),
        api_server_ca: Some(b"said".to_vec()),
        ..ControllerConfigValues::default()
    };
    let plain = ControllerConfigValues {
        api_server_url: Some("https://plain:6443".to_owned()),
        api_server_ca: Some(b"plain".to_vec()),
        ip_families: Some("IPv6".to_owned()),
        ..ControllerConfigValues::default()
    };
    let spec = facts("None").wanted(&said, &plain).unwrap().spec;
    assert_eq!(spec["infra"]["status"]["apiServerInternalURI"], "https://said:6443");
    assert_eq!((&spec["clusterDNSIP"], &spec["ipFamilies"]), (&json!("10.0.0.1"), &json!("IPv4")));
    assert_eq!(pem(&spec["kubeAPIServerServingCAData"]), "said");
    let mut open = facts("None");
    open.network = None;
    open.infrastructure["status"]["apiServerURL"] = json!("");
    let spec = open.wanted(&ControllerConfigValues::default(), &plain).unwrap().spec;
    assert_eq!(spec["infra"]["status"]["apiServerURL"], "https://plain:6443");
    assert_eq!(spec["infra"]["status"]["apiServerInternalURI"], "https://api-int.example.com:6443");
    assert_eq!((&spec["ipFamilies"], spec.get("networkType")), (&json!("IPv6"), None));
    assert_eq!(pem(&spec["rootCAData"]), "plain", "until the config server has a CA of its own");
}

#[test]
fn the_kubelets_trust_is_that_of_a_complete_cluster_or_of_one_that_is_being_made() {
    let (old, new, other) = (
        certificate("kube-apiserver-to-kubelet-signer@1"),
        certificate("kube-apiserver-to-kubelet-signer@2"),
        certificate("kube-apiserver-lb-signer"),
    );
    let initial = format!("{other}{old}{other}");
    let made = with(
        facts("None"),
        ("openshift-config", "initial-kube-apiserver-server-ca"),
        &[("ca-bundle.crt", &initial)],
    );
    let of = |facts: &OpenShift| pem(&spec(facts)["kubeAPIServerServingCAData"]);
    assert_eq!(of(&made), initial);
    let signer = ("openshift-kube-apiserver-operator", "kube-apiserver-to-kubelet-client-ca");
    let made = with(made, signer, &[("ca-bundle.crt", &new)]);
    assert_eq!(of(&made), format!("{other}{other}{new}"));
    let complete = with(made, ("kube-system", "bootstrap"), &[]);
    let said = refused(&complete);
    assert!(
        said.contains("openshift-config-managed/kube-apiserver-client-ca has no ca-bundle.crt"),
        "{said}"
    );
    let place = ("openshift-config-managed", "kube-apiserver-client-ca");
    let complete = with(complete, place, &[("ca-bundle.crt", &new)]);
    assert_eq!(of(&complete), new);
    // The config server's own CA, or that of the installer.
    let root = with(complete, ("kube-system", "root-ca"), &[("ca.crt", "installer")]);
    assert_eq!(pem(&spec(&root)["rootCAData"]), "installer");
    let own = with(root, (NAMESPACE, "machine-config-server-ca"), &[("ca-bundle.crt", "own")]);
    assert_eq!(pem(&spec(&own)["rootCAData"]), "own");
}

#[test]
fn trust_of_hosts_and_registries() {
    let (user, by_proxy) = (certificate("user"), certificate("proxy"));
    let named = json!({"spec": {"trustedCA": {"name": "corporate"}},
        "status": {"httpsProxy": "http://p:3128", "noProxy": ".svc"}});
    let image = json!({"spec": {"additionalTrustedCA": {"name": "registry-cas"}}});
    let facts = OpenShift { proxy: Some(named), image: Some(image), ..facts("None") };
    let none = spec(&facts);
    assert_eq!(none["proxy"], json!({"httpsProxy": "http://p:3128", "noProxy": ".svc"}));
    for field in ["additionalTrustBundle", "imageRegistryBundleData", "imageRegistryBundleUserData"] {
        assert_eq!(none[field], Value::Null, "{field}");
    }
    let facts = with(facts, ("openshift-config", "user-ca-bundle"), &[("ca-bundle.crt", user.trim_end())]);
    let facts = with(facts, ("openshift-config", "corporate"), &[("ca-bundle.crt", &by_proxy)]);
    let own = [("b.svc..5000", "two"), ("a.svc", "one")];
    let facts = with(facts, ("openshift-config-managed", "image-registry-ca"), &own);
    // A value may be in base64.
    let theirs = [("q.example.com", "cXVheQ=="), ("p.example.com", "-----BEGIN")];
    let facts = with(facts, ("openshift-config", "registry-cas"), &theirs);
    let all = spec(&facts);
    assert_eq!(pem(&all["additionalTrustBundle"]), format!("{user}{by_proxy}"));
    let list = |field: &str| -> Vec<(String, String)> {
        let entries = all[field].as_array().unwrap().iter();
        entries.map(|e| (e["file"].as_str().unwrap().to_owned(), pem(&e["data"]))).collect()
    };
    let pairs = |list: &[(&str, &str)]| -> Vec<(String, String)> {
        list.iter().map(|(a, b)| ((*a).to_owned(), (*b).to_owned())).collect()
    };
    assert_eq!(list("imageRegistryBundleData"), pairs(&[("a.svc", "one"), ("b.svc..5000", "two")]));
    assert_eq!(
        list("imageRegistryBundleUserData"),
        pairs(&[("p.example.com", "-----BEGIN"), ("q.example.com", "quay")])
    );
    let broken = with(facts, ("openshift-config", "corporate"), &[("ca-bundle.crt", "nonsense")]);
    assert!(
        refused(&broken).starts_with("ConfigMap openshift-config/corporate: ca-bundle.crt is not a bundle")
    );
    assert_eq!(
        spec(&OpenShift { proxy: Some(json!({"spec": {"httpProxy": "x"}})), ..super::tests::facts("None") })
            ["proxy"],
        Value::Null
    );
}

#[test]
fn the_clouds_config_is_there_where_the_platform_needs_it() {
    const CLOUD: (&str, &str) = ("openshift-config-managed", "kube-cloud-config");
    let named = |mut facts: OpenShift| {
        facts.infrastructure["spec"]["cloudConfig"]["name"] = json!("cloud-provider-config");
        facts
    };
    let conf = |facts: &OpenShift| spec(facts)["cloudProviderConfig"].clone();
    assert_eq!(conf(&facts("AWS")), "");
    assert_eq!(conf(&facts("None")), "");
    assert!(refused(&facts("Azure")).contains("kube-cloud-config is missing: on Azure it"));
    assert!(refused(&named(facts("AWS"))).contains("Infrastructure cluster names a cloud config"));
    for platform in ["Azure", "GCP", "OpenStack", "VSphere"] {
        assert_eq!(conf(&with(facts(platform), CLOUD, &[("cloud.conf", "x=1")])), "x=1");
        let said = refused(&with(facts(platform), CLOUD, &[("other", "x")]));
        assert!(
            said.contains(&format!("has no cloud.conf, which the cloud provider needs on {platform}")),
            "{said}"
        );
    }
    assert_eq!(conf(&with(facts("AWS"), CLOUD, &[("other", "x")])), "");
    assert_eq!(conf(&named(with(facts("AWS"), CLOUD, &[("other", "x")]))), "");
    let ca = with(facts("AWS"), CLOUD, &[("ca-bundle.pem", "ca")]);
    assert_eq!(pem(&spec(&ca)["cloudProviderCAData"]), "ca");
}

#[test]
fn the_releases_images_are_not_among_these_fields_and_its_version_is_known() {
    let facts = OpenShift {
        version: Some(json!({"status": {"desired": {"version": "4.23.0", "image": "release"}}})),
        ..facts("None")
    };
    let wanted =
        facts.wanted(&ControllerConfigValues::default(), &ControllerConfigValues::default()).unwrap();
    assert_eq!(wanted.once["releaseImage"], "release");
    assert_eq!(facts.cluster_version().as_deref(), Some("4.23.0"));
    // They would reach controllers that are not of this release yet.
    for field in ["images", "baseOSContainerImage", "baseOSExtensionsContainerImage", "osImageURL"] {
        assert_eq!(wanted.spec.get(field), None, "{field}");
    }
    assert!(wanted.annotations.is_empty(), "{:?}", wanted.annotations);
}
