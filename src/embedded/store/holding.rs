//! Holding a lane: it is taken with what the cache knows of its session, kept by renewals, and left by a commit.

use super::tables::Tables;
use super::{EmbeddedStore, history, turns};
use std::sync::Arc;
use std::time::Duration;
use storage::store::records::{Acquire, Acquired, Commit, Committed, LeaseKey};
use storage::store::session_cache::after_commit;
use storage::store::{Result, lane};
use types::session::Session;
use types::session::history::MAX_ENTRIES;

impl EmbeddedStore {
    /// Implements [`Store::acquire`](storage::store::Store::acquire).
    pub(super) async fn take_lane(&self, request: Acquire) -> Result<Acquired> {
        let (sessions, id) = (Arc::clone(&self.sessions), request.session_id.clone());
        let mut left = self.cache.take_released(&id);
        // The writer does not need the history, so it is not copied.
        let said = left.as_mut().map(|left| {
            let (history, transcript) = (std::mem::take(&mut left.history), std::mem::take(&mut left.transcript));
            (left.epoch, left.created_at, history, transcript)
        });
        let acquired = self.file.write(move |tables| sessions.acquire(tables, &request, left)).await?;
        let Acquired::Granted(mut grant) = acquired else { return Ok(acquired) };
        let session = &mut grant.session;
        match said {
            // No other holder in between, so the cached history is current.
            Some((epoch, created_at, history, transcript))
                if epoch + 1 == session.epoch && created_at == session.created_at =>
            {
                (session.history, session.transcript) = (history, transcript);
            }
            // Read outside the writer. Only the lease holder changes the history.
            _ => session.history = Arc::new(self.file.read(|read| history::read(read, &id))?),
        }
        self.cache.put(session.clone());
        Ok(Acquired::Granted(grant))
    }

    /// Implements [`Store::renew`](storage::store::Store::renew).
    pub(super) async fn renew_leases(&self, held: &[LeaseKey], lease: Duration) -> Result<Vec<LeaseKey>> {
        if held.is_empty() {
            return Ok(Vec::new());
        }
        let (sessions, held) = (Arc::clone(&self.sessions), held.to_vec());
        let work = move |tables: &mut Tables<'_>| {
            let (now, mut lost) = (tables.clock.now(), Vec::new());
            for one in held {
                let renew = |session: &mut Session| lane::renew(session, one.epoch, lease, now);
                if !sessions.change(tables, &one.session_id, renew)? {
                    lost.push(one);
                }
            }
            Ok(lost)
        };
        Ok(self.file.write(work).await?)
    }

    /// Implements [`Store::commit`](storage::store::Store::commit).
    pub(super) async fn commit_turn(&self, request: Commit) -> Result<Committed> {
        let granted = self.cache.take_granted(&request.session_id, request.epoch);
        let encoded = request.change.as_deref().map(turns::Encoded::from_change).transpose()?;
        let (sessions, request) = (Arc::clone(&self.sessions), Arc::new(request));
        let asked = Arc::clone(&request);
        let publisher = self.file.publisher();
        let (publishes, readers) = (publisher.is_some(), publisher.clone());
        let work = move |tables: &mut Tables<'_>| {
            turns::commit(tables, &sessions, publisher.as_deref(), &asked, encoded.as_ref())
        };
        let then = move |left: &turns::CommitResult| {
            if let Some(readers) = readers {
                readers.notify_emitted(&left.published);
            }
        };
        let turns::CommitResult { committed, now, .. } = self.file.write_then(work, then).await?;
        if let (Committed::Released, Some(granted), true) = (committed, granted, request.change.is_some()) {
            let (mut left, _) = after_commit(granted, &request, now);
            left.outbox_unread &= !publishes;
            // The store drops older entries. A longer history in the cache would differ from the stored one.
            if left.history.len() <= MAX_ENTRIES {
                self.cache.put(left);
            }
        }
        Ok(committed)
    }
}
