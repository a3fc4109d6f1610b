//! The shipped template set: it renders for a bare cluster and for one with everything set.
//!
//! Not here: what the result does on a host.
#![allow(clippy::unwrap_used, clippy::panic, clippy::needless_pass_by_value, reason = "helpers of tests")]

#[path = "common/template_folder.rs"]
mod template_folder;

use api::v1::{ControllerConfig, ControllerConfigSpec, MachineConfig, MachineConfigPool, ProxyStatus};
use render::template::Rendering;
use render::{Inputs, TemplateData, TemplateSet, TlsProfile, Versions, template};
use serde_json::json;
use std::collections::BTreeMap;
use std::path::Path;

fn shipped() -> TemplateSet {
    template_folder::read(&Path::new(env!("CARGO_MANIFEST_DIR")).join("../../templates"))
}

fn generate(set: &TemplateSet, cc: &ControllerConfig) -> Result<Vec<MachineConfig>, template::TemplateError> {
    let tls = TlsProfile::intermediate();
    let data = TemplateData { controller_config: cc, pull_secret: None, tls: &tls };
    template::generate(&Rendering::new(set, data), &Versions::unknown())
}

fn paths(mc: &MachineConfig) -> Vec<String> {
    let files = mc.spec.config.as_ref().and_then(|c| c.pointer("/storage/files")).and_then(|f| f.as_array());
    files.into_iter().flatten().map(|f| f["path"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn the_shipped_set_makes_three_machine_configs_a_role_and_they_render() {
    let cc = ControllerConfig::new("machine-config-controller", ControllerConfigSpec::default());
    let all = generate(&shipped(), &cc).unwrap();
    let names: Vec<&str> = all.iter().map(|mc| mc.metadata.name.as_deref().unwrap()).collect();
    assert_eq!(
        names,
        [
            "00-master",
            "00-worker",
            "01-master-container-runtime",
            "01-master-kubelet",
            "01-worker-container-runtime",
            "01-worker-kubelet"
        ]
    );
    assert_eq!(
        paths(&all[1]),
        [
            "/etc/systemd/system.conf.d/90-accounting.conf",
            "/etc/sysctl.d/90-inotify.conf",
            "/etc/sysctl.d/90-neighbours.conf"
        ]
    );
    let pool: MachineConfigPool = serde_json::from_value(json!({"metadata": {"name": "worker"}, "spec":
        {"machineConfigSelector": {"matchLabels": {"machineconfiguration.openshift.io/role": "worker"}}}}))
    .unwrap();
    let picked = render::select(&pool, &all).unwrap();
    let versions = Versions::unknown();
    let plan = render::plan(&Inputs::new(&pool, &picked, &cc, &versions)).unwrap();
    assert_eq!((plan.source.len(), plan.warnings.len()), (3, 0), "{:?}", plan.warnings);
}

#[test]
fn a_proxy_and_a_trust_bundle_become_files() {
    let spec = ControllerConfigSpec {
        proxy: Some(ProxyStatus { http_proxy: "http://p:3128".to_owned(), ..ProxyStatus::default() }),
        additional_trust_bundle: Some(api::k8s::ByteString(b"-----BEGIN\nx\n-----END\n".to_vec())),
        ..ControllerConfigSpec::default()
    };
    let all = generate(&shipped(), &ControllerConfig::new("machine-config-controller", spec)).unwrap();
    let config = ignition::parse_value(all[1].spec.config.as_ref().unwrap()).unwrap().config;
    let text = |path: &str| {
        let file = config.storage.files.iter().find(|f| f.path == path).unwrap();
        String::from_utf8(file.contents.decode().unwrap()).unwrap()
    };
    let proxy = text("/etc/mco/proxy.env");
    assert!(proxy.ends_with("\nHTTP_PROXY=http://p:3128\n"), "{proxy}");
    let bundle = text("/etc/pki/ca-trust/source/anchors/openshift-config-user-ca-bundle.crt");
    assert_eq!(bundle, "-----BEGIN\nx\n-----END\n");
}

fn mk(files: &[(&str, &str)]) -> TemplateSet {
    TemplateSet::from_map(files.iter().map(|(p, t)| ((*p).to_owned(), (*t).to_owned())))
}

const A: &str = "path: /etc/a\nmode: 0644\ncontents: {inline: a}\n";
const B: &str = "path: /etc/b\nmode: 0600\ncontents: {inline: b}\n";

#[test]
fn later_layers_win_by_file_name_and_an_empty_file_removes() {
    let set = mk(&[
        ("common/_base/files/x.yaml", A),
        ("common/_base/files/y.yaml", A),
        ("common/_base/files/z.yaml", "path: /etc/z\nmode: 0644\ncontents: {inline: z}\n"),
        ("worker/00-worker/_base/files/x.yaml", B),
        ("worker/00-worker/_base/files/y.yaml", ""),
        ("worker/00-worker/_base/files/z.yaml", "{% if false %}x{% endif %}"),
        ("worker/01-worker-kubelet/_base/files/k.yaml", A),
        ("worker/note.txt", "not a template"),
    ]);
    let all = generate(&set, &ControllerConfig::default()).unwrap();
    assert_eq!(paths(&all[0]), ["/etc/b"]);
    assert_eq!(paths(&all[1]), ["/etc/a"]);
}

#[test]
fn a_role_without_templates_uses_those_of_worker() {
    let set = mk(&[("worker/00-worker/_base/files/x.yaml", A)]);
    let tls = TlsProfile::intermediate();
    let cc = ControllerConfig::default();
    let data = TemplateData { controller_config: &cc, pull_secret: None, tls: &tls };
    let all = template::generate_role(&Rendering::new(&set, data), &Versions::unknown(), "infra").unwrap();
    let label =
        all[0].metadata.labels.as_ref().unwrap().get("machineconfiguration.openshift.io/role").unwrap();
    assert_eq!((all[0].metadata.name.as_deref(), label.as_str()), (Some("00-worker"), "infra"));
}

#[test]
fn arbiters_have_templates_only_in_their_topology() {
    let set = mk(&[("arbiter/00-arbiter/_base/files/x.yaml", A)]);
    assert!(generate(&set, &ControllerConfig::default()).unwrap().is_empty());
    let infra = json!({"status": {"controlPlaneTopology": "HighlyAvailableArbiter"}});
    let spec = ControllerConfigSpec { infra: Some(infra), ..ControllerConfigSpec::default() };
    assert_eq!(generate(&set, &ControllerConfig::new("c", spec)).unwrap().len(), 1);
}

#[test]
fn units_and_extensions_have_their_folders() {
    let set = mk(&[
        (
            "worker/00-worker/_base/units/a.service.yaml",
            "name: a.service\nenabled: true\ncontents: |\n  [Unit]\n",
        ),
        ("worker/00-worker/_base/extensions/usbguard", "yes"),
        ("worker/00-worker/_base/extensions/ipsec", "{% if platformType() == 'AWS' %}yes{% endif %}"),
    ]);
    let all = generate(&set, &ControllerConfig::default()).unwrap();
    assert_eq!(all[0].spec.extensions, Some(vec!["usbguard".to_owned()]));
    let config = all[0].spec.config.as_ref().unwrap();
    assert_eq!(config["systemd"]["units"][0]["contents"], "[Unit]\n");
}

#[test]
fn template_errors_name_the_template_and_the_line() {
    let rows = [
        ("{{ nonsense }}", "undefined"),
        ("path: /etc/a\nmod: 0644\ncontents: {inline: a}\n", "mod"),
        ("path: etc/a\nmode: 0644\ncontents: {inline: a}\n", "absolute"),
        ("path: [", "line"),
        ("{% if %}", "line 1"),
        ("path: /etc/a\ncontents: {inline: a, source: 'data:,b'}\n", "not both"),
    ];
    for (text, want) in rows {
        let set = mk(&[("worker/00-worker/_base/files/x.yaml", text)]);
        let e = generate(&set, &ControllerConfig::default()).unwrap_err().to_string();
        assert!(e.contains("worker/00-worker/_base/files/x.yaml") && e.contains(want), "{text}: {e}");
    }
}

#[test]
fn a_template_error_does_not_show_the_pull_secret() {
    let set = mk(&[("worker/00-worker/_base/files/x.yaml", "{{ pullSecret.nonsense.more }}")]);
    let tls = TlsProfile::intermediate();
    let cc = ControllerConfig::default();
    let data = TemplateData { controller_config: &cc, pull_secret: Some("TOP-SECRET"), tls: &tls };
    let rendering = Rendering::new(&set, data);
    let e = template::generate(&rendering, &Versions::unknown()).unwrap_err();
    assert!(!format!("{rendering:?} {e} {e:?}").contains("TOP-SECRET"), "{e:?}");
}

/// The shipped set with these layers enabled.
fn layered(layers: &str) -> Result<BTreeMap<String, MachineConfig>, template::TemplateError> {
    let mut cc = ControllerConfig::new("machine-config-controller", ControllerConfigSpec::default());
    cc.spec.cluster_dns_ip = "10.96.0.10".to_owned();
    let note = "machineconfiguration.openshift.io/template-layers";
    cc.metadata.annotations = Some(BTreeMap::from([(note.to_owned(), layers.to_owned())]));
    let all = generate(&shipped(), &cc)?;
    Ok(all.into_iter().map(|mc| (mc.metadata.name.clone().unwrap(), mc)).collect())
}

fn units(mc: &MachineConfig) -> Vec<String> {
    let units = mc.spec.config.as_ref().and_then(|c| c.pointer("/systemd/units")).and_then(|f| f.as_array());
    units.into_iter().flatten().map(|u| u["name"].as_str().unwrap().to_owned()).collect()
}

fn content(mc: &MachineConfig, path: &str) -> String {
    let config = ignition::parse_value(mc.spec.config.as_ref().unwrap()).unwrap().config;
    let file = config.storage.files.iter().find(|f| f.path == path).unwrap();
    String::from_utf8(file.contents.decode().unwrap()).unwrap()
}

#[test]
fn no_layer_that_replaces_files_of_others_is_on_by_default() {
    let all = layered("").unwrap();
    for mc in all.values() {
        assert!(units(mc).is_empty(), "{:?}", units(mc));
        for path in paths(mc) {
            assert!(
                path.starts_with("/etc/sysctl.d/90-")
                    || path.starts_with("/etc/modules-load.d/90-")
                    || path == "/etc/systemd/system.conf.d/90-accounting.conf",
                "{path}: may stand on a host that others have set up?"
            );
        }
    }
}

#[test]
fn the_kubeadm_layer_leaves_kubeadms_files_alone() {
    let all = layered("kubeadm").unwrap();
    for role in ["master", "worker"] {
        let mc = &all[&format!("01-{role}-kubelet")];
        assert_eq!(
            paths(mc),
            ["/etc/kubernetes/kubelet.conf.d/50-mco.conf", "/etc/sysctl.d/90-kubelet.conf"]
        );
        assert_eq!(units(mc), ["kubelet.service"]);
        let unit = &mc.spec.config.as_ref().unwrap()["systemd"]["units"][0];
        assert_eq!((unit.get("contents"), unit.get("enabled")), (None, None), "{unit}");
        assert!(
            unit["dropins"][0]["contents"]
                .as_str()
                .unwrap()
                .contains("--config-dir=/etc/kubernetes/kubelet.conf.d")
        );
    }
}

#[test]
fn each_layer_makes_its_documented_files() {
    let all = layered("kubelet, crio,core-user").unwrap();
    let kubelet = content(&all["01-worker-kubelet"], "/etc/kubernetes/kubelet.conf");
    let kubelet: serde_json::Value = api::formats::yaml::from_str(&kubelet).unwrap();
    assert_eq!(kubelet["clusterDNS"], json!(["10.96.0.10"]));
    assert_eq!(kubelet["containerRuntimeEndpoint"], "unix:///var/run/crio/crio.sock");
    assert_eq!(kubelet["tlsCipherSuites"].as_array().unwrap().len(), 9);
    let master = content(&all["01-master-kubelet"], "/etc/kubernetes/kubelet.conf");
    assert!(master.contains("node-role.kubernetes.io/control-plane"), "{master}");
    assert_eq!(units(&all["01-worker-kubelet"]), ["kubelet.service", "mco-node-sizing.service"]);
    let runtime = &all["01-worker-container-runtime"];
    for path in [
        "/etc/containers/storage.conf",
        "/etc/containers/registries.conf",
        "/etc/crio/crio.conf.d/00-default",
    ] {
        content(runtime, path).parse::<toml::Table>().unwrap_or_else(|e| panic!("{path}: {e}"));
    }
    let policy: serde_json::Value =
        serde_json::from_str(&content(runtime, "/etc/containers/policy.json")).unwrap();
    assert!(policy["default"].is_array());
    assert!(paths(&all["00-worker"]).contains(&"/etc/sysusers.d/mco-core.conf".to_owned()));
    let all = layered("kubelet,containerd").unwrap();
    let kubelet = content(&all["01-worker-kubelet"], "/etc/kubernetes/kubelet.conf");
    assert!(kubelet.contains("unix:///run/containerd/containerd.sock"), "{kubelet}");
    let config = content(&all["01-worker-container-runtime"], "/etc/containerd/config.toml");
    config.parse::<toml::Table>().unwrap();
    let e = layered("kubeadmin").unwrap_err().to_string();
    assert!(e.contains("template-layers") && e.contains("\"kubeadmin\"") && e.contains("kubeadm,"), "{e}");
}

#[test]
fn every_shipped_template_begins_with_its_purpose() {
    fn walk(dir: &Path, count: &mut usize) {
        for entry in std::fs::read_dir(dir).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                walk(&path, count);
            } else if path.extension().is_some_and(|e| e == "yaml") {
                let text = std::fs::read_to_string(&path).unwrap();
                let first = text.lines().next().unwrap();
                let why = first.strip_prefix("# ").or_else(|| first.strip_prefix("{# ")).unwrap_or_default();
                assert!(why.split(' ').count() > 5, "{}: {first}", path.display());
                *count += 1;
            }
        }
    }
    let mut count = 0;
    walk(&Path::new(env!("CARGO_MANIFEST_DIR")).join("../../templates"), &mut count);
    assert!(count > 30, "{count}");
}
