//! Authoring dialogues: `workflow_agent_states`, and the fields of `sessions` that only dialogues have. Both change in
//! one transaction.

use super::document::{date, failed, int, raw, sealed_fields, stamped, unseal};
use super::erasure::is_duplicate;
use super::{Db, MongoStore};
use async_trait::async_trait;
use bson::{Bson, Document, RawDocumentBuf, doc};
use mongodb::error::{Error, TRANSIENT_TRANSACTION_ERROR, UNKNOWN_TRANSACTION_COMMIT_RESULT};
use mongodb::options::IndexOptions;
use mongodb::{ClientSession, Collection, Database};
use serde_json::{Map, Value};
use std::collections::BTreeMap;
use storage::store::authoring::{Authoring, AuthoringQuery, AuthoringSummary, NewAuthoring, SaveAuthoring, Saved};
use storage::store::{Result, StoreError, lane};
use types::authoring::{Artifact, Loaded, Stage, StoredState};
use types::timestamp::Timestamp;

/// The collection of the states.
pub const STATES: &str = "workflow_agent_states";
/// How often a transaction is retried after a conflict with a concurrent write.
const MAX_TRIES: usize = 20;
/// MongoDB's code for a command that the user may not run.
const UNAUTHORIZED: i32 = 13;
/// MongoDB's code for a collection that exists.
const EXISTS: i32 = 48;

/// The indexes of dialogues.
pub(super) fn indexes() -> Vec<(&'static str, Document, Option<IndexOptions>)> {
    let named = |name: &str| IndexOptions::builder().name(name.to_owned()).build();
    let of_dialogues = |name: &str| {
        let only = doc! {"kind": "authoring"};
        IndexOptions::builder().name(name.to_owned()).partial_filter_expression(only).build()
    };
    let unique = IndexOptions::builder().name("idx_agent_states_session".to_owned()).unique(true).build();
    vec![
        (STATES, doc! {"session_id": 1}, Some(unique)),
        (STATES, doc! {"user_id": 1}, Some(named("idx_agent_states_user"))),
        (STATES, doc! {"stage": 1}, Some(named("idx_agent_states_stage"))),
        (STATES, doc! {"updated_at": -1}, Some(named("idx_agent_states_updated"))),
        (STATES, doc! {"conversations.timestamp": 1}, Some(named("idx_agent_states_conversations_gin"))),
        (STATES, doc! {"workflow_id": 1}, Some(named("idx_agent_states_workflow_id"))),
        ("sessions", doc! {"action_type": 1}, Some(of_dialogues("idx_sessions_action_type"))),
        ("sessions", doc! {"source_workflow_id": 1}, Some(of_dialogues("idx_sessions_source_workflow"))),
    ]
}

/// The validator of `workflow_agent_states`: the database refuses other documents.
pub fn validator() -> Document {
    let stages: Vec<&str> = Stage::ALL.iter().map(|stage| stage.as_str()).collect();
    let entry = doc! {
        "bsonType": "object",
        "required": ["role", "text", "timestamp"],
        "properties": {"role": {"enum": ["user", "assistant", "system"]}},
    };
    doc! {"$jsonSchema": {
        "bsonType": "object",
        "required": [
            "session_id", "user_id", "stage", "conversations", "gaps", "alternatives", "clarification_context",
            "workflow_context", "debug_loop_count", "version", "created_at", "updated_at",
        ],
        "properties": {
            "session_id": {"bsonType": "string", "minLength": 1},
            "user_id": {"bsonType": "string"},
            "stage": {"enum": stages},
            "conversations": {"bsonType": "array", "items": entry},
            "gaps": {"bsonType": "array"},
            "alternatives": {"bsonType": "array"},
            "debug_loop_count": {"bsonType": ["int", "long"], "minimum": 0},
            "workflow_id": {"bsonType": ["string", "null"]},
            "clarification_context": {"bsonType": "object"},
            "workflow_context": {"bsonType": "object"},
            "version": {"bsonType": ["int", "long"], "minimum": 1},
            "created_at": {"bsonType": "date"},
            "updated_at": {"bsonType": "date"},
        },
    }}
}

