//! Whether the controller has rendered what MachineConfigs say now: what `--until-updated` asks before it says that all is
//! done. A change that was applied a moment ago shows in no pool yet.
//!
//! The answer is the render rule's own: MachineConfigs as they are, rendered here, give the name that the pool must have.
//! What it is not: settings (KubeletConfigs and the like) of which no MachineConfig was made yet.

use super::plan_objects::{Listed, for_rendering};
use super::plan_settings::without_settings;
use super::render::{Documents, pool_of, render_all};
use api::k8s::LabelSelector;
use api::names::{VERSION_RAW, annotation::GENERATED_BY_VERSION};
use kube::ResourceExt as _;
use render::TemplateSet;
use serde_json::Value;

/// What was found out.
#[derive(Debug)]
pub(super) struct Answer {
    /// Why the pools are not in what their MachineConfigs say now; `None`: they are.
    pub(super) behind: Option<String>,
    /// Kinds that may not be listed: they were taken for absent.
    pub(super) forbidden: Vec<String>,
}

/// Asks the cluster. `shown`: pools and the configs that they were seen to name.
pub(super) async fn behind(client: &kube::Client, shown: &[(String, String)]) -> anyhow::Result<Answer> {
    let Listed { objects, forbidden } = for_rendering(client).await?;
    Ok(Answer { behind: behind_of(objects, shown), forbidden })
}

/// The pure part of [`behind`]: why the pools are not in what these objects give; `None`: they are.
fn behind_of(objects: Documents, shown: &[(String, String)]) -> Option<String> {
    // Another version may render the same to another name.
    let version = objects.iter().find_map(|(_, value)| {
        let notes = value.pointer("/metadata/annotations")?;
        notes.get(GENERATED_BY_VERSION).filter(|_| value["kind"] == "ControllerConfig")?.as_str()
    });
    if version.is_some_and(|version| version != VERSION_RAW) {
        return None;
    }
    let sources: Documents = objects.into_iter().filter(|(_, v)| pool_of(v).is_none()).collect();
    let sources = without_settings(sources);
    let selects_all = |pool: &str| {
        let is_it = |v: &Value| v["kind"] == "MachineConfigPool" && v["metadata"]["name"] == pool;
        let found = sources.iter().find(|(_, v)| is_it(v));
        let selector =
            found.and_then(|(_, v)| v.pointer("/spec/machineConfigSelector")).filter(|s| !s.is_null());
        let selector = selector.and_then(|s| serde_json::from_value::<LabelSelector>(s.clone()).ok());
        selector.is_some_and(|s| api::selector::is_empty(&s))
    };
    let of = |(pool, config): &(String, String)| {
        // The controller renders none of these, so there is nothing that it could be behind with.
        if selects_all(pool) {
            return None;
        }
        let only = std::slice::from_ref(pool);
        match render_all(sources.clone(), &TemplateSet::default(), only) {
            Err(error) => Some(format!(
                "pool {pool}: its MachineConfigs cannot be rendered, and the controller has not said so yet: {error:#}"
            )),
            Ok((rendered, _)) => {
                let name = rendered.get(pool)?.name_any();
                (name != *config).then(|| {
                    format!("pool {pool}: its MachineConfigs give {name}, and the controller has not rendered that yet")
                })
            }
        }
    };
    shown.iter().find_map(of)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    const GROUP: &str = "machineconfiguration.openshift.io";

    #[allow(clippy::needless_pass_by_value, reason = "reads better with json!")]
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
    fn a_pool_that_follows_the_stream_of_worker_is_rendered_with_it_and_needs_no_sound_worker() {
        let mut worker = pool("worker");
        worker.1["spec"]["osImageStream"] = json!({"name": "rhel-10"});
        let objects = |worker| {
            vec![settings(VERSION_RAW), worker, pool("infra"), streams(), config("50-i", "infra", "i")]
        };
        // As the controller renders it: with all pools there. The other one must have something to render for that.
        let all = [objects(worker.clone()), vec![config("50-w", "worker", "w")]].concat();
        let (rendered, _) = render_all(all.clone(), &TemplateSet::default(), &[]).unwrap();
        let infra = &rendered["infra"];
        assert_eq!(infra.spec.os_image_url, "q/rhel-10@sha256:1");
        let seen = |config: String| vec![("infra".to_owned(), config)];
        assert_eq!(behind_of(all, &seen(infra.name_any())), None);
        // Nothing for worker to render, then a worker that is not even a pool: infra is what it was.
        assert_eq!(behind_of(objects(worker.clone()), &seen(infra.name_any())), None);
        worker.1["spec"]["paused"] = json!("hunter2");
        assert_eq!(behind_of(objects(worker), &seen(infra.name_any())), None);
        // Without the stream of worker it has another image, and another name.
        let why = behind_of(objects(pool("worker")), &seen(infra.name_any()));
        assert!(why.as_ref().is_some_and(|w| w.contains("has not rendered that yet")), "{why:?}");
    }

    #[test]
    fn a_pool_that_selects_everything_is_rendered_by_nobody_and_so_is_never_behind() {
        let mut everything = pool("infra");
        everything.1["spec"] = json!({"machineConfigSelector": {}});
        let objects = vec![settings(VERSION_RAW), everything, config("50-i", "infra", "i")];
        assert_eq!(behind_of(objects, &[("infra".to_owned(), "rendered-infra-old".to_owned())]), None);
    }

    #[test]
    fn a_pool_is_behind_until_it_names_what_its_machine_configs_give_now() {
        let base = || vec![settings(VERSION_RAW), pool("worker"), pool("infra")];
        let one = || [base(), vec![config("50-a", "worker", "a"), config("50-i", "infra", "i")]].concat();
        let name = |objects: Documents, of: &str| {
            let (rendered, _) = render_all(objects, &TemplateSet::default(), &[of.to_owned()]).unwrap();
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
            (added, Some("has not rendered that yet")),
            (deleted, Some("pool worker: its MachineConfigs give rendered-worker-")),
            // Of no pool that is shown, or nothing that is rendered.
            (elsewhere, None),
            (noted, None),
            (broken, Some("pool worker: its MachineConfigs cannot be rendered")),
            // It may render otherwise there.
            (other_version, None),
        ] {
            let why = behind_of(objects, &seen);
            match says {
                None => assert_eq!(why, None),
                Some(text) => assert!(why.as_ref().is_some_and(|w| w.contains(text)), "{text}: {why:?}"),
            }
        }
        // Back to what it was before: the old name is right again.
        assert_eq!(behind_of(one(), &[("worker".to_owned(), worker)]), None);
    }
}
