//! The commands of authoring dialogues.
//!
//! - [`artifact`]: the document of a dialogue, and its publication.
//! - [`create`]: begins a dialogue.
//! - [`chat`]: checks a user's message and puts it on the lane. A worker then publishes the events of the turn.
//! - [`trial`]: tests of the draft by a person, and replays against it.
//! - [`view`]: the state of a dialogue, for clients.
//!
//! Each command works for an [`Author`]. A user sees only their own dialogues; for this user, other dialogues do not
//! exist.

pub mod artifact;
pub mod chat;
pub mod create;
pub mod trial;
pub mod view;

use crate::error::{CommandError, ErrorKind};
use crate::paging::{Listing, fit, part_of};
use base::clock;
use engine::authoring::kept;
use storage::store::Store;
use storage::store::authoring::AuthoringQuery;
use types::authoring::{Stage, StoredState};
use types::ids;
use types::page::Bounds;
use types::session::{Kind, Session};
use types::timestamp::Timestamp;
use view::DialogueSummary;

/// The caller of a command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Author {
    /// A user, who sees only their own dialogues.
    User(String),
    /// An operator, who may see all dialogues. The name is the user of the dialogues that the operator begins.
    Operator(String),
}

impl Author {
    /// The user of a new dialogue.
    pub fn name(&self) -> &str {
        match self {
            Self::User(name) | Self::Operator(name) => name,
        }
    }

    /// Returns true if the caller may see the dialogues of this user.
    pub fn sees(&self, user_id: &str) -> bool {
        match self {
            Self::User(name) => name == user_id,
            Self::Operator(_) => true,
        }
    }
}

/// A dialogue: its session and its state.
#[derive(Clone, Debug)]
pub struct Dialogue {
    /// The session.
    pub session: Session,
    /// The state. A field that cannot be read has its default.
    pub state: StoredState,
}

impl Dialogue {
    /// True while a turn is in progress.
    pub fn is_busy(&self) -> bool {
        self.session.turn.is_some()
    }
}

/// Loads a dialogue. Fails with `unknown_session` if the session does not exist or belongs to another user, and with
/// `not_authoring` if the session is not a dialogue.
pub async fn load(store: &dyn Store, author: &Author, session_id: &str) -> Result<Dialogue, CommandError> {
    ids::check("session_id", session_id)?;
    let session = store.session(session_id).await?.filter(|session| author.sees(&session.user_id));
    let session = session.ok_or_else(|| unknown_dialogue(session_id))?;
    if session.kind != Kind::Authoring {
        let message = format!("session `{session_id}` is not an authoring dialogue");
        let hint = format!("/api/v1/sessions/{session_id} shows other sessions");
        return Err(CommandError::new(ErrorKind::Conflict, "not_authoring", message, hint));
    }
    // As a worker finds it: what a command saves of a lost state has the session's history, too.
    let state = kept::state(store, &session, clock::now()).await?.state;
    Ok(Dialogue { session, state })
}

/// Lists dialogues, the last changed first. A user gets their own ones; an operator gets those of `user_id`, or all.
pub async fn list(
    store: &dyn Store,
    author: &Author,
    user_id: Option<String>,
    stage: Option<Stage>,
    bounds: Bounds<(Timestamp, String)>,
) -> Result<Listing<DialogueSummary>, CommandError> {
    if user_id.as_deref().is_some_and(|user_id| !author.sees(user_id)) {
        return Ok(Listing { items: Vec::new(), next: None });
    }
    let user_id = match author {
        Author::User(name) => Some(name.clone()),
        Author::Operator(_) => user_id,
    };
    // One entry more than the page shows whether there is a next page.
    let query = AuthoringQuery { user_id, stage, before: None, after: bounds.after, limit: bounds.limit + 1 };
    let found = store.authorings(query).await?.into_iter().map(DialogueSummary::from);
    let page =
        part_of(found, &Bounds::<String> { after: None, limit: bounds.limit, max_bytes: bounds.max_bytes }, |_, _| {
            true
        });
    Ok(fit(page, |one| (one.last_updated, one.session_id.clone())))
}

/// The error for a dialogue that does not exist.
pub fn unknown_dialogue(session_id: &str) -> CommandError {
    let message = format!("there is no authoring session `{session_id}`");
    CommandError::new(ErrorKind::NotFound, "unknown_session", message, "POST /api/v1/session begins one")
}

/// The error for a dialogue with a turn in progress.
pub fn busy(session_id: &str) -> CommandError {
    let message = format!("a turn of session `{session_id}` is in progress");
    CommandError::new(ErrorKind::Conflict, "busy", message, "try again when it has ended, or cancel it")
}
