//! The reasons of the events that this system writes. Dashboards and alerts select by them.
//!
//! There is one table for each writer. Whatever writes an event takes its reason from here, so the reference page that
//! `cargo xtask gen` makes of these tables is complete.
//!
//! What it is not: the message of an event, which says what happened this time, or the writing of events.

use serde::{Deserialize, Serialize};
use std::fmt;

/// How serious an event is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Severity {
    /// As it should be.
    Normal,
    /// Somebody should look.
    Warning,
}

impl Severity {
    /// The API's word, an event's `type`.
    pub fn text(self) -> &'static str {
        match self {
            Self::Normal => "Normal",
            Self::Warning => "Warning",
        }
    }
}

/// A row of a table, for the reference.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The event's `reason`.
    pub reason: &'static str,
    /// Its `type`.
    pub severity: Severity,
    /// The kind of the object that it is about.
    pub about: &'static str,
    /// What happened, and what to do.
    pub meaning: &'static str,
}

macro_rules! reasons {
    ($(#[$meta:meta])* $name:ident { $($(#[doc = $doc:literal])+ $reason:ident: $severity:ident, $about:literal;)+ }) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        pub enum $name {
            $($(#[doc = $doc])+ $reason,)+
        }

        impl $name {
            /// Every reason, in the table's order.
            pub const ALL: &[Self] = &[$(Self::$reason),+];

            /// The reason as it is in the event.
            pub fn text(self) -> &'static str {
                match self {
                    $(Self::$reason => stringify!($reason),)+
                }
            }

            /// The reason of an event; `None`: this writer has no such reason.
            pub fn named(reason: &str) -> Option<Self> {
                Self::ALL.iter().copied().find(|known| known.text() == reason)
            }

            /// How serious it is.
            pub fn severity(self) -> Severity {
                match self {
                    $(Self::$reason => Severity::$severity,)+
                }
            }

            /// The row of the reference.
            pub fn entry(self) -> Entry {
                let (about, meaning) = match self {
                    $(Self::$reason => ($about, concat!($($doc),+).trim_ascii()),)+
                };
                Entry { reason: self.text(), severity: self.severity(), about, meaning }
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(self.text())
            }
        }
    };
}

reasons! {
    /// Events that the controller writes.
    ControllerEvent {
        /// A new rendered MachineConfig was created for the pool.
        RenderedConfigGenerated: Normal, "MachineConfigPool";
        /// A MachineConfig of the pool sets another OS image than the cluster's.
        OSImageURLOverridden: Normal, "MachineConfig";
        /// A selector of the pool is `{}`, which would select everything, so it selects nothing. Give it labels.
        SelectingAll: Warning, "MachineConfigPool";
        /// Somebody edited or deleted a MachineConfig that the controller generates, and it was restored. The message
        /// says where to make the change instead.
        PutBack: Warning, "MachineConfig";
        /// ControllerConfig named another controller version; this controller has written its own.
        VersionTakenOver: Normal, "ControllerConfig";
        /// Nodes were given a new config.
        SetDesiredConfig: Normal, "MachineConfigPool";
        /// Nodes were given a new config and OS image.
        SetDesiredConfigAndOSImage: Normal, "MachineConfigPool";
        /// The control-plane node that runs the operator goes last.
        DeferringOperatorNodeUpdate: Normal, "MachineConfigPool";
        /// The pool's nodes are being updated to a config, or the reason why they wait has changed.
        Updating: Normal, "MachineConfigPool";
        /// All nodes of the pool are in its config.
        Completed: Normal, "MachineConfigPool";
        /// The pool has become degraded; its conditions say why.
        Degraded: Warning, "MachineConfigPool";
        /// Two custom pools select one node, or a pool's selector cannot be read. Correct the labels or the selector.
        MembershipConflict: Warning, "MachineConfigPool";
        /// A node says that it first booted into a custom pool that does not expect it. Label the node, or name it in the
        /// pool's annotation `machineconfiguration.openshift.io/first-boot-nodes`.
        FirstBootNotExpected: Warning, "Node";
        /// A drain has been waiting for 10 seconds; the message names pods and budgets.
        DrainWaiting: Normal, "Node";
        /// A drain has been waiting for 10 minutes.
        DrainThresholdExceeded: Warning, "Node";
        /// A drain has been waiting for an hour. It continues.
        DrainFailed: Warning, "Node";
        /// The Job that builds the OS image of a pool was created.
        BuildStarted: Normal, "MachineOSBuild";
        /// The image is pushed, and its digest is known. The pool's nodes go to it.
        BuildCompleted: Normal, "MachineOSBuild";
        /// The build failed; the message has the last lines of its log and what to do.
        BuildFailed: Warning, "MachineOSBuild";
        /// The build was stopped: a newer one took its place, or somebody deleted its Job.
        BuildInterrupted: Warning, "MachineOSBuild";
        /// An image or layers that builds of the pool had pushed, and that nothing names any more, were deleted in the registry.
        OldImageDeleted: Normal, "MachineConfigPool";
        /// An old image, or layers of old builds, could not be deleted in the registry; the message says why, and whether it is
        /// tried again.
        OldImageKept: Warning, "MachineConfigPool";
    }
}

reasons! {
    /// Events that the agent writes on its own Node. Those about a step of an update name its rendered config as the related object.
    AgentEvent {
        /// The node was cordoned for an update.
        Cordon: Normal, "Node";
        /// The agent has asked for a drain; the message says why the update needs one.
        Drain: Normal, "Node";
        /// The pods have left, and the update is applied now.
        Drained: Normal, "Node";
        /// The drain has not ended within an hour. The node is Degraded and continues to wait.
        FailedToDrain: Warning, "Node";
        /// The update is complete, and the node is uncordoned.
        Uncordon: Normal, "Node";
        /// The controller has not uncordoned the node in time.
        FailedToUncordon: Warning, "Node";
        /// The node has reached its config.
        NodeDone: Normal, "Node";
        /// The node is about to reboot, or did so while the API server could not be reached.
        Reboot: Normal, "Node";
        /// The update needed no reboot.
        SkipReboot: Normal, "Node";
        /// A running machine cannot apply this change. The node is Unreconcilable; revert that part of the change.
        FailedToReconcile: Warning, "Node";
        /// The host is not in the config that it should be in. The message names the paths.
        OnDiskStateValidationFailed: Warning, "Node";
        /// An update was refused because of drift in a path that the update does not write.
        PreflightConfigDriftCheckFailed: Warning, "Node";
        /// Somebody changed a managed file, unit or link; see the page on drift.
        ConfigDriftDetected: Warning, "Node";
        /// Drift was repaired, as the pool's drift rules say.
        ConfigDriftRepaired: Normal, "Node";
        /// A path was changed again after five repairs within ten minutes. Find out who changes it.
        ConfigDriftRepairGivenUp: Warning, "Node";
        /// The pool's annotation with drift rules cannot be read; the message names the line.
        DriftPolicyInvalid: Warning, "Node";
        /// The agent watches the host for drift.
        ConfigDriftMonitorStarted: Normal, "Node";
        /// The agent does not watch for drift while an update runs.
        ConfigDriftMonitorStopped: Normal, "Node";
        /// An update reloaded services.
        ServiceReload: Normal, "Node";
        /// An update restarted services.
        ServiceRestart: Normal, "Node";
        /// The agent got SIGTERM during a change. It finishes the change first.
        GotSigtermDuringUpdate: Warning, "Node";
        /// Somebody else rebooted the machine while a config waited for a window, and the agent applied that config.
        WaitingConfigTaken: Normal, "Node";
        /// Somebody else rebooted the machine while a config waited for a window, and that config could not be applied. The
        /// message says why. The config goes on waiting, unless the API server did not answer.
        WaitingConfigNotTaken: Warning, "Node";
        /// A certificate of the cluster could not be written on the host; the message has path and remedy.
        CertificatesNotWritten: Warning, "Node";
        /// A change that can cut the node off was not confirmed in time and was undone. The message says what failed.
        TrialFailed: Warning, "Node";
        /// The pool's annotation with the settings of trials cannot be read; the defaults apply.
        TrialRulesInvalid: Warning, "Node";
        /// The config can be applied, but the message names something to check.
        ConfigWarning: Warning, "Node";
    }
}

reasons! {
    /// Events that the operator writes.
    OperatorEvent {
        /// A step of the operator has failed; the message has the step, the object and the remedy.
        OperatorDegraded: Warning, "MachineConfigOperator";
        /// Everything of this version was rolled out.
        OperatorVersionChanged: Normal, "MachineConfigOperator";
        /// A pool has no user data, because no pointer config can be written for it.
        NoUserData: Warning, "Secret";
        /// The API server refuses the user data. Machines that are created with it get its previous contents.
        UserDataNotWritten: Warning, "Secret";
        /// The config server's CA cannot be put into this user data.
        UserDataWithoutCA: Warning, "Secret";
        /// No boot token can be put into this user data: machines that are created with it are refused.
        UserDataWithoutToken: Warning, "Secret";
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reason_is_one_word_and_has_a_meaning_of_whole_sentences() {
        let all = ControllerEvent::ALL.iter().map(|r| r.entry());
        let all = all.chain(AgentEvent::ALL.iter().map(|r| r.entry()));
        for e in all.chain(OperatorEvent::ALL.iter().map(|r| r.entry())) {
            assert!(e.reason.chars().all(|c| c.is_ascii_alphabetic()), "{e:?}");
            assert!(e.meaning.ends_with('.') && !e.meaning.contains("  "), "{e:?}");
        }
    }

    #[test]
    fn a_reason_is_written_as_it_is_named() {
        assert_eq!(serde_json::to_value(AgentEvent::NodeDone).unwrap(), "NodeDone");
        assert_eq!(AgentEvent::NodeDone.to_string(), "NodeDone");
        assert_eq!(AgentEvent::named("NodeDone"), Some(AgentEvent::NodeDone));
        assert_eq!(ControllerEvent::named("NodeDone"), None);
    }
}
