//! Taking a lane. A session that this process left last is taken without being read: by a plain update that counts only
//! if nobody else has had it since. One that another process has left is read first, and one that does not exist is
//! inserted. For any other a pipeline decides, and the document is read back.

use super::Db;
use super::command::Bulk;
use super::document::{int, literal, millis, raw};
use super::fence::held_expression;
use super::lane::{Failure, read_session};
use super::plain::{fresh, retake};
use crate::clock::Timestamp;
use crate::session::{Kind, Session};
use crate::store::lane::{self, Taken};
use crate::store::{Acquire, Acquired, Grant, Result, StoreError};
use bson::raw::cstr;
use bson::{Bson, DateTime, Document, RawDocumentBuf, doc};
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

/// The least time that the lane of a run is kept, which is longer than any run takes.
const LANE_OF_RUN: Duration = Duration::from_secs(7 * 86_400);

/// One wish of several, with its place among them.
type Placed<'i> = (usize, &'i Acquire);

impl Db {
    pub(super) async fn acquire_all(self, items: Arc<Vec<Acquire>>) -> Result<Vec<Result<Acquired>>> {
        let (mut left, mut others) = (Vec::new(), Vec::new());
        for (index, item) in items.iter().enumerate() {
            match self.take_left(item) {
                Some(session) => left.push(((index, item), session)),
                None => others.push((index, item)),
            }
        }
        let (mut outcomes, taken) = futures::try_join!(self.retake(left), self.take_unknown(others))?;
        outcomes.extend(taken);
        let missed: Vec<Placed<'_>> =
            items.iter().enumerate().filter(|(index, _)| !outcomes.contains_key(index)).collect();
        outcomes.extend(self.take_unknown(missed).await?);
        let lost = || Err(StoreError::Unavailable("no answer for this one".into()));
        Ok((0..items.len()).map(|index| outcomes.remove(&index).unwrap_or_else(lost)).collect())
    }

    /// The session as it will be if it is still as this process left it.
    fn take_left(&self, item: &Acquire) -> Option<Session> {
        self.taken(self.known.take_left(&item.session_id)?, item)
    }

    /// A session that was left as it will be once it is taken; `None` when it is not to be had so.
    fn taken(&self, mut session: Session, item: &Acquire) -> Option<Session> {
        let left = session.lease.is_none() && session.turn.is_none();
        let mut taken = || lane::acquire(&mut session, item, self.clock.latest());
        (left && taken() == Taken::Granted { resumed: false }).then_some(session)
    }

    /// Reads sessions, takes the lanes of those that were left, and makes those that do not exist; the others are decided.
    async fn take_unknown(&self, items: Vec<Placed<'_>>) -> Result<HashMap<usize, Result<Acquired>>> {
        if items.is_empty() {
            return Ok(HashMap::new());
        }
        let ids = items.iter().map(|(_, item)| item.session_id.as_str()).collect();
        let documents = self.session_documents(ids, None).await?;
        let left = items.iter().filter_map(|(index, item)| {
            let session = read_session(documents.get(&item.session_id)?).ok()?;
            Some(((*index, *item), self.taken(session, item)?))
        });
        let left = left.collect();
        let missing = items.iter().filter(|(_, item)| !documents.contains_key(&item.session_id)).copied().collect();
        let (mut outcomes, made) = futures::try_join!(self.retake(left), self.make(missing))?;
        outcomes.extend(made);
        let rest = items.into_iter().filter(|(index, _)| !outcomes.contains_key(index)).collect();
        outcomes.extend(self.decide(rest).await?);
        Ok(outcomes)
    }

