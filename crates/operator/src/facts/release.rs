//! A release's payload: two ConfigMaps that come with the release, one after the other, with its version, its images by name
//! and its images of the operating system. It is taken as a whole, and after all parts of the operator are rolled out: pools
//! are rendered once, from the templates and the images of one release. [`Payload::read`] and [`decide`] are pure; [`read`]
//! reads.
//!
//! The ControllerConfig names the version whose controller may render ([`RELEASED_VERSION`]). A controller of another version
//! waits, so a new controller writes nothing into pools while config server and agents are still those of the version before.
//!
//! What it is not: the other facts (see [`super::openshift`]), and whether pools have followed (see `sync::required_pools`).

use super::openshift::ControllerConfigFields;
use super::owners;
use api::k8s::ConfigMap;
use api::names::NAMESPACE;
use api::names::annotation::{GENERATED_BY_VERSION, RELEASE_IMAGE_VERSION};
use api::names::own::RELEASED_VERSION;
use client::{CallError, call};
use kube::Client;
use kube::api::Api;
use serde_json::{Map, Value, json};

/// The release's images by name, under the key `images.json`.
pub(crate) const IMAGES: &str = "machine-config-operator-images";
/// The release's images of the operating system.
pub(crate) const OS_IMAGES: &str = "machine-config-osimageurl";
/// The name of the image of operator, controller, config server and agents.
const OPERATOR: &str = "machineConfigOperator";

/// The names in `images.json`, and the keys in the ControllerConfig that templates use.
const IMAGE_KEYS: [(&str, &str); 9] = [
    (OPERATOR, "machineConfigOperator"),
    (OPERATOR, "apiServerWatcherKey"),
    ("infraImage", "infraImageKey"),
    ("keepalivedImage", "keepalivedImage"),
    ("corednsImage", "corednsImage"),
    ("haproxyImage", "haproxyImage"),
    ("baremetalRuntimeCfgImage", "baremetalRuntimeCfgImage"),
    ("kubeRbacProxy", "kubeRbacProxyImage"),
    ("dockerRegistryImage", "dockerRegistryImage"),
];

/// The two ConfigMaps, as far as they are there.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct PayloadSources {
    /// The text under `images.json`.
    pub(crate) images: Option<String>,
    /// The entries of the other one.
    pub(crate) os_images: Option<Map<String, Value>>,
    /// The version that ClusterVersion `version` wants, for clusters without these ConfigMaps.
    pub(crate) cluster_version: Option<String>,
}

/// A payload that is whole.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Payload {
    /// The release's version.
    pub(crate) version: Option<String>,
    /// The fields of the ControllerConfig.
    pub(crate) fields: Map<String, Value>,
}

/// Why a payload is not taken.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum PayloadError {
    /// The ConfigMaps are of two releases: the second one is probably on its way.
    Mixed(String),
    /// Something in them cannot be used; waiting does not help.
    Wrong(String),
}

impl PayloadError {
    /// The words.
    pub(crate) fn why(self) -> String {
        match self {
            Self::Mixed(why) | Self::Wrong(why) => why,
        }
    }
}

fn images(text: &str) -> Result<Value, PayloadError> {
    serde_json::from_str(text).map_err(|e| {
        PayloadError::Wrong(format!(
            "ConfigMap {IMAGES}: images.json, line {}, is not JSON; repair it",
            e.line()
        ))
    })
}

impl Payload {
    /// Reads it. Without the ConfigMaps there is a version at most.
    ///
    /// # Errors
    /// What keeps it from being taken, with the remedy.
    pub(crate) fn read(found: &PayloadSources) -> Result<Self, PayloadError> {
        let mut payload = Self::default();
        if let Some(text) = &found.images {
            let images = images(text)?;
            let all: Map<String, Value> = IMAGE_KEYS
                .iter()
                .map(|(name, key)| ((*key).to_owned(), json!(images[*name].as_str().unwrap_or_default())))
                .collect();
            payload.fields.insert("images".to_owned(), all.into());
            payload.version = images["releaseVersion"].as_str().filter(|v| !v.is_empty()).map(str::to_owned);
        }
        if let Some(os) = &found.os_images {
            let of = |key: &str| {
                let text = os.get(key).and_then(Value::as_str).map(str::trim).filter(|t| !t.is_empty());
                text.map(str::to_owned).ok_or_else(|| {
                    PayloadError::Wrong(format!(
                        "ConfigMap {OS_IMAGES} has no {key}; it is part of the release: apply the release's manifests again"
                    ))
                })
            };
            let version = of("releaseVersion")?;
            if let Some(release) = payload.version.as_ref().filter(|release| **release != version) {
                return Err(PayloadError::Mixed(format!(
                    "ConfigMap {IMAGES} is of release {release} and {OS_IMAGES} of {version}: no image is taken before both are \
                     of the same release; apply the release's manifests again if they stay so"
                )));
            }
            for field in ["baseOSContainerImage", "baseOSExtensionsContainerImage", "osImageURL"] {
                payload.fields.insert(field.to_owned(), json!(of(field)?));
            }
            payload.version.get_or_insert(version);
        }
        if payload.version.is_none() {
            payload.version.clone_from(&found.cluster_version);
        }
        Ok(payload)
    }

