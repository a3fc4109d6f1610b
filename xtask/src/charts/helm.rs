//! The Helm chart, `deploy/helm/mco`.
//!
//! CRDs are in `crds/`: Helm installs them first, and never changes or removes them. All other objects are templates,
//! with expressions where clusters differ.

use super::{Values, each_text, in_namespaces, is_users, parts, yaml};
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
    // Helm replaces each placeholder with one of these expressions. They contain no quotes, because YAML may quote the
    // text around them. Without a required value the chart installs nothing.
    let expressions = [
        (values.image.as_str(), "{{ required `image: the image of all pods` .Values.image }}"),
        (
            values.api_server_url.as_str(),
            "{{ required `apiServerURL: the API server as machines reach it` .Values.apiServerURL }}",
        ),
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
            for Optional { parent, field, .. } in OPTIONAL {
                if let Some(parent) = spec.pointer_mut(parent) {
                    parent[field] = json!(field);
                }
            }
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
        (folder.join("templates/mco.yaml"), head.to_owned() + &with_optional(&yaml(&templates)?)),
        (folder.join("templates/openshift.yaml"), head.to_owned() + &of_openshift),
        (folder.join("templates/NOTES.txt"), NOTES.to_owned()),
    ]))
}

/// A field of the settings that is left out where its value is empty.
struct Optional {
    /// Where it stands in the settings.
    parent: &'static str,
    /// Its name, which is its own placeholder.
    field: &'static str,
    /// The value.
    value: &'static str,
    /// What stands there for the value.
    text: &'static str,
}

/// All of them. Whatever stands there is the administrator's word, which the operator does not replace by what it finds.
const OPTIONAL: [Optional; 3] = [
    Optional { parent: "/apiServer", field: "caData", value: "apiServerCA", text: "\"{{ b64enc . }}\"" },
    Optional { parent: "", field: "clusterDNSIP", value: "clusterDNSIP", text: "\"{{ . }}\"" },
    Optional {
        parent: "/configServer",
        field: "proxyProtocolFrom",
        value: "configServer.proxyProtocolFrom",
        text: "{{ toJson . }}",
    },
];

/// Replaces the placeholders of [`OPTIONAL`].
fn with_optional(text: &str) -> String {
    let lines = text.lines().map(|line| {
        let found = OPTIONAL.iter().find_map(|optional| {
            let indent = line.strip_suffix(&format!("{0}: {0}", optional.field))?;
            Some((indent, optional))
        });
        match found {
            Some((indent, Optional { field, value, text: expression, .. })) => format!(
                "{indent}{{{{- with .Values.{value} }}}}\n{indent}{field}: {expression}\n{indent}{{{{- end }}}}\n"
            ),
            None => format!("{line}\n"),
        }
    });
    lines.collect()
}

const VALUES: &str = "\
# The image of all pods, the agents' too. Required.
image: \"\"
# The API server as machines reach it, https://HOST:PORT. Required.
apiServerURL: \"\"
# The CA that clients of the API server trust, PEM, as by --set-file apiServerCA=ca.crt. Without it the operator takes that of the
# ConfigMap kube-root-ca.crt, and follows it when it is rotated. A CA from here stays until it is changed here.
apiServerCA: \"\"
# The address of the cluster's DNS service. Without it the operator takes that of the cluster's own.
clusterDNSIP: \"\"
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
