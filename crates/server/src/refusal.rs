//! Why a request gets no config: one value for each cause, with its status and a JSON body that names the cause and the
//! remedy. Pure.
//!
//! The texts name pools, versions and JSON paths, never the content of a config.

use ignition::Version;
use serde_json::{Value, json};
use std::time::Duration;

/// When to ask again for a config that does not exist yet. Ignition tries again by itself; this is for other clients.
pub const RETRY_AFTER: Duration = Duration::from_secs(5);

/// The versions that are served, for messages. 3.0 can be asked for but not answered, as in the reference.
pub const SERVED: [Version; 7] =
    [Version::V2_2, Version::V3_1, Version::V3_2, Version::V3_3, Version::V3_4, Version::V3_5, Version::V3_6];

/// A part of a config that a version cannot express.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct UnsupportedPart {
    /// Its JSON path.
    pub path: String,
    /// Why not.
    pub message: String,
}

/// Why a request gets no config.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// Another method than GET and HEAD.
    #[error("only GET and HEAD are supported")]
    Method,
    /// A request with a body.
    #[error("a request for a config has no body; send it without one")]
    Body,
    /// An unknown path.
    #[error("there is nothing at this path; a pool's config is at /config/POOL")]
    NoSuchPath,
    /// A path that does not decode to UTF-8, or has characters that a pool's name cannot have.
    #[error(
        "the last part of the path is not the name of a MachineConfigPool (lower-case letters, digits, '-', '.')"
    )]
    PoolName,
    /// A pool that does not exist.
    #[error("there is no MachineConfigPool {pool:?}; the last part of the path must name one")]
    UnknownPool {
        /// Its name.
        pool: String,
    },
    /// A pool that the bootstrap server does not serve.
    #[error(
        "the bootstrap server serves the pools master and arbiter only; {pool:?} is served by the cluster later"
    )]
    NotAtBootstrap {
        /// Its name.
        pool: String,
    },
    /// A version that does not exist, or is not known here.
    #[error("Ignition version {asked} is not supported; ask for one of {}", served())]
    Version {
        /// The version as the client wrote it.
        asked: String,
    },
    /// The pool's config cannot be written in the version.
    #[error(
        "the config of pool {pool} cannot be expressed in Ignition {version}; see places, or ask for a newer version"
    )]
    Inexpressible {
        /// The pool.
        pool: String,
        /// The version that was asked for.
        version: Version,
        /// The parts that the version cannot express.
        places: Vec<UnsupportedPart>,
    },
    /// The pool exists but has no config to serve yet.
    #[error("pool {pool} has no config to serve yet: {why}; try again")]
    NotYet {
        /// The pool.
        pool: String,
        /// What is missing.
        why: String,
    },
    /// The server asks for a boot token and none was shown.
    #[error(
        "this server serves configs only to machines that send a boot token; the pointer config must send it \
        (`mco token create`, `mco pointer`)"
    )]
    NoToken,
    /// The boot token does not allow this config.
    #[error("{why}")]
    Token {
        /// One word for the cause.
        reason: &'static str,
        /// The cause.
        why: String,
        /// False: it is not a token of this cluster.
        known: bool,
    },
    /// A boot token is required, and the connection is not encrypted.
    #[error("this server serves configs only over HTTPS, because it requires boot tokens")]
    TokenNeedsTls,
    /// The use of a boot token could not be recorded.
    #[error("the boot token could not be checked: {why}; try again")]
    TokenUnchecked {
        /// Why not.
        why: String,
    },
    /// The server has not seen the cluster yet.
    #[error("the server has just started and has not read the cluster yet; try again")]
    Starting,
    /// The pool's stored config cannot be used. This is not the client's fault.
    #[error("the config of pool {pool} cannot be served: {why}")]
    Broken {
        /// The pool.
        pool: String,
        /// What is wrong with it.
        why: String,
    },
}

fn served() -> String {
    SERVED.map(Version::as_str).join(", ")
}

