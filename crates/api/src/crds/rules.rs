//! CEL rules in the CRDs, for what OpenAPI cannot express: the API server refuses an object that breaks one, with the
//! message given here. See <https://kubernetes.io/docs/reference/using-api/cel/>.
//!
//! What it is not: rules of Ignition configs, which are too many for CEL. Rendering checks those.

use serde_json::{Value, json};

/// One rule of one kind.
struct Rule {
    kind: &'static str,
    /// The schema that it is put into, as a JSON pointer from the version's root schema.
    at: &'static str,
    rule: &'static str,
    message: &'static str,
    /// Also evaluated when an object is made; `oldSelf` is then an optional.
    optional_old: bool,
}

const fn rule(kind: &'static str, at: &'static str, rule: &'static str, message: &'static str) -> Rule {
    Rule { kind, at, rule, message, optional_old: false }
}

const ONLY_CLUSTER: &str = "self.metadata.name == 'cluster'";
const ONLY_CLUSTER_MESSAGE: &str = "there is one object of this kind; name it cluster";
const ALONE: &str = "size(self) < 2 || !self.exists(a, a.type in ['Reboot', 'None'])";
const ALONE_MESSAGE: &str = "Reboot and None cannot be combined with other actions; remove the others";
const SERVICE: &str =
    "has(self.reload) == (self.type == 'Reload') && has(self.restart) == (self.type == 'Restart')";
const SERVICE_MESSAGE: &str =
    "type Reload needs reload.serviceName, type Restart restart.serviceName, and no other type has them";
const FILES: &str =
    "/properties/spec/properties/nodeDisruptionPolicy/properties/files/items/properties/actions";
const UNITS: &str =
    "/properties/spec/properties/nodeDisruptionPolicy/properties/units/items/properties/actions";
const SSHKEY: &str = "/properties/spec/properties/nodeDisruptionPolicy/properties/sshkey/properties/actions";
const FILES_ITEM: &str =
    "/properties/spec/properties/nodeDisruptionPolicy/properties/files/items/properties/actions/items";
const UNITS_ITEM: &str =
    "/properties/spec/properties/nodeDisruptionPolicy/properties/units/items/properties/actions/items";
const SSHKEY_ITEM: &str =
    "/properties/spec/properties/nodeDisruptionPolicy/properties/sshkey/properties/actions/items";

/// `HOST.DOMAIN[:PORT]/[NAMESPACE/...]NAME:TAG`, or the address of a Service with its port.
const TAG: &str = "self.matches('^([a-zA-Z0-9-]+\\\\.)+[a-zA-Z0-9-]+(:[0-9]{2,5})?(/[a-zA-Z0-9_-]{1,61})*\
     /[a-zA-Z0-9_.-]+:[a-zA-Z0-9._-]+$') || self.matches('^[^./]+\\\\.[^./]+\\\\.svc:[0-9]+/[^/]+/[^/:]+:[^/:]+$')";
const TAG_MESSAGE: &str = "must be an image with a tag, such as registry.example.com/team/os:latest";
const DIGEST: &str = "self.matches('^[^@]+@sha256:[a-f0-9]{64}$')";
const DIGEST_MESSAGE: &str = "must be an image with its digest: NAME@sha256: and 64 hexadecimal digits";
/// A DNS subdomain, as names of objects are.
const SUBDOMAIN: &str =
    "self.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$')";
const SUBDOMAIN_MESSAGE: &str = "must be the name of an object: lower case letters, digits, hyphens and dots";

/// An image that can be pinned: registry, repository, digest. The same as [`crate::v1::not_pinnable`].
const PINNABLE: &str = "self.matches('^([a-zA-Z0-9-]+\\\\.)+[a-zA-Z0-9-]+(:[0-9]{2,5})?(/[a-zA-Z0-9._-]+)+@sha256:[a-f0-9]{64}$')";
const PINNABLE_MESSAGE: &str = "must be an image of a registry with its digest, such as registry.example.com/team/app@sha256: and 64 hexadecimal digits";
const PINS: &str = "/properties/status/properties/pinnedImageSets/items";
const SYNCHRONIZERS: &str = "/properties/status/properties/poolSynchronizersStatus/items";

