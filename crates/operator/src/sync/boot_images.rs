//! How MachineConfiguration `cluster` guards against boot images that are too old, and whether they hold up an upgrade. Pure.
//!
//! The rules are the reference's, but for the mode `Automatic`: it needs a controller that updates boot images and writes down
//! their version, and there is none here. What the administrator says about managed boot images is left to whoever manages
//! them, and so is `status.managedBootImagesStatus`.
//!
//! What it is not: the writing (see `machine_configuration`).

use crate::definitions::numbers;
use api::conditions::{self, StatusCondition};
use api::topology::{ControlPlaneTopology, has_boot_images};
use serde_json::{Value, json};

/// The field of the status.
pub(super) const FIELD: &str = "bootImageSkewEnforcementStatus";
/// The oldest boot images that may join a cluster of the next release.
const OLDEST_RELEASE: [u64; 3] = [4, 13, 0];
/// The same as a version of the operating system.
const OLDEST_SYSTEM: [u64; 2] = [9, 2];
/// Where people read about it.
const DOCS: &str = "https://docs.redhat.com/en/documentation/openshift_container_platform";

/// What the mode depends on.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Cluster<'a> {
    /// The release that the cluster was installed with, `x.y.z`. `None`: it has no releases.
    pub(super) installed: Option<&'a str>,
    /// The platform's type.
    pub(super) platform: &'a str,
    /// The topology of the control plane. `None`: it is not known, or is one of another version.
    pub(super) topology: Option<ControlPlaneTopology>,
}

/// The release that the cluster was installed with, of ClusterVersion `version`: the oldest that was completed. `0.0.0`: it is
/// not known, as the reference says it.
pub(crate) fn installed(cluster_version: &Value) -> String {
    let history = cluster_version["status"]["history"].as_array();
    // The newest comes first.
    let oldest = history.into_iter().flatten().rev().find(|entry| entry["state"] == "Completed");
    let version = oldest.and_then(|entry| numbers(entry["version"].as_str()?)).unwrap_or_default();
    version.map(|number| number.to_string()).join(".")
}

/// `status.bootImageSkewEnforcementStatus`.
pub(super) fn enforcement(object: &Value, cluster: Cluster<'_>) -> Value {
    let said = &object["spec"]["bootImageSkewEnforcement"];
    let none = json!({"mode": "None"});
    match (said["mode"].as_str(), cluster.installed) {
        (Some("Manual"), _) => json!({"mode": "Manual", "manual": said["manual"]}),
        (Some(_), _) | (None, None) => none,
        _ if !has_boot_images(cluster.platform, cluster.topology) => none,
        (None, Some(installed)) => {
            json!({"mode": "Manual", "manual": {"mode": "OCPVersion", "ocpVersion": installed}})
        }
    }
}

/// Why boot images hold up an upgrade. `release`: the cluster's, for the address of the documentation. A version that cannot
/// be read holds up nothing.
pub(super) fn too_old(object: &Value, release: Option<&str>) -> Option<String> {
    let status = &object["status"][FIELD];
    let said = match status["mode"].as_str()? {
        "Manual" => &status["manual"],
        // Somebody else's, who updates boot images: while he is at it, nothing is known.
        "Automatic" if ended(object) => &status["automatic"],
        _ => return None,
    };
    let (what, oldest) = match (said["ocpVersion"].as_str(), said["rhcosVersion"].as_str()) {
        (Some(release), _) => {
            let old = numbers(release)? < OLDEST_RELEASE;
            old.then(|| (format!("of release {release}"), OLDEST_RELEASE.map(|n| n.to_string()).join(".")))?
        }
        (None, Some(text)) => {
            let system = system(text)?;
            let words = system.map(|n| n.to_string()).join(".");
            (system < OLDEST_SYSTEM)
                .then(|| (format!("{text} (RHEL {words})"), OLDEST_SYSTEM.map(|n| n.to_string()).join(".")))?
        }
        (None, None) => return None,
    };
    let page =
        release.and_then(numbers).map_or("latest".to_owned(), |[major, minor, _]| format!("{major}.{minor}"));
    Some(format!(
        "MachineConfiguration cluster, status.bootImageSkewEnforcementStatus: machines boot from an image {what}, and the oldest \
         that can join after an upgrade is {oldest}; update the boot images and write their version into \
         spec.bootImageSkewEnforcement.manual, or set spec.bootImageSkewEnforcement.mode to None; see \
         {DOCS}/{page}/html/machine_configuration/mco-update-boot-skew-mgmt"
    ))
}

/// Whether whoever updates boot images says that no update is under way.
fn ended(object: &Value) -> bool {
    let progressing = conditions::get(conditions::of_object(object), "BootImageUpdateProgressing");
    progressing.is_some_and(StatusCondition::is_false)
}

