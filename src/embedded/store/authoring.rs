//! Authoring dialogues. One write of the file changes state and session together, and `agent_stage` is the state's own
//! stage.

use super::EmbeddedStore;
use super::fault::FileFault;
use super::history::FIRST_ENTRY;
use super::tables::{AUTHORING, Tables, decode, encode};
use async_trait::async_trait;
use redb::{ReadTransaction, ReadableTable};
use serde_json::Value;
use std::sync::Arc;
use storage::store::authoring::{Authoring, AuthoringQuery, AuthoringSummary, NewAuthoring, SaveAuthoring, Saved};
use storage::store::{Result, lane};
use types::authoring::{Artifact, Loaded, StoredState};
use types::session::{Kind, Session};
use types::timestamp::Timestamp;

#[async_trait]
impl Authoring for EmbeddedStore {
    async fn create_authoring(&self, new: NewAuthoring) -> Result<bool> {
        let sessions = Arc::clone(&self.sessions);
        let work = move |tables: &mut Tables<'_>| {
            let (id, now) = (new.state.state.session_id.as_str(), tables.clock.now());
            if tables.sessions.get(id)?.is_some() {
                return Ok(false);
            }
            let session = new.session(lane::first_epoch(now), now);
            let bytes = encode("the session", &session)?;
            let state = encode("the state", &StoredState { version: 1, ..new.state.clone() })?;
            tables.authoring.insert(id, state.as_slice())?;
            sessions.put(tables, session, FIRST_ENTRY, &bytes)?;
            Ok(true)
        };
        Ok(self.file.write(work).await?)
    }

    async fn authoring(&self, session_id: &str) -> Result<Option<Loaded>> {
        let now = self.file.clock().now();
        Ok(self.file.read(|read| match read.open_table(AUTHORING)?.get(session_id)? {
            Some(bytes) => loaded(session_id, bytes.value(), now).map(Some),
            None => Ok(None),
        })?)
    }

    async fn save_authoring(&self, save: SaveAuthoring) -> Result<Saved> {
        let sessions = Arc::clone(&self.sessions);
        let work = move |tables: &mut Tables<'_>| {
            let (id, now) = (save.state.state.session_id.as_str(), tables.clock.now());
            let session = sessions.get(tables, id)?;
            if !session.is_some_and(|session| may_save(&session, save.epoch)) {
                return Ok(Saved::Fenced);
            }
            let found = match tables.authoring.get(id)? {
                Some(bytes) => Some(loaded(id, bytes.value(), now)?.state),
                None => None,
            };
            let next = StoredState { version: save.state.version + 1, ..save.state.clone() };
            match found {
                Some(found) if found.is_same_save(&next) => return Ok(Saved::Saved(next.version)),
                Some(found) if found.version != save.state.version => return Ok(Saved::Conflict),
                None if save.state.version != 0 => return Ok(Saved::Conflict),
                _ => {}
            }
            let bytes = encode("the state", &next)?;
            tables.authoring.insert(id, bytes.as_slice())?;
            Ok(Saved::Saved(next.version))
        };
        Ok(self.file.write(work).await?)
    }

    async fn authorings(&self, query: AuthoringQuery) -> Result<Vec<AuthoringSummary>> {
        let now = self.file.clock().now();
        Ok(self.file.read(|read| list(read, &query, now))?)
    }
}

fn may_save(session: &Session, epoch: Option<u64>) -> bool {
    let free = || session.turn.is_none() && session.lease.is_none();
    session.kind == Kind::Authoring
        && epoch.map_or_else(free, |epoch| session.epoch == epoch && session.lease.is_some())
}

