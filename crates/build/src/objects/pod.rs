//! The Job of a build, and what its pod runs.
//!
//! The pod has no credentials for the API server: what a user's Containerfile runs cannot use any. It reports the digest in
//! its termination message. The Secrets to pull and push with are mounted, not copied, so the controller needs no right to
//! read them; a missing one fails the build at once, with its name.
//!
//! What it is not: the ConfigMaps that it mounts (see `objects`).
//!
//! Sources: buildah-build(1), buildah-push(1).

use super::{DEADLINE_SECONDS, Inputs, metadata};
use crate::names;
use crate::report::{BUILT_FROM, CONTAINER, DIGEST, NOT_PUSHED, NOT_SIGNED};
use api::names::{BUILDER_ACCOUNT, NAMESPACE, SERVICE_CA};
use api::v1::ControllerConfigSpec;
use serde_json::{Value, json};

/// The exit codes of a build that must not be tried again: its input is wrong, or its time is over.
const FINAL: [i32; 2] = [64, 65];
/// How long before the Job's deadline a pod ends by itself, in seconds: what its container wrote last is lost when the deadline
/// deletes it.
const BEFORE_DEADLINE: i64 = 120;
/// What the pod runs.
pub(super) const SCRIPT: &str = include_str!("../build-image.sh");

