//! Descriptions of the fields of published schemas, in our own words, where no Rust type of ours has them. `kubectl
//! explain` and the reference pages show them.
//!
//! What it is not: the fields themselves, which are data (see `schemas/`), or the fields of other objects that
//! ControllerConfig embeds.

use serde_json::Value;

/// A kind, the end of a field's path, and what the field means. An empty kind stands for all kinds.
type Row = (&'static str, &'static str, &'static str);

const MC: &str = "MachineConfiguration";
const KUBELET: &str = "KubeletConfig";
const RUNTIME: &str = "ContainerRuntimeConfig";
const OSC: &str = "MachineOSConfig";
const OSB: &str = "MachineOSBuild";
const NODE: &str = "MachineConfigNode";
const RELEASE: &str = "InternalReleaseImage";
const STREAM: &str = "OSImageStream";

/// The first row that matches a field counts.
const ROWS: &[Row] = &[
    // KubeletConfig
    (
        KUBELET,
        "spec.autoSizingReserved",
        "Whether memory and CPU for the system are reserved according to the size of each node.",
    ),
    (
        KUBELET,
        "spec.kubeletConfig",
        "Fields of a `KubeletConfiguration` (`kubelet.config.k8s.io/v1beta1`), merged over the kubelet \
         configuration of the pool's nodes.",
    ),
    (KUBELET, "spec.logLevel", "The kubelet's log level, from 0 to 10."),
    (
        KUBELET,
        "spec.machineConfigPoolSelector",
        "Picks the pools whose nodes get these settings, by the pools' labels.",
    ),
    (
        KUBELET,
        "spec.tlsSecurityProfile",
        "The TLS versions and ciphers that the kubelet's server accepts. The default is the cluster's profile.",
    ),
    ("", "tlsSecurityProfile.custom", "The settings of type `Custom`."),
    ("", "custom.ciphers", "The ciphers, by their OpenSSL names."),
    ("", "custom.minTLSVersion", "The minimum TLS version."),
    ("", "tlsSecurityProfile.intermediate", "Empty; belongs to type `Intermediate`."),
    ("", "tlsSecurityProfile.modern", "Empty; belongs to type `Modern`."),
    ("", "tlsSecurityProfile.old", "Empty; belongs to type `Old`."),
    ("", "tlsSecurityProfile.type", "The profile: one of Mozilla's recommendations, or `Custom`."),
    // ContainerRuntimeConfig
    (RUNTIME, "spec.containerRuntimeConfig", "Settings of CRI-O and of its storage."),
    (
        RUNTIME,
        "spec.machineConfigPoolSelector",
        "Picks the pools whose nodes get these settings, by the pools' labels.",
    ),
    (
        RUNTIME,
        "additionalArtifactStores",
        "Folders with OCI artifacts that are used in addition to the node's own store.",
    ),
    (
        RUNTIME,
        "additionalImageStores",
        "Folders with images that are used in addition to the node's own store.",
    ),
    (
        RUNTIME,
        "additionalLayerStores",
        "Folders with layers of images that are used in addition to the node's own store.",
    ),
    (RUNTIME, "[].path", "The folder's path on the node."),
    (RUNTIME, "defaultRuntime", "The OCI runtime of pods that name none: `crun` or `runc`."),
    (
        RUNTIME,
        "containerRuntimeConfig.logLevel",
        "CRI-O's log level: `fatal`, `panic`, `error`, `warn`, `info`, `debug` or `trace`.",
    ),
    (
        RUNTIME,
        "logSizeMax",
        "The size from which a container's log is cut, such as `10M`; more than 8192 bytes.",
    ),
    (RUNTIME, "overlaySize", "The most that a container may write into its own file system, such as `10G`."),
    (RUNTIME, "pidsLimit", "The most processes of a container: at least 20, or 0 for no limit."),
    // MachineConfiguration
    (MC, "spec.bootImageSkewEnforcement", "How boot images that are too old for the cluster are detected."),
    (
        "",
        "bootImageSkewEnforcementStatus",
        "How boot images that are too old for the cluster are detected: the setting in force.",
    ),
    ("", "bootImageSkewEnforcementStatus.automatic", "The boot image's version as detected."),
    ("", "manual", "The boot image's version as set by an administrator."),
    ("", "manual.mode", "Which of the two versions is given."),
    ("", "ocpVersion", "The OpenShift version of the boot image."),
    ("", "rhcosVersion", "The operating system's version of the boot image."),
    ("", "bootImageSkewEnforcement.mode", "Whether versions of boot images are compared."),
    ("", "bootImageSkewEnforcementStatus.mode", "Whether versions of boot images are compared."),
    (MC, "failedRevisionLimit", "Kept for compatibility; has no effect."),
    (MC, "succeededRevisionLimit", "Kept for compatibility; has no effect."),
    (MC, "forceRedeploymentReason", "Kept for compatibility; has no effect."),
    (
        MC,
        "irreconcilableValidationOverrides",
        "Changes that are rendered although running nodes cannot apply them; nodes that are installed later can.",
    ),
    (
        MC,
        "irreconcilableValidationOverrides.storage",
        "Sections of `spec.config.storage` whose changes are allowed.",
    ),
    (MC, "spec.logLevel", "The log level of the managed components."),
    (MC, "operatorLogLevel", "The log level of the operator."),
    (MC, "spec.managedBootImages", "Which machine resources have their boot images kept up to date."),
    (
        MC,
        "managedBootImagesStatus",
        "Which machine resources have their boot images kept up to date: the setting in force.",
    ),
    (MC, "machineManagers", "One entry for each kind of machine resource."),
    (MC, "machineManagers[].apiGroup", "The API group of the machine resource."),
    (MC, "machineManagers[].resource", "The plural name of the machine resource."),
    (MC, "machineManagers[].selection", "Which resources of this kind are managed."),
    (MC, "selection.mode", "All of them, none, or those that `partial` picks."),
    (MC, "selection.partial", "Picks some of them."),
    (MC, "machineResourceSelector", "Picks machine resources by their labels."),
    (MC, "managementState", "Whether the operator manages its components."),
    (MC, "observedConfig", "Kept for compatibility; has no effect."),
    (MC, "unsupportedConfigOverrides", "Kept for compatibility; has no effect."),
    (
        MC,
        "spec.nodeDisruptionPolicy",
        "What a change of files, units or SSH keys does to a node, instead of a drain and a reboot.",
    ),
    (MC, "nodeDisruptionPolicyStatus", "What a change does to a node: the policies in force."),
    (MC, "clusterPolicies", "The cluster's own policies and the administrator's, together."),
    ("", "files[].path", "A file or folder. The longest path that matches a changed file applies."),
    ("", "units[].name", "The unit's name, with its suffix."),
    (MC, "files", "What a change of these files does."),
    (MC, "units", "What a change of these units does."),
    (MC, "sshkey", "What a change of the SSH keys of `core` does."),
    (
        MC,
        "actions",
        "What is done on the node: `Drain` first, then `DaemonReload`, then each `Reload` and `Restart` in this order. `Reboot` and `None` stand alone.",
    ),
    (MC, "actions[].reload", "The service of type `Reload`."),
    (MC, "actions[].restart", "The service of type `Restart`."),
    (MC, "serviceName", "The service's unit, with its suffix."),
    (MC, "actions[].type", "What is done."),
    // MachineOSConfig and MachineOSBuild
    (OSC, "baseImagePullSecret", "The Secret with which the base image is pulled."),
    (OSC, "containerFile", "What is added to the image of the pool's config, as a Containerfile."),
    (OSC, "containerfileArch", "The architecture that this content is for."),
    (
        OSC,
        "containerFile[].content",
        "The Containerfile's text; `FROM configs AS final` begins at the pool's image.",
    ),
    (OSC, "imageBuilder", "What builds the image."),
    ("", "imageBuilderType", "The kind of builder."),
    (OSC, "machineConfigPool", "The pool whose nodes get the image."),
    (OSC, "renderedImagePushSecret", "The Secret with which the image is pushed."),
    ("", "spec.renderedImagePushSpec", "Where the image is pushed to: repository and tag."),
    (OSC, "currentImagePullSpec", "The image that the pool's nodes are to run, by digest."),
    (OSC, "machineOSBuild", "The build that is under way or was the last."),
    (OSB, "spec.machineConfig", "The rendered MachineConfig that the image is built from."),
    (OSB, "spec.machineOSConfig", "The MachineOSConfig that asked for the build."),
    (OSB, "buildStart", "When the build began."),
    (OSB, "buildEnd", "When the build ended."),
    (OSB, "status.builder", "What builds the image."),
    (OSB, "builder.job", "The Job that builds it."),
    (OSB, "digestedImagePushSpec", "The image that came out, by digest."),
    (OSB, "relatedObjects", "Objects that were made for the build."),
    // MachineConfigNode
    (NODE, "internalReleaseImage", "Release images that are kept on the node."),
    (
        NODE,
        "irreconcilableChanges",
        "Where the node differs from its config, because a running machine cannot apply the change.",
    ),
    (NODE, "irreconcilableChanges[].diff", "How the two differ."),
    (NODE, "irreconcilableChanges[].fieldPath", "The section of the config."),
    (NODE, "currentGeneration", "The generation of the PinnedImageSet that the node has."),
    (NODE, "desiredGeneration", "The generation that the node should have."),
    (NODE, "lastFailedGeneration", "The last generation that failed on the node."),
    (NODE, "lastFailedGenerationError", "Why that generation failed."),
    (NODE, "pinnedImageSets[].name", "The PinnedImageSet."),
    // Images
    (RELEASE, "spec.releases", "Release images that nodes are to keep."),
    ("", "status.releases", "Release images that nodes keep."),
    ("", "internalReleaseImage.releases", "Release images that the node keeps."),
    ("", "releases[].image", "The image, by digest."),
    ("", "releases[].name", "The release bundle's name."),
    ("", "releases[].conditions", "The state of this release."),
    (STREAM, "spec.defaultStream", "The stream of pools that name none, as set by the administrator."),
    (STREAM, "status.defaultStream", "The stream in force for pools that name none."),
    (STREAM, "availableStreams", "The streams that pools can follow."),
    (STREAM, "availableStreams[].name", "The name by which pools follow it."),
    (STREAM, "osImage", "The stream's OS image, by digest."),
    (STREAM, "osExtensionsImage", "The stream's image of extensions, by digest."),
    ("PinnedImageSet", "pinnedImages", "Images that nodes pull beforehand and do not remove."),
    ("PinnedImageSet", "pinnedImages[].name", "The image, by digest."),
    // Forms that many kinds share.
    ("", "matchLabels", "Labels that an object must have, each with this value."),
    ("", "matchExpressions", "Further requirements, all of which an object must meet."),
    ("", "matchExpressions[].key", "The label."),
    (
        "",
        "matchExpressions[].operator",
        "How the label's value is compared: `In`, `NotIn`, `Exists` or `DoesNotExist`.",
    ),
    ("", "matchExpressions[].values", "Values for `In` and `NotIn`."),
    ("", "status.conditions", "The state of the object."),
    ("", "conditions[].type", "What the condition is about."),
    ("", "conditions[].status", "`True`, `False` or `Unknown`."),
    ("", "conditions[].reason", "The reason, as one word for programs."),
    ("", "conditions[].message", "The reason, as a sentence for people."),
    ("", "conditions[].lastTransitionTime", "When `status` last changed."),
    ("", "conditions[].observedGeneration", "The generation of the object that this condition describes."),
    ("", "status.observedGeneration", "The generation that the status was computed from."),
    ("", "fieldPath", "Part of every object reference; not used here."),
    ("", "resourceVersion", "Part of every object reference; not used here."),
    ("", "uid", "Part of every object reference; not used here."),
    ("", "apiVersion", "The API version of the object's kind."),
    ("", "kind", "The object's kind."),
    ("", "group", "The object's API group."),
    ("", "resource", "The plural name of the object's kind."),
    ("", "namespace", "The object's namespace."),
    ("", "name", "The object's name."),
];

/// Objects of other APIs that ControllerConfig embeds. Their own documentation describes their fields.
const EMBEDDED: [&str; 3] = ["spec.infra", "spec.dns", "spec.network"];

/// Adds a description to every field of a kind's schema that has none.
pub(crate) fn add(kind: &str, schema: &mut Value) {
    for part in ["spec", "status"] {
        if let Some(field) = schema.pointer_mut(&format!("/properties/{part}")) {
            below(kind, part, field);
        }
    }
}

fn below(kind: &str, at: &str, schema: &mut Value) {
    if kind == "ControllerConfig" && EMBEDDED.contains(&at) {
        return;
    }
    if let Some(properties) = schema.get_mut("properties").and_then(Value::as_object_mut) {
        for (name, field) in properties {
            let at = format!("{at}.{name}");
            if field.get("description").is_none()
                && let Some(text) = of(kind, &at)
            {
                field["description"] = text.into();
            }
            below(kind, &at, field);
        }
    }
    if let Some(items) = schema.get_mut("items") {
        below(kind, &format!("{at}[]"), items);
    }
}

/// The meaning of a field, by the end of its path.
fn of(kind: &str, path: &str) -> Option<&'static str> {
    let fits = |end: &str| {
        let rest = path.strip_suffix(end);
        rest.is_some_and(|rest| rest.is_empty() || rest.ends_with('.') || end.starts_with('['))
    };
    let row = ROWS.iter().find(|(of, end, _)| (of.is_empty() || *of == kind) && fits(end));
    row.map(|(.., text)| *text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn undescribed(at: &str, schema: &Value, out: &mut Vec<String>) {
        for (name, field) in schema["properties"].as_object().into_iter().flatten() {
            let at = format!("{at}.{name}");
            let text = field["description"].as_str().unwrap_or_default();
            if !text.ends_with('.') {
                out.push(format!("{at}: {text:?}"));
            }
            if !EMBEDDED.iter().any(|e| at.ends_with(&format!(" {e}"))) {
                undescribed(&at, field, out);
            }
        }
        if schema["items"].is_object() {
            undescribed(&format!("{at}[]"), &schema["items"], out);
        }
    }

    #[test]
    fn every_field_that_is_installed_is_described() {
        let mut out = vec![];
        for crd in crate::crds::all().unwrap().iter().filter(|c| c.ours) {
            for version in crd.object["spec"]["versions"].as_array().unwrap() {
                for part in ["spec", "status"] {
                    let kind = crd.object["spec"]["names"]["kind"].as_str().unwrap();
                    let schema = &version["schema"]["openAPIV3Schema"]["properties"][part];
                    undescribed(&format!("{kind} {part}"), schema, &mut out);
                }
            }
        }
        assert_eq!(out, Vec::<String>::new());
    }

    #[test]
    fn every_description_belongs_to_a_field() {
        let mut used = std::collections::BTreeSet::new();
        fn walk(kind: &str, at: &str, schema: &Value, used: &mut std::collections::BTreeSet<&'static str>) {
            for (name, field) in schema["properties"].as_object().into_iter().flatten() {
                let at = format!("{at}.{name}");
                used.extend(of(kind, &at));
                walk(kind, &at, field, used);
            }
            if schema["items"].is_object() {
                walk(kind, &format!("{at}[]"), &schema["items"], used);
            }
        }
        for crd in crate::crds::all().unwrap().iter().filter(|c| c.ours) {
            let schema = &crd.object["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"];
            let kind = crd.object["spec"]["names"]["kind"].as_str().unwrap();
            ["spec", "status"].iter().for_each(|part| walk(kind, part, &schema[part], &mut used));
        }
        let idle: Vec<&Row> = ROWS.iter().filter(|(.., text)| !used.contains(text)).collect();
        assert_eq!(idle, Vec::<&Row>::new());
    }

    #[test]
    fn a_path_suffix_matches_whole_path_elements_only() {
        assert_eq!(
            of("X", "spec.a.matchLabels"),
            Some("Labels that an object must have, each with this value.")
        );
        assert_eq!(of("X", "spec.rematchLabels"), None);
        let mut schema = json!({"properties": {"spec": {"properties": {"name": {"description": "Mine."}}}}});
        add("X", &mut schema);
        assert_eq!(schema["properties"]["spec"]["properties"]["name"]["description"], "Mine.");
    }
}
