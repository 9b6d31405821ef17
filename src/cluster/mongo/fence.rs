//! The fence of a session: it makes an update apply only under the epoch that it was written for, and only once.
//!
//! The usual fence is a filter such as `{_id, epoch}`. With it the server plans a query for each update, and this
//! planning took 40 % of its time for the two updates of a turn. A filter by `_id` alone takes the server's fastest
//! path to the document. So here the condition is part of the update instead: an operator that fails when the condition
//! does not hold, and then the server rejects the whole update. In five alternating rounds of `bench turns`, filters in
//! place of the fence took 22 % more processor time per turn, and 40 % more of mongod's.
//!
//! The field `fence` of a session document holds *tokens*. A token is a field with a number in an array:
//!
//! - `held-<epoch>-<created_at>: [0]` exists while a worker holds the lane under this epoch, and no other worker has
//!   asked for it.
//! - `left-<epoch>-<created_at>: [0]` exists after the lease holder of this epoch has committed and released the lane.
//!
//! The creation time distinguishes the session from a deleted one with the same id. An update uses a token in one of
//! two ways:
//!
//! - *Spend*: `$inc` adds the largest 64-bit number to every element of the array (`$[]`). When the token does not
//!   exist, the path is invalid and the server rejects the update. When the token was spent before, the sum overflows
//!   and the server rejects the update, too. So the update applies once.
//! - *Check*: `$mul` doubles every element. 0 stays 0, so a check can be repeated. When the token is missing or spent,
//!   the server rejects the update.
//!
//! One session runs through these updates:
//!
//! | update | spends | issues | removes |
//! |---|---|---|---|
//! | insert with a lease, epoch 1 | | `held-1` | |
//! | commit that releases the lane | `held-1` | `left-1` | |
//! | acquisition, epoch 2 | `left-1` | `held-2` | `held-1` |
//! | commit that releases the lane | `held-2` | `left-2` | `left-1` |
//!
//! A renewal of the lease checks the `held` token. A spent token is removed by the next update, because one update
//! cannot both change and remove a field.
//!
//! All other updates filter by the fields of the lane, as in any optimistic concurrency control, and keep the fence
//! consistent. An acquisition and a commit that know the whole lane replace the fence by its current token. A worker
//! that asks for a held lane removes the fence, and so does a release without a commit. The plain updates of every
//! process then fail, and the processes read the session. For the same reason a person who edits an idle session by
//! hand must remove `fence`.

use super::document::{empty_document, put};
use bson::raw::cstr;
use bson::{RawArrayBuf, RawDocumentBuf};
use storage::store::Result;
use types::session::Session;
use types::timestamp::Timestamp;

/// Names the tokens of one session under one epoch.
#[derive(Clone, Copy)]
pub(super) struct FenceTokens {
    epoch: u64,
    /// Distinguishes the session from a deleted one with the same id.
    created_at: Timestamp,
}

impl FenceTokens {
    pub(super) fn new(epoch: u64, created_at: Timestamp) -> Self {
        Self { epoch, created_at }
    }

    pub(super) fn from_session(session: &Session) -> Self {
        Self::new(session.epoch, session.created_at)
    }

    /// The tokens of the previous epoch.
    pub(super) fn previous(self) -> Self {
        Self { epoch: self.epoch.saturating_sub(1), ..self }
    }

    /// The token that exists while the lease holder has the lane and no other worker has asked for it.
    pub(super) fn held(self) -> String {
        format!("held-{}-{}", self.epoch, self.created_at.as_millis())
    }

    /// The token that exists after the lease holder has committed and released the lane, until the next acquisition.
    pub(super) fn left(self) -> String {
        format!("left-{}-{}", self.epoch, self.created_at.as_millis())
    }
}

/// The operator `$mul` of an update that applies only while the token exists unspent. The update can be repeated.
pub(super) fn require_token(token: &str) -> Result<RawDocumentBuf> {
    let mut mul = RawDocumentBuf::new();
    put(&mut mul, &format!("fence.{token}.$[]"), 2_i64)?;
    Ok(mul)
}

/// The token changes of one update.
pub(super) struct FenceChange {
    pub(super) spent: String,
    pub(super) issued: String,
    pub(super) removed: String,
}

impl FenceChange {
    /// Adds the changes to the operators `$set` and `$unset` of an update, and returns the operator `$inc` that spends
    /// the token.
    pub(super) fn put(&self, set: &mut RawDocumentBuf, unset: &mut RawDocumentBuf) -> Result<RawDocumentBuf> {
        let mut fresh = RawArrayBuf::new();
        fresh.push(0_i64);
        put(set, &format!("fence.{}", self.issued), fresh)?;
        put(unset, &format!("fence.{}", self.removed), "")?;
        let mut inc = empty_document();
        put(&mut inc, &format!("fence.{}.$[]", self.spent), i64::MAX)?;
        Ok(inc)
    }
}

/// A fence with one token.
pub(super) fn with_token(token: &str) -> Result<RawDocumentBuf> {
    let (mut fence, mut fresh) = (RawDocumentBuf::new(), RawArrayBuf::new());
    fresh.push(0_i64);
    put(&mut fence, token, fresh)?;
    Ok(fence)
}

/// An update statement that filters by the id alone. It is an upsert, so that it fails when the document does not
/// exist: a new document has no token to spend.
pub(super) fn statement(session_id: &str, update: RawDocumentBuf) -> RawDocumentBuf {
    let mut statement = empty_document();
    statement.append(cstr!("q"), bson::rawdoc! {"_id": session_id});
    statement.append(cstr!("u"), update);
    statement.append(cstr!("upsert"), true);
    statement
}