/// The Job. `files`: volume, ConfigMap and key of each file that is put into `/etc/containers` of the pod. `authorities`: the
/// key and the registry of each certificate authority that is for one registry.
pub(super) fn job(inputs: Inputs<'_>, files: &[(&str, String, &str)], authorities: &[(&str, &str)]) -> Value {
    let Inputs { pool, build, config, rendered, cluster, builder, now } = inputs;
    let name = build.metadata.name.clone().unwrap_or_default();
    let labels = names::object_labels(pool, build);
    let push = &config.spec.rendered_image_push_secret.name;
    let pull = config.spec.base_image_pull_secret.as_ref().map(|s| s.name.as_str());
    let limit = DEADLINE_SECONDS - BEFORE_DEADLINE;
    let (seconds, end) = (limit.to_string(), now.0.as_second().saturating_add(limit).to_string());
    let base = super::context::base(rendered);
    let mut env = vec![
        ("LIMIT_SECONDS", seconds.as_str()),
        ("END_SECONDS", end.as_str()),
        ("HOME", "/home/build"),
        ("TAG", build.spec.rendered_image_push_spec.as_str()),
        ("BASE_IMAGE_PULL_CREDS", "/tmp/base-image-pull-creds/config.json"),
        ("FINAL_IMAGE_PUSH_CREDS", "/tmp/final-image-push-creds/config.json"),
        ("BUILDAH_ISOLATION", "chroot"),
        ("BASE_OS_IMAGE_PULLSPEC", base.as_str()),
        ("BASE_NAME", names::repository(&base)),
        ("BUILD_NAMESPACE", NAMESPACE),
        ("PUSH_SECRET", push),
        ("DIGEST_PREFIX", DIGEST),
        ("NOT_PUSHED", NOT_PUSHED),
        ("NOT_SIGNED", NOT_SIGNED),
        ("BUILT_FROM", BUILT_FROM),
    ];
    env.extend(pull.map(|pull| ("PULL_SECRET_REQUIRED", pull)));
    env.extend(names::layer_cache(config).map(|repository| ("LAYER_CACHE", repository)));
    let is_fresh = build.metadata.annotations.as_ref().is_some_and(|a| a.contains_key(names::FRESH));
    env.extend(is_fresh.then_some(("FRESH_LAYERS", "1")));
    let signing = names::signing_secret(config);
    env.extend(signing.map(|secret| ("SIGNING_SECRET", secret)));
    if let Some(proxy) = cluster.and_then(|c| c.proxy.as_ref()) {
        let all = [
            ("HTTP_PROXY", &proxy.http_proxy),
            ("HTTPS_PROXY", &proxy.https_proxy),
            ("NO_PROXY", &proxy.no_proxy),
        ];
        env.extend(all.into_iter().filter(|(_, v)| !v.is_empty()).map(|(k, v)| (k, v.as_str())));
    }
    let mut env: Vec<Value> = env.into_iter().map(|(k, v)| json!({"name": k, "value": v})).collect();
    env.push(json!({"name": "NODE_NAME", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}}));
    let secret =
        |volume: &str, name: &str| json!({"name": volume, "secret": {"secretName": name, "optional": true}});
    let map = |volume: &str, name: String, optional| json!({"name": volume, "configMap": {"name": name, "optional": optional}});
    let memory = |volume: &str| json!({"name": volume, "emptyDir": {"medium": "Memory"}});
    let disk = |volume: &str| json!({"name": volume, "emptyDir": {}});
    let at = |volume: &str, path: &str| json!({"name": volume, "mountPath": path});
    let file =
        |volume: &str, path: &str, key: &str| json!({"name": volume, "mountPath": path, "subPath": key});
    let mut mounts = vec![
        at("containerfile", "/tmp/containerfile"),
        at("machineconfig", "/tmp/machineconfig"),
        at("additional-trust-bundle", "/etc/pki/ca-trust/source/anchors"),
        at("pull-secret", "/tmp/secrets/pull"),
        at("push-secret", "/tmp/secrets/push"),
        at("base-image-pull-creds", "/tmp/base-image-pull-creds"),
        at("final-image-push-creds", "/tmp/final-image-push-creds"),
        at("done", "/tmp/done"),
        at("home", "/home/build"),
        at("buildah-cache", "/home/build/.local/share/containers"),
        at("entitlement", "/tmp/optional/etc/pki/entitlement"),
        at("rpm-gpg", "/tmp/optional/etc/pki/rpm-gpg"),
        at("yum-repos", "/tmp/optional/etc/yum.repos.d"),
        at("service-ca", "/tmp/service-ca"),
    ];
    let mut volumes = vec![
        map("containerfile", names::containerfile(&name), false),
        map("machineconfig", names::machine_config(&name), false),
        map("additional-trust-bundle", names::trust_bundle(&name), true),
        secret("pull-secret", pull.unwrap_or(names::DEFAULT_PULL_SECRET)),
        secret("push-secret", push),
        memory("base-image-pull-creds"),
        memory("final-image-push-creds"),
        memory("done"),
        disk("home"),
        disk("buildah-cache"),
        secret("entitlement", &format!("etc-pki-entitlement-{pool}")),
        secret("rpm-gpg", "etc-pki-rpm-gpg"),
        map("yum-repos", "etc-yum-repos-d".to_owned(), true),
        map("service-ca", SERVICE_CA.to_owned(), true),
    ];
    if !base.contains('@') {
        volumes.push(map("base", names::base(&name), true));
        mounts.push(at("base", "/tmp/base"));
    }
    if let Some(secret) = signing {
        // Root in the pod reads it, and what a Containerfile runs does not where another user builds.
        let secret = json!({"secretName": secret, "optional": true, "defaultMode": 0o400});
        volumes.push(json!({"name": "signing-secret", "secret": secret}));
        mounts.push(at("signing-secret", "/tmp/secrets/signing"));
    }
    // Only where there is such a ConfigMap: without it the mount would be an empty folder in the file's place.
    for (volume, map_name, key) in files {
        volumes.push(map(volume, map_name.clone(), false));
        mounts.push(file(volume, &format!("/etc/containers/{key}"), key));
    }
    if !authorities.is_empty() {
        let path = |registry: &str| format!("{registry}/ca.crt");
        let items: Vec<_> =
            authorities.iter().map(|(key, of)| json!({"key": key, "path": path(of)})).collect();
        let name = names::registry_authorities(&name);
        volumes.push(json!({"name": "registry-cas", "configMap": {"name": name, "items": items}}));
        mounts.push(at("registry-cas", api::paths::REGISTRY_CERTIFICATES));
    }
    let mut container = json!({
        "name": CONTAINER,
        "image": builder,
        "imagePullPolicy": "IfNotPresent",
        "command": ["/bin/bash", "-c", SCRIPT],
        "env": env,
        "volumeMounts": mounts,
        "terminationMessagePolicy": "FallbackToLogsOnError",
    });
    // Not on OpenShift, whose SCC lets no pod choose its profiles, and whose runtime needs none of this.
    if !cluster.is_some_and(ControllerConfigSpec::is_openshift) {
        // The profiles of most runtimes keep a pod from making user namespaces and from mounting in them. It gets no
        // capability and sees nothing of its host.
        let unconfined = json!({"type": "Unconfined"});
        container["securityContext"] = json!({"seccompProfile": unconfined, "appArmorProfile": unconfined});
    }
    let pod = json!({
        // On OpenShift: root in the pod, and nothing of the host.
        "metadata": {"labels": labels, "annotations": {"openshift.io/required-scc": "anyuid"}},
        "spec": {
            "restartPolicy": "Never",
            "serviceAccountName": BUILDER_ACCOUNT,
            "terminationGracePeriodSeconds": 10,
            "automountServiceAccountToken": false,
            "enableServiceLinks": false,
            "nodeSelector": {"kubernetes.io/os": "linux"},
            "containers": [container],
            "volumes": volumes,
        },
    });
    json!({
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": metadata(pool, build, &names::job(&name)),
        "spec": {
            "completions": 1,
            "parallelism": 1,
            "backoffLimit": crate::job::RETRIES,
            "activeDeadlineSeconds": DEADLINE_SECONDS,
            "podFailurePolicy": {"rules": [{
                "action": "FailJob",
                "onExitCodes": {"containerName": CONTAINER, "operator": "In", "values": FINAL},
            }]},
            "template": pod,
        },
    })
}
