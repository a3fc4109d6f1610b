//! The Helm chart, `deploy/helm/mco`.
//!
//! CRDs are in `crds/`: Helm installs them first, and never changes or removes them. All other objects are templates,
//! with expressions where clusters differ.

use super::{Values, each_text, in_namespaces, is_users, parts, yaml};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::json;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// The chart's folder.
pub(crate) const FOLDER: &str = "deploy/helm/mco";

pub(super) fn files() -> anyhow::Result<BTreeMap<PathBuf, String>> {
    let folder = Path::new(FOLDER);
    let version = env!("CARGO_PKG_VERSION");
    let values = Values::placeholders();
    let steps = values.plan()?;
    let (definitions, others) = parts(&steps);
    let ca = STANDARD.encode(&values.api_server_ca);
    // Helm replaces each placeholder with one of these expressions. They contain no quotes, because YAML may quote the
    // text around them. Without a required value the chart installs nothing.
    let expressions = [
        (values.image.as_str(), "{{ required `image: the image of all pods` .Values.image }}"),
        (
            values.api_server_url.as_str(),
            "{{ required `apiServerURL: the API server as machines reach it` .Values.apiServerURL }}",
        ),
        (
            ca.as_str(),
            "{{ required `apiServerCA: the CA of the API server, PEM` .Values.apiServerCA | b64enc }}",
        ),
        (values.cluster_dns_ip.as_str(), "{{ .Values.clusterDNSIP }}"),
    ];
    let mut templates = vec![];
    for step in others {
        let mut object = step.object.clone();
        each_text(&mut object, &|text| {
            // Double braces in our own texts are not expressions of Helm and have to be escaped.
            let plain = text.replace("{{", "{{ `{{` }}");
            expressions
                .iter()
                .fold(plain, |text, (placeholder, expression)| text.replace(placeholder, expression))
        });
        if object["kind"] == "MachineConfigOperator" {
            let value = |path: &str| json!(format!("{{{{ .Values.{path} }}}}"));
            let spec = &mut object["spec"];
            spec["configServer"]["access"] = value("configServer.access");
            spec["configServer"][BALANCERS] = json!(BALANCERS);
            for field in ["prometheus", "dashboards"] {
                spec["monitoring"][field] = value(&format!("monitoring.{field}"));
            }
        }
        // Helm does not remove the settings object either: it goes with its CRD, which `mco uninstall` removes. Helm cannot
        // look up an object whose kind no longer exists, and so could never remove the release.
        if is_users(step) || object["kind"] == "MachineConfigOperator" {
            object["metadata"]["annotations"]["helm.sh/resource-policy"] = json!("keep");
        }
        templates.push(object);
    }
    let mut of_openshift = String::new();
    for (namespace, objects) in in_namespaces(&values)? {
        let objects = yaml(&objects)?;
        of_openshift += &format!(
            "{{{{- if has \"{namespace}\" .Values.openshiftNamespaces }}}}\n{objects}{{{{- end }}}}\n"
        );
    }
    let head = "# Made by `cargo xtask gen` of what `mco install` applies; do not edit.\n";
    let chart = format!(
        "{head}apiVersion: v2\nname: mco\ndescription: Machine Config Operator for any Kubernetes\ntype: application\n\
         version: {version}\nappVersion: {version}\nkubeVersion: \">=1.30.0-0\"\n"
    );
    Ok(BTreeMap::from([
        (folder.join("Chart.yaml"), chart),
        (folder.join("values.yaml"), format!("{head}{VALUES}")),
        (folder.join("crds/mco.yaml"), head.to_owned() + &yaml(definitions.iter().map(|s| &s.object))?),
        (folder.join("templates/mco.yaml"), head.to_owned() + &with_balancers(&yaml(&templates)?)),
        (folder.join("templates/openshift.yaml"), head.to_owned() + &of_openshift),
        (folder.join("templates/NOTES.txt"), NOTES.to_owned()),
    ]))
}

/// The settings' list of load balancers, which is left out when it is empty.
const BALANCERS: &str = "proxyProtocolFrom";

/// Replaces the placeholder with Helm's own list.
fn with_balancers(text: &str) -> String {
    let mark = format!("{BALANCERS}: {BALANCERS}");
    let lines = text.lines().map(|line| match line.strip_suffix(mark.as_str()) {
        Some(indent) => format!(
            "{indent}{{{{- with .Values.configServer.{BALANCERS} }}}}\n{indent}{BALANCERS}: {{{{ toJson . }}}}\n{indent}{{{{- end }}}}\n"
        ),
        None => format!("{line}\n"),
    });
    lines.collect()
}

const VALUES: &str = "\
# The image of all pods, the agents' too. Required.
image: \"\"
# The API server as machines reach it, https://HOST:PORT. Required.
apiServerURL: \"\"
# The CA that clients of the API server trust, PEM: --set-file apiServerCA=/etc/kubernetes/pki/ca.crt. Required.
apiServerCA: \"\"
# The address of the cluster's DNS service.
clusterDNSIP: 10.96.0.10
configServer:
  # Who gets a config: BootTokens (machines that show a boot token, over HTTPS) or Everybody (as `mco install --open`).
  access: BootTokens
  # Load balancers that send the client's address by PROXY protocol, version 2: addresses or ranges.
  proxyProtocolFrom: []
# Those of openshift-config, openshift-config-managed and openshift-kube-apiserver-operator that the cluster has: the operator
# gets the right to read ConfigMaps there, and the controller that to the pull secret.
openshiftNamespaces: []
monitoring:
  # ServiceMonitors and alerts: WhereServed (where the cluster has the Prometheus operator's kinds) or Never.
  prometheus: WhereServed
  # Dashboards for the sidecar of Grafana's chart: ConfigMaps or Never.
  dashboards: Never
";

const NOTES: &str = "\
The operator installs everything else, as MachineConfigOperator cluster says. That stays when this release is removed:
run `mco uninstall --yes` first to take it away, then remove the release. Helm does not change CRDs: before an upgrade run
  kubectl apply --server-side --force-conflicts -f crds/
with the folder of the new chart.
";
