//! The ControllerConfig: what the cluster is, of which release it is, and the CA of its API server.
//!
//! What it is not: what is looked at and computed for it (see `facts`), and the rotation of that CA (see `rotation`).

use super::step_error::{StepError, failed, misshapen};
use super::{PassResult, Syncer, config_of};
use crate::controller_config_values::{self, ControllerConfigValues};
use crate::facts::openshift::{ControllerConfigFields, OpenShift};
use crate::facts::{self, release};
use crate::install::{self, WriteMode, controller_config};
use crate::settings::object::CheckedSettings;
use crate::sync::{Stop, boot_images, objects, rotation};
use api::formats::shape;
use api::k8s::{ByteString, ConfigMap};
use api::names::{CONTROLLER_CONFIG, NAMESPACE, VERSION_RAW};
use api::v1::ControllerConfig;
use client::{call, chain};
use k8s_openapi::jiff::Timestamp;
use kube::api::{Api, DynamicObject, Patch, PatchParams, PostParams};
use kube::core::ApiResource;
use serde::Deserialize as _;
use serde_json::{Value, json};

impl Syncer {
    /// What the cluster is: by OpenShift's objects where it has them, else by what kubeadm and others write down.
    pub(super) async fn controller_config(
        &self,
        wanted: &CheckedSettings,
        passed: &mut PassResult,
    ) -> Result<(), StepError> {
        let openshift = facts::openshift::read(&self.client, &passed.seen.definitions);
        let plain = facts::read(&self.client, passed.seen.config.is_none());
        let (openshift, plain) = Box::pin(async { futures::try_join!(openshift, plain) }).await?;
        // Of an object that cannot be read as a whole, too.
        let present = passed.seen.config.as_ref().and_then(|c| c.pointer("/spec/kubeAPIServerServingCAData"));
        let present = present.and_then(|ca| ByteString::deserialize(ca).ok()).unwrap_or_default();
        let plain = plain.settings(&wanted.given, &wanted.detected, &present.0);
        passed.openshift = openshift.as_ref().map(|found| found.namespaces.clone());
        passed.seen.release.cluster_version = openshift.as_ref().and_then(OpenShift::cluster_version);
        passed.installed =
            openshift.as_ref().and_then(|found| found.version.as_ref()).map(boot_images::installed);
        let payload = release::Payload::read(&passed.seen.release);
        passed.release = payload.as_ref().ok().and_then(|payload| payload.version.clone());
        let there = passed.seen.config.as_ref();
        // Where there is no ControllerConfig, nothing is rendered yet: the release comes with it. Else it comes when all parts
        // are rolled out, see `Step::Release`.
        let of_release = match there {
            Some(_) => ControllerConfigFields::default(),
            None => payload.map_err(|why| failed(why.why()))?.of_new_config(),
        };
        match &openshift {
            Some(found) => {
                let mut wanted = found.wanted(&wanted.given, &plain).map_err(failed)?;
                match there {
                    Some(there) => {
                        let mut patch = facts::owners::patch(there, &wanted);
                        if patch != json!({}) {
                            patch["metadata"]["resourceVersion"] =
                                there["metadata"]["resourceVersion"].clone();
                            self.patch_config(&patch, passed).await?;
                        }
                    }
                    None => {
                        wanted.spec.extend(of_release.spec);
                        wanted.annotations.extend(of_release.annotations);
                        self.create_config(&new_config(&wanted), passed).await?;
                    }
                }
            }
            None => {
                let (_, step) = controller_config(there, &ControllerConfigValues::default(), &plain)
                    .map_err(|e| failed(chain(&e)))?;
                match step {
                    None => {}
                    Some(install::Step { how: WriteMode::Update(patch), .. }) => {
                        self.patch_config(&patch, passed).await?;
                    }
                    Some(mut step) => {
                        with(&mut step.object, &of_release);
                        self.create_config(&step.object, passed).await?;
                    }
                }
            }
        }
        if let Some(mark) = passed.seen.config.as_ref().and_then(release::initial_released_version) {
            self.patch_config(&mark, passed).await?;
        }
        let ca = match &openshift {
            Some(found) => found.kubeconfig_ca().map(<[u8]>::to_vec),
            None => config_of(&passed.seen)?.map(|c| c.spec.kube_api_server_serving_ca_data.0),
        };
        match ca.filter(|ca| !ca.is_empty()) {
            Some(ca) => self.kubeconfig_data(&ca, passed).await,
            None => Ok(()),
        }
    }

