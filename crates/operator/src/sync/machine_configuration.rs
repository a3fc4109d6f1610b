//! MachineConfiguration `cluster`: the object where there is none, its annotation, its status, and what it says about logs.
//! Pure.
//!
//! The status says which disruption policies are in force, computed by the same function as agents use
//! ([`DisruptionPolicy::effective`]).
//!
//! What it is not: boot images, which nobody here manages (see `boot_images` for their age). What another controller reports
//! about them is passed on.

use super::boot_images;
use api::conditions;
use api::names::annotation::REBOOTS;
use api::v1alpha1::Reboots;
use desired::DisruptionPolicy;
use serde_json::{Value, json};

/// Its API version and kind, and its form in URLs.
pub(super) const API_VERSION: &str = "operator.openshift.io/v1";
pub(super) const KIND: &str = "MachineConfiguration";

/// The parts whose logs say more when that is asked for: our own. Libraries would say what nobody asks for.
const OURS: [&str; 9] =
    ["client", "controller", "daemon", "host", "listen", "operator", "render", "rollout", "server"];

/// The object as it is created.
pub(super) fn new() -> Value {
    json!({
        "apiVersion": API_VERSION, "kind": KIND, "metadata": {"name": api::names::CLUSTER},
        "spec": {"managementState": "Managed"},
    })
}

/// The change of its annotation, by which agents and `mco plan` read the setting; `None`: it is as it should be.
pub(super) fn annotation(object: &Value, setting: Reboots) -> Option<Value> {
    let has = &object["metadata"]["annotations"][REBOOTS];
    let wanted = match setting {
        Reboots::AsReference => Value::Null,
        Reboots::WhenNeeded => json!(setting),
    };
    (*has != wanted).then(|| json!({"metadata": {"annotations": {REBOOTS: wanted}}}))
}

/// The change of its status; `None`: it is as it should be. `skew`: how boot images are guarded.
///
/// # Errors
/// A policy that cannot be read: its path, what is wrong, and the remedy.
pub(super) fn status(object: &Value, skew: &Value) -> Result<Option<Value>, String> {
    let wanted = DisruptionPolicy::effective(object)
        .map_err(|why| format!("{why}; correct it with kubectl edit machineconfiguration cluster"))?;
    let has = DisruptionPolicy::of_status(object).ok().flatten();
    let same = has.is_some_and(|has| {
        (has.files, has.units, has.sshkey)
            == (wanted.files.clone(), wanted.units.clone(), wanted.sshkey.clone())
    });
    let generation = &object["metadata"]["generation"];
    let guarded = &object["status"][boot_images::FIELD];
    if same && object["status"]["observedGeneration"] == *generation && guarded == skew {
        return Ok(None);
    }
    let mut status = json!({
        "observedGeneration": generation,
        "nodeDisruptionPolicyStatus": {"clusterPolicies": wanted},
    });
    if guarded != skew {
        // A merge patch keeps what it does not name: of the other modes nothing is to stay.
        let mut new = skew.clone();
        for mode in ["automatic", "manual"] {
            if !guarded[mode].is_null() && new[mode].is_null() {
                new[mode] = Value::Null;
            }
        }
        status[boot_images::FIELD] = new;
    }
    Ok(Some(status))
}

/// What another controller reports as degraded.
pub(super) fn degraded(object: &Value) -> Option<String> {
    let found = conditions::get_true(conditions::of_object(object), "BootImageUpdateDegraded")?;
    // Nobody here clears it: its owner may have left the cluster long ago.
    Some(format!(
        "MachineConfiguration cluster, status.conditions has BootImageUpdateDegraded=True: bootimage update failed: {}; the \
         operator does not manage boot images: fix it where they are managed, or, if nothing manages them here, remove the \
         condition with kubectl edit machineconfiguration cluster --subresource=status",
        found["message"].as_str().unwrap_or_default()
    ))
}

