//! The page of every kind and its fields, from the CustomResourceDefinitions as they are installed.

use super::{cell, columns, head, row};
use anyhow::{Context, bail};
use api::crds::Crd;
use serde_json::{Map, Value};

/// Fields that hold an object of another kind: its fields are documented with that kind.
const EMBEDDED: [(&str, &str); 2] = [("infra", "Infrastructure"), ("dns", "DNS")];

/// What the kind is for in this product.
fn role(kind: &str) -> Option<&'static str> {
    Some(match kind {
        "MachineConfig" => {
            "A part of the configuration of nodes. Pools select MachineConfigs by label; the controller \
             merges those that a \
             pool selects, in the order of their names, into one rendered MachineConfig."
        }
        "MachineConfigPool" => {
            "A group of nodes with one rendered MachineConfig, and how it is rolled out. See \
             [Rollouts](../rollouts.md)."
        }
        "MachineConfigOperator" => {
            "What is installed and how, and how far the operator has come with it. There is one, named `cluster`. See \
             [Operations](../operations.md#the-settings)."
        }
        "RolloutPolicy" => {
            "How changes go through the nodes of pools: waves, gates, windows, and what happens when something fails. See \
             [Safe rollouts](../safe-rollouts.md)."
        }
        "ControllerConfig" => {
            "The cluster's settings that templates are rendered with. There is one, named `machine-config-controller`; the \
             operator keeps it, or `mco install` where no operator runs."
        }
        "MachineConfigNode" => {
            "How far the update of one node is. Written by the controller (`spec`) and the node's agent (`status`)."
        }
        "KubeletConfig" => {
            "Settings of the kubelets of some pools. See [Everyday changes](../everyday-changes.md)."
        }
        "ContainerRuntimeConfig" => {
            "Settings of the container runtime of some pools. See [Everyday changes](../everyday-changes.md)."
        }
        "MachineConfiguration" => {
            "Of this kind of OpenShift's, these fields of the object `cluster` are read: `spec.nodeDisruptionPolicy` (what \
             changes of files, units and SSH keys cost), `spec.irreconcilableValidationOverrides`, \
             `spec.bootImageSkewEnforcement` (what the status says of boot images), and `spec.operatorLogLevel`. The operator writes the policies in force into the status. See \
             [Disruption](../disruption.md)."
        }
        "PinnedImageSet" => {
            "Images that the nodes of some pools pull before they are needed, and keep. See [Pinned images](../pinned-images.md)."
        }
        "MachineOSConfig" => {
            "Of which base and with which Containerfile the OS image of a pool is built, and where it is pushed. See \
             [Image mode](../image-mode.md)."
        }
        "MachineOSBuild" => {
            "One build of a pool's OS image and its result. The controller creates and deletes these objects, and a rollout of \
             the pool waits for the build. See [Image mode](../image-mode.md#what-happens)."
        }
        "OSImageStream" => {
            "The OS images that pools can name. The controller fills the status of the object `cluster` from the labels of \
             images, unless somebody else writes it. See [OS image streams](../os.md#os-image-streams)."
        }
        "InternalReleaseImage" => "Not acted on: it needs a registry on each control-plane host.",
        _ => return None,
    })
}

