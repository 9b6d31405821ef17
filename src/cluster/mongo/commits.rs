//! Commits of turns. [`after_commit`] decides what becomes of the session and its lane; this module writes it.
//!
//! Most lanes have no further job, and their sessions are in the cache. One bulk command commits and releases all of
//! them, guarded by the [`fence`](super::fence). The other commits are written one by one, also when the fence has
//! refused them because another worker has asked for the lane. Such an update applies only if the lane's fields are as
//! this process knows them. Otherwise the session is read again.

use super::command::{Bulk, Durability};
use super::journal::may_be_lost;
use super::lane::{MAX_CONFLICTS, Term, conflict, holds, read_session};
use super::{Db, update_ops};
use base::clock::moment;
use bson::doc;
use futures::FutureExt;
use futures::stream::{self, StreamExt};
use std::collections::HashMap;
use std::sync::Arc;
use storage::store::Result;
use storage::store::records::{Commit, Committed};
use storage::store::session_cache::after_commit;
use types::session::Session;
use types::timestamp::Timestamp;

/// How many commits are written by conditional updates at the same time.
const CONCURRENT_COMMITS: usize = 16;

/// A commit that is to be written, with its index in the group.
struct OpenCommit<'i> {
    index: usize,
    item: &'i Commit,
    /// The session as it was granted, from the cache.
    granted: Option<Session>,
}

/// The results of commits by index, each with the term of the primary that applied it.
type Results = HashMap<usize, Result<(Committed, Term)>>;

impl Db {
    pub(super) async fn commit_all(self, items: Arc<Vec<Commit>>) -> Result<Vec<Result<Committed>>> {
        let lost = self.lost_before(&items).await?;
        // Takes the sessions out of the cache. They return to it when the outcome is known.
        let granted = |item: &Commit| self.cache.take_granted(&item.session_id, item.epoch);
        let open = items.iter().enumerate().map(|(index, item)| OpenCommit { index, item, granted: granted(item) });
        let open: Vec<OpenCommit<'_>> = open.filter(|open| !lost.contains(&open.index)).collect();
        // The journal first: a committed turn must have its records.
        let turns: Vec<&Commit> = open.iter().map(|open| open.item).collect();
        let written = self.write_turns(&turns, Durability::Primary).await?;
        let now = self.clock.latest();
        let (plain, others) = open.into_iter().partition(OpenCommit::is_plain);
        let ((mut results, refused), checked) =
            futures::try_join!(self.commit_plain(plain, now), async { Ok(self.commit_checked(others, now).await) })?;
        results.extend(checked);
        results.extend(self.commit_checked(refused, now).await);
        if results.values().flatten().any(|(_, term)| may_be_lost(written, *term)) {
            // No durable command follows, so repeat the records durably.
            self.write_turns(&turns, Durability::Majority).await?;
        }
        let outcome =
            |index| results.remove(&index).map_or(Ok(Committed::Fenced), |found| found.map(|(outcome, _)| outcome));
        let outcomes: Vec<Result<Committed>> = (0..items.len()).map(outcome).collect();
        self.add_to_days(&items, &outcomes).await;
        Ok(outcomes)
    }

    /// Commits and releases lanes by one bulk command. Also returns the commits that the fence refuses.
    async fn commit_plain<'i>(
        &self,
        open: Vec<OpenCommit<'i>>,
        now: Timestamp,
    ) -> Result<(Results, Vec<OpenCommit<'i>>)> {
        let statements = open.iter().filter_map(|open| open.statement(now)).collect::<Result<Vec<_>>>()?;
        if statements.is_empty() {
            return Ok((HashMap::new(), open));
        }
        let (failures, term) = self.bulk_with(Bulk::Update("sessions"), &statements, Durability::Majority).await?;
        let (mut results, mut refused) = (HashMap::new(), Vec::new());
        for (place, mut commit) in open.into_iter().enumerate() {
            match commit.granted.take() {
                Some(granted) if !failures.contains_key(&place) => {
                    let (after, committed) = after_commit(granted, commit.item, now);
                    self.cache.put(after);
                    results.insert(commit.index, Ok((committed, term)));
                }
                _ => refused.push(commit),
            }
        }
        Ok((results, refused))
    }

    /// Commits turns one by one. Commits that are fenced are missing in the result.
    async fn commit_checked(&self, open: Vec<OpenCommit<'_>>, now: Timestamp) -> Results {
        let mut commits = Vec::with_capacity(open.len());
        for commit in open {
            let index = commit.index;
            commits.push(self.commit_one(commit, now).map(move |result| (index, result.transpose())).boxed());
        }
        let results: Vec<_> = stream::iter(commits).buffer_unordered(CONCURRENT_COMMITS).collect().await;
        results.into_iter().filter_map(|(index, result)| Some((index, result?))).collect()
    }

    /// Returns `None` when the lane is lost.
    async fn commit_one(&self, mut open: OpenCommit<'_>, now: Timestamp) -> Result<Option<(Committed, Term)>> {
        let item = open.item;
        for _ in 0..MAX_CONFLICTS {
            let granted = match open.granted.take() {
                Some(granted) => granted,
                None => match self.session_document(&item.session_id).await? {
                    Some(document) if holds(&document, item.epoch) => read_session(&document)?,
                    _ => return Ok(None),
                },
            };
            let (after, committed) = after_commit(granted.clone(), item, now);
            let statement = update_ops::commit_unchanged(item, &granted, &after)?;
            let (matched, term) = self.update_one(statement).await?;
            if matched {
                self.cache.put(after);
                return Ok(Some((committed, term)));
            }
        }
        Err(conflict(&item.session_id))
    }

    /// Returns the indexes of commits whose lanes are already lost. A turn's record is written before its commit
    /// applies, so the store first checks every lease that may have expired.
    async fn lost_before(&self, items: &[Commit]) -> Result<Vec<usize>> {
        let now = moment();
        let sure = |item: &Commit| item.change.is_none() || item.sure_until.is_some_and(|until| now < until);
        let unsure: Vec<(usize, &Commit)> = items.iter().enumerate().filter(|(_, item)| !sure(item)).collect();
        if unsure.is_empty() {
            return Ok(Vec::new());
        }
        let ids = unsure.iter().map(|(_, item)| item.session_id.as_str()).collect();
        let documents = self.session_documents(ids, Some(doc! {"epoch": 1, "lease": 1})).await?;
        let holder =
            |item: &Commit| documents.get(&item.session_id).is_some_and(|document| holds(document, item.epoch));
        Ok(unsure.into_iter().filter(|(_, item)| !holder(item)).map(|(at, _)| at).collect())
    }
}

impl OpenCommit<'_> {
    /// True when, as far as this process knows, the commit releases the lane of a session in the cache.
    fn is_plain(&self) -> bool {
        let releases = |granted: &Session| granted.pending_seq <= self.item.last_seq;
        self.item.change.is_some() && self.granted.as_ref().is_some_and(releases)
    }

    fn statement(&self, now: Timestamp) -> Option<Result<bson::RawDocumentBuf>> {
        let (change, granted) = (self.item.change.as_deref()?, self.granted.as_ref()?);
        Some(update_ops::commit(self.item, change, granted, now))
    }
}
