//! The Helm chart, `deploy/helm/mco`.
//!
//! CRDs are in `crds/`: Helm installs them first, and never changes or removes them. All other objects are templates, with
//! expressions in the place of what differs between clusters.

use super::{Values, each_text, is_users, parts, yaml};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::json;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// Where it is.
pub(crate) const FOLDER: &str = "deploy/helm/mco";

/// Its files.
pub(super) fn files() -> anyhow::Result<BTreeMap<PathBuf, String>> {
    let folder = Path::new(FOLDER);
    let version = env!("CARGO_PKG_VERSION");
    let values = Values::placeholders();
    let steps = values.plan()?;
    let (definitions, others) = parts(&steps);
    let ca = STANDARD.encode(&values.api_server_ca);
    // Each is what Helm puts where the placeholder stands; YAML may quote it, so it has no quotes. Without a value that it
    // requires, the chart installs nothing.
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
            // What our own texts have in double braces is not Helm's.
            let plain = text.replace("{{", "{{ `{{` }}");
            expressions
                .iter()
                .fold(plain, |text, (placeholder, expression)| text.replace(placeholder, expression))
        });
        if is_users(step) {
            object["metadata"]["annotations"]["helm.sh/resource-policy"] = json!("keep");
        }
        templates.push(object);
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
        (folder.join("templates/mco.yaml"), head.to_owned() + &yaml(&templates)?),
        (folder.join("templates/NOTES.txt"), NOTES.to_owned()),
    ]))
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
";

const NOTES: &str = "\
The operator installs everything else, as MachineConfigOperator cluster says. That stays when this release is removed:
run `mco uninstall --yes` first to take it away. Helm does not change CRDs: before an upgrade run
  kubectl apply --server-side --force-conflicts -f crds/
with the folder of the new chart.
";
