//! The OS image that was built for a pool's config, so that a new machine boots into it directly. Pure.
//!
//! What it is not: the build (other controllers make MachineOSConfigs and MachineOSBuilds), and which config is
//! served (see `served_config`).

use serde_json::Value;

/// The hosts of the cluster's own registry, which booting machines cannot reach.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct InternalRegistry {
    /// `SERVICE.NAMESPACE.svc:PORT` and route hosts.
    pub hosts: Vec<String>,
}

/// The image for a pool's served config. There is none if no MachineOSConfig names the pool, or it has no image; if no
/// MachineOSBuild of it succeeded for this config; if no node has the config yet; or if the image is in the cluster's own
/// registry.
pub fn layered_image(
    pool: &str,
    config: &str,
    updated: i32,
    os_configs: &[Value],
    os_builds: &[Value],
    internal: &InternalRegistry,
) -> Option<String> {
    if updated < 1 {
        return None;
    }
    let text = |v: &Value, path: &str| v.pointer(path).and_then(Value::as_str).map(str::to_owned);
    let of_pool = |c: &&Value| text(c, "/spec/machineConfigPool/name").as_deref() == Some(pool);
    let os_config = os_configs.iter().find(of_pool)?;
    let image = text(os_config, "/status/currentImagePullSpec").filter(|i| !i.is_empty())?;
    let name = text(os_config, "/metadata/name")?;
    let built = os_builds.iter().any(|b| {
        text(b, "/spec/machineOSConfig/name").as_deref() == Some(name.as_str())
            && text(b, "/spec/machineConfig/name").as_deref() == Some(config)
            && succeeded(b)
    });
    let inside = internal.hosts.iter().any(|host| !host.is_empty() && image.starts_with(host.as_str()));
    (built && !inside).then_some(image)
}

fn succeeded(build: &Value) -> bool {
    let conditions = build.pointer("/status/conditions").and_then(Value::as_array);
    conditions.into_iter().flatten().any(|c| c["type"] == "Succeeded" && c["status"] == "True")
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn mk_config(image: &str) -> Value {
        json!({
            "metadata": {"name": "layered"},
            "spec": {"machineConfigPool": {"name": "worker"}},
            "status": {"currentImagePullSpec": image},
        })
    }

    fn mk_build(config: &str, succeeded: &str) -> Value {
        json!({
            "spec": {"machineOSConfig": {"name": "layered"}, "machineConfig": {"name": config}},
            "status": {"conditions": [{"type": "Succeeded", "status": succeeded}]},
        })
    }

    #[test]
    fn an_image_is_found_only_where_everything_holds() {
        const IMAGE: &str = "quay.io/os@sha256:1";
        const INSIDE: &str = "image-registry.openshift-image-registry.svc:5000/os@sha256:1";
        let internal =
            InternalRegistry { hosts: vec!["image-registry.openshift-image-registry.svc:5000".to_owned()] };
        let (config, build) = (|| vec![mk_config(IMAGE)], || vec![mk_build("rendered-1", "True")]);
        let rows = [
            ("worker", 1, config(), build(), Some(IMAGE), "all holds"),
            ("worker", 0, config(), build(), None, "not proved"),
            ("infra", 1, config(), build(), None, "another pool"),
            ("worker", 1, vec![], build(), None, "no MachineOSConfig"),
            ("worker", 1, vec![mk_config("")], build(), None, "no image"),
            ("worker", 1, config(), vec![], None, "no build"),
            ("worker", 1, config(), vec![mk_build("rendered-0", "True")], None, "another config"),
            ("worker", 1, config(), vec![mk_build("rendered-1", "False")], None, "not succeeded"),
            ("worker", 1, vec![mk_config(INSIDE)], build(), None, "in the cluster's own registry"),
        ];
        for (pool, updated, configs, builds, want, why) in rows {
            let got = layered_image(pool, "rendered-1", updated, &configs, &builds, &internal);
            assert_eq!(got.as_deref(), want, "{why}");
        }
    }
}
