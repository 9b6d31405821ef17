//! Begins a dialogue.

use super::Author;
use crate::enqueue::new_id;
use crate::error::{CommandError, ErrorKind};
use base::clock;
use decisions::authoring::words;
use engine::authoring::artifact::current;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;
use storage::queue::Queue;
use storage::store::Store;
use storage::store::authoring::NewAuthoring;
use types::authoring::{Artifact, ConfigRequest, ConversationConfig, Origin, StoredState, WorkflowContext};
use types::canonical;
use types::ids::{self, DottedId, Id};
use types::job::DEFAULT_CHANNEL;
use types::session::Kind;

/// The agent of all dialogues.
pub const AGENT: &str = "authoring";

/// A dialogue to begin.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct NewDialogue {
    /// `create` makes a new artefact, `edit` changes an existing one, `copy` makes another one like it.
    pub action: String,
    /// The source: the id of the workflow or agent to edit or copy.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<Id>")]
    pub workflow_id: Option<String>,
    /// The kind of artefact: `workflow` or `agent`. By default that of the source, else `workflow`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<Artifact>")]
    pub artifact: Option<String>,
    /// Settings of the dialogue.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub config: Option<ConfigRequest>,
    /// Id of the session; a UUID by default. A repeat with the same id and content gets the same response.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<Id>")]
    pub session_id: Option<String>,
    /// The user of the dialogue, if an operator begins it for another person.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<DottedId>")]
    pub user_id: Option<String>,
}

/// A dialogue that has begun.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct NewSession {
    /// The session.
    #[schemars(with = "Id")]
    pub session_id: String,
    /// How the dialogue began.
    pub action_type: Origin,
    /// The source of the dialogue.
    pub workflow_context: WorkflowContext,
    /// A first message for the user.
    pub message: String,
    /// The kind of artefact that the dialogue makes.
    pub artifact: Artifact,
}

/// Begins a dialogue. Its events are published under `channel`, or `default`. Durable on return.
pub async fn create(
    queue: &dyn Queue,
    store: &dyn Store,
    author: &Author,
    new: NewDialogue,
    channel: Option<String>,
) -> Result<NewSession, CommandError> {
    let context = WorkflowContext {
        origin: origin(&new)?,
        source_workflow_id: new.workflow_id.clone().unwrap_or_default(),
        modification_intent: String::new(),
    };
    let wanted = new.artifact.as_deref().map(artifact).transpose()?;
    let config = new.config.unwrap_or_default().apply(&ConversationConfig::default());
    let config = config.map_err(|error| invalid("invalid_config", error.to_string()))?;
    let wanted = wanted.or(config.artifact());
    let wanted = match context.origin {
        Origin::Create => wanted,
        Origin::Edit | Origin::Copy => Some(source(store, author, &context, wanted).await?),
    };
    let user_id = new.user_id.unwrap_or_else(|| author.name().to_owned());
    ids::check("user_id", &user_id).map_err(|error| invalid("invalid_request", error.to_string()))?;
    if !author.sees(&user_id) {
        return Err(invalid("invalid_request", format!("user_id is `{user_id}`, and you are `{}`", author.name())));
    }
    let session_id = new.session_id.unwrap_or_else(new_id);
    ids::check("session_id", &session_id).map_err(|error| invalid("invalid_request", error.to_string()))?;
    let state = StoredState::new(new_id(), &session_id, &user_id, context, clock::now()).configured(config, wanted);
    let state = StoredState { request_hash: Some(request_hash(&state)), ..state };
    let channel = channel.unwrap_or_else(|| DEFAULT_CHANNEL.to_owned());
    let begun = NewAuthoring { agent_id: AGENT.to_owned(), channel, state: state.clone() };
    // Messages that wait under the id are those of another conversation, which has no session yet.
    let is_taken = queue.next_in_lane(&session_id, 0, 0).await?.is_some();
    if is_taken || !store.create_authoring(begun).await? {
        is_repeat(store, &state).await?;
    }
    let language = state.config.language;
    let message = words::welcome(state.artifact, &state.state.workflow_context, language);
    let StoredState { artifact, state, .. } = state;
    let action_type = state.workflow_context.origin;
    Ok(NewSession { session_id, action_type, workflow_context: state.workflow_context, message, artifact })
}

