//! The steps of a plan of image builds, written to the API server. Nothing is decided here.

use super::{Snapshot, job_item, jobs};
use crate::change::Changed;
use crate::io::clock::now;
use crate::io::events::{Source, reference};
use crate::passes::old_images;
use crate::shared::Shared;
use api::conditions::StatusCondition as _;
use api::events::ControllerEvent;
use api::k8s::{ConfigMap, ResourceExt};
use api::names::{NAMESPACE, annotation};
use api::v1::{MachineConfig, MachineOSBuild, MachineOSBuildStatus, MachineOSConfig};
use build::{OsConfigUpdate, State, Step, names, objects, objects::LeftOver};
use client::{CallError, call, if_found};
use kube::api::{Api, DeleteParams, DynamicObject, Patch, PatchParams, PostParams, Preconditions};
use serde_json::{Value, json};

/// Takes one step.
pub(super) async fn carry_out(shared: &Shared, snapshot: &Snapshot, step: Step) -> Result<(), CallError> {
    match step {
        Step::Create(build) => {
            let what = || format!("create machineosbuild {}", build.name_any());
            let made = call(what, shared.api().create(&PostParams::default(), &*build)).await?;
            shared.os_build_created(&made);
        }
        Step::Start(name) => {
            if let Some(build) = snapshot.build(&name) {
                start(shared, snapshot, build).await?;
            }
        }
        Step::Adopt { build, uid } => {
            annotate(shared, &build, names::JOB_UID, &uid).await?;
        }
        Step::Base { build: name, image } => {
            if let Some(build) = snapshot.build(&name) {
                let map = objects::base_map(&snapshot.pool.name_any(), build, &image);
                // A foreign one of this name is left alone; the pods after it look the tag up again.
                create_map(shared, build, &map).await?;
                annotate(shared, &name, names::BUILT_ON, &image).await?;
            }
        }
        Step::Status { build, state, status } => {
            if let Some(build) = snapshot.build(&build) {
                write_status(shared, build, state, &status).await?;
            }
        }
        Step::Stop(name) => stop(shared, &name).await?,
        Step::Remember(pushed) => {
            old_images::list::write_entries(shared, &[(pushed.key(), Some(pushed.text()))]).await?;
        }
        Step::Keep { build, key } => {
            // In this order: a build that says so is on no list.
            let entries: Vec<_> = key.into_iter().map(|key| (key, None)).collect();
            old_images::list::write_entries(shared, &entries).await?;
            annotate(shared, &build, names::OLD_IMAGES, names::KEEP).await?;
        }
        Step::Delete { build, .. } => {
            let uid = snapshot.build(&build).and_then(|b| b.metadata.uid.clone());
            let params = DeleteParams {
                preconditions: Some(Preconditions { uid, resource_version: None }),
                ..DeleteParams::background()
            };
            let api = shared.api::<MachineOSBuild>();
            unless_gone(
                call(|| format!("delete machineosbuild {build}"), api.delete(&build, &params)).await,
            )?;
            if let Some(change) = shared.stores.os_builds.remove(&build) {
                shared.os_build_changed(&change);
            }
        }
        Step::UpdateOsConfig(point) => {
            if let Some(config) = snapshot.config() {
                update_os_config(shared, config, &point).await?;
            }
        }
    }
    Ok(())
}

async fn annotate(shared: &Shared, build: &str, key: &str, value: &str) -> Result<(), CallError> {
    let patch = json!({"metadata": {"annotations": {key: value}}});
    let api = shared.api::<MachineOSBuild>();
    let what = || format!("annotation {key} of machineosbuild {build}");
    let answer = call(what, api.patch(build, &PatchParams::default(), &Patch::Merge(patch))).await?;
    shared.os_build_answer(&answer);
    Ok(())
}

/// What is gone already counts as deleted.
fn unless_gone<T>(result: Result<T, CallError>) -> Result<(), CallError> {
    if_found(result).map(drop)
}

/// Creates the objects of a build, its Job last: a Job that exists has everything that it needs.
async fn start(shared: &Shared, snapshot: &Snapshot, build: &MachineOSBuild) -> Result<(), CallError> {
    let (Some(config), Some(builder)) = (snapshot.config(), snapshot.builder.as_deref()) else {
        return Ok(());
    };
    let name = &build.spec.machine_config.name;
    let rendered: MachineConfig =
        call(|| format!("get machineconfig {name}"), shared.api::<MachineConfig>().get(name)).await?;
    let cluster = shared.stores.controller_config();
    let now = now();
    let made = objects::of(objects::Inputs {
        pool: &snapshot.pool.name_any(),
        build,
        config,
        rendered: &rendered,
        cluster: cluster.as_deref().map(|c| &c.spec),
        builder,
        now: &now,
    });
    let made = match made {
        Ok(made) => made,
        Err(why) => {
            let status = build::refused(build, &why.to_string(), &now);
            return write_status(shared, build, State::Failed, &status).await;
        }
    };
    for map in &made.config_maps {
        if !create_map(shared, build, map).await? {
            let why = format!(
                "ConfigMap {NAMESPACE}/{} exists, and was not made for this build; delete it, then ask for a rebuild",
                map.name_any()
            );
            let status = build::refused(build, &why, &now);
            return write_status(shared, build, State::Failed, &status).await;
        }
    }
    let (api, job) = (jobs(shared), names::job(&build.name_any()));
    let object: DynamicObject = match serde_json::from_value(made.job) {
        Ok(object) => object,
        Err(why) => {
            let status = build::refused(build, &why.to_string(), &now);
            return write_status(shared, build, State::Failed, &status).await;
        }
    };
    let answer = match call(|| format!("create job {job}"), api.create(&PostParams::default(), &object)).await
    {
        Err(e) if e.is_conflict() => call(|| format!("get job {job}"), api.get(&job)).await?,
        other => other?,
    };
    let item = job_item(&answer);
    let message = format!("job {job} builds the OS image of pool {}", snapshot.pool.name_any());
    shared.events.publish(Source::Builder, reference(build), ControllerEvent::BuildStarted, message);
    if shared.stores.build_jobs.created(&format!("{NAMESPACE}/{job}"), item).is_some() {
        shared.changed(&Changed::ImageBuild(&snapshot.pool.name_any()));
    }
    Ok(())
}

