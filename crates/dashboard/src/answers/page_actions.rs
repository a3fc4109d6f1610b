//! What a person does from the page: pause, resume, approve, undo, release, retry, by the functions that `mco` uses; and a look
//! at pasted manifests, which writes nothing.
//!
//! An action comes twice: first to say what it means, then, with `confirm`, to do it. It is done with the person's own rights.
//! What an undo, a release or an approval means depends on the cluster, which may change in between. So the first answer has
//! `seen`, what was shown; the second request brings it along, and nothing is done where it would not be the same again.
//!
//! What it is not: whether the request comes from the page (see `local_access`).

use crate::answers::details;
use crate::body;
use crate::response;
use crate::shared::{ForPerson, Shared};
use actions::messages::Show;
use actions::{
    ActionError, ApprovalSubject, Continue, Mode, PlannedUndo, PoolSubject, Preview, Undo, messages,
};
use api::k8s::Time;
use api::v1::MachineConfigPool;
use axum::body::Bytes;
use axum::extract::Request;
use axum::extract::rejection::BytesRejection;
use axum::response::Response;
use client::call;
use desired::mask::Secrets;
use http::StatusCode;
use insight::{ChangePlan, Manifests, Objects};
use kube::Client;
use kube::api::Api;
use serde::Deserialize;
use serde_json::{Value, json};
use std::sync::Arc;

/// What is made of the texts of others in what an action means.
const MASKED: Show = insight::redacted_lines;
/// For how many plans at the same time the objects of the whole cluster are read: for pasted texts, for forecasts, and for what
/// actions mean.
pub(crate) const CHECKS: usize = 2;

/// What is to be done.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(tag = "action", rename_all = "camelCase")]
enum Action {
    Pause { pool: String },
    Resume { pool: String },
    Approve { pool: String, config: Option<String> },
    Undo { pool: String, to: Option<String> },
    Release { pool: String },
    Retry { node: String },
}

impl Action {
    /// Everything that becomes a part of a request's address.
    fn names(&self) -> impl Iterator<Item = &str> {
        let (first, second) = match self {
            Self::Pause { pool } | Self::Resume { pool } | Self::Release { pool } => (pool, None),
            Self::Approve { pool, config: other } | Self::Undo { pool, to: other } => {
                (pool, other.as_deref())
            }
            Self::Retry { node } => (node, None),
        };
        [Some(first.as_str()), second].into_iter().flatten()
    }
}

#[derive(Debug, Deserialize)]
struct ActionRequest {
    #[serde(flatten)]
    action: Action,
    #[serde(default)]
    confirm: bool,
    /// What the first answer said; see [`ActionAnswer`].
    #[serde(default)]
    seen: Value,
}

/// What an action means, or meant.
#[derive(Debug, PartialEq, Eq)]
struct ActionAnswer {
    /// In words, as `mco` prints them.
    text: String,
    /// It can be done.
    possible: bool,
    done: bool,
    /// What it was decided by: a confirmation is for this alone. Null where the action always means the same.
    seen: Value,
}

/// Does an action, or says what it means.
pub(crate) async fn action(ForPerson(shared): ForPerson, body: Result<Bytes, BytesRejection>) -> Response {
    let body = match body {
        Ok(body) => body,
        Err(error) => return response::failed(error.status(), "an action is a short text"),
    };
    let wanted: ActionRequest = match serde_json::from_slice(&body) {
        Ok(wanted) => wanted,
        // The error quotes what was sent.
        Err(_) => {
            return response::failed(StatusCode::BAD_REQUEST, "the dashboard does not know this action");
        }
    };
    if !wanted.action.names().all(api::formats::object_name::is_valid) {
        return details::no_name();
    }
    // A pause reads little, and must never wait: it is how people stop what goes wrong.
    let place = match &wanted.action {
        Action::Pause { .. } => None,
        _ => match Arc::clone(&shared.checks).try_acquire_owned() {
            Ok(place) => Some(place),
            Err(_) => return too_many(),
        },
    };
    let how = if wanted.confirm { Mode::Write } else { Mode::Preview };
    // A task of its own: the place is held as long as the memory is, also when the browser has gone away meanwhile.
    let running = tokio::spawn(async move {
        let _held = place;
        run(&shared, wanted.action, how, wanted.seen).await
    });
    let answered = match running.await {
        Ok(answered) => answered,
        Err(failed) => Err(failed.into()),
    };
    match answered {
        Ok(ActionAnswer { text, possible, done, seen }) => {
            // Texts of others in it are masked already, and names stay: of the pool's config and wave, or nothing could be confirmed.
            response::plain(&json!({"text": text, "possible": possible, "done": done, "seen": seen}))
        }
        Err(ActionError::Refused(why)) => response::refused_with_names(StatusCode::CONFLICT, &why),
        Err(error) => {
            let status = match &error {
                ActionError::Rollback(_) => StatusCode::CONFLICT,
                error if error.is_forbidden() => StatusCode::FORBIDDEN,
                _ => StatusCode::BAD_GATEWAY,
            };
            response::failed(status, &response::shown_error(&error))
        }
    }
}