    /// All parts are of this version: the controller may render, and what it renders from is of the release.
    pub(super) async fn release(&self, passed: &mut PassResult) -> Result<(), StepError> {
        let Some(there) = &passed.seen.config else { return Ok(()) };
        match release::decide(there, &passed.seen.release, VERSION_RAW) {
            release::Decision::Nothing => Ok(()),
            release::Decision::Write(mut patch) => {
                patch["metadata"]["resourceVersion"] = there["metadata"]["resourceVersion"].clone();
                self.patch_config(&patch, passed).await
            }
            release::Decision::Wait(why) => Err(StepError::Stop(Stop::Waiting(why))),
            release::Decision::Refuse(why) => Err(failed(why)),
        }
    }

    fn configs(&self) -> Api<DynamicObject> {
        Api::all_with(self.client.clone(), &ApiResource::erase::<ControllerConfig>(&()))
    }

    async fn patch_config(&self, patch: &Value, passed: &mut PassResult) -> Result<(), StepError> {
        let manager = Some(objects::FIELD_MANAGER.to_owned());
        let params = PatchParams { field_manager: manager, ..PatchParams::default() };
        let what = || format!("update ControllerConfig {CONTROLLER_CONFIG}");
        let api = self.configs();
        let now = json!(call(what, api.patch(CONTROLLER_CONFIG, &params, &Patch::Merge(patch))).await?);
        // The API server drops fields that its definition does not know: then nothing was written.
        let version = |config: &Value| config["metadata"]["resourceVersion"].clone();
        if passed.seen.config.as_ref().map(version) != Some(version(&now)) {
            passed.done.push(format!("ControllerConfig {CONTROLLER_CONFIG}"));
        }
        passed.seen.config = Some(now);
        Ok(())
    }

    async fn create_config(&self, object: &Value, passed: &mut PassResult) -> Result<(), StepError> {
        let object: DynamicObject = shape::read(object)
            .map_err(|e| misshapen(&format!("ControllerConfig {CONTROLLER_CONFIG}"), &e))?;
        let params =
            PostParams { field_manager: Some(objects::FIELD_MANAGER.to_owned()), ..PostParams::default() };
        let what = || format!("create ControllerConfig {CONTROLLER_CONFIG}");
        let api = self.configs();
        passed.seen.config = Some(json!(call(what, api.create(&params, &object)).await?));
        passed.done.push(format!("ControllerConfig {CONTROLLER_CONFIG}"));
        Ok(())
    }

    /// The CA for kubelets' kubeconfigs, and the annotations that have agents read it.
    async fn kubeconfig_data(&self, ca: &[u8], passed: &mut PassResult) -> Result<(), StepError> {
        let maps: Api<ConfigMap> = Api::namespaced(self.client.clone(), NAMESPACE);
        let name = rotation::NAME;
        let there = call(|| format!("get ConfigMap {name}"), maps.get_opt(name)).await?;
        let says = rotation::RotationNotes::of(passed.seen.config.as_ref());
        let plan = rotation::plan(there.as_ref(), says, ca, Timestamp::now());
        let annotations = plan.annotations();
        if let Some(map) = plan.map {
            let map: ConfigMap =
                shape::read(&map).map_err(|e| misshapen(&format!("ConfigMap {name}"), &e))?;
            let params = PostParams {
                field_manager: Some(objects::FIELD_MANAGER.to_owned()),
                ..PostParams::default()
            };
            let write = async {
                match there {
                    None => maps.create(&params, &map).await,
                    Some(_) => maps.replace(name, &params, &map).await,
                }
            };
            call(|| format!("write ConfigMap {name}"), write).await?;
            passed.done.push(format!("ConfigMap {name}"));
        }
        match annotations {
            Some(annotations) => {
                self.patch_config(&json!({"metadata": {"annotations": annotations}}), passed).await
            }
            None => Ok(()),
        }
    }
}

/// Puts what is wanted into a ControllerConfig that is about to be created.
fn with(object: &mut Value, wanted: &ControllerConfigFields) {
    for (field, value) in wanted.once.iter().chain(&wanted.spec) {
        object["spec"][field] = value.clone();
    }
    for (key, value) in &wanted.annotations {
        object["metadata"]["annotations"][key] = value.clone();
    }
}

/// A ControllerConfig where there is none yet.
fn new_config(wanted: &ControllerConfigFields) -> Value {
    let mut object = json!(controller_config_values::empty());
    with(&mut object, wanted);
    object["apiVersion"] = json!(format!("{}/v1", api::names::GROUP));
    object["kind"] = json!("ControllerConfig");
    install::without_empty(&mut object);
    object
}
