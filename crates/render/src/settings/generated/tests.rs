//! Tables: what is generated in a cluster, with names and owners, and what is kept or deleted.

use super::*;
use crate::template::TemplateSet;
use crate::template::data::Data;
use crate::tls::TlsProfile;
use api::v1::ControllerConfig;
use serde_json::json;

const HASH: &str = "v1";

fn versions() -> Versions {
    Versions { raw: HASH.to_owned(), hash: HASH.to_owned() }
}

fn templates() -> TemplateSet {
    let kubelet = "path: /etc/kubernetes/kubelet.conf\nmode: 0644\ncontents:\n  inline: |\n    kind: \
                   KubeletConfiguration\n    apiVersion: kubelet.config.k8s.io/v1beta1\n    maxPods: 250\n";
    TemplateSet::from_map(
        ["master", "worker"]
            .map(|role| (format!("{role}/01-{role}-kubelet/_base/files/kubelet.yaml"), kubelet.to_owned())),
    )
}

fn pool(name: &str) -> MachineConfigPool {
    let labels = json!({"pool": name, "machineconfiguration.openshift.io/mco-built-in": ""});
    serde_json::from_value(
        json!({"metadata": {"name": name, "uid": format!("uid-{name}"), "labels": labels}}),
    )
    .unwrap()
}

/// A KubeletConfig for these pools, created at this second.
fn kubelet_config(name: &str, second: u32, pools: &[&str], config: Value) -> Value {
    json!({
        "kind": "KubeletConfig",
        "metadata": {"name": name, "uid": format!("uid-{name}"),
            "creationTimestamp": format!("2026-01-01T00:00:{second:02}Z")},
        "spec": {
            "machineConfigPoolSelector": {"matchExpressions": [{"key": "pool", "operator": "In", "values": pools}]},
            "kubeletConfig": config,
        },
    })
}

fn with_suffix(mut object: Value, suffix: &str) -> Value {
    object["metadata"]["annotations"] = json!({"machineconfiguration.openshift.io/mc-name-suffix": suffix});
    object
}

/// Plans in a cluster with the pools `infra` and `worker`.
fn planned(templates: &TemplateSet, objects: &[Value], existing: &[MachineConfig]) -> Plan {
    let config = ControllerConfig::default();
    let (tls, versions) = (TlsProfile::intermediate(), versions());
    let pools = [pool("infra"), pool("worker")];
    let of = |kind: &str| objects.iter().filter(|o| o["kind"] == kind).collect::<Vec<_>>();
    let data = Data { controller_config: &config, pull_secret: None, tls: &tls };
    plan(&Inputs {
        templates: &Rendering::new(templates, data),
        pools: pools.iter().collect(),
        settings: Settings {
            kubelet_configs: of("KubeletConfig"),
            runtime_configs: of("ContainerRuntimeConfig"),
            mirrors: of("ImageDigestMirrorSet"),
            image: of("Image").first().copied(),
            node: of("Node").first().copied(),
            ..Settings::default()
        },
        existing: existing.iter().collect(),
        versions: &versions,
        mode: Mode::Cluster,
    })
}

fn names(plan: &Plan) -> Vec<String> {
    let mut names: Vec<String> = plan.wanted.iter().map(|c| c.name_any()).collect();
    names.sort();
    names
}

fn of_kubelet_configs(plan: &Plan) -> Vec<String> {
    names(plan).into_iter().filter(|n| n.starts_with("99-")).collect()
}

fn gone(plan: &Plan) -> Vec<&str> {
    plan.gone.iter().map(|r| r.name.as_str()).collect()
}

fn text_of(config: &MachineConfig, path: &str) -> String {
    kubelet::template_file(&[RenderedTemplate::of(config)], path).unwrap_or_default()
}

#[test]
fn every_pool_gets_its_kubelet_config_and_nothing_is_said_of_registries_without_settings() {
    let plan = planned(&templates(), &[], &[]);
    assert_eq!(
        names(&plan),
        [
            "97-infra-generated-kubelet",
            "97-worker-generated-kubelet",
            "98-infra-generated-kubelet",
            "98-worker-generated-kubelet"
        ]
    );
    // No OS image is managed here, so there are no kernel arguments, which a host could not set.
    assert!(
        plan.wanted
            .iter()
            .all(|c| c.spec.kernel_arguments.is_none() && c.metadata.owner_references.is_none())
    );
    let without = planned(&TemplateSet::default(), &[], &plan.wanted);
    assert_eq!((names(&without).len(), gone(&without).len()), (0, 4), "the layer was switched off");
    let node = json!({"kind": "Node", "spec": {"cgroupMode": "v2"}});
    let with_node = planned(&templates(), &[node], &[]);
    let with_arguments: Vec<String> =
        with_node.wanted.iter().filter(|c| c.spec.kernel_arguments.is_some()).map(|c| c.name_any()).collect();
    assert_eq!(with_arguments, ["97-worker-generated-kubelet"]);
}

