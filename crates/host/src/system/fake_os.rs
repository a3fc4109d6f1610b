//! [`FakeOs`]: an operating system in memory that behaves as real ones do. A staged deployment is not booted yet. A
//! boot makes it the booted one and keeps the previous one. A boot can also fail and come up in the old one. What somebody else
//! staged is neither replaced nor dropped.
//!
//! For tests and simulated nodes. Nothing is stored on disk.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use desired::OsField;

use crate::system::os::origin::OsOrigin;
use crate::system::os::{Deployment, OsBackend, OsError, OsStatus, Token};
use crate::system::pull::Pull;

#[derive(Clone, Debug, Default)]
struct State {
    status: OsStatus,
    /// The images that were fetched.
    fetched: BTreeSet<String>,
    /// The one that was fetched last.
    fetched_last: String,
    fetches: usize,
    /// The next boot fails to come up in the staged deployment.
    falls_back: bool,
    /// The fields that it cannot change.
    refused: BTreeSet<OsField>,
    /// Each deployment has a folder with an `/etc` of its own.
    has_folders: bool,
    /// The registry answers nothing: what is fetched never arrives.
    hangs: bool,
    /// Whether packages can be brought into the running system, and why that fails.
    can_live: bool,
    refuses_live: String,
    /// What is staged was staged by somebody else: it is neither replaced nor dropped.
    is_foreign: bool,
    /// What the running system is, if it is more than the deployment that was booted.
    live: Option<Deployment>,
    /// What was ever brought into the running system, each with the deployment that ran then.
    was_live: Vec<(Deployment, Deployment)>,
    /// What is staged was staged again by an undo: the same packages as another commit, which the running system does not have.
    again: bool,
    /// What an undo could not bring back. Empty: nothing.
    not_back: String,
    /// The extensions image, now and when an undo last staged something again.
    extensions_image: String,
    undone_with: String,
}

impl State {
    /// As people and plans see it: what is in the running system counts as booted.
    fn seen(&self) -> OsStatus {
        let mut seen = self.status.clone();
        // As rpm-ostree tells it: what runs is of another commit than what is staged.
        if let Some(live) = self.live.as_ref().filter(|_| !self.again) {
            seen.booted.clone_from(live);
            seen.staged = seen.staged.filter(|staged| staged != live);
        }
        seen
    }

    /// Refuses to go on if somebody else staged what is staged.
    fn refuse_foreign(&self) -> Result<(), OsError> {
        match &self.status.staged {
            Some(staged) if self.is_foreign => Err(OsError::new(format!(
                "a deployment of {:?} is staged, and not by a MachineConfig; reboot into it, or drop it",
                staged.image
            ))),
            _ => Ok(()),
        }
    }

    /// The deployment that ran when this one was brought into the running system.
    fn ran_with(&self, live: &Deployment) -> Option<&Deployment> {
        self.was_live.iter().rfind(|(was, _)| was == live).map(|(_, ran)| ran)
    }
}

/// How large every image is that is not on the host.
const IMAGE_SIZE: u64 = 1_234_567_890;
/// How often a fetch that hangs looks whether it was cancelled.
const LISTEN: Duration = Duration::from_millis(10);

/// The fake. Clones share its state, so it survives a restart of the daemon.
#[derive(Clone, Debug)]
pub struct FakeOs(Arc<Mutex<State>>);

impl Default for FakeOs {
    /// A fake that has booted an image with a kernel argument of its own.
    fn default() -> Self {
        let booted = Deployment {
            image: "fake:1".to_owned(),
            kernel_arguments: vec!["ro".to_owned()],
            kernel_type: "default".to_owned(),
            extensions: Vec::new(),
        };
        Self::new(OsStatus { booted, ..OsStatus::default() })
    }
}

impl FakeOs {
    /// A fake with this state.
    #[must_use]
    pub fn new(status: OsStatus) -> Self {
        let fetched = [&status.booted].into_iter().chain(&status.staged).map(|d| d.image.clone()).collect();
        Self(Arc::new(Mutex::new(State { status, fetched, ..State::default() })))
    }

    /// A machine of its own in the same state: what happens to one of them later does not happen to the other, unlike with a
    /// clone.
    #[must_use]
    pub fn fork(&self) -> Self {
        let state = self.state().clone();
        Self(Arc::new(Mutex::new(state)))
    }

    /// A fake that changes kernel arguments and nothing else, as the boot loader of an ordinary distribution does.
    #[must_use]
    pub fn with_kernel_arguments_only(status: OsStatus) -> Self {
        let fake = Self::new(status);
        fake.state().refused = OsField::ALL.into_iter().filter(|f| *f != OsField::KernelArguments).collect();
        fake
    }

    /// Sets whether what is fetched never arrives.
    pub fn hang(&self, hangs: bool) {
        self.state().hangs = hangs;
    }

