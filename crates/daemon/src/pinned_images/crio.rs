//! CRI-O's list of pinned images: a file of its configuration, which it is told to read again.
//!
//! Not here: what is on the list (see `plan`).
//!
//! Sources: crio.conf(5), crio.conf.d(5).

use super::images::{FILE, Images, RoundError};

/// CRI-O's list of pinned images. The name is that of OpenShift.
pub(super) const DROP_IN: &str = "/etc/crio/crio.conf.d/50-pinned-images";
impl Images {
    /// Has CRI-O read its list.
    pub(super) async fn reload_crio(&self) -> Result<(), String> {
        let reload = self.reload.clone();
        tokio::task::spawn_blocking(move || reload()).await.map_err(|e| e.to_string()).and_then(|r| r)
    }

    /// Writes CRI-O's list of pinned images if it differs, and has CRI-O read it.
    pub(super) async fn tell_crio(&self, wanted: Option<String>) -> Result<(), RoundError> {
        let old = self.root.text(DROP_IN)?;
        if old.as_deref().map(str::trim) == wanted.as_deref().map(str::trim) {
            return Ok(());
        }
        match &wanted {
            Some(text) => {
                self.root.make_parents(DROP_IN)?;
                self.root.write_bytes(DROP_IN, text.as_bytes(), FILE)?;
            }
            None => self.root.remove(DROP_IN)?,
        }
        if let Err(why) = self.reload_crio().await {
            // Otherwise the next round would take it for told.
            match old {
                Some(text) => self.root.write_bytes(DROP_IN, text.as_bytes(), FILE)?,
                None => self.root.remove(DROP_IN)?,
            }
            return Err(RoundError::Reload(why));
        }
        Ok(())
    }
}