/// The version of RHEL in a version of its CoreOS: `9.4.20251023-0` says it, and in `413.92.202402131523-0` the second number
/// is of one digit and the rest.
fn system(text: &str) -> Option<[u64; 2]> {
    let mut parts = text.split('.');
    let (major, minor, date) = (parts.next()?, parts.next()?, parts.next()?);
    let date = date.split('-').next()?;
    match date.len() {
        8 => Some([major.parse().ok()?, minor.parse().ok()?]),
        12 => {
            let (first, rest) = minor.split_at_checked(1)?;
            Some([first.parse().ok()?, rest.parse().ok()?])
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HERE: Cluster<'_> = Cluster {
        installed: Some("4.22.0"),
        platform: "None",
        topology: Some(ControlPlaneTopology::HighlyAvailable),
    };

    #[test]
    fn the_mode_is_what_is_said_or_the_release_of_the_installation() {
        let spec = |said: Value| json!({"spec": {"bootImageSkewEnforcement": said}});
        let none = json!({"mode": "None"});
        let manual =
            json!({"mode": "Manual", "manual": {"mode": "RHCOSVersion", "rhcosVersion": "9.4.20251023-0"}});
        let single = Some(ControlPlaneTopology::SingleReplica);
        let by_release = json!({"mode": "Manual", "manual": {"mode": "OCPVersion", "ocpVersion": "4.22.0"}});
        let rows = [
            (spec(manual.clone()), HERE, &manual),
            (spec(none.clone()), HERE, &none),
            (json!({}), HERE, &by_release),
            (json!({}), Cluster { installed: None, ..HERE }, &none),
            (json!({}), Cluster { platform: "BareMetal", ..HERE }, &none),
            (json!({}), Cluster { topology: single, ..HERE }, &none),
            (json!({}), Cluster { topology: None, ..HERE }, &by_release),
            (spec(manual.clone()), Cluster { topology: single, ..HERE }, &manual),
            (spec(manual.clone()), Cluster::default(), &manual),
        ];
        for (object, cluster, want) in rows {
            assert_eq!(enforcement(&object, cluster), *want, "{object} {cluster:?}");
        }
        let entry = |state: &str, version: &str| json!({"state": state, "version": version});
        let history = |list: Value| json!({"status": {"history": list}});
        let all = json!([
            entry("Partial", "4.20.0"),
            entry("Completed", "4.19.3"),
            entry("Completed", "4.18.0-0.ci-2025")
        ]);
        assert_eq!(installed(&history(all)), "4.18.0");
        assert_eq!(installed(&history(json!([entry("Partial", "4.18.0")]))), "0.0.0");
        assert_eq!(installed(&json!({})), "0.0.0");
    }

    #[test]
    fn boot_images_that_are_too_old_hold_up_an_upgrade() {
        let manual = |key: &str, version: &str| json!({"status": {"bootImageSkewEnforcementStatus": {"mode": "Manual", "manual": {key: version}}}});
        for (key, version, old) in [
            ("ocpVersion", "4.16.0", false),
            ("ocpVersion", "4.13.0", false),
            ("ocpVersion", "4.10.0", true),
            ("rhcosVersion", "9.4.20251023-0", false),
            ("rhcosVersion", "416.94.202510081640-0", false),
            ("rhcosVersion", "413.92.202402131523-0", false),
            ("rhcosVersion", "9.0.20251023-0", true),
            ("rhcosVersion", "9.1.20251023-0", true),
            ("rhcosVersion", "411.86.202308081056-0", true),
            ("rhcosVersion", "nonsense", false),
        ] {
            assert_eq!(too_old(&manual(key, version), None).is_some(), old, "{version}");
        }
        let why = too_old(&manual("rhcosVersion", "411.86.202308081056-0"), Some("4.22.1")).unwrap();
        assert!(why.contains("(RHEL 8.6)") && why.contains("/4.22/html/"), "{why}");
        let why = too_old(&manual("ocpVersion", "4.10.0"), None).unwrap();
        assert!(
            why.contains("of release 4.10.0") && why.contains("is 4.13.0;") && why.contains("/latest/"),
            "{why}"
        );
        let mut theirs = json!({"status": {"bootImageSkewEnforcementStatus": {"mode": "Automatic", "automatic": {"ocpVersion": "4.12.0"}}}});
        assert_eq!(too_old(&theirs, None), None, "nobody says that it is done");
        theirs["status"]["conditions"] = json!([{"type": "BootImageUpdateProgressing", "status": "False"}]);
        assert!(too_old(&theirs, None).is_some());
        assert_eq!(
            too_old(&json!({"status": {"bootImageSkewEnforcementStatus": {"mode": "None"}}}), None),
            None
        );
        assert_eq!(too_old(&json!({}), None), None);
    }
}