    /// What a ControllerConfig gets that is about to be created: nobody renders yet.
    pub(crate) fn of_new_config(&self) -> ControllerConfigFields {
        let mut wanted =
            ControllerConfigFields { spec: self.fields.clone(), ..ControllerConfigFields::default() };
        wanted.annotations.insert(RELEASED_VERSION.to_owned(), json!(api::names::VERSION_RAW));
        if let Some(version) = &self.version {
            wanted.annotations.insert(RELEASE_IMAGE_VERSION.to_owned(), json!(version));
        }
        wanted
    }
}

/// The image of the operator and of its parts that the payload names.
///
/// # Errors
/// There is none; with the remedy.
pub(crate) fn operator_image(found: &PayloadSources) -> Result<String, String> {
    let remedy = format!(
        "apply the release's manifests, or set spec.imageFrom of {} to Settings",
        crate::settings::name()
    );
    let Some(text) = &found.images else {
        return Err(format!("ConfigMap {IMAGES} does not exist; {remedy}"));
    };
    let images = images(text).map_err(PayloadError::why)?;
    let image = images[OPERATOR].as_str().filter(|i| !i.is_empty() && !i.contains(char::is_whitespace));
    image
        .map(str::to_owned)
        .ok_or_else(|| format!("ConfigMap {IMAGES}: images.json names no image {OPERATOR}; {remedy}"))
}

/// What becomes of the ControllerConfig now that all parts of the operator are of this version.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Decision {
    /// It is of this version and of this release.
    Nothing,
    /// One patch with everything, so that pools are rendered once.
    Write(Value),
    /// The payload is on its way.
    Wait(String),
    /// The payload cannot be used.
    Refuse(String),
}

/// Decides. `there`: the ControllerConfig; `version`: that of the parts that are rolled out.
pub(crate) fn decide(there: &Value, found: &PayloadSources, version: &str) -> Decision {
    let payload = match Payload::read(found) {
        Ok(payload) => payload,
        Err(PayloadError::Mixed(why)) => return Decision::Wait(why),
        Err(PayloadError::Wrong(why)) => return Decision::Refuse(why),
    };
    let mut wanted = payload.of_new_config();
    wanted.annotations.insert(RELEASED_VERSION.to_owned(), json!(version));
    if there["metadata"]["annotations"][RELEASED_VERSION] != version {
        // In the same write, so that the controller has none to make before it renders. Later the annotation is the
        // controller's: somebody else's controller may write it, too, and then it says so.
        wanted.annotations.insert(GENERATED_BY_VERSION.to_owned(), json!(version));
    }
    match owners::patch(there, &wanted) {
        patch if patch == json!({}) => Decision::Nothing,
        patch => Decision::Write(patch),
    }
}

/// The annotation for a ControllerConfig that an operator without it has kept: the version that may render is the one that
/// did. `None`: it is there.
pub(crate) fn initial_released_version(there: &Value) -> Option<Value> {
    let notes = &there["metadata"]["annotations"];
    if notes[RELEASED_VERSION].is_string() {
        return None;
    }
    let before = notes[GENERATED_BY_VERSION].as_str().filter(|v| !v.is_empty());
    let version = before.unwrap_or(api::names::VERSION_RAW);
    Some(json!({"metadata": {"annotations": {RELEASED_VERSION: version}}}))
}