/// How much our parts log, as an argument of `--log`. `None`: as usual.
pub(super) fn log(object: &Value) -> Option<String> {
    let level = match object["spec"]["operatorLogLevel"].as_str() {
        Some("Debug") => "debug",
        Some("Trace" | "TraceAll") => "trace",
        _ => return None,
    };
    let parts: Vec<String> = OURS.iter().map(|part| format!("{part}={level}")).collect();
    Some(format!("info,{}", parts.join(",")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_status_has_the_policies_in_force_and_is_written_once() {
        let mut object = new();
        object["metadata"]["generation"] = json!(3);
        object["spec"]["nodeDisruptionPolicy"] = json!({
            "files": [{"path": "/etc/chrony.conf", "actions": [{"type": "Restart", "restart": {"serviceName": "chronyd.service"}}]}],
            "sshkey": {"actions": [{"type": "Drain"}]},
        });
        let none = json!({"mode": "None"});
        let status = super::status(&object, &none).unwrap().unwrap();
        assert_eq!(status["bootImageSkewEnforcementStatus"], none);
        let policies = &status["nodeDisruptionPolicyStatus"]["clusterPolicies"];
        let paths: Vec<&str> =
            policies["files"].as_array().unwrap().iter().filter_map(|f| f["path"].as_str()).collect();
        assert_eq!((paths[0], paths.last()), ("/var/lib/kubelet/config.json", Some(&"/etc/chrony.conf")));
        assert_eq!(policies["sshkey"], json!({"actions": [{"type": "Drain"}]}));
        assert_eq!(policies["units"][0]["name"], "iri-registry.service");
        object["status"] = status;
        assert_eq!(super::status(&object, &none), Ok(None));
        let manual = json!({"mode": "Manual", "manual": {"mode": "OCPVersion", "ocpVersion": "4.22.0"}});
        let mut guarded = object.clone();
        json_patch::merge(&mut guarded["status"], &super::status(&object, &manual).unwrap().unwrap());
        assert_eq!(guarded["status"]["bootImageSkewEnforcementStatus"], manual);
        let patch = super::status(&guarded, &none).unwrap().unwrap();
        json_patch::merge(&mut guarded["status"], &patch);
        assert_eq!(
            guarded["status"]["bootImageSkewEnforcementStatus"], none,
            "nothing of the other mode stays"
        );
        // Agents come to the same, with the status and without it.
        let of = |object: &Value| DisruptionPolicy::of_cluster(Some(object)).unwrap();
        let mut bare = object.clone();
        bare["status"] = json!({});
        assert_eq!(of(&object), of(&bare));
        object["metadata"]["generation"] = json!(4);
        assert_eq!(super::status(&object, &none).unwrap().unwrap()["observedGeneration"], 4);
        object["spec"]["nodeDisruptionPolicy"]["sshkey"]["actions"][0]["type"] = json!("Explode");
        let why = super::status(&object, &none).unwrap_err();
        assert!(why.starts_with("MachineConfiguration cluster, spec.nodeDisruptionPolicy.sshkey"), "{why}");
        assert!(why.ends_with("; correct it with kubectl edit machineconfiguration cluster"), "{why}");
    }

    #[test]
    fn the_setting_stands_in_an_annotation_and_goes_with_it() {
        let mut object = new();
        assert_eq!(annotation(&object, Reboots::AsReference), None);
        let patch = annotation(&object, Reboots::WhenNeeded).unwrap();
        assert_eq!(patch, json!({"metadata": {"annotations": {"machineconfig.dev/reboots": "WhenNeeded"}}}));
        object["metadata"]["annotations"] = patch["metadata"]["annotations"].clone();
        assert_eq!(annotation(&object, Reboots::WhenNeeded), None);
        let of = |object: &Value| DisruptionPolicy::of_cluster(Some(object)).unwrap().reboots;
        assert_eq!(of(&object), Reboots::WhenNeeded);
        let gone = annotation(&object, Reboots::AsReference).unwrap();
        assert_eq!(gone["metadata"]["annotations"][REBOOTS], Value::Null);
    }

    #[test]
    fn what_boot_images_lack_is_passed_on_and_logs_say_more_where_that_is_asked_for() {
        let condition = |status: &str| json!({"status": {"conditions": [{"type": "BootImageUpdateDegraded", "status": status, "message": "no disk"}]}});
        let why = degraded(&condition("True")).unwrap();
        assert!(
            why.starts_with("MachineConfiguration cluster, status.conditions has BootImageUpdateDegraded"),
            "{why}"
        );
        assert!(
            why.contains("bootimage update failed: no disk; ") && why.contains("--subresource=status"),
            "{why}"
        );
        assert_eq!(degraded(&condition("False")), None);
        let log = |level: &str| super::log(&json!({"spec": {"operatorLogLevel": level}}));
        assert_eq!((log("Normal"), log("")), (None, None));
        assert!(log("Debug").unwrap().starts_with("info,client=debug,"));
        assert!(log("TraceAll").unwrap().ends_with("server=trace"));
    }
}
