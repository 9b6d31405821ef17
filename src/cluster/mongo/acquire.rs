//! Acquiring lanes. [`lane::acquire`] decides, and this module writes the result. Each request takes the cheapest way
//! that works:
//!
//! 1. This process released the session last and has it in its cache: an update takes the lane without a read. The
//!    [`fence`](super::fence) lets it apply only if no other process has held the lane since.
//! 2. Another process released the session: it is read, then taken by the same update.
//! 3. The session does not exist: it is inserted with its lease.
//! 4. Anything else, for example a lane with a lease or an open turn: the session is read, and the update applies only
//!    if the lane's fields are still as they were read. Otherwise the session is read again.

use super::Db;
use super::command::Bulk;
use super::lane::{MAX_CONFLICTS, StatementFailure, conflict, read_session};
use super::update_ops::{acquire_unchanged, new_session, reacquire, request_unchanged};
use bson::raw::cstr;
use bson::{DateTime, RawDocumentBuf};
use futures::FutureExt;
use futures::stream::{self, StreamExt};
use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;
use storage::store::lane::{self, AcquireOutcome};
use storage::store::records::{Acquire, Acquired, Grant};
use storage::store::{Result, StoreError};
use types::session::{Kind, Session};
use types::turn::TurnMark;

/// The minimum time that the session of a run is kept. No run takes this long.
const RUN_SESSION_RETENTION: Duration = Duration::from_secs(7 * 86_400);

/// How many lanes are acquired by conditional updates at the same time.
const CONCURRENT_ACQUISITIONS: usize = 16;

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
        let lost = || Err(StoreError::unavailable("MongoDB returned no result for this acquisition"));
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
        let mut taken = || lane::acquire(&mut session, item, self.clock.bounds());
        (left && taken() == AcquireOutcome::Granted { resumed: false }).then_some(session)
    }

    /// Reads the sessions, then takes the lanes that are free, inserts the sessions that do not exist, and acquires the
    /// others one by one.
    async fn acquire_uncached(&self, items: Vec<IndexedRequest<'_>>) -> Result<HashMap<usize, Result<Acquired>>> {
        if items.is_empty() {
            return Ok(HashMap::new());
        }
        let ids = items.iter().map(|(_, item)| item.session_id.as_str()).collect();
        let mut documents = self.session_documents(ids, None).await?;
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
        let tried: HashSet<usize> = left.iter().map(|((index, _), _)| *index).collect();
        let with_forgotten_jobs = with_forgotten_jobs(left.iter());
        let (mut outcomes, made, marks) = futures::try_join!(
            self.reacquire(left),
            self.insert_sessions(missing),
            self.turn_marks(with_forgotten_jobs)
        )?;
        note_earlier(&mut outcomes, &marks);
        outcomes.extend(made);
        outcomes.extend(unreadable);
        let mut rest = Vec::new();
        for (index, item) in items {
            if !outcomes.contains_key(&index) {
                // A plain update that was refused has shown that the document is outdated.
                let known = documents.remove(&item.session_id).filter(|_| !tried.contains(&index));
                rest.push(self.acquire_unchanged(item, known).map(move |acquired| (index, acquired)).boxed());
            }
        }
        let acquired: Vec<_> = stream::iter(rest).buffer_unordered(CONCURRENT_ACQUISITIONS).collect().await;
        outcomes.extend(acquired);
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
        let refused = |(place, failure): (&usize, &StatementFailure)| Some((made.get(*place)?.0, Err(failure.error())));
        let refused: Vec<_> =
            failures.iter().filter(|(_, failure)| !failure.is_duplicate()).filter_map(refused).collect();
        let mut outcomes = self.granted(made.into_iter(), &failures);
        outcomes.extend(refused);
        Ok(outcomes)
    }

    /// The grants of the statements that did not fail, by index.
    fn granted(
        &self,
        sessions: impl Iterator<Item = (usize, Session)>,
        failures: &HashMap<usize, StatementFailure>,
    ) -> HashMap<usize, Result<Acquired>> {
        let counted = sessions.enumerate().filter(|(place, _)| !failures.contains_key(place));
        let granted = counted.map(|(_, (index, session))| {
            self.cache.put(session.clone());
            (index, Ok(Acquired::Granted(Box::new(Grant { session, resumed: false, earlier: None }))))
        });
        granted.collect()
    }

    /// Reads the session unless it is known, applies the rules, and writes the result if the lane has not changed since.
    async fn acquire_unchanged(&self, item: &Acquire, mut known: Option<RawDocumentBuf>) -> Result<Acquired> {
        for _ in 0..MAX_CONFLICTS {
            let document = match known.take() {
                Some(document) => Some(document),
                None => self.session_document(&item.session_id).await?,
            };
            let Some(document) = document else {
                // The session was deleted meanwhile, or never existed.
                match self.insert_sessions(vec![(0, item)]).await?.remove(&0) {
                    Some(made) => return made,
                    None => continue,
                }
            };
            // A session that cannot be decoded is not acquired and counts no attempt. A worker of another version that
            // can decode it takes the lane.
            let before = read_session(&document)?;
            let mut session = before.clone();
            let (update, acquired) = match lane::acquire(&mut session, item, self.clock.bounds()) {
                AcquireOutcome::Handled => return Ok(Acquired::Handled),
                AcquireOutcome::OtherStream => return Ok(Acquired::OtherStream),
                // The lease holder knows of this job already, or will find it at its commit.
                AcquireOutcome::Busy(until) if session.pending_seq == before.pending_seq => {
                    return Ok(Acquired::Busy(until));
                }
                AcquireOutcome::Busy(until) => (request_unchanged(&document, &session)?, Acquired::Busy(until)),
                AcquireOutcome::Granted { resumed } => {
                    let update = acquire_unchanged(&document, &before, &session)?;
                    (update, Acquired::Granted(Box::new(Grant { session, resumed, earlier: None })))
                }
            };
            if self.update_one(update).await?.0 {
                if let Acquired::Granted(grant) = &acquired {
                    self.cache.put(grant.session.clone());
                }
                return Ok(acquired);
            }
        }
        Err(conflict(&item.session_id))
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