/// Creates a ConfigMap of a build. `false`: there is one of this name that is of something else.
async fn create_map(shared: &Shared, build: &MachineOSBuild, map: &ConfigMap) -> Result<bool, CallError> {
    let maps: Api<ConfigMap> = Api::namespaced(shared.client.clone(), NAMESPACE);
    let (params, name) = (PostParams::default(), map.name_any());
    let create = || call(|| format!("create configmap {name}"), maps.create(&params, map));
    match create().await {
        Err(e) if e.is_conflict() => {}
        other => return other.map(|_| true),
    }
    let found = call(|| format!("get configmap {name}"), maps.get_opt(&name)).await?;
    match found.as_ref().map(|found| objects::left_over(build, &found.metadata)) {
        // It is from an interrupted attempt, and has the right content: the build's name is a hash of it.
        Some(LeftOver::SameBuild) => {}
        Some(LeftOver::EarlierBuild { uid }) => {
            let preconditions = Some(Preconditions { uid: Some(uid), resource_version: None });
            let params = DeleteParams { preconditions, ..DeleteParams::default() };
            unless_gone(call(|| format!("delete configmap {name}"), maps.delete(&name, &params)).await)?;
            drop(create().await?);
        }
        None => drop(create().await?),
        Some(LeftOver::Foreign) => return Ok(false),
    }
    Ok(true)
}

/// Deletes the ConfigMaps and the Job of a build; the Job last, because what is left is found by it.
async fn stop(shared: &Shared, build: &str) -> Result<(), CallError> {
    let job = names::job(build);
    let maps: Api<ConfigMap> = Api::namespaced(shared.client.clone(), NAMESPACE);
    for map in names::config_maps(build) {
        let params = DeleteParams::default();
        unless_gone(call(|| format!("delete configmap {map}"), maps.delete(&map, &params)).await)?;
    }
    unless_gone(
        call(|| format!("delete job {job}"), jobs(shared).delete(&job, &DeleteParams::background())).await,
    )?;
    shared.stores.build_jobs.remove(&format!("{NAMESPACE}/{job}"));
    Ok(())
}

/// Writes a build's status, bound to the version that it was computed from, and the event of its new state.
async fn write_status(
    shared: &Shared,
    build: &MachineOSBuild,
    state: State,
    status: &MachineOSBuildStatus,
) -> Result<(), CallError> {
    let name = build.name_any();
    // An earlier step of the same plan may have written the object.
    let present = shared.stores.os_builds.get(&name);
    let present = present.as_ref().and_then(|b| b.object.as_ref().ok());
    let version = present.and_then(ResourceExt::resource_version);
    let news = build::observation(present.unwrap_or(build), state, status);
    let patch = json!({"metadata": {"resourceVersion": version}, "status": status});
    let api = shared.api::<MachineOSBuild>();
    let what = || format!("status of machineosbuild {name}");
    let answer = call(what, api.patch_status(&name, &PatchParams::default(), &Patch::Merge(patch))).await?;
    if let Some(pool) = build.labels().get(names::POOL) {
        shared.metrics.images.count(pool, &news);
    }
    let said = answer.status.iter().flat_map(|s| s.conditions.iter().flatten()).find(|c| c.is_true());
    let said = said.map(|c| c.message.clone()).unwrap_or_default();
    let event = match state {
        State::Succeeded => Some(ControllerEvent::BuildCompleted),
        State::Failed => Some(ControllerEvent::BuildFailed),
        State::Interrupted => Some(ControllerEvent::BuildInterrupted),
        State::Initial | State::Prepared | State::Building => None,
    };
    if let Some(event) = event {
        shared.events.publish(Source::Builder, reference(&answer), event, said);
    }
    shared.os_build_answer(&answer);
    Ok(())
}

/// Writes what a MachineOSConfig says of its builds: annotations first, because the status says that there is an image.
async fn update_os_config(
    shared: &Shared,
    config: &MachineOSConfig,
    point: &OsConfigUpdate,
) -> Result<(), CallError> {
    let name = config.name_any();
    let api = shared.api::<MachineOSConfig>();
    let mut notes = json!({annotation::CURRENT_BUILD: point.build});
    for key in &point.clear {
        notes[*key] = Value::Null;
    }
    let patch = json!({"metadata": {"resourceVersion": config.resource_version(), "annotations": notes}});
    let what = || format!("annotations of machineosconfig {name}");
    let answer = call(what, api.patch(&name, &PatchParams::default(), &Patch::Merge(patch))).await?;
    shared.os_config_answer(&answer);
    if let Some(status) = &point.status {
        let patch = json!({"metadata": {"resourceVersion": answer.resource_version()}, "status": status});
        let what = || format!("status of machineosconfig {name}");
        let answer =
            call(what, api.patch_status(&name, &PatchParams::default(), &Patch::Merge(patch))).await?;
        shared.os_config_answer(&answer);
    }
    Ok(())
}
