//! Annotations, labels, object names and other constants that are part of the interface.
//!
//! The names are those of OpenShift's Machine Config Operator, so that the controller of either implementation works with
//! the other's daemon.
//!
//! What it is not: paths on the host, which only `host` and `daemon` know.
//!
//! Sources: <https://github.com/openshift/machine-config-operator/blob/HEAD/pkg/daemon/constants/constants.go>
//! and <https://github.com/openshift/machine-config-operator/blob/HEAD/pkg/controller/common/constants.go>.

/// The API group of every kind that we define.
pub const GROUP: &str = "machineconfiguration.openshift.io";
/// The namespace of events on cluster-scoped objects, of leases, and of our own workloads.
pub const NAMESPACE: &str = "openshift-machine-config-operator";
/// The account of the pods that build OS images, as in OpenShift.
pub const BUILDER_ACCOUNT: &str = "machine-os-builder";
/// The ConfigMap that OpenShift keeps in every namespace: the authority of its services, as that of its own registry.
pub const SERVICE_CA: &str = "openshift-service-ca.crt";
/// The pull secret that the controller may read even if the ControllerConfig does not name it.
pub const PULL_SECRET: &str = "pull-secret";
/// The ConfigMap with the list of what image builds have pushed, one key for each image.
pub const PUSHED_IMAGES: &str = "machine-os-images";
/// The name of the one ControllerConfig.
pub const CONTROLLER_CONFIG: &str = "machine-config-controller";
/// The name of the one MachineConfiguration (`operator.openshift.io`) and of OpenShift's other singletons.
pub const CLUSTER: &str = "cluster";
/// The pool that every other pool inherits from by convention.
pub const WORKER: &str = "worker";
/// The control plane's pool.
pub const MASTER: &str = "master";
/// The pool of the arbiter topology.
pub const ARBITER: &str = "arbiter";
/// The label of an OS image that names the version of its kubelet, such as `v1.36.3`. Ours alone.
pub const KUBELET_VERSION_LABEL: &str = "machineconfig.dev/kubelet-version";
/// The label of an OS image that promises fields of its os-release, such as `ID=debian VERSION_ID=13`. Ours alone.
pub const OS_RELEASE_LABEL: &str = "machineconfig.dev/os-release";
/// The user that MachineConfigs may manage on a host.
pub const CORE_USER: &str = "core";
/// The value of a MachineConfigNode field that is not known yet.
pub const NOT_YET_SET: &str = "not-yet-set";
/// The key of the taint on nodes that wait for an update; its effect is `PreferNoSchedule`, it has no value.
pub const UPDATE_TAINT: &str = "UpdateInProgress";
/// The effect of [`UPDATE_TAINT`].
pub const UPDATE_TAINT_EFFECT: &str = "PreferNoSchedule";
/// The key of the taint on nodes that have joined and are not in their pool's config yet; it has no value. A kubelet may
/// register with it (`--register-with-taints`).
pub const JOINING_TAINT: &str = "machineconfig.dev/joining";
/// The effect of [`JOINING_TAINT`].
pub const JOINING_TAINT_EFFECT: &str = "NoSchedule";
/// The config of a node that never had one: nothing. There is no such MachineConfig.
pub const EMPTY_CONFIG: &str = "mco-empty-mc";
/// The largest rendered MachineConfig, in bytes of JSON; etcd's request limit stands behind it.
pub const MAX_RENDERED_BYTES: usize = 1_572_864;
/// The Ignition version that rendered configs are written in.
pub const IGNITION_VERSION: &str = "3.5.0";

/// This build's version, as it is written to [`annotation::GENERATED_BY_VERSION`].
pub const VERSION_RAW: &str = concat!("v", env!("CARGO_PKG_VERSION"));
/// What marks objects that this build's controller made, in [`annotation::GENERATED_BY_CONTROLLER`]. The reference
/// uses its source commit; we use the version, so that a rebuild of the same version is not a skew.
pub const VERSION_HASH: &str = VERSION_RAW;

/// Values of a cluster's topology. Code decides by [`ControlPlaneTopology`](crate::topology::ControlPlaneTopology).
pub mod topology {
    /// There is one such node, and its pods can run nowhere else.
    pub const SINGLE_REPLICA: &str = "SingleReplica";
    /// There are several.
    pub const HIGHLY_AVAILABLE: &str = "HighlyAvailable";
    /// There are two, and an arbiter for etcd's quorum.
    pub const HIGHLY_AVAILABLE_ARBITER: &str = "HighlyAvailableArbiter";
    /// There are two. Either fences the other, so no arbiter is needed.
    pub const DUAL_REPLICA: &str = "DualReplica";
    /// They are not nodes of the cluster.
    pub const EXTERNAL: &str = "External";
}

