//! Tests of the objects of a build: what they hold, and that they hold no credentials of the cluster.

use super::pod::SCRIPT;
use super::*;
use serde_json::json;
use std::io::Read as _;

#[test]
fn the_objects_of_a_build_hold_its_input_and_no_credentials_of_the_cluster() {
    let by_digest = format!("r.example.com/base@sha256:{}", "0a".repeat(32));
    let found =
        OsImage { of: "r.example.com/base:9".to_owned(), image: by_digest.clone(), ..OsImage::default() };
    let rendered: MachineConfig = serde_json::from_value(json!({
        "metadata": {"name": "rendered-infra-1", "annotations": {
            annotation::PROVENANCE: "packed", api::names::own::OS_IMAGE: found.text(),
        }},
        "spec": {
            "osImageURL": "r.example.com/base:9",
            "config": {"ignition": {"version": "3.5.0"}, "storage": {"files": [
                {"path": "/etc/containers/registries.conf", "contents": {"source": "data:,short-name-mode%20%3D%20%22enforcing%22"}},
            ]}},
        },
    }))
    .unwrap();
    let build: MachineOSBuild = serde_json::from_value(json!({
        "metadata": {"name": "infra-0", "uid": "u"},
        "spec": {
            "machineConfig": {"name": "rendered-infra-1"}, "machineOSConfig": {"name": "infra"},
            "renderedImagePushSpec": "r.example.com/os:infra-0",
        },
    }))
    .unwrap();
    let config: MachineOSConfig = serde_json::from_value(json!({
        "metadata": {"name": "infra"},
        "spec": {
            "renderedImagePushSecret": {"name": "push"}, "baseImagePullSecret": {"name": "pull"},
            "renderedImagePushSpec": "r.example.com/os:latest",
        },
    }))
    .unwrap();
    let cluster: ControllerConfigSpec = serde_json::from_value(json!({
        "additionalTrustBundle": "UEVN", "proxy": {"httpProxy": "http://proxy:3128", "httpsProxy": "", "noProxy": ""},
        "imageRegistryBundleUserData": [{"file": "r.example.com..5000", "data": "UEVN"}, {"file": "../etc", "data": ""}],
    }))
    .unwrap();
    let now = Time(jiff::Timestamp::from_second(1_767_225_600).unwrap());
    let inputs = Inputs {
        pool: "infra",
        build: &build,
        config: &config,
        rendered: &rendered,
        cluster: Some(&cluster),
        builder: "buildah",
        now: &now,
    };
    let Objects { config_maps, job } = of(inputs).unwrap();
    let names: Vec<_> = config_maps.iter().filter_map(|m| m.metadata.name.as_deref()).collect();
    assert_eq!(
        names,
        [
            "containerfile-infra-0",
            "mc-infra-0",
            "additionaltrustbundle-infra-0",
            "etc-registries-infra-0",
            "registry-cas-infra-0"
        ]
    );
    let data = config_maps[1].data.as_ref().unwrap();
    let packed = base64::engine::general_purpose::STANDARD.decode(&data["machineconfig.json.gz"]).unwrap();
    let mut json = String::new();
    flate2::read::GzDecoder::new(packed.as_slice()).read_to_string(&mut json).unwrap();
    assert!(json.contains("registries.conf") && !json.contains("packed"), "{json}");
    assert_eq!(job["metadata"]["name"], "build-infra-0");
    assert_eq!(job["metadata"]["ownerReferences"][0]["uid"], "u");
    // Objects of these names that are there already.
    let found = |uid: &str| {
        let mut found = config_maps[0].metadata.clone();
        found.uid = Some("its own".to_owned());
        found.owner_references.as_mut().unwrap()[0].uid = uid.to_owned();
        found
    };
    assert_eq!(left_over(&build, &found("u")), LeftOver::SameBuild);
    let earlier = LeftOver::EarlierBuild { uid: "its own".to_owned() };
    assert_eq!(left_over(&build, &found("earlier")), earlier);
    assert_eq!(left_over(&build, &api::k8s::ObjectMeta::default()), LeftOver::Foreign);
    let pod = &job["spec"]["template"]["spec"];
    assert_eq!(pod["automountServiceAccountToken"], false);
    // What OpenShift needs to let it run as root, and to trust the cluster's own registry.
    assert_eq!(pod["serviceAccountName"], "machine-os-builder");
    assert_eq!(job["spec"]["template"]["metadata"]["annotations"]["openshift.io/required-scc"], "anyuid");
    // By a digest it needs no ConfigMap of a base; by a tag its pod takes the one that an earlier pod has found.
    assert!(!pod["volumes"].to_string().contains("base-infra-0"));
    let mut by_tag = rendered.clone();
    by_tag.metadata.annotations = None;
    let tagged = of(Inputs { rendered: &by_tag, ..inputs }).unwrap().job;
    let volume = json!({"name": "base", "configMap": {"name": "base-infra-0", "optional": true}});
    let tagged = &tagged["spec"]["template"]["spec"];
    assert!(tagged["volumes"].as_array().unwrap().contains(&volume));
    let mount = json!({"name": "base", "mountPath": "/tmp/base"});
    assert!(tagged["containers"][0]["volumeMounts"].as_array().unwrap().contains(&mount));
    let map = base_map("infra", &build, &by_digest);
    assert_eq!(map.metadata.name.as_deref(), Some("base-infra-0"));
    assert!(SCRIPT.contains("/tmp/base/image") && map.data.unwrap()["image"] == by_digest);
    let authority = json!({"name": "openshift-service-ca.crt", "optional": true});
    assert!(pod["volumes"].as_array().unwrap().iter().any(|v| v["configMap"] == authority));
    let volumes = pod["volumes"].as_array().unwrap();
    let secret = |name: &str| volumes.iter().find(|v| v["secret"]["secretName"] == name).unwrap();
    assert!(secret("push")["secret"]["optional"] == true && secret("pull")["secret"]["optional"] == true);
    let mounted =
        volumes.iter().map(|v| v["name"].as_str().unwrap()).collect::<std::collections::BTreeSet<_>>();
    let container = &pod["containers"][0];
    let mounts = container["volumeMounts"].as_array().unwrap();
    assert_eq!(
        mounts.iter().map(|m| m["name"].as_str().unwrap()).collect::<std::collections::BTreeSet<_>>(),
        mounted
    );
    let set = |name: &str| container["env"].as_array().unwrap().iter().find(|e| e["name"] == name).cloned();
    assert_eq!(set("HTTP_PROXY").unwrap()["value"], "http://proxy:3128");
    assert_eq!(set("HTTPS_PROXY"), None);
    // Every variable that the script reads without a default is set.
    for name in [
        "FINAL_IMAGE_PUSH_CREDS",
        "BASE_IMAGE_PULL_CREDS",
        "PUSH_SECRET",
        "BUILD_NAMESPACE",
        "HOME",
        "TAG",
        "DIGEST_PREFIX",
        "NOT_PUSHED",
        "NOT_SIGNED",
        "BASE_OS_IMAGE_PULLSPEC",
        "BASE_NAME",
        "BUILT_FROM",
        "LIMIT_SECONDS",
        "END_SECONDS",
    ] {
        assert!(SCRIPT.contains(&format!("${name}")) && set(name).is_some(), "{name}");
    }
    // One base for all stages and tries, though its tag may move.
    let containerfile = &config_maps[0].data.as_ref().unwrap()["Containerfile"];
    let from = format!("FROM {by_digest} AS ");
    assert_eq!(containerfile.matches(&from).count(), 2, "{containerfile}");
    assert_eq!(set("BASE_OS_IMAGE_PULLSPEC").unwrap()["value"], by_digest);
    // Layers are kept beside the image, and taken from there unless somebody wants to build anew.
    assert_eq!(set("LAYER_CACHE").unwrap()["value"], "r.example.com/os");
    assert_eq!((set("FRESH_LAYERS"), set("SIGNING_SECRET")), (None, None));
    assert!(!volumes.iter().any(|v| v["name"] == "signing-secret"));
    let mut asked = (build.clone(), config.clone());
    asked.0.metadata.annotations = Some(BTreeMap::from([(names::FRESH.to_owned(), "true".to_owned())]));
    let notes = [(names::LAYER_CACHE, "none"), (names::SIGNING_SECRET, "os-signing")];
    asked.1.metadata.annotations =
        Some(notes.into_iter().map(|(k, v)| (k.to_owned(), v.to_owned())).collect());
    let signed = of(Inputs { build: &asked.0, config: &asked.1, ..inputs }).unwrap().job;
    let pod = &signed["spec"]["template"]["spec"];
    let env = pod["containers"][0]["env"].as_array().unwrap();
    let of_signed = |name: &str| env.iter().find(|e| e["name"] == name).map(|e| e["value"].clone());
    assert_eq!(of_signed("SIGNING_SECRET"), Some(json!("os-signing")));
    assert_eq!((of_signed("FRESH_LAYERS"), of_signed("LAYER_CACHE")), (Some(json!("1")), None));
    let volumes_of_signed = pod["volumes"].as_array().unwrap();
    let key = volumes_of_signed.iter().find(|v| v["name"] == "signing-secret").unwrap();
    let only_root = json!({"secretName": "os-signing", "optional": true, "defaultMode": 0o400});
    assert_eq!(key["secret"], only_root, "what a Containerfile runs cannot read it");
    // Certificates of registries, where buildah looks for them.
    let authorities = volumes.iter().find(|v| v["configMap"]["name"] == "registry-cas-infra-0").unwrap();
    let item = json!([{"key": "r.example.com..5000", "path": "r.example.com:5000/ca.crt"}]);
    assert_eq!(authorities["configMap"]["items"], item);
    // On plain Kubernetes it may make user namespaces; on OpenShift the SCC says what it may.
    assert_eq!(container["securityContext"]["seccompProfile"]["type"], "Unconfined");
    let openshift = ControllerConfigSpec { infra: Some(json!({"status": {}})), ..cluster.clone() };
    let there = of(Inputs { cluster: Some(&openshift), ..inputs }).unwrap().job;
    assert!(there["spec"]["template"]["spec"]["containers"][0]["securityContext"].is_null());
    let limit = set("LIMIT_SECONDS").unwrap()["value"].as_str().unwrap().parse::<i64>().unwrap();
    assert!(limit < DEADLINE_SECONDS, "what it wrote last is there when the deadline comes");
    let deadline = job["spec"]["activeDeadlineSeconds"].as_i64();
    assert_eq!(deadline, Some(DEADLINE_SECONDS));
    let end = set("END_SECONDS").unwrap()["value"].as_str().unwrap().parse::<i64>().unwrap();
    assert_eq!(end, 1_767_225_600 + limit, "the same for every pod of the build");
}
