//! Open lanes: the changes to a session since its last commit, in a row of their own. Acquiring a lane, renewing it and
//! setting a status thus write a few hundred bytes instead of the whole session. A commit writes the session and
//! removes the row.

use super::fault::FileFault;
use super::queries::session_name;
use super::tables::{LANES, Tables, decode, encode};
use redb::{ReadTransaction, ReadableTable};
use serde::{Deserialize, Serialize};
use std::collections::HashMap;
use types::session::{Lease, OpenTurn, Session, Status};
use types::timestamp::Timestamp;

/// The changes to a session since its last commit.
#[derive(Deserialize, Serialize)]
pub(super) struct OpenLane {
    epoch: u64,
    pending_seq: u64,
    status: Status,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    lease: Option<Lease>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    turn: Option<OpenTurn>,
    pub(super) updated_at: Timestamp,
}

impl OpenLane {
    fn from_session(session: &Session) -> Self {
        Self {
            epoch: session.epoch,
            pending_seq: session.pending_seq,
            status: session.workflow_state.status,
            lease: session.lease.clone(),
            turn: session.turn.clone(),
            updated_at: session.updated_at,
        }
    }

    /// Applies the changes to the session as the last commit wrote it.
    pub(super) fn apply_to(self, session: &mut Session) {
        session.epoch = self.epoch;
        session.pending_seq = self.pending_seq;
        session.workflow_state.status = self.status;
        session.lease = self.lease;
        session.turn = self.turn;
        session.updated_at = self.updated_at;
    }
}

/// Writes the open lane of a session.
pub(super) fn put(tables: &mut Tables<'_>, session: &Session) -> Result<(), FileFault> {
    let bytes = encode("the lane", &OpenLane::from_session(session))?;
    tables.lanes.insert(session.session_id.as_str(), bytes.as_slice())?;
    Ok(())
}

/// Reads the open lane of one session.
pub(super) fn one(read: &ReadTransaction, id: &str) -> Result<Option<OpenLane>, FileFault> {
    match read.open_table(LANES)?.get(id)? {
        Some(row) => decode(|| session_name(id), row.value()).map(Some),
        None => Ok(None),
    }
}

/// Reads all open lanes, by session. There is one for each turn that runs or waits.
pub(super) fn all(read: &ReadTransaction) -> Result<HashMap<String, OpenLane>, FileFault> {
    let mut lanes = HashMap::new();
    for row in read.open_table(LANES)?.iter()? {
        let (id, lane) = row?;
        lanes.insert(id.value().to_owned(), decode(|| session_name(id.value()), lane.value())?);
    }
    Ok(lanes)
}