/// Annotations.
pub mod annotation {
    /// On every generated and rendered MachineConfig: the hash of the controller build that made it.
    pub const GENERATED_BY_CONTROLLER: &str =
        "machineconfiguration.openshift.io/generated-by-controller-version";
    /// On ControllerConfig: the version that renders from it. Written at installation, and kept by the controller that leads.
    pub const GENERATED_BY_VERSION: &str = "machineconfiguration.openshift.io/generated-by-version";
    /// On rendered MachineConfigs: the version of the release, copied from ControllerConfig.
    pub const RELEASE_IMAGE_VERSION: &str = "machineconfiguration.openshift.io/release-image-version";
    /// On a rendered MachineConfig whose OS image is not the default one: `"true"`.
    pub const OS_IMAGE_URL_OVERRIDDEN: &str = "machineconfiguration.openshift.io/os-image-url-overridden";
    /// On rendered MachineConfigs: which MachineConfig set what in it, packed. Ours alone; no other implementation reads it.
    pub const PROVENANCE: &str = "machineconfiguration.openshift.io/provenance";
    /// On MachineConfigs that the controller makes: a digest of what it wrote. If it does not match the object,
    /// somebody else has changed it since. Ours alone.
    pub const WRITTEN: &str = "machineconfiguration.openshift.io/written";
    /// On ControllerConfig: how many unused rendered MachineConfigs of a pool are kept; a whole number. Ours alone.
    pub const KEEP_RENDERED_CONFIGS: &str = "machineconfiguration.openshift.io/keep-rendered-configs";
    /// On ControllerConfig and the controller's Deployment: values that were detected or guessed, see [`crate::detected`]. Ours
    /// alone.
    pub const FOUND_OUT: &str = "machineconfiguration.openshift.io/found-out";
    /// On MachineConfiguration `cluster`, pools and Nodes: what a change without a disruption policy costs, see
    /// [`crate::v1alpha1::Reboots`]. The operator copies the cluster's from its settings. A pool's counts more; the controller
    /// copies it to each Node. Ours alone.
    pub const REBOOTS: &str = "machineconfig.dev/reboots";
    /// On MachineConfiguration `cluster`, pools and Nodes: `Install` allows that `spec.extensions` and `spec.kernelType` become
    /// packages of the distribution (apt, dnf) on hosts without an image. A pool's counts more; the controller copies it to each
    /// Node. Ours alone.
    pub const HOST_PACKAGES: &str = "machineconfig.dev/host-packages";
    /// On MachineConfiguration `cluster`, pools and Nodes: `Apply` allows that extensions which only add packages take effect without
    /// a reboot on hosts of rpm-ostree. A pool's counts more; the controller copies it to each Node. Ours alone.
    pub const LIVE_EXTENSIONS: &str = "machineconfig.dev/live-extensions";
    /// On a KubeletConfig or ContainerRuntimeConfig: the number at the end of the names of the MachineConfigs generated from it; empty for the
    /// first one of a pool. Written once by the controller, never changed.
    pub const MC_NAME_SUFFIX: &str = "machineconfiguration.openshift.io/mc-name-suffix";
    /// On ControllerConfig: layers of the template directory that are used in addition to those of the platform, separated by
    /// commas, the last one winning. Ours alone.
    pub const TEMPLATE_LAYERS: &str = "machineconfiguration.openshift.io/template-layers";
    /// Node: the rendered MachineConfig in effect. Written by the daemon.
    pub const CURRENT_CONFIG: &str = "machineconfiguration.openshift.io/currentConfig";
    /// Node: the rendered MachineConfig to move to. Written by the controller, and by the daemon for a Node that has none.
    pub const DESIRED_CONFIG: &str = "machineconfiguration.openshift.io/desiredConfig";
    /// Node: the layered OS image in effect. Written by the daemon.
    pub const CURRENT_IMAGE: &str = "machineconfiguration.openshift.io/currentImage";
    /// Node: the layered OS image to move to. Written together with the desired config.
    pub const DESIRED_IMAGE: &str = "machineconfiguration.openshift.io/desiredImage";
    /// Node: the daemon's state, one of [`super::state`].
    pub const STATE: &str = "machineconfiguration.openshift.io/state";
    /// Node: why the state is Degraded or Unreconcilable; empty when Done. At most
    /// [`crate::formats::text::MAX_REASON_CHARS`] characters.
    pub const REASON: &str = "machineconfiguration.openshift.io/reason";
    /// Node: the rendered MachineConfig that the machine first booted into.
    pub const FIRST_PIVOT_CONFIG: &str = "machineconfiguration.openshift.io/firstPivotConfig";
    /// MachineConfigPool: nodes, by name and separated by commas, that are given the labels of the pool's selector
    /// after they have first booted into its config. Each is removed from the list when it has them. Ours alone.
    pub const FIRST_BOOT_NODES: &str = "machineconfiguration.openshift.io/first-boot-nodes";
    /// Node: the labels of the custom pool that it booted into were applied.
    pub const CUSTOM_POOL_LABELS_APPLIED: &str = "machineconfiguration.openshift.io/customPoolLabelsApplied";
    /// Node: what the daemon asks of the drain controller: `drain-NAME` or `uncordon-NAME`.
    pub const DESIRED_DRAIN: &str = "machineconfiguration.openshift.io/desiredDrain";
    /// Node: the last request that the drain controller completed.
    pub const LAST_APPLIED_DRAIN: &str = "machineconfiguration.openshift.io/lastAppliedDrain";
    /// MachineConfigPool, and copied from it to its Nodes: what happens to managed paths that are changed by hand, see
    /// [`crate::drift`]. Ours alone.
    pub const DRIFT: &str = "machineconfiguration.openshift.io/drift";
    /// Node: a copy of the infrastructure's control-plane topology. Outside OpenShift only control-plane nodes get
    /// `SingleReplica`; pods of other nodes can move to each other.
    pub const CONTROL_PLANE_TOPOLOGY: &str = "machineconfiguration.openshift.io/controlPlaneTopology";
    /// Node: `Rebooting` between the reboot's start and the first sync after it, else empty.
    pub const POST_CONFIG_ACTION: &str = "machineconfiguration.openshift.io/post-config-action";
    /// The one value of [`POST_CONFIG_ACTION`] besides the empty one.
    pub const REBOOTING: &str = "Rebooting";
    /// Node: the ControllerConfig resource version whose certificates are on disk.
    pub const LAST_SYNCED_CONTROLLER_CONFIG: &str =
        "machineconfiguration.openshift.io/lastSyncedControllerConfigResourceVersion";
    /// Node: the value of [`SERVICE_CA_ROTATE`] that the host has followed.
    pub const LAST_OBSERVED_SERVER_CA: &str =
        "machineconfiguration.openshift.io/lastObservedServerCAAnnotation";
    /// ControllerConfig: `true` while the API server's CA is being rotated.
    pub const SERVICE_CA_ROTATE: &str = "machineconfiguration.openshift.io/service-ca-rotate";
    /// Node: a user has logged in by SSH; its value is [`SSH_ACCESSED`].
    pub const SSH: &str = "machineconfiguration.openshift.io/ssh";
    /// The one value of [`SSH`].
    pub const SSH_ACCESSED: &str = "accessed";
    /// MachineOSConfig: the build in force. Written by the controller.
    pub const CURRENT_BUILD: &str = "machineconfiguration.openshift.io/current-machine-os-build";
    /// MachineOSConfig: any value, also an empty one, has the image built again, even if one that fits exists. Written by people,
    /// removed by the controller.
    pub const REBUILD: &str = "machineconfiguration.openshift.io/rebuild";
    /// MachineOSBuild: the uid of its Job.
    pub const JOB_UID: &str = "machineconfiguration.openshift.io/job-uid";
    /// MachineOSBuild: the Secret that its image is pushed with.
    pub const PUSH_SECRET: &str = "machineconfiguration.openshift.io/rendered-image-push-secret";
    /// Rendered MachineConfig: the image that a machine boots straight into.
    pub const PRE_BUILT_IMAGE: &str = "machineconfiguration.openshift.io/pre-built-image";
    /// On ControllerConfig: the image in which OS images are built; it holds bash and buildah. Without it nothing is built. Ours
    /// alone.
    pub const IMAGE_BUILDER: &str = "machineconfig.dev/image-builder";
    /// On user data that the operator keeps: where its CA comes from.
    pub const MANAGED_USER_DATA: &str =
        "machineconfiguration.openshift.io/managed-ca-bundle-derived-from-configmap";
}

