//! Acquiring lanes. Each request takes the cheapest way that works:
//!
//! 1. This process released the session last and has it in its cache: a plain update takes the lane without a read. The
//!    [`fence`](super::fence) lets it apply only if no other process has held the lane since.
//! 2. Another process released the session: it is read, then taken by the same plain update.
//! 3. The session does not exist: it is inserted with its lease.
//! 4. Anything else, for example a lane with a lease or an open turn: an update with a pipeline decides on the server,
//!    and the document is read back.

use super::Db;
use super::command::Bulk;
use super::document::{date, int, literal, millis, raw};
use super::fence::held_expression;
use super::lane::{Failure, read_session};
use super::update_ops::{new_session, reacquire};
use bson::raw::cstr;
use bson::{Bson, DateTime, Document, RawDocumentBuf, doc};
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;
use storage::store::lane::{self, AcquireOutcome};
use storage::store::records::{Acquire, Acquired, Grant, Rewind};
use storage::store::{Result, StoreError};
use types::session::{Kind, Session};
use types::timestamp::Timestamp;
use types::turn::TurnMark;

/// The minimum time that the session of a run is kept. No run takes this long.
const RUN_SESSION_RETENTION: Duration = Duration::from_secs(7 * 86_400);

/// A request with its index in the group.
type IndexedRequest<'i> = (usize, &'i Acquire);

impl Db {
    pub(super) async fn acquire_all(self, items: Arc<Vec<Acquire>>) -> Result<Vec<Result<Acquired>>> {
        let (mut left, mut others) = (Vec::new(), Vec::new());
        for (index, item) in items.iter().enumerate() {
            match self.take_released(item) {
                Some(session) => left.push(((index, item), session)),
                None => others.push((index, item)),
            }
        }
        // In parallel with the update that takes the lanes, which takes longer.
        let with_forgotten_jobs = with_forgotten_jobs(left.iter());
        let (mut outcomes, taken, marks) = futures::try_join!(
            self.reacquire(left),
            self.acquire_uncached(others),
            self.turn_marks(with_forgotten_jobs)
        )?;
        note_earlier(&mut outcomes, &marks);
        outcomes.extend(taken);
        let missed: Vec<IndexedRequest<'_>> =
            items.iter().enumerate().filter(|(index, _)| !outcomes.contains_key(index)).collect();
        outcomes.extend(self.acquire_uncached(missed).await?);
        let lost = || Err(StoreError::Unavailable("MongoDB returned no result for this acquisition".into()));
        Ok((0..items.len()).map(|index| outcomes.remove(&index).unwrap_or_else(lost)).collect())
    }

    /// The session as it will be after the acquisition, from the cache of released sessions.
    fn take_released(&self, item: &Acquire) -> Option<Session> {
        self.taken(self.cache.take_released(&item.session_id)?, item)
    }

    /// The session as it will be after the acquisition; `None` when a plain update cannot take its lane.
    fn taken(&self, mut session: Session, item: &Acquire) -> Option<Session> {
        if item.rewind.is_some() {
            return None;
        }
        let left = session.lease.is_none() && session.turn.is_none();
        let mut taken = || lane::acquire(&mut session, item, self.clock.latest());
        (left && taken() == AcquireOutcome::Granted { resumed: false }).then_some(session)
    }

    /// Reads the sessions, then takes the lanes that are free, inserts the sessions that do not exist, and lets the
    /// server decide on the others.
    async fn acquire_uncached(&self, items: Vec<IndexedRequest<'_>>) -> Result<HashMap<usize, Result<Acquired>>> {
        if items.is_empty() {
            return Ok(HashMap::new());
        }
        let ids = items.iter().map(|(_, item)| item.session_id.as_str()).collect();
        let documents = self.session_documents(ids, None).await?;
        let (mut left, mut unreadable) = (Vec::new(), HashMap::new());
        for (index, item) in &items {
            match documents.get(&item.session_id).map(read_session) {
                Some(Ok(session)) => left.extend(self.taken(session, item).map(|session| ((*index, *item), session))),
                // The acquisition fails and counts no attempt. A worker of another version that can decode the session
                // takes the lane.
                Some(Err(error)) => drop(unreadable.insert(*index, Err(error))),
                None => {}
            }
        }
        let missing = items.iter().filter(|(_, item)| !documents.contains_key(&item.session_id)).copied().collect();
        let with_forgotten_jobs = with_forgotten_jobs(left.iter());
        let (mut outcomes, made, marks) = futures::try_join!(
            self.reacquire(left),
            self.insert_sessions(missing),
            self.turn_marks(with_forgotten_jobs)
        )?;
        note_earlier(&mut outcomes, &marks);
        outcomes.extend(made);
        outcomes.extend(unreadable);
        let rest = items.into_iter().filter(|(index, _)| !outcomes.contains_key(index)).collect();
        outcomes.extend(self.acquire_by_pipeline(rest).await?);
        Ok(outcomes)
    }

