//! Writes the objects of a plan into the cluster.

use super::{InstallError, Options, Step, WriteMode};
use crate::boot_tokens;
use crate::objects::{FIELD_MANAGER, Key, resource};
use crate::stored_versions;
use api::conditions;
use client::{call, call_optional, retry};
use kube::Client;
use kube::api::{Api, DynamicObject, Patch, PatchParams, PostParams};
use serde_json::{Value, json};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// How long to wait until a new kind is served. It usually takes a second; on a loaded API server, a few.
pub(super) const ESTABLISH_TIMEOUT: Duration = Duration::from_secs(60);
/// How often the API server is asked whether a new kind is served.
const ESTABLISH_POLL: Duration = Duration::from_millis(50);

/// Carries out an installation: the plan's objects, and where the config server requires boot tokens, the move of those of
/// an earlier version. `progress` is called after each object.
///
/// # Errors
/// The first request that failed.
pub async fn carry_out(
    client: &Client,
    options: &Options,
    steps: &[Step],
    progress: impl FnMut(&Step),
) -> Result<(), InstallError> {
    let with_tokens = options.image.is_some() && options.require_token;
    if with_tokens {
        // Before the new servers look for tokens there, and again for uses that old servers recorded meanwhile.
        boot_tokens::keep_namespace(client).await?;
        boot_tokens::move_tokens(client).await?;
    }
    apply(client, steps, progress).await?;
    if with_tokens {
        boot_tokens::move_tokens(client).await?;
    }
    Ok(())
}

/// Writes the plan's objects, and waits until new kinds are served. `progress` is called after each step.
///
/// # Errors
/// The first step that the API server refused, with its answer.
async fn apply(client: &Client, steps: &[Step], mut progress: impl FnMut(&Step)) -> Result<(), InstallError> {
    let (definitions, rest): (Vec<&Step>, Vec<&Step>) = steps.iter().partition(|s| s.is_definition());
    let definitions =
        futures::future::try_join_all(definitions.into_iter().map(|step| keeping_stored(client, step)))
            .await?;
    // Concurrently: the CRDs do not depend on each other.
    futures::future::try_join_all(definitions.iter().map(|step| one(client, step))).await?;
    definitions.iter().for_each(&mut progress);
    futures::future::try_join_all(definitions.iter().map(|step| established(client, &step.object))).await?;
    for step in rest {
        one(client, step).await?;
        progress(step);
    }
    Ok(())
}

/// The step, without dropping a version in which objects are stored: the API server would refuse that. The operator rewrites
/// the objects, and takes the version away.
async fn keeping_stored(client: &Client, step: &Step) -> Result<Step, InstallError> {
    let name = step.object.pointer("/metadata/name").and_then(Value::as_str).unwrap_or_default();
    let there = stored_versions::definition(client, name).await?;
    Ok(match stored_versions::plan(&step.object, there.as_ref()) {
        stored_versions::Plan::Apply => step.clone(),
        stored_versions::Plan::Between(both) => Step { how: step.how.clone(), object: both },
    })
}

async fn one(client: &Client, step: &Step) -> Result<(), InstallError> {
    let name = step.object.pointer("/metadata/name").and_then(Value::as_str).unwrap_or_default();
    let resource =
        resource(&step.object).ok_or_else(|| InstallError::UnknownKind { step: step.to_string() })?;
    let api: Api<DynamicObject> = match step.object.pointer("/metadata/namespace").and_then(Value::as_str) {
        Some(namespace) => Api::namespaced_with(client.clone(), namespace, &resource),
        None => Api::all_with(client.clone(), &resource),
    };
    if let WriteMode::ApplyOver(read) = &step.how {
        return apply_over(&api, name, step, read).await;
    }
    let request = async {
        match &step.how {
            WriteMode::Apply | WriteMode::ApplyOver(_) => {
                let params = PatchParams::apply(FIELD_MANAGER).force();
                api.patch(name, &params, &Patch::Apply(&step.object)).await.map(drop)
            }
            WriteMode::CreateIfMissing => {
                let object = serde_json::from_value(step.object.clone()).map_err(kube::Error::SerdeError)?;
                api.create(&PostParams::default(), &object).await.map(drop)
            }
            WriteMode::Update(patch) => {
                let params =
                    PatchParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PatchParams::default() };
                api.patch(name, &params, &Patch::Merge(patch)).await.map(drop)
            }
        }
    };
    match (call(|| step.to_string(), request).await, &step.how) {
        (Err(error), WriteMode::CreateIfMissing) if error.is_conflict() => Ok(()),
        (Err(error), WriteMode::Update(_)) if error.is_conflict() => {
            Err(InstallError::Changed { object: Key::of(&step.object).to_string() })
        }
        (done, _) => Ok(done?),
    }
}

