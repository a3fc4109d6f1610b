//! What the API server refuses of the Jobs that the controller creates in our namespace.

use super::{NAMES, On, Rule, not_by_the_controller, policy};
use crate::manifests::own_secrets::is_own_in_cel;
use api::names::NAMESPACE;
use serde_json::{Value, json};

/// The capabilities that container runtimes give to every container. With others, such as `SYS_ADMIN` or `SYS_MODULE`, a container
/// has its host. Source: the defaults of containerd and CRI-O.
const USUAL: [&str; 14] = [
    "AUDIT_WRITE",
    "CHOWN",
    "DAC_OVERRIDE",
    "FOWNER",
    "FSETID",
    "KILL",
    "MKNOD",
    "NET_BIND_SERVICE",
    "NET_RAW",
    "SETFCAP",
    "SETGID",
    "SETPCAP",
    "SETUID",
    "SYS_CHROOT",
];

/// The controller may create Jobs in our namespace, for builds of images; a right to create them cannot be limited by name. A
/// pod may mount any Secret of its namespace, act as any of its accounts and see its host, so the controller could do all of
/// that. Here it cannot: a build has no account with rights, nothing of its host, and none of the Secrets that the installation
/// itself keeps. Those that the administrator names for pulls and pushes it must have.
pub(super) fn build_jobs() -> Value {
    let on = On { group: "batch", resources: &["jobs"], operations: &["CREATE"] };
    let is_on = |field: &str| format!("(has(variables.pod.{field}) && variables.pod.{field})");
    let variables = [
        ("pod", "object.spec.template.spec"),
        (
            "containers",
            "variables.pod.containers + (has(variables.pod.initContainers) ? variables.pod.initContainers : [])",
        ),
        ("volumes", "has(variables.pod.volumes) ? variables.pod.volumes : []"),
    ];
    let at =
        "'Job ' + object.metadata.name + ': the controller may only build images in this namespace, and ";
    let remedy = "; a Job for another purpose, such as the gate of a RolloutPolicy, belongs in a namespace of its own'";
    let rule = |expression: String, message: &'static str, words: &str| Rule {
        expression,
        message,
        words: Some(format!("{at}{words}{remedy}")),
    };
    let rules = vec![
        rule(
            "(!has(variables.pod.serviceAccountName) || variables.pod.serviceAccountName in ['', 'default', 'machine-os-builder']) && \
             has(variables.pod.automountServiceAccountToken) && !variables.pod.automountServiceAccountToken"
                .to_owned(),
            "the controller may only build images in this namespace, and a build has no rights",
            "a build has no rights: spec.template.spec.serviceAccountName is machine-os-builder or not set, automountServiceAccountToken is false",
        ),
        rule(
            format!(
                "!{} && !{} && !{} && variables.containers.all(c, !has(c.securityContext) || \
                 (!has(c.securityContext.privileged) || !c.securityContext.privileged) && \
                 (!has(c.securityContext.capabilities) || !has(c.securityContext.capabilities.add) || \
                 c.securityContext.capabilities.add.all(added, added in [{}])))",
                is_on("hostNetwork"),
                is_on("hostPID"),
                is_on("hostIPC"),
                USUAL.map(|name| format!("'{name}'")).join(", ")
            ),
            "the controller may only build images in this namespace, and a build sees nothing of its host",
            "a build sees nothing of its host: no host namespaces, no privileged containers, no capabilities but the usual ones",
        ),
        rule(
            "variables.volumes.all(v, has(v.emptyDir) || has(v.configMap) || has(v.secret))".to_owned(),
            "the controller may only build images in this namespace, and a build has volumes of ConfigMaps and Secrets only",
            "a build has volumes of ConfigMaps, Secrets and empty folders only",
        ),
        rule(
            format!(
                "variables.volumes.all(v, !has(v.secret) || !has(v.secret.secretName) || !{}) && variables.containers.all(c, \
                 (!has(c.env) || c.env.all(e, !has(e.valueFrom) || !has(e.valueFrom.secretKeyRef))) && \
                 (!has(c.envFrom) || c.envFrom.all(e, !has(e.secretRef))))",
                is_own_in_cel("v.secret.secretName")
            ),
            "the controller may only build images in this namespace, and a build has none of the installation's Secrets",
            "a build has none of the Secrets of the installation itself, and Secrets in volumes only",
        ),
    ];
    let mut policy = policy(NAMES[8], &on, &variables, rules);
    policy["spec"]["matchConstraints"]["namespaceSelector"] =
        json!({"matchLabels": {"kubernetes.io/metadata.name": NAMESPACE}});
    policy["spec"]["matchConditions"] =
        json!([{"name": "by-the-controller", "expression": format!("!({})", not_by_the_controller())}]);
    policy
}