    /// Takes the lanes of released sessions by plain updates. Sessions that another process has changed since are
    /// missing in the result.
    async fn reacquire(&self, left: Vec<(IndexedRequest<'_>, Session)>) -> Result<HashMap<usize, Result<Acquired>>> {
        if left.is_empty() {
            return Ok(HashMap::new());
        }
        let statements = left.iter().map(|(_, session)| reacquire(session)).collect::<Result<Vec<_>>>()?;
        let failures = self.bulk(Bulk::Update("sessions"), &statements).await?;
        let sessions = left.into_iter().map(|((index, _), session)| (index, session));
        Ok(self.granted(sessions, &failures))
    }

    /// Inserts sessions with their leases. Sessions that another process inserted first are missing in the result.
    async fn insert_sessions(&self, missing: Vec<IndexedRequest<'_>>) -> Result<HashMap<usize, Result<Acquired>>> {
        if missing.is_empty() {
            return Ok(HashMap::new());
        }
        let now = self.clock.latest();
        let begin = |(index, item): (usize, &Acquire)| {
            let mut session = lane::new_session(item, now);
            (lane::acquire(&mut session, item, now) == AcquireOutcome::Granted { resumed: false })
                .then_some((index, session))
        };
        let made: Vec<_> = missing.into_iter().filter_map(begin).collect();
        let expires_at = now.plus(self.retention.max(RUN_SESSION_RETENTION));
        let document = |(_, session): &(usize, Session)| {
            let mut document = new_session(session)?;
            if session.kind == Kind::Run {
                document.append(cstr!("expires_at"), DateTime::from_millis(expires_at.as_millis()));
            }
            Ok(document)
        };
        let documents = made.iter().map(document).collect::<Result<Vec<_>>>()?;
        let failures = self.bulk(Bulk::Insert("sessions"), &documents).await?;
        Ok(self.granted(made.into_iter(), &failures))
    }

    /// The grants of the statements that did not fail, by index.
    fn granted(
        &self,
        sessions: impl Iterator<Item = (usize, Session)>,
        failures: &HashMap<usize, Failure>,
    ) -> HashMap<usize, Result<Acquired>> {
        let counted = sessions.enumerate().filter(|(place, _)| !failures.contains_key(place));
        let granted = counted.map(|(_, (index, session))| {
            self.cache.put(session.clone());
            (index, Ok(Acquired::Granted(Box::new(Grant { session, resumed: false, earlier: None }))))
        });
        granted.collect()
    }

    async fn acquire_by_pipeline(&self, items: Vec<IndexedRequest<'_>>) -> Result<HashMap<usize, Result<Acquired>>> {
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
            match failures.get(&place) {
                // Two processes create the same session concurrently: one of them has to retry.
                Some(failure) if failure.is_duplicate() => {
                    return Err(StoreError::Unavailable(failure.problem.clone()));
                }
                Some(failure) => return Err(failure.error()),
                None => {}
            }
            match documents.get(&item.session_id) {
                Some(document) => acquired(item, document),
                None => Err(StoreError::Unavailable("the session was deleted during its acquisition".into())),
            }
        };
        let outcomes = items.iter().enumerate().map(|(place, (index, item))| (*index, outcome(place, item)));
        let outcomes: HashMap<usize, Result<Acquired>> = outcomes.collect();
        for (index, item) in &items {
            match outcomes.get(index) {
                Some(Ok(Acquired::Granted(grant))) => self.cache.put(grant.session.clone()),
                // Another version of the program changed the document between the read and the update.
                Some(Err(StoreError::Damaged { .. })) => self.release_undecodable(item, &documents).await?,
                _ => {}
            }
        }
        Ok(outcomes)
    }

    /// Releases the lane of a session that cannot be decoded, if it was taken for `item`.
    async fn release_undecodable(&self, item: &Acquire, documents: &HashMap<String, RawDocumentBuf>) -> Result<()> {
        let Some(document) = documents.get(&item.session_id) else { return Ok(()) };
        let lease = document.get_document("lease").ok();
        let ours = lease.and_then(|lease| lease.get_str("token").ok()) == Some(item.token.as_str());
        let epoch = document.get_i64("epoch").ok().and_then(|epoch| u64::try_from(epoch).ok());
        match epoch.filter(|_| ours) {
            Some(epoch) => self.release(&item.session_id, epoch, false).await.map(|_| ()),
            None => Ok(()),
        }
    }
}

/// The requests whose sessions may have processed their job and dropped it from `recent_jobs`.
fn with_forgotten_jobs<'i, 's>(
    taken: impl Iterator<Item = &'s (IndexedRequest<'i>, Session)>,
) -> Vec<IndexedRequest<'i>>
where
    'i: 's,
{
    taken.filter(|(_, session)| session.forgets_jobs()).map(|(placed, _)| *placed).collect()
}

