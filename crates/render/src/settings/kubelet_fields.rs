//! The fields of a `KubeletConfiguration` (`kubelet.config.k8s.io/v1beta1`, Kubernetes 1.36) and the type of each, so
//! that what a kubelet could not read is refused before it reaches one. Source:
//! <https://kubernetes.io/docs/reference/config-api/kubelet-config.v1beta1/>. Pure data, and the walk over it.
//!
//! What it is not: which fields may be set (see `kubelet_config`).

use crate::settings::durations::parse_duration;
use serde_json::{Map, Value};

/// The type of a field.
#[derive(Debug, Clone, Copy)]
enum Type {
    Text,
    Flag,
    Int32,
    Int64,
    Float,
    Duration,
    /// Not checked; left to the kubelet.
    Any,
    List(&'static Type),
    /// A map from names to values.
    Map(&'static Type),
    Object(&'static [(&'static str, Type)]),
}

use Type::{Any, Duration, Flag, Float, Int32, Int64, List, Object, Text};

const TEXTS: Type = List(&Text);
const TEXT_MAP: Type = Type::Map(&Text);

const FIELDS: &[(&str, Type)] = &[
    ("kind", Text),
    ("apiVersion", Text),
    ("address", Text),
    ("allowedUnsafeSysctls", TEXTS),
    ("authentication", AUTHENTICATION),
    ("authorization", AUTHORIZATION),
    ("cgroupDriver", Text),
    ("cgroupRoot", Text),
    ("cgroupsPerQOS", Flag),
    ("clusterDNS", TEXTS),
    ("clusterDomain", Text),
    ("configMapAndSecretChangeDetectionStrategy", Text),
    ("containerLogMaxFiles", Int32),
    ("containerLogMaxSize", Text),
    ("containerLogMaxWorkers", Int32),
    ("containerLogMonitorInterval", Duration),
    ("containerRuntimeEndpoint", Text),
    ("contentType", Text),
    ("cpuCFSQuota", Flag),
    ("cpuCFSQuotaPeriod", Duration),
    ("cpuManagerPolicy", Text),
    ("cpuManagerPolicyOptions", TEXT_MAP),
    ("cpuManagerReconcilePeriod", Duration),
    ("crashLoopBackOff", Object(&[("maxContainerRestartPeriod", Duration)])),
    ("enableContentionProfiling", Flag),
    ("enableControllerAttachDetach", Flag),
    ("enableDebugFlagsHandler", Flag),
    ("enableDebuggingHandlers", Flag),
    ("enableProfilingHandler", Flag),
    ("enableServer", Flag),
    ("enableSystemLogHandler", Flag),
    ("enableSystemLogQuery", Flag),
    ("enforceNodeAllocatable", TEXTS),
    ("eventBurst", Int32),
    ("eventRecordQPS", Int32),
    ("evictionHard", TEXT_MAP),
    ("evictionMaxPodGracePeriod", Int32),
    ("evictionMinimumReclaim", TEXT_MAP),
    ("evictionPressureTransitionPeriod", Duration),
    ("evictionSoft", TEXT_MAP),
    ("evictionSoftGracePeriod", TEXT_MAP),
    ("failCgroupV1", Flag),
    ("failSwapOn", Flag),
    ("featureGates", Type::Map(&Flag)),
    ("fileCheckFrequency", Duration),
    ("hairpinMode", Text),
    ("healthzBindAddress", Text),
    ("healthzPort", Int32),
    ("httpCheckFrequency", Duration),
    ("imageGCHighThresholdPercent", Int32),
    ("imageGCLowThresholdPercent", Int32),
    ("imageMaximumGCAge", Duration),
    ("imageMinimumGCAge", Duration),
    ("imagePullCredentialsVerificationPolicy", Text),
    ("imageServiceEndpoint", Text),
    ("iptablesDropBit", Int32),
    ("iptablesMasqueradeBit", Int32),
    ("kernelMemcgNotification", Flag),
    ("kubeAPIBurst", Int32),
    ("kubeAPIQPS", Int32),
    ("kubeReserved", TEXT_MAP),
    ("kubeReservedCgroup", Text),
    ("kubeletCgroups", Text),
    ("localStorageCapacityIsolation", Flag),
    ("logging", LOGGING),
    ("makeIPTablesUtilChains", Flag),
    ("maxOpenFiles", Int64),
    ("maxParallelImagePulls", Int32),
    ("maxPods", Int32),
    ("memoryManagerPolicy", Text),
    ("memoryReservationPolicy", Text),
    ("memorySwap", Object(&[("swapBehavior", Text)])),
    ("memoryThrottlingFactor", Float),
    ("mergeDefaultEvictionSettings", Flag),
    ("nodeLeaseDurationSeconds", Int32),
    ("nodeStatusMaxImages", Int32),
    ("nodeStatusReportFrequency", Duration),
    ("nodeStatusUpdateFrequency", Duration),
    ("oomScoreAdj", Int32),
    ("podCIDR", Text),
    ("podLogsDir", Text),
    ("podPidsLimit", Int64),
    ("podsPerCore", Int32),
    ("port", Int32),
    ("preloadedImagesVerificationAllowlist", TEXTS),
    ("protectKernelDefaults", Flag),
    ("providerID", Text),
    ("qosReserved", TEXT_MAP),
    ("readOnlyPort", Int32),
    ("registerNode", Flag),
    ("registerWithTaints", List(&Any)),
    ("registryBurst", Int32),
    ("registryPullQPS", Int32),
    ("reservedMemory", List(&Object(&[("numaNode", Int32), ("limits", Type::Map(&Any))]))),
    ("reservedSystemCPUs", Text),
    ("resolvConf", Text),
    ("rotateCertificates", Flag),
    ("runOnce", Flag),
    ("runtimeRequestTimeout", Duration),
    ("seccompDefault", Flag),
    ("serializeImagePulls", Flag),
    ("serverTLSBootstrap", Flag),
    ("showHiddenMetricsForVersion", Text),
    ("shutdownGracePeriod", Duration),
    ("shutdownGracePeriodByPodPriority", List(&SHUTDOWN)),
    ("shutdownGracePeriodCriticalPods", Duration),
    ("singleProcessOOMKill", Flag),
    ("staticPodPath", Text),
    ("staticPodURL", Text),
    ("staticPodURLHeader", Type::Map(&TEXTS)),
    ("streamingConnectionIdleTimeout", Duration),
    ("syncFrequency", Duration),
    ("systemCgroups", Text),
    ("systemReserved", TEXT_MAP),
    ("systemReservedCgroup", Text),
    ("tlsCertFile", Text),
    ("tlsCipherSuites", TEXTS),
    ("tlsCurvePreferences", List(&Int32)),
    ("tlsMinVersion", Text),
    ("tlsPrivateKeyFile", Text),
    ("topologyManagerPolicy", Text),
    ("topologyManagerPolicyOptions", TEXT_MAP),
    ("topologyManagerScope", Text),
    ("tracing", Object(&[("endpoint", Text), ("samplingRatePerMillion", Int32)])),
    ("userNamespaces", Object(&[("idsPerPod", Int64)])),
    ("volumePluginDir", Text),
    ("volumeStatsAggPeriod", Duration),
];