/// Annotations that no other implementation reads.
pub mod own {
    /// MachineOSBuild: a hash of the MachineOSConfig's spec that it was made from. By it an image is reused for a MachineConfig
    /// that needs no other one.
    pub const OS_CONFIG_HASH: &str = "machineconfig.dev/os-config-hash";
    /// MachineOSBuild: the image that it is to have without a Job, because that image fits.
    pub const REUSES_IMAGE: &str = "machineconfig.dev/reuses-image";
    /// MachineOSBuild: `true`: a rebuild was asked for, so no layer of an earlier build is used.
    pub const FRESH_LAYERS: &str = "machineconfig.dev/fresh-layers";
    /// MachineOSBuild: the base image by its digest, if `osImageURL` names a tag and the first pod failed: the pods after it take the
    /// same image.
    pub const BUILT_ON: &str = "machineconfig.dev/built-on";
    /// MachineOSConfig: the repository in which layers of its builds are kept for the next one; `none`: in none. Without it, that of
    /// `spec.renderedImagePushSpec`.
    pub const LAYER_CACHE: &str = "machineconfig.dev/layer-cache";
    /// MachineOSConfig: the Secret with the key (`cosign.key`, `cosign.password`) that its images are signed with once they are
    /// pushed. Without it they are not signed.
    pub const SIGNING_SECRET: &str = "machineconfig.dev/signing-secret";
    /// MachineOSConfig, MachineOSBuild: `keep`: images that its builds have pushed stay in the registry when nothing names them any
    /// more. Without it they are deleted there. The controller puts it on the builds of a MachineOSConfig that has it.
    pub const OLD_IMAGES: &str = "machineconfig.dev/old-images";
    /// Node: the pool's image that the node ran before the one that it runs. It may still be the deployment to fall back to.
    pub const PREVIOUS_IMAGE: &str = "machineconfig.dev/previous-image";
    /// Node: whose cordon the node is under during an update: `daemon`, `controller` or `kept` (a person's).
    pub const CORDON: &str = "machineconfiguration.openshift.io/cordon";
    /// Node: what a drain waits for, in words. Absent when it waits for nothing.
    pub const DRAIN_WAIT: &str = "machineconfiguration.openshift.io/drainWaitsFor";
    /// Node: its drain and when that began, as `REQUEST TIME`. Written if its pool's RolloutPolicy has a `drain`, whose `after` is
    /// counted from then, whichever controller leads. Removed when the drain is over.
    pub const DRAINING: &str = "machineconfig.dev/draining";
    /// Node: the rendered config that it is not sent to again for now, because its drain for it did not end (the RolloutPolicy's
    /// `spec.drain`). Without the annotation it is updated with the others.
    pub const QUARANTINE: &str = "machineconfig.dev/quarantine";
    /// On the installation's objects and definitions of kinds: the version of `mco` that wrote them.
    pub const VERSION: &str = "machineconfig.dev/version";
    /// On the installation's objects: a digest of what the operator wrote. An object with another one is written again.
    pub const WRITTEN_DIGEST: &str = "machineconfig.dev/written";
    /// Job of a gate: the rendered config that it checks.
    pub const GATED_CONFIG: &str = "machineconfig.dev/config";
    /// Node: the config that it was last sent to, and when, as `CONFIG TIME`. Written if its pool's RolloutPolicy has a
    /// `nodeDeadline`, which is counted from then, whichever controller leads; or by an agent that applies a waiting config.
    pub const SENT: &str = "machineconfig.dev/sent";
    /// Node: the rendered config that waits for a window of its pool's RolloutPolicy. If somebody reboots the machine meanwhile, the
    /// agent applies that config while the machine shuts down, so that one reboot serves both. Written by the controller, and
    /// removed as soon as anything else holds the node back.
    pub const WAITING: &str = "machineconfig.dev/waiting";
    /// Node: its boot and its container of etcd when it was last sent to another config, as `BOOT-ID CONTAINER-ID`. In another
    /// boot with the same container, the pod of etcd is as it was before the reboot, and says nothing about the member.
    pub const ETCD_BEFORE: &str = "machineconfig.dev/etcd-before";
    /// Node: when a new leader wrote to the node to fence off writes of the one before, which had crashed or lost its connection.
    pub const FENCED: &str = "machineconfiguration.openshift.io/sealed";
    /// Node: any text; a change of it makes the agent retry at once what failed (`mco retry`).
    pub const RETRY: &str = "machineconfiguration.openshift.io/retry";
    /// Node: any text, by which `mco uninstall` asks the agent to remove what it has brought to the host for trials, once nothing is
    /// on trial any more and no reboot is owed.
    pub const LEAVE: &str = "machineconfig.dev/leave";
    /// Node: the text of [`LEAVE`] that the agent has answered.
    pub const LEFT: &str = "machineconfig.dev/left";
    /// MachineConfigPool, and copied from it to its Nodes: how changes that can cut a node off are tried, see
    /// [`crate::trial`].
    pub const TRIAL: &str = "machineconfiguration.openshift.io/trial";
    /// MachineConfigPool: on how many nodes at once the next OS image is fetched before the first one is drained, as a number or a
    /// percentage. Without it, or with `0`, each node fetches it when it is updated. On a Node it is what its agent is asked to fetch, see
    /// [`crate::images::prefetch`].
    pub const PREFETCH: &str = "machineconfig.dev/prefetch";
    /// Node: what the agent has fetched, or why it could not, see [`crate::images::prefetch`].
    pub const PREFETCHED: &str = "machineconfig.dev/prefetched";
    /// Rendered MachineConfig: what the controller found out about its OS image, and the digest by which every node takes it, see
    /// [`crate::images::os_image`].
    pub const OS_IMAGE: &str = "machineconfig.dev/os-image";
    /// MachineConfigPool: `as-they-are`: OS images are not inspected before nodes are updated to them, and each node resolves a tag
    /// itself. For registries that nodes can reach and the controller cannot.
    pub const OS_IMAGES: &str = "machineconfig.dev/os-images";
    /// OSImageStream `cluster`: images, separated by blanks, that are looked into to fill its status: OS images and their images of
    /// extensions, or release images, which list them. Without it, where there is a ClusterVersion, those of its release, unless
    /// somebody else fills the status.
    pub const STREAM_IMAGES: &str = "machineconfig.dev/stream-images";
    /// OSImageStream `cluster`: the value of [`STREAM_IMAGES`] that its status was filled from. Empty:
    /// images are looked into anew.
    pub const STREAMS_FROM: &str = "machineconfig.dev/streams-from";
    /// The one value of [`OS_IMAGES`].
    pub const AS_THEY_ARE: &str = "as-they-are";
    /// MachineConfigPool: the rendered config that the pool is pinned to, whatever its MachineConfigs say (`mco undo`).
    pub const PINNED: &str = "machineconfiguration.openshift.io/pinned-config";
    /// MachineConfigPool: the rendered configs that the pool had, oldest first, with times (`mco history`). At most twenty.
    pub const CONFIG_HISTORY: &str = "machineconfiguration.openshift.io/config-history";
    /// MachineConfigNode: the updates that the node went through, oldest first, with the times of their parts and what their drains
    /// waited for (JSON). At most ten. Written by the agent.
    pub const UPDATES: &str = "machineconfig.dev/updates";
    /// MachineConfigNode: what the node waited for before it was sent to its desired config, and for how long (JSON). Written by
    /// the controller along with that config; the agent takes it over into [`UPDATES`].
    pub const WAITED: &str = "machineconfig.dev/waited";
    /// MachineConfigPool: a person's consent to a wave of its RolloutPolicy, as `CONFIG/WAVE` (`mco approve`). It is for that
    /// rendered config only.
    pub const APPROVED: &str = "machineconfig.dev/approve";
    /// MachineConfigPool: who has set [`APPROVED`].
    pub const APPROVED_BY: &str = "machineconfig.dev/approved-by";
    /// ControllerConfig: when the CA in ConfigMap `kubeconfig-data` was last replaced by another one (RFC 3339). A change of it
    /// makes each agent read that ConfigMap. The ConfigMap has it too.
    pub const SERVER_CA_ROTATED_AT: &str = "machineconfig.dev/rotated-at";
    /// ControllerConfig: the version whose controller may render pools. The operator writes its own when all parts of it are
    /// rolled out; a controller of another version waits. Absent: no operator keeps this cluster, and the controller that leads
    /// may.
    pub const RELEASED_VERSION: &str = "machineconfig.dev/released-version";
    /// On the controller's Lease, when it was released: requests of its last holder may still be in flight.
    pub const REQUESTS_UNDER_WAY: &str = "machineconfiguration.openshift.io/requests-under-way";
    /// On a Lease: what its holder counts of its own work, for people who cannot reach its metrics (JSON).
    pub const PROCESS_COUNTS: &str = "machineconfig.dev/figures";
    /// On the Secret with the config server's certificate: the CA that has signed it.
    pub const SIGNER: &str = "machineconfiguration.openshift.io/signer";
    /// On a boot token's Secret in the previous version's namespace: the token was copied to the namespace of boot tokens.
    pub const BOOT_TOKEN_MOVED: &str = "machineconfiguration.openshift.io/boot-token-moved";
}