#[test]
fn each_object_has_a_number_of_its_own_that_never_changes() {
    let of = |name: &str, second: u32| kubelet_config(name, second, &["worker"], json!({"maxPods": 100}));
    let rows: [(Vec<Value>, &[&str]); 5] = [
        (vec![of("a", 1)], &["99-worker-generated-kubelet"]),
        (vec![of("b", 2), of("a", 1)], &["99-worker-generated-kubelet", "99-worker-generated-kubelet-1"]),
        (vec![with_suffix(of("a", 1), "3")], &["99-worker-generated-kubelet-3"]),
        // The first one was deleted: its name is not used again.
        (
            vec![with_suffix(of("b", 2), "1"), of("c", 3)],
            &["99-worker-generated-kubelet-1", "99-worker-generated-kubelet-2"],
        ),
        // The older one was created before the annotation existed.
        (
            vec![
                {
                    let mut old = of("a", 1);
                    old["metadata"]["finalizers"] = json!(["99-worker-generated-kubelet", "somebody/else"]);
                    old
                },
                with_suffix(of("b", 2), "1"),
            ],
            &["99-worker-generated-kubelet", "99-worker-generated-kubelet-1"],
        ),
    ];
    for (objects, want) in rows {
        let stands = planned(&templates(), &[of("a", 1)], &[]).wanted;
        assert_eq!(of_kubelet_configs(&planned(&templates(), &objects, &stands)), want, "{objects:?}");
    }
    let all: Vec<Value> = (0..11).map(|i| of(&format!("k{i:02}"), i)).collect();
    let plan = planned(&templates(), &all, &[]);
    assert_eq!(of_kubelet_configs(&plan).len(), 10);
    let last = plan.objects.last().unwrap().verdict.clone().unwrap().unwrap_err().to_string();
    assert!(last.contains("KubeletConfig k10") && last.contains("max number (10)"), "{last}");
}

#[test]
fn an_object_writes_its_number_and_its_names_into_itself() {
    let plan = planned(&templates(), &[kubelet_config("a", 1, &["worker", "infra"], json!({}))], &[]);
    let object = &plan.objects[0];
    assert_eq!(object.suffix.as_deref(), Some(""));
    let finalizers = object.finalizers.clone().unwrap();
    assert_eq!(finalizers, ["99-infra-generated-kubelet", "99-worker-generated-kubelet"]);
    assert_eq!(object.verdict, Some(Ok(())));
    let made = plan.wanted.iter().find(|c| c.name_any() == "99-infra-generated-kubelet").unwrap();
    let owner = &made.metadata.owner_references.as_ref().unwrap()[0];
    assert_eq!(
        (owner.kind.as_str(), owner.uid.as_str(), owner.controller),
        ("KubeletConfig", "uid-a", Some(true))
    );
    // Once they exist, nothing is left to write. Other finalizers stay.
    let mut done = with_suffix(kubelet_config("a", 1, &["worker", "infra"], json!({})), "");
    done["metadata"]["finalizers"] =
        json!(["99-infra-generated-kubelet", "99-worker-generated-kubelet", "foregroundDeletion"]);
    let object = &planned(&templates(), &[done.clone()], &[]).objects[0];
    assert_eq!((&object.suffix, &object.finalizers), (&None, &None));
    done["metadata"]["finalizers"] = json!(["99-infra-generated-kubelet", "foregroundDeletion"]);
    let object = &planned(&templates(), &[done], &[]).objects[0];
    assert_eq!(
        object.finalizers.as_deref().unwrap(),
        ["foregroundDeletion", "99-infra-generated-kubelet", "99-worker-generated-kubelet"]
    );
}