async fn run(shared: &Shared, action: Action, how: Mode, shown: Value) -> Result<ActionAnswer, ActionError> {
    let client = &shared.client;
    let said =
        |text: String| ActionAnswer { text, possible: true, done: how == Mode::Write, seen: Value::Null };
    // Only a question needs the answer: a confirmation has had it.
    let cost = async |what: Continue, words: fn(&Preview, Show) -> String| match how {
        Mode::Preview => cost(actions::preview(client, what).await, words),
        Mode::Write => String::new(),
    };
    let pause = async |pool: String, paused: bool| {
        // A resume is for the config and the pin that were shown: others cost something else.
        let subject: Option<PoolSubject> = match (paused, how) {
            (true, _) => None,
            (false, Mode::Preview) => Some(subject_of(client, &pool).await?),
            (false, Mode::Write) => Some(serde_json::from_value(shown.clone()).map_err(|_| changed(&pool))?),
        };
        let preview = if paused {
            String::new()
        } else {
            cost(Continue::Resume { pool: pool.clone() }, messages::of_pool).await
        };
        let done = actions::pause(client, &[pool], paused, subject.as_ref(), how).await?;
        Ok(ActionAnswer { seen: json!(subject), ..said(messages::paused(&done, how) + &preview) })
    };
    let undo = async |pool: String, to: Option<String>, release: bool| {
        let controller_config = &shared.controller_config;
        let what =
            Undo { pool: &pool, to: to.as_deref(), release, secrets: Secrets::Hide, controller_config };
        let Some(mut undoing) = actions::undo(client, what).await? else {
            let why = format!("pool {pool} is not pinned: it follows its MachineConfigs");
            return Err(ActionError::Refused(why));
        };
        let seen = json!(undoing.subject());
        if how == Mode::Write {
            if seen != shown {
                return Err(changed(&pool));
            }
            undoing.write(client).await?;
        }
        let possible = !undoing.plan.is_impossible();
        Ok(ActionAnswer { text: undo_text(&undoing), possible, done: undoing.plan.done, seen })
    };
    match action {
        Action::Pause { pool } => pause(pool, true).await,
        Action::Resume { pool } => pause(pool, false).await,
        Action::Approve { pool, config } => {
            let shown: Option<ApprovalSubject> = match how {
                Mode::Preview => None,
                Mode::Write => Some(serde_json::from_value(shown).map_err(|_| changed(&pool))?),
            };
            let done = actions::approve(client, &pool, config.as_deref(), shown.as_ref(), how).await?;
            let what = Continue::Approve(Box::new(done.clone()));
            let text = messages::approved(&done, how) + &cost(what, messages::of_pool).await;
            Ok(ActionAnswer { seen: json!(done.subject()), ..said(text) })
        }
        Action::Undo { pool, to } => undo(pool, to, false).await,
        Action::Release { pool } => undo(pool, None, true).await,
        Action::Retry { node } => {
            let preview = cost(Continue::Retry { node: node.clone() }, messages::of_node).await;
            let all = actions::retry(client, &[node], how).await?;
            Ok(said(
                all.iter().map(|asked| messages::retried(asked, how, MASKED)).collect::<String>() + &preview,
            ))
        }
    }
}

/// What of a pool decides what a resume means.
async fn subject_of(client: &Client, name: &str) -> Result<PoolSubject, ActionError> {
    let pools: Api<MachineConfigPool> = Api::all(client.clone());
    let pool = call(|| format!("get machineconfigpool {name}"), pools.get_opt(name)).await?;
    let there = pool.ok_or_else(|| ActionError::Refused(format!("there is no pool {name}")))?;
    Ok(PoolSubject::of(&there))
}

/// The preview as text. If it cannot be computed, the action is still possible.
fn cost(preview: Result<Preview, ActionError>, words: fn(&Preview, Show) -> String) -> String {
    match preview {
        Ok(preview) => doubts(&preview.forbidden, &[]) + &words(&preview, MASKED),
        Err(error) => {
            format!("the effect on the nodes is not known: {}\n", MASKED(&response::shown_error(&error)))
        }
    }
}

fn changed(pool: &str) -> ActionError {
    let why =
        format!("pool {pool} changed since this was shown, so nothing was done: close this, and look again");
    ActionError::Refused(why)
}

/// What an undo means, after what makes that doubtful.
fn undo_text(undoing: &PlannedUndo) -> String {
    let doubts = match undoing.plan.done {
        true => String::new(),
        false => doubts(&undoing.forbidden, &undoing.warnings),
    };
    doubts + &messages::undo(&undoing.plan, MASKED)
}