    /// Lets it bring packages into the running system, as rpm-ostree does.
    pub fn allow_live(&self) {
        self.state().can_live = true;
    }

    /// Makes it refuse that with this reason, or do it again if that is empty.
    pub fn refuse_live(&self, why: &str) {
        why.clone_into(&mut self.state().refuses_live);
    }

    /// Makes the machine one where an undo could not stage again what was in the running system, for this reason.
    pub fn lose_live(&self, why: &str) {
        let mut state = self.state();
        (state.live, state.again) = (None, false);
        state.status.staged = None;
        why.clone_into(&mut state.not_back);
    }

    /// Stages a deployment as another program or a person does: real hosts let them replace what the agent staged.
    pub fn stage_by_hand(&self, deployment: &Deployment) {
        let mut state = self.state();
        state.status.staged = Some(deployment.clone());
        (state.is_foreign, state.again) = (true, false);
    }

    /// Drops what is staged, as a person does.
    pub fn drop_by_hand(&self) {
        let mut state = self.state();
        state.status.staged = None;
        (state.is_foreign, state.again) = (false, false);
    }

    /// The extensions image with which an undo last staged something again.
    #[must_use]
    pub fn undone_with(&self) -> String {
        self.state().undone_with.clone()
    }

    /// Gives each deployment a folder with an `/etc` of its own, as OSTree does. Who simulates the boot fills it.
    pub fn keep_folders(&self) {
        self.state().has_folders = true;
    }

    /// The folder of the deployment that is running.
    #[must_use]
    pub fn folder(&self) -> String {
        folder(&serde_json::to_string(&self.state().status.booted).unwrap_or_default())
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Simulates a boot into the staged deployment. If it should fall back, it boots the old one and drops the staged
    /// one.
    pub fn boot(&self) {
        let mut state = self.state();
        (state.live, state.again, state.is_foreign) = (None, false, false);
        let staged = state.status.staged.take();
        let falls_back = std::mem::take(&mut state.falls_back);
        if let Some(staged) = staged.filter(|_| !falls_back) {
            let before = std::mem::replace(&mut state.status.booted, staged);
            state.status.previous = Some(before);
        }
    }

    /// Lets the running system lack a kernel argument of its deployment, as if a person had removed it at the boot
    /// loader's prompt.
    pub fn lose_argument(&self, argument: &str) {
        self.state().status.booted.kernel_arguments.retain(|a| a != argument);
    }

    /// Makes the next boot come up in the deployment that is booted now.
    pub fn fall_back(&self) {
        self.state().falls_back = true;
    }

    /// The images that are on the host.
    #[must_use]
    pub fn images(&self) -> Vec<String> {
        self.state().fetched.iter().cloned().collect()
    }

    /// How often something was fetched that was not on the host yet.
    #[must_use]
    pub fn fetches(&self) -> usize {
        self.state().fetches
    }
}

/// The folder of the deployment of this token.
fn folder(token: &str) -> String {
    format!("/ostree/deploy/fake/deploy/{}.0", desired::sha256(token.as_bytes()))
}

impl OsBackend for FakeOs {
    fn name(&self) -> &'static str {
        "fake"
    }

    fn refuses(&self, field: OsField) -> Option<String> {
        let refused = self.state().refused.contains(&field);
        refused.then(|| format!("this fake cannot change it; remove {} from the MachineConfig", field.path()))
    }

    fn status(&mut self) -> Result<OsStatus, OsError> {
        Ok(self.state().seen())
    }

    fn origin(&mut self) -> Result<Option<OsOrigin>, OsError> {
        let reference = self.state().status.booted.image.clone();
        Ok(Some(OsOrigin::Image { reference, named: String::new() })
            .filter(|_| self.refuses(OsField::Image).is_none()))
    }

    fn image_size(&mut self, target: &Deployment) -> Result<Option<u64>, OsError> {
        Ok((!self.state().fetched.contains(&target.image)).then_some(IMAGE_SIZE))
    }

    fn fetch(&mut self, target: &Deployment, pull: &Pull) -> Result<(), OsError> {
        self.state().refuse_foreign()?;
        if self.state().hangs {
            pull.take_output(b"layers needed: 1 (5.0 MB)\n");
            while !pull.is_cancelled() {
                std::thread::sleep(LISTEN);
            }
            return Err(OsError::new("the pull was cancelled"));
        }
        let mut state = self.state();
        state.fetched_last.clone_from(&target.image);
        if state.fetched.insert(target.image.clone()) {
            state.fetches += 1;
        }
        Ok(())
    }

    fn mark(&mut self) -> Result<Token, OsError> {
        let next = serde_json::to_string(self.state().status.next());
        next.map(Token).map_err(|e| OsError::new(e.to_string()))
    }

