//! Whether an installation says that it must not be upgraded now (its condition `Upgradeable` is False). Then nothing is written,
//! unless the administrator insists. Pure.
//!
//! What it is not: the reasons, which the operator computes (see `sync::status`).

use crate::settings;
use api::conditions::{StatusCondition as _, get};
use api::v1alpha1::MachineConfigOperator;

/// The condition of the settings object: an upgrade may begin.
pub(crate) const UPGRADEABLE: &str = "Upgradeable";

/// The installation is not to be upgraded now.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "{} says that this installation must not be upgraded now ({reason}): {message}. Nothing was written. Do what it says and \
     run this again, or pass --allow-not-upgradeable to upgrade anyway",
    settings::name()
)]
pub struct NotUpgradeable {
    reason: String,
    message: String,
}

/// Judges. `settings`: those that are there; `image`: the one to be installed. The same image again is no upgrade, and nor is
/// another one for an installation that was never complete: that corrects it.
#[must_use]
pub(crate) fn why_not_upgradeable(
    settings: Option<&MachineConfigOperator>,
    image: &str,
) -> Option<NotUpgradeable> {
    let settings = settings.filter(|s| s.spec.image != image)?;
    let status = settings.status.as_ref().filter(|s| !s.versions.is_empty())?;
    let says = get(&status.conditions, UPGRADEABLE).filter(|c| c.is_false())?;
    Some(NotUpgradeable {
        reason: says.reason.clone(),
        message: says.message.trim_end_matches('.').to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_upgrade_is_refused_while_the_installation_says_so() {
        let settings = |upgradeable: &str, versions: &str| -> MachineConfigOperator {
            api::formats::yaml::from_str(&format!(
                "{{spec: {{image: 'mco:1'}}, status: {{versions: {versions}, conditions: [{{type: Upgradeable, status: '{upgradeable}', \
                 reason: DegradedPool, message: 'pool worker is degraded.', lastTransitionTime: '2026-01-01T00:00:00Z'}}]}}}}"
            ))
            .unwrap()
        };
        let complete = "[{name: operator, version: v1.0.0}]";
        for (upgradeable, versions, image, refused) in [
            ("False", complete, "mco:2", true),
            ("True", complete, "mco:2", false),
            ("False", complete, "mco:1", false),
            ("False", "[]", "mco:2", false),
        ] {
            let found = why_not_upgradeable(Some(&settings(upgradeable, versions)), image);
            assert_eq!(found.is_some(), refused, "{upgradeable} {versions} {image}");
        }
        assert_eq!(why_not_upgradeable(None, "mco:2"), None, "a first installation");
        let words = why_not_upgradeable(Some(&settings("False", complete)), "mco:2").unwrap().to_string();
        assert!(
            words.contains("(DegradedPool): pool worker is degraded. Nothing was written")
                && words.contains("--allow-not-upgradeable"),
            "{words}"
        );
    }
}