/// Reads the ConfigMaps.
///
/// # Errors
/// The API server's answer, also where they may not be read: without them the ControllerConfig would lose the release.
pub(crate) async fn read(client: &Client) -> Result<PayloadSources, CallError> {
    let maps: Api<ConfigMap> = Api::namespaced(client.clone(), NAMESPACE);
    let get =
        async |name: &str| call(|| format!("get ConfigMap {NAMESPACE}/{name}"), maps.get_opt(name)).await;
    let (images, os) = futures::try_join!(get(IMAGES), get(OS_IMAGES))?;
    let images =
        images.and_then(|map| map.data?.remove("images.json")).filter(|text| !text.trim().is_empty());
    let os_images =
        os.map(|map| map.data.into_iter().flatten().map(|(key, value)| (key, json!(value))).collect());
    Ok(PayloadSources { images, os_images, cluster_version: None })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::objects::FIELD_MANAGER;

    fn images(version: &str) -> Option<String> {
        let images = json!({"releaseVersion": version, "machineConfigOperator": "mco", "infraImage": "pod",
            "kubeRbacProxy": "rbac", "keepalivedImage": "ka", "corednsImage": "dns", "haproxyImage": "ha",
            "baremetalRuntimeCfgImage": "cfg", "dockerRegistryImage": "reg", "oauthProxy": "unused"});
        Some(images.to_string())
    }

    fn os(entries: &[(&str, &str)]) -> Option<Map<String, Value>> {
        Some(entries.iter().map(|(key, value)| ((*key).to_owned(), json!(value))).collect())
    }

    fn os_of(version: &str) -> Option<Map<String, Value>> {
        os(&[
            ("releaseVersion", version),
            ("baseOSContainerImage", "os"),
            ("baseOSExtensionsContainerImage", "ext"),
            ("osImageURL", "legacy"),
        ])
    }

    fn release(images_of: &str, os: &str) -> PayloadSources {
        PayloadSources {
            images: images(images_of),
            os_images: os_of(os),
            cluster_version: Some("4.23.0".to_owned()),
        }
    }

    #[test]
    fn the_images_of_a_release_are_taken_as_a_whole() {
        let payload = Payload::read(&release("4.22.1", "4.22.1")).unwrap();
        assert_eq!(
            payload.fields["images"],
            json!({"machineConfigOperator": "mco", "apiServerWatcherKey": "mco", "infraImageKey": "pod", "keepalivedImage": "ka",
                "corednsImage": "dns", "haproxyImage": "ha", "baremetalRuntimeCfgImage": "cfg", "kubeRbacProxyImage": "rbac",
                "dockerRegistryImage": "reg"})
        );
        for (field, image) in [
            ("baseOSContainerImage", "os"),
            ("baseOSExtensionsContainerImage", "ext"),
            ("osImageURL", "legacy"),
        ] {
            assert_eq!(payload.fields[field], image);
        }
        assert_eq!(
            payload.version.as_deref(),
            Some("4.22.1"),
            "the payload's, not that of the cluster's wish"
        );
        let mixed = Payload::read(&release("4.22.1", "4.22.0")).unwrap_err();
        assert!(
            matches!(&mixed, PayloadError::Mixed(why) if why.contains("is of release 4.22.1 and machine-config-osimageurl of 4.22.0")),
            "{mixed:?}"
        );
        let cut = PayloadSources {
            os_images: os(&[("releaseVersion", "4.22.1"), ("osImageURL", "x")]),
            ..release("4.22.1", "")
        };
        let cut = Payload::read(&cut).unwrap_err();
        assert!(
            matches!(&cut, PayloadError::Wrong(why) if why.contains("has no baseOSContainerImage")),
            "{cut:?}"
        );
        let broken = PayloadSources { images: Some("{".to_owned()), ..PayloadSources::default() };
        let broken = Payload::read(&broken).unwrap_err();
        assert!(
            matches!(&broken, PayloadError::Wrong(why) if why.contains("line 1, is not JSON")),
            "{broken:?}"
        );
        assert_eq!(
            Payload::read(&PayloadSources::default()),
            Ok(Payload::default()),
            "without a payload nothing is said"
        );
        let only = PayloadSources { cluster_version: Some("4.23.0".to_owned()), ..PayloadSources::default() };
        assert_eq!(Payload::read(&only).unwrap().version.as_deref(), Some("4.23.0"));
    }

    #[test]
    fn a_new_version_and_a_new_release_reach_the_controller_in_one_write_and_nothing_reaches_it_before() {
        let config = |released: &str, release: &str, os: &str| {
            let fields = json!({"f:spec": {"f:baseOSContainerImage": {}}});
            let mut spec = Payload::read(&self::release(release, release)).unwrap().fields;
            spec.insert("baseOSContainerImage".to_owned(), json!(os));
            json!({
                "metadata": {
                    "annotations": {RELEASED_VERSION: released, GENERATED_BY_VERSION: released, RELEASE_IMAGE_VERSION: release},
                    "managedFields": [{"manager": FIELD_MANAGER, "fieldsV1": fields}],
                },
                "spec": spec,
            })
        };
        let notes = |patch: &Value| patch["metadata"]["annotations"].clone();
        // As it should be.
        assert_eq!(
            decide(&config("v2", "4.22.1", "os"), &release("4.22.1", "4.22.1"), "v2"),
            Decision::Nothing
        );
        // The parts are new, the release is the same: images stay.
        let Decision::Write(patch) =
            decide(&config("v1", "4.22.1", "os"), &release("4.22.1", "4.22.1"), "v2")
        else {
            panic!("the new controller may render now")
        };
        assert_eq!(notes(&patch), json!({RELEASED_VERSION: "v2", GENERATED_BY_VERSION: "v2"}));
        assert_eq!(patch.get("spec"), None);
        // Both are new: one write.
        let Decision::Write(patch) =
            decide(&config("v1", "4.21.0", "old-os"), &release("4.22.1", "4.22.1"), "v2")
        else {
            panic!("a release to write")
        };
        assert_eq!(
            (notes(&patch), &patch["spec"]),
            (
                json!({RELEASED_VERSION: "v2", GENERATED_BY_VERSION: "v2", RELEASE_IMAGE_VERSION: "4.22.1"}),
                &json!({"baseOSContainerImage": "os"})
            )
        );
        // The second ConfigMap is on its way: neither the images nor the version.
        let half = decide(&config("v1", "4.21.0", "old-os"), &release("4.22.1", "4.21.0"), "v2");
        assert!(matches!(half, Decision::Wait(_)), "{half:?}");
        let broken = PayloadSources { images: Some("[".to_owned()), ..PayloadSources::default() };
        assert!(matches!(decide(&config("v1", "4.21.0", "os"), &broken, "v2"), Decision::Refuse(_)));
        // What a person wrote stays.
        let mut theirs = config("v2", "4.21.0", "mine");
        theirs["metadata"]["managedFields"][0]["manager"] = json!("kubectl-edit");
        let Decision::Write(patch) = decide(&theirs, &release("4.22.1", "4.22.1"), "v2") else { panic!() };
        assert_eq!((notes(&patch), patch.get("spec")), (json!({RELEASE_IMAGE_VERSION: "4.22.1"}), None));
        // Somebody else's controller has written its version: ours takes that back, and says so.
        let mut foreign = config("v2", "4.22.1", "os");
        foreign["metadata"]["annotations"][GENERATED_BY_VERSION] = json!("theirs");
        assert_eq!(decide(&foreign, &release("4.22.1", "4.22.1"), "v2"), Decision::Nothing);
    }

    #[test]
    fn whoever_rendered_before_goes_on_until_the_parts_are_rolled_out() {
        let marked = |notes: Value| initial_released_version(&json!({"metadata": {"annotations": notes}}));
        let of = |version: &str| Some(json!({"metadata": {"annotations": {RELEASED_VERSION: version}}}));
        assert_eq!(marked(json!({GENERATED_BY_VERSION: "v0.0.9"})), of("v0.0.9"));
        assert_eq!(marked(json!({})), of(api::names::VERSION_RAW));
        assert_eq!(marked(json!({RELEASED_VERSION: "v0", GENERATED_BY_VERSION: "v1"})), None);
    }

    #[test]
    fn the_operators_image_is_that_of_the_payload_or_the_remedy_is_named() {
        assert_eq!(operator_image(&release("4.22.1", "4.22.1")), Ok("mco".to_owned()));
        for (text, want) in [
            (None, "ConfigMap machine-config-operator-images does not exist; apply the release's manifests"),
            (Some("{}"), "images.json names no image machineConfigOperator; apply"),
            (Some("x"), "line 1, is not JSON"),
            (
                Some("{\"machineConfigOperator\": \"a b\"}"),
                "set spec.imageFrom of MachineConfigOperator cluster to Settings",
            ),
        ] {
            let found = PayloadSources { images: text.map(str::to_owned), ..PayloadSources::default() };
            let why = operator_image(&found).unwrap_err();
            assert!(why.contains(want), "{why}");
        }
    }
}
