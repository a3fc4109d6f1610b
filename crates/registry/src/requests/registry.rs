//! What requests to registries share: the settings, the connections, and the logins.
//!
//! What it is not: what is asked with it (see `request`, and beside this folder `inspect`, `files`, `streams` and `deletion`).

use crate::requests::transport::{Settings, Transport};
use http::header::HeaderValue;
use std::collections::{HashMap, HashSet};
use std::sync::Mutex;

/// Looks into images. It holds connections and tokens, so one of them is made for several images, and dropped after that.
pub struct Registry {
    pub(crate) settings: Settings,
    pub(crate) transport: Transport,
    /// What each place wants in `Authorization`.
    pub(crate) logins: Mutex<HashMap<String, HeaderValue>>,
    /// Insecure registries that do not speak TLS.
    pub(crate) plain: Mutex<HashSet<String>>,
}

impl std::fmt::Debug for Registry {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Registry").field("settings", &self.settings).finish_non_exhaustive()
    }
}

impl Registry {
    /// With these settings. Nothing is asked yet.
    #[must_use]
    pub fn new(settings: Settings) -> Self {
        Self { settings, transport: Transport::default(), logins: Mutex::default(), plain: Mutex::default() }
    }
}
