//! Whether the controller has still to render MachineConfigs as they are now. `--until-updated` asks this before it says that
//! all nodes are updated: a change that was applied a moment ago shows in no pool yet. Pure.
//!
//! The MachineConfigs are rendered here by the controller's own rule, and the result is the name that the pool must have.
//! What it is not: a check of settings (KubeletConfigs and the like) from which no MachineConfig was made yet.

use crate::change::rendering::{RenderWith, Rendered, rendered};
use crate::change::settings::without_settings;
use crate::objects::{Objects, pool_of};
use api::k8s::LabelSelector;
use api::names::{VERSION_RAW, annotation::GENERATED_BY_VERSION};
use kube::ResourceExt as _;
use serde_json::Value;

/// Why a pool does not name the config that these objects render to; `None`: every pool does. `shown`: the pools, and the
/// configs that they name.
pub fn unrendered(objects: Objects, shown: &[(String, String)], with: RenderWith<'_>) -> Option<String> {
    // Another version may render the same to another name.
    let version = objects.iter().find_map(|(_, value)| {
        let notes = value.pointer("/metadata/annotations")?;
        notes.get(GENERATED_BY_VERSION).filter(|_| value["kind"] == "ControllerConfig")?.as_str()
    });
    if version.is_some_and(|version| version != VERSION_RAW) {
        return None;
    }
    let sources: Objects = objects.into_iter().filter(|(_, v)| pool_of(v).is_none()).collect();
    let sources = without_settings(sources);
    let selects_all = |pool: &str| {
        let is_it = |v: &Value| v["kind"] == "MachineConfigPool" && v["metadata"]["name"] == pool;
        let found = sources.iter().find(|(_, v)| is_it(v));
        let selector =
            found.and_then(|(_, v)| v.pointer("/spec/machineConfigSelector")).filter(|s| !s.is_null());
        let selector = selector.and_then(|s| serde_json::from_value::<LabelSelector>(s.clone()).ok());
        selector.is_some_and(|s| api::formats::selector::is_empty(&s))
    };
    // The controller does not render pools that select everything, so nothing is missing there.
    let shown: Vec<_> = shown.iter().filter(|(pool, _)| !selects_all(pool)).collect();
    if shown.is_empty() {
        return None;
    }
    let other = |rendered: &Rendered, (pool, config): &(String, String)| {
        let name = rendered.get(pool)?.name_any();
        (name != *config).then(|| {
            format!(
                "pool {pool}: its MachineConfigs render to {name}, which the controller has not created yet"
            )
        })
    };
    let names: Vec<String> = shown.iter().map(|(pool, _)| pool.clone()).collect();
    if let Ok((rendered, _)) = rendered(sources.clone(), with, &names) {
        return shown.into_iter().find_map(|of| other(&rendered, of));
    }
    // One of them is refused: each is rendered by itself, so that the refused one is named and does not block the others.
    shown.into_iter().find_map(|of| match rendered(sources.clone(), with, std::slice::from_ref(&of.0)) {
        Ok((rendered, _)) => other(&rendered, of),
        Err(error) => Some(format!(
            "pool {}: its MachineConfigs cannot be rendered, and the controller has not reported it yet: {}",
            of.0,
            api::formats::text::chain(&error)
        )),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use api::v1::ControllerConfig;
    use render::TemplateSet;
    use serde_json::json;

    const GROUP: &str = "machineconfiguration.openshift.io";

    #[expect(clippy::needless_pass_by_value, reason = "reads better with json!")]
    fn object(kind: &str, name: &str, more: Value) -> (String, Value) {
        let mut value = json!({"apiVersion": format!("{GROUP}/v1"), "kind": kind, "metadata": {"name": name}, "spec": {}});
        let fields = more.as_object().cloned().unwrap_or_default();
        for (path, field) in fields {
            *value.pointer_mut(&path).unwrap() = field;
        }
        ("the cluster".to_owned(), value)
    }

    fn pool(name: &str) -> (String, Value) {
        let role = json!({"matchLabels": {format!("{GROUP}/role"): name}});
        object("MachineConfigPool", name, json!({"/spec": {"machineConfigSelector": role}}))
    }

    fn config(name: &str, role: &str, argument: &str) -> (String, Value) {
        let labels = json!({"name": name, "labels": {format!("{GROUP}/role"): role}});
        object("MachineConfig", name, json!({"/metadata": labels, "/spec": {"kernelArguments": [argument]}}))
    }

    fn settings(version: &str) -> (String, Value) {
        let name = "machine-config-controller";
        let metadata = json!({"name": name, "annotations": {GENERATED_BY_VERSION: version}});
        object("ControllerConfig", name, json!({"/metadata": metadata}))
    }

    /// Renders without templates; the objects always have a ControllerConfig.
    fn with<T>(then: impl FnOnce(RenderWith<'_>) -> T) -> T {
        let templates = TemplateSet::default();
        let controller_config = ControllerConfig::new("unused", api::v1::ControllerConfigSpec::default());
        then(RenderWith { templates: &templates, controller_config: &controller_config })
    }

    fn asked(objects: Objects, shown: &[(String, String)]) -> Option<String> {
        with(|with| unrendered(objects, shown, with))
    }

    fn all_of(objects: Objects, only: &[String]) -> Rendered {
        with(|with| rendered(objects, with, only)).unwrap().0
    }

    /// Streams of OS images: rhel-9 unless a pool says otherwise.
    fn streams() -> (String, Value) {
        let stream = |name: &str| json!({"name": name, "osImage": format!("q/{name}@sha256:1"), "osExtensionsImage": ""});
        let all =
            json!({"defaultStream": "rhel-9", "availableStreams": [stream("rhel-9"), stream("rhel-10")]});
        let (origin, mut object) = object("OSImageStream", "cluster", json!({}));
        object["status"] = all;
        (origin, object)
    }

    #[test]
    fn a_pool_inherits_workers_stream_also_when_worker_cannot_be_rendered() {
        let mut worker = pool("worker");
        worker.1["spec"]["osImageStream"] = json!({"name": "rhel-10"});
        let objects = |worker| {
            vec![settings(VERSION_RAW), worker, pool("infra"), streams(), config("50-i", "infra", "i")]
        };
        // As the controller renders it: with all pools. The other pool must select at least one MachineConfig for that.
        let all = [objects(worker.clone()), vec![config("50-w", "worker", "w")]].concat();
        let rendered = all_of(all.clone(), &[]);
        let infra = &rendered["infra"];
        assert_eq!(infra.spec.os_image_url, "q/rhel-10@sha256:1");
        let seen = |config: String| vec![("infra".to_owned(), config)];
        assert_eq!(asked(all, &seen(infra.name_any())), None);
        // Worker selects no MachineConfig, then the pool does not exist at all: infra stays the same.
        assert_eq!(asked(objects(worker.clone()), &seen(infra.name_any())), None);
        worker.1["spec"]["paused"] = json!("hunter2");
        assert_eq!(asked(objects(worker), &seen(infra.name_any())), None);
        // Without the stream of worker it has another image, and another name.
        let why = asked(objects(pool("worker")), &seen(infra.name_any()));
        assert!(why.as_ref().is_some_and(|w| w.contains("has not created yet")), "{why:?}");
    }

    #[test]
    fn a_pool_that_selects_everything_is_not_rendered_and_never_reported() {
        let mut everything = pool("infra");
        everything.1["spec"] = json!({"machineConfigSelector": {}});
        let objects = vec![settings(VERSION_RAW), everything, config("50-i", "infra", "i")];
        assert_eq!(asked(objects, &[("infra".to_owned(), "rendered-infra-old".to_owned())]), None);
    }

    #[test]
    fn a_pool_is_reported_until_it_names_the_config_of_its_present_machine_configs() {
        let base = || vec![settings(VERSION_RAW), pool("worker"), pool("infra")];
        let one = || [base(), vec![config("50-a", "worker", "a"), config("50-i", "infra", "i")]].concat();
        let name = |objects: Objects, of: &str| {
            let rendered = all_of(objects, &[of.to_owned()]);
            rendered[of].name_any()
        };
        let (worker, infra) = (name(one(), "worker"), name(one(), "infra"));
        let seen = vec![("infra".to_owned(), infra), ("worker".to_owned(), worker.clone())];
        let mut changed = one();
        changed[3] = config("50-a", "worker", "b");
        let new = name(changed.clone(), "worker");
        let added = [one(), vec![config("60-b", "worker", "b")]].concat();
        let deleted = [base(), vec![config("50-i", "infra", "i"), config("40-z", "worker", "z")]].concat();
        let elsewhere = [one(), vec![config("60-m", "master", "m")]].concat();
        let mut broken = one();
        broken[3].1["spec"]["config"] = json!({"ignition": {"version": "9.9.9"}});
        let mut other_version = changed.clone();
        other_version[0] = settings("v9.9.9");
        let noted = {
            let mut objects = one();
            objects[3].1["metadata"]["annotations"] = json!({"note": "x"});
            objects
        };
        for (objects, says) in [
            (one(), None),
            (changed, Some(new.as_str())),
            (added, Some("has not created yet")),
            (deleted, Some("pool worker: its MachineConfigs render to rendered-worker-")),
            // A MachineConfig of no pool that is shown, or an object that is not rendered.
            (elsewhere, None),
            (noted, None),
            (broken, Some("pool worker: its MachineConfigs cannot be rendered")),
            // The controller may render it differently.
            (other_version, None),
        ] {
            let why = asked(objects, &seen);
            match says {
                None => assert_eq!(why, None),
                Some(text) => assert!(why.as_ref().is_some_and(|w| w.contains(text)), "{text}: {why:?}"),
            }
        }
        // Reverted: the old name is correct again.
        assert_eq!(asked(one(), &[("worker".to_owned(), worker)]), None);
    }
}