/// Creates the collection with its validator, or sets the validator of an existing one. A user without this right gets
/// no validator: the database then checks nothing, and `doctor` reports it.
pub(super) async fn ensure_validator(database: &Database) -> Result<()> {
    let run = async |name: &str| {
        let command =
            doc! {name: STATES, "validator": validator(), "validationLevel": "strict", "validationAction": "error"};
        database.run_command(command).await
    };
    let mut result = run("create").await;
    if result.as_ref().is_err_and(|error| code(error) == Some(EXISTS)) {
        result = run("collMod").await;
    }
    match result {
        Err(error) if code(&error) == Some(UNAUTHORIZED) => {
            tracing::warn!(
                "the database user may not set the validator of `{STATES}`: {error}; run deploy/mongodb/setup.js again"
            );
            Ok(())
        }
        result => result.map(|_| ()).map_err(failed),
    }
}

#[async_trait]
impl Authoring for MongoStore {
    async fn create_authoring(&self, new: NewAuthoring) -> Result<bool> {
        self.db.create_authoring(&new).await
    }

    async fn authoring(&self, session_id: &str) -> Result<Option<Loaded>> {
        let states = self.db.database.collection::<Document>(STATES);
        let found = self.db.in_time(states.find_one(doc! {"session_id": session_id})).await?;
        Ok(found.map(|found| loaded(session_id, found, self.db.clock.latest())))
    }

    async fn save_authoring(&self, save: SaveAuthoring) -> Result<Saved> {
        self.db.save_authoring(&save).await
    }

    async fn authorings(&self, query: AuthoringQuery) -> Result<Vec<AuthoringSummary>> {
        let mut filter = Document::new();
        if let Some(user_id) = query.user_id {
            filter.insert("user_id", user_id);
        }
        if let Some(stage) = query.stage {
            filter.insert("stage", stage.as_str());
        }
        if let Some(before) = query.before {
            filter.insert("updated_at", doc! {"$lt": date(before)});
        }
        if let Some((at, session_id)) = query.after {
            let later = doc! {"updated_at": date(at), "session_id": {"$lt": session_id}};
            filter.insert("$or", [doc! {"updated_at": {"$lt": date(at)}}, later]);
        }
        let states = self.db.database.collection::<Document>(STATES);
        let find = states.find(filter).sort(doc! {"updated_at": -1, "session_id": -1});
        let find = find.projection(doc! {"conversations": 0, "turn": 0, "alternatives": 0, "questions": 0});
        let (found, now) = (self.db.first(find, query.limit).await?, self.db.clock.latest());
        let summary = |found: Document| {
            let session_id = found.get_str("session_id").unwrap_or_default().to_owned();
            AuthoringSummary::from(loaded(&session_id, found, now).state)
        };
        Ok(found.into_iter().map(summary).collect())
    }
}

/// The writes of one transaction.
enum Writes<'a> {
    Create { session: RawDocumentBuf, state: RawDocumentBuf },
    Save { save: &'a SaveAuthoring, next: &'a StoredState, state: RawDocumentBuf },
}

