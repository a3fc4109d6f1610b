//! Staging on a host of OSTree: which commands make a deployment the one that boots next, in which order.
//!
//! Not here: how an image is fetched and staged (see `images`), nor whose a staged deployment is (see `staged`).

use super::found::OstreeDeployment;
use super::images::has_image;
use super::{Images, OSTREE, OstreeHost, STAGE};
use crate::system::os::arguments::argument_changes;
use crate::system::os::{Deployment, OsBackend, OsError, staged, without};

impl OstreeHost {
    /// Stages a commit that is on the host with these words for the arguments.
    fn stage_arguments(&mut self, one: &OstreeDeployment, words: &[String]) -> Result<(), OsError> {
        let (os, origin) = (format!("--os={}", one.stateroot), format!("--origin-file={}", one.origin()));
        let mut args = vec!["admin", "deploy", "--stage", &os, &origin];
        args.extend(words.iter().map(String::as_str));
        args.push(&one.checksum);
        self.run(OSTREE, &args, STAGE).map(drop)
    }

    /// Stages a deployment. If it is staged already, or what boots next is like it, nothing is done.
    pub(super) fn stage_deployment(&mut self, target: &Deployment) -> Result<(), OsError> {
        let all = self.deployments_without_foreign()?;
        if let Some(pending) = &all.pending
            && staged::is_complete(&self.root, &pending.id(), target)?
        {
            return Ok(());
        }
        let status = self.status()?;
        let has = &status.next().kernel_arguments;
        let now = self.reference(all.next())?;
        let (gone, added) = argument_changes(has, &target.kernel_arguments);
        let mut arguments = target.kernel_arguments.clone();
        if let Some(to) = self.other_image(target, now.as_ref())? {
            staged::begin(&self.root, &arguments)?;
            self.stage_image(all.next(), &to, &arguments)?;
            let after = self.ask()?;
            let one = after.next().clone();
            if self.images == Images::Bootc {
                // What the old image brought goes, what the new one brings comes, before what configs ask for.
                let old = self.of_image(&all.booted)?;
                let new = self.of_image(&one)?;
                let host = without(&without(&arguments, &added), &without(&old, &new));
                arguments = [host, without(&new, &old), added.clone()].concat();
                if !gone.is_empty() || !added.is_empty() {
                    staged::begin(&self.root, &arguments)?;
                    let all_words = arguments.iter().map(|a| format!("--karg-append={a}"));
                    let words: Vec<String> =
                        ["--karg-none".to_owned()].into_iter().chain(all_words).collect();
                    self.stage_arguments(&one, &words)?;
                }
            }
        } else {
            let gone = gone.iter().map(|a| format!("--karg-delete={a}"));
            let words: Vec<String> = gone.chain(added.iter().map(|a| format!("--karg-append={a}"))).collect();
            if words.is_empty() && all.pending.is_none() {
                return Ok(());
            }
            staged::begin(&self.root, &arguments)?;
            self.stage_arguments(all.next(), &words)?;
        }
        let Some(one) = self.ask()?.pending else {
            return Err(OsError::new(
                "the commands succeeded, but nothing is staged; see ostree admin status",
            ));
        };
        let got = self.reference(&one)?;
        if has_image(got.as_ref(), target) {
            return staged::record_complete(&self.root, &one.id(), &arguments, target);
        }
        staged::record(&self.root, &one.id(), &arguments)?;
        let got = got.map(|reference| reference.image).unwrap_or_default();
        Err(OsError::new(format!("{got:?} was staged instead of {:?}", target.image)))
    }
}