/// Reads a state. Fails only if a newer version of the program wrote it.
fn loaded(session_id: &str, bytes: &[u8], now: Timestamp) -> std::result::Result<Loaded, FileFault> {
    match decode::<Value>(|| format!("the state of `{session_id}`"), bytes) {
        Ok(stored) => Ok(Loaded::read(session_id, stored, now)),
        Err(FileFault::Damaged { source, .. }) => {
            let mut loaded = Loaded::read(session_id, Value::Null, now);
            loaded.problems.insert(0, source.to_string());
            Ok(loaded)
        }
        Err(fault) => Err(fault),
    }
}

fn list(
    read: &ReadTransaction,
    query: &AuthoringQuery,
    now: Timestamp,
) -> std::result::Result<Vec<AuthoringSummary>, FileFault> {
    let mut found = Vec::new();
    for row in read.open_table(AUTHORING)?.iter()? {
        let (id, bytes) = row?;
        // A state of a newer version is not for this one to show.
        let Ok(loaded) = loaded(id.value(), bytes.value(), now) else { continue };
        let one = AuthoringSummary::from(loaded.state);
        if query.user_id.as_ref().is_none_or(|user| *user == one.user_id)
            && query.stage.is_none_or(|stage| stage == one.stage)
            && query.before.is_none_or(|before| one.updated_at < before)
            && query.after.as_ref().is_none_or(|(at, id)| (one.updated_at, &one.session_id) < (*at, id))
        {
            found.push(one);
        }
    }
    found.sort_by(|one, other| (other.updated_at, &other.session_id).cmp(&(one.updated_at, &one.session_id)));
    found.truncate(query.limit);
    Ok(found)
}

/// Removes a deleted workflow or agent from the states that name it.
pub(super) fn forget_artefact(tables: &mut Tables<'_>, kind: Artifact, id: &str) -> std::result::Result<(), FileFault> {
    let (now, mut changed) = (tables.clock.now(), Vec::new());
    for row in tables.authoring.iter()? {
        let (session_id, bytes) = row?;
        // A state that a newer version wrote stays as it is.
        let Ok(loaded) = loaded(session_id.value(), bytes.value(), now) else { continue };
        let (mut stored, mut names) = (loaded.state, false);
        // Ids of agents are not those of workflows.
        if stored.artifact != kind {
            continue;
        }
        if stored.state.workflow_id.as_deref() == Some(id) {
            // A later document with this id may come from another dialogue, so this dialogue must forget the id.
            (stored.draft, stored.published) = (None, None);
            (stored.state.workflow_id, names) = (None, true);
        }
        if stored.state.workflow_context.source_workflow_id == id {
            stored.state.workflow_context.source_workflow_id.clear();
            names = true;
        }
        if names {
            stored.version += 1;
            changed.push((session_id.value().to_owned(), encode("the state", &stored)?));
        }
    }
    for (session_id, bytes) in changed {
        tables.authoring.insert(session_id.as_str(), bytes.as_slice())?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::EmbeddedFile;
    use base::config::Settings;
    use types::authoring::WorkflowContext;

    #[tokio::test]
    async fn a_state_of_a_newer_version_does_not_hide_the_others() {
        let store = EmbeddedStore::new(EmbeddedFile::in_memory().unwrap(), &Settings::default()).unwrap();
        for session_id in ["a", "newer", "z"] {
            let context = WorkflowContext::default();
            let state = StoredState::new(session_id.into(), session_id, "alice", context, Timestamp::default());
            let new = NewAuthoring { agent_id: "authoring".into(), channel: "api".into(), state };
            assert!(store.create_authoring(new).await.unwrap());
        }
        let newer = |tables: &mut Tables<'_>| {
            tables.authoring.insert("newer", br#"{"format":99}"#.as_slice())?;
            Ok(())
        };
        store.file.write(newer).await.unwrap();
        let query = AuthoringQuery { limit: 10, ..AuthoringQuery::default() };
        let listed = store.authorings(query).await.unwrap();
        let ids: Vec<_> = listed.iter().map(|one| one.session_id.as_str()).collect();
        assert_eq!(ids, ["z", "a"]);
        assert!(store.authoring("newer").await.is_err());
    }
}