/// Which objects of one of OpenShift's kinds are read, and which of their fields.
fn read_of(kind: &str) -> Option<(&'static str, &'static str)> {
    const ONE: &str = "`cluster`";
    const ALL: &str = "all";
    Some(match kind {
        "APIServer" => (
            ONE,
            "`spec.tlsSecurityProfile.type`, and of a custom one `custom.minTLSVersion` and `custom.ciphers`: the least TLS \
             version and the ciphers of kubelets, where the templates' layer `kubelet` is used or a KubeletConfig is written.",
        ),
        "ClusterImagePolicy" => {
            (ALL, "`spec.scopes` and `spec.policy`: which images must be signed, and by whom, on all nodes.")
        }
        "ImagePolicy" => (
            ALL,
            "`spec.scopes` and `spec.policy`: the same for the pods of its namespace. Written: the condition `Pending` in \
             `status.conditions`, where a ClusterImagePolicy overrides a scope.",
        ),
        "ClusterOperator" => (
            "`machine-config`",
            "Written by the operator: `status.conditions`, `status.versions`, `status.relatedObjects` and `status.extension`. \
             The dashboard shows the conditions.",
        ),
        "ClusterVersion" => (
            "`version`",
            "`status.desired.image`: the release, whose registry is never blocked, whose OS images are listed in the \
             OSImageStream, and which goes into the ControllerConfig. `status.desired.version`: the release's version, where \
             its ConfigMaps name none. `status.history`: the version that was installed first, for boot images.",
        ),
        "DNS" => {
            (ONE, "The object is copied into `spec.dns` of the ControllerConfig, for your own templates.")
        }
        "FeatureGate" => (
            ONE,
            "`status.featureGates`, and where that list is empty `spec.customNoUpgrade`: the feature gates of kubelets, and \
             whether OS image streams (`OSStreams`), image signatures (`SigstoreImageVerification`) and additional stores \
             (`AdditionalStorageConfig`) are in use.",
        ),
        "Image" => (
            ONE,
            "`spec.registrySources`: insecure, blocked, allowed and search registries of nodes. \
             `spec.additionalTrustedCA.name`: the ConfigMap in `openshift-config` with the certificates of registries.",
        ),
        "ImageContentSourcePolicy" => (
            ALL,
            "`spec.repositoryDigestMirrors`: mirrors of images by digest, in the form of older releases; they come after those \
             of ImageDigestMirrorSets.",
        ),
        "ImageDigestMirrorSet" => (
            ALL,
            "`spec.imageDigestMirrors`: mirrors of images that are pulled by digest, and sources that are never contacted.",
        ),
        "ImageTagMirrorSet" => (ALL, "`spec.imageTagMirrors`: the same for images that are pulled by tag."),
        "Infrastructure" => (
            ONE,
            "The object is copied into `spec.infra` of the ControllerConfig, for your own templates. Used of it: \
             `status.platformStatus` and `status.platform` (the platform and its addresses of the API), \
             `status.controlPlaneTopology` (drains of a single node, replicas, arbiters), `status.apiServerInternalURI` and \
             `status.apiServerURL` (how machines reach the API server), `status.etcdDiscoveryDomain` (templates), and \
             `spec.cloudConfig.name` (whether a cloud config must be there). Without this object none of Network, DNS, Proxy \
             and Image's certificates is used.",
        ),
        "Network" => (
            ONE,
            "`spec.serviceNetwork`: the address of the cluster's DNS and the families of addresses. \
             `status.networkType`, `spec.networkType` and `status.migration`: copied into the ControllerConfig, for your own \
             templates.",
        ),
        "Node" => (
            ONE,
            "`spec.workerLatencyProfile`: how often the kubelets of the pool `worker` report. `spec.cgroupMode`: anything but \
             `v2` is refused. Where the object exists, kernel arguments for cgroups v2 are set. All of it takes effect with \
             the templates' layers `kubelet` and `kubeadm` only.",
        ),
        "Proxy" => (
            ONE,
            "`status.httpProxy`, `status.httpsProxy`, `status.noProxy`: the proxy of hosts, agents and builds; the same fields \
             of `spec` are not read. `spec.trustedCA.name`: the ConfigMap in `openshift-config` whose certificates hosts trust.",
        ),
        _ => return None,
    })
}

pub(super) fn pages() -> anyhow::Result<Vec<(String, String)>> {
    let all = api::crds::all()?;
    let mut pages = vec![];
    let mut index = head("Kinds", "crates/api/schemas");
    index += "\n## Installed\n\n`mco install` installs these; `deploy/crds` has them as files.\n\n";
    index += &columns(&["kind", "group", "short names", "what is done with it"]);
    for crd in all.iter().filter(|c| c.ours) {
        let kind = text(&crd.object, "/spec/names/kind");
        let Some(role) = role(kind) else {
            bail!("xtask/src/reference/kinds.rs: say what is done with the kind {kind}")
        };
        let file = format!("kind-{}.md", kind.to_lowercase());
        index += &row(&[&format!("[{kind}]({file})"), &format!("`{}`", crd.group), &short(crd), &cell(role)]);
        pages.push((file, page(crd, kind, role)?));
    }
    index += "\n## Read where they exist\n\nKinds of OpenShift's. `mco install --openshift-config-crds` installs their \
              definitions on a plain cluster. Fields that are not named here have no effect.\n\n";
    index += &columns(&["kind", "group", "objects", "what is read, and what for"]);
    for crd in all.iter().filter(|c| !c.ours) {
        let kind = text(&crd.object, "/spec/names/kind");
        let Some((objects, read)) = read_of(kind) else {
            bail!("xtask/src/reference/kinds.rs: say what is read of the kind {kind}")
        };
        index += &row(&[&format!("`{kind}`"), &format!("`{}`", crd.group), objects, &cell(read)]);
    }
    index += "\nOf the Scheduler `cluster` (`config.openshift.io`), whose definition only OpenShift installs, `spec.mastersSchedulable` is \
              read: whether control-plane nodes take pods of users. Where there is none, their taints and labels stay as they are.\n";
    pages.push(("kinds.md".to_owned(), index));
    Ok(pages)
}

