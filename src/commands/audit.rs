//! Listing the audit trail.

use crate::error::CommandError;
use crate::paging::{Listing, fit, part_of};
use serde::{Deserialize, Serialize};
use storage::store::Store;
use types::audit::{AuditEntry, AuditQuery};
use types::page::{Bounds, Page};
use types::timestamp::Timestamp;

/// Entries of the audit trail, in the order of time.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct AuditTrail {
    /// The entries.
    pub entries: Vec<AuditEntry>,
    /// The cursor of the next page: give it as `after`. Missing at the end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
}

/// Lists the entries after an entry's id or after an RFC 3339 time, or the last ones.
pub async fn list(store: &dyn Store, after: Option<String>, limit: usize) -> Result<AuditTrail, CommandError> {
    // Ids begin with the milliseconds of their entries.
    let after = after.map(|after| match after.trim().parse::<Timestamp>() {
        Ok(time) => format!("{:013}", time.as_millis().max(0)),
        Err(_) => after,
    });
    if let Some(bad) = after.as_ref().filter(|after| !after.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-')) {
        let message = format!("after: `{bad}` is neither the id of an entry nor a time");
        return Err(CommandError::invalid("invalid_query", message, "write a time like 2026-01-02T00:00:00Z"));
    }
    if after.is_none() {
        // The last entries. If they are too large for a page, the earliest of them are skipped.
        let mut items = store.audit(AuditQuery { after, limit }).await?;
        items.reverse();
        let mut entries = fit(Page { items, has_more: false }, |entry| entry.id.clone()).items;
        entries.reverse();
        return Ok(AuditTrail { entries, next: None });
    }
    let entries = store.audit(AuditQuery { after, limit: limit + 1 }).await?;
    let page = part_of(entries, &Bounds::<String>::first(limit), |_, _| true);
    let Listing { items: entries, next } = fit(page, |entry| entry.id.clone());
    Ok(AuditTrail { entries, next })
}
