//! Reads a turn's published events back from the stream.
//!
//! An abandoned turn is cancelled on top of the events that any of its attempts has published. So its statuses form
//! one chain, and the history has the replies that the user has seen.

use super::state::Turn;
use crate::execution::TurnError;
use crate::execution::read_back::{is_answer, read_back};
use std::collections::HashSet;
use std::sync::Arc;
use types::authoring;
use types::event::{Event, EventType, Reply, ReplyKind, StepEvent};
use types::excerpt;
use types::job::JobBody;
use types::session::{Entry, Role, history};
use types::turn::StatusAt;

/// Key of the step event that marks the end of the events to read, for an abandoned turn.
const GIVEN_UP_MARK: &str = "given_up";

impl Turn<'_> {
    /// Adopts the statuses and replies that earlier attempts of the turn have published. Returns the events of an
    /// authoring dialogue among them.
    pub(super) async fn adopt_published(&mut self) -> Result<Vec<authoring::Event>, TurnError> {
        let published = self.publish_mark_and_read_back(GIVEN_UP_MARK).await?;
        self.remember_user();
        // The stream may have a reply twice: the queue forgets the ids of messages after a while.
        let (mut adopted, mut shown) = (HashSet::new(), Vec::new());
        for event in published {
            match event {
                Event::Status(event) => self.adopt_status(StatusAt { status: event.status, at: event.at }),
                Event::Reply(reply) => {
                    self.reply_stream.recall(&reply);
                    if reply.kind != ReplyKind::Chunk && adopted.insert(reply.reply_id.clone()) {
                        self.adopt_reply(reply);
                    }
                }
                Event::Authoring(event) => shown.push(Arc::unwrap_or_clone(event)),
                Event::Step(_) | Event::Run(_) | Event::Decision(_) | Event::Turn(_) | Event::Handoff(_) => {}
            }
        }
        Ok(shown)
    }

    /// Publishes a `mark` on the stream and returns this turn's events before it. The mark's id contains the epoch: a
    /// repeat under the same epoch finds the same mark, and a later lease holder also finds the events published
    /// since.
    pub(super) async fn publish_mark_and_read_back(&mut self, mark: &str) -> Result<Vec<Event>, TurnError> {
        let (session_id, turn_id) = (self.session.session_id.clone(), self.turn_id().to_owned());
        let epoch = self.session.epoch.to_string();
        let event = StepEvent::ended(&session_id, &turn_id, mark, mark, &epoch, false, 0);
        self.publish(EventType::Step, &format!("step/{mark}-{epoch}"), &event);
        self.flush().await?;
        let of_turn = |published| match published {
            Event::Status(status) if status.turn_id == turn_id => Some(Event::Status(status)),
            Event::Reply(reply) if reply.turn_id == turn_id => Some(Event::Reply(reply)),
            Event::Authoring(event) if event.turn_id == turn_id => Some(Event::Authoring(event)),
            _ => None,
        };
        read_back(self.services.queue.as_ref(), &event, of_turn).await
    }

    fn adopt_reply(&mut self, reply: Reply) {
        if reply.kind == ReplyKind::Greeting {
            self.mark_greeted();
        }
        self.answered |= is_answer(reply.kind);
        self.replies += 1;
        let by_human = self.jobs.iter().any(|job| matches!(job.body, JobBody::Reply { .. }));
        self.entries.push(Entry {
            role: if by_human { Role::Human } else { Role::Assistant },
            text: excerpt::cut(&reply.text, history::MAX_TEXT).into_owned(),
            at: reply.at,
            turn_id: reply.turn_id,
            kind: Some(reply.kind.as_str().to_owned()),
            metadata: reply.metadata.into(),
        });
    }
}