    fn folder_of(&self, before: &Token) -> Result<Option<String>, OsError> {
        Ok(self.state().has_folders.then(|| folder(&before.0)))
    }

    fn stage(&mut self, target: &Deployment) -> Result<(), OsError> {
        let mut state = self.state();
        state.refuse_foreign()?;
        if !target.image.is_empty() && !state.fetched.contains(&target.image) {
            return Err(OsError::new(format!("{} is not on the host: fetch it first", target.image)));
        }
        state.status.staged = Some(target.clone()).filter(|t| *t != state.status.booted);
        state.again = false;
        Ok(())
    }

    fn use_extensions(&mut self, image: &str) {
        image.clone_into(&mut self.state().extensions_image);
    }

    fn can_apply_live(&self) -> bool {
        self.state().can_live
    }

    fn apply_live(&mut self) -> Result<(), OsError> {
        let mut state = self.state();
        let Some(staged) = state.status.staged.clone() else { return Err(OsError::new("nothing is staged")) };
        if !state.refuses_live.is_empty() {
            return Err(OsError::new(state.refuses_live.clone()));
        }
        let ran = state.status.booted.clone();
        state.was_live.push((staged.clone(), ran));
        (state.live, state.again) = (Some(staged), false);
        Ok(())
    }

    fn undo_live(&mut self, before: &Token) -> Result<(), OsError> {
        let before: Deployment = serde_json::from_str(&before.0).map_err(|e| OsError::new(e.to_string()))?;
        let mut state = self.state();
        state.live = state.live.take().and(Some(before)).filter(|before| *before != state.status.booted);
        Ok(())
    }

    fn tidy(&mut self) -> Result<Vec<String>, OsError> {
        let mut state = self.state();
        let OsStatus { booted, staged, previous, .. } = state.status.clone();
        let deployments = [Some(booted), staged, previous];
        let mut needed: BTreeSet<String> = deployments.into_iter().flatten().map(|d| d.image).collect();
        needed.insert(state.fetched_last.clone());
        let gone = state.fetched.difference(&needed).cloned().collect();
        state.fetched.retain(|image| needed.contains(image));
        Ok(gone)
    }

    fn undo(&mut self, before: &Token) -> Result<(), OsError> {
        let before: Deployment = serde_json::from_str(&before.0).map_err(|e| OsError::new(e.to_string()))?;
        let mut state = self.state();
        if *state.status.next() == before {
            return Ok(());
        }
        state.refuse_foreign()?;
        (state.status.staged, state.again) = (None, false);
        // What was brought into the running system was only staged: it is staged again later, in the deployment that ran then.
        let ran = state.ran_with(&before).cloned();
        if state.status.booted == before || ran.as_ref() == Some(&state.status.booted) {
            return Ok(());
        }
        let is_back = |d: &Deployment| *d == before || ran.as_ref() == Some(d);
        state.status.staged = state.status.previous.clone().filter(is_back);
        match state.status.staged {
            Some(_) => Ok(()),
            None => Err(OsError::new("the deployment of before the change is gone")),
        }
    }

    fn stage_again(&mut self, before: &Token) -> Result<(), OsError> {
        let before: Deployment = serde_json::from_str(&before.0).map_err(|e| OsError::new(e.to_string()))?;
        let mut state = self.state();
        if state.status.staged.is_none() && state.ran_with(&before) == Some(&state.status.booted) {
            (state.status.staged, state.again) = (Some(before), true);
            state.undone_with = state.extensions_image.clone();
        }
        Ok(())
    }

    fn bring_back_live(&mut self, before: &Token, allowed: bool) -> Result<bool, OsError> {
        let before: Deployment = serde_json::from_str(&before.0).map_err(|e| OsError::new(e.to_string()))?;
        let mut state = self.state();
        let only_staged = state.ran_with(&before) == Some(&state.status.booted)
            && state.status.staged.as_ref() == Some(&before)
            && (state.again || state.live.as_ref() != Some(&before));
        if only_staged && allowed && state.live.is_some() {
            (state.live, state.again) = (Some(before), false);
            return Ok(true);
        }
        Ok(!only_staged)
    }

    fn not_brought_back(&mut self) -> Result<Option<String>, OsError> {
        let why = self.state().not_back.clone();
        Ok(Some(why).filter(|why| !why.is_empty()))
    }

    fn runs(&mut self, before: &Token) -> Result<bool, OsError> {
        let before: Deployment = serde_json::from_str(&before.0).map_err(|e| OsError::new(e.to_string()))?;
        let state = self.state();
        let ran = state.ran_with(&before);
        // Nothing was booted since something was brought into the running system.
        Ok(state.status.booted == before || state.live.is_some() || ran == Some(&state.status.booted))
    }
}