/// What makes a plan doubtful: kinds that may not be listed, and warnings. Each is a line.
pub(crate) fn doubts(forbidden: &[String], warnings: &[String]) -> String {
    let assumed = forbidden.iter().map(|kind| messages::not_allowed(kind) + "\n");
    assumed.chain(warnings.iter().map(|warning| format!("warning: {}\n", MASKED(warning)))).collect()
}

/// The answer while all places for plans are taken.
pub(crate) fn too_many() -> Response {
    response::failed(
        StatusCode::TOO_MANY_REQUESTS,
        &format!("{CHECKS} plans are being made already: try again in a few seconds"),
    )
}

/// Looks at pasted manifests: what lint finds, and what they would do to each pool. Nothing is written.
pub(crate) async fn check(ForPerson(shared): ForPerson, request: Request) -> Response {
    // Taken before the text is read, and held until the memory for it is free again.
    let Ok(place) = Arc::clone(&shared.checks).try_acquire_owned() else {
        return too_many();
    };
    let most = shared.largest_check();
    let body = match body::read(request.into_body(), most).await {
        Ok(body) => body,
        Err(status @ StatusCode::PAYLOAD_TOO_LARGE) => {
            let most = most >> 20;
            return response::failed(
                status,
                &format!("a text of more than {most} MiB is not accepted here; use `mco plan -f`"),
            );
        }
        Err(status) => {
            return response::failed(
                status,
                "the text did not arrive in time, or its end is missing; try again",
            );
        }
    };
    // Reading megabytes of YAML takes time that others' streams must not wait for.
    let reading = tokio::task::spawn_blocking(move || read(&body).map(|given| (given, place)));
    let (given, place) = match reading.await {
        Ok(Ok(given)) => given,
        Ok(Err(why)) => return response::failed(StatusCode::BAD_REQUEST, &why),
        Err(error) => return response::failed(StatusCode::INTERNAL_SERVER_ERROR, &error.to_string()),
    };
    let listed = insight::for_planning(&shared.client).await;
    let work = move || {
        let _held = place;
        let findings = render::lint(&given);
        let plan = match listed {
            Ok(listed) => plan(&given, &listed.objects, &shared.controller_config)
                .map(|text| doubts(&listed.forbidden, &[]) + &text),
            Err(error) => Err(response::shown_error(&error)),
        };
        let mut all = json!({"manifests": given.len(), "findings": findings, "plan": {}});
        if let Err(why) = &plan {
            all["plan"] = json!({"error": why});
        }
        response::mask(&mut all);
        // The texts of others in a plan are masked already.
        if let Ok(text) = plan {
            all["plan"] = json!({"text": text});
        }
        all
    };
    match tokio::task::spawn_blocking(work).await {
        Ok(value) => response::plain(&value),
        Err(error) => response::failed(StatusCode::INTERNAL_SERVER_ERROR, &error.to_string()),
    }
}

/// The objects of a pasted text.
fn read(body: &[u8]) -> Result<Objects, String> {
    let text = std::str::from_utf8(body).map_err(|_| "this is not text".to_owned())?;
    let documents =
        api::formats::yaml::documents(text).map_err(|error| format!("this is not YAML or JSON: {error}"))?;
    let all = documents.into_iter().flat_map(api::formats::yaml::objects);
    let all: Objects = all.map(|object| ("pasted".to_owned(), object)).collect();
    if all.iter().all(|(_, object)| !object.get("kind").is_some_and(Value::is_string)) {
        return Err("there is no manifest in this: nothing in it has a kind".to_owned());
    }
    Ok(all)
}

/// What manifests would do, in the words of `mco plan -f`.
fn plan(
    given: &Objects,
    objects: &Objects,
    controller_config: &api::v1::ControllerConfig,
) -> Result<String, String> {
    if let Some((_, value)) = given.iter().find(|(_, value)| insight::needs_templates(value)) {
        let kind = value["kind"].as_str().unwrap_or_default();
        return Err(format!(
            "a {kind} becomes MachineConfigs by the controller's templates, which are not here: use `mco plan -f` with --templates"
        ));
    }
    let words = |error: &(dyn std::error::Error + 'static)| api::formats::text::chain(error);
    let situation = insight::situation(objects).map_err(|e| words(&e))?;
    let change = Manifests { given, deleted: false, pools: &[], controller_config, templates: None };
    let now = Time(jiff::Timestamp::now());
    let plan =
        ChangePlan::by_manifests(objects, &situation, change, &now, Secrets::Hide).map_err(|e| words(&e))?;
    Ok(messages::plan(&plan, MASKED) + &doubts(&[], &plan.warnings))
}

#[cfg(test)]
mod tests;