const AUTHENTICATION: Type = Object(&[
    ("anonymous", Object(&[("enabled", Flag)])),
    ("webhook", Object(&[("enabled", Flag), ("cacheTTL", Duration)])),
    ("x509", Object(&[("clientCAFile", Text)])),
]);

const AUTHORIZATION: Type = Object(&[
    ("mode", Text),
    ("webhook", Object(&[("cacheAuthorizedTTL", Duration), ("cacheUnauthorizedTTL", Duration)])),
]);

const LOGGING: Type = Object(&[
    ("format", Text),
    ("flushFrequency", Any),
    ("verbosity", Int64),
    ("vmodule", Any),
    ("options", Any),
]);

const SHUTDOWN: Type = Object(&[("priority", Int32), ("shutdownGracePeriodSeconds", Int64)]);

/// A value that no kubelet could read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct WrongType {
    /// The path below the configuration.
    pub(crate) path: String,
    /// What is expected there.
    pub(crate) expected: &'static str,
}

/// Corrects the spelling of each field, because Go reads `MaxPods` for `maxPods`; returns the paths of unknown fields.
///
/// # Errors
/// The first value of a wrong type.
pub(crate) fn correct_spelling(config: &mut Map<String, Value>) -> Result<Vec<String>, WrongType> {
    let mut unknown = Vec::new();
    object(config, FIELDS, "", &mut unknown)?;
    Ok(unknown)
}

/// Removes a field by a path that [`correct_spelling`] returned.
pub(crate) fn remove(config: &mut Map<String, Value>, path: &str) {
    match path.split_once('.') {
        None => drop(config.remove(path)),
        Some((first, rest)) => {
            if let Some(inner) = config.get_mut(first).and_then(Value::as_object_mut) {
                remove(inner, rest);
            }
        }
    }
}