#[test]
fn what_is_refused_keeps_what_it_made_and_names_the_field() {
    let good = kubelet_config("a", 1, &["worker"], json!({"maxPods": 100}));
    let stands = planned(&templates(), std::slice::from_ref(&good), &[]).wanted;
    let mut bad = good.clone();
    bad["spec"]["kubeletConfig"] = json!({"clusterDomain": "x"});
    let plan = planned(&templates(), &[bad.clone()], &stands);
    let said = plan.objects[0].verdict.clone().unwrap().unwrap_err().to_string();
    assert!(said.starts_with("KubeletConfig a: spec.kubeletConfig.clusterDomain"), "{said}");
    assert_eq!(plan.refused.keys().collect::<Vec<_>>(), ["worker"]);
    assert!(plan.gone.is_empty() && plan.kept.contains("99-worker-generated-kubelet"), "{:?}", plan.gone);
    assert!(of_kubelet_configs(&plan).is_empty(), "neither removed nor written");
    // The same if the selector is invalid.
    bad = good;
    bad["spec"]["machineConfigPoolSelector"] =
        json!({"matchExpressions": [{"key": "pool", "operator": "Like", "values": ["x"]}]});
    let plan = planned(&templates(), &[bad.clone()], &stands);
    assert!(plan.gone.is_empty() && plan.refused.contains_key("worker"), "{plan:?}");
    // The verdict goes into the object's status, so it quotes no value.
    bad["spec"]["machineConfigPoolSelector"] = json!({"matchLabels": "hunter2"});
    let plan = planned(&templates(), &[bad], &stands);
    let said = plan.objects[0].verdict.clone().unwrap().unwrap_err().to_string();
    assert!(said.contains("matchLabels") && !said.contains("hunter2"), "{said}");
    // A MachineConfig of another version is marked with this version now, and gets its content.
    let mut old = stands;
    for config in &mut old {
        config.annotations_mut().insert(annotation::GENERATED_BY_CONTROLLER.to_owned(), "v0".to_owned());
    }
    let mut bad = kubelet_config("a", 1, &["worker"], json!({"clusterDomain": "x"}));
    bad["spec"]["logLevel"] = json!(99);
    let plan = planned(&templates(), &[bad], &old);
    let kept = plan.wanted.iter().find(|c| c.name_any() == "99-worker-generated-kubelet").unwrap();
    assert_eq!(kept.annotations()[annotation::GENERATED_BY_CONTROLLER], HASH);
    assert!(text_of(kept, kubelet::KUBELET_CONF).contains("maxPods: 100"));
}