/// Applies an object if what people write of it is still as it was read. A status that was written since changes nothing: while an
/// operator starts, it writes the status of its settings a few times a second.
async fn apply_over(
    api: &Api<DynamicObject>,
    name: &str,
    step: &Step,
    read: &Value,
) -> Result<(), InstallError> {
    let params = PatchParams::apply(FIELD_MANAGER).force();
    // The API server counts each change of the spec as a generation.
    let written = |metadata: &Value| {
        ["uid", "generation", "labels", "annotations"].map(|field| metadata.get(field).cloned())
    };
    let is_first = AtomicBool::new(true);
    // Whether it was still so.
    let apply = || async {
        let there = match is_first.swap(false, Ordering::Relaxed) {
            true => read.clone(),
            false => {
                let there = call_optional(|| format!("get {name}"), api.get_metadata(name)).await?;
                there.map(|there| json!(there.metadata)).unwrap_or_default()
            }
        };
        if written(&there) != written(read) {
            return Ok(false);
        }
        let mut object = step.object.clone();
        object["metadata"]["resourceVersion"] = there["resourceVersion"].clone();
        call(|| step.to_string(), api.patch(name, &params, &Patch::Apply(&object))).await.map(|_| true)
    };
    match retry::on_conflict(apply).await? {
        true => Ok(()),
        false => Err(InstallError::Changed { object: Key::of(&step.object).to_string() }),
    }
}