/// Values of [`annotation::STATE`]. Code decides by [`NodeState`](crate::node_state::NodeState).
pub mod state {
    /// An update is being applied.
    pub const WORKING: &str = "Working";
    /// The node is in the config that its current annotation names.
    pub const DONE: &str = "Done";
    /// The last sync failed; it is retried.
    pub const DEGRADED: &str = "Degraded";
    /// The desired config needs something that cannot be done on a running machine.
    pub const UNRECONCILABLE: &str = "Unreconcilable";
}

/// The names of the parts: of their workloads, accounts and Leases, and the value of [`label::PART`] on their pods.
pub mod part {
    /// The operator.
    pub const OPERATOR: &str = "machine-config-operator";
    /// The controller.
    pub const CONTROLLER: &str = "machine-config-controller";
    /// The config server.
    pub const SERVER: &str = "machine-config-server";
    /// The node agents.
    pub const AGENT: &str = "machine-config-daemon";
    /// The dashboard.
    pub const DASHBOARD: &str = "machine-config-dashboard";
}

/// Labels.
pub mod label {
    /// Names the part that a pod of ours is of: `machine-config-operator`, `-controller`, `-server`, `-daemon` or `-dashboard`.
    pub const PART: &str = "k8s-app";
    /// On every object that the operator keeps; its value is `machine-config-operator`. Only such objects are ever pruned.
    pub const KEPT_BY: &str = "machineconfig.dev/kept-by";
    /// On images in containerd, which are no objects of the cluster: this agent has pinned them.
    pub const PINNED: &str = "machineconfig.dev/pinned";
    /// On the Jobs of a RolloutPolicy's gate: all of one attempt have the same value.
    pub const GATE: &str = "machineconfig.dev/gate";
    /// On MachineConfigs: the role that they apply to; pools select by it.
    pub const ROLE: &str = "machineconfiguration.openshift.io/role";
    /// On the built-in pools.
    pub const BUILT_IN: &str = "machineconfiguration.openshift.io/mco-built-in";
    /// Prefix of the label that names a built-in pool on itself.
    pub const POOL_PREFIX: &str = "pools.operator.machineconfiguration.openshift.io/";
    /// On pools that an upgrade of the cluster waits for.
    pub const REQUIRED_FOR_UPGRADE: &str = "operator.machineconfiguration.openshift.io/required-for-upgrade";
    /// Prefix of a node's role labels.
    pub const NODE_ROLE_PREFIX: &str = "node-role.kubernetes.io/";
    /// The control plane's role on OpenShift, on k3s and on older clusters of kubeadm.
    pub const MASTER_ROLE: &str = "node-role.kubernetes.io/master";
    /// The control plane's role of kubeadm and k3s.
    pub const CONTROL_PLANE_ROLE: &str = "node-role.kubernetes.io/control-plane";
    /// A member of etcd: k3s and RKE2 set it in addition to the other two, or alone.
    pub const ETCD_ROLE: &str = "node-role.kubernetes.io/etcd";
    /// A worker's role on OpenShift; elsewhere people may set it, with any value.
    pub const WORKER_ROLE: &str = "node-role.kubernetes.io/worker";
    /// On the Secret of a boot token; also its type.
    pub const BOOT_TOKEN: &str = "machineconfiguration.openshift.io/boot-token";
    /// On every object of an image build; Jobs are watched by it.
    pub const LAYERING: &str = "machineconfiguration.openshift.io/on-cluster-layering";
    /// On objects of an image build that go when the build has ended.
    pub const EPHEMERAL_BUILD_OBJECT: &str = "machineconfiguration.openshift.io/ephemeral-build-object";
    /// On objects of an image build: the pool that the image is for.
    pub const BUILD_POOL: &str = "machineconfiguration.openshift.io/target-machine-config-pool";
    /// On objects of an image build: the MachineOSConfig that asked for it.
    pub const OS_CONFIG: &str = "machineconfiguration.openshift.io/machine-os-config";
    /// On objects of an image build: the MachineOSBuild.
    pub const OS_BUILD: &str = "machineconfiguration.openshift.io/machine-os-build";
    /// On a MachineOSBuild: the rendered MachineConfig that it builds an image for.
    pub const BUILD_OF: &str = "machineconfiguration.openshift.io/rendered-machine-config";
    /// A node's operating system; `windows` nodes are not managed.
    pub const OS: &str = "kubernetes.io/os";
    /// A node's zone: rollouts go zone by zone.
    pub const ZONE: &str = "topology.kubernetes.io/zone";
}

