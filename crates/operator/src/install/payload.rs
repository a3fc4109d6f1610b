//! Whether an installation follows a release's payload that names another image than the one to be installed: the operator of
//! the one would hand over to that of the other, which stops at the newer definitions. Then nothing is written.
//! [`other_image`] is pure.
//!
//! What it is not: taking a payload (see `facts::release`).

use crate::facts::release;
use crate::settings;
use api::v1alpha1::{ImageFrom, MachineConfigOperator};
use client::CallError;
use kube::Client;

/// The image comes from the payload.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "{} follows the release's payload (spec.imageFrom is ReleasePayload), which names the image {theirs}, and this would install \
     {ours}. Nothing was written: the operator of {ours} would hand over to that of {theirs}, which does not work with the \
     definitions of a newer version. Apply the payload of the release that you want and pass the image that it names, or stop following the payload and run this again: kubectl patch machineconfigoperator cluster --type=merge \
     --patch='{{\"spec\":{{\"imageFrom\":\"Settings\",\"image\":\"{ours}\"}}}}'",
    settings::name()
)]
pub struct OtherImage {
    ours: String,
    theirs: String,
}

/// Finds out whether the release payload names another image than the one to be installed. `settings`: those that are there;
/// `image`: the one to be installed.
///
/// # Errors
/// The API server's answer; `Ok(Some(..))` says why not to begin.
pub(super) async fn find(
    client: &Client,
    settings: Option<&MachineConfigOperator>,
    image: &str,
) -> Result<Option<OtherImage>, CallError> {
    let Some(settings) = settings.filter(|s| s.spec.image_from == ImageFrom::ReleasePayload) else {
        return Ok(None);
    };
    Ok(other_image(settings, &release::read(client).await?, image))
}

/// Judges. A payload that names no image is the operator's to report.
fn other_image(
    settings: &MachineConfigOperator,
    found: &release::PayloadSources,
    image: &str,
) -> Option<OtherImage> {
    if settings.spec.image_from != ImageFrom::ReleasePayload {
        return None;
    }
    let theirs = release::operator_image(found).ok().filter(|theirs| theirs != image)?;
    Some(OtherImage { ours: image.to_owned(), theirs })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_image_than_the_payloads_is_refused_with_both_ways_out() {
        let settings = |from: &str| -> MachineConfigOperator {
            api::formats::yaml::from_str(&format!("spec: {{image: 'mco:0', imageFrom: {from}}}")).unwrap()
        };
        let found = release::PayloadSources {
            images: Some("{\"machineConfigOperator\": \"mco:1\"}".to_owned()),
            ..release::PayloadSources::default()
        };
        let why = other_image(&settings("ReleasePayload"), &found, "mco:2").unwrap().to_string();
        for words in [
            "names the image mco:1, and this would install mco:2. Nothing was written",
            "Apply the payload of the release that you want",
            "--patch='{\"spec\":{\"imageFrom\":\"Settings\",\"image\":\"mco:2\"}}'",
        ] {
            assert!(why.contains(words), "{words}: {why}");
        }
        assert_eq!(other_image(&settings("ReleasePayload"), &found, "mco:1"), None, "the payload's own");
        assert_eq!(
            other_image(&settings("ReleasePayload"), &release::PayloadSources::default(), "mco:2"),
            None
        );
        assert_eq!(other_image(&settings("Settings"), &found, "mco:2"), None);
    }
}
