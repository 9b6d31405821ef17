//! The fence of a session: what lets an update count only for the epoch that it was made for, and only once, though its
//! filter is nothing but the `_id`. The server then goes the shortest way to the document; with more in the filter it plans
//! a query for each update, which took 40 % of its time for both updates of a turn.
//!
//! `fence` holds *tokens*: fields whose names say what the lane is and under which epoch, each an array of one number. An
//! update *spends* its token by raising every element of that array to the end of the range: where there is no such array
//! the server refuses the update, and raising it a second time would leave the range, which it refuses, too. An update that
//! only *asks* for a token doubles it: nothing, while it is whole, and out of the range once it is spent.

use super::document::{put, roomy};
use bson::raw::cstr;
use bson::{Document, RawArrayBuf, RawDocumentBuf, doc};
use storage::store::Result;
use types::session::Session;
use types::timestamp::Timestamp;

/// The tokens of one session under one epoch.
#[derive(Clone, Copy)]
pub(super) struct Tokens {
    epoch: u64,
    /// Tells a session from one of the same id that was deleted.
    created_at: Timestamp,
}

impl Tokens {
    pub(super) fn new(epoch: u64, created_at: Timestamp) -> Self {
        Self { epoch, created_at }
    }

    pub(super) fn of(session: &Session) -> Self {
        Self::new(session.epoch, session.created_at)
    }

    /// Those of the epoch before.
    pub(super) fn before(self) -> Self {
        Self { epoch: self.epoch.saturating_sub(1), ..self }
    }

    /// The holder has the lane, and nobody has asked for it meanwhile.
    pub(super) fn held(self) -> String {
        format!("held-{}-{}", self.epoch, self.created_at.as_millis())
    }

    /// Whoever had the lane has left it with a commit, and nobody has had it since.
    pub(super) fn left(self) -> String {
        format!("left-{}-{}", self.epoch, self.created_at.as_millis())
    }
}

/// The operator of an update that counts only while the token is there and whole, as often as is wanted.
pub(super) fn asked(token: &str) -> Result<RawDocumentBuf> {
    let mut mul = RawDocumentBuf::new();
    put(&mut mul, &format!("fence.{token}.$[]"), 2_i64)?;
    Ok(mul)
}

/// What an update asks of the fence: one token is spent, one made, one that was spent before removed.
pub(super) struct Passage {
    pub(super) spent: String,
    pub(super) made: String,
    pub(super) removed: String,
}

impl Passage {
    /// Adds it to the operators of an update.
    pub(super) fn put(&self, set: &mut RawDocumentBuf, unset: &mut RawDocumentBuf) -> Result<RawDocumentBuf> {
        let mut fresh = RawArrayBuf::new();
        fresh.push(0_i64);
        put(set, &format!("fence.{}", self.made), fresh)?;
        put(unset, &format!("fence.{}", self.removed), "")?;
        let mut inc = RawDocumentBuf::new();
        put(&mut inc, &format!("fence.{}.$[]", self.spent), i64::MAX)?;
        Ok(inc)
    }
}

/// An expression of the fence with the holder's token, for a document that has its epoch and creation time.
pub(super) fn held_expression() -> Document {
    let created = doc! {"$toString": {"$toLong": "$created_at"}};
    let name = doc! {"$concat": ["held-", {"$toString": "$epoch"}, "-", created]};
    doc! {"$arrayToObject": [[{"k": name, "v": {"$literal": [0_i64]}}]]}
}

/// A statement whose filter is the id alone. As an upsert it fails where there is no document: there is no token either.
pub(super) fn statement(session_id: &str, update: RawDocumentBuf) -> RawDocumentBuf {
    let mut statement = roomy();
    statement.append(cstr!("q"), bson::rawdoc! {"_id": session_id});
    statement.append(cstr!("u"), update);
    statement.append(cstr!("upsert"), true);
    statement
}
