//! The API server's CA for kubelets' kubeconfigs: the ConfigMap `kubeconfig-data`, and the annotations of the ControllerConfig
//! that have agents read it. Pure; the clock is an argument.
//!
//! The ControllerConfig says when the CA was last replaced ([`SERVER_CA_ROTATED_AT`]): an agent that has not read the ConfigMap
//! since then reads it. OpenShift's annotation stays `true` for [`SHOWN`] after a rotation and goes back to `false`; a rotation
//! that comes earlier makes it `false` first. An agent that was away reads the ConfigMap when it starts.
//!
//! What it is not: what agents do (see `daemon`), or where the CA comes from (see `facts`).

use api::ca_rotation;
use api::first_boot::server_tls::MANAGED_BY;
use api::k8s::{ByteString, ConfigMap};
use api::names::NAMESPACE;
use api::names::annotation::SERVICE_CA_ROTATE;
use api::names::own::SERVER_CA_ROTATED_AT;
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

/// The ConfigMap, and the key in it.
pub(super) const NAME: &str = "kubeconfig-data";
const KEY: &str = "ca-bundle.crt";
/// How long OpenShift's annotation shows a rotation.
const SHOWN: SignedDuration = SignedDuration::from_hours(1);

/// What is to be written: the ConfigMap first, so that an agent which sees the annotations finds the new CA.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Rotation {
    /// The ConfigMap, as it is to be.
    pub(super) map: Option<Value>,
    /// What OpenShift's annotation is to say. `None`: it stays as it is.
    pub(super) rotate: Option<bool>,
    /// The time of the last rotation.
    pub(super) rotated_at: Option<String>,
}

impl Rotation {
    /// The annotations that change. `None`: none does.
    pub(super) fn annotations(&self) -> Option<Value> {
        let mut notes = serde_json::Map::new();
        notes.extend(
            self.rotate.map(|rotate| (SERVICE_CA_ROTATE.to_owned(), json!(ca_rotation::text(rotate)))),
        );
        notes.extend(self.rotated_at.as_ref().map(|at| (SERVER_CA_ROTATED_AT.to_owned(), json!(at))));
        (!notes.is_empty()).then_some(Value::Object(notes))
    }
}

/// What the annotations of the ControllerConfig say.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct RotationNotes<'a> {
    /// OpenShift's annotation. `None`: there is none, or it says something else.
    pub(super) rotate: Option<bool>,
    /// The time of the last rotation. Empty: none is said.
    pub(super) rotated_at: &'a str,
}

impl<'a> RotationNotes<'a> {
    /// Reads them.
    pub(super) fn of(config: Option<&'a Value>) -> Self {
        let note =
            |key: &str| config.and_then(|c| c["metadata"]["annotations"][key].as_str()).unwrap_or_default();
        Self { rotate: ca_rotation::parse(note(SERVICE_CA_ROTATE)), rotated_at: note(SERVER_CA_ROTATED_AT) }
    }
}

/// Plans the next step. `there`: the ConfigMap; `says`: the annotations; `ca`: the CA in PEM.
pub(super) fn plan(
    there: Option<&ConfigMap>,
    says: RotationNotes<'_>,
    ca: &[u8],
    now: Timestamp,
) -> Rotation {
    let say = |rotate: bool| (says.rotate != Some(rotate)).then_some(rotate);
    let Some(there) = there else {
        return Rotation { map: Some(map(ca, None, None)), rotate: say(false), rotated_at: None };
    };
    let labels = there.metadata.labels.as_ref();
    if labels.and_then(|l| l.get(MANAGED_BY.0)).map(String::as_str) != Some(MANAGED_BY.1) {
        // An administrator's: he rotates by himself.
        return Rotation::default();
    }
    if there.binary_data.as_ref().and_then(|d| d.get(KEY)).is_some_and(|has| has.0 == ca) {
        let mark = there.metadata.annotations.as_ref().and_then(|a| a.get(SERVER_CA_ROTATED_AT));
        let at = mark.and_then(|mark| mark.parse::<Timestamp>().ok());
        let recent = at.is_some_and(|at| now.duration_since(at) < SHOWN);
        let rotated_at = mark.filter(|mark| *mark != says.rotated_at).cloned();
        return Rotation { map: None, rotate: say(recent), rotated_at };
    }
    if says.rotate == Some(true) {
        return Rotation { map: None, rotate: Some(false), rotated_at: None };
    }
    let version = there.metadata.resource_version.as_deref();
    let map = map(ca, Some(now), version);
    Rotation { map: Some(map), rotate: Some(true), rotated_at: Some(now.to_string()) }
}

