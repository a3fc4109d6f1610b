//! The OS image that was built for a pool's config, so that a new machine boots into it directly. Pure.
//!
//! What it is not: the build (other controllers make MachineOSConfigs and MachineOSBuilds), which build belongs to a config
//! and whether a new machine may have its image (see `api::images::image_builds`), and which config is served (see `served_config`).

use api::images::image_builds::{OsBuild, OsConfig, image_for_new_machines};
use std::borrow::Borrow;

/// The hosts of the cluster's own registry, which booting machines cannot reach.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct InternalRegistry {
    /// `SERVICE.NAMESPACE.svc:PORT` and route hosts.
    pub hosts: Vec<String>,
}

impl InternalRegistry {
    /// Whether an image is in it. A host without a port stands for all of its ports.
    fn has(&self, image: &str) -> bool {
        let named = image.split_once('/').map_or(image, |(host, _)| host);
        let bare = named.rsplit_once(':').map_or(named, |(host, _)| host);
        self.hosts.iter().any(|host| !host.is_empty() && (host == named || host == bare))
    }
}

/// The image for a pool's served config: the one that its nodes are to run. There is none if no build has made it for this config;
/// if no node has the config yet; or if the image is in the cluster's own registry.
pub fn layered_image(
    pool: &str,
    config: &str,
    updated: i32,
    os_configs: &[impl Borrow<OsConfig>],
    os_builds: &[impl Borrow<OsBuild>],
    internal: &InternalRegistry,
) -> Option<String> {
    if updated < 1 {
        return None;
    }
    let image = image_for_new_machines(pool, config, os_configs, os_builds)?;
    (!internal.has(&image)).then(|| image.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use api::names::annotation::CURRENT_BUILD;
    use serde_json::{Value, json};

    const IMAGE: &str = "quay.io/os@sha256:1";

    fn mk_config(image: &str) -> Value {
        json!({
            "metadata": {"name": "layered"},
            "spec": {"machineConfigPool": {"name": "worker"}},
            "status": {"currentImagePullSpec": image},
        })
    }

    fn mk_build(config: &str, succeeded: &str) -> Value {
        json!({
            "metadata": {"name": format!("build-{config}")},
            "spec": {"machineOSConfig": {"name": "layered"}, "machineConfig": {"name": config}},
            "status": {
                "digestedImagePushSpec": IMAGE,
                "conditions": [{"type": "Succeeded", "status": succeeded}],
            },
        })
    }

    fn mk_build_of(image: &str, name: &str) -> Value {
        let mut build = mk_build("rendered-1", "True");
        build["status"]["digestedImagePushSpec"] = json!(image);
        build["metadata"]["name"] = json!(name);
        build
    }

    fn mk_in_force(build: &str) -> Value {
        let mut config = mk_config(IMAGE);
        config["metadata"]["annotations"] = json!({CURRENT_BUILD: build});
        config
    }

    #[test]
    fn an_image_is_found_only_where_everything_holds() {
        const INSIDE: &str = "image-registry.openshift-image-registry.svc:5000/os@sha256:1";
        const OUTSIDE: &str = "route.example.com.evil.org/os@sha256:1";
        const ROUTE: &str = "route.example.com:443/os@sha256:1";
        let hosts = ["image-registry.openshift-image-registry.svc:5000", "route.example.com"];
        let internal = InternalRegistry { hosts: hosts.map(str::to_owned).into() };
        let (config, build) = (|| vec![mk_config(IMAGE)], || vec![mk_build("rendered-1", "True")]);
        let two = || vec![mk_build_of(IMAGE, "old"), mk_build_of("quay.io/os@sha256:2", "new")];
        let of = |image: &str| vec![mk_build_of(image, "b")];
        // The build in force is `new`, which has not succeeded.
        let edited = |old: &str, state: &str| {
            let mut new = mk_build_of("", "new");
            new["status"] = json!({"conditions": [{"type": state, "status": "True"}]});
            vec![new, mk_build_of(old, "old")]
        };
        let of_another = || {
            let mut build = mk_build_of(IMAGE, "old");
            build["spec"]["machineOSConfig"]["name"] = json!("another");
            vec![build]
        };
        let rows = [
            ("worker", 1, config(), build(), Some(IMAGE), "all holds"),
            ("worker", 0, config(), build(), None, "not proved"),
            ("infra", 1, config(), build(), None, "another pool"),
            ("worker", 1, vec![], build(), None, "no MachineOSConfig"),
            ("worker", 1, vec![mk_config("")], build(), None, "no image"),
            ("worker", 1, config(), vec![], None, "no build"),
            ("worker", 1, config(), vec![mk_build("rendered-0", "True")], None, "another config"),
            ("worker", 1, config(), vec![mk_build("rendered-1", "False")], None, "not succeeded"),
            ("worker", 1, vec![mk_config(INSIDE)], of(INSIDE), None, "in the cluster's own registry"),
            ("worker", 1, vec![mk_config(ROUTE)], of(ROUTE), None, "there by its route and port"),
            ("worker", 1, vec![mk_config(OUTSIDE)], of(OUTSIDE), Some(OUTSIDE), "a host that begins alike"),
            ("worker", 1, config(), of("quay.io/os@sha256:2"), None, "the image of another build"),
            ("worker", 1, vec![mk_in_force("old")], two(), Some(IMAGE), "the build in force"),
            (
                "worker",
                1,
                vec![mk_in_force("new")],
                two(),
                None,
                "the image is not that of the build in force",
            ),
            (
                "worker",
                1,
                vec![mk_in_force("new")],
                edited(IMAGE, "Building"),
                Some(IMAGE),
                "the next is built",
            ),
            ("worker", 1, vec![mk_in_force("new")], edited(IMAGE, "Failed"), Some(IMAGE), "the next failed"),
            ("worker", 1, vec![mk_in_force("new")], edited(IMAGE, "Interrupted"), Some(IMAGE), "interrupted"),
            ("worker", 1, vec![mk_in_force("new")], build(), Some(IMAGE), "the next is not there yet"),
            (
                "worker",
                1,
                vec![mk_in_force("new")],
                edited("q.io/x@sha256:3", "Failed"),
                None,
                "nobody made it",
            ),
            ("worker", 1, config(), of_another(), None, "a build of another MachineOSConfig"),
        ];
        for (pool, updated, configs, builds, want, why) in rows {
            let configs: Vec<OsConfig> = configs.iter().map(OsConfig::new).collect();
            let builds: Vec<OsBuild> = builds.iter().map(OsBuild::new).collect();
            let got = layered_image(pool, "rendered-1", updated, &configs, &builds, &internal);
            assert_eq!(got.as_deref(), want, "{why}");
        }
    }
}