impl Writes<'_> {
    async fn run(&self, database: &Database, transaction: &mut ClientSession) -> mongodb::error::Result<Saved> {
        let (sessions, states) = (of(database, "sessions"), of(database, STATES));
        let (save, next, state) = match self {
            Self::Create { session, state } => {
                sessions.insert_one(session).session(&mut *transaction).await?;
                states.insert_one(state).session(transaction).await?;
                return Ok(Saved::Saved(1));
            }
            Self::Save { save, next, state } => (save, next, state),
        };
        let session_id = &next.state.session_id;
        let mut held = doc! {"_id": session_id, "kind": "authoring"};
        match save.epoch {
            Some(epoch) => held.extend(doc! {"epoch": int(epoch), "lease": {"$exists": true}}),
            None => held.extend(doc! {"turn": {"$exists": false}, "lease": {"$exists": false}}),
        }
        // The version is written, too, so that every save changes the session. A worker that takes the lane
        // concurrently then conflicts with this transaction, instead of reading the state before it.
        let update = doc! {"$set": {"agent_stage": next.state.stage.as_str(), "agent_version": int(next.version)}};
        let touched = sessions.update_one(held, update).session(&mut *transaction).await?;
        if touched.matched_count == 0 {
            return Ok(Saved::Fenced);
        }
        if save.state.version == 0 {
            // Replaces a state with a damaged version, or inserts one. If a readable state exists, the unique index
            // refuses the new one.
            let damaged = doc! {"session_id": session_id, "version": {"$not": {"$gte": 1}}};
            states.replace_one(damaged, state).upsert(true).session(transaction).await?;
            return Ok(Saved::Saved(next.version));
        }
        let read = doc! {"session_id": session_id, "version": int(save.state.version)};
        let replaced = states.replace_one(read, state).session(transaction).await?;
        Ok(if replaced.matched_count > 0 { Saved::Saved(next.version) } else { Saved::Conflict })
    }
}

impl Db {
    async fn create_authoring(&self, new: &NewAuthoring) -> Result<bool> {
        let session = session_document(new, self.clock.latest())?;
        let state = state_document(&StoredState { version: 1, ..new.state.clone() })?;
        let writes = Writes::Create { session, state };
        Ok(self.in_time(self.in_transaction(&writes)).await? != Saved::Conflict)
    }

    async fn save_authoring(&self, save: &SaveAuthoring) -> Result<Saved> {
        let next = StoredState { version: save.state.version + 1, ..save.state.clone() };
        let writes = Writes::Save { save, next: &next, state: state_document(&next)? };
        let saved = self.in_time(self.in_transaction(&writes)).await?;
        // This save may have raised the version itself, and its acknowledgement was lost.
        if saved == Saved::Conflict && self.is_saved(&next).await? {
            return Ok(Saved::Saved(next.version));
        }
        Ok(saved)
    }

    async fn is_saved(&self, next: &StoredState) -> Result<bool> {
        let states = self.database.collection::<Document>(STATES);
        let found = self.in_time(states.find_one(doc! {"session_id": &next.state.session_id})).await?;
        let found = found.map(|found| loaded(&next.state.session_id, found, self.clock.latest()).state);
        Ok(found.is_some_and(|found| found.is_same_save(next)))
    }

    /// Runs the writes in a transaction, and retries it after a conflict with a concurrent write. Only [`Saved::Saved`]
    /// changes anything. A duplicate id or session is a conflict.
    async fn in_transaction(&self, writes: &Writes<'_>) -> mongodb::error::Result<Saved> {
        let mut transaction = self.client.start_session().await?;
        let mut tries = 0;
        loop {
            tries += 1;
            transaction.start_transaction().await?;
            let result = match writes.run(&self.database, &mut transaction).await {
                Ok(saved @ Saved::Saved(_)) => commit(&mut transaction).await.map(|()| saved),
                other => {
                    // If the abort fails, the server ends the transaction after its own timeout.
                    let _ = transaction.abort_transaction().await;
                    other
                }
            };
            match result {
                Err(error) if error.contains_label(TRANSIENT_TRANSACTION_ERROR) && tries < MAX_TRIES => {}
                Err(error) if is_duplicate(&error) => return Ok(Saved::Conflict),
                result => return result,
            }
        }
    }

    /// Removes a workflow or agent that is deleted from the states and sessions that name it. Can be repeated.
    pub(super) async fn forget_artefact(&self, kind: Artifact, id: &str) -> Result<()> {
        let states = self.database.collection::<Document>(STATES);
        let kind = match kind {
            Artifact::Agent => doc! {"$eq": "agent"},
            // A state without the field is that of a workflow.
            Artifact::Workflow => doc! {"$ne": "agent"},
        };
        let update =
            vec![doc! {"$set": {"workflow_id": null, "draft": null, "published": null, "version": next_version()}}];
        self.in_time(states.update_many(doc! {"workflow_id": id, "artifact": &kind}, update)).await?;
        // Only sessions have the index on the source, so they give the ids of the states.
        let sessions = self.database.collection::<Document>("sessions");
        let ids = self.in_time(sessions.distinct("_id", doc! {"kind": "authoring", "source_workflow_id": id})).await?;
        let named = doc! {"session_id": {"$in": ids}, "artifact": kind};
        let ids = self.in_time(states.distinct("session_id", named.clone())).await?;
        let update = vec![doc! {"$set": {"workflow_context.source_workflow_id": "", "version": next_version()}}];
        self.in_time(states.update_many(named, update)).await?;
        let update = doc! {"$set": {"source_workflow_id": null}};
        self.in_time(sessions.update_many(doc! {"_id": {"$in": ids}}, update)).await.map(|_| ())
    }
}