fn map(ca: &[u8], rotated: Option<Timestamp>, version: Option<&str>) -> Value {
    let mut object = json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"name": NAME, "namespace": NAMESPACE, "labels": {MANAGED_BY.0: MANAGED_BY.1}},
        "binaryData": {KEY: ByteString(ca.to_vec())},
    });
    if let Some(at) = rotated {
        object["metadata"]["annotations"][SERVER_CA_ROTATED_AT] = json!(at.to_string());
    }
    if let Some(version) = version {
        object["metadata"]["resourceVersion"] = json!(version);
    }
    object
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is written becomes what is there.
    fn then(object: &Value) -> ConfigMap {
        let mut map: ConfigMap = serde_json::from_value(object.clone()).unwrap();
        map.metadata.resource_version = Some("7".to_owned());
        map
    }

    fn says<'a>(rotate: &'a str, rotated_at: &'a str) -> RotationNotes<'a> {
        RotationNotes { rotate: ca_rotation::parse(rotate), rotated_at }
    }

    #[test]
    fn agents_are_told_of_each_rotation_once_and_of_the_first_ca_not_at_all() {
        let at = |minutes: i64| Timestamp::from_second(1_000_000 + minutes * 60).unwrap();
        let ended = Rotation { rotate: Some(false), ..Rotation::default() };
        let first = plan(None, says("", ""), b"one", at(0));
        let map = then(&first.map.clone().unwrap());
        assert_eq!(
            (first.annotations(), &map.binary_data.as_ref().unwrap()[KEY].0),
            (Some(json!({SERVICE_CA_ROTATE: "false"})), &b"one".to_vec())
        );
        let nothing = plan(Some(&map), says("false", ""), b"one", at(1));
        assert_eq!(nothing, Rotation::default(), "nothing new is no write");
        let second = plan(Some(&map), says("false", ""), b"two", at(2));
        let two = at(2).to_string();
        assert_eq!(second.annotations(), Some(json!({SERVICE_CA_ROTATE: "true", SERVER_CA_ROTATED_AT: two})));
        let map = then(&second.map.clone().unwrap());
        // The operator ended between its two writes.
        let taken_up = plan(Some(&map), says("false", ""), b"two", at(3));
        assert_eq!(taken_up, Rotation { map: None, ..second });
        // It was away for the whole hour: agents are told all the same.
        let late = plan(Some(&map), says("false", ""), b"two", at(90));
        assert_eq!(late.annotations(), Some(json!({SERVER_CA_ROTATED_AT: two})));
        assert_eq!(plan(Some(&map), says("true", &two), b"two", at(61)), Rotation::default());
        assert_eq!(plan(Some(&map), says("true", &two), b"two", at(63)), ended);
        // The next one comes while the last one is still shown.
        assert_eq!(plan(Some(&map), says("true", &two), b"three", at(10)), ended);
        let third = plan(Some(&map), says("false", &two), b"three", at(10));
        assert_eq!(third.annotations().unwrap()[SERVER_CA_ROTATED_AT], at(10).to_string());
        assert_eq!(
            (third.map.unwrap()["metadata"]["resourceVersion"].clone(), third.rotate),
            (json!("7"), Some(true))
        );
    }

    #[test]
    fn an_administrators_map_is_his() {
        let mut map = then(&map(b"one", None, None));
        map.metadata.labels = None;
        assert_eq!(plan(Some(&map), says("true", ""), b"two", Timestamp::UNIX_EPOCH), Rotation::default());
    }
}