impl Refusal {
    /// The HTTP status.
    pub fn status(&self) -> http::StatusCode {
        use http::StatusCode as S;
        match self {
            Self::Method => S::METHOD_NOT_ALLOWED,
            Self::Body => S::PAYLOAD_TOO_LARGE,
            Self::NoSuchPath | Self::UnknownPool { .. } | Self::NotAtBootstrap { .. } => S::NOT_FOUND,
            Self::PoolName | Self::Version { .. } => S::BAD_REQUEST,
            Self::Inexpressible { .. } => S::NOT_ACCEPTABLE,
            Self::NoToken | Self::Token { known: false, .. } => S::UNAUTHORIZED,
            Self::Token { known: true, .. } | Self::TokenNeedsTls => S::FORBIDDEN,
            Self::NotYet { .. } | Self::Starting | Self::TokenUnchecked { .. } => S::SERVICE_UNAVAILABLE,
            Self::Broken { .. } => S::INTERNAL_SERVER_ERROR,
        }
    }

    /// One word for the cause, for programs and metrics.
    pub fn reason(&self) -> &'static str {
        match self {
            Self::Method => "MethodNotAllowed",
            Self::Body => "RequestHasBody",
            Self::NoSuchPath => "NoSuchPath",
            Self::PoolName => "InvalidPoolName",
            Self::UnknownPool { .. } => "UnknownPool",
            Self::NotAtBootstrap { .. } => "NotServedAtBootstrap",
            Self::Version { .. } => "UnknownVersion",
            Self::Inexpressible { .. } => "NotExpressible",
            Self::NotYet { .. } => "NoConfigYet",
            Self::NoToken => "NoToken",
            Self::Token { reason, .. } => reason,
            Self::TokenNeedsTls => "TokenNeedsTls",
            Self::TokenUnchecked { .. } => "TokenUnchecked",
            Self::Starting => "Starting",
            Self::Broken { .. } => "InvalidConfig",
        }
    }

    /// Whether the boot token is the cause.
    pub fn is_about_token(&self) -> bool {
        matches!(self, Self::NoToken | Self::Token { .. } | Self::TokenNeedsTls | Self::TokenUnchecked { .. })
    }

    /// How long to wait before another try, if one can help.
    pub fn retry_after(&self) -> Option<Duration> {
        (self.status() == http::StatusCode::SERVICE_UNAVAILABLE).then_some(RETRY_AFTER)
    }

    /// The answer's body.
    pub fn body(&self) -> Value {
        let mut error = json!({
            "status": self.status().as_u16(),
            "reason": self.reason(),
            "message": self.to_string(),
        });
        match self {
            Self::Inexpressible { places, version, .. } => {
                error["version"] = json!(version.as_str());
                error["places"] = json!(places);
                error["served"] = json!(SERVED.map(Version::as_str));
            }
            Self::Version { .. } => error["served"] = json!(SERVED.map(Version::as_str)),
            _ => {}
        }
        json!({ "error": error })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_refusal_names_its_cause_and_only_those_that_pass_ask_for_another_try() {
        let pool = || "worker".to_owned();
        let rows = [
            (Refusal::Method, 405, false),
            (Refusal::Body, 413, false),
            (Refusal::NoSuchPath, 404, false),
            (Refusal::PoolName, 400, false),
            (Refusal::UnknownPool { pool: pool() }, 404, false),
            (Refusal::NotAtBootstrap { pool: pool() }, 404, false),
            (Refusal::Version { asked: "4.0.0".to_owned() }, 400, false),
            (Refusal::Inexpressible { pool: pool(), version: Version::V2_2, places: Vec::new() }, 406, false),
            (Refusal::NotYet { pool: pool(), why: "x".to_owned() }, 503, true),
            (Refusal::Starting, 503, true),
            (Refusal::NoToken, 401, false),
            (Refusal::Token { reason: "TokenUnknown", why: "x".to_owned(), known: false }, 401, false),
            (Refusal::Token { reason: "TokenUsed", why: "x".to_owned(), known: true }, 403, false),
            (Refusal::TokenNeedsTls, 403, false),
            (Refusal::TokenUnchecked { why: "x".to_owned() }, 503, true),
            (Refusal::Broken { pool: pool(), why: "x".to_owned() }, 500, false),
        ];
        for (refusal, status, again) in rows {
            let body = refusal.body();
            assert_eq!(refusal.status().as_u16(), status, "{refusal}");
            assert_eq!(body["error"]["status"], status);
            assert_eq!(body["error"]["message"], refusal.to_string());
            assert!(!refusal.reason().is_empty());
            assert_eq!(refusal.retry_after().is_some(), again, "{refusal}");
        }
    }
}