/// The next version of a state, as an expression. A damaged one begins again, as it does for who reads it.
fn next_version() -> Document {
    let known = doc! {"$cond": [{"$isNumber": "$version"}, "$version", 0]};
    doc! {"$max": [1_i64, {"$convert": {"input": {"$add": [known, 1]}, "to": "long", "onError": 1_i64}}]}
}

async fn commit(transaction: &mut ClientSession) -> mongodb::error::Result<()> {
    let mut tries = 0;
    loop {
        tries += 1;
        match transaction.commit_transaction().await {
            Err(error) if error.contains_label(UNKNOWN_TRANSACTION_COMMIT_RESULT) && tries < MAX_TRIES => {}
            result => return result,
        }
    }
}

fn session_document(new: &NewAuthoring, now: Timestamp) -> Result<RawDocumentBuf> {
    let session = new.session(lane::first_epoch(now), now);
    let mut document = Document::try_from(raw(&session)?.as_ref()).map_err(StoreError::refused)?;
    document.remove("session_id");
    document.insert("_id", &session.session_id);
    let context = &new.state.state.workflow_context;
    let source = Some(context.source_workflow_id.clone()).filter(|id| !id.is_empty());
    document.extend(doc! {
        "action_type": context.origin.as_str(),
        "source_workflow_id": source,
        "agent_stage": new.state.state.stage.as_str(),
        "agent_version": 1_i64,
    });
    RawDocumentBuf::try_from(&document).map(stamped).map_err(StoreError::refused)
}

fn state_document(stored: &StoredState) -> Result<RawDocumentBuf> {
    let mut stored = stored.clone();
    sealed_map(&mut stored.state.clarification_context.collected_info);
    sealed_map(&mut stored.config.preferences);
    raw(&stored).map(stamped)
}

fn sealed_map(map: &mut BTreeMap<String, String>) {
    let fields: Map<String, Value> = map.iter().map(|(key, value)| (key.clone(), value.clone().into())).collect();
    if let std::borrow::Cow::Owned(sealed) = sealed_fields(&fields) {
        *map = sealed.into_iter().filter_map(|(key, value)| Some((key, value.as_str()?.to_owned()))).collect();
    }
}

fn loaded(session_id: &str, found: Document, now: Timestamp) -> Loaded {
    let mut stored = plain(Bson::Document(found));
    for place in ["/clarification_context/collected_info", "/config/preferences"] {
        if let Some(map) = stored.pointer_mut(place) {
            *map = unseal(map.take());
        }
    }
    Loaded::read(session_id, stored, now)
}

/// A stored value as JSON, with times as texts.
fn plain(value: Bson) -> Value {
    match value {
        Bson::DateTime(at) => Timestamp::from_millis(at.timestamp_millis()).to_string().into(),
        Bson::Document(fields) => {
            fields.into_iter().map(|(key, value)| (key, plain(value))).collect::<Map<_, _>>().into()
        }
        Bson::Array(items) => items.into_iter().map(plain).collect(),
        other => serde_json::to_value(&other).unwrap_or_default(),
    }
}

fn code(error: &Error) -> Option<i32> {
    match error.kind.as_ref() {
        mongodb::error::ErrorKind::Command(command) => Some(command.code),
        _ => None,
    }
}

fn of(database: &Database, collection: &str) -> Collection<RawDocumentBuf> {
    database.collection(collection)
}