fn origin(new: &NewDialogue) -> Result<Origin, CommandError> {
    let origin = Origin::parse(&new.action).ok_or_else(|| {
        invalid("invalid_action", format!("action is `{}`; it must be `create`, `edit` or `copy`", new.action))
    })?;
    match (origin, new.workflow_id.as_deref()) {
        (Origin::Create, Some(_)) => {
            Err(invalid("workflow_id_not_allowed", "workflow_id: `create` takes none; use `edit` or `copy`"))
        }
        (Origin::Edit | Origin::Copy, None | Some("")) => {
            Err(invalid("workflow_id_required", format!("workflow_id: `{origin}` needs the id of a workflow or agent")))
        }
        (_, Some(id)) => {
            ids::check("workflow_id", id).map_err(|error| invalid("invalid_request", error.to_string()))?;
            Ok(origin)
        }
        (_, None) => Ok(origin),
    }
}

fn artifact(name: &str) -> Result<Artifact, CommandError> {
    let message = || format!("artifact is `{name}`; it must be `workflow` or `agent`");
    Artifact::parse(name).ok_or_else(|| invalid("invalid_request", message()))
}

/// Returns the kind of the source, which may be compiled in, and is no plan of a session. Fails with `not_yours` if a
/// user edits an artefact of another user.
async fn source(
    store: &dyn Store,
    author: &Author,
    context: &WorkflowContext,
    wanted: Option<Artifact>,
) -> Result<Artifact, CommandError> {
    let id = context.source_workflow_id.as_str();
    let kinds = wanted.map_or_else(|| Artifact::ALL.to_vec(), |wanted| vec![wanted]);
    for kind in kinds {
        if current(store, kind, id).await?.is_none() {
            continue;
        }
        let may_edit = match author {
            Author::User(name) => store.owner(kind, id).await?.as_ref() == Some(name),
            Author::Operator(_) => true,
        };
        if context.origin == Origin::Edit && !may_edit {
            let message = format!("`{id}` is not yours");
            let hint = "copy it (`action: copy`), or ask an operator";
            return Err(CommandError::new(ErrorKind::Forbidden, "not_yours", message, hint));
        }
        return Ok(kind);
    }
    let message = format!("there is no workflow or agent `{id}`");
    let hint = "`turnwheel workflows list` and `turnwheel agents list` show what exists";
    Err(CommandError::new(ErrorKind::NotFound, "unknown_workflow", message, hint))
}

/// The hash of a request for a new dialogue.
fn request_hash(state: &StoredState) -> String {
    let context = &state.state.workflow_context;
    canonical::hash(&json!([
        state.state.user_id,
        state.artifact,
        state.config,
        context.origin,
        context.source_workflow_id,
    ]))
}

/// Succeeds if the existing dialogue was begun by the same request.
async fn is_repeat(store: &dyn Store, state: &StoredState) -> Result<(), CommandError> {
    let session_id = &state.state.session_id;
    let session = store.session(session_id).await?.filter(|session| session.kind == Kind::Authoring);
    let known = match session {
        Some(_) => store.authoring(session_id).await?.map(|loaded| loaded.state),
        None => None,
    };
    // The dialogue of an older version, or one whose state was lost, has its current settings only.
    let hash_of = |known: StoredState| known.request_hash.clone().unwrap_or_else(|| request_hash(&known));
    let same = known.map(hash_of) == state.request_hash;
    if same {
        return Ok(());
    }
    let message = format!("there is a session `{session_id}`, which another request created");
    let hint = "choose another `session_id`, or omit it for a random one";
    Err(CommandError::new(ErrorKind::Conflict, "session_exists", message, hint))
}

fn invalid(code: &'static str, message: impl Into<String>) -> CommandError {
    CommandError::invalid(code, message, "docs/authoring.md has the fields of a dialogue")
}