    /// Takes lanes of sessions as they were left; those that somebody else has had since are missing in the answer.
    async fn retake(&self, left: Vec<(Placed<'_>, Session)>) -> Result<HashMap<usize, Result<Acquired>>> {
        if left.is_empty() {
            return Ok(HashMap::new());
        }
        let statements = left.iter().map(|(_, session)| retake(session)).collect::<Result<Vec<_>>>()?;
        let failures = self.bulk(Bulk::Update("sessions"), &statements).await?;
        let sessions = left.into_iter().map(|((index, _), session)| (index, session));
        Ok(self.granted(sessions, &failures))
    }

    /// Makes sessions, held; those that somebody else has made first are missing in the answer.
    async fn make(&self, missing: Vec<Placed<'_>>) -> Result<HashMap<usize, Result<Acquired>>> {
        if missing.is_empty() {
            return Ok(HashMap::new());
        }
        let now = self.clock.latest();
        let begin = |(index, item): (usize, &Acquire)| {
            let mut session = lane::begin(item, now);
            (lane::acquire(&mut session, item, now) == Taken::Granted { resumed: false }).then_some((index, session))
        };
        let made: Vec<_> = missing.into_iter().filter_map(begin).collect();
        let expires_at = now.plus(self.retention.max(LANE_OF_RUN));
        let document = |(_, session): &(usize, Session)| {
            let mut document = fresh(session)?;
            if session.kind == Kind::Run {
                document.append(cstr!("expires_at"), DateTime::from_millis(expires_at.as_millis()));
            }
            Ok(document)
        };
        let documents = made.iter().map(document).collect::<Result<Vec<_>>>()?;
        let failures = self.bulk(Bulk::Insert("sessions"), &documents).await?;
        Ok(self.granted(made.into_iter(), &failures))
    }

    /// The grants of the statements that did not fail.
    fn granted(
        &self,
        sessions: impl Iterator<Item = (usize, Session)>,
        failures: &HashMap<usize, Failure>,
    ) -> HashMap<usize, Result<Acquired>> {
        let counted = sessions.enumerate().filter(|(place, _)| !failures.contains_key(place));
        let granted = counted.map(|(_, (index, session))| {
            self.known.put(session.clone());
            (index, Ok(Acquired::Granted(Box::new(Grant { session, resumed: false }))))
        });
        granted.collect()
    }

    async fn decide(&self, items: Vec<Placed<'_>>) -> Result<HashMap<usize, Result<Acquired>>> {
        if items.is_empty() {
            return Ok(HashMap::new());
        }
        let statements: Vec<_> = items
            .iter()
            .map(|(_, item)| raw(&doc! {"q": {"_id": &item.session_id}, "u": acquire_pipeline(item), "upsert": true}))
            .collect::<Result<_>>()?;
        let failures = self.bulk(Bulk::Update("sessions"), &statements).await?;
        let ids = items.iter().map(|(_, item)| item.session_id.as_str()).collect();
        let documents = self.session_documents(ids, None).await?;
        let outcome = |place: usize, item: &Acquire| {
            // Two processes that create one session at once: the loser tries again.
            if let Some(failure) = failures.get(&place) {
                return Err(StoreError::Unavailable(failure.problem.clone()));
            }
            match documents.get(&item.session_id) {
                Some(document) => acquired(item, document),
                None => Err(StoreError::Unavailable("the session was deleted meanwhile".into())),
            }
        };
        let outcomes = items.iter().enumerate().map(|(place, (index, item))| (*index, outcome(place, item)));
        let outcomes: HashMap<usize, Result<Acquired>> = outcomes.collect();
        for outcome in outcomes.values() {
            if let Ok(Acquired::Granted(grant)) = outcome {
                self.known.put(grant.session.clone());
            }
        }
        Ok(outcomes)
    }
}

fn acquired(item: &Acquire, document: &RawDocumentBuf) -> Result<Acquired> {
    let lease = document.get_document("lease").ok();
    if lease.and_then(|lease| lease.get_str("token").ok()) == Some(item.token.as_str()) {
        let resumed = lease.and_then(|lease| lease.get_bool("resumed").ok()).unwrap_or(true);
        let session = read_session(document)?;
        return Ok(Acquired::Granted(Box::new(Grant { session, resumed })));
    }
    if document.get_i64("last_seq").is_ok_and(|last_seq| last_seq >= int(item.seq)) {
        return Ok(Acquired::Handled);
    }
    let until = lease.and_then(|lease| lease.get_datetime("until").ok()).map_or(0, bson::DateTime::timestamp_millis);
    Ok(Acquired::Busy(Timestamp::from_millis(until)))
}

/// See [`crate::store::Store::acquire`]. The first stage says what is the case, the second acts on it.
fn acquire_pipeline(item: &Acquire) -> Vec<Document> {
    let seq = int(item.seq);
    let nothing = bson::DateTime::from_millis(0);
    let facts = doc! {
        "_new": {"$lt": [{"$ifNull": ["$last_seq", 0_i64]}, seq]},
        "_free": {"$lte": [{"$ifNull": ["$lease.until", nothing]}, "$$NOW"]},
        "_resumed": {"$eq": [{"$type": "$turn"}, "object"]},
    };
    let granted = doc! {"_granted": {"$and": ["$_new", "$_free"]}};
    let if_granted =
        |then: Bson, otherwise: &str| doc! {"$cond": ["$_granted", then, {"$ifNull": [otherwise, "$$REMOVE"]}]};
    let pin = item.pin.as_ref();
    let fresh = doc! {
        "seq": if pin.is_some() { seq } else { 0 },
        "agent_id": literal(pin.map(|pin| pin.agent_id.clone()).unwrap_or_default()),
        "hash": literal(pin.map(|pin| pin.hash.clone()).unwrap_or_default()),
        "status": {"$ifNull": ["$workflow_state.status", "ready"]},
        "at": "$$NOW",
        "attempt": 1,
    };
    let again = doc! {"$mergeObjects": ["$turn", {"attempt": {"$add": [{"$ifNull": ["$turn.attempt", 0]}, 1]}}]};
    let lease = doc! {
        "owner": literal(item.owner.clone()),
        "until": {"$add": ["$$NOW", millis(item.lease)]},
        "token": literal(item.token.clone()),
        "resumed": "$_resumed",
    };
    let mut changes = defaults(item);
    changes.extend(doc! {
        "pending_seq": {"$cond": ["$_new", {"$max": ["$pending_seq", seq]}, {"$ifNull": ["$pending_seq", 0_i64]}]},
        "epoch": {"$add": [{"$ifNull": ["$epoch", 0_i64]}, {"$cond": ["$_granted", 1_i64, 0_i64]}]},
        "turn": if_granted(doc! {"$cond": ["$_resumed", again, fresh]}.into(), "$turn"),
        "lease": if_granted(lease.into(), "$lease"),
        "waiting_since": if_granted("$$REMOVE".into(), "$waiting_since"),
        "updated_at": {"$ifNull": ["$updated_at", "$$NOW"]},
    });
    let mut pipeline = vec![doc! {"$set": facts}, doc! {"$set": granted}, doc! {"$set": changes}];
    if let Some(pin) = pin.filter(|pin| pin.announce) {
        let announced = doc! {"$and": [
            "$_granted",
            {"$not": ["$_resumed"]},
            {"$eq": ["$workflow_state.hash", literal(pin.hash.clone())]},
            {"$in": ["$workflow_state.status", ["ready", "cancelled"]]},
        ]};
        let status = doc! {"$cond": [announced, "processing", "$workflow_state.status"]};
        pipeline.push(doc! {"$set": {"workflow_state.status": status}});
    }
    // A holder that is asked for more must not leave as if it were not.
    let kept = doc! {"$cond": ["$_new", "$$REMOVE", {"$ifNull": ["$fence", "$$REMOVE"]}]};
    pipeline.push(doc! {"$set": {"fence": {"$cond": ["$_granted", held_expression(), kept]}}});
    pipeline.push(doc! {"$unset": ["_new", "_free", "_resumed", "_granted"]});
    pipeline
}

/// What an unknown session starts with.
fn defaults(item: &Acquire) -> Document {
    let new = &item.new_session;
    let or = |field: &str, value: Bson| doc! {"$ifNull": [field, value]};
    let kind = bson::serialize_to_bson(&new.kind).unwrap_or(Bson::Null);
    doc! {
        "agent_id": or("$agent_id", literal(new.agent_id.clone())),
        "user_id": or("$user_id", literal(new.user_id.clone())),
        "channel": or("$channel", literal(new.channel.clone())),
        "kind": or("$kind", literal(kind)),
        "workflow_state": or("$workflow_state", literal(doc! {"hash": "", "need_greeting": true, "status": "ready"})),
        "status_reason": or("$status_reason", Bson::Null),
        "profile": or("$profile", literal(doc! {})),
        "history": or("$history", Bson::Array(vec![])),
        "timers": or("$timers", Bson::Array(vec![])),
        "timer_generation": or("$timer_generation", Bson::Int64(0)),
        "last_seq": or("$last_seq", Bson::Int64(0)),
        "recent_jobs": or("$recent_jobs", Bson::Array(vec![])),
        "closed_at": or("$closed_at", Bson::Null),
        "tokens": or("$tokens", Bson::Int64(0)),
        "created_at": or("$created_at", "$$NOW".into()),
    }
}
