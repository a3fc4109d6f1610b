//! The list of alerts: those of the reference whose metrics exist here, under their names, and ours.
//!
//! What it is not: how they become rules (see `alert_rules`), or the runbooks. Each alert has its page `docs/runbooks/ALERT.md`; a test
//! of xtask looks for it.

use super::alerts::Alert;
use super::alerts::Severity::{self, Critical, Info, Warning};

const fn alert(
    name: &'static str,
    severity: Severity,
    hold: &'static str,
    expr: &'static str,
    summary: &'static str,
    description: &'static str,
) -> Alert {
    Alert { name, expr, hold, severity, summary, description }
}

/// All alerts, by part.
///
/// Series of the controller come from the pod that leads. Another leader is another pod, so those that look back in time ask
/// for the highest value of all pods.
pub const ALERTS: [Alert; 33] = [
    alert(
        "MCCPoolDegraded",
        Warning,
        "15m",
        "max by (pool) (mco_degraded_machine_count) > 0",
        "{{ $value }} nodes of pool {{ $labels.pool }} are Degraded.",
        "These nodes cannot reach their config. The other nodes continue within maxUnavailable. `mco status` names the nodes \
         and the reason.",
    ),
    alert(
        "MCCRolloutStalled",
        Warning,
        "15m",
        "max by (pool) (mco_machine_count) > max by (pool) (mco_updated_machine_count)\n\
         and on (pool) changes(max by (pool) (mco_updated_machine_count)[1h:1m]) == 0\n\
         and on (pool) max_over_time(max by (pool) (mcc_rollout_held)[1h:1m]) == 0\n\
         and on (pool) count_over_time(max by (pool) (mco_machine_count)[1h:1m]) >= 59",
        "The rollout of pool {{ $labels.pool }} has not moved for an hour.",
        "Nodes wait for the new config, nothing holds the pool back, and no node has finished for an hour. `mco status` says for \
         each node what it waits for.",
    ),
    alert(
        "MCCNodeWorkingTooLong",
        Warning,
        "5m",
        "count_over_time(count by (node, pool) (mco_state{state=\"Updating\"})[1h:1m]) >= 59",
        "Node {{ $labels.node }} has been on its way to a new config for more than an hour.",
        "A node needs minutes for a change, a reboot included. Meanwhile it takes a slot of maxUnavailable. `mco status` \
         says what it is doing.",
    ),
    alert(
        "MCCDrainBlocked",
        Warning,
        "",
        "max by (node) (mcc_drain_blocked_seconds) > 1800",
        "The drain of node {{ $labels.node }} has been waiting for pods for {{ $value | humanizeDuration }}.",
        "Most often a PodDisruptionBudget allows no eviction. `mco status` names the pods and what blocks them.",
    ),
    alert(
        "MCCDrainError",
        Warning,
        "",
        "max by (node) (mcc_drain_err) > 0",
        "Node {{ $labels.node }} could not be drained for more than an hour.",
        "The rollout waits for it, and it stays cordoned. `mco status` names the pods and what blocks them.",
    ),
    alert(
        "MCCPoolHeld",
        Warning,
        "1d",
        "max by (pool) (mcc_rollout_held) > 0",
        "Pool {{ $labels.pool }} has been held back for a day.",
        "Somebody forgot a pause or a pin, or the config cannot be rendered. The certificates that ControllerConfig \
         distributes still reach its nodes; every other change waits. `mco status` says why.",
    ),
    alert(
        "MCCPausedWithChanges",
        Warning,
        "7d",
        "max by (pool) (mcc_rollout_held) > 0\n\
         and on (pool) max by (pool) (mco_machine_count) > max by (pool) (mco_updated_machine_count)",
        "Changes have waited for a week, because pool {{ $labels.pool }} is held back.",
        "Security fixes may be among them. Look at what waits with `mco plan`, then `mco resume`.",
    ),
    alert(
        "MCCPoolAlert",
        Warning,
        "",
        "max by (node) (mcc_pool_alert) > 0",
        "Node {{ $labels.node }} is in pool master, and a custom pool, which is ignored, selects it too.",
        "It gets the config of pool master. Remove the custom pool's label from the node, or make that pool's nodeSelector narrower.",
    ),
    alert(
        "MCCNoLeader",
        Critical,
        "5m",
        "sum(mcc_leader) < 1 or absent(mcc_leader)",
        "No machine-config-controller leads.",
        "Nothing is rendered and no node is updated; nodes in service are not touched. Look at the pods and at the Lease \
         machine-config-controller.",
    ),
    alert(
        "MCCSeveralLeaders",
        Critical,
        "5m",
        "sum(mcc_leader) > 1",
        "{{ $value }} machine-config-controllers believe that they lead.",
        "Two may take more nodes out of service than maxUnavailable allows. Stop all but one.",
    ),
    alert(
        "MCCPassesFailing",
        Warning,
        "15m",
        "sum by (queue) (increase(mcc_passes_total{outcome=\"failed\"}[10m])) > 10",
        "The controller fails again and again in its queue {{ $labels.queue }}.",
        "The usual causes are permissions, an admission webhook or a full etcd. The controller's log names the request that is refused.",
    ),
    alert(
        "MCCBootImageSkewEnforcementNone",
        Info,
        "",
        "max(mcc_boot_image_skew_enforcement_none) == 1",
        "Nothing checks the age of this cluster's boot images.",
        "New machines may boot from an image that is too old for this cluster. Set the mode in MachineConfiguration `cluster`.",
    ),
    alert(
        "MCCCertificateExpires",
        Warning,
        "1h",
        "max by (bundle) (mcc_certificate_not_after_timestamp_seconds) - time() < 30 * 86400",
        "The certificates in {{ $labels.bundle }} of the ControllerConfig expire in {{ $value | humanizeDuration }}.",
        "Hosts trust these authorities. After that, kubelets, agents or container runtimes no longer trust the certificates \
         that the authorities have issued. Renew the authority: its new certificate reaches the hosts by itself.",
    ),
    alert(
        "OCLBuildFailed",
        Warning,
        "1m",
        "sum by (pool) (increase(ocl_build_total{state=\"failed\"}[5m])) > 0",
        "An OS image of pool {{ $labels.pool }} could not be built.",
        "Its nodes stay on the image that they have, and the pool is degraded. The pool's condition ImageBuildDegraded has the \
         last lines of the build.",
    ),
    alert(
        "OCLBuildDegraded",
        Warning,
        "10m",
        "max by (pool) (ocl_build_state{state=\"failed\"}) == 1",
        "Pool {{ $labels.pool }} has had no OS image to go to for ten minutes, because its build failed.",
        "It is not tried again by itself. Correct the MachineOSConfig, or ask for a rebuild; what failed is in the pool's condition \
         ImageBuildDegraded.",
    ),
    alert(
        "OCLImagePushFailed",
        Warning,
        "10m",
        "max by (pool) (ocl_image_push_state{state=\"failed\"}) == 1",
        "The OS image of pool {{ $labels.pool }} was built, but its registry did not take it.",
        "The usual causes are wrong credentials or a full registry. Look at the pool's condition ImageBuildDegraded, correct the cause, \
         and ask for a rebuild.",
    ),
    alert(
        "MCOOperatorDegraded",
        Warning,
        "10m",
        "max by (step) (mco_operator_step_failed) > 0",
        "The operator's step {{ $labels.step }} has failed for ten minutes.",
        "Running parts are not affected. The steps after it wait: nothing of theirs that is missing or changed is put back, and an \
         upgrade does not continue. No step waits for Watch, Joining, CaLifetime, MachineConfiguration, UserData, \
         Monitoring and MachineConfigDashboard. The condition Degraded of MachineConfigOperator `cluster` names the object and the remedy.",
    ),
    alert(
        "MCONoOperator",
        Warning,
        "10m",
        "sum(mco_operator_leader) < 1 or absent(mco_operator_leader)",
        "No machine-config-operator leads.",
        "Running parts are not affected. Nothing that is missing is put back, certificates are not renewed, and machines that join wait. Look \
         at the pods and at the Lease machine-config-operator.",
    ),
    alert(
        "MCDRebootError",
        Critical,
        "5m",
        "max by (instance) (mcd_reboots_failed_total) > 0",
        "The agent on {{ $labels.instance }} could not reboot its node.",
        "The node stays drained until it reboots. Look at systemd's jobs and inhibitors on the host, or reboot it by hand.",
    ),
    alert(
        "MCDPivotError",
        Warning,
        "2m",
        "max by (instance) (mcd_pivot_errors_total) > 0",
        "The agent on {{ $labels.instance }} could not change the OS of its node as its config asks.",
        "An OS image, kernel arguments, a kernel or extensions failed to be fetched or staged. The node keeps what it boots, and \
         the agent tries again. The condition of its MachineConfigNode and `mco status` say what failed.",
    ),
    alert(
        "KubeletHealthState",
        Warning,
        "",
        "max by (instance) (mcd_kubelet_state) > 2",
        "The kubelet on {{ $labels.instance }} says that it is not healthy.",
        "Look at `journalctl -u kubelet` on the host.",
    ),
    alert(
        "MCDConfigDrift",
        Warning,
        "5m",
        "max by (instance) (mcd_config_drift) > 0",
        "Somebody changed a managed file on {{ $labels.instance }}.",
        "The node is Degraded until the file is as its config says. The Node's annotation `reason` names the file.",
    ),
    alert(
        "MCDAgentDown",
        Warning,
        "15m",
        "up{job=\"machine-config-daemon\"} == 0",
        "The agent on {{ $labels.instance }} cannot be scraped.",
        "Its node takes no changes and no certificates while the agent does not run.",
    ),
    alert(
        "MCSSourceDown",
        Warning,
        "5m",
        "max by (instance) (mcs_source_up) == 0",
        "The config server on {{ $labels.instance }} cannot read the cluster.",
        "Machines that boot get the last configs that it read. Look at the API server and at the pod's log.",
    ),
    alert(
        "MCSConfigHeldBack",
        Warning,
        "1h",
        "max by (pool) (mcs_config_held_back) > 0",
        "New machines of pool {{ $labels.pool }} do not get its newest config.",
        "The config server cannot serve it, and serves the previous one. Its log names the reason.",
    ),
    alert(
        "MCSCertificateExpires",
        Warning,
        "1h",
        "min by (instance) (mcs_certificate_not_after_timestamp_seconds) - time() < 30 * 86400",
        "The config server's certificate on {{ $labels.instance }} expires in {{ $value | humanizeDuration }}.",
        "After that no machine can boot into the cluster. The operator renews it unless the Secret is your own.",
    ),
    alert(
        "MCSCertificateEnds",
        Critical,
        "",
        "min by (instance) (mcs_certificate_not_after_timestamp_seconds) - time() < 7 * 86400",
        "The config server's certificate on {{ $labels.instance }} expires in {{ $value | humanizeDuration }}.",
        "After that no machine can boot into the cluster. The operator renews it unless the Secret is your own.",
    ),
    alert(
        "MCSCertificateUnusable",
        Warning,
        "",
        "sum by (instance) (increase(mcs_certificate_failures_total[30m])) > 0",
        "A new certificate cannot be used by the config server on {{ $labels.instance }}.",
        "The previous one stays in use. The pod's log says what is wrong with the files.",
    ),
    alert(
        "MCSBootTokensRefused",
        Info,
        "",
        "sum by (result) (increase(mcs_boot_token_checks_total{result!=\"accepted\"}[15m])) > 20",
        "The config server has refused {{ $value | humanize }} boot tokens within 15 minutes: {{ $labels.result }}.",
        "Either machines send spent or expired tokens, or somebody is guessing tokens. `mco token list` shows those that are \
         valid.",
    ),
    alert(
        "RuncDeprecated",
        Info,
        "10m",
        "count(container_runtime_crio_default_runtime{runtime=\"runc\"}) > 0",
        "{{ $value }} nodes run containers with runc by default.",
        "CRI-O no longer recommends it. Change it with a ContainerRuntimeConfig.",
    ),
    alert(
        "SystemMemoryExceedsReservation",
        Warning,
        "15m",
        "sum by (node) (container_memory_rss{id=\"/system.slice\"})\n\
         > 0.95 * sum by (node) (kube_node_status_capacity{resource=\"memory\"})\n\
         - 0.95 * sum by (node) (kube_node_status_allocatable{resource=\"memory\"})",
        "The system's services on {{ $labels.node }} use more memory than is reserved for them.",
        "Pods may be killed for it. Raise systemReserved with a KubeletConfig.",
    ),
    alert(
        "HighOverallControlPlaneMemory",
        Warning,
        "1h",
        "1 - sum(node_memory_MemAvailable_bytes * on (instance) group_left CONTROL_PLANE)\n\
         / sum(node_memory_MemTotal_bytes * on (instance) group_left CONTROL_PLANE) > 0.6",
        "The control plane's nodes use {{ $value | humanizePercentage }} of their memory.",
        "If one of them fails, the others may not have room for its work. Give them more memory.",
    ),
    alert(
        "ExtremelyHighIndividualControlPlaneMemory",
        Critical,
        "45m",
        "1 - (node_memory_MemAvailable_bytes / node_memory_MemTotal_bytes) * on (instance) group_left CONTROL_PLANE > 0.9",
        "The control-plane node {{ $labels.instance }} uses {{ $value | humanizePercentage }} of its memory.",
        "Its etcd and API server become slow. Give it more memory, or find out what uses it.",
    ),
];
