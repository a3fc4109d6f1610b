//! The lab's browser ([`lab::Chromium`]) for tests: any error of it ends the test.
//!
//! Not here: how it is driven.

use serde_json::Value;
use std::path::Path;
use std::time::Duration;

/// A browser with one page.
#[derive(Debug)]
pub(crate) struct Chromium(::lab::Chromium);

impl Chromium {
    pub(crate) fn start() -> Self {
        Self(::lab::Chromium::start().unwrap_or_else(|error| panic!("{error}")))
    }

    pub(crate) fn as_a_stranger(&mut self) {
        self.0.as_a_stranger().unwrap_or_else(|error| panic!("{error}"));
    }

    pub(crate) fn ask(&mut self, method: &str, params: Value) -> Value {
        self.0.ask(method, params).unwrap_or_else(|error| panic!("{error}"))
    }

    pub(crate) fn open(&mut self, address: &str) {
        self.0.open(address).unwrap_or_else(|error| panic!("{error}"));
    }

    pub(crate) fn value(&mut self, expression: &str) -> Value {
        self.0.value(expression).unwrap_or_else(|error| panic!("{error}"))
    }

    pub(crate) fn picture(&mut self, file: &Path) {
        self.0.picture(file).unwrap_or_else(|error| panic!("{error}"));
    }

    pub(crate) async fn wait(&mut self, expression: &str) -> Duration {
        self.0.wait(expression).await.unwrap_or_else(|error| panic!("{error}"))
    }

    pub(crate) fn complaints(&mut self, origin: &str) -> Vec<String> {
        self.0.complaints(origin).unwrap_or_else(|error| panic!("{error}"))
    }

    pub(crate) fn requests(&self) -> usize {
        self.0.requests()
    }
}
