//! The answers about rollouts: from the timeline, and from events for people who may list them.
//!
//! What it is not: the times themselves (see `timeline`).

use crate::access::cluster_access::Visitor;
use crate::answers::details;
use crate::fleet::node_events::NOT_YOURS;
use crate::fleet::timeline::EventHistory;
use crate::response;
use crate::response::Text;
use crate::shared::{AccessMode, Shared};
use api::formats::object_name::is_valid;
use axum::body::Bytes;
use axum::extract::{FromRequestParts, Path, State};
use axum::response::Response;
use http::StatusCode;
use http::request::Parts;
use jiff::Timestamp;
use std::convert::Infallible;
use std::sync::{Arc, PoisonError};

/// What events tell, as far as the person who asks may know it.
pub(crate) struct VisibleEvents(Arc<EventHistory>);

impl FromRequestParts<Shared> for VisibleEvents {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, shared: &Shared) -> Result<Self, Infallible> {
        let may = match (&shared.access_mode, parts.extensions.get::<Visitor>()) {
            (AccessMode::Local(_), _) => true,
            (AccessMode::Cluster(access), Some(visitor)) => access.may_list_events(&visitor.person).await,
            (AccessMode::Cluster(_), None) => false,
        };
        Ok(Self(if may { shared.events.history() } else { Arc::new(EventHistory::hidden(NOT_YOURS)) }))
    }
}

/// The last rollouts of all pools.
pub(crate) async fn all(State(shared): State<Shared>, VisibleEvents(told): VisibleEvents) -> Response {
    let fleet = shared.feed.fleet();
    let mut timeline = shared.timeline.lock().unwrap_or_else(PoisonError::into_inner);
    let text = timeline.json(Timestamp::now(), &fleet, &told);
    drop(timeline);
    response::of(StatusCode::OK, "application/json", Bytes::from_owner(Text(text)))
}

/// One rollout with all of its nodes.
pub(crate) async fn one(
    State(shared): State<Shared>,
    VisibleEvents(told): VisibleEvents,
    Path((pool, config)): Path<(String, String)>,
) -> Response {
    if !is_valid(&pool) || !is_valid(&config) {
        return details::no_name();
    }
    let fleet = shared.feed.fleet();
    let timeline = shared.timeline.lock().unwrap_or_else(PoisonError::into_inner);
    match timeline.rollout_json((&pool, &config), Timestamp::now(), &fleet, &told) {
        Some(text) => response::of(StatusCode::OK, "application/json", text),
        None => {
            response::failed(StatusCode::NOT_FOUND, "this rollout is not among the last ones of its pool")
        }
    }
}
