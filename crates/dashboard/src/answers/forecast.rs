//! What the controller does with a pool now and next, in the words of `mco plan`. It is worked out when somebody asks for it: the pods of
//! the whole cluster are read for it.
//!
//! What it is not: what a change would do (see `page_actions`).

use crate::answers::details::no_name;
use crate::answers::page_actions::{doubts, too_many};
use crate::response;
use crate::shared::ForPerson;
use api::formats::object_name::is_valid;
use api::k8s::Time;
use axum::extract::Path;
use axum::response::Response;
use http::StatusCode;
use insight::PresentSituation;
use serde_json::json;
use std::sync::Arc;

/// The plan of one pool.
pub(crate) async fn pool(ForPerson(shared): ForPerson, Path(name): Path<String>) -> Response {
    if !is_valid(&name) {
        return no_name();
    }
    // It takes as much memory as a look at a manifest.
    let Ok(place) = Arc::clone(&shared.checks).try_acquire_owned() else {
        return too_many();
    };
    let now = Time(jiff::Timestamp::now());
    let PresentSituation { situation, forbidden } = match insight::present_situation(&shared.client, &now)
        .await
    {
        Ok(now) => now,
        Err(error) => {
            let status = if error.is_forbidden() { StatusCode::FORBIDDEN } else { StatusCode::BAD_GATEWAY };
            return response::failed(status, &response::shown_error(&error));
        }
    };
    let work = move || {
        let _held = place;
        let mut forecast = situation.forecast(&now);
        forecast.pools.retain(|pool| *pool.pool == *name);
        if forecast.pools.is_empty() {
            return Err(format!("there is no pool {name}"));
        }
        (forecast.unmanaged, forecast.pool_alerts) = (vec![], vec![]);
        Ok(doubts(&forbidden, &[]) + &forecast.to_string())
    };
    match tokio::task::spawn_blocking(work).await {
        Ok(Ok(text)) => response::masked(json!({"text": text})),
        Ok(Err(why)) => response::failed(StatusCode::NOT_FOUND, &why),
        Err(error) => response::failed(StatusCode::INTERNAL_SERVER_ERROR, &error.to_string()),
    }
}