fn text<'a>(value: &'a Value, pointer: &str) -> &'a str {
    value.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}

fn short(crd: &Crd) -> String {
    let names = crd.object.pointer("/spec/names/shortNames").and_then(Value::as_array);
    let names = names.into_iter().flatten().filter_map(Value::as_str);
    names.map(|n| format!("`{n}`")).collect::<Vec<_>>().join(", ")
}

fn page(crd: &Crd, kind: &str, role: &str) -> anyhow::Result<String> {
    let mut out = head(kind, "crates/api/schemas");
    let scope = text(&crd.object, "/spec/scope").to_lowercase();
    let version = crd.object.pointer("/spec/versions/0").with_context(|| format!("{kind}: no version"))?;
    let api = format!("{}/{}", crd.group, text(version, "/name"));
    out += &format!("\n{role}\n\n`apiVersion: {api}`, {scope} scope.\n");
    let schema = version.pointer("/schema/openAPIV3Schema").with_context(|| format!("{kind}: no schema"))?;
    for part in ["spec", "status"] {
        let Some(schema) = schema.pointer(&format!("/properties/{part}")) else { continue };
        out += &format!("\n## {part}\n\n{}", columns(&["field", "type", "meaning"]));
        fields(schema, part, &mut out);
    }
    let printed = version.get("additionalPrinterColumns").and_then(Value::as_array);
    if let Some(printed) = printed {
        out += &format!("\n## Columns of `kubectl get`\n\n{}", columns(&["column", "shows"]));
        for column in printed {
            out += &row(&[text(column, "/name"), &format!("`{}`", cell(text(column, "/jsonPath")))]);
        }
    }
    Ok(out)
}

fn fields(schema: &Value, path: &str, out: &mut String) {
    let empty = Map::new();
    let required: Vec<&str> = schema
        .get("required")
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
        .filter_map(Value::as_str)
        .collect();
    for (name, field) in schema.get("properties").and_then(Value::as_object).unwrap_or(&empty) {
        let here = format!("{path}.{name}");
        let embedded = EMBEDDED.iter().find(|(field, _)| here == format!("spec.{field}"));
        let mut meaning = text(field, "/description").to_owned();
        if required.contains(&name.as_str()) {
            meaning += " Required.";
        }
        if let Some(default) = field.get("default") {
            meaning += &format!(" Default: `{default}`.");
        }
        let choices = field.get("enum").and_then(Value::as_array).into_iter().flatten();
        let choices: Vec<String> = choices.map(|c| format!("`{}`", c.as_str().unwrap_or_default())).collect();
        if !choices.is_empty() {
            meaning += &format!(" One of {}.", choices.join(", "));
        }
        if let Some((_, kind)) = embedded {
            meaning += &format!(" An object of OpenShift's kind {kind}.");
        }
        *out += &row(&[&format!("`{here}`"), &type_of(field), &cell(&meaning)]);
        if embedded.is_some() {
            continue;
        }
        fields(field, &here, out);
        if let Some(items) = field.get("items") {
            fields(items, &format!("{here}[]"), out);
        }
        if let Some(values) = field.get("additionalProperties").filter(|v| v.is_object()) {
            fields(values, &format!("{here}.KEY"), out);
        }
    }
}

fn type_of(field: &Value) -> String {
    if field.get("x-kubernetes-int-or-string").is_some() {
        return "integer or string".to_owned();
    }
    match text(field, "/type") {
        "array" => format!("list of {}", field.get("items").map(type_of).unwrap_or_default()),
        "object" if field.get("additionalProperties").is_some_and(Value::is_object) => "map".to_owned(),
        "" => "any".to_owned(),
        other => other.to_owned(),
    }
}