/// Waits until the API server serves the kind that this definition defines.
///
/// # Errors
/// It does not within [`ESTABLISH_TIMEOUT`], with the definition's conditions.
pub(crate) async fn established(client: &Client, definition: &Value) -> Result<(), InstallError> {
    let name = definition.pointer("/metadata/name").and_then(Value::as_str).unwrap_or_default();
    let resource = resource(definition).ok_or_else(|| InstallError::UnknownKind { step: name.to_owned() })?;
    let api: Api<DynamicObject> = Api::all_with(client.clone(), &resource);
    let end = tokio::time::Instant::now() + ESTABLISH_TIMEOUT;
    loop {
        let answer = call(|| format!("get {name}"), api.get(name)).await?;
        let conditions = conditions::of_object(&answer.data);
        if conditions::is_true(conditions, "Established") {
            return Ok(());
        }
        if tokio::time::Instant::now() > end {
            let why = json!(conditions).to_string();
            return Err(InstallError::NotEstablished { name: name.to_owned(), why });
        }
        tokio::time::sleep(ESTABLISH_POLL).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::install::plan;
    use api::v1alpha1::MachineConfigOperator;
    use kube::client::Body;
    use std::sync::atomic::AtomicUsize;
    use std::sync::{Arc, Mutex};

    /// An API server that answers everything with a conflict. Also returns how often it was asked.
    fn conflicts(said: &'static str) -> (Client, Arc<AtomicUsize>) {
        let asked = Arc::new(AtomicUsize::new(0));
        let count = asked.clone();
        let serve = tower::service_fn(move |_: http::Request<Body>| {
            count.fetch_add(1, Ordering::SeqCst);
            async move {
                let status = json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": 409, "reason": "R", "message": said});
                let body = Body::from(status.to_string().into_bytes());
                Ok::<_, std::io::Error>(http::Response::builder().status(409).body(body).unwrap())
            }
        });
        (Client::new(serve, "default"), asked)
    }

    #[tokio::test]
    async fn a_conflict_is_no_failure_only_where_the_object_need_only_exist() {
        let exists = "machineconfigpools \"worker\" already exists";
        let denied = "admission webhook \"w\" denied the request: not today";
        for (how, said, want) in [
            (WriteMode::CreateIfMissing, exists, "done"),
            (WriteMode::CreateIfMissing, denied, denied),
            (WriteMode::Update(json!({})), exists, "it has changed"),
            (WriteMode::Update(json!({})), denied, denied),
            (WriteMode::ApplyOver(json!({})), denied, denied),
            (WriteMode::Apply, exists, exists),
        ] {
            let object = json!({"apiVersion": "machineconfiguration.openshift.io/v1", "kind": "MachineConfigPool",
                "metadata": {"name": "worker"}});
            let step = Step { how, object };
            let (client, asked) = conflicts(said);
            let found = match one(&client, &step).await {
                Ok(()) => "done".to_owned(),
                Err(InstallError::Changed { .. }) => "it has changed".to_owned(),
                Err(error) => client::chain(&error),
            };
            assert!(found.contains(want), "{step}: {found}");
            assert_eq!(asked.load(Ordering::SeqCst), 1, "{step}: it is not sent again");
        }
    }

    /// A client of a fake API server that has this object, and does this to it before the first apply reaches it.
    fn client(there: &Arc<Mutex<Value>>, meanwhile: fn(&mut Value)) -> Client {
        let (there, mut first) = (there.clone(), true);
        let serve = tower::service_fn(move |request: http::Request<kube::client::Body>| {
            let (there, meanwhile) = (there.clone(), std::mem::take(&mut first).then_some(meanwhile));
            async move {
                let is_read = *request.method() == http::Method::GET;
                let bytes = request.into_body().collect_bytes().await.unwrap();
                let mut there = there.lock().unwrap();
                if let Some(change) = meanwhile {
                    change(&mut there);
                    let version: u64 =
                        there["metadata"]["resourceVersion"].as_str().unwrap().parse().unwrap();
                    there["metadata"]["resourceVersion"] = json!((version + 1).to_string());
                }
                let (code, body) = if is_read {
                    (200, there.clone())
                } else {
                    let new: Value = serde_json::from_slice(&bytes).unwrap();
                    let bound = new["metadata"].get("resourceVersion");
                    match bound.is_none_or(|version| *version == there["metadata"]["resourceVersion"]) {
                        true => {
                            there["spec"] = new["spec"].clone();
                            (200, there.clone())
                        }
                        false => (
                            409,
                            json!({"kind": "Status", "status": "Failure", "code": 409, "message": "it was modified"}),
                        ),
                    }
                };
                let body = kube::client::Body::from(body.to_string().into_bytes());
                Ok::<_, std::io::Error>(http::Response::builder().status(code).body(body).unwrap())
            }
        });
        Client::new(serve, "default")
    }

    #[tokio::test(start_paused = true)]
    async fn settings_that_somebody_changes_meanwhile_are_not_written_over() {
        type Row = (&'static str, fn(&mut Value), bool);
        let rows: [Row; 4] = [
            ("nothing", |_| (), true),
            ("the status", |there| there["status"] = json!({"observedGeneration": 1}), true),
            (
                "the spec",
                |there| {
                    there["spec"]["managementState"] = json!("Unmanaged");
                    there["metadata"]["generation"] = json!(2);
                },
                false,
            ),
            ("an annotation", |there| there["metadata"]["annotations"] = json!({"mine": "yes"}), false),
        ];
        for (about, meanwhile, written) in rows {
            let there = json!({
                "apiVersion": "machineconfig.dev/v1alpha1", "kind": "MachineConfigOperator",
                "metadata": {"name": "cluster", "uid": "u", "generation": 1, "resourceVersion": "7"},
                "spec": {"image": "mco:1"},
            });
            let settings: MachineConfigOperator = serde_json::from_value(there.clone()).unwrap();
            let there = Arc::new(Mutex::new(there));
            let options = Options {
                image: Some("mco:2".to_owned()),
                settings: Some(settings),
                pools: None,
                ..Options::default()
            };
            let step = plan(&options).unwrap().pop().unwrap();
            assert_eq!(step.to_string(), "apply MachineConfigOperator cluster");
            let done = one(&client(&there, meanwhile), &step).await;
            let now = there.lock().unwrap()["spec"].clone();
            assert_eq!((done.is_ok(), now["image"] == "mco:2"), (written, written), "{about}: {done:?}");
            if let Err(error) = done {
                assert_eq!(
                    error.to_string(),
                    "MachineConfigOperator cluster changed in the meantime; run the command again"
                );
                if about == "the spec" {
                    assert_eq!(now["managementState"], "Unmanaged", "it stays");
                }
            }
        }
    }
}