#[test]
fn a_pool_that_is_not_selected_any_more_loses_it_and_a_deleted_object_takes_all_with_it() {
    let both = kubelet_config("a", 1, &["worker", "infra"], json!({"maxPods": 100}));
    let stands = planned(&templates(), &[both], &[]).wanted;
    let mut one = with_suffix(kubelet_config("a", 1, &["infra"], json!({"maxPods": 100})), "");
    one["metadata"]["finalizers"] = json!(["99-infra-generated-kubelet", "99-worker-generated-kubelet"]);
    let plan = planned(&templates(), &[one.clone()], &stands);
    assert_eq!(gone(&plan), ["99-worker-generated-kubelet"]);
    assert_eq!(plan.objects[0].finalizers.as_deref().unwrap(), ["99-infra-generated-kubelet"]);
    one["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
    let plan = planned(&templates(), &[one], &stands);
    assert_eq!(gone(&plan), ["99-infra-generated-kubelet", "99-worker-generated-kubelet"]);
    let object = &plan.objects[0];
    assert_eq!(
        (object.deleting, object.finalizers.as_deref(), &object.verdict),
        (true, Some(&[][..]), &None)
    );
    // The object was deleted while no controller ran: we delete what it generated, because there may be no garbage
    // collector.
    assert_eq!(
        gone(&planned(&templates(), &[], &stands)),
        ["99-infra-generated-kubelet", "99-worker-generated-kubelet"]
    );
    // An object that selects no pool is reported, and does not delay any rendering.
    let plan = planned(&templates(), &[kubelet_config("a", 1, &["nobody"], json!({}))], &[]);
    let said = plan.objects[0].verdict.clone().unwrap().unwrap_err().to_string();
    assert!(said.contains("could not find any MachineConfigPool") && plan.refused.is_empty(), "{said}");
}

#[test]
fn two_objects_with_one_name_do_not_write_over_each_other() {
    let a = with_suffix(kubelet_config("a", 1, &["worker"], json!({})), "");
    let b = with_suffix(kubelet_config("b", 2, &["worker", "infra"], json!({})), "");
    let plan = planned(&templates(), &[a, b], &[]);
    assert_eq!(of_kubelet_configs(&plan), ["99-worker-generated-kubelet"]);
    let said = plan.objects[1].verdict.clone().unwrap().unwrap_err().to_string();
    assert!(
        said.starts_with("KubeletConfig b: MachineConfig 99-worker-generated-kubelet")
            && said.contains("remove"),
        "{said}"
    );
}

#[test]
fn where_kubelets_are_left_to_others_a_kubelet_config_says_how_to_switch_it_on() {
    let objects = [kubelet_config("a", 1, &["worker"], json!({}))];
    let plan = planned(&TemplateSet::default(), &objects, &[]);
    let said = plan.objects[0].verdict.clone().unwrap().unwrap_err().to_string();
    assert!(said.contains("template-layers=kubeadm") && plan.refused.contains_key("worker"), "{said}");
}

#[test]
fn a_drop_in_says_only_what_is_set() {
    let template = "path: /etc/kubernetes/kubelet.conf.d/50-mco.conf\nmode: 0644\ncontents:\n  inline: |\n    kind: \
                    KubeletConfiguration\n    apiVersion: kubelet.config.k8s.io/v1beta1\n";
    let place = "worker/01-worker-kubelet/_base/files/kubelet.yaml";
    let templates = TemplateSet::from_map([(place.to_owned(), template.to_owned())]);
    let mut object = kubelet_config(
        "a",
        1,
        &["worker"],
        json!({"maxPods": 100, "systemReserved": {"memory": "2Gi"}, "protectKernelDefaults": false}),
    );
    object["spec"]["logLevel"] = json!(4);
    let plan = planned(&templates, &[object.clone()], &[]);
    let made = plan.wanted.iter().find(|c| c.name_any() == "99-worker-generated-kubelet").unwrap();
    assert_eq!(
        text_of(made, kubelet::KUBELET_DROP_IN),
        "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\nlogging:\n  verbosity: 4\nmaxPods: \
         100\nprotectKernelDefaults: false\nsystemReserved:\n  memory: 2Gi\n"
    );
    object["spec"] = json!({"machineConfigPoolSelector": object["spec"]["machineConfigPoolSelector"], "autoSizingReserved": true});
    let said =
        planned(&templates, &[object], &[]).objects[0].verdict.clone().unwrap().unwrap_err().to_string();
    assert!(said.contains("spec.autoSizingReserved") && said.contains("systemReserved"), "{said}");
}

#[test]
fn registries_are_for_built_in_pools_and_a_bad_mirror_keeps_the_last_good_ones() {
    let good = json!({"kind": "ImageDigestMirrorSet", "metadata": {"name": "m"},
        "spec": {"imageDigestMirrors": [{"source": "a.example/x", "mirrors": ["b.example/x"]}]}});
    let image = json!({"kind": "Image", "metadata": {"name": "cluster", "uid": "i"}, "spec": {}});
    let plan = planned(&TemplateSet::default(), &[good.clone(), image], &[]);
    assert_eq!(names(&plan), ["99-infra-generated-registries", "99-worker-generated-registries"]);
    let owner = plan.wanted[0].metadata.owner_references.clone().unwrap();
    assert_eq!((owner[0].kind.as_str(), owner[0].controller), ("Image", None));
    assert!(text_of(&plan.wanted[0], registries::REGISTRIES_CONF).contains("b.example/x"));
    let stands = plan.wanted;
    let mut bad = good;
    bad["spec"]["imageDigestMirrors"][0]["mirrors"] = json!(["B/x:tag"]);
    let plan = planned(&TemplateSet::default(), &[bad], &stands);
    assert!(plan.gone.is_empty() && plan.wanted.is_empty(), "{plan:?}");
    let said = plan.refused["infra"][0].to_string();
    assert!(said.starts_with("ImageDigestMirrorSet m: spec.imageDigestMirrors[0].mirrors"), "{said}");
    assert_eq!(gone(&planned(&TemplateSet::default(), &[], &stands)).len(), 2, "no settings any more");
    // A MachineConfig from bootstrap has no version mark; the settings that it came from may not have been created yet.
    let mut unmarked = stands;
    unmarked.iter_mut().for_each(|c| c.metadata.annotations = None);
    assert!(gone(&planned(&TemplateSet::default(), &[], &unmarked)).is_empty());
}

#[test]
fn configs_of_users_and_of_others_stay_and_those_of_old_versions_and_names_go() {
    let mc = |name: &str, version: &str| {
        let mut mc = MachineConfig::default();
        mc.metadata.name = Some(name.to_owned());
        if !version.is_empty() {
            mc.annotations_mut().insert(annotation::GENERATED_BY_CONTROLLER.to_owned(), version.to_owned());
        }
        mc
    };
    let existing = [
        mc("99-worker-generated-kubelet", ""),
        mc("99-worker-generated-kubelet-9", HASH),
        mc("50-worker-mine", "v0"),
        mc("99-worker-ssh", "v0"),
        mc("99-worker-generated-containerruntime", "v0"),
        mc("98-left-generated-kubelet", HASH),
        mc("99-worker-uid-worker-kubelet", "v0"),
    ];
    assert_eq!(
        gone(&planned(&templates(), &[], &existing)),
        ["99-worker-generated-containerruntime", "98-left-generated-kubelet", "99-worker-uid-worker-kubelet"]
    );
}
