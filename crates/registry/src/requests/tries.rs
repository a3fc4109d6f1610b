//! The places of an image, asked one after the other: each several times where that may help.
//!
//! What it is not: which places there are (see `routes`), or a request to one (see `request`).

use crate::reference::Reference;
use crate::requests::error::{RegistryError, RequestFailure};
use crate::requests::registry::Registry;
use crate::requests::routes::Endpoint;
use crate::requests::transport::Limits;
use std::collections::VecDeque;

impl Registry {
    /// The places of an image, to be asked one after the other.
    pub(crate) fn tries(&self, image: &Reference) -> Result<Tries, RegistryError> {
        let blocked = |scope| RegistryError::Blocked { image: image.to_string(), scope };
        Ok(self.tries_at(image, self.settings.routes.places(image).map_err(blocked)?.into()))
    }

    /// The one place that an image is pushed to.
    pub(crate) fn tries_at_source(&self, image: &Reference) -> Result<Tries, RegistryError> {
        let blocked = |scope| RegistryError::Blocked { image: image.to_string(), scope };
        Ok(self.tries_at(image, [self.settings.routes.source(image).map_err(blocked)?].into()))
    }

    fn tries_at(&self, image: &Reference, places: VecDeque<Endpoint>) -> Tries {
        let limits = self.settings.limits.clone();
        Tries { image: image.to_string(), places, attempt: 0, tried: vec![], limits }
    }
}

/// The places of an image: each is asked several times where that may help, then the next one.
pub(crate) struct Tries {
    image: String,
    places: VecDeque<Endpoint>,
    attempt: u32,
    tried: Vec<(String, RequestFailure)>,
    limits: Limits,
}

impl Tries {
    /// The place to ask now; else why there is none.
    pub(crate) fn place(&mut self) -> Result<Endpoint, RegistryError> {
        let tried = &mut self.tried;
        let none = || RegistryError::Failed { image: self.image.clone(), tried: std::mem::take(tried) };
        self.places.front().cloned().ok_or_else(none)
    }

    /// It has failed so. Returns when the next place may be asked.
    pub(crate) async fn after(&mut self, why: RequestFailure) {
        if why.should_retry() && self.attempt + 1 < self.limits.attempts {
            let asked = if let RequestFailure::Status { again, .. } = &why { *again } else { None };
            let pause = self.limits.pause.delay(self.attempt);
            tokio::time::sleep(asked.map_or(pause, |asked| asked.max(pause).min(self.limits.pause.last)))
                .await;
            self.attempt += 1;
            return;
        }
        if let Some(place) = self.places.pop_front() {
            self.tried.push((place.image.server().to_owned(), why));
        }
        self.attempt = 0;
    }
}