const RULES: [Rule; 30] = [
    rule(
        "PinnedImageSet",
        "/properties/spec/properties/pinnedImages/items/properties/name",
        PINNABLE,
        PINNABLE_MESSAGE,
    ),
    rule(
        "MachineConfigNode",
        PINS,
        "!has(self.currentGeneration) || has(self.desiredGeneration) && self.desiredGeneration >= self.currentGeneration",
        "currentGeneration cannot be larger than desiredGeneration",
    ),
    rule(
        "MachineConfigNode",
        PINS,
        "!has(self.lastFailedGeneration) || has(self.desiredGeneration) && \
         self.desiredGeneration >= self.lastFailedGeneration",
        "lastFailedGeneration cannot be larger than desiredGeneration",
    ),
    rule(
        "MachineConfigNode",
        PINS,
        "!has(self.lastFailedGeneration) || has(self.lastFailedGenerationError)",
        "lastFailedGeneration needs lastFailedGenerationError",
    ),
    rule(
        "MachineConfigNode",
        "/properties/status/properties/pinnedImageSets/items/properties/desiredGeneration",
        "self >= oldSelf",
        "desiredGeneration must not decrease",
    ),
    rule(
        "MachineConfigPool",
        SYNCHRONIZERS,
        "self.machineCount >= self.updatedMachineCount && self.machineCount >= self.availableMachineCount && \
         self.machineCount >= self.unavailableMachineCount",
        "machineCount cannot be smaller than another count",
    ),
    rule(
        "MachineConfigPool",
        SYNCHRONIZERS,
        "self.availableMachineCount >= self.readyMachineCount",
        "availableMachineCount cannot be smaller than readyMachineCount",
    ),
    rule(
        "MachineConfigNode",
        "",
        "self.metadata.name == self.spec.node.name",
        "spec.node.name and metadata.name must be the same: the node's name",
    ),
    rule("OSImageStream", "", ONLY_CLUSTER, ONLY_CLUSTER_MESSAGE),
    rule("InternalReleaseImage", "", ONLY_CLUSTER, ONLY_CLUSTER_MESSAGE),
    Rule {
        optional_old: true,
        // Objects of older clusters may have another name: they stay as long as their pool does not change.
        ..rule(
            "MachineOSConfig",
            "",
            "self.metadata.name == self.spec.machineConfigPool.name || (oldSelf.hasValue() && \
             oldSelf.value().spec.machineConfigPool.name == self.spec.machineConfigPool.name)",
            "metadata.name and spec.machineConfigPool.name must be the same: the pool's name",
        )
    },
    rule(
        "MachineOSBuild",
        "/properties/spec",
        "self == oldSelf",
        "a build cannot be changed; change its MachineOSConfig to start another",
    ),
    rule("MachineOSConfig", "/properties/spec/properties/renderedImagePushSpec", TAG, TAG_MESSAGE),
    rule(
        "MachineOSConfig",
        "/properties/spec/properties/machineConfigPool/properties/name",
        SUBDOMAIN,
        SUBDOMAIN_MESSAGE,
    ),
    rule(
        "MachineOSConfig",
        "/properties/spec/properties/baseImagePullSecret/properties/name",
        SUBDOMAIN,
        SUBDOMAIN_MESSAGE,
    ),
    rule(
        "MachineOSConfig",
        "/properties/spec/properties/renderedImagePushSecret/properties/name",
        SUBDOMAIN,
        SUBDOMAIN_MESSAGE,
    ),
    rule("MachineOSConfig", "/properties/status/properties/currentImagePullSpec", DIGEST, DIGEST_MESSAGE),
    rule(
        "MachineOSConfig",
        "/properties/status/properties/observedGeneration",
        "self >= oldSelf",
        "observedGeneration must not decrease",
    ),
    rule("MachineOSBuild", "/properties/spec/properties/renderedImagePushSpec", TAG, TAG_MESSAGE),
    rule("MachineOSBuild", "/properties/status/properties/digestedImagePushSpec", DIGEST, DIGEST_MESSAGE),
    rule(
        "MachineOSBuild",
        "/properties/status/properties/conditions",
        "!oldSelf.exists(c, c.type in ['Failed', 'Interrupted', 'Succeeded'] && c.status == 'True') || \
         self == oldSelf",
        "the build has ended, and its conditions do not change any more",
    ),
    rule(
        "MachineOSBuild",
        "/properties/status",
        "(!has(oldSelf.buildStart) || has(self.buildStart) && self.buildStart == oldSelf.buildStart) && \
         (!has(oldSelf.buildEnd) || has(self.buildEnd) && self.buildEnd == oldSelf.buildEnd)",
        "buildStart and buildEnd do not change once they are set",
    ),
    rule(
        "MachineOSBuild",
        "/properties/status",
        "!has(self.buildEnd) || has(self.buildStart) && self.buildEnd > self.buildStart",
        "buildEnd needs a buildStart that is earlier",
    ),
    rule(
        "MachineOSBuild",
        "/properties/status/properties/builder",
        "(self.imageBuilderType == 'Job') == has(self.job)",
        "a builder of type Job has a job, and no other has one",
    ),
    rule("MachineConfiguration", FILES, ALONE, ALONE_MESSAGE),
    rule("MachineConfiguration", UNITS, ALONE, ALONE_MESSAGE),
    rule("MachineConfiguration", SSHKEY, ALONE, ALONE_MESSAGE),
    rule("MachineConfiguration", FILES_ITEM, SERVICE, SERVICE_MESSAGE),
    rule("MachineConfiguration", UNITS_ITEM, SERVICE, SERVICE_MESSAGE),
    rule("MachineConfiguration", SSHKEY_ITEM, SERVICE, SERVICE_MESSAGE),
];

/// Puts a kind's rules into its schema. Returns the places that the schema does not have.
pub(crate) fn add(kind: &str, schema: &mut Value) -> Vec<&'static str> {
    let mut missing = vec![];
    for Rule { at, rule, message, optional_old, .. } in RULES.iter().filter(|r| r.kind == kind) {
        let Some(place) = schema.pointer_mut(at).and_then(Value::as_object_mut) else {
            missing.push(*at);
            continue;
        };
        let mut entry = json!({"rule": rule, "message": message});
        if *optional_old {
            entry["optionalOldSelf"] = true.into();
        }
        match place.get_mut("x-kubernetes-validations").and_then(Value::as_array_mut) {
            Some(list) => list.push(entry),
            None => {
                place.insert("x-kubernetes-validations".to_owned(), json!([entry]));
            }
        }
    }
    missing
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_rule_is_about_a_path_of_a_published_schema() {
        let crds = crate::crds::all().unwrap();
        for Rule { kind, at, rule, .. } in &RULES {
            let crd = crds.iter().find(|c| c.object["spec"]["names"]["kind"] == *kind).unwrap();
            for version in crd.object["spec"]["versions"].as_array().unwrap() {
                let schema = &version["schema"]["openAPIV3Schema"];
                let list = schema.pointer(at).and_then(|s| s.get("x-kubernetes-validations"));
                let found =
                    list.and_then(Value::as_array).is_some_and(|l| l.iter().any(|r| r["rule"] == *rule));
                assert!(found, "{kind} {at}: {rule}");
            }
        }
    }
}