/// Condition types of a MachineConfigPool.
pub mod pool_condition {
    /// All machines are in the pool's config.
    pub const UPDATED: &str = "Updated";
    /// Machines are being updated to the pool's config.
    pub const UPDATING: &str = "Updating";
    /// Something is wrong; see the more specific conditions.
    pub const DEGRADED: &str = "Degraded";
    /// At least one node reports Degraded or Unreconcilable.
    pub const NODE_DEGRADED: &str = "NodeDegraded";
    /// The pool's config could not be rendered.
    pub const RENDER_DEGRADED: &str = "RenderDegraded";
    /// Two custom pools select a node, or a selector cannot be read. Absent until it was true once.
    pub const MEMBERSHIP_CONFLICT: &str = "MembershipConflict";
    /// The pool is pinned to an older config by an annotation (`mco undo`). Absent until it was true once.
    pub const CONFIG_PINNED: &str = "ConfigPinned";
    /// The pool's config has not proved itself under its RolloutPolicy yet, or is rejected: machines that boot for the first
    /// time get the config that `status.configuration` names, the last one that all nodes of the pool had. If there is none, they
    /// get the new one. Absent until it was true once.
    pub const CONFIG_UNPROVED: &str = "ConfigUnproved";
    /// The image build of the pool failed; the message has the last lines of its log.
    pub const IMAGE_BUILD_DEGRADED: &str = "ImageBuildDegraded";
    /// The PinnedImageSets of the pool cannot be determined. What fails on a node is on its MachineConfigNode. Absent until the pool
    /// has one.
    pub const PINNED_IMAGE_SETS_DEGRADED: &str = "PinnedImageSetsDegraded";
}