fn note_earlier(outcomes: &mut HashMap<usize, Result<Acquired>>, marks: &HashMap<usize, Option<TurnMark>>) {
    for (index, mark) in marks {
        if let Some(Ok(Acquired::Granted(grant))) = outcomes.get_mut(index) {
            grant.earlier = Some(*mark);
        }
    }
}

fn acquired(item: &Acquire, document: &RawDocumentBuf) -> Result<Acquired> {
    let lease = document.get_document("lease").ok();
    if lease.and_then(|lease| lease.get_str("token").ok()) == Some(item.token.as_str()) {
        let resumed = lease.and_then(|lease| lease.get_bool("resumed").ok()).unwrap_or(true);
        let session = read_session(document)?;
        return Ok(Acquired::Granted(Box::new(Grant { session, resumed, earlier: None })));
    }
    let stream = document.get_datetime("stream").ok().map(|at| at.timestamp_millis());
    if stream.is_some_and(|stream| stream != item.stream.as_millis()) {
        return Ok(Acquired::OtherStream);
    }
    if document.get_i64("last_seq").is_ok_and(|last_seq| last_seq >= int(item.seq)) {
        return Ok(Acquired::Handled);
    }
    let until = lease.and_then(|lease| lease.get_datetime("until").ok()).map_or(0, bson::DateTime::timestamp_millis);
    Ok(Acquired::Busy(Timestamp::from_millis(until)))
}

/// The update of [`storage::store::Store::acquire`] as a pipeline. Its first stages compute the facts, the later ones
/// act on them.
fn acquire_pipeline(item: &Acquire) -> Vec<Document> {
    let seq = int(item.seq);
    let nothing = bson::DateTime::from_millis(0);
    let facts = doc! {
        "_new": {"$and": [
            {"$in": [{"$ifNull": ["$stream", Bson::Null]}, [Bson::Null, date(item.stream)]]},
            {"$lt": [{"$ifNull": ["$last_seq", 0_i64]}, seq]},
        ]},
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
    let mut pipeline: Vec<Document> =
        item.rewind.iter().map(|found| doc! {"$set": rewound(found, item.stream)}).collect();
    pipeline.extend([doc! {"$set": facts}, doc! {"$set": granted}, doc! {"$set": changes}]);
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
    // Without the fence, the lease holder's plain commit fails, so that it does not release a lane with another job.
    let kept = doc! {"$cond": ["$_new", "$$REMOVE", {"$ifNull": ["$fence", "$$REMOVE"]}]};
    pipeline.push(doc! {"$set": {"fence": {"$cond": ["$_granted", held_expression(), kept]}}});
    pipeline.push(doc! {"$unset": ["_new", "_free", "_resumed", "_granted"]});
    pipeline
}

/// The fields that a rewind sets if the lane is free and the session still has the values that the caller has read.
fn rewound(found: &Rewind, stream: Timestamp) -> Document {
    let nothing = bson::DateTime::from_millis(0);
    let here = doc! {"$and": [
        {"$gt": ["$created_at", Bson::Null]},
        {"$lte": [{"$ifNull": ["$lease.until", nothing]}, "$$NOW"]},
        {"$eq": [{"$ifNull": ["$stream", Bson::Null]}, found.stream.map_or(Bson::Null, date)]},
        {"$eq": [{"$ifNull": ["$last_seq", 0_i64]}, int(found.last_seq)]},
    ]};
    let then = |then: Bson, field: &str| doc! {"$cond": [here.clone(), then, {"$ifNull": [field, "$$REMOVE"]}]};
    let turn = doc! {"$cond": [
        {"$eq": [{"$type": "$turn"}, "object"]},
        {"$mergeObjects": ["$turn", {"seq": 0_i64, "attempt": 0, "agent_id": "", "hash": ""}]},
        "$$REMOVE",
    ]};
    doc! {
        "stream": then(date(stream), "$stream"),
        "last_seq": then(int(found.to).into(), "$last_seq"),
        "pending_seq": then(int(found.to).into(), "$pending_seq"),
        "turn": then(turn.into(), "$turn"),
    }
}

/// The fields of a session that does not exist yet.
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
        // An existing session without `stream` may count in another stream, so it does not get this one.
        "stream": or("$stream", doc! {"$cond": [{"$gt": ["$created_at", Bson::Null]}, "$$REMOVE", date(item.stream)]}.into()),
        "last_seq": or("$last_seq", Bson::Int64(0)),
        "recent_jobs": or("$recent_jobs", Bson::Array(vec![])),
        "closed_at": or("$closed_at", Bson::Null),
        "tokens": or("$tokens", Bson::Int64(0)),
        "created_at": or("$created_at", "$$NOW".into()),
    }
}