fn object(
    map: &mut Map<String, Value>,
    fields: &[(&str, Type)],
    at: &str,
    unknown: &mut Vec<String>,
) -> Result<(), WrongType> {
    let keys: Vec<String> = map.keys().cloned().collect();
    for key in keys {
        let exact = fields.iter().find(|(name, _)| *name == key);
        let Some((name, kind)) = exact.or_else(|| fields.iter().find(|(n, _)| n.eq_ignore_ascii_case(&key)))
        else {
            unknown.push(format!("{at}{key}"));
            continue;
        };
        if *name != key
            && let Some(value) = map.remove(&key)
        {
            map.entry(*name).or_insert(value);
        }
        if let Some(value) = map.get_mut(*name) {
            self::value(value, kind, &format!("{at}{name}"), unknown)?;
        }
    }
    Ok(())
}

fn value(value: &mut Value, kind: &Type, at: &str, unknown: &mut Vec<String>) -> Result<(), WrongType> {
    let fits = |fits: bool, expected: &'static str| {
        if fits { Ok(()) } else { Err(WrongType { path: at.to_owned(), expected }) }
    };
    if value.is_null() {
        return Ok(());
    }
    match kind {
        Any => Ok(()),
        Text => fits(value.is_string(), "a string"),
        Flag => fits(value.is_boolean(), "true or false"),
        Float => fits(value.is_number(), "a number"),
        Int64 => fits(value.is_i64(), "a whole number"),
        Int32 => {
            fits(value.as_i64().is_some_and(|n| i32::try_from(n).is_ok()), "a whole number below 2147483648")
        }
        Duration => fits(value.as_str().and_then(parse_duration).is_some(), "a duration such as 5m or 1h30m"),
        List(each) => match value {
            Value::Array(all) => {
                for (i, v) in all.iter_mut().enumerate() {
                    // Unknown fields inside a list are left to the kubelet.
                    self::value(v, each, &format!("{at}[{i}]"), &mut Vec::new())?;
                }
                Ok(())
            }
            _ => fits(false, "a list"),
        },
        Type::Map(each) => match value {
            Value::Object(map) => {
                for (key, v) in map {
                    self::value(v, each, &format!("{at}.{key}"), unknown)?;
                }
                Ok(())
            }
            _ => fits(false, "an object"),
        },
        Object(fields) => match value {
            Value::Object(map) => object(map, fields, &format!("{at}."), unknown),
            _ => fits(false, "an object"),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn what_a_kubelet_could_not_read_is_told_with_its_place() {
        for (config, path) in [
            (json!({"maxPods": "many"}), "maxPods"),
            (json!({"maxPods": 1.5}), "maxPods"),
            (json!({"maxPods": 3_000_000_000_u64}), "maxPods"),
            (json!({"authentication": {"anonymous": {"enabled": "no"}}}), "authentication.anonymous.enabled"),
            (json!({"authentication": []}), "authentication"),
            (json!({"evictionHard": {"memory.available": 5}}), "evictionHard.memory.available"),
            (json!({"tlsCipherSuites": ["a", 1]}), "tlsCipherSuites[1]"),
            (json!({"reservedMemory": [{"numaNode": "0"}]}), "reservedMemory[0].numaNode"),
            (
                json!({"crashLoopBackOff": {"maxContainerRestartPeriod": 5}}),
                "crashLoopBackOff.maxContainerRestartPeriod",
            ),
            (json!({"cpuCFSQuotaPeriod": "often"}), "cpuCFSQuotaPeriod"),
        ] {
            let mut map = config.as_object().cloned().unwrap();
            assert_eq!(correct_spelling(&mut map).map_err(|e| e.path), Err(path.to_owned()), "{config}");
        }
    }

    #[test]
    fn fields_are_spelt_as_written_and_unknown_ones_are_named() {
        let config = json!({
            "MaxPods": 5, "podpidslimit": 7, "nonsense": 1, "evictionHard": {"Any": "1"}, "clusterDNS": null,
            "authentication": {"x509": {"clientCAFile": "/x", "more": true}},
        });
        let mut map = config.as_object().cloned().unwrap();
        let unknown = correct_spelling(&mut map).unwrap();
        assert_eq!(unknown, ["authentication.x509.more", "nonsense"]);
        unknown.iter().for_each(|path| remove(&mut map, path));
        let want = json!({
            "maxPods": 5, "podPidsLimit": 7, "evictionHard": {"Any": "1"}, "clusterDNS": null,
            "authentication": {"x509": {"clientCAFile": "/x"}},
        });
        assert_eq!(Value::Object(map), want);
    }

    #[test]
    fn every_duration_is_normalised() {
        fn durations(fields: &[(&'static str, Type)], all: &mut Vec<&'static str>) {
            for (name, kind) in fields {
                match kind {
                    Duration => all.push(name),
                    Object(inner) => durations(inner, all),
                    _ => {}
                }
            }
        }
        let mut all = Vec::new();
        durations(FIELDS, &mut all);
        all.sort_unstable();
        let mut known = crate::settings::durations::DURATIONS.to_vec();
        known.sort_unstable();
        assert_eq!(all, known);
    }
}
