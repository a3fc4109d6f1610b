//! The reasons of a pool's condition `RenderDegraded`: one table, which the controller writes from and the reference page
//! is made of.
//!
//! What it is not: the condition's message, which names objects, paths and remedies.

use std::fmt;

macro_rules! reasons {
    ($($(#[doc = $doc:literal])+ $reason:ident;)+) => {
        /// Why a pool is not rendered.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum RenderReason {
            $($(#[doc = $doc])+ $reason,)+
        }

        impl RenderReason {
            /// Every reason, in the table's order.
            pub const ALL: &[Self] = &[$(Self::$reason),+];

            /// The reason as it is in the condition.
            pub fn text(self) -> &'static str {
                match self {
                    $(Self::$reason => stringify!($reason),)+
                }
            }

            /// The reason of a condition; `None`: there is no such reason.
            pub fn named(reason: &str) -> Option<Self> {
                Self::ALL.iter().copied().find(|known| known.text() == reason)
            }

            /// What it means, for the reference.
            pub fn meaning(self) -> &'static str {
                match self {
                    $(Self::$reason => concat!($($doc),+).trim_ascii(),)+
                }
            }
        }
    };
}

reasons! {
    /// The controller leads but cannot read a kind that its decisions depend on.
    NotStarted;
    /// There is no ControllerConfig.
    NoControllerConfig;
    /// Another version of the controller made an input, or keeps writing the ControllerConfig.
    VersionSkew;
    /// The templates cannot be rendered.
    TemplatesFailing;
    /// A KubeletConfig, ContainerRuntimeConfig or registry setting of the pool is refused.
    SettingsRefused;
    /// The pool's selector cannot be evaluated.
    Selector;
    /// The pool's selector picks no MachineConfig.
    NoConfigs;
    /// A MachineConfig breaks a rule, or the API server refuses the result.
    Refused;
    /// Machines in the pool's present config cannot get to the result without being installed again.
    Irreconcilable;
    /// The result is too large for one object.
    TooLarge;
    /// The pool is pinned to a config that is not one of its rendered configs.
    PinnedConfigMissing;
    /// The pool is pinned to a config whose spec somebody has changed.
    PinnedConfigEdited;
}

impl fmt::Display for RenderReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.text())
    }
}

impl From<RenderReason> for String {
    fn from(reason: RenderReason) -> Self {
        reason.text().to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reason_is_read_as_it_is_written() {
        for reason in RenderReason::ALL {
            assert_eq!(RenderReason::named(reason.text()), Some(*reason));
        }
        assert_eq!(RenderReason::named("NotStarted"), Some(RenderReason::NotStarted));
        for other in ["", "notStarted", "RenderDegraded"] {
            assert_eq!(RenderReason::named(other), None, "{other:?}");
        }
    }
}
