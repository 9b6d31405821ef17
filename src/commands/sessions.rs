//! Reading sessions and their turns.

use serde::{Deserialize, Serialize};
use storage::queue::{self, Queue};
use storage::store::records::TurnPlace;
use types::session::Session;
use types::step::StepRecord;
use types::turn::TurnRecord;

/// Removes the internal fields of a session document: lease, open turn and outbox.
pub fn public_view(session: Session) -> Session {
    Session { lease: None, turn: None, outbox: Vec::new(), ..session }
}

/// A session, and whether jobs wait in its lane.
#[derive(Clone, Debug, Serialize, Deserialize, schemars::JsonSchema)]
pub struct SessionDetails {
    /// The session document, without internal fields.
    #[serde(flatten)]
    pub session: Session,
    /// True when its lane has a job that waits or is in flight. Missing while the queue does not respond.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub has_jobs: Option<bool>,
}

/// True when the session's lane has a job that waits or is in flight.
pub async fn has_jobs(queue: &dyn Queue, session: &Session) -> queue::Result<bool> {
    let Session { session_id, stream, last_seq, .. } = session;
    let Some(first) = queue.next_in_lane(session_id, 0, 0).await? else { return Ok(false) };
    // In a stream that was created again, the session's `last_seq` does not count.
    let is_new = stream.is_some_and(|stream| stream != first.stream) || first.seq > *last_seq;
    // The first message may be processed already, with its acknowledgement on the way.
    Ok(is_new || queue.next_in_lane(session_id, *last_seq, 0).await?.is_some())
}

/// The place of a turn in the listing of its session.
pub fn turn_place(turn: &TurnRecord) -> TurnPlace {
    (turn.started_at, (turn.committed_at, turn.turn_id.clone()))
}

/// A turn with its steps.
#[derive(Clone, Debug, Serialize, Deserialize, schemars::JsonSchema)]
pub struct TurnDetails {
    /// The record of the turn.
    #[serde(flatten)]
    pub turn: TurnRecord,
    /// The recorded steps of the turn, ordered by key.
    pub steps: Vec<StepRecord>,
    /// The cursor of the next steps: give it as `after`. Missing at the end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
}

#[cfg(test)]
mod tests {
    use super::*;
    use types::event::{EventType, OutEvent};
    use types::session::{Lease, OpenTurn, Status};
    use types::timestamp::Timestamp;

    #[test]
    fn lease_open_turn_and_outbox_are_not_shown() {
        let at = Timestamp::from_millis(0);
        let mut session = Session::new("s1", at);
        session.lease = Some(Lease { owner: "w1".into(), until: at, token: "t".into() });
        session.turn =
            Some(OpenTurn { seq: 1, agent_id: "a".into(), hash: "h".into(), status: Status::Ready, at, attempt: 1 });
        session.outbox = vec![OutEvent {
            channel: "web".into(),
            session_id: "s1".into(),
            event_type: EventType::Status,
            msg_id: None,
            payload: "{}".into(),
        }];
        let document = serde_json::to_value(public_view(session)).unwrap();
        assert!(["lease", "turn", "outbox"].iter().all(|field| document.get(field).is_none()));
        assert_eq!(document["session_id"], "s1");
        assert_eq!(document["workflow_state"]["status"], "ready");
        let read: Session = serde_json::from_value(document).unwrap();
        assert_eq!(read.session_id, "s1");
    }
}