/// Condition types of a MachineConfigNode.
pub mod node_condition {
    /// The node is in its desired config.
    pub const UPDATED: &str = "Updated";
    /// The update was checked and can be done.
    pub const UPDATE_PREPARED: &str = "UpdatePrepared";
    /// Cordon, drain, files and OS.
    pub const UPDATE_EXECUTED: &str = "UpdateExecuted";
    /// Reload, restart or reboot.
    pub const UPDATE_POST_ACTION_COMPLETE: &str = "UpdatePostActionComplete";
    /// The update is complete and the node is uncordoned.
    pub const UPDATE_COMPLETE: &str = "UpdateComplete";
    /// The daemon is back in normal operation.
    pub const RESUMED: &str = "Resumed";
    /// Pods were evicted.
    pub const DRAINED: &str = "Drained";
    /// Files, units and the OS were changed.
    pub const APPLIED_FILES_AND_OS: &str = "AppliedFilesAndOS";
    /// The image of the OS was pulled. Only nodes whose OS is an image have it.
    pub const IMAGE_PULLED: &str = "ImagePulledFromRegistry";
    /// The node is cordoned: it accepts no new pods.
    pub const CORDONED: &str = "Cordoned";
    /// The node is uncordoned: it accepts pods again.
    pub const UNCORDONED: &str = "Uncordoned";
    /// The node rebooted.
    pub const REBOOTED_NODE: &str = "RebootedNode";
    /// The last sync failed.
    pub const NODE_DEGRADED: &str = "NodeDegraded";
    /// Images of PinnedImageSets are being pulled, or cannot be.
    pub const PINNED_PROGRESSING: &str = "PinnedImageSetsProgressing";
    /// Images of PinnedImageSets cannot be pulled or pinned; `status.pinnedImageSets` says why.
    pub const PINNED_DEGRADED: &str = "PinnedImageSetsDegraded";
}
